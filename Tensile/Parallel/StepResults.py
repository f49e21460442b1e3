# SPDX-License-Identifier: MIT
"""What a client leaves of a step, from the shards of many: results file, log, library update."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

from . import Results, ResultsJoin
from .BestSolution import BestPiece, BestTable
from .ClientLog import serialLines, writeClientLog
from .ClientOutput import PairLine, readPairs
from .ClientTelling import say
from .Contest import readValue
from .Errors import TensileParallelError
from .LibraryUpdate import Winner, winnersOf, writeLibraryUpdate
from .SolutionNames import readSolutions
from .Step import Step
from .Terminal import tell
from .Types import Piece


class StepResults:
    """The pieces of a step that have been measured, and what is made of them.

    Attributes:
        pieces: in the order in which they were measured: a later one of a cell counts.
    """

    def __init__(self, step: Step, outputs: Path) -> None:
        """Begins, with none.

        Args:
            step: the step.
            outputs: the run's folder of outputs, in which the pieces' files lie.
        """
        self._step = step
        self._outputs = outputs
        self.pieces: List[Piece] = []

    def readCells(self, piece: Piece, problem: int) -> List[Optional[float]]:
        """The values of a piece's row, one per solution of the piece; None: no result."""
        index = b"%d, " % (problem - piece.firstProblem + piece.written)
        with open(self._outputs / piece.path, "rb") as shard:
            row = next((line for line in shard if line.startswith(index)), b"")
        cells = row.decode("ascii", "replace").strip().split(", ")[-piece.fileSolutionCount :]
        first = piece.firstSolution - piece.fileFirstSolution
        return [readValue(cell) for cell in cells[first : first + piece.solutionCount]]

    def join(self, path: Path) -> ResultsJoin.JoinReport:
        """Writes a results file from everything that was measured."""
        step = self._step
        config = step.config
        table = step.table
        merged = config.flag("csv-merge-same-problems")
        if step.best:
            return self._bestTable().write(str(path), merged, self._prefixOf)
        return ResultsJoin.joinShards(
            str(path),
            [self._joinPiece(piece) for piece in self.pieces],
            step.names,
            table.problemCount,
            firstProblem=table.firstProblem,
            header=self._plainHeader(),
            passes=step.passes,
            mergePasses=merged,
            prefixOf=self._prefixOf,
            pairOf=_PairFinder(self._outputs, self.pieces, table.firstSolution).find,
        )

    def _plainHeader(self) -> Results.Header:
        config = self._step.config
        first = config.sizes[self._step.table.firstProblem % config.sizeCount]
        return Results.makeHeader(
            classic=config.generation == "classic",
            sizeCount=len(first.sizes),
            extraColumns=config.flag("csv-export-extra-cols"),
            perCu=config.get("performance-metric") == "CUEfficiency",
        )

    def _bestTable(self) -> BestTable:
        table = self._step.table
        pieces = [
            BestPiece(
                str(self._outputs / piece.path),
                str(logOf(self._outputs, piece)),
                piece.firstProblem,
                range(piece.written, piece.written + piece.problemCount),
            )
            for piece in self.pieces
        ]
        problems = range(table.firstProblem, table.firstProblem + table.problemCount)
        return BestTable(pieces, problems, self._plainHeader())

    def _joinPiece(self, piece: Piece) -> ResultsJoin.Piece:
        own = range(piece.fileFirstSolution, piece.fileFirstSolution + piece.fileSolutionCount)
        return ResultsJoin.Piece(
            str(self._outputs / piece.path),
            range(piece.firstProblem, piece.firstProblem + piece.problemCount),
            range(piece.firstSolution, piece.firstSolution + piece.solutionCount),
            range(piece.written, piece.written + piece.problemCount),
            own,
        )

    def _prefixOf(self, problem: int) -> Dict[str, str]:
        config = self._step.config
        size = config.sizes[problem % config.sizeCount]
        return Results.problemPrefix(
            sizes=size.sizes,
            strides=size.strides,
            identifier=config.get("problem-identifier") or "",
            aType=config.get("a-type") or "Float",
        )

    def writeClientLog(self) -> None:
        """The client's own log-file, from the units' output, in the serial order.

        Of the best solutions its lines are all that anyone looks at (LibraryClient has no other
        use for its client), so they are printed as well.
        """
        if self._step.log is None and not self._step.best:
            return
        table = self._step.table
        lastSolution = table.firstSolution + table.solutionCount - 1
        if self._step.best:
            lastSolution = 1  # of one solution, the client prints 0/1 or 1/1
        last = (table.firstProblem + table.problemCount - 1, lastSolution)
        sources = [(logOf(self._outputs, p), p.firstProblem - p.written) for p in self.pieces]
        lines = list(serialLines(sources, last))
        if self._step.best:
            for line in lines:
                tell(line.decode("utf-8", "replace").rstrip("\n"))
        if self._step.log is not None:
            writeClientLog(self._step.log, self._step.config.flag("log-file-append"), lines)

    def writeLibraryUpdate(self) -> int:
        """The client's library-update-file; returns 1 where it cannot be written."""
        step = self._step
        if step.update is None:
            return 0
        try:
            library = os.path.join(step.workingFolder, step.config.get("library-file") or "")
            indices = {each.name: each.logicIndex for each in readSolutions(library)}
            winners: Iterator[Winner] = winnersOf(str(step.results))
            if step.best:
                winners = self._bestTable().winners(self._prefixOf)
            comment = step.config.flag("library-update-comment")
            writeLibraryUpdate(str(step.update), winners, indices, comment)
            return 0
        except TensileParallelError as error:
            say("no library-update-file: %s" % error)
            return 1


class _PairFinder:
    """Finds the client's line of one pair, for the rare row whose winner is not the client's."""

    def __init__(self, outputs: Path, pieces: Sequence[Piece], firstColumn: int) -> None:
        self._outputs = outputs
        self._pieces = pieces
        self._firstColumn = firstColumn

    def find(self, run: int, problem: int, solution: int) -> Optional[PairLine]:
        """The line of a pair in a pass; None where the log does not have it."""
        for piece in reversed(self._pieces):
            rows = range(piece.firstProblem, piece.firstProblem + piece.problemCount)
            columns = range(piece.firstSolution, piece.firstSolution + piece.solutionCount)
            if problem not in rows or solution not in columns:
                continue
            local = problem - piece.firstProblem + piece.written
            # One pass after the other; values of icache-flush-args have the same number of it.
            wanted = (local, solution + self._firstColumn)
            lines = readPairs(str(logOf(self._outputs, piece)))
            found = (pair for pair in lines if (pair.problem, pair.solution) == wanted)
            pair = next(itertools.islice(found, run, None), None)
            if pair is not None:
                return pair
        return None


def logOf(outputs: Path, piece: Piece) -> Path:
    """Where the output of a piece's unit is."""
    return (outputs / piece.path).with_name("unit_%d.log" % piece.unit)
