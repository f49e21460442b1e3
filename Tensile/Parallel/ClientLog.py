# SPDX-License-Identifier: MIT
"""The client's own log-file, put together from the output of a step's units."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Counter as CounterOf
from typing import Dict, Iterable, Iterator, Sequence, Tuple

from .ClientOutput import parsePairLine
from .UnitLogs import openLog

_HEADER = b"run,problem-progress,"
# run,problem/last,solution/last, with the unit's own numbers
_PROGRESS = re.compile(rb"^(\d+),\d+/\d+,(\d+)/\d+,")


def writeClientLog(path: Path, append: bool, lines: Iterable[bytes]) -> None:
    """Writes the log file.

    Args:
        path: the log file.
        append: whether to add to what is there.
        lines: from serialLines.
    """
    with open(path, "ab" if append else "wb") as handle:
        handle.writelines(lines)


def serialLines(sources: Sequence[Tuple[Path, int]], last: Tuple[int, int]) -> Iterator[bytes]:
    """The header and the pairs' lines in the order of a serial run, with a serial run's numbers.

    Args:
        sources: (a unit's log, global index minus the index that it prints) per piece, oldest
            first: of a pair that was timed twice, the later line counts.
        last: (problem, solution) of the step's last pair.
    """
    header = b""
    lines: Dict[Tuple[int, int, int, int], bytes] = {}
    for source, offset in dict.fromkeys(sources):
        seen: CounterOf[Tuple[int, int, int]] = Counter()
        with openLog(source) as handle:
            for line in handle:
                if line.startswith(_HEADER):
                    header = header or line
                    continue
                pair = parsePairLine(line) if line.endswith(b"\n") else None
                if pair is None:
                    continue
                problem = pair.problem + offset
                progress = b"%d,%d/%d,%d/%d," % (
                    pair.run,
                    problem,
                    last[0],
                    pair.solution,
                    last[1],
                )
                text = _PROGRESS.sub(progress, line, count=1)
                # Values of icache-flush-args repeat the list under the same numbers.
                pairAt = (pair.run, problem, pair.solution)
                lines[pair.run, seen[pairAt], problem, pair.solution] = text
                seen[pairAt] += 1
    yield header
    for at in sorted(lines):
        yield lines[at]
