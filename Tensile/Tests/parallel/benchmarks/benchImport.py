# SPDX-License-Identifier: MIT
"""What `import Tensile.Parallel` costs a host beside its own Tensile/Parallel.py alone.

    python Tensile/Tests/parallel/benchmarks/benchImport.py TREE... [--rounds N]

Each TREE is copied twice, once with our package in it. In turns, a new Python imports what the host
imports of `Tensile.Parallel`, after everything that Parallel.py itself imports, and
prints how long that took, by the clock and in CPU time. Printed, in milliseconds: minimum and
median of both ways, and of their differences per round.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parents[4]

CODE = """
import time
import concurrent.futures, itertools, multiprocessing, joblib, packaging.version
import Tensile
try:
    import Tensile.Utilities.ConditionalImports
except ImportError:
    pass
begin = time.perf_counter(), time.process_time()
from Tensile.Parallel import CPUThreadCount, ParallelMap
print(time.perf_counter() - begin[0], time.process_time() - begin[1])
"""


def measure(tree: Path) -> List[float]:
    """Milliseconds that a new Python, started in the tree, measures: by the clock, of the CPU."""
    environment = dict(os.environ, PYTHONPATH=str(tree))
    command = [sys.executable, "-c", CODE]
    output = subprocess.check_output(command, env=environment, cwd=tree, text=True)
    return [1000 * float(seconds) for seconds in output.split()]


def copies(tree: Path, folder: Path) -> Dict[str, Path]:
    """A copy of a tree's package without us, and one with us."""
    found = {}
    for name in ("alone", "with us"):
        found[name] = folder / name
        ignore = shutil.ignore_patterns("__pycache__", "Tests", "parallel")
        shutil.copytree(tree / "Tensile", folder / name / "Tensile", ignore=ignore)
        ours = folder / name / "Tensile" / "Parallel"
        shutil.rmtree(ours, ignore_errors=True)
        if name == "with us":
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / "Tensile" / "Parallel", ours, ignore=ignore)
    return found


def compare(trees: Dict[str, Path], rounds: int) -> None:
    """Print minima and medians."""
    times: Dict[str, List[List[float]]] = {name: [] for name in trees}
    for number in range(rounds + 1):
        # Who is first changes from round to round; the first round writes what Python compiles.
        for name in sorted(trees, reverse=number % 2 == 1):
            measured = measure(trees[name])
            if number:
                times[name].append(measured)
    for column, what in enumerate(("by the clock", "CPU time")):
        alone, both = ([row[column] for row in times[name]] for name in ("alone", "with us"))
        differences = [with_ - without for with_, without in zip(both, alone)]
        lowest, middle = (min(alone), min(both)), map(statistics.median, (alone, both, differences))
        print("  %s:" % what)
        print("    minimum: alone %.2f, with us %.2f" % lowest)
        print("    median: alone %.2f, with us %.2f, difference %.2f" % tuple(middle))


def main() -> None:
    """The comparison for every tree that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", metavar="TREE", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    print("milliseconds, %d rounds, Python %s" % (options.rounds, sys.version.split()[0]))
    for tree in options.trees:
        print(tree)
        if not (tree / "Tensile" / "Parallel.py").is_file():
            print("  has no Tensile/Parallel.py, so nothing there imports it")
            continue
        with tempfile.TemporaryDirectory() as folder:
            compare(copies(tree, Path(folder)), options.rounds)


if __name__ == "__main__":
    main()
