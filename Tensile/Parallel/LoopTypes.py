# SPDX-License-Identifier: MIT
"""What the loop needs of workers, whom it tells what happens, and what it has to say at its end."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import List, Mapping, Optional, Protocol, Sequence, Tuple

from .ClientOutput import LastLine
from .Schedule import Rectangle
from .Types import Device, Job, UnitResult

# What a device can be doing when it runs no unit.
STARTING = "starting"
IDLE = "idle"
LOST = "lost"
# A device of a node, which comes and goes: it has come; it left as it was to; its worker, or its
# node, is gone.
JOINED = "joined"
LEFT = "left"
AWAY = "away"
# Workers that have come, and numbers of devices that are leaving.
Changes = Tuple[Sequence["WorkerLike"], Sequence[int]]


class WorkerLike(Protocol):
    """What the loop needs of a worker (Worker.DeviceWorker; a fake in tests)."""

    device: Device
    starts: int

    def start(self) -> "Future":
        """Starts the process; the future (of Worker.WorkerFacts) fails if it cannot be used."""

    def submit(self, job: Job) -> "Future[UnitResult]":
        """Runs one job."""

    def shorten(self, job: Job) -> None:
        """Asks for the early end of a running job."""

    def kill(self) -> None:
        """Ends it at once."""

    def close(self) -> None:
        """Ends it politely."""


class Observer:
    """Is told what happens while it happens (Progress.py listens). This one does nothing."""

    def changed(self, device: int, state: str) -> None:
        """A device is STARTING, IDLE, LOST, LEFT or AWAY from now on."""

    def began(self, device: int, job: Job) -> None:
        """A unit was handed to a device."""

    def ended(self, device: int, result: UnitResult, lost: int) -> None:
        """A unit ended, and cost so many pairs; its device is idle or about to start again."""

    def tick(
        self,
        running: Mapping[int, Job],
        last: Mapping[int, LastLine],
        secondsLeft: Mapping[int, float],
    ) -> None:
        """Time has passed.

        Args:
            running: device -> what it runs.
            last: device -> the end of its unit's log, where there is one.
            secondsLeft: device -> what its unit is expected to take still.
        """


@dataclass
class Lost:
    """Pairs that could not be measured.

    Attributes:
        rectangle: which pairs.
        kind: how their last try ended.
        device: where.
        message: one line.
        tail: the client's last lines.
    """

    rectangle: Rectangle
    kind: str
    device: int
    message: str
    tail: str


@dataclass
class WorkerStart:
    """What a device waited before it could measure.

    Attributes:
        device: its ordinal.
        begun: when its worker was started, seconds since the epoch.
        ready: when that had the device; None where it never came to that.
        lockSeconds: how long it waited for the device's lock.
    """

    device: int
    begun: float
    ready: Optional[float] = None
    lockSeconds: float = 0.0


@dataclass
class DeviceChange:
    """A device came or went while the step went on.

    Attributes:
        device: its ordinal.
        what: "joined", "left" (it was to), "away" (its worker or node is gone), "back", or "lost"
            (given up in this step).
        at: seconds since the epoch.
        why: one line; empty where there is nothing to say.
    """

    device: int
    what: str
    at: float
    why: str = ""


@dataclass
class LoopResult:
    """What a step's loop has to say when it ends.

    Attributes:
        results: every unit's result, in the order of their ends.
        lost: pairs that could not be measured.
        leftOver: pairs that nobody tried because the run was stopped or no device was left.
        notes: what happened to workers and devices, a line each.
        devicesLost: devices that were set aside.
        neverReady: devices whose workers were not ready, or not again, when the work was done.
        workerStarts: every start of a worker, in order.
        changes: devices that came and went, in order.
    """

    results: List[UnitResult] = field(default_factory=list)
    lost: List[Lost] = field(default_factory=list)
    leftOver: List[Rectangle] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)
    devicesLost: List[int] = field(default_factory=list)
    neverReady: List[int] = field(default_factory=list)
    workerStarts: List[WorkerStart] = field(default_factory=list)
    changes: List[DeviceChange] = field(default_factory=list)
