# SPDX-License-Identifier: MIT
"""The devices of a cluster as one step uses them: those there are, and who comes and goes."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
from dataclasses import replace
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from . import NodeSide, __version__
from .Cluster import SCHEDULER_ABSENCE_SECONDS, Cluster
from .DeviceList import ALL_DEVICES, DeviceSelection, Selection
from .Errors import InputError, RunError
from .Fleet import Member, Register, choose, fits, keyOf, refuseStrangers, registerPath
from .Locks import DeviceInUse
from .NodeFiles import SentFile, stepFiles
from .NodeWorker import NodeWorker
from .Step import Step
from .Types import Device

log = logging.getLogger("TensileParallel")

# A device that was set aside is taken in again with this many workers at most.
MOST_WORKERS = 50
# A wait for the scheduler that takes longer is told, in seconds.
QUIET_SECONDS = 3.0
# How long a run waits for the first node, in seconds.
FIRST_SECONDS = 60.0


class StepCluster:
    """The devices of a cluster as one step uses them: those there are, and who comes and goes."""

    def __init__(self, cluster: Cluster) -> None:
        """Takes a connection over."""
        self._cluster = cluster
        self._register = Register(None)
        self._wanted: DeviceSelection = ALL_DEVICES
        self._chosen: List[Member] = []
        self._before: Sequence[Device] = ()
        self._here: List[Device] = []
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
    def patience(self) -> float:
        """How long a step waits for a node where all have left, in seconds."""
        return SCHEDULER_ABSENCE_SECONDS

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
            advice = "choose others (DeviceList, --devices)"
            raise noDevice(self._cluster.where, selection.reason, advice if members else "")
        text = "the worker at %s does not answer: it is used as soon as it does"
        silent = tuple(text % address for address in self._cluster.silent)
        return replace(selection, notes=selection.notes + silent)

    def holderOf(self, ordinal: int) -> str:
        """Who has a device for which the step waits; empty where it does not wait."""
        worker = self._workers.get(ordinal)
        return "another run of this cluster" if worker is not None and worker.waits else ""

    def refuseBusy(self) -> None:
        """For --no-wait: whether another run of this cluster has one of the devices.

        Raises:
            DeviceInUse: it has.
        """
        busy = ["%s:%d" % (m.node, m.device.ordinal) for m in self._chosen if m.busy]
        if busy:
            raise DeviceInUse(
                "device(s) %s: in use by another run of this cluster: wait for it to end, or "
                "choose other devices" % ", ".join(busy)
            )

    def number(self, outputs: str) -> List[Device]:
        """The chosen devices with their numbers in an outputs folder."""
        os.makedirs(outputs, exist_ok=True)
        self._register = Register(registerPath(outputs))
        self._before = self._register.present
        self._here = self._register.number(self._cluster.members(), self._chosen)
        self._register.setPresent(device.ordinal for device in self._here)
        self._register.write()
        return self._here

    def changesBefore(self) -> Tuple[List[Device], List[Device]]:
        """(devices that have come, devices that have left) since this was looked at last."""
        before = {device.ordinal for device in self._before}
        here = {device.ordinal for device in self._here}
        come = [device for device in self._here if device.ordinal not in before]
        return come, [device for device in self._before if device.ordinal not in here]

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
        keys = {keyOf(device) for device in devices}
        for member in self._cluster.members():
            if member.key in keys:  # one that is set aside at once is none that has come
                self._seen.setdefault(member.key, set()).add(member.address)
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
        own = {ordinal: keyOf(self._workers[ordinal].device) for ordinal in using}
        gone = self._cluster.whoLeft()
        left = [n for n, key in own.items() if key in gone or self._workers[n].leaving]
        used, ending = set(own.values()), {own[ordinal] for ordinal in left}
        news = []
        for member in self._cluster.members():
            if member.key in ending:  # one that has come back has its turn when the loop knows
                continue
            # One that was set aside has its chance only with another worker, and not for ever.
            seen = self._seen.setdefault(member.key, set())
            isNew = member.address not in seen and len(seen) < MOST_WORKERS
            seen.add(member.address)
            if isNew and member.key not in used and not member.leaving:
                news.append(member)
        devices: List[Device] = []
        if news:
            chosen, _ = choose([member for member in news if self._isFit(member)], self._wanted)
            devices = self._register.number(news, chosen)
        before = {device.ordinal for device in self._register.present}
        present = before - set(left) | {device.ordinal for device in devices}
        if news or present != before:  # a busy device takes its time to leave
            self._register.setPresent(present)
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
        InputError: no scheduler answers, nobody joins, or `distributed` is not installed.
    """
    cluster = Cluster(address, schedulerFile)
    seconds = SCHEDULER_ABSENCE_SECONDS if isStep else FIRST_SECONDS
    patience = threading.Timer(QUIET_SECONDS, say, ["waiting for the scheduler %s" % cluster.where])
    patience.daemon = True
    patience.start()
    try:
        cluster.connect(seconds if isStep else None)
    finally:
        patience.cancel()
    try:
        waiting = "waiting for %s to join %s" % ("a node" if nodes == 1 else "nodes", cluster.where)
        cluster.waitForMembers(seconds, nodes, lambda: say(waiting))
        if not cluster.members():  # said here: what comes next would miss a client first
            reason = "no node has joined within %.0f s" % seconds
            raise noDevice(cluster.where, reason)
        yield StepCluster(cluster)
    finally:
        cluster.close()


def noDevice(where: str, reason: str, advice: str = "") -> InputError:
    """That a run cannot begin, and what to do."""
    place = where if "://" in where else "--scheduler-file " + where
    advice = advice or "have a node join with `TensileParallel --join %s`" % place
    return InputError("no device can be used through %s (%s): %s" % (where, reason, advice))
