# SPDX-License-Identifier: MIT
"""What a (problem, solution) pair is expected to take; learns from what was measured.

The model is a roofline: a kernel takes as long as its arithmetic or its memory traffic, whichever
is longer, plus the launch. It knows nothing of the machine; only the ratios between problems
matter, and the first measurements set the scale. Leading dimensions are not multiplied in: memory
between the rows is not touched.

Where a figure is not derived from the INI it comes from measurements of the real client: 31 us per
pair beside the kernel, 14-18 ns per element of A+B+C for data initialisation, 60-70 ns per
multiply-add for validation on the CPU.
"""

from __future__ import annotations

import math
import re
from itertools import accumulate
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

from .ClientConfig import ClientConfig

# Nominal device, in operations and bytes per second; the scale is learned.
FLOPS_BY_BYTES = {1: 4e14, 2: 2e14, 4: 5e13, 8: 2.5e13, 16: 1e13}
BANDWIDTH = 1.2e12
LAUNCH_SECONDS = 6e-6

PAIR_OVERHEAD_SECONDS = 31e-6
INIT_SECONDS_PER_ELEMENT = 16e-9
VALIDATION_SECONDS_PER_MAC = 65e-9
DEFAULT_START_SECONDS = 0.2
LEAST_START_SECONDS = 0.01
# What a start still counts when another has been seen.
FADE = 0.9
LEAST_INIT = 0.001
# Devices of one run are not expected to differ by more than this factor.
PACE_LIMIT = 2.0
# What a size has in common with others is the mean of so many, if they are that near in length.
ENOUGH_SIZES = 8
NEAR_CLASSES = 2
# With more sizes than this, what is still running is learned from only until something is done.
WATCHED_SIZES = 2000

_TYPE_BYTES = {
    "Half": 2,
    "BFloat16": 2,
    "Float": 4,
    "XFloat32": 4,
    "Int32": 4,
    "Int8x4": 4,
    "Double": 8,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}
_OPERAND = re.compile(r"_([A-D])([a-z]+)")


class Part(NamedTuple):
    """Measured pairs: a rectangle and what it took, the client's start left out."""

    first: int
    count: int
    solutions: int
    seconds: float


class Cost:
    """Expected seconds for the pairs of one ClientParameters.ini.

    Attributes:
        startSeconds: what one client process takes before its first pair, data initialisation
            left out; learned.
    """

    def __init__(self, config: ClientConfig) -> None:
        """Reads the model's inputs from the INI.

        Args:
            config: the step's INI.
        """
        self.startSeconds = DEFAULT_START_SECONDS
        self._sizeCount = max(1, config.sizeCount)
        self._problemCount = config.problemCount
        self._shape = _ProblemShape(config)
        sizes = [size.sizes for size in config.sizes] or [(1,)]
        self._model = [self._shape.pairSeconds(size) for size in sizes]
        self._initial = [self._shape.initSeconds(size) for size in sizes]
        self._validation = [self._shape.validationSeconds(size) for size in sizes]
        self._validationSums = [0.0, *accumulate(self._validation)]
        self._classes = [_sizeClass(seconds) for seconds in self._model]
        self._seen: Dict[int, Tuple[float, float]] = {}  # size -> measured, modelled seconds
        self._paces: Dict[int, List[float]] = {}  # device -> [measured, expected] seconds
        self._running: Dict[int, List[Part]] = {}  # device -> what its unit has finished
        self._exact: Dict[int, float] = {}  # size -> measured seconds per pair
        self._starts = _Line()  # what clients took to start, by what the model has for their data
        self._initFactor = 1.0
        self._estimates: List[float] = []
        self._sums: List[float] = []
        self._rebuild()

    @property
    def learned(self) -> bool:
        """Whether anything was measured yet."""
        return bool(self._seen or self._running)

    def pairSeconds(self, problem: int) -> float:
        """Expected seconds of one pair of `problem` (global index) inside a running client."""
        return self._estimates[problem % self._sizeCount]

    def rectangleSeconds(self, first: int, count: int, solutions: int) -> float:
        """Expected seconds of a rectangle, without the client's start.

        Args:
            first: first problem (global index).
            count: number of problems.
            solutions: number of solutions of each.
        """
        return solutions * self._between(self._sums, first, count)

    def fixedSeconds(self, first: int, count: int) -> float:
        """Expected seconds of a client process beside its pairs: start, data and references.

        Data is initialised once, for the largest problem; validation's reference is computed once
        per problem and process.
        """
        return (
            self.startSeconds
            + self._initialSeconds(first, count)
            + self._between(self._validationSums, first, count)
        )

    def longestSilence(self, first: int, count: int, pairs: int = 1) -> float:
        """Expected seconds from a client's start to its first line, or between two lines.

        Args:
            first: first problem (global index).
            count: number of problems.
            pairs: how many pairs may pass without a line.
        """
        sizes = {p % self._sizeCount for p in range(first, first + min(count, self._sizeCount))}
        longest = max(self._validation[size] + pairs * self._estimates[size] for size in sizes)
        return self.startSeconds + self._initialSeconds(first, count) + longest

    def observeStart(self, first: int, count: int, seconds: float) -> None:
        """Learns from the start of a client.

        Args:
            first: first problem of its unit (global index).
            count: number of problems.
            seconds: from its start until it was ready for the first pair.
        """
        self._starts.add(self._initialSeconds(first, count) / self._initFactor, seconds)
        self.startSeconds, self._initFactor = self._starts.fit(LEAST_START_SECONDS, LEAST_INIT)

    def observe(
        self, first: int, count: int, solutions: int, seconds: float, device: int = 0
    ) -> None:
        """Learns from a finished unit, or from the begun part of one.

        Args:
            first: first problem (global index).
            count: number of problems.
            solutions: number of solutions.
            seconds: what its pairs took, the client's start left out.
            device: where.
        """
        if seconds <= 0 or count < 1 or solutions < 1:
            return
        expected = self.rectangleSeconds(first, count, solutions)
        pace = self._paces.setdefault(device, [0.0, 0.0])
        if self._seen:  # before anything was measured, the model says nothing about a device
            pace[0] += seconds
            pace[1] += expected
        part = Part(first, count, solutions, seconds)
        self._add(part, self.paceOf(device), self._seen, self._exact)
        self._running.pop(device, None)
        self._rebuild()

    def _add(
        self, part: Part, pace: float, seen: Dict[int, Tuple[float, float]], exact: Dict[int, float]
    ) -> None:
        """Adds what was measured of a part to the sums per size."""
        sizes = [p % self._sizeCount for p in range(part.first, part.first + part.count)]
        seconds = part.seconds / pace
        modelled = part.solutions * sum(self._model[size] for size in sizes)
        for size in sizes:
            measured, expected = seen.get(size, (0.0, 0.0))
            share = part.solutions * self._model[size]
            seen[size] = (measured + share * seconds / modelled, expected + share)
        if part.count == 1:
            exact[sizes[0]] = seconds / part.solutions

    def watch(self, progress: Mapping[int, Sequence[Part]]) -> None:
        """Learns from units that are still running; replaces what was said of them before.

        Args:
            progress: device -> finished parts of its unit.
        """
        self._running = {device: list(parts) for device, parts in progress.items()}
        if len(self._model) <= WATCHED_SIZES or not self._seen:
            self._rebuild()

    def paceOf(self, device: int) -> float:
        """Measured over expected of one device, over the mean of all; near 1.

        Held back towards 1 while little was measured: a wrong estimate of a problem must not look
        like a slow device for long.
        """
        taken, expected = self._paces.get(device, (0.0, 0.0))
        allTaken = sum(pace[0] for pace in self._paces.values())
        allExpected = sum(pace[1] for pace in self._paces.values())
        if not (taken and expected and allTaken and allExpected):
            return 1.0
        pace = (taken / expected) / (allTaken / allExpected)
        return min(PACE_LIMIT, max(1 / PACE_LIMIT, pace)) ** 0.5

    def _rebuild(self) -> None:
        """Recomputes the estimates and their running sums from what was learned."""
        seen, exact = dict(self._seen), dict(self._exact)
        for device, parts in self._running.items():
            for part in parts:
                self._add(part, self.paceOf(device), seen, exact)
        ratios: Dict[int, Tuple[int, float]] = {}  # size class -> sizes seen, sum of their ratios
        for size, (measured, modelled) in seen.items():
            count, total = ratios.get(self._classes[size], (0, 0.0))
            ratios[self._classes[size]] = (count + 1, total + measured / modelled)
        factors = {sizeClass: _factor(ratios, sizeClass) for sizeClass in set(self._classes)}
        self._estimates = [
            exact.get(size, model * factors[sizeClass])
            for size, (model, sizeClass) in enumerate(zip(self._model, self._classes))
        ]
        self._sums = [0.0, *accumulate(self._estimates)]

    def _initialSeconds(self, first: int, count: int) -> float:
        """Expected seconds of the data initialisation of a unit with these problems."""
        if count >= self._sizeCount:
            return self._initFactor * max(self._initial)
        sizes = (p % self._sizeCount for p in range(first, first + count))
        return self._initFactor * max(self._initial[size] for size in sizes)

    def _between(self, sums: Sequence[float], first: int, count: int) -> float:
        """Sum over problems, whose list repeats that of the sizes; `sums` runs over the sizes."""

        def upTo(problem: int) -> float:
            rounds, size = divmod(problem, self._sizeCount)
            return rounds * sums[-1] + sums[size]

        return upTo(first + count) - upTo(first)


class _Line:
    """A straight line through points: least squares, from running sums that fade.

    The first clients start all at once, with a cold disk: what they took says little of later ones.
    """

    def __init__(self) -> None:
        self._count = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        """Adds a point; those before it count a little less."""
        new = (1.0, x, y, x * x, x * y)
        old = (self._count, self._x, self._y, self._xx, self._xy)
        self._count, self._x, self._y, self._xx, self._xy = (
            FADE * before + each for before, each in zip(old, new)
        )

    def fit(self, least: float, leastSlope: float) -> Tuple[float, float]:
        """(height at x = 0, slope), neither below its least; the slope is 1 where it can be and
        the points do not tell it."""
        x, y = self._x / self._count, self._y / self._count
        spread = self._xx / self._count - x * x
        if spread > 0.01 * x * x:
            slope = (self._xy / self._count - x * y) / spread
        else:
            slope = 1.0
        most = max(leastSlope, (y - least) / x) if x else 1.0
        slope = min(max(slope, leastSlope), most)
        return max(least, y - slope * x), slope


class _ProblemShape:
    """What the INI says about every problem: data types, operands, repetitions."""

    def __init__(self, config: ClientConfig) -> None:
        identifier = config.get("problem-identifier", "") or ""
        self.operands = dict(_OPERAND.findall(identifier))
        self.bytes = {
            operand: _typeBytes(config.get(operand.lower() + "-type", "Float") or "Float")
            for operand in "ABCD"
        }
        self.complexFactor = 4 if "Complex" in (config.get("a-type", "") or "") else 1
        self.syncs = max(1, _integer(config, "num-syncs-per-benchmark", 1))
        self.enqueues = max(1, _integer(config, "num-enqueues-per-sync", 1))
        self.mostEnqueues = _integer(config, "max-enqueues-per-sync", -1)
        self.warmups = max(0, _integer(config, "num-warmups", 0))
        self.leastFlops = max(0, _integer(config, "min-flops-per-sync", 0))
        self.passes = config.rounds
        self.sleepFactor = 1 + max(0, _integer(config, "sleep-percent", 0)) / 100
        self.validated = _integer(config, "num-elements-to-validate", 0)

    @property
    def validates(self) -> bool:
        """Whether the client computes references on the CPU."""
        return self.validated != 0

    def pairSeconds(self, size: Sequence[int]) -> float:
        """Model seconds of one pair, all passes together."""
        flops = 2.0 * math.prod(size) * self.complexFactor
        traffic = sum(self.elements(operand, size) * self.bytes[operand] for operand in "ABCD")
        kernel = max(flops / FLOPS_BY_BYTES[self.bytes["A"]], traffic / BANDWIDTH)
        kernel += LAUNCH_SECONDS
        enqueues = self.enqueues
        if self.leastFlops and flops:
            enqueues = max(enqueues, math.ceil(self.leastFlops / flops))
            if self.mostEnqueues > 0:
                enqueues = min(enqueues, max(self.mostEnqueues, self.enqueues))
        timed = self.syncs * enqueues * kernel * self.sleepFactor
        return self.passes * (timed + self.warmups * kernel + PAIR_OVERHEAD_SECONDS)

    def initSeconds(self, size: Sequence[int]) -> float:
        """Seconds to initialise A, B and C of one problem."""
        return INIT_SECONDS_PER_ELEMENT * sum(self.elements(name, size) for name in "ABC")

    def validationSeconds(self, size: Sequence[int]) -> float:
        """Seconds of one problem's reference on the CPU."""
        if not self.validates:
            return 0.0
        results = max(1, self.elements("D", size))
        macs = math.prod(size)
        if self.validated > 0:
            macs = macs * min(1.0, self.validated / results)
        return VALIDATION_SECONDS_PER_MAC * macs * self.complexFactor

    def elements(self, operand: str, size: Sequence[int]) -> int:
        """Elements of a tensor: the product of the sizes that its index letters (i, j, k…) name."""
        indices = self.operands.get(operand) or self.operands.get("C") or ""
        positions = [ord(letter) - ord("i") for letter in indices]
        return math.prod(size[at] for at in positions if 0 <= at < len(size))


def _factor(ratios: Mapping[int, Tuple[int, float]], sizeClass: int) -> float:
    """Measured over modelled: the mean of the sizes that are nearest in length.

    Each size counts once, however much of it is measured: of the slow ones that is less.
    """
    count, total, nearest = 0, 0.0, None
    for other in sorted(ratios, key=lambda other: (abs(other - sizeClass), other)):
        distance = abs(other - sizeClass)
        nearest = distance if nearest is None else nearest
        if count >= ENOUGH_SIZES or distance > nearest + NEAR_CLASSES:
            break
        count, total = count + ratios[other][0], total + ratios[other][1]
    return total / count if count else 1.0


def _typeBytes(name: str) -> int:
    """Bytes of one element; the 8-bit types have many names and take one."""
    return _TYPE_BYTES.get(name, 1)


def _integer(config: ClientConfig, key: str, default: int) -> int:
    try:
        return int(config.get(key, str(default)) or default)
    except ValueError:
        return default


def _sizeClass(seconds: float) -> int:
    """Problems whose model times are within a factor of two learn from each other."""
    return int(math.floor(math.log2(seconds)))
