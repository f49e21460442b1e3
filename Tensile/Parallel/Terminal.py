# SPDX-License-Identifier: MIT
"""What a person is told, wherever that is shown. A reader that is gone is no error.

`TensileParallel … | head -1` and `TensileParallel … >&- &` are runs like any other.
"""

from __future__ import annotations

import os
import sys
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


def _encodable(text: str, stream: TextIO) -> str:
    """The text as a terminal can show it: what its encoding lacks becomes an escape."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def oneLine(text: str) -> str:
    """A text on one line, without what would move a terminal's cursor or change its colours."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def silence(stream: TextIO) -> None:
    """Nobody reads a stream any more: what is still printed there goes nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # it was closed in this process: there is nothing that could be flushed
