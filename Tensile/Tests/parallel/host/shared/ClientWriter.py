# SPDX-License-Identifier: MIT
"""What the client is given, ClientParameters.ini, and run.sh, which runs it."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace
from typing import Any, Optional

from . import ClientExecutable, Generation, LibraryIO
from .Common import globalParameters, print1, printWarning
from .Toolchain import isaToGfx
from .WorkingPath import ensurePath, popWorkingPath, pushWorkingPath

_initNames = (
    "Zero One Two Random NaN Inf BadInput BadOutput SerialIdx SerialDim0 SerialDim1 Identity"
    " TrigSin TrigCos TrigAbsSin TrigAbsCos RandomNarrow NegOne Max DenormMin DenormMax"
    " RandomNegPosLimited - TrigIndSin TrigIndCos TrigIndAbsSin TrigIndAbsCos"
).split()
_namedValues = {
    "bounds-check": "Disable NaN GuardPageFront GuardPageBack GuardPageAll".split(),
    "log-level": "Error Terse Verbose Debug".split(),
    "prune-mode": (
        "PruneRandom PruneXX00 PruneX0X0 Prune0XX0 PruneX00X Prune0X0X Prune00XX".split()
    ),
}


def architecture() -> str:
    """The gfx name that code objects are for: the detected one, else the config's."""
    detected = globalParameters["CurrentISA"]
    wanted = str(globalParameters["Architecture"]).split(";")[0].split(":")[0]
    if detected != (0, 0, 0):
        return isaToGfx(detected)
    return wanted if wanted.startswith("gfx") else "gfx90a"


def writeLibrary(folder: str, solutions: list) -> list:
    """The library file and its code objects, which hold one line; returns the latter's paths."""
    ensurePath(folder)
    name = architecture()
    entries = [
        Generation.librarySolution(solution, index, name)
        for index, solution in enumerate(solutions)
    ]
    rows = [
        {"predicate": {"type": "TruePred"}, "library": {"type": "Single", "index": index}}
        for index in range(len(entries))
    ]
    library = {"solutions": entries, "library": {"type": "Problem", "rows": rows}}
    LibraryIO.writeLibrary(
        os.path.join(folder, "TensileLibrary"), library, globalParameters["LibraryFormat"]
    )
    paths = [os.path.join(folder, name) for name in Generation.codeObjects(solutions, name)]
    for path in paths:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("a stand-in for a code object\n")
    return paths


def writeClientConfigIni(
    path: str, step, library: str, codeObjects: list, resultsFile: str
) -> None:
    """One key=value a line, in the order that real hosts write them."""
    extension = "yaml" if globalParameters["LibraryFormat"] == "yaml" else "dat"
    entries: list = [("library-file", os.path.join(library, "TensileLibrary." + extension))]
    entries += [("code-object", codeObject) for codeObject in codeObjects]
    entries += [
        ("results-file", resultsFile),
        ("performance-metric", globalParameters["PerformanceMetric"]),
        ("problem-identifier", step.problemType.operationIdentifier),
    ]
    entries += Generation.typeEntries(step)
    for problem in step.sizes.problems:
        entries += _sizeEntries(step, problem)
    entries += Generation.activationEntries(step)
    entries += _parameterEntries(Generation.beforeData)
    entries += [(key, _initName(key, step.problemType)) for key in Generation.dataKeys]
    entries += _parameterEntries(Generation.afterData)
    with open(path, "w", encoding="utf-8") as stream:
        for key, value in entries:
            stream.write("%s=%s\n" % (key, _text(value)))


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _sizeEntries(step, problem) -> list:
    """A size's line and its strides: -1 is "packed", the second is the leading dimension."""
    kind = step.problemType
    count = kind["TotalIndices"]
    ranks = {
        "A": len(kind["IndexAssignmentsA"]),
        "B": len(kind["IndexAssignmentsB"]),
        "C": kind["NumIndicesC"],
        "D": kind["NumIndicesC"],
    }
    strides = {}
    for tensor, rank in ranks.items():
        strides[tensor] = list(problem.strides.get(tensor) or [-1] * rank)
        if tensor in "AB":
            for index, stride in kind["SetConstStride" + tensor]:
                strides[tensor][kind["IndexAssignments" + tensor].index(index)] = stride
    if len(problem.sizes) > count:
        for tensor, leading in zip("DCAB", problem.sizes[count:]):
            if strides[tensor][1] == -1:
                strides[tensor][1] = leading
            elif tensor in "AB" and strides[tensor][1] != leading:
                raise RuntimeError(
                    "problem-specified ld%s(%d) conflicts with setConstStride%s(%d)"
                    % (tensor.lower(), strides[tensor][1], tensor, leading)
                )
    entries = [("problem-size", list(problem.sizes[:count]))]
    entries += [("%s-strides" % tensor.lower(), strides[tensor]) for tensor in "ABCD"]
    return entries + Generation.strideEntries(step, problem, strides)


def _initName(key: str, problemType) -> str:
    """What fills a tensor: init-scaleA comes from DataInitTypeScaleA."""
    suffix = key[len("init-") :]
    value = globalParameters["DataInitType" + suffix[0].upper() + suffix[1:]]
    if key in ("init-a", "init-b") and value == -1:
        value = globalParameters["DataInitTypeAB"]
    if key == "init-beta" and not problemType["UseBeta"]:
        value = 0
    return _initNames[value]


def _parameterEntries(table: list) -> list:
    entries = []
    for key, parameter in table:
        value = globalParameters[parameter.rstrip("?")]
        if key in _namedValues:
            value = _namedValues[key][int(value)]
        if parameter.endswith("?"):
            if value <= (1 if key == "exit-on-error" else 0):
                continue
            value = 1
        entries.append((key, value))
    return entries


def runClient(configFiles: Optional[list] = None, option: str = "") -> int:
    """Write run.sh into the step's build folder and run it; its exit status."""
    folder = pushWorkingPath("build")
    if configFiles is None:
        configFiles = [os.path.join(folder, "../source/ClientParameters.ini")]
    script = writeRunScript(folder, configFiles, option)
    status = subprocess.call([script], cwd=folder)
    if status:
        printWarning("ClientWriter Benchmark Process exited with code %d" % status)
    popWorkingPath()
    return status


def writeRunScript(folder: str, configFiles: list, option: str) -> str:
    """run.sh. Paths are not quoted, so one with a space breaks here, as in real hosts.

    Unlike theirs it is not writable by everyone.
    """
    client = ClientExecutable.getClientExecutable()
    smi = globalParameters["ROCmSMIPath"] if globalParameters["PinClocks"] else None
    lines = ["#!/bin/bash", "", "set -ex"]
    if smi:
        lines += ["%s -d 0 --setfan 255 --setsclk 7" % smi, "sleep 1", "%s -d 0 -a" % smi]
    for configFile in configFiles:
        lines += Generation.clientLines(client, configFile, option)
    if smi:
        lines += ["%s -d 0 --resetclocks" % smi, "%s -d 0 --setfan 50" % smi]
    lines.append("exit $ERR")
    path = os.path.join(folder, "run.sh")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    os.chmod(path, 0o755)
    return path


def main(config: Any) -> int:
    """LibraryClient: the best solution for each size of the library logic, by the client."""
    logicPath = os.path.join(globalParameters["WorkingPath"], globalParameters["LibraryLogicPath"])
    base = pushWorkingPath(globalParameters["LibraryClientPath"])
    source = pushWorkingPath("source")
    configFiles = []
    for path in LibraryIO.yamlFiles(logicPath):
        problemType, problems, solutions = LibraryIO.readLogic(path)
        print1("LogicFiles: %s" % path)
        step = SimpleNamespace(
            problemType=problemType,
            sizes=SimpleNamespace(problems=problems),
            biasTypes=problemType["BiasDataTypeList"][:1],
            factorDims=[0] if problemType["UseBias"] or problemType["UseScaleAlphaVec"] else [],
            activations=["relu"] if problemType["ActivationType"] != "none" else [],
            icacheFlush=[False],
        )
        library = os.path.join(base, "library")
        codeObjects = writeLibrary(library, solutions)
        configFile = os.path.join(source, "ClientParameters_%s.ini" % problemType)
        results = os.path.join(source, "../Data/%s.csv" % problemType)
        writeClientConfigIni(configFile, step, library, codeObjects, results)
        configFiles.append(configFile)
    popWorkingPath()
    status = runClient(configFiles, "--best-solution 1")
    popWorkingPath()
    return status
