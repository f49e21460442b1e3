# SPDX-License-Identifier: MIT
"""How long a step will take still, as far as can be known.

A copy of the schedule is run to its end, with time that passes in the model only: so starts of
clients, rows that are split or too long to share, and what deciding them takes are counted as they
will come. Of a long list, whose units are many and small, it is reckoned instead: what is
unmeasured is spread over the devices like water over a floor that is higher where a device still
runs. No process and no clock.
"""

from __future__ import annotations

import heapq
import math
from typing import Callable, Dict, Mapping, Optional, Sequence

from .Cost import Cost
from .Schedule import Rectangle, Schedule, waterLevel
from .Types import Unit

# With more problems to come than this, times the devices, nothing is run ahead.
MOST_WORK = 10000


class Remaining:
    """What is left of one step."""

    def __init__(
        self,
        schedule: Schedule,
        cost: Cost,
        contenders: Callable[[int], float] = lambda problem: 1.0,
    ) -> None:
        """Begins, when nothing has been handed out yet.

        Args:
            schedule: the step's; read only.
            cost: what it has learned; read only.
            contenders: how many cells of a problem that is split will be timed again.
        """
        self._schedule = schedule
        self._cost = cost
        self._contenders = contenders
        self._width = max((area.solutionCount for area, _ in schedule.waiting), default=0)

    def seconds(
        self,
        running: Mapping[int, float],
        ready: Sequence[int],
        perUnit: float = 0.0,
        end: float = 0.0,
    ) -> Optional[float]:
        """Expected seconds until the step's results are there.

        Args:
            running: device -> what its unit is expected to take still.
            ready: the devices that take part; of others nothing is expected.
            perUnit: what a unit costs beside its client.
            end: what is to be done after the last pair.

        Returns:
            None where nothing was measured yet that tells, or no device is there.
        """
        if not ready or not self._cost.learned:
            return None
        left = {device: running[device] for device in ready if device in running}
        problems = sum(area.problemCount for area, _ in self._schedule.waiting)
        if problems * len(ready) > MOST_WORK:
            return self._reckoned(left, ready) + end
        return self._runAhead(left, ready, perUnit) + end

    def _runAhead(
        self, running: Mapping[int, float], ready: Sequence[int], perUnit: float
    ) -> float:
        """When a copy of the schedule comes to its end."""
        schedule, now = self._schedule.duplicate(ready), 0.0
        contenders: Dict[int, float] = {}  # of the rows that are decided on the way
        ends = [(seconds, device) for device, seconds in running.items()]
        heapq.heapify(ends)
        while True:
            left = {device: at - now for at, device in ends}
            for device in ready:
                unit = None if device in left else schedule.next(device, left)
                if unit is not None:
                    left[device] = self._unitSeconds(unit, device) + perUnit
                    if unit.retiming:
                        left[device] *= contenders.get(unit.firstProblem, 1.0)
                    heapq.heappush(ends, (now + left[device], device))
            if not ends:
                return now
            now, device = heapq.heappop(ends)
            unit = schedule.running.get(device)
            if unit is not None:
                schedule.succeeded(device)
                left = {other: at - now for at, other in ends}
                contenders.update(self._decide(schedule, unit, device, left))

    def _decide(
        self, schedule: Schedule, unit: Unit, device: int, left: Mapping[int, float]
    ) -> Dict[int, float]:
        """Has contenders timed again, if a unit was the last of a split row, as the loop would.

        Where none is free sooner, that is on the device of the unit: it may hold the best cell.

        Returns:
            problem -> how many contenders there will be: one unit stands for all of them.
        """
        found: Dict[int, float] = {}
        if unit.extra or unit.solutionCount == self._width or schedule.keepsWhole:
            return found
        for problem in range(unit.firstProblem, unit.lastProblem + 1):
            waits = schedule.waits(left)
            if waits and not schedule.isOpen(problem):
                home = min(waits, key=lambda other: (waits[other], other != device))
                schedule.retime(home, [Rectangle(problem, 1, 0, 1)])
                # Half a re-timing never comes: the likelier number is nearer than the mean.
                found[problem] = float(math.floor(self._contenders(problem) + 0.5))
        return found

    def _reckoned(self, running: Mapping[int, float], ready: Sequence[int]) -> float:
        """When all end, if what is left is spread evenly."""
        floors = [running.get(device, 0.0) for device in ready]
        work = sum(
            self._cost.rectangleSeconds(area.firstProblem, area.problemCount, area.solutionCount)
            for area, _ in self._schedule.waiting
        )
        return waterLevel(floors, work)

    def _unitSeconds(self, unit: Unit, device: int) -> float:
        cost, first, count = self._cost, unit.firstProblem, unit.problemCount
        pairs = cost.paceOf(device) * cost.rectangleSeconds(first, count, unit.solutionCount)
        return cost.fixedSeconds(first, count) + pairs
