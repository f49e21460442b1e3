# SPDX-License-Identifier: MIT
"""Problem types, sizes and solutions: from a config's words to what the client is told.

The rules are those of the real hosts' SolutionStructs, for OperationType GEMM and
TensorContraction.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Optional

from . import Generation
from .Common import globalParameters, printExit, printWarning
from .DataType import DataType

_defaults: dict = {
    "OperationType": "GEMM",
    "UseBeta": True,
    "UseE": False,
    "Gradient": False,
    "UseBias": 0,
    "BiasSrc": "D",
    "UseScaleAB": "",
    "UseScaleCD": False,
    "UseScaleAlphaVec": 0,
    "HighPrecisionAccumulate": False,
    "SilentHighPrecisionAccumulate": False,
    "Sparse": 0,
    "ComplexConjugateA": False,
    "ComplexConjugateB": False,
    "StochasticRounding": False,
    "TransposeA": False,
    "TransposeB": True,
    "Batched": False,
    "StridedBatched": True,
    "GroupedGemm": False,
    "IndexAssignmentsA": [0, 2],
    "IndexAssignmentsB": [1, 2],
    "NumIndicesC": 2,
    "NumIndicesLD": 4,
    "UseInitialStridesAB": False,
    "UseInitialStridesCD": False,
    "SetConstStrideA": [],
    "SetConstStrideB": [],
    "SetConstStrideBias": [],
    "MirrorDimsA": [],
    "MirrorDimsB": [],
    "Fp16AltImpl": False,
    "Fp16AltImplRound": False,
    "Activation": False,
    "ActivationNoGuard": False,
    "OutputAmaxD": False,
    "SupportUserArgs": True,
}


class ProblemType:
    """What kind of contraction; ``problemType[key]`` reads it, str() is its name in paths."""

    def __init__(self, config: dict):
        self.state: dict = deepcopy({key: config.get(key, _defaults[key]) for key in _defaults})
        self._assignTypes(config)
        if self["OperationType"] == "GEMM":
            self._assignGemmIndices()
        elif self["OperationType"] == "TensorContraction" and Generation.tensorContraction:
            self["NumIndicesLD"] = 0
        else:
            printExit("Unsupported OperationType = %s" % self["OperationType"])
        self["TotalIndices"] = 1 + max(self["IndexAssignmentsA"] + self["IndexAssignmentsB"])
        self._assignBias(config)
        self._assignActivation(config)

    def __getitem__(self, key: str) -> Any:
        return self.state[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.state[key] = value

    def __str__(self) -> str:
        return self._indexName() + Generation.typeName(self)

    def _assignTypes(self, config: dict) -> None:
        """The types of the tensors; each that is not given follows another that is."""
        if "DataType" not in config:
            printExit("NO data type specified")
        given = {
            key: DataType(config[key]) for key in _typeFallbacks if config.get(key) is not None
        }
        for key, fallback in _typeFallbacks.items():
            self[key] = given.get(key) or self[fallback]
        self["F32XdlMathOp"] = DataType(config.get("F32XdlMathOp", 0))
        compute = self["ComputeDataType"].letter
        if self["HighPrecisionAccumulate"] and self["DataType"].letter == compute:
            if compute in ("H", "B"):
                printWarning("Inconsistent DataTypes: setting the compute data type to f32.")
                self["ComputeDataType"] = DataType("S")
            if compute == "I8":
                self["ComputeDataType"] = DataType("I")

    def _assignGemmIndices(self) -> None:
        """Indices 0 and 1 are free, 2 is the batch if there is one, the last is summed over."""
        batch = [2] if self["Batched"] else []
        summed = 3 if self["Batched"] else 2
        self["IndexAssignmentsA"] = ([summed, 0] if self["TransposeA"] else [0, summed]) + batch
        self["IndexAssignmentsB"] = ([1, summed] if self["TransposeB"] else [summed, 1]) + batch
        self["NumIndicesC"] = 2 + len(batch)

    def _assignBias(self, config: dict) -> None:
        if not self["Gradient"]:
            self["BiasSrc"] = "D"
        self["BiasDataTypeList"] = []
        if "UseBias" in config:
            given = config.get("BiasDataTypeList")
            self["BiasDataTypeList"] = (
                self.defaultBiasTypes() if given is None else sorted(DataType(t) for t in given)
            )

    def _assignActivation(self, config: dict) -> None:
        wanted = str(config.get("ActivationType", "none")).lower()
        isOn = "Activation" in config and wanted in ("all", "hipblaslt_all")
        self["ActivationType"] = wanted if isOn else "none"
        self["ActivationComputeDataType"] = DataType(
            config.get("ActivationComputeDataType") or self["ComputeDataType"]
        )
        if isOn and self["ActivationComputeDataType"] not in (
            self["ComputeDataType"],
            self["DestDataType"],
        ):
            self["ActivationComputeDataType"] = self["ComputeDataType"]
        self["UseE"] = isOn and bool(self["UseE"] or self["Gradient"])
        self["ActivationNoGuard"] = bool(isOn and self["Gradient"] and self["ActivationNoGuard"])

    @property
    def inputWords(self) -> tuple:
        """The client's words for the types of A and B; a hybrid type is two."""
        types = (self["DataTypeA"], self["DataTypeB"])
        for hybrid, parts in (("F8B8", ("F8", "B8")), ("B8F8", ("B8", "F8"))):
            if DataType(hybrid) in types:
                types = tuple(DataType(part) for part in parts)
        return types[0].word, types[1].word

    def defaultBiasTypes(self) -> list:
        """The bias types of a config that names none: those of the tensors, int8 excepted."""
        types = {self[key] for key in ("DataType", "ComputeDataType", "DestDataType")}
        return sorted(found for found in types if found.letter != "I8")

    def _indexName(self) -> str:
        """C, A and B as the indices they run over: Cijk_Ailk_Bjlk."""
        name = "C" + "".join(self._letter(i) for i in range(self["NumIndicesC"]))
        for tensor in "AB":
            name += "_" + tensor
            for index in self["IndexAssignments" + tensor]:
                isMirrored = index in self["MirrorDims" + tensor]
                name += self._letter(index).upper() if isMirrored else self._letter(index)
            name += "C" if self["ComplexConjugate" + tensor] else ""
        return name

    @staticmethod
    def _letter(index: int) -> str:
        return globalParameters["IndexChars"][index].lower()

    @property
    def operationIdentifier(self) -> str:
        """The client's name for the contraction: Contraction_l_Alik_Bljk_Cijk_Dijk."""
        inC, total = self["NumIndicesC"], self["TotalIndices"]
        cName = "".join(self._letter(index) for index in range(inC))
        summed = "".join(self._letter(index) for index in range(inC, total))
        a, b = self._indexName().split("_")[1:]
        return "Contraction_%s_%s_%s_C%s_D%s" % (summed, a, b, cName, cName)

    def toState(self) -> dict:
        """As plain values for YAML; data types become their numbers."""

        def plain(value):
            if isinstance(value, list):
                return [plain(item) for item in value]
            return value.value if isinstance(value, DataType) else value

        return {key: plain(value) for key, value in self.state.items()}


# A type that the config does not give is that of the second; a key follows its fallback.
_typeFallbacks = {
    "DataType": "DataType",
    "DataTypeA": "DataType",
    "DataTypeB": "DataType",
    "DestDataType": "DataType",
    "DataTypeE": "DestDataType",
    "ComputeDataType": "DestDataType",
    "DataTypeAmaxD": "ComputeDataType",
}


class Problem:
    """One size: the free, batch and summed extents, then for GEMM LDD, LDC, LDA, LDB."""

    def __init__(self, sizes: tuple, strides: Optional[dict] = None):
        self.sizes = sizes
        self.strides = strides or {}

    @classmethod
    def fromExact(cls, exact, problemType: ProblemType) -> Problem:
        """From the value of an Exact entry: a list, or a mapping with sizes and strides."""
        strides: dict = {}
        if isinstance(exact, dict):
            unknown = set(exact) - set(Generation.exactFields)
            if unknown:
                name = sorted(unknown)[0]
                raise RuntimeError("specified field '%s' is not a valid Exact dict field" % name)
            strides = {t: exact["strides" + t] for t in "ABCD" if exact.get("strides" + t)}
            sizes = list(exact["sizes"]) + [-1] * problemType["NumIndicesLD"]
        elif isinstance(exact, list):
            sizes = list(exact)
            if len(sizes) == problemType["TotalIndices"]:
                sizes += [-1] * problemType["NumIndicesLD"]
            if len(sizes) != problemType["TotalIndices"] + problemType["NumIndicesLD"]:
                printExit(
                    "ExactSize %s doesn't match indices of ProblemType %s, totalIndices=%d"
                    % (exact, problemType, problemType["TotalIndices"])
                )
        else:
            printExit("Unsupported Exact type==%s" % type(exact))
        return cls(withLeadingDimensions(problemType, sizes, strides), strides)

    def __str__(self) -> str:
        if not self.strides:
            return str(list(self.sizes))
        fields = ["sizes: %s" % list(self.sizes)]
        fields += ["strides%s: %s" % (t, list(s)) for t, s in self.strides.items()]
        return "{ %s }" % ", ".join(fields)


def withLeadingDimensions(problemType: ProblemType, sizes: list, strides: dict) -> tuple:
    """Leading dimensions at least as large as the extent they step over; strides go first."""
    if problemType["OperationType"] != "GEMM":
        return tuple(sizes)
    count = problemType["NumIndicesC"] + 1
    least = {
        "D": sizes[0],
        "C": sizes[0],
        "A": sizes[problemType["IndexAssignmentsA"][0]],
        "B": sizes[problemType["IndexAssignmentsB"][0]],
    }
    leading = []
    for offset, tensor in enumerate("DCAB"):
        given = strides.get(tensor, [-1, -1])[1]
        leading.append(max(sizes[count + offset], least[tensor]) if given == -1 else given)
    return tuple(sizes[:count]) + tuple(leading)


def _rangeValues(descriptor: list) -> list:
    """The values of one sized index: [n], [step, max], [min, step, max] or
    [min, step, growth of the step, max]."""
    full = {
        1: lambda n: (n, 1, 0, n),
        2: lambda step, last: (step, step, 0, last),
        3: lambda first, step, last: (first, step, 0, last),
        4: lambda first, step, growth, last: (first, step, growth, last),
    }
    if len(descriptor) not in full:
        printExit("dimension config (%s) has %d descriptors" % (descriptor, len(descriptor)))
    size, step, growth, last = full[len(descriptor)](*descriptor)
    values = [size]  # the first is there even if it lies beyond the last
    while size + step <= last and step > 0:
        size += step
        step += growth
        values.append(size)
    return values


def expandRange(problemType: ProblemType, config: list) -> list:
    """All sizes of a Range, the first sized index running fastest.

    An entry is a list (a sized index) or a number (the index whose size it repeats); indices
    that are not there are mapped to index 0, leading dimensions are then 0, that is the least.
    """
    count = problemType["TotalIndices"]
    dims = list(config)
    dims += [0] * (count - len(dims))
    dims += [[0]] * (count + problemType["NumIndicesLD"] - len(dims))
    sized = [_rangeValues(dim) for dim in dims if isinstance(dim, list)]
    total = 1
    for values in sized:
        total *= len(values)
    problems = []
    sizes = [0] * len(dims)  # kept: a mapped index before its own sees the previous size
    for number in range(total):
        rest = number
        current = []
        for values in sized:
            current.append(values[rest % len(values)])
            rest //= len(values)
        pending = iter(current)
        for position, dim in enumerate(dims):
            sizes[position] = next(pending) if isinstance(dim, list) else sizes[dim]
        problems.append(Problem(withLeadingDimensions(problemType, list(sizes), {})))
    return problems


class ProblemSizes:
    """The sizes of a step in the client's order: all ranges first, then the exact ones."""

    def __init__(self, problemType: ProblemType, config: Optional[list]):
        self.ranges: list = []
        self.exacts: list = []
        ranged: list = []
        hasMinStride = False
        for entry in config or []:
            for kind, value in entry.items():
                if kind == "Range":
                    self.ranges.append(value)
                    ranged += expandRange(problemType, value)
                elif kind == "Exact":
                    self.exacts.append(Problem.fromExact(value, problemType))
                elif kind == "MinStride":
                    # Only sizes the real hosts' buffers; the client is not told.
                    if len(value) != problemType["TotalIndices"]:
                        printExit("MinStride %s doesn't match %s" % (value, problemType))
                    if hasMinStride:
                        printExit("Only one MinStride command is allowed in ProblemSizes.")
                    hasMinStride = True
                else:
                    printExit("ProblemSize Type %s not supported" % kind)
        self.problems = ranged + self.exacts
        if globalParameters["SortProblems"]:
            self.problems = sorted(self.problems, key=lambda problem: problem.sizes)


def biasTypes(problemType: ProblemType, config: Optional[list]) -> list:
    """BiasTypeArgs, which a type with a bias must have."""
    if not problemType["UseBias"]:
        return []
    found = [DataType(name) for name in config or []]
    for dataType in found:
        if dataType not in problemType["BiasDataTypeList"]:
            printWarning("Datatype: %s not support in this kernel" % dataType)
    if not found:
        printExit("Must provide a bias type in benchmark parameters if UseBias is set to True.")
    return found


def factorDims(problemType: ProblemType, config: Optional[list]) -> list:
    """FactorDimArgs, for types with a bias or a vector of alphas."""
    if not (problemType["UseScaleAlphaVec"] or problemType["UseBias"]):
        return []
    return [int(dim) for dim in config or []]


def activations(problemType: ProblemType, config: Optional[list]) -> list:
    """ActivationArgs, for types with an activation: lists of one {Enum: name} each."""
    if problemType["ActivationType"] == "none":
        return []
    found = []
    for setting in config or []:
        names = [entry["Enum"] for entry in setting if "Enum" in entry]
        if not names:
            printExit("Must provide an activation enum if Activation is set to True.")
        found.append(str(names[-1]).lower())
    if problemType["ActivationType"] == "all" and not found:
        printExit(
            "Must provide an activation enum in benchmark parameters if Activation is set to True."
        )
    return found


class Solution:
    """One kernel's parameters; equal parameters make an equal solution."""

    def __init__(self, problemType: ProblemType, parameters: dict, name: str = ""):
        self.problemType = problemType
        self.parameters = parameters
        self.name = name

    @property
    def macroTile(self) -> list:
        """The tile of C that a workgroup makes, from the matrix instruction or the threads'."""
        instruction = self.parameters.get("MatrixInstruction") or []
        if len(instruction) == 9:
            m, n, _, _, _, waveTile0, waveTile1, waves0, waves1 = instruction
            return [m * waveTile0 * waves0, n * waveTile1 * waves1]
        threads = self.parameters.get("ThreadTile") or [4, 4]
        group = self.parameters.get("WorkGroup") or [16, 16, 1]
        return [threads[0] * group[0], threads[1] * group[1]]

    @property
    def identity(self) -> str:
        """Equal for equal solutions, whatever group they come from."""
        return repr(sorted(self.parameters.items()))

    def toState(self) -> dict:
        """As plain values for the solutions file and the logic file."""
        state = deepcopy(self.parameters)
        state["ProblemType"] = self.problemType.toState()
        state["MacroTile0"], state["MacroTile1"] = self.macroTile
        state["SolutionNameMin"] = self.name
        return state


def nameSolutions(solutions: list, forked: list) -> None:
    """Names from the problem type, the macro tile and what was forked; unique within a step."""
    taken: set = set()
    for solution in solutions:
        custom = solution.parameters.get("CustomKernelName")
        name = custom or "%s_MT%dx%dx%s" % (
            solution.problemType,
            *solution.macroTile,
            solution.parameters.get("DepthU", 16),
        )
        for key in sorted(forked, key=_abbreviation):
            if not custom and key in solution.parameters and key != "DepthU":
                name += "_%s%s" % (_abbreviation(key), _valueText(solution.parameters[key]))
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = "%s_%d" % (name, number)
        taken.add(unique)
        solution.name = unique


def _abbreviation(key: str) -> str:
    return "".join(letter for letter in key if letter.isupper() or letter.isdigit())


def _valueText(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return "_".join(_valueText(item) for item in value)
    return str(value).replace("-", "n")
