# SPDX-License-Identifier: MIT
"""The ClientParameters.ini that the host will write for a step, as far as it can be told before.

It holds what decides how long the client takes, and how its work may be cut: sizes, the lists that
multiply them, types, repetitions. Keys and values are those of the hosts' ClientWriter and
SolutionStructs (TensileLite 2024 and 2025, classic 4.44). Strides, data initialisation and the
like are not there.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .ClientConfig import ClientConfig, Entry
from .ConfigSteps import (
    MISSHAPEN,
    ConfigStep,
    groupOf,
    indicesOf,
    reasonOf,
    sizesOfStep,
)
from .Host import Host

# Key of the INI -> global parameter, and its default in all trees.
_PARAMETERS: Dict[str, Tuple[str, Any]] = {
    "performance-metric": ("PerformanceMetric", "DeviceEfficiency"),
    "num-benchmarks": ("NumBenchmarks", 1),
    "num-elements-to-validate": ("NumElementsToValidate", 128),
    "num-enqueues-per-sync": ("EnqueuesPerSync", 1),
    "num-syncs-per-benchmark": ("SyncsPerBenchmark", 1),
    "num-warmups": ("NumWarmups", 0),
    "sleep-percent": ("SleepPercent", 300),
}
_TENSILELITE_PARAMETERS: Dict[str, Tuple[str, Any]] = {
    "max-enqueues-per-sync": ("MaxEnqueuesPerSync", -1),
    "min-flops-per-sync": ("MinFlopsPerSync", 1),
}
# Written only where they are not zero, or by newer hosts only.
_OPTIONAL_PARAMETERS: Dict[str, Tuple[str, Any]] = {
    "dump-tensors": ("DumpTensors", False),
    "skip-slow-solution-ratio": ("SkipSlowSolutionRatio", 0.0),
}

# Those that must be whole numbers, with the least one that could be meant.
COUNTING_PARAMETERS = {
    name: {"NumBenchmarks": 1, "NumWarmups": 0, "SleepPercent": 0}.get(name, -(2**31))
    for name, _ in [*_PARAMETERS.values(), *_TENSILELITE_PARAMETERS.values()]
    if name != "PerformanceMetric"
}

# Letter in problem type names -> (name in configs, word of the client): the hosts' DataType.py.
_TYPES = {
    "S": ("single", "Float"),
    "D": ("double", "Double"),
    "C": ("complexSingle", "ComplexFloat"),
    "Z": ("complexDouble", "ComplexDouble"),
    "H": ("half", "Half"),
    "4xi8": ("int8x4", "Int8x4"),
    "I": ("int32", "Int32"),
    "B": ("bfloat16", "BFloat16"),
    "I8": ("int8", "Int8"),
    "I64": ("int64", "Int64"),
    "X": ("xfloat32", "XFloat32"),
    "F8": ("float8", "Float8"),
    "B8": ("bfloat8", "BFloat8"),
    "F8B8": ("float8Bfloat8", "Float8BFloat8"),
    "B8F8": ("bfloat8Float8", "BFloat8Float8"),
}
# The first nine have the same number in every tree.
_NUMBERED = tuple(_TYPES)[:9]

# Asks for a global parameter by name; None where neither config nor command line has it.
Parameter = Callable[[str], Any]


def expectedIni(
    config: Any, step: ConfigStep, parameter: Parameter, defaults: Mapping[str, Any], classic: bool
) -> Tuple[Optional[ClientConfig], str]:
    """(the INI of a step; why it cannot be told, or "").

    Args:
        config: in the default format.
        step: of configSteps.
        parameter: what the user sets.
        defaults: global parameter -> value, where the host's own are known.
        classic: whether a classic Tensile writes it.
    """
    try:
        parts = config["BenchmarkProblems"][step.entry]
        entries = _typeEntries(parts[0], classic)
        if not classic:
            entries += _lists(groupOf(parts, step.group) or {}, step)
        indices = indicesOf(parts[0])[0]
        for entry in sizesOfStep(config, parts, step.group):
            entries.append(("problem-size", ",".join(map(str, _extents(entry, indices)))))
    except MISSHAPEN as error:
        return None, "its sizes or its type cannot be told%s" % reasonOf(error)
    return ClientConfig(tuple(entries + _parameterEntries(parameter, defaults, classic))), ""


def hostDefaults(host: Optional[Host]) -> Dict[str, Any]:
    """The host's own values of the parameters above, as its source has them."""
    source = ""
    if host is not None:
        source = host.module("Common.py") or host.module("Common", "GlobalParameters.py")
    found = {}
    pattern = r'globalParameters\["(\w+)"\]\s*=\s*\(?\s*(-?\d+(?:\.\d+)?|True|False)\b'
    for name, text in re.findall(pattern, source):
        found[name] = text == "True" if text in ("True", "False") else float(text)
    wanted = [*_PARAMETERS.values(), *_TENSILELITE_PARAMETERS.values()]
    wanted += _OPTIONAL_PARAMETERS.values()
    return {name: _plain(found[name]) for name, _ in wanted if name in found}


def describeType(problemType: Any) -> str:
    """A problem type in a few words: "TN HHS bias act"; "?" where it cannot be told."""
    try:
        return _describeType(problemType)
    except MISSHAPEN:
        return "?"


def _describeType(problemType: Any) -> str:
    operation = str(problemType.get("OperationType") or "GEMM")
    letters = [_letter(value) for value in _tensorTypes(problemType)]
    words = ["NT"[bool(problemType.get("Transpose" + each, each == "B"))] for each in "AB"]
    parts = ["".join(words) if operation == "GEMM" else operation]
    parts.append("".join(letters) if letters != letters[:1] * 3 else letters[0])
    for key, word in (("UseBias", "bias"), ("UseScaleAlphaVec", "vec")):
        parts += [word] if problemType.get(key) else []
    kind = str(problemType.get("ActivationType", "none")).lower()
    parts += ["act"] if "Activation" in problemType and kind in ("all", "hipblaslt_all") else []
    for key, word in (("Sparse", "sparse"), ("GroupedGemm", "grouped"), ("Gradient", "gradient")):
        parts += [word] if problemType.get(key) else []
    return " ".join(parts)


def _typeEntries(problemType: Any, classic: bool) -> List[Entry]:
    a, b, c, _ = _inputTypes(problemType)
    entries = [("problem-identifier", _identifier(problemType))]
    entries += [("a-type", a), ("b-type", b), ("c-type", c), ("d-type", c)]
    if not classic:
        for key, name in (("use-bias", "UseBias"), ("use-scaleAlphaVec", "UseScaleAlphaVec")):
            entries.append((key, str(int(problemType.get(name) or 0))))
        entries.append(("grouped-gemm", str(bool(problemType.get("GroupedGemm")))))
    return entries


def _identifier(problemType: Any) -> str:
    """The client's name for the contraction: Contraction_l_Alik_Bljk_Cijk_Dijk."""
    operation = problemType.get("OperationType") or "GEMM"
    if operation == "GEMM":
        batch = [2] if problemType.get("Batched") else []
        free = last = 2 + len(batch)
        a = [last, 0] if problemType.get("TransposeA") else [0, last]
        b = [1, last] if problemType.get("TransposeB", True) else [last, 1]
        a, b = a + batch, b + batch
    elif operation == "TensorContraction":
        a, b = problemType["IndexAssignmentsA"], problemType["IndexAssignmentsB"]
        free = problemType["NumIndicesC"]
    else:
        raise ValueError("OperationType %s" % operation)
    inputs = []
    for name, numbers in (("A", a), ("B", b)):
        mirrored = problemType.get("MirrorDims" + name) or ()
        letters = [_index(at).upper() if at in mirrored else _index(at) for at in numbers]
        conjugate = "C" if problemType.get("ComplexConjugate" + name) else ""
        inputs.append(name + "".join(letters) + conjugate)
    summed = "".join(_index(at) for at in range(free, 1 + max([*a, *b])))
    result = "".join(_index(at) for at in range(free))
    return "Contraction_%s_%s_C%s_D%s" % (summed, "_".join(inputs), result, result)


def _index(number: int) -> str:
    return "ijklmnopqrstuvwxyz"[number]


def _letter(value: Any) -> str:
    """The letter of a data type that the config gives as a number, a letter, a name or a word."""
    if isinstance(value, int):
        return _NUMBERED[value]
    text = str(value).lower()
    for letter, words in _TYPES.items():
        if text in (letter.lower(), words[0].lower(), words[1].lower()):
            return letter
    return str(value)  # of a newer host: its word is its name


def _tensorTypes(problemType: Any) -> Sequence[Any]:
    """Data type, type of the result, type of the computation, as written."""
    data = problemType["DataType"]
    result = problemType.get("DestDataType", data)
    return data, result, problemType.get("ComputeDataType", result)


def _inputTypes(problemType: Any) -> List[str]:
    """The client's words for the types of A, B, result and computation."""
    data, result, compute = _tensorTypes(problemType)
    letters = [_letter(problemType.get("DataType" + each, data)) for each in "AB"]
    for hybrid, parts in (("F8B8", ["F8", "B8"]), ("B8F8", ["B8", "F8"])):
        letters = parts if hybrid in letters else letters
    letters += [_letter(result), _letter(compute)]
    return [_TYPES[letter][1] if letter in _TYPES else letter for letter in letters]


def _lists(group: Any, step: ConfigStep) -> List[Entry]:
    """The lists that multiply the sizes, as long as configSteps counts them."""
    given: Dict[str, Any] = {}
    for final in (group.get("BenchmarkFinalParameters") or [])[1:]:
        given.update({key: value for key, value in final.items() if value is not None})
    entries = []
    for value in given.get("BiasTypeArgs", ())[: step.biases]:
        letter = _letter(value)
        entries.append(("bias-type-args", _TYPES[letter][1] if letter in _TYPES else letter))
    for value in given.get("FactorDimArgs", ())[: step.factors]:
        entries.append(("factor-dim-args", str(value)))
    for value in given.get("ICacheFlush", (False,)):
        entries.append(("icache-flush-args", str(value)))
    for setting in given.get("ActivationArgs", ())[: step.activations]:
        names = [each["Enum"] for each in setting if "Enum" in each]
        entries.append(("activation-enum-args", str(names[-1]).capitalize()))
    return entries


def _extents(entry: Any, indices: Optional[int]) -> Sequence[int]:
    """The extents of one size, without leading dimensions.

    Raises:
        ValueError: it is a convolution's, too short, or below 0.
    """
    if "Exact" not in entry:
        raise ValueError("it has convolutions")
    value = entry["Exact"]
    extents = value["sizes"] if isinstance(value, dict) else value
    extents = [int(each) for each in (extents if indices is None else extents[:indices])]
    if min(extents) < 0 or indices is not None and len(extents) < indices:
        raise ValueError("Exact %s is no size of this type" % (value,))
    return extents


def _parameterEntries(
    parameter: Parameter, defaults: Mapping[str, Any], classic: bool
) -> List[Entry]:
    table = dict(_PARAMETERS)
    if not classic:
        table.update(_TENSILELITE_PARAMETERS)
    entries = []
    for key, (name, default) in {**table, **_OPTIONAL_PARAMETERS}.items():
        given = parameter(name)
        value = defaults.get(name, default) if given is None else given
        if value or key in table:
            entries.append((key, str(_plain(value))))
    return entries


def _plain(value: Any) -> Any:
    """A number without a fraction as an integer; all else as it is."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
