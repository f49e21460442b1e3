# SPDX-License-Identifier: MIT
"""step.json: what the front end, a person or a script learns about one step.

Written atomically when the step is planned, while it runs, and when it ends.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .Contest import Contests
from .DeviceNames import nodeFields
from .Files import replaceJson
from .LoopTypes import LoopResult, Lost
from .ResultsJoin import JoinReport
from .Seldom import Seldom
from .Step import Step
from .Types import CRASHED, FAILED, HUNG, Device, Piece, UnitResult

VERSION = 1
# It holds every unit, so with 10,000 of them writing it takes a fifth of a second: so often longer
# than it is the pause.
WRITE_PAUSE = 100.0
# More failures than this are counted, not listed.
MAX_LISTED = 1000


class StepReport:
    """Collects what happens in a step and writes it to step.json."""

    def __init__(
        self, path: Path, step: Step, run: str, devices: Sequence[Device], emulated: bool
    ) -> None:
        """Begins a report.

        Args:
            path: step.json.
            step: the step.
            run: id of the run.
            devices: the devices in use.
            emulated: whether the client is the emulated one.
        """
        self._path = path
        self._writing = Seldom(WRITE_PAUSE)
        self._step = step
        self._devices = {device.ordinal: device for device in devices}
        problemType, _, group = os.path.dirname(step.folderName).rpartition("_")
        best = step.config.flag("best-solution")
        if best:  # a LibraryClient's: it is no group of the config
            problemType, group = "", ""
        biases, activations = step.config.biasCount, step.config.activationCount
        self._data: Dict[str, Any] = {
            "version": VERSION,
            "run": run,
            "state": "planned",
            "resultsFile": str(step.results),
            "inputs": step.inputs,
            "problemType": problemType,
            "group": group,
            "step": os.path.basename(step.folderName) or step.results.stem,
            "problems": step.table.problemCount,
            "solutions": len(step.names),
            "passes": step.passes,
            "whole": step.whole or None,
            "bestSolution": best,
            "sizes": {
                "count": step.config.sizeCount,
                "biases": biases,
                "activations": activations,
                "factors": step.config.factorCount,
            },
            "started": time.time(),
            "ended": None,
            "devices": [],
            "units": [],
            "failures": [],
            "notes": [],
            "counts": {},
            "resumedPairs": 0,
            "resumedUnits": 0,
            "emulated": emulated,
            "exit": None,
        }
        self._pieces: List[Piece] = []
        self._known = dict(self._devices)
        self._loop: Optional[LoopResult] = None
        self._counts = {"measured": 0, "rejected": 0, "failed": 0, CRASHED: 0, HUNG: 0}
        self._busy: Dict[int, float] = {}
        self._validationFailures = 0
        self._retimed = 0
        self._retimings: Set[int] = set()  # numbers of the units that timed cells again

    @property
    def failedPairs(self) -> int:
        """Pairs that the client itself could not measure while it went on."""
        return self._counts["failed"]

    @property
    def validationFailures(self) -> int:
        """Pairs whose result was wrong."""
        return self._validationFailures

    def resumed(
        self,
        pieces: Sequence[Piece],
        pairs: int,
        tallies: Sequence[Dict[str, Any]] = (),
        lost: Sequence[Lost] = (),
        retimings: Sequence[int] = (),
    ) -> None:
        """Adds what earlier runs had measured.

        Args:
            pieces: the measured parts.
            pairs: how many pairs they hold.
            tallies: what tallyOf said of their units.
            lost: what could not be measured.
            retimings: numbers of the units that timed cells again.
        """
        self._pieces += pieces
        self._retimings.update(retimings)
        self._data["resumedPairs"] = pairs
        self._data["resumedUnits"] = len({piece.unit for piece in pieces})
        for tally in tallies:
            self._counts["rejected"] += tally["rejected"]
            self._counts["failed"] += tally["failed"]
            self._validationFailures += tally["wrong"]
            for device, problem, solution, message in tally["failures"]:
                self._listFailure(FAILED, device, problem, solution, message, "")
        for area in lost:
            self._lose(area)

    def addDevice(self, device: Device) -> None:
        """Adds a device that came later."""
        self._devices[device.ordinal] = self._known[device.ordinal] = device

    def addNodes(
        self, known: Sequence[Device], versions: Mapping[str, Any], clientHash: Optional[str]
    ) -> None:
        """Adds what is known of a cluster.

        Args:
            known: all devices that have a number here, also those of earlier runs.
            versions: of each node's driver, ROCm, kernel and Python.
            clientHash: SHA-256 of the client that all nodes run; None for the emulated one.
        """
        self._known.update((device.ordinal, device) for device in known)
        self._data["nodes"] = dict(versions)
        self._data["clientHash"] = clientHash

    def follow(self, loop: LoopResult) -> None:
        """Adds, from now on, which devices come and go."""
        self._loop = loop

    def contests(self, contests: Contests) -> None:
        """Adds what was split, what was timed again, and how far devices differed."""
        self._data["splitProblems"] = contests.splitProblems
        self._data["retimedPairs"] = self._retimed
        self._data["deviceRatios"] = [
            {"device": device, "home": home, "least": round(low, 4), "greatest": round(high, 4)}
            for (device, home), (low, high) in sorted(contests.ratios.items())
        ]
        spread = contests.spread
        self._data["baseline"] = spread and {
            "spreadPercent": round(spread.percent, 2),
            "slowest": spread.slowest,
            "fastest": spread.fastest,
            "devices": [
                {"device": device, "ratio": round(ratio, 4)}
                for device, ratio in spread.ratios.items()
            ],
        }

    def add(self, result: UnitResult) -> None:
        """Adds a unit."""
        outcome, unit = result.outcome, result.outcome.unit
        if not unit.baseline:
            self._count(result)
        self._busy[outcome.device] = self._busy.get(outcome.device, 0.0) + outcome.seconds
        self._data["units"].append(
            {
                "unit": unit.number,
                **self._name(outcome.device),
                "size": self._sizeOf(unit.firstProblem),
                "problems": [unit.firstProblem, unit.problemCount],
                "solutions": [unit.firstSolution, unit.solutionCount],
                "attempt": unit.attempt,
                "retiming": unit.retiming,
                "baseline": unit.baseline,
                "shortened": result.shortened,
                "warmUp": result.warmUp and round(result.warmUp.seconds, 3),
                "startSeconds": result.startSeconds and round(result.startSeconds, 3),
                "kind": outcome.kind,
                "exit": outcome.exitStatus,
                "message": outcome.message,
                "started": outcome.started,
                "ended": outcome.ended,
            }
        )

    def _count(self, result: UnitResult) -> None:
        pairs = sum(p.problemCount * p.solutionCount for p in result.pieces)
        self._pieces += result.pieces
        if result.outcome.unit.retiming:
            self._retimings.add(result.outcome.unit.number)
            self._retimed += pairs  # all else was counted where they were measured first
            return
        self._validationFailures += result.validationFailures
        self._counts["measured"] += pairs - result.rejected - result.failedPairs
        self._counts["rejected"] += result.rejected
        self._counts["failed"] += result.failedPairs
        for failure in result.failures:
            self._listFailure(
                FAILED,
                result.outcome.device,
                failure.problem,
                failure.solution,
                failure.message,
                "",
            )

    def finish(
        self,
        loop: LoopResult,
        join: Optional[JoinReport],
        status: int,
        file: Optional[List[int]] = None,
    ) -> None:
        """Adds what could not be measured, and how the step ended.

        Args:
            loop: what the loop has to say.
            join: what joining the shards has to say; None where nothing was joined.
            status: the exit status.
            file: the mark of the results file as it is now.
        """
        self._data["file"] = file
        for lost in loop.lost:
            self._lose(lost)
        self._data["workers"] = [
            {**asdict(start), **self._name(start.device)} for start in loop.workerStarts
        ]
        self._data["notes"] += loop.notes
        self._data["devicesLost"] = list(loop.devicesLost)
        self._data["leftOver"] = sum(area.pairs for area in loop.leftOver)
        if join is not None:
            self._data["correctedWinners"] = len(join.corrected)
            self._data["absurdCells"] = join.absurd
            self._data["notes"] += list(join.damaged)
        self._data["exit"] = status
        self._data["ended"] = time.time()
        self.write("stopped" if loop.leftOver else "finished")

    def _lose(self, lost: Lost) -> None:
        area = lost.rectangle
        kind = lost.kind if lost.kind in self._counts else CRASHED
        self._counts[kind] += area.pairs
        self._listFailure(
            lost.kind,
            lost.device,
            area.firstProblem,
            area.firstSolution,
            lost.message,
            lost.tail,
            area.pairs,
        )

    def note(self, text: str) -> None:
        """Adds a line."""
        self._data["notes"].append(text)

    def keepCurrent(self) -> None:
        """Writes step.json after a unit, but for that takes at most a hundredth of the time."""
        if self._writing.isDue:
            with self._writing.timed():
                self.write("running")

    def write(self, state: str) -> Dict[str, Any]:
        """Writes step.json so that no reader sees half of it; returns what it holds."""
        self._data["state"] = state
        self._data["counts"] = dict(self._counts)
        self._data["validationFailures"] = self._validationFailures
        # What a node measured that was there in an earlier run only is in the results all the same.
        earlier = {piece.device for piece in self._pieces if piece.device in self._known}
        ordinals = sorted({*self._devices, *earlier})
        self._data["devices"] = [self._device(ordinal) for ordinal in ordinals]
        if self._loop is not None and "nodes" in self._data:
            self._data["deviceChanges"] = [
                {**self._name(change.device), **asdict(change)} for change in self._loop.changes
            ]
        replaceJson(self._path, self._data)
        return self._data

    def _device(self, ordinal: int) -> Dict[str, Any]:
        own = [piece for piece in self._pieces if piece.device == ordinal]
        again = [piece for piece in own if piece.unit in self._retimings]
        device = self._known[ordinal]
        return {
            "ordinal": ordinal,
            **nodeFields(device),
            "token": device.token,
            "problems": _spans((p.firstProblem, p.problemCount) for p in own),
            "units": len({p.unit for p in own}),
            "pairs": sum(p.problemCount * p.solutionCount for p in own),
            "retimedPairs": sum(p.problemCount * p.solutionCount for p in again),
            "busySeconds": round(self._busy.get(ordinal, 0.0), 3),
        }

    def _name(self, device: int) -> Dict[str, Any]:
        """A device's number, and its node where it has one."""
        known = self._known.get(device)
        return {"device": device, **(nodeFields(known) if known else {})}

    def _sizeOf(self, problem: int) -> str:
        """A problem in words; empty in a step without any, which its client is to judge."""
        config = self._step.config
        return config.describeProblem(problem) if problem < config.problemCount else ""

    def _listFailure(
        self,
        kind: str,
        device: int,
        problem: int,
        solution: int,
        message: str,
        tail: str,
        pairs: int = 1,
    ) -> None:
        if len(self._data["failures"]) >= MAX_LISTED:
            return
        names = self._step.names
        self._data["failures"].append(
            {
                "kind": kind,
                **self._name(device),
                "problem": problem,
                "size": self._sizeOf(problem),
                "solution": names[solution] if solution < len(names) else "",
                "pairs": pairs,
                "message": message,
                "tail": tail,
            }
        )


def tallyOf(result: UnitResult) -> Optional[Dict[str, Any]]:
    """What a unit adds to the counts beside its measured pairs, in a form for the journal."""
    if result.outcome.unit.extra:
        return None  # its pairs are counted where they are measured first
    return {
        "rejected": result.rejected,
        "failed": result.failedPairs,
        "wrong": result.validationFailures,
        "failures": [
            [result.outcome.device, failure.problem, failure.solution, failure.message]
            for failure in result.failures
        ],
    }


def _spans(ranges: Any) -> List[Tuple[int, int]]:
    """[first, count] spans that cover the same problems, in order, joined where they touch."""
    spans: List[Tuple[int, int]] = []
    for first, count in sorted(ranges):
        if spans and first <= spans[-1][0] + spans[-1][1]:
            start, length = spans[-1]
            spans[-1] = (start, max(length, first + count - start))
        else:
            spans.append((first, count))
    return spans
