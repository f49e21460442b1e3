# SPDX-License-Identifier: MIT
"""What the emulated client writes: the results file and the lines of stdout and log-file.

As the real clients' ResultFileReporter, LogReporter and CSVStackFile do it, oddities included.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Dict, List, NamedTuple, Tuple

from .EmulatedTimes import ProblemFacts

ROW_LEVELS = {"FAILED": 0, "INVALID": 0, "DID_NOT_SATISFY_ASSERTS": 1}
VALID = ("PASSED", "NO_CHECK")
FREQUENCY, POWER, HOTSPOT = 1700, 300, 50  # of the hardware monitor; classic only
NUMBER = "%.6g"  # prints a number as C++ streams do by default


class ClientDeath(Exception):
    """The real client would die by a signal here, after writing `message` to stderr."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message)
        self.number = number
        self.message = message


def abort(message: str, kind: str = "std::runtime_error") -> ClientDeath:
    """The death that an exception which nobody catches brings."""
    text = "terminate called after throwing an instance of '%s'\n  what():  %s\n"
    return ClientDeath(signal.SIGABRT, text % (kind, message))


def formatNumber(value: float) -> str:
    """A floating-point number as the client prints it: six digits; nan with the sign of x86."""
    text = NUMBER % value
    return "-nan" if text == "nan" else text


class Pair(NamedTuple):
    """What came of one (problem, solution).

    Attributes:
        validation: the client's word for it.
        time: microseconds, as text.
        speed: GFlops (per compute unit with CUEfficiency), as text.
        invalidEarly: the cell is -1 and nothing of it counts for the winner.
        ran: a kernel was run, so clocks and time of day are known.
    """

    validation: str
    time: str
    speed: str
    invalidEarly: bool
    ran: bool


class ResultsFile:
    """The results CSV, written as ResultFileReporter and CSVStackFile do."""

    def __init__(self, path: str, extra: bool, merge: bool, classic: bool, perUnit: bool) -> None:
        try:
            self.file = open(path, "w", encoding="utf-8", errors="surrogateescape", newline="")
        except OSError:
            self.file = None  # the client says nothing and goes on
        self.path = path
        self.extra, self.merge, self.classic = extra, merge, classic
        self.corner = "GFlopsPerCU" if perUnit else "GFlops"
        self.prefix: List[str] = []
        self.columns: List[str] = []
        self.rows: Dict[int, Dict[str, str]] = {}
        self.headerWritten = False
        self.startProblem()

    def describe(self, facts: ProblemFacts) -> None:
        """Fix the columns before the solutions (the same for every problem)."""
        if self.prefix:
            return
        sizes = ["Size" + chr(ord("I") + n) for n in range(len(facts.sizes))]
        winner = ["WinnerGFlops", "WinnerTimeUS", "WinnerIdx", "WinnerName"]
        columns = [self.corner] + sizes + ["LDD", "LDC", "LDA", "LDB"]
        if self.classic:
            columns += ["WinnerFreq"] + (winner if self.extra else [])
            columns += ["TotalFlops", "WinnerPower", "WinnerTemperature"]
        else:
            columns += ["TotalFlops"]
            columns += ["TilesPerCu", "TotalGranularity"] + winner if self.extra else []
        self.prefix = columns

    def startProblem(self) -> None:
        """Forget the last problem's row and winner."""
        self.cells: Dict[str, str] = {}
        self.position = -1
        self.winner = ("", -1, -1.0)  # name, index within the range, GFlops
        self.fastest = -1.0
        self.fit = ("-1", "-1")  # TilesPerCu, TotalGranularity of the fastest
        self.clocks = ("0", "0", "0")

    def add(self, name: str, pair: Pair, fit: Tuple[str, str], monitored: bool) -> None:
        """One solution's cell, and its part in the race for the winner."""
        if name not in self.cells and name not in self.columns:
            self.columns.append(name)
        self.position += 1
        if pair.invalidEarly:
            self.cells[name] = "-1"
            return
        # Comparisons as the client makes them, nan and absurd values included.
        timeUs, speed = float(pair.time), float(pair.speed)
        if self.fastest < 0 or self.fastest > timeUs:
            self.fastest, self.fit = timeUs, fit
        self.cells[name] = pair.speed
        if self.winner[2] < speed:
            self.winner = (name, self.position, speed)
            if monitored and pair.ran:
                self.clocks = (str(FREQUENCY), str(POWER), str(HOTSPOT))
        # Validation is reported after the speed, so a failed solution may be called the winner.
        if pair.validation not in VALID and pair.validation:
            self.cells[name] = "-1"

    def finishProblem(self, index: int, facts: ProblemFacts) -> None:
        """Write the row, or keep it where rows of the same problem are merged."""
        row = self._row(index, facts)
        if not self.merge:
            self._write(row)
        else:
            self._header()
            old = self.rows.setdefault(index, row)
            if old is not row:
                _mergeRow(old, row)
        self.startProblem()

    def _row(self, index: int, facts: ProblemFacts) -> Dict[str, str]:
        values = [index, *facts.sizes, *facts.leading]
        row = dict(zip(self.prefix, map(str, values)))
        row["TotalFlops"] = str(facts.flops)
        if self.extra:
            row["TilesPerCu"], row["TotalGranularity"] = self.fit
            row["WinnerName"], row["WinnerIdx"] = self.winner[0], str(self.winner[1])
            row["WinnerGFlops"] = formatNumber(self.winner[2])
            row["WinnerTimeUS"] = formatNumber(self.fastest)
        row["WinnerFreq"], row["WinnerPower"], row["WinnerTemperature"] = self.clocks
        row.update(self.cells)
        return row

    def _header(self) -> None:
        if not self.headerWritten:
            self.headerWritten = True
            self._put(", ".join(map(_escape, self.prefix + self.columns)) + "\n")

    def _write(self, row: Dict[str, str]) -> None:
        self._header()
        self._put(self.text(row) + "\n")

    def text(self, row: Dict[str, str]) -> str:
        """One line, without its end; columns that the row lacks stay empty."""
        return ", ".join([_escape(row.get(key, "")) for key in self.prefix + self.columns])

    def tear(self, index: int, facts: ProblemFacts) -> None:
        """For a fault: what is finished, then half a row without a line end."""
        for number in sorted(self.rows):
            self._write(self.rows[number])
        self._header()
        text = self.text(self._row(index, facts))
        self._put(text[: text.find(", ", len(text) // 3) + 1])

    def finish(self) -> None:
        """The end of the run: now the merged rows are written."""
        for index in sorted(self.rows):
            self._write(self.rows[index])

    def drop(self) -> None:
        """For a fault: no results file after all."""
        if self.file is not None:
            self.file = None
            os.unlink(self.path)

    def _put(self, text: str) -> None:
        if self.file is None:
            return
        try:
            self.file.write(text)
            self.file.flush()
        except OSError:
            pass  # a C++ stream that fails stays silent


def _escape(text: str) -> str:
    if '"' in text:
        return '"%s"' % text.replace('"', '""')
    if "," in text or "\n" in text or "\r" in text:
        return '"%s"' % text
    return text


def _leading(text: str) -> int:
    """The whole number that std::stoll finds at the beginning: 1 in 1.7e+06."""
    if not text:
        return 0
    match = re.match(r"\s*[+-]?\d+", text)
    if match is None:
        raise abort("stoll", "std::invalid_argument")
    return int(match.group())


def _mergeRow(old: Dict[str, str], new: Dict[str, str]) -> None:
    """Keep the better values of two rows of one problem, compared as the client does."""
    if "WinnerGFlops" in old and _leading(new["WinnerGFlops"]) > _leading(old["WinnerGFlops"]):
        for key in new:
            if key.startswith("Winner") or key in ("TilesPerCu", "TotalGranularity"):
                old[key] = new[key]
    fixed = ("TotalFlops", "LDD", "LDC", "LDA", "LDB", "GFlops", "GFlopsPerCU")
    for key, value in new.items():
        if key in fixed or key.startswith(("Size", "Winner")):
            continue
        if key not in old or _leading(value) > _leading(old[key]):
            old[key] = value


class LogFile:
    """One place that gets the line per pair: stdout, and the file of `log-file`."""

    def __init__(self, descriptor: int, level: int, winnersOnly: bool, classic: bool) -> None:
        self.descriptor = descriptor
        self.level = level
        self.winnersOnly = winnersOnly
        # TensileLite reads the row before it decides, which writes the header in any case.
        self.eagerHeader = not classic
        self.headerWritten = False
        self.startProblem()

    def startProblem(self) -> None:
        """The race for the winner begins anew."""
        self.best, self.first = float("inf"), True

    def write(self, text: str) -> None:
        """Everything at once, as the client flushes each line."""
        data = text.encode("utf-8", "surrogateescape")
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
        except OSError:
            pass  # closed or full: a C++ stream stays silent

    def pair(self, header: str, line: str, pair: Pair) -> None:
        """The line of one pair, where level and PrintWinnersOnly let it through."""
        shown = ROW_LEVELS.get(pair.validation, 2) <= self.level
        if self.winnersOnly and shown:
            valid = pair.validation in VALID
            shown = float(pair.time) < self.best or not valid or self.first
            if shown:
                self.best, self.first = (float(pair.time) if valid else self.best), False
        if not self.headerWritten and (shown or self.eagerHeader):
            self.headerWritten = True
            line = header + line if shown else header
            shown = True
        if shown:
            self.write(line)
