# SPDX-License-Identifier: MIT
"""What a unit's files and its client's end say: one unit -> one outcome.

The results file tells which rows are complete; the client's output tells which pair was running
when it died, which pairs failed while it went on, and what it said last. Nothing here raises for
what a client wrote.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import List, Optional, Tuple

from .ClientConfig import readClientConfig
from .ClientOutput import PairLine, readPairs
from .Errors import TensileParallelError
from .Results import ShardCheck, checkShard, makeHeader, problemPrefix, writeShardFromPairs
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
    check = checkShard(
        job.file(".csv"),
        replace(job.unit, firstSolution=0),
        job.columns,
        job.passes,
        range(job.written, job.written + job.unit.problemCount),
    )
    output = _readOutput(job, check) if end.status != 0 or _needsOutput(job, check) else _Output()
    pieces = _pieces(job, check, output)
    kind, message, lastPair = _judge(job, end, check, output)
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
        rejected=output.rejected,
        failures=tuple(output.failures),
        tail=readTail(job.file(".log")),
        startSeconds=end.startSeconds,
    )


def describeExit(status: Optional[int]) -> str:
    """A client's exit status in words."""
    if status is None:
        return "could not be started"
    if status in _SIGNALS:
        return "exit %d, %s" % (status, _SIGNALS[status])
    return "exit %d" % status


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
    """What the client's log says about the unit's pairs."""

    def __init__(self) -> None:
        self.ready = False
        self.last: Optional[PairLine] = None
        self.current: List[PairLine] = []  # the pairs of the last problem that was begun
        self.invalid = 0
        self.rejected = 0
        self.failures: List[PairFailure] = []


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


def _readOutput(job: Job, check: ShardCheck) -> _Output:
    output = _Output()
    output.ready = _isReady(job.file(".log"))
    for pair in readPairs(job.file(".log")):
        if output.last is None or pair.problem != output.last.problem:
            output.current = []
        output.current.append(pair)
        output.last = pair
        if pair.valid:
            continue
        if pair.rejected:
            output.rejected += 1
            continue
        if pair.validation.startswith("FAILED"):
            output.invalid += 1
        if len(output.failures) < MAX_LISTED_FAILURES:
            problem = pair.problem - job.written + job.unit.firstProblem
            message = "%s, time %s us" % (pair.validation, pair.timeText)
            solution = pair.solution - job.firstColumn
            output.failures.append(PairFailure(problem, solution, message))
    return output


def _isReady(path: str) -> bool:
    """Whether the client got as far as its first pair."""
    try:
        with open(path, "rb") as handle:
            return any(line.startswith(READY_LINE) for line in handle)
    except OSError:
        return False


def _pieces(job: Job, check: ShardCheck, output: _Output) -> Tuple[Piece, ...]:
    """The complete rows, and the begun row as far as the log has it."""
    unit = job.unit
    pieces = []
    if check.whole:
        pieces.append(_piece(job, ".csv", unit.firstProblem, check.whole, unit.solutionCount))
    # With several passes a row's pairs are spread over the log; such a row is measured again.
    if check.whole < unit.problemCount and job.passes == 1 and output.current:
        local = job.written + check.whole
        if output.current[0].problem == local:  # the log is about the row that is not complete
            held = _salvageRow(job, check, output.current, unit.firstProblem + check.whole)
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
        written=firstProblem if salvaged else job.written + firstProblem - unit.firstProblem,
        fileFirstSolution=unit.firstSolution,
        fileSolutionCount=solutions if salvaged else unit.solutionCount,
    )


def _salvageRow(job: Job, check: ShardCheck, pairs: List[PairLine], problem: int) -> int:
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
            problem=problem,
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
        return FAILED, _firstLine(readTail(job.file(".log"))) or "the client did not start", None
    running = _runningPair(job, output)
    if end.hung:
        return HUNG, "no line from the client for %.0f s" % (job.silenceSeconds or 0), running
    explained = status == 0 or status == min(255, output.invalid) or status < 128
    if check.finished and explained:
        return MEASURED, "", None
    if status >= 128:
        return CRASHED, "the client crashed (%s)" % describeExit(status), running
    if status == 0 and not check.rows and check.header is None:
        return FAILED, "the client exited 0 and wrote no results (%s)" % check.problem, None
    message = "the client's results are incomplete (%s): %s"
    return FAILED, message % (describeExit(status), check.problem or "rows are missing"), running


def _runningPair(job: Job, output: _Output) -> Optional[Tuple[int, int]]:
    """The pair after the last one that the log reports, in the client's order."""
    unit = job.unit
    if output.last is None:
        return (unit.firstProblem, unit.firstSolution) if output.ready else None
    problem = output.last.problem - job.written + unit.firstProblem
    solution = output.last.solution - job.firstColumn + 1
    if solution > unit.lastSolution:
        problem, solution = problem + 1, unit.firstSolution
    return (problem, solution) if problem <= unit.lastProblem else None


def _firstLine(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _examineWhole(job: Job, end: ClientExit) -> UnitResult:
    """A step that goes whole to one device: its file is handed on as the client left it."""
    tail = readTail(job.file(".log"))
    kind, message = MEASURED, ""
    if end.status is None:
        kind, message = FAILED, _firstLine(tail) or "the client did not start"
    elif end.status >= 128:
        kind, message = CRASHED, "the client crashed (%s)" % describeExit(end.status)
    elif end.hung:
        kind, message = HUNG, "no line from the client for %.0f s" % (job.silenceSeconds or 0)
    elif not os.path.exists(job.file(".csv")):
        kind, message = FAILED, "the client (%s) wrote no results" % describeExit(end.status)
    outcome = Outcome(
        job.unit, job.device.ordinal, kind, end.status, end.started, end.ended, message=message
    )
    return UnitResult(outcome, (), tail=tail, startSeconds=end.startSeconds)
