# SPDX-License-Identifier: MIT
"""TensileParallel --join: this machine's devices for the runs of a cluster.

    --join --(one child a device, born with the device's pin)--> Dask's Nanny -> its worker
                                                                                 -> tensile_client

The devices are found by the rules of every run. A child that ends is started anew: so a node comes
back when the scheduler does. SIGTERM, SIGINT (Ctrl-C) and SIGHUP have it leave: running units are
given back with what they have measured. When this process is killed, all that it started ends: a
child by the kernel's hand, its worker because Dask watches the child, the client with the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from .Certificates import refuseWithoutCertificate
from .Cluster import requireDistributed
from .DeviceList import ALL_DEVICES, selectDevices
from .Devices import describeDevice, pinnedEnvironment, scanDevices
from .EmulatedDevice import DEVICES_VARIABLE
from .Errors import InputError, firstLine
from .Files import replaceFile
from .Knock import aboutTls, knock
from .Locks import LOCK_DIR_VARIABLE, useAbsolutePaths
from .NodeFiles import (
    NodeCache,
    cacheFolder,
    checkRoom,
    errorsNameNode,
    privateFolder,
)
from .NodeSide import FAREWELL_SECONDS, NODE_VARIABLE, NodeIdentity, facts, leave
from .OwnProcess import endWithParent, ownProcess
from .ParallelClient import emulatedCommand
from .ParseArguments import RunSettings
from .Place import Place, hostAndPort
from .Platform import System
from .QuietMachine import surroundings
from .Terminal import tell
from .Types import Device
from .WorkerCalls import callWorker, otherJoin

# Tasks that may wait in a worker at once: the unit, and runs that wait for the device.
THREADS = 16
# How long a child that ended waits for its next start, in seconds: more each time, up to the last.
RESTART_SECONDS = (0.2, 1.0, 2.0, 5.0)
# A child that was up for so long starts anew without waiting.
STEADY_SECONDS = 30.0
_CONNECT_SECONDS = 2.0
# A join that has not come about after so long says that it is still at it.
QUIET_SECONDS = 15.0
# Exit status of a child that has waited for the scheduler for as long as it was to.
_NO_SCHEDULER = 75
# Exit status of a child that has found what no other try will mend, and the file that says so.
_REFUSED = 76
_REFUSAL = "refusal"
# Exit status of a child that has not joined; another try may.
_NOT_JOINED = 77


def join(settings: RunSettings) -> int:
    """The command: until a signal ends it.

    Returns:
        0: it has left politely.

    Raises:
        InputError: no place to join, no device, another join has the node's name, or `distributed`
            is not installed.
        RunError: its cache cannot be used.
    """
    requireDistributed()
    place = Place(settings.join or settings.scheduler, settings.schedulerFile)
    if not place.address and not place.file:
        raise InputError("--join: name the scheduler, as tcp://host:8786, or --scheduler-file")
    if place.address:
        hostAndPort(place.address)
    refuseWithoutCertificate(place.current(), "worker")
    useAbsolutePaths()
    node = settings.nodeName or socket.gethostname()
    devices, system = _devices(settings, node), System()
    found, notes = surroundings(system, devices, settings.affinity)
    for note in notes:
        tell("TensileParallel: %s" % note)
    joinId = uuid.uuid4().hex[:12]
    with contextlib.ExitStack() as stack:
        with errorsNameNode(node, cacheFolder(os.environ)):
            cache = NodeCache(cacheFolder(os.environ))
            cache.prune()
            if settings.emulate:
                _prepareEmulation(settings, node, cache)
            folder = stack.enter_context(cache.joinFolderInUse(joinId))
            checkRoom(folder)
        children = []
        for device in devices:
            own = found[device.ordinal]
            identity = NodeIdentity(
                node=node,
                join=joinId,
                device=device,
                lockFolder=os.environ.get(LOCK_DIR_VARIABLE) if settings.emulate else None,
                cache=cache.root,
                client=emulatedCommand(),
                processors=tuple(sorted(own.processors)),
            )
            environment = _environment(device, own.variables, identity)
            patience = settings.leaveAfter
            first = device == devices[0]
            children.append(_Child(identity, environment, place, folder, patience, first))
        numbers = ", ".join(str(device.ordinal) for device in devices)
        tell("TensileParallel: node %s offers device(s) %s to %s" % (node, numbers, place))
        return _serve(node, children, os.path.join(folder, _REFUSAL))


def _devices(settings: RunSettings, node: str) -> List[Device]:
    """The devices that this node is to offer.

    Raises:
        InputError: there is none.
    """
    scan = scanDevices(System(), settings.emulate)
    wanted = ALL_DEVICES if settings.devices is None else settings.devices
    selection = selectDevices(wanted, scan, settings.strict)
    for note in (*scan.notes, *selection.notes):
        tell("TensileParallel: node %s: %s" % (node, note))
    if not selection.devices:
        raise InputError("this node has no device to offer: %s" % selection.reason)
    for device in selection.devices:
        tell("TensileParallel: node %s: %s" % (node, describeDevice(device)))
    return list(selection.devices)


def _prepareEmulation(settings: RunSettings, node: str, cache: NodeCache) -> None:
    """Emulated nodes of one machine have devices of their own."""
    os.environ[DEVICES_VARIABLE] = str(settings.emulate)
    base = os.environ.get(LOCK_DIR_VARIABLE) or os.path.join(cache.root, "locks")
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in node)
    os.environ[LOCK_DIR_VARIABLE] = privateFolder(os.path.join(base, "node-" + name))


def _environment(
    device: Device, variables: Mapping[str, str], identity: NodeIdentity
) -> Dict[str, str]:
    """What a child is born with: the pin, above all."""
    pinned = {**pinnedEnvironment(os.environ, device), **variables}
    pinned[NODE_VARIABLE] = identity.toJson()
    # A scheduler that ends, or a worker, is no error here: ours are told by lines of our own.
    for logger in ("DISTRIBUTED", "ASYNCIO"):
        pinned.setdefault("DASK_LOGGING__" + logger, "critical")
    return pinned


class _Child:
    """The process that runs one device's Nanny, started again and again."""

    def __init__(
        self,
        identity: NodeIdentity,
        environment: Dict[str, str],
        place: Place,
        folder: str,
        leaveAfter: Optional[float],
        first: bool,
    ) -> None:
        self.status: Optional[int] = None  # exit status of the one that ended last
        self._environment = environment
        self._spec = {
            "address": place.address,
            "file": place.file,
            "node": identity.node,
            "join": identity.join,
            "ordinal": identity.device.ordinal,
            "folder": folder,
            "leaveAfter": leaveAfter,
            "first": first,  # it tells what holds for all
        }
        self._process: "Optional[subprocess.Popen[bytes]]" = None
        self._begun = 0.0
        self._aloneSince = time.monotonic()
        self._fails = 0
        self._next = 0.0

    def look(self, now: float) -> None:
        """Starts the process where it does not run, unless it has given up."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self.status = self._process.returncode
            if self.status != _NOT_JOINED:
                self._aloneSince = now
            self._fails = 0 if now - self._begun > STEADY_SECONDS else self._fails + 1
            pause = RESTART_SECONDS[min(self._fails, len(RESTART_SECONDS) - 1)]
            self._process, self._next = None, now + pause
        if now < self._next or self.status == _NO_SCHEDULER:
            return
        self._begun = now
        self._process = subprocess.Popen(
            ownProcess(__name__, "runDevice", {**self._spec, "aloneSince": self._aloneSince}),
            stdin=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )

    def signal(self, number: int) -> None:
        """Sends a signal to the process."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def hasEnded(self) -> bool:
        """Whether it runs no more."""
        return self._process is None or self._process.poll() is not None


def _serve(node: str, children: Sequence[_Child], refusal: str) -> int:
    """Keeps the children running until a signal comes, then has them leave.

    Args:
        node: this machine's name.
        children: one per device.
        refusal: the file in which a child says why this join cannot be.

    Raises:
        InputError: it cannot.
    """
    stopped: List[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: stopped.append(number))
    refused = alone = False
    while not (stopped or refused or alone):
        for child in children:
            child.look(time.monotonic())
        time.sleep(0.1)
        refused = any(child.status == _REFUSED for child in children)
        alone = all(child.status == _NO_SCHEDULER for child in children)
    if not refused:
        why = "what runs is given back" if stopped else "there is no scheduler that takes it"
        tell("TensileParallel: node %s is leaving: %s" % (node, why))
    for child in children:
        child.signal(signal.SIGTERM)
    deadline = time.monotonic() + FAREWELL_SECONDS + 10.0
    asked = len(stopped)
    while not all(child.hasEnded() for child in children):
        if time.monotonic() > deadline or len(stopped) > asked:  # a second signal ends it at once
            for child in children:
                child.signal(signal.SIGKILL)
        time.sleep(0.05)
    if refused:
        raise InputError(Path(refusal).read_text(encoding="utf-8"))
    return 0


# -- in a child ---------------------------------------------------------------------------------


def runDevice(spec: Dict[str, Any]) -> int:
    """A child's whole life: one Nanny, until it ends or is told to leave."""
    if not endWithParent(spec, signal.SIGKILL):
        return 1
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))  # until there is a worker
    # Python's helper that tidies up after a process which was killed would tell of that.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    place = Place(spec["address"], spec["file"])
    if not _waitForScheduler(place, spec):
        return _NO_SCHEDULER
    return asyncio.run(_runNanny(place, spec))


def _waitForScheduler(place: Place, spec: Dict[str, Any]) -> bool:
    """Waits until somebody listens there: cheaper than a worker that fails.

    Returns:
        Whether somebody does; False where it was to wait only for so long.
    """
    said = False
    while True:
        address = place.current()
        if address and asyncio.run(_listens(address)):
            return True
        if not said and spec["first"]:
            text = "TensileParallel: node %s is waiting for the scheduler at %s"
            problem = place.problem()
            tell(text % (spec["node"], place) + (" (%s)" % problem if problem else ""))
        said = True
        if _isImpatient(spec):
            return False
        time.sleep(0.5)


def _isImpatient(spec: Dict[str, Any]) -> bool:
    """Whether no scheduler has taken the device for as long as it was to wait."""
    limit = spec["leaveAfter"]  # the clock is the machine's: it is the parent's as well
    return limit is not None and time.monotonic() - spec["aloneSince"] > limit


async def _listens(address: str) -> bool:
    try:
        await knock(address, "worker", _CONNECT_SECONDS)
        return True
    except ssl.SSLError:  # why it does not let us in is told by who tries to join
        return True
    except (OSError, asyncio.TimeoutError, InputError):
        return False


def _ownAddress(place: Place) -> str:
    """The address of this machine by which it reaches the scheduler: it listens there alone.

    Without a host, Dask's Nanny does the same, but has its worker listen everywhere.
    """
    from distributed.utils import get_ip

    return get_ip(hostAndPort(place.current())[0])


async def _runNanny(place: Place, spec: Dict[str, Any]) -> int:
    import dask
    from distributed import Nanny

    dask.config.set(
        {
            # Dask's own variables (OMP_NUM_THREADS=1…) would reach the client.
            "distributed.nanny.pre-spawn-environ": {},
            "distributed.worker.profile.enabled": False,
            "distributed.worker.http.routes": [],
            # What a device's processor is for is its client.
            "distributed.admin.system-monitor.interval": "10s",
            "distributed.admin.tick.interval": "1s",
        }
    )
    device = "TensileParallel: node %s: device %d" % (spec["node"], spec["ordinal"])
    name = "%s/%d/%s" % (spec["node"], spec["ordinal"], uuid.uuid4().hex[:8])
    where = {"scheduler_file": place.file} if place.file else {"scheduler_ip": place.address}
    nanny = Nanny(
        **where,
        nthreads=THREADS,
        name=name,
        memory_limit=0,  # the client's memory is not the worker's, and the user's own business
        local_directory=spec["folder"],
        host=_ownAddress(place),
        dashboard=False,
        death_timeout=60,
    )
    other = await otherJoin(place.current(), spec, nanny.connection_args)
    if other:
        text = "node %s has joined already, from %s: give this join another name with --node-name"
        return _refuse(spec, text % (spec["node"], other))
    leaving = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
    left = asyncio.ensure_future(leaving.wait())
    try:
        if not await _joined(nanny, place, device, left, spec):
            with contextlib.suppress(Exception):  # in the middle of a start, Dask may refuse to
                await nanny.close(timeout=1)
            return 0
    except Exception as error:
        return await _notJoined(causeOf(error), place.current(), device, spec)
    tell("%s has joined %s" % (device, place))
    ended = asyncio.ensure_future(nanny.finished())
    await asyncio.wait({ended, left}, return_when=asyncio.FIRST_COMPLETED)
    if left.done() and nanny.worker_address:
        problem = await _bidFarewell(nanny, ended)
        if problem:
            tell("%s: %s" % (device, problem), sys.stderr)
    await nanny.close(timeout=5)
    return 0


async def _notJoined(why: str, address: str, device: str, spec: Dict[str, Any]) -> int:
    """Says so, as far as another try may mend it; the child's exit status."""
    advice = await aboutTls(address, why)
    if advice:
        text = "the scheduler at %s does not let node %s in: %s"
        return _refuse(spec, text % (address, spec["node"], advice))
    tell("%s has not joined: %s" % (device, why), sys.stderr)
    return _NO_SCHEDULER if _isImpatient(spec) else _NOT_JOINED


def _refuse(spec: Dict[str, Any], text: str) -> int:
    """Has the join end with a line; the child's exit status."""
    replaceFile(os.path.join(spec["folder"], _REFUSAL), text.encode())
    return _REFUSED


async def _bidFarewell(nanny: Any, ended: "asyncio.Future[Any]") -> str:
    """Has the worker give back what runs; what went wrong with that, or empty.

    Args:
        nanny: the worker's.
        ended: done when the Nanny has ended: with the scheduler, perhaps, so nobody is waiting.
    """
    call = asyncio.ensure_future(callWorker(nanny.worker_address, nanny.connection_args, leave))
    limit = FAREWELL_SECONDS + 2
    await asyncio.wait({call, ended}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    if not call.done():
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return "" if ended.done() else "its worker does not answer"
    error = call.exception()
    if isinstance(error, OSError):
        return "its worker has ended already"  # a signal to all has reached it first
    return causeOf(error) if error is not None else ""


async def _joined(
    nanny: Any, place: Place, device: str, left: "asyncio.Future[Any]", spec: Dict[str, Any]
) -> bool:
    """Waits until the worker is ready.

    Args:
        nanny: the worker's.
        place: the scheduler's.
        device: the device's name, for messages.
        left: done when it is to leave: whatever listens there may never answer.
        spec: how long it is to wait for a scheduler.

    Returns:
        Whether it has joined; False where it was to leave before.

    Raises:
        OSError: the scheduler has gone meanwhile: Dask would look for it after pauses that double;
            or it does not answer, and it is not to wait any longer.
    """
    joining = asyncio.ensure_future(_begin(nanny))
    begun, said = time.monotonic(), False
    both, first = {joining, left}, asyncio.FIRST_COMPLETED
    while not (await asyncio.wait(both, timeout=_CONNECT_SECONDS, return_when=first))[0]:
        if time.monotonic() - begun > QUIET_SECONDS:
            if _isImpatient(spec):
                raise ConnectionError("what listens there does not answer as a scheduler")
            if not said:
                tell("%s: still joining %s" % (device, place))
            said = True
        if not await _listens(place.current()):
            raise ConnectionError("the scheduler is gone")
    if not joining.done():
        joining.cancel()
        return False
    await joining
    return True


async def _begin(nanny: Any) -> None:
    """Starts the worker, which reads our modules and makes its folders: then it is ready.

    Raises:
        RunError: it cannot; a folder is not this user's alone, perhaps.
    """
    await nanny
    await callWorker(nanny.worker_address, nanny.connection_args, facts)


def causeOf(error: BaseException) -> str:
    """One line of what is behind Dask's "… failed to start.", as far down as it says something."""
    while error.__cause__ is not None and str(error.__cause__):
        error = error.__cause__
    return firstLine(error)
