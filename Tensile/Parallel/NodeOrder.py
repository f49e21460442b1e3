# SPDX-License-Identifier: MIT
"""A unit as a node runs it: its command and its INI files with the node's paths."""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import replace
from typing import Dict, List, Mapping, Sequence, Tuple

from .Fleet import Member
from .NodeFiles import READ_OPTIONS, mappedValues
from .NodeUnit import Order
from .Step import Step
from .Types import Job

# Stands for the unit's folder on the node; nothing that a user would write.
FOLDER_MARK = "@TENSILE-PARALLEL-UNIT-FOLDER@"
_FILE_KEYS = (*READ_OPTIONS, "results-file", "log-file", "library-update-file")


def makeOrder(run: str, step: Step, paths: Mapping[str, str], member: Member, job: Job) -> Order:
    """A unit as a node runs it.

    Args:
        run: id of the run and step that has the device.
        step: what the unit belongs to.
        paths: where the step's files are on the node, by where they are here.
        member: the worker.
        job: the unit as it would run here.

    Raises:
        OSError: its INI cannot be read.
    """
    words: Dict[str, str] = {}
    for key, value in step.config.entries:
        if key in READ_OPTIONS:
            words.update(mappedValues([(key, value)], paths, step.workingFolder))
    files: Dict[str, bytes] = {}
    for path in _inis(job):
        name = os.path.basename(path)
        if path != job.file(".ini"):
            name = "config_%d.ini" % len(files)
        with open(path, "rb") as stream:
            files[name] = _mappedIni(stream.read(), words, job)
        words[path] = os.path.join(FOLDER_MARK, name)
    client = _clientThere(step.client, paths, member)

    def there(command: Sequence[str]) -> Tuple[str, ...]:
        rest = command[len(step.client) :]
        return (*client, *(mappedWord(word, words, job.folder) for word in rest))

    return Order(
        id="%s-%d" % (uuid.uuid4(), job.unit.number),
        run=run,
        job=replace(
            job,
            folder=FOLDER_MARK,
            workingFolder=FOLDER_MARK,
            command=there(job.command),
            warmUp=there(job.warmUp) if job.warmUp else (),
        ),
        files=files,
        folderMark=FOLDER_MARK,
    )


def _inis(job: Job) -> List[str]:
    """The INI files that a unit's client reads."""
    if not job.whole:
        return [job.file(".ini")]
    command = job.command
    return [command[i + 1] for i, word in enumerate(command[:-1]) if word == "--config-file"]


def _mappedIni(text: bytes, words: Mapping[str, str], job: Job) -> bytes:
    """An INI with the node's paths; everything else stays as it is, byte for byte."""

    def line(match: "re.Match[bytes]") -> bytes:
        value = os.fsdecode(match.group(3).rstrip(b"\r"))
        new = mappedWord(value, words, job.folder)
        return match.group(1) + match.group(2) + os.fsencode(new)

    keys = b"|".join(key.encode() for key in _FILE_KEYS)
    return re.sub(rb"(?m)^([ \t]*(?:" + keys + rb"))([ \t]*=[ \t]*)([^\n]*)$", line, text)


def mappedWord(word: str, words: Mapping[str, str], folder: str) -> str:
    """A word of a command, or a value of an INI, with the node's path if it is one of ours."""
    if word in words:
        return words[word]
    name, equals, value = word.partition("=")
    if equals and name.startswith("--") and value in words:
        return name + equals + words[value]
    if word.startswith(folder + os.sep):
        return FOLDER_MARK + word[len(folder) :]
    return word


def _clientThere(
    client: Tuple[str, ...], paths: Mapping[str, str], member: Member
) -> Tuple[str, ...]:
    """The client's command on the node; the emulated one is the node's own."""
    if client[-1] in paths:
        return (*client[:-1], paths[client[-1]])
    return member.client
