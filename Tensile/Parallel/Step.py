# SPDX-License-Identifier: MIT
"""One benchmark step as the parallel client sees it: an INI, a solution library, a results file.

A step is what one `tensile_client` process would have done. Its table has a row per problem and a
column per solution; where the user gave the client a range, the table is that range.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from .BestSolution import BEST
from .ClientConfig import (
    INDEXED_OPTIONS,
    STRIDE_OPTIONS,
    SWITCHES,
    ClientConfig,
    ClientOptions,
    readClientConfigs,
    wholeReason,
    writeClientConfig,
)
from .Errors import InputError
from .ParseArguments import ClientSettings
from .SolutionNames import libraryOnDisk, readSolutionNames
from .Types import Device, Job, Unit
from .WarmUp import warmUpCommand

# Options that differ per unit: they go into its INI and never stay on its command line.
PER_UNIT = (
    "results-file",
    "log-file",
    "log-file-append",
    "library-update-file",
    "device-idx",
    "csv-merge-same-problems",
    "problem-start-idx",
    "num-problems",
    "solution-start-idx",
    "num-solutions",
    # The client's command line replaces the whole list of sizes in its INI.
    "problem-size",
    *STRIDE_OPTIONS,
    *INDEXED_OPTIONS,
)
# These may keep the client from printing a line per pair, by which BestSolution.py tells columns.
_TERSE_LEVELS = ("Error", "Terse")
_SILENCING = ("log-level", "PrintWinnersOnly")
# Keys whose values are files: their folders differ from run to run and say nothing of the work.
_FILES = ("results-file", "log-file", "library-update-file", "code-object", "library-file")


@dataclass(frozen=True)
class Table:
    """The part of the problem x solution table that is to be measured, in the client's indices."""

    firstProblem: int
    problemCount: int
    firstSolution: int
    solutionCount: int


@dataclass(frozen=True)
class Step:
    """Everything that is fixed before the first unit starts.

    Attributes:
        config: the INI, with the command line's options in it.
        client: the client's command, without its options.
        extraArguments: options of the command line that every unit gets as well.
        results: absolute path of the results file.
        log: absolute path of the client's log file, where one was asked for.
        workingFolder: what relative paths in the INI count from.
        names: the solutions of the table, in order; BEST alone where the client chooses.
        table: what is to be measured.
        whole: why everything goes to one device; empty where it is split.
        update: absolute path of the library-update-file, where one was asked for.
        wholeArguments: the command line as it was given, for a step that goes whole.
        folderName: "<type>_<group>/<step>" below the outputs; empty beside the results file.
        inputs: what the measurements depend on: its name -> a hash.
    """

    config: ClientConfig
    client: Tuple[str, ...]
    extraArguments: Tuple[str, ...]
    results: Path
    log: Optional[Path]
    workingFolder: str
    names: Tuple[str, ...]
    table: Table
    whole: str
    update: Optional[Path]
    wholeArguments: Tuple[str, ...]
    folderName: str
    inputs: Dict[str, str]

    @property
    def passes(self) -> int:
        """How often the client goes through its whole list."""
        return self.config.rounds

    @property
    def best(self) -> bool:
        """Whether the client runs only the solution that it takes for the best."""
        return self.names == (BEST,)


def makeStep(settings: ClientSettings, client: Tuple[str, ...], architecture: str) -> Step:
    """Reads a step's inputs.

    Args:
        settings: the command line and run.json.
        client: the client's command.
        architecture: of the devices, where known; measurements of another are not mixed in.

    Raises:
        InputError: no INI, no results file, no library, no solutions.
    """
    if not settings.configFiles:
        raise InputError("no --config-file: name the client's INI (see --help)")
    options = ClientOptions(settings.configFiles, settings.clientArguments)
    read = readClientConfigs(settings.configFiles)
    config = read.withOptions(options)
    workingFolder = os.getcwd()
    results = _resultsPath(config, workingFolder)
    logFile, updateFile = config.get("log-file"), config.get("library-update-file")
    for name, path in (("log-file", logFile), ("library-update-file", updateFile)):
        if path:
            _refuseUnwritable(name, Path(os.path.join(workingFolder, path)), results)
    whole = wholeReason(read, options) or ""
    best = config.flag("best-solution") and not whole
    if best:
        config = config.replaced({"solution-start-idx": None, "num-solutions": None})
    names = [] if whole else [BEST] if best else _readNames(config, workingFolder)
    table = None if whole else _table(config, len(names))
    if not whole and table is None:
        whole = "its problem or solution range is empty or reaches beyond the list"
    return Step(
        config=config,
        client=client,
        extraArguments=_arguments(settings, without=PER_UNIT + (_SILENCING if best else ())),
        results=results,
        log=Path(os.path.join(workingFolder, logFile)) if logFile else None,
        workingFolder=workingFolder,
        names=tuple(names[table.firstSolution :][: table.solutionCount]) if table else (),
        table=table or Table(0, max(1, config.problemCount), 0, 1),
        whole=whole,
        update=Path(os.path.join(workingFolder, updateFile)) if updateFile else None,
        wholeArguments=_arguments(settings, without=("results-file", "device-idx"))
        + tuple(text for path in settings.configFiles for text in ("--config-file", path)),
        folderName=_folderName(results),
        inputs={
            **_hashInputs(config, client, architecture, workingFolder),
            **dict(settings.hostInputs),
        },
    )


def makeJob(
    step: Step,
    unit: Unit,
    device: Device,
    outputs: Path,
    folderName: str,
    warmUp: bool = False,
) -> Job:
    """A unit as a job: writes its INI.

    Args:
        step: the step.
        unit: the unit; its problems are global, its solutions count in the step's table.
        device: where it is to run.
        outputs: absolute path of the outputs folder.
        folderName: the step's folder below gpu_N.
        warmUp: whether a cold device is warmed up for it. A step that goes whole never has that:
            the client runs its list as it is.
    """
    job = plainJob(step, unit, device, outputs, folderName)
    os.makedirs(job.folder, exist_ok=True)
    if step.whole:
        fixed = ("--results-file", job.file(".csv"), "--device-idx", "0")
        return replace(job, command=(*step.client, *step.wholeArguments, *fixed))
    config, written = _cutSizes(step.config, unit)
    config = config.replaced(
        {
            "results-file": job.file(".csv"),
            "log-file": None,
            "log-file-append": None,
            "library-update-file": None,
            "device-idx": "0",
            # Rows are then flushed as each problem finishes; for one pass the bytes are the same.
            "csv-merge-same-problems": "0",
            "problem-start-idx": str(written),
            "num-problems": str(unit.problemCount),
            "solution-start-idx": str(step.table.firstSolution + unit.firstSolution),
            "num-solutions": str(unit.solutionCount),
            **(_bestChanges(config) if step.best else {}),
        }
    )
    writeClientConfig(config, job.file(".ini"))
    command = (*job.command, "--config-file", job.file(".ini"))
    job = replace(job, command=command, written=written)
    if warmUp:
        job = replace(job, warmUp=warmUpCommand(step.client, step.extraArguments, job))
    return job


def _bestChanges(config: ClientConfig) -> Dict[str, Optional[str]]:
    """What a unit of best solutions needs: no range of solutions, and a printed line per pair."""
    changes: Dict[str, Optional[str]] = {"solution-start-idx": None, "num-solutions": None}
    if config.get("log-level") in _TERSE_LEVELS:
        changes["log-level"] = "Normal"
    if config.has("PrintWinnersOnly"):
        changes["PrintWinnersOnly"] = "0"
    return changes


def plainJob(step: Step, unit: Unit, device: Device, outputs: Path, folderName: str) -> Job:
    """A unit as a job, before its INI is written."""
    base = os.path.join("gpu_%d" % device.ordinal, folderName)
    return Job(
        unit=unit,
        device=device,
        command=(*step.client, *step.extraArguments),
        folder=str(outputs / base),
        pathBase=base,
        written=unit.firstProblem,
        firstColumn=step.table.firstSolution,
        columns=step.names[unit.firstSolution :][: unit.solutionCount],
        passes=step.passes,
        workingFolder=step.workingFolder,
        whole=bool(step.whole),
        best=step.best,
    )


def _cutSizes(config: ClientConfig, unit: Unit) -> Tuple[ClientConfig, int]:
    """An INI with only the unit's sizes, and the index that its first problem has there.

    The client initialises data for the largest size of the whole INI: without the others it starts
    sooner. A unit that spans more than one round of the size list keeps the list whole.
    """
    rounds, size = divmod(unit.firstProblem, config.sizeCount)
    if size + unit.problemCount > config.sizeCount:
        return config, unit.firstProblem
    chosen = range(size, size + unit.problemCount)
    return config.withSizes(chosen), rounds * len(chosen)


def _resultsPath(config: ClientConfig, workingFolder: str) -> Path:
    text = config.get("results-file") or "results.csv"  # the client's own default
    path = Path(os.path.normpath(os.path.join(workingFolder, text)))
    # The hosts' LibraryClient names a folder Data that nobody makes; the client then runs without
    # a word and leaves no file. More than one folder that is missing is a mistake.
    if not path.parent.exists() and path.parent.parent.is_dir():
        path.parent.mkdir(exist_ok=True)
    if not path.parent.is_dir():
        raise InputError("results-file %s: its folder does not exist; create it" % path)
    if path.is_dir():
        raise InputError("results-file %s: it is a folder; name a file" % path)
    return path


def _refuseUnwritable(name: str, path: Path, results: Path) -> None:
    """Before hours of measuring, not after them.

    Raises:
        InputError: the file could not be written.
    """
    if not path.parent.is_dir():
        raise InputError("%s %s: its folder does not exist; create it" % (name, path))
    if os.path.normpath(path) == os.path.normpath(results):
        raise InputError("%s %s is the results-file as well; name another" % (name, path))


def _arguments(settings: ClientSettings, without: Tuple[str, ...]) -> Tuple[str, ...]:
    """The user's options but for some, and without --config-file."""
    words: List[str] = []
    for key, value in settings.clientArguments:
        if key in SWITCHES and key not in without:
            words.append("--%s=%s" % (key, value))
        elif key not in without:
            words += ["--" + key, value]
    return tuple(words)


def _readNames(config: ClientConfig, workingFolder: str) -> List[str]:
    library = config.get("library-file")
    if not library:
        raise InputError("%s: it names no library-file" % config.path)
    names = readSolutionNames(os.path.join(workingFolder, library))
    if not names:
        raise InputError("library-file %s: it holds no solutions" % library)
    return names


def _table(config: ClientConfig, solutions: int) -> Optional[Table]:
    """The range that the INI asks for; None where it is not inside the lists."""
    problems = config.problemCount
    firstProblem = config.number("problem-start-idx", 0)
    problemCount = config.number("num-problems", -1)
    firstSolution = max(0, config.number("solution-start-idx", -1))
    solutionCount = config.number("num-solutions", -1)
    if problemCount < 0:
        # The client then takes the count of the whole list, and runs past its end.
        problemCount = problems
    if solutionCount < 0:
        solutionCount = solutions - firstSolution
    inside = 0 <= firstProblem and firstProblem + problemCount <= problems
    inside = inside and firstSolution + solutionCount <= solutions
    if not inside or problemCount < 1 or solutionCount < 1:
        return None
    return Table(firstProblem, problemCount, firstSolution, solutionCount)


def _folderName(results: Path) -> str:
    """ "<type>_<group>/<step>" for a results file at <type>_<group>/Data/<step>.csv."""
    if results.parent.name == "Data" and results.parent.parent.name:
        return os.path.join(results.parent.parent.name, results.stem)
    return ""


def _hashInputs(
    config: ClientConfig, client: Tuple[str, ...], architecture: str, workingFolder: str
) -> Dict[str, str]:
    """Hashes of the INI with its options, the library, the client and the architecture.

    Not of the code objects: TensileLite names assembly labels at random, so two builds of the same
    kernels differ. Folders are left out, so that a tree that was moved is still the same.
    """
    digest = hashlib.sha256()
    for key, value in config.entries:
        value = os.path.basename(value) if key in _FILES else value
        digest.update(("%s=%s\n" % (key, value)).encode("utf-8", "surrogateescape"))
    library = config.get("library-file") or ""
    return {
        "the INI": digest.hexdigest(),
        "the solution library": _hashFile(libraryOnDisk(os.path.join(workingFolder, library))),
        "the client": _hashFile(client[-1]),
        "the architecture": hashlib.sha256(architecture.encode()).hexdigest(),
    }


def _hashFile(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as handle:
            for block in iter(lambda: handle.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return "-"
    return digest.hexdigest()
