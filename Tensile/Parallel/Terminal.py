# SPDX-License-Identifier: MIT
"""What a person is told, wherever that is shown. A reader that is gone is no error.

`TensileParallel … | head -1` and `TensileParallel … >&- &` are runs like any other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import termios
from typing import Optional, TextIO


def openStreams() -> None:
    """Gives the process the standard streams that it was started without.

    Else the next file that is opened would take the number of one of them, and whatever a child
    prints would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The least free number is this one: those below are open by now.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    # Python has none either, and loky flushes them.
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)


def tell(text: str, stream: Optional[TextIO] = None) -> None:
    """Prints a line at once.

    Args:
        text: the line.
        stream: None for the output.
    """
    stream = sys.stdout if stream is None else stream
    try:
        # In one write, so that lines of several processes do not mix.
        stream.write(_encodable(text + "\n", stream))
        stream.flush()
    except (OSError, ValueError):
        silence(stream)


def answer(text: str) -> None:
    """Prints what a command was asked for: where it cannot be written, the command has failed.

    Raises:
        OSError: the output is a file on a full disk, say. A reader that is gone is none.
    """
    try:
        sys.stdout.write(_encodable(text + "\n", sys.stdout))
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        if error.errno in (errno.EPIPE, errno.EIO):
            return
        error.filename = "the output"
        raise


def _encodable(text: str, stream: TextIO) -> str:
    """The text as a terminal can show it: what its encoding lacks becomes an escape."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def oneLine(text: str) -> str:
    """A text on one line, without what would move a terminal's cursor or change its colours."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def escapedLine(text: str) -> str:
    """A text on one line that still tells what was in it: a newline in a path is \\n."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def many(count: int, word: str) -> str:
    """ "1 unit", "2 units"."""
    return "%d %s%s" % (count, word, "" if count == 1 else "s")


def shortName(text: str, head: int = 24, tail: int = 40) -> str:
    """Both ends of a long name: a kernel's goes on for pages."""
    return text if len(text) <= head + tail + 1 else "%s…%s" % (text[:head], text[-tail:])


def duration(seconds: float, tenths: bool = False) -> str:
    """12 s (with tenths: 12.3 s), 4 min 05 s, 3 h 02 min, 2 d 03 h, over 100 years."""
    if seconds > 100 * 365 * 86400:
        return "over 100 years"
    if tenths and seconds < 59.95:
        return "%.1f s" % seconds
    whole = max(0, int(seconds + 0.5))
    if whole < 60:
        return "%d s" % whole
    if whole < 3600:
        return "%d min %02d s" % divmod(whole, 60)
    minutes = whole // 60
    if minutes < 48 * 60:
        return "%d h %02d min" % divmod(minutes, 60)
    return "%d d %02d h" % divmod(minutes // 60, 24)


class TerminalWatch:
    """Knows when the terminal of this process's session is gone.

    SIGHUP alone does not tell: it is also what a person or a batch system sends to end a program.
    """

    def __init__(self) -> None:
        """Looks which terminal there is; none is fine."""
        self._descriptor = -1
        with contextlib.suppress(OSError):
            # Whatever the standard streams are: `> log 2>&1` has a terminal all the same.
            self._descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)

    @property
    def isGone(self) -> bool:
        """Whether there was one, and it was closed."""
        if self._descriptor < 0:
            return False
        try:
            termios.tcgetattr(self._descriptor)
        except termios.error as error:
            return bool(error.args) and error.args[0] == errno.EIO
        return False

    def close(self) -> None:
        """Lets go of it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def silence(stream: TextIO) -> None:
    """Nobody reads a stream any more: what is still printed there goes nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # it was closed in this process: there is nothing that could be flushed
