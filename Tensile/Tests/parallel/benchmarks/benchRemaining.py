# SPDX-License-Identifier: MIT
"""How far the remaining time that a step tells is from what it then takes.

    python Tensile/Tests/parallel/benchmarks/benchRemaining.py [--devices 8] [--seconds 60]
        [--workloads equal,growing]

The workloads are those of benchSchedule.py: emulated devices whose pairs take prescribed wall
times. While the parallel client runs, its progress.json is read several times a second. Printed is
the error of the remaining time, in percent of what really remained until the results file was
written, at five points of the step's time; and the largest from half-way to nine tenths. After that
a second is more than a tenth of what is left, and the largest error is given in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import List, Optional, Tuple

from benchSchedule import SCRIPTS, Setup, workloads

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


def errors(samples: List[Sample], begun: float, ended: float) -> Tuple[List[str], float, float]:
    """(percent at each point, the largest from the first point to the last, seconds after)."""
    whole = ended - begun
    known = [(at, left) for at, left in samples if left is not None and at < ended]
    cells, largest, late = [], 0.0, 0.0
    for at, left in known:
        share = 100 * (at - begun) / whole
        error = abs(left - (ended - at))
        if POINTS[0] <= share <= POINTS[-1]:
            largest = max(largest, 100 * error / (ended - at))
        elif share > POINTS[-1]:
            late = max(late, error)
    for point in POINTS:
        before = [each for each in known if each[0] <= begun + whole * point / 100]
        if not before:
            cells.append("-")
            continue
        at, left = before[-1]
        cells.append("%+.0f%%" % (100 * (left - (ended - at)) / (ended - at)))
    return cells, largest, late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="8", help="numbers of devices, such as 1,4,8")
    parser.add_argument("--seconds", type=float, default=60.0, help="work per device")
    parser.add_argument("--workloads", default="", help="beginnings of their names")
    parser.add_argument("--samples", action="store_true", help="print all that was told")
    options = parser.parse_args()
    wanted = [word for word in options.workloads.split(",") if word]
    print("%d cores; %g s of work per device" % (os.cpu_count() or 0, options.seconds))
    head = "".join("%7s" % ("%d%%" % point) for point in POINTS)
    print("%-28s %7s %s %9s %9s" % ("workload", "devices", head, "largest", "after 90%"))
    for title, load in workloads().items():
        if wanted and not any(title.startswith(word) for word in wanted):
            continue
        for devices in map(int, options.devices.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                setup = Setup(Path(folder), load, devices, options.seconds)
                samples, begun, ended = run(setup)
            cells, largest, late = errors(samples, begun, ended)
            text = "".join("%7s" % cell for cell in cells)
            print(
                "%-28s %7d %s %8.0f%% %7.1f s" % (title, devices, text, largest, late), flush=True
            )
            if options.samples:
                for at, left in samples:
                    print("    %6.1f  left %s  really %.1f" % (at - begun, left, ended - at))


if __name__ == "__main__":
    main()
