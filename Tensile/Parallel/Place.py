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
        return self._read()[0]

    def problem(self) -> str:
        """Why no file tells the address, in words; empty where one does, or none is to."""
        return self._read()[1]

    def _read(self) -> Tuple[str, str]:
        if not self.file:
            return self.address, ""
        try:
            with open(self.file, encoding="utf-8") as stream:
                return str(json.load(stream)["address"]), ""
        except OSError as error:
            return "", error.strerror or str(error)
        except (ValueError, KeyError, TypeError):
            return "", "it holds no scheduler's address"


def hostAndPort(address: str) -> Tuple[str, int]:
    """Of "tcp://host:8786".

    Raises:
        InputError: it is no such address.
    """
    scheme, _, rest = address.rpartition("://")
    host, _, port = rest.rpartition(":")
    isPort = port.isdecimal() and 0 < int(port) < 65536
    if not (scheme in ("", "tcp", "tls") and host and isPort):
        text = "the scheduler's address %r is none: write it as tcp://host:8786, or tls://…"
        raise InputError(text % address)
    return host.strip("[]"), int(port)
