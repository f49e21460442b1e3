# SPDX-License-Identifier: MIT
"""Which unit a device runs next, and what becomes of a unit's leftovers. No process, no clock.

      free rectangles --next(device)--> running unit --succeeded / failed--> done
             ^                                            |
             +------- what it left over, less the pair ---+
                      that killed its client

Every pair of the table is in exactly one place: free, running, waiting for another try, done, or
given up. A pair that kills its client is tried once more on the same device, then once on another
one if there is one, then given up; so it never costs its neighbours. A rectangle that gets nowhere
without naming a pair (the client never reached its first one) is tried again elsewhere, then halved
until the problem is found whose data or size it cannot bear; that row alone is given up. Where the
client had begun to measure, the row is halved as well, until the pair is found.

Units are made on demand, large ones first. A problem is split between devices only where it is
longer than what one device should take at once. When a device finds nothing to do while another
has much left, the other's unit is shortened: its client is ended after the pair that it has just
finished, and the rest is free again. So a wrong estimate costs little.

Beside the table's pairs there are re-timings: cells of a split problem that are measured again on
one device (see Contest.py). They are units like others, for one device only. So is a baseline, the
first unit of each device (see Baseline.py).

A device is judged by what the others make of its failures: a kernel that kills every client is no
fault of the device. What has no such witness counts against it only after many failures in a row.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, replace
from typing import (
    Collection,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

from .Cost import Cost
from .Types import Piece, Unit

# What a client costs beside its pairs may be this share of its unit, if the step is long enough.
START_SHARE = 0.05
# A device takes this part of its fair share of what is left: so units shrink towards the end, and
# an estimate that was wrong is put right by what the other devices take.
SHARE = 0.7
# Before anything was measured a device takes this part: what it shows sets the others right.
FIRST_SHARE = 0.1
# The model may be off by this factor on a machine that it has not seen.
MODEL_ERROR = 10.0
# A problem is split where one device would need longer for it than all have left, by this factor…
SPLIT_ABOVE = 1.1
# …or if that wastes more, on all devices together, than so many starts and pairs: about what
# splitting costs, with parts, re-timings and the noise of estimates…
SPLIT_COST = 6.0
# …and only where it takes longer than this many starts of a client.
SPLIT_STARTS = 4.0
# The re-timings of a split problem may cost this share of it.
RETIMED_SHARE = 0.05
# A unit is shortened where it has more left than this many starts and pairs…
SHORTEN_ABOVE = 3.0
# …and, while no device is idle, than this many times what all have left on average.
LONGER_THAN_OTHERS = 1.2

TRIES_PER_PAIR = 3
# Rows that fail together as often as this are halved; a single row is given up like a pair.
TRIES_TOGETHER = 2
# Failures without progress in between: with a success elsewhere as a witness, and without.
REFUTED_PER_DEVICE = 3
# Clients that died before any pair at all was measured: then it is the client, not a pair.
DEATHS_BEFORE_ANYTHING = 200
FAILURES_PER_DEVICE = 10
# A unit under which so many workers were lost, without a pair measured, counts as failed after all.
LOSSES_PER_UNIT = 5

Pair = Tuple[int, int]


@dataclass(frozen=True)
class Rectangle:
    """A part of the problem x solution table, in global indices."""

    firstProblem: int
    problemCount: int
    firstSolution: int
    solutionCount: int

    @property
    def endProblem(self) -> int:
        """One past the last problem."""
        return self.firstProblem + self.problemCount

    @property
    def endSolution(self) -> int:
        """One past the last solution."""
        return self.firstSolution + self.solutionCount

    @property
    def pairs(self) -> int:
        """How many pairs it holds."""
        return self.problemCount * self.solutionCount

    def holds(self, pair: Pair) -> bool:
        """Whether a pair lies in it."""
        return (
            self.firstProblem <= pair[0] < self.endProblem
            and self.firstSolution <= pair[1] < self.endSolution
        )


def rectangleOf(unit: Union[Unit, Piece]) -> Rectangle:
    """The part of the table that a unit or a piece covers."""
    return Rectangle(unit.firstProblem, unit.problemCount, unit.firstSolution, unit.solutionCount)


def subtract(whole: Rectangle, part: Rectangle) -> List[Rectangle]:
    """What is left of `whole` without `part`, as at most four rectangles, in table order."""
    top, bottom = max(whole.firstProblem, part.firstProblem), min(whole.endProblem, part.endProblem)
    left = max(whole.firstSolution, part.firstSolution)
    right = min(whole.endSolution, part.endSolution)
    if top >= bottom or left >= right:
        return [whole]
    candidates = (
        (whole.firstProblem, top, whole.firstSolution, whole.endSolution),
        (top, bottom, whole.firstSolution, left),
        (top, bottom, right, whole.endSolution),
        (bottom, whole.endProblem, whole.firstSolution, whole.endSolution),
    )
    return [
        Rectangle(p0, p1 - p0, s0, s1 - s0) for p0, p1, s0, s1 in candidates if p0 < p1 and s0 < s1
    ]


def _without(unit: Unit, done: Sequence[Rectangle]) -> List[Rectangle]:
    """What is left of a unit without the parts that are done."""
    rest = [rectangleOf(unit)]
    for part in done:
        rest = [piece for whole in rest for piece in subtract(whole, part)]
    return rest


def waterLevel(floors: Sequence[float], amount: float) -> float:
    """The level at which `amount` stands over columns with these floors."""
    level, wet = 0.0, 0
    rest = amount
    for floor in sorted(floors):
        step = (floor - level) * wet
        if step > rest:
            break
        rest -= step
        level, wet = floor, wet + 1
    return level + (rest / wet if wet else 0.0)


def halve(whole: Rectangle) -> List[Rectangle]:
    """Two parts of a rectangle: of its rows, or of the one row that it has."""
    if whole.problemCount == 1:
        first = replace(whole, solutionCount=whole.solutionCount // 2)
    else:
        first = replace(whole, problemCount=whole.problemCount // 2)
    return [first, *subtract(whole, first)]


@dataclass
class _Retry:
    """A rectangle that waits for a try, and the devices that may not take it.

    Attributes:
        onlyDevice: the one that is to take it, while it is in the run.
        notDevice: the one that failed on it, which takes it only where there is no other.
        judges: whether it is just what failed there, so that a success elsewhere speaks against
            that device (a half does not: what killed the client may be in the other one).
        retiming: whether it is measured for the second time, to be compared.
    """

    rectangle: Rectangle
    attempt: int
    onlyDevice: Optional[int] = None
    notDevice: Optional[int] = None
    judges: bool = False
    retiming: bool = False


@dataclass
class _DeviceState:
    running: Optional[Unit] = None
    retry: Optional[_Retry] = None  # what the running unit comes from, if it is not the first try
    failures: int = 0  # in a row, without any progress and without a pair to blame
    refuted: int = 0  # what failed here and went well elsewhere, without any progress here since
    setAside: bool = False
    compared: bool = False  # whether it has run the baseline

    def progressed(self) -> None:
        """It measured something: whatever happened before, it works."""
        self.failures = self.refuted = 0


class Schedule:
    """The state of one step's table.

    Attributes:
        givenUp: pairs' rectangles that could not be measured, with the unit that failed last.
    """

    def __init__(
        self,
        free: Sequence[Rectangle],
        devices: Sequence[int],
        cost: Cost,
        firstUnit: int = 0,
        keepWhole: bool = False,
        baseline: Optional[Rectangle] = None,
        begun: Sequence[Tuple[Rectangle, int]] = (),
    ) -> None:
        """Starts with everything in `free` and `begun` unmeasured.

        Args:
            free: disjoint rectangles; what was measured before is not among them.
            devices: ordinals of the devices.
            cost: the expected times; may learn while the schedule runs.
            firstUnit: number of the first unit (a resumed step goes on counting).
            keepWhole: whether the solutions of a problem must stay on one device.
            baseline: what each device measures first, to be compared; None for nothing.
            begun: rests of rows, each with the device that is to end it, as it has begun it.
        """
        self._cost = cost
        self._devices = {device: _DeviceState() for device in devices}
        self._free: List[Rectangle] = [r for r in free if r.pairs]
        self._width = max((r.solutionCount for r in self._free), default=0)
        self._retries = [_Retry(rest, 1, onlyDevice=device) for rest, device in begun]
        self._deaths: Dict[Pair, int] = {}
        self._nextUnit = firstUnit
        self._stopped = False
        self._anything = False  # whether any pair was measured in this run
        self._deathsBefore = 0
        self._losses: Dict[Pair, int] = {}
        self._keepWhole = keepWhole
        self._baseline = baseline
        self._away: Set[int] = set()
        self.givenUp: List[Tuple[Rectangle, Unit]] = []

    @property
    def devices(self) -> List[int]:
        """The devices that may still get units."""
        return [device for device, state in self._devices.items() if not state.setAside]

    @property
    def hasBaseline(self) -> bool:
        """Whether each device begins with the baseline."""
        return self._baseline is not None

    @property
    def running(self) -> Dict[int, Unit]:
        """What each busy device runs."""
        return {d: s.running for d, s in self._devices.items() if s.running is not None}

    @property
    def finished(self) -> bool:
        """Whether nothing runs and nothing is left that could run."""
        if self.running:
            return False
        return self._stopped or not self.devices or not (self._free or self._retries)

    @property
    def isStopped(self) -> bool:
        """Whether nothing more is handed out."""
        return self._stopped

    @property
    def leftOver(self) -> List[Rectangle]:
        """What is neither done, running nor given up."""
        return self._free + [r.rectangle for r in self._retries if not r.retiming]

    @property
    def waiting(self) -> List[Tuple[Rectangle, Optional[int]]]:
        """What waits for a device, re-timings too; with the one that it waits for, if it is one."""
        others = set(self.devices)
        own = [retry.onlyDevice if retry.onlyDevice in others else None for retry in self._retries]
        free: List[Tuple[Rectangle, Optional[int]]] = [(area, None) for area in self._free]
        return free + [(retry.rectangle, device) for retry, device in zip(self._retries, own)]

    @property
    def keepsWhole(self) -> bool:
        """Whether the solutions of a problem stay on one device."""
        return self._keepWhole

    def duplicate(self, devices: Collection[int]) -> Schedule:
        """A copy that goes its own way from here on, with some of the devices only."""
        other = copy(self)
        other._devices = {
            device: replace(state, setAside=state.setAside or device not in devices)
            for device, state in self._devices.items()
        }
        other._free, other._retries = list(self._free), list(self._retries)
        other._deaths, other._away = dict(self._deaths), set(self._away).difference(devices)
        other.givenUp = list(self.givenUp)
        return other

    def stop(self) -> None:
        """Hands out nothing more; what runs may still finish."""
        self._stopped = True

    def next(
        self, device: int, secondsLeft: Optional[Mapping[int, float]] = None
    ) -> Optional[Unit]:
        """Chooses the next unit of an idle device.

        Args:
            device: the device.
            secondsLeft: how long each running unit is expected to take still; where it is not
                given, as long as if it began now.

        Returns:
            The unit, now running; None if there is nothing for this device at the moment.
        """
        state = self._devices[device]
        if state.running is not None:
            raise ValueError("device %d already runs unit %d" % (device, state.running.number))
        if self._stopped or state.setAside:
            return None
        if self._baseline is not None and not state.compared and self.leftOver:
            return self._startBaseline(state, self._baseline)
        retry = self._takeRetry(device)
        taken = retry.rectangle if retry is not None else self._takeFree(device, secondsLeft)
        if taken is None:
            return None
        unit = Unit(
            self._nextUnit,
            taken.firstProblem,
            taken.problemCount,
            taken.firstSolution,
            taken.solutionCount,
            retry.attempt if retry is not None else 1,
            retry is not None and retry.retiming,
        )
        self._nextUnit += 1
        state.running, state.retry = unit, retry
        return unit

    def _startBaseline(self, state: _DeviceState, area: Rectangle) -> Unit:
        state.compared = True
        state.running = Unit(
            self._nextUnit,
            area.firstProblem,
            area.problemCount,
            area.firstSolution,
            area.solutionCount,
            baseline=True,
        )
        self._nextUnit += 1
        return state.running

    def succeeded(self, device: int, done: Optional[Sequence[Rectangle]] = None) -> None:
        """The device's unit was measured, whole or, where it was shortened, in part.

        Args:
            device: where it ran.
            done: the parts that were measured; None for all.
        """
        state = self._devices[device]
        retry = state.retry
        unit = self._end(device)
        if done is None or done:
            state.progressed()
            self._anything = True
        if done is not None:
            if unit.extra:
                self._returnExtra(unit, device, _without(unit, done))
            elif self._keepWhole:
                self._putBack(unit, device, _without(unit, done))
            else:
                self._free += _without(unit, done)
            return
        if retry is not None and retry.judges and retry.notDevice not in (None, device):
            self._devices[retry.notDevice].refuted += 1

    def failed(
        self,
        device: int,
        done: Sequence[Rectangle],
        deadPair: Optional[Pair] = None,
        ready: bool = False,
    ) -> List[Rectangle]:
        """The device's unit ended early: keeps what it did and plans for the rest.

        Args:
            device: where it ran.
            done: the parts that were measured all the same.
            deadPair: the pair during which the client died, where that is known.
            ready: whether the client had got as far as its first pair.

        Returns:
            What was given up by this: it will not be tried again.
        """
        unit = self._end(device)
        rest = _without(unit, done)
        if unit.baseline:  # nothing depends on it, and its pairs have their turn
            self._devices[device].failures += 1
            return []
        if unit.retiming:
            return self._failedRetiming(unit, device, rest, deadPair)
        progress = sum(r.pairs for r in rest) < unit.pairs
        if progress:
            self._devices[device].progressed()
            self._anything = True
        elif not self._anything:
            self._deathsBefore += 1
        if deadPair is not None and any(r.holds(deadPair) for r in rest):
            return self._failedPair(unit, device, rest, deadPair)
        if progress:
            self._putBack(unit, device, rest)
            return []
        self._devices[device].failures += 1
        return self._failedWhole(unit, device, rest[0], ready)

    def returned(
        self, device: int, done: Sequence[Rectangle], ready: bool = False, counts: bool = True
    ) -> List[Rectangle]:
        """The device's worker was lost under a unit that is not to blame: its rest is free again.

        Unless that happens again and again to the same unit.

        Args:
            device: where it ran.
            done: the parts that were measured.
            ready: whether the client had got as far as its first pair.
            counts: whether the unit may be to blame all the same.

        Returns:
            What was given up by this.
        """
        state = self._devices[device]
        unit = state.running
        if counts and unit is not None and not done:
            first = (unit.firstProblem, unit.firstSolution)
            self._losses[first] = self._losses.get(first, 0) + 1
            if self._losses[first] > LOSSES_PER_UNIT:
                return self.failed(device, done, None, ready)
        unit = self._end(device)
        rest = _without(unit, done)
        if unit.extra:
            self._returnExtra(unit, device, rest)
        else:
            self._anything = self._anything or bool(done)
            self._putBack(unit, device, rest)
        return []

    def _returnExtra(self, unit: Unit, device: int, rest: Sequence[Rectangle]) -> None:
        """The device's baseline or re-timing was cut off: only there can it be done again."""
        if unit.baseline:
            self._devices[device].compared = False
        else:
            self._retime(device, rest, unit.attempt)

    def retime(self, device: int, rectangles: Sequence[Rectangle]) -> None:
        """Has cells measured again on one device, unless it has left the run."""
        if self._devices[device].setAside:
            return
        self._retime(device, rectangles, 1)

    def setAway(self, device: int, away: bool) -> None:
        """Says whether a device has no worker at the moment: nothing waits for it then."""
        (self._away.add if away else self._away.discard)(device)

    def waits(self, secondsLeft: Mapping[int, float]) -> Dict[int, float]:
        """How long a re-timing would have to wait on each device, if others would wait for it.

        As long as there is other work, nobody waits for a re-timing.
        """
        waits = {device: 0.0 for device in self.devices if device not in self._away}
        if self._free:
            return waits
        for device, unit in self.running.items():
            if device in waits:
                waits[device] = secondsLeft.get(device, self._seconds([rectangleOf(unit)]))
        for retry in self._retries:
            if retry.onlyDevice in waits:
                waits[retry.onlyDevice] += self._cost.startSeconds
                waits[retry.onlyDevice] += self._seconds([retry.rectangle])
        return waits

    def isOpen(self, problem: int) -> bool:
        """Whether pairs of a problem are still to come."""
        areas = self._free + [retry.rectangle for retry in self._retries]
        areas += [rectangleOf(unit) for unit in self.running.values() if not unit.baseline]
        return any(area.firstProblem <= problem < area.endProblem for area in areas)

    def tooLong(self, secondsLeft: Mapping[int, float], begun: Collection[int]) -> Optional[int]:
        """The device whose unit should be shortened: the others would wait for it.

        Only one that has finished a pair: so its end is more than a guess, and whatever else is
        wrong, each client that is ended early has measured something.

        Args:
            secondsLeft: how long each running unit is expected to take still.
            begun: the devices whose units have finished pairs.
        """
        running = self.running
        able = [d for d in begun if d in running and self._canShorten(running[d])]
        if self._stopped or not able:
            return None
        device = max(able, key=lambda d: secondsLeft[d])
        last = running[device].lastProblem
        restart = self._cost.fixedSeconds(last, 1)
        # What is taken away costs a start, and perhaps a re-timing, beside the pair that is lost.
        least = SHORTEN_ABOVE * (restart + self._cost.pairSeconds(last))
        if self._free or len(running) == len(self.devices):
            together = self._seconds(self._free) + sum(secondsLeft.values())
            least += LONGER_THAN_OTHERS * together / len(self.devices)
        return device if secondsLeft[device] > least else None

    def setAside(self, device: int) -> None:
        """Takes a device out of the run; its work goes to the others.

        Re-timings that were meant for it are dropped: what they were for is decided anew.
        """
        self._devices[device].setAside = True
        self._retries = [r for r in self._retries if not (r.retiming and r.onlyDevice == device)]

    def addDevice(self, device: int) -> None:
        """A device that has come, or has come back after it was set aside."""
        before = self._devices.get(device)
        if before is None or before.setAside:
            compared = before is not None and before.compared
            self._devices[device] = _DeviceState(compared=compared)

    def suspicion(self, device: int) -> str:
        """Why a device should be set aside; empty where it should not."""
        state = self._devices[device]
        if self._deathsBefore >= DEATHS_BEFORE_ANYTHING and not self._anything:
            return "%d clients died and none measured a single pair" % self._deathsBefore
        if state.refuted >= REFUTED_PER_DEVICE:
            return "%d units that failed on it went well elsewhere" % state.refuted
        if state.failures >= FAILURES_PER_DEVICE:
            return "its units failed %d times in a row" % state.failures
        return ""

    def _end(self, device: int) -> Unit:
        state = self._devices[device]
        if state.running is None:
            raise ValueError("no unit runs on device %d" % device)
        unit, state.running, state.retry = state.running, None, None
        return unit

    def _canShorten(self, unit: Unit) -> bool:
        return not unit.extra and (unit.problemCount > 1 or not self._keepWhole)

    def _failedRetiming(
        self, unit: Unit, device: int, rest: Sequence[Rectangle], deadPair: Optional[Pair]
    ) -> List[Rectangle]:
        """Cells that are there already: another try, then they stay as they are."""
        if self._devices[device].setAside:
            return list(rest)
        if deadPair is not None and any(r.holds(deadPair) for r in rest):
            # The pair that kills its client is tried alone, and costs the others no try.
            single = Rectangle(deadPair[0], 1, deadPair[1], 1)
            others = [left for whole in rest for left in subtract(whole, single)]
            self._retime(device, others, unit.attempt)
            rest = [single]
        if unit.attempt >= TRIES_PER_PAIR:
            return list(rest)
        self._retime(device, rest, unit.attempt + 1)
        return []

    def _retime(self, device: int, rectangles: Sequence[Rectangle], attempt: int) -> None:
        self._retries += [_Retry(r, attempt, onlyDevice=device, retiming=True) for r in rectangles]

    def _putBack(self, unit: Unit, device: int, rest: Sequence[Rectangle]) -> None:
        """Plans for what a unit left; the rest of a begun row stays on the device that began it."""
        for rectangle in rest:
            if rectangle.solutionCount < unit.solutionCount:
                self._retries.append(_Retry(rectangle, 1, onlyDevice=device))
            else:
                self._free.append(rectangle)

    def _failedPair(
        self, unit: Unit, device: int, rest: Sequence[Rectangle], pair: Pair
    ) -> List[Rectangle]:
        """The client died at a known pair: the pair alone is tried again, the rest goes on."""
        single = Rectangle(pair[0], 1, pair[1], 1)
        lost = []
        deaths = self._deaths[pair] = self._deaths.get(pair, 0) + 1
        if deaths >= TRIES_PER_PAIR or (deaths > 1 and len(self.devices) < 2):
            self.givenUp.append((single, unit))
            lost = [single]
        elif deaths == 1:
            self._retries.append(_Retry(single, deaths + 1, onlyDevice=device))
        else:
            self._retries.append(_Retry(single, deaths + 1, notDevice=device, judges=True))
        self._putBack(unit, device, [left for whole in rest for left in subtract(whole, single)])
        return lost

    def _failedWhole(
        self, unit: Unit, device: int, rectangle: Rectangle, ready: bool
    ) -> List[Rectangle]:
        """Nobody knows what it was: another try elsewhere if possible, then in halves."""
        attempt = unit.attempt + 1
        oneRow = rectangle.problemCount == 1
        divisible = not oneRow or (ready and rectangle.solutionCount > 1)
        if divisible and attempt > TRIES_TOGETHER:
            for half in halve(rectangle):
                if oneRow and self._keepWhole:
                    self._retries.append(_Retry(half, 1, onlyDevice=device))
                else:
                    self._retries.append(_Retry(half, 1, notDevice=device))
        elif attempt > TRIES_PER_PAIR:
            self.givenUp.append((rectangle, unit))
            return [rectangle]
        else:
            self._retries.append(_Retry(rectangle, attempt, notDevice=device, judges=True))
        return []

    def hasWorkFor(self, device: int) -> bool:
        """Whether next() would have something for an idle device that has run the baseline."""
        if self._stopped or self._devices[device].setAside:
            return False
        free = bool(self._free) and not self._awaitsVerdict(device)
        return free or self._findRetry(device) is not None

    def _takeRetry(self, device: int) -> Optional[_Retry]:
        index = self._findRetry(device)
        return None if index is None else self._retries.pop(index)

    def _findRetry(self, device: int) -> Optional[int]:
        """Place of the first retry that this device may take."""
        others = [other for other in self.devices if other != device]
        up = [other for other in others if other not in self._away]
        for index, retry in enumerate(self._retries):
            if retry.onlyDevice != device and retry.onlyDevice in others:
                continue
            if retry.notDevice == device and up:
                continue
            return index
        return None

    def _takeFree(
        self, device: int, secondsLeft: Optional[Mapping[int, float]]
    ) -> Optional[Rectangle]:
        """Cuts the next rectangle out of what is free, around its most expensive problem."""
        if not self._free or self._awaitsVerdict(device):
            return None
        # By the length of a pair, not of what is left of its row: a row that was begun is ended
        # before the next one, so that its contenders are timed again while others still work.
        heaviest = [self._heaviest(rectangle) for rectangle in self._free]
        index = max(range(len(heaviest)), key=lambda at: heaviest[at][0])
        whole, seed = self._free[index], heaviest[index][1]
        row = heaviest[index][0] * whole.solutionCount
        level = self._level(device, secondsLeft)
        fixed = self._cost.fixedSeconds(seed, 1)
        if len(self.devices) == 1:
            target = level  # there is nobody to share with
        elif self._cost.learned or level * MODEL_ERROR < fixed:
            # Towards the end a device takes its part at once, rather than pay for another start.
            target = max(SHARE * level, min(level, fixed / START_SHARE))
        else:
            target = FIRST_SHARE * level
        if whole.solutionCount > 1 and not self._keepWhole and self._isLong(row, seed, level):
            chosen = self._split(whole, seed, level)
        else:
            chosen = self._grow(whole, seed, target)
        self._free[index : index + 1] = subtract(whole, chosen)
        return chosen

    def _level(self, device: int, secondsLeft: Optional[Mapping[int, float]]) -> float:
        """How long this device should go on if all are to end together, in modelled seconds.

        What is free is spread over the devices so that they end at the same time: like water over
        a floor that is higher where a device still runs.
        """
        floors = []
        for other in self.devices:
            unit = self._devices[other].running
            if unit is None or other == device:
                floors.append(0.0)
            elif secondsLeft is not None and other in secondsLeft:
                floors.append(secondsLeft[other])
            else:
                floors.append(self._seconds([rectangleOf(unit)]))
        return waterLevel(floors, self._seconds(self._free)) / self._cost.paceOf(device)

    def _isLong(self, row: float, seed: int, level: float) -> bool:
        """Whether splitting a row of free pairs, of so many seconds, has all end sooner."""
        fixed, pair = self._cost.fixedSeconds(seed, 1), self._cost.pairSeconds(seed)
        if row <= max(level, SPLIT_STARTS * fixed):
            return False
        if row > SPLIT_ABOVE * level:
            return True
        # It helps only when all rows are split that are longer than the level.
        longer = sum(
            self._cost.pairSeconds(problem) * area.solutionCount > level
            for area in self._free
            for problem in range(area.firstProblem, area.endProblem)
        )
        return (row - level) * len(self.devices) > SPLIT_COST * (fixed + pair) * max(1, longer)

    def _split(self, whole: Rectangle, seed: int, level: float) -> Rectangle:
        """The first solutions of one problem.

        A long problem is measured by many devices together, so that its contenders are timed again
        while others still work; but every further device costs a re-timing.
        """
        pair = self._cost.pairSeconds(seed)
        parts = min(len(self.devices), 1 + int(RETIMED_SHARE * self._width))
        parts = max(parts, math.ceil(self._width * pair / max(level, pair)))
        least = (self._cost.fixedSeconds(seed, 1) + pair) / pair
        count = max(1, round(least), math.ceil(self._width / parts))
        if whole.solutionCount < 1.5 * count:
            count = whole.solutionCount
        return Rectangle(seed, 1, whole.firstSolution, count)

    def _awaitsVerdict(self, device: int) -> bool:
        """Whether other devices have yet to try so much of what failed here that it waits."""
        if len(self.devices) < 2:
            return False
        tries = self._retries + [s.retry for s in self._devices.values() if s.retry is not None]
        judging = [retry for retry in tries if retry.judges and retry.notDevice == device]
        return len(judging) >= REFUTED_PER_DEVICE

    def _seconds(self, rectangles: Sequence[Rectangle]) -> float:
        return sum(
            self._cost.rectangleSeconds(r.firstProblem, r.problemCount, r.solutionCount)
            for r in rectangles
        )

    def _heaviest(self, rectangle: Rectangle) -> Tuple[float, int]:
        """(seconds of a pair, problem) of the most expensive row; the first of equals."""
        best = max(
            range(rectangle.firstProblem, rectangle.endProblem),
            key=lambda problem: (self._cost.pairSeconds(problem), -problem),
        )
        return self._cost.pairSeconds(best), best

    def _grow(self, whole: Rectangle, seed: int, target: float) -> Rectangle:
        """Adds neighbours to `seed`, the more expensive one first, until `target` seconds."""
        first, end = seed, seed + 1
        target *= 1 + 1e-9  # a sum of equal parts is not short of itself for its rounding
        seconds = self._cost.pairSeconds(seed) * whole.solutionCount
        while first > whole.firstProblem or end < whole.endProblem:
            below = self._cost.pairSeconds(first - 1) if first > whole.firstProblem else -1.0
            above = self._cost.pairSeconds(end) if end < whole.endProblem else -1.0
            seconds += max(below, above) * whole.solutionCount
            if seconds > target:
                break
            if below > above:
                first -= 1
            else:
                end += 1
        return Rectangle(first, end - first, whole.firstSolution, whole.solutionCount)
