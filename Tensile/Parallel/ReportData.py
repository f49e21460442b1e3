# SPDX-License-Identifier: MIT
"""What an output folder says of its last run, whether that is finished, interrupted or goes on.

outputs/run.json        which run, with what
execution_summary.json  how it ended; missing or of an earlier run where it did not
outputs/**/step.json    its steps, rewritten after every unit
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .Errors import InputError
from .Fleet import usedDevices
from .History import readHistory
from .Report import SUMMARY_FILE, executionSummary
from .RunRecord import RunRecord, readSteps
from .Types import Device

RUNNING = "running"
INTERRUPTED = "interrupted"

_LOG_FILE = "tensile_parallel.log"
_LOG_LINES = 15
_LOG_BYTES = 1 << 16
_OUR_WORDS = re.compile(r"^\S+ info: ")
_LOG_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\S+")


@dataclass(frozen=True)
class RunData:
    """All that a report tells.

    Attributes:
        out: absolute path of the output folder.
        record: the run.
        summary: what execution_summary.json has, made anew for this moment.
        steps: every step.json of this command's runs.
        runs: how many runs the folder has seen with these inputs, this one included.
        logTail: the last lines of the log that are Tensile's, a warning or an error.
        made: when the data were read, seconds since the epoch.
    """

    out: str
    record: RunRecord
    summary: Dict[str, Any]
    steps: Tuple[dict, ...]
    runs: int
    logTail: Tuple[str, ...]
    made: float


def readRun(out: str, now: float) -> RunData:
    """Read an output folder. Nothing in it is changed.

    Args:
        out: the folder.
        now: seconds since the epoch.

    Raises:
        InputError: there is no run in it.
    """
    out = os.path.abspath(out)
    outputs = os.path.join(out, "outputs")
    settings = _readSettings(out)
    history = readHistory(outputs)
    runs = history.runs if history and settings["run"] in history.runs else None
    steps = readSteps(outputs, runs)
    ended = _readJson(os.path.join(out, SUMMARY_FILE))
    if ended is not None and ended.get("run") != settings["run"]:
        ended = None  # an earlier run's
    log = _logLines(os.path.join(out, _LOG_FILE))
    try:
        if ended is None:
            record = _unended(out, settings, steps, log, now)
        else:
            record = _ended(out, settings, ended)
        record = replace(record, devices=usedDevices(record.devices, outputs, steps))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "%s: its files are not those of this version of TensileParallel (%r)" % (out, error)
        ) from None
    summary = executionSummary(record, steps)
    if ended is not None:
        summary["versions"] = ended.get("versions") or summary["versions"]
    # What we say ourselves at the end is on the page anyway.
    tail = [line for line in log if not _OUR_WORDS.match(line)][-_LOG_LINES:]
    return RunData(out, record, summary, tuple(steps), len(runs or ()) or 1, tuple(tail), now)


def _readSettings(out: str) -> Dict[str, Any]:
    path = os.path.join(out, "outputs", "run.json")
    settings = _readJson(path)
    if settings is None or not isinstance(settings.get("run"), str):
        if not os.path.isdir(out):
            reason = "it is no folder"
        elif os.path.exists(path):
            text = "%s cannot be read: the command of the run writes it anew"
            raise InputError(text % path)
        else:
            reason = "it has no outputs/run.json (a serial run leaves none)"
        raise InputError(
            "no run of TensileParallel in %s: %s; name the output folder of one" % (out, reason)
        )
    return settings


def _ended(out: str, settings: Dict[str, Any], ended: Dict[str, Any]) -> RunRecord:
    """The record of a run that has left its summary."""
    return RunRecord(
        run=ended["run"],
        command=tuple(ended["command"]),
        started=datetime.fromisoformat(ended["started"]).timestamp(),
        ended=datetime.fromisoformat(ended["ended"]).timestamp(),
        state=ended["state"],
        exitStatus=ended["exitStatus"],
        hostStatus=ended["hostStatus"],
        emulated=ended["emulated"],
        devices=_devices(settings),
        missing=tuple(ended["missingDevices"]),
        notes=tuple(ended["notes"]),
        client=ended["client"],
        config=ended["config"],
        merged=_merged(out, ended["mergedOutput"]),
        host=ended["host"],
    )


def _unended(
    out: str, settings: Dict[str, Any], steps: Sequence[dict], log: Sequence[str], now: float
) -> RunRecord:
    """The record of a run that goes on, or was ended before it could write a summary."""
    path = os.path.join(out, "outputs", "run.json")
    running = isHeld(os.path.join(out, "outputs", ".lock"))
    started = settings.get("started") or os.stat(path).st_mtime
    last = [started, _lastTime(log), os.stat(path).st_mtime]
    for step in steps:
        if step.get("run") == settings["run"]:
            last += [step.get("started") or 0.0, step.get("ended") or 0.0]
            last += [unit.get("ended") or 0.0 for unit in step.get("units") or ()]
    return RunRecord(
        run=settings["run"],
        command=tuple(settings.get("command") or ("TensileParallel",)),
        started=started,
        ended=max(now, started) if running else max(last),
        state=RUNNING if running else INTERRUPTED,
        exitStatus=None,
        hostStatus=None,
        emulated=bool(settings.get("emulate")),
        devices=_devices(settings),
        missing=(),
        notes=(),
        client=settings.get("client"),
        config=settings.get("config") or "",
        merged=_merged(out, settings.get("merged") or ""),
        host=settings.get("host") or {},
    )


def isHeld(path: str) -> bool:
    """Whether a run holds the lock of its output folder."""
    try:
        with open(path, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # there is none: nobody can hold it
    return False


def _devices(settings: Dict[str, Any]) -> Tuple[Device, ...]:
    return tuple(Device(**device) for device in settings["devices"])


def _merged(out: str, path: str) -> str:
    """The host's output folder, where the whole folder was moved or copied too."""
    here = os.path.join(out, os.path.basename(path) or "merged_output")
    return here if os.path.isdir(here) else path or here


def _readJson(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _logLines(path: str) -> List[str]:
    """The last lines of the log, more than are shown."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _LOG_BYTES))
            return stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _lastTime(lines: Sequence[str]) -> float:
    """When the log was written to last; 0 where its lines do not tell."""
    for line in reversed(lines):
        found = _LOG_TIME.match(line)
        if found:
            try:
                return datetime.fromisoformat(found.group()).timestamp()
            except ValueError:
                continue
    return 0.0
