# SPDX-License-Identifier: MIT
"""The emulated client's surroundings: devices, their masks and locks, settings, record, faults."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import time
from typing import Any, Dict, List, Mapping, Optional

from .Errors import InputError
from .Masks import emulatedVisible

DEVICES_VARIABLE = "TENSILE_EMULATED_DEVICES"
SETTINGS_VARIABLE = "TENSILE_EMULATOR"
LOCK_VARIABLE = "TENSILE_PARALLEL_LOCK_DIR"

FAULT_KINDS = (
    "crash",
    "hang",
    "error",
    "rejected",
    "invalid",
    "no-csv",
    "torn-row",
    "noise",
    "huge",
    "value",
    "exit",
    "slow",
)


def visibleDevices(environment: Mapping[str, str]) -> List[int]:
    """Physical numbers of the emulated devices that the masks leave, in HIP's order."""
    try:
        count = max(0, int(environment.get(DEVICES_VARIABLE) or "1"))
    except ValueError:
        count = 1
    return list(emulatedVisible(environment, count))


def lockFolder(environment: Mapping[str, str]) -> str:
    """Where the emulator notes which device is busy; made where it is missing.

    Raises:
        InputError: it is somebody else's, so it cannot be trusted.
        OSError: it cannot be made.
    """
    folder = environment.get(LOCK_VARIABLE)
    if not folder and environment.get("XDG_RUNTIME_DIR"):
        folder = os.path.join(environment["XDG_RUNTIME_DIR"], "emulated-locks")
    if folder:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return folder
    # Not by `tempfile`, a slow import: a benchmark starts this program thousands of times.
    temporary = environment.get("TMPDIR") or "/tmp"
    folder = os.path.join(temporary, "tensile-emulated-%d" % os.getuid())
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise InputError("%s: not a folder of this user alone; remove it" % folder)
    return folder


def _busyFile(device: int, environment: Mapping[str, str]) -> str:
    return os.path.join(lockFolder(environment), "emulator-gpu-%d.busy" % device)


def lastUse(device: int, environment: Mapping[str, str]) -> Optional[float]:
    """When a client last used a device, in seconds since the epoch; None: never.

    Args:
        device: physical number.

    Raises:
        InputError, OSError: as lockFolder().
    """
    try:
        return os.stat(_busyFile(device, environment)).st_mtime
    except FileNotFoundError:
        return None


def noteUse(descriptor: int) -> None:
    """Notes that the device of takeDevice()'s lock is used now.

    Explicitly, as the clock of the file's system need not be this machine's.
    """
    now = time.time()
    os.utime(descriptor, (now, now))


def takeDevice(device: int, environment: Mapping[str, str]) -> int:
    """Mark a device as busy for as long as this process lives.

    Args:
        device: physical number.

    Returns:
        The lock's descriptor, or -1 where another client has the device.

    Raises:
        InputError, OSError: as lockFolder().
    """
    path = _busyFile(device, environment)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor


class Settings:
    """The emulator's settings: a JSON file, all of it optional (docs/emulator.md)."""

    def __init__(self, path: str = "", values: Optional[Dict[str, Any]] = None) -> None:
        self.path = path
        self.values = values or {}
        self.timeScale = float(self.values.get("timeScale", 0.0))
        self.startSeconds = float(self.values.get("startSeconds", 0.0))
        self.initSecondsPerElement = float(self.values.get("initSecondsPerElement", 0.0))
        self.validateSecondsPerFlop = float(self.values.get("validateSecondsPerFlop", 0.0))
        self.pairSeconds = self.values.get("pairSeconds")
        self.coldFactor = float(self.values.get("coldFactor", 1.0))
        self.coldAfterSeconds = float(self.values.get("coldAfterSeconds", 1.0))
        self.record = self.values.get("record")
        self.faults = [Fault(n, rule) for n, rule in enumerate(self.values.get("faults", []))]

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """What the environment names.

        Raises:
            InputError: the file cannot be read or does not hold settings.
        """
        path = environment.get(SETTINGS_VARIABLE)
        if not path:
            return cls()
        import json

        try:
            with open(path, "r", encoding="utf-8") as file:
                values = json.load(file)
            if not isinstance(values, dict):
                raise ValueError("not an object")
            return cls(path, values)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise InputError("%s: no settings for the emulator: %s" % (path, error)) from None

    def perDevice(self, key: str, device: int) -> float:
        """A factor of one physical device, 1 where none is given."""
        return float((self.values.get(key) or {}).get(str(device), 1.0))

    def prescribedSeconds(self, index: int, sizeText: str, solution: int) -> Optional[float]:
        """The wall time that `pairSeconds` prescribes for a pair, or None.

        Args:
            index: the problem's index.
            sizeText: its sizes as in the INI, "1024,1024,1,1024".
            solution: the solution's index.
        """
        found = self.pairSeconds
        if isinstance(found, dict):
            found = found.get(sizeText, found.get(str(index), found.get("default")))
            if isinstance(found, list):
                found = found[solution] if solution < len(found) else None
        elif isinstance(found, list):
            found = found[index] if index < len(found) else None
        return None if found is None else float(found)


class Fault:
    """One rule of what goes wrong, where, and how often.

    Attributes:
        number: its place in the list.
        kind: one of FAULT_KINDS.
        rule: as given.
    """

    def __init__(self, number: int, rule: Dict[str, Any]) -> None:
        self.number = number
        self.rule = rule
        self.kind = rule.get("kind")
        self.atStart = rule.get("when") == "start"
        if self.kind not in FAULT_KINDS:
            raise ValueError("fault %d has no known kind: %r" % (number, self.kind))

    def matches(self, problem: int, solution: int, sizeText: str, name: str, run: int) -> bool:
        """Whether the rule means this pair; what a rule does not mention is any."""
        rule = self.rule
        return (
            rule.get("problem") in (None, problem)
            and rule.get("solution") in (None, solution)
            and rule.get("size") in (None, sizeText)
            and rule.get("run") in (None, run)
            and (rule.get("name") or "") in name
        )

    def meansDevice(self, device: int) -> bool:
        """Whether the rule is about this physical device."""
        return self.rule.get("device") in (None, device)

    def take(self, settingsPath: str) -> bool:
        """Whether it fires now: `times` limits how often it does, over all processes together."""
        times = self.rule.get("times")
        if times is None:
            return True
        path = settingsPath + ".fired"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            fired = file.read().split().count(b"%d" % self.number)
            if fired >= times:
                return False
            file.write(b"%d\n" % self.number)
            return True


class Record:
    """What this client did, one JSON object a line; several clients may share the file."""

    def __init__(self, path: Optional[str], device: int) -> None:
        self.device = device
        self.descriptor = -1
        if path:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self.descriptor = os.open(path, flags, 0o600)

    @property
    def active(self) -> bool:
        """Whether anything is written at all."""
        return self.descriptor >= 0

    def write(self, event: str, **fields: Any) -> None:
        """One line, in one write, so that lines of several processes do not mix."""
        if self.descriptor < 0:
            return
        import json

        line = {"event": event, "pid": os.getpid(), "device": self.device}
        line.update(wall=time.time(), monotonic=time.monotonic(), **fields)
        try:
            os.write(self.descriptor, (json.dumps(line) + "\n").encode())
        except OSError as error:
            print("EMULATOR: cannot write the record: %s" % error, file=sys.stderr)
