# SPDX-License-Identifier: MIT
"""status.json: a run as it is now, for dashboards and for `TensileParallel --status OUT`.

    parallel client --progress.json--> RunStatus (front end) --status.json--> whoever looks

docs/watching-a-run.md has the schema. Whether a run still lives is told by the lock that it holds
and not by a time: a run that waits for a device may have nothing to say for hours.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .ConfigSteps import ConfigStep
from .Errors import InputError
from .Files import replaceJson
from .StatusText import statusLines

SCHEMA = 1
STATUS_FILE = "status.json"
PROGRESS_FILE = "progress.json"
OUTPUTS_FOLDER = "outputs"
LOCK_FILE = ".lock"

PREPARING = "preparing"
KERNELS = "kernels"
BENCHMARKING = "benchmarking"
LOGIC = "logic"
FINISHED = "finished"
FAILED = "failed"
STOPPED = "stopped"
DIED = "died"
_ENDS = (FINISHED, FAILED, STOPPED)

WRITE_SECONDS = 1.0


class StepCounter:
    """Which step of the config the host is at, and what those to come may take.

    A step is known by its group's number and by how many problems it has: the host names no other
    place in the config.
    """

    def __init__(self, steps: Sequence[ConfigStep]) -> None:
        self._steps = steps
        self._at = -1
        self._problems = 0.0  # that were measured in steps which have ended
        self._seconds = 0.0  # that this took
        self._hostSeconds: List[float] = []

    @property
    def number(self) -> int:
        """Of the step that runs, or ran last, from 1; 0 before the first."""
        return self._at + 1

    @property
    def count(self) -> int:
        """How many steps the config has, as far as that can be told."""
        return max(len(self._steps), self.number)

    def begin(self, step: Dict[str, Any], hostSeconds: float) -> None:
        """A step has begun.

        Args:
            step: as in progress.json.
            hostSeconds: what the host took before it.
        """
        self._hostSeconds.append(hostSeconds)
        if step["best"]:
            return  # a LibraryClient's, which is none of the config's groups
        group = os.path.dirname(step["name"]).rpartition("_")[2]
        for at in range(self._at + 1, len(self._steps)):
            known = self._steps[at]
            if known.problems in (None, step["problems"]) and "%02d" % known.group == group:
                self._at = at
                return
        self._at += 1

    def end(self, step: Dict[str, Any], seconds: float) -> None:
        """It has ended, after so many seconds."""
        self._problems += _measuredShare(step) * step["problems"]
        self._seconds += seconds

    def later(self, step: Optional[Dict[str, Any]], seconds: float) -> Optional[float]:
        """Expected seconds of the steps after the current one; None where that is not known.

        As long per problem as all that was measured so far: what their kernels will be is not known
        before they are made.

        Args:
            step: the one that runs; None between two.
            seconds: what it will have taken in all.
        """
        rest = self._steps[self._at + 1 :]
        if not rest:
            return 0.0
        measured = self._problems
        if step is not None:
            measured += (1 - _resumedShare(step)) * step["problems"]
        counts = [known.problems for known in rest]
        if measured <= 0 or None in counts:
            return None
        host = sum(self._hostSeconds) / max(1, len(self._hostSeconds))
        perProblem = (self._seconds + seconds) / measured
        return sum(count or 0 for count in counts) * perProblem + host * len(rest)


def _resumedShare(step: Dict[str, Any]) -> float:
    return step["pairs"]["resumed"] / max(1, step["pairs"]["total"])


def _measuredShare(step: Dict[str, Any]) -> float:
    pairs = step["pairs"]
    return max(0.0, (pairs["done"] - pairs["resumed"]) / max(1, pairs["total"]))


class RunStatus:
    """Keeps status.json current while a run goes on.

    Attributes:
        status: what it holds, or is about to.
    """

    def __init__(
        self,
        out: str,
        run: str,
        started: float,
        steps: Sequence[ConfigStep],
        devices: Sequence[int],
        emulated: bool,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Begins; the state is "preparing".

        Args:
            out: the run's output folder.
            run: its id.
            started: seconds since the epoch.
            steps: those of the config.
            devices: ordinals of the devices.
            emulated: whether they are emulated.
            now: the clock, in seconds since the epoch.
        """
        self._path = os.path.join(out, STATUS_FILE)
        self._progressPath = os.path.join(out, OUTPUTS_FOLDER, PROGRESS_FILE)
        self._now = now
        self._counter = StepCounter(steps)
        self._mark: Optional[Tuple[int, ...]] = None
        self._step: Optional[Dict[str, Any]] = None  # that runs
        self._hostSince = started
        self._resumed: Dict[str, int] = {}
        self._written: Dict[str, Any] = {}
        self._writtenAt = -math.inf
        self.status: Dict[str, Any] = {
            "schema": SCHEMA,
            "run": run,
            "pid": os.getpid(),
            "state": PREPARING,
            "emulated": emulated,
            "started": round(started, 3),
            "ended": None,
            "exitStatus": None,
            "stepNumber": 0,
            "stepCount": len(steps),
            "step": None,
            "devices": [{"device": device, "state": "idle"} for device in devices],
            "resumedPairs": 0,
            "secondsLeft": None,
            "secondsLeftIs": None,
        }
        self._write()

    def __enter__(self) -> "RunStatus":
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            self.end(FAILED, 1)

    def setState(self, state: str) -> None:
        """Another state, written at once."""
        self.status["state"] = state
        self._write()

    def tick(self) -> Dict[str, Any]:
        """Takes in what the parallel client tells; to be called often.

        Returns:
            The status as it is now.
        """
        told = self._readProgress()
        if told is not None:
            before = self.status["state"]
            self._take(told)
            if self.status["state"] != before:
                self._write()
        if self._now() - self._writtenAt >= WRITE_SECONDS or self._now() < self._writtenAt:
            if self.status != self._written:
                self._write()
        return self.status

    def end(self, state: str, exitStatus: int) -> None:
        """The run has ended."""
        for device in self.status["devices"]:
            if device["state"] != "lost":
                device["state"] = "idle"
        self.status.update(
            ended=round(self._now(), 3), exitStatus=exitStatus, secondsLeft=None, secondsLeftIs=None
        )
        self.setState(state)

    def _readProgress(self) -> Optional[Dict[str, Any]]:
        """What the parallel client has told since the last look; None: nothing."""
        try:
            found = os.stat(self._progressPath)
            mark = (found.st_mtime_ns, found.st_ino, found.st_size)
            if mark == self._mark:
                return None
            with open(self._progressPath, encoding="utf-8") as stream:
                told = json.load(stream)
        except (OSError, ValueError):
            return None
        self._mark = mark
        return told if told.get("run") == self.status["run"] else None

    def _take(self, told: Dict[str, Any]) -> None:
        step, updated = told["step"], told["updated"]
        if self._step is None or self._step["started"] != step["started"]:
            if self._step is not None:  # its end was not seen
                self._endStep(self._step, step["started"])
            self._counter.begin(step, max(0.0, step["started"] - self._hostSince))
        self._step = step
        self._resumed[step["name"]] = step["pairs"]["resumed"]
        self.status.update(
            stepNumber=self._counter.number,
            stepCount=self._counter.count,
            step=step,
            devices=told["devices"],
            resumedPairs=sum(self._resumed.values()),
        )
        if told["state"] == "running":
            self.status["state"] = BENCHMARKING
            elapsed = updated - step["started"]
            left = step["secondsLeft"]
            later = None if left is None else self._counter.later(step, elapsed + left)
            self._setLeft(left, later)
            return
        self._endStep(step, updated)
        if told["state"] == STOPPED:
            return  # the host does nothing more
        last = self._counter.number >= self._counter.count
        self.status["state"] = LOGIC if last else KERNELS
        self._setLeft(None if last else 0.0, self._counter.later(None, 0.0))

    def _endStep(self, step: Dict[str, Any], ended: float) -> None:
        self._counter.end(step, max(0.0, ended - step["started"]))
        self._step, self._hostSince = None, ended

    def _setLeft(self, left: Optional[float], later: Optional[float]) -> None:
        """What is left: of this step and the later ones; at least of this one."""
        known = None if left is None else left + (later or 0.0)
        if later is None and not left:
            known = None
        self.status["secondsLeft"] = known if known is None else round(known, 1)
        self.status["secondsLeftIs"] = known and ("about" if later is not None else "at least")

    def _write(self) -> None:
        self._written = json.loads(json.dumps(self.status))
        self._writtenAt = self._now()
        try:
            replaceJson(self._path, {**self.status, "updated": round(self._writtenAt, 3)})
        except OSError:
            pass  # a full disk: the run itself says so where it matters


def readStatus(out: str) -> Dict[str, Any]:
    """The status of the run in a folder; a run that is gone without a word has the state "died".

    Raises:
        InputError: there is none, or none that this version can read.
    """
    status = _load(out)
    if status["state"] not in _ENDS and not _isHeld(out):
        status = _load(out)  # it may have ended just between
        if status["state"] not in _ENDS:
            status["state"] = DIED
    return status


def _load(out: str) -> Dict[str, Any]:
    path = os.path.join(out, STATUS_FILE)
    try:
        with open(path, encoding="utf-8") as stream:
            status = json.load(stream)
    except FileNotFoundError:
        raise InputError(_whyNone(out)) from None
    except OSError as error:
        raise InputError("%s cannot be read: %s" % (path, error.strerror or error)) from None
    except ValueError:
        raise InputError("%s is no status of a run: it is damaged" % path) from None
    if not isinstance(status, dict) or "schema" not in status:
        raise InputError("%s is no status of a run: it is damaged" % path)
    if status["schema"] != SCHEMA:
        raise InputError(
            "%s has schema %r, this version reads %d: use the TensileParallel that wrote it"
            % (path, status["schema"], SCHEMA)
        )
    missing = {"run", "state", "started", "devices", "step", "exitStatus"} - set(status)
    if missing or not isinstance(status["devices"], list):
        raise InputError(
            "%s is no status of a run: it lacks %s" % (path, ", ".join(sorted(missing)))
        )
    return status


def _whyNone(out: str) -> str:
    if not os.path.isdir(out):
        return "%s: there is no such folder" % out
    if os.path.exists(os.path.join(out, OUTPUTS_FOLDER, "run.json")):
        return (
            "%s holds a run that has left no status (it is older, or has just begun): see its "
            "tensile_parallel.log" % out
        )
    return "%s holds no run of TensileParallel (a serial run leaves no status)" % out


def _isHeld(out: str) -> bool:
    """Whether a run, or a host that it left behind, has the folder."""
    try:
        with open(os.path.join(out, OUTPUTS_FOLDER, LOCK_FILE), "rb") as lock:
            # Shared: two who look are not in each other's way.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def showStatus(out: str, asJson: bool, tell: Callable[[str], None]) -> int:
    """--status OUT.

    Args:
        out: the run's output folder.
        asJson: print the file, with the state as it really is.
        tell: gets lines.

    Returns:
        0 while it runs and where it ended well; 1 where it failed, was stopped, or died.

    Raises:
        InputError: there is no run.
    """
    status = readStatus(out)
    if asJson:
        tell(json.dumps(status, indent=1))
    else:
        try:
            lines = statusLines(status, time.time())
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError):
            raise InputError("%s is damaged" % os.path.join(out, STATUS_FILE)) from None
        for line in lines:
            tell(line)
    if status["state"] == FINISHED:
        return 0 if not status["exitStatus"] else 1
    return 1 if status["state"] in (FAILED, STOPPED, DIED) else 0
