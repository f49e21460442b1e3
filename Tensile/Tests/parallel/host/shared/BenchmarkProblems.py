# SPDX-License-Identifier: MIT
"""The BenchmarkProblems section: kernels, client, results, one size group after the other."""

from __future__ import annotations

import os
import shutil
import sys
import time

from . import ClientExecutable, Generation, LibraryIO
from .BenchmarkStructs import BenchmarkStep
from .ClientWriter import runClient, writeClientConfigIni, writeLibrary
from .Common import (
    HR,
    globalParameters,
    print1,
    print2,
    printExit,
    printWarning,
    startTime,
)
from .SolutionStructs import ProblemType, Solution
from .WorkingPath import ensurePath, popWorkingPath, pushWorkingPath

# With fewer solutions than this, starting workers costs more than it saves.
_solutionsWorthWorkers = 200


def main(config, useCache: bool) -> None:
    """Benchmark every group; exits with 1 at the end if a client failed (ExitOnFails)."""
    if Generation.nullProblemsBuildOnly:
        ClientExecutable.getClientExecutable()
        if config is None:
            print("No config specified in %s, built client only" % globalParameters["ConfigPath"])
            return
    dataPath = os.path.join(globalParameters["WorkingPath"], globalParameters["BenchmarkDataPath"])
    pushWorkingPath(globalParameters["BenchmarkProblemsPath"])
    ensurePath(dataPath)
    failed = 0
    for entry in config:
        # The index starts again with every entry: the same type twice ends in the same files.
        for index, group in enumerate(entry[1:] or [{}]):
            suffix = "_CSVWinner" if globalParameters["CSVExportWinner"] else ""
            name = "%s_%02d" % (ProblemType(entry[0]), index)
            results = os.path.join(dataPath, name + suffix)
            if os.path.exists(results + ".csv") and not _redo():
                print1("# %s already benchmarked; skipping." % name)
                continue
            written, failures = _benchmarkGroup(name, entry[0], group or {}, useCache)
            failed += failures
            print(
                "clientExit=%d %s for %s"
                % (failed, "(ERROR)" if failed else "(PASS)", globalParameters["ConfigPath"])
            )
            shutil.copy(written + ".csv", results + ".csv")
            shutil.copy(written + ".yaml", results + ".yaml")
    popWorkingPath()
    if globalParameters["ExitOnFails"] and failed:
        sys.exit(1)


def _redo() -> bool:
    return bool(globalParameters["ForceRedoBenchmarkProblems"])


def _benchmarkGroup(name: str, typeConfig: dict, group: dict, useCache: bool) -> tuple:
    """(path of the results without extension, how many clients failed)."""
    step = BenchmarkStep(typeConfig, group)
    pushWorkingPath(name)
    data = ensurePath(os.path.join(globalParameters["WorkingPath"], "Data"))
    print1("\n%s" % HR)
    print1("# Benchmark Step: %s - %s %.3fs" % (name, step.name, time.time() - startTime))
    print1("# Num Sizes: %d" % len(step.sizes.problems))
    base = pushWorkingPath(step.name)
    results = os.path.join(data, step.name)
    _writeBenchmarkFiles(base, step, results, useCache)
    failures = 0
    if not os.path.exists(results + ".csv") or _redo():
        status = runClient()
        if status:
            failures = 1
            printWarning("BenchmarkProblems: Benchmark Process exited with code %d" % status)
    else:
        print1("# Already benchmarked; skipping.")
    popWorkingPath()
    print1("%s\n# %s\n# %s: End - %.3fs" % (HR, name, step.name, time.time() - startTime))
    popWorkingPath()
    return results, failures


def _writeBenchmarkFiles(base: str, step: BenchmarkStep, results: str, useCache: bool) -> None:
    """Library, ClientParameters.ini and the solutions file, from the cache where it fits."""
    source = ensurePath(os.path.join(base, "source"))
    library = os.path.join(source, "library")
    cachePath = os.path.join(base, "cache.yaml")
    cached = _readCache(cachePath, step) if useCache else None
    if cached is not None:
        print1("# Using cached solution data")
        codeObjects = [os.path.join(source, name) for name in cached["CodeObjectFiles"]]
        # Classic and TensileLite write another path for the same file in this case.
        resultsInIni = results + ".csv"
        states = LibraryIO.solutionStates(results + ".yaml")
    else:
        solutions = step.solutions()
        print1("# Actual Solutions: %d" % len(solutions))
        if not solutions:
            printExit("Your parameters resulted in 0 valid solutions.")
        for solution in solutions:
            print2("#    (0:0) %s" % solution.name)
        codeObjects = writeLibrary(library, solutions)
        cacheData = step.cacheData()
        cacheData["CodeObjectFiles"] = [os.path.relpath(path, source) for path in codeObjects]
        LibraryIO.writeYAML(cachePath, cacheData)
        resultsInIni = os.path.join(base, "../Data", step.name + ".csv")
        states = Generation.parallelMap(
            _solutionState,
            list(enumerate(solutions)),
            "Writing solutions",
            enable=len(solutions) >= _solutionsWorthWorkers,
        )
    ini = os.path.join(source, "ClientParameters.ini")
    writeClientConfigIni(ini, step, library, codeObjects, resultsInIni)
    LibraryIO.writeSolutions(results + ".yaml", step, states)


def _solutionState(index: int, solution: Solution) -> dict:
    """Module-level, because joblib's workers find it by name."""
    return {**solution.toState(), "SolutionIndex": index}


def _readCache(path: str, step: BenchmarkStep):
    """The cache's data if it fits the step, else None."""
    if not os.path.isfile(path):
        return None
    cached = LibraryIO.readYAML(path)
    wanted = step.cacheData()
    fits = all(cached[key] == wanted[key] for key in Generation.cacheKeysCompared)
    for key in Generation.cacheKeysMissing:
        cached[key]  # the real host compares it too, but never writes it: KeyError
    if not fits:
        printWarning("Cache data does not match config: redoing solution generation")
    return cached if fits else None
