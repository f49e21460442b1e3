# SPDX-License-Identifier: MIT
"""The parallel client: a tensile_client that spreads its problems over several devices.

    INI -> Step -> StepRun -> one results file

It keeps tensile_client's contract: the same options, the same results file, the same meaning of
the exit status. What it adds is told by a line on its output and by step.json.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

from .ClientConfig import ClientOptions, readClientConfigs
from .ClientTelling import say, startLog
from .DeviceList import ALL_DEVICES, selectDevices
from .Devices import DeviceScan, scanDevices
from .Errors import InputError, TensileParallelError, describeError
from .Files import isProgram
from .Fleet import refuseNodesFolder
from .Locks import useAbsolutePaths
from .Neighbours import busyNotes
from .ParseArguments import ClientSettings, parseClientArguments
from .Platform import System
from .QuietMachine import numaNotes
from .SerialLock import lockForSerial
from .Step import Step, makeStep
from .StepFolder import StepFolder
from .StepRun import StepRun
from .Terminal import openStreams, tell
from .Types import Device

log = logging.getLogger("TensileParallel")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the command; returns its exit status.

    Args:
        argv: the arguments; None for this process's own.
    """
    openStreams()
    try:
        settings = parseClientArguments(sys.argv[1:] if argv is None else argv)
        startLog(settings)
        with _signalsRaise():
            return _run(settings)
    except TensileParallelError as error:
        log.debug("ended by an error", exc_info=True)
        tell("TensileParallelClient: error: %s" % error, sys.stderr)
        return error.exitStatus
    except OSError as error:
        log.debug("ended by an error", exc_info=True)
        tell("TensileParallelClient: error: %s" % describeError(error), sys.stderr)
        return 1
    except _Stopped as stop:
        text = "stopped by %s; what was measured is kept: the same command continues"
        tell("TensileParallelClient: " + text % stop.name, sys.stderr)
        return 128 + stop.number


class _Stopped(BaseException):
    """A signal asked for the end. No Exception: nothing on the way may take it for a failure."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = signal.Signals(number).name
        super().__init__(self.name)


@contextlib.contextmanager
def _signalsRaise() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise _Stopped, once; those that are ignored stay so."""
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]

    def stop(number: int, frame: object) -> None:
        # loky's own threads lose their processes now, which is no news.
        threading.excepthook = lambda event: log.debug("a thread ended: %r", event.exc_value)
        for other in numbers:
            signal.signal(other, signal.SIG_DFL)  # a second one ends this at once
        raise _Stopped(number)

    for number in numbers:
        signal.signal(number, stop)
    yield


def _run(settings: ClientSettings) -> int:
    if not settings.configFiles:
        raise InputError("no --config-file: name the client's INI (see --help)")
    useAbsolutePaths()
    if settings.emulate:
        os.environ["TENSILE_EMULATED_DEVICES"] = str(settings.emulate)
    if settings.scheduler or settings.schedulerFile:
        return _runOnCluster(settings)
    command = clientCommand(settings)
    devices, notes, scan = _chooseDevices(settings)
    for note in notes:
        say(note)
    if not devices:
        # Serial, as if this program were not there.
        device = _clientDevice(settings)
        lockForSerial(device, scan, settings.emulate, not settings.noWait, say)
        os.execvp(command[0], [*command, *settings.clientArgv])
    step = makeStep(settings, command, devices[0].architecture)
    with _openFolder(settings, step) as (outputs, folder):
        refuseNodesFolder(str(outputs), settings.fresh)
        return StepRun(settings, step, outputs, folder, devices).run()


@contextlib.contextmanager
def _openFolder(settings: ClientSettings, step: Step) -> Iterator[Tuple[Path, StepFolder]]:
    """(the outputs folder, the step's folder in it), which is this process's until the end."""
    outputs = Path(settings.outputs or "%s.parallel" % step.results).absolute()
    folder = StepFolder(outputs, step.folderName, step.inputs, settings.run, settings.fresh)
    if folder.note:
        say("%s: %s" % (step.folderName or step.results.name, folder.note))
    try:
        yield outputs, folder
    finally:
        folder.close()


def _runOnCluster(settings: ClientSettings) -> int:
    """The same on the devices of the machines that have joined a scheduler."""
    from .StepCluster import openCluster

    place = (settings.scheduler, settings.schedulerFile)
    with openCluster(*place, say, isStep=settings.frontEnd) as cluster:
        if settings.client is None and cluster.isEmulated:
            settings = replace(settings, emulate=max(1, settings.emulate))
        command = clientCommand(settings)
        wanted = ALL_DEVICES if settings.devicesWanted is None else settings.devicesWanted
        notes = cluster.choose(wanted, settings.strict).notes
        for note in () if settings.frontEnd else notes:
            say(note)
        step = makeStep(settings, command, cluster.architecture)
        with _openFolder(settings, step) as (outputs, folder):
            devices = cluster.number(str(outputs))
            cluster.prepare(step, settings.run, settings.client is None, not settings.noWait)
            return StepRun(settings, step, outputs, folder, devices, cluster).run()


def clientCommand(settings: ClientSettings) -> Tuple[str, ...]:
    """The command that starts one tensile_client, without its options.

    Raises:
        InputError: there is none, or it cannot be executed.
    """
    if settings.client is not None:
        path = os.path.abspath(settings.client)
        if not isProgram(path):
            raise InputError("--client %s: not an executable file" % settings.client)
        return (path,)
    if settings.emulate:
        return emulatedCommand()
    raise InputError("no client: name a tensile_client with --client PATH, or use --emulate N")


def emulatedCommand() -> Tuple[str, ...]:
    """The command that starts one emulated client."""
    package = os.path.dirname(os.path.abspath(__file__))
    script = os.path.join(package, "..", "bin", "TensileEmulatedClient")
    if os.path.isfile(script):
        return (sys.executable, os.path.normpath(script))
    return (sys.executable, "-m", "Tensile.Parallel.Emulator")


def _chooseDevices(
    settings: ClientSettings,
) -> Tuple[List[Device], List[str], Optional[DeviceScan]]:
    """(the devices that the front end chose, or that --devices means; notes; what there is)."""
    if settings.devices:
        return list(settings.devices), [], None
    scan = scanDevices(System(), settings.emulate)
    wanted = ALL_DEVICES if settings.devicesWanted is None else settings.devicesWanted
    selection = selectDevices(wanted, scan, settings.strict)
    notes = list(scan.notes) + list(selection.notes)
    notes += busyNotes(System(), selection.devices) + numaNotes(System(), selection.devices)
    if not selection.devices:
        notes.append("no usable device (%s): running the client by itself" % selection.reason)
    return list(selection.devices), notes, scan


def _clientDevice(settings: ClientSettings) -> str:
    """The device that the client uses by itself; empty where its INI cannot be read."""
    options = ClientOptions(settings.configFiles, settings.clientArguments)
    try:
        config = readClientConfigs(settings.configFiles).withOptions(options)
    except (OSError, InputError):
        return ""  # the client says what is wrong with it
    return config.get("device-idx") or "0"


if __name__ == "__main__":
    sys.exit(main())
