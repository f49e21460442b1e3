# SPDX-License-Identifier: MIT
"""What has been measured so far: an append-only file that survives any stop.

A record is `length (4 bytes, little endian) | CRC-32 of the payload (4 bytes) | msgpack payload`.
A record counts only when it is whole: reading ends at the first one that is torn or whose checksum
is wrong, and appending goes on from there. Each append is synced to the disk before it returns, so
whatever a caller was told is journalled is there after a power cut.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Any, Dict, List

import msgpack

_PREFIX = struct.Struct("<II")
_MAX_RECORD = 1 << 26  # 64 MiB: a longer "length" can only be damage


def readJournal(path: Path) -> List[Dict[str, Any]]:
    """Reads all whole records, oldest first.

    Args:
        path: the journal; a missing one is an empty one.

    Returns:
        The records before the first damaged one.
    """
    records, _ = _scan(path)
    return records


class Journal:
    """An open journal. One process writes it at a time (the caller holds the step's lock)."""

    def __init__(self, path: Path) -> None:
        """Opens `path` for appending, cutting off a torn tail.

        Args:
            path: file to open or create; its folder exists.
        """
        self._path = path
        self.records, end = _scan(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.ftruncate(self._descriptor, end)
        os.lseek(self._descriptor, end, os.SEEK_SET)
        _syncFolder(path.parent)

    def append(self, record: Dict[str, Any]) -> None:
        """Writes one record and returns once it is on the disk.

        Args:
            record: anything msgpack can hold.

        Raises:
            OSError: the disk is full or broken; what was written before is as it was.
        """
        payload = msgpack.packb(record, use_bin_type=True)
        data = memoryview(_PREFIX.pack(len(payload), zlib.crc32(payload)) + payload)
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fdatasync(self._descriptor)
        except OSError as error:
            error.filename = str(self._path)
            # Nothing after a torn record would be read, so none may stay where more could follow.
            os.ftruncate(self._descriptor, end)
            os.lseek(self._descriptor, end, os.SEEK_SET)
            raise
        self.records.append(record)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _scan(path: Path) -> tuple:
    """Returns the whole records and the offset where the first damaged one begins."""
    records: List[Dict[str, Any]] = []
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return records, 0
    offset = 0
    while offset + _PREFIX.size <= len(data):
        length, checksum = _PREFIX.unpack_from(data, offset)
        start = offset + _PREFIX.size
        payload = data[start : start + length]
        if length > _MAX_RECORD or len(payload) < length or zlib.crc32(payload) != checksum:
            break
        try:
            record = msgpack.unpackb(payload, raw=False, strict_map_key=False)
        except ValueError:
            break
        if not isinstance(record, dict):
            break
        records.append(record)
        offset = start + length
    return records, offset


def _syncFolder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
