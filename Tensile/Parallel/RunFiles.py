# SPDX-License-Identifier: MIT
"""The files of a run beside its steps: where they lie, run.json, the launcher, the lock."""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Dict, List, Optional, Sequence

from .DeviceList import Selection
from .DeviceNames import deviceFields
from .Errors import InputError
from .Files import replaceFile, replaceJson
from .History import History
from .Host import Host, ourRoot, unsafeInShell
from .ParseArguments import SETTINGS_VERSION, RunSettings
from .RunConfig import wantedDevices
from .RunDevices import RunDevices
from .Status import LOCK_FILE, OUTPUTS_FOLDER

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


def placesOf(out: str) -> Places:
    """The paths of a run into an output folder."""
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


@dataclass(frozen=True)
class Prepared:
    """What a run on several devices consists of, once nothing is left that would refuse it."""

    settings: RunSettings
    host: Host
    config: Any
    devices: RunDevices
    selection: Selection
    places: Places
    client: Optional[str]
    clock: Optional[int]
    notes: Sequence[str]


def refuseUnsafePaths(settings: RunSettings, places: Places) -> None:
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


def lockedOutputs(places: Places) -> BinaryIO:
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


def writeSettings(run: Prepared, history: History) -> Dict[str, Any]:
    """run.json: what the front end tells the parallel client."""
    settings, places = run.settings, run.places
    runInfo = {
        "version": SETTINGS_VERSION,
        "run": str(uuid.uuid4()),
        "command": ["TensileParallel", *settings.argv],
        "started": time.time(),
        "client": run.client,
        "emulate": settings.emulate,
        "devices": [deviceFields(device) for device in run.selection.devices],
        # On a cluster each step looks anew who is there.
        "devicesWanted": wantedDevices(settings, run.config),
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
        "host": asdict(run.host),
        # What kernels are made from and no INI tells.
        "hostInputs": {key: history.inputs[key] for key in ("Tensile's options", "Tensile itself")},
    }
    replaceJson(places.settings, runInfo)
    return runInfo


def parallelClient() -> List[str]:
    """Arguments of Python that run the parallel client."""
    script = os.path.join(ourRoot(), "Tensile", "bin", "TensileParallelClient")
    return [script] if os.path.isfile(script) else ["-m", "Tensile.Parallel.ParallelClient"]


def writeLauncher(places: Places) -> None:
    """The program that the host runs as its client.

    A bare path is all that the host can run, and `#!/usr/bin/env python3` may be a Python that
    lacks joblib.
    """
    # `python -m` finds us by the folder that holds the package, whatever the current folder is.
    words = [sys.executable, *parallelClient(), "--settings", places.settings]
    lines = [
        "#!/bin/sh",
        "# Written by TensileParallel: the host runs this in place of tensile_client.",
        'exec %s "$@"' % " ".join(shlex.quote(word) for word in words),
    ]
    text = "\n".join(lines) + "\n"
    replaceFile(places.launcher, os.fsencode(text), executable=True)
