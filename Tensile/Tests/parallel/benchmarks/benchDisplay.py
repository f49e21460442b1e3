# SPDX-License-Identifier: MIT
"""What it costs to see a run: of a core, per device.

    python Tensile/Tests/parallel/benchmarks/benchDisplay.py [--devices 1,8,16] [--seconds 20]

A run whose progress changes once a second is shown on a pseudo terminal for that long, by the
loop's own observer, status.json and the live display; each wakes up as often as in a run. Printed
is the processor time (os.times) of both processes' parts over the wall time and the devices, and
what one call took after 10, and after 10,000 units.
"""

from __future__ import annotations

import argparse
import os
import pty
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import List, Tuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
sys.path.insert(0, str(ROOT / "Tensile" / "Parallel" / "Alone"))

from Tensile.Parallel.ClientOutput import LastLine, PairLine  # noqa: E402
from Tensile.Parallel.Display import LiveDisplay  # noqa: E402
from Tensile.Parallel.Progress import StepProgress, intoFile  # noqa: E402
from Tensile.Parallel.Schedule import Rectangle, Schedule  # noqa: E402
from Tensile.Parallel.Status import PROGRESS_FILE, RunStatus  # noqa: E402
from Tensile.Parallel.Types import (  # noqa: E402
    MEASURED,
    Device,
    Job,
    Outcome,
    UnitResult,
)

LOOP_SECONDS = 0.5  # how often the loop wakes up
PUMP_SECONDS = 0.2  # how often the front end does
PROBLEMS, SOLUTIONS = 1000, 1000


class FlatCost:
    """Every pair takes as long as any other."""

    startSeconds = 0.2
    learned = True

    def pairSeconds(self, problem: int) -> float:
        return 1.0

    def rectangleSeconds(self, first: int, count: int, solutions: int) -> float:
        return float(count * solutions)

    def fixedSeconds(self, first: int, count: int) -> float:
        return 0.2

    def paceOf(self, device: int) -> float:
        return 1.0


class Run:
    """A step of which the benchmark decides what happens, and all that shows it."""

    def __init__(self, out: Path, devices: int, stream: object) -> None:
        (out / "outputs").mkdir()
        self.done = 0
        config = SimpleNamespace(describeProblem=lambda index: "1024x1024x1x%d" % index)
        table = SimpleNamespace(firstProblem=0, problemCount=PROBLEMS, solutionCount=SOLUTIONS)
        step = SimpleNamespace(
            config=config, table=table, folderName="T_00/00_Final", best=False, whole=""
        )
        cost = FlatCost()
        self.schedule = Schedule([Rectangle(0, PROBLEMS, 0, SOLUTIONS)], range(devices), cost)
        tell = intoFile(out / "outputs" / PROGRESS_FILE)
        self.progress = StepProgress(
            step, "run", range(devices), self.schedule, cost, lambda: self.done, tell
        )
        self.jobs = {}
        for number in range(devices):
            unit = self.schedule.next(number)
            names = tuple("Cijk_Ailk_Bljk_MT128x128x32_%d" % n for n in range(unit.solutionCount))
            self.jobs[number] = Job(
                unit, Device(number, str(number)), (), "", "", unit.firstProblem, 0, names, 1, "/"
            )
        used = [Device(number, str(number)) for number in range(devices)]
        self.status = RunStatus(str(out), "run", time.time(), [], used, True)
        self.display = LiveDisplay(stream)

    def units(self, count: int) -> None:
        """So many units end, on one device after the other."""
        for number in range(count):
            job = self.jobs[number % len(self.jobs)]
            outcome = Outcome(job.unit, job.device.ordinal, MEASURED, 0, 1.0, 2.0)
            self.progress.began(job.device.ordinal, job)
            self.progress.ended(job.device.ordinal, UnitResult(outcome, ()), 0)
        for number, job in self.jobs.items():
            self.progress.began(number, job)

    def tick(self, count: int) -> None:
        """The loop's part, when a further pair was done."""
        self.done += 1
        column = count % SOLUTIONS
        last = {
            number: LastLine(
                PairLine(0, job.unit.firstProblem, 0, column, 0, "k", "PASSED", 1.0, 1e5 + count),
                time.time(),
            )
            for number, job in self.jobs.items()
        }
        self.progress.tick(self.jobs, last, {number: 100.0 for number in self.jobs})

    def look(self) -> None:
        """The front end's part."""
        self.display.show(self.status.tick())


def measure(devices: int, seconds: float, units: int) -> Tuple[float, float, float]:
    """(percent of a core per device, longest tick, longest look in milliseconds)."""
    master, slave = pty.openpty()
    reader = threading.Thread(target=_readAll, args=(master,), daemon=True)
    reader.start()
    ticks: List[float] = []
    looks: List[float] = []
    with tempfile.TemporaryDirectory() as folder, open(slave, "w") as stream:
        run = Run(Path(folder), devices, stream)
        run.units(units)
        run.tick(0)
        run.look()  # imports what draws
        before, begun = os.times(), time.monotonic()
        nextTick, count = begun, 0
        while time.monotonic() - begun < seconds:
            at = time.perf_counter()
            if time.monotonic() >= nextTick:
                count += 1
                nextTick += LOOP_SECONDS
                run.tick(count)
                ticks.append(time.perf_counter() - at)
                at = time.perf_counter()
            run.look()
            looks.append(time.perf_counter() - at)
            time.sleep(PUMP_SECONDS)
        after, wall = os.times(), time.monotonic() - begun
    used = after.user + after.system - before.user - before.system
    return 100 * used / wall / devices, 1e3 * _typical(ticks), 1e3 * _typical(looks)


def _typical(values: List[float]) -> float:
    """The 90th percentile."""
    return sorted(values)[int(0.9 * len(values))]


def _readAll(descriptor: int) -> None:
    try:
        while os.read(descriptor, 65536):
            pass
    except OSError:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="1,8,16")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    os.environ.setdefault("TERM", "xterm-256color")
    print("%7s %7s %22s %12s %12s" % ("devices", "units", "of a core, per device", "tick", "look"))
    for devices in map(int, options.devices.split(",")):
        for units in (10, 10000):
            share, tick, look = measure(devices, options.seconds, units)
            print(
                "%7d %7d %20.2f %% %9.1f ms %9.1f ms" % (devices, units, share, tick, look),
                flush=True,
            )


if __name__ == "__main__":
    main()
