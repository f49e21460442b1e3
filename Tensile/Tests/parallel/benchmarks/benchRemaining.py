# SPDX-License-Identifier: MIT
"""How far the remaining time that a step tells is from what it then takes.

    python Tensile/Tests/parallel/benchmarks/benchRemaining.py [--devices 8] [--seconds 60]
        [--workloads equal,growing] [--simulate 5]

The workloads are those of benchSchedule.py: emulated devices whose pairs take prescribed wall
times. While the parallel client runs, its progress.json is read several times a second. Printed is
the error of the remaining time, in percent of what really remained until the results file was
written, at five points of the step's time; and the largest from half-way to nine tenths. After that
a second is more than a tenth of what is left, and the largest error is given in seconds.

With --simulate N nothing runs: the time passes in a model (VirtualRun.py), N times with other noise
and other solutions. Each figure is then the worst of the N.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from benchSchedule import HERE, SCRIPTS, Setup, _text, workloads

from Tensile.Parallel.ClientConfig import readClientConfig

sys.path.insert(0, str(HERE.parent))

from VirtualRun import Manner, VirtualRun  # noqa: E402

POINTS = (50, 60, 70, 80, 90)
LOOK_SECONDS = 0.2

Sample = Tuple[float, Optional[float]]  # when it was told, the seconds left


def run(setup: Setup) -> Tuple[List[Sample], float, float]:
    """Runs the parallel client; returns (what was told, when the step began, when it ended)."""
    results = setup.folder / "results.csv"
    progress = Path(str(results) + ".parallel") / "progress.json"
    environment = {**os.environ, "TENSILE_EMULATOR": str(setup.settings)}
    command = [sys.executable, str(SCRIPTS / "TensileParallelClient")]
    command += ["--config-file", str(setup.ini), "--emulate", str(setup.devices), "--fresh"]
    samples: List[Sample] = []
    told = {}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as client:
        while client.poll() is None:
            try:
                told = json.loads(progress.read_text())
            except (OSError, ValueError):
                told = {}
            if told and (not samples or samples[-1][0] != told["updated"]):
                samples.append((told["updated"], told["step"]["secondsLeft"]))
            time.sleep(LOOK_SECONDS)
    told = json.loads(progress.read_text())
    if client.returncode or told["state"] != "finished":
        raise SystemExit("the run failed")
    return samples, told["step"]["started"], told["updated"]


def simulate(setup: Setup, seed: int, manner: Manner) -> Tuple[List[Sample], float, float]:
    """The same as run(), in a time that passes in a model."""
    load = setup.load
    virtual = VirtualRun(
        readClientConfig(str(setup.ini)),
        [setup.pairs[_text(size)] for size in load.sizes],
        load.solutions,
        setup.devices,
        seed,
        {int(device): factor for device, factor in load.slowness.items()},
        manner,
    )
    virtual.run()
    return virtual.samples, virtual.begun, virtual.ended


class Errors(NamedTuple):
    """How far what was told is from what then remained.

    Attributes:
        points: in percent, at each of POINTS; None where nothing was told yet.
        largest: in percent, from the first point to the last.
        late: in seconds, after the last point.
    """

    points: List[Optional[float]]
    largest: float
    late: float


def errorsOf(samples: List[Sample], begun: float, ended: float) -> Errors:
    """Compares what was told with the end."""
    whole = ended - begun
    known = [(at, left) for at, left in samples if left is not None and at < ended]
    points: List[Optional[float]] = []
    largest, late = 0.0, 0.0
    for at, left in known:
        share = 100 * (at - begun) / whole
        error = abs(left - (ended - at))
        if POINTS[0] <= share <= POINTS[-1]:
            largest = max(largest, 100 * error / (ended - at))
        elif share > POINTS[-1]:
            late = max(late, error)
    for point in POINTS:
        before = [each for each in known if each[0] <= begun + whole * point / 100]
        at, left = before[-1] if before else (begun, math.nan)
        points.append(100 * (left - (ended - at)) / (ended - at) if before else None)
    return Errors(points, largest, late)


def worst(found: List[Errors]) -> Errors:
    """Of several runs: the worst of each figure."""
    points = []
    for each in zip(*(one.points for one in found)):
        known = [value for value in each if value is not None]
        points.append(max(known, key=abs) if known else None)
    return Errors(points, max(one.largest for one in found), max(one.late for one in found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="8", help="numbers of devices, such as 1,4,8")
    parser.add_argument("--seconds", type=float, default=60.0, help="work per device")
    parser.add_argument("--workloads", default="", help="beginnings of their names")
    parser.add_argument("--samples", action="store_true", help="print all that was told")
    parser.add_argument("--simulate", type=int, default=0, help="so many times, in a model's time")
    for name, value in Manner()._asdict().items():
        text = "simulated only: %s (default: %g)" % (name, value)
        parser.add_argument("--" + name, type=float, default=value, help=text)
    options = parser.parse_args()
    if options.simulate:
        logging.disable()  # that devices differ is no news here
    manner = Manner(**{name: getattr(options, name) for name in Manner._fields})
    wanted = [word for word in options.workloads.split(",") if word]
    print("%d cores; %g s of work per device" % (os.cpu_count() or 0, options.seconds))
    head = "".join("%7s" % ("%d%%" % point) for point in POINTS)
    print("%-28s %7s %s %7s %7s %9s" % ("workload", "devices", head, "usual", "worst", "after 90%"))
    for title, load in workloads().items():
        if wanted and not any(title.startswith(word) for word in wanted):
            continue
        for devices in map(int, options.devices.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                setup = Setup(Path(folder), load, devices, options.seconds)
                if options.simulate:
                    seeds = range(options.simulate)
                    runs = [simulate(setup, seed, manner) for seed in seeds]
                else:
                    runs = [run(setup)]
            each = [errorsOf(*one) for one in runs]
            found = worst(each)
            usual = statistics.median(one.largest for one in each)
            points = "".join(
                "%7s" % ("-" if point is None else "%+.0f%%" % point) for point in found.points
            )
            text = "%-28s %7d %s %6.0f%% %6.0f%% %7.1f s"
            print(text % (title, devices, points, usual, found.largest, found.late), flush=True)
            if options.samples:
                for samples, begun, ended in runs:
                    for at, left in samples:
                        print("    %6.1f  left %s  really %.1f" % (at - begun, left, ended - at))


if __name__ == "__main__":
    main()
