# SPDX-License-Identifier: MIT
"""What the parallel client says: lines for a person, its log, progress without a front end."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Dict

from .Display import Display
from .ParseArguments import ClientSettings
from .Terminal import tell

log = logging.getLogger("TensileParallel")

# Lines that begin so are meant for the person at the front end's terminal.
SAY = "TensileParallel: "


def say(text: str) -> None:
    """A line for a person: on the output, which the front end shows and logs."""
    tell(SAY + text)
    log.info("%s", text)


class _Marked(logging.Formatter):
    """Lines for a person; warnings are marked, as --quiet shows them too."""

    def format(self, record: logging.LogRecord) -> str:
        note = "note: " if record.levelno >= logging.WARNING else ""
        return SAY + note + super().format(record)


def startLog(settings: ClientSettings) -> None:
    """Warnings on stderr; with a front end, everything goes into its log by way of our output."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.DEBUG if settings.verbose else logging.WARNING)
    handler.setFormatter(_Marked())
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)


class AloneDisplay:
    """Shows progress where there is no front end to do it."""

    def __init__(self, display: Display, emulated: bool) -> None:
        self._display = display
        self._started = time.time()
        self._emulated = emulated

    def tell(self, told: Dict[str, Any], new: bool) -> None:
        """Takes what progress.json would hold."""
        state = {"running": "benchmarking"}.get(told["state"], told["state"])
        left = told["step"]["secondsLeft"]
        self._display.show(
            {
                "state": state,
                "emulated": self._emulated,
                "started": self._started,
                "step": told["step"],
                "devices": told["devices"],
                "secondsLeft": left,
                "secondsLeftIs": "about",
            }
        )
