# SPDX-License-Identifier: MIT
"""What a unit's files and its client's end say: one unit -> one outcome.

The results file tells which rows are complete; the client's output tells which pair was running
when it died, which pairs failed while it went on, and what it said last. Nothing here raises for
what a client wrote.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Dict, List, Optional, Set, Tuple

from .BestSolution import checkBest
from .ClientConfig import readClientConfig
from .ClientOutput import PairLine, readPairs
from .Errors import TensileParallelError, firstLine
from .Results import (
    ShardCheck,
    checkShard,
    makeHeader,
    problemPrefix,
    writeShardFromPairs,
)
from .Types import (
    CRASHED,
    FAILED,
    HUNG,
    MEASURED,
    ClientExit,
    Job,
    Outcome,
    PairFailure,
    Piece,
    UnitResult,
)

TAIL_LINES = 12
TAIL_BYTES = 4096
# More failed pairs of one unit than this are counted, not listed.
MAX_LISTED_FAILURES = 1000

# What both generations print when data and library are ready (LogReporter.hpp), before any pair.
READY_LINE = b"Log level: "

_SIGNALS = {130: "SIGINT", 132: "SIGILL", 134: "abort", 135: "SIGBUS", 136: "SIGFPE"}
_SIGNALS.update({137: "SIGKILL", 139: "segmentation fault", 143: "SIGTERM"})


def examine(job: Job, end: ClientExit) -> UnitResult:
    """Judges a unit after its client has ended.

    Args:
        job: what was to be measured.
        end: how the client ended.
    """
    if job.whole:
        return _examineWhole(job, end)
    check = _check(job)
    output = _readOutput(job) if end.status != 0 or _needsOutput(job, check) else _Output()
    pieces = _pieces(job, end, check, output)
    kind, message, lastPair = _judge(job, end, check, output)
    if kind in (CRASHED, HUNG):
        output.keepOnly(pieces)  # the other pairs are measured again, and judged then
    outcome = Outcome(
        job.unit,
        job.device.ordinal,
        kind,
        end.status,
        end.started,
        end.ended,
        message=message,
        lastPair=lastPair,
    )
    return UnitResult(
        outcome,
        pieces,
        validationFailures=output.invalid,
        rejected=len(output.rejected),
        failedPairs=len(output.failed),
        failures=output.failures(),
        tail=readTail(job.file(".log")),
        startSeconds=end.startSeconds,
        shortened=end.shortened and not check.finished,
        ready=output.ready,
    )


def _check(job: Job) -> ShardCheck:
    written = range(job.written, job.written + job.unit.problemCount)
    if job.best:
        return checkBest(job.file(".csv"), job.file(".log"), written)
    unit = replace(job.unit, firstSolution=0)
    return checkShard(job.file(".csv"), unit, job.columns, job.passes, written)


def describeExit(status: Optional[int]) -> str:
    """A client's exit status in words."""
    if status is None:
        return "could not be started"
    if status in _SIGNALS:
        return "exit %d, %s" % (status, _SIGNALS[status])
    return "exit %d" % status


def refusalOf(result: UnitResult) -> str:
    """The client's words where it refused its options or its INI; empty where it did not.

    It then ends before it touches the GPU, by an exception of boost::program_options, whatever its
    unit was.
    """
    if result.ready or result.pieces or "boost::program_options::" not in result.tail:
        return ""
    _, found, words = result.tail.partition("what():")
    return words.strip().splitlines()[0] if found and words.strip() else "see its output"


def readTail(path: str) -> str:
    """The last lines of a log, as text whatever the bytes were."""
    try:
        with open(path, "rb") as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(0, handle.tell() - TAIL_BYTES))
            data = handle.read()
    except OSError:
        return ""
    text = data.decode("utf-8", "replace")
    lines = [
        "".join(c if c.isprintable() or c == "\t" else "?" for c in line)
        for line in text.splitlines()
    ]
    return "\n".join(lines[-TAIL_LINES:])


class _Output:
    """What the client's log says about the unit's pairs; those are in the step's indices."""

    def __init__(self) -> None:
        self.ready = False
        self.rounds = 0  # how often the client began with the unit's problems anew
        self.last: Optional[PairLine] = None
        self.current: List[PairLine] = []  # the pairs of the last problem that was begun
        self.rejected: Set[Tuple[int, int]] = set()
        self.failed: Dict[Tuple[int, int], str] = {}  # the listed ones with the client's word
        self._wrong: Dict[Tuple[int, int], int] = {}  # how often the result was wrong

    @property
    def invalid(self) -> int:
        """How many results were wrong, each pass counted, as the client's exit status does."""
        return sum(self._wrong.values())

    def add(self, at: Tuple[int, int], pair: PairLine) -> None:
        """Takes note of the pair `at` (problem, solution)."""
        if self.last is None or pair.problem != self.last.problem:
            self.current = []
        if self.last is not None:
            before = (self.last.problem, self.last.solution)
            self.rounds += (pair.problem, pair.solution) <= before
        self.current.append(pair)
        self.last = pair
        if pair.valid:
            return
        if pair.rejected:
            self.rejected.add(at)
            return
        if pair.validation.startswith("FAILED"):
            self._wrong[at] = self._wrong.get(at, 0) + 1
        listed = len(self.failed) < MAX_LISTED_FAILURES
        text = pair.message or "%s, time %s us" % (pair.validation, pair.timeText)
        self.failed.setdefault(at, text if listed else "")

    def failures(self) -> Tuple[PairFailure, ...]:
        """The failed pairs that are listed."""
        return tuple(PairFailure(*at, text) for at, text in self.failed.items() if text)

    def keepOnly(self, pieces: Tuple[Piece, ...]) -> None:
        """Forgets the judgement of pairs that are in none of the pieces."""

        def held(at: Tuple[int, int]) -> bool:
            return any(
                0 <= at[0] - piece.firstProblem < piece.problemCount
                and 0 <= at[1] - piece.firstSolution < piece.solutionCount
                for piece in pieces
            )

        self.rejected = {at for at in self.rejected if held(at)}
        self.failed = {at: text for at, text in self.failed.items() if held(at)}
        self._wrong = {at: count for at, count in self._wrong.items() if held(at)}


def _needsOutput(job: Job, check: ShardCheck) -> bool:
    """Whether a clean end leaves questions: rows are missing, or cells are -1."""
    if not check.finished:
        return True
    try:
        with open(job.file(".csv"), "rb") as handle:
            handle.readline()
            return any(b", -1," in line or line.rstrip().endswith(b", -1") for line in handle)
    except OSError:
        return True


def _readOutput(job: Job) -> _Output:
    unit = job.unit
    output = _Output()
    output.ready = _isReady(job.file(".log"))
    for pair in readPairs(job.file(".log")):
        problem = pair.problem - job.written + unit.firstProblem
        # Of the best solution it prints a number that means nothing, 0 or 1.
        solution = 0 if job.best else pair.solution - job.firstColumn
        inside = unit.firstProblem <= problem <= unit.lastProblem
        if inside and unit.firstSolution <= solution <= unit.lastSolution:
            output.add((problem, solution), pair)
        # Anything else only looks like a line about one of the unit's pairs.
    return output


def _isReady(path: str) -> bool:
    """Whether the client got as far as its first pair."""
    try:
        with open(path, "rb") as handle:
            return any(line.startswith(READY_LINE) for line in handle)
    except OSError:
        return False


def _pieces(job: Job, end: ClientExit, check: ShardCheck, output: _Output) -> Tuple[Piece, ...]:
    """The complete rows, and the begun row of a client that was cut short as the log has it."""
    unit = job.unit
    pieces = []
    if check.whole:
        pieces.append(_piece(job, ".csv", unit.firstProblem, check.whole, unit.solutionCount))
    # With several passes a row's pairs are spread over the log; such a row is measured again.
    cutShort = (end.hung or end.shortened or end.status != 0) and job.passes == 1 and not job.best
    if check.whole < unit.problemCount and cutShort and output.current:
        local = job.written + check.whole
        if output.current[0].problem == local:  # the log is about the row that is not complete
            held = _salvageRow(job, check, output.current)
            if held:
                pieces.append(
                    _piece(job, ".salvaged.csv", unit.firstProblem + check.whole, 1, held)
                )
    return tuple(pieces)


def _piece(job: Job, suffix: str, firstProblem: int, count: int, solutions: int) -> Piece:
    unit = job.unit
    salvaged = suffix != ".csv"
    return Piece(
        job.relative(suffix),
        firstProblem,
        count,
        unit.firstSolution,
        solutions,
        job.device.ordinal,
        unit.number,
        written=job.written + firstProblem - unit.firstProblem,
        fileFirstSolution=unit.firstSolution,
        fileSolutionCount=solutions if salvaged else unit.solutionCount,
    )


def _salvageRow(job: Job, check: ShardCheck, pairs: List[PairLine]) -> int:
    """Writes the pairs that were finished before the end as a shard; returns how many it holds."""
    try:
        config = readClientConfig(job.file(".ini"))
        # The unit's INI lists sizes from its own first one on; lists that multiply come after.
        size = config.sizes[pairs[0].problem % config.sizeCount]
        first = job.firstColumn + job.unit.firstSolution
        prefix = problemPrefix(
            sizes=size.sizes,
            strides=size.strides,
            identifier=config.get("problem-identifier", "") or "",
            aType=config.get("a-type", "Float") or "Float",
        )
        header = check.header or makeHeader(
            classic=config.generation == "classic",
            sizeCount=len(size.sizes),
            extraColumns=config.flag("csv-export-extra-cols", False),
            perCu=config.get("performance-metric", "") == "CUEfficiency",
        )
        return writeShardFromPairs(
            job.file(".salvaged.csv"),
            header,
            job.columns,
            [replace(pair, solution=pair.solution - first) for pair in pairs],
            problem=pairs[0].problem,
            firstSolution=0,
            prefix=prefix,
        )
    except (OSError, ValueError, IndexError, TensileParallelError):
        return 0  # the pairs are measured again; nothing is lost but their time


def _judge(
    job: Job, end: ClientExit, check: ShardCheck, output: _Output
) -> Tuple[str, str, Optional[Tuple[int, int]]]:
    """(kind, message, pair that was running)."""
    status = end.status
    if status is None:
        return FAILED, firstLine(readTail(job.file(".log"))) or "the client did not start", None
    if end.shortened:  # whatever its exit status is: it was ended by us
        return MEASURED, "", None
    running = _runningPair(job, check, output)
    if end.hung:
        return HUNG, "no line from the client for %.0f s" % (job.silenceSeconds or 0), running
    # 128 and above can be a signal or a count of wrong results.
    if check.finished and (status < 128 or status == min(255, output.invalid)):
        return MEASURED, "", None
    if status >= 128:
        return CRASHED, "the client crashed (%s)" % describeExit(status), running
    if status == 0 and not check.rows and check.header is None:
        return FAILED, "the client exited 0 and wrote no results (%s)" % check.problem, None
    message = "the client's results are incomplete (%s): %s"
    return FAILED, message % (describeExit(status), check.problem or "rows are missing"), running


def _runningPair(job: Job, check: ShardCheck, output: _Output) -> Optional[Tuple[int, int]]:
    """The pair after the last one that the log reports, in the client's order.

    The log may be terse (log-level, PrintWinnersOnly): no pair of a complete row is named.
    """
    unit = job.unit
    pair = (unit.firstProblem + check.whole, unit.firstSolution)
    if output.last is not None:
        problem = output.last.problem - job.written + unit.firstProblem
        solution = output.last.solution - job.firstColumn + 1
        if solution > unit.lastSolution:
            problem, solution = problem + 1, unit.firstSolution
        if problem > unit.lastProblem and output.rounds + 1 < job.passes:
            problem = unit.firstProblem
        pair = max(pair, (problem, solution))
    elif not output.ready:
        return None
    return pair if pair[0] <= unit.lastProblem else None


def _examineWhole(job: Job, end: ClientExit) -> UnitResult:
    """A step that goes whole to one device: its file is handed on as the client left it."""
    tail = readTail(job.file(".log"))
    kind, message = MEASURED, ""
    if end.status is None:
        kind, message = FAILED, firstLine(tail) or "the client did not start"
    elif end.hung:
        kind, message = HUNG, "no line from the client for %.0f s" % (job.silenceSeconds or 0)
    elif end.status >= 128 and end.status != min(255, _countInvalid(job)):
        kind, message = CRASHED, "the client crashed (%s)" % describeExit(end.status)
    elif not os.path.exists(job.file(".csv")):
        kind, message = FAILED, "the client (%s) wrote no results" % describeExit(end.status)
    outcome = Outcome(
        job.unit, job.device.ordinal, kind, end.status, end.started, end.ended, message=message
    )
    return UnitResult(outcome, (), tail=tail, startSeconds=end.startSeconds)


def _countInvalid(job: Job) -> int:
    return sum(pair.validation.startswith("FAILED") for pair in readPairs(job.file(".log")))
