# SPDX-License-Identifier: MIT
"""The errors that end a command with one line instead of a traceback."""

from __future__ import annotations


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
