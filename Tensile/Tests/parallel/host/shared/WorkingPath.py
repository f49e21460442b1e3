# SPDX-License-Identifier: MIT
"""The folder that is being written to, kept in globalParameters as in real hosts."""

from __future__ import annotations

import os

from .Common import globalParameters


def ensurePath(path: str) -> str:
    """Make a folder and its parents; returns it."""
    os.makedirs(path, exist_ok=True)
    return path


def pushWorkingPath(folder: str) -> str:
    """Go down into a folder, made if it is not there."""
    globalParameters["WorkingPath"] = os.path.join(globalParameters["WorkingPath"], folder)
    return ensurePath(globalParameters["WorkingPath"])


def popWorkingPath() -> None:
    """Go up again."""
    globalParameters["WorkingPath"] = os.path.dirname(globalParameters["WorkingPath"])
