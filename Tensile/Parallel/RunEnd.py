# SPDX-License-Identifier: MIT
"""The end of a run on several devices: its summary, its exit status, the closing words."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import asdict, replace
from typing import Any, Dict, Optional, Sequence, Tuple

from .DeviceConfigs import writeDeviceConfigs
from .Fleet import usedDevices
from .History import History, outputMarks
from .HostRun import HostEnd
from .ParseArguments import RunSettings
from .Report import writeReports
from .RunFiles import Places, Prepared
from .RunRecord import RunRecord, lostDevices, lostPairs, readSteps, untriedPairs
from .Terminal import tell
from .TextSummary import textSummary


def conclude(
    run: Prepared,
    runInfo: Dict[str, Any],
    history: History,
    started: float,
    end: HostEnd,
) -> int:
    """Write the summary and say how it went.

    Returns:
        The exit status of the command.
    """
    settings, places = run.settings, run.places
    steps = readSteps(places.outputs, history.runs)
    status, message = _verdict(settings, places, end, steps)
    record = RunRecord(
        run=runInfo["run"],
        command=("TensileParallel",) + settings.argv,
        started=started,
        ended=time.time(),
        state=endState(end),
        exitStatus=status,
        hostStatus=end.status,
        emulated=settings.emulate > 0,
        devices=usedDevices(run.selection.devices, places.outputs, steps),
        missing=run.selection.missing,
        notes=tuple(run.notes),
        client=_builtClient(places) or runInfo["client"],
        config=runInfo["config"],
        merged=places.merged,
        host=asdict(run.host),
    )
    if steps:
        sizes = runInfo["sizesFile"]
        alternate = settings.alternateFormat
        writeDeviceConfigs(places.out, runInfo["config"], steps, sizes, alternate)
    summary = writeReports(places.out, record, steps)
    if not end.status and end.signal is None and not untriedPairs(steps):
        marks = outputMarks(places.merged)
        lenient = replace(settings, allowFailures=True)
        history.finished = {
            "exit": status,
            "exitAllowingFailures": _verdict(lenient, places, end, steps)[0],
            "time": record.ended,
            "files": marks,
        }
        history.write(places.outputs)
    _say(settings, textSummary(summary), message, end)
    return status


def _say(settings: RunSettings, text: str, message: str, end: HostEnd) -> None:
    """Tells how it went, on the terminal and in the log."""
    logger = logging.getLogger("TensileParallel")
    for line in text.split("\n"):
        logger.info("%s", line)
    if not settings.quiet:
        tell(text)
    if message:
        logger.error("%s", message)
        if end.status and not end.signal and not settings.verbose:
            for line in end.tail:
                tell("  | %s" % line, sys.stderr)
        tell("TensileParallel: error: %s" % message, sys.stderr)


def endState(end: HostEnd) -> str:
    """How a run ended, in one word, as the summary and status.json have it."""
    return "stopped" if end.signal else "failed" if end.status else "finished"


def _verdict(
    settings: RunSettings, places: Places, end: HostEnd, steps: Sequence[dict]
) -> Tuple[int, str]:
    """(exit status, one line for a person or an empty one)."""
    lost = lostPairs(steps)
    if end.signal is not None:
        return 128 + end.signal, "stopped; the same command continues where it was"
    if end.status:
        return 1, "Tensile ended with status %d: see %s" % (end.status, places.log)
    if untriedPairs(steps):
        words = "%d pairs were not tried: no device was left; the same command continues"
        return 1, words % untriedPairs(steps)
    if settings.strict and lostDevices(steps):
        numbers = ", ".join(lostDevices(steps))
        return 1, "device %s was lost, which --strict does not allow" % numbers
    if lost:
        words = "%d pairs could not be measured: see failures in %s" % (
            lost,
            os.path.join(places.out, "execution_summary.json"),
        )
        return (0, "") if settings.allowFailures else (1, words)
    return 0, ""


def _builtClient(places: Places) -> Optional[str]:
    """The client that the host built, which HostBootstrap has noted in run.json."""
    try:
        with open(places.settings, encoding="utf-8") as stream:
            return json.load(stream)["client"]
    except (OSError, ValueError, KeyError):
        return None
