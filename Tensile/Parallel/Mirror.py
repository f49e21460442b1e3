# SPDX-License-Identifier: MIT
"""The files of a unit that runs on another machine, written here as they grow there."""

from __future__ import annotations

import os
import time
from typing import Dict, Optional, Sequence

from .NodeFiles import hashFile
from .NodeSide import FilePart
from .NodeUnit import MIRRORED, UnitEnd, mirroredFile
from .Types import Job


class Mirror:
    """The files of a unit that runs elsewhere, as far as they have come."""

    def __init__(self, job: Job) -> None:
        """Begins: what an earlier unit of this name has left goes.

        Raises:
            OSError: it cannot be removed.
        """
        self._job = job
        self.sizes: Dict[str, int] = {}
        self.problem: Optional[OSError] = None
        for suffix in MIRRORED:
            try:
                os.unlink(mirroredFile(job, suffix))
            except FileNotFoundError:
                pass

    def add(self, suffix: str, part: FilePart) -> None:
        """Writes a part. One that was written already changes nothing, one that leaves a gap is
        left out: it will come again."""
        have = self.sizes.get(suffix, 0)
        if suffix not in MIRRORED or part.offset > have:
            return
        data = part.data[have - part.offset :]
        path = mirroredFile(self._job, suffix)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            with open(os.open(path, flags, 0o666), "wb", buffering=0) as stream:
                stream.seek(have)
                stream.write(data)
            # When it was written on the node, by this machine's clock.
            written = time.time() - max(0.0, part.age)
            os.utime(path, (written, written))
            self.sizes[suffix] = have + len(data)
        except OSError as error:
            self.problem = error

    def matches(self, end: UnitEnd) -> bool:
        """Whether the files are the node's, byte for byte."""
        for suffix, wanted in end.hashes.items():
            try:
                if hashFile(mirroredFile(self._job, suffix)) != wanted:
                    return False
            except OSError:
                return False
        return True

    def keepOnly(self, suffixes: Sequence[str]) -> None:
        """Removes what the node has removed, too."""
        for suffix in set(self.sizes) - set(suffixes):
            try:
                os.unlink(mirroredFile(self._job, suffix))
            except OSError:
                pass
