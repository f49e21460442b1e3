# SPDX-License-Identifier: MIT
"""The winner of each problem, read from a step's results file, and where it was measured."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from .Contest import readValue
from .History import DATA_FOLDER, PROBLEMS_FOLDER
from .Results import Header, parseHeader


@dataclass(frozen=True)
class Winner:
    """One row of a results file.

    Attributes:
        problem: its index.
        size: "1024x1024x1x1024".
        solution: name of the fastest; empty where no pair of the problem was measured.
        speed: its speed as the file has it.
        devices: ordinals of the devices that may have measured it: one, unless the problem was
            split and nothing tells where the winner ran.
    """

    problem: int
    size: str
    solution: str
    speed: str
    devices: Tuple[int, ...]


@dataclass(frozen=True)
class WinnerTable:
    """The winners of a step.

    Attributes:
        path: the results file.
        perCu: whether speeds are GFlops per compute unit.
        winners: of the first problems.
        leftOut: how many more problems the step has.
    """

    path: str
    perCu: bool
    winners: Tuple[Winner, ...]
    leftOut: int


def readWinners(step: dict, merged: str, limit: int) -> Optional[WinnerTable]:
    """The winners of a step's first problems.

    Args:
        step: its step.json.
        merged: the host's output folder as it is now; it may have been moved since.
        limit: how many problems at most.

    Returns:
        None where the step has left no results file yet.
    """
    for path in _candidates(step, merged):
        try:
            with open(path, "rb") as stream:
                header = parseHeader(stream.readline())
                if header is not None:
                    return _read(stream, header, step, path, limit)
        except (OSError, ValueError):  # a path may be any text
            continue
    return None


def _candidates(step: dict, merged: str) -> List[str]:
    """Where a step's results file may be: below the folder as it is now, before any other."""
    path = step.get("resultsFile") or ""
    inside = path.split(os.sep + PROBLEMS_FOLDER + os.sep, 1)
    found = [os.path.join(merged, PROBLEMS_FOLDER, inside[1])] if len(inside) == 2 else []
    name = "%s_%s_CSVWinner.csv" % (step.get("problemType"), step.get("group"))
    return [*found, os.path.join(merged, DATA_FOLDER, name), path]


def _read(
    stream: Iterator[bytes], header: Header, step: dict, path: str, limit: int
) -> WinnerTable:
    homes = _homes(step)
    rows: Dict[int, Winner] = {}
    for line in stream:
        cells = line.decode("utf-8", "replace").rstrip("\n").split(", ")
        if len(cells) < len(header.columns) or not cells[0].isdecimal():
            continue
        problem = int(cells[0])
        if problem not in rows and len(rows) >= limit:
            break  # a file may hold a row several times, pass by pass: those are of the first ones
        name, speed = _winner(header, cells)
        known = rows.get(problem)
        if known is None or (readValue(speed) or 0.0) > (readValue(known.speed) or 0.0):
            size = "x".join(cells[header.at(column)] for column in header.sizeColumns)
            rows[problem] = Winner(problem, size, name, speed, homes(problem))
    left = max(0, (step.get("problems") or 0) - len(rows))
    return WinnerTable(path, header.perCu, tuple(rows.values()), left)


def _winner(header: Header, cells: Sequence[str]) -> Tuple[str, str]:
    """(name, speed) of a row's winner, both empty where it has none."""
    if header.hasWinner:
        name, speed = cells[header.at("WinnerName")], cells[header.at("WinnerGFlops")]
        if name and readValue(speed) is not None:
            return name, speed
    best = ("", "")
    highest = 0.0
    for name, cell in zip(header.solutions, cells[len(header.columns) :]):
        value = readValue(cell)
        if value is not None and value > highest:
            best, highest = (name, cell), value
    return best


class _homes:
    """problem -> the devices that may have measured its winner."""

    def __init__(self, step: dict) -> None:
        self._spans = [
            (first, first + count, part.get("ordinal"))
            for part in step.get("devices") or ()
            for first, count in part.get("problems") or ()
        ]
        # Contenders of a split problem were timed again on one device: the winner is among them.
        self._again = {
            unit["problems"][0]: unit["device"]
            for unit in step.get("units") or ()
            if unit.get("retiming") and unit.get("kind") == "measured"
        }

    def __call__(self, problem: int) -> Tuple[int, ...]:
        if problem in self._again:
            return (self._again[problem],)
        return tuple(
            sorted({device for first, end, device in self._spans if first <= problem < end})
        )
