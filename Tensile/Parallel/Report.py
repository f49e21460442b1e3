# SPDX-License-Identifier: MIT
"""What a run leaves for its reader: execution_summary.json, timeline.json, the closing words.

The numbers come from the step.json files of the parallel client. docs/reading-the-output.md has
the schema of both files.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import (
    Any,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
)

from . import __version__
from .Files import replaceJson
from .Types import Device

SUMMARY_FILE = "execution_summary.json"
TIMELINE_FILE = "timeline.json"
SCHEMA = 1
# More failures than this are counted, not listed; each step.json has them all.
MAX_LISTED_FAILURES = 1000

COUNTS = ("measured", "rejected", "failed", "crashed", "hung")
EMULATED_NOTE = "EMULATED: the times are made up, nothing was measured"


@dataclass(frozen=True)
class RunRecord:
    """What the front end knows of a run, besides its steps.

    Attributes:
        run: id of the run.
        command: its command line.
        started: seconds since the epoch.
        ended: seconds since the epoch.
        state: "finished", "failed" or "stopped".
        exitStatus: what TensileParallel exits with.
        hostStatus: what the host exited with, as a shell shows it.
        emulated: whether the devices were emulated.
        devices: those of the run.
        missing: ordinals that were asked for and are not there.
        notes: warnings, one line each.
        client: path of tensile_client; None for the emulated one.
        config: path of the tuning config.
        merged: the host's output folder.
        host: generation, version, tree, how it was found, whether it is the stand-in.
    """

    run: str
    command: Tuple[str, ...]
    started: float
    ended: float
    state: str
    exitStatus: int
    hostStatus: Optional[int]
    emulated: bool
    devices: Tuple[Device, ...]
    missing: Tuple[int, ...]
    notes: Tuple[str, ...]
    client: Optional[str]
    config: str
    merged: str
    host: Dict[str, Any]


def readSteps(outputs: str, runs: Optional[Collection[str]] = None) -> List[dict]:
    """Every step's account below an outputs folder, in the order in which they started.

    Args:
        outputs: the folder out/outputs.
        runs: ids of runs; steps of others are left out. None for all.
    """
    steps = []
    for path in _stepFiles(outputs):
        try:
            with open(path, encoding="utf-8") as stream:
                step = json.load(stream)
        except (OSError, ValueError):
            continue
        if isinstance(step, dict) and (runs is None or step.get("run") in runs):
            steps.append(step)
    return sorted(steps, key=lambda step: step.get("started") or 0)


def _stepFiles(outputs: str) -> Iterator[str]:
    for folder, folders, files in os.walk(outputs):
        # The units' own files, which may be many thousands, hold no step.
        folders[:] = [name for name in folders if not name.startswith("gpu_")]
        for name in files:
            if name.startswith("step") and name.endswith(".json"):
                yield os.path.join(folder, name)


def lostPairs(steps: Iterable[dict]) -> int:
    """How many pairs could not be measured: their client crashed or hung, or said it failed.

    Wrong results are not among them: the host gets their number, as from the serial client.
    """
    kinds = ("crashed", "hung", "failed")
    lost = sum(_count(step, kind) for step in steps for kind in kinds)
    return max(0, lost - sum(step.get("validationFailures") or 0 for step in steps))


def untriedPairs(steps: Iterable[dict]) -> int:
    """How many pairs nobody tried, because no device was left."""
    return sum(step.get("leftOver") or 0 for step in steps)


def lostDevices(steps: Iterable[dict]) -> List[int]:
    """The devices that were set aside in any step."""
    return sorted({device for step in steps for device in step.get("devicesLost") or ()})


def executionSummary(record: RunRecord, steps: Sequence[dict]) -> Dict[str, Any]:
    """The content of execution_summary.json.

    Args:
        record: what the front end knows.
        steps: what readSteps gave.
    """
    # Steps that an earlier run of the same command had finished took none of this one's time.
    benchmark = sum(_seconds(step) for step in steps if step.get("run") == record.run)
    total = record.ended - record.started
    failures = [
        dict(failure, resultsFile=step.get("resultsFile"))
        for step in steps
        for failure in step.get("failures") or ()
    ]
    counts = {name: sum(_count(step, name) for step in steps) for name in COUNTS}
    for name in ("validationFailures", "correctedWinners", "resumedPairs"):
        counts[name] = sum(step.get(name) or 0 for step in steps)
    return {
        "schema": SCHEMA,
        "run": record.run,
        "state": record.state,
        "exitStatus": record.exitStatus,
        "hostStatus": record.hostStatus,
        "emulated": record.emulated,
        "command": list(record.command),
        "config": record.config,
        "mergedOutput": record.merged,
        "client": record.client,
        "started": _isoTime(record.started),
        "ended": _isoTime(record.ended),
        "seconds": {
            "total": round(total, 3),
            "benchmark": round(benchmark, 3),
            "host": round(max(0.0, total - benchmark), 3),
        },
        "devices": [_deviceSummary(device, steps, benchmark) for device in record.devices],
        "missingDevices": list(record.missing),
        "steps": [_stepSummary(step) for step in steps],
        "counts": counts,
        "failures": failures[:MAX_LISTED_FAILURES],
        "failuresNotListed": max(0, len(failures) - MAX_LISTED_FAILURES),
        "notes": list(record.notes),
        "host": record.host,
        "versions": installedVersions(),
    }


def timeline(record: RunRecord, steps: Sequence[dict]) -> Dict[str, Any]:
    """The content of timeline.json, in the Chrome trace-event format (Perfetto opens it).

    One row per device with the units that ran on it, and one for the run with its steps. Times
    are microseconds since the start of the run.
    """
    events: List[dict] = [_nameEvent("process_name", 0, 0, "TensileParallel")]
    events.append(_nameEvent("thread_name", 0, 0, "steps"))
    label = "emulated GPUs" if record.emulated else "GPUs"
    events.append(_nameEvent("process_name", 1, 0, label))
    for device in record.devices:
        events.append(_nameEvent("thread_name", 1, device.ordinal, "device %d" % device.ordinal))
    events.append(_span(record, "run", 0, 0, record.started, record.ended, {}))
    for step in steps:
        if step.get("started") and step.get("ended"):
            arguments = {key: step.get(key) for key in ("problems", "solutions", "whole")}
            events.append(
                _span(record, _stepName(step), 0, 0, step["started"], step["ended"], arguments)
            )
        for unit in step.get("units") or ():
            if unit.get("started") and unit.get("ended"):
                events.append(_unitSpan(record, step, unit))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def writeReports(outFolder: str, record: RunRecord, steps: Sequence[dict]) -> Dict[str, Any]:
    """Write both files.

    Returns:
        The summary.
    """
    summary = executionSummary(record, steps)
    for name, content in ((SUMMARY_FILE, summary), (TIMELINE_FILE, timeline(record, steps))):
        replaceJson(os.path.join(outFolder, name), content)
    return summary


def textSummary(summary: Dict[str, Any]) -> str:
    """The closing words on the terminal."""
    counts, seconds = summary["counts"], summary["seconds"]
    lines = []
    if summary["emulated"]:
        lines.append(EMULATED_NOTE)
    lines.append(
        "%s: %d pairs in %d steps on %d devices, %s (benchmarks %s, the rest of Tensile %s)"
        % (
            summary["state"],
            counts["measured"],
            len(summary["steps"]),
            len(summary["devices"]),
            _duration(seconds["total"]),
            _duration(seconds["benchmark"]),
            _duration(seconds["host"]),
        )
    )
    for device in summary["devices"] if summary["steps"] else ():
        line = "device %d: %d units, %d pairs, busy %s (%.0f %% of the benchmark time)" % (
            device["ordinal"],
            device["units"],
            device["pairs"],
            _duration(device["busySeconds"]),
            100 * device["busyShare"],
        )
        if device["baselineRatio"] is not None:
            line += ", speed %.3f of the median device" % device["baselineRatio"]
        lines.append(line)
    widest = _widestStep(summary["steps"])
    if widest is not None:
        spread = widest["baseline"]
        lines.append(
            "devices differ by up to %.1f %% (device %d from device %d, in %s)"
            % (spread["spreadPercent"], spread["slowest"], spread["fastest"], _stepName(widest))
        )
    for name, words in (
        ("failed", "failed"),
        ("crashed", "crashed"),
        ("hung", "hung"),
        ("validationFailures", "gave wrong results"),
        ("rejected", "were refused by the client's own checks"),
    ):
        if counts[name]:
            lines.append("%d pairs %s" % (counts[name], words))
    if counts["resumedPairs"]:
        lines.append("%d pairs were measured by an earlier run" % counts["resumedPairs"])
    if counts["correctedWinners"]:
        lines.append(
            "%d rows name another winner than the client did: its own had no valid measurement"
            % counts["correctedWinners"]
        )
    lines.append("output: %s" % summary["mergedOutput"])
    return "\n".join(lines)


def _deviceSummary(device: Device, steps: Sequence[dict], wall: float) -> Dict[str, Any]:
    parts = [
        part
        for step in steps
        for part in step.get("devices") or ()
        if part["ordinal"] == device.ordinal
    ]
    busy = sum(part.get("busySeconds") or 0.0 for part in parts)
    summary: Dict[str, Any] = asdict(device)
    summary.update(
        baselineRatio=_baselineRatio(device.ordinal, steps),
        units=sum(part.get("units") or 0 for part in parts),
        pairs=sum(part.get("pairs") or 0 for part in parts),
        busySeconds=round(busy, 3),
        busyShare=round(busy / wall, 4) if wall > 0 else 0.0,
    )
    return summary


def _baselineRatio(ordinal: int, steps: Sequence[dict]) -> Optional[float]:
    """A device's speed over the median device's: the middle one of all steps that know it."""
    ratios = [
        part["ratio"]
        for step in steps
        for part in (step.get("baseline") or {}).get("devices") or ()
        if part["device"] == ordinal
    ]
    return statistics.median_low(ratios) if ratios else None


def _widestStep(steps: Sequence[dict]) -> Optional[dict]:
    """The step in which the devices' baselines differed most."""
    known = [step for step in steps if step.get("baseline")]
    return max(known, key=lambda step: step["baseline"]["spreadPercent"], default=None)


def _stepSummary(step: dict) -> Dict[str, Any]:
    keys = ("problemType", "group", "step", "state", "resultsFile", "problems", "solutions")
    keys += ("passes", "whole", "counts", "validationFailures", "correctedWinners")
    keys += ("resumedPairs", "splitProblems", "retimedPairs", "deviceRatios", "baseline")
    keys += ("notes", "exit")
    summary = {key: step.get(key) for key in keys}
    wall = _seconds(step)
    summary["seconds"] = round(wall, 3)
    summary["devices"] = [
        {
            "ordinal": part["ordinal"],
            "units": part.get("units") or 0,
            "pairs": part.get("pairs") or 0,
            "busySeconds": round(part.get("busySeconds") or 0.0, 3),
            "busyShare": round((part.get("busySeconds") or 0.0) / wall, 4) if wall > 0 else 0.0,
        }
        for part in step.get("devices") or ()
    ]
    return summary


def _unitSpan(record: RunRecord, step: dict, unit: dict) -> dict:
    keys = ("kind", "exit", "problems", "solutions")
    arguments: Dict[str, Any] = {key: unit.get(key) for key in keys}
    arguments["step"] = _stepName(step)
    name = "unit %s" % unit.get("unit")
    return _span(record, name, 1, unit["device"], unit["started"], unit["ended"], arguments)


def _span(
    record: RunRecord, name: str, pid: int, tid: int, started: float, ended: float, args: dict
) -> dict:
    return {
        "name": name,
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": round((started - record.started) * 1e6),
        "dur": round(max(0.0, ended - started) * 1e6),
        "args": args,
    }


def _nameEvent(kind: str, pid: int, tid: int, name: str) -> dict:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _stepName(step: dict) -> str:
    return "%s_%s/%s" % (step.get("problemType"), step.get("group"), step.get("step"))


def _count(step: dict, name: str) -> int:
    return (step.get("counts") or {}).get(name) or 0


def _seconds(step: dict) -> float:
    started, ended = step.get("started"), step.get("ended")
    return max(0.0, ended - started) if started and ended else 0.0


def _isoTime(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def _duration(seconds: float) -> str:
    """12.3 s, 4 min 05 s, 3 h 02 min."""
    if seconds < 60:
        return "%.1f s" % seconds
    minutes, rest = divmod(int(seconds + 0.5), 60)
    if minutes < 60:
        return "%d min %02d s" % (minutes, rest)
    return "%d h %02d min" % divmod(minutes, 60)


def installedVersions() -> Dict[str, Optional[str]]:
    """Ours, Python's, and those of what we need; None for what is not installed."""
    return {
        "tensileParallel": __version__,
        "python": platform.python_version(),
        "joblib": _installed("joblib"),
        "loky": _lokyVersion(),
        "msgpack": _installed("msgpack"),
        "PyYAML": _installed("PyYAML"),
    }


def _installed(name: str) -> Optional[str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _lokyVersion() -> Optional[str]:
    try:
        from joblib.externals import loky
    except ImportError:
        return None
    return loky.__version__
