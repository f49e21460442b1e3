# SPDX-License-Identifier: MIT
"""A run on several devices, in order: lock, history, launcher -> host -> summary."""

from __future__ import annotations

import logging
import os
import shlex
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Dict, List, Optional, Sequence, Tuple

from . import __version__
from .CommandLine import globalParametersOption
from .ConfigSteps import configSteps
from .DeviceNames import listed
from .Devices import describeDevice
from .Display import makeDisplay
from .Errors import InputError
from .History import (
    History,
    hashInputs,
    isUntouched,
    readHistory,
    setAsideUnfinished,
)
from .Host import CLASSIC, TENSILELITE_2026, hostCommand
from .HostArchitecture import Telling, tellArchitecture
from .HostRun import HostEnd, runHost
from .ParseArguments import RunSettings
from .RunConfig import globalParameter, repeatedTypes
from .RunEnd import conclude, endState
from .RunFiles import Places, Prepared, lockedOutputs, writeLauncher, writeSettings
from .RunLog import logInto, sayNotes
from .RunRecord import readSteps
from .Status import KERNELS, RunStatus
from .StepFolder import JOURNAL, changedInputs, keepAside
from .Terminal import tell


def runParallel(run: Prepared) -> int:
    """Writes what the parallel client needs, runs the host, reports.

    Returns:
        The exit status of the command.

    Raises:
        InputError: the output folder cannot be written, is in use, or is a cluster's.
        RunError: the host could not be started, or a device is in use, with --no-wait.
    """
    started, places = time.time(), run.places
    try:
        os.makedirs(places.outputs, exist_ok=True)
        open(places.log, "ab").close()
    except OSError as error:
        raise InputError(
            "the output folder %s cannot be written: %s; choose another"
            % (places.out, error.strerror)
        ) from None
    with lockedOutputs(places) as lock, open(places.log, "ab", buffering=0) as log:
        logInto(log)
        try:
            history, changed = _openHistory(run)
            if isUntouched(history, places.merged):
                return _sayFinished(run.settings, history, places)
            run.devices.refuseFolder(places.outputs)
            held = run.devices.held(run.selection.devices, places.outputs)
            run = replace(run, notes=[*run.notes, *sayNotes(changed), *sayNotes(held)])
            return _runHost(run, history, bool(changed), started, lock, log)
        finally:
            logInto(None)


def _runHost(
    run: Prepared, history: History, changed: bool, started: float, lock: BinaryIO, log: BinaryIO
) -> int:
    settings, places, devices = run.settings, run.places, run.selection.devices
    runInfo = writeSettings(run, history)
    steps = configSteps(run.config, run.host.generation == CLASSIC)
    emulated = settings.emulate > 0
    status = RunStatus(places.out, runInfo["run"], started, steps, devices, emulated)
    redo = _begin(run, history, runInfo["run"], changed)
    writeLauncher(places)
    telling = tellArchitecture(run.host, settings, run.config, devices, os.environ)
    if telling.warning:
        run = replace(run, notes=[*run.notes, *sayNotes([telling.line])])
    _logBeginning(run, "" if telling.warning else telling.line)
    if not settings.quiet:
        _announce(run)
    command = _command(run, redo, telling)
    with status:
        end = _runWatched(settings, command, log, lock, status)
        exitStatus = conclude(run, runInfo, history, started, end)
        status.end(endState(end), exitStatus)
    return exitStatus


def _logBeginning(run: Prepared, told: str) -> None:
    """What the log is to hold of the run.

    Args:
        run: the run.
        told: what the host is told of the architecture; may be empty.
    """
    logger = logging.getLogger("TensileParallel")
    logger.info("TensileParallel %s: %s", __version__, shlex.join(run.settings.argv))
    logger.info("host: %s (%s)", run.host.description, run.host.source)
    if told:
        logger.info("%s", told)
    for note in run.notes:
        logger.warning("%s", note)
    for device in run.selection.devices:
        logger.info("%s", describeDevice(device))


def _runWatched(
    settings: RunSettings,
    command: Sequence[str],
    log: BinaryIO,
    lock: BinaryIO,
    status: RunStatus,
) -> HostEnd:
    """Runs the host while status.json and what is shown are kept current."""
    logger = logging.getLogger("TensileParallel")
    display = makeDisplay(settings.quiet, lambda text: logger.warning("%s", text))
    status.setState(KERNELS)
    try:
        return runHost(
            command,
            _environment(settings),
            log,
            echoAll=settings.verbose,
            echoMarked=not settings.quiet,
            passFds=[lock.fileno()],
            show=display.write,
            onTick=lambda: display.show(status.tick()),
        )
    finally:
        display.close()


def _openHistory(run: Prepared) -> Tuple[History, List[str]]:
    """(what the folder holds of this command's earlier runs, notes)."""
    settings, places = run.settings, run.places
    inputs = hashInputs(
        settings.configs,
        settings.hostOptions,
        run.client,
        run.host.tree,
        run.selection.devices[0].architecture,
        run.clock,
    )
    earlier = readHistory(places.outputs)
    if earlier is None or settings.fresh:
        return History(inputs), []
    changed = changedInputs(earlier.inputs, inputs)
    if not changed:
        return earlier, []
    note = (
        "%s changed since the last run in %s: only steps with the same inputs go on, all else is "
        "measured anew (--fresh measures everything anew)"
    )
    return History(inputs), [note % (" and ".join(changed), places.out)]


def _sayFinished(settings: RunSettings, history: History, places: Places) -> int:
    """There is nothing to do; ends as the run did that did it."""
    assert history.finished is not None
    when = datetime.fromtimestamp(history.finished["time"]).strftime("%Y-%m-%d %H:%M")
    key = "exitAllowingFailures" if settings.allowFailures else "exit"
    status = int(history.finished[key])
    tell(
        "TensileParallel: %s was finished on %s with exit status %d: nothing is measured again "
        "(--fresh measures everything anew)" % (places.out, when, status)
    )
    return status


def _begin(run: Prepared, history: History, number: str, changed: bool) -> Optional[bool]:
    """Notes the run in the history.

    Args:
        run: the run.
        history: the folder's.
        number: the run's id.
        changed: whether earlier runs had other inputs.

    Returns:
        Whether the host is to do again what is finished; None where the config, or the host, is to
        decide it.
    """
    settings, config, places = run.settings, run.config, run.places
    asked = globalParameter(settings, config, "ForceRedoBenchmarkProblems")
    redo: Optional[bool] = None
    if settings.fresh or changed:
        redo = True  # else the host could skip what was made from other inputs
    elif history.runs and asked is None and not repeatedTypes(config):
        redo = False
    if settings.fresh:
        for path in Path(places.outputs).rglob(JOURNAL):
            keepAside(path)  # so that a later run goes on with this one's results only
    if redo is False or (history.runs and asked is False):
        moved = setAsideUnfinished(places.merged, readSteps(places.outputs, history.runs))
        for path in moved:
            logging.getLogger("TensileParallel").info("%s was not finished: done again", path)
    history.runs.append(number)
    history.finished = None
    history.write(places.outputs)
    return redo


def _command(run: Prepared, redo: Optional[bool], telling: Telling) -> List[str]:
    """The host's command line: the user's options, our launcher and output folder."""
    settings, host, places = run.settings, run.host, run.places
    bootstrap = ["--parent", str(os.getpid())]
    if run.clock is not None:
        bootstrap += ["--max-frequency", str(run.clock)]
    changes = dict(telling.parameters)
    if globalParameter(settings, run.config, "PinClocks"):
        changes["PinClocks"] = "False"
    if redo is not None:
        changes["ForceRedoBenchmarkProblems"] = str(redo)
    own = globalParameter(settings, run.config, "ParallelGpuExecution")
    if host.generation == TENSILELITE_2026 or own is not None:
        # Its own way of using several GPUs: it would split what the launcher is to split (0: over
        # those that amd-smi lists, N: over N; 1: the launcher is its one client).
        changes["ParallelGpuExecution"] = "1"
    options = [*telling.options, *globalParametersOption(settings.hostOptions, changes)]
    if run.client is None and not settings.emulate:
        # The host builds a client, which only it knows how to do, and then runs the launcher.
        bootstrap += ["--settings", places.settings, "--launcher", places.launcher]
    else:
        options = ["--prebuilt-client", places.launcher] + options
    positionals = list(settings.configs) + [places.merged]
    return hostCommand(host, bootstrap, positionals + [o for o in options if o != "--"])


def _environment(settings: RunSettings) -> Dict[str, str]:
    environment = dict(os.environ)
    # So that its lines reach the log when they are printed and in their order.
    environment["PYTHONUNBUFFERED"] = "1"
    if settings.emulate:
        environment["TENSILE_EMULATED_DEVICES"] = str(settings.emulate)
    return environment


def _announce(run: Prepared) -> None:
    numbers = listed(run.selection.devices)
    kind = "emulated devices" if run.settings.emulate else "devices"
    tell("TensileParallel %s on %s %s" % (__version__, kind, numbers))
    tell("host: %s" % run.host.description)
    tell("log: %s" % run.places.log)
