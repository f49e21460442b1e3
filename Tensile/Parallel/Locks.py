# SPDX-License-Identifier: MIT
"""One benchmark per device at a time, across workers and across runs.

The lock is flock(2), which belongs to an open file and not to a process: whoever inherits the
descriptor holds it as well, and the kernel frees it when the last of them is gone, however it
ended. So a client that outlives its worker keeps its device locked.

Where it lies:
- a real device: its render node, opened read-only. One inode for every user of the machine (but
  not for a container with a /dev of its own), one per partition, and nobody can plant it;
- a real device whose render node cannot be opened: a file in a private folder of this user, with
  a note that other users are not excluded;
- an emulated device: a file below TENSILE_PARALLEL_LOCK_DIR, else below the given folder.

Whoever benchmarks holds the lock exclusively. Whoever only looks (lockHolder) takes it shared, for
microseconds: so looks are not in each other's way, and an acquisition that meets one can tell it
from a holder.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import stat
import tempfile
import time
from typing import Callable, List, Mapping, Optional, Sequence, Tuple

from .Errors import InputError, RunError
from .Platform import System
from .Terminal import oneLine
from .Types import Device

LOCK_DIR_VARIABLE = "TENSILE_PARALLEL_LOCK_DIR"
FOLDER_NAME = "tensile-parallel"
# In a run's own folder, for its emulated devices.
LOCKS_FOLDER = "locks"
_NOTE_LIMIT = 500
# How long a shared lock is taken for somebody's look, in seconds; a look takes microseconds.
_LOOK_SECONDS = 1.0


class DeviceInUse(RunError):
    """Another run holds a device, and it was not to be waited for."""


class DeviceLock:
    """A held lock: a context manager that gives it up at its end.

    Attributes:
        path: the file that is locked.
        note: one line on what the lock does not cover; else empty.
    """

    def __init__(self, descriptor: int, path: str, note: str = "") -> None:
        self._descriptor = descriptor
        self.path = path
        self.note = note

    def fileno(self) -> int:
        """The descriptor; a child that inherits it (pass_fds) holds the lock as well."""
        return self._descriptor

    def allowInheritance(self) -> None:
        """Let every program that this process starts or becomes inherit the lock."""
        os.set_inheritable(self._descriptor, True)

    def release(self) -> None:
        """Give it up. Children that inherited it go on holding it until they end.

        The descriptor is closed and not unlocked: LOCK_UN would take it from them, too.
        """
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> DeviceLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def acquireLock(
    device: Device,
    lockDir: Optional[str],
    wait: bool,
    onWait: Callable[[str], None],
    system: Optional[System] = None,
) -> DeviceLock:
    """Lock a device; nobody else who asks for it gets it until the lock is given up.

    Args:
        lockDir: where emulated devices lock, unless TENSILE_PARALLEL_LOCK_DIR says otherwise.
        wait: wait for another holder, without limit; else fail at once.
        onWait: called once with one line before waiting.

    Raises:
        DeviceInUse: another holds it and wait is False; or it waits for this very process.
        RunError: there is no safe place for the lock.
    """
    system = system or System()
    descriptor, path, note = _opened(device, lockDir, system)
    try:
        _locked(descriptor, device, wait, onWait, system)
        if path != device.renderNode:
            _writeNote(descriptor, device, system)
    except BaseException:
        os.close(descriptor)
        raise
    return DeviceLock(descriptor, path, note)


def acquireLocks(
    devices: Sequence[Device],
    lockDir: Optional[str],
    wait: bool,
    onWait: Callable[[str], None],
    system: Optional[System] = None,
) -> List[DeviceLock]:
    """Lock several devices, in the order of the list, or none.

    They are taken in one order for everybody, so two runs never wait for each other in a ring.

    Raises:
        RunError: as acquireLock; what was locked until then is given up.
    """
    locks = {}
    try:
        for device in sorted(devices, key=_order):
            locks[device] = acquireLock(device, lockDir, wait, onWait, system)
    except BaseException:
        for lock in locks.values():
            lock.release()
        raise
    return [locks[device] for device in devices]


def lockHolder(device: Device, lockDir: Optional[str], system: Optional[System] = None) -> str:
    """Who holds a device. Takes nothing away, leaves no trace and waits for nobody.

    Args:
        lockDir: as in acquireLock.

    Returns:
        Words such as "process 814 (python3 TensileParallelClient ...)"; empty where the device is
        free, or where its lock cannot be looked at (acquireLock says why).
    """
    system = system or System()
    try:
        descriptor = _openedToLook(device, lockDir, system)
    except (OSError, RunError):
        return ""
    try:
        return _holder(descriptor, system)[1] if _isHeld(descriptor) else ""
    finally:
        os.close(descriptor)


def lockProblem(device: Device, lockDir: Optional[str], system: Optional[System] = None) -> str:
    """Why a device's lock could not be taken whoever holds it; empty where it could. One line."""
    try:
        os.close(_openedToLook(device, lockDir, system or System()))
    except FileNotFoundError:
        pass  # nobody has ever taken it
    except (OSError, RunError) as error:
        return str(error)
    return ""


def firstProblem(devices: Sequence[Device], lockDir: Optional[str], system: System) -> str:
    """The same for several devices: what is wrong with the first that has something."""
    return next(filter(None, (lockProblem(each, lockDir, system) for each in devices)), "")


def lookAtLocks(
    devices: Sequence[Device], lockDir: Optional[str], wait: bool, system: Optional[System] = None
) -> List[str]:
    """One line for each device that another run holds at the moment.

    Args:
        wait: whether it is going to be waited for.

    Raises:
        InputError: there is no safe place for a lock.
        DeviceInUse: one is held and wait is False.
    """
    system = system or System()
    problem = firstProblem(devices, lockDir, system)
    if problem:
        raise InputError(problem)
    holders = [(device.ordinal, lockHolder(device, lockDir, system)) for device in devices]
    held = ["device %d is in use by %s" % (o, holder) for o, holder in holders if holder]
    if held and not wait:
        raise DeviceInUse("%s: wait for it to end, or choose other devices" % "; ".join(held))
    return ["%s: it will be waited for" % words for words in held]


def _order(device: Device) -> Tuple[str, ...]:
    """What does not depend on the run: its masks change ordinals and tokens."""
    return (device.renderNode, device.pciAddress, device.uniqueId, device.token)


def _opened(device: Device, lockDir: Optional[str], system: System) -> Tuple[int, str, str]:
    """(descriptor, path, note) of the file that stands for a device."""
    descriptor = _openedRenderNode(device, system)
    if descriptor >= 0:
        return descriptor, device.renderNode, ""
    folder = _folder(device, lockDir, system.environment)
    path = os.path.join(folder, _fileName(device))
    note = "" if device.emulated else _privateNote(device, path)
    return _openFile(folder, path), path, note


def _openedToLook(device: Device, lockDir: Optional[str], system: System) -> int:
    """A descriptor of that file, where it is there already.

    Raises:
        FileNotFoundError: it is not there.
        RunError: there is no place for it, or it is not to be trusted.
    """
    descriptor = _openedRenderNode(device, system)
    if descriptor >= 0:
        return descriptor
    folder = _folder(device, lockDir, system.environment)
    return _openFile(folder, os.path.join(folder, _fileName(device)), create=False)


def _openedRenderNode(device: Device, system: System) -> int:
    """A descriptor of a real device's render node; -1 where it cannot be had."""
    if not device.renderNode or device.emulated:
        return -1
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(system.realPath(device.renderNode), flags)
    except OSError:
        return -1


def _privateNote(device: Device, path: str) -> str:
    return (
        "device %d is locked by %s, for want of a render node: "
        "runs of other users are not kept off it" % (device.ordinal, path)
    )


def _fileName(device: Device) -> str:
    """A name that the device has in every run, whatever its masks."""
    name = device.uniqueId or device.pciAddress or "device-%s" % device.token
    return re.sub(r"[^A-Za-z0-9._-]", "_", name) + ".lock"


def useAbsolutePaths() -> None:
    """Makes our variables' paths absolute: programs of one run have different current folders."""
    for name in (LOCK_DIR_VARIABLE, "TENSILE_EMULATOR"):
        path = os.environ.get(name)
        if path:
            os.environ[name] = os.path.abspath(path)


def _folder(device: Device, lockDir: Optional[str], environment: Mapping[str, str]) -> str:
    if device.emulated:
        folder = environment.get(LOCK_DIR_VARIABLE) or lockDir
        if not folder:
            raise RunError(
                "an emulated device needs a folder for its lock: set %s" % LOCK_DIR_VARIABLE
            )
        return folder
    runtimeDir = environment.get("XDG_RUNTIME_DIR") or "/run/user/%d" % os.geteuid()
    if os.path.isdir(runtimeDir):
        return os.path.join(runtimeDir, FOLDER_NAME)
    # Anyone can plant a folder of this name here, but not one that is ours: that is checked.
    return os.path.join(tempfile.gettempdir(), "%s-%d" % (FOLDER_NAME, os.geteuid()))


def _openFile(folder: str, path: str, create: bool = True) -> int:
    """A lock file in a folder of our own, made where needed and wanted.

    Raises:
        FileNotFoundError: it is not there and is not to be made.
        RunError: folder or file is a link, somebody else's, or open to others' writing.
    """
    inside = -1
    try:
        if create:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        _refuseForeign(os.fstat(inside), folder)
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_CREAT if create else 0
        descriptor = os.open(os.path.basename(path), flags, 0o600, dir_fd=inside)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not create:
            raise
        raise RunError(
            "the lock %s cannot be opened (%s): set %s or XDG_RUNTIME_DIR to a private folder"
            % (path, error.strerror or error, LOCK_DIR_VARIABLE)
        ) from error
    finally:
        if inside >= 0:
            os.close(inside)
    try:
        _refuseForeign(os.fstat(descriptor), path)
    except RunError:
        os.close(descriptor)
        raise
    return descriptor


def _refuseForeign(found: os.stat_result, path: str) -> None:
    problem = ""
    if found.st_uid != os.geteuid():
        problem = "belongs to another user"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = "can be written by others"
    elif not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        problem = "is no ordinary file"
    elif stat.S_ISREG(found.st_mode) and found.st_nlink != 1:
        problem = "has a second name"
    if problem:
        raise RunError(
            "the lock %s is not used: it %s; set %s or XDG_RUNTIME_DIR to a private folder"
            % (path, problem, LOCK_DIR_VARIABLE)
        )


def _locked(
    descriptor: int, device: Device, wait: bool, onWait: Callable[[str], None], system: System
) -> None:
    """Take the lock, or wait for it."""
    if _took(descriptor):
        return
    pid, holder = _holder(descriptor, system)
    if pid and pid in _ancestors(system):
        raise DeviceInUse(
            "device %d is held by %s, which has started this program and waits for it: start "
            "only one of the two on it" % (device.ordinal, holder)
        )
    if not wait:
        raise DeviceInUse(
            "device %d is in use by %s: wait for it to end, or choose other devices"
            % (device.ordinal, holder)
        )
    onWait("waiting for device %d, which is in use by %s" % (device.ordinal, holder))
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def _took(descriptor: int) -> bool:
    """Try to take the lock; somebody's look at it is no reason to fail."""
    deadline = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        if _isHeld(descriptor) or time.monotonic() > deadline:
            return False
        time.sleep(random.uniform(0.0005, 0.005))  # two who do this must not keep in step


def _isHeld(descriptor: int) -> bool:
    """Whether somebody holds the lock exclusively. Must not be asked by who holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _writeNote(descriptor: int, device: Device, system: System) -> None:
    """Say in the file who holds it. Only for people: nothing is decided by it."""
    text = "pid %d, device %d: %s\n" % (os.getpid(), device.ordinal, _command(system, os.getpid()))
    data = text.encode("utf-8", "replace")[:_NOTE_LIMIT]
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)
    except OSError:
        pass  # a full disk is no reason not to run


def _holder(descriptor: int, system: System) -> Tuple[int, str]:
    """(process that took it, words): who holds a lock, as far as it can be told; else 0.

    The kernel's list has the process that took it (not those that inherited it since); it may
    be gone, or lie outside our container. A lock file also holds its holder's own note.
    """
    taker = _holderPid(os.fstat(descriptor), system.readText("/proc/locks") or "")
    if taker and system.exists("/proc/%d" % taker):
        pid = _runOf(system, taker)
        return taker, "process %d (%s)" % (pid, _command(system, pid))
    note = _readNote(descriptor)
    if note:
        return 0, "a client of a process that has ended (%s)" % note if taker else note
    return 0, "another process"


def _runOf(system: System, pid: int) -> int:
    """The process that a person knows: a worker's parent, whose command line names the run."""
    parent = _parent(system, pid)
    isWorker = "popen_loky" in (system.readText("/proc/%d/cmdline" % pid) or "")
    return parent if isWorker and parent > 1 else pid


def _ancestors(system: System) -> List[int]:
    """The processes above this one, its own parent first."""
    found: List[int] = []
    pid = _parent(system, os.getpid())
    while pid > 1 and pid not in found:
        found.append(pid)
        pid = _parent(system, pid)
    return found


def _parent(system: System, pid: int) -> int:
    """The parent's id, 0 where it cannot be told: the second field behind the name in "()"."""
    fields = (system.readText("/proc/%d/stat" % pid) or "").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0


def _holderPid(found: os.stat_result, locks: str) -> int:
    """The process in /proc/locks ("1: FLOCK ADVISORY WRITE 814 00:19:1234 0 EOF"), or 0."""
    inode = "%02x:%02x:%d" % (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
    for line in locks.splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == inode and words[4].isdigit():
            return int(words[4])
    return 0


def _readNote(descriptor: int) -> str:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return ""
    try:
        text = os.pread(descriptor, _NOTE_LIMIT, 0).decode("utf-8", "replace")
    except OSError:
        return ""
    return oneLine(text)


def _command(system: System, pid: int, limit: int = 200) -> str:
    """A process's command line on one line; "unknown" where it cannot be read."""
    return system.commandLine(pid)[:limit] or "unknown"
