# SPDX-License-Identifier: MIT
"""Results of a client that ran only the best solution of each problem (best-solution).

The client asks its library for the solution, so that nothing is to be compared, and a problem is
measured by one pair. Its file is ragged: the header is written after the first problem and names
that problem's solution alone; each solution that is new in a later row is one more column, without
a name, from there on (CSVStackFile::setHeaderForKey in the client's source). With
csv-merge-same-problems all rows are written at the end, so they have all columns. Which solution a
column is, the client's output tells; and TensileLite's clients run several per problem where the
environment says GRIDBASED_TOPSOLS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import (
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from .Cells import judge
from .ClientOutput import readPairs
from .LibraryUpdate import Winner
from .Results import NO_WINNER, Header, ShardCheck, atomicOutput, parseHeader
from .ResultsJoin import JoinReport

# Stands for "whichever the client takes" where other steps have the names of their solutions.
BEST = "best-solution"

_ENCODING = ("utf-8", "surrogateescape")


@dataclass(frozen=True)
class BestRow:
    """What was measured for one problem.

    Attributes:
        columns: the texts before the solutions.
        cells: the solutions that were run, in order -> their cells.
    """

    columns: Tuple[str, ...]
    cells: Dict[str, str]


class BestFile(NamedTuple):
    """What a unit's results file holds.

    Attributes:
        header: None where there is none.
        rows: the leading rows that are complete.
        problem: what is wrong with the next one; None where all rows that are wanted are there.
    """

    header: Optional[Header]
    rows: List[BestRow]
    problem: Optional[str]


def readBest(path: str, log: str, written: Sequence[int]) -> BestFile:
    """Read a unit's results file, written with csv-merge-same-problems=0.

    Args:
        path: the file.
        log: the client's output.
        written: the indices that both print for the problems that are wanted, in order.
    """
    try:
        with open(path, "rb") as stream:
            header = parseHeader(stream.readline())
            lines = stream.readlines() if header is not None else []
    except OSError as error:
        return BestFile(None, [], "%s cannot be read: %s" % (path, error.strerror or error))
    if header is None:
        return BestFile(None, [], "%s has no complete header" % path)
    names = _namesByProblem(log)
    known = list(header.solutions)
    rows: List[BestRow] = []
    for index, line in zip(written, lines):
        texts = line[:-1].decode(*_ENCODING).split(", ")
        own = names.get(index)
        if not line.endswith(b"\n") or texts[0] != str(index) or own is None:
            break
        known += [name for name in own if name not in known]
        start = len(header.columns)
        if len(texts) != start + len(known):
            break
        cells = dict(zip(known, texts[start:]))
        rows.append(BestRow(tuple(texts[:start]), {name: cells[name] for name in own}))
    if len(rows) == len(written):
        return BestFile(header, rows, None)
    return BestFile(header, rows, "row %d of %s is missing or cut" % (len(rows) + 1, path))


def checkBest(path: str, log: str, written: Sequence[int]) -> ShardCheck:
    """How much of a unit's results file is complete; arguments as in readBest."""
    found = readBest(path, log, written)
    count = len(found.rows)
    return ShardCheck(found.header, count, (count,), False, found.problem is None, found.problem)


def _namesByProblem(log: str) -> Dict[int, List[str]]:
    names: Dict[int, List[str]] = {}
    for pair in readPairs(log):
        names.setdefault(pair.problem, []).append(pair.name)
    return names


class BestPiece(NamedTuple):
    """The rows of one unit.

    Attributes:
        path: its results file.
        log: its client's output.
        firstProblem: global index of the first row.
        written: the indices that the file prints.
    """

    path: str
    log: str
    firstProblem: int
    written: range


class BestTable:
    """The rows of a whole step."""

    def __init__(self, pieces: Sequence[BestPiece], problems: range, header: Header) -> None:
        """Reads them all.

        Args:
            pieces: where two overlap, the later one counts.
            problems: global indices of the step's problems.
            header: the columns where no piece has any.
        """
        self._problems = problems
        self._header = header
        self._rows: Dict[int, BestRow] = {}
        self._damaged: List[str] = []
        self._corrected: List[Tuple[int, int]] = []
        self._absurd = 0
        for piece in pieces:
            found = readBest(piece.path, piece.log, piece.written)
            self._header = Header((found.header or self._header).columns)
            if found.problem is not None:
                self._damaged.append(found.problem)
            for problem, row in enumerate(found.rows, piece.firstProblem):
                self._rows[problem] = row
        for problem in list(self._rows):
            self._rows[problem] = self._judged(problem, self._rows[problem])

    def _judged(self, problem: int, row: BestRow) -> BestRow:
        """A row whose absurd cells are -1, and whose named winner is a valid cell."""
        judged = {name: judge(cell.encode()) for name, cell in row.cells.items()}
        cells = {name: text.decode() for name, (text, _) in judged.items()}
        self._absurd += sum(cells[name] != cell for name, cell in row.cells.items())
        row = replace(row, cells=cells)
        at = self._header.at("WinnerName")
        if at < 0 or not row.columns[at] or judged.get(row.columns[at], (b"", 0.0))[1] > 0:
            return row
        self._corrected.append((0, problem))
        values = dict(NO_WINNER)
        name = _bestOf(cells)
        if name:
            number = str(list(cells).index(name))
            values.update(WinnerName=name, WinnerGFlops=cells[name], WinnerIdx=number)
        named = zip(self._header.columns, row.columns)
        return replace(row, columns=tuple(values.get(key, text) for key, text in named))

    def write(
        self, path: str, merged: bool, prefixOf: Callable[[int], Mapping[str, str]]
    ) -> JoinReport:
        """Write the results file that the serial client would have written, atomically.

        Args:
            path: the file.
            merged: csv-merge-same-problems: every row has all columns.
            prefixOf: what a row says about its problem (Results.problemPrefix), for problems
                that nobody has measured.

        Raises:
            RunError: it cannot be written.
        """
        known: List[str] = []
        everything: List[str] = []
        for _, row in self._inOrder():
            everything += [n for n in (row.cells if row else ()) if n not in everything]
        missing = 0
        with atomicOutput(path) as stream:
            for number, (problem, row) in enumerate(self._inOrder()):
                if row is None:
                    missing += 1
                    values = {**prefixOf(problem), **NO_WINNER}
                    columns = [values.get(name, "") for name in self._header.columns]
                    row = BestRow(tuple(columns), {})
                known += [name for name in row.cells if name not in known]
                if number == 0:
                    stream.write(self._header.line(known))
                shown = everything if merged else known
                texts = [str(problem), *row.columns[1:]]
                texts += [row.cells.get(name, "") for name in shown]
                stream.write(", ".join(texts).encode(*_ENCODING) + b"\n")
        count = len(self._problems)
        corrected = tuple(self._corrected)
        return JoinReport(count, corrected, missing, self._absurd, tuple(self._damaged))

    def winners(self, prefixOf: Callable[[int], Mapping[str, str]]) -> Iterator[Winner]:
        """The best of each problem, for the library-update-file."""
        for problem, row in self._inOrder():
            columns = self._header.columns
            values = dict(zip(columns, row.columns)) if row else prefixOf(problem)
            sizes = [values[name] for name in self._header.sizeColumns]
            name = _bestOf(row.cells) if row else ""
            yield Winner(sizes, name, row.cells[name] if row and name else "")

    def _inOrder(self) -> Iterator[Tuple[int, Optional[BestRow]]]:
        return ((problem, self._rows.get(problem)) for problem in self._problems)


def _bestOf(cells: Mapping[str, str]) -> str:
    """The name of the greatest valid cell, the first among equals; empty where none is valid."""
    speeds = {name: judge(cell.encode())[1] for name, cell in cells.items()}
    best = max(speeds, key=speeds.__getitem__, default="")
    return best if best and speeds[best] > 0 else ""
