# SPDX-License-Identifier: MIT
"""What a run leaves for its reader: execution_summary.json, timeline.json.

The numbers come from the step.json files of the parallel client. docs/reading-the-output.md has
the schema of both files.
"""

from __future__ import annotations

import os
import platform
import statistics
from datetime import datetime
from typing import Any, Dict, List, Optional, Sequence

from . import __version__
from .DeviceNames import deviceFields, nodeIn
from .Files import replaceFile, replaceJson
from .NodeRecord import nodeSummaries
from .RunRecord import (
    RunRecord,
    countOf,
    failedUnits,
    lostUnits,
    ownSteps,
    slowestUnits,
    speedUp,
    stepSeconds,
)
from .Timeline import timelineText
from .Types import Device

SUMMARY_FILE = "execution_summary.json"
TIMELINE_FILE = "timeline.json"
SCHEMA = 1
# More failures than this are counted, not listed; each step.json has them all.
MAX_LISTED_FAILURES = 1000
SLOWEST_UNITS = 20

COUNTS = ("measured", "rejected", "failed", "crashed", "hung")


def executionSummary(record: RunRecord, steps: Sequence[dict]) -> Dict[str, Any]:
    """The content of execution_summary.json.

    Args:
        record: what the front end knows.
        steps: what readSteps gave.
    """
    # Steps that an earlier run of the same command had finished took none of this one's time.
    own = ownSteps(record, steps)
    benchmark = sum(stepSeconds(step) for step in own)
    total = record.ended - record.started
    failures = [
        dict(failure, resultsFile=step.get("resultsFile"))
        for step in steps
        for failure in step.get("failures") or ()
    ]
    counts = {name: sum(countOf(step, name) for step in steps) for name in COUNTS}
    for name in ("validationFailures", "correctedWinners", "resumedPairs"):
        counts[name] = sum(step.get(name) or 0 for step in steps)
    # What an earlier run had finished was not measured by this one.
    counts["measured"] = sum(countOf(step, "measured") for step in own)
    counts["retimedPairs"] = sum(step.get("retimedPairs") or 0 for step in own)
    others = [step for step in steps if step.get("run") != record.run]
    counts["resumedPairs"] += sum(countOf(step, "measured") for step in others)
    devices = [_deviceSummary(device, steps, own, benchmark) for device in record.devices]
    nodes = nodeSummaries(devices, steps, own, benchmark)
    for node in nodes:
        for key in ("firstSeen", "lastSeen"):
            node[key] = node[key] and _isoTime(node[key])
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
        "speedUp": speedUp(own, total, benchmark),
        "devices": devices,
        **({"nodes": nodes} if nodes else {}),
        "missingDevices": list(record.missing),
        "steps": [_stepSummary(step) for step in steps],
        "counts": counts,
        "failedUnits": failedUnits(own),
        "lostUnits": lostUnits(own),
        "slowestUnits": slowestUnits(steps, SLOWEST_UNITS),
        "failures": failures[:MAX_LISTED_FAILURES],
        "failuresNotListed": max(0, len(failures) - MAX_LISTED_FAILURES),
        "notes": list(record.notes),
        "host": record.host,
        "versions": installedVersions(),
    }


def writeReports(outFolder: str, record: RunRecord, steps: Sequence[dict]) -> Dict[str, Any]:
    """Write both files.

    Returns:
        The summary.
    """
    summary = executionSummary(record, steps)
    replaceJson(os.path.join(outFolder, SUMMARY_FILE), summary)
    trace = timelineText(record, steps).encode("utf-8", "backslashreplace")
    replaceFile(os.path.join(outFolder, TIMELINE_FILE), trace)
    return summary


def _deviceSummary(
    device: Device, steps: Sequence[dict], own: Sequence[dict], wall: float
) -> Dict[str, Any]:
    """A device over all steps; what it took is of this run's (`own`) alone, as `wall` is."""
    parts = _partsOf(device, steps)
    busy = sum(part.get("busySeconds") or 0.0 for part in _partsOf(device, own))
    summary: Dict[str, Any] = deviceFields(device)
    summary.update(
        baselineRatio=_baselineRatio(device.ordinal, steps),
        units=sum(part.get("units") or 0 for part in parts),
        failedUnits=sum(failedUnits(own, device.ordinal).values()),
        pairs=sum(part.get("pairs") or 0 for part in parts),
        retimedPairs=sum(part.get("retimedPairs") or 0 for part in parts),
        busySeconds=round(busy, 3),
        busyShare=round(busy / wall, 4) if wall > 0 else 0.0,
    )
    return summary


def _partsOf(device: Device, steps: Sequence[dict]) -> List[dict]:
    return [
        part
        for step in steps
        for part in step.get("devices") or ()
        if part["ordinal"] == device.ordinal
    ]


def _baselineRatio(ordinal: int, steps: Sequence[dict]) -> Optional[float]:
    """A device's speed over the median device's: the middle one of all steps that know it."""
    ratios = [
        part["ratio"]
        for step in steps
        for part in (step.get("baseline") or {}).get("devices") or ()
        if part["device"] == ordinal
    ]
    return statistics.median_low(ratios) if ratios else None


def _stepSummary(step: dict) -> Dict[str, Any]:
    keys = ("problemType", "group", "step", "state", "resultsFile", "problems", "solutions")
    keys += ("passes", "whole", "counts", "validationFailures", "correctedWinners")
    keys += ("resumedPairs", "splitProblems", "retimedPairs", "deviceRatios", "baseline")
    keys += ("notes", "exit")
    summary = {key: step.get(key) for key in keys}
    wall = stepSeconds(step)
    summary["seconds"] = round(wall, 3)
    summary["devices"] = [
        {
            "ordinal": part["ordinal"],
            **nodeIn(part),
            "units": part.get("units") or 0,
            "pairs": part.get("pairs") or 0,
            "busySeconds": round(part.get("busySeconds") or 0.0, 3),
            "busyShare": round((part.get("busySeconds") or 0.0) / wall, 4) if wall > 0 else 0.0,
        }
        for part in step.get("devices") or ()
    ]
    return summary


def _isoTime(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


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
