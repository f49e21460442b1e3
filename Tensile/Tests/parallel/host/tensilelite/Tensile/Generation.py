# SPDX-License-Identifier: MIT
"""What TensileLite 2024 does in its own way: names, the client's INI, the library file."""

from __future__ import annotations

from .Common import ParallelMap2, globalParameters
from .FileNames import shortName

parallelMap = ParallelMap2
configSections = ("ActivationArgs", "BiasTypeArgs", "FactorDimArgs", "ICacheFlush")
exactFields = ("count", "sizes", "stridesA", "stridesB", "stridesC", "stridesD")
tensorContraction = False
# Columns of WinnerGFlops and WinnerIdx, which LibraryLogic takes for granted (GEMM, batched).
winnerColumns = (12, 14)
# Its cache.yaml is compared by this key and written without it: --use-cache is a KeyError.
cacheKeysCompared = ("ConstantParams", "ForkParams", "ParamGroups", "CustomKernels")
cacheKeysMissing = ("InternalSupportParams",)
logicNamesLibraryType = True
nullProblemsBuildOnly = True
dataTypeLetters = "S D C Z H 4xi8 I B I8 I64 X F8 B8 F8B8 B8F8".split()

# (DataType, DestDataType, ComputeDataType) that names show in full.
_fullTypes = {
    tuple(types.split())
    for types in (
        "H S S|H H S|B B S|B S S|B H S|I8 I I|4xi8 I I|I8 I S|I8 I8 S|I8 H S|I8 B S|"
        "F8 S S|B8 S S|F8B8 S S|B8F8 S S|F8 H S|B8 H S|F8B8 H S|B8F8 H S|H F8 S|F8 B S|F8B8 B S|"
        "F8 F8 S|B8 B8 S|F8B8 B8 S|B8F8 B8 S|F8 B8 S|B8 F8 S|F8B8 F8 S|B8F8 F8 S"
    ).split("|")
}

# Forked parameters run in the order of the host's own defaults, the first fastest.
forkOrder = (
    "LdsPadA LdsPadB LdsBlockSizePerPadA LdsBlockSizePerPadB TransposeLDS VectorWidthA VectorWidthB"
    " StoreVectorWidth GlobalReadVectorWidthA GlobalReadVectorWidthB LocalReadVectorWidth"
    " PrefetchGlobalRead PrefetchLocalRead ClusterLocalRead ExpandPointerSwap ScheduleIterAlg"
    " DirectToVgprA DirectToVgprB DirectToLds StaggerU StaggerUStride StaggerUMapping GlobalSplitU"
    " GlobalSplitUAlgorithm WorkGroup WorkGroupMapping WorkGroupMappingXCC ThreadTile"
    " MatrixInstruction 1LDSBuffer DepthU NonTemporalD NonTemporalC NonTemporalA NonTemporalB"
    " StoreRemapVectorWidth SourceSwap StorePriorityOpt NumElementsPerBatchStore StoreSyncOpt"
).split()


def typeName(problemType) -> str:
    """The name after the indices: _HHS_BH_UserArgs."""
    dataType = problemType["DataType"]
    name = ""
    if {problemType["DataTypeA"], problemType["DataTypeB"]} != {dataType}:
        name += "_%s%s" % (problemType["DataTypeA"], problemType["DataTypeB"])
    name += "_%s" % dataType
    types = (dataType, problemType["DestDataType"], problemType["ComputeDataType"])
    if tuple(str(one) for one in types) in _fullTypes:
        name += "%s%s_" % types[1:]
    if str(problemType["F32XdlMathOp"]) != "S" and str(dataType) == "S":
        name += "_M%s_" % problemType["F32XdlMathOp"]
    name += "B" if problemType["UseBeta"] else ""
    if problemType["HighPrecisionAccumulate"] and not problemType["SilentHighPrecisionAccumulate"]:
        name += "H"
    name += "I" if problemType["UseInitialStridesAB"] else ""
    name += "Ic" if problemType["UseInitialStridesCD"] else ""
    return name + _epilogueName(problemType)


def _epilogueName(problemType) -> str:
    """What is done to C before it becomes D, and how the call is made."""
    name = ""
    if problemType["UseBias"]:
        name += "_Bias"
        if problemType["BiasDataTypeList"] != problemType.defaultBiasTypes():
            name += "".join(str(one) for one in problemType["BiasDataTypeList"])
        name += "_BiasSrc%s" % problemType["BiasSrc"] if problemType["Gradient"] else ""
    factorDim = max(problemType["UseScaleAlphaVec"], problemType["UseBias"])
    name += {2: "_FDN", 3: "_FDMN"}.get(int(factorDim), "")
    if problemType["UseE"]:
        kind = "Grad" if problemType["Gradient"] else "Aux"
        name += "_%s%s" % (kind, problemType["DataTypeE"])
    name += "_AmaxD" if problemType["OutputAmaxD"] else ""
    name += {0: "", 2: "_SPB"}.get(int(problemType["Sparse"]), "_SPA")
    if problemType["GroupedGemm"]:
        name += "_GG"
    elif not problemType["StridedBatched"]:
        name += "_GB"
    activation = {"none": "", "all": "_A", "hipblaslt_all": "_HA"}[problemType["ActivationType"]]
    name += activation + (str(problemType["ActivationComputeDataType"]) if activation else "")
    name += "NG" if problemType["ActivationNoGuard"] else ""
    name += {"Scalar": "_SAB", "Vector": "_SABV"}.get(problemType["UseScaleAB"], "")
    name += "_SCD" if problemType["UseScaleCD"] else ""
    name += "_SAV" if problemType["UseScaleAlphaVec"] else ""
    return name + ("_UserArgs" if problemType["SupportUserArgs"] else "")


def typeEntries(step) -> list:
    """The INI's lines about the problem type, in order, with the lists that multiply sizes."""
    kind = step.problemType
    entries = [
        ("compute-input-type", kind["DataType"].word),
        ("a-type", kind.inputWords[0]),
        ("b-type", kind.inputWords[1]),
        ("c-type", kind["DestDataType"].word),
        ("d-type", kind["DestDataType"].word),
    ]
    if kind["UseE"]:
        entries.append(("e-type", kind["DataTypeE"].word))
    if kind["OutputAmaxD"]:
        entries.append(("amaxD-type", kind["DataTypeAmaxD"].word))
    entries += [
        ("alpha-type", kind["ComputeDataType"].word),
        ("beta-type", kind["ComputeDataType"].word),
        ("f32-xdl-math-op", kind["F32XdlMathOp"].word),
        ("activation-compute-type", kind["ActivationComputeDataType"].word),
        ("use-gradient", kind["Gradient"]),
        ("use-bias", kind["UseBias"]),
        ("bias-source", "ABCD".index(kind["BiasSrc"])),
        ("use-e", kind["UseE"]),
        ("output-amaxD", kind["OutputAmaxD"]),
        ("use-scaleAB", kind["UseScaleAB"]),
        ("use-scaleCD", kind["UseScaleCD"]),
        ("use-scaleAlphaVec", kind["UseScaleAlphaVec"]),
    ]
    entries += [("bias-type-args", dataType.word) for dataType in step.biasTypes]
    entries += [("factor-dim-args", dim) for dim in step.factorDims]
    entries += [("icache-flush-args", flag) for flag in step.icacheFlush]
    return entries + [
        ("sparse", int(kind["Sparse"])),
        ("high-precision-accumulate", kind["HighPrecisionAccumulate"]),
        ("strided-batched", kind["StridedBatched"]),
        ("grouped-gemm", kind["GroupedGemm"]),
    ]


def strideEntries(step, problem, strides: dict) -> list:
    """Lines after a size's own strides: those of E and of the bias."""
    kind = step.problemType
    entries = [("e-strides", strides["D"])] if kind["UseE"] else []
    if kind["UseBias"]:
        length = problem.sizes[0]
        if kind["Sparse"] and len(step.factorDims) > 1:
            length = max(problem.sizes[:2])
        elif kind["Sparse"] and 1 in step.factorDims:
            length = problem.sizes[1]
        last = dict(kind["SetConstStrideBias"]).get(2, 0)
        entries.append(("bias-strides", [1, length, length if last == -1 else last]))
    return entries


def activationEntries(step) -> list:
    """Lines between the sizes and the device."""
    entries = [("activation-enum-args", name.capitalize()) for name in step.activations]
    entries += [
        ("activation-type", step.problemType["ActivationType"].capitalize()),
        ("activation-no-guard", step.problemType["ActivationNoGuard"]),
    ]
    extra = globalParameters["DataInitValueActivationArgs"]
    return entries + ([("activation-additional-args", extra)] if extra else [])


# (key of the INI, global parameter), in the INI's order; "?" drops a line whose value is zero.
beforeData = [("device-idx", "Device"), ("init-seed", "DataInitSeed")]
dataKeys = (
    "init-a init-b init-c init-d init-e init-alpha init-beta init-bias"
    " init-scaleA init-scaleB init-scaleC init-scaleD init-scaleAlphaVec"
).split()
afterData = [
    ("c-equal-d", "CEqualD"),
    ("print-tensor-a", "PrintTensorA?"),
    ("print-tensor-b", "PrintTensorB?"),
    ("print-tensor-c", "PrintTensorC?"),
    ("print-tensor-d", "PrintTensorD?"),
    ("print-tensor-ref", "PrintTensorRef?"),
    ("print-tensor-bias", "PrintTensorBias?"),
    ("print-tensor-amaxd", "PrintTensorAmaxD?"),
    ("dump-tensors", "DumpTensors?"),
    ("exit-on-error", "ExitOnFails?"),
    ("prune-mode", "PruneSparseMode"),
    ("bounds-check", "BoundsCheck"),
    ("print-valids", "ValidationPrintValids"),
    ("print-max", "ValidationMaxToPrint"),
    ("num-benchmarks", "NumBenchmarks"),
    ("num-elements-to-validate", "NumElementsToValidate"),
    ("num-enqueues-per-sync", "EnqueuesPerSync"),
    ("max-enqueues-per-sync", "MaxEnqueuesPerSync"),
    ("num-syncs-per-benchmark", "SyncsPerBenchmark"),
    ("use-gpu-timer", "KernelTime"),
    ("hardware-monitor", "HardwareMonitor"),
    ("num-warmups", "NumWarmups"),
    ("min-flops-per-sync", "MinFlopsPerSync"),
    ("sleep-percent", "SleepPercent"),
    ("perf-l2-read-hits", "PerfModelL2ReadHits"),
    ("perf-l2-write-hits", "PerfModelL2WriteHits"),
    ("perf-l2-read-bw-mul", "PerfModelL2ReadBwMul"),
    ("perf-read-efficiency", "PerfModelReadEfficiency"),
    ("csv-export-extra-cols", "CSVExportWinner"),
    ("csv-merge-same-problems", "CSVMergeSameProblemID"),
    ("log-level", "ClientLogLevel"),
    ("max-workspace-size", "MaxWorkspaceSize"),
    ("PrintWinnersOnly", "PrintWinnersOnly"),
    ("granularity-threshold", "GranularityThreshold"),
    ("pristine-on-gpu", "PristineOnGPU"),
    ("library-update-file", "LibraryUpdateFile"),
    ("library-update-comment", "LibraryUpdateComment"),
    ("use-user-args", "UseUserArgs"),
    ("rotating-buffer-size", "RotatingBufferSize"),
    ("rotating-buffer-mode", "RotatingMode"),
]


def clientLines(command: str, configFile: str, option: str) -> list:
    """run.sh's lines that run the client and keep its exit status."""
    if option:
        return ["%s --config-file %s %s %s" % (command, configFile, _arguments(), option)]
    return [
        "set +e",
        "ERR1=0",
        "%s --config-file %s %s" % (command, configFile, _arguments()),
        "ERR2=$?",
        "",
        "ERR=0",
        "if [[ $ERR1 -ne 0 ]]; then echo one; ERR=$ERR1; fi",
        "if [[ $ERR2 -ne 0 ]]; then echo two; ERR=$ERR2; fi",
    ]


def _arguments() -> str:
    return globalParameters["ClientArgs"]


def librarySolution(solution, index: int, architecture: str) -> dict:
    """A solution as the library file holds it."""
    kind = solution.problemType
    return {
        "debugKernel": False,
        "hardwarePredicate": {
            "type": "AMDGPU",
            "value": {"type": "Processor", "value": architecture},
        },
        "ideals": {},
        "index": index,
        "kernelName": solution.name,
        "libraryLogicIndex": -1,
        "linearModel": {},
        "name": solution.name,
        "problemPredicate": {"type": "TruePred"},
        "problemType": {
            "aType": kind.inputWords[0],
            "bType": kind.inputWords[1],
            "cType": kind["DestDataType"].word,
            "computeInputType": kind["DataType"].word,
            "computeType": kind["ComputeDataType"].word,
            "dType": kind["DestDataType"].word,
            "highPrecisionAccumulate": kind["HighPrecisionAccumulate"],
            "operationIdentifier": kind.operationIdentifier,
            "useBeta": kind["UseBeta"],
        },
        "sizeMapping": {
            "depthU": solution.parameters.get("DepthU", 16),
            "globalSplitU": solution.parameters.get("GlobalSplitU", 1),
            "macroTile": [*solution.macroTile, 1],
            "workGroupMapping": solution.parameters.get("WorkGroupMapping", 8),
        },
    }


def codeObjects(solutions: list, architecture: str) -> list:
    """Names of the step's code objects: helper kernels, then one file or one per kernel."""
    helper = "Kernels.so-000-%s.hsaco" % architecture
    if globalParameters["MergeFiles"]:
        return [helper, "TensileLibrary_%s.co" % architecture]
    return [helper] + [shortName(one.name) + "_%s.co" % architecture for one in solutions]
