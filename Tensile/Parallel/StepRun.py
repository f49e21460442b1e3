# SPDX-License-Identifier: MIT
"""One step, from its plan to its results file.

Step -> Schedule + workers (Loop) -> journal, shards -> StepResults
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from . import DeviceConfigs, Results
from .Baseline import chooseBaseline
from .ClientConfig import keepsSizesWhole
from .ClientTelling import AloneDisplay, say
from .Contest import Contests
from .Cost import Cost
from .DeviceNames import listed, nameOf, nodeFields
from .Devices import describeDevice
from .Display import PlainDisplay
from .Fleet import Register, registerPath
from .HangLimit import hangSeconds
from .Locks import LOCK_DIR_VARIABLE, LOCKS_FOLDER, lockHolder, lookAtLocks
from .Loop import Loop
from .LoopTypes import JOINED, LEFT, Changes, LoopResult, Lost, WorkerLike
from .Outcomes import examine, refusalOf
from .ParseArguments import ClientSettings
from .Platform import System
from .Progress import StepProgress, intoFile
from .QuietMachine import surroundings
from .Schedule import Rectangle, Schedule, rectangleOf, subtract
from .Status import PROGRESS_FILE
from .Step import Step, makeJob, plainJob
from .StepFolder import StepFolder, fileMark, keepAside
from .StepReport import StepReport, tallyOf
from .StepResults import StepResults, logOf
from .Terminal import tell
from .Types import MEASURED, ClientExit, Device, Job, Piece, Unit, UnitResult
from .UnitLogs import packLogs
from .Worker import DeviceWorker

if TYPE_CHECKING:
    from .StepCluster import StepCluster

log = logging.getLogger("TensileParallel")

MAX_EXIT = 255
_KEPT = "%s holds more than this run measured: it is kept"


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
        self._results = StepResults(step, outputs)
        self._salvageUnended()
        self._identities = {device.ordinal: identityOf(device) for device in devices}
        there = [(p, identity) for p, identity, size in folder.pieces if self._isThere(p, size)]
        self._results.pieces += [piece for piece, _ in there]
        self._earlier = there
        self._written = False
        self._refusal = ""
        self._wholeResult: Optional[UnitResult] = None
        self._lost = [lostFrom(record) for record in folder.lost]
        self._pairsDone = 0 if step.whole else self._measuredPairs()
        self._coldPairs = 0 if settings.noWarmUp else 1  # in front of each device's baseline
        self._contests = Contests(len(step.names), self._results.readCells, self._coldPairs)
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
        self._reportBeginning()
        schedule = self._makeSchedule()
        self._resumeContests()
        if self._settings.client is None:
            # The emulated client tells of two on one device, counting within this run.
            os.environ[LOCK_DIR_VARIABLE] = os.environ.get(LOCK_DIR_VARIABLE) or lockFolder
        progress = self._makeProgress(schedule, lockFolder)
        loop = Loop(
            schedule,
            self._cost,
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
        self._noteChangesBefore(loop)
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

    def _reportBeginning(self) -> None:
        """Notes what is there already, before anything is measured."""
        there = {piece.path for piece in self._results.pieces}
        self._report.resumed(
            self._results.pieces,
            self._pairsDone,
            self._folder.tallies(there),
            self._lost,
            [each["unit"]["number"] for each in self._folder.retimings],
        )
        self._writeReport("planned")

    def _makeSchedule(self) -> Schedule:
        """Of what is missing."""
        step, cost, settings = self._step, self._cost, self._settings
        ordinals = [device.ordinal for device in self._devices]
        keepWhole = settings.keepSizesWhole or bool(keepsSizesWhole(step.config))
        missing = self._missing()
        baseline = None
        if not step.whole and not step.best and settings.baseline != "off":
            baseline = chooseBaseline(cost, missing, len(ordinals), self._coldPairs)
        begun = self._begun(missing) if keepWhole and not step.whole else []
        held = [rest for rest, _ in begun]
        return Schedule(
            [area for area in missing if area not in held],
            ordinals,
            cost,
            self._folder.nextUnit,
            keepWhole,
            baseline,
            begun,
        )

    def _resumeContests(self) -> None:
        """Has them know what earlier runs measured and timed again."""
        for piece, identity in self._earlier:
            self._contests.add(replace(piece, device=self._sameDevice(piece.device, identity)))
        for earlier in self._folder.retimings:
            if self._sameDevice(earlier["device"], earlier["identity"]) < 0:
                continue
            unit = Unit(**earlier["unit"])
            failed = earlier["kind"] not in (None, MEASURED)
            columns = range(unit.firstSolution, unit.lastSolution + 1) if failed else ()
            self._contests.resume(unit.firstProblem, earlier["device"], columns)

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
            tellings.append(AloneDisplay(PlainDisplay(), self._settings.client is None).tell)

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
            say(note)
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

    def _noteChangesBefore(self, loop: Loop) -> None:
        """Tells which nodes' devices came or went since the step before, or the run's beginning."""
        if self._cluster is None or not self._settings.frontEnd:
            return
        come, left = self._cluster.changesBefore()
        self._names.update((device.ordinal, device) for device in left)
        for what, devices in ((LEFT, left), (JOINED, come)):
            for device in devices:
                loop.noteChange(device, what)

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
                say(result.notes[-1])

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
            values = self._results.readCells(piece, piece.firstProblem)
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
        parts = [rectangleOf(piece) for piece in self._results.pieces]
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

    def _onResult(self, result: UnitResult) -> None:
        """Journals a result: from here on it counts."""
        outcome = result.outcome
        result = replace(result, pieces=self._kept(result))
        self._journal(result, result.pieces, self._identities.get(outcome.device, ""))
        self._results.pieces += result.pieces
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
            say("the client refuses its options: %s" % self._refusal)
        if not self._results.pieces:
            status = status or 1
            last = result.lost[-1].message if result.lost else "no device could be used"
            say("nothing at all could be measured (%s): no results file is written" % last)
        elif self._mayReplaceResults(missing):
            # Beside the results file: only now it shows whether all that was measured can be read.
            joined = self._step.results.with_name(self._step.results.name + ".joined")
            join = self._results.join(joined)
            if join.missing > missing:
                status = 1
                text = "%d measured pairs cannot be read any more: --fresh measures anew"
                say(text % (join.missing - missing))
                missing = join.missing
            if self._mayReplaceResults(missing):
                os.replace(joined, self._step.results)
                self._results.writeClientLog()
                status = self._results.writeLibraryUpdate() or status
                self._written = True
            else:
                joined.unlink()
                say(_KEPT % self._step.results)
        else:
            say(_KEPT % self._step.results)
        self._report.contests(self._contests)
        mark = fileMark(self._step.results)
        self._report.finish(result, join, status, mark)
        end = {"exit": status, "missing": missing, "file": mark}
        if (
            self._results.pieces
        ):  # else it is the client that does not work, and may do so the next time
            end["lost"] = [asdict(area) for area in lost]
        self._folder.journal.append({"finished": end})
        packLogs(logOf(self._outputs, piece) for piece in self._folder.measured)
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
                say(_KEPT % self._step.results)
            elif shard.exists():
                Results.copyResults(str(self._step.results), str(shard))
            status = 1 if last.outcome.exitStatus is None else last.outcome.exitStatus
            end = {"exit": status, "missing": missing, "file": fileMark(self._step.results)}
            self._folder.journal.append({"finished": end})
        packLogs(logOf(self._outputs, piece) for piece in self._folder.measured)
        self._report.finish(result, None, status, fileMark(self._step.results))
        say("%s: the client's exit is %d" % (self._step.results, status))
        return status

    def _makeJobPath(self, result: UnitResult) -> str:
        outcome = result.outcome
        name = "unit_%d.csv" % outcome.unit.number
        return os.path.join("gpu_%d" % outcome.device, self._folder.name, name)

    def _setAsideForeignResults(self) -> None:
        """Moves an earlier results file of other inputs, or of unknown origin, to NAME.previous.

        One of the same inputs stays until a file that is at least as complete replaces it.
        """
        results = self._step.results
        earlier = self._folder.finished
        if not results.exists() or (earlier and earlier.get("file") == fileMark(results)):
            return
        kept = keepAside(results)
        say("%s was there from other inputs: kept as %s" % (results, kept.name))

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
        say(text + (" (EMULATED)" if self._settings.client is None else ""))
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
        say("%s; exit %d" % (text, status))

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
