# SPDX-License-Identifier: MIT
"""The LibraryLogic section: from benchmark data to the winner of each size."""

from __future__ import annotations

import csv
import os

from . import Generation, LibraryIO, __version__
from .Common import HR, globalParameters, print1, printExit
from .WorkingPath import ensurePath

_defaults = {
    "ScheduleName": "Tensile",
    "DeviceNames": "fallback",
    "ArchitectureName": "gfx000",
    "LibraryType": "GridBased",
}


def main(config: dict) -> None:
    """Write one logic file for each problem type that 2_BenchmarkData holds."""
    root = globalParameters["WorkingPath"]
    dataPath = os.path.join(root, globalParameters["BenchmarkDataPath"])
    logicPath = ensurePath(os.path.join(root, globalParameters["LibraryLogicPath"]))
    parameters = {key: config.get(key, default) for key, default in _defaults.items()}
    print1("%s\n# Analysing data in %s" % (HR, globalParameters["BenchmarkDataPath"]))
    if not os.path.exists(dataPath):
        printExit("Path doesn't exist: %s" % dataPath)
    groups: dict = {}
    for name in sorted(os.listdir(dataPath)):
        base, extension = os.path.splitext(os.path.join(dataPath, name))
        if extension != ".csv":
            continue
        if not os.path.exists(base + ".yaml"):
            printExit("%s doesn't exist for %s" % (base + ".yaml", base))
        problemType, sizes, solutions = LibraryIO.readSolutions(base + ".yaml")
        groups.setdefault(str(problemType), []).append((problemType, sizes, solutions, base))
    for typeName, found in groups.items():
        print1("# Analyzing: %s" % typeName)
        path = os.path.join(logicPath, "%s_%s.yaml" % (parameters["ScheduleName"], typeName))
        LibraryIO.writeYAML(path, _logic(parameters, found))
    print1("# Finish Analysing data to %s" % logicPath)


def _logic(parameters: dict, groups: list) -> list:
    """A logic file's value: solutions that won, and which won where, with how many GFlops."""
    problemType = groups[0][0]
    merged: dict = {}  # identity of a solution -> solution; its index is its place
    for _, _, solutions, _ in groups:
        for solution in solutions:
            merged.setdefault(solution.identity, solution)
    places = {identity: place for place, identity in enumerate(merged)}
    known = {sizes for _, allSizes, _, _ in groups for sizes in allSizes}
    winners: dict = {}
    metric = None
    for _, _, solutions, base in groups:
        columns = [places[solution.identity] for solution in solutions]
        metric = _addFromCsv(base + ".csv", columns, known, winners)
    kept = sorted({place for place, _ in winners.values()})
    states = []
    for index, place in enumerate(kept):
        state = list(merged.values())[place].toState()
        states.append({**state, "SolutionIndex": index})
        print1("(%2d) %s" % (index, state["SolutionNameMin"]))
    exact = [[list(sizes), [kept.index(p), speed]] for sizes, (p, speed) in winners.items()]
    return [
        {"MinimumRequiredVersion": __version__},
        parameters["ScheduleName"],
        parameters["ArchitectureName"],
        parameters["DeviceNames"],
        problemType.toState(),
        states,
        _indexOrder(problemType),
        exact or None,
        None,
        None,
        metric,
    ] + ([parameters["LibraryType"]] if Generation.logicNamesLibraryType else [])


def _indexOrder(problemType) -> list:
    """Batch indices, then the summed one, then the free ones."""
    total = problemType["TotalIndices"]
    unroll = total - 1
    return [index for index in range(2, total) if index != unroll] + [unroll, 0, 1]


def _addFromCsv(path: str, columns: list, known: set, winners: dict) -> str:
    """Take the winners of a results file over; the unit it counts in.

    The greatest cell of a row wins, the first of equals; with Winner columns those are believed.
    A row with neither has no winner, and a size that is there twice keeps its faster row.
    """
    print("reading datafile", path)
    hasWinners = "_CSVWinner" in path
    metric = "DeviceEfficiency"
    sizeCount = 8
    with open(path, encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.reader(stream)):
            if number == 0:
                metric = "CUEfficiency" if row[0] == "GFlopsPerCU" else metric
                width = len(row)
                sizeCount = len(next(iter(known), (0,) * sizeCount))
                continue
            sizes = tuple(int(cell) for cell in row[1 : 1 + sizeCount])
            if sizes not in known:
                printExit(
                    "Huh? %s has ProblemSize %s which isn't in its yaml" % (path, list(sizes))
                )
            winner, speed = -1, -1.0
            if hasWinners:
                speedColumn, indexColumn = Generation.winnerColumns
                winner, speed = int(row[indexColumn]), float(row[speedColumn])
            else:
                for index, position in enumerate(range(width - len(columns), width)):
                    if float(row[position]) > speed:
                        winner, speed = index, float(row[position])
            if winner != -1 and (sizes not in winners or speed > winners[sizes][1]):
                winners[sizes] = (columns[winner], speed)
    return metric
