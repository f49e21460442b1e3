# SPDX-License-Identifier: MIT
"""One TensileParallel run, in order: config -> devices -> host -> summary, or serial Tensile.

    TensileParallel --(run.json, launcher)--> host --(run.sh)--> launcher -> parallel client

The host is Tensile itself, run once, with the launcher as its prebuilt client. Where no device
can be used, this process becomes the host's own command instead.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shlex
import shutil
import sys
import time
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Optional, Sequence, Tuple

import yaml

from . import __version__
from .CrossCheck import crossCheck
from .DeviceConfigs import readConfig, writeDeviceConfigs
from .DeviceList import Selection, parseDeviceList, parseDeviceListText, selectDevices
from .Devices import DeviceScan, describeDevice, scanDevices
from .Doctor import Visit, exitStatus, report, visit
from .Errors import InputError, TensileParallelError, describeError
from .Files import replaceFile, replaceJson
from .History import (
    History,
    hashInputs,
    isUntouched,
    outputMarks,
    readHistory,
    setAsideUnfinished,
)
from .Host import (
    TENSILELITE_2026,
    UNKNOWN,
    Host,
    findHost,
    hostCommand,
    ourRoot,
    serialCommand,
    unsafeInShell,
)
from .HostArchitecture import Telling, tellArchitecture
from .HostClock import asksForClock, clockFor, mayHangWithoutTerminal
from .HostRun import HostEnd, runHost, timeStamp
from .Locks import LOCKS_FOLDER, lookAtLocks, useAbsoluteLockFolder
from .Neighbours import busyNotes
from .ParseArguments import (
    SETTINGS_VERSION,
    RunSettings,
    givesHostOption,
    globalParametersOption,
    hostOptionValue,
    parseRunArguments,
)
from .Platform import System
from .QuietMachine import numaNotes
from .Report import (
    RunRecord,
    lostDevices,
    lostPairs,
    readSteps,
    textSummary,
    untriedPairs,
    writeReports,
)
from .SerialLock import lockForSerial
from .StepFolder import JOURNAL, changedInputs, keepAside
from .Terminal import openStreams, tell

LOG_FILE = "tensile_parallel.log"
MERGED_FOLDER = "merged_output"
OUTPUTS_FOLDER = "outputs"
SETTINGS_FILE = "run.json"
LAUNCHER_FILE = "client"
LOCK_FILE = ".lock"


@dataclass(frozen=True)
class Places:
    """The paths of a run, all absolute."""

    out: str
    outputs: str
    merged: str
    settings: str
    launcher: str
    log: str


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command TensileParallel.

    Returns:
        Its exit status: 0 done, 1 the run failed, 2 bad input, 128 + n stopped by signal n.
    """
    openStreams()
    try:
        settings = parseRunArguments(sys.argv[1:] if argv is None else argv)
        if settings.version:
            return printVersions(settings)
        return seeDoctor(settings) if settings.doctor else run(settings)
    except TensileParallelError as error:
        tell("TensileParallel: error: %s" % error, sys.stderr)
        return error.exitStatus
    except OSError as error:
        tell("TensileParallel: error: %s" % describeError(error), sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def printVersions(settings: RunSettings) -> int:
    """--version: ours, and the host's with its generation and path."""
    tell("TensileParallel %s" % __version__)
    try:
        host = findHost(os.environ, settings.tensileRoot)
    except InputError as error:
        if settings.tensileRoot:
            raise
        tell("no host: %s" % error)
        return 0
    tell("host: %s (%s)" % (host.description, host.source))
    return 0


def seeDoctor(settings: RunSettings) -> int:
    """--doctor: whether a run could start, for the DeviceList of a config where one is given.

    Raises:
        InputError: the config is no file, or its DeviceList is malformed.
    """
    config: Any = {}
    wanted = settings.devices
    if settings.configs:
        _refuseMissing(replace(settings, out=settings.out or "-"))
        config, unreadable = _readConfig(settings)
        if unreadable:
            raise InputError(unreadable)
    if settings.configs or settings.parameters:
        wanted = _wantedDevices(settings, config)
    findings = visit(
        System(),
        Visit(
            tensileRoot=settings.tensileRoot,
            client=settings.client,
            emulate=settings.emulate,
            out=settings.out,
            wanted=wanted,
            noList=_whyNoList(settings, config) if settings.configs and wanted is None else "",
            strict=settings.strict,
            noWait=settings.noWait,
            pinClocks=bool(_globalParameter(settings, config, "PinClocks")),
        ),
    )
    for line in report(findings, sys.stdout.encoding):
        tell(line)
    return exitStatus(findings)


def run(settings: RunSettings) -> int:
    """Benchmark on every device that was asked for; does not return where the run is serial.

    Raises:
        InputError: refused before anything started.
        RunError: the host could not be started.
    """
    useAbsoluteLockFolder()
    host = findHost(os.environ, settings.tensileRoot, emulated=settings.emulate > 0)
    notes: List[str] = []
    if host.standIn:
        notes.append("no Tensile was found: a stand-in is used, which makes no real kernels")
    if host.generation == UNKNOWN:
        notes.append("this Tensile is of an unknown generation: it may need more than is done here")
    _refuseMissing(settings)
    config, unreadable = _readConfig(settings)
    wanted = _wantedDevices(settings, config)
    cpuOnly = "--cpu-only" if givesHostOption(settings.hostOptions, "--cpu-only") else ""
    if unreadable or wanted is None or cpuOnly:
        _say(notes)
        reason = unreadable or (cpuOnly and "%s measures on no GPU" % cpuOnly)
        reason = reason or _whyNoList(settings, config)
        return _becomeSerial(settings, host, config, reason)
    scan, selection = _selectDevices(settings, wanted)
    notes += [note for note in scan.notes + selection.notes if note not in notes]
    if not selection.devices:
        _say(notes)
        return _becomeSerial(settings, host, config, selection.reason or scan.reason, scan)
    notes += _configNotes(settings, config)
    clock, note = clockFor(host, settings, config, selection.devices)
    notes += [note] if note else []
    notes += busyNotes(System(), selection.devices) + numaNotes(System(), selection.devices)
    places = _places(settings.out)
    _refuseUnsafePaths(settings, places)
    client = _unitClient(settings, host)
    _say(notes)
    return _runParallel(settings, host, config, selection, notes, places, client, clock)


def _refuseMissing(settings: RunSettings) -> None:
    """A config that is not there is nobody's to judge.

    Raises:
        InputError: CONFIG or SIZES is no file, or OUT is empty.
    """
    for config in settings.configs:
        if not os.path.isfile(config):
            raise InputError("the config %r is not a file" % config)
    if not settings.out:
        raise InputError("the output folder's name is empty: name one")


def _readConfig(settings: RunSettings) -> Tuple[Any, str]:
    """(config in the default format, why it could not be read).

    A config that the host would reject is the host's to reject: it is run and shows its own error.
    """
    sizes = settings.configs[1] if len(settings.configs) > 1 else None
    most = 2 if settings.alternateFormat else 1
    if len(settings.configs) > most:
        return {}, "there are more config files than Tensile accepts"
    try:
        config = readConfig(settings.configs[0], sizes, settings.alternateFormat)
    except OSError as error:
        return {}, "%s: %s" % (error.filename, error.strerror)
    except (yaml.YAMLError, ValueError) as error:
        return {}, "%s cannot be read: %s" % (settings.configs[0], str(error).split("\n")[0])
    if not isinstance(config, dict):
        return {}, "%s holds no mapping" % settings.configs[0]
    return config, ""


def _globalParameter(settings: RunSettings, config: Any, name: str) -> Any:
    """A global parameter as the host would have it: command line, else config; None if neither.

    What is on the command line is Python in the host; for what is asked here YAML reads the same.
    """
    text = settings.parameter(name)
    if text is not None:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return text
    return _globalParameters(config).get(name)


def _globalParameters(config: Any) -> Dict[str, Any]:
    parameters = config.get("GlobalParameters")
    return parameters if isinstance(parameters, dict) else {}


def _wantedDevices(settings: RunSettings, config: Any) -> Any:
    """What --devices, else --global-parameters, else the config says; None for a serial run."""
    if settings.devices is not None:
        return settings.devices
    text = settings.parameter("DeviceList")
    if text is not None:
        return parseDeviceListText(text)
    value = _globalParameter(settings, config, "DeviceList")
    return parseDeviceList(value, "DeviceList in %s" % settings.configs[0])


def _whyNoList(settings: RunSettings, config: Any) -> str:
    """Why there are no wanted devices although the config could be read, in a few words."""
    parameters = config.get("GlobalParameters")
    given = isinstance(parameters, dict) and "DeviceList" in parameters
    if given or settings.parameter("DeviceList") is not None:
        return "DeviceList names no device"
    places = [("outside GlobalParameters", config), ("in GlobalParameters", parameters)]
    for where, keys in places:
        for key in keys if isinstance(keys, dict) else ():
            if str(key).lower() == "devicelist":
                return "there is %s %s, which is not GlobalParameters: DeviceList" % (key, where)
    return "there is no DeviceList in GlobalParameters"


def _selectDevices(settings: RunSettings, wanted: Any) -> Tuple[DeviceScan, Selection]:
    scan = scanDevices(System(), settings.emulate)
    selection = selectDevices(wanted, scan, settings.strict)
    if selection.missing or not scan.devices:
        # Only now: they take seconds, and nothing depends on what they say.
        others = tuple(note.text for note in crossCheck(System(), scan) if not note.ok)
        selection = replace(selection, notes=selection.notes + others)
    return scan, selection


def _configNotes(settings: RunSettings, config: Any) -> List[str]:
    """What is to be said about a config before a parallel run."""
    notes = []
    if "Device" in _globalParameters(config) or settings.parameter("Device") is not None:
        notes.append("Device is overruled by DeviceList")
    if _globalParameter(settings, config, "ParallelGpuExecution") not in (None, 1):
        notes.append("ParallelGpuExecution is overruled by DeviceList")
    if _globalParameter(settings, config, "PinClocks"):
        notes.append(
            "PinClocks is turned off: Tensile pins the clocks of GPU 0, whichever GPUs are used"
        )
    return notes + _repeatedTypes(config)


def _repeatedTypes(config: Any) -> List[str]:
    """A warning for every problem type that has several entries."""
    entries: Dict[str, List[int]] = {}
    problems = config.get("BenchmarkProblems")
    for number, entry in enumerate(problems if isinstance(problems, list) else (), 1):
        if isinstance(entry, list) and entry and isinstance(entry[0], dict):
            entries.setdefault(_typeKey(entry[0]), []).append(number)
    return [
        "BenchmarkProblems entries %s have the same problem type. All are measured, but Tensile "
        "keeps only the last one's results: write them as several groups of one entry"
        % " and ".join(str(number) for number in numbers)
        for numbers in entries.values()
        if len(numbers) > 1
    ]


def _typeKey(problemType: Dict[str, Any]) -> str:
    """Equal for entries that mean one problem type; a default that is spelled out is as none."""
    values = {key: _plain(value) for key, value in problemType.items()}
    values.setdefault("UseBeta", "1")
    values["OperationType"] = values.get("OperationType") or "gemm"
    values.setdefault("DestDataType", values.get("DataType", ""))
    values.setdefault("ComputeDataType", values["DestDataType"])
    return repr(sorted((key, value) for key, value in values.items() if value not in ("", "0")))


def _plain(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value).lower()


def _places(out: str) -> Places:
    out = os.path.abspath(out)
    outputs = os.path.join(out, OUTPUTS_FOLDER)
    return Places(
        out=out,
        outputs=outputs,
        merged=os.path.join(out, MERGED_FOLDER),
        settings=os.path.join(outputs, SETTINGS_FILE),
        launcher=os.path.join(outputs, LAUNCHER_FILE),
        log=os.path.join(out, LOG_FILE),
    )


def _refuseUnsafePaths(settings: RunSettings, places: Places) -> None:
    """The host's run.sh holds the launcher's and the INI's path unquoted.

    Raises:
        InputError: such a path would be taken apart by the shell.
    """
    unsafe = unsafeInShell(places.launcher)
    if unsafe is not None:
        raise InputError(
            "the output folder %r has %s in its path; Tensile's run.sh does not quote: choose "
            "another" % (places.out, _nameOf(unsafe))
        )
    if settings.client is not None and any(letter.isspace() for letter in settings.client):
        raise InputError(
            "the client %r has a space in its path; Tensile's run.sh does not quote: move or "
            "link it" % settings.client
        )


def _nameOf(letter: str) -> str:
    return {" ": "a space", "\t": "a tab", "\n": "a newline"}.get(letter, "a %s" % letter)


def _unitClient(settings: RunSettings, host: Host) -> Optional[str]:
    """The tensile_client that units run; None for the emulated one or one still to be built."""
    if settings.client is not None:
        path = os.path.abspath(settings.client)
    elif settings.emulate or host.buildsClient:
        return None
    else:
        path = host.defaultClient
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise InputError(
            "the client %s is no executable file: build it, or give one with --client" % path
        )
    return path


def _say(notes: Sequence[str]) -> Sequence[str]:
    for note in notes:
        tell("TensileParallel: note: %s" % note, sys.stderr)
    return notes


def _becomeSerial(
    settings: RunSettings, host: Host, config: Any, reason: str, scan: Optional[DeviceScan] = None
) -> int:
    """Become the host's own command, with the user's own arguments, holding its GPU's lock.

    Raises:
        RunError: another run holds that GPU, with --no-wait.
    """
    arguments = list(settings.hostArguments)
    client = settings.client
    if client is None and settings.emulate:
        client = _emulatedClient()
        if any(letter.isspace() for letter in client):
            raise InputError(
                "%r has a space in its path; Tensile's run.sh does not quote: a serial emulated "
                "run needs a checkout elsewhere" % client
            )
    if client is not None and settings.prebuiltClient is None:
        # In front, so that neither `--` nor an option with many values can swallow it.
        arguments = ["--prebuilt-client", client] + arguments
    environment = dict(os.environ)
    if settings.emulate:
        environment["TENSILE_EMULATED_DEVICES"] = str(settings.emulate)
        # The host starts the emulated client by its path, so `env python3` chooses its Python:
        # it has to be this one, which has msgpack.
        folders = [os.path.dirname(sys.executable), environment.get("PATH", os.defpath)]
        environment["PATH"] = os.pathsep.join(folders)
    if _globalParameter(settings, config, "PinClocks"):
        _say(["PinClocks is left as it is: Tensile pins the clocks of GPU 0, whichever it uses"])
    device = _serialDevice(settings, config)
    why = reason or "no device can be used"
    tell("TensileParallel: serial Tensile on device %s: %s" % (device, why), sys.stderr)
    if settings.emulate:
        tell("TensileParallel: EMULATED: the times will be made up", sys.stderr)
    _sayOfClock(settings, host, config)
    named = _globalParameters(config)
    command, environment = serialCommand(host, arguments, environment, "DeviceList" in named)
    lockForSerial(
        device,
        scan,
        settings.emulate,
        wait=not settings.noWait,
        say=lambda line: tell("TensileParallel: %s" % line, sys.stderr),
    )
    os.execvpe(command[0], command, environment)


def _sayOfClock(settings: RunSettings, host: Host, config: Any) -> None:
    """A word on a question that serial Tensile will ask, where nobody could answer it."""
    if settings.maxFrequency is not None:
        _say(["--max-frequency is not used: serial Tensile asks the GPU itself"])
    if not asksForClock(host, settings, config) or not mayHangWithoutTerminal(host):
        return
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        _say(
            [
                "this Tensile asks the GPU for its clock, may install hip-python for that, and at "
                "last asks on the terminal. There is none: it may wait for ever. UseEffLike: False "
                "in the config's GlobalParameters avoids the question"
            ]
        )


def _serialDevice(settings: RunSettings, config: Any) -> str:
    """The GPU that the host will use.

    As the hosts have it (argUpdatedGlobalParameters in Tensile.py of all generations): a global
    parameter on the command line beats --device, which beats the config; --device 0 is as none.
    """
    given = settings.parameter("Device")
    option = hostOptionValue(settings.hostOptions, ("-d", "--device"))
    if given is None and option is not None and option.strip().strip("0"):
        return option.strip()
    device = _globalParameter(settings, config, "Device")
    return "0" if device is None else str(device)


def _emulatedClient() -> str:
    """Path of TensileEmulatedClient: in the tree, or beside Python where we were installed."""
    name = "TensileEmulatedClient"
    beside = os.path.join(os.path.dirname(sys.executable), name)
    for path in (os.path.join(ourRoot(), "Tensile", "bin", name), beside, shutil.which(name)):
        if path and os.access(path, os.X_OK):
            return path
    raise InputError("%s is not installed: give an executable with --client" % name)


def _parallelClient() -> List[str]:
    """Arguments of Python that run the parallel client."""
    script = os.path.join(ourRoot(), "Tensile", "bin", "TensileParallelClient")
    return [script] if os.path.isfile(script) else ["-m", "Tensile.Parallel.ParallelClient"]


def _runParallel(
    settings: RunSettings,
    host: Host,
    config: Any,
    selection: Selection,
    notes: Sequence[str],
    places: Places,
    client: Optional[str],
    clock: Optional[int],
) -> int:
    """Write what the parallel client needs, run the host, report."""
    started = time.time()
    try:
        os.makedirs(places.outputs, exist_ok=True)
        open(places.log, "ab").close()
    except OSError as error:
        raise InputError(
            "the output folder %s cannot be written: %s; choose another"
            % (places.out, error.strerror)
        ) from None
    with _lockedOutputs(places) as lock, open(places.log, "ab", buffering=0) as log:
        logger = _logInto(log)
        try:
            history, changed = _openHistory(settings, host, selection, places, client, clock)
            if isUntouched(history, places.merged):
                return _sayFinished(settings, history, places)
            notes = [*notes, *_say(changed), *_say(_heldDevices(settings, selection, places))]
            runInfo = _writeSettings(settings, host, selection, places, client, history)
            redo = _begin(settings, config, places, history, runInfo["run"], bool(changed))
            _writeLauncher(places)
            logger.info("TensileParallel %s: %s", __version__, shlex.join(settings.argv))
            logger.info("host: %s (%s)", host.description, host.source)
            telling = tellArchitecture(host, settings, config, selection.devices, os.environ)
            if telling.warning:
                notes += _say([telling.line])
            elif telling.line:
                logger.info("%s", telling.line)
            for note in notes:
                logger.warning("%s", note)
            for device in selection.devices:
                logger.info("%s", describeDevice(device))
            if not settings.quiet:
                _announce(settings, host, selection, places)
            end = runHost(
                _command(settings, host, config, places, client, redo, telling, clock),
                _environment(settings),
                log,
                echoAll=settings.verbose,
                echoMarked=not settings.quiet,
                passFds=[lock.fileno()],
            )
            return _conclude(
                settings, host, selection, notes, places, runInfo, history, started, end
            )
        finally:
            _logInto(None)


def _heldDevices(settings: RunSettings, selection: Selection, places: Places) -> List[str]:
    """What is to be said of devices that another run holds, before Tensile makes kernels.

    Raises:
        RunError: there is one, with --no-wait.
    """
    lockFolder = os.path.join(places.outputs, LOCKS_FOLDER)
    return lookAtLocks(selection.devices, lockFolder, wait=not settings.noWait)


def _openHistory(
    settings: RunSettings,
    host: Host,
    selection: Selection,
    places: Places,
    client: Optional[str],
    clock: Optional[int],
) -> Tuple[History, List[str]]:
    """(what the folder holds of this command's earlier runs, notes)."""
    inputs = hashInputs(
        settings.configs,
        settings.hostOptions,
        client,
        host.tree,
        selection.devices[0].architecture,
        clock,
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


def _begin(
    settings: RunSettings,
    config: Any,
    places: Places,
    history: History,
    run: str,
    changed: bool,
) -> Optional[bool]:
    """Notes the run in the history.

    Returns:
        Whether the host is to do again what is finished; None where the config, or the host, is to
        decide it.
    """
    asked = _globalParameter(settings, config, "ForceRedoBenchmarkProblems")
    redo: Optional[bool] = None
    if settings.fresh or changed:
        redo = True  # else the host could skip what was made from other inputs
    elif history.runs and asked is None and not _repeatedTypes(config):
        redo = False
    if settings.fresh:
        for path in Path(places.outputs).rglob(JOURNAL):
            keepAside(path)  # so that a later run goes on with this one's results only
    if redo is False or (history.runs and asked is False):
        moved = setAsideUnfinished(places.merged, readSteps(places.outputs, history.runs))
        for path in moved:
            logging.getLogger("TensileParallel").info("%s was not finished: done again", path)
    history.runs.append(run)
    history.finished = None
    history.write(places.outputs)
    return redo


def _lockedOutputs(places: Places) -> BinaryIO:
    """The lock on an output folder, held by this process and by the host until it is gone."""
    lock = open(os.path.join(places.outputs, LOCK_FILE), "ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise InputError(
            "another TensileParallel is running in %s: wait for it, or choose another output "
            "folder" % places.out
        ) from None
    return lock


def _logInto(stream: Optional[BinaryIO]) -> logging.Logger:
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


def _writeSettings(
    settings: RunSettings,
    host: Host,
    selection: Selection,
    places: Places,
    client: Optional[str],
    history: History,
) -> Dict[str, Any]:
    """run.json: what the front end tells the parallel client."""
    runInfo = {
        "version": SETTINGS_VERSION,
        "run": str(uuid.uuid4()),
        "client": client,
        "emulate": settings.emulate,
        "devices": [asdict(device) for device in selection.devices],
        "outputs": places.outputs,
        "frontEnd": True,
        "noWait": settings.noWait,
        "noWarmUp": settings.noWarmUp,
        "baseline": settings.baseline,
        "keepSizesWhole": settings.keepSizesWhole,
        "affinity": settings.affinity,
        "hangLimit": settings.hangLimit,
        "fresh": settings.fresh,
        "verbose": settings.verbose,
        "allowFailures": settings.allowFailures,
        "strict": settings.strict,
        "log": places.log,
        "config": os.path.abspath(settings.configs[0]),
        "sizesFile": os.path.abspath(settings.configs[1]) if settings.configs[1:] else None,
        "alternateFormat": settings.alternateFormat,
        "merged": places.merged,
        "host": asdict(host),
        # What kernels are made from and no INI tells.
        "hostInputs": {key: history.inputs[key] for key in ("Tensile's options", "Tensile itself")},
    }
    replaceJson(places.settings, runInfo)
    return runInfo


def _writeLauncher(places: Places) -> None:
    """The program that the host runs as its client.

    A bare path is all that the host can run, and `#!/usr/bin/env python3` may be a Python that
    lacks joblib.
    """
    # `python -m` finds us by the folder that holds the package, whatever the current folder is.
    words = [sys.executable, *_parallelClient(), "--settings", places.settings]
    lines = [
        "#!/bin/sh",
        "# Written by TensileParallel: the host runs this in place of tensile_client.",
        'exec %s "$@"' % " ".join(shlex.quote(word) for word in words),
    ]
    text = "\n".join(lines) + "\n"
    replaceFile(places.launcher, os.fsencode(text), executable=True)


def _command(
    settings: RunSettings,
    host: Host,
    config: Any,
    places: Places,
    client: Optional[str],
    redo: Optional[bool],
    telling: Telling,
    clock: Optional[int],
) -> List[str]:
    """The host's command line: the user's options, our launcher and output folder."""
    bootstrap = ["--parent", str(os.getpid())]
    if clock is not None:
        bootstrap += ["--max-frequency", str(clock)]
    changes = dict(telling.parameters)
    if _globalParameter(settings, config, "PinClocks"):
        changes["PinClocks"] = "False"
    if redo is not None:
        changes["ForceRedoBenchmarkProblems"] = str(redo)
    own = _globalParameter(settings, config, "ParallelGpuExecution")
    if host.generation == TENSILELITE_2026 or own is not None:
        # Its own way of using several GPUs: it would split what the launcher is to split (0: over
        # those that amd-smi lists, N: over N; 1: the launcher is its one client).
        changes["ParallelGpuExecution"] = "1"
    options = [*telling.options, *globalParametersOption(settings.hostOptions, changes)]
    if client is None and not settings.emulate:
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


def _announce(settings: RunSettings, host: Host, selection: Selection, places: Places) -> None:
    numbers = ", ".join(str(device.ordinal) for device in selection.devices)
    kind = "emulated devices" if settings.emulate else "devices"
    tell("TensileParallel %s on %s %s" % (__version__, kind, numbers))
    tell("host: %s" % host.description)
    tell("log: %s" % places.log)


def _conclude(
    settings: RunSettings,
    host: Host,
    selection: Selection,
    notes: Sequence[str],
    places: Places,
    runInfo: Dict[str, Any],
    history: History,
    started: float,
    end: HostEnd,
) -> int:
    """Write the summary and say how it went.

    Returns:
        The exit status of the command.
    """
    logger = logging.getLogger("TensileParallel")
    steps = readSteps(places.outputs, history.runs)
    status, message = _verdict(settings, places, end, steps)
    record = RunRecord(
        run=runInfo["run"],
        command=("TensileParallel",) + settings.argv,
        started=started,
        ended=time.time(),
        state="stopped" if end.signal else "failed" if end.status else "finished",
        exitStatus=status,
        hostStatus=end.status,
        emulated=settings.emulate > 0,
        devices=selection.devices,
        missing=selection.missing,
        notes=tuple(notes),
        client=_builtClient(places) or runInfo["client"],
        config=runInfo["config"],
        merged=places.merged,
        host=asdict(host),
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
    text = textSummary(summary)
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
    return status


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
        numbers = ", ".join(map(str, lostDevices(steps)))
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
