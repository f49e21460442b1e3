# SPDX-License-Identifier: MIT
"""Where a step keeps its journal, and which journal is its own.

A journal belongs to one set of inputs. One step of a config can stand in for two: the same problem
type in two entries writes the same results file twice, with other inputs. Then the second gets a
folder of its own, "<step>-2".
"""

from __future__ import annotations

import fcntl
import filecmp
import logging
import os
import time
from pathlib import Path
from typing import Any, Collection, Dict, Iterator, List, Optional, Tuple

from .Errors import InputError
from .Journal import Journal, readJournal
from .Types import MEASURED, Piece

log = logging.getLogger("TensileParallel")

FORMAT = 1
JOURNAL = "journal.msgpack"
LOCK = ".lock"


class StepFolder:
    """A step's folder with its open journal.

    Attributes:
        name: "<type>_<group>/<step>" below the outputs (and below gpu_N), perhaps with "-2".
        path: the folder.
        journal: open; its first record names the inputs.
        note: why an earlier journal is not gone on with; empty where it is, or there is none.
    """

    def __init__(
        self, outputs: Path, name: str, inputs: Dict[str, str], run: str, fresh: bool
    ) -> None:
        """Opens the folder of these inputs, or a new one.

        Args:
            outputs: absolute path of the outputs folder.
            name: the step's name below it; empty for the folder itself.
            inputs: the step's inputs, by name, as hashes.
            run: id of the run.
            fresh: whether what an earlier run measured is not to be used.
        """
        self.name = _chooseName(outputs, name, inputs, run)
        self.path = outputs / self.name
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _lockFolder(self.path)
        path = self.path / JOURNAL
        records = readJournal(path)
        self._earlier: Optional[Dict[str, Any]] = None
        self.note = ""
        if records and (_inputs(records) != inputs or (fresh and _lastRun(records) != run)):
            if _inputs(records) == inputs:
                self._earlier = _finished(records)
            self.note = _whyAside(records, inputs)
            aside = keepAside(path)
            log.info("%s is of other inputs or not wanted: kept as %s", path, aside.name)
        self.journal = Journal(path)
        if not self.journal.records:
            self.journal.append({"format": FORMAT, "inputs": inputs, "begun": time.time()})
        self.journal.append({"run": run})

    def close(self) -> None:
        """Closes the journal, and lets another run have the folder."""
        self.journal.close()
        os.close(self._lock)

    @property
    def pieces(self) -> List[Tuple[Piece, str, int]]:
        """Everything that was measured so far, oldest first.

        Returns:
            Each piece with the identity of its device and the size of its file in bytes, as they
            were then.
        """
        return [
            (Piece(**piece), record.get("identity", ""), size)
            for record in self.journal.records
            for piece, size in zip(record.get("pieces", ()), record.get("sizes", ()))
        ]

    @property
    def measured(self) -> Iterator[Piece]:
        """The pieces of units that went well from beginning to end."""
        for record in self.journal.records:
            if record.get("kind") == MEASURED:
                yield from (Piece(**piece) for piece in record["pieces"])

    def tallies(self, there: Collection[str]) -> List[Dict[str, Any]]:
        """What earlier runs counted beside the pairs, of units whose files are all there.

        Args:
            there: paths of the files that can still be read.
        """
        return [
            record["tally"]
            for record in self.journal.records
            if record.get("tally") and all(p["path"] in there for p in record["pieces"])
        ]

    @property
    def lost(self) -> List[Dict[str, Any]]:
        """What an earlier run found that it cannot be measured, as it was journalled."""
        end = _finished(self.journal.records)
        return list(end.get("lost", ())) if end else []

    @property
    def finished(self) -> Optional[Dict[str, Any]]:
        """How a step with these inputs ended last, before --fresh too; None if it never did."""
        return _finished(self.journal.records) or self._earlier

    @property
    def unended(self) -> List[Dict[str, Any]]:
        """What was journalled of units that were begun, where nobody was there to see the end."""
        ended = {record["unit"] for record in self.journal.records if "unit" in record}
        begun = [record["begunUnit"] for record in self.journal.records if "begunUnit" in record]
        return [each for each in begun if each["unit"]["number"] not in ended]

    @property
    def retimings(self) -> List[Dict[str, Any]]:
        """Units that timed cells again: `unit`, `device`, and how they ended (None: not at all)."""
        records = self.journal.records
        kinds = {record["unit"]: record["kind"] for record in records if "unit" in record}
        begun = [record["begunUnit"] for record in records if "begunUnit" in record]
        return [
            {**each, "kind": kinds.get(each["unit"]["number"])}
            for each in begun
            if each["unit"]["retiming"]
        ]

    @property
    def nextUnit(self) -> int:
        """The first unit number that was never used here."""
        records = self.journal.records
        numbers = [record["unit"] for record in records if "unit" in record]
        numbers += [r["begunUnit"]["unit"]["number"] for r in records if "begunUnit" in r]
        return max(numbers, default=-1) + 1


def _whyAside(records: List[Dict[str, Any]], inputs: Dict[str, str]) -> str:
    before = _inputs(records)
    if before == inputs or not isinstance(before, dict):
        return ""  # --fresh, or of another version
    changed = " and ".join(changedInputs(before, inputs))
    return "%s changed since it was measured last: it is measured anew" % changed


def changedInputs(before: Dict[str, str], now: Dict[str, str]) -> List[str]:
    """The names of what differs."""
    return [name for name in now if before.get(name) != now[name]]


def _chooseName(outputs: Path, name: str, inputs: Dict[str, str], run: str) -> str:
    """The folder of these inputs; else the first one that this run does not use for others."""
    firstFree = ""
    for number in range(1, 1000):
        candidate = name if number == 1 else "%s-%d" % (name, number)
        records = readJournal(outputs / candidate / JOURNAL)
        if records and _inputs(records) == inputs:
            return candidate
        if not firstFree and (not records or _lastRun(records) != run):
            firstFree = candidate or "."
        if not records:
            break
    return "" if firstFree == "." else firstFree


def _lockFolder(folder: Path) -> int:
    """Takes the folder for this process; the kernel gives it back whenever this one ends.

    Raises:
        InputError: another parallel client works in it.
    """
    descriptor = os.open(
        folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InputError(
            "another parallel client is at work in %s: wait for its end, or name another "
            "results file or --outputs" % folder
        ) from None
    return descriptor


def keepAside(path: Path) -> Path:
    """Moves a file to NAME.previous, and what stands there to NAME.previous.1, .2, …

    A file that is kept already, byte for byte, is not kept twice.

    Returns:
        Where its content is now.
    """
    newest = path.with_name(path.name + ".previous")
    older = [newest]
    while older[-1].exists():
        if filecmp.cmp(path, older[-1], shallow=False):
            path.unlink()
            return older[-1]
        older.append(path.with_name("%s.%d" % (newest.name, len(older))))
    if newest.exists():
        os.replace(newest, older[-1])
    os.replace(path, newest)
    return newest


def fileMark(path: Path) -> Optional[List[int]]:
    """What tells a file from another one of the same name: size in bytes, time in ns."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _finished(records: List[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    ends = [record["finished"] for record in records if "finished" in record]
    return ends[-1] if ends else None


def _inputs(records: List[Dict[str, Any]]) -> Any:
    return records[0].get("inputs")


def _lastRun(records: List[Dict[str, Any]]) -> str:
    runs = [record["run"] for record in records if "run" in record]
    return str(runs[-1]) if runs else ""
