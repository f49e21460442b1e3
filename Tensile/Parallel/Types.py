# SPDX-License-Identifier: MIT
"""The values that pass between the modules: Device, Unit, Outcome."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Optional, Tuple

MEASURED = "measured"
FAILED = "failed"
CRASHED = "crashed"
HUNG = "hung"
# What a client itself may do wrong.
FAILURE_KINDS = (FAILED, CRASHED, HUNG)
# Its worker, its node or the way there was lost: no client's fault.
WORKER_LOST = "lost"
OUTCOME_KINDS = (MEASURED, *FAILURE_KINDS, WORKER_LOST)


@dataclass(frozen=True)
class Device:
    """One GPU, as HIP numbers it under the user's own environment.

    Attributes:
        ordinal: HIP's number for it; what DeviceList counts with.
        token: the value of HIP_VISIBLE_DEVICES that leaves this one visible, within the
            inherited ROCR_VISIBLE_DEVICES.
        emulated: True for a device that exists only for the emulated client.
        architecture: gfx name such as "gfx90a"; empty where unknown.
        product: marketing name; empty where unknown.
        computeUnits: number of compute units; 0 where unknown.
        pciAddress: "0000:63:00.0"; empty where unknown. Partitions of one card share it.
        uniqueId: the driver's unique id; empty where unknown.
        renderNode: "/dev/dri/renderD128"; empty where unknown.
        maxFrequency: of its compute clock, in MHz; 0 where unknown.
        node: the machine it is in, of several; empty where there is only this one.
        nodeOrdinal: its number there, where `ordinal` counts over all machines; else -1.
    """

    ordinal: int
    token: str
    emulated: bool = False
    architecture: str = ""
    product: str = ""
    computeUnits: int = 0
    pciAddress: str = ""
    uniqueId: str = ""
    renderNode: str = ""
    maxFrequency: int = 0
    node: str = ""
    nodeOrdinal: int = -1

    def __post_init__(self) -> None:
        if self.ordinal < 0:
            raise ValueError("a device's ordinal is not negative: %d" % self.ordinal)
        if not self.token:
            raise ValueError("a device needs the token that makes it visible")


@dataclass(frozen=True)
class Unit:
    """A rectangle of the problem x solution table, measured by one client process.

    Attributes:
        number: names its files; unique within a step.
        firstProblem: global index of the first problem, from 0.
        problemCount: how many problems, at least 1.
        firstSolution: global index of the first solution, from 0.
        solutionCount: how many solutions, at least 1.
        attempt: 1 for the first try.
        retiming: whether its cells were measured before, on another device (Contest.py).
        baseline: whether its values are only compared with other devices' (Baseline.py).
    """

    number: int
    firstProblem: int
    problemCount: int
    firstSolution: int
    solutionCount: int
    attempt: int = 1
    retiming: bool = False
    baseline: bool = False

    @property
    def extra(self) -> bool:
        """Whether it measures what belongs to other units."""
        return self.retiming or self.baseline

    def __post_init__(self) -> None:
        if self.firstProblem < 0 or self.firstSolution < 0:
            raise ValueError("a unit starts inside the table: %r" % (self,))
        if self.problemCount < 1 or self.solutionCount < 1:
            raise ValueError("a unit holds at least one pair: %r" % (self,))

    @property
    def lastProblem(self) -> int:
        """Index of its last problem."""
        return self.firstProblem + self.problemCount - 1

    @property
    def lastSolution(self) -> int:
        """Index of its last solution."""
        return self.firstSolution + self.solutionCount - 1

    @property
    def pairs(self) -> int:
        """How many (problem, solution) pairs it holds."""
        return self.problemCount * self.solutionCount


@dataclass(frozen=True)
class Outcome:
    """What became of one unit: a measurement or an account of the failure, never an exception.

    Attributes:
        unit: the unit that ran.
        device: ordinal of the device it ran on.
        kind: one of OUTCOME_KINDS.
        exitStatus: the client's, as a shell shows it (139 for a segmentation fault); None if it
            never started.
        started: seconds since the epoch.
        ended: seconds since the epoch.
        message: one line for a person; empty for a measurement.
        lastPair: (problem, solution) that was running when the client died, if known.
    """

    unit: Unit
    device: int
    kind: str
    exitStatus: Optional[int]
    started: float
    ended: float
    message: str = ""
    lastPair: Optional[tuple] = None

    def __post_init__(self) -> None:
        if self.kind not in OUTCOME_KINDS:
            raise ValueError("unknown kind of outcome: %r" % (self.kind,))
        if (self.kind == MEASURED) == bool(self.message):
            raise ValueError("an outcome is a measurement or a message: %r" % (self,))

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started


@dataclass(frozen=True)
class Piece:
    """A rectangle of measured cells and the part of a file that holds them.

    Attributes:
        path: the shard, relative to the step's outputs folder.
        firstProblem: global index of its first problem.
        problemCount: how many problems.
        firstSolution: index of its first solution in the step's table.
        solutionCount: how many solutions.
        device: ordinal of the device that measured it.
        unit: number of the unit that measured it.
        written: the index that the file prints for `firstProblem`.
        fileFirstSolution: index of the file's own first solution column.
        fileSolutionCount: how many solution columns the file has.
    """

    path: str
    firstProblem: int
    problemCount: int
    firstSolution: int
    solutionCount: int
    device: int
    unit: int
    written: int
    fileFirstSolution: int
    fileSolutionCount: int


@dataclass(frozen=True)
class Job:
    """Everything a worker needs to run one unit.

    Attributes:
        unit: what to measure; its solutions count in the step's table.
        device: where.
        command: the client and its arguments; its INI is unit_K.ini.
        folder: absolute path where unit_K.{ini,csv,log} go.
        pathBase: that folder relative to the step's outputs.
        written: the index that the client prints for the unit's first problem.
        firstColumn: the client's index of the table's first solution.
        columns: names of the unit's solutions, in order.
        passes: how often the client goes through its problems.
        workingFolder: the client's current folder (relative paths in the INI count from it).
        whole: True where the client's results are handed on as they are, unchecked.
        best: True where the client runs only the solution that it takes for the best
            (BestSolution.py).
        silenceSeconds: the longest time without a line from the client; None: no limit.
        warmUp: the command that runs its first pair alone, for a device that is cold (WarmUp.py);
            empty where none is to be run.
        stem: stands in the names of its files after the unit's number.
    """

    unit: Unit
    device: Device
    command: Tuple[str, ...]
    folder: str
    pathBase: str
    written: int
    firstColumn: int
    columns: Tuple[str, ...]
    passes: int
    workingFolder: str
    whole: bool = False
    best: bool = False
    silenceSeconds: Optional[float] = None
    warmUp: Tuple[str, ...] = ()
    stem: str = ""

    def file(self, suffix: str) -> str:
        """Absolute path of one of the unit's files, by its ending (".csv")."""
        return os.path.join(self.folder, self._name(suffix))

    def relative(self, suffix: str) -> str:
        """The same relative to the step's outputs."""
        return os.path.join(self.pathBase, self._name(suffix))

    def _name(self, suffix: str) -> str:
        return "unit_%d%s%s" % (self.unit.number, self.stem, suffix)


@dataclass(frozen=True)
class ClientExit:
    """How a client process ended.

    Attributes:
        status: as a shell shows it (139: segmentation fault); None if it could not be started.
        hung: whether it was ended for its silence.
        started: seconds since the epoch.
        ended: seconds since the epoch.
        startSeconds: until it was ready for its first pair; None where its log does not tell.
        shortened: whether it was ended because its rest is wanted elsewhere.
    """

    status: Optional[int]
    hung: bool
    started: float
    ended: float
    startSeconds: Optional[float] = None
    shortened: bool = False


@dataclass(frozen=True)
class PairFailure:
    """A pair that the client itself could not measure, and what it said.

    Attributes:
        problem: global index.
        solution: index in the step's table.
        message: the client's word for it, such as FAILED (validation) or INVALID (launch error).
    """

    problem: int
    solution: int
    message: str


@dataclass(frozen=True)
class WarmUp:
    """The pair that was run and thrown away before a unit (WarmUp.py).

    Attributes:
        seconds: how long it took; the unit's own time does not hold it.
        message: what went wrong with it, one line; empty where nothing did.
    """

    seconds: float
    message: str = ""


@dataclass(frozen=True)
class UnitResult:
    """An outcome, what was measured before it, and what the client reported.

    Attributes:
        outcome: what became of the unit.
        pieces: the rectangles that were measured, complete and checked.
        validationFailures: pairs whose result was wrong.
        rejected: pairs that the client's own predicates refused; no failure.
        failedPairs: how many pairs failed while the client went on.
        failures: those of them that are listed (there may be too many).
        tail: the client's last lines.
        startSeconds: what the client took before its first pair; None where unknown.
        shortened: whether its rest was taken from it; it is then measured in part.
        ready: whether its output tells that it had got as far as its first pair.
        warmUp: the pair that was run before it; None where its device was warm.
    """

    outcome: Outcome
    pieces: Tuple[Piece, ...]
    validationFailures: int = 0
    rejected: int = 0
    failedPairs: int = 0
    failures: Tuple[PairFailure, ...] = ()
    tail: str = ""
    startSeconds: Optional[float] = None
    shortened: bool = False
    ready: bool = False
    warmUp: Optional[WarmUp] = None
