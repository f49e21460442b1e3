# SPDX-License-Identifier: MIT
"""One results file of the client: its header, its rows, whether it is complete. Cells stay text.

Both generations write the same shape (ResultFileReporter in the client's source): a first column
headed GFlops or GFlopsPerCU that holds the problem's index, the sizes and leading dimensions, a
few columns about the winner, then one column per solution. Nothing in it is ever quoted, so a row
is split at ", ".
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from dataclasses import dataclass
from typing import BinaryIO, Iterator, Mapping, Optional, Sequence

from .ClientOutput import PairLine
from .Errors import RunError
from .Types import Unit

SEPARATOR = b", "
FAILED_CELL = "-1"

_FIRST = ("GFlops", "GFlopsPerCU")
_LEADING = ("LDD", "LDC", "LDA", "LDB")
_WINNER = ("WinnerGFlops", "WinnerTimeUS", "WinnerIdx", "WinnerName")
_LITE_EXTRA = ("TilesPerCu", "TotalGranularity")
_CLASSIC_HARDWARE = ("WinnerFreq", "WinnerPower", "WinnerTemperature")
_SIZE = re.compile(r"Size[A-Z]\Z")
_KNOWN = frozenset(_FIRST + _LEADING + _WINNER + _LITE_EXTRA + _CLASSIC_HARDWARE + ("TotalFlops",))

# What the client writes in a row without a winner: -1.0 and an empty name; classic's clock, power
# and temperature are unsigned and start at 0 (ResultFileReporter::postProblem).
NO_WINNER = {name: "-1" for name in _WINNER + _LITE_EXTRA}
NO_WINNER["WinnerName"] = ""
NO_WINNER.update({name: "0" for name in _CLASSIC_HARDWARE})

# Bytes per read and write.
_READ = 1 << 20


@dataclass(frozen=True)
class Header:
    """The columns of a results file.

    Attributes:
        columns: the names before the solutions, in order.
        solutions: the solutions' names, in order; empty where only the columns matter.
    """

    columns: tuple
    solutions: tuple = ()

    @property
    def perCu(self) -> bool:
        """Whether the cells are GFlops per compute unit (CUEfficiency)."""
        return self.columns[0] == "GFlopsPerCU"

    @property
    def classic(self) -> bool:
        """Whether a classic client wrote it."""
        return "WinnerFreq" in self.columns

    @property
    def sizeColumns(self) -> tuple:
        """SizeI, SizeJ and so on, as many as the contraction has indices."""
        return tuple(name for name in self.columns if _SIZE.match(name))

    @property
    def hasWinner(self) -> bool:
        """Whether WinnerIdx and its neighbours are there (csv-export-extra-cols)."""
        return "WinnerIdx" in self.columns

    def at(self, name: str) -> int:
        """Position of a column, -1 where it is absent."""
        return self.columns.index(name) if name in self.columns else -1

    def line(self, names: Sequence[str]) -> bytes:
        """The header line of a file with these solutions."""
        return SEPARATOR.join(name.encode() for name in (*self.columns, *names)) + b"\n"

    def row(self, problem: int, values: Mapping[str, str], cells: Sequence[str]) -> bytes:
        """A row from texts; a column that values does not have stays empty."""
        texts = [str(problem)] + [values.get(name, "") for name in self.columns[1:]]
        return SEPARATOR.join(text.encode() for text in (*texts, *cells)) + b"\n"


def parseHeader(line: bytes) -> Optional[Header]:
    """Read a header line of either generation; None where it is no complete one."""
    if not line.endswith(b"\n"):
        return None
    names = line[:-1].decode("utf-8", "surrogateescape").split(", ")
    count = 0
    while count < len(names) and (names[count] in _KNOWN or _SIZE.match(names[count])):
        count += 1
    columns = tuple(names[:count])
    complete = columns[:1] and columns[0] in _FIRST and "TotalFlops" in columns
    if not complete or len(set(columns)) != count or b'"' in line:
        return None
    return Header(columns, tuple(names[count:]))


def readHeader(path: str) -> Optional[Header]:
    """Read the header of a results file; None where there is none (a missing or empty file)."""
    try:
        with open(path, "rb") as stream:
            return parseHeader(stream.readline())
    except OSError:
        return None


def makeHeader(*, classic: bool, sizeCount: int, extraColumns: bool, perCu: bool) -> Header:
    """The header that a client would have written, for a step where none lived to write one.

    Args:
        classic: classic Tensile, else TensileLite.
        sizeCount: how many sizes a problem has.
        extraColumns: the INI's csv-export-extra-cols.
        perCu: whether performance-metric is CUEfficiency.
    """
    sizes = tuple("Size" + chr(ord("I") + i) for i in range(sizeCount))
    first = (_FIRST[1 if perCu else 0],) + sizes + _LEADING
    extra = _WINNER if extraColumns else ()
    if classic:
        middle = ("WinnerFreq",) + extra + ("TotalFlops",) + _CLASSIC_HARDWARE[1:]
        return Header(first + middle)
    return Header(first + ("TotalFlops",) + ((_LITE_EXTRA + extra) if extraColumns else ()))


def problemPrefix(
    *, sizes: Sequence[int], strides: Mapping[str, Sequence[int]], identifier: str, aType: str
) -> dict:
    """What a row says about its problem, computed as the client does.

    Args:
        sizes: the INI's problem-size, indices i, j, k and so on.
        strides: "a-strides" and so on, elements; -1 or absent: packed.
        identifier: the INI's problem-identifier, "Contraction_l_Alik_Bljk_Cijk_Dijk".
        aType: the INI's a-type; four values of Int8x4 are packed into one element.

    Returns:
        Texts by column name: SizeI and so on, LDD, LDC, LDA, LDB, TotalFlops
        (ContractionProblem::flopCount, TensorDescriptor::calculate).
    """
    values = {"Size" + chr(ord("I") + i): str(size) for i, size in enumerate(sizes)}
    flops = 2 * (4 if aType == "Int8x4" else 1)
    for size in sizes:
        flops *= size
    values["TotalFlops"] = str(flops)
    for part in identifier.split("_"):
        tensor, letters = part[:1], re.sub("[^a-z]", "", part[1:])
        if tensor not in ("A", "B", "C", "D") or not letters:
            continue
        given = list(strides.get(tensor.lower() + "-strides", ()))
        packed = 1 if not given or given[0] < 0 else given[0]
        index = ord(letters[0]) - ord("i")
        if 0 <= index < len(sizes):
            packed *= sizes[index]
        leading = packed if len(given) < 2 or given[1] < 0 else given[1]
        values["LD" + tensor] = str(leading)
    return values


def failedRow(header: Header, problem: int, prefix: Mapping[str, str], count: int) -> bytes:
    """The row of a problem that could not be measured: every cell -1, no winner.

    Args:
        header: whose columns it has.
        problem: the index that stands in the first column.
        prefix: from problemPrefix or readPrefix.
        count: how many solutions the row has.
    """
    return header.row(problem, {**prefix, **NO_WINNER}, [FAILED_CELL] * count)


def readPrefix(path: str, index: int) -> Optional[dict]:
    """What a results file says about a problem, apart from its winner.

    Args:
        path: a results file.
        index: the problem's index as that file prints it.

    Returns:
        Texts by column name, or None where no complete row has that index.
    """
    start = b"%d, " % index
    try:
        with open(path, "rb") as stream:
            header = parseHeader(stream.readline())
            for line in stream if header else ():
                texts = line.split(SEPARATOR, len(header.columns))
                if line.startswith(start) and len(texts) > len(header.columns):
                    pairs = zip(header.columns[1:], texts[1:])
                    return {k: v.decode() for k, v in pairs if k not in NO_WINNER}
    except OSError:
        pass
    return None


@dataclass(frozen=True)
class ShardCheck:
    """What a unit's results file holds.

    Attributes:
        header: None where there is none.
        rows: how many leading rows are complete and in order, over all passes.
        perPass: of those, how many belong to each pass.
        torn: whether a row at the end was cut; it is not counted.
        finished: whether every row of the unit is there, and nothing else.
        problem: one line that says what is wrong; None for a finished file.
    """

    header: Optional[Header]
    rows: int
    perPass: tuple
    torn: bool
    finished: bool
    problem: Optional[str]

    @property
    def whole(self) -> int:
        """How many leading problems of the unit are complete in every pass."""
        return self.perPass[-1] if self.perPass else 0


def checkShard(
    path: str,
    unit: Unit,
    names: Sequence[str],
    passes: int = 1,
    written: Optional[Sequence[int]] = None,
) -> ShardCheck:
    """Find out what the results file of a unit holds, reading it row by row.

    Args:
        path: the file; written with csv-merge-same-problems=0, so pass by pass.
        unit: the rectangle that the client was told to measure.
        names: the names of all solutions of the step, in the client's order.
        passes: how often the client measures its problems (num-benchmarks).
        written: the indices that the file prints for the unit's problems, in order, where the
            unit's INI lists only its own sizes; otherwise they are the unit's own.

    Returns:
        What is complete. A missing, empty or foreign file is a problem text, not an exception.
    """
    if written is None:
        written = range(unit.firstProblem, unit.firstProblem + unit.problemCount)
    try:
        with open(path, "rb") as stream:
            return _checkStream(stream, os.path.basename(path), unit, names, passes, written)
    except OSError as error:
        reason = error.strerror or str(error)
        text = "results file %s cannot be read: %s" % (path, reason)
        return ShardCheck(None, 0, (0,) * passes, False, False, text)


def _checkStream(
    stream: BinaryIO,
    name: str,
    unit: Unit,
    names: Sequence[str],
    passes: int,
    written: Sequence[int],
) -> ShardCheck:
    line = stream.readline()
    header = parseHeader(line)
    wanted = tuple(names[unit.firstSolution : unit.firstSolution + unit.solutionCount])
    if header is None or header.solutions != wanted:
        text = "%s is empty" % name
        if line:
            what = "no complete header" if header is None else "other solutions than the library"
            text = "%s has %s" % (name, what)
        torn = bool(line) and not line.endswith(b"\n")
        return ShardCheck(header, 0, (0,) * passes, torn, False, text)
    separators = len(header.columns) + len(header.solutions) - 1
    rows, torn, problem = 0, False, None
    for line in stream:
        complete = line.endswith(b"\n") and line.count(SEPARATOR) == separators
        if not complete:
            torn = True
            problem = "row %d of %s is cut" % (rows + 1, name)
            break
        index = line.split(SEPARATOR, 1)[0]
        if rows == passes * len(written):
            problem = "%s has more rows than the unit: %s" % (name, index.decode("latin-1"))
            break
        expected = written[rows % len(written)]
        if index != b"%d" % expected:
            where = (name, index.decode("latin-1"), expected)
            problem = "%s has the row of problem %s where that of %d belongs" % where
            break
        rows += 1
    missing = passes * len(written) - rows
    if problem is None and missing:
        problem = "%s lacks %d of %d rows" % (name, missing, passes * len(written))
    count = len(written)
    perPass = tuple(min(max(rows - i * count, 0), count) for i in range(passes))
    return ShardCheck(header, rows, perPass, torn, problem is None, problem)


def winnerOf(pair: PairLine, index: int) -> dict:
    """The winner columns of both generations that name one valid pair, by column name.

    Args:
        pair: the winner.
        index: the solution index to write.
    """
    return {
        "TilesPerCu": pair.tilesPerCu,
        "TotalGranularity": pair.totalGranularity,
        "WinnerGFlops": pair.cellText,
        "WinnerTimeUS": pair.timeText,
        "WinnerIdx": str(index),
        "WinnerName": pair.name,
        "WinnerFreq": pair.frequency or "0",
        "WinnerPower": pair.power or "0",
        "WinnerTemperature": pair.temperature or "0",
    }


def writeShardFromPairs(
    path: str,
    header: Header,
    names: Sequence[str],
    pairs: Sequence[PairLine],
    *,
    problem: int,
    firstSolution: int,
    prefix: Mapping[str, str],
) -> int:
    """Save the pairs of one problem that were finished before a crash as a results file.

    Args:
        path: the file to write: a header and one row.
        header: whose columns it has.
        names: the names of all solutions of the step.
        pairs: of that problem and one pass, in any order; others are ignored by their solution.
        problem: the index to write.
        firstSolution: global index of the first solution wanted.
        prefix: from problemPrefix or readPrefix.

    Returns:
        How many solutions it holds: those from firstSolution on without a gap. Nothing is
        written for 0.
    """
    bySolution: dict = {}
    for pair in pairs:
        bySolution.setdefault(pair.solution, pair)
    kept = []
    while firstSolution + len(kept) < len(names):
        solution = firstSolution + len(kept)
        pair = bySolution.get(solution)
        if pair is None or pair.name != names[solution]:
            break
        kept.append(pair)
    if not kept:
        return 0
    valid = [pair for pair in kept if pair.valid]
    values = {**prefix, **NO_WINNER}
    if valid:
        best = max(valid, key=lambda pair: pair.gflops)
        fastest = min(valid, key=lambda pair: pair.timeUs)
        values.update(winnerOf(best, best.solution - firstSolution))
        if header.perCu:
            values["WinnerTimeUS"] = fastest.timeText
            values["TilesPerCu"] = fastest.tilesPerCu
            values["TotalGranularity"] = fastest.totalGranularity
    with atomicOutput(path) as stream:
        stream.write(header.line(names[firstSolution : firstSolution + len(kept)]))
        stream.write(header.row(problem, values, [pair.cell for pair in kept]))
    return len(kept)


@contextlib.contextmanager
def atomicOutput(path: str) -> Iterator[BinaryIO]:
    """Write a file that a reader sees whole or not at all.

    Args:
        path: the file; a link is followed; something that is no regular file is written to
            directly, since it cannot be replaced.

    Yields:
        A binary stream. After an exception nothing has changed.

    Raises:
        RunError: the file could not be written; the message names it and the reason.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    special = os.path.exists(target) and not os.path.isfile(target)
    # O_EXCL and an unguessable name: nobody can plant a link; the umask gives the mode.
    temporary = os.path.join(folder, ".%s.tmp" % uuid.uuid4().hex)
    try:
        if special:
            with open(target, "wb") as stream:
                yield stream
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            with open(os.open(temporary, flags, 0o666), "wb", buffering=_READ) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _syncFolder(folder)
    except OSError as error:
        raise RunError("cannot write %s: %s" % (path, error.strerror or error)) from error


def _syncFolder(folder: str) -> None:
    """Make a rename survive a power cut; file systems that cannot are left as they are."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def copyResults(output: str, source: str) -> None:
    """Copy a results file as it is, atomically: for a step that went whole to one device.

    Raises:
        RunError: either file cannot be read or written.
    """
    try:
        origin = open(source, "rb")
    except OSError as error:
        raise RunError("cannot read %s: %s" % (source, error.strerror or error)) from error
    with origin, atomicOutput(output) as stream:
        for block in iter(lambda: origin.read(_READ), b""):
            stream.write(block)
