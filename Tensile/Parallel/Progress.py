# SPDX-License-Identifier: MIT
"""How far a step is: what each device does, what is done, how long it will take still.

    Loop --(Observer)--> StepProgress --(about once a second)--> progress.json, or a display

What is told is a dictionary, of which docs/watching-a-run.md has the meaning. Making it costs as
much for the ten thousandth unit as for the first.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Mapping, NamedTuple, Optional, Sequence

from .ClientOutput import ABSURD_SPEED, LastLine, PairLine
from .Cost import Cost
from .Files import replaceJson
from .LoopTypes import AWAY, IDLE, LEFT, LOST, STARTING, Observer
from .Remaining import Remaining
from .Schedule import Schedule
from .Seldom import Seldom
from .Step import Step
from .Terminal import shortName
from .Types import FAILURE_KINDS, Job, UnitResult

VERSION = 1

# How often it is told, in seconds.
TELL_SECONDS = 1.0
# With many devices, reckoning what remains takes time: so often longer than it is the pause, and it
# is no longer than so many seconds. Meanwhile the time just passes.
RECKON_PAUSE = 400.0
LONGEST_PAUSE = 9.0
# A worker that is not ready after so long waits for its device's lock.
LOCK_SECONDS = 10.0
# How often it is looked who holds that.
HOLDER_SECONDS = 15.0

RUNNING = "running"
WAITING = "waiting"
_NOT_READY = (LOST, WAITING, LEFT, AWAY)
# What ends a step, over what it took to start a worker: the workers are ended, and that is most.
END_SHARE = 0.5
LONGEST_END = 5.0
# The end of a step is told as the median of so many guesses.
ENDS_KEPT = 5


Tell = Callable[[Dict[str, Any], bool], None]


class Place(NamedTuple):
    """Where in a unit its client is: counts from 1, and of how many."""

    problem: int
    problems: int
    solution: int
    solutions: int
    donePairs: float


class _DeviceView:
    """What is known of a device."""

    def __init__(self, now: float) -> None:
        self.state = STARTING
        self.since = now
        self.job: Optional[Job] = None
        self.units = 0
        self.failures = 0
        self.holder = ""
        self.asked = now


class StepProgress(Observer):
    """Collects what the loop tells; hands on a dictionary when there is something new in it."""

    def __init__(
        self,
        step: Step,
        run: str,
        devices: Sequence[int],
        schedule: Schedule,
        cost: Cost,
        pairsDone: Callable[[], int],
        tell: Tell,
        lost: int = 0,
        holderOf: Callable[[int], str] = lambda device: "",
        now: Callable[[], float] = time.time,
        contenders: Callable[[int], float] = lambda problem: 1.0,
        nodeOf: Callable[[int], Dict[str, Any]] = lambda device: {},
    ) -> None:
        """Begins a step.

        Args:
            step: the step.
            run: id of the run.
            devices: ordinals of the devices.
            schedule: of the step; read only.
            cost: what it has learned; read only.
            pairsDone: how many pairs have been measured, earlier runs' included.
            tell: gets what there is to be told, about once a second, and whether it is new.
            lost: pairs that could not be measured in earlier runs.
            holderOf: who holds a device's lock; empty where nobody does.
            now: the clock, in seconds since the epoch.
            contenders: how many cells of a problem that is split will be timed again.
            nodeOf: what is told beside a device's number (DeviceNames.nodeFields).
        """
        self._step = step
        self._remaining = Remaining(schedule, cost, contenders)
        self._cost = cost
        self._ends: Deque[float] = deque(maxlen=ENDS_KEPT)
        self._beside = 0.0  # seconds of units that their clients did not take
        self._startSeconds = 0.0
        self._pairsDone = pairsDone
        self._tell = tell
        self._holderOf = holderOf
        self._nodeOf = nodeOf
        self._now = now
        begun = now()
        self._devices = {device: _DeviceView(begun) for device in devices}
        self._told = -math.inf
        self._reckoning = Seldom(RECKON_PAUSE, LONGEST_PAUSE, now)
        self._last: Dict[str, Any] = {}
        self._units = self._failedUnits = 0
        self._lost = lost
        self._left: Optional[float] = None
        table = step.table
        self._total = table.problemCount * table.solutionCount
        self._head = {
            "name": step.folderName or step.results.name,
            "best": step.best,
            "whole": bool(step.whole),
            "problems": table.problemCount,
            "solutions": table.solutionCount,
            "started": round(begun, 3),
        }
        self._resumed = pairsDone()
        self._run = run

    def changed(self, device: int, state: str) -> None:
        """A device is starting, idle, lost or away; one that is new has joined."""
        view = self._devices.setdefault(device, _DeviceView(self._now()))
        if (view.state, state) == (STARTING, IDLE) and not self._startSeconds:
            self._startSeconds = self._now() - view.since
        view.state, view.since, view.job, view.holder = state, self._now(), None, ""

    def began(self, device: int, job: Job) -> None:
        """A unit runs."""
        view = self._devices[device]
        view.state, view.since, view.job = RUNNING, self._now(), job

    def ended(self, device: int, result: UnitResult, lost: int) -> None:
        """A unit has ended."""
        view, now = self._devices[device], self._now()
        warmUp = result.warmUp.seconds if result.warmUp is not None else 0.0
        self._beside += max(0.0, now - view.since - result.outcome.seconds - warmUp)
        view.state, view.since, view.job = IDLE, now, None
        failed = result.outcome.kind in FAILURE_KINDS
        view.units += 1
        view.failures += failed
        self._units += 1
        self._failedUnits += failed
        self._lost += lost

    def tick(
        self,
        running: Mapping[int, Job],
        last: Mapping[int, LastLine],
        secondsLeft: Mapping[int, float],
    ) -> None:
        """Tells, if there is something new and it was not told just now."""
        now = self._now()
        if 0 <= now - self._told < TELL_SECONDS:
            return
        passed, self._told = now - self._told, now
        self._askForHolders(now)
        if self._reckoning.isDue:
            with self._reckoning.timed():
                self._left = self._secondsLeft(running, last, secondsLeft, now)
        elif self._left is not None:
            self._left = max(0.0, self._left - passed)
        self._hand("running", last)

    def end(self, state: str) -> None:
        """Tells that the step has ended: "finished" or "stopped"."""
        self._left = None
        self._hand(state, {})

    def _hand(self, state: str, last: Mapping[int, LastLine]) -> None:
        places = {
            device: placeOf(view.job, last[device].pair)
            for device, view in self._devices.items()
            if view.job is not None and device in last
        }
        told = {
            "version": VERSION,
            "run": self._run,
            "state": state,
            "step": self._stepEntry(places),
            "devices": [
                self._deviceEntry(device, view, places.get(device), last.get(device))
                for device, view in self._devices.items()
            ],
        }
        new = told != self._last
        self._last = told
        self._tell({**told, "updated": round(self._now(), 3)}, new)

    def _stepEntry(self, places: Mapping[int, Optional[Place]]) -> Dict[str, Any]:
        begun = 0.0
        for device, place in places.items():
            job = self._devices[device].job
            if place is not None and job is not None and not job.unit.extra:
                begun += self._total * place.donePairs if job.whole else place.donePairs
        done = min(self._total, self._pairsDone() + int(begun))
        left = self._left
        return {
            **self._head,
            "pairs": {
                "done": done,
                "total": self._total,
                "resumed": self._resumed,
                "failed": self._lost,
            },
            "units": {"done": self._units, "failed": self._failedUnits},
            "secondsLeft": left if left is None else round(left, 1),
        }

    def _deviceEntry(
        self, device: int, view: _DeviceView, place: Optional[Place], last: Optional[LastLine]
    ) -> Dict[str, Any]:
        entry: Dict[str, Any] = {
            "device": device,
            **self._nodeOf(device),
            "state": view.state,
            "since": round(view.since, 3),
            "units": view.units,
            "failures": view.failures,
        }
        if view.holder:
            entry["holder"] = view.holder
        job = view.job
        if job is None:
            return entry
        unit = job.unit
        entry["unit"] = unit.number
        entry["kind"] = "baseline" if unit.baseline else "again" if unit.retiming else "pairs"
        entry["attempt"] = unit.attempt
        at = place or placeOf(job, None) or Place(1, unit.problemCount, 1, unit.solutionCount, 0.0)
        problem = self._step.table.firstProblem if job.whole else unit.firstProblem
        problem += at.problem - 1
        entry["problem"] = problem
        entry["size"] = self._describe(problem)
        entry.update(ofProblems=at.problems, solution=at.solution, ofSolutions=at.solutions)
        entry["nthProblem"] = at.problem
        if not job.whole and at.solution <= len(job.columns):
            entry["name"] = shortName(job.columns[at.solution - 1])
        if last is not None:
            # A log from before this unit is its predecessor's.
            entry["lastLine"] = round(max(view.since, last.written), 3)
            entry["gflops"] = _speedOf(last.pair)
        return entry

    def _describe(self, problem: int) -> str:
        try:
            return self._step.config.describeProblem(problem)
        except (LookupError, ValueError):
            return ""  # of a step that goes whole nobody has looked at the sizes

    def _askForHolders(self, now: float) -> None:
        """Says of workers that are not ready for long that they wait, and for whom."""
        for device, view in self._devices.items():
            if view.state == STARTING and now - view.since > LOCK_SECONDS:
                view.state = WAITING
                view.asked = -math.inf
            if view.state == WAITING and not 0 <= now - view.asked < HOLDER_SECONDS:
                view.holder, view.asked = self._holderOf(device), now

    def _secondsLeft(
        self,
        running: Mapping[int, Job],
        last: Mapping[int, LastLine],
        left: Mapping[int, float],
        now: float,
    ) -> Optional[float]:
        if self._step.whole:
            return None
        ready = [d for d, view in self._devices.items() if view.state not in _NOT_READY]
        rest = {device: left.get(device, 0.0) for device in running}
        for device, job in running.items():
            # Of a client that is still starting, the start is left as well.
            fixed = self._cost.fixedSeconds(job.unit.firstProblem, job.unit.problemCount)
            rest[device] += max(0.0, fixed - (now - self._devices[device].since))
            line = last.get(device)
            parts = job.passes == 1 and not job.unit.extra  # else its time counts, not its pairs
            if parts and line is not None and line.pair is not None:
                # The pair that runs has been running since the last line.
                pair = self._cost.pairSeconds(job.unit.lastProblem)
                rest[device] -= min(pair, rest[device], max(0.0, now - line.written))
        end = min(LONGEST_END, END_SHARE * self._startSeconds)
        perUnit = self._beside / max(1, self._units)
        seconds = self._remaining.seconds(rest, ready, perUnit, end)
        if seconds is None:
            self._ends.clear()
            return None
        # A unit's first pair says little of the others: for a moment it may seem to take ages.
        self._ends.append(now + seconds)
        return max(0.0, statistics.median_low(self._ends) - now)


def placeOf(job: Job, pair: Optional[PairLine]) -> Optional[Place]:
    """Where a unit's client is, after the last pair that it has finished.

    Args:
        job: the unit.
        pair: the last line about a pair; None where there is none yet.

    Returns:
        None where the line does not fit the unit. `donePairs` is a share of the whole, below 1,
        for a job that is not split.
    """
    unit = job.unit
    if job.whole:
        if pair is None:
            return None
        problems, solutions = pair.lastProblem + 1, pair.lastSolution + 1
        row, column = pair.problem, pair.solution + 1
    else:
        problems, solutions = unit.problemCount, unit.solutionCount
        if pair is None:
            return Place(1, problems, 1, solutions, 0.0)
        row = pair.problem - job.written
        column = 1 if job.best else pair.solution - job.firstColumn - unit.firstSolution + 1
    if not (0 <= row < problems and 0 < column <= solutions):
        return None
    done = row * solutions + column
    share = (pair.run + done / (problems * solutions)) / max(1, job.passes)
    if column < solutions:
        column += 1
    elif row + 1 < problems:
        row, column = row + 1, 1
    pairs = share if job.whole else share * problems * solutions
    return Place(row + 1, problems, column, solutions, min(pairs, problems * solutions))


def _speedOf(pair: Optional[PairLine]) -> Optional[float]:
    """GFlops of a pair; None where it has none."""
    if pair is None or not math.isfinite(pair.gflops) or not 0 < pair.gflops < ABSURD_SPEED:
        return None
    return pair.gflops


def intoFile(path: Path) -> Tell:
    """A `tell` that replaces a file. Where it cannot be written, nothing is told."""

    def tell(told: Dict[str, Any], new: bool) -> None:
        if not new:
            return
        try:
            replaceJson(path, told)
        except OSError:
            pass  # a full disk: whoever needs the room for more than words says so

    return tell
