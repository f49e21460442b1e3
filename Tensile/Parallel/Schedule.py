# SPDX-License-Identifier: MIT
"""Which unit a device runs next, and what becomes of a unit's leftovers. No process, no clock.

      free rectangles --next(device)--> running unit --finished(unit, rest, deadPair)--> done
             ^                                                   |
             +-------------- what it left over, less the pair ---+
                             that killed its client

Every pair of the table is in exactly one place: free, running, waiting for another try, done, or
given up. A pair that kills its client is tried once more on the same device, then once on another
one if there is one, then given up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from .Cost import Cost
from .Types import Unit

# A client's start may cost at most this share of its unit, until the end of the step is near.
START_SHARE = 0.1
# A device takes this part of its fair share of what is left: so units shrink towards the end, and
# an estimate that was wrong is put right by what the other devices take.
SHARE = 0.5

TRIES_PER_PAIR = 3
TRIES_PER_RECTANGLE = 3
FAILURES_PER_DEVICE = 3

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


def rectangleOf(unit: Unit) -> Rectangle:
    """The part of the table that a unit covers."""
    return Rectangle(
        unit.firstProblem, unit.problemCount, unit.firstSolution, unit.solutionCount
    )


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


@dataclass
class _Retry:
    """A rectangle that waits for another try, and the devices that may not take it yet."""

    rectangle: Rectangle
    attempt: int
    onlyDevice: Optional[int] = None
    notDevice: Optional[int] = None


@dataclass
class _DeviceState:
    running: Optional[Unit] = None
    failures: int = 0  # in a row, without any progress
    setAside: bool = False


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
    ) -> None:
        """Starts with everything in `free` unmeasured.

        Args:
            free: disjoint rectangles; what was measured before is not among them.
            devices: ordinals of the devices.
            cost: the expected times; may learn while the schedule runs.
            firstUnit: number of the first unit (a resumed step goes on counting).
        """
        self._cost = cost
        self._devices = {device: _DeviceState() for device in devices}
        self._free: List[Rectangle] = [r for r in free if r.pairs]
        self._retries: List[_Retry] = []
        self._deaths: Dict[Pair, int] = {}
        self._nextUnit = firstUnit
        self._stopped = False
        self._fairShare = self._freeSeconds() / max(1, len(self._devices))
        self.givenUp: List[Tuple[Rectangle, Unit]] = []

    @property
    def devices(self) -> List[int]:
        """The devices that may still get units."""
        return [device for device, state in self._devices.items() if not state.setAside]

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
    def leftOver(self) -> List[Rectangle]:
        """What is neither done, running nor given up."""
        return self._free + [retry.rectangle for retry in self._retries]

    def stop(self) -> None:
        """Hands out nothing more; what runs may still finish."""
        self._stopped = True

    def next(self, device: int) -> Optional[Unit]:
        """Chooses the next unit of an idle device.

        Returns:
            The unit, now running; None if there is nothing for this device at the moment.
        """
        state = self._devices[device]
        if state.running is not None:
            raise ValueError("device %d already runs unit %d" % (device, state.running.number))
        if self._stopped or state.setAside:
            return None
        retry = self._takeRetry(device)
        if retry is not None:
            rectangle, attempt = retry.rectangle, retry.attempt
        else:
            taken = self._takeFree()
            if taken is None:
                return None
            rectangle, attempt = taken, 1
        unit = Unit(
            self._nextUnit,
            rectangle.firstProblem,
            rectangle.problemCount,
            rectangle.firstSolution,
            rectangle.solutionCount,
            attempt,
        )
        self._nextUnit += 1
        state.running = unit
        return unit

    def succeeded(self, device: int) -> None:
        """The device's unit was measured whole."""
        state = self._end(device)
        state.failures = 0

    def failed(
        self, device: int, done: Sequence[Rectangle], deadPair: Optional[Pair] = None
    ) -> List[Rectangle]:
        """The device's unit ended early: keeps what it did and plans for the rest.

        Args:
            device: where it ran.
            done: the parts that were measured all the same.
            deadPair: the pair during which the client died, where that is known.

        Returns:
            What was given up by this: it will not be tried again.
        """
        unit = self._devices[device].running
        assert unit is not None, "no unit runs on device %d" % device
        state = self._end(device)
        state.failures = 0 if done else state.failures + 1
        rest = [rectangleOf(unit)]
        for part in done:
            rest = [piece for whole in rest for piece in subtract(whole, part)]
        if deadPair is not None:
            return self._failedPair(unit, device, rest, deadPair)
        return self._failedWhole(unit, device, rest, progressed=bool(done))

    def setAside(self, device: int) -> None:
        """Takes a device out of the run; its work goes to the others."""
        self._devices[device].setAside = True
        for retry in self._retries:
            if retry.onlyDevice == device:
                retry.onlyDevice = None

    def isSuspect(self, device: int) -> bool:
        """Whether a device failed so often in a row that it should be set aside."""
        return self._devices[device].failures >= FAILURES_PER_DEVICE

    def _end(self, device: int) -> _DeviceState:
        state = self._devices[device]
        if state.running is None:
            raise ValueError("no unit runs on device %d" % device)
        state.running = None
        return state

    def _failedPair(
        self, unit: Unit, device: int, rest: List[Rectangle], pair: Pair
    ) -> List[Rectangle]:
        single = Rectangle(pair[0], 1, pair[1], 1)
        for whole in rest:
            if whole.holds(pair):
                self._free += subtract(whole, single)
            else:
                self._free.append(whole)
        deaths = self._deaths[pair] = self._deaths.get(pair, 0) + 1
        if deaths >= TRIES_PER_PAIR or (deaths > 1 and len(self.devices) < 2):
            self.givenUp.append((single, unit))
            return [single]
        if deaths == 1:
            self._retries.append(_Retry(single, deaths + 1, onlyDevice=device))
        else:
            self._retries.append(_Retry(single, deaths + 1, notDevice=device))
        return []

    def _failedWhole(
        self, unit: Unit, device: int, rest: List[Rectangle], progressed: bool
    ) -> List[Rectangle]:
        """Nobody knows which pair it was: another try of the rest, elsewhere if possible."""
        attempt = 1 if progressed else unit.attempt + 1
        if attempt > TRIES_PER_RECTANGLE:
            self.givenUp += [(rectangle, unit) for rectangle in rest]
            return rest
        for rectangle in rest:
            self._retries.append(_Retry(rectangle, attempt, notDevice=device))
        return []

    def _takeRetry(self, device: int) -> Optional[_Retry]:
        """The first retry that this device may take."""
        others = [other for other in self.devices if other != device]
        for index, retry in enumerate(self._retries):
            if retry.onlyDevice not in (None, device):
                continue
            if retry.notDevice == device and others:
                continue
            return self._retries.pop(index)
        return None

    def _takeFree(self) -> Optional[Rectangle]:
        """Cuts the next rectangle out of what is free, around its most expensive problem."""
        if not self._free:
            return None
        target = self._targetSeconds()
        index = max(range(len(self._free)), key=lambda at: self._heaviest(self._free[at])[0])
        whole = self._free[index]
        chosen = self._grow(whole, self._heaviest(whole)[1], target)
        self._free[index : index + 1] = subtract(whole, chosen)
        return chosen

    def _freeSeconds(self) -> float:
        return sum(
            self._cost.rectangleSeconds(r.firstProblem, r.problemCount, r.solutionCount)
            for r in self._free
        )

    def _targetSeconds(self) -> float:
        left = self._freeSeconds()
        share = SHARE * left / max(1, len(self.devices))
        # A step that is short beside the client's start is still spread over all devices.
        least = min(self._cost.startSeconds / START_SHARE, self._fairShare)
        return max(share, least)

    def _heaviest(self, rectangle: Rectangle) -> Tuple[float, int]:
        """(seconds, problem) of the most expensive row; the first of equals."""
        best = max(
            range(rectangle.firstProblem, rectangle.endProblem),
            key=lambda problem: (self._cost.pairSeconds(problem), -problem),
        )
        return self._cost.pairSeconds(best) * rectangle.solutionCount, best

    def _grow(self, whole: Rectangle, seed: int, target: float) -> Rectangle:
        """Adds neighbours to `seed`, the more expensive one first, until `target` seconds."""
        first, end = seed, seed + 1
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
