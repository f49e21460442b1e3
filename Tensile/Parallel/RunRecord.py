# SPDX-License-Identifier: MIT
"""A run and its steps, as all that is told of them afterwards needs them.

    RunRecord  what the front end knows of the run
    step.json  what the parallel client knows of each step (docs/reading-the-output.md)

A resumed run meets step.json files of earlier runs: their times are not of this run.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
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

from .DeviceNames import nameIn, nodeIn
from .Types import FAILURE_KINDS, MEASURED, WORKER_LOST, Device

# What the serial estimate rests on, in the words that stand beside it.
BASIS = "estimated from the units' own times"


@dataclass(frozen=True)
class RunRecord:
    """What the front end knows of a run, besides its steps.

    Attributes:
        run: id of the run.
        command: its command line.
        started: seconds since the epoch.
        ended: seconds since the epoch.
        state: "finished", "failed" or "stopped"; of one that has left no summary "running" or
            "interrupted".
        exitStatus: what TensileParallel exits with; None where it has not, or nobody knows.
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
    exitStatus: Optional[int]
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
    lost = sum(countOf(step, kind) for step in steps for kind in kinds)
    return max(0, lost - sum(step.get("validationFailures") or 0 for step in steps))


def untriedPairs(steps: Iterable[dict]) -> int:
    """How many pairs nobody tried, because no device was left."""
    return sum(step.get("leftOver") or 0 for step in steps)


def lostDevices(steps: Sequence[dict]) -> List[str]:
    """The devices that were set aside in any step, by name."""
    lost = sorted({device for step in steps for device in step.get("devicesLost") or ()})
    parts = (part for step in steps for part in step.get("devices") or ())
    names = {part["ordinal"]: nameIn(part, "ordinal") for part in parts}
    return [names.get(device, str(device)) for device in lost]


def ownSteps(record: RunRecord, steps: Sequence[dict]) -> List[dict]:
    """The steps that this run worked at; what earlier runs had finished is left out.

    A step without an end (it runs, or was interrupted) is given one, the next one's start or the
    run's end, and the mark "open".
    """
    own = [step for step in steps if step.get("run") == record.run]
    nexts = [step.get("started") or record.ended for step in own[1:]] + [record.ended]
    return [
        step if step.get("ended") else {**step, "ended": end, "open": True}
        for step, end in zip(own, nexts)
    ]


def stepName(step: dict) -> str:
    """ "TYPE_GROUP/STEP", by which a person finds a step's folders."""
    return "%s_%s/%s" % (step.get("problemType"), step.get("group"), step.get("step"))


def countOf(step: dict, name: str) -> int:
    """One of a step's counts."""
    return (step.get("counts") or {}).get(name) or 0


def stepSeconds(step: dict) -> float:
    """Wall time of a step that has ended; 0 for one that has not."""
    started, ended = step.get("started"), step.get("ended")
    return max(0.0, ended - started) if started and ended else 0.0


def failedUnits(steps: Iterable[dict], device: Optional[int] = None) -> Dict[str, int]:
    """How many clients crashed, hung or failed, by kind; of all devices, or of one."""
    found = {kind: 0 for kind in FAILURE_KINDS}
    for step in steps:
        for unit in step.get("units") or ():
            if unit.get("kind") in found and device in (None, unit.get("device")):
                found[unit["kind"]] += 1
    return found


def lostUnits(steps: Iterable[dict]) -> int:
    """How many units were lost with their worker, their node or the way there."""
    units = (unit for step in steps for unit in step.get("units") or ())
    return sum(unit.get("kind") == WORKER_LOST for unit in units)


def unitSeconds(unit: dict) -> float:
    """Wall time of a unit's client."""
    return max(0.0, (unit.get("ended") or 0.0) - (unit.get("started") or 0.0))


def unitName(step: dict, unit: dict) -> str:
    """ "4096x4096x1x1024 and 3 more, solutions 0-63", marked where it is no plain first try."""
    first, count = unit.get("problems") or (0, 0)
    text = unit.get("size") or "problem %d" % first
    if step.get("whole"):
        text = "the whole step"
    elif count > 1:
        text += " and %d more" % (count - 1)
    start, width = unit.get("solutions") or (0, 0)
    if width and not step.get("whole") and not step.get("bestSolution"):
        text += ", solutions %d-%d" % (start, start + width - 1)
    if unit.get("retiming"):
        text += " (re-timing)"
    elif unit.get("baseline"):
        text += " (baseline)"
    if (unit.get("attempt") or 1) > 1:
        text += " (try %d)" % unit["attempt"]
    return text


def slowestUnits(steps: Sequence[dict], count: int) -> List[Dict[str, Any]]:
    """The units that took longest, in a form for execution_summary.json."""
    units = [(step, unit) for step in steps for unit in step.get("units") or ()]
    units.sort(key=lambda each: -unitSeconds(each[1]))
    return [
        {
            "step": stepName(step),
            "unit": unit.get("unit"),
            "device": unit.get("device"),
            **nodeIn(unit),
            "name": unitName(step, unit),
            "pairs": pairsOf(unit),
            "kind": unit.get("kind"),
            "seconds": round(unitSeconds(unit), 3),
        }
        for step, unit in units[:count]
    ]


def pairsOf(unit: dict) -> int:
    """How many pairs a unit was to measure."""
    return (unit.get("problems") or (0, 0))[1] * (unit.get("solutions") or (0, 0))[1]


def speedUp(steps: Sequence[dict], total: float, benchmark: float) -> Optional[Dict[str, Any]]:
    """How much sooner a run was done than one device alone would have been.

    Nobody has run the serial client: its time is estimated as that of all units, less what only a
    split costs. Those are baselines, re-timings, tries that failed, and in each step every start
    of a client but the longest. Warm-ups are no part of a unit's time.

    Args:
        steps: of this run alone.
        total: wall time of the run in seconds.
        benchmark: of that, in steps.

    Returns:
        For execution_summary.json; None where nothing was measured.
    """
    serial, less = 0.0, {"baselines": 0.0, "retimings": 0.0, "failedTries": 0.0}
    less["clientStarts"] = 0.0
    for step in steps:
        starts = []
        for unit in step.get("units") or ():
            if unit.get("baseline"):
                less["baselines"] += unitSeconds(unit)
            elif unit.get("retiming"):
                less["retimings"] += unitSeconds(unit)
            elif unit.get("kind") != MEASURED:
                less["failedTries"] += unitSeconds(unit)
            else:
                serial += unitSeconds(unit)
                starts.append(unit.get("startSeconds") or 0.0)
        extra = sum(starts) - max(starts, default=0.0)
        serial -= extra
        less["clientStarts"] += extra
    if serial <= 0 or benchmark <= 0 or total <= 0:
        return None
    serialTotal = serial + max(0.0, total - benchmark)
    return {
        "benchmark": round(serial / benchmark, 3),
        "total": round(serialTotal / total, 3),
        "serialBenchmarkSeconds": round(serial, 3),
        "serialTotalSeconds": round(serialTotal, 3),
        "leftOutSeconds": {name: round(seconds, 3) for name, seconds in less.items()},
        "basis": BASIS,
    }
