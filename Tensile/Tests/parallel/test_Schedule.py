# SPDX-License-Identifier: MIT
"""The schedule against every order of success, failure, lost device and stop."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from Tensile.Parallel.Schedule import (
    DEATHS_BEFORE_ANYTHING,
    FAILURES_PER_DEVICE,
    REFUTED_PER_DEVICE,
    TRIES_PER_PAIR,
    Rectangle,
    Schedule,
    halve,
    rectangleOf,
    subtract,
    waterLevel,
)

pytestmark = pytest.mark.unit


class FakeCost:
    """Seconds per pair from a list, repeated; starts cost what the test says."""

    def __init__(self, seconds=(1.0,), startSeconds=0.0, learned=True):
        self.seconds = list(seconds)
        self.startSeconds = startSeconds
        self.learned = learned

    def pairSeconds(self, problem):
        return self.seconds[problem % len(self.seconds)]

    def rectangleSeconds(self, first, count, solutions):
        return solutions * sum(self.pairSeconds(p) for p in range(first, first + count))

    def fixedSeconds(self, first, count):
        return self.startSeconds

    def paceOf(self, device):
        return 1.0


class EvenCost(FakeCost):
    """The same for a table of any size: every pair takes as long as any other."""

    def rectangleSeconds(self, first, count, solutions):
        return self.seconds[0] * count * solutions


def cells(*rectangles):
    """The pairs of rectangles, as a list: a pair that is in two is there twice."""
    return [
        (problem, solution)
        for r in rectangles
        for problem in range(r.firstProblem, r.endProblem)
        for solution in range(r.firstSolution, r.endSolution)
    ]


def makeSchedule(problems, solutions, devices, cost=None, keepWhole=False):
    table = Rectangle(0, problems, 0, solutions)
    return Schedule([table], range(devices), cost or FakeCost(), keepWhole=keepWhole)


def runAll(schedule, verdict, limit=10000):
    """Runs a schedule to its end; verdict(device, unit) -> (done, deadPair), or None for success.

    Suspects are set aside, as the loop does. Returns the units in the order of their starts.
    """
    units = []
    while not schedule.finished:
        started = False
        for device in schedule.devices:
            if schedule.suspicion(device):
                schedule.setAside(device)
                started = True
                continue
            unit = schedule.next(device)
            if unit is not None:
                units.append((device, unit))
                started = True
        assert started, "nobody has anything to do, and it is not finished"
        assert len(units) < limit, "it does not end"
        for device, unit in list(schedule.running.items()):
            end = verdict(device, unit)
            if end is None:
                schedule.succeeded(device)
            else:
                schedule.failed(device, *end)
    return units


def leading(area, pairs):
    """The rectangles of the first `pairs` cells of an area, in the client's order."""
    rows, rest = divmod(pairs, area.solutionCount)
    parts = [Rectangle(area.firstProblem, rows, area.firstSolution, area.solutionCount)]
    parts.append(Rectangle(area.firstProblem + rows, 1, area.firstSolution, rest))
    return [part for part in parts if part.pairs]


rectangles = st.builds(
    Rectangle, st.integers(0, 6), st.integers(1, 6), st.integers(0, 6), st.integers(1, 6)
)


@given(rectangles, rectangles)
def test_subtractLeavesTheOtherPairs(whole, part):
    """What is left is every pair of the whole that is not in the part, once, in <= 4 rectangles."""
    left = subtract(whole, part)
    assert len(left) <= 4
    assert all(r.pairs > 0 for r in left)
    found = cells(*left)
    assert len(found) == len(set(found))
    assert set(found) == set(cells(whole)) - set(cells(part))


@given(rectangles, rectangles)
def test_subtractKeepsTableOrder(whole, part):
    """The pieces come in the table's order: by first problem, then by first solution."""
    left = subtract(whole, part)
    assert left == sorted(left, key=lambda r: (r.firstProblem, r.firstSolution))


@given(rectangles.filter(lambda r: r.pairs > 1))
def test_halveCutsBetweenRows(whole):
    """Two parts, neither empty, together the whole."""
    first, second = halve(whole)
    assert cells(first, second) == cells(whole)
    assert first.pairs and second.pairs


class ScheduleMachine(RuleBasedStateMachine):
    """Any order of events on a small table; a model of the cells beside it."""

    @initialize(
        problems=st.integers(1, 7),
        solutions=st.integers(1, 6),
        devices=st.integers(1, 4),
        holes=st.lists(rectangles, max_size=2),
        weights=st.lists(st.floats(1e-5, 100), min_size=1, max_size=7),
        startSeconds=st.floats(0, 50),
        learned=st.booleans(),
        keepWhole=st.booleans(),
        compared=st.booleans(),
    )
    def begin(
        self,
        problems,
        solutions,
        devices,
        holes,
        weights,
        startSeconds,
        learned,
        keepWhole,
        compared,
    ):
        free = [Rectangle(0, problems, 0, solutions)]
        self.whole = free[0]
        for hole in holes:  # measured by an earlier run
            free = [left for whole in free for left in subtract(whole, hole)]
        self.table = set(cells(*free))
        self.done = set()
        self.deaths = {}
        self.failures = 0
        self.numbers = set()
        self.retimed = []  # (device, rectangle) that is to be measured again
        cost = FakeCost(weights, startSeconds, learned)
        self.baseline = Rectangle(0, 1, 0, 1) if compared else None
        self.compared = set()  # devices that have begun their baseline
        self.schedule = Schedule(
            free, range(devices), cost, keepWhole=keepWhole, baseline=self.baseline
        )

    def busy(self):
        return sorted(self.schedule.running)

    def idle(self):
        return [d for d in self.schedule.devices if d not in self.schedule.running]

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def next(self, data):
        device = data.draw(st.sampled_from(self.idle()))
        before = list(self.schedule.leftOver)
        left = {d: data.draw(st.floats(0, 1000)) for d in self.busy() if data.draw(st.booleans())}
        self._take(device, before, self.schedule.next(device, left))

    def _take(self, device, before, unit):
        if unit is None:
            assert self.schedule.leftOver == before
            return
        assert unit.number not in self.numbers
        self.numbers.add(unit.number)
        assert self.schedule.running[device] == unit
        if unit.baseline:
            # Once, before anything else, and it takes nothing from the table.
            assert rectangleOf(unit) == self.baseline and device not in self.compared
            self.compared.add(device)
            assert self.schedule.leftOver == before
            return
        assert self.baseline is None or device in self.compared or not before
        if unit.retiming:
            # Asked for, by this device, and it takes nothing from the table.
            self.retimed.remove((device, rectangleOf(unit)))
            assert self.schedule.leftOver == before
        else:
            assert set(cells(rectangleOf(unit))) <= set(cells(*before))

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def succeed(self, data):
        self._succeed(data.draw(st.sampled_from(self.busy())))

    def _succeed(self, device):
        unit = self.schedule.running[device]
        if not unit.extra:
            self.done |= set(cells(rectangleOf(unit)))
        self.schedule.succeeded(device)

    @precondition(lambda self: self.dividable())
    @rule(data=st.data())
    def shorten(self, data):
        """A unit that was ended in the middle: its first rows, and the first cells of the next."""
        device = data.draw(st.sampled_from(self.dividable()))
        area = rectangleOf(self.schedule.running[device])
        pairs = data.draw(st.integers(0, area.pairs - 1))
        done = leading(area, pairs)
        self.done |= set(cells(*done))
        self.schedule.succeeded(device, done)
        assert device not in self.schedule.running

    def dividable(self):
        return [d for d, unit in sorted(self.schedule.running.items()) if not unit.extra]

    @rule(data=st.data())
    def askTooLong(self, data):
        """What is to be shortened runs, is part of the table, and can be cut at all."""
        left = {d: data.draw(st.floats(0, 1e6)) for d in self.busy()}
        begun = [d for d in left if data.draw(st.booleans())]
        chosen = self.schedule.tooLong(left, begun)
        if chosen is not None:
            able = [d for d in self.dividable() if d in begun]
            assert chosen in able and left[chosen] == max(left[d] for d in able)

    @precondition(lambda self: self.schedule.devices and self.done)
    @rule(data=st.data())
    def retime(self, data):
        device = data.draw(st.sampled_from(sorted(range(4))))
        if device not in self.schedule._devices:
            return
        problem, first = data.draw(st.sampled_from(sorted(self.done)))
        count = data.draw(st.integers(1, self.whole.endSolution - first))
        area = Rectangle(problem, 1, first, count)
        self.schedule.retime(device, [area])
        if device in self.schedule.devices:
            self.retimed.append((device, area))
            assert self.schedule.isOpen(problem)

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def fail(self, data):
        device = data.draw(st.sampled_from(self.busy()))
        unit = self.schedule.running[device]
        own = cells(rectangleOf(unit))
        parts = data.draw(st.lists(st.sampled_from(own), max_size=3))
        done = [_growIn(data, rectangleOf(unit), pair) for pair in parts]
        deadPair = data.draw(st.none() | st.sampled_from(own) | st.just((99, 99)))
        self._fail(device, unit, done, deadPair)

    def _fail(self, device, unit, done, deadPair):
        left = set(cells(rectangleOf(unit))) - set(cells(*done))
        if unit.baseline:
            given, over = list(self.schedule.givenUp), self.schedule.leftOver
            assert self.schedule.failed(device, done, deadPair) == []
            assert (self.schedule.givenUp, self.schedule.leftOver) == (given, over)
            return
        if unit.retiming:
            self._failRetiming(device, unit, done, deadPair, left)
            return
        ready = deadPair is None and (self.failures % 2 == 0)
        lost = self.schedule.failed(device, done, deadPair, ready)
        self.done |= set(cells(*done)) & set(cells(rectangleOf(unit)))
        self.failures += 1
        assert set(cells(*lost)) <= left
        if deadPair in left:
            self.deaths[deadPair] = self.deaths.get(deadPair, 0) + 1
            assert self.deaths[deadPair] <= TRIES_PER_PAIR
        # A named pair is given up alone; what nobody can pin down costs one row, no neighbour.
        assert all(r.problemCount == 1 for r in lost)
        assert deadPair not in left or cells(*lost) in ([], [deadPair])

    def _failRetiming(self, device, unit, done, deadPair, left):
        """It costs nothing of the table and no device its good name; three tries at most."""
        given, over = list(self.schedule.givenUp), self.schedule.leftOver
        before = sorted(cells(*self.waiting()))
        lost = self.schedule.failed(device, done, deadPair)
        assert self.schedule.givenUp == given and self.schedule.leftOver == over
        assert unit.attempt <= TRIES_PER_PAIR
        here = device in self.schedule.devices
        over = set(cells(*lost))
        if not here:
            assert over == left
        elif deadPair in left and unit.solutionCount > 1:
            assert over <= {deadPair}  # the others have tries left
        else:
            assert over == (set() if unit.attempt < TRIES_PER_PAIR else left)
        assert sorted(cells(*self.waiting())) == sorted([*before, *(left - over)])
        self.retimed = [(r.onlyDevice, r.rectangle) for r in self.schedule._retries if r.retiming]

    def waiting(self):
        """The re-timings that wait for their device."""
        return [retry.rectangle for retry in self.schedule._retries if retry.retiming]

    @precondition(lambda self: len(self.schedule.devices) > 1)
    @rule(data=st.data())
    def setAside(self, data):
        device = data.draw(st.sampled_from(self.schedule.devices))
        self.schedule.setAside(device)
        assert device not in self.schedule.devices
        self.retimed = [(d, area) for d, area in self.retimed if d != device]

    @precondition(lambda self: not self.schedule.finished)
    @rule(luck=st.integers(0, 3))
    def stop(self, luck):
        if luck == 0:  # else most runs would be stopped before they are interesting
            self.schedule.stop()
            assert all(self.schedule.next(device) is None for device in self.idle())

    @invariant()
    def everyPairIsInOnePlace(self):
        places = list(self.done)
        places += cells(*self.schedule.leftOver)
        places += cells(*(rectangle for rectangle, _ in self.schedule.givenUp))
        running = self.schedule.running.values()
        places += cells(*(rectangleOf(unit) for unit in running if not unit.extra))
        assert len(places) == len(set(places)), "a pair is in two places"
        assert set(places) == self.table, "a pair is lost"

    @invariant()
    def retimingsWaitForTheirOwnDevice(self):
        if hasattr(self, "retimed"):
            waiting = [r for r in self.schedule._retries if r.retiming]
            assert [(r.onlyDevice, r.rectangle) for r in waiting] == self.retimed
            assert all(device in self.schedule.devices for device, _ in self.retimed)

    @invariant()
    def finishedMeansNothingRuns(self):
        if self.schedule.finished:
            assert not self.schedule.running

    def teardown(self):
        """Whatever happened so far: with failures from here on, too, the run comes to an end."""
        if not hasattr(self, "schedule"):
            return
        bound = 50 + 10 * len(self.table) ** 2 + 4 * len(self.retimed)
        turn = 0
        while not self.schedule.finished:
            for device in self.idle():
                self._take(device, list(self.schedule.leftOver), self.schedule.next(device))
            assert self.schedule.running, "idle devices, work left, and nothing is handed out"
            for device, unit in list(self.schedule.running.items()):
                turn += 1
                pair = (unit.firstProblem, unit.firstSolution)
                kind = (turn + unit.number) % 4
                if kind == 0:
                    self._succeed(device)
                else:
                    self._fail(device, unit, [], pair if kind == 1 else None)
            assert turn < bound, "it does not end"
        self.everyPairIsInOnePlace()


def _growIn(data, whole, pair):
    """Some rectangle in `whole` that begins at `pair`."""
    problems = data.draw(st.integers(1, whole.endProblem - pair[0]))
    solutions = data.draw(st.integers(1, whole.endSolution - pair[1]))
    return Rectangle(pair[0], problems, pair[1], solutions)


TestScheduleMachine = ScheduleMachine.TestCase
TestScheduleMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("problems, devices", [(8, 4), (7, 4), (1, 4), (3, 2), (64, 8)])
def test_shortStepIsSpreadOverAllDevices(problems, devices):
    """A step that is short beside the client's start still gives every device a unit at once."""
    schedule = makeSchedule(problems, 5, devices, FakeCost([0.1 / 3], startSeconds=1000))
    first = [schedule.next(device) for device in range(devices)]
    assert sum(unit is not None for unit in first) == min(problems, devices)


@pytest.mark.parametrize("problems, devices", [(8, 4), (12, 4), (64, 8), (30, 3)])
def test_equalShortShares(problems, devices):
    """Equal problems that divide evenly make one unit a device: no start is paid twice."""
    schedule = makeSchedule(problems, 7, devices, FakeCost([0.1 / 3], startSeconds=1000))
    assert len(runAll(schedule, lambda device, unit: None)) == devices


def test_shortStepIsSpreadByWhatWasLearned():
    """The fair share counts in learned seconds: an estimate that was far too high changes nothing.

    The schedule begins with estimates 1000 times too long; what is left is then short.
    """
    cost = FakeCost([1.0], startSeconds=1.0)
    schedule = makeSchedule(100, 1, 2, cost)
    schedule.next(0)
    schedule.succeeded(0)
    left = sum(r.pairs for r in schedule.leftOver)
    cost.seconds = [1e-3]
    sizes = [schedule.next(device).pairs for device in (0, 1)]
    assert sizes[0] < left and sizes[1] > 0


def test_unitSizesShrink():
    """Units of a long step get smaller as it goes on, so that all devices end together."""
    schedule = makeSchedule(500, 3, 4, FakeCost([1.0], startSeconds=0.1))
    sizes = [unit.pairs for _, unit in runAll(schedule, lambda device, unit: None)]
    assert all(later <= earlier for earlier, later in zip(sizes, sizes[1:]))
    assert sizes[0] > 10 * sizes[-1]


def test_expensiveProblemsFirst():
    """The most expensive problem is in the first unit, wherever it stands in the list."""
    weights = [1.0] * 50
    weights[37] = 1000.0
    schedule = makeSchedule(50, 2, 2, FakeCost(weights))
    unit = schedule.next(0)
    assert unit.firstProblem <= 37 <= unit.lastProblem


def test_pairThatKillsIsTriedThreeTimesOnTwoDevices():
    """A killing pair: once more on its device, once on another, then given up; the rest is done."""
    schedule = makeSchedule(6, 4, 2)
    killer, tried, done = (2, 1), [], []

    def verdict(device, unit):
        area = rectangleOf(unit)
        if not area.holds(killer):
            done.extend(cells(area))
            return None
        tried.append((device, unit.pairs))
        before = [pair for pair in cells(area) if pair < killer]
        done.extend(before)
        return [Rectangle(p, 1, s, 1) for p, s in before], killer

    runAll(schedule, verdict)
    assert [pairs for _, pairs in tried[1:]] == [1, 1]
    assert tried[0][0] == tried[1][0] != tried[2][0]
    assert [rectangle for rectangle, _ in schedule.givenUp] == [Rectangle(2, 1, 1, 1)]
    assert sorted(done) == sorted(set(cells(Rectangle(0, 6, 0, 4))) - {killer})


def test_pairThatKilledTwiceIsForAnotherDevice():
    """After its second death a pair waits for another device, even while that one is busy."""
    schedule = makeSchedule(2, 1, 2)
    killer = schedule.next(0).firstProblem
    other = schedule.next(1)
    for _ in range(2):
        schedule.failed(0, [], (killer, 0))
        again = schedule.next(0)
    assert again is None
    schedule.succeeded(1)
    assert schedule.next(0) is None
    unit = schedule.next(1)
    assert (unit.firstProblem, unit.attempt) == (killer, 3) and unit.number > other.number


def test_pairThatKillsOnTheOnlyDeviceIsTriedTwice():
    """Without another device the second death is the last."""
    schedule = makeSchedule(1, 1, 1)
    units = runAll(schedule, lambda device, unit: ([], (0, 0)))
    assert len(units) == 2
    assert [rectangle for rectangle, _ in schedule.givenUp] == [Rectangle(0, 1, 0, 1)]


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("killers", [{0}, {0, 1, 2, 3}, {3, 9}, set(range(1, 10))])
def test_solutionThatKillsEverywhereCostsNoDevice(devices, killers):
    """A kernel that kills every client, on each problem, is no fault of the devices."""
    problems, solutions = 12, 10
    schedule = makeSchedule(problems, solutions, devices)
    runAll(schedule, killedBy(killers))
    assert schedule.devices == list(range(devices))
    assert not schedule.leftOver
    lost = cells(*(rectangle for rectangle, _ in schedule.givenUp))
    assert sorted(lost) == [(p, s) for p in range(problems) for s in sorted(killers)]


@pytest.mark.parametrize("devices", [1, 4])
def test_clientThatMeasuresNothingIsGivenUp(devices):
    """When hundreds of clients died and none measured a pair, it is the client: the step ends."""
    schedule = makeSchedule(1000, 10, devices)
    units = runAll(schedule, killedBy(set(range(10))))
    assert schedule.devices == []
    assert schedule.leftOver
    assert len(units) <= DEATHS_BEFORE_ANYTHING + devices


def killedBy(solutions, name=True):
    """A client that dies at these solutions; its rows so far and the begun row are kept."""

    def verdict(device, unit):
        own = cells(rectangleOf(unit))
        at = next((i for i, pair in enumerate(own) if pair[1] in solutions), None)
        if at is None:
            return None
        done = [Rectangle(p, 1, s, 1) for p, s in own[:at]] if name else []
        return done, own[at] if name else None

    return verdict


@pytest.mark.parametrize("devices", [1, 3])
def test_problemThatCannotEvenStartCostsNoOther(devices):
    """A problem that ends the client before its first pair (no memory) is found by halving."""
    schedule = makeSchedule(40, 3, devices, FakeCost([1.0], startSeconds=1000))

    def verdict(device, unit):
        return ([], None) if unit.firstProblem <= 11 <= unit.lastProblem else None

    runAll(schedule, verdict)
    assert schedule.devices == list(range(devices))
    lost = cells(*(rectangle for rectangle, _ in schedule.givenUp))
    assert sorted(lost) == [(11, s) for s in range(3)]
    assert not schedule.leftOver


@pytest.mark.parametrize("keepWhole", [False, True])
@pytest.mark.parametrize("devices", [1, 3])
def test_pairThatSpoilsItsUnitIsFound(devices, keepWhole):
    """A pair with which a client leaves nothing, without dying at it: it alone is given up."""
    schedule = makeSchedule(4, 16, devices, keepWhole=keepWhole)
    spoiled = (2, 11)
    starts = 0
    while not schedule.finished:
        for device in schedule.devices:
            if device not in schedule.running:
                schedule.next(device)
        for device, unit in list(schedule.running.items()):
            starts += 1
            if rectangleOf(unit).holds(spoiled):
                schedule.failed(device, [], None, ready=True)
            else:
                schedule.succeeded(device)
    assert [area for area, _ in schedule.givenUp] == [Rectangle(2, 1, 11, 1)]
    assert not schedule.leftOver and starts < 40


@pytest.mark.parametrize("named", [True, False])
def test_brokenDeviceIsSetAside(named):
    """Units that fail on one device and go well on the others: that device goes, no pair does."""
    schedule = makeSchedule(60, 4, 3)

    def verdict(device, unit):
        pair = (unit.firstProblem, unit.firstSolution)
        return ([], pair if named else None) if device == 1 else None

    units = runAll(schedule, verdict)
    assert schedule.devices == [0, 2]
    assert not schedule.givenUp and not schedule.leftOver
    # It is not fed for ever: it waits for what the others make of its failures.
    assert sum(device == 1 for device, _ in units) <= 4 * REFUTED_PER_DEVICE


@pytest.mark.parametrize("named", [True, False])
def test_brokenDeviceIsNotFedWhileOthersAreBusy(named):
    """While the others have no time to judge its failures, a device gets no more to spoil."""
    schedule = makeSchedule(60, 4, 2)
    schedule.next(0)  # a long unit
    units = 0
    unit = schedule.next(1)
    while unit is not None and units < 100:
        units += 1
        schedule.failed(1, [], (unit.firstProblem, unit.firstSolution) if named else None)
        unit = schedule.next(1)
    assert units <= 3 * REFUTED_PER_DEVICE and not schedule.suspicion(1)


def test_allDevicesBrokenEndsTheRun():
    """Where nothing works anywhere the run ends after a bounded number of starts."""
    schedule = makeSchedule(50, 5, 3)
    units = runAll(schedule, lambda device, unit: ([], None))
    assert schedule.devices == []
    assert len(units) <= 3 * (FAILURES_PER_DEVICE + 1)
    given = [rectangle for rectangle, _ in schedule.givenUp]
    assert sorted(cells(*schedule.leftOver, *given)) == cells(Rectangle(0, 50, 0, 5))


def test_restOfBegunRowStaysOnItsDevice():
    """A size is judged on one device: what is left of a begun row is not given to another."""
    schedule = makeSchedule(2, 10, 2)
    unit = schedule.next(0)
    row = unit.firstProblem
    schedule.failed(0, [Rectangle(row, 1, 0, 4)], (row, 4))
    other = schedule.next(1)
    assert row not in range(other.firstProblem, other.lastProblem + 1)
    again = [schedule.next(0)]
    schedule.succeeded(0)
    again.append(schedule.next(0))
    assert [(u.firstProblem, u.firstSolution, u.solutionCount) for u in again] == [
        (row, 4, 1),
        (row, 5, 5),
    ]


def test_restOfAnEarlierRunStaysOnItsDevice():
    """A row that an interrupted run had begun is ended by its device, or by another without it."""
    rest = Rectangle(3, 1, 2, 4)
    for home, expected in ((1, 1), (9, 0)):
        schedule = Schedule([], [0, 1], FakeCost(), keepWhole=True, begun=[(rest, home)])
        assert cells(*schedule.leftOver) == cells(rest)
        units = runAll(schedule, lambda device, unit: None)
        assert [(device, rectangleOf(unit)) for device, unit in units] == [(expected, rest)]


def test_restOfBegunRowIsNotForOthers():
    """An idle device does not take what is left of a row that another one has begun."""
    schedule = makeSchedule(1, 10, 2, keepWhole=True)
    schedule.next(0)
    schedule.failed(0, [Rectangle(0, 1, 0, 4)], (0, 4))
    assert schedule.next(1) is None
    assert schedule.next(0) is not None
    assert schedule.next(1) is None


def test_deviceSetAsideWhileItRuns():
    """Work that only a lost device was to take goes to the others, even if it fails afterwards."""
    schedule = makeSchedule(1, 3, 2)
    schedule.next(0)
    schedule.setAside(0)
    schedule.failed(0, [], (0, 0))
    done = [rectangleOf(unit) for _, unit in runAll(schedule, lambda device, unit: None)]
    assert sorted(cells(*done)) == cells(Rectangle(0, 1, 0, 3))


def test_deadPairThatWasMeasuredIsNotTakenOut():
    """A pair that the results hold cannot be the one that killed the client."""
    schedule = makeSchedule(2, 2, 1)
    unit = schedule.next(0)
    schedule.failed(0, [rectangleOf(unit)], (0, 0))
    done = [rectangleOf(unit)] + [rectangleOf(u) for _, u in runAll(schedule, lambda d, u: None)]
    assert sorted(cells(*done)) == cells(Rectangle(0, 2, 0, 2))


def test_stopHandsOutNothingAndKeepsTheRest():
    """After a stop what runs may end; the rest is left over, not lost."""
    schedule = makeSchedule(10, 2, 2)
    unit = schedule.next(0)
    schedule.stop()
    assert schedule.next(1) is None and not schedule.finished
    schedule.succeeded(0)
    assert schedule.finished
    assert sorted(cells(rectangleOf(unit), *schedule.leftOver)) == cells(Rectangle(0, 10, 0, 2))


def test_wrongCallsAreRefused():
    """Two units on one device, or the end of one that does not run, are the caller's mistakes."""
    schedule = makeSchedule(10, 2, 2)
    schedule.next(0)
    with pytest.raises(ValueError, match="already runs"):
        schedule.next(0)
    with pytest.raises(ValueError, match="no unit runs"):
        schedule.succeeded(1)
    with pytest.raises(ValueError, match="no unit runs"):
        schedule.failed(1, [])


def test_unitNumbersGoOn():
    """A resumed step numbers its units from where the journal ends."""
    schedule = Schedule([Rectangle(0, 4, 0, 1)], [0], FakeCost(), firstUnit=17)
    numbers = [unit.number for _, unit in runAll(schedule, lambda device, unit: None)]
    assert numbers == list(range(17, 17 + len(numbers)))


def test_largeTableIsNeverAListOfPairs():
    """100,000 problems x 10,000 solutions: what is kept is a few rectangles, never 10^9 pairs."""
    schedule = makeSchedule(100_000, 10_000, 8, EvenCost([1e-4], startSeconds=1.0))
    for turn in range(24):
        device = turn % 8
        if device in schedule.running:
            schedule.succeeded(device)
        assert schedule.next(device) is not None or not schedule.leftOver
        assert len(schedule.leftOver) <= turn + 2
        assert _reachable(schedule) < 1000
    for device in list(schedule.running):  # failures leave a few more rectangles each, and no more
        unit = schedule.running[device]
        half = Rectangle(unit.firstProblem, unit.problemCount // 2, 0, 10_000)
        schedule.failed(device, [half], (half.endProblem, 5000))
    assert len(schedule.leftOver) <= 26 + 4 * 8
    assert _reachable(schedule) < 2000


def _reachable(schedule):
    """How many objects the schedule's own state holds."""
    seen = set()
    todo = [vars(schedule)]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or sys.getsizeof(thing) == 0:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            todo += list(thing.keys()) + list(thing.values())
        elif isinstance(thing, (list, tuple, set)):
            todo += list(thing)
        elif hasattr(thing, "__dict__"):
            todo.append(vars(thing))
    return len(seen)


floors = st.lists(st.floats(0, 1e6), min_size=1, max_size=20)


@given(floors, st.floats(0, 1e6))
def test_waterLevelHoldsTheAmount(floors, amount):
    """What stands over the floors is the amount: all devices together get all that is left."""
    level = waterLevel(floors, amount)
    held = sum(max(0.0, level - floor) for floor in floors)
    assert held == pytest.approx(amount, rel=1e-6, abs=1e-6)


@given(floors, st.floats(0, 1e6), st.floats(0, 1e6))
def test_waterLevelRises(floors, amount, more):
    """With more to do nobody ends earlier; the order of the devices does not matter."""
    level = waterLevel(floors, amount)
    assert waterLevel(floors, amount + more) >= level * (1 - 1e-9)
    assert waterLevel(floors[::-1], amount) == level


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("problems, solutions, devices", [(1, 400, 8), (3, 400, 8), (2, 24, 4)])
def test_longRowsAreSplit(problems, solutions, devices, learned):
    """Fewer problems than devices: every device has a part at once, and each pair one unit."""
    cost = FakeCost([1.0], startSeconds=0.1, learned=learned)
    schedule = makeSchedule(problems, solutions, devices, cost)
    units = runAll(schedule, lambda device, unit: None)
    assert {device for device, _ in units[:devices]} == set(range(devices))
    done = cells(*(rectangleOf(unit) for _, unit in units))
    assert sorted(done) == cells(Rectangle(0, problems, 0, solutions))
    assert all(unit.problemCount == 1 for _, unit in units)
    assert max(unit.pairs for _, unit in units) < solutions


@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize("weights", [[1.0], [1.0, 1000.0, 1.0], [1e-3, 1e3]])
def test_keepWholeNeverSplits(devices, weights):
    """--keep-sizes-whole: all solutions of a problem are in one unit, however long it is."""
    cost = FakeCost(weights, startSeconds=0.1)
    schedule = makeSchedule(3, 40, devices, cost, keepWhole=True)
    units = runAll(schedule, lambda device, unit: None)
    assert all(unit.solutionCount == 40 for _, unit in units)


@pytest.mark.parametrize("devices", [2, 8])
def test_shortRowsAreNotSplit(devices):
    """Where every device has rows enough, or a start outweighs a row, nothing is split."""
    many = makeSchedule(200, 10, devices, FakeCost([1.0], startSeconds=0.1))
    short = makeSchedule(1, 10, devices, FakeCost([0.01], startSeconds=1.0))
    for schedule in (many, short):
        units = runAll(schedule, lambda device, unit: None)
        assert all(unit.solutionCount == 10 for _, unit in units)


def test_oneDeviceSplitsNothing():
    """A single device has nobody to share a row with."""
    schedule = makeSchedule(2, 100, 1, FakeCost([1.0, 5.0], startSeconds=0.1))
    units = runAll(schedule, lambda device, unit: None)
    assert all(unit.solutionCount == 100 for _, unit in units)


def test_giantIsSplitAndSmallOnesAreNot():
    """One size of 40 % of the whole is split; a row shorter than a few starts is not."""
    weights = [1.0] * 20 + [26.0] + [1.0] * 19
    schedule = makeSchedule(40, 100, 8, FakeCost(weights, startSeconds=30.0))
    units = [unit for _, unit in runAll(schedule, lambda device, unit: None)]
    giant = [u for u in units if u.firstProblem <= 20 <= u.lastProblem]
    assert len(giant) > 2 and all(u.problemCount == 1 for u in giant)
    others = [u for u in units if u not in giant]
    assert all(u.solutionCount == 100 for u in others)
    assert units[: len(giant)] == giant  # and it comes first


def test_begunRowIsEndedBeforeTheNext():
    """Of equally long rows one is finished before another is begun: its contest comes early."""
    schedule = makeSchedule(3, 100, 4, FakeCost([1.0], startSeconds=0.1))
    rows = [unit.firstProblem for _, unit in runAll(schedule, lambda device, unit: None)]
    assert [row for at, row in enumerate(rows) if row not in rows[:at]] == sorted(set(rows))
    assert rows == sorted(rows)


def test_partsAreNotSmallerThanAStart():
    """A part of a row is at least as long as the start of its client."""
    schedule = makeSchedule(1, 1000, 16, FakeCost([0.01], startSeconds=0.5))
    units = [unit for _, unit in runAll(schedule, lambda device, unit: None)]
    assert 1 < len(units) <= 16
    assert all(unit.pairs * 0.01 >= 0.5 for unit in units[:-1])


@pytest.mark.parametrize(
    "longest, devices, split", [(2.1, 16, True), (2.03, 16, False), (2.1, 4, False), (2.3, 4, True)]
)
def test_rowIsSplitForWhatItGains(longest, devices, split):
    """One long row: split where the others' waiting costs more than six starts and pairs, or much.

    Each device has about 40 s of work; a row of twenty pairs takes somewhat longer.
    """
    rest = [1.0] * round((40 * devices - 20 * longest) / 20)
    cost = FakeCost([longest, *rest], startSeconds=0.1)
    unit = makeSchedule(1 + len(rest), 20, devices, cost).next(0)
    assert unit.firstProblem == 0 and (unit.solutionCount < 20) == split


def test_oneOfManyLongRowsIsLeftWhole():
    """Nearly as many long rows as devices: splitting one alone helps nobody, all cost too much.

    Of 40 s each, where the level is 37.5 s; one such row beside short ones is worth it.
    """
    assert makeSchedule(22, 20, 16, FakeCost([2.0] * 14 + [0.25] * 8, 0.1)).next(0).pairs == 20
    assert makeSchedule(113, 20, 16, FakeCost([2.0] + [0.25] * 112, 0.1)).next(0).pairs < 20


def test_waitsForWhatStillRuns():
    """A device that others will soon join takes less than one whose neighbours are long busy."""

    def units(left):
        schedule = makeSchedule(400, 1, 2, FakeCost([1.0]))
        schedule.next(0, {})
        return schedule.next(1, {0: left}).pairs

    assert units(0.0) < units(1000.0)


def twoUnits(cost, problems=40, solutions=1, keepWhole=False):
    """(schedule, unit of device 0): device 0 runs all, device 1 is idle and finds nothing."""
    schedule = makeSchedule(problems, solutions, 2, cost, keepWhole)
    schedule._devices[1].setAside = True  # so that device 0 takes everything at once
    unit = schedule.next(0)
    schedule._devices[1].setAside = False
    assert unit.pairs == problems * solutions and schedule.next(1) is None
    return schedule, unit


def test_idleDeviceHasALongUnitShortened():
    """Nobody waits for another's long unit; its rest is free, and the idle device takes of it."""
    schedule, unit = twoUnits(FakeCost([1.0], startSeconds=0.5))
    assert schedule.tooLong({0: 30.0}, []) is None  # it has yet to measure its first pair
    assert schedule.tooLong({0: 30.0}, [0]) == 0
    schedule.succeeded(0, [Rectangle(0, 10, 0, 1)])
    assert cells(*schedule.leftOver) == cells(Rectangle(10, 30, 0, 1))
    assert schedule.next(1) is not None


def test_smallRestsAreNotShortened():
    """Where the rest costs less than what a new client would, it is left alone."""
    schedule, _ = twoUnits(FakeCost([1.0], startSeconds=5.0))
    assert schedule.tooLong({0: 17.0}, [0]) is None  # three times (a start and a pair): 18
    assert schedule.tooLong({0: 19.0}, [0]) == 0


def test_longUnitIsShortenedBeforeAnyoneIsIdle():
    """While all are busy, only a unit that was seen to be slow, and longer than a fair share."""
    schedule = makeSchedule(100, 1, 2, FakeCost([1.0], startSeconds=0.1))
    for device in (0, 1):
        schedule.next(device)
    assert schedule.leftOver
    assert schedule.tooLong({0: 500.0, 1: 1.0}, [1]) is None  # only a guess
    assert schedule.tooLong({0: 500.0, 1: 1.0}, [0]) == 0
    assert schedule.tooLong({0: 20.0, 1: 20.0}, [0, 1]) is None


def test_nothingIsShortenedAfterAStop():
    """What runs when the run is stopped may end."""
    schedule, _ = twoUnits(FakeCost([1.0]))
    schedule.stop()
    assert schedule.tooLong({0: 1e6}, [0]) is None


def test_wholeSingleRowIsNotShortened():
    """--keep-sizes-whole: a unit of one row cannot be cut, one of several can be."""
    one, _ = twoUnits(FakeCost([1.0]), problems=1, solutions=40, keepWhole=True)
    assert one.tooLong({0: 1e6}, [0]) is None
    several, _ = twoUnits(FakeCost([1.0]), problems=4, solutions=10, keepWhole=True)
    assert several.tooLong({0: 1e6}, [0]) == 0


def test_wholeRowStaysOnItsDeviceWhenShortened():
    """--keep-sizes-whole: the rest of the row that was begun is its device's, the others free."""
    schedule, _ = twoUnits(FakeCost([1.0]), problems=4, solutions=10, keepWhole=True)
    schedule.succeeded(0, [Rectangle(0, 1, 0, 10), Rectangle(1, 1, 0, 4)])
    other = schedule.next(1)
    assert other.firstProblem > 1 and other.solutionCount == 10
    again = schedule.next(0)
    assert rectangleOf(again) == Rectangle(1, 1, 4, 6)


def test_retimingIsForItsDeviceAlone():
    """Re-timings come before other work, on their own device, and are not shortened."""
    schedule = makeSchedule(1, 4, 2)
    runAll(schedule, lambda device, unit: None)
    assert schedule.finished
    schedule.retime(1, [Rectangle(0, 1, 2, 1)])
    assert not schedule.finished and schedule.isOpen(0) and schedule.leftOver == []
    assert schedule.next(0) is None
    unit = schedule.next(1)
    assert unit.retiming and rectangleOf(unit) == Rectangle(0, 1, 2, 1)
    assert schedule.tooLong({1: 1e6}, [1]) is None
    schedule.succeeded(1)
    assert schedule.finished and not schedule.isOpen(0)


def test_retimingThatFailsIsTriedThreeTimes():
    """It is then given up: nothing of the table is lost, and its device is not blamed."""
    schedule = makeSchedule(1, 4, 2)
    runAll(schedule, lambda device, unit: None)
    schedule.retime(1, [Rectangle(0, 1, 2, 2)])
    for turn in range(TRIES_PER_PAIR):
        unit = schedule.next(1)
        lost = schedule.failed(1, [])
        assert lost == ([Rectangle(0, 1, 2, 2)] if turn == TRIES_PER_PAIR - 1 else [])
        assert unit.retiming and unit.attempt == turn + 1
    assert schedule.finished and not schedule.givenUp and not schedule.suspicion(1)


def test_pairThatKillsItsRetimingCostsNoOther():
    """The pair is tried alone, three times in all; its neighbours are timed again all the same."""
    schedule = makeSchedule(1, 8, 2)
    runAll(schedule, lambda device, unit: None)
    schedule.retime(1, [Rectangle(0, 1, 2, 5)])
    again, lost = [], []
    while not schedule.finished:
        area = rectangleOf(schedule.next(1))
        if area.holds((0, 4)):
            lost += schedule.failed(1, [], (0, 4))
        else:
            again += cells(area)
            schedule.succeeded(1)
    assert sorted(again) == [(0, 2), (0, 3), (0, 5), (0, 6)]
    assert lost == [Rectangle(0, 1, 4, 1)]
    assert not schedule.givenUp and not schedule.suspicion(1)


def test_whoIsNotUpIsNotWaitedFor():
    """A pair that is to be tried elsewhere does not wait for a device that has no worker yet."""
    schedule = makeSchedule(1, 2, 2)
    schedule.setAway(1, True)
    for _ in range(2):
        schedule.next(0)
        schedule.failed(0, [], (0, 0))
    units = [schedule.next(0)]
    assert units[0] is not None
    assert set(schedule.waits({})) == {0}
    schedule.setAway(1, False)
    assert set(schedule.waits({})) == {0, 1}


def test_retimingsGoWithTheirDevice():
    """A device that is set aside takes its re-timings with it; it gets no new ones."""
    schedule = makeSchedule(1, 4, 2)
    runAll(schedule, lambda device, unit: None)
    schedule.retime(1, [Rectangle(0, 1, 2, 1)])
    schedule.setAside(1)
    assert schedule.finished
    schedule.retime(1, [Rectangle(0, 1, 2, 1)])
    assert schedule.finished and schedule.next(0) is None
