# SPDX-License-Identifier: MIT
"""What classic Tensile 4.44 does in its own way: names, the client's INI, the library file."""

from __future__ import annotations

from .Common import ParallelMap, globalParameters
from .FileNames import shortName

parallelMap = ParallelMap
configSections = ()
exactFields = (
    "count sizes stridesA stridesB stridesC stridesD padStartA padEndA padStartB padEndB"
).split()
tensorContraction = True
# Columns of WinnerGFlops and WinnerIdx, which LibraryLogic takes for granted (GEMM, batched).
winnerColumns = (10, 12)
cacheKeysCompared = ("ConstantParams", "ForkParams", "ParamGroups", "CustomKernels")
cacheKeysMissing = ()
logicNamesLibraryType = False
nullProblemsBuildOnly = False
dataTypeLetters = "S D C Z H 4xi8 I B I8 X F8 B8 F8B8 B8F8".split()

# (DataType, DestDataType, ComputeDataType) that names show in full.
_fullTypes = {
    tuple(types.split())
    for types in (
        "H S S|H H S|B B S|B S S|I8 I I|4xi8 I I|F8 S S|B8 S S|F8B8 S S|B8F8 S S|F8B8 B8 S|"
        "B8F8 B8 S|F8 H S|B8 H S|F8B8 H S|B8F8 H S|F8 F8 S|B8 B8 S"
    ).split("|")
}

# Forked parameters run in the order of the host's own defaults, the first fastest.
forkOrder = (
    "LoopTail EdgeType KernelLanguage LdsPadA LdsPadB TransposeLDS VectorWidth VectorWidthB"
    " VectorStore StoreVectorWidth GlobalReadVectorWidth LocalReadVectorWidth PrefetchGlobalRead"
    " PrefetchLocalRead ExpandPointerSwap ScheduleGlobalRead ScheduleLocalWrite ScheduleIterAlg"
    " DirectToVgprA DirectToVgprB DirectToLdsA DirectToLdsB StaggerU StaggerUStride GlobalSplitU"
    " PersistentKernel FractionalLoad WorkGroup WorkGroupMapping ThreadTile MatrixInstruction"
    " 1LDSBuffer DepthU NonTemporalD NonTemporalC NonTemporalA NonTemporalB StoreRemapVectorWidth"
    " SourceSwap StorePriorityOpt MIArchVgpr"
).split()


def typeName(problemType) -> str:
    """The name after the indices: _SB."""
    dataType = problemType["DataType"]
    name = "_%s" % dataType
    types = (dataType, problemType["DestDataType"], problemType["ComputeDataType"])
    if tuple(str(one) for one in types) in _fullTypes:
        name += "%s%s_" % types[1:]
    name += "B" if problemType["UseBeta"] else ""
    if problemType["HighPrecisionAccumulate"] and not problemType["SilentHighPrecisionAccumulate"]:
        name += "H"
    if problemType["Fp16AltImpl"]:
        name += "RZ" if problemType["Fp16AltImplRound"] else "R"
    name += "I" if problemType["UseInitialStridesAB"] else ""
    name += "Ic" if problemType["UseInitialStridesCD"] else ""
    name += "" if problemType["StridedBatched"] else "_GB"
    if str(problemType["F32XdlMathOp"]) != "S" and str(dataType) == "S":
        name += "_M%s" % problemType["F32XdlMathOp"]
    return name + ("_SR" if problemType["StochasticRounding"] else "")


def typeEntries(step) -> list:
    """The INI's lines about the problem type, in order."""
    kind = step.problemType
    return [
        ("a-type", kind.inputWords[0]),
        ("b-type", kind.inputWords[1]),
        ("c-type", kind["DestDataType"].word),
        ("d-type", kind["DestDataType"].word),
        ("alpha-type", kind["ComputeDataType"].word),
        ("beta-type", kind["ComputeDataType"].word),
        ("f32-xdl-math-op", kind["F32XdlMathOp"].word),
        ("stochastic-rounding", kind["StochasticRounding"]),
        ("high-precision-accumulate", kind["HighPrecisionAccumulate"]),
        ("strided-batched", kind["StridedBatched"]),
    ]


def strideEntries(step, problem, strides: dict) -> list:
    """Nothing follows a size's own strides."""
    return []


def activationEntries(step) -> list:
    """There are no activations."""
    return []


# (key of the INI, global parameter), in the INI's order; "?" drops a line whose value is zero.
beforeData = [("device-idx", "Device")]
dataKeys = "init-a init-b init-c init-d init-alpha init-beta".split()
afterData = [
    ("c-equal-d", "CEqualD"),
    ("offset-a", "BufferOffsetA"),
    ("offset-b", "BufferOffsetB"),
    ("offset-c", "BufferOffsetC"),
    ("offset-d", "BufferOffsetD"),
    ("print-tensor-a", "PrintTensorA?"),
    ("print-tensor-b", "PrintTensorB?"),
    ("print-tensor-c", "PrintTensorC?"),
    ("print-tensor-d", "PrintTensorD?"),
    ("print-tensor-ref", "PrintTensorRef?"),
    ("dump-tensors", "DumpTensors?"),
    ("exit-on-error", "ExitOnFails?"),
    ("bounds-check", "BoundsCheck"),
    ("print-valids", "ValidationPrintValids"),
    ("print-max", "ValidationMaxToPrint"),
    ("num-elements-to-validate", "NumElementsToValidate"),
    ("num-benchmarks", "NumBenchmarks"),
    ("num-warmups", "NumWarmups"),
    ("num-enqueues-per-sync", "EnqueuesPerSync"),
    ("num-syncs-per-benchmark", "SyncsPerBenchmark"),
    ("use-gpu-timer", "KernelTime"),
    ("hardware-monitor", "HardwareMonitor"),
    ("flush-count", "FlushCount"),
    ("flush-memory-size", "FlushMemorySize"),
    ("sleep-percent", "SleepPercent"),
    ("perf-l2-read-hits", "PerfModelL2ReadHits"),
    ("perf-l2-write-hits", "PerfModelL2WriteHits"),
    ("perf-l2-read-bw-mul", "PerfModelL2ReadBwMul"),
    ("perf-read-efficiency", "PerfModelReadEfficiency"),
    ("csv-export-extra-cols", "CSVExportWinner"),
    ("csv-merge-same-problems", "CSVMergeSameProblemID"),
    ("log-level", "ClientLogLevel"),
    ("max-workspace-size", "MaxWorkspaceSize"),
    ("granularity-threshold", "GranularityThreshold"),
    ("pristine-on-gpu", "PristineOnGPU"),
    ("library-update-file", "LibraryUpdateFile"),
    ("library-update-comment", "LibraryUpdateComment"),
]


def clientLines(command: str, configFile: str, option: str) -> list:
    """run.sh's lines that run the client; under ``set -e`` its failure ends the script."""
    arguments = globalParameters["ClientArgs"]
    return [
        "ERR=0",
        "%s --config-file %s %s %s" % (command, configFile, arguments, option),
        "if [[ $? -ne 0 ]]; then echo error in %s; ERR=$?; fi" % configFile,
    ]


def librarySolution(solution, index: int, architecture: str) -> dict:
    """A solution as the library file holds it."""
    kind = solution.problemType
    return {
        "name": solution.name,
        "problemType": {
            "operationIdentifier": kind.operationIdentifier,
            "aType": kind.inputWords[0],
            "bType": kind.inputWords[1],
            "cType": kind["DestDataType"].word,
            "dType": kind["DestDataType"].word,
            "useBeta": kind["UseBeta"],
            "highPrecisionAccumulate": kind["HighPrecisionAccumulate"],
        },
        "hardwarePredicate": {"type": "TruePred"},
        "problemPredicate": {"type": "TruePred"},
        "taskPredicate": {"type": "TruePred"},
        "sizeMapping": {
            "workGroup": solution.parameters.get("WorkGroup", [16, 16, 1]),
            "macroTile": [*solution.macroTile, 1],
            "threadTile": solution.parameters.get("ThreadTile", [4, 4]),
            "depthU": solution.parameters.get("DepthU", 16),
            "globalSplitU": solution.parameters.get("GlobalSplitU", 1),
        },
        "debugKernel": False,
        "libraryLogicIndex": -1,
        "index": index,
        "ideals": {},
        "linearModel": {},
    }


def codeObjects(solutions: list, architecture: str) -> list:
    """Names of the step's code objects: helper kernels, then one file or one per kernel."""
    helper = "Kernels.so-000-%s.hsaco" % architecture
    if globalParameters["MergeFiles"]:
        return [helper, "TensileLibrary_%s.co" % architecture]
    return [helper] + [shortName(one.name) + "_%s.co" % architecture for one in solutions]
