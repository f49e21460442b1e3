# SPDX-License-Identifier: MIT
"""A pair that is run and thrown away, because the device before it has cooled down.

The first launches on an idle device are slower than those that follow (triton issue 2801, helion
issue 3572: up to three times), and every unit is a new process. So before a unit on a device that
was idle for over a second its first pair is run once by itself, by a client of its own:

    unit_K.ini -> unit_K.warmup.ini: one problem, one solution, one pass, no validation

Its values go nowhere, its time is nobody's, and what goes wrong with it is not the unit's outcome.
How often the client launches a kernel before it times it (num-warmups) is the user's alone.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import Optional, Sequence, Tuple

from .ClientConfig import readClientConfig, writeClientConfig
from .Types import Job

# A device that no client has used for so long, in seconds, is cold.
IDLE_SECONDS = 1.0
# Ending it early costs nothing, so it may be silent for this part of what the unit's client may…
PATIENCE = 0.1
# …and for so many seconds at least, where the unit's client may be that.
LEAST_SECONDS = 30.0

_STEM = ".warmup"
_FILES = (".ini", ".csv", ".log")
# What its INI changes beside the range: references on the CPU would only cool the device.
_ONCE = {"num-benchmarks": "1", "num-elements-to-validate": "0"}


def isCold(lastEnd: Optional[float], now: float) -> bool:
    """Whether a device has cooled down.

    Args:
        lastEnd: when its last client ended; None where there was none.
        now: on the same clock, in seconds.
    """
    return lastEnd is None or now - lastEnd > IDLE_SECONDS


def warmUpCommand(client: Sequence[str], options: Sequence[str], job: Job) -> Tuple[str, ...]:
    """The command that runs a unit's first pair; its INI is written when it is needed.

    Args:
        client: the client's command.
        options: "--name", value, …: those that every client of the step gets.
        job: the unit.
    """
    kept = [
        text
        for name, value in zip(options[::2], options[1::2])
        if name.lstrip("-") not in _ONCE
        for text in (name, value)
    ]
    return (*client, *kept, "--config-file", warmUpOf(job).file(".ini"))


def warmUpOf(job: Job) -> Job:
    """A unit's warm-up as a job of its own, with its own files."""
    silence = job.silenceSeconds
    if silence is not None:
        silence = min(silence, max(LEAST_SECONDS, PATIENCE * silence))
    return replace(job, command=job.warmUp, warmUp=(), stem=_STEM, silenceSeconds=silence)


def writeWarmUp(job: Job) -> None:
    """Writes the INI of a unit's warm-up, by the unit's own.

    Raises:
        InputError, OSError: as readClientConfig and writeClientConfig.
    """
    config = readClientConfig(job.file(".ini"))
    rounds, size = divmod(job.written, config.sizeCount)
    warmUp = warmUpOf(job)
    config = config.withSizes([size]).replaced(
        {
            **_ONCE,
            "results-file": warmUp.file(".csv"),
            "problem-start-idx": str(rounds),
            "num-problems": "1",
            "num-solutions": "1",
        }
    )
    writeClientConfig(config, warmUp.file(".ini"))


def removeWarmUp(job: Job) -> None:
    """Removes the files of a unit's warm-up; one that cannot be removed does no harm."""
    for suffix in _FILES:
        with contextlib.suppress(OSError):
            os.unlink(warmUpOf(job).file(suffix))


def clientBegun(job: Job, handedOut: float, now: float) -> float:
    """When a running unit's own client started, as far as its files tell.

    Args:
        job: the unit.
        handedOut: when it was handed to its worker.
        now: both in seconds since the epoch.
    """
    if not job.warmUp:
        return handedOut
    if not os.path.exists(job.file(".log")):
        return now  # its device is being warmed up
    try:
        # The worker dates the log when the warm-up has ended.
        return max(handedOut, os.stat(warmUpOf(job).file(".log")).st_mtime)
    except OSError:
        return handedOut  # there was none: the device was warm
