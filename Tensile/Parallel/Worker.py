# SPDX-License-Identifier: MIT
"""One device's loky worker, and, inside it, one unit -> one outcome.

    parent (Loop)                    worker process                    client process
    DeviceWorker.submit(job) ------> runJob(job)
                                       warms the device up, if cold
                                       starts the client ------------> own session, dies with the
                                       watches unit_K.log  <---------- worker, holds the lock
                                       checks unit_K.csv
    Future[UnitResult]       <------ UnitResult

Each device has an executor of one worker: in a shared pool one death would kill every worker and
fail every pending future. The device's pin is in the worker's environment before its Python
starts, because the HIP runtime reads it once. Work that can fail is in tasks, never in the
initializer, where loky would report an exception as "segfault or memory".
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Callable, Dict, FrozenSet, Iterator, Mapping, Optional

from .Devices import MASK_VARIABLES, pinMismatch, pinnedEnvironment
from .Errors import RunError, TensileParallelError, describeError
from .Guard import Guard
from .Locks import DeviceLock, acquireLock
from .Outcomes import READY_LINE, describeExit, examine, readTail
from .QuietMachine import Surroundings
from .Terminal import tell
from .Types import ClientExit, Device, Job, UnitResult, WarmUp
from .WarmUp import isCold, removeWarmUp, warmUpOf, writeWarmUp

if TYPE_CHECKING:
    from joblib.externals.loky import ProcessPoolExecutor

# How often a worker looks at its client, in seconds: short beside a client's start…
POLL_SECONDS = 0.02
# …and once that is ready.
READY_POLL_SECONDS = 0.05
# How long a client may take to end after SIGTERM before it gets SIGKILL, in seconds.
TERM_SECONDS = 2.0

# A file of this name asks the worker to end the unit's client.
STOP_SUFFIX = ".stop"

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class DeviceWorker:
    """The executor of one device, in the parent."""

    def __init__(
        self,
        device: Device,
        lockFolder: Optional[str],
        wait: bool,
        surroundings: Surroundings = Surroundings(),
    ) -> None:
        """Prepares; the process starts with the first task.

        Args:
            device: the device it is pinned to for its whole life.
            lockFolder: where emulated devices lock; None for the default.
            wait: whether to wait for a device that another run holds.
            surroundings: what it gets besides its pin.
        """
        self.device = device
        self._surroundings = surroundings
        self.starts = 0
        self._lockFolder = lockFolder
        self._wait = wait
        self._executor: "Optional[ProcessPoolExecutor]" = None

    def start(self) -> "Future[WorkerFacts]":
        """Starts the process and has it take the device's lock.

        Returns:
            A future that fails where the worker cannot be used, with the reason.
        """
        # Here, as the nodes of a cluster and its front end have no use for it.
        from joblib.externals.loky import ProcessPoolExecutor

        pinned = self._environment()
        changes = {k: v for k, v in pinned.items() if os.environ.get(k) != v}
        # A replacement waits in any case: a client of its predecessor may still be dying.
        claim = _Claim(
            self.device,
            self._lockFolder,
            self._wait or self.starts > 0,
            self._surroundings.processors,
        )
        self._executor = ProcessPoolExecutor(
            max_workers=1,
            timeout=None,
            env=changes,
            initializer=_initialise,
            initargs=(pinned, os.getpid(), claim),
        )
        self.starts += 1
        with _withoutOtherMasks(pinned):
            return self._executor.submit(_prepare)

    def submit(self, job: Job) -> "Future[UnitResult]":
        """Runs one unit. One at a time: a queued one could not be taken back."""
        assert self._executor is not None, "the worker was not started"
        with _withoutOtherMasks(self._environment()):
            return self._executor.submit(runJob, job)

    def _environment(self) -> Dict[str, str]:
        pinned = pinnedEnvironment(os.environ, self.device)
        return {**pinned, **self._surroundings.variables}

    def shorten(self, job: Job) -> None:
        """Asks for the end of the running unit's client; what it has finished is kept."""
        with open(job.file(STOP_SUFFIX), "wb"):
            pass

    def kill(self) -> None:
        """Ends the worker, its client and whatever else it started."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None

    def close(self) -> None:
        """Ends an idle worker politely."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker says of itself when it is ready.

    Attributes:
        pid: its process.
        note: its lock's.
        lockSeconds: how long it took to get that.
    """

    pid: int
    note: str
    lockSeconds: float = 0.0


@contextmanager
def _withoutOtherMasks(pinned: Mapping[str, str]) -> Iterator[None]:
    """Hides the masks that a worker must not be born with: loky's `env` can only add variables."""
    hidden = [name for name in MASK_VARIABLES if name not in pinned and name in os.environ]
    kept = {name: os.environ.pop(name) for name in hidden}
    try:
        yield
    finally:
        os.environ.update(kept)


@dataclass(frozen=True)
class _Claim:
    """The device that a worker is to lock, and how."""

    device: Device
    lockFolder: Optional[str]
    wait: bool
    processors: FrozenSet[int] = frozenset()


_claim: Optional[_Claim] = None
_lock: Optional[DeviceLock] = None
_guard: Optional[Guard] = None
_mismatch = ""
_lastEnd: Optional[float] = None  # of this worker's last client, on the monotonic clock


def _initialise(pinned: Dict[str, str], parent: int, claim: _Claim) -> None:
    """Runs first in every worker, replacements included. Must not fail."""
    global _claim, _mismatch
    _dieWith(parent)
    _claim = claim
    os.environ.update(pinned)
    for name in MASK_VARIABLES:
        if name not in pinned:
            os.environ.pop(name, None)
    _mismatch = _birthMismatch(pinned)


def _birthMismatch(pinned: Dict[str, str]) -> str:
    """What differs between the environment this process was born with and its pin.

    `/proc/self/environ` holds the former, whatever has been set since.
    """
    wanted = pinned.get("HIP_VISIBLE_DEVICES")
    try:
        with open("/proc/self/environ", "rb") as handle:
            born = dict(
                entry.split(b"=", 1) for entry in handle.read().split(b"\0") if b"=" in entry
            )
    except OSError:
        return ""  # not Linux, or no /proc: nothing to compare with
    found = born.get(b"HIP_VISIBLE_DEVICES", b"").decode(errors="replace")
    if found == wanted:
        return ""
    return "the worker was born with HIP_VISIBLE_DEVICES=%r instead of %r" % (found, wanted)


def _prepare() -> WorkerFacts:
    """A worker's first task."""
    _ownGuard()
    begun = time.monotonic()
    note = _takeDevice().note
    return WorkerFacts(os.getpid(), note, time.monotonic() - begun)


def holdDevice(
    device: Device, lockFolder: Optional[str], processors: FrozenSet[int] = frozenset()
) -> str:
    """Takes a device's lock for this process, which was born with its pin but not by loky.

    For a node of a cluster, whose worker serves one run after the other (NodeSide.py).

    Returns:
        One line on what the lock does not cover; else empty.

    Raises:
        DeviceInUse: another holds it.
        RunError: this process is not pinned to the device.
    """
    global _claim, _mismatch
    _claim = _Claim(device, lockFolder, False, processors)
    _mismatch = _birthMismatch({"HIP_VISIBLE_DEVICES": device.token})
    note = _takeDevice().note
    _ownGuard()
    return note


def releaseDevice() -> None:
    """Gives the lock of holdDevice() up, between two runs."""
    global _lock
    if _lock is not None:
        _lock.release()
        _lock = None


def _takeDevice() -> DeviceLock:
    """Raises what the initializer may not, and takes the lock; loky may replace workers unasked."""
    global _lock
    assert _claim is not None, "the initializer has not run"
    device = _claim.device
    problem = _mismatch or pinMismatch(os.environ, device)
    if problem:
        raise RunError("device %d: %s; nothing was run on it" % (device.ordinal, problem))
    if _lock is None:
        _stayOn(_claim.processors)
        _lock = acquireLock(device, _claim.lockFolder, _claim.wait, _say)
    return _lock


def _stayOn(processors: FrozenSet[int]) -> None:
    """Keeps this process and what it starts on some processors; none: wherever they are."""
    if processors:
        try:
            os.sched_setaffinity(0, processors)
        except OSError as error:  # they were taken from us meanwhile: slower is no failure
            _say("--affinity: %s" % (error.strerror or error))


def _ownGuard() -> Guard:
    """This worker's guard, started when it is made ready."""
    global _guard
    if _guard is None:
        _guard = Guard()
    return _guard


def _say(message: str) -> None:
    tell("TensileParallel: %s" % message, sys.stderr)


def _dieWith(parent: int) -> None:
    """Has the kernel kill this process when its parent's spawning thread ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before the call
        os.kill(os.getpid(), signal.SIGKILL)


def runJob(job: Job) -> UnitResult:
    """Runs one unit in this worker. Never raises for what a client does."""
    lock = _takeDevice()
    for suffix in (".csv", ".log", ".salvaged.csv", STOP_SUFFIX):
        _remove(job.file(suffix))
    warmUp = None
    if job.warmUp:
        removeWarmUp(job)
        if isCold(_lastEnd, time.monotonic()):
            warmUp = _warmUp(job, lock)
    end = _runClient(job, lock, job.file(STOP_SUFFIX))
    _remove(job.file(STOP_SUFFIX))
    if warmUp is not None and not warmUp.message:
        removeWarmUp(job)
    return replace(examine(job, end), warmUp=warmUp)


def _warmUp(job: Job, lock: DeviceLock) -> WarmUp:
    """Runs a unit's first pair for nothing. Whatever becomes of it, the unit is run."""
    own = warmUpOf(job)
    try:
        writeWarmUp(job)
        end = _runClient(own, lock, job.file(STOP_SUFFIX))
        os.utime(own.file(".log"), (end.ended, end.ended))  # the loop reads there when it ended
    except TensileParallelError as error:
        return WarmUp(0.0, str(error))
    except OSError as error:
        return WarmUp(0.0, describeError(error))
    message = ""
    if end.hung:
        message = "no line from its client for %.0f s" % (own.silenceSeconds or 0)
    elif end.status != 0 and not end.shortened:
        last = readTail(own.file(".log")).splitlines()[-1:]
        message = "; its last line: ".join([describeExit(end.status), *last])
    return WarmUp(end.ended - end.started, message)


def _runClient(job: Job, lock: DeviceLock, stopFile: str) -> ClientExit:
    """Starts the client, which inherits the lock, and waits for its end.

    Args:
        job: its command and its log.
        lock: the device's.
        stopFile: what asks for its end.
    """
    global _lastEnd
    worker, guard = os.getpid(), _ownGuard()

    def becomeClient() -> None:
        guard.watchSelf()
        _dieWith(worker)

    started = time.time()
    with open(job.file(".log"), "wb") as log:
        try:
            client = subprocess.Popen(
                job.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=job.workingFolder,
                start_new_session=True,
                pass_fds=[lock.fileno()],
                preexec_fn=becomeClient,
            )
        except OSError as error:
            guard.forgetLast()
            log.write(("cannot start %s: %s\n" % (job.command[0], error.strerror)).encode())
            return ClientExit(None, False, started, time.time())
    watch = _Watch(job, stopFile)
    try:
        watch.untilEnd(client)
    finally:
        endGroup(client)
        _lastEnd = time.monotonic()
    guard.forget(client.pid)
    return ClientExit(
        _shellStatus(client.returncode),
        watch.hung,
        started,
        time.time(),
        watch.startSeconds,
        watch.shortened,
    )


class _Watch:
    """Waits for a client's end.

    Notes when it became ready, whether it fell silent, and whether its rest is wanted elsewhere.
    """

    def __init__(self, job: Job, stopFile: str) -> None:
        self.hung = False
        self.shortened = False
        self._stopFile = stopFile
        self.startSeconds: Optional[float] = None
        self._log = job.file(".log")
        self._silenceSeconds = job.silenceSeconds
        self._begun = self._heard = time.monotonic()
        self._size = 0

    def untilEnd(self, client: "subprocess.Popen[bytes]") -> None:
        """Returns when the client has ended, or should be ended: then `hung` or `shortened`."""
        with _endOf(client) as hasEnded:
            while not (self.hung or self.shortened):
                if hasEnded(POLL_SECONDS if self.startSeconds is None else READY_POLL_SECONDS):
                    return
                self._look()

    def _look(self) -> None:
        self.shortened = os.path.exists(self._stopFile)
        now, size = time.monotonic(), os.stat(self._log).st_size
        if size != self._size:
            if self.startSeconds is None and self._isReady():
                self.startSeconds = now - self._begun
            self._heard, self._size = now, size
        elif self._silenceSeconds is not None and now - self._heard > self._silenceSeconds:
            self.hung = True

    def _isReady(self) -> bool:
        """Whether what was printed since the last look has the line before the first pair."""
        with open(self._log, "rb") as handle:
            handle.seek(max(0, self._size - len(READY_LINE)))
            return READY_LINE in handle.read(1 << 20)


@contextmanager
def _endOf(client: "subprocess.Popen[bytes]") -> Iterator[Callable[[float], bool]]:
    """A function that waits so many seconds for a client's end, and tells whether it has come.

    Popen.wait() asks again and again, which takes a fortieth of a core per client; Linux tells it
    by a descriptor (from 5.3 on, and where Python was built for that).
    """
    try:
        descriptor = os.pidfd_open(client.pid)
    except (AttributeError, OSError):
        yield lambda seconds: _hasEnded(client, seconds)
        return
    try:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        yield lambda seconds: bool(waiting.poll(seconds * 1000)) and _hasEnded(client, seconds)
    finally:
        os.close(descriptor)


def _hasEnded(client: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        client.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


def endGroup(client: "subprocess.Popen[bytes]") -> None:
    """Ends a client and its descendants: TERM, then KILL."""
    for signalNumber in (signal.SIGTERM, signal.SIGKILL):
        if client.poll() is None or signalNumber == signal.SIGKILL:
            try:
                os.killpg(client.pid, signalNumber)
            except (ProcessLookupError, PermissionError):
                pass
        try:
            client.wait(TERM_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    client.wait()


def _shellStatus(returnCode: int) -> int:
    """Popen's -11 as a shell's 139."""
    return 128 - returnCode if returnCode < 0 else returnCode


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
