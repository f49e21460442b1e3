# SPDX-License-Identifier: MIT
"""What a person sees while a run goes on.

    on a terminal, with rich   a line per device and an overall bar, drawn anew in its place
    anywhere else              a plain line about every minute, at each tenth of a step, at events
    --quiet                    nothing

Whoever waits for something else calls show() often with the run's status; lines of others go
through write(), so that they stand above what is drawn. A reader or terminal that is gone is no
error: nothing is shown from then on.
"""

from __future__ import annotations

import io
import math
import os
import re
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, TextIO, Tuple

from .StatusText import (
    failureWords,
    leftWords,
    percent,
    progressLine,
    speedText,
    stallText,
    stateWords,
    stepWords,
)
from .Terminal import duration, oneLine, silence, tell

Status = Dict[str, Any]

# Seconds: between two lines where there is no terminal; the least time between two of them.
LINE_SECONDS = 60.0
LEAST_LINE_SECONDS = 2.0
# Percent of a step at which there is a line all the same.
MARK_PERCENT = 10
# Seconds without any progress after which it is said what each device does.
STALL_SECONDS = 60.0
STALL_VARIABLE = "TENSILE_PARALLEL_STALL_SECONDS"
# Seconds: the least time between two drawings; the longest while a run goes on (its clock ticks).
LEAST_DRAW_SECONDS = 0.25
DRAW_SECONDS = 1.0
_STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Stalls:
    """Notices when nothing moves."""

    def __init__(self, seconds: Optional[float] = None) -> None:
        """Begins.

        Args:
            seconds: how long that is to be; None: as the environment says, else a minute.
        """
        self._seconds = _stallSeconds() if seconds is None else seconds
        self._seen: Any = None
        self._since = 0.0
        self._next = math.inf

    def look(self, status: Status, now: float) -> str:
        """What to say now; empty as a rule. It is said again after twice the time, and so on."""
        if status["state"] != "benchmarking":
            self._seen = None
            return ""
        seen = (status["step"]["name"], status["step"]["pairs"]["done"], status["step"]["units"])
        seen += tuple(_mark(device) for device in status["devices"])
        if seen != self._seen or now < self._since:
            self._seen, self._since, self._next = seen, now, now + self._seconds
            return ""
        if now < self._next:
            return ""
        self._next = now + (now - self._since)
        return stallText(status, now - self._since, now)


def _mark(device: Dict[str, Any]) -> Tuple[Any, ...]:
    """What changes where a device has finished a pair, or begins a unit."""
    return tuple(device.get(key) for key in ("unit", "nthProblem", "solution"))


def _stallSeconds() -> float:
    try:
        seconds = float(os.environ.get(STALL_VARIABLE, ""))
    except ValueError:
        return STALL_SECONDS
    return seconds if seconds > 0 else STALL_SECONDS


class Display:
    """Shows nothing but the lines of others (--quiet)."""

    def __init__(
        self,
        stream: Optional[TextIO] = None,
        now: Callable[[], float] = time.time,
        onStall: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Begins.

        Args:
            stream: where; None for this process's output.
            now: the clock, in seconds since the epoch.
            onStall: also gets what is said when nothing moves (the log).
        """
        self._stream = sys.stdout if stream is None else stream
        self._now = now
        self._stalls = Stalls()
        self._onStall = onStall
        self._gone = False

    def show(self, status: Status) -> None:
        """Takes note of how the run is; to be called often."""
        text = self._stalls.look(status, self._now())
        if text:
            self._onStall(text)
            self._say("note: %s" % text)

    def write(self, data: bytes) -> None:
        """Shows whole lines of others as they are."""
        if self._gone:
            return
        try:
            self._stream.flush()
            buffer = getattr(self._stream, "buffer", None)
            if buffer is None:
                self._stream.write(data.decode("utf-8", "replace"))
            else:
                buffer.write(data)
            self._stream.flush()
        except (OSError, ValueError):
            self._lose()

    def close(self) -> None:
        """Takes away what is not to stay."""

    def _say(self, text: str) -> None:
        if not self._gone:
            tell("TensileParallel: %s" % text, self._stream)

    def _lose(self) -> None:
        """The terminal or the reader of a pipe is gone; the run goes on."""
        self._gone = True
        silence(self._stream)


class PlainDisplay(Display):
    """Lines, for logs, pipes and dumb terminals."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._saidAt = -math.inf
        self._said: Tuple[Any, ...] = ()
        self._tenth = 0

    def show(self, status: Status) -> None:
        super().show(status)
        now = self._now()
        place = (status["state"], (status["step"] or {}).get("started"))
        benchmarking = status["state"] == "benchmarking"
        if place != self._said:
            self._said, self._tenth = place, percent(status) // MARK_PERCENT
            if benchmarking or status["state"] not in ("kernels", "logic"):
                self._saidAt = now  # the step says itself that it begins
                return
        elif benchmarking and percent(status) // MARK_PERCENT > self._tenth:
            if percent(status) >= 100 or now - self._saidAt < LEAST_LINE_SECONDS:
                return  # the end is said by the step itself
            self._tenth = percent(status) // MARK_PERCENT
        elif 0 <= now - self._saidAt < LINE_SECONDS:
            return
        self._saidAt = now
        self._say(oneLine(progressLine(status, now)))


class LiveDisplay(Display):
    """A few lines at the terminal's lower end, drawn anew in their place."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._widths: List[int] = []  # of the lines that stand there
        self._drawnAt = -math.inf
        self._drawn: Optional[Status] = None
        self._size: Tuple[int, int] = (0, 0)

    def show(self, status: Status) -> None:
        super().show(status)
        now = self._now()
        since = now - self._drawnAt
        if self._gone or 0 <= since < LEAST_DRAW_SECONDS:
            return
        # Comparing is cheap beside drawing.
        if 0 <= since < DRAW_SECONDS and status == self._drawn and self._widths:
            return
        if not _isForeground(self._stream):
            return
        self._drawnAt, self._drawn = now, dict(status)
        self._put(self._eraseText() + self._render(status, now))

    def write(self, data: bytes) -> None:
        self._erase()
        super().write(data)

    def close(self) -> None:
        self._erase()

    def _say(self, text: str) -> None:
        self._erase()
        super()._say(text)

    def _erase(self) -> None:
        if self._widths:
            self._put(self._eraseText())

    def _eraseText(self) -> str:
        """Moves to where the lines begin, and clears from there on.

        A terminal that has become narrower has broken the lines anew.
        """
        columns = max(1, _sizeOf(self._stream)[0])
        rows = sum(max(1, -(-width // columns)) for width in self._widths)
        rows = min(rows, _sizeOf(self._stream)[1] - 1)  # what has left the screen stays
        self._widths = []
        return "\r\x1b[%dA\x1b[J" % rows if rows else ""

    def _put(self, text: str) -> None:
        if not text:
            return
        try:
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._lose()

    def _render(self, status: Status, now: float) -> str:
        columns, rows = _sizeOf(self._stream)
        lines = renderLines(status, now, columns, rows, getattr(self._stream, "encoding", ""))
        self._widths = [width for width, _ in lines]
        return "".join(text + "\n" for _, text in lines)


class _Text(io.StringIO):
    """Where rich draws to: says what the terminal can show."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding or "utf-8"

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


def renderLines(
    status: Status, now: float, columns: int, rows: int, encoding: str = "utf-8"
) -> List[Tuple[int, str]]:
    """The display as lines, each with the columns that it takes.

    Args:
        status: as in status.json.
        now: seconds since the epoch.
        columns: the terminal's width; a column is left free.
        rows: its height; a row is left free.
        encoding: the terminal's.
    """
    from rich.cells import cell_len
    from rich.console import Console

    width = max(8, columns - 1)
    console = Console(
        file=_Text(encoding),
        force_terminal=True,
        force_interactive=False,
        legacy_windows=False,
        width=width,
        height=max(4, rows),
        highlight=False,
        markup=False,
        emoji=False,
    )
    tail = _overall(status, now, width)
    most = max(0, rows - 1 - len(tail) - 1)
    if status["state"] == "benchmarking" and most > 1:
        console.print(_deviceTable(status, now, width, most - 1))
    for line in tail[: max(1, rows - 1)]:
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [(cell_len(_STYLES.sub("", line)), line) for line in text.split("\n")[:-1]]


def _deviceTable(status: Status, now: float, width: int, most: int) -> Any:
    """A row per device; as many columns as have room."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    wide, narrow = width >= 110, width < 60
    table.add_column("device", justify="right", no_wrap=True, min_width=6)
    table.add_column("problem", no_wrap=True, overflow="ellipsis", min_width=8 if narrow else 18)
    table.add_column("solution", justify="right", no_wrap=True, min_width=8)
    if not narrow:
        table.add_column("GFlops", justify="right", no_wrap=True, min_width=7)
        table.add_column("units", justify="right", no_wrap=True, min_width=5)
        table.add_column("failed", justify="right", no_wrap=True, min_width=6)
    if wide:
        table.add_column("kernel", no_wrap=True, overflow="ellipsis", style="dim")
    devices = status["devices"]
    shown = devices if len(devices) <= most else devices[: max(0, most - 1)]
    for device in shown:
        failures = device.get("failures") or 0
        cells = [
            Text(str(device["device"])),
            Text(_problemCell(device, now)),
            Text(_solutionCell(device)),
        ]
        if not narrow:
            cells.append(Text(speedText(device.get("gflops"))))
            cells.append(Text(str(device.get("units") or 0)))
            cells.append(Text(str(failures), style="red" if failures else ""))
        if wide:
            cells.append(Text(oneLine(device.get("name") or "")))
        table.add_row(*cells)
    if len(shown) < len(devices):
        table.add_row("", Text("… and %d more devices" % (len(devices) - len(shown)), style="dim"))
    return table


def _problemCell(device: Dict[str, Any], now: float) -> str:
    if device["state"] == "running":
        text = oneLine(device.get("size") or "problem %d" % device["problem"])
        kind = {"again": " (again)", "baseline": " (baseline)"}.get(device.get("kind") or "", "")
        quiet = now - device.get("lastLine", device["since"])
        return text + kind + (" silent for %s" % duration(quiet) if quiet > 30 else "")
    words = {
        "starting": "starting",
        "waiting": "waits for its lock",
        "idle": "idle",
        "lost": "lost",
    }
    text = words.get(device["state"], str(device["state"]))
    return text + (" of %s" % oneLine(device["holder"]) if device.get("holder") else "")


def _solutionCell(device: Dict[str, Any]) -> str:
    if device["state"] != "running":
        return ""
    return "%d/%d" % (device["solution"], device["ofSolutions"])


def _overall(status: Status, now: float, width: int) -> List[Any]:
    """The lines below the devices."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    elapsed = duration(now - status["started"])
    if status["state"] != "benchmarking" or not status["step"]:
        left = leftWords(status)
        words = [stateWords(status), "%s so far" % elapsed] + ([left] if left else [])
        return [Text(", ".join(words), overflow="ellipsis", no_wrap=True)]
    step = status["step"]
    pairs = step["pairs"]
    bar = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(3):
        bar.add_column(no_wrap=True, overflow="ellipsis")
    bar.add_row(
        Text(oneLine(stepWords(status))),
        ProgressBar(
            total=max(1, pairs["total"]),
            completed=pairs["done"] + pairs["failed"],
            width=max(4, min(40, width - 34)),
        ),
        Text("%d %%" % percent(status)),
    )
    words = [each for each in ("%s so far" % elapsed, leftWords(status)) if each]
    lines = [bar, Text(", ".join(words), overflow="ellipsis", no_wrap=True)]
    failed = failureWords(step)
    if failed:
        lines.append(Text(failed, style="red", overflow="ellipsis", no_wrap=True))
    if status.get("resumedPairs"):
        words = ["%d pairs were measured by an earlier run" % status["resumedPairs"]]
        lines.append(Text(words[0], style="dim", overflow="ellipsis", no_wrap=True))
    return lines


def _sizeOf(stream: TextIO) -> Tuple[int, int]:
    """(columns, rows) of a terminal; 80 and 24 where it does not say."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


def _isForeground(stream: TextIO) -> bool:
    """Whether we may draw: a shell's background job may not."""
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return True  # it is not our controlling terminal: nobody else is in its foreground


def isDrawable(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal on which lines can be drawn anew."""
    return _isTerminal(stream, environment) and _hasRich()


def _isTerminal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    try:
        terminal = stream.isatty()
    except ValueError:
        return False
    return terminal and environment.get("TERM", "") not in ("", "dumb", "unknown")


def _hasRich() -> bool:
    try:
        import rich.progress_bar  # noqa: F401
        import rich.table  # noqa: F401
    except Exception:  # not installed, or broken: a run does not depend on it
        return False
    return True


def makeDisplay(quiet: bool, onStall: Callable[[str], None] = lambda text: None) -> Display:
    """The display for this process's output."""
    if quiet:
        return Display(onStall=onStall)
    live = isDrawable(sys.stdout, os.environ)
    if not live and _isTerminal(sys.stdout, os.environ):
        tell("there are plain lines only: `pip install rich` gives a line per device, drawn anew")
    return (LiveDisplay if live else PlainDisplay)(onStall=onStall)
