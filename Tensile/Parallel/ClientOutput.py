# SPDX-License-Identifier: MIT
"""What the client prints while it runs: one line per finished (problem, solution) pair."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, replace
from typing import Iterator, Optional, Union

from .UnitLogs import openLog

_TAIL_BYTES = 1 << 14
# A cell at or above this is an overflow, not a speed: the client prints 9.22337e+18 after a
# launch that ran out of memory.
ABSURD_SPEED = 9.2e18

MEASURED_WORDS = frozenset(("PASSED", "NO_CHECK"))
REJECTED_WORDS = frozenset(("WRONG_HARDWARE", "DID_NOT_SATISFY_ASSERTS", "SKIPPED"))
FAILED_WORDS = frozenset(("FAILED", "FAILED_CONV", "INVALID"))

# {1,18}: an index that fits 64 bits; longer runs of digits are noise.
_PROGRESS = re.compile(
    r"([0-9]{1,18}),([0-9]{1,18})/([0-9]{1,18}),([0-9]{1,18})/([0-9]{1,18}),(.*)", re.DOTALL
)
_SKIPPED = " Skip Slow Solution: "
_EXCEPTION = "Exception occurred: "
# From the validation word on, both generations print the same 19 fields; classic then adds the
# clock, the power and the temperature before the closing enqueue time (LogReporter::Default).
_TIME, _SPEED, _GRANULARITY, _TILES, _FREQUENCY, _END = 1, 2, 4, 5, 19, 19
_CLASSIC_VALIDATION, _CLASSIC_END = 6, 22


@dataclass(frozen=True)
class PairLine:
    """One finished pair, as the client's standard output tells it.

    Attributes:
        run: number of the benchmark pass, from 0.
        problem: its index as printed (global, unless the INI lists only some of the sizes).
        lastProblem: index of the last problem of that client process.
        solution: its global index.
        lastSolution: index of the last solution of that client process.
        name: the solution's name.
        validation: the client's word, PASSED, NO_CHECK, FAILED and so on; SKIPPED for a pair that
            skip-slow-solution-ratio left out.
        timeUs: microseconds per enqueue; nan where nothing ran.
        gflops: GFlops, or GFlops per compute unit with CUEfficiency; nan where nothing ran.
        timeText: timeUs as printed; the CSV's WinnerTimeUS has the same text.
        cellText: gflops as printed; the CSV's cell has the same text.
        totalGranularity: as printed.
        tilesPerCu: as printed.
        frequency: median clock in MHz as printed; classic only, else empty.
        power: median power as printed; classic only, else empty.
        temperature: median temperature as printed; classic only, else empty.
        message: the exception that the client reported before this line; filled by readPairs.
    """

    run: int
    problem: int
    lastProblem: int
    solution: int
    lastSolution: int
    name: str
    validation: str
    timeUs: float
    gflops: float
    timeText: str = "nan"
    cellText: str = "nan"
    totalGranularity: str = ""
    tilesPerCu: str = ""
    frequency: str = ""
    power: str = ""
    temperature: str = ""
    message: str = ""

    @property
    def valid(self) -> bool:
        """Whether it is a measurement: 0.0 us, nan and overflows are not."""
        return (
            self.validation in MEASURED_WORDS
            and math.isfinite(self.timeUs)
            and self.timeUs > 0
            and 0 < self.gflops < ABSURD_SPEED
        )

    @property
    def rejected(self) -> bool:
        """Whether the client's own predicates left it out, which is not a failure.

        Without validation the client overwrites the reason with NO_CHECK; then a pair without a
        time and without an exception before it is a rejected one.
        """
        if self.validation in REJECTED_WORDS:
            return True
        nothingRan = math.isnan(self.timeUs) and not self.message
        return self.validation in MEASURED_WORDS and nothingRan

    @property
    def failed(self) -> bool:
        """Whether it was tried and gave no measurement."""
        return not self.valid and not self.rejected

    @property
    def cell(self) -> str:
        """What belongs into the CSV: the printed speed, or -1 as the client marks failures."""
        return self.cellText if self.valid else "-1"


def _number(text: str) -> Optional[float]:
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _fields(text: str) -> Optional[list[str]]:
    """Split the rest of a pair line; only the problem's size stands in quotes."""
    parts = text.split('"')
    if len(parts) == 1:
        return text.split(",")
    if len(parts) != 3 or not parts[0].endswith(",") or not parts[2].startswith(","):
        return None
    return parts[0][:-1].split(",") + [parts[1]] + parts[2][1:].split(",")


def _validationAt(fields: list[str]) -> Optional[int]:
    """Where the validation word stands: bias, factor and activation columns come and go."""
    for at in range(3, len(fields) - _TILES):
        word = fields[at]
        if word in MEASURED_WORDS or word in FAILED_WORDS or word in REJECTED_WORDS:
            return at
    return None


def parsePairLine(line: Union[str, bytes]) -> Optional[PairLine]:
    """Read one line of the client's output; both generations.

    Args:
        line: any line at all; a line without its newline at the end of a file may be torn, and
            is not to be given here.

    Returns:
        The pair, or None where the line is something else or was cut.
    """
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    match = _PROGRESS.match(text)
    if match is None:
        return None
    run, problem, lastProblem, solution, lastSolution = (int(match[i]) for i in range(1, 6))
    rest = match[6].rstrip("\r\n")
    place = (run, problem, lastProblem, solution, lastSolution)
    if rest.startswith(_SKIPPED):
        return PairLine(*place, rest[len(_SKIPPED) :], "SKIPPED", math.nan, math.nan)
    fields = _fields(rest)
    # fields[1] is the size: anything else there is two lines that ran into each other.
    if fields is None or len(fields) < 4 or not fields[1].startswith("("):
        return None
    at = _validationAt(fields)
    # fields[0] here is the client's fourth column, hence the 3.
    classic = at == _CLASSIC_VALIDATION - 3
    if at is None or len(fields) <= at + (_CLASSIC_END if classic else _END):
        return None
    timeUs, gflops = _number(fields[at + _TIME]), _number(fields[at + _SPEED])
    if timeUs is None or gflops is None:
        return None
    hardware = fields[at + _FREQUENCY : at + _CLASSIC_END] if classic else ("", "", "")
    return PairLine(
        *place,
        fields[at - 1],
        fields[at],
        timeUs,
        gflops,
        fields[at + _TIME],
        fields[at + _SPEED],
        fields[at + _GRANULARITY],
        fields[at + _TILES],
        *hardware,
    )


def readPairs(path: str) -> Iterator[PairLine]:
    """Stream the pairs of a client's log.

    Args:
        path: the log; a missing or unreadable file has no pairs.

    Yields:
        Each complete pair, with the exception that the client reported just before it. A last
        line without a newline is not a result.
    """
    try:
        stream = openLog(path)
    except OSError:
        return
    message = ""
    with stream:
        # A size limit per read: a log may hold megabytes of binary without a newline.
        for line in iter(lambda: stream.readline(1 << 16), b""):
            pair = parsePairLine(line) if line.endswith(b"\n") else None
            if pair is not None:
                yield replace(pair, message=message) if message else pair
                message = ""
                continue
            text = line.decode("utf-8", "replace")
            if text.startswith(_EXCEPTION):
                message = text[len(_EXCEPTION) :].strip()


@dataclass(frozen=True)
class LastLine:
    """The end of a client's log.

    Attributes:
        pair: the last whole pair line; None where there is none yet.
        written: when the log was written last, in seconds since the epoch: clients flush each line.
    """

    pair: Optional[PairLine]
    written: float


def lastLine(path: str) -> Optional[LastLine]:
    """What the end of a log tells; None where there is no log."""
    try:
        with open(path, "rb") as stream:
            written = os.fstat(stream.fileno()).st_mtime
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            lines = stream.read().split(b"\n")[:-1]
    except OSError:
        return None
    pairs = (parsePairLine(line) for line in reversed(lines))
    return LastLine(next((pair for pair in pairs if pair is not None), None), written)
