# SPDX-License-Identifier: MIT
"""File names made from the names of solutions, which may be longer than a file system allows."""

from __future__ import annotations

import hashlib

from .Common import globalParameters


def shortName(name: str) -> str:
    """The name itself, or its beginning and a hash (MaxFileName characters)."""
    limit = globalParameters["MaxFileName"]
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:24]
    return name[: limit - len(digest)] + digest
