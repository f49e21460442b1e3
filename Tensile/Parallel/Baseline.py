# SPDX-License-Identifier: MIT
"""The same short measurement on every device at the start of a step.

It shows how far the devices differ before anything depends on it: the contests of split problems
(Contest.py) need not find it out by timing long pairs twice. Its values are thrown away.
"""

from __future__ import annotations

import statistics
from typing import List, Optional, Sequence, Tuple

from .Cost import Cost
from .Schedule import Rectangle

# A baseline may cost this share of what each device has to do; a shorter step has none.
BASELINE_SHARE = 0.02
# Several pairs say more than one, and a long pair no more than a short one.
BASELINE_PAIRS = 4
PAIR_SECONDS = 0.02


def chooseBaseline(cost: Cost, areas: Sequence[Rectangle], deviceCount: int) -> Optional[Rectangle]:
    """The first solutions of the longest problem whose pairs are short.

    Args:
        cost: what pairs are expected to take.
        areas: what is to be measured.
        deviceCount: how many devices share it.

    Returns:
        Pairs of one problem; None where the step is too short, or has only one device.
    """
    rows = [(area, problem) for area in areas for problem in _problems(area)]
    if deviceCount < 2 or not rows:
        return None

    def pairSeconds(row: Tuple[Rectangle, int]) -> float:
        return cost.pairSeconds(row[1])

    short = [row for row in rows if pairSeconds(row) <= PAIR_SECONDS]
    area, chosen = max(short, key=pairSeconds) if short else min(rows, key=pairSeconds)
    pair = cost.pairSeconds(chosen)
    fitting = int(BASELINE_PAIRS * PAIR_SECONDS / pair)
    count = max(1, min(BASELINE_PAIRS, area.solutionCount, fitting))
    whole = sum(
        cost.rectangleSeconds(area.firstProblem, area.problemCount, area.solutionCount)
        for area in areas
    )
    if cost.fixedSeconds(chosen, 1) + count * pair > BASELINE_SHARE * whole / deviceCount:
        return None
    return Rectangle(chosen, 1, area.firstSolution, count)


def _problems(area: Rectangle) -> range:
    return range(area.firstProblem, area.endProblem)


def ratioOf(
    values: Sequence[Optional[float]], others: Sequence[Optional[float]]
) -> Optional[float]:
    """Median of `values` over `others`, pair by pair; None where no pair has both."""
    ratios: List[float] = [a / b for a, b in zip(values, others) if a is not None and b is not None]
    return statistics.median(ratios) if ratios else None
