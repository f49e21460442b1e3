# SPDX-License-Identifier: MIT
"""The errors that end a command with one line instead of a traceback."""

from __future__ import annotations

import errno
from typing import Union


class TensileParallelError(Exception):
    """An error meant for a person: one line that says what is wrong, where, and what to do.

    Attributes:
        exitStatus: what the command exits with when this error ends it.
    """

    exitStatus = 1


class InputError(TensileParallelError):
    """Bad input (a config, an option, an INI file), refused before anything expensive starts."""

    exitStatus = 2


class RunError(TensileParallelError):
    """A run that could not be completed although its input was right."""

    exitStatus = 1


LONGEST_LINE = 200


def firstLine(told: Union[str, BaseException]) -> str:
    """The first line that says something, of a text or an error; else the error's type, or ''."""
    lines = [line.strip() for line in str(told).splitlines() if line.strip()]
    if lines:
        return lines[0][:LONGEST_LINE]
    return type(told).__name__ if isinstance(told, BaseException) else ""


class WorkerLost(Exception):
    """A worker of another machine, or the way to it, is gone; what it ran is hardly to blame."""


class NodeLeft(WorkerLost):
    """A worker of another machine takes no more units, as its user wants: that is no loss."""


class WayLost(WorkerLost):
    """The scheduler is gone, and with it the way to all workers: what they ran is not to blame."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EIO)


def describeCacheError(folder: str, error: OSError) -> str:
    """One line about a cache that cannot be used: where, why, and what to do."""
    isFull = error.errno in FULL
    where = folder if isFull or not error.filename else error.filename
    text = "%s: %s" % (where, error.strerror or error)
    if isFull:
        text += "; free space there, or set XDG_CACHE_HOME there to a folder with room"
    elif error.errno in _CLOSED:
        text += "; set XDG_CACHE_HOME there to a folder of your own"
    return text


def describeError(error: OSError) -> str:
    """One line about a failure of the system: what, where, and what to do."""
    text = error.strerror or str(error)
    if error.filename:
        text = "%s: %s" % (error.filename, text)
    if error.errno in FULL:
        text += "; make room, then give the same command again (what was measured is kept)"
    return text
