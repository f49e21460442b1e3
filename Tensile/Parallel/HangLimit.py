# SPDX-License-Identifier: MIT
"""How long a client may say nothing before it counts as hung.

A client prints a line after each pair. Before the first one it reads its library and initialises
data; before the first pair of each problem it computes the reference on the CPU. So the longest
silence that is in order is the sum of these for the problem where it is longest. It is then taken
many times over: slow is not dead.
"""

from __future__ import annotations

from typing import Optional

from .ClientConfig import ClientConfig
from .Cost import Cost
from .Types import Unit

# Nothing shorter is silence, in seconds: code objects of many solutions take long to load.
LEAST_SECONDS = 300.0
# The model may be wrong, and the machine busy, by this factor.
PATIENCE = 20.0

_TERSE = ("Error", "Terse")


def hangSeconds(
    cost: Cost, config: ClientConfig, unit: Unit, asked: Optional[float] = None
) -> Optional[float]:
    """Seconds without a line from a unit's client after which it is ended; None: never.

    Args:
        cost: what pairs are expected to take, as far as it was learned.
        config: the step's INI.
        unit: what the client is to measure.
        asked: --hang-limit: the limit itself; 0 for none; None to derive it.
    """
    if asked is not None:
        return asked or None
    pairs = 1
    if config.get("log-level") in _TERSE or config.flag("PrintWinnersOnly"):
        pairs = unit.solutionCount * unit.problemCount  # lines are rare, or there are none
    silence = cost.longestSilence(unit.firstProblem, unit.problemCount, pairs)
    return max(LEAST_SECONDS, PATIENCE * silence)
