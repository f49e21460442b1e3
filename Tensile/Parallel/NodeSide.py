# SPDX-License-Identifier: MIT
"""What runs on a node: in the process of a device's worker, called by the front end through Dask.

    facts()              who it is: node, device, versions, hash of our own files
    locate(), receive()  the step's files (NodeFiles.py)
    prepare()            a task: takes the device's lock for a run
    runUnit()            a task: one unit, by Worker.runJob, as on the front end's own machine
    poll()               what a running unit has written since; and a sign of life of the front end
    stop(), release()    the early end of a unit; the end of a run
    leave()              the end of a join: waits until all that use the device have taken note

A task runs in one of the worker's threads; the rest in its event loop, so that it is answered while
a unit runs. A front end of which nothing was heard for LEASE_SECONDS, or that Dask's scheduler
says is gone, waits for nothing: its unit is ended and its device given up. Functions of this module
and values of NodeUnit.py and Types.py pass by name, so both sides must have the same version.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
    cast,
)

from . import __version__
from .Errors import NodeLeft, RunError, WorkerLost
from .Locks import DeviceInUse
from .NodeFiles import NodeCache, SentFile, checkRoom, errorsNameNode
from .NodeUnit import (
    CHUNK_BYTES,
    Answer,
    FilePart,
    Order,
    Question,
    Running,
    UnitEnd,
    askForEnd,
    endOf,
    mirroredFile,
    news,
    placeOrder,
    readPart,
)
from .Platform import System
from .Types import MEASURED, Device
from .Worker import WorkerFacts, holdDevice, releaseDevice, runJob

# The worker's environment: a JSON object of NodeIdentity's fields.
NODE_VARIABLE = "TENSILE_PARALLEL_NODE"

# Beyond a cut of the network that heals, in seconds.
LEASE_SECONDS = 60.0
# How often a node looks whether its unit is still wanted.
LOOK_SECONDS = 0.25
# How long a leaving node waits for the front end to fetch its last unit, in seconds.
FAREWELL_SECONDS = 20.0
# Under what a leaving worker tells its address through the scheduler.
LEAVING_TOPIC = "TensileParallel-leaving"


@dataclass(frozen=True)
class NodeIdentity:
    """What a join tells the workers that it starts.

    Attributes:
        node: the machine's name.
        join: tells two joins of one name apart.
        device: the device, by its number on this machine.
        lockFolder: where emulated devices lock.
        cache: the cache's folder.
        client: the command of the emulated client here.
        processors: those that it is to stay on; empty: any.
    """

    node: str
    join: str
    device: Device
    lockFolder: Optional[str]
    cache: str
    client: Tuple[str, ...]
    processors: Tuple[int, ...] = ()

    def toJson(self) -> str:
        """As text for the environment."""
        return json.dumps({**self.__dict__, "device": self.device.__dict__})

    @staticmethod
    def fromJson(text: str) -> "NodeIdentity":
        """The same, back."""
        data = json.loads(text)
        data["device"] = Device(**data["device"])
        data["client"] = tuple(data["client"])
        data["processors"] = tuple(data["processors"])
        return NodeIdentity(**data)


class _Node:
    """The state of this process; made at the first call."""

    def __init__(self) -> None:
        self.identity = NodeIdentity.fromJson(os.environ[NODE_VARIABLE])
        self.cache = NodeCache(self.identity.cache)
        self.folder = os.path.join(
            self.cache.joinFolder(self.identity.join), "worker-%d" % os.getpid()
        )
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self.guard = threading.Lock()
        self.holder = ""  # the run that has the device…
        self.claim: Optional[_Task] = None  # …as long as it keeps the result of this task
        self.heard: Dict[str, float] = {}  # run -> when it was heard of, on the monotonic clock
        self.jobs: Dict[str, Running] = {}
        self.waiting: Set[str] = set()  # runs that wait for the device
        self.leaving = False
        self.hash = packageHash()
        threading.Thread(target=self._watch, name="lease", daemon=True).start()

    def hear(self, run: str) -> None:
        """A run begins to use this device, or goes on with that."""
        if run:
            self.heard[run] = time.monotonic()

    def hearAgain(self, run: str) -> None:
        """The same, unless it has given the device up: a question may come late."""
        if run in self.heard:
            self.hear(run)

    def isHeard(self, run: str) -> bool:
        return time.monotonic() - self.heard.get(run, 0.0) < LEASE_SECONDS

    def end(self, run: str) -> None:
        """Ends what runs for a run, and gives its device up."""
        for running in list(self.jobs.values()):
            if running.order.run == run:
                askForEnd(running.job)
        deadline = time.monotonic() + 10.0
        while self._isBusy(run) and time.monotonic() < deadline:
            time.sleep(0.02)
        with self.guard:
            if self.holder == run and not self._isBusy(run):
                releaseDevice()
                self.holder, self.claim = "", None
        for id_ in [id_ for id_, each in self.jobs.items() if each.order.run == run]:
            self.forget(id_)
        self.heard.pop(run, None)

    def forget(self, id_: str) -> None:
        """The front end has all of a unit: its files go."""
        running = self.jobs.get(id_)
        if running is not None and running.ended:
            del self.jobs[id_]
            shutil.rmtree(running.job.folder, ignore_errors=True)

    def isCountedOn(self) -> bool:
        """Whether a run has this device, or is about to: it may hand out one more unit."""
        return bool(self.jobs) or any(self.isHeard(run) for run in list(self.heard))

    def _isBusy(self, run: str) -> bool:
        return any(r.order.run == run and not r.ended for r in list(self.jobs.values()))

    def _watch(self) -> None:
        while True:
            time.sleep(1.0)
            run, claim = self.holder, self.claim
            if run and not (self.isHeard(run) and claim is not None and claim.isWanted):
                self.end(run)


_node: Optional[_Node] = None
_nodeLock = threading.Lock()


def _here() -> _Node:
    global _node
    with _nodeLock:
        if _node is None:
            _node = _Node()
        return _node


def packageHash() -> str:
    """SHA-256 of this package's own modules: both sides must have the same."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _named(function: _Function) -> _Function:
    """Has a function's errors with files name this node: to the front end an OSError of it would
    look like one of the connection."""

    @functools.wraps(function)
    def named(*arguments: Any, **words: Any) -> Any:
        identity = NodeIdentity.fromJson(os.environ[NODE_VARIABLE])
        with errorsNameNode(identity.node, identity.cache):
            return function(*arguments, **words)

    return cast(_Function, named)


@_named
def facts() -> Dict[str, Any]:
    """Who this worker is."""
    node = _here()
    system = System()
    return {
        "node": node.identity.node,
        "join": node.identity.join,
        "device": node.identity.device,
        "client": node.identity.client,
        "leaving": node.leaving,
        "busy": bool(node.holder),
        "now": time.time(),
        "version": __version__,
        "hash": node.hash,
        "python": platform.python_version(),
        "driver": (system.readText("/sys/module/amdgpu/version") or "").strip(),
        "rocm": (system.readText("/opt/rocm/.info/version") or "").strip(),
        "kernel": platform.release(),
    }


@_named
def locate(run: str, files: Sequence[SentFile]) -> Tuple[Dict[str, str], List[str]]:
    """Where a step's files are here, and which are missing (NodeCache.locate)."""
    node = _here()
    node.hear(run)
    return node.cache.locate(files)


@_named
def receive(run: str, sha256: str, offset: int, data: bytes, size: int) -> int:
    """Takes a part of a missing file (NodeCache.receive)."""
    node = _here()
    node.hear(run)
    return node.cache.receive(sha256, offset, data, size, "%s%d" % (run, os.getpid()))


@_named
def prepare(run: str, wait: bool) -> WorkerFacts:
    """A task: takes the device's lock for a run.

    Raises:
        DeviceInUse: another run has it, and it is not to be waited for.
        NodeLeft: it takes no more units.
        RunError: it cannot be locked, or nobody waits for it any more.
    """
    node, task, begun = _here(), _Task(), time.monotonic()
    node.hear(run)
    try:
        return WorkerFacts(os.getpid(), _take(node, task, run, wait), time.monotonic() - begun)
    except BaseException:
        node.heard.pop(run, None)  # it knows, or is gone: a leaving worker need not wait for it
        raise
    finally:
        node.waiting.discard(run)


def _take(node: _Node, task: _Task, run: str, wait: bool) -> str:
    """Takes the lock, as prepare(); what it does not cover, or empty."""
    while True:
        if node.leaving:
            raise NodeLeft("node %s is leaving" % node.identity.node)
        with node.guard:
            if node.holder in ("", run):
                try:
                    device, processors = node.identity.device, node.identity.processors
                    note = holdDevice(device, node.identity.lockFolder, frozenset(processors))
                    node.holder, node.claim = run, task
                    return note
                except DeviceInUse:
                    if not wait:
                        raise
            elif not wait:
                raise DeviceInUse(
                    "device %d of %s is in use by another run of this cluster: wait for its end, "
                    "or choose other devices" % (node.identity.device.ordinal, node.identity.node)
                )
        if not (task.isWanted and node.isHeard(run)):
            raise RunError("nobody waits for this device any more")
        node.waiting.add(run)
        time.sleep(LOOK_SECONDS)


@_named
def runUnit(order: Order) -> UnitEnd:
    """A task: runs one unit.

    Raises:
        NodeLeft: this node takes no more units.
        WorkerLost: it was begun before, or its run does not hold the device.
        RunError: this node has no room for it.
    """
    node = _here()
    node.hear(order.run)
    name = node.identity.node
    if node.leaving:
        raise NodeLeft("node %s is leaving" % name)
    with node.guard:
        if node.holder != order.run:
            raise WorkerLost("node %s: the run does not hold this device any more" % name)
        job = placeOrder(node.folder, order)
        running = Running(order, job)
        node.jobs[order.id] = running
    done = threading.Event()
    watched = (node, running, _Task(), done)
    threading.Thread(target=_endIfUnwanted, args=watched, daemon=True).start()
    try:
        result = runJob(job)
        if result.outcome.kind != MEASURED:
            checkRoom(job.folder)  # then it is not the client's fault
        return endOf(running, result, node.leaving)
    finally:
        done.set()
        running.ended = True


class _Task:
    """The Dask task that this thread runs, or that has run in it."""

    def __init__(self) -> None:
        from distributed import get_worker

        self._worker = get_worker()
        self._key = self._worker.get_current_task()

    @property
    def isWanted(self) -> bool:
        """Whether somebody waits for its result, or keeps it, and could be given it."""
        if self._worker.status.name not in ("running", "paused"):
            return False
        task = self._worker.state.tasks.get(self._key)
        return task is not None and task.state not in ("cancelled", "released", "forgotten")


def _endIfUnwanted(node: _Node, running: Running, task: _Task, done: threading.Event) -> None:
    """Ends a unit that nobody waits for: given back, its front end gone, or its node leaving."""
    while not done.wait(LOOK_SECONDS):
        if node.leaving or not task.isWanted or not node.isHeard(running.order.run):
            askForEnd(running.job)


def poll(questions: Mapping[str, Question], dask_worker: Any = None) -> Optional[Answer]:
    """Answers the question that is for this worker, by its address."""
    node = _here()
    question = questions.get(dask_worker.address)
    if question is None:
        return None
    node.hearAgain(question.run)
    for id_ in question.forget:
        node.forget(id_)
    parts: Dict[str, FilePart] = {}
    running = node.jobs.get(question.job)
    more = False
    if running is not None:
        running.asked = dict(question.offsets)
        parts, more = news(running.job, question.offsets)
    return Answer(question.job, parts, more, node.leaving, question.run in node.waiting)


def fetch(run: str, job: str, suffix: str, offset: int) -> Optional[FilePart]:
    """Another part of a file of a unit that has ended."""
    node = _here()
    node.hearAgain(run)
    running = node.jobs.get(job)
    return readPart(mirroredFile(running.job, suffix), offset, CHUNK_BYTES) if running else None


def stop(run: str, job: str) -> None:
    """Asks for the early end of a unit."""
    node = _here()
    node.hearAgain(run)
    running = node.jobs.get(job)
    if running is not None:
        askForEnd(running.job)


def forget(run: str, job: str) -> None:
    """The front end has all of a unit."""
    node = _here()
    node.hearAgain(run)
    node.forget(job)


async def release(run: str) -> None:
    """Ends what a run still does here and gives the device up."""
    import asyncio

    await asyncio.get_running_loop().run_in_executor(None, _here().end, run)


async def leave(dask_worker: Any = None) -> None:
    """Takes no more units, gives the running one back, and says so.

    Waits until whoever uses the device has fetched what there is and given it up: a unit that is
    on its way here just now must not meet a worker that is gone.
    """
    import asyncio

    node = _here()
    node.leaving = True
    dask_worker.log_event(LEAVING_TOPIC, {"address": dask_worker.address})
    deadline = time.monotonic() + FAREWELL_SECONDS
    while True:
        for running in list(node.jobs.values()):
            if not running.ended:
                askForEnd(running.job)
        await asyncio.sleep(0.1)
        if not node.isCountedOn() or time.monotonic() > deadline:
            break
    holder: FrozenSet[str] = frozenset({node.holder} - {""})
    for run in holder:
        await asyncio.get_running_loop().run_in_executor(None, node.end, run)
