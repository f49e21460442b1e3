# SPDX-License-Identifier: MIT
"""How long a step will take still, as far as can be known.

What is unmeasured is spread over the devices that are there, as the schedule would do it: like
water over a floor that is higher where a device still runs. No process and no clock; costs nothing
that grows with the number of units.
"""

from __future__ import annotations

import math
from typing import Mapping, Optional, Sequence

from .Cost import Cost
from .Schedule import RETIMED_SHARE, SHARE, START_SHARE, Rectangle, Schedule

# With more problems than this, no single one is looked for that all would wait for.
WATCHED_PROBLEMS = 2000
# Before this share of a step is done, nobody knows what there is beside the pairs…
LEAST_DONE = 0.1
# …and it is never taken for more than this.
MOST_FACTOR = 2.0
# More units than this are not counted ahead.
MOST_UNITS = 20


class Remaining:
    """What is left of one step.

    Beside the pairs themselves there are the starts of clients, comparisons, waits: they are taken
    to go on as they went so far, as a factor on the pairs' own time.
    """

    def __init__(self, schedule: Schedule, cost: Cost) -> None:
        """Begins, when nothing has been handed out yet.

        Args:
            schedule: the step's; read only.
            cost: what it has learned; read only.
        """
        self._schedule = schedule
        self._cost = cost
        self._whole = [area for area, _ in schedule.waiting]
        self._width = 0
        if not schedule.keepsWhole:
            self._width = max((area.solutionCount for area in self._whole), default=0)

    def seconds(
        self,
        running: Mapping[int, float],
        ready: Sequence[int],
        spent: float = 0.0,
        end: float = 0.0,
    ) -> Optional[float]:
        """Expected seconds until the step's results are there.

        Args:
            running: device -> what its unit is expected to take still.
            ready: the devices that take part; of others nothing is expected.
            spent: seconds that devices were there for, all together.
            end: what is to be done after the last pair.

        Returns:
            None where nothing was measured yet that tells, or no device is there.
        """
        cost = self._cost
        if not ready or not cost.learned:
            return None
        floors = {device: running.get(device, 0.0) for device in ready}
        free = []
        for area, device in self._schedule.waiting:
            if device is None:
                free.append(area)
            elif device in floors:
                floors[device] += cost.startSeconds
                floors[device] += cost.paceOf(device) * _rectangleSeconds(cost, area)
        factor = self._factor(spent, sum(floors.values()), free)
        longest = max(*floors.values(), self._decided(floors), 0.0)
        if not free:
            return longest + end
        work = sum(_rectangleSeconds(cost, area) + _oncePerUnit(cost, area) for area in free)
        paces = {device: cost.paceOf(device) for device in floors}
        start = cost.fixedSeconds(free[0].firstProblem, 1)
        level = max(
            _level(floors, paces, factor * work) + start,
            # Short pairs after long ones: then more starts are to come than there were.
            _level(floors, paces, work) + start * _unitsToCome(work / len(floors), start),
        )
        return max(longest, level, self._longestPiece(free)) + end

    def _factor(self, spent: float, running: float, free: Sequence[Rectangle]) -> float:
        """What everything took so far, over what its pairs alone should have taken."""
        cost = self._cost
        whole = sum(_rectangleSeconds(cost, area) for area in self._whole)
        done = whole - running - sum(_rectangleSeconds(cost, area) for area in free)
        if done <= 0 or done < LEAST_DONE * whole:
            return 1.0
        return min(MOST_FACTOR, max(1.0, spent / done))

    def _decided(self, floors: Mapping[int, float]) -> float:
        """When the problems that are split will have been decided; 0 where none is.

        After a row's last part, its contenders are timed again on one device, one after the other:
        as a rule the best of each part. That device has something else to end first.
        """
        cost, ends = self._cost, [0.0]
        for device, unit in self._schedule.running.items():
            if device in floors and not unit.extra and unit.solutionCount < self._width:
                again = min(len(floors) - 1, math.ceil(RETIMED_SHARE * self._width))
                each = cost.fixedSeconds(unit.lastProblem, 1) + cost.pairSeconds(unit.lastProblem)
                mean = sum(floors.values()) / len(floors)
                ends.append(max(floors[device], mean) + again * each)
        return max(ends)

    def _longestPiece(self, free: Sequence[Rectangle]) -> float:
        """Seconds of the longest part of what is free that only one device can measure."""
        if sum(area.problemCount for area in free) > WATCHED_PROBLEMS:
            return 0.0
        longest = 0.0
        for area in free:
            width = area.solutionCount if self._schedule.keepsWhole else 1
            pairs = map(self._cost.pairSeconds, range(area.firstProblem, area.endProblem))
            longest = max(longest, width * max(pairs))
        return longest


def _rectangleSeconds(cost: Cost, area: Rectangle) -> float:
    return cost.rectangleSeconds(area.firstProblem, area.problemCount, area.solutionCount)


def _oncePerUnit(cost: Cost, area: Rectangle) -> float:
    """What the validation of its problems takes."""
    first = cost.fixedSeconds(area.firstProblem, 1)
    return max(0.0, cost.fixedSeconds(area.firstProblem, area.problemCount) - first)


def _level(floors: Mapping[int, float], paces: Mapping[int, float], work: float) -> float:
    """When all end, if `work` is spread over devices that are busy until their floor.

    Args:
        floors: device -> seconds that it is busy still.
        paces: device -> its own seconds over the mean device's.
        work: in the mean device's seconds.
    """
    level, rest, speed = 0.0, work, 0.0
    for device in sorted(floors, key=lambda each: floors[each]):
        step = (floors[device] - level) * speed
        if step > rest:
            break
        rest -= step
        level = floors[device]
        speed += 1.0 / paces[device]
    return level + rest / speed


def _unitsToCome(share: float, start: float) -> int:
    """How many units a device runs still, if it takes its part of what is left each time.

    Args:
        share: its fair share of what is left, in seconds.
        start: what a client costs beside its pairs.
    """
    units = 1
    while share > start / START_SHARE and units < MOST_UNITS:
        share *= 1.0 - SHARE
        units += 1
    return units
