# SPDX-License-Identifier: MIT
"""Joins the results files of many units into the one that a serial client would have written.

A row takes one of two ways. Where its pieces pass a few scans over their bytes (right number of
cells, no letters, no overflow, the named winner's cell holds the winner's speed), their cells are
copied as they are. Any other row is taken apart, cell by cell.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Callable, Mapping, NamedTuple, Optional, Sequence

from .Cells import CLASSES, FAILED, cellIs, cleanClasses, judge
from .ClientOutput import PairLine
from .Errors import RunError
from .Results import NO_WINNER, SEPARATOR, Header, atomicOutput, readHeader, winnerOf
from .ShardRows import FilePool, Piece, Segments, Source

__all__ = ["JoinReport", "Override", "Piece", "joinShards"]

PairOf = Callable[[int, int, int], Optional[PairLine]]
PrefixOf = Callable[[int], Mapping[str, str]]


@dataclass(frozen=True)
class Override:
    """A cell that was timed again, or is known to have failed; it beats every piece.

    Attributes:
        problem: global index.
        solution: global index.
        text: the cell.
        pair: the client's line, for the winner columns; its speed is the text.
        run: the pass it belongs to; None: every pass.
    """

    problem: int
    solution: int
    text: str
    pair: Optional[PairLine] = None
    run: Optional[int] = None


@dataclass(frozen=True)
class JoinReport:
    """What joining found.

    Attributes:
        rows: how many were written.
        corrected: (pass, problem) of the rows whose winner, as the client named it, was no valid
            cell, and was replaced; the pass is 0 where passes are merged.
        missing: how many cells nobody measured; written as -1.
        absurd: how many cells were nan, inf or an overflow; written as -1, as the client marks
            failures.
        damaged: one line for every row of a piece that could not be used.
    """

    rows: int
    corrected: tuple
    missing: int
    absurd: int
    damaged: tuple


class _Candidate(NamedTuple):
    """A possible winner of a row: the best of one segment."""

    speed: float
    solution: int
    texts: dict


def joinShards(
    output: str,
    pieces: Sequence[Piece],
    names: Sequence[str],
    problemCount: int,
    *,
    firstProblem: int = 0,
    header: Optional[Header] = None,
    passes: int = 1,
    mergePasses: bool = False,
    overrides: Sequence[Override] = (),
    prefixOf: Optional[PrefixOf] = None,
    pairOf: Optional[PairOf] = None,
) -> JoinReport:
    """Write the results file of a step from the files of its units, atomically.

    Where one piece holds a whole row, the row is copied; so for one pass, the file has the bytes
    that the serial client would have written. Where several do, the winner is the greatest valid
    cell, the lowest index on ties. In one piece the client's own choice stands among equal texts:
    it compared more digits than it printed.

    Args:
        output: the file to write.
        pieces: where two overlap, the later one counts. With several passes each holds every
            pass of its problems.
        names: of all solutions of the step, in order.
        problemCount: how many rows a pass has.
        firstProblem: global index of the first row; not 0 where the client was given a range.
        header: the columns where no piece's file has any (Results.makeHeader).
        passes: num-benchmarks.
        mergePasses: csv-merge-same-problems: one row per problem, with the best value of every
            cell; otherwise pass after pass.
        overrides: few; they are kept in memory.
        prefixOf: gives what a row says about its problem (Results.problemPrefix), for problems
            that no piece has a row of.
        pairOf: gives the client's line of (pass, problem, solution), for winners that are not
            the client's own.

    Returns:
        What was found on the way.

    Raises:
        RunError: the file cannot be written, or there is no header or prefix to be had.
    """
    found = (readHeader(piece.path) for piece in pieces)
    header = next((h for h in found if h is not None), header)
    if header is None:
        raise RunError("no unit left a results file with a header; nothing to write %s" % output)
    join = _Join(header, names, passes, pieces, overrides, prefixOf, pairOf)
    rows = 0
    try:
        with atomicOutput(output) as stream:
            stream.write(header.line(names))
            for runs in [range(passes)] if mergePasses else [(run,) for run in range(passes)]:
                segments = Segments(join.sources, len(names))
                for problem in range(firstProblem, firstProblem + problemCount):
                    stream.writelines(join.row(runs, problem, segments.of(problem)))
                    rows += 1
    finally:
        join.pool.close()
    return JoinReport(rows, tuple(join.corrected), join.missing, join.absurd, tuple(join.damaged))


class _Join:
    """Makes the rows; keeps the counts."""

    def __init__(
        self,
        header: Header,
        names: Sequence[str],
        passes: int,
        pieces: Sequence[Piece],
        overrides: Sequence[Override],
        prefixOf: Optional[PrefixOf],
        pairOf: Optional[PairOf],
    ) -> None:
        self.header = header
        self.names = [name.encode() for name in names]
        self.pool = FilePool()

        @functools.lru_cache(maxsize=2)  # many pieces have the same columns; a line may be 1 MB
        def headerLine(columns: range) -> bytes:
            return header.line(names[columns.start : columns.stop])

        count = len(header.columns)
        self.sources = [Source(piece, count, headerLine, passes) for piece in pieces]
        self.prefixOf = prefixOf
        self.pairOf = pairOf
        self.corrected: list = []
        self.missing = self.absurd = 0
        self.damaged: list = []
        self.overrides: dict = {}
        for override in overrides:
            self.overrides.setdefault(override.problem, []).append(override)
        # Positions of the columns that depend on the winner, and of those that do not.
        self.winnerAt = {n: i for i, n in enumerate(header.columns) if n in NO_WINNER}
        fixed = set(self.winnerAt.values()) | {0}
        self.fixedAt = [i for i in range(len(header.columns)) if i not in fixed]
        self.speedAt, self.indexAt = header.at("WinnerGFlops"), header.at("WinnerIdx")
        self.nameAt = header.at("WinnerName")

    def row(self, runs: Sequence[int], problem: int, segments: Sequence[tuple]) -> tuple:
        """The bytes of one row, in parts.

        Args:
            runs: the passes that the row is made of.
            problem: its global index.
            segments: from Segments.of.
        """
        found = self._read(runs, problem, segments)
        if len(runs) == 1 and problem not in self.overrides:
            parts = self._copied(problem, segments, found[0])
            if parts is not None:
                return parts
        return self._rebuilt(runs, problem, segments, found)

    def _read(self, runs: Sequence[int], problem: int, segments: Sequence[tuple]) -> list:
        """The rows of all passes and segments; None for what nobody has."""
        found, known = [], None
        for run in runs:
            rows: dict = {None: None}
            for source, _, _ in segments:
                if source in rows:  # a later piece cuts it in two
                    continue
                row = source.row(run, problem, self.pool)
                if row is not None and len(segments) + len(runs) > 2:
                    fixed = [row[i] for i in self.fixedAt]
                    known = known or fixed
                    if fixed != known:
                        row, text = None, "%s: row of problem %d is of another problem"
                        source.damage = text % (source.piece.path, problem)
                if row is None:
                    self.damaged.append(source.damage)
                rows[source] = row
            found.append([rows[source] for source, _, _ in segments])
        return found

    # Rows that are copied.

    def _copied(
        self, problem: int, segments: Sequence[tuple], rows: Sequence[Optional[list]]
    ) -> Optional[tuple]:
        """The row made of its pieces' bytes; None where one needs a closer look."""
        claims = []
        for (source, start, stop), row in zip(segments, rows):
            count = stop - start
            if row is None or count != len(source.piece.columns):
                return None
            classes = cleanClasses(row[-1], count)
            if classes is None:
                return None
            if self.indexAt >= 0:
                claim = self.claim(source, row, classes)
                if claim is None and row[-1] != SEPARATOR.join([FAILED] * count):
                    return None
                if claim is not None:
                    claims.append((claim, row))
        meta = rows[0][:-1]
        if len(rows) > 1:
            if self.indexAt < 0:
                if any(row[i] != meta[i] for row in rows for i in self.winnerAt.values()):
                    return None
            elif claims:
                texts = self._winnerTexts([claim for claim, _ in claims])
                for name, at in self.winnerAt.items():
                    meta[at] = texts[name]
        elif self.indexAt >= 0 and not claims:
            return None
        meta[0] = b"%d" % problem
        tail = rows[0][-1] if len(rows) == 1 else SEPARATOR.join(row[-1] for row in rows)
        return (SEPARATOR.join(meta), SEPARATOR, tail, b"\n")

    def claim(self, source: Source, row: Sequence[bytes], classes: bytes) -> Optional[_Candidate]:
        """The winner that the client named, if its cell holds what it says."""
        first, index = source.piece.columns.start, row[self.indexAt]
        text = row[self.speedAt]
        speed = judge(text)[1]
        if not index.isdigit() or len(index) > 18 or speed <= 0:
            return None
        solution = first + int(index)
        named = solution < source.piece.columns.stop and self.names[solution]
        if named != row[self.nameAt] or not cellIs(row[-1], classes, text, int(index)):
            return None
        return _Candidate(speed, solution, self.texts(row, solution))

    def texts(self, row: Sequence[bytes], solution: int) -> dict:
        """A row's own winner columns, with the index of the whole table."""
        texts = {name: row[at] for name, at in self.winnerAt.items()}
        if self.indexAt >= 0:
            texts["WinnerIdx"] = b"%d" % solution
        return texts

    def _winnerTexts(self, candidates: Sequence[_Candidate]) -> dict:
        """The winner columns of a row, from the best of each of its segments."""
        best = min(candidates, key=lambda candidate: (-candidate.speed, candidate.solution))
        if not self.header.perCu or self.indexAt < 0:
            return best.texts
        # With CUEfficiency the client writes the least time of any solution.
        timed = [c for c in candidates if judge(c.texts["WinnerTimeUS"])[1] > 0]
        fastest = min(timed, key=lambda c: float(c.texts["WinnerTimeUS"]), default=best)
        others = ("WinnerTimeUS", "TilesPerCu", "TotalGranularity")
        return {**best.texts, **{n: t for n, t in fastest.texts.items() if n in others}}

    # Rows that are taken apart.

    def _rebuilt(
        self,
        runs: Sequence[int],
        problem: int,
        segments: Sequence[tuple],
        found: Sequence[Sequence[Optional[list]]],
    ) -> tuple:
        """The row made cell by cell."""
        self._dropMiscounted(problem, segments, found)
        cells: list = []
        candidates = []
        dismissed = []
        for number, (source, start, stop) in enumerate(segments):
            rows = [rows[number] for rows in found]
            part = _Part(self, source, start, stop, runs, rows)
            part.override(self.overrides.get(problem, ()))
            candidate = part.best(problem)
            if candidate is not None:
                candidates.append(candidate)
            dismissed += part.dismissed
            self.missing += sum(text is None for text in part.cells)
            cells += [FAILED if text is None else text for text in part.cells]
        texts = {name: text.encode() for name, text in NO_WINNER.items()}
        if candidates:
            texts = self._winnerTexts(candidates)
        speed = max((candidate.speed for candidate in candidates), default=0.0)
        if any(not claimed < speed for claimed in dismissed):
            self.corrected.append((runs[0], problem))
        meta = self._meta(problem, found)
        for name, at in self.winnerAt.items():
            meta[at] = texts[name]
        return (SEPARATOR.join(meta + cells), b"\n")

    def _dropMiscounted(
        self, problem: int, segments: Sequence[tuple], found: Sequence[list]
    ) -> None:
        """Take out the rows that have more or fewer cells than their file has columns."""
        wrong = set()
        for rows in found:
            for number, (source, _, _) in enumerate(segments):
                row = rows[number]
                if row and row[-1].count(SEPARATOR) != len(source.piece.columns) - 1:
                    rows[number] = None
                    wrong.add(source.piece.path)
        text = "%s: row of problem %d has a wrong number of cells"
        self.damaged += [text % (path, problem) for path in sorted(wrong)]

    def _meta(self, problem: int, found: Sequence[Sequence[Optional[list]]]) -> list:
        """The columns before the solutions, from any row of the problem."""
        for row in (row for rows in found for row in rows if row):
            return [b"%d" % problem] + row[1:-1]
        if self.prefixOf is None:
            raise RunError("no piece has a row of problem %d, and its size is unknown" % problem)
        values = self.prefixOf(problem)
        texts = [values.get(name, "").encode() for name in self.header.columns[1:]]
        return [b"%d" % problem] + texts


class _Part:
    """The cells of one segment of a row that is taken apart."""

    def __init__(
        self,
        join: _Join,
        source: Optional[Source],
        start: int,
        stop: int,
        runs: Sequence[int],
        rows: Sequence[Optional[list]],
    ) -> None:
        self.join, self.source, self.start = join, source, start
        self.runs, self.rows = runs, rows
        self.cells: list = [None] * (stop - start)
        self.speeds = [0.0] * (stop - start)
        self.runOf = [runs[0]] * (stop - start)
        self.pairs: dict = {}
        self.dismissed: list = []
        for run, row in zip(runs, rows):
            if row is not None:
                first = source.piece.columns.start
                self._take(run, row[-1].split(SEPARATOR)[start - first : stop - first])

    def _take(self, run: int, texts: Sequence[bytes]) -> None:
        """Keep the better of each cell; compared as numbers, the first on ties."""
        for at, text in enumerate(texts):
            kept, speed = judge(text)
            self.join.absurd += kept is not text
            if self.cells[at] is None or speed > self.speeds[at]:
                self.cells[at], self.speeds[at], self.runOf[at] = kept, speed, run

    def override(self, overrides: Sequence[Override]) -> None:
        """Put in the cells that were timed again."""
        mine = [o for o in overrides if 0 <= o.solution - self.start < len(self.cells)]
        for override in mine:
            if override.run is not None and override.run not in self.runs:
                continue
            at = override.solution - self.start
            # The first one replaces what the pieces say, further passes of it are merged.
            if at not in self.pairs:
                self.cells[at] = None
            kept, speed = judge(override.text.encode())
            self.join.absurd += kept != override.text.encode()
            if self.cells[at] is None or speed > self.speeds[at]:
                self.cells[at], self.speeds[at] = kept, speed
                self.pairs[at] = override.pair

    def best(self, problem: int) -> Optional[_Candidate]:
        """The greatest valid cell, the client's own choice among equals."""
        join = self.join
        top = max(self.speeds)
        for row in self.rows:
            if row is None or join.indexAt < 0:
                continue
            claim = join.claim(self.source, row, row[-1].translate(CLASSES))
            if claim is None:
                if row[join.indexAt] != FAILED:
                    self.dismissed.append(_claimed(row[join.speedAt]))
                continue
            at = claim.solution - self.start
            inside = 0 <= at < len(self.cells) and at not in self.pairs
            if inside and claim.speed == top:
                return claim
        if top <= 0:
            return None
        return self._named(problem, self.speeds.index(top))

    def _named(self, problem: int, at: int) -> _Candidate:
        """A winner that no client named: its columns come from its line of output."""
        join, solution = self.join, self.start + at
        pair, run = self.pairs.get(at), self.runOf[at]
        if pair is None and at not in self.pairs and join.pairOf is not None:
            pair = join.pairOf(run, problem, solution)
        row = next((r for r, i in zip(self.rows, self.runs) if r and i == run), None)
        if pair is not None and pair.valid:
            texts = {name: text.encode() for name, text in winnerOf(pair, solution).items()}
        elif join.indexAt < 0 and row is not None:
            texts = join.texts(row, solution)
        else:
            texts = self._computed(at, row)
        if join.indexAt >= 0:
            texts["WinnerGFlops"], texts["WinnerName"] = self.cells[at], join.names[solution]
        return _Candidate(self.speeds[at], solution, texts)

    def _computed(self, at: int, row: Optional[Sequence[bytes]]) -> dict:
        """Winner columns without a line of output: the time follows from the speed."""
        texts = {name: text.encode() for name, text in NO_WINNER.items()}
        texts["WinnerIdx"] = b"%d" % (self.start + at)
        header = self.join.header
        flops = row[header.at("TotalFlops")] if row is not None else b""
        if flops.isdigit() and not header.perCu:
            texts["WinnerTimeUS"] = b"%g" % (float(flops) / self.speeds[at] / 1000.0)
        return texts


def _claimed(text: bytes) -> float:
    """The speed that a dismissed winner claimed; an absurd one beats all."""
    speed = judge(text)[1]
    return speed if speed > 0 else math.inf
