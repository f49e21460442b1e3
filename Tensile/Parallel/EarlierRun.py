# SPDX-License-Identifier: MIT
"""What an output folder tells of a step before it is run again: its solutions, its pace.

A step is known again by what it is made of, not by its folder's name: the INI that Tensile wrote
there has the sizes, lists and type that the config makes, and Tensile's cache.yaml was made from
the same fork parameters. Only then is its library the step's own, and its number of solutions
exact.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import yaml

from .ClientConfig import ClientConfig, readClientConfig
from .ConfigSteps import MISSHAPEN
from .Cost import Cost
from .Errors import InputError
from .ForkedSolutions import WILDCARD, ForkedSolutions
from .History import PROBLEMS_FOLDER
from .Journal import readJournal
from .Report import SUMMARY_FILE
from .Schedule import Rectangle, rectangleOf
from .SolutionNames import libraryOnDisk, readSolutions
from .StepFolder import JOURNAL
from .Types import MEASURED, Piece

# Where Tensile's own folders lie: in a parallel run's output, and in a serial run's.
_BASES = ("merged_output", "")
_INI = "ClientParameters.ini"
# Keys that decide which problems and solutions there are. The others decide how long they take.
_IDENTITY = (
    "problem-identifier a-type b-type d-type problem-size bias-type-args activation-enum-args "
    "factor-dim-args grouped-gemm"
).split()
# A client's start is never taken for more than this part of a unit, whatever the model says.
_MOST_START = 0.9


@dataclass(frozen=True)
class EarlierStep:
    """A step as an earlier run left it.

    Attributes:
        library: path of the solution library.
        solutions: how many it holds.
        sameWork: whether a client would do the same as then, so that times can be compared.
        records: of its journal; empty without one.
        outputs: the folder out/outputs.
        emulated: whether the times are the emulated client's; None where nothing was measured.
    """

    library: str
    solutions: int
    sameWork: bool
    records: Tuple[Dict[str, Any], ...] = ()
    outputs: str = ""
    emulated: Optional[bool] = None

    def measured(self) -> List[Rectangle]:
        """The parts of the table that a run would not measure again."""
        pieces = [Piece(**each) for record in self.records for each in record.get("pieces", ())]
        return [
            rectangleOf(piece)
            for piece in pieces
            if os.path.exists(os.path.join(self.outputs, piece.path))
        ]

    @property
    def unendedUnits(self) -> int:
        """How many units ran when it ended: a run keeps what their clients had finished."""
        ended = {record["unit"] for record in self.records if "unit" in record}
        begun = [record["begunUnit"]["unit"] for record in self.records if "begunUnit" in record]
        own = {unit["number"] for unit in begun if not (unit["retiming"] or unit.get("baseline"))}
        return len(own - ended)

    def teach(self, cost: Cost) -> int:
        """Has the model learn from the units that were measured; returns how many those were."""
        begun = [record["begunUnit"]["unit"] for record in self.records if "begunUnit" in record]
        extra = {unit["number"] for unit in begun if unit["retiming"] or unit.get("baseline")}
        count = 0
        for record in self.records:
            pieces = record.get("pieces", ())
            if record.get("kind") != MEASURED or len(pieces) != 1 or record["unit"] in extra:
                continue
            area = rectangleOf(Piece(**pieces[0]))
            seconds = record["seconds"]
            start = cost.fixedSeconds(area.firstProblem, area.problemCount)
            left = seconds - min(start, _MOST_START * seconds)
            cost.observe(area.firstProblem, area.problemCount, area.solutionCount, left)
            count += 1
        return count


@dataclass(frozen=True)
class _Folder:
    """A step's folder: its INI, and whether Tensile's cache is beside it."""

    ini: ClientConfig
    source: Path
    cache: Path


class EarlierRun:
    """An output folder; empty where there is none, or nothing in it."""

    def __init__(self, out: str) -> None:
        self._out = out
        self._folders = list(_readFolders(out)) if out else []

    @property
    def found(self) -> bool:
        """Whether it holds any step."""
        return bool(self._folders)

    def hostSeconds(self) -> Optional[float]:
        """What its last run took beside benchmarks, in seconds; None where that is not known."""
        try:
            path = os.path.join(self._out, SUMMARY_FILE)
            with open(path, encoding="utf-8") as stream:
                return float(json.load(stream)["seconds"]["host"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def find(self, ini: Optional[ClientConfig], forked: ForkedSolutions) -> Optional[EarlierStep]:
        """The step that was made from the same; None where there is none.

        Args:
            ini: what the host is expected to write; None where that cannot be told.
            forked: what the config forks.
        """
        if ini is None or forked.most is None and forked.customKernels != WILDCARD:
            return None
        for folder in self._folders:
            if _sameProblems(folder.ini, ini) and _sameSolutions(folder.cache, forked):
                step = self._step(folder, ini)
                if step is not None:
                    return step
        return None

    def _step(self, folder: _Folder, ini: ClientConfig) -> Optional[EarlierStep]:
        library = folder.ini.get("library-file") or ""
        # A folder that was moved: the INI has the path of then.
        moved = str(folder.source / "library" / os.path.basename(library))
        path = moved if os.path.exists(libraryOnDisk(moved)) else library
        try:
            solutions = len(readSolutions(path))
        except InputError:
            return None
        changed = [key for key, _ in ini.entries if folder.ini.getAll(key) != ini.getAll(key)]
        outputs = os.path.join(self._out, "outputs")
        name = _outputsName(folder.ini)
        records: List[Dict[str, Any]] = []
        emulated = None
        for below in (name, name + "-2") if name else ():
            step = _readStep(Path(outputs) / below)
            if step.get("problems") == ini.problemCount and step.get("solutions") == solutions:
                records = readJournal(Path(outputs) / below / JOURNAL)
                emulated = bool(step.get("emulated"))
                break
        return EarlierStep(path, solutions, not changed, tuple(records), outputs, emulated)


def _readFolders(out: str) -> Iterator[_Folder]:
    for base in _BASES:
        problems = Path(out) / base / PROBLEMS_FOLDER
        # TensileLite 2026 has a folder more, named after a hash.
        for pattern in ("*/*/source/", "*/*/caches/*/source/"):
            for path in sorted(problems.glob(pattern + _INI)):
                try:
                    ini = readClientConfig(str(path))
                except InputError:
                    continue
                yield _Folder(ini, path.parent, path.parent.parent / "cache.yaml")


def _sameProblems(one: ClientConfig, other: ClientConfig) -> bool:
    return all(one.getAll(key) == other.getAll(key) for key in _IDENTITY)


def _sameSolutions(cache: Path, forked: ForkedSolutions) -> bool:
    """Whether a cache.yaml was made from these fork parameters.

    The real hosts' constants hold their defaults as well.
    """
    try:
        with open(cache, "rb") as stream:
            data = yaml.load(stream, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        constants = {name: data["ConstantParams"].get(name) for name in forked.constants}
        kernels = WILDCARD if data.get("CustomKernelWildcard") else data["CustomKernels"]
        return bool(
            constants == forked.constants
            and data["ForkParams"] == forked.forks
            and data["ParamGroups"] == forked.groups
            and kernels == forked.customKernels
        )
    except (OSError, yaml.YAMLError, *MISSHAPEN):
        return False


def _outputsName(ini: ClientConfig) -> str:
    """ "<type>_<group>/<step>" from an INI's results-file, which lies in <type>_<group>/Data."""
    parts = os.path.normpath(ini.get("results-file") or "").split(os.sep)
    if len(parts) < 3 or parts[-2] != "Data":
        return ""
    return os.path.join(parts[-3], os.path.splitext(parts[-1])[0])


def _readStep(folder: Path) -> Dict[str, Any]:
    try:
        step = json.loads((folder / "step.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return step if isinstance(step, dict) else {}
