# SPDX-License-Identifier: MIT
"""Logs of units, packed when their step has ended: a client prints 400 bytes or more for a pair.

    unit_K.log -> unit_K.log.gz

Only those of units that went well, and only large ones: what somebody looks for after a failure
lies there as the client wrote it.
"""

from __future__ import annotations

import gzip
import logging
import os
import shutil
from pathlib import Path
from typing import BinaryIO, Iterable, Union, cast

log = logging.getLogger("TensileParallel")

SUFFIX = ".gz"

# A file takes whole blocks of the file system (4 KiB): what is smaller than some is not worth it.
LEAST_BYTES = 16384


def openLog(path: Union[str, Path]) -> BinaryIO:
    """A unit's log for reading, packed or not.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    try:
        return open(path, "rb")
    except FileNotFoundError:
        return cast(BinaryIO, gzip.open(str(path) + SUFFIX, "rb"))


def packLogs(paths: Iterable[Path]) -> None:
    """Pack those that are large. Killed at any moment, this leaves each log whole in one form.

    Where it cannot be done (the disk is full), the rest stays as it is.
    """
    try:
        for path in paths:
            if path.is_file() and path.stat().st_size >= LEAST_BYTES:
                _pack(path)
    except OSError as error:
        log.debug("logs of units were not packed: %s", error)


def _sync(path: str) -> None:
    """The packed one is on the disk before the other goes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _pack(path: Path) -> None:
    temporary = "%s%s.%d" % (path, SUFFIX, os.getpid())
    try:
        with open(path, "rb") as source, gzip.open(temporary, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        _sync(temporary)
        shutil.copystat(path, temporary)
        os.replace(temporary, str(path) + SUFFIX)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    path.unlink()
