# SPDX-License-Identifier: MIT
"""The pairs that every device measures first: short, few, and only where that is cheap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Tensile.Parallel.Baseline import (
    BASELINE_PAIRS,
    BASELINE_SHARE,
    PAIR_SECONDS,
    chooseBaseline,
    ratioOf,
    spreadOf,
    spreadWarning,
)
from Tensile.Parallel.Schedule import Rectangle

pytestmark = pytest.mark.unit


class FakeCost:
    """Seconds per pair from a list; a client takes 0.2 s to start."""

    def __init__(self, seconds):
        self.seconds = seconds

    def pairSeconds(self, problem):
        return self.seconds[problem]

    def rectangleSeconds(self, first, count, solutions):
        return solutions * sum(self.seconds[first : first + count])

    def fixedSeconds(self, first, count):
        return 0.2


areas = st.lists(
    st.builds(Rectangle, st.integers(0, 5), st.just(1), st.integers(0, 9), st.integers(1, 30)),
    min_size=1,
    max_size=4,
)


@given(areas, st.lists(st.floats(1e-6, 100), min_size=6, max_size=6), st.integers(1, 8))
def test_baselineIsCheapAndPartOfTheStep(areas, seconds, devices):
    """It costs no more than its share, holds pairs of the step only, and no more than a few."""
    cost = FakeCost(seconds)
    chosen = chooseBaseline(cost, areas, devices)
    if chosen is None:
        return
    assert devices > 1 and 1 <= chosen.pairs <= BASELINE_PAIRS and chosen.problemCount == 1
    whole = sum(cost.rectangleSeconds(a.firstProblem, 1, a.solutionCount) for a in areas)
    takes = 0.2 + cost.rectangleSeconds(chosen.firstProblem, 1, chosen.solutionCount)
    assert takes <= BASELINE_SHARE * whole / devices
    assert any(
        area.firstProblem == chosen.firstProblem
        and area.holds((chosen.firstProblem, chosen.firstSolution))
        and area.endSolution >= chosen.endSolution
        for area in areas
    )


def test_longestShortPair():
    """Of the problems with short pairs the longest, which says most; not the shortest of all."""
    seconds = [0.5, PAIR_SECONDS / 2, PAIR_SECONDS, PAIR_SECONDS * 1.1, 0.001]
    table = Rectangle(0, 5, 0, 1000)
    assert chooseBaseline(FakeCost(seconds), [table], 4) == Rectangle(2, 1, 0, BASELINE_PAIRS)


def test_longPairsOnly():
    """Where all pairs are long it is one pair of the shortest problem."""
    table = Rectangle(0, 3, 0, 1000)
    assert chooseBaseline(FakeCost([3.0, 1.0, 2.0]), [table], 4) == Rectangle(1, 1, 0, 1)


@pytest.mark.parametrize("areas", [[], [Rectangle(0, 1, 0, 3)]])
def test_shortStepsHaveNone(areas):
    """A step that is short beside a client's start, or is done, has no baseline."""
    assert chooseBaseline(FakeCost([0.01]), areas, 2) is None


def test_oneDeviceHasNone():
    """One device has nothing to be compared with."""
    assert chooseBaseline(FakeCost([0.01]), [Rectangle(0, 1, 0, 10**6)], 1) is None


def test_ratioIsTheMedianOfValidPairs():
    """One pair that was disturbed, or is no result, does not count."""
    assert ratioOf([10.0, 20.0, 30.0], [5.0, 10.0, 1.0]) == 2.0
    assert ratioOf([None, 20.0], [1.0, 10.0]) == 2.0
    assert ratioOf([None, 20.0], [1.0, None]) is None


def test_pairsInFrontOfTheBaseline():
    """A cold device measures one pair more, first, where a row has so many solutions."""
    wide, narrow = Rectangle(0, 1, 0, 100000), Rectangle(1, 1, 0, 1)
    seconds = FakeCost([0.01, 0.02])
    assert chooseBaseline(seconds, [wide, narrow], 4, 1) == Rectangle(0, 1, 0, 1 + BASELINE_PAIRS)
    assert chooseBaseline(seconds, [wide, narrow], 4) == Rectangle(1, 1, 0, 1)
    thin = [Rectangle(row, 1, 0, 2) for row in range(1000)]
    assert chooseBaseline(FakeCost([0.02] * 1000), thin, 2, 1) == Rectangle(0, 1, 0, 2)
    # It decides nothing about whether there is a baseline: a warm-up would cost a start more.
    seconds = FakeCost([1.0])
    least = next(n for n in range(1, 1000) if chooseBaseline(seconds, [Rectangle(0, 1, 0, n)], 2))
    assert chooseBaseline(seconds, [Rectangle(0, 1, 0, least)], 2, 1) == Rectangle(0, 1, 0, 2)
    assert chooseBaseline(seconds, [Rectangle(0, 1, 0, least - 1)], 2, 1) is None
    single = [Rectangle(row, 1, 0, 1) for row in range(1000)]
    assert chooseBaseline(FakeCost([0.02] * 1000), single, 2, 1) is None


def test_spreadIsByTheMedianDevice():
    """Each device's speed is given in units of the median device's, pair by pair."""
    found = spreadOf({2: [9.0, 18.0, 27.0], 0: [10.0, 20.0, 30.0], 5: [11.0, 22.0, 33.0]})
    assert found.ratios == pytest.approx({0: 1.0, 2: 0.9, 5: 1.1})
    assert (found.slowest, found.fastest) == (2, 5)
    assert found.percent == pytest.approx(100 * (1 - 9 / 11))


@pytest.mark.parametrize(
    "baselines",
    [
        {},
        {0: [10.0]},
        {0: [10.0, None], 1: [None, 20.0]},
        {0: [None], 1: [20.0], 2: []},
        {0: [10.0], 1: [10.0 * 1e9]},
    ],
)
def test_noSpreadWithoutTwoDevices(baselines):
    """What has no pair in common, or is absurd beside the others, is not compared."""
    assert spreadOf(baselines) is None and spreadWarning(spreadOf(baselines)) == ""


def test_shorterBaselinesAreComparedAsFarAsTheyGo():
    """A client that died after its second pair has measured two."""
    found = spreadOf({0: [10.0, 20.0, 30.0], 1: [9.0, 18.0], 2: [10.0, 20.0, 30.0]})
    assert found.ratios == pytest.approx({0: 1.0, 1: 0.9, 2: 1.0})


@pytest.mark.parametrize("slow, warns", [(1.0, False), (0.971, False), (0.969, True)])
def test_warningAboveThreePerCent(slow, warns):
    """The slowest device is named beside the fastest one, with how much it is slower."""
    text = spreadWarning(spreadOf({0: [100.0], 1: [100.0], 4: [100.0 * slow]}))
    assert bool(text) == warns
    assert not warns or text.startswith("device 4 is 3.1 % slower than device 0 ")
