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
import sys
import time
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, List, Optional, Sequence, Tuple

from . import __version__
from .CommandLine import givesHostOption, globalParametersOption
from .ConfigSteps import configSteps
from .CrossCheck import crossCheck
from .DeviceConfigs import writeDeviceConfigs
from .DeviceList import ALL_DEVICES, Selection, selectDevices
from .DeviceNames import deviceFields, listed
from .Devices import DeviceScan, describeDevice, scanDevices
from .Display import makeDisplay
from .Errors import InputError, TensileParallelError, describeError
from .Files import isProgram, replaceFile, replaceJson
from .Fleet import refuseNodesFolder, usedDevices
from .History import (
    History,
    hashInputs,
    isUntouched,
    outputMarks,
    readHistory,
    setAsideUnfinished,
)
from .Host import (
    CLASSIC,
    TENSILELITE_2026,
    UNKNOWN,
    Host,
    findHost,
    hostCommand,
    ourRoot,
    unsafeInShell,
)
from .HostArchitecture import Telling, tellArchitecture
from .HostClock import clockFor
from .HostRun import HostEnd, runHost
from .Locks import LOCKS_FOLDER, lookAtLocks, useAbsolutePaths
from .Neighbours import busyNotes
from .NodeFiles import describeFile
from .ParseArguments import (
    SETTINGS_VERSION,
    RunSettings,
    parseRunArguments,
    refuseMisspelt,
)
from .Platform import System
from .QuietMachine import numaNotes
from .Report import writeReports
from .RunConfig import (
    configNotes,
    globalParameter,
    readUsersConfig,
    refuseMissing,
    repeatedTypes,
    wantedDevices,
    whyNoList,
)
from .RunLog import logInto, sayNotes
from .RunRecord import RunRecord, lostDevices, lostPairs, readSteps, untriedPairs
from .SerialRun import becomeSerial
from .Status import KERNELS, LOCK_FILE, OUTPUTS_FOLDER, RunStatus, showStatus
from .StepFolder import JOURNAL, changedInputs, keepAside
from .Terminal import answer, escapedLine, openStreams, tell
from .TextSummary import textSummary

if TYPE_CHECKING:
    from .StepCluster import StepCluster

LOG_FILE = "tensile_parallel.log"
MERGED_FOLDER = "merged_output"
SETTINGS_FILE = "run.json"
LAUNCHER_FILE = "client"
# How often an output folder that is held is tried: a look at it (--status) takes microseconds.
LOCK_TRIES = 5


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
        if settings.status is not None:
            return showStatus(settings.status, settings.json, answer)
        # What only looks is imported where it is asked for: a run starts sooner without.
        if settings.report is not None:
            from .HtmlReport import makePage

            return makePage(settings.report, settings.reportFile)
        _refuseMisspelt(settings)
        if settings.plan:
            return seePlan(settings)
        if settings.join is not None:
            from .Join import join

            return join(settings)
        return seeDoctor(settings) if settings.doctor else _runSomewhere(settings)
    except TensileParallelError as error:
        tell("TensileParallel: error: %s" % escapedLine(str(error)), sys.stderr)
        return error.exitStatus
    except OSError as error:
        tell("TensileParallel: error: %s" % escapedLine(describeError(error)), sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _refuseMisspelt(settings: RunSettings) -> None:
    """Only the host can tell whether an option that looks like one of ours is its own.

    Raises:
        InputError: it is not.
    """
    if not settings.unknownOptions:
        return
    try:
        emulated = settings.emulate > 0
        source = findHost(os.environ, settings.tensileRoot, emulated).module("Tensile.py")
    except InputError:
        source = ""  # what is wrong there is said by whoever needs the host
    refuseMisspelt(settings, source)


def printVersions(settings: RunSettings) -> int:
    """--version: ours, and the host's with its generation and path."""
    tell("TensileParallel %s" % __version__)
    try:
        host = findHost(os.environ, settings.tensileRoot)
    except InputError as error:
        if settings.tensileRoot or os.environ.get("TENSILE_ROOT"):
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
    from .Doctor import Visit, exitStatus, report, visit

    config: Any = {}
    wanted = settings.devices
    if settings.configs:
        refuseMissing(replace(settings, out=settings.out or "-"))
        config, unreadable = readUsersConfig(settings)
        if unreadable:
            raise InputError(unreadable)
    if settings.configs or settings.parameters:
        wanted = wantedDevices(settings, config)
    findings = visit(
        System(),
        Visit(
            tensileRoot=settings.tensileRoot,
            client=settings.client,
            emulate=settings.emulate,
            out=settings.out,
            wanted=wanted,
            noList=whyNoList(settings, config) if settings.configs and wanted is None else "",
            strict=settings.strict,
            noWait=settings.noWait,
            pinClocks=bool(globalParameter(settings, config, "PinClocks")),
            settings=settings,
            config=config if settings.configs else None,
        ),
    )
    for line in report(findings, sys.stdout.encoding):
        tell(line)
    return exitStatus(findings)


def seePlan(settings: RunSettings) -> int:
    """--plan: what a run would do, as text or as JSON.

    Raises:
        InputError: there is nothing to plan for.
    """
    from .Plan import makePlan
    from .PlanText import planJson, planText

    plan = makePlan(settings, System())
    answer(json.dumps(planJson(plan), indent=1) if settings.json else planText(plan))
    return 0


def _runSomewhere(settings: RunSettings) -> int:
    """On this machine's devices, or on those of a cluster, which may be ours for the run."""
    if settings.localCluster:
        from .LocalCluster import localCluster

        with localCluster(settings) as file:
            own = replace(settings, schedulerFile=file, awaitedNodes=settings.localCluster)
            return run(replace(own, localCluster=0, emulate=0))
    if settings.slurm:
        from .Slurm import slurmCluster

        refuseMissing(settings)  # jobs may wait for hours before a run says so
        findHost(os.environ, settings.tensileRoot, emulated=settings.emulate > 0)
        with slurmCluster(settings) as file:
            return run(replace(settings, schedulerFile=file, slurm=0, emulate=0))
    return run(settings)


def run(settings: RunSettings) -> int:
    """Benchmark on every device that was asked for; does not return where the run is serial.

    Raises:
        InputError: refused before anything started.
        RunError: the host could not be started.
    """
    if not settings.usesCluster:
        return _run(settings, None)
    from .StepCluster import openCluster

    def say(text: str) -> None:
        sayNotes([text])

    place = (settings.scheduler, settings.schedulerFile)
    with openCluster(*place, say, nodes=settings.awaitedNodes) as cluster:
        if cluster.isEmulated and settings.client is None:
            settings = replace(settings, emulate=cluster.count)
        return _run(settings, cluster)


def _run(settings: RunSettings, cluster: "Optional[StepCluster]") -> int:
    """The same on this machine's devices, or on a cluster's."""
    useAbsolutePaths()
    host = findHost(os.environ, settings.tensileRoot, emulated=settings.emulate > 0)
    notes: List[str] = []
    if host.standIn:
        notes.append("no Tensile was found: a stand-in is used, which makes no real kernels")
    if host.generation == UNKNOWN:
        notes.append("this Tensile is of an unknown generation: it may need more than is done here")
    refuseMissing(settings)
    config, unreadable = readUsersConfig(settings)
    wanted = wantedDevices(settings, config)
    cpuOnly = "--cpu-only" if givesHostOption(settings.hostOptions, "--cpu-only") else ""
    if cluster is not None:
        if unreadable or cpuOnly:
            raise InputError(unreadable or "--cpu-only measures on no GPU: no cluster is needed")
        wanted = ALL_DEVICES if wanted is None else wanted
    if unreadable or wanted is None or cpuOnly:
        sayNotes(notes)
        reason = unreadable or (cpuOnly and "%s measures on no GPU" % cpuOnly)
        reason = reason or whyNoList(settings, config)
        return becomeSerial(settings, host, config, reason)
    places = _places(settings.out)
    if cluster is None:
        scan, selection = _selectDevices(settings, wanted)
    else:
        scan, selection = _selectOnCluster(settings, wanted, cluster, places)
    notes += [note for note in scan.notes + selection.notes if note not in notes]
    if not selection.devices:
        sayNotes(notes)
        return becomeSerial(settings, host, config, selection.reason or scan.reason, scan)
    notes += configNotes(settings, config)
    clock, note = clockFor(host, settings, config, selection.devices)
    notes += [note] if note else []
    if cluster is None:
        notes += busyNotes(System(), selection.devices) + numaNotes(System(), selection.devices)
    _refuseUnsafePaths(settings, places)
    client = _unitClient(settings, host)
    if cluster is not None:
        if client is not None:
            cluster.refuseOtherClient(describeFile(client, client=True))
        cluster.close()  # each step connects by itself
    sayNotes(notes)
    return _runParallel(settings, host, config, selection, notes, places, client, clock)


def _selectDevices(settings: RunSettings, wanted: Any) -> Tuple[DeviceScan, Selection]:
    scan = scanDevices(System(), settings.emulate)
    selection = selectDevices(wanted, scan, settings.strict)
    if selection.missing or not scan.devices:
        # Only now: they take seconds, and nothing depends on what they say.
        others = tuple(note.text for note in crossCheck(System(), scan) if not note.ok)
        selection = replace(selection, notes=selection.notes + others)
    return scan, selection


def _selectOnCluster(
    settings: RunSettings, wanted: Any, cluster: "StepCluster", places: Places
) -> Tuple[DeviceScan, Selection]:
    selection = cluster.choose(wanted, settings.strict)
    if settings.noWait:
        cluster.refuseBusy()
    devices = tuple(cluster.number(places.outputs))
    return DeviceScan(devices, "the nodes"), replace(selection, devices=devices)


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
    if not isProgram(path):
        raise InputError(
            "the client %s is no executable file: build it, or give one with --client" % path
        )
    return path


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
        logger = logInto(log)
        try:
            history, changed = _openHistory(settings, host, selection, places, client, clock)
            if isUntouched(history, places.merged):
                return _sayFinished(settings, history, places)
            if not settings.usesCluster:
                refuseNodesFolder(places.outputs, settings.fresh)
            notes = [
                *notes,
                *sayNotes(changed),
                *sayNotes(_heldDevices(settings, selection, places)),
            ]
            runInfo = _writeSettings(settings, host, selection, places, client, history, config)
            steps = configSteps(config, host.generation == CLASSIC)
            status = RunStatus(
                places.out,
                runInfo["run"],
                started,
                steps,
                selection.devices,
                settings.emulate > 0,
            )
            redo = _begin(settings, config, places, history, runInfo["run"], bool(changed))
            _writeLauncher(places)
            logger.info("TensileParallel %s: %s", __version__, shlex.join(settings.argv))
            logger.info("host: %s (%s)", host.description, host.source)
            telling = tellArchitecture(host, settings, config, selection.devices, os.environ)
            if telling.warning:
                notes += sayNotes([telling.line])
            elif telling.line:
                logger.info("%s", telling.line)
            for note in notes:
                logger.warning("%s", note)
            for device in selection.devices:
                logger.info("%s", describeDevice(device))
            if not settings.quiet:
                _announce(settings, host, selection, places)
            command = _command(settings, host, config, places, client, redo, telling, clock)
            with status:
                end = _runWatched(settings, command, log, lock, status)
                exitStatus = _conclude(
                    settings, host, selection, notes, places, runInfo, history, started, end
                )
                status.end(endState(end), exitStatus)
            return exitStatus
        finally:
            logInto(None)


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


def _heldDevices(settings: RunSettings, selection: Selection, places: Places) -> List[str]:
    """What is to be said of devices that another run holds, before Tensile makes kernels.

    Raises:
        RunError: there is one, with --no-wait.
    """
    if selection.devices[0].node:
        return []  # each node's own business
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
    history.runs.append(run)
    history.finished = None
    history.write(places.outputs)
    return redo


def _lockedOutputs(places: Places) -> BinaryIO:
    """The lock on an output folder, held by this process and by the host until it is gone."""
    lock = open(os.path.join(places.outputs, LOCK_FILE), "ab")
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            time.sleep(0.02)
    lock.close()
    raise InputError(
        "another TensileParallel is running in %s: wait for it, or choose another output "
        "folder" % places.out
    )


def _writeSettings(
    settings: RunSettings,
    host: Host,
    selection: Selection,
    places: Places,
    client: Optional[str],
    history: History,
    config: Any,
) -> Dict[str, Any]:
    """run.json: what the front end tells the parallel client."""
    runInfo = {
        "version": SETTINGS_VERSION,
        "run": str(uuid.uuid4()),
        "command": ["TensileParallel", *settings.argv],
        "started": time.time(),
        "client": client,
        "emulate": settings.emulate,
        "devices": [deviceFields(device) for device in selection.devices],
        # On a cluster each step looks anew who is there.
        "devicesWanted": wantedDevices(settings, config),
        "scheduler": settings.scheduler,
        "schedulerFile": settings.schedulerFile,
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
    if globalParameter(settings, config, "PinClocks"):
        changes["PinClocks"] = "False"
    if redo is not None:
        changes["ForceRedoBenchmarkProblems"] = str(redo)
    own = globalParameter(settings, config, "ParallelGpuExecution")
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
    numbers = listed(selection.devices)
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
        state=endState(end),
        exitStatus=status,
        hostStatus=end.status,
        emulated=settings.emulate > 0,
        devices=usedDevices(selection.devices, places.outputs, steps),
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
