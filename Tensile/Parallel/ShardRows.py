# SPDX-License-Identifier: MIT
"""The rows of many results files, read in step: what ResultsJoin joins.

A piece is a rectangle of the problem x solution table that one file holds. Files are read
sequentially, never whole; at most a few dozen are open at a time.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from dataclasses import dataclass
from typing import Callable, Iterator, Optional, Sequence

from .Results import SEPARATOR

_OPEN_FILES = 48
_BUFFER = 1 << 17


@dataclass(frozen=True)
class Piece:
    """A rectangle of the table, and the file that holds it.

    Attributes:
        path: a results file, written with csv-merge-same-problems=0.
        problems: global indices of the rows that count, increasing; other rows are ignored.
        solutions: global indices of the columns that count.
        written: the index that the file prints for each of problems; None: the same.
        fileSolutions: the columns that the file has; None: solutions.
    """

    path: str
    problems: Sequence[int]
    solutions: range
    written: Optional[Sequence[int]] = None
    fileSolutions: Optional[range] = None

    def __post_init__(self) -> None:
        if not len(self.problems) or not len(self.solutions):
            raise ValueError("a piece holds at least one pair: %s" % self.path)
        if self.written is not None and len(self.written) != len(self.problems):
            raise ValueError("one printed index per problem: %s" % self.path)
        columns = self.columns
        if self.solutions.start < columns.start or self.solutions.stop > columns.stop:
            raise ValueError("a piece's columns lie in its file: %s" % self.path)

    @property
    def columns(self) -> range:
        """The columns that the file has."""
        return self.solutions if self.fileSolutions is None else self.fileSolutions

    def holds(self, problem: int) -> bool:
        """Whether it has that problem's row."""
        return self.position(problem) is not None

    def position(self, problem: int) -> Optional[int]:
        """Where that problem stands among its problems."""
        if isinstance(self.problems, range):
            return self.problems.index(problem) if problem in self.problems else None
        at = bisect.bisect_left(self.problems, problem)
        found = at < len(self.problems) and self.problems[at] == problem
        return at if found else None


class FilePool:
    """Keeps the least recently used files closed: a step may have thousands of pieces."""

    def __init__(self) -> None:
        self._streams: OrderedDict = OrderedDict()

    def readline(self, reader: "_Reader") -> bytes:
        """The next line of a reader's file, from the reader's offset on."""
        stream = self._streams.get(reader)
        if stream is None:
            if len(self._streams) >= _OPEN_FILES:
                self._streams.popitem(last=False)[1].close()
            stream = open(reader.path, "rb", buffering=_BUFFER)
            stream.seek(reader.offset)
            self._streams[reader] = stream
        else:
            self._streams.move_to_end(reader)
        return stream.readline()

    def release(self, reader: "_Reader") -> None:
        """Close a reader's file; it is opened again if it is read again."""
        stream = self._streams.pop(reader, None)
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Close all files."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()


class _Reader:
    """The rows of one pass in one file: a stretch of its bytes."""

    def __init__(self, path: str, offset: int, end: Optional[int]) -> None:
        self.path = path
        self.offset = offset
        self.end = end
        self.held: Optional[list] = None

    def line(self, pool: FilePool) -> bytes:
        if self.end is not None and self.offset >= self.end:
            return b""
        line = pool.readline(self)
        self.offset += len(line)
        return line


class Source:
    """A piece whose rows are asked for in increasing order of the problems, pass by pass."""

    def __init__(
        self, piece: Piece, metaCount: int, headerLine: Callable[[range], bytes], passes: int
    ) -> None:
        """
        Args:
            piece: what the file holds.
            metaCount: how many columns stand before the solutions.
            headerLine: gives the header of a file with these columns.
            passes: how many the file has.
        """
        self.piece = piece
        self.damage: Optional[str] = None
        self._metaCount = metaCount
        self._headerLine = headerLine
        self._passes = passes
        self._readers: Optional[list] = None

    def row(self, run: int, problem: int, pool: FilePool) -> Optional[list]:
        """The texts of a row: the columns before the solutions, then all cells in one.

        Returns:
            None where the file has no usable row; damage then says why.
        """
        self.damage = None
        try:
            return self._row(run, problem, pool)
        except OSError as error:
            self.damage = "%s cannot be read: %s" % (self.piece.path, error.strerror or error)
        return None

    def _row(self, run: int, problem: int, pool: FilePool) -> Optional[list]:
        if self._readers is None:
            self._readers = list(self._openPasses())
        if run >= len(self._readers):
            self.damage = "%s has no usable pass %d" % (self.piece.path, run)
            return None
        reader = self._readers[run]
        at = self.piece.position(problem)
        index = problem if self.piece.written is None else self.piece.written[at]
        row = self._find(reader, index, pool)
        if problem == self.piece.problems[-1]:
            pool.release(reader)
        if row is None:
            self.damage = "%s has no complete row of problem %d" % (self.piece.path, problem)
        return row

    def _find(self, reader: _Reader, index: int, pool: FilePool) -> Optional[list]:
        while True:
            row, reader.held = reader.held, None
            if row is None:
                line = reader.line(pool)
                if not line.endswith(b"\n"):
                    return None
                row = line[:-1].split(SEPARATOR, self._metaCount)
                if len(row) <= self._metaCount or not row[0].isdigit():
                    continue
            found = int(row[0]) if len(row[0]) < 19 else -1
            if found == index:
                return row
            if found > index:
                reader.held = row
                return None

    def _openPasses(self) -> Iterator[_Reader]:
        """One reader per pass; a pass starts where the index does not grow."""
        with open(self.piece.path, "rb") as stream:
            headerLine = self._headerLine(self.piece.columns)
            start = offset = len(headerLine)
            if stream.readline(offset + 1) != headerLine:
                return
            if self._passes == 1:
                yield _Reader(self.piece.path, start, None)
                return
            last = -1
            for line in stream:
                head = line.split(SEPARATOR, 1)[0]
                index = int(head) if head.isdigit() and len(head) < 19 else last + 1
                if index <= last:
                    yield _Reader(self.piece.path, start, offset)
                    start = offset
                last = index
                offset += len(line)
            yield _Reader(self.piece.path, start, offset)


class Segments:
    """Which source a problem's columns come from, problem by problem in increasing order."""

    def __init__(self, sources: Sequence[Source], columnCount: int) -> None:
        self._waiting = sorted(
            range(len(sources)), key=lambda rank: -sources[rank].piece.problems[0]
        )
        self._sources = sources
        self._columnCount = columnCount
        self._active: list = []
        self._ranks: Optional[list] = None
        self._segments: list = []
        self._stableUntil = -1

    def of(self, problem: int) -> list:
        """(source or None, first column, column after the last), without gaps, in order."""
        if problem < self._stableUntil:
            return self._segments
        while self._waiting and self._problems(self._waiting[-1])[0] <= problem:
            self._active.append(self._waiting.pop())
        self._active = sorted(r for r in self._active if self._problems(r)[-1] >= problem)
        ranks = [rank for rank in self._active if self._sources[rank].piece.holds(problem)]
        if ranks != self._ranks:
            self._ranks, self._segments = ranks, self._cover(ranks)
        self._stableUntil = self._stable(problem)
        return self._segments

    def _problems(self, rank: int) -> Sequence[int]:
        return self._sources[rank].piece.problems

    def _stable(self, problem: int) -> int:
        """The first problem that may have other segments."""
        problems = [self._problems(rank) for rank in self._active]
        if not all(isinstance(p, range) and p.step == 1 for p in problems):
            return problem
        ends = [p.stop for p in problems]
        if self._waiting:
            ends.append(self._problems(self._waiting[-1])[0])
        return min(ends) if ends else 1 << 62

    def _cover(self, ranks: Sequence[int]) -> list:
        ranges = [(self._sources[rank].piece.solutions, rank) for rank in ranks]
        ranges.sort(key=lambda item: item[0].start)
        overlap = any(a[0].stop > b[0].start for a, b in zip(ranges, ranges[1:]))
        spans = [(r.start, r.stop, rank) for r, rank in ranges]
        if overlap:
            spans = _paint(ranges)
        segments, at = [], 0
        for start, stop, rank in spans:
            if start > at:
                segments.append((None, at, start))
            segments.append((self._sources[rank], start, stop))
            at = stop
        if at < self._columnCount:
            segments.append((None, at, self._columnCount))
        return segments


def _paint(ranges: Sequence[tuple]) -> list:
    """Spans (start, stop, rank) in which the highest rank wins."""
    edges = sorted({edge for r, _ in ranges for edge in (r.start, r.stop)})
    spans: list = []
    for start, stop in zip(edges, edges[1:]):
        ranks = [rank for r, rank in ranges if r.start <= start and stop <= r.stop]
        if not ranks:
            continue
        if spans and spans[-1][2] == max(ranks) and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], stop, max(ranks))
        else:
            spans.append((start, stop, max(ranks)))
    return spans
