# SPDX-License-Identifier: MIT
"""Runs the host as a child of this process: its output into the log, its end when we end.

    host and everything below it --(one pipe: bytes)--> log, and the terminal as far as wanted

One thread and one wait. The host has a session of its own, so that Ctrl-C reaches this process
alone, which then ends the host and everything that it has started.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from types import FrameType
from typing import (
    BinaryIO,
    Callable,
    Deque,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from .Errors import RunError
from .HostBootstrap import GRACE_SECONDS, adoptOrphans, descendants, endDescendants
from .Terminal import TerminalWatch, silence

# Lines that start so are meant for the user's terminal, whoever below the host printed them.
TERMINAL_MARK = b"TensileParallel: "
# …and those that start so even with --quiet.
NOTE_MARK = TERMINAL_MARK + b"note: "

TICK_SECONDS = 0.2
# How long output is still read after the host's end, if something of it holds the pipe.
DRAIN_SECONDS = 2.0
LINE_LIMIT = 1 << 16
TAIL_LINES = 15
# Of the first error as well: what Tensile says last may be only what followed from it.
ERROR_LINES = 10
FIRST_ERROR = re.compile(
    rb"Traceback \(most recent|\w*(Error|Exception)\b|(TensileParallelClient: )?error:|"
    rb"(Tensile::)?fatal\b",
    re.I,
)


@dataclass(frozen=True)
class HostEnd:
    """How the host's process ended.

    Attributes:
        status: its exit status, as a shell shows it.
        signal: the signal that this process was told to stop with; None if it was not.
        tail: the lines from the first error on, where they are others, and the last ones.
    """

    status: int
    signal: Optional[int]
    tail: Tuple[str, ...]


def runHost(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: BinaryIO,
    echoAll: bool = False,
    echoMarked: bool = True,
    passFds: Sequence[int] = (),
    show: Optional[Callable[[bytes], None]] = None,
    onTick: Callable[[], None] = lambda: None,
) -> HostEnd:
    """Run the host to its end, or to ours.

    Args:
        command: its command line.
        environment: its whole environment.
        log: unbuffered file, opened for appending; gets every line with a time stamp.
        echoAll: show its output on the terminal as well.
        echoMarked: show the lines that are marked for the terminal.
        passFds: descriptors that it inherits.
        show: gets the lines that are to be shown; None to print them.
        onTick: called several times a second.

    Raises:
        RunError: it could not be started.
    """
    adoptOrphans()
    others = descendants(os.getpid())
    with _Signals() as stop:
        try:
            process = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=tuple(passFds),
            )
        except OSError as error:
            raise RunError("the host could not be started: %s" % error) from error
        assert process.stdout is not None
        output = _Output(log, echoAll, echoMarked, show)
        try:
            _pump(process, output, stop, onTick)
        finally:
            grace = GRACE_SECONDS if stop.number is None else 0.0
            endDescendants(os.getpid(), spare=others, grace=grace)
            process.wait()
            process.stdout.close()
        output.finish()
        status = process.returncode
        return HostEnd(128 - status if status < 0 else status, stop.number, output.tailText())


def timeStamp() -> str:
    """Now, with the zone, to milliseconds."""
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


class _Signals:
    """Notes the first SIGINT, SIGTERM or SIGHUP instead of dying of it; those ignored stay so.

    A SIGHUP that tells only that our terminal was closed is none of them: a run may take a day.
    """

    def __init__(self) -> None:
        self._terminal = TerminalWatch()
        self.number: Optional[int] = None
        self.times = 0
        self._before: Dict[int, object] = {}

    def __enter__(self) -> "_Signals":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]
        self._terminal.close()

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        if number == signal.SIGHUP and self._terminal.isGone:
            return
        self.number = self.number or number
        self.times += 1


def _pump(
    process: "subprocess.Popen[bytes]",
    output: "_Output",
    stop: _Signals,
    onTick: Callable[[], None],
) -> None:
    """Move output until the host has ended and its pipe is empty, or until it has to be killed.

    A signal is handed on to the host, which ends everything below it (HostBootstrap.py). What is
    left afterwards is the caller's to kill; a second signal comes to that at once.
    """
    pipe = process.stdout.fileno()
    told = ended = None
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            onTick()
            now = time.monotonic()
            if stop.number is not None and told is None:
                told = now
                process.terminate()
            if told is not None and (stop.times > 1 or now - told > 2 * GRACE_SECONDS):
                return
            if ended is None and process.poll() is not None:
                ended = now
            if not selector.get_map():
                if ended is not None:
                    return
                time.sleep(TICK_SECONDS)
            elif selector.select(TICK_SECONDS if ended is None else 0.05):
                data = os.read(pipe, LINE_LIMIT)
                output.write(data)
                if not data:
                    selector.unregister(pipe)
            elif ended is not None and now - ended > DRAIN_SECONDS:
                return


class _Output:
    """Cuts bytes into lines for the log and the terminal. Long lines are cut into pieces."""

    def __init__(
        self,
        log: BinaryIO,
        echoAll: bool,
        echoMarked: bool,
        show: Optional[Callable[[bytes], None]],
    ) -> None:
        self._log = log
        self._show = show or self._echo
        self._echoAll = echoAll
        self._echoMarked = echoMarked
        self._rest = b""
        self._tail: Deque[Tuple[int, bytes]] = deque(maxlen=TAIL_LINES)
        self._error: List[Tuple[int, bytes]] = []
        self._count = 0

    def write(self, data: bytes) -> None:
        """Take what came through the pipe."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) >= LINE_LIMIT:
            lines.append(self._rest[:LINE_LIMIT])
            self._rest = self._rest[LINE_LIMIT:]
        self._write(lines)

    def finish(self) -> None:
        """Take what came without a newline."""
        self._write([self._rest] if self._rest else [])
        self._rest = b""

    def tailText(self) -> Tuple[str, ...]:
        """The lines from the first error on, and the last ones; none of them is empty."""
        first = self._tail[0][0] if self._tail else 0
        error = [line for number, line in self._error if number < first]
        between = first - self._error[len(error) - 1][0] > 1 if error else False
        lines = error + [b"..."] * between + [line for _, line in self._tail]
        return tuple(line.decode("utf-8", "replace") for line in lines)

    def _keep(self, line: bytes) -> None:
        self._count += 1
        entry = (self._count, line[:500])
        self._tail.append(entry)
        if len(self._error) < ERROR_LINES and (self._error or FIRST_ERROR.match(line.lstrip())):
            self._error.append(entry)

    def _write(self, lines: List[bytes]) -> None:
        if not lines:
            return
        prefix = timeStamp().encode() + b" host: "
        try:
            self._log.write(b"".join(prefix + line + b"\n" for line in lines))
        except OSError:
            pass  # the disk is full: whoever needs the room for more than words says so
        for line in lines:
            if line.strip():
                self._keep(line)
        marked = [line for line in lines if line.startswith(TERMINAL_MARK)]
        if not self._echoMarked:
            marked = [line for line in marked if line.startswith(NOTE_MARK)]
        shown = lines if self._echoAll else marked
        if shown:
            self._show(b"".join(line + b"\n" for line in shown))

    def _echo(self, data: bytes) -> None:
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except (OSError, ValueError):
            # The terminal or the reader of a pipe is gone; the run goes on.
            silence(sys.stdout)
            self._show = lambda data: None
