# SPDX-License-Identifier: MIT
"""Planning at scale: 100,000 problems x 10,000 solutions, by the schedule alone, no process.

    python Tensile/Tests/parallel/benchmarks/benchPlan.py [--problems N] [--solutions M]

It reads an INI of that many sizes, builds the cost model and the schedule, and hands out and ends
units until nothing is left. Printed: seconds per phase, units, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "Tensile" / "Parallel" / "Alone"))

from Tensile.Parallel.ClientConfig import readClientConfig  # noqa: E402
from Tensile.Parallel.Cost import Cost  # noqa: E402
from Tensile.Parallel.Schedule import Rectangle, Schedule  # noqa: E402


def writeIni(path: Path, problems: int) -> None:
    """An INI with sizes of all magnitudes, in no order."""
    rng = random.Random(7)
    lines = ["problem-identifier=Contraction_l_Alik_Bljk_Cijk_Dijk", "a-type=Half", "b-type=Half"]
    for _ in range(problems):
        i, j, k = (max(1, round(2 ** rng.uniform(3, 13))) for _ in range(3))
        lines.append("problem-size=%d,%d,1,%d" % (i, j, k))
        lines += ["a-strides=-1,%d,-1" % k, "b-strides=-1,%d,-1" % k]
        lines += ["c-strides=-1,%d,-1" % i, "d-strides=-1,%d,-1" % i]
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=100000)
    parser.add_argument("--solutions", type=int, default=10000)
    parser.add_argument("--devices", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ini = Path(folder) / "ClientParameters.ini"
        writeIni(ini, options.problems)
        times = [time.monotonic()]
        config = readClientConfig(str(ini))
        cost = Cost(config)
        times.append(time.monotonic())
        table = Rectangle(0, config.problemCount, 0, options.solutions)
        schedule = Schedule([table], range(options.devices), cost)
        first = [schedule.next(device) for device in range(options.devices)]
        times.append(time.monotonic())
        units = len(first)
        while not schedule.finished:
            device = next(iter(schedule.running))
            schedule.succeeded(device)
            units += schedule.next(device) is not None
        times.append(time.monotonic())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    read, plan, rest = (after - before for before, after in zip(times, times[1:]))
    print(
        "%d problems x %d solutions, %d devices"
        % (options.problems, options.solutions, options.devices)
    )
    print(
        "INI and model %.2f s; first unit of every device %.2f s; all %d units %.2f s; %.0f MB"
        % (read, plan, units, rest, peak)
    )


if __name__ == "__main__":
    main()
