# SPDX-License-Identifier: MIT
"""The winner of a split problem is the one that a single device would have named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Tensile.Parallel.Contest import Contests, readValue, spans
from Tensile.Parallel.Types import Piece

pytestmark = pytest.mark.unit


def piece(device, first, count, problem=0, unit=0):
    return Piece("shard", problem, 1, first, count, device, unit, problem, first, count)


class Machine:
    """Devices that differ by fixed factors, and solutions with true speeds."""

    def __init__(self, speeds, factors):
        self.speeds = speeds
        self.factors = factors
        self.cells = {}
        self.contests = Contests(len(speeds), self.read)
        self.timed = 0

    def read(self, measured, problem):
        ends = range(measured.firstSolution, measured.firstSolution + measured.solutionCount)
        return [self.value(measured.device, solution) for solution in ends]

    def value(self, device, solution):
        speed = self.speeds[solution]
        return None if speed is None else speed * self.factors[device]

    def measure(self, device, first, count):
        made = piece(device, first, count)
        self.contests.add(made)
        for solution in range(first, first + count):
            self.cells[solution] = self.value(device, solution)

    def decide(self, devices):
        """Times again what is due until nothing is; returns the row's greatest cell."""
        for _ in range(50):
            due = self.contests.due(lambda problem: False, devices)
            if not due:
                break
            for retiming in due:
                for solution in retiming.solutions:
                    self.timed += 1
                    self.measure(retiming.device, solution, 1)
        else:
            raise AssertionError("it never ends")
        valid = {s: value for s, value in self.cells.items() if value is not None}
        return max(valid, key=lambda s: (valid[s], -s), default=None)


@given(
    speeds=st.lists(
        st.one_of(st.none(), st.floats(1.0, 1.4)), min_size=4, max_size=30
    ),
    factors=st.lists(st.floats(0.85, 1.15), min_size=2, max_size=5),
    data=st.data(),
)
def test_winnerIsThatOfOneDevice(speeds, factors, data):
    """Rule 3: however a row is cut over devices, its greatest cell is one device's winner."""
    machine = Machine(speeds, dict(enumerate(factors)))
    at = 0
    while at < len(speeds):
        count = data.draw(st.integers(1, len(speeds) - at))
        machine.measure(data.draw(st.integers(0, len(factors) - 1)), at, count)
        at += count
    winner = machine.decide(list(range(len(factors))))
    valid = [speed for speed in speeds if speed is not None]
    if not valid:
        assert winner is None
    else:
        assert speeds[winner] == pytest.approx(max(valid), rel=1e-9)


def test_winnerThatASlowDeviceHides():
    """A solution that looks second because its device is slow still wins."""
    machine = Machine([1.00, 1.05], {0: 1.05, 1: 0.93})
    machine.measure(0, 0, 1)
    machine.measure(1, 1, 1)
    assert machine.cells[0] > machine.cells[1]
    assert machine.decide([0, 1]) == 1


def test_wholeRowsAreNoContest():
    """A row of one device is decided as it is: nothing is timed again."""
    machine = Machine([1.0, 2.0, 3.0], {0: 1.0, 1: 0.9})
    machine.measure(1, 0, 3)
    assert machine.decide([0, 1]) == 2
    assert machine.timed == 0
    assert machine.contests.splitProblems == []


def test_clearWinnersCostOneComparisonADevice():
    """Cells far below the best are not timed again; each other device is compared once."""
    machine = Machine([5.0] + [1.0] * 40, {0: 1.0, 1: 1.02, 2: 0.97})
    machine.measure(0, 0, 11)
    machine.measure(1, 11, 15)
    machine.measure(2, 26, 15)
    assert machine.decide([0, 1, 2]) == 0
    assert machine.timed == 2
    assert set(machine.contests.ratios) == {1, 2}
    assert machine.contests.ratios[2][0] == pytest.approx(1 / 0.97)


def test_openRowsWait():
    """Nothing is timed again before the row's last pair is there."""
    machine = Machine([1.0, 1.0], {0: 1.0, 1: 1.0})
    machine.measure(0, 0, 1)
    assert machine.contests.due(lambda problem: True, [0, 1]) == []


def test_homeThatIsLostIsReplaced():
    """When the home device leaves the run, the row is decided on another one."""
    machine = Machine([1.00, 1.02, 0.99], {0: 1.0, 1: 0.97, 2: 1.0})
    for device in range(3):
        machine.measure(device, device, 1)
    first = machine.contests.due(lambda problem: False, [0, 1, 2])[0]
    left = [device for device in range(3) if device != first.device]
    assert machine.decide(left) == 1


def test_pairIsAskedForOnce():
    """A cell whose re-timing fails is not asked for again and again."""
    machine = Machine([1.0, 1.0], {0: 1.0, 1: 1.0})
    machine.measure(0, 0, 1)
    machine.measure(1, 1, 1)
    assert machine.contests.due(lambda problem: False, [0, 1])
    assert machine.contests.due(lambda problem: False, [0, 1]) == []


@pytest.mark.parametrize("text", ["-1", "0", "nan", "-nan", "inf", "9223372036854775808", ""])
def test_absurdCellsAreNoResults(text):
    """What is no measurement never contends."""
    assert readValue(text) is None


@given(
    st.sets(st.integers(0, 300), min_size=1), st.floats(0.001, 2.0), st.floats(0.01, 5.0)
)
def test_spansCoverWhatIsAsked(solutions, pair, fixed):
    """The ranges hold every solution, once, in order; a gap is bridged only where it is cheaper."""
    ranges = spans(sorted(solutions), pair, fixed)
    held = [s for first, count in ranges for s in range(first, first + count)]
    assert solutions <= set(held)
    assert held == sorted(set(held))
    for (first, count), (following, _) in zip(ranges, ranges[1:]):
        assert (following - first - count) * pair > fixed
