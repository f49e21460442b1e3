# SPDX-License-Identifier: MIT
"""The values that pass between the modules: Device, Unit, Outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

MEASURED = "measured"
FAILED = "failed"
CRASHED = "crashed"
HUNG = "hung"
OUTCOME_KINDS = (MEASURED, FAILED, CRASHED, HUNG)


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
    """

    number: int
    firstProblem: int
    problemCount: int
    firstSolution: int
    solutionCount: int
    attempt: int = 1

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
