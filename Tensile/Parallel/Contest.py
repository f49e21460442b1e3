# SPDX-License-Identifier: MIT
"""Who wins a problem whose solutions were timed on several devices.

Two GPUs of one product differ by some per cent, so cells of different devices cannot be compared
when they are close. A split problem gets a home device. Cells of other devices that come close to
the best one are timed again at home; their new values stand in the results file. This is repeated
until every cell of another device is so far below the best cell of home that no difference between
devices seen in this run could have hidden a winner. Then the greatest cell of the row is the
winner, and it was decided by timings of one device.

The margin of contention is the largest ratio between two devices that the re-timings of this step
imply so far, and at least LEAST_MARGIN. Two devices that were compared with a third one only differ
by the product of what was seen there. A device that no such chain joins to a row's home has its
best cell of that row timed again, whatever its value. A baseline (Baseline.py) joins all of them.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import (
    Callable,
    Deque,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from .Baseline import Spread, ratioOf, spreadOf
from .Types import Piece, Unit

LEAST_MARGIN = 1.01
# A value that a re-timing gives may be off by this factor itself.
NOISE = 1.005
# How many of the rows measured last tell how many cells come near the best one…
ROWS_KEPT = 50
# …and of each the cells down to this part of it.
KEPT_RATIO = 1.2
# Before any tells it, so many contenders are expected.
FEW_CONTENDERS = 1.0

ReadCells = Callable[[Piece, int], List[Optional[float]]]


@dataclass
class _Row:
    """A split problem: what was measured of it."""

    pieces: List[Piece] = field(default_factory=list)
    home: Optional[int] = None
    asked: Set[int] = field(default_factory=set)  # solutions that home was asked to time again
    refused: Set[Tuple[int, int]] = field(default_factory=set)  # (device, solution): it failed
    spoiled: List[int] = field(default_factory=list)  # solutions without a result
    lead: float = math.inf  # best cell of home over the best of the others: a margin up to it holds


@dataclass(frozen=True)
class Retiming:
    """Solutions of a problem that one device is to time again."""

    device: int
    problem: int
    solutions: Tuple[int, ...]
    avoid: Tuple[int, ...] = ()  # those between them that gave no result


class Contests:
    """The split problems of one step.

    Attributes:
        ratios: (device, home) -> (least, greatest) value at home over the value on device.
    """

    def __init__(self, solutionCount: int, readCells: ReadCells, coldPairs: int = 0) -> None:
        """Begins without any split problem.

        Args:
            solutionCount: width of the table.
            readCells: the values of a piece's row; None for a cell that is no result.
            coldPairs: how many pairs at the beginning of a baseline are not compared.
        """
        self._coldPairs = coldPairs
        self._width = solutionCount
        self._readCells = readCells
        self._rows: Dict[int, _Row] = {}
        self._open: Set[int] = set()
        self.ratios: Dict[Tuple[int, int], Tuple[float, float]] = {}
        self._baseline: Dict[int, List[Optional[float]]] = {}
        self._watched: Dict[int, Dict[int, Tuple[float, int]]] = {}  # problem -> see watch()
        self._unread: Deque[Piece] = deque(maxlen=ROWS_KEPT)
        self._heads: Deque[List[float]] = deque(maxlen=ROWS_KEPT)  # best cell over the next ones

    @property
    def margin(self) -> float:
        """How much below the best a cell of another device may be and still contend."""
        extremes = [max(high, 1 / low) for low, high in self.ratios.values()]
        # One ratio may vary from problem to problem; so may those that are only implied.
        varied = max((high / low for low, high in self.ratios.values()), default=1.0)
        for group in relativeSpeeds(self.ratios):
            extremes.append(varied * max(group.values()) / min(group.values()))
        return max([LEAST_MARGIN, *(value * NOISE for value in extremes)])

    @property
    def spread(self) -> Optional[Spread]:
        """How far the devices differ by their baselines; None where that is not known."""
        return spreadOf(self._baseline)

    @property
    def splitProblems(self) -> List[int]:
        """Problems that were measured on more than one device."""
        return sorted(p for p, row in self._rows.items() if len(_devicesOf(row.pieces)) > 1)

    def add(self, piece: Piece) -> None:
        """Notes a measured piece. Whole rows are nobody's contest."""
        if piece.solutionCount > 1:
            self._unread.append(piece)
        if piece.solutionCount == self._width:
            rows = [p for p in _problems(piece) if p in self._rows]
        else:
            rows = list(_problems(piece))
        for problem in rows:
            self._rows.setdefault(problem, _Row()).pieces.append(piece)
            self._open.add(problem)

    def watch(self, unit: Unit, device: int, problem: int, solution: int, value: float) -> None:
        """Notes a pair that a running unit has finished: it tells what to expect, not who wins."""
        if unit.solutionCount < self._width:
            self._watched.setdefault(problem, {})[solution] = (value, device)

    def expected(self, problem: int) -> float:
        """How many cells of a split problem will be timed again, before all of it is measured.

        Those near the best one so far, if that stays the best; else as many as in other rows.
        """
        margin = self.margin
        row = self._rows.get(problem)
        cells = dict(self._watched.get(problem, {}))
        if row is not None:
            cells.update(self._cells(problem, row)[0])
        best = max((value for value, _ in cells.values()), default=0.0)
        near = Counter(device for value, device in cells.values() if value * margin >= best)
        known = sum(near.values()) - max(near.values(), default=0)
        usual = self._usual(margin)
        rest = 1 - len(cells) / self._width  # how likely the best one is still to come
        return (1 - rest) * (known + usual * rest) + rest * usual

    def _usual(self, margin: float) -> float:
        """How many cells come near the best one of a row, by the rows measured last."""
        while self._unread:
            piece = self._unread.popleft()
            values = [value for value in self._readCells(piece, piece.firstProblem) if value]
            ratios = sorted(max(values) / value for value in values)
            self._heads.append([ratio for ratio in ratios[1:] if ratio <= KEPT_RATIO])
        if not self._heads:
            return FEW_CONTENDERS
        return sum(ratio <= margin for head in self._heads for ratio in head) / len(self._heads)

    def resume(self, problem: int, home: int, failed: Iterable[int]) -> None:
        """Notes what an earlier run had decided: a row's home, and what could not be timed there.

        Args:
            problem: the row.
            home: its home.
            failed: solutions whose re-timing failed for good.
        """
        if problem in self._rows:
            row = self._rows[problem]
            row.home = home
            # Now, and not when its turn comes: rows before it were decided with this known.
            self._learn(*self._cells(problem, row), home)
            row.refused |= {(home, solution) for solution in failed}

    def addBaseline(self, piece: Piece) -> None:
        """Compares a device's baseline with that of the first device that has one."""
        values = self._readCells(piece, piece.firstProblem)[self._coldPairs :]
        if not self._baseline and all(value is None for value in values):
            return
        self._baseline[piece.device] = values
        home = next(iter(self._baseline))
        ratio = ratioOf(self._baseline[home], values)
        if ratio is not None and home != piece.device:
            self._compare(piece.device, home, ratio)

    def due(
        self,
        isOpen: Callable[[int], bool],
        waits: Mapping[int, float],
        pairSeconds: Callable[[int], float] = lambda problem: 0.0,
    ) -> List[Retiming]:
        """What must be timed again now, for every split problem that is measured.

        Args:
            isOpen: whether pairs of a problem are still to come.
            waits: the devices that can still measure, and how many seconds others would wait for
                each before it could begin.
            pairSeconds: what a pair of a problem takes.
        """
        found: List[Retiming] = []
        waits = dict(waits)
        undecided = set(self._open)
        looked: Set[int] = set()
        while undecided:
            looked |= undecided
            for problem in sorted(undecided):
                if isOpen(problem):
                    continue
                row = self._rows[problem]
                asked = self._contenders(problem, row, waits, pairSeconds(problem))
                if asked:
                    assert row.home is not None
                    row.asked.update(asked)
                    waits[row.home] += len(asked) * pairSeconds(problem)
                    found.append(Retiming(row.home, problem, tuple(asked), tuple(row.spoiled)))
                else:
                    self._open.discard(problem)
                    self._watched.pop(problem, None)
            # What was decided under a smaller margin may be open again.
            undecided = self._doubtful() - looked
            self._open |= undecided
        return found

    def _doubtful(self) -> Set[int]:
        margin = self.margin
        return {problem for problem, row in self._rows.items() if row.lead <= margin}

    def _contenders(
        self, problem: int, row: _Row, waits: Mapping[int, float], pairSeconds: float
    ) -> List[int]:
        """Cells of other devices that may hide a winner; empty where the row is decided."""
        cells, first = self._cells(problem, row)
        row.spoiled = sorted(set(range(self._width)) - set(cells))
        if row.home not in waits:
            row.home, row.asked = _chooseHome(cells, waits, self.margin, pairSeconds), set()
        if row.home is None:
            return []
        self._learn(cells, first, row.home)
        foreign = {s: value for s, (value, device) in cells.items() if device != row.home}
        own = [value for value, device in cells.values() if device == row.home]
        best = max(own, default=0.0)
        margin = self.margin
        # A cell that was asked for already has had its chance: it stands as it is.
        tried = row.asked | {s for device, s in row.refused if device == row.home}
        others = [value for s, value in foreign.items() if s not in tried]
        row.lead = min((best / value for value in others), default=math.inf)
        asked = {s for s, value in foreign.items() if best / value <= margin} - tried
        ahead = [s for s in asked if foreign[s] > best]
        if ahead:  # the one in front first: beside what it does at home few may be left
            asked = {max(ahead, key=lambda s: foreign[s])}
        asked |= self._strangers(cells, row.home)
        return sorted(asked - tried)

    def _strangers(self, cells: Dict[int, Tuple[float, int]], home: int) -> Set[int]:
        """The best cell of each device that nothing compares with home."""
        best: Dict[int, Tuple[float, int]] = {}
        groups = relativeSpeeds(self.ratios)
        known = next((group for group in groups if home in group), {home: 1.0})
        for solution, (value, device) in cells.items():
            if device not in known:
                best[device] = max(best.get(device, (0.0, 0)), (value, -solution))
        return {-solution for _, solution in best.values()}

    def _cells(
        self, problem: int, row: _Row
    ) -> Tuple[Dict[int, Tuple[float, int]], Dict[int, Tuple[float, int]]]:
        """(valid cells as they stand now, valid cells as they were measured first)."""
        now: Dict[int, Tuple[float, int]] = {}
        first: Dict[int, Tuple[float, int]] = {}
        for piece in row.pieces:
            values = self._readCells(piece, problem)
            for solution, value in enumerate(values, piece.firstSolution):
                if value is None:
                    continue  # a re-timing that failed takes nothing away
                now[solution] = (value, piece.device)
                first.setdefault(solution, now[solution])
        return now, first

    def _learn(
        self,
        now: Dict[int, Tuple[float, int]],
        first: Dict[int, Tuple[float, int]],
        home: int,
    ) -> None:
        """How far home and the others differ, from cells that were timed on both."""
        for solution, (value, device) in now.items():
            before, other = first.get(solution, (value, device))
            if device != home or other == home:
                continue
            self._compare(other, home, value / before)

    def _compare(self, device: int, home: int, ratio: float) -> None:
        low, high = self.ratios.get((device, home), (math.inf, 0.0))
        self.ratios[(device, home)] = (min(low, ratio), max(high, ratio))


def relativeSpeeds(
    ratios: Mapping[Tuple[int, int], Tuple[float, float]],
) -> List[Dict[int, float]]:
    """Devices that a chain of comparisons joins, each group with its devices' relative speeds.

    Args:
        ratios: (device, home) -> (least, greatest) value at home over value there.

    Returns:
        Per group: device -> speed, in units of one of them.
    """
    links: Dict[int, Dict[int, float]] = {}
    for (device, home), (low, high) in sorted(ratios.items()):
        ratio = math.sqrt(low * high)
        links.setdefault(device, {})[home] = ratio
        links.setdefault(home, {})[device] = 1 / ratio
    groups: List[Dict[int, float]] = []
    for start in links:
        if any(start in group for group in groups):
            continue
        group = {start: 1.0}
        reached = [start]
        for device in reached:
            for other, ratio in links[device].items():
                if other not in group:
                    group[other] = group[device] * ratio
                    reached.append(other)
        groups.append(group)
    return groups


def readValue(text: str) -> Optional[float]:
    """A cell as a number; None where it is no result (-1, nan, absurd)."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 9.2e18 else None


def spans(
    solutions: Sequence[int],
    pairSeconds: float,
    fixedSeconds: float,
    avoid: Sequence[int] = (),
) -> List[Tuple[int, int]]:
    """Contiguous (first, count) ranges that cover the solutions, as cheaply as possible.

    A client times a contiguous range; a gap is cheaper than another client where it is short. What
    gave no result is not in any of them: it could cost its neighbours their re-timing.
    """
    spoiled = set(avoid)
    ranges: List[Tuple[int, int]] = []
    for solution in sorted(solutions):
        if ranges:
            first, count = ranges[-1]
            gap = solution - (first + count)
            clean = spoiled.isdisjoint(range(first + count, solution))
            if clean and gap * pairSeconds <= fixedSeconds:
                ranges[-1] = (first, solution - first + 1)
                continue
        ranges.append((solution, 1))
    return ranges


def _problems(piece: Piece) -> range:
    return range(piece.firstProblem, piece.firstProblem + piece.problemCount)


def _devicesOf(pieces: Sequence[Piece]) -> Set[int]:
    return {piece.device for piece in pieces}


def _chooseHome(
    cells: Dict[int, Tuple[float, int]],
    waits: Mapping[int, float],
    margin: float,
    pairSeconds: float,
) -> Optional[int]:
    """The device on which the row is decided soonest: fewest cells to time again, least to wait."""
    if not waits:
        return None
    best = max((value for value, _ in cells.values()), default=0.0)
    near = Counter(device for value, device in cells.values() if value * margin >= best)
    top = {device for value, device in cells.values() if value == best}

    def seconds(device: int) -> Tuple[float, bool, int]:
        cost = (sum(near.values()) - near.get(device, 0)) * pairSeconds
        return waits[device] + cost, device not in top, device

    return min(waits, key=seconds)
