# SPDX-License-Identifier: MIT
"""What an output folder holds of earlier runs of the same command, and what need not be done again.

    same inputs, finished, files untouched  -> nothing is run at all
    same inputs                             -> the host skips what is finished
    other inputs                            -> the host does everything; the parallel client still
                                               goes on with every step whose own inputs are the same

The host takes a benchmark step for finished where its results file is there. So before it is
allowed to skip anything, results whose step did not end, and copies that were cut short, are moved
aside.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence

from .Files import replaceJson
from .StepFolder import fileMark, keepAside

HISTORY_FILE = "history.json"
VERSION = 1

PROBLEMS_FOLDER = "1_BenchmarkProblems"
DATA_FOLDER = "2_BenchmarkData"
LOGIC_FOLDER = "3_LibraryLogic"

# Folders that no kernel is made from.
_NO_SOURCE = {"Tests", "Parallel", "__pycache__"}

# Options that change what is said, and nothing else.
_VERBOSE = ("-v", "--verbose")


@dataclass
class History:
    """The runs in one output folder that had the same inputs.

    Attributes:
        inputs: what they depend on: its name -> a hash.
        runs: their ids, oldest first.
        finished: how the last one ended, if it did: its exit status, what that would have been
            with --allow-failures, the time (seconds since the epoch), and the marks of its files.
    """

    inputs: Dict[str, str]
    runs: List[str] = field(default_factory=list)
    finished: Optional[Dict[str, Any]] = None

    def write(self, outputs: str) -> None:
        """Replaces the folder's history; no reader sees half of it."""
        replaceJson(Path(outputs) / HISTORY_FILE, {"version": VERSION, **asdict(self)})


def readHistory(outputs: str) -> Optional[History]:
    """The folder's history; None where there is none that can be read."""
    try:
        data = json.loads((Path(outputs) / HISTORY_FILE).read_text("utf-8"))
        if data.pop("version") != VERSION:
            return None
        return History(**data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def hashInputs(
    files: Sequence[str],
    options: Sequence[str],
    client: Optional[str],
    tree: str,
    architecture: str,
    clock: Optional[int] = None,
) -> Dict[str, str]:
    """What a run's results depend on, each with a hash.

    Args:
        files: the config, and the sizes of the alternate format.
        options: the host's own options.
        client: path of tensile_client; None for the emulated one, or one that the host builds.
        tree: the host's folder; its files count, by what they say.
        architecture: of the devices.
        clock: that the host is given, in MHz; None where it is given none.
    """
    inputs = {
        "the config": _hash(_read(path) for path in files),
        "Tensile's options": _hash(
            option.encode("utf-8", "replace") for option in options if option not in _VERBOSE
        ),
        "the client": _hash([_read(client) if client else b""]),
        "Tensile itself": _hash(_treeParts(tree)),
        "the architecture": _hash([architecture.encode()]),
    }
    if clock is not None:
        # Of the logic alone: it is not among the inputs of a step.
        inputs["the GPU's clock"] = _hash([str(clock).encode()])
    return inputs


def outputMarks(merged: str) -> Dict[str, List[int]]:
    """The files of results and logic: path below `merged` -> what tells it from another."""
    marks = {}
    for folder in (DATA_FOLDER, LOGIC_FOLDER):
        for path in _files(Path(merged) / folder):
            mark = fileMark(path)
            if mark is not None and not _isAside(path):
                marks[str(path.relative_to(merged))] = mark
    return marks


def isUntouched(history: History, merged: str) -> bool:
    """Whether a finished run's results and logic are as it left them."""
    marks = outputMarks(merged)
    return bool(marks) and history.finished is not None and history.finished["files"] == marks


def setAsideUnfinished(merged: str, steps: Sequence[dict]) -> List[str]:
    """Moves results aside that the host would take for finished and that may not be.

    Args:
        merged: the host's output folder.
        steps: the step.json of every step that these inputs had.

    Returns:
        The paths that were moved.
    """
    finished = [Path(step["resultsFile"]) for step in steps if _isFinished(step)]
    moved = []
    for path in _files(Path(merged) / PROBLEMS_FOLDER):
        results = path.parent.name == "Data" and path.suffix == ".csv"
        if results and path not in finished and not path.stem.endswith("_Granularity"):
            moved.append(path)
    sources = [path for path in finished if path.exists()]
    for path in _files(Path(merged) / DATA_FOLDER):
        if path.suffix == ".csv" and not any(_isCopy(path, source) for source in sources):
            moved += [each for each in (path, path.with_suffix(".yaml")) if each.exists()]
    for path in moved:
        keepAside(path)
    return [str(path) for path in moved]


def _isFinished(step: dict) -> bool:
    if step.get("state") != "finished" or step.get("leftOver") or not step.get("file"):
        return False
    if step.get("exit"):
        return False  # Tensile is to hear of wrong results again: it ends before the logic
    return fileMark(Path(step["resultsFile"])) == list(step["file"])


def _isCopy(copy: Path, source: Path) -> bool:
    """Whether a group's results and its solutions were both copied whole from a step's."""
    group = source.parent.parent.name
    if not copy.stem.startswith(group):
        return False
    pairs = [(copy, source), (copy.with_suffix(".yaml"), source.with_suffix(".yaml"))]
    return all(
        one.exists() and other.exists() and filecmp.cmp(one, other, shallow=False)
        for one, other in pairs
    )


def _isAside(path: Path) -> bool:
    return ".previous" in path.suffixes


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield Path(parent) / name


def _treeParts(tree: str) -> Iterator[bytes]:
    for path in _files(Path(tree) / "Tensile"):
        below = path.relative_to(tree).parts[1:]
        if path.suffix != ".pyc" and not _NO_SOURCE & set(below):
            yield os.fsencode("/".join(below))
            yield _read(str(path))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))  # so that no two lists of parts look the same
        digest.update(part)
    return digest.hexdigest()
