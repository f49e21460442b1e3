# SPDX-License-Identifier: MIT
"""What is repeated, and is to take a small part of the time only, however long it takes."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import Callable, Iterator


class Seldom:
    """When something is due again: the pause after it grows with what it took."""

    def __init__(
        self,
        pause: float,
        longest: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins; it is due at once.

        Args:
            pause: how many times longer than it is the pause after it.
            longest: no pause is longer, in seconds.
            clock: in seconds. Where it is set back by more than `longest`, it is due.
        """
        self._pause = pause
        self._longest = longest
        self._clock = clock
        self._dueAt = -math.inf

    @property
    def isDue(self) -> bool:
        """Whether the pause is over."""
        return not 0.0 < self._dueAt - self._clock() <= self._longest

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around what is repeated: how long it takes sets the pause. After an error it is due."""
        begun = self._clock()
        yield
        now = self._clock()
        self._dueAt = now + min(self._longest, self._pause * (now - begun))
