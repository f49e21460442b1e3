# SPDX-License-Identifier: MIT
"""The parallel client: a tensile_client that spreads its problems over several devices.

    INI -> Step -> Schedule + workers (Loop) -> journal, shards -> one results file

It keeps tensile_client's contract: the same options, the same results file, the same meaning of
the exit status. What it adds is told by a line on its output and by step.json.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import DeviceConfigs, ParseArguments, Results, ResultsJoin
from .Baseline import chooseBaseline
from .BestSolution import BestPiece, BestTable
from .ClientConfig import ClientOptions, keepsSizesWhole, readClientConfigs
from .ClientLog import serialLines, writeClientLog
from .ClientOutput import PairLine, readPairs
from .Contest import Contests, readValue
from .Cost import Cost
from .DeviceList import ALL_DEVICES, selectDevices
from .DeviceNames import listed, nameOf, nodeFields
from .Devices import DeviceScan, describeDevice, scanDevices
from .Display import Display, PlainDisplay
from .Errors import InputError, TensileParallelError, describeError
from .Files import isProgram
from .Fleet import Register, refuseNodesFolder, registerPath
from .HangLimit import hangSeconds
from .LibraryUpdate import Winner, winnersOf, writeLibraryUpdate
from .Locks import (
    LOCK_DIR_VARIABLE,
    LOCKS_FOLDER,
    lockHolder,
    lookAtLocks,
    useAbsolutePaths,
)
from .Loop import Loop
from .LoopTypes import Changes, LoopResult, Lost, WorkerLike
from .Neighbours import busyNotes
from .Outcomes import examine, refusalOf
from .ParseArguments import ClientSettings
from .Platform import System
from .Progress import StepProgress, intoFile
from .QuietMachine import numaNotes, surroundings
from .Schedule import Rectangle, Schedule, rectangleOf, subtract
from .SerialLock import lockForSerial
from .SolutionNames import readSolutions
from .Status import PROGRESS_FILE
from .Step import Step, makeJob, makeStep, plainJob
from .StepFolder import StepFolder, fileMark, keepAside
from .StepReport import StepReport, tallyOf
from .Terminal import openStreams, tell
from .Types import MEASURED, ClientExit, Device, Job, Piece, Unit, UnitResult
from .UnitLogs import packLogs
from .Worker import DeviceWorker

if TYPE_CHECKING:
    from .StepCluster import StepCluster

log = logging.getLogger("TensileParallel")

# Lines that begin so are meant for the person at the front end's terminal.
SAY = "TensileParallel: "
MAX_EXIT = 255
_KEPT = "%s holds more than this run measured: it is kept"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the command; returns its exit status.

    Args:
        argv: the arguments; None for this process's own.
    """
    openStreams()
    try:
        settings = ParseArguments.parseClientArguments(sys.argv[1:] if argv is None else argv)
        _startLog(settings)
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
        _say(note)
    if not devices:
        # Serial, as if this program were not there.
        device = _clientDevice(settings)
        lockForSerial(device, scan, settings.emulate, not settings.noWait, _say)
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
        _say("%s: %s" % (step.folderName or step.results.name, folder.note))
    try:
        yield outputs, folder
    finally:
        folder.close()


def _runOnCluster(settings: ClientSettings) -> int:
    """The same on the devices of the machines that have joined a scheduler."""
    from .StepCluster import openCluster

    place = (settings.scheduler, settings.schedulerFile)
    with openCluster(*place, _say, isStep=settings.frontEnd) as cluster:
        if settings.client is None and cluster.isEmulated:
            settings = replace(settings, emulate=max(1, settings.emulate))
        command = clientCommand(settings)
        wanted = ALL_DEVICES if settings.devicesWanted is None else settings.devicesWanted
        notes = cluster.choose(wanted, settings.strict).notes
        for note in () if settings.frontEnd else notes:
            _say(note)
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


class StepRun:
    """One step, from its plan to its results file."""

    def __init__(
        self,
        settings: ClientSettings,
        step: Step,
        outputs: Path,
        folder: StepFolder,
        devices: Sequence[Device],
        cluster: "Optional[StepCluster]" = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._step = step
        self._outputs = outputs
        self._folder = folder
        self._devices = list(devices[:1] if step.whole else devices)
        emulated = settings.client is None
        self._report = StepReport(
            folder.path / "step.json", step, settings.run, self._devices, emulated
        )
        self._names = {device.ordinal: device for device in devices}
        self._addNodes()
        self._salvageUnended()
        self._identities = {device.ordinal: identityOf(device) for device in devices}
        there = [(p, identity) for p, identity, size in folder.pieces if self._isThere(p, size)]
        self._pieces: List[Piece] = [piece for piece, _ in there]
        self._earlier = there
        self._written = False
        self._refusal = ""
        self._wholeResult: Optional[UnitResult] = None
        self._lost = [lostFrom(record) for record in folder.lost]
        self._pairsDone = 0 if step.whole else self._measuredPairs()
        self._coldPairs = 0 if settings.noWarmUp else 1  # in front of each device's baseline
        self._contests = Contests(len(step.names), self._readCells, self._coldPairs)
        self._cost = Cost(step.config)

    def run(self) -> int:
        """Measures what is missing and writes the results file; returns the exit status."""
        step = self._step
        lockFolder = str(self._outputs / LOCKS_FOLDER)
        local = self._cluster is None
        if self._settings.noWait and not self._settings.frontEnd and local and self._missing():
            lookAtLocks(self._devices, lockFolder, wait=False)  # the front end has looked itself
        self._announce()
        self._setAsideForeignResults()
        there = {piece.path for piece in self._pieces}
        self._report.resumed(
            self._pieces,
            self._pairsDone,
            self._folder.tallies(there),
            self._lost,
            [each["unit"]["number"] for each in self._folder.retimings],
        )
        self._writeReport("planned")
        cost = self._cost
        ordinals = [device.ordinal for device in self._devices]
        keepWhole = self._settings.keepSizesWhole or bool(keepsSizesWhole(step.config))
        missing = self._missing()
        baseline = None
        if not step.whole and not step.best and self._settings.baseline != "off":
            baseline = chooseBaseline(cost, missing, len(ordinals), self._coldPairs)
        begun = self._begun(missing) if keepWhole and not step.whole else []
        held = [rest for rest, _ in begun]
        schedule = Schedule(
            [area for area in missing if area not in held],
            ordinals,
            cost,
            self._folder.nextUnit,
            keepWhole,
            baseline,
            begun,
        )
        for piece, identity in self._earlier:
            self._contests.add(replace(piece, device=self._sameDevice(piece.device, identity)))
        for earlier in self._folder.retimings:
            if self._sameDevice(earlier["device"], earlier["identity"]) < 0:
                continue
            unit = Unit(**earlier["unit"])
            failed = earlier["kind"] not in (None, MEASURED)
            columns = range(unit.firstSolution, unit.lastSolution + 1) if failed else ()
            self._contests.resume(unit.firstProblem, earlier["device"], columns)
        if self._settings.client is None:
            # The emulated client tells of two on one device, counting within this run.
            os.environ[LOCK_DIR_VARIABLE] = os.environ.get(LOCK_DIR_VARIABLE) or lockFolder
        progress = self._makeProgress(schedule, lockFolder)
        loop = Loop(
            schedule,
            cost,
            self._workers(lockFolder),
            self._makeJob,
            self._onResult,
            shouldStop=self._endsStep,
            contests=None if step.whole else self._contests,
            changes=self._changes,
            observer=progress,
            patience=self._patience(),
        )
        self._report.follow(loop.result)
        try:
            result = loop.run()
        except BaseException:
            with contextlib.suppress(OSError):
                self._report.write("running")  # the last units may not be in it
            progress.end("stopped")
            raise
        self._noteHeld(result, lockFolder)
        status = self._finish(result)
        progress.end("finished")
        return status

    def _addNodes(self) -> None:
        """Has the report name nodes, and what they run."""
        if self._cluster is None:
            return
        register = Register(registerPath(str(self._outputs)))
        self._names.update((device.ordinal, device) for device in register.devices)
        self._report.addNodes(register.devices, register.versions, self._cluster.clientHash)

    def _makeProgress(self, schedule: Schedule, lockFolder: str) -> StepProgress:
        """What listens to the loop: tells a file and, without a front end, the output."""
        devices = [device.ordinal for device in self._devices]
        tellings = [intoFile(self._outputs / PROGRESS_FILE)]
        if not self._settings.frontEnd:
            tellings.append(_Alone(PlainDisplay(), self._settings.client is None).tell)

        def tellProgress(told: Dict[str, Any], new: bool) -> None:
            for each in tellings:
                each(told, new)

        return StepProgress(
            self._step,
            self._settings.run,
            devices,
            schedule,
            self._cost,
            self._pairsMeasured,
            tellProgress,
            lost=sum(area.rectangle.pairs for area in self._lost),
            holderOf=lambda device: self._holderOf(self._names[device], lockFolder),
            contenders=self._contests.expected,
            nodeOf=lambda device: nodeFields(self._names[device]),
        )

    def _holderOf(self, device: Device, lockFolder: str) -> str:
        if self._cluster is not None:
            return self._cluster.holderOf(device.ordinal)
        return lockHolder(device, lockFolder)

    def _pairsMeasured(self) -> int:
        if not self._step.whole:
            return self._pairsDone
        table, last = self._step.table, self._wholeResult
        measured = last is not None and last.outcome.kind == MEASURED
        return table.problemCount * table.solutionCount if measured else 0

    def _workers(self, lockFolder: str) -> Sequence[WorkerLike]:
        if self._cluster is not None:
            return self._cluster.workers(self._devices)
        found, notes = surroundings(System(), self._devices, self._settings.affinity)
        for note in notes:
            _say(note)
        wait = not self._settings.noWait
        return [
            DeviceWorker(device, lockFolder, wait, found[device.ordinal])
            for device in self._devices
        ]

    def _changes(self, using: Sequence[int]) -> Changes:
        """Who has come and who leaves, where the devices are those of several machines."""
        if self._cluster is None or self._step.whole:
            return (), ()
        come, leaving = self._cluster.changes(using)
        for worker in come:
            device = worker.device
            self._identities[device.ordinal] = identityOf(device)
            self._devices = [d for d in self._devices if d.ordinal != device.ordinal] + [device]
            self._report.addDevice(device)
            self._names[device.ordinal] = device
        if come:
            self._addNodes()
        return come, leaving

    def _patience(self) -> float:
        """How long the step waits where all nodes have left, in seconds."""
        if self._cluster is None or self._step.whole:
            return 0.0
        return self._cluster.patience

    def _noteHeld(self, result: LoopResult, lockFolder: str) -> None:
        """Devices that another run had to the end, so that they measured nothing, are lost ones."""
        for device in self._devices:
            holder = ""
            if device.ordinal in result.neverReady and not device.node:
                holder = lockHolder(device, lockFolder)
            if holder:
                text = "device %d was in use by %s to the end: this step did without it"
                result.notes.append(text % (device.ordinal, holder))
                result.devicesLost.append(device.ordinal)
                _say(result.notes[-1])

    def _makeJob(self, unit: Unit, device: Device) -> Job:
        # A baseline warms its device itself.
        warmUp = not (self._settings.noWarmUp or unit.baseline)
        job = makeJob(self._step, unit, device, self._outputs, self._folder.name, warmUp)
        begun = {"unit": asdict(unit), "device": device.ordinal, "written": job.written}
        begun["identity"] = identityOf(device)
        self._folder.journal.append({"begunUnit": begun})
        step = self._step
        if step.whole:  # the client runs its whole list whatever the unit says
            unit = replace(unit, problemCount=step.table.problemCount)
        asked = self._settings.hangLimit
        return replace(job, silenceSeconds=hangSeconds(self._cost, step.config, unit, asked))

    def _salvageUnended(self) -> None:
        """Journals what units had measured when the run that began them was killed."""
        for record in self._folder.unended:
            unit = Unit(**record["unit"])
            device = Device(record["device"], str(record["device"]))
            job = plainJob(self._step, unit, device, self._outputs, self._folder.name)
            killed = ClientExit(128 + signal.SIGKILL, False, 0.0, 0.0)
            result = examine(replace(job, written=record["written"]), killed)
            self._journal(result, self._kept(result), record["identity"])

    def _isThere(self, piece: Piece, size: int) -> bool:
        """Whether a journalled piece's file can still be read, and was not cut."""
        path = self._outputs / piece.path
        return Results.readHeader(str(path)) is not None and path.stat().st_size >= size

    def _sameDevice(self, ordinal: int, identity: str) -> int:
        """A device's number in this run; below 0 for one that has another number now, or none.

        An ordinal counts in the user's environment: the next run's may mean another GPU.
        """
        if self._identities.get(ordinal, identity) == identity:
            return ordinal
        known = sorted({each for _, each in self._earlier} | {identity})
        return -1 - known.index(identity)

    def _kept(self, result: UnitResult) -> Tuple[Piece, ...]:
        """The pieces that count. Of a re-timing only valid cells do: it takes nothing away."""
        if result.outcome.unit.baseline:
            return ()
        if not result.outcome.unit.retiming:
            return result.pieces
        kept = []
        for piece in result.pieces:
            values = self._readCells(piece, piece.firstProblem)
            for at, value in enumerate(values, piece.firstSolution):
                if value is None:
                    continue
                if kept and kept[-1].firstSolution + kept[-1].solutionCount == at:
                    kept[-1] = replace(kept[-1], solutionCount=kept[-1].solutionCount + 1)
                else:
                    kept.append(replace(piece, firstSolution=at, solutionCount=1))
        return tuple(kept)

    def _missing(self) -> List[Rectangle]:
        if self._step.whole:
            return [Rectangle(0, 1, 0, 1)]  # the client runs its whole list whatever the unit says
        table = self._step.table
        rest = [Rectangle(table.firstProblem, table.problemCount, 0, table.solutionCount)]
        parts = [rectangleOf(piece) for piece in self._pieces]
        for part in parts + [lost.rectangle for lost in self._lost]:
            rest = [left for whole in rest for left in subtract(whole, part)]
        return rest

    def _begun(self, missing: Sequence[Rectangle]) -> List[Tuple[Rectangle, int]]:
        """Rests of rows, with the device that measured the other part."""
        width = len(self._step.names)
        begun = []
        for area in missing:
            own = [
                self._sameDevice(piece.device, identity)
                for piece, identity in self._earlier
                if piece.firstProblem <= area.firstProblem
                and area.firstProblem < piece.firstProblem + piece.problemCount
            ]
            if own and own[0] >= 0 and area.solutionCount < width:
                begun.append((area, own[0]))
        return begun

    def _measuredPairs(self) -> int:
        table = self._step.table
        missing = sum(rectangle.pairs for rectangle in self._missing())
        missing += sum(lost.rectangle.pairs for lost in self._lost)
        return table.problemCount * table.solutionCount - missing

    def _readCells(self, piece: Piece, problem: int) -> List[Optional[float]]:
        """The values of a piece's row, one per solution of the piece; None: no result."""
        index = b"%d, " % (problem - piece.firstProblem + piece.written)
        with open(self._outputs / piece.path, "rb") as shard:
            row = next((line for line in shard if line.startswith(index)), b"")
        cells = row.decode("ascii", "replace").strip().split(", ")[-piece.fileSolutionCount :]
        first = piece.firstSolution - piece.fileFirstSolution
        return [readValue(cell) for cell in cells[first : first + piece.solutionCount]]

    def _onResult(self, result: UnitResult) -> None:
        """Journals a result: from here on it counts."""
        outcome = result.outcome
        result = replace(result, pieces=self._kept(result))
        self._journal(result, result.pieces, self._identities.get(outcome.device, ""))
        self._pieces += result.pieces
        if not outcome.unit.extra:
            self._pairsDone += sum(p.problemCount * p.solutionCount for p in result.pieces)
        if self._step.whole:
            self._wholeResult = result
        self._report.add(result)
        self._report.keepCurrent()
        self._sayProgress(result)

    def _journal(self, result: UnitResult, pieces: Sequence[Piece], identity: str) -> None:
        outcome = result.outcome
        self._folder.journal.append(
            {
                "unit": outcome.unit.number,
                "device": outcome.device,
                "kind": outcome.kind,
                "exit": outcome.exitStatus,
                "seconds": outcome.seconds,
                "message": outcome.message,
                "pieces": [asdict(piece) for piece in pieces],
                "sizes": [(self._outputs / piece.path).stat().st_size for piece in pieces],
                "identity": identity,
                "tally": tallyOf(result),
            }
        )

    def _endsStep(self, result: UnitResult) -> bool:
        """exit-on-error: the first validation failure ends everything; so does a refusal."""
        self._refusal = self._refusal or refusalOf(result)
        if self._refusal:
            return True
        wrong = result.validationFailures and not result.outcome.unit.baseline
        return bool(wrong) and self._step.config.flag("exit-on-error")

    def _finish(self, result: LoopResult) -> int:
        if self._step.whole:
            return self._finishWhole(result)
        lost = [*self._lost, *result.lost]
        missing = sum(area.rectangle.pairs for area in lost)
        missing += sum(area.pairs for area in result.leftOver)
        join = None
        status = self._exitStatus(result)
        if self._refusal:
            status = 2
            _say("the client refuses its options: %s" % self._refusal)
        if not self._pieces:
            status = status or 1
            last = result.lost[-1].message if result.lost else "no device could be used"
            _say("nothing at all could be measured (%s): no results file is written" % last)
        elif self._mayReplaceResults(missing):
            # Beside the results file: only now it shows whether all that was measured can be read.
            joined = self._step.results.with_name(self._step.results.name + ".joined")
            join = self._join(joined)
            if join.missing > missing:
                status = 1
                text = "%d measured pairs cannot be read any more: --fresh measures anew"
                _say(text % (join.missing - missing))
                missing = join.missing
            if self._mayReplaceResults(missing):
                os.replace(joined, self._step.results)
                self._writeClientLog()
                status = self._writeLibraryUpdate() or status
                self._written = True
            else:
                joined.unlink()
                _say(_KEPT % self._step.results)
        else:
            _say(_KEPT % self._step.results)
        self._report.contests(self._contests)
        mark = fileMark(self._step.results)
        self._report.finish(result, join, status, mark)
        end = {"exit": status, "missing": missing, "file": mark}
        if self._pieces:  # else it is the client that does not work, and may do so the next time
            end["lost"] = [asdict(area) for area in lost]
        self._folder.journal.append({"finished": end})
        packLogs(_logOf(self._outputs, piece) for piece in self._folder.measured)
        self._sayEnd(result, status)
        return status

    def _finishWhole(self, result: LoopResult) -> int:
        """Hands on what the one client left."""
        last = self._wholeResult
        status = 1
        if last is not None:
            shard = self._outputs / self._makeJobPath(last)
            missing = 0 if last.outcome.kind == MEASURED else 1
            if not self._mayReplaceResults(missing):
                _say(_KEPT % self._step.results)
            elif shard.exists():
                Results.copyResults(str(self._step.results), str(shard))
            status = 1 if last.outcome.exitStatus is None else last.outcome.exitStatus
            end = {"exit": status, "missing": missing, "file": fileMark(self._step.results)}
            self._folder.journal.append({"finished": end})
        packLogs(_logOf(self._outputs, piece) for piece in self._folder.measured)
        self._report.finish(result, None, status, fileMark(self._step.results))
        _say("%s: the client's exit is %d" % (self._step.results, status))
        return status

    def _makeJobPath(self, result: UnitResult) -> str:
        outcome = result.outcome
        name = "unit_%d.csv" % outcome.unit.number
        return os.path.join("gpu_%d" % outcome.device, self._folder.name, name)

    def _join(self, path: Path) -> ResultsJoin.JoinReport:
        """Writes a results file from everything that was measured."""
        step = self._step
        config = step.config
        table = step.table
        merged = config.flag("csv-merge-same-problems")
        if step.best:
            return self._bestTable().write(str(path), merged, self._prefixOf)
        return ResultsJoin.joinShards(
            str(path),
            [self._joinPiece(piece) for piece in self._pieces],
            step.names,
            table.problemCount,
            firstProblem=table.firstProblem,
            header=self._plainHeader(),
            passes=step.passes,
            mergePasses=merged,
            prefixOf=self._prefixOf,
            pairOf=_PairFinder(self._outputs, self._pieces, table.firstSolution).find,
        )

    def _plainHeader(self) -> Results.Header:
        config = self._step.config
        first = config.sizes[self._step.table.firstProblem % config.sizeCount]
        return Results.makeHeader(
            classic=config.generation == "classic",
            sizeCount=len(first.sizes),
            extraColumns=config.flag("csv-export-extra-cols"),
            perCu=config.get("performance-metric") == "CUEfficiency",
        )

    def _bestTable(self) -> BestTable:
        table = self._step.table
        pieces = [
            BestPiece(
                str(self._outputs / piece.path),
                str(_logOf(self._outputs, piece)),
                piece.firstProblem,
                range(piece.written, piece.written + piece.problemCount),
            )
            for piece in self._pieces
        ]
        problems = range(table.firstProblem, table.firstProblem + table.problemCount)
        return BestTable(pieces, problems, self._plainHeader())

    def _joinPiece(self, piece: Piece) -> ResultsJoin.Piece:
        own = range(piece.fileFirstSolution, piece.fileFirstSolution + piece.fileSolutionCount)
        return ResultsJoin.Piece(
            str(self._outputs / piece.path),
            range(piece.firstProblem, piece.firstProblem + piece.problemCount),
            range(piece.firstSolution, piece.firstSolution + piece.solutionCount),
            range(piece.written, piece.written + piece.problemCount),
            own,
        )

    def _prefixOf(self, problem: int) -> Dict[str, str]:
        config = self._step.config
        size = config.sizes[problem % config.sizeCount]
        return Results.problemPrefix(
            sizes=size.sizes,
            strides=size.strides,
            identifier=config.get("problem-identifier") or "",
            aType=config.get("a-type") or "Float",
        )

    def _setAsideForeignResults(self) -> None:
        """Moves an earlier results file of other inputs, or of unknown origin, to NAME.previous.

        One of the same inputs stays until a file that is at least as complete replaces it.
        """
        results = self._step.results
        earlier = self._folder.finished
        if not results.exists() or (earlier and earlier.get("file") == fileMark(results)):
            return
        kept = keepAside(results)
        _say("%s was there from other inputs: kept as %s" % (results, kept.name))

    def _mayReplaceResults(self, missing: int) -> bool:
        """Whether the results file that is there, of the same inputs, is no more complete."""
        earlier = self._folder.finished
        if earlier is None or not self._step.results.exists():
            return True
        return missing <= int(earlier.get("missing", 0))

    def _exitStatus(self, result: LoopResult) -> int:
        """The client's meaning: the number of wrong results; else whether anything is missing."""
        if self._report.validationFailures:
            if self._step.config.flag("exit-on-error"):
                return 1
            return min(MAX_EXIT, self._report.validationFailures)
        if result.leftOver:
            return 1
        if self._settings.frontEnd:
            return 0  # it counts what failed, and judges by it, when the logic is written
        if self._settings.strict and result.devicesLost:
            return 1
        if self._lost or result.lost or self._report.failedPairs:
            return 0 if self._settings.allowFailures else 1
        return 0

    def _writeClientLog(self) -> None:
        """The client's own log-file, from the units' output, in the serial order.

        Of the best solutions its lines are all that anyone looks at (LibraryClient has no other
        use for its client), so they are printed as well.
        """
        if self._step.log is None and not self._step.best:
            return
        table = self._step.table
        lastSolution = table.firstSolution + table.solutionCount - 1
        if self._step.best:
            lastSolution = 1  # of one solution, the client prints 0/1 or 1/1
        last = (table.firstProblem + table.problemCount - 1, lastSolution)
        sources = [(_logOf(self._outputs, p), p.firstProblem - p.written) for p in self._pieces]
        lines = list(serialLines(sources, last))
        if self._step.best:
            for line in lines:
                tell(line.decode("utf-8", "replace").rstrip("\n"))
        if self._step.log is not None:
            writeClientLog(self._step.log, self._step.config.flag("log-file-append"), lines)

    def _writeLibraryUpdate(self) -> int:
        """The client's library-update-file; returns 1 where it cannot be written."""
        step = self._step
        if step.update is None:
            return 0
        try:
            library = os.path.join(step.workingFolder, step.config.get("library-file") or "")
            indices = {each.name: each.logicIndex for each in readSolutions(library)}
            winners: Iterator[Winner] = winnersOf(str(step.results))
            if step.best:
                winners = self._bestTable().winners(self._prefixOf)
            comment = step.config.flag("library-update-comment")
            writeLibraryUpdate(str(step.update), winners, indices, comment)
            return 0
        except TensileParallelError as error:
            _say("no library-update-file: %s" % error)
            return 1

    def _announce(self) -> None:
        step = self._step
        size = "%d problems x %d solutions" % (step.table.problemCount, len(step.names))
        if step.best:
            size = "%d problems, the best solution of each" % step.table.problemCount
        where = listed(self._devices)
        text = "%s: %s on device(s) %s" % (step.folderName or step.results.name, size, where)
        if step.whole:
            text = "%s: whole on device %s, because %s" % (
                step.folderName or step.results.name,
                where,
                step.whole,
            )
        if self._pairsDone:
            text += "; %d pairs were measured before" % self._pairsDone
        _say(text + (" (EMULATED)" if self._settings.client is None else ""))
        for device in self._devices:
            log.info("uses %s", describeDevice(device))

    def _sayProgress(self, result: UnitResult) -> None:
        outcome, unit = result.outcome, result.outcome.unit
        total = self._step.table.problemCount * self._step.table.solutionCount
        text = "device %s: unit %d (problems %d-%d) %s after %.1f s; %d %% of this step" % (
            nameOf(self._names[outcome.device]),
            unit.number,
            unit.firstProblem,
            unit.lastProblem,
            outcome.kind,
            outcome.seconds,
            100 * self._pairsDone // max(1, total),
        )
        if self._settings.frontEnd and not self._settings.verbose:
            tell(text)  # without the mark: for the log, not for the terminal
        else:
            log.info("%s", text)  # shown with -v

    def _sayEnd(self, result: LoopResult, status: int) -> None:
        lost = sum(area.rectangle.pairs for area in [*self._lost, *result.lost])
        left = sum(area.pairs for area in result.leftOver)
        text = "%s %s" % (self._step.results, "written" if self._written else "not written")
        if lost or left:
            text += "; %d pairs could not be measured, %d were not tried" % (lost, left)
        _say("%s; exit %d" % (text, status))

    def _writeReport(self, state: str) -> None:
        data = self._report.write(state)
        config = self._settings.config
        if config is None or not self._settings.frontEnd:
            return
        DeviceConfigs.writeDeviceConfigs(
            str(self._outputs.parent),
            config,
            [data],
            sizesFile=self._settings.sizesFile,
            alternateFormat=self._settings.alternateFormat,
        )


def identityOf(device: Device) -> str:
    """What tells a GPU from another one that has its ordinal in another environment."""
    parts = (device.token, device.uniqueId, device.pciAddress, device.architecture)
    return "|".join(parts + ((device.node,) if device.node else ()))


def lostFrom(record: Dict[str, Any]) -> Lost:
    """What the journal says could not be measured."""
    return Lost(**{**record, "rectangle": Rectangle(**record["rectangle"])})


class _Alone:
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


class _PairFinder:
    """Finds the client's line of one pair, for the rare row whose winner is not the client's."""

    def __init__(self, outputs: Path, pieces: Sequence[Piece], firstColumn: int) -> None:
        self._outputs = outputs
        self._pieces = pieces
        self._firstColumn = firstColumn

    def find(self, run: int, problem: int, solution: int) -> Optional[PairLine]:
        """The line of a pair in a pass; None where the log does not have it."""
        for piece in reversed(self._pieces):
            rows = range(piece.firstProblem, piece.firstProblem + piece.problemCount)
            columns = range(piece.firstSolution, piece.firstSolution + piece.solutionCount)
            if problem not in rows or solution not in columns:
                continue
            local = problem - piece.firstProblem + piece.written
            # One pass after the other; values of icache-flush-args have the same number of it.
            wanted = (local, solution + self._firstColumn)
            lines = readPairs(str(_logOf(self._outputs, piece)))
            found = (pair for pair in lines if (pair.problem, pair.solution) == wanted)
            pair = next(itertools.islice(found, run, None), None)
            if pair is not None:
                return pair
        return None


def _logOf(outputs: Path, piece: Piece) -> Path:
    return (outputs / piece.path).with_name("unit_%d.log" % piece.unit)


def _say(text: str) -> None:
    """A line for a person: on the output, which the front end shows and logs."""
    tell(SAY + text)
    log.info("%s", text)


class _Marked(logging.Formatter):
    """Lines for a person; warnings are marked, as --quiet shows them too."""

    def format(self, record: logging.LogRecord) -> str:
        note = "note: " if record.levelno >= logging.WARNING else ""
        return SAY + note + super().format(record)


def _startLog(settings: ClientSettings) -> None:
    """Warnings on stderr; with a front end, everything goes into its log by way of our output."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.DEBUG if settings.verbose else logging.WARNING)
    handler.setFormatter(_Marked())
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)


if __name__ == "__main__":
    sys.exit(main())
