# SPDX-License-Identifier: MIT
"""How fast results files are joined, against cat over the same files.

    python Tensile/Tests/parallel/benchmarks/benchMerge.py [--rows 2000] [--columns 5000]

Prints a table: the join by rows and by columns with all checks on, each in a process of its own so
that the peak memory is its own. Every file is read once beforehand, so all start from the page
cache. cat writes to a file in the same folder, as the join does; only the join waits for the disk
(fsync).
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4))

from Tensile.Parallel.Results import makeHeader  # noqa: E402
from Tensile.Parallel.ResultsJoin import Piece, joinShards  # noqa: E402

# How many times slower than cat the join may be, and its megabytes (docs/performance.md).
LIMITS = {"rows": (10, 100), "columns": (30, 200)}
PIECES = {"rows": 16, "columns": 8}


def solutionNames(count: int) -> list:
    """Names as long as TensileLite's."""
    return ["Cijk_Alik_Bljk_HHS_BH_UserArgs_MT%05d_" % i + "x" * 180 for i in range(count)]


def span(part: int, parts: int, count: int) -> range:
    """The part-th of equal stretches of range(count)."""
    return range(count * part // parts, count * (part + 1) // parts)


def shards(folder: str, way: str, rows: int, columns: int) -> list:
    """The pieces of one way of cutting the table; their files need not exist."""
    parts, pieces = PIECES[way], []
    for part in range(parts):
        path = os.path.join(folder, "%s-%d.csv" % (way, part))
        problems = span(part, parts, rows) if way == "rows" else range(rows)
        solutions = span(part, parts, columns) if way == "columns" else range(columns)
        pieces.append(Piece(path, problems, solutions))
    return pieces


def writeShard(piece: Piece, names: list) -> None:
    """Write what a TensileLite client with its extra columns would have written."""
    header = makeHeader(classic=False, sizeCount=4, extraColumns=True, perCu=False)
    source = random.Random(0)
    speeds = ["%g" % source.uniform(1e3, 2e6) for _ in range(4999)] + ["-1"] * 500
    source.shuffle(speeds)
    values = {name: "1024" for name in header.columns}
    values.update(TotalFlops="2147483648", WinnerTimeUS="1.163")
    with open(piece.path, "wb") as stream:
        stream.write(header.line([names[i] for i in piece.solutions]))
        for problem in piece.problems:
            cells = [speeds[(problem * 7919 + i) % len(speeds)] for i in piece.solutions]
            best = max(range(len(cells)), key=lambda i: float(cells[i]))
            winner = {"WinnerGFlops": cells[best], "WinnerIdx": str(best)}
            winner["WinnerName"] = names[piece.solutions[best]]
            stream.write(header.row(problem, {**values, **winner}, cells))


def joinOnce(folder: str, way: str, rows: int, columns: int) -> None:
    """The measured process: joins and prints seconds, peak megabytes and the output's size."""
    names, output = solutionNames(columns), os.path.join(folder, way + ".csv")
    pieces = shards(folder, way, rows, columns)
    started = time.perf_counter()
    report = joinShards(output, pieces, names, rows)
    seconds = time.perf_counter() - started
    if report.corrected or report.missing or report.absurd or report.damaged:
        raise SystemExit("the join found fault with sound files: %r" % (report,))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(seconds, peak, os.path.getsize(output))


def catSeconds(paths: list, output: str) -> float:
    """Seconds that cat takes over the same files."""
    with open(output, "wb") as stream:
        started = time.perf_counter()
        subprocess.run(["cat", *paths], stdout=stream, check=True)
        return time.perf_counter() - started


def bench(folder: str, way: str, rows: int, columns: int, repeats: int) -> bool:
    """Measure one way of cutting, print its line of the table, say whether it holds."""
    names, pieces = solutionNames(columns), shards(folder, way, rows, columns)
    for piece in pieces:
        writeShard(piece, names)
    paths = [piece.path for piece in pieces]
    command = [sys.executable, os.path.abspath(__file__), "--child", folder, "--way", way]
    command += ["--rows", str(rows), "--columns", str(columns)]
    catOutput = os.path.join(folder, "cat.csv")
    catSeconds(paths, catOutput)
    cats, joins, peaks = [], [], []
    for _ in range(repeats):
        cats.append(catSeconds(paths, catOutput))
        printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        seconds, peak, _ = (float(text) for text in printed.split())
        joins.append(seconds)
        peaks.append(peak)
    read = sum(os.path.getsize(path) for path in paths) / 1e6
    cat, join, peak = min(cats), min(joins), max(peaks)
    most, memory = LIMITS[way]
    holds = join <= most * cat and peak < memory
    line = (way, len(pieces), read, cat, read / cat, join, read / join, join / cat, most)
    print("%-8s %6d %8.0f %8.3f %8.0f %8.3f %8.0f %9.1f %6d" % line, end="")
    print(" %8.0f %6d  %s" % (peak, memory, "holds" if holds else "MISSED"), flush=True)
    for path in paths:
        os.unlink(path)
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--columns", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--folder", help="where the files go; default: a temporary folder")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=sorted(LIMITS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        joinOnce(arguments.child, arguments.way, arguments.rows, arguments.columns)
        return 0
    cores = len(os.sched_getaffinity(0))
    print("%d rows x %d columns, %d cores" % (arguments.rows, arguments.columns, cores))
    print("cut by    files       MB    cat s     MB/s   join s     MB/s  join/cat  limit", end="")
    print("  peak MB  limit")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        results = [
            bench(folder, way, arguments.rows, arguments.columns, arguments.repeats)
            for way in ("rows", "columns")
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
