# SPDX-License-Identifier: MIT
"""What a run would do in one benchmark step, and how long it may take.

The work is spread by the schedule and the model that a run uses, with time that passes in the
model only.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .Baseline import chooseBaseline
from .ClientConfig import ClientConfig, ClientOptions, keepsSizesWhole, wholeReason
from .ConfigSteps import ConfigStep, groupOf
from .Cost import Cost
from .EarlierRun import EarlierRun, EarlierStep
from .ExpectedIni import describeType, expectedIni, hostDefaults
from .ForkedSolutions import customKernelCount, forkedSolutions
from .Host import Host
from .ParseArguments import RunSettings
from .RunConfig import globalParameter
from .Schedule import Rectangle, Schedule, subtract
from .Types import Device, Unit

# What a step takes beside its clients: the parallel client's and the workers' start and end.
STEP_SECONDS = 1.0
# A size that takes this part of a step is worth a word.
GIANT_SHARE = 0.5


@dataclass(frozen=True)
class FirstUnit:
    """What a device measures first in a step, its baseline left out.

    Attributes:
        device: ordinal.
        unit: the rectangle, in the step's indices.
        sizes: its first problems, as people write them.
        seconds: what it is expected to take, the client's start included.
    """

    device: int
    unit: Unit
    sizes: Tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class StepPlan:
    """One benchmark step.

    Attributes:
        step: as the config makes it.
        problemType: in a few words.
        solutions: how many it has, or may have at most; None where that cannot be told.
        exact: whether there are just so many.
        solutionsRemark: where the number is from, or why there is none.
        repeats: the INI's values that say how often a kernel is launched, for people.
        whole: why it goes whole to one device; empty where it does not.
        rowsWhole: why the solutions of a problem stay together; empty where they need not.
        measuredPairs: how many an earlier run has measured, which are not measured again.
        unendedUnits: how many units ran when an earlier run ended; their pairs are not counted as
            measured, though a run keeps what their clients had finished.
        taught: units of an earlier run that its times are from; 0 for the model alone.
        serialSeconds: of one client that does all that is left; None where it cannot be told.
        parallelSeconds: of all devices together; None likewise.
        baselinePairs: what every device measures before all else.
        first: what each device begins with.
        giant: the size that takes most of the step, where one does; else empty.
        giantShare: its part of the step's time.
        isSplit: whether the solutions of any problem are spread over several devices.
        timeRemark: why its time cannot be told; empty where it can.
    """

    step: ConfigStep
    problemType: str
    solutions: Optional[int] = None
    exact: bool = False
    solutionsRemark: str = ""
    repeats: str = ""
    whole: str = ""
    rowsWhole: str = ""
    measuredPairs: int = 0
    unendedUnits: int = 0
    taught: int = 0
    serialSeconds: Optional[float] = None
    parallelSeconds: Optional[float] = None
    baselinePairs: int = 0
    first: Tuple[FirstUnit, ...] = ()
    giant: str = ""
    giantShare: float = 0.0
    isSplit: bool = False
    timeRemark: str = ""

    @property
    def pairs(self) -> Optional[int]:
        """Cells of its table; None where they cannot be told."""
        if self.step.problems is None or self.solutions is None:
            return None
        return self.step.problems * self.solutions


class StepPlanner:
    """Plans the steps of one config."""

    def __init__(
        self,
        settings: RunSettings,
        config: Any,
        host: Optional[Host],
        classic: bool,
        devices: Sequence[Device],
    ) -> None:
        self._settings = settings
        self._config = config
        self._classic = classic
        self._devices = [device.ordinal for device in devices]
        self._emulated = any(device.emulated for device in devices)
        self._defaults = hostDefaults(host)
        self._allKernels = None if host is None else customKernelCount(host.tree)
        self.earlier = EarlierRun(settings.out)

    def plan(self, step: ConfigStep) -> StepPlan:
        """One step, as far as it can be told."""
        parts = self._config["BenchmarkProblems"][step.entry]
        whole = isinstance(parts, list) and parts
        planned = StepPlan(step, describeType(parts[0]) if whole else "?")
        if step.sizes is None or not whole:
            return replace(planned, timeRemark=step.remark)
        forked = forkedSolutions(groupOf(parts, step.group), self._allKernels)
        ini, unknown = expectedIni(
            self._config, step, self._parameter, self._defaults, self._classic
        )
        earlier = self.earlier.find(ini, forked)
        planned = replace(
            planned,
            solutions=forked.most if earlier is None else earlier.solutions,
            exact=earlier is not None,
            solutionsRemark=forked.remark if earlier is None else earlier.library,
        )
        if ini is None or not planned.pairs:
            return replace(planned, timeRemark=unknown or forked.remark or "there is no work")
        return self._timed(replace(planned, repeats=_repeats(ini)), ini, earlier)

    def _parameter(self, name: str) -> Any:
        return globalParameter(self._settings, self._config, name)

    def _timed(
        self, planned: StepPlan, ini: ClientConfig, earlier: Optional[EarlierStep]
    ) -> StepPlan:
        """The same with its times, and what each device begins with."""
        assert planned.solutions is not None
        cost = Cost(ini)
        area = Rectangle(0, ini.problemCount, 0, planned.solutions)
        if not area.pairs:
            return replace(planned, timeRemark="the client makes no problem of it")
        taught = 0
        if earlier is not None and earlier.sameWork and earlier.emulated in (None, self._emulated):
            taught = earlier.teach(cost)
        whole = wholeReason(ini, ClientOptions((), ())) or ""
        if whole:
            sizes = range(ini.sizeCount)
            pairs = planned.solutions * sum(cost.pairSeconds(size) for size in sizes)
            serial = cost.fixedSeconds(0, ini.sizeCount) + pairs
            parallel = serial + STEP_SECONDS
            return replace(
                planned, whole=whole, taught=taught, serialSeconds=serial, parallelSeconds=parallel
            )
        free, unended = [area], 0
        if earlier is not None and earlier.sameWork and not self._settings.fresh:
            unended = earlier.unendedUnits
            for done in earlier.measured():
                free = [left for rest in free for left in subtract(rest, done)]
        measured = area.pairs - sum(rest.pairs for rest in free)
        rowsWhole = "--keep-sizes-whole" if self._settings.keepSizesWhole else ""
        rowsWhole = rowsWhole or keepsSizesWhole(ini)
        giant, share = _giant(cost, free)
        planned = replace(
            planned,
            rowsWhole=rowsWhole,
            measuredPairs=measured,
            unendedUnits=unended,
            taught=taught,
            serialSeconds=_serialSeconds(cost, free),
            giant=ini.describeProblem(giant) if share >= GIANT_SHARE else "",
            giantShare=share,
        )
        return self._spread(planned, ini, cost, free)

    def _spread(
        self, planned: StepPlan, ini: ClientConfig, cost: Cost, free: Sequence[Rectangle]
    ) -> StepPlan:
        baseline = None
        if self._settings.baseline != "off":
            cold = 0 if self._settings.noWarmUp else 1
            baseline = chooseBaseline(cost, free, len(self._devices), cold)
        rowsWhole = bool(planned.rowsWhole)
        schedule = Schedule(free, self._devices, cost, keepWhole=rowsWhole, baseline=baseline)
        course = _simulate(schedule, cost, self._devices, planned.solutions or 0)
        return replace(
            planned,
            parallelSeconds=course.seconds + STEP_SECONDS if free else 0.0,
            isSplit=course.isSplit,
            baselinePairs=baseline.pairs if baseline is not None else 0,
            first=tuple(
                FirstUnit(device, unit, _sizesOf(ini, unit), seconds)
                for device, (unit, seconds) in sorted(course.first.items())
            ),
        )


@dataclass
class _Course:
    """How a schedule went in the model's time.

    Attributes:
        seconds: until all is measured.
        first: device -> its first unit and what that takes.
        isSplit: whether any unit had only a part of a problem's solutions.
    """

    seconds: float = 0.0
    first: Dict[int, Tuple[Unit, float]] = field(default_factory=dict)
    isSplit: bool = False


def _simulate(schedule: Schedule, cost: Cost, devices: Sequence[int], width: int) -> _Course:
    """Runs a schedule in the model's time.

    Args:
        width: how many solutions the step has.
    """
    course = _Course()
    ends: List[Tuple[float, int]] = []
    while True:
        left = {device: end - course.seconds for end, device in ends}
        for device in devices:
            unit = None if device in left else schedule.next(device, left)
            if unit is None:
                continue
            seconds = cost.fixedSeconds(unit.firstProblem, unit.problemCount)
            seconds += _pairsSeconds(cost, unit)
            heapq.heappush(ends, (course.seconds + seconds, device))
            left[device] = seconds
            if not unit.baseline:
                course.first.setdefault(device, (unit, seconds))
                course.isSplit |= unit.solutionCount < width
        if not ends:
            return course
        course.seconds, device = heapq.heappop(ends)
        unit = schedule.running[device]
        schedule.succeeded(device)
        if not (cost.learned or unit.baseline):
            # As in a run: units are small until something was measured.
            area = (unit.firstProblem, unit.problemCount, unit.solutionCount)
            cost.observe(*area, _pairsSeconds(cost, unit))


def _pairsSeconds(cost: Cost, unit: Unit) -> float:
    return cost.rectangleSeconds(unit.firstProblem, unit.problemCount, unit.solutionCount)


def _serialSeconds(cost: Cost, free: Sequence[Rectangle]) -> float:
    """One client for all that is left."""
    if not free:
        return 0.0
    first = min(area.firstProblem for area in free)
    count = max(area.endProblem for area in free) - first
    pairs = sum(
        cost.rectangleSeconds(area.firstProblem, area.problemCount, area.solutionCount)
        for area in free
    )
    return cost.fixedSeconds(first, count) + pairs


def _giant(cost: Cost, free: Sequence[Rectangle]) -> Tuple[int, float]:
    """(the problem that takes longest, its part of all pairs' time)."""
    rows: Dict[int, float] = {}
    for area in free:
        for problem in range(area.firstProblem, area.endProblem):
            seconds = cost.pairSeconds(problem) * area.solutionCount
            rows[problem] = rows.get(problem, 0.0) + seconds
    if not rows:
        return 0, 0.0
    longest = max(rows, key=lambda problem: rows[problem])
    return longest, rows[longest] / sum(rows.values())


def _sizesOf(ini: ClientConfig, unit: Unit, most: int = 3) -> Tuple[str, ...]:
    last = min(unit.lastProblem + 1, unit.firstProblem + most)
    return tuple(ini.describeProblem(at) for at in range(unit.firstProblem, last))


def _repeats(ini: ClientConfig) -> str:
    """How often a kernel is launched, and what a pair has beside: for the assumptions."""
    values: Mapping[str, str] = dict(ini.entries)
    text = (
        "NumBenchmarks %s, SyncsPerBenchmark %s, EnqueuesPerSync %s, NumWarmups %s, "
        "SleepPercent %s, NumElementsToValidate %s"
    ) % tuple(
        values[key]
        for key in (
            "num-benchmarks",
            "num-syncs-per-benchmark",
            "num-enqueues-per-sync",
            "num-warmups",
            "sleep-percent",
            "num-elements-to-validate",
        )
    )
    least = values.get("min-flops-per-sync", "0")
    return text + (", MinFlopsPerSync %s" % least if least not in ("0", "1") else "")
