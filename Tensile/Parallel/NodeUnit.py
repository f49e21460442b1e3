# SPDX-License-Identifier: MIT
"""A unit on a node: what the front end sends, what it is told, and the unit's files there.

    Order     -> placeOrder(): its folder, with its files -> a job as Worker.runJob takes it
    Question  -> news(): what it has written since -> Answer
    its end   -> endOf() -> UnitEnd

Values of this module pass between front end and nodes. NodeSide.py has the functions for Dask.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import Dict, Mapping, Optional, Sequence, Tuple

from .Errors import WorkerLost
from .Files import replaceFile
from .NodeFiles import hashFile
from .Types import Job, UnitResult
from .WarmUp import warmUpOf
from .Worker import STOP_SUFFIX

# The largest part of a file in one message, in bytes.
CHUNK_BYTES = 1 << 20

# A unit's files that the front end has as well, in the order in which they are read: the results
# are never ahead of the log that tells how they came about.
LOG, WARM_UP_LOG, RESULTS, SALVAGED = ".log", ".warmup.log", ".csv", ".salvaged.csv"
MIRRORED = (LOG, WARM_UP_LOG, RESULTS, SALVAGED)


@dataclass(frozen=True)
class Order:
    """A unit for a node.

    Attributes:
        id: names this one try of it; a second task of the same id is refused.
        run: the run it belongs to.
        job: with the node's paths in its command; its folder is chosen on the node.
        files: what to write before it starts: name -> content.
        folderMark: stands for the node's folder in the command and in the files.
    """

    id: str
    run: str
    job: Job
    files: Mapping[str, bytes]
    folderMark: str


@dataclass(frozen=True)
class FilePart:
    """Part of a file: where it begins, what it holds, and how long ago it was written."""

    offset: int
    data: bytes
    age: float


@dataclass(frozen=True)
class UnitEnd:
    """A unit's end: its result, and its files as they are.

    Attributes:
        result: as Worker.runJob gives it.
        now: the node's clock, in seconds since the epoch.
        sizes: of the mirrored files that there are, in bytes.
        hashes: their SHA-256.
        parts: what of them was not asked for before, up to a limit.
        leaving: whether the node takes no more.
    """

    result: UnitResult
    now: float
    sizes: Mapping[str, int]
    hashes: Mapping[str, str]
    parts: Mapping[str, FilePart]
    leaving: bool


@dataclass(frozen=True)
class Question:
    """What the front end asks a worker now and then.

    Attributes:
        run: the run that asks.
        job: id of the unit that it follows; empty for none.
        offsets: how much of its files it has, in bytes.
        forget: ids of units of which it has all.
    """

    run: str
    job: str = ""
    offsets: Mapping[str, int] = field(default_factory=dict)
    forget: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a worker answers.

    Attributes:
        job: id of the unit that was asked about.
        parts: what its files hold beyond the offsets.
        more: whether there is more than fitted.
        leaving: whether the worker takes no more units.
        waits: whether the run waits for this device, which another one has.
    """

    job: str
    parts: Mapping[str, FilePart]
    more: bool
    leaving: bool
    waits: bool = False


@dataclass
class Running:
    """A unit on its node.

    Attributes:
        order: what was asked for.
        job: the same with this node's paths.
        ended: whether it is over.
        asked: how much of each mirrored file the front end has, in bytes.
    """

    order: Order
    job: Job
    ended: bool = False
    asked: Dict[str, int] = field(default_factory=dict)


def placeOrder(base: str, order: Order) -> Job:
    """Makes the unit's folder below a node's own, with its files.

    Raises:
        WorkerLost: there is one: this very task was begun before.
    """
    folder = os.path.join(base, order.id)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        raise WorkerLost("unit %d was begun before: it is not run again" % order.job.unit.number)

    def here(words: Sequence[str]) -> Tuple[str, ...]:
        return tuple(word.replace(order.folderMark, folder) for word in words)

    for name, content in order.files.items():
        text = content.replace(os.fsencode(order.folderMark), os.fsencode(folder))
        replaceFile(os.path.join(folder, os.path.basename(name)), text)
    job = order.job
    return replace(
        job,
        folder=folder,
        workingFolder=folder,
        command=here(job.command),
        warmUp=here(job.warmUp),
    )


def askForEnd(job: Job) -> None:
    """Has the worker end a unit's client; what it has finished is kept."""
    try:
        with open(job.file(STOP_SUFFIX), "wb"):
            pass
    except OSError:
        pass  # its folder is gone: it has ended


def endOf(running: Running, result: UnitResult, leaving: bool) -> UnitEnd:
    """A unit's end, with what the front end was not seen to have of its files."""
    sizes, hashes, parts = {}, {}, {}
    room = CHUNK_BYTES
    for suffix in MIRRORED:
        path = mirroredFile(running.job, suffix)
        if not os.path.exists(path):
            continue
        sizes[suffix], hashes[suffix] = os.path.getsize(path), hashFile(path)
        part = readPart(path, running.asked.get(suffix, 0), room)
        if part is not None:
            parts[suffix] = part
            room -= len(part.data)
    return UnitEnd(result, time.time(), sizes, hashes, parts, leaving)


def mirroredFile(job: Job, suffix: str) -> str:
    """Absolute path of one of the files that the front end has as well."""
    if suffix == WARM_UP_LOG:
        return warmUpOf(job).file(LOG)
    return job.file(suffix)


def readPart(path: str, offset: int, limit: int) -> Optional[FilePart]:
    """Part of a file; None where there is no file."""
    try:
        with open(path, "rb") as stream:
            written = os.fstat(stream.fileno()).st_mtime
            stream.seek(offset)
            return FilePart(offset, stream.read(max(0, limit)), time.time() - written)
    except OSError:
        return None


def news(job: Job, offsets: Mapping[str, int]) -> Tuple[Dict[str, FilePart], bool]:
    """What is new in a unit's files. Results only as far as the log that goes with them."""
    # The results are looked at first, so that the log, which is read later, is no older.
    results = readPart(mirroredFile(job, RESULTS), offsets.get(RESULTS, 0), CHUNK_BYTES)
    parts: Dict[str, FilePart] = {}
    log = readPart(mirroredFile(job, LOG), offsets.get(LOG, 0), CHUNK_BYTES)
    warmUp = readPart(mirroredFile(job, WARM_UP_LOG), offsets.get(WARM_UP_LOG, 0), CHUNK_BYTES)
    if warmUp is not None:
        parts[WARM_UP_LOG] = warmUp
    more = False
    if log is not None:
        parts[LOG] = log
        more = len(log.data) >= CHUNK_BYTES
    if results is not None and not more:
        parts[RESULTS] = results
        more = len(results.data) >= CHUNK_BYTES
    return parts, more
