# SPDX-License-Identifier: MIT
"""The front end's connection to a cluster: Dask's scheduler and the workers that have joined it.

    Cluster --(asyncio loop in a thread of its own)--> distributed.Client --> scheduler --> workers
        who has joined and who is gone      asked once a second
        what running units have written     News.py
        coroutines for NodeWorker.py        their futures are concurrent.futures ones: Loop's

Nothing of `distributed` is imported before a Cluster connects. Its own settings (TLS, time limits)
are Dask's configuration and not ours.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import threading
import time
import uuid
import warnings
from concurrent.futures import Future, wait
from dataclasses import replace
from importlib.util import find_spec
from typing import (
    Any,
    Callable,
    Coroutine,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from . import NodeSide
from .Certificates import refuseWithoutCertificate
from .Errors import InputError, NodeLeft, RunError, WorkerLost, firstLine
from .Fleet import Member, keyOf
from .Knock import aboutTls, knock
from .News import WATCH_SECONDS, Connected, Follower, News
from .Place import Place, hostAndPort
from .Types import Device

log = logging.getLogger("TensileParallel")

# A worker that takes longer to say who it is holds up no other.
MEET_SECONDS = 3.0
# How long the scheduler may take to answer at the start, in seconds.
CONNECT_SECONDS = 30.0
# How long a device may be away before its work goes to others…
ABSENCE_SECONDS = 30.0
# …and how long the scheduler may be, whose workers come back with it, or all devices at once.
SCHEDULER_ABSENCE_SECONDS = 600.0
# How long a scheduler that is there again may take to answer, in seconds.
AGAIN_SECONDS = 10.0
# How long it may take to find out whether anybody listens, in seconds.
KNOCK_SECONDS = 5.0
# How long nodes may take to give up what they do for us when we end, in seconds.
END_SECONDS = 15.0
# What is said of a clock that differs by less is only noise of the network.
CLOCK_NOISE_SECONDS = 1.0


class Cluster:
    """A connection. Public methods are for other threads; coroutines run in its own loop."""

    def __init__(self, address: str, schedulerFile: str = "") -> None:
        """Prepares; connect() connects.

        Args:
            address: the scheduler's, "tcp://host:8786" or "tls://…"; empty where a file tells.
            schedulerFile: a file that the scheduler has written.
        """
        self._place = Place(address, schedulerFile)
        self._client: Any = None
        self._connected: Dict[str, Connected] = {}
        self._strangers: Set[str] = set()
        self._asked: Set[str] = set()  # who they are
        self._goneAt: Dict[Tuple[str, str, int], float] = {}  # device -> since when
        self._leaving: Set[str] = set()  # workers that have said so
        self._left: Set[Tuple[str, str, int]] = set()  # devices whose last worker had
        self._nodeLocks: Dict[str, asyncio.Lock] = {}
        self._news = News(self.connected, self._askAll)
        self._tasks: "Set[asyncio.Future[Any]]" = set()
        self._lostSince: Optional[float] = None
        self._unfinished: "List[Future[Any]]" = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_noteOnly)
        self._thread = threading.Thread(target=self._runLoop, name="cluster", daemon=True)

    @property
    def where(self) -> str:
        """The scheduler, for messages."""
        return str(self._place)

    def _runLoop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    # -- from other threads ---------------------------------------------------------------------

    def connect(self, seconds: Optional[float] = None) -> None:
        """Connects and learns who has joined.

        Args:
            seconds: how long the scheduler may take to answer; None for the usual.

        Raises:
            InputError: `distributed` is not installed, or no scheduler answers.
        """
        requireDistributed()
        if self._place.address:
            hostAndPort(self._place.address)
        self._thread.start()
        try:
            self.spawn(self._connect(seconds or CONNECT_SECONDS)).result()
        except BaseException:
            self.close()
            raise

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "Future[Any]":
        """Runs a coroutine in the loop; a future that Loop.py can wait for."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def members(self) -> List[Member]:
        """Who is there now."""
        return [each.member for each in list(self._connected.values())]

    def waitForMembers(
        self, seconds: float, nodes: int = 1, onWait: Callable[[], None] = lambda: None
    ) -> None:
        """Waits until so many nodes have joined, or the time is over."""
        deadline = time.monotonic() + seconds
        asked = False
        while len({m.node for m in self.members()}) < nodes and time.monotonic() < deadline:
            if not asked:
                onWait()
                asked = True
            time.sleep(0.1)
        count = -1
        while asked and self._connected and len(self._connected) > count:
            count = len(self._connected)
            time.sleep(2 * WATCH_SECONDS)  # a node's devices come one after the other

    def awaitAtEnd(self, future: "Future[Any]") -> None:
        """What is to be finished before the connection ends."""
        self._unfinished = [each for each in self._unfinished if not each.done()] + [future]

    def close(self) -> None:
        """Ends the connection and the thread."""
        if not self._thread.is_alive():
            return
        wait(self._unfinished, timeout=END_SECONDS)
        try:
            self.spawn(self._close()).result(timeout=10.0)
        except Exception as error:
            log.debug("closing the connection to %s: %r", self.where, error)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10.0)

    # -- in the loop ----------------------------------------------------------------------------

    async def _connect(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                await self._newClient(max(1.0, min(seconds, CONNECT_SECONDS)))
                await self._lookWhileConnected()
                break
            except InputError:
                raise
            except Exception as error:
                # It may have been just about to restart.
                mayRestart = isinstance(error, (OSError, asyncio.TimeoutError))
                advice = await aboutTls(self._place.current(), str(error))
                if advice or time.monotonic() > deadline or not mayRestart:
                    raise InputError(self._noScheduler(error, advice)) from None
            await asyncio.sleep(0.5)
        self._keep(self._watch())

    def _noScheduler(self, error: BaseException, advice: str) -> str:
        why = firstLine(str(error)) or "it does not speak as one"
        advice = advice or "start one with `dask scheduler`, or name the right place"
        return "no scheduler answers at %s (%s): %s" % (self.where, why, advice)

    async def _newClient(self, seconds: float) -> None:
        """Connects, whatever listens there, within the time.

        Raises:
            InputError: it wants a certificate, and there is none.
            OSError, asyncio.TimeoutError: nobody answers as a scheduler does.
        """
        address = self._place.current()
        if not address:
            raise FileNotFoundError(self._place.problem())
        refuseWithoutCertificate(address, "client")
        # Only where somebody listens: else Dask's client would try again after pauses that double.
        await knock(address, "client", min(seconds, KNOCK_SECONDS))
        opening = asyncio.ensure_future(self._openClient(address, seconds))
        done, _ = await asyncio.wait({opening}, timeout=seconds)
        if not done or opening.cancelled():
            opening.add_done_callback(_retrieve)
            opening.cancel()
            raise asyncio.TimeoutError()
        self._client = opening.result()

    async def _openClient(self, address: str, seconds: float) -> Any:
        Client = _importClient()
        # Dask leaves one behind where it could not connect; it is said in one line of ours.
        warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning)
        client = await Client(
            address=address,
            asynchronous=True,
            set_as_default=False,
            timeout=seconds,
            name="TensileParallel",
        )
        client.subscribe_topic(NodeSide.LEAVING_TOPIC, self._onLeave)
        return client

    def _onLeave(self, event: Tuple[float, Mapping[str, str]]) -> None:
        """A worker has said that it is leaving: known at once, whoever keeps News.py waiting."""
        address = event[1]["address"]
        self._leaving.add(address)
        if address in self._connected:
            worker = self._connected[address]
            worker.member = replace(worker.member, leaving=True)

    def _keep(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Future[Any]":
        """Begins a task that goes on by itself, until the connection is closed at the latest."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_retrieve)
        return task

    async def _close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        self._news.stop()
        if self._client is not None:
            await self._client.close(timeout=5)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                if self.isConnected:
                    await self._lookWhileConnected()
                else:
                    await self._connectAgain()
                self._lostSince = None
            except Exception as error:
                self._noteLoss(error)

    @property
    def isConnected(self) -> bool:
        """Whether the scheduler is there, as far as Dask's client has noticed."""
        return bool(self._client.status == "running")

    async def _lookWhileConnected(self) -> None:
        """Looks; where the connection breaks, that would wait for as long as Dask's client does.

        Raises:
            OSError: the connection is lost.
        """
        looking = asyncio.ensure_future(self._look())
        looking.add_done_callback(_retrieve)
        try:
            while not looking.done() and self.isConnected:
                await asyncio.wait({looking}, timeout=WATCH_SECONDS)
            if not looking.done() or looking.cancelled():
                raise ConnectionError("the connection was lost")
            looking.result()
        finally:
            looking.cancel()

    def _noteLoss(self, error: BaseException) -> None:
        if self._lostSince is None:
            self._lostSince = time.monotonic()
            log.warning("the scheduler %s does not answer: %s", self.where, firstLine(error))

    async def _connectAgain(self) -> None:
        """A new client: Dask's own tries again after pauses that double, up to minutes.

        Raises:
            OSError, asyncio.TimeoutError: there is no scheduler yet.
        """
        self._forgetAll()
        if self._client.status not in ("closing", "closed"):
            self._keep(self._client.close(timeout=AGAIN_SECONDS))
        await self._newClient(AGAIN_SECONDS)
        self._countAbsencesAnew()
        log.warning("connected to the scheduler %s again", self.where)

    def _forgetAll(self) -> None:
        for address in list(self._connected):
            self._lose(address)

    def _lose(self, address: str) -> None:
        lost = self._connected.pop(address)
        if lost.member.leaving:
            self._left.add(lost.member.key)
        lost.gone.set()
        self._goneAt[lost.member.key] = time.monotonic()

    def whoLeft(self) -> Set[Tuple[str, str, int]]:
        """The devices whose worker has left, or is about to, and that have no other."""
        members = self.members()
        leaving = {member.key for member in members if member.leaving}
        return (self._left | leaving) - {member.key for member in members if not member.leaving}

    def _countAbsencesAnew(self) -> None:
        """Nobody was there who could have taken anybody's work."""
        self._goneAt = dict.fromkeys(self._goneAt, time.monotonic())

    async def _look(self) -> None:
        """Learns who has joined and who is gone."""
        addresses = set(await self._client.nthreads())
        for address in set(self._connected) - addresses:
            self._lose(address)
        self._strangers &= addresses
        self._leaving &= addresses
        new = sorted(addresses - set(self._connected) - self._strangers - self._asked)
        if not new:
            return
        tasks = {self._keep(self._meet(address)) for address in new}
        # One that does not answer, because it is gone or slow, holds up no other.
        await asyncio.wait(tasks, timeout=MEET_SECONDS)

    async def _meet(self, address: str) -> None:
        """Learns who a worker is."""
        self._asked.add(address)
        try:
            asked = time.time()
            found = await self._client.run(NodeSide.facts, workers=[address], on_error="return")
            facts = found.get(address)
            if isinstance(facts, dict):
                if not self._connected:
                    self._countAbsencesAnew()
                member = _memberOf(address, facts, asked, time.time())
                if address in self._leaving:  # since it was asked
                    member = replace(member, leaving=True)
                self._connected[address] = Connected(member)
                self._goneAt.pop(member.key, None)
                self._left.discard(member.key)
            elif not isinstance(facts, OSError):
                log.debug("%s is no worker of ours: %r", address, facts)
                self._strangers.add(address)
        except Exception as error:  # it is asked again as long as the scheduler knows it
            log.debug("%s did not answer: %r", address, error)
        finally:
            self._asked.discard(address)

    async def find(self, device: Device) -> Connected:
        """The worker of a device; waits for one that is away.

        Raises:
            NodeLeft: it has left.
            RunError: it was away for too long.
        """
        begun = since = self._goneAt.get(keyOf(device), time.monotonic())
        while True:
            for each in self._connected.values():
                if each.member.key == keyOf(device) and not each.member.leaving:
                    return each
            if keyOf(device) in self.whoLeft():
                raise NodeLeft("node %s has left" % device.node)
            now = time.monotonic()
            isLost = self._lostSince is not None
            if isLost or not self._connected:
                since = now  # nobody is there who could take its work
            if now - since > ABSENCE_SECONDS or now - begun > SCHEDULER_ABSENCE_SECONDS:
                what = "the scheduler" if isLost else "node %s" % device.node
                raise RunError("%s was away for %.0f s" % (what, now - begun))
            await asyncio.sleep(0.1)

    @property
    def silent(self) -> List[str]:
        """Addresses of workers that were asked who they are and have not answered yet."""
        return sorted(self._asked)

    def connected(self) -> List[Connected]:
        """Who is there now."""
        return list(self._connected.values())

    def nodeLock(self, node: str) -> asyncio.Lock:
        """Held by who sends files to a node, so that each is sent once."""
        return self._nodeLocks.setdefault(node, asyncio.Lock())

    async def call(self, worker: Connected, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function of NodeSide in a worker's event loop.

        Raises:
            WorkerLost: the worker is gone.
        """
        return await self._unlessGone(worker, self._call(worker, function, arguments))

    async def _call(self, worker: Connected, function: Callable[..., Any], arguments: Any) -> Any:
        client, node, to = self._client, worker.member.node, [worker.address]
        try:
            found = await client.run(function, *arguments, workers=to, on_error="return")
        except Exception as error:
            if client.status == "running":
                raise
            raise WorkerLost("node %s: %s" % (node, firstLine(error))) from None  # of many kinds
        answer = found.get(worker.address, WorkerLost("node %s: its worker is gone" % node))
        if isinstance(answer, OSError):
            raise WorkerLost("node %s: %s" % (node, firstLine(answer)))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def submit(self, worker: Connected, function: Callable[..., Any], *arguments: Any) -> Any:
        """A task for one worker and no other; Dask never runs it again by itself.

        Raises:
            WorkerLost: the worker is gone, or the connection.
        """
        if not self.isConnected or worker.gone.is_set():
            raise self._lossOf(worker, "the connection was lost")
        return self._client.submit(
            pickle.loads,
            pickle.dumps(_Call(function, arguments)),
            key="%s-%s" % (function.__name__, uuid.uuid4()),
            workers=[worker.address],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )

    async def outcome(self, worker: Connected, future: Any) -> Any:
        """A task's result.

        Raises:
            WorkerLost: the worker is gone, or the connection.
        """
        try:
            return await self._unlessGone(worker, future.result())
        except WorkerLost:
            future.release()
            raise

    async def _unlessGone(self, worker: Connected, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(worker.gone.wait())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._lossOf(worker, "its worker is gone")
            if task.cancelled():
                raise self._lossOf(worker, "the connection was lost")
            error = task.exception()
            if error is not None and type(error).__name__.endswith("CancelledError"):
                raise self._lossOf(worker, "the connection was lost")
            if isinstance(error, WorkerLost) and worker.member.leaving:
                raise NodeLeft(str(error)) from None
            if error is not None:
                raise error
            return task.result()
        finally:
            task.add_done_callback(
                _retrieve
            )  # whatever becomes of it, nobody waits for it any more
            task.cancel()
            gone.cancel()

    def _lossOf(self, worker: Connected, what: str) -> WorkerLost:
        kind = NodeLeft if worker.member.leaving else WorkerLost
        return kind("node %s: %s" % (worker.member.node, what))

    def follow(self, worker: Connected, follower: Follower) -> None:
        """Asks a worker for news once a second from now on."""
        worker.follower = follower
        self._news.begin()

    async def _askAll(self, questions: Mapping[str, NodeSide.Question]) -> Dict[str, Any]:
        found: Dict[str, Any] = await self._client.run(
            NodeSide.poll, questions, workers=list(questions), on_error="return"
        )
        return found


def _importClient() -> Any:
    """Dask's client. Its thousands of objects stay: nobody need look through them for garbage."""
    gc.disable()  # a third of a second less, at the start and at the end
    try:
        from distributed import Client
    finally:
        gc.freeze()
        gc.enable()
    if "DASK_LOGGING__DISTRIBUTED" not in os.environ:
        # What becomes of connections is told by ourselves, in a line.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    return Client


def _noteOnly(loop: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
    """What Dask's own tasks leave behind when a connection ends is nobody's concern."""
    log.debug("%s: %r", context.get("message"), context.get("exception"))


def _retrieve(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()


class _Call:
    """A call that is made where its pickle is read.

    Dask's scheduler unpickles the function of a task. It need not have our package: so that
    function is pickle.loads, and what it reads is bytes to the scheduler.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self._call = (function, tuple(arguments))

    def __reduce__(self) -> Any:
        return self._call


def requireDistributed() -> None:
    """Refuses to go on without Dask's scheduler.

    Raises:
        InputError: it is not installed, or its configuration cannot be read.
    """
    if find_spec("distributed") is None:
        raise InputError(
            "a cluster needs Dask's scheduler: pip install distributed, here and on every node"
        )
    try:
        import dask.config  # noqa: F401  (it reads the user's files)
    except ValueError as error:
        raise InputError("Dask's configuration: %s" % " ".join(str(error).split())) from None


def _memberOf(address: str, facts: Dict[str, Any], asked: float, answered: float) -> Member:
    ahead = facts["now"] - (asked + answered) / 2
    noise = CLOCK_NOISE_SECONDS + (answered - asked) / 2  # it may have answered at any moment
    names = ("driver", "rocm", "kernel", "python")
    return Member(
        address=address,
        node=facts["node"],
        join=facts["join"],
        device=facts["device"],
        client=tuple(facts["client"]),
        version=facts["version"],
        hash=facts["hash"],
        versions={name: facts[name] for name in names},
        leaving=facts["leaving"],
        busy=facts.get("busy", False),
        clockAhead=ahead if abs(ahead) > noise else 0.0,
    )
