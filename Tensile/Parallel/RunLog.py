# SPDX-License-Identifier: MIT
"""tensile_parallel.log and the notes of a run: one event a line."""

from __future__ import annotations

import logging
import sys
from typing import BinaryIO, Optional, Sequence

from .HostRun import timeStamp
from .Terminal import tell


def sayNotes(notes: Sequence[str]) -> Sequence[str]:
    for note in notes:
        tell("TensileParallel: note: %s" % note, sys.stderr)
    return notes


def logInto(stream: Optional[BinaryIO]) -> logging.Logger:
    """Send the logger's lines into the run's log; None: nowhere."""
    logger = logging.getLogger("TensileParallel")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.NullHandler() if stream is None else _LogHandler(stream))
    return logger


class _LogHandler(logging.Handler):
    """One event a line: time with zone, level, text."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().replace("\n", " | ")
        line = "%s %s: %s\n" % (timeStamp(), record.levelname.lower(), text)
        try:
            self._stream.write(line.encode("utf-8", "backslashreplace"))
        except OSError:
            pass  # the disk is full: whoever needs the room for more than words says so
