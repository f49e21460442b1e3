# SPDX-License-Identifier: MIT
"""What the journal costs: seconds per record, and its share of a step's wall time.

    python Tensile/Tests/parallel/benchmarks/benchJournal.py [STEP.JSON] [--folder DIR]

Appends records like those of a run, each synced to the disk, and prints what one takes. With the
step.json of a step that was run it also prints what all of that step's records would have taken.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import List

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "Tensile" / "Parallel" / "Alone"))

from Tensile.Parallel.Journal import Journal  # noqa: E402

RECORDS = 500


def record(number: int) -> dict:
    """A unit's record with two pieces."""
    piece = {
        "path": "gpu_3/Cijk_Alik_Bljk_HHS_BH_UserArgs_00/00_Final/unit_%d.csv" % number,
        "firstProblem": number,
        "problemCount": 4,
        "firstSolution": 0,
        "solutionCount": 400,
        "device": 3,
        "unit": number,
        "written": 0,
        "fileFirstSolution": 0,
        "fileSolutionCount": 400,
    }
    tally = {"rejected": 0, "failed": 0, "wrong": 0, "failures": []}
    outcome = {"unit": number, "device": 3, "kind": "measured", "exit": 0, "seconds": 12.5}
    return {**outcome, "message": "", "pieces": [piece, piece], "tally": tally}


def measure(folder: str) -> List[float]:
    """Seconds of each append."""
    times = []
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        with Journal(Path(inside) / "journal.msgpack") as journal:
            for number in range(RECORDS):
                begun = time.perf_counter()
                journal.append(record(number))
                times.append(time.perf_counter() - begun)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", nargs="?", help="step.json of a finished step")
    parser.add_argument("--folder", default=None, help="where the journal goes")
    options = parser.parse_args()
    times = measure(options.folder or os.getcwd())
    mean = statistics.mean(times)
    print("one record: %.2f ms (median %.2f)" % (1e3 * mean, 1e3 * statistics.median(times)))
    if options.step:
        step = json.loads(Path(options.step).read_text())
        wall = step["ended"] - step["started"]
        units = len(step["units"])
        share = 100 * units * mean / wall
        print("%d units in %.1f s: %.3f %% of the wall time" % (units, wall, share))


if __name__ == "__main__":
    main()
