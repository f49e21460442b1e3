# SPDX-License-Identifier: MIT
"""The client's library-update-file, made from a step's results file.

The client writes one entry when a problem is done (LibraryUpdateReporter in its source), in the
form of the exact sizes of a library logic file:

      - - [1024, 1024, 1, 1024]
        - [17, 12345.6] # the solution's name, with library-update-comment

    # [77, 33, 1, 511] no valid solutions.

A problem's solutions may have been measured by several clients, and one that was ended wrote no
entry for its last problem. So the file is made from the joined results: a cell has the six digits
that an entry has. The number is the solution's own in the logic that the library was made of; a
benchmark's own library has none, and then the client finds no valid solution anywhere.
"""

from __future__ import annotations

from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

from .Cells import judge
from .Errors import RunError
from .Results import SEPARATOR, atomicOutput, parseHeader


class Winner(NamedTuple):
    """The best of one problem.

    Attributes:
        sizes: the problem's, as texts.
        name: the solution's; empty where no result is valid.
        speed: its cell.
    """

    sizes: Sequence[str]
    name: str
    speed: str


def winnersOf(path: str) -> Iterator[Winner]:
    """The winner of each row of a results file that has one row per problem.

    It is the one that the Winner columns name, where they are there: the client compared more
    digits than it printed. Otherwise it is the greatest cell, the first among equals.

    Raises:
        RunError: the file cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            header = parseHeader(stream.readline())
            if header is None:
                raise RunError("%s: no results file" % path)
            sizesAt = [header.at(name) for name in header.sizeColumns]
            nameAt, speedAt = header.at("WinnerName"), header.at("WinnerGFlops")
            for line in stream:
                texts = line.rstrip(b"\n").split(SEPARATOR)
                sizes = [texts[at].decode() for at in sizesAt]
                if nameAt >= 0:
                    name = texts[nameAt].decode("utf-8", "surrogateescape")
                    yield Winner(sizes, name, texts[speedAt].decode())
                    continue
                cells = texts[len(header.columns) :]
                speeds = [judge(cell)[1] for cell in cells]
                best = max(range(len(speeds)), key=speeds.__getitem__)
                name = header.solutions[best] if speeds[best] > 0 else ""
                yield Winner(sizes, name, cells[best].decode())
    except OSError as error:
        raise RunError("cannot read %s: %s" % (path, error.strerror or error)) from error


def writeLibraryUpdate(
    path: str, winners: Iterable[Winner], logicIndices: Mapping[str, int], comment: bool
) -> None:
    """Write the file, atomically.

    Args:
        path: the client's library-update-file.
        winners: of all problems, in the client's order.
        logicIndices: of the solutions, by name (SolutionNames.Solution).
        comment: the client's library-update-comment.

    Raises:
        RunError: it cannot be written.
    """
    with atomicOutput(path) as stream:
        for winner in winners:
            index = logicIndices.get(winner.name, -1)
            sizes = ", ".join(winner.sizes)
            if index < 0:
                text = "# [%s] no valid solutions.\n" % sizes
            else:
                text = "  - - [%s]\n    - [%d, %s]" % (sizes, index, winner.speed)
                text += " # %s\n" % winner.name if comment else "\n"
            stream.write(text.encode("utf-8", "surrogateescape"))
