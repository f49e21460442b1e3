# SPDX-License-Identifier: MIT
"""The winner of a split problem is the one that a single device would have named."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Tensile.Parallel.Contest import Contests, readValue, spans
from Tensile.Parallel.Types import Piece, Unit

pytestmark = pytest.mark.unit


def piece(device, first, count, problem=0, unit=0):
    return Piece("shard", problem, 1, first, count, device, unit, problem, first, count)


class Machine:
    """Devices that differ by fixed factors, and problems whose solutions have true speeds."""

    def __init__(self, factors, *rows):
        self.rows = rows
        self.factors = factors
        self.cells = {problem: {} for problem in range(len(rows))}
        self.contests = Contests(len(rows[0]), self.read)
        self.timed = 0

    def read(self, measured, problem):
        ends = range(measured.firstSolution, measured.firstSolution + measured.solutionCount)
        return [self.value(measured.device, solution, problem) for solution in ends]

    def value(self, device, solution, problem=0):
        speed = self.rows[problem][solution]
        return None if speed is None else speed * self.factors[device]

    def measure(self, device, first, count, problem=0):
        self.contests.add(piece(device, first, count, problem))
        for solution in range(first, first + count):
            self.cells[problem][solution] = self.value(device, solution, problem)

    def decide(self, devices, isOpen=lambda problem: False):
        """Times again what is due until nothing is; returns the greatest cell of each row."""
        for _ in range(50):
            due = self.contests.due(isOpen, dict.fromkeys(devices, 0.0))
            if not due:
                break
            for retiming in due:
                for solution in retiming.solutions:
                    self.timed += 1
                    self.measure(retiming.device, solution, 1, retiming.problem)
        else:
            raise AssertionError("it never ends")
        return [self._best(cells) for cells in self.cells.values()]

    def _best(self, cells):
        valid = {s: value for s, value in cells.items() if value is not None}
        return max(valid, key=lambda s: (valid[s], -s), default=None)


@settings(deadline=None)
@given(
    rows=st.integers(4, 20).flatmap(
        lambda width: st.lists(
            st.lists(st.one_of(st.none(), st.floats(1.0, 1.4)), min_size=width, max_size=width),
            min_size=1,
            max_size=4,
        )
    ),
    factors=st.lists(st.floats(0.85, 1.15), min_size=2, max_size=5),
    data=st.data(),
)
def test_winnersAreThoseOfOneDevice(rows, factors, data):
    """Rule 3: however rows are cut over devices, and in whatever order they are decided, the
    greatest cell of each is one device's winner: also where the homes of the rows differ."""
    machine = Machine(dict(enumerate(factors)), *rows)
    devices = list(range(len(factors)))
    for problem, speeds in enumerate(rows):
        at = 0
        while at < len(speeds):
            count = data.draw(st.integers(1, len(speeds) - at))
            machine.measure(data.draw(st.sampled_from(devices)), at, count, problem)
            at += count
        if data.draw(st.booleans()):
            machine.decide(devices, lambda other: other > problem)
    for speeds, winner in zip(rows, machine.decide(devices)):
        valid = [speed for speed in speeds if speed is not None]
        if not valid:
            assert winner is None
        else:
            assert speeds[winner] == pytest.approx(max(valid), rel=1e-9)


def test_ratiosAreKeptPerPairOfDevices():
    """A device that was compared with one home is not taken for compared with another one: what
    is known of it there follows from both."""
    machine = Machine({0: 0.97, 1: 1.05, 2: 0.93}, [9.0, 1.0, 1.0], [1.00, 1.0, 1.0])
    machine.measure(0, 0, 1, 0)
    machine.measure(2, 1, 2, 0)
    machine.decide([0, 1, 2])
    assert set(machine.contests.ratios) == {(2, 0)}
    before = machine.contests.margin
    machine.measure(0, 0, 1, 1)
    machine.measure(1, 1, 2, 1)
    machine.decide([0, 1, 2])
    assert set(machine.contests.ratios) == {(2, 0), (0, 1)}
    assert before < 1.05 / 0.93 <= machine.contests.margin


def test_winnerThatASlowDeviceHides():
    """A solution that looks second because its device is slow still wins."""
    machine = Machine({0: 1.05, 1: 0.93}, [1.00, 1.05])
    machine.measure(0, 0, 1)
    machine.measure(1, 1, 1)
    assert machine.cells[0][0] > machine.cells[0][1]
    assert machine.decide([0, 1]) == [1]


def test_rowsDecidedUnderASmallerMarginAreDecidedAgain():
    """A ratio that shows up later reopens the rows that it could have changed."""
    there = {0: [1.0, 0.97, 0.8], 1: [1.0, 0.995, 0.5]}  # problem -> as first measured
    home = {0: [1.0, 0.97, 0.8], 1: [1.0, 1.3, 0.65]}  # device 1 is much slower in problem 1

    def read(measured, problem):
        table = home if measured.device == 0 else there
        return table[problem][measured.firstSolution :][: measured.solutionCount]

    contests = Contests(3, read)
    asked = []
    for problem in (0, 1):
        contests.add(piece(0, 0, 1, problem))
        contests.add(piece(1, 1, 2, problem))
        due = contests.due(lambda other: False, {0: 0.0, 1: 0.0})
        while due:
            for retiming in due:
                assert retiming.device == 0 and len(retiming.solutions) == 1
                asked.append((retiming.problem, *retiming.solutions))
                contests.add(piece(0, retiming.solutions[0], 1, retiming.problem))
            due = contests.due(lambda other: False, {0: 0.0, 1: 0.0})
    assert asked == [(0, 1), (1, 1), (0, 2)]


def test_wholeRowsAreNoContest():
    """A row of one device is decided as it is: nothing is timed again."""
    machine = Machine({0: 1.0, 1: 0.9}, [1.0, 2.0, 3.0])
    machine.measure(1, 0, 3)
    assert machine.decide([0, 1]) == [2]
    assert machine.timed == 0
    assert machine.contests.splitProblems == []


def test_clearWinnersCostOneComparisonADevice():
    """Cells far below the best are not timed again; each other device is compared once."""
    machine = Machine({0: 1.0, 1: 1.02, 2: 0.97}, [5.0] + [1.0] * 40)
    machine.measure(0, 0, 11)
    machine.measure(1, 11, 15)
    machine.measure(2, 26, 15)
    assert machine.decide([0, 1, 2]) == [0]
    assert machine.timed == 2
    assert set(machine.contests.ratios) == {(1, 0), (2, 0)}
    assert machine.contests.ratios[(2, 0)][0] == pytest.approx(1 / 0.97)


def test_openRowsWait():
    """Nothing is timed again before the row's last pair is there."""
    machine = Machine({0: 1.0, 1: 1.0}, [1.0, 1.0])
    machine.measure(0, 0, 1)
    assert machine.contests.due(lambda problem: True, {0: 0.0, 1: 0.0}) == []


def test_homeThatIsLostIsReplaced():
    """When the home device leaves the run, the row is decided on another one."""
    machine = Machine({0: 1.0, 1: 0.97, 2: 1.0}, [1.00, 1.02, 0.99])
    for device in range(3):
        machine.measure(device, device, 1)
    first = machine.contests.due(lambda problem: False, {0: 0.0, 1: 0.0, 2: 0.0})[0]
    left = [device for device in range(3) if device != first.device]
    assert machine.decide(left) == [1]


def test_pairIsAskedForOnce():
    """A cell whose re-timing fails is not asked for again and again."""
    machine = Machine({0: 1.0, 1: 1.0}, [1.0, 1.0])
    machine.measure(0, 0, 1)
    machine.measure(1, 1, 1)
    assert machine.contests.due(lambda problem: False, {0: 0.0, 1: 0.0})
    assert machine.contests.due(lambda problem: False, {0: 0.0, 1: 0.0}) == []


def test_whatAnEarlierRunDecidedStands():
    """Home stays home, and a re-timing that failed there is not tried by every later run."""
    machine = Machine({0: 1.0, 1: 1.0}, [1.0, 0.999])
    machine.measure(0, 0, 1)
    machine.measure(1, 1, 1)
    machine.contests.resume(0, 1, [])
    (due,) = machine.contests.due(lambda problem: False, {0: 0.0, 1: 0.0})
    assert (due.device, due.solutions) == (1, (0,))
    machine = Machine({0: 1.0, 1: 1.0}, [1.0, 0.999])
    machine.measure(0, 0, 1)
    machine.measure(1, 1, 1)
    machine.contests.resume(0, 1, [0])
    assert machine.contests.due(lambda problem: False, {0: 0.0, 1: 0.0}) == []


@pytest.mark.parametrize("text", ["-1", "0", "nan", "-nan", "inf", "9223372036854775808", ""])
def test_absurdCellsAreNoResults(text):
    """What is no measurement never contends."""
    assert readValue(text) is None


@settings(deadline=None)
@given(st.sets(st.integers(0, 300), min_size=1), st.floats(0.001, 2.0), st.floats(0.01, 5.0))
def test_spansCoverWhatIsAsked(solutions, pair, fixed):
    """The ranges hold every solution, once, in order; a gap is bridged only where it is cheaper."""
    ranges = spans(sorted(solutions), pair, fixed)
    held = [s for first, count in ranges for s in range(first, first + count)]
    assert solutions <= set(held)
    assert held == sorted(set(held))
    for (first, count), (following, _) in zip(ranges, ranges[1:]):
        assert (following - first - count) * pair > fixed


def test_whatLaterRowsShowedIsKnownToEarlierOnes():
    """A row that was decided because of what another row's re-timing had shown stays decided."""
    first = Machine({0: 1.0, 1: 1.0}, [1.0, 0.5], [1.0, 0.999])
    first.measure(0, 0, 1, 1)
    first.measure(1, 1, 1, 1)
    first.decide([0, 1], lambda problem: problem == 0)
    first.measure(0, 0, 1, 0)
    first.measure(1, 1, 1, 0)
    first.decide([0, 1])
    assert first.timed == 1  # row 1's; nothing of row 0, whose devices were compared by then
    second = Machine({0: 1.0, 1: 1.0}, [1.0, 0.5], [1.0, 0.999])
    for row in (0, 1):
        second.measure(0, 0, 1, row)
        second.measure(1, 1, 1, row)
    second.measure(0, 1, 1, 1)  # what the first run had timed again
    second.contests.resume(1, 0, [])
    second.decide([0, 1])
    assert second.timed == 0


def test_spansAvoidWhatGaveNoResult():
    """A gap with a pair that failed is not bridged, however short it is."""
    assert spans([4, 6], 0.01, 5.0) == [(4, 3)]
    assert spans([4, 6], 0.01, 5.0, [5]) == [(4, 1), (6, 1)]
    machine = Machine({0: 1.0, 1: 1.0}, [1.0, 0.5, 0.999, None, 0.998])
    machine.measure(0, 0, 2)
    machine.measure(1, 2, 3)
    (due,) = machine.contests.due(lambda problem: False, {0: 0.0, 1: 0.0})
    assert due.solutions == (2, 4) and due.avoid == (3,)


def test_coldPairsOfABaselineAreNotCompared():
    """What a device measures first, while it is cold, says nothing of how fast it is."""
    speeds = {0: [100.0, 100.0, 200.0], 1: [30.0, 98.0, 196.0]}
    contests = Contests(3, lambda piece, problem: speeds[piece.device], coldPairs=1)
    for device in speeds:
        contests.addBaseline(piece(device, 0, 3))
    assert contests.ratios == {(1, 0): pytest.approx((1 / 0.98, 1 / 0.98))}
    assert contests.spread.ratios == pytest.approx({0: 1 / 0.98, 1: 1.0})


def test_expectedContenders():
    """As many as come near the best in other rows; then those that are seen to come near it."""
    row = [100.0, 99.5, 99.4, 50.0, 40.0, 30.0]
    machine = Machine({0: 1.0, 1: 1.0}, row, row[::-1], row)
    expected = machine.contests.expected
    assert expected(2) == 1.0
    machine.measure(0, 0, 6, problem=1)
    assert expected(2) == 2.0
    machine.measure(0, 0, 6, problem=0)
    machine.measure(0, 0, 2, problem=2)
    usual = (2 + 2 + 1) / 3
    assert expected(2) == pytest.approx(2 / 6 * usual * 4 / 6 + 4 / 6 * usual)
    machine.measure(1, 2, 4, problem=2)
    assert expected(2) == pytest.approx(1.0)
    (retiming,) = machine.contests.due(lambda problem: False, {0: 0.0, 1: 0.0})
    assert retiming.solutions == (2,)


def test_runningCellsAreExpectedToContend():
    """What a running unit of a split row has measured tells how many will contend; of a whole row
    nothing is kept, and once the row is measured its files count."""
    machine = Machine({0: 1.0, 1: 1.0}, [100.0, 50.0, 40.0, 99.5])
    contests = machine.contests
    before = contests.expected(0)
    contests.watch(Unit(0, 0, 1, 0, 4), 0, 0, 0, 100.0)
    assert contests.expected(0) == before
    for solution, value in enumerate([100.0, 50.0, 40.0]):
        contests.watch(Unit(0, 0, 1, solution // 2 * 2, 2), solution // 2, 0, solution, value)
    few = contests.expected(0)
    contests.watch(Unit(1, 0, 1, 2, 2), 1, 0, 3, 99.5)
    assert few < contests.expected(0) == 1.0
    machine.measure(0, 0, 2)
    machine.measure(1, 2, 2)
    contests.watch(Unit(1, 0, 1, 2, 2), 1, 0, 3, 1.0)  # the line of a try that failed
    assert contests.expected(0) == 1.0
