# SPDX-License-Identifier: MIT
"""Where a cluster's scheduler is: its address, or the file that it has written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Tuple

from .Errors import InputError


@dataclass(frozen=True)
class Place:
    """Where the scheduler is; one of the two is empty."""

    address: str
    file: str

    def __str__(self) -> str:
        return self.address or self.file

    def current(self) -> str:
        """The address; empty as long as no file tells it."""
        if not self.file:
            return self.address
        try:
            with open(self.file, encoding="utf-8") as stream:
                return str(json.load(stream)["address"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""


def hostAndPort(address: str) -> Tuple[str, int]:
    """Of "tcp://host:8786".

    Raises:
        InputError: it is no such address.
    """
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise InputError(
            "the scheduler's address %r is none: write it as tcp://host:8786" % address
        )
    return host.strip("[]"), int(port)
