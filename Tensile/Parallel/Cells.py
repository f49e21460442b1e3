# SPDX-License-Identifier: MIT
"""What the cells of a row are worth, found out on their bytes: a row may have 10,000."""

from __future__ import annotations

import math
import re
import zlib
from typing import Optional

from .ClientOutput import ABSURD_SPEED

FAILED = b"-1"

# Bytes of a row by class: 0 in a plain number, 1 the comma, 255 anything else.
_OTHER = b"\xff"
CLASSES = bytes(1 if c == 44 else 0 if c in b"0123456789. e+-" else 255 for c in range(256))
_ADLER = 65521
# 1e10 and more, which needs a closer look; and the overflow that some clients print in full.
_LARGE = re.compile(rb"\+[1-9]")
_OVERFLOW = b"92233720368547758"


def cleanClasses(cells: bytes, count: int) -> Optional[bytes]:
    """The classes of cells that are so many plain numbers: no nan, no inf, no overflow.

    Counting with bytes.count is twice as slow as adding up a translated copy; a checksum is the
    sum that the standard library takes at the speed of memory.

    Returns:
        None where a cell needs a closer look.
    """
    classes = cells.translate(CLASSES)
    if _OTHER in classes or _sum(classes) != (count - 1) % _ADLER:
        return None
    if _LARGE.search(cells) is not None or _OVERFLOW in cells:
        return None
    return classes


def _sum(classes: bytes) -> int:
    """The sum of all bytes, modulo _ADLER."""
    return ((zlib.adler32(classes) & 0xFFFF) - 1) % _ADLER


def cellIs(cells: bytes, classes: bytes, text: bytes, index: int) -> bool:
    """Whether the cell at an index has a text; found by its text, which is rare in a row."""
    # With its first byte a space, a place in padded is the place of the cell in cells.
    padded, needle = b" %b," % cells, b" %b," % text
    seen = last = 0
    at = padded.find(needle)
    while at >= 0:
        seen += _sum(classes[last:at])
        if seen >= index:
            return seen == index
        last, at = at, padded.find(needle, at + 1)
    return False


def judge(text: bytes) -> tuple:
    """A cell as it is to be written, and its speed: 0.0 for what cannot win."""
    try:
        value = float(text)
    except ValueError:
        return FAILED, 0.0
    if not math.isfinite(value) or value >= ABSURD_SPEED:
        return FAILED, 0.0
    return text, max(value, 0.0)
