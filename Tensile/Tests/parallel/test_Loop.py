# SPDX-License-Identifier: MIT
"""The loop with fake workers: every kind of end, at every place where it can come."""

import os
import time
from concurrent.futures import Future
from dataclasses import replace

import pytest

from Tensile.Parallel import Loop as LoopModule
from Tensile.Parallel.ClientOutput import LastLine, PairLine
from Tensile.Parallel.Contest import Contests, relativeSpeeds
from Tensile.Parallel.Errors import RunError, WayLost
from Tensile.Parallel.Loop import STARTS_PER_WORKER, Loop, describe
from Tensile.Parallel.LoopTypes import Observer
from Tensile.Parallel.Schedule import (
    FAILURES_PER_DEVICE,
    Rectangle,
    Schedule,
    rectangleOf,
    subtract,
)
from Tensile.Parallel.Types import (
    CRASHED,
    FAILED,
    HUNG,
    MEASURED,
    Device,
    Job,
    Outcome,
    Piece,
    Unit,
    UnitResult,
    WarmUp,
)
from Tensile.Parallel.Worker import WorkerFacts

pytestmark = pytest.mark.unit


class FakeCost:
    """Every pair takes as long as any other; remembers what it was told."""

    def __init__(self, seconds=1.0):
        self.seconds = seconds
        self.startSeconds = 0.0
        self.observed = []
        self.starts = []

    def pairSeconds(self, problem):
        return self.seconds

    def rectangleSeconds(self, first, count, solutions):
        return self.seconds * count * solutions

    def fixedSeconds(self, first, count):
        return self.startSeconds

    learned = True

    def paceOf(self, device):
        return 1.0

    def watch(self, progress):
        pass

    def observe(self, *what):
        self.observed.append(what)

    def observeStart(self, *what):
        self.starts.append(what)


class FakeWorker:
    """A worker whose futures end as the test's script says, at once."""

    def __init__(self, ordinal, script):
        self.device = Device(ordinal, str(ordinal))
        self.script = script
        self.starts = 0
        self.jobs = []
        self.shortened = []
        self.pending = None
        self.state = "new"

    def start(self):
        self.starts += 1
        self.state = "up"
        return _future(self.script.start(self.device.ordinal, self.starts))

    def submit(self, job):
        assert self.state == "up"
        self.jobs.append(job)
        end = self.script.unit(self.device.ordinal, job.unit)
        if isinstance(end, _Refused):
            raise end.error
        self.pending = _future(None if end is RUNS else end)
        return self.pending

    def shorten(self, job):
        assert job is self.jobs[-1]
        if self.pending.done():
            return  # too late: it has ended by itself
        self.shortened.append(job.unit)
        self.pending.set_result(self.script.shorten(self.device.ordinal, job.unit))

    def kill(self):
        self.state = "killed"

    def close(self):
        self.state = "closed" if self.state == "up" else self.state


RUNS = object()  # the end of a unit that goes on until it is shortened


class _Refused:
    """In place of a future: submit() itself raises, because the executor is broken."""

    def __init__(self, error):
        self.error = error


def _future(end):
    future = Future()
    if end is None:
        return future  # never ends
    if isinstance(end, BaseException):
        future.set_exception(end)
    else:
        future.set_result(end)
    return future


class Script:
    """What happens: every start works and every unit is measured, unless a test says otherwise."""

    def __init__(self, start=None, unit=None, shorten=None):
        self.shorten = shorten
        self.start = start or (lambda device, number: WorkerFacts(1000 + device, ""))
        self._unit = unit or (lambda device, unit: None)

    def unit(self, device, unit):
        end = self._unit(device, unit)
        return measured(device, unit) if end is None else end


def measured(device, unit, startSeconds=1.0):
    outcome = Outcome(unit, device, MEASURED, 0, 10.0, 15.0)
    whole = piece(device, unit, unit.firstProblem, unit.problemCount, unit.solutionCount)
    return UnitResult(outcome, (whole,), startSeconds=startSeconds)


def piece(device, unit, first, count, solutions):
    return Piece(
        "unit_%d.csv" % unit.number,
        first,
        count,
        unit.firstSolution,
        solutions,
        device,
        unit.number,
        first,
        unit.firstSolution,
        solutions,
    )


def broken(device, unit, kind=CRASHED, pair=None, pieces=()):
    outcome = Outcome(unit, device, kind, 139, 10.0, 11.0, message="it broke", lastPair=pair)
    return UnitResult(outcome, tuple(pieces), tail="first\nlast words")


class OnTick(Observer):
    """Calls a test's function with what runs, at every tick."""

    def __init__(self, function):
        self.function = function

    def tick(self, running, last, secondsLeft):
        self.function(dict(running))


class Run:
    """A loop over a table, with its script, and what it left."""

    def __init__(
        self,
        script,
        devices=2,
        problems=8,
        solutions=3,
        onResult=None,
        seconds=1.0,
        baseline=None,
        begun=(),
        onTick=lambda running: None,
        **more,
    ):
        self.observer = OnTick(onTick)
        self.cost = FakeCost(seconds)
        free = [Rectangle(0, problems, 0, solutions)]
        for rest, _ in begun:
            free = [left for whole in free for left in subtract(whole, rest)]
        self.schedule = Schedule(free, range(devices), self.cost, baseline=baseline, begun=begun)
        self.table = {(p, s) for p in range(problems) for s in range(solutions)}
        self.workers = [FakeWorker(n, script) for n in range(devices)]
        self.journal = []
        self.loop = Loop(
            self.schedule,
            self.cost,
            self.workers,
            self.makeJob,
            onResult or self.journal.append,
            observer=self.observer,
            **more,
        )

    @staticmethod
    def makeJob(unit, device):
        names = tuple("s%d" % n for n in range(unit.firstSolution, unit.lastSolution + 1))
        return Job(unit, device, ("client",), "/nowhere", "gpu", 0, 0, names, 1, "/")

    def run(self):
        result = self.loop.run()
        assert self.accounted(result) == sorted(self.table), "a pair is lost, or there twice"
        assert all(worker.state in ("closed", "killed", "new") for worker in self.workers)
        assert not self.schedule.running
        assert self.journal == result.results
        return result

    def accounted(self, result):
        areas = [
            Rectangle(p.firstProblem, p.problemCount, p.firstSolution, p.solutionCount)
            for one in result.results
            for p in one.pieces
            if not one.outcome.unit.extra
        ]
        areas += [lost.rectangle for lost in result.lost] + result.leftOver
        return sorted(
            (p, s)
            for area in areas
            for p in range(area.firstProblem, area.endProblem)
            for s in range(area.firstSolution, area.endSolution)
        )


@pytest.fixture(autouse=True)
def _noWaiting(monkeypatch):
    """Nothing here waits for time to pass."""
    monkeypatch.setattr(LoopModule, "TICK_SECONDS", 0.01)


def test_everythingIsMeasured():
    """The good case: nothing lost, no notes, all workers closed, all devices used."""
    run = Run(Script(), devices=3)
    result = run.run()
    assert not (result.lost or result.leftOver or result.notes or result.devicesLost)
    assert all(worker.state == "closed" and worker.jobs for worker in run.workers)


def test_learnsFromMeasuredUnitsOnly():
    """Cost hears of the pairs' time without the start; not of failures or unknown starts."""

    def unit(device, unit):
        if unit.number == 0:
            return broken(device, unit)
        if unit.number == 1:
            return measured(device, unit, startSeconds=None)
        return None

    run = Run(Script(unit=unit))
    result = run.run()
    known = [r for r in result.results if r.outcome.kind == MEASURED and r.startSeconds]
    assert len(run.cost.observed) == len(run.cost.starts) == len(known) > 0
    assert all(seconds == 4.0 for *_, seconds, device in run.cost.observed)
    assert all(seconds == 1.0 for *_, seconds in run.cost.starts)


def test_finishedScheduleStartsNobody():
    """Nothing to do: no worker is started."""
    run = Run(Script(), problems=8)
    run.schedule.stop()
    run.loop.run()
    assert all(worker.starts == 0 for worker in run.workers)


@pytest.mark.parametrize("error", [OSError("no memory"), RuntimeError(""), MemoryError()])
def test_startThatFailsAlways(error):
    """A worker that never comes up is tried a bounded number of times; the others do its work."""

    def start(device, number):
        return error if device == 1 else WorkerFacts(1, "")

    run = Run(Script(start=start))
    result = run.run()
    assert run.workers[1].starts == STARTS_PER_WORKER
    assert result.devicesLost == [1] and not result.leftOver and not result.lost
    assert any("device 1" in note and "died" in note for note in result.notes)


@pytest.mark.parametrize(
    "error, said",
    [
        (OSError("not yet"), "OSError: not yet"),
        (WayLost("node a: its worker is gone"), "node a: its worker is gone"),
    ],
)
def test_startThatFailsOnce(error, said):
    """A worker that does not come up at first is started again and used; why is told, without the
    names of our own errors."""

    def start(device, number):
        return error if number == 1 else WorkerFacts(1, "")

    run = Run(Script(start=start), problems=30)
    result = run.run()
    assert result.devicesLost == [] and all(worker.jobs for worker in run.workers)
    assert sum(note.endswith("did not come up: " + said) for note in result.notes) == 2


def test_startThatCannotBeTried():
    """loky itself raises (no descriptors): the device is set aside, the run goes on."""
    run = Run(Script())

    def start():
        raise OSError("Too many open files")

    run.workers[0].start = start
    result = run.run()
    assert result.devicesLost == [0] and not result.leftOver
    assert any("Too many open files" in note for note in result.notes)


def test_startThatIsRefused():
    """A RunError (locked by another run, wrong pin) is told as it is, and not tried again."""

    def start(device, number):
        return RunError("device 0 is in use by somebody") if device == 0 else WorkerFacts(1, "")

    run = Run(Script(start=start))
    result = run.run()
    assert run.workers[0].starts == 1 and result.devicesLost == [0]
    assert any("in use by somebody" in note for note in result.notes)


def test_noDeviceAtAll():
    """Nobody comes up: the run ends, and everything is left over."""
    run = Run(Script(start=lambda device, number: RunError("no")), devices=3)
    result = run.run()
    assert sorted(result.devicesLost) == [0, 1, 2] and not result.results
    assert sum(area.pairs for area in result.leftOver) == len(run.table)


def test_deviceThatIsWaitedFor():
    """A device that another run still holds does not keep this run from ending."""

    def start(device, number):
        return None if device == 1 else WorkerFacts(1, "")

    run = Run(Script(start=start))
    result = run.run()
    assert not result.leftOver and not result.lost and result.devicesLost == []
    assert run.workers[1].state == "killed"  # it still waited; nobody to be polite to


REST = Rectangle(7, 1, 1, 2)  # of the last row; device 1 has begun it


def _ring(unit=None):
    """A run whose device 1 comes up only when device 0 was given up: another run waits for it."""
    held = Future()
    run = Run(Script(unit=unit), begun=[(REST, 1)])
    start, close = run.workers[1].start, run.workers[0].close

    def startLate():
        start()
        return held

    def closeAndFree():
        close()
        if not held.done():
            held.set_result(WorkerFacts(1, ""))

    run.workers[1].start, run.workers[0].close = startLate, closeAndFree
    run.observer.function = _Limit(400)
    return run


class _Limit:
    """Ends a loop that goes on without end."""

    def __init__(self, ticks):
        self.left = ticks

    def __call__(self, running):
        self.left -= 1
        assert self.left, "the loop hangs"


def test_nobodyHoldsADeviceWhileOnlyWaiting():
    """Two runs in a ring: what is left is for a device that another run holds, and that one may
    wait for ours. A device without work is given up, so neither waits for ever."""
    run = _ring()
    result = run.run()
    assert not result.leftOver and not result.lost and not result.devicesLost
    assert [rectangleOf(job.unit) for job in run.workers[1].jobs] == [REST]
    assert run.workers[0].starts == 0, "it was given up, and nothing was left for it"


def test_aDeviceThatWasGivenUpIsTakenAgain():
    """When there is something for it after all; having been given up is no death of its worker."""
    pair = (REST.firstProblem, REST.firstSolution)
    deaths = []

    def unit(device, unit):
        if device == 1 and rectangleOf(unit).holds(pair):
            deaths.append(device)
            return broken(device, unit, pair=pair)
        return None

    run = _ring(unit)
    result = run.run()
    assert deaths == [1, 1] and not result.lost and not result.devicesLost
    units = [rectangleOf(job.unit) for job in run.workers[0].jobs]
    assert Rectangle(*pair[:1], 1, pair[1], 1) in units
    assert run.workers[0].starts == 1


def test_noteOfTheLockIsHandedOn():
    """What a lock does not cover is said once a device."""
    run = Run(Script(start=lambda device, number: WorkerFacts(1, "not excluded: %d" % device)))
    assert sorted(run.run().notes) == ["not excluded: 0", "not excluded: 1"]


@pytest.mark.parametrize("refused", [False, True], ids=["under a unit", "while idle"])
@pytest.mark.parametrize("devices", [1, 2])
def test_workerDies(devices, refused):
    """A worker that vanishes costs its unit a try and nothing else; it is replaced."""
    error = RuntimeError("A worker process managed by the executor was terminated\nmore")

    def unit(device, unit):
        if unit.number == 0:
            return _Refused(error) if refused else error
        return None

    run = Run(Script(unit=unit), devices=devices)
    result = run.run()
    assert not (result.lost or result.leftOver or result.devicesLost)
    assert sorted(worker.starts for worker in run.workers)[-1] == 2
    first = next(one.outcome for one in result.results if one.outcome.unit.number == 0)
    assert first.kind == CRASHED and first.exitStatus is None
    assert "the worker died" in first.message and "\n" not in first.message
    assert len([note for note in result.notes if "the worker died" in note]) == 1


def test_workerDiesAgainAndAgain():
    """A device whose worker dies under every unit is set aside; the other one does the work."""

    def unit(device, unit):
        return RuntimeError("gone") if device == 1 else None

    run = Run(Script(unit=unit), problems=60)
    result = run.run()
    assert result.devicesLost == [1] and not result.lost and not result.leftOver
    assert run.workers[1].starts <= STARTS_PER_WORKER


def test_workersDieEverywhere():
    """All devices' workers die under every unit: it ends, and nothing is lost silently."""
    run = Run(Script(unit=lambda device, unit: RuntimeError("gone")), problems=60)
    result = run.run()
    assert result.devicesLost and sorted(result.devicesLost) == [0, 1]
    assert sum(area.pairs for area in result.leftOver) > 0


KINDS = [CRASHED, HUNG, FAILED]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_pairThatKills(kind, devices):
    """A named pair: its neighbours are measured, it alone is lost, with how and where."""
    killer = (3, 1)

    def unit(device, unit):
        rows = range(unit.firstProblem, unit.lastProblem + 1)
        columns = range(unit.firstSolution, unit.lastSolution + 1)
        if killer[0] not in rows or killer[1] not in columns:
            return None
        done = [piece(device, unit, unit.firstProblem, killer[0] - unit.firstProblem, len(columns))]
        done += [piece(device, unit, killer[0], 1, killer[1] - unit.firstSolution)]
        done = [one for one in done if one.problemCount and one.solutionCount]
        return broken(device, unit, kind, killer, done)

    result = Run(Script(unit=unit), devices=devices).run()
    assert [lost.rectangle for lost in result.lost] == [Rectangle(3, 1, 1, 1)]
    lost = result.lost[0]
    assert (lost.kind, lost.message, lost.tail) == (kind, "it broke", "first\nlast words")
    assert not result.leftOver and not result.devicesLost


@pytest.mark.parametrize("kind", KINDS)
def test_unitFailsOnce(kind):
    """A unit that ends early without anybody knowing why is measured at its next try."""

    def unit(device, unit):
        return broken(device, unit, kind) if unit.number == 0 else None

    result = Run(Script(unit=unit)).run()
    assert not (result.lost or result.leftOver or result.devicesLost)
    assert [one.outcome.kind for one in result.results].count(kind) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_problemThatAlwaysFails(kind):
    """A problem that no client can bear: its row alone is lost, after several tries."""

    def unit(device, unit):
        hit = unit.firstProblem <= 5 <= unit.lastProblem
        return broken(device, unit, kind) if hit else None

    result = Run(Script(unit=unit)).run()
    assert [lost.rectangle for lost in result.lost] == [Rectangle(5, 1, 0, 3)]
    assert not result.leftOver and not result.devicesLost


def test_deviceThatFailsWhereOthersDoNot():
    """Its failed units go well elsewhere: it is set aside, and that is said."""

    def unit(device, unit):
        return broken(device, unit) if device == 1 else None

    result = Run(Script(unit=unit), devices=3, problems=60).run()
    assert result.devicesLost == [1] and not result.lost and not result.leftOver
    assert any("device 1 is set aside" in note and "2 left" in note for note in result.notes)


def test_nothingWorksAnywhere():
    """Every unit fails on every device: a bounded number of tries, the rest is left over."""
    run = Run(Script(unit=lambda device, unit: broken(device, unit)), devices=2, problems=100)
    result = run.run()
    assert sorted(result.devicesLost) == [0, 1]
    assert sum(len(worker.jobs) for worker in run.workers) <= 2 * (FAILURES_PER_DEVICE + 1)
    assert sum(area.pairs for area in result.leftOver) > 200


def test_stopLetsWhatRunsEnd():
    """After stop() nothing is handed out; what ran is kept, the rest is left over."""
    run = Run(Script(), problems=50)
    run.loop._onResult = lambda result: (run.journal.append(result), run.loop.stop())
    result = run.run()
    assert 1 <= len(result.results) <= 2
    assert sum(area.pairs for area in result.leftOver) > 0


def test_resultThatEndsTheStep():
    """exit-on-error: a result can end the whole step."""
    run = Run(Script(), problems=50, shouldStop=lambda result: result.outcome.unit.number == 1)
    result = run.run()
    assert len(result.results) <= 3 and result.leftOver


def test_resultThatEndsTheStepEndsTheOthers():
    """exit-on-error: what runs on other devices is ended, and what it had finished is kept."""

    def unit(device, unit):
        return RUNS if unit.number == 0 else None

    script = Script(unit=unit, shorten=lambda device, unit: shortened(device, unit, 1))
    run = Run(script, problems=50, shouldStop=lambda r: r.outcome.unit.number == 1)
    result = run.run()
    assert [unit.number for unit in run.workers[0].shortened] == [0]
    assert len(result.results) == 2 and result.leftOver


def test_journalledBeforeItCounts():
    """A result counts only once it is journalled: a failing journal ends all processes."""

    def full(result):
        raise OSError("No space left on device")

    run = Run(Script(), onResult=full)
    with pytest.raises(OSError, match="No space"):
        run.loop.run()
    assert all(worker.state == "killed" for worker in run.workers)
    assert run.loop.result.results == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), ValueError("a bug")])
def test_nobodyIsLeftWhateverEndsIt(error):
    """Ctrl-C, an exit, a bug: all workers are killed and the error goes on."""

    def tick(running):
        raise error

    run = Run(Script(), onTick=tick)
    with pytest.raises(type(error)):
        run.loop.run()
    assert all(worker.state == "killed" for worker in run.workers)


def test_ticksTellWhatRuns():
    """Progress sees the jobs that run, by device."""
    seen = []
    run = Run(Script(), onTick=seen.append)
    run.run()
    assert all(set(running) <= {0, 1} for running in seen)
    assert any(running for running in seen)


def atMost(ticks):
    """An onTick that fails where a run goes on for ever."""
    seen = []

    def tick(running):
        seen.append(running)
        assert len(seen) < ticks, "it does not end: %r runs" % sorted(running)

    return tick


def shortened(device, unit, pairs):
    """The result of a unit that was ended after this many pairs."""
    rows, rest = divmod(pairs, unit.solutionCount)
    pieces = [piece(device, unit, unit.firstProblem, rows, unit.solutionCount)] if rows else []
    pieces += [piece(device, unit, unit.firstProblem + rows, 1, rest)] if rest else []
    outcome = Outcome(unit, device, MEASURED, 143, 10.0, 15.0)
    return UnitResult(outcome, tuple(pieces), startSeconds=1.0, shortened=True)


@pytest.fixture
def firstPairsDone(monkeypatch):
    """The log of every unit that runs tells of its first pair."""
    pair = PairLine(0, 0, 0, 0, 0, "s0", "PASSED", 1.0, 1.0)
    monkeypatch.setattr(LoopModule, "lastLine", lambda path: LastLine(pair, time.time()))


@pytest.mark.parametrize("pairs", [0, 1, 3, 4])
def test_shortenedUnitsRestGoesToAnother(firstPairsDone, pairs):
    """A unit that all wait for is shortened once; what it did counts, another does of the rest."""

    def unit(device, unit):
        return RUNS if unit.number == 0 else None

    script = Script(unit=unit, shorten=lambda device, unit: shortened(device, unit, pairs))
    # Pairs of a day: no time that passes here matters.
    run = Run(script, problems=12, seconds=86400.0, onTick=atMost(500))
    result = run.run()
    first = run.workers[0].shortened
    assert [unit.number for unit in first] == [0] and run.workers[1].shortened == []
    assert not (result.lost or result.leftOver or result.notes or result.devicesLost)
    rows = range(first[0].firstProblem, first[0].lastProblem + 1)
    others = [job.unit for job in run.workers[1].jobs]
    assert any(u.firstProblem in rows or u.lastProblem in rows for u in others)
    cut = [one for one in result.results if one.shortened]
    assert [one.outcome.kind for one in cut] == [MEASURED]


def test_unitWithoutProgressIsLeftAlone():
    """A client that has measured nothing is not ended early: that could go on for ever."""
    asked = []

    def tick(running):
        asked.append(running)
        if len(asked) == 50:
            run.workers[0].pending.set_result(measured(0, run.workers[0].jobs[-1].unit))

    def unit(device, unit):
        return RUNS if unit.number == 0 else None

    run = Run(Script(unit=unit), problems=12, seconds=86400.0, onTick=tick)
    result = run.run()
    assert run.workers[0].shortened == [] and not result.leftOver


def test_learnsFromAShortenedRow(firstPairsDone):
    """A row that was ended early tells what its pairs take, the lost one counted as half."""

    def unit(device, unit):
        return RUNS if unit.number == 0 else None

    script = Script(unit=unit, shorten=lambda device, unit: shortened(device, unit, 4))
    run = Run(script, problems=1, solutions=40, seconds=86400.0, onTick=atMost(500))
    run.run()
    unit = run.workers[0].shortened[0]
    told = [what for what in run.cost.observed if what[2] == 4]
    assert told == [(unit.firstProblem, 1, 4, pytest.approx(4.0 * 4 / 4.5), 0)]


def test_stopRequestThatComesTooLate(firstPairsDone):
    """A unit that ends before it could be shortened is measured whole."""

    def unit(device, unit):
        return RUNS if unit.number == 0 else None

    run = Run(Script(unit=unit, shorten=measured), problems=12, seconds=86400.0, onTick=atMost(500))
    result = run.run()
    assert len(run.workers[0].shortened) == 1
    assert not (result.lost or result.leftOver)


class SplitRun(Run):
    """A split problem on devices that differ by fixed factors."""

    def __init__(self, script, factors=(1.0, 0.97, 1.05), solutions=60, **more):
        self.factors = factors
        self.speeds = [100.0 + (7 * n) % solutions / 10 for n in range(solutions)]
        self.contests = Contests(solutions, self.read)
        more.update(problems=1, solutions=solutions, contests=self.contests)
        super().__init__(script, devices=len(factors), onTick=atMost(500), **more)

    def read(self, measured, problem):
        ends = range(measured.firstSolution, measured.firstSolution + measured.solutionCount)
        return [self.speeds[s] * self.factors[measured.device] for s in ends]

    def winner(self, result):
        """The row's greatest cell, later pieces in place of earlier ones."""
        cells = {}
        for one in result.results:
            for made in one.pieces:
                if not one.outcome.unit.baseline:
                    cells.update(enumerate(self.read(made, 0), made.firstSolution))
        return max(cells, key=lambda s: cells[s])

    @property
    def best(self):
        return max(range(len(self.speeds)), key=lambda s: self.speeds[s])


def retimings(result):
    return [one.outcome for one in result.results if one.outcome.unit.retiming]


@pytest.mark.parametrize("factors", [(1.0, 0.97, 1.05), (0.93, 1.05), (1.05, 1.0, 0.97, 0.93)])
def test_contendersAreTimedAtHome(factors):
    """Rule 3: all re-timings of a row run on one device, and its winner is a single device's."""
    run = SplitRun(Script(), factors)
    result = run.run()
    assert run.contests.splitProblems == [0]
    assert len({outcome.device for outcome in retimings(result)}) == 1
    assert run.winner(result) == run.best
    # What is timed again, at a device's own pace, tells the model nothing.
    assert len(run.cost.observed) == len(result.results) - len(retimings(result))


def test_baselineComparesAllDevicesFirst():
    """Each device begins with the same pairs; what they show is compared, and nothing else."""
    factors = (1.0, 0.97, 1.05)
    area = Rectangle(0, 1, 5, 3)
    run = SplitRun(Script(), factors, baseline=area)
    result = run.run()
    for worker in run.workers:
        first, *others = [job.unit for job in worker.jobs]
        assert first.baseline and rectangleOf(first) == area
        assert not any(unit.baseline for unit in others)
    (speeds,) = relativeSpeeds(run.contests.ratios)
    for device in (1, 2):
        assert speeds[device] / speeds[0] == pytest.approx(factors[device] / factors[0])
    # The model learns the start of its client, but not the time of its pairs.
    assert len(run.cost.starts) == len(result.results)
    extra = [one for one in result.results if one.outcome.unit.extra]
    assert len(run.cost.observed) == len(result.results) - len(extra)
    assert run.winner(result) == run.best


@pytest.mark.parametrize("slow, times", [(0.98, 0), (0.95, 1)])
def test_spreadIsToldOnce(slow, times):
    """Devices that differ by more than 3 % are one note, however many units run."""
    run = SplitRun(Script(), (1.0, slow, 1.0), baseline=Rectangle(0, 1, 5, 3))
    notes = run.run().notes
    assert sum("device 1 is 5.0 % slower" in note for note in notes) == times == len(notes)


def test_spreadIsToldAtTheEnd():
    """Also where a device's baseline is the last thing that ends."""

    def unit(device, unit):
        return RUNS if unit.baseline and device == 1 else None

    run = SplitRun(Script(unit=unit), (1.0, 0.95), baseline=Rectangle(0, 1, 5, 3))

    def finishLate(running):
        if list(running) == [1] and run.schedule.running[1].baseline and not run.schedule.leftOver:
            pending = run.workers[1].pending
            if not pending.done():
                pending.set_result(measured(1, running[1].unit))

    run.observer.function = finishLate
    assert sum("device 1 is 5.0 % slower" in note for note in run.run().notes) == 1


def test_warmUpThatWentWrongIsANote():
    """It is told with its device; the unit that followed counts as what it was."""

    def unit(device, unit):
        went = WarmUp(0.5, "exit 3" if unit.number == 0 else "")
        return replace(measured(device, unit), warmUp=went)

    result = Run(Script(unit=unit)).run()
    assert not (result.lost or result.leftOver)
    (note,) = result.notes
    assert "unit 0: " in note and "(exit 3)" in note


def test_warmUpIsNoProgress(tmp_path):
    """Only what passed since the end of the warm-up counts as work of the unit's client."""
    run = Run(Script())
    unit, device = Unit(0, 0, 8, 0, 3), 0
    job = replace(run.makeJob(unit, run.workers[0].device), folder=str(tmp_path), warmUp=("x",))
    run.loop._begun[device] = time.time() - 20
    (tmp_path / "unit_0.warmup.log").write_text("")
    assert run.loop._left(device, job, []) == 24.0
    os.utime(tmp_path / "unit_0.warmup.log", (time.time() - 4, time.time() - 4))
    assert run.loop._left(device, job, []) == 24.0  # not begun: its log is not there
    (tmp_path / "unit_0.log").write_text("")
    assert 4.0 < run.loop._left(device, job, []) <= 20.0
    job = replace(job, warmUp=())
    assert 0.0 <= run.loop._left(device, job, []) <= 4.0


def test_failedBaselineLosesNothing():
    """Where the baseline's client dies, nothing is lost, and rows are decided all the same."""

    def unit(device, unit):
        return broken(device, unit) if unit.baseline else None

    run = SplitRun(Script(unit=unit), baseline=Rectangle(0, 1, 0, 2))
    result = run.run()
    assert not (result.lost or result.leftOver or result.devicesLost)
    assert run.winner(result) == run.best


def test_failedRetimingLosesNothing():
    """A contender whose client dies keeps the cell that it had; a note says what was not done."""

    def unit(device, unit):
        return broken(device, unit) if unit.retiming else None

    result = SplitRun(Script(unit=unit)).run()
    assert retimings(result)
    assert not (result.lost or result.leftOver or result.devicesLost)
    assert any("problem 0" in note and "timed again" in note for note in result.notes)


def test_retimingThatFailsOnce():
    """It is tried again on the same device, and the row is decided."""
    failed = []

    def unit(device, unit):
        if unit.retiming and not failed:
            failed.append(device)
            return broken(device, unit, CRASHED, (0, unit.firstSolution))
        return None

    run = SplitRun(Script(unit=unit))
    result = run.run()
    assert failed and {outcome.device for outcome in retimings(result)} == set(failed)
    assert run.winner(result) == run.best
    assert not (result.lost or result.leftOver or result.notes)


def test_deviceLostDuringRetiming():
    """The home device goes while it times again: another becomes home and decides the row."""
    gone = []

    def unit(device, unit):
        if unit.retiming and gone in ([], [device]):
            gone[:] = [device]
            return RuntimeError("gone")
        return None

    def start(device, number):
        return RunError("it has fallen off the bus") if number > 1 else WorkerFacts(1, "")

    run = SplitRun(Script(start=start, unit=unit))
    result = run.run()
    assert result.devicesLost == gone and len(gone) == 1
    homes = {o.device for o in retimings(result) if o.kind == MEASURED}
    assert len(homes) == 1 and homes != set(gone)
    assert run.winner(result) == run.best
    assert not (result.lost or result.leftOver)


def test_retimingThatIsCutOffIsDoneAgain():
    """Its node leaves, say: the cells stay what they are, contenders, and no work for others."""
    cut = []

    def unit(device, unit):
        if unit.retiming and not cut:
            cut.append(device)
            return replace(measured(device, unit), pieces=(), shortened=True)
        return None

    run = SplitRun(Script(unit=unit))
    result = run.run()
    (home,) = {o.device for o in retimings(result)}
    assert cut == [home] and len(retimings(result)) > 1
    assert run.winner(result) == run.best
    assert not (result.lost or result.leftOver)


def test_interruptedContestGoesOn():
    """A row that an earlier run had measured on two devices is decided by this one."""
    run = SplitRun(Script(), factors=(1.0, 0.9), solutions=20)
    for device, first in ((0, 0), (1, 10)):
        unit = Unit(device, 0, 1, first, 10)
        run.contests.add(piece(device, unit, 0, 1, 10))
    run.schedule._free.clear()
    result = run.loop.run()
    assert result.results and all(one.outcome.unit.retiming for one in result.results)


def test_descriptionOfAFailure():
    """One line names device, unit, pair, solution and the client's last words."""
    run = Run(Script())
    unit = run.schedule.next(1)
    job = run.makeJob(unit, Device(1, "1"))
    pair = (unit.firstProblem, unit.firstSolution + 2)
    text = describe(broken(1, unit, HUNG, pair), job)
    for word in ("device 1", "unit 0", HUNG, "it broke", "(s2)", "last words"):
        assert word in text
    assert "\n" not in text and "first" not in text
