# SPDX-License-Identifier: MIT
"""How far a step is: what is told of devices and pairs, and how long it takes still."""

import json
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Tensile.Parallel.ClientOutput import LastLine, PairLine
from Tensile.Parallel.LoopTypes import AWAY, IDLE, LEFT, LOST, STARTING
from Tensile.Parallel.Progress import (
    LOCK_SECONDS,
    TELL_SECONDS,
    StepProgress,
    intoFile,
    placeOf,
)
from Tensile.Parallel.Remaining import MOST_WORK, Remaining
from Tensile.Parallel.Schedule import Rectangle, Schedule
from Tensile.Parallel.Types import (
    CRASHED,
    MEASURED,
    Device,
    Job,
    Outcome,
    Unit,
    UnitResult,
)

pytestmark = pytest.mark.unit

PROBLEMS, SOLUTIONS = 8, 6


class FlatCost:
    """Every pair takes as long as any other, and a start nothing, unless a test says otherwise."""

    startSeconds = 0.0
    learned = True

    def __init__(self, seconds=1.0, paces=None):
        self.seconds = seconds
        self.paces = paces or {}

    def pairSeconds(self, problem):
        return self.seconds

    def rectangleSeconds(self, first, count, solutions):
        return self.seconds * count * solutions

    def fixedSeconds(self, first, count):
        return self.startSeconds

    def paceOf(self, device):
        return self.paces.get(device, 1.0)


def makeJob(unit, device, whole=False, passes=1, written=None, firstColumn=0):
    names = tuple("kernel%d" % n for n in range(unit.firstSolution, unit.lastSolution + 1))
    return Job(
        unit,
        Device(device, str(device)),
        ("client",),
        "/nowhere",
        "gpu",
        unit.firstProblem if written is None else written,
        firstColumn,
        names,
        passes,
        "/",
        whole,
    )


def line(problem, solution, run=0, gflops=123.0, lastProblem=PROBLEMS - 1):
    last = SOLUTIONS - 1
    return PairLine(run, problem, lastProblem, solution, last, "k", "PASSED", 1.0, gflops)


class Told:
    """A step with a clock that the test sets, and what was told of it."""

    def __init__(self, devices=(0, 1), whole=False, tell=None, **more):
        config = SimpleNamespace(describeProblem=lambda index: "size%d" % index)
        table = SimpleNamespace(firstProblem=0, problemCount=PROBLEMS, solutionCount=SOLUTIONS)
        step = SimpleNamespace(
            config=config, table=table, folderName="T_00/00_Final", best=False, whole=whole
        )
        self.time = 1000.0
        self.done = 0
        self.told = []
        cost = self.cost = FlatCost()
        self.schedule = Schedule([Rectangle(0, PROBLEMS, 0, SOLUTIONS)], devices, cost)
        self.progress = StepProgress(
            step,
            "run",
            devices,
            self.schedule,
            cost,
            lambda: self.done,
            tell or (lambda told, new: self.told.append((told, new))),
            now=lambda: self.time,
            **more,
        )

    def tick(self, running=None, last=None, left=None, after=TELL_SECONDS):
        """Time passes; returns what was told last."""
        self.time += after
        self.progress.tick(running or {}, last or {}, left or {})
        return self.told[-1][0] if self.told else None

    def device(self, number=0):
        return self.told[-1][0]["devices"][number]


def ended(unit, device, kind=MEASURED):
    message = "" if kind == MEASURED else "it broke"
    return UnitResult(Outcome(unit, device, kind, 0, 10.0, 15.0, message), ())


def test_aNodesDevicesAreNamedAndComeAndGo():
    """One that the step did not begin with is told of from when it joins; none works for the
    remaining time while its node is gone. On one machine no node is told."""
    step = Told(nodeOf=lambda device: {"node": "a", "nodeOrdinal": 9 - device})
    step.schedule.addDevice(5)
    step.progress.changed(5, STARTING)
    before = step.tick()
    assert before["devices"][2]["state"] == "starting"
    step.progress.changed(5, AWAY)
    step.progress.changed(0, LEFT)
    step.schedule.setAside(0)
    step.tick()
    states = [
        (each["device"], each["nodeOrdinal"], each["state"]) for each in step.told[-1][0]["devices"]
    ]
    assert states == [(0, 9, "left"), (1, 8, "starting"), (5, 4, "away")]
    for _ in range(5):  # the median of so many is told
        after = step.tick()
    assert after["step"]["secondsLeft"] > 1.5 * before["step"]["secondsLeft"]
    alone = Told()
    alone.tick()
    assert "node" not in alone.device()


def test_whatADeviceDoesIsTold():
    """Starting, running with its place and last speed, idle, lost; since when; what it has done."""
    step = Told()
    assert step.tick()["devices"][0]["state"] == "starting"
    step.progress.changed(0, IDLE)
    step.progress.changed(1, LOST)
    unit = Unit(3, 2, 2, 0, SOLUTIONS)
    job = makeJob(unit, 0)
    step.time += 1
    step.progress.began(0, job)
    step.tick({0: job}, {0: LastLine(line(2, 3), step.time)})
    entry = step.device()
    assert (entry["state"], entry["unit"], entry["problem"], entry["size"]) == (
        "running",
        3,
        2,
        "size2",
    )
    # Four of its six solutions are done: it is at the fifth.
    assert (entry["solution"], entry["ofSolutions"], entry["name"]) == (5, 6, "kernel4")
    assert (entry["gflops"], entry["since"]) == (123.0, 1002.0)
    assert step.device(1)["state"] == "lost"
    assert step.told[-1][0]["step"]["pairs"]["done"] == 4
    step.progress.ended(0, ended(unit, 0, CRASHED), 1)
    step.tick()
    assert (step.device()["state"], step.device()["failures"]) == ("idle", 1)
    told = step.told[-1][0]["step"]
    assert (told["units"], told["pairs"]["failed"]) == ({"done": 1, "failed": 1}, 1)


def test_aRowThatEndsLeadsToTheNext():
    """After a problem's last solution the client is at the next problem's first."""
    unit = Unit(0, 2, 3, 0, SOLUTIONS)
    job = makeJob(unit, 0)
    assert placeOf(job, line(2, 5))[:4] == (2, 3, 1, 6)
    assert placeOf(job, line(4, 5))[:4] == (3, 3, 6, 6)
    assert placeOf(job, None)[:4] == (1, 3, 1, 6)


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 5),
    st.booleans(),
    st.integers(1, 3),
    st.integers(0, 4),
)
def test_aPlaceLiesInsideItsUnit(problem, solution, run, whole, passes, written):
    """Whatever a client prints, it is at one of its own pairs, or nothing is said of it."""
    unit = Unit(0, 3, 4, 1, 3)
    job = makeJob(unit, 0, whole, passes, written)
    place = placeOf(job, line(problem, solution, min(run, passes - 1), lastProblem=problem))
    if place is None:
        return
    assert 1 <= place.problem <= place.problems and 1 <= place.solution <= place.solutions
    assert 0 < place.donePairs <= (1 if whole else unit.pairs) + 1e-9


def test_itIsToldAtMostOnceASecond():
    """However often the loop wakes up; and what is not new is marked so."""
    step = Told()
    step.cost.learned = False
    step.tick()
    for _ in range(9):
        step.tick(after=TELL_SECONDS / 10)
    assert len(step.told) == 1
    step.tick(after=TELL_SECONDS)
    assert [new for _, new in step.told] == [True, False]
    step.progress.changed(0, IDLE)
    step.tick()
    assert step.told[-1][1]


def test_theFileIsWrittenOnlyForNews(tmp_path):
    """A run that waits for hours writes nothing; a full disk is no error."""
    path = tmp_path / "progress.json"
    tell = intoFile(path)
    tell({"a": 1}, True)
    tell({"a": 2}, False)
    assert json.loads(path.read_text()) == {"a": 1}
    intoFile(tmp_path / "none" / "progress.json")({"a": 1}, True)


def test_whoHoldsTheLockIsTold():
    """A worker that is not ready for long waits for its device; its holder is asked for rarely."""
    asked = []

    def holder(device):
        asked.append(device)
        return "process 814"

    step = Told(holderOf=holder)
    step.tick(after=LOCK_SECONDS / 2)
    assert not asked and step.device()["state"] == "starting"
    for _ in range(10):
        step.tick(after=LOCK_SECONDS / 5)
    assert (step.device()["state"], step.device()["holder"]) == ("waiting", "process 814")
    assert len(asked) <= 4
    step.progress.changed(0, IDLE)
    step.tick()
    assert "holder" not in step.device()


def test_manyUnitsCostNoMoreThanFew():
    """What is told of a step does not grow with the units that have ended."""
    sizes = []
    step = Told()
    for number in range(10000):
        unit = Unit(number, 0, 1, 0, 1)
        step.progress.began(0, makeJob(unit, 0))
        step.progress.ended(0, ended(unit, 0), 0)
        step.tick()
        sizes.append(len(json.dumps(step.told.pop()[0])))
    assert sizes[-1] < sizes[10] + 50
    assert not any(
        isinstance(value, (list, dict)) and len(value) > 100
        for value in vars(step.progress).values()
    )


def test_speedsThatAreNoneAreNotTold():
    """nan and overflows are no numbers for a person, and nan is none in JSON."""
    step = Told()
    unit = Unit(0, 0, 1, 0, SOLUTIONS)
    for gflops in (math.nan, math.inf, 0.0, 9.3e18):
        job = makeJob(unit, 0)
        step.progress.began(0, job)
        told = step.tick({0: job}, {0: LastLine(line(0, 1, gflops=gflops), step.time)})
        assert told["devices"][0]["gflops"] is None
        json.dumps(told, allow_nan=False)


def test_aWholeStepIsTold():
    """Of a step that goes whole to one device, its client's own counts are all that is known."""
    step = Told(devices=(0,), whole=True)
    job = makeJob(Unit(0, 0, 1, 0, 1), 0, whole=True)
    step.progress.began(0, job)
    told = step.tick({0: job}, {0: LastLine(line(3, 5), step.time)})
    assert told["devices"][0]["problem"] == 4
    assert told["step"]["pairs"]["done"] == PROBLEMS * SOLUTIONS // 2
    assert told["step"]["secondsLeft"] is None


def remaining(cost, devices, running, free=(), ready=None, **more):
    schedule = Schedule(list(free), devices, cost)
    return Remaining(schedule, cost).seconds(running, devices if ready is None else ready, **more)


def test_whatIsLeftIsSharedByTheDevicesThatAreThere():
    """Their pace counts; without any, or before anything was measured, nothing is known."""
    free = [Rectangle(0, 40, 0, 1)]
    cost = FlatCost()
    assert remaining(cost, (0, 1), {}, free) == pytest.approx(20.0)
    assert remaining(cost, (0, 1), {0: 10.0, 1: 0.0}, free) == pytest.approx(25.0)
    assert remaining(cost, (0, 1), {}, free, ready=[1]) == pytest.approx(40.0)
    slow = FlatCost(paces={1: 3.0})
    assert remaining(slow, (0, 1), {}, free) == pytest.approx(30.0)
    assert remaining(cost, (0, 1), {}, free, ready=[]) is None
    cost.learned = False
    assert remaining(cost, (0, 1), {}, free) is None


@given(
    st.lists(st.floats(0, 1e4), min_size=1, max_size=6),
    st.integers(0, 50),
    st.floats(0.0, 10.0),
)
def test_neverLessThanTheLongestUnitsRest(rests, problems, end):
    """Nobody can be done before the unit that runs longest, nor before a fair share of all."""
    cost = FlatCost()
    running = dict(enumerate(rests))
    free = [Rectangle(0, problems, 0, 2)] if problems else []
    seconds = remaining(cost, list(running), running, free, end=end)
    whole = sum(rests) + 2 * problems
    assert seconds >= max(rests) + end - 1e-6
    assert whole / len(rests) - 1e-6 <= seconds - end <= whole + 1e-6


def test_startsAreCounted():
    """Each unit to come costs a start, and what units took beside their clients so far."""
    cost = FlatCost()
    cost.startSeconds = 2.0
    free = [Rectangle(0, 20, 0, 1)]
    assert remaining(cost, [0], {0: 5.0}, free) == pytest.approx(27.0)
    assert remaining(cost, [0], {0: 5.0}, free, perUnit=1.0) == pytest.approx(28.0)


@pytest.mark.parametrize("contenders, timed", [(0.0, 0), (0.4, 0), (0.6, 1), (2.0, 2)])
def test_theDecisionOfASplitRowIsCounted(contenders, timed):
    """Its contenders are timed one after the other, on one device, when all of it is measured; a
    part of one is never timed."""
    cost = FlatCost()
    schedule = Schedule([Rectangle(0, 1, 0, 20)], [0, 1], cost)
    left = Remaining(schedule, cost, lambda problem: contenders)
    for device in (0, 1):
        assert schedule.next(device).solutionCount == 10
    assert left.seconds({0: 10.0, 1: 8.0}, [0, 1]) == pytest.approx(10.0 + timed)


def test_aLongListIsReckoned():
    """Of very many problems nothing is run ahead: that would cost more than it tells."""
    cost = FlatCost()
    free = [Rectangle(0, MOST_WORK, 0, 2)]
    assert remaining(cost, (0, 1), {0: 10.0}, free) == pytest.approx(MOST_WORK + 5.0)


def test_whatIsRunAheadLeavesTheScheduleAlone():
    """Nothing that is told hands anything out."""
    cost = FlatCost()
    schedule = Schedule([Rectangle(0, 30, 0, 4)], [0, 1], cost)
    left = Remaining(schedule, cost)
    unit = schedule.next(0)
    before = (schedule.running, schedule.waiting)
    left.seconds({0: 5.0}, [0, 1])
    assert before == (schedule.running, schedule.waiting) and schedule.running == {0: unit}


def test_rowsThatAreKeptWholeAreNotDecided():
    """The rest of a row that stays on its device is timed once."""
    cost = FlatCost()
    rest = (Rectangle(0, 1, 10, 10), 0)
    schedule = Schedule([Rectangle(1, 1, 0, 20)], [0], cost, keepWhole=True, begun=[rest])
    left = Remaining(schedule, cost, lambda problem: 100.0)
    assert left.seconds({}, [0]) == pytest.approx(30.0)
