# SPDX-License-Identifier: MIT
"""A step whose time passes in a model only: no process, no sleep, no file.

The real loop, schedule, cost, contests and progress; fake workers whose units take the seconds that
are prescribed, with noise. The loop's clock and its wait are replaced: wait() goes to whatever
comes next. So what a step of minutes tells is known within a second, and does not depend on
what else the machine does.
"""

import heapq
import itertools
import random
from bisect import bisect_right
from concurrent.futures import Future
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple
from unittest.mock import patch

from Tensile.Parallel import Loop as LoopModule
from Tensile.Parallel.Baseline import chooseBaseline
from Tensile.Parallel.ClientConfig import ClientConfig
from Tensile.Parallel.ClientOutput import LastLine, PairLine
from Tensile.Parallel.Contest import Contests
from Tensile.Parallel.Cost import Cost
from Tensile.Parallel.EmulatedTimes import (
    indexRoles,
    kernelMicroseconds,
    problemFacts,
    solutionSeed,
)
from Tensile.Parallel.Progress import StepProgress
from Tensile.Parallel.Schedule import Rectangle, Schedule
from Tensile.Parallel.Types import MEASURED, Device, Job, Outcome, Piece, UnitResult
from Tensile.Parallel.Worker import WorkerFacts

COLD_PAIRS = 1
EPOCH = 1e9


class Manner(NamedTuple):
    """What a machine adds to the pairs' prescribed times, in seconds; shares are of the mean.

    Attributes:
        start: of a client, until its first pair.
        startNoise: share by which starts differ.
        pairNoise: share by which pairs differ.
        spread: share by which devices' values differ (not their times).
        handOver: from the loop to the client's start, and from its end back to the loop.
        worker: until a worker is ready.
        end: of the step, after the last unit.
        stop: until a client that is to end early has ended.
    """

    start: float = 0.2
    startNoise: float = 0.3
    pairNoise: float = 0.05
    spread: float = 0.0
    handOver: float = 0.03
    worker: float = 0.7
    end: float = 0.5
    stop: float = 0.2


class Clock:
    """The time, and what is to happen."""

    def __init__(self) -> None:
        self.now = EPOCH
        self._events: List[Tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def time(self) -> float:
        return self.now

    monotonic = time

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), what))

    def wait(self, futures, timeout: float, return_when: str):
        """concurrent.futures.wait: goes on until one is done, or to the end of `timeout`."""
        until = self.now + timeout
        while not any(future.done() for future in futures):
            if not self._events or self._events[0][0] > until:
                self.now = until
                break
            self.now, _, what = heapq.heappop(self._events)
            what()
        done = {future for future in futures if future.done()}
        return done, set(futures) - done


class Client:
    """One running unit: when its pairs end."""

    def __init__(
        self,
        job: Job,
        begun: float,
        ready: float,
        seconds: Sequence[float],
        cells: Callable[[Piece, int], List[float]],
    ) -> None:
        self.job = job
        self._cells = cells
        self.begun = begun
        self.ready = ready
        self.ends = list(itertools.accumulate(seconds, initial=ready))[1:]
        self.future: "Future[UnitResult]" = Future()

    def finish(self, at: float, shortened: bool) -> None:
        """It has ended: with what it had finished by then."""
        if self.future.done():
            return
        unit = self.job.unit
        rows, rest = divmod(bisect_right(self.ends, at), unit.solutionCount)
        pieces = [self._piece(0, rows, unit.solutionCount)] if rows else []
        if rest:
            pieces.append(self._piece(rows, 1, rest))
        outcome = Outcome(unit, self.job.device.ordinal, MEASURED, 0, self.begun, at)
        start = self.ready - self.begun
        self.future.set_result(
            UnitResult(outcome, tuple(pieces), startSeconds=start, shortened=shortened, ready=True)
        )

    def _piece(self, row: int, rows: int, columns: int) -> Piece:
        unit, first = self.job.unit, self.job.unit.firstProblem + row
        where = (first, rows, unit.firstSolution, columns, self.job.device.ordinal, unit.number)
        return Piece("", *where, first, unit.firstSolution, unit.solutionCount)

    def lastLine(self, now: float) -> Optional[LastLine]:
        """What its log would end with."""
        done = bisect_right(self.ends, now)
        if now < self.ready:
            return None
        if not done:
            return LastLine(None, self.ready)
        unit = self.job.unit
        row, column = divmod(done - 1, unit.solutionCount)
        problem, solution = unit.firstProblem + row, unit.firstSolution + column
        value = self._cells(self._piece(row, 1, unit.solutionCount), problem)[column]
        line = PairLine(
            0, problem, unit.lastProblem, solution, unit.lastSolution, "", "PASSED", 1, value
        )
        return LastLine(line, self.ends[done - 1])


class VirtualWorker:
    """A worker whose units take virtual seconds."""

    def __init__(self, run: "VirtualRun", ordinal: int) -> None:
        self.device = Device(ordinal, str(ordinal))
        self.starts = 0
        self._run = run
        self.client: Optional[Client] = None

    def start(self) -> Future:
        self.starts += 1
        future: Future = Future()
        seconds = self._run.manner.worker * (1 + 0.05 * self.device.ordinal)
        self._run.clock.at(
            self._run.clock.now + seconds, lambda: future.set_result(WorkerFacts(1, ""))
        )
        return future

    def submit(self, job: Job) -> Future:
        run = self._run
        begun = run.clock.now + run.manner.handOver
        ready = begun + run.manner.start * run.noise(run.manner.startNoise)
        client = self.client = Client(job, begun, ready, run.secondsOf(job), run.cells)
        run.clients[job.file(".log")] = client
        end = client.ends[-1]
        run.clock.at(end + run.manner.handOver, lambda: client.finish(end, False))
        return client.future

    def shorten(self, job: Job) -> None:
        client, clock = self.client, self._run.clock
        at = clock.now + self._run.manner.stop
        assert client is not None and client.job is job
        if at < client.ends[-1]:
            clock.at(at + self._run.manner.handOver, lambda: client.finish(at, True))

    def kill(self) -> None:
        pass

    close = kill


class VirtualRun:
    """One step.

    Attributes:
        samples: (seconds since its begin, the seconds that were told to be left, or None).
        begun: when it began.
        ended: when its results were there.
    """

    def __init__(
        self,
        config: ClientConfig,
        pairSeconds: Sequence[float],
        solutions: int,
        devices: int,
        seed: int = 0,
        slowness: Optional[Dict[int, float]] = None,
        manner: Manner = Manner(),
    ) -> None:
        """Prepares a step.

        Args:
            config: its INI.
            pairSeconds: of a pair of each problem.
            solutions: how many there are.
            devices: how many there are.
            seed: of all noise, and of the solutions' speeds.
            slowness: device -> factor on every time.
            manner: what the machine adds.
        """
        self.clock = Clock()
        self.manner = manner
        self.clients: Dict[str, Client] = {}
        self._rng = random.Random(seed)
        self._pairSeconds = pairSeconds
        self._slowness = slowness or {}
        self._factors = [self.noise(manner.spread) for _ in range(devices)]
        self._solutions = solutions
        self._seed = seed
        self._config = config
        self._rows: Dict[int, List[float]] = {}
        self.cost = Cost(config)
        area = Rectangle(0, config.problemCount, 0, solutions)
        baseline = chooseBaseline(self.cost, [area], devices, COLD_PAIRS)
        self.schedule = Schedule([area], range(devices), self.cost, baseline=baseline)
        self.contests = Contests(solutions, self.cells, COLD_PAIRS)
        table = SimpleNamespace(
            firstProblem=0, problemCount=config.problemCount, solutionCount=solutions
        )
        step = SimpleNamespace(config=config, table=table, folderName="T", best=False, whole="")
        self.samples: List[Tuple[float, Optional[float]]] = []
        progress = StepProgress(
            step, "", range(devices), self.schedule, self.cost, lambda: 0, self._told,
            now=self.clock.time, contenders=self.contests.expected,
        )  # fmt: skip
        self.loop = LoopModule.Loop(
            self.schedule,
            self.cost,
            [VirtualWorker(self, ordinal) for ordinal in range(devices)],
            self._job,
            lambda result: None,
            contests=self.contests,
            observer=progress,
        )
        self.begun = self.clock.now
        self.ended = 0.0

    def run(self) -> LoopModule.LoopResult:
        """Runs it to its end."""
        with ExitStack() as stack:
            for name, fake in (("time", self.clock), ("wait", self.clock.wait)):
                stack.enter_context(patch.object(LoopModule, name, fake))
            stack.enter_context(patch.object(LoopModule, "lastLine", self._lastLine))
            result = self.loop.run()
        self.ended = self.clock.now + self.manner.end
        return result

    def noise(self, share: float) -> float:
        """A factor near 1."""
        return max(0.2, self._rng.gauss(1.0, share))

    def secondsOf(self, job: Job) -> List[float]:
        """What each pair of a unit will take."""
        unit = job.unit
        slow = self._slowness.get(job.device.ordinal, 1.0)
        return [
            slow * self._pairSeconds[problem] * self.noise(self.manner.pairNoise)
            for problem in range(unit.firstProblem, unit.lastProblem + 1)
            for _ in range(unit.solutionCount)
        ]

    def _job(self, unit, device: Device) -> Job:
        return Job(unit, device, (), "/virtual", "", unit.firstProblem, 0, (), 1, "/")

    def _lastLine(self, path: str) -> Optional[LastLine]:
        return self.clients[path].lastLine(self.clock.now)

    def _told(self, told: dict, new: bool) -> None:
        if told["state"] == "running":
            self.samples.append((told["updated"], told["step"]["secondsLeft"]))

    def cells(self, piece: Piece, problem: int) -> List[float]:
        """What the emulated devices would measure: each seed has other solutions."""
        if problem not in self._rows:
            roles = indexRoles(self._config.get("problem-identifier"))
            facts = problemFacts(self._config, self._config.problemAt(problem), roles)
            seeds = (solutionSeed("%d_%d" % (self._seed, s)) for s in range(self._solutions))
            self._rows[problem] = [1 / kernelMicroseconds(facts, seed) for seed in seeds]
        end = piece.firstSolution + piece.solutionCount
        factor = self._factors[piece.device]
        return [value * factor for value in self._rows[problem][piece.firstSolution : end]]
