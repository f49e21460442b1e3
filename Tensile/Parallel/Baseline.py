# SPDX-License-Identifier: MIT
"""The same short measurement on every device at the start of a step.

It shows how far the devices differ before anything depends on it: the contests of split problems
(Contest.py) need not find it out by timing long pairs twice. Its values are thrown away. It comes
before anything else, on a device that is cold; so where cold devices are warmed up (WarmUp.py) its
first pair is measured for nothing, which is cheaper than a client for that pair alone.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import zip_longest
from typing import Callable, Dict, Mapping, Optional, Sequence, Tuple

from .Cost import Cost
from .Schedule import Rectangle

# A baseline may cost this share of what each device has to do; a shorter step has none.
BASELINE_SHARE = 0.02
# Several pairs say more than one, and a long pair no more than a short one.
BASELINE_PAIRS = 4
PAIR_SECONDS = 0.02
# Two GPUs of one architecture do not differ by this factor: such a value is no measurement.
ABSURD_RATIO = 10.0
# Devices that differ by more than this, in per cent, are worth a warning.
WARN_PERCENT = 3.0


def chooseBaseline(
    cost: Cost, areas: Sequence[Rectangle], deviceCount: int, coldPairs: int = 0
) -> Optional[Rectangle]:
    """The first solutions of the longest problem whose pairs are short.

    Args:
        cost: what pairs are expected to take.
        areas: what is to be measured.
        deviceCount: how many devices share it.
        coldPairs: how many pairs come before those that are compared, to warm the device up.

    Returns:
        Pairs of one problem; None where the step is too short, has only one device, or no row
        with so many solutions.
    """
    wide = [area for area in areas if area.solutionCount > coldPairs]
    rows = [(area, problem) for area in wide for problem in _problems(area)]
    if deviceCount < 2 or not rows:
        return None

    def pairSeconds(row: Tuple[Rectangle, int]) -> float:
        return cost.pairSeconds(row[1])

    short = [row for row in rows if pairSeconds(row) <= PAIR_SECONDS]
    area, chosen = max(short, key=pairSeconds) if short else min(rows, key=pairSeconds)
    pair = cost.pairSeconds(chosen)
    fitting = int(BASELINE_PAIRS * PAIR_SECONDS / pair)
    count = max(1, min(BASELINE_PAIRS, area.solutionCount - coldPairs, fitting))
    whole = sum(
        cost.rectangleSeconds(area.firstProblem, area.problemCount, area.solutionCount)
        for area in areas
    )
    if cost.fixedSeconds(chosen, 1) + count * pair > BASELINE_SHARE * whole / deviceCount:
        return None
    # Pairs in front are not counted: without a baseline each device would pay for them as well,
    # and for a client of their own.
    return Rectangle(chosen, 1, area.firstSolution, coldPairs + count)


def _problems(area: Rectangle) -> range:
    return range(area.firstProblem, area.endProblem)


def ratioOf(
    values: Sequence[Optional[float]], others: Sequence[Optional[float]]
) -> Optional[float]:
    """Median of `values` over `others`, pair by pair; None where no pair has both."""
    both = [a / b for a, b in zip(values, others) if a is not None and b is not None]
    ratios = [ratio for ratio in both if 1 / ABSURD_RATIO < ratio < ABSURD_RATIO]
    return statistics.median(ratios) if ratios else None


@dataclass(frozen=True)
class Spread:
    """How far the devices of a step differ, by their baselines.

    Attributes:
        ratios: device -> its speed in units of the median device's.
        slowest: the slowest device.
        fastest: the fastest one.
        percent: how much slower the slowest one is than the fastest, in per cent of the latter.
    """

    ratios: Dict[int, float]
    slowest: int
    fastest: int
    percent: float


def spreadOf(baselines: Mapping[int, Sequence[Optional[float]]]) -> Optional[Spread]:
    """Compares the devices, pair by pair.

    Args:
        baselines: device -> speeds of the same pairs; None for one that is no result.

    Returns:
        None where fewer than two devices can be compared.
    """
    medians = [_medianOf(pair) for pair in zip_longest(*baselines.values())]
    found = {device: ratioOf(values, medians) for device, values in sorted(baselines.items())}
    ratios = {device: ratio for device, ratio in found.items() if ratio is not None}
    if len(ratios) < 2:
        return None
    slowest, fastest = min(ratios, key=lambda d: ratios[d]), max(ratios, key=lambda d: ratios[d])
    percent = 100 * (1 - ratios[slowest] / ratios[fastest])
    return Spread(ratios, slowest, fastest, percent)


def _medianOf(pair: Sequence[Optional[float]]) -> Optional[float]:
    """The median device's speed of one pair; None where there is nothing to compare."""
    valid = [value for value in pair if value is not None]
    return statistics.median_low(valid) if len(valid) > 1 else None


def spreadWarning(spread: Optional[Spread], name: Callable[[int], str] = str) -> str:
    """What a person is told about devices that differ; empty where they hardly do.

    Args:
        spread: how far they differ; None where that is not known.
        name: a device's name, by its number.
    """
    if spread is None or spread.percent <= WARN_PERCENT:
        return ""
    text = (
        "device %s is %.1f %% slower than device %s (baseline): the winner of a problem that is "
        "split is decided on one device; check power cap, clocks and cooling"
    )
    return text % (name(spread.slowest), spread.percent, name(spread.fastest))
