# SPDX-License-Identifier: MIT
"""One TensileParallel run, in order: config -> devices -> host -> summary, or serial Tensile.

    TensileParallel --(run.json, launcher)--> host --(run.sh)--> launcher -> parallel client

The host is Tensile itself, run once, with the launcher as its prebuilt client. Where no device
can be used, this process becomes the host's own command instead.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any, List, Optional, Sequence

from . import __version__
from .CommandLine import givesHostOption
from .Errors import InputError, TensileParallelError, describeError
from .Files import isProgram
from .Host import UNKNOWN, Host, findHost
from .HostClock import clockFor
from .Locks import useAbsolutePaths
from .ParallelRun import runParallel
from .ParseArguments import RunSettings, parseRunArguments, refuseMisspelt
from .Platform import System
from .RunConfig import (
    configNotes,
    globalParameter,
    readUsersConfig,
    refuseMissing,
    wantedDevices,
    whyNoList,
)
from .RunDevices import ClusterDevices, OwnDevices, RunDevices
from .RunFiles import Prepared, placesOf, refuseUnsafePaths
from .RunLog import sayNotes
from .SerialRun import becomeSerial
from .Status import showStatus
from .Terminal import answer, escapedLine, openStreams, tell


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
        return _run(settings, OwnDevices(settings))
    from .StepCluster import openCluster

    def say(text: str) -> None:
        sayNotes([text])

    place = (settings.scheduler, settings.schedulerFile)
    with openCluster(*place, say, nodes=settings.awaitedNodes) as cluster:
        if cluster.isEmulated and settings.client is None:
            settings = replace(settings, emulate=cluster.count)
        return _run(settings, ClusterDevices(settings, cluster))


def _run(settings: RunSettings, devices: RunDevices) -> int:
    """The same on this machine's devices, or on a cluster's."""
    useAbsolutePaths()
    host = findHost(os.environ, settings.tensileRoot, emulated=settings.emulate > 0)
    notes = _hostNotes(host)
    refuseMissing(settings)
    config, unreadable = readUsersConfig(settings)
    wanted = wantedDevices(settings, config)
    isCpuOnly = givesHostOption(settings.hostOptions, "--cpu-only")
    cpuOnly = "--cpu-only measures on no GPU" if isCpuOnly else ""
    devices.refuseSerial(unreadable or (cpuOnly and "%s: no cluster is needed" % cpuOnly))
    reason = unreadable or cpuOnly
    wanted = devices.usual if wanted is None else wanted
    if reason or wanted is None:
        sayNotes(notes)
        return becomeSerial(settings, host, config, reason or whyNoList(settings, config))
    places = placesOf(settings.out)
    scan, selection = devices.select(wanted, places.outputs)
    notes += [note for note in scan.notes + selection.notes if note not in notes]
    if not selection.devices:
        sayNotes(notes)
        return becomeSerial(settings, host, config, selection.reason or scan.reason, scan)
    notes += configNotes(settings, config)
    clock, note = clockFor(host, settings, config, selection.devices)
    notes += [note] if note else []
    notes += devices.notes(selection.devices)
    refuseUnsafePaths(settings, places)
    client = _unitClient(settings, host)
    devices.leave(client)
    sayNotes(notes)
    return runParallel(
        Prepared(settings, host, config, devices, selection, places, client, clock, notes)
    )


def _hostNotes(host: Host) -> List[str]:
    notes: List[str] = []
    if host.standIn:
        notes.append("no Tensile was found: a stand-in is used, which makes no real kernels")
    if host.generation == UNKNOWN:
        notes.append("this Tensile is of an unknown generation: it may need more than is done here")
    return notes


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
