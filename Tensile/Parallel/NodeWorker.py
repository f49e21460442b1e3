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
import contextlib
import logging
import os
import re
import time
import uuid
from concurrent.futures import Future
from dataclasses import replace
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from . import NodeSide, __version__
from .Cluster import SCHEDULER_ABSENCE_SECONDS, Cluster, Connected, Follower
from .DeviceList import ALL_DEVICES, DeviceSelection, Selection
from .Errors import InputError, RunError, WorkerLost
from .Fleet import Member, Register, choose, fits, keyOf, refuseStrangers, registerPath
from .NodeFiles import READ_OPTIONS, SentFile, hashFile, mappedValues, stepFiles
from .NodeUnit import MIRRORED, Answer, FilePart, Order, Question, UnitEnd, mirroredFile
from .Step import Step
from .Types import Device, Job, UnitResult
from .Worker import WorkerFacts

log = logging.getLogger("TensileParallel")

# Stands for the unit's folder on the node; nothing that a user would write.
FOLDER_MARK = "@TENSILE-PARALLEL-UNIT-FOLDER@"
# How long a node may take to give up what it does for us when we end, in seconds.
RELEASE_SECONDS = 12.0
# A device that was set aside is taken in again with this many workers at most.
MOST_WORKERS = 50
# How long a run waits for the first node, in seconds.
FIRST_SECONDS = 60.0
_FILE_KEYS = (*READ_OPTIONS, "results-file", "log-file", "library-update-file")


class Mirror:
    """The files of a unit that runs elsewhere, as far as they have come."""

    def __init__(self, job: Job) -> None:
        """Begins: what an earlier unit of this name has left goes.

        Raises:
            OSError: it cannot be removed.
        """
        self._job = job
        self.sizes: Dict[str, int] = {}
        self.problem: Optional[OSError] = None
        for suffix in MIRRORED:
            try:
                os.unlink(mirroredFile(job, suffix))
            except FileNotFoundError:
                pass

    def add(self, suffix: str, part: FilePart) -> None:
        """Writes a part. One that was written already changes nothing, one that leaves a gap is
        left out: it will come again."""
        have = self.sizes.get(suffix, 0)
        if suffix not in MIRRORED or part.offset > have:
            return
        data = part.data[have - part.offset :]
        path = mirroredFile(self._job, suffix)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            with open(os.open(path, flags, 0o666), "wb", buffering=0) as stream:
                stream.seek(have)
                stream.write(data)
            # When it was written on the node, by this machine's clock.
            written = time.time() - max(0.0, part.age)
            os.utime(path, (written, written))
            self.sizes[suffix] = have + len(data)
        except OSError as error:
            self.problem = error

    def matches(self, end: UnitEnd) -> bool:
        """Whether the files are the node's, byte for byte."""
        for suffix, wanted in end.hashes.items():
            try:
                if hashFile(mirroredFile(self._job, suffix)) != wanted:
                    return False
            except OSError:
                return False
        return True

    def keepOnly(self, suffixes: Sequence[str]) -> None:
        """Removes what the node has removed, too."""
        for suffix in set(self.sizes) - set(suffixes):
            try:
                os.unlink(mirroredFile(self._job, suffix))
            except OSError:
                pass


class NodeWorker(Follower):
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
        self._cluster = cluster
        self._run = run
        self._step = step
        self._files = tuple(files)
        self._wait = wait
        self._worker: Optional[Connected] = None
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
        self._starting = self._cluster.spawn(self._start())
        return self._starting

    def submit(self, job: Job) -> "Future[UnitResult]":
        """Runs one unit."""
        if self._worker is None:
            raise WorkerLost("node %s: no worker" % self.device.node)
        return self._cluster.spawn(self._submit(self._worker, job))

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

    async def _start(self) -> WorkerFacts:
        if self._ending is not None:
            await asyncio.wait({asyncio.wrap_future(self._ending)})
        worker = await self._cluster.find(self.device)
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
        mirror = Mirror(job)
        order = self._order(worker.member, job)
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
            raise WorkerLost("the unit's files were damaged on their way")

    async def _shorten(self, worker: Connected, id_: str) -> None:
        try:
            await self._cluster.call(worker, NodeSide.stop, self._run, id_)
        except (WorkerLost, RunError) as error:
            log.debug("device %d: cannot end its unit early: %s", self.device.ordinal, error)

    async def _release(self) -> None:
        worker, claim = self._worker, self._claim
        self._worker = self._claim = None
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
        if self._mirror is not None and answer.job == self._job:
            for suffix, part in answer.parts.items():
                self._mirror.add(suffix, part)

    # -- the unit with the node's paths ---------------------------------------------------------

    def _order(self, member: Member, job: Job) -> Order:
        """A unit as the node runs it."""
        step = self._step
        words: Dict[str, str] = {}
        for key, value in step.config.entries:
            if key in READ_OPTIONS:
                words.update(mappedValues([(key, value)], self._paths, step.workingFolder))
        files: Dict[str, bytes] = {}
        for path in self._inis(job):
            name = os.path.basename(path)
            if path != job.file(".ini"):
                name = "config_%d.ini" % len(files)
            with open(path, "rb") as stream:
                files[name] = self._mappedIni(stream.read(), words, job)
            words[path] = os.path.join(FOLDER_MARK, name)
        client = _clientHere(step.client, self._paths, member)

        def there(command: Sequence[str]) -> Tuple[str, ...]:
            rest = command[len(step.client) :]
            return (*client, *(_mappedWord(word, words, job.folder) for word in rest))

        return Order(
            id="%s-%d" % (uuid.uuid4(), job.unit.number),
            run=self._run,
            job=replace(
                job,
                folder=FOLDER_MARK,
                workingFolder=FOLDER_MARK,
                command=there(job.command),
                warmUp=there(job.warmUp) if job.warmUp else (),
            ),
            files=files,
            folderMark=FOLDER_MARK,
        )

    def _inis(self, job: Job) -> List[str]:
        """The INI files that a unit's client reads."""
        if not job.whole:
            return [job.file(".ini")]
        command = job.command
        return [command[i + 1] for i, word in enumerate(command[:-1]) if word == "--config-file"]

    def _mappedIni(self, text: bytes, words: Mapping[str, str], job: Job) -> bytes:
        """An INI with the node's paths; everything else stays as it is, byte for byte."""

        def line(match: "re.Match[bytes]") -> bytes:
            value = os.fsdecode(match.group(3).rstrip(b"\r"))
            new = _mappedWord(value, words, job.folder)
            return match.group(1) + match.group(2) + os.fsencode(new)

        keys = b"|".join(key.encode() for key in _FILE_KEYS)
        return re.sub(rb"(?m)^([ \t]*(?:" + keys + rb"))([ \t]*=[ \t]*)([^\n]*)$", line, text)


def _mappedWord(word: str, words: Mapping[str, str], folder: str) -> str:
    if word in words:
        return words[word]
    name, equals, value = word.partition("=")
    if equals and name.startswith("--") and value in words:
        return name + equals + words[value]
    if word.startswith(folder + os.sep):
        return FOLDER_MARK + word[len(folder) :]
    return word


def _clientHere(
    client: Tuple[str, ...], paths: Mapping[str, str], member: Member
) -> Tuple[str, ...]:
    """The client's command on the node; the emulated one is the node's own."""
    if client[-1] in paths:
        return (*client[:-1], paths[client[-1]])
    return member.client


def _byOurClock(result: UnitResult, ahead: float) -> UnitResult:
    outcome = result.outcome
    moved = replace(outcome, started=outcome.started - ahead, ended=outcome.ended - ahead)
    return replace(result, outcome=moved)


class StepCluster:
    """The devices of a cluster as one step uses them: those there are, and who comes and goes."""

    def __init__(self, cluster: Cluster) -> None:
        """Takes a connection over."""
        self._cluster = cluster
        self._register = Register(None)
        self._wanted: DeviceSelection = ALL_DEVICES
        self._chosen: List[Member] = []
        self._step: Optional[Step] = None
        self._files: Sequence[SentFile] = ()
        self._wait = True
        self._run = ""
        self._workers: Dict[int, NodeWorker] = {}
        self._seen: Dict[Tuple[str, str, int], Set[str]] = {}  # device -> its workers' addresses

    @property
    def isEmulated(self) -> bool:
        """Whether all devices that there are are emulated ones."""
        members = self._cluster.members()
        return bool(members) and all(member.device.emulated for member in members)

    @property
    def count(self) -> int:
        """How many devices there are."""
        return len(self._cluster.members())

    @property
    def clientHash(self) -> Optional[str]:
        """SHA-256 of the client that all nodes run in this step; None for the emulated one."""
        return next((file.sha256 for file in self._files if file.client), None)

    def close(self) -> None:
        """Ends the connection before its time."""
        self._cluster.close()

    @property
    def architecture(self) -> str:
        """Of the devices that were chosen."""
        return next((m.device.architecture for m in self._chosen if m.device.architecture), "")

    def choose(self, wanted: DeviceSelection, strict: bool) -> Selection:
        """Chooses the devices to begin with.

        Args:
            wanted: which devices of each node, as DeviceList.py reads it.
            strict: a device that is missing is an error.

        Returns:
            What is missing, and notes.

        Raises:
            InputError: there is none, or the nodes do not go together.
        """
        members = [member for member in self._cluster.members() if not member.leaving]
        refuseStrangers(members, __version__, NodeSide.packageHash())
        self._wanted = wanted
        self._chosen, selection = choose(members, wanted, strict)
        if not self._chosen:
            raise InputError(
                "no device can be used through %s (%s): have a node join with "
                "`TensileParallel --join %s`"
                % (self._cluster.where, selection.reason, self._cluster.where)
            )
        return selection

    def number(self, outputs: str) -> List[Device]:
        """The chosen devices with their numbers in an outputs folder."""
        os.makedirs(outputs, exist_ok=True)
        self._register = Register(registerPath(outputs))
        devices = self._register.number(self._cluster.members(), self._chosen)
        self._register.write()
        return devices

    def refuseOtherClient(self, client: SentFile) -> None:
        """One run measures with one client.

        Raises:
            InputError: a node has another one at its path.
        """
        try:
            self._cluster.spawn(self._compare(client)).result()
        except RunError as error:
            raise InputError(str(error)) from None

    async def _compare(self, client: SentFile) -> None:
        nodes: Set[str] = set()
        for each in self._cluster.connected():
            if each.member.node not in nodes:
                nodes.add(each.member.node)
                await self._cluster.call(each, NodeSide.locate, "", (client,))

    def prepare(self, step: Step, run: str, emulated: bool, wait: bool) -> None:
        """Prepares the workers of a step.

        Args:
            step: the step.
            run: id of the run.
            emulated: whether the client is the emulated one.
            wait: whether to wait for devices that other runs hold.

        Raises:
            InputError: a node has another client.
        """
        self._step, self._wait = step, wait
        self._files = stepFiles(step, emulated)
        # A step's own: the client of an earlier step must not be taken for this one.
        self._run = "%s-%s" % (run, uuid.uuid4())
        for file in self._files:
            if file.client:
                self.refuseOtherClient(file)

    def workers(self, devices: Sequence[Device]) -> List[NodeWorker]:
        """The workers of the devices that the step begins with."""
        return [self._add(device) for device in devices]

    def _add(self, device: Device) -> NodeWorker:
        assert self._step is not None
        arguments = (device, self._cluster, self._run, self._step, self._files, self._wait)
        self._workers[device.ordinal] = worker = NodeWorker(*arguments)
        return worker

    def changes(self, using: Sequence[int]) -> Tuple[List[NodeWorker], List[int]]:
        """(workers of devices that have come, numbers of those that are leaving), for the loop.

        Args:
            using: numbers of the devices that the loop uses.
        """
        left = [ordinal for ordinal in using if self._workers[ordinal].leaving]
        own = {keyOf(self._workers[ordinal].device) for ordinal in using}
        news = []
        for member in self._cluster.members():
            # One that was set aside has its chance only with another worker, and not for ever.
            seen = self._seen.setdefault(member.key, set())
            isNew = member.address not in seen and len(seen) < MOST_WORKERS
            seen.add(member.address)
            if isNew and member.key not in own and not member.leaving:
                news.append(member)
        if not news:
            return [], left
        chosen, _ = choose([member for member in news if self._isFit(member)], self._wanted)
        devices = self._register.number(news, chosen)
        self._register.write()
        return [self._add(device) for device in devices], left

    def _isFit(self, member: Member) -> bool:
        problem = ""
        if member.hash != NodeSide.packageHash():
            problem = "it has another TensileParallel (%s)" % member.version
        elif not fits(member, self.architecture):
            problem = "it is a %s" % member.device.architecture
        if problem:
            text = "node %s, device %d is not used: %s"
            log.warning(text, member.node, member.device.ordinal, problem)
        return not problem


@contextlib.contextmanager
def openCluster(
    address: str,
    schedulerFile: str,
    say: Callable[[str], None],
    nodes: int = 1,
    isStep: bool = False,
) -> Iterator[StepCluster]:
    """A connection for as long as it is needed, once somebody has joined.

    Args:
        address: the scheduler's; empty where a file tells it.
        schedulerFile: that file.
        say: tells a person what is waited for.
        nodes: how many to wait for.
        isStep: whether it is a step of a run that goes on: then a scheduler that is away, and
            nodes that are, have the time that they would have in the middle of a step.

    Raises:
        InputError: no scheduler answers, or `distributed` is not installed.
    """
    cluster = Cluster(address, schedulerFile)
    seconds = SCHEDULER_ABSENCE_SECONDS if isStep else FIRST_SECONDS
    cluster.connect(seconds if isStep else None)
    try:
        waiting = "waiting for %s to join %s" % ("a node" if nodes == 1 else "nodes", cluster.where)
        cluster.waitForMembers(seconds, nodes, lambda: say(waiting))
        yield StepCluster(cluster)
    finally:
        cluster.close()
