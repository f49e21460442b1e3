# SPDX-License-Identifier: MIT
"""A device of another machine, with the face of Worker.DeviceWorker: Loop.py knows no difference.

    start()    finds the device's worker, sends it the step's files, has it take the device's lock
    submit()   the unit with the node's paths -> NodeSide.runUnit -> the same files, here
    shorten()  NodeSide.stop
    kill()     NodeSide.release

While a unit runs, what it writes is written here as well (Mirror), about once a second: so its
progress can be read, and what it has finished is kept whatever becomes of the node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Coroutine, Dict, List, Optional, Sequence

from . import NodeSide
from .Cluster import Cluster
from .DeviceNames import nameOf
from .Errors import NodeLeft, RunError, WayLost, WorkerLost
from .Mirror import Mirror
from .News import Connected
from .NodeFiles import SentFile
from .NodeOrder import makeOrder
from .NodeUnit import Answer, Question, UnitEnd
from .Outcomes import examine
from .Step import Step
from .Types import ClientExit, Device, Job, UnitResult
from .WarmUp import clientBegun
from .Worker import WorkerFacts

log = logging.getLogger("TensileParallel")

# How long a node may take to give up what it does for us when we end, in seconds.
RELEASE_SECONDS = 12.0


class NodeWorker:
    """One device of another machine."""

    def __init__(
        self,
        device: Device,
        cluster: Cluster,
        run: str,
        step: Step,
        files: Sequence[SentFile],
        wait: bool,
    ) -> None:
        """Prepares; start() connects.

        Args:
            device: with its number in the run.
            cluster: the connection.
            run: id of the run and step: whoever has it has the device.
            step: what its units belong to.
            files: what they read.
            wait: whether to wait for a device that another run holds.
        """
        self.device = device
        self.starts = 0
        self.leaving = False
        self.waits = False
        self._cluster = cluster
        self._run = run
        self._step = step
        self._files = tuple(files)
        self._wait = wait
        self._contact: Optional[Connected] = None  # whom we deal with
        self._worker: Optional[Connected] = None  # the same, once it is ready
        self._claim: Any = None  # Dask's future of prepare(): as long as we keep it we hold it
        self._paths: Dict[str, str] = {}
        self._starting: "Optional[Future[Any]]" = None
        self._ending: "Optional[Future[Any]]" = None
        self._job = ""
        self._mirror: Optional[Mirror] = None
        self._forget: List[str] = []

    # -- what the loop calls --------------------------------------------------------------------

    def start(self) -> "Future[WorkerFacts]":
        """Finds the worker and has it made ready."""
        self.starts += 1
        self._starting = self._cluster.spawn(self._noting(self._start()))
        return self._starting

    def submit(self, job: Job) -> "Future[UnitResult]":
        """Runs one unit."""
        if self._worker is None:
            raise WorkerLost("node %s: its worker is gone" % self.device.node)
        return self._cluster.spawn(self._noting(self._submit(self._worker, job)))

    def shorten(self, job: Job) -> None:
        """Asks for the end of the running unit's client; what it has finished is kept."""
        if self._worker is not None and self._job:
            self._cluster.spawn(self._shorten(self._worker, self._job))

    def kill(self) -> None:
        """Ends what runs, and gives the device up."""
        self.close()

    def close(self) -> None:
        """Gives the device up, without waiting for it: the cluster's end does."""
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        self._ending = self._cluster.spawn(self._release())
        self._cluster.awaitAtEnd(self._ending)

    # -- in the cluster's loop ------------------------------------------------------------------

    async def _noting(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Work of the loop; however often the scheduler restarts, that is no death of a worker."""
        try:
            return await work
        except NodeLeft:
            self.leaving = True
            raise
        except WorkerLost as error:
            if self._cluster.isConnected:
                raise
            self.starts = max(1, self.starts - 1)
            raise WayLost(str(error)) from None

    async def _start(self) -> WorkerFacts:
        if self._ending is not None:
            await asyncio.wait({asyncio.wrap_future(self._ending)})
        worker = self._contact = await self._cluster.find(self.device)
        async with self._cluster.nodeLock(worker.member.node):
            self._paths = await self._sendFiles(worker)
        self._cluster.follow(worker, self)
        claim = self._cluster.submit(worker, NodeSide.prepare, self._run, self._wait)
        facts = await self._cluster.outcome(worker, claim)
        self._worker, self._claim = worker, claim
        self.leaving = False
        return facts

    async def _sendFiles(self, worker: Connected) -> Dict[str, str]:
        """Where the step's files are on the node, after those that it had not were sent."""
        cluster, arguments = self._cluster, (self._run, self._files)
        paths, missing = await cluster.call(worker, NodeSide.locate, *arguments)
        if not missing:
            return paths
        begun = time.monotonic()
        wanted = {file.sha256: file for file in self._files if file.sha256 in missing}
        for file in wanted.values():
            await self._sendFile(worker, file)
        total = sum(file.size for file in wanted.values())
        log.info(
            "node %s: %d files of %.1f MB sent in %.1f s",
            worker.member.node,
            len(wanted),
            total / 1e6,
            time.monotonic() - begun,
        )
        paths, missing = await cluster.call(worker, NodeSide.locate, *arguments)
        if missing:
            raise RunError("node %s does not keep what it is sent" % worker.member.node)
        return paths

    async def _sendFile(self, worker: Connected, file: SentFile) -> None:
        offset = 0
        with open(file.path, "rb") as stream:
            while True:
                data = stream.read(NodeSide.CHUNK_BYTES)
                arguments = (self._run, file.sha256, offset, data, file.size)
                offset = await self._cluster.call(worker, NodeSide.receive, *arguments)
                if offset >= file.size:
                    return
                if not data:
                    raise RunError("%s was changed while it was sent" % file.path)

    async def _submit(self, worker: Connected, job: Job) -> UnitResult:
        begun = time.time()
        try:
            return await self._runUnit(worker, job)
        except NodeLeft:
            self.leaving = True
            return _givenBack(job, begun)

    async def _runUnit(self, worker: Connected, job: Job) -> UnitResult:
        mirror = Mirror(job)
        order = makeOrder(self._run, self._step, self._paths, worker.member, job)
        self._mirror, self._job = mirror, order.id
        future = self._cluster.submit(worker, NodeSide.runUnit, order)
        try:
            end = await self._cluster.outcome(worker, future)
            self.leaving = self.leaving or end.leaving
            await self._fetchRest(worker, order.id, mirror, end)
        finally:
            self._job, self._mirror = "", None
            future.release()
        self._forget.append(order.id)
        if end.leaving:
            await self._cluster.call(worker, NodeSide.forget, self._run, order.id)
        self.starts = min(self.starts, 1)  # it works: what happened before does not count
        return _byOurClock(end.result, worker.member.clockAhead)

    async def _fetchRest(self, worker: Connected, id_: str, mirror: Mirror, end: UnitEnd) -> None:
        """What of a unit's files was not written yet; then they are compared.

        Raises:
            RunError: this machine's disk takes no more.
            WorkerLost: they are not what the node has.
        """
        for suffix, part in end.parts.items():
            mirror.add(suffix, part)
        for suffix, size in end.sizes.items():
            while mirror.problem is None and mirror.sizes.get(suffix, 0) < size:
                have = mirror.sizes.get(suffix, 0)
                arguments = (self._run, id_, suffix, have)
                part = await self._cluster.call(worker, NodeSide.fetch, *arguments)
                if part is None or not part.data:
                    raise WorkerLost("node %s has lost its unit's files" % worker.member.node)
                mirror.add(suffix, part)
        if mirror.problem is not None:
            raise mirror.problem
        mirror.keepOnly(list(end.sizes))
        if not mirror.matches(end):
            node = worker.member.node
            raise WorkerLost("node %s: its unit's files were damaged on their way" % node)

    async def _shorten(self, worker: Connected, id_: str) -> None:
        try:
            await self._cluster.call(worker, NodeSide.stop, self._run, id_)
        except (WorkerLost, RunError) as error:
            log.debug("device %d: cannot end its unit early: %s", self.device.ordinal, error)

    async def _release(self) -> None:
        worker, claim = self._contact, self._claim
        self._contact = self._worker = self._claim = None
        if worker is None:
            return
        worker.follower = None
        try:
            answer = self._cluster.call(worker, NodeSide.release, self._run)
            await asyncio.wait_for(answer, RELEASE_SECONDS)
        except Exception as error:  # it is gone, or notices by itself that we are
            log.debug("device %d was not given up: %r", self.device.ordinal, error)
        finally:
            if claim is not None:
                claim.release()

    def question(self) -> Question:
        """What to ask the worker now."""
        forget, self._forget = tuple(self._forget), []
        offsets = dict(self._mirror.sizes) if self._mirror is not None else {}
        return Question(self._run, self._job, offsets, forget)

    def answered(self, answer: Answer) -> None:
        """Takes what the running unit has written."""
        self.leaving = self.leaving or answer.leaving
        if answer.waits and not self.waits:
            text = "device %s is in use by another run of this cluster: waiting for its end"
            log.warning(text, nameOf(self.device))
        self.waits = answer.waits
        if self._mirror is not None and answer.job == self._job:
            for suffix, part in answer.parts.items():
                self._mirror.add(suffix, part)
            if self._mirror.problem is not None and self._worker is not None:
                # No room here: nothing that the unit measures from now on could be kept.
                asyncio.ensure_future(self._shorten(self._worker, self._job))


def _givenBack(job: Job, begun: float) -> UnitResult:
    """A unit whose node has left under it, or before it: with what has come of it."""
    now = time.time()
    started = clientBegun(job, begun, now)
    result = examine(job, ClientExit(143, False, started, now, shortened=True))
    return replace(result, outcome=replace(result.outcome, exitStatus=None))


def _byOurClock(result: UnitResult, ahead: float) -> UnitResult:
    outcome = result.outcome
    moved = replace(outcome, started=outcome.started - ahead, ended=outcome.ended - ahead)
    return replace(result, outcome=moved)
