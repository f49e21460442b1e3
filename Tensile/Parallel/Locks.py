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
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from typing import Callable, List, Mapping, Optional, Sequence, Tuple

from .Errors import RunError
from .Platform import System
from .Types import Device

LOCK_DIR_VARIABLE = "TENSILE_PARALLEL_LOCK_DIR"
FOLDER_NAME = "tensile-parallel"
_NOTE_LIMIT = 500


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
        RunError: another holds it and wait is False, or there is no safe place for the lock.
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


def _order(device: Device) -> Tuple[str, ...]:
    """What does not depend on the run: its masks change ordinals and tokens."""
    return (device.renderNode, device.pciAddress, device.uniqueId, device.token)


def _opened(device: Device, lockDir: Optional[str], system: System) -> Tuple[int, str, str]:
    """(descriptor, path, note) of the file that stands for a device."""
    if device.renderNode and not device.emulated:
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            return os.open(system.realPath(device.renderNode), flags), device.renderNode, ""
        except OSError:
            pass
    folder = _folder(device, lockDir, system.environment)
    path = os.path.join(folder, _fileName(device))
    note = "" if device.emulated else _privateNote(device, path)
    return _openFile(folder, path), path, note


def _privateNote(device: Device, path: str) -> str:
    return (
        "device %d is locked by %s, for want of a render node: "
        "runs of other users are not kept off it" % (device.ordinal, path)
    )


def _fileName(device: Device) -> str:
    """A name that the device has in every run, whatever its masks."""
    name = device.uniqueId or device.pciAddress or "device-%s" % device.token
    return re.sub(r"[^A-Za-z0-9._-]", "_", name) + ".lock"


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


def _openFile(folder: str, path: str) -> int:
    """A lock file in a folder of our own, made where needed.

    Raises:
        RunError: folder or file is a link, somebody else's, or open to others' writing.
    """
    inside = -1
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        _refuseForeign(os.fstat(inside), folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(os.path.basename(path), flags, 0o600, dir_fd=inside)
    except OSError as error:
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
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        holder = _holder(descriptor, system)
    if not wait:
        raise RunError(
            "device %d is in use by %s: wait for it to end, or choose other devices"
            % (device.ordinal, holder)
        )
    onWait("waiting for device %d, which is in use by %s" % (device.ordinal, holder))
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def _writeNote(descriptor: int, device: Device, system: System) -> None:
    """Say in the file who holds it. Only for people: nothing is decided by it."""
    text = "pid %d, device %d: %s\n" % (os.getpid(), device.ordinal, _command(system, os.getpid()))
    data = text.encode("utf-8", "replace")[:_NOTE_LIMIT]
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)
    except OSError:
        pass  # a full disk is no reason not to run


def _holder(descriptor: int, system: System) -> str:
    """Who holds a lock, as far as it can be told.

    The kernel's list has the process that took it (not those that inherited it since); it may
    be gone, or lie outside our container. A lock file also holds its holder's own note.
    """
    pid = _holderPid(os.fstat(descriptor), system.readText("/proc/locks") or "")
    if pid and system.exists("/proc/%d" % pid):
        return "process %d (%s)" % (pid, _command(system, pid))
    note = _readNote(descriptor)
    if note:
        return "a client of a process that has ended (%s)" % note if pid else note
    return "another process"


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
    return "".join(c if c.isprintable() else " " for c in text).strip()


def _command(system: System, pid: int, limit: int = 120) -> str:
    """A process's command line on one line; "unknown" where it cannot be read."""
    return system.commandLine(pid)[:limit] or "unknown"
