# SPDX-License-Identifier: MIT
"""Joins the schedule and the workers: the only place where both are known.

    while there is work:  idle device -> schedule.next -> job -> worker
                          finished future -> journal -> schedule
    A worker that dies is replaced with the same pin, a bounded number of times.

One thread, one wait: everything that happens is a future that completes.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import (
    Callable,
    Dict,
    List,
    Optional,
    Sequence,
    Set,
)

from .Baseline import spreadWarning
from .ClientOutput import LastLine, lastLine
from .Contest import Contests, spans
from .Cost import Cost, Part
from .DeviceNames import nameOf
from .Devices import describeDevice
from .Errors import NodeLeft, RunError, WayLost, WorkerLost
from .LoopTypes import (
    AWAY,
    IDLE,
    JOINED,
    LEFT,
    LOST,
    STARTING,
    Changes,
    DeviceChange,
    LoopResult,
    Lost,
    Observer,
    WorkerLike,
    WorkerStart,
)
from .Outcomes import examine
from .Schedule import Rectangle, Schedule, rectangleOf
from .Seldom import Seldom
from .Types import (
    CRASHED,
    MEASURED,
    WORKER_LOST,
    ClientExit,
    Device,
    Job,
    Unit,
    UnitResult,
)
from .WarmUp import clientBegun

log = logging.getLogger("TensileParallel")

TICK_SECONDS = 0.5
# At the start of a step, quick workers wait this long for slower ones: so a short step too is
# spread over all devices.
GATHER_SECONDS = 1.0
# With many devices, reading how far they are takes time: the pause is so often longer than it.
LOOK_PAUSE = 200.0
# Characters of a name or a line in a message; the report and the unit's log have all of it.
LONGEST_TEXT = 110
STARTS_PER_WORKER = 4


class Loop:
    """Runs a schedule to its end."""

    def __init__(
        self,
        schedule: Schedule,
        cost: Cost,
        workers: Sequence[WorkerLike],
        makeJob: Callable[[Unit, Device], Job],
        onResult: Callable[[UnitResult], None],
        shouldStop: Callable[[UnitResult], bool] = lambda result: False,
        contests: Optional[Contests] = None,
        changes: Callable[[Sequence[int]], Changes] = lambda using: ((), ()),
        observer: Optional[Observer] = None,
        patience: float = 0.0,
    ) -> None:
        """Prepares the loop; nothing starts before run().

        Args:
            schedule: what to measure.
            cost: learns from what was measured.
            workers: one per device.
            makeJob: a unit as a job for a device.
            onResult: called with each result before it counts (the journal).
            shouldStop: whether a result ends the whole step (exit-on-error).
            contests: decides split problems; None where no problem is split.
            changes: given the devices in use, says which workers have come and which devices are
                leaving (a cluster's).
            observer: is told what happens.
            patience: where all devices have left, how many seconds to wait for one to come.
        """
        self._changes = changes
        self._patience = patience
        self._noneSince: Optional[float] = None
        self._schedule = schedule
        self._cost = cost
        self._workers = {worker.device.ordinal: worker for worker in workers}
        self._makeJob = makeJob
        self._onResult = onResult
        self._shouldStop = shouldStop
        self._contests = contests
        self._observer = observer or Observer()
        self._warnedOfSpread = False
        self._shortened: Set[int] = set()
        self._secondsLeft: Dict[int, float] = {}
        self._last: Dict[int, LastLine] = {}
        self._parts: Dict[int, List[Part]] = {}
        self._looking = Seldom(LOOK_PAUSE, clock=lambda: time.monotonic())
        self._futures: Dict[Future, int] = {}
        self._jobs: Dict[int, Job] = {}
        self._begun: Dict[int, float] = {}
        self._gatherUntil = 0.0
        self._released: Set[int] = set()
        self.result = LoopResult()

    def run(self) -> LoopResult:
        """Runs until everything is measured, given up, or out of devices.

        Whatever ends it, no worker and no client is left.
        """
        try:
            if not self._schedule.hasBaseline:  # a long step can do without
                self._gatherUntil = time.monotonic() + GATHER_SECONDS
            self._askContests()  # what an interrupted run had not decided
            if not self._schedule.finished:
                for device in list(self._workers):
                    self._startWorker(device)
            while not self._schedule.finished or self._awaitsDevices():
                if self._noneSince is not None:
                    time.sleep(TICK_SECONDS)
                done, _ = wait(self._futures, timeout=TICK_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    self._finish(future, self._futures.pop(future))
                self._welcome()
                self._handOut()
                self._release()
                if self._looking.isDue:
                    with self._looking.timed():
                        self._look()
                    self._observer.tick(self._jobs, self._last, self._secondsLeft)
        except BaseException:
            self._killAll()
            raise
        self._warnOfSpread()  # a device may have come late, with nothing left after its baseline
        self.result.neverReady = sorted(set(self._futures.values()))
        self._closeAll()
        self.result.leftOver = self._schedule.leftOver
        return self.result

    def _closeAll(self) -> None:
        """Ends idle workers politely, and those that still wait for their device at once."""
        waiting = set(self._futures.values())
        with ThreadPoolExecutor(max(1, len(self._workers))) as pool:  # each takes its time
            ends = [
                pool.submit(worker.kill if device in waiting else worker.close)
                for device, worker in self._workers.items()
            ]
        for end in ends:
            end.result()

    def _killAll(self) -> None:
        for worker in self._workers.values():
            worker.kill()

    def stop(self) -> None:
        """Hands out nothing more. What runs is finished."""
        self._schedule.stop()

    def _startWorker(self, device: int) -> None:
        worker = self._workers[device]
        if worker.starts >= STARTS_PER_WORKER:
            self._setAside(device, "its worker died %d times" % worker.starts)
            return
        self._begun[device] = time.monotonic()
        self.result.workerStarts.append(WorkerStart(device, time.time()))
        self._schedule.setAway(device, True)
        self._observer.changed(device, STARTING)
        try:
            self._futures[worker.start()] = device
        except Exception as error:  # loky cannot start a process: no memory, no descriptors
            self._setAside(device, "its worker did not start: %s" % _oneLine(error))

    def _welcome(self) -> None:
        """Takes in workers that have come, and lets idle ones go that are leaving."""
        come, leaving = self._changes(self._schedule.devices)
        for worker in come:
            device = worker.device.ordinal
            self.noteChange(worker.device, JOINED)
            self._noneSince = None
            self._workers[device] = worker
            self._schedule.addDevice(device)
            if device in self.result.devicesLost:
                self.result.devicesLost.remove(device)
            self._startWorker(device)
        busy = set(self._futures.values())
        for device in leaving:
            if device not in busy and device in self._schedule.devices:
                self.noteChange(self._workers[device].device, LEFT)
                self._schedule.setAside(device)
                self._observer.changed(device, LEFT)
                self._workers[device].close()
                self._askContests()

    def noteChange(self, device: Device, what: str) -> None:
        """Tells that a device has JOINED or LEFT: now, or before the step began."""
        self._note("%s has %s", describeDevice(device), what)
        self._changed(device.ordinal, what)

    def _awaitsDevices(self) -> bool:
        """Whether the devices have left, so that others, or the same again, may come."""
        last = {change.device: change.what for change in self.result.changes}
        schedule = self._schedule
        if schedule.devices or not schedule.leftOver or schedule.isStopped:
            return False
        if not self._patience or LEFT not in last.values():
            return False
        if self._noneSince is None:
            self._noneSince = time.monotonic()
            text = "no device is left: waiting for one to join, for up to %.0f s"
            self._note(text, self._patience)
        return time.monotonic() - self._noneSince < self._patience

    def _handOut(self) -> None:
        busy = set(self._futures.values())
        starting = busy - set(self._jobs)
        if starting and not self.result.results and time.monotonic() < self._gatherUntil:
            return
        for device in self._schedule.devices:
            if device in busy:
                continue
            suspicion = self._schedule.suspicion(device)
            if suspicion:
                self._setAside(device, suspicion)
                continue
            if device in self._released:
                if self._schedule.hasWorkFor(device):
                    self._released.discard(device)
                    self._startWorker(device)
                continue
            unit = self._schedule.next(device, self._secondsLeft)
            if unit is None:
                continue
            job = self._makeJob(unit, self._workers[device].device)
            self._jobs[device] = job
            self._begun[device] = time.time()
            self._observer.began(device, job)
            try:
                self._futures[self._workers[device].submit(job)] = device
            except Exception as error:  # the executor broke while the worker was idle
                self._workerDied(device, error)

    def _release(self) -> None:
        """Gives up the idle devices where all that is left waits for others.

        What is left may be for one device only, which another run may hold while it waits for one
        of ours: whoever holds a device without measuring on it must not wait for another.
        """
        if self._jobs or not self._futures or self._schedule.finished:
            return
        if time.monotonic() < self._gatherUntil:
            return
        waiting = set(self._futures.values())
        for device in self._schedule.devices:
            if device not in waiting and device not in self._released:
                text = "device %s is given up: what is left waits for other devices"
                log.info(text, self._name(device))
                self._workers[device].close()
                self._workers[device].starts -= 1  # an end that was asked for is no death
                self._released.add(device)
                self._observer.changed(device, IDLE)

    def _finish(self, future: "Future", device: int) -> None:
        error = future.exception()
        if device not in self._jobs:
            if error is None:
                self._noteStart(device, future.result().lockSeconds)
            self._finishStart(device, error, "" if error else future.result().note)
        elif error is not None:
            self._workerDied(device, error)
        else:
            self._account(device, future.result())

    def _noteStart(self, device: int, lockSeconds: float) -> None:
        start = [each for each in self.result.workerStarts if each.device == device][-1]
        start.ready, start.lockSeconds = time.time(), round(lockSeconds, 3)
        if self._isAway(device):
            self._changed(device, "back")

    def _finishStart(self, device: int, error: Optional[BaseException], note: str) -> None:
        if error is None:
            self._schedule.setAway(device, False)
            self._observer.changed(device, IDLE)
            if note and self._workers[device].starts == 1:
                self._note("%s", note)
            seconds = time.monotonic() - self._begun[device]
            log.debug("device %s: worker ready after %.1f s", self._name(device), seconds)
            return
        self._workers[device].kill()
        if isinstance(error, RunError):
            self._setAside(device, str(error))
        elif not isinstance(error, NodeLeft):  # _welcome() is told of that
            text = "device %s: its worker did not come up: %s"
            why = str(error) if isinstance(error, WorkerLost) else _oneLine(error)
            self._note(text, self._name(device), why)
            self._startWorker(device)

    def _workerDied(self, device: int, error: BaseException) -> None:
        """The worker vanished under a unit: keep what its files hold, start another."""
        job = self._jobs[device]
        self._workers[device].kill()
        cannotGoOn = isinstance(error, RunError)  # it says so itself: no room on its disk, say
        isLoss = cannotGoOn or isinstance(error, WorkerLost)
        kind, message = CRASHED, "the worker died (%s)" % _oneLine(error)
        if isLoss:
            kind, message = WORKER_LOST, str(error)
        if not cannotGoOn:
            self._note("device %s, unit %d: %s", self._name(device), job.unit.number, message)
        now = time.time()
        begun = clientBegun(job, self._begun[device], now)
        salvaged = examine(job, ClientExit(137, False, begun, now))
        outcome = replace(
            salvaged.outcome, kind=kind, message=message, exitStatus=None, lastPair=None
        )
        isInnocent = cannotGoOn or isinstance(error, WayLost)
        self._account(device, replace(salvaged, outcome=outcome), isLoss, isInnocent)
        if cannotGoOn:
            self._setAside(device, message)
            return
        if isLoss and not self._isAway(device):
            self._changed(device, AWAY, str(error))
        if device in self._schedule.devices:
            self._startWorker(device)
            if isLoss and device in self._schedule.devices:
                self._observer.changed(device, AWAY)

    def _changed(self, device: int, what: str, why: str = "") -> None:
        self.result.changes.append(DeviceChange(device, what, time.time(), why))

    def _isAway(self, device: int) -> bool:
        own = [each.what for each in self.result.changes if each.device == device]
        return own[-1:] == [AWAY]

    def _name(self, device: int) -> str:
        return nameOf(self._workers[device].device)

    def _account(
        self, device: int, result: UnitResult, isLoss: bool = False, isInnocent: bool = False
    ) -> None:
        """Journals a result and tells the schedule.

        Args:
            isLoss: whether the unit ended with its worker.
            isInnocent: and certainly for no fault of its own.
        """
        job = self._jobs.pop(device)
        self._onResult(result)
        self.result.results.append(result)
        self._shortened.discard(device)
        self._secondsLeft.pop(device, None)
        outcome = result.outcome
        if result.warmUp is not None and result.warmUp.message:
            self._note(
                "device %s, unit %d: the pair that was to warm it up went wrong (%s); "
                "the unit was run all the same",
                self._name(device),
                outcome.unit.number,
                _short(result.warmUp.message),
            )
        done = [rectangleOf(piece) for piece in result.pieces]
        left: List[Rectangle] = []
        if outcome.kind == MEASURED:
            self._schedule.succeeded(device, done if result.shortened else None)
            self._learn(result)
        else:
            if isLoss:  # it was told
                left = self._schedule.returned(device, done, result.ready, not isInnocent)
            else:
                log.warning("%s", describe(result, job))
                left = self._schedule.failed(device, done, outcome.lastPair, result.ready)
            for rectangle in left:
                self._lose(rectangle, result)
        lost = 0 if outcome.unit.extra else sum(rectangle.pairs for rectangle in left)
        self._observer.ended(device, result, lost)
        self._decide(result)
        if self._shouldStop(result):
            self._schedule.stop()
            for other, running in self._jobs.items():
                self._shorten(other, running)

    def _learn(self, result: UnitResult) -> None:
        unit, outcome = result.outcome.unit, result.outcome
        if result.startSeconds is None:
            return
        self._cost.observeStart(unit.firstProblem, unit.problemCount, result.startSeconds)
        if unit.extra:
            return
        seconds = outcome.seconds - result.startSeconds
        if not result.shortened:
            self._cost.observe(
                unit.firstProblem, unit.problemCount, unit.solutionCount, seconds, outcome.device
            )
        elif unit.problemCount == 1 and result.pieces:
            # The pair that was lost took time as well: half of one on average.
            count = sum(piece.solutionCount for piece in result.pieces)
            seconds *= count / (count + 0.5)
            self._cost.observe(unit.firstProblem, 1, count, seconds, outcome.device)

    def _decide(self, result: UnitResult) -> None:
        """Has the contenders of split problems timed again, once their rows are measured."""
        if self._contests is None:
            return
        for piece in result.pieces:
            if result.outcome.unit.baseline:
                self._contests.addBaseline(piece)
            else:
                self._contests.add(piece)
        if not result.outcome.unit.baseline:
            self._warnOfSpread()  # by now, as a rule, all have their baseline
        self._askContests()

    def _warnOfSpread(self) -> None:
        """Says once that the devices differ, as soon as that is known."""
        if self._contests is None or self._warnedOfSpread:
            return
        warning = spreadWarning(self._contests.spread, self._name)
        if warning:
            self._note("%s", warning)
            self._warnedOfSpread = True

    def _askContests(self) -> None:
        if self._contests is None:
            return
        waits = self._schedule.waits(self._secondsLeft)
        isOpen, pairSeconds = self._schedule.isOpen, self._cost.pairSeconds
        for retiming in self._contests.due(isOpen, waits, pairSeconds):
            pair = self._cost.pairSeconds(retiming.problem)
            fixed = self._cost.fixedSeconds(retiming.problem, 1)
            ranges = spans(retiming.solutions, pair, fixed, retiming.avoid)
            areas = [Rectangle(retiming.problem, 1, first, count) for first, count in ranges]
            self._schedule.retime(retiming.device, areas)

    def _look(self) -> None:
        """Reads how far the running units are; shortens one for which the others would wait."""
        self._readProgress()
        self._shortenOne()

    def _readProgress(self) -> None:
        ends = {device: lastLine(job.file(".log")) for device, job in self._jobs.items()}
        self._last = {device: end for device, end in ends.items() if end is not None}
        self._parts = {device: self._progress(device, job) for device, job in self._jobs.items()}
        self._cost.watch({device: parts for device, parts in self._parts.items() if parts})
        self._secondsLeft = {
            device: self._left(device, job, self._parts[device])
            for device, job in self._jobs.items()
        }

    def _shortenOne(self) -> None:
        if self._shortened:
            return  # one at a time: what it leaves changes the others' shares
        left = {d: s for d, s in self._secondsLeft.items() if _isDivisible(self._jobs[d])}
        begun = [device for device in left if self._parts[device]]
        chosen = self._schedule.tooLong(left, begun)
        if chosen is not None:
            self._shorten(chosen, self._jobs[chosen])

    def _shorten(self, device: int, job: Job) -> None:
        self._shortened.add(device)
        try:
            self._workers[device].shorten(job)
        except OSError as error:  # no room on the disk: the unit goes on to its end
            log.debug("device %s: cannot end its unit early: %s", self._name(device), error)

    def _left(self, device: int, job: Job, parts: Sequence[Part]) -> float:
        """What a running unit is expected to take still."""
        unit = job.unit
        total = self._cost.rectangleSeconds(
            unit.firstProblem, unit.problemCount, unit.solutionCount
        )
        done = sum(self._cost.rectangleSeconds(p.first, p.count, p.solutions) for p in parts)
        expected = self._cost.paceOf(device) * (total - done)
        if parts:
            return expected
        return max(0.0, expected - max(0.0, self._working(device, job, time.time())))

    def _working(self, device: int, job: Job, until: float) -> float:
        """Seconds from a client's first pair, as far as can be known, to a time of the clock."""
        fixed = self._cost.fixedSeconds(job.unit.firstProblem, job.unit.problemCount)
        return until - clientBegun(job, self._begun[device], until) - fixed

    def _progress(self, device: int, job: Job) -> List[Part]:
        """The finished parts of a running unit, by the last line of its log."""
        last = self._last.get(device) if _isDivisible(job) else None
        if last is None or last.pair is None:
            return []
        # The clock of the log's file system need not be this machine's.
        working = self._working(device, job, min(time.time(), last.written))
        if working <= 0:
            return []
        unit = job.unit
        rows = last.pair.problem - job.written
        columns = last.pair.solution - job.firstColumn - unit.firstSolution + 1
        if not (0 <= rows < unit.problemCount and 0 < columns <= unit.solutionCount):
            return []  # it only looks like a line about one of the unit's pairs
        if self._contests is not None and last.pair.valid:
            pair = (unit.firstProblem + rows, unit.firstSolution + columns - 1)
            self._contests.watch(unit, device, *pair, last.pair.gflops)
        areas = [(unit.firstProblem, rows, unit.solutionCount)] if rows else []
        areas.append((unit.firstProblem + rows, 1, columns))
        weights = [self._cost.rectangleSeconds(*area) for area in areas]
        return [
            Part(*area, seconds=working * weight / sum(weights))
            for area, weight in zip(areas, weights)
        ]

    def _lose(self, rectangle: Rectangle, result: UnitResult) -> None:
        outcome = result.outcome
        if outcome.unit.retiming:
            # The cells are there, from another device: nothing is lost but the comparison.
            self._note(
                "problem %d: its contenders could not be timed again: %s",
                rectangle.firstProblem,
                outcome.message,
            )
            return
        self.result.lost.append(
            Lost(rectangle, outcome.kind, outcome.device, outcome.message, result.tail)
        )

    def _setAside(self, device: int, why: str) -> None:
        self._schedule.setAside(device)
        self.result.devicesLost.append(device)
        left = len(self._schedule.devices)
        self._note("device %s is set aside: %s; %d left", self._name(device), why, left)
        self._changed(device, LOST, why)
        self._observer.changed(device, LOST)
        self._workers[device].kill()
        self._askContests()  # those that it was to decide need another device

    def _note(self, text: str, *values: object) -> None:
        message = text % values
        log.warning("%s", message)
        self.result.notes.append(message)


def _isDivisible(job: Job) -> bool:
    """Whether a unit can be ended in the middle and what it has finished be kept."""
    return job.passes == 1 and not job.whole and not job.unit.extra


def describe(result: UnitResult, job: Job) -> str:
    """One line about a unit that was not measured: where, what, and the client's last line."""
    outcome = result.outcome
    unit = outcome.unit
    where = "device %s, unit %d (problems %d-%d, solutions %d-%d)" % (
        nameOf(job.device),
        unit.number,
        unit.firstProblem,
        unit.lastProblem,
        unit.firstSolution,
        unit.lastSolution,
    )
    text = "%s: %s: %s" % (where, outcome.kind, outcome.message)
    if outcome.lastPair is not None:
        problem, solution = outcome.lastPair
        name = job.columns[solution - unit.firstSolution] if job.columns else "%d" % solution
        text += "; it was at problem %d, solution %d (%s)" % (problem, solution, _short(name))
    last = result.tail.splitlines()[-1:] or [""]
    return text + ("; its last line: %s" % _short(last[0]) if last[0] else "")


def _short(text: str) -> str:
    """Both ends of a long text: kernel names and result lines go on for pages."""
    return text if len(text) <= LONGEST_TEXT else "%s…%s" % (text[:60], text[-40:])


def _oneLine(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, text[0]) if text else type(error).__name__
