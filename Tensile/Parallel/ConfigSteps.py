# SPDX-License-Identifier: MIT
"""A tuning config: how it is read, and which benchmark steps of how many problems it makes.

The rules are those of the hosts' BenchmarkStructs and SolutionStructs (TensileLite 2024 and 2025,
classic 4.44), which count after they have started for 45 s. A config that the host rejects is the
host's to reject: here it is counted as far as it can be.

A step has sizes, and the client makes problems of them: size by bias type, activation and factor
dim, or one single problem of all sizes where they are grouped. Its sizes are first those of every
Range, then those of every Exact (or Conv) entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import yaml

# Entries of ProblemSizes that are one problem size each, after those of all Ranges.
SINGLE_SIZES = ("Exact", "Conv")
# A range with more sizes than this is a mistake in the config (such as an increment of 0).
_MOST_SIZES = 1000000

# What a config of another shape than is expected gives.
MISSHAPEN = (
    *(ValueError, TypeError, KeyError, IndexError),
    *(AttributeError, RecursionError, ArithmeticError),
)

# What a group without BenchmarkFinalParameters is measured with (the hosts' Common.py).
_DEFAULT_SIZES = [{"Range": [[64, 64, 64, 512], 0, 0]}]
_DEFAULT_BATCHED_SIZES = [{"Range": [[64, 64, 64, 512], 0, [1], 0]}]

# How the remark on a group begins that the host would end at.
REFUSED = "Tensile no longer supports"

# Sections of a group that today's hosts refuse unless they are null.
_REFUSED = (
    "InitialSolutionParameters",
    "BenchmarkForkParameters",
    "JoinParameters",
    "BenchmarkJoinParameters",
)


@dataclass(frozen=True)
class ConfigStep:
    """A benchmark step that the host makes of a config.

    Attributes:
        entry: index in BenchmarkProblems, from 0.
        group: index of the size group in that entry, from 0.
        sizes: how many sizes it has; None where they cannot be told.
        biases: length of BiasTypeArgs; 0 where the problem type has no bias.
        activations: length of ActivationArgs; 0 where the type has no activation.
        factors: length of FactorDimArgs; 0 where the type has neither bias nor scaleAlphaVec.
        icache: length of ICacheFlush: how often the client goes through its list.
        bothFactors: whether the type is one for which the factor dims multiply the problems.
        grouped: whether all sizes make one problem.
        remark: what is in the way of counting, or will be refused; empty where nothing is.
    """

    entry: int
    group: int
    sizes: Optional[int]
    biases: int = 0
    activations: int = 0
    factors: int = 0
    icache: int = 1
    bothFactors: bool = False
    grouped: bool = False
    remark: str = ""

    @property
    def problems(self) -> Optional[int]:
        """How many problems the client makes of it; None where the sizes cannot be told."""
        if self.sizes is None or self.grouped:
            return self.sizes and 1
        factors = max(1, self.factors) if self.bothFactors else 1
        return self.sizes * max(1, self.biases) * max(1, self.activations) * factors


def configSteps(config: Any, classic: bool = False) -> List[ConfigStep]:
    """The benchmark steps of a config, in the order in which the host runs them.

    Args:
        config: as from readConfig. Not changed.
        classic: whether a classic Tensile runs it, which knows no lists but sizes.

    Returns:
        One for each size group; those that cannot be counted say why. Empty for a config without
        BenchmarkProblems.
    """
    entries = config.get("BenchmarkProblems") if isinstance(config, dict) else None
    steps = []
    for entry, parts in enumerate(entries if isinstance(entries, list) else ()):
        count = max(1, len(parts) - 1) if isinstance(parts, list) else 1
        for group in range(count):
            try:
                steps.append(_configStep(parts, entry, group, classic))
            except MISSHAPEN as error:
                remark = "its entry has another shape than is known%s" % reasonOf(error)
                steps.append(ConfigStep(entry, group, None, remark=remark))
    return steps


def _configStep(parts: Sequence[Any], entry: int, number: int, classic: bool) -> ConfigStep:
    problemType, group = parts[0], groupOf(parts, number) or {}
    remark = ""
    refused = [name for name in _REFUSED if group.get(name) is not None]
    if refused:
        remark = "%s %s" % (REFUSED, ", ".join(refused))
    sizes: Optional[int] = None
    try:
        sizes = len(unrollSizes(_wantedSizes(problemType, group), *indicesOf(problemType)))
    except MISSHAPEN as error:
        remark = remark or "its sizes cannot be told%s" % reasonOf(error)
    if classic:
        return ConfigStep(entry, number, sizes, remark=remark)
    lists = {}
    for final in (group.get("BenchmarkFinalParameters") or [])[1:]:
        lists.update({key: value for key, value in final.items() if value is not None})
    bias, vector = problemType.get("UseBias"), problemType.get("UseScaleAlphaVec")
    kind = str(problemType.get("ActivationType", "none")).lower()
    active = "Activation" in problemType and kind in ("all", "hipblaslt_all")
    return ConfigStep(
        entry,
        number,
        sizes,
        biases=len(lists.get("BiasTypeArgs", ())) if bias else 0,
        activations=len(lists.get("ActivationArgs", ())) if active else 0,
        factors=len(lists.get("FactorDimArgs", ())) if bias or vector else 0,
        icache=len(lists.get("ICacheFlush", (False,))),
        bothFactors=3 in (bias, vector),
        grouped=bool(problemType.get("GroupedGemm")),
        remark=remark,
    )


def reasonOf(error: Exception) -> str:
    """ " (the reason)" of one of MISSHAPEN, where it is in words of ours; else empty."""
    return " (%s)" % error if type(error) is ValueError else ""


def _wantedSizes(problemType: Any, group: Any) -> Sequence[dict]:
    """ProblemSizes of a group, or what the host takes where it has none."""
    if "BenchmarkFinalParameters" not in group:
        return _DEFAULT_BATCHED_SIZES if problemType.get("Batched") else _DEFAULT_SIZES
    final = group["BenchmarkFinalParameters"]
    if not final:
        raise ValueError("BenchmarkFinalParameters is empty")
    return final[0]["ProblemSizes"] or []


def readConfig(path: str, sizesPath: Optional[str] = None, alternateFormat: bool = False) -> Any:
    """A tuning config in the default format; an alternate one is converted as the host does.

    Args:
        path: the config file.
        sizesPath: the size list of the alternate format.
        alternateFormat: whether `path` is in the alternate format.

    Raises:
        OSError, UnicodeDecodeError, yaml.YAMLError: it cannot be read.
    """
    config = _load(path)
    if not alternateFormat or not isinstance(config, dict):
        return config
    sizes = _load(sizesPath) if sizesPath else []
    converted: Dict[str, Any] = {"GlobalParameters": config.get("GlobalParameters")}
    for key in ("LibraryLogic", "LibraryClient"):
        if key in config and sizes:
            converted[key] = config[key] if key == "LibraryLogic" else None
    group = {
        key: config.get(key)
        for key in ("BenchmarkCommonParameters", "ForkParameters", "GroupForkParameters")
    }
    group["BenchmarkFinalParameters"] = [{"ProblemSizes": sizes}]
    converted["BenchmarkProblems"] = [[config.get("ProblemType"), group]]
    return converted


def globalParameters(config: Any) -> Dict[str, Any]:
    """A config's GlobalParameters; none where it has none, or something else by that name."""
    parameters = config.get("GlobalParameters") if isinstance(config, dict) else None
    return parameters if isinstance(parameters, dict) else {}


def unrollSizes(problemSizes: Sequence[dict], indices: Optional[int], leading: int) -> List[dict]:
    """ProblemSizes as one entry per size, in the client's order.

    Args:
        problemSizes: the config's list of {Range: ...}, {Exact: ...}, {MinStride: ...}.
        indices: how many indices a problem of this type has; None where it is not known.
        leading: how many leading dimensions follow them in a long entry (4 for a GEMM).
    """
    ranges: List[dict] = []
    singles: List[dict] = []
    for dictionary in problemSizes:
        for key, value in dictionary.items():
            if key == "Range":
                ranges += [{"Exact": size} for size in _unrollRange(value, indices, leading)]
            elif key in SINGLE_SIZES:
                singles.append({key: value})
            elif key != "MinStride":
                raise ValueError("ProblemSizes: %s is not known" % key)
    return ranges + singles


def _unrollRange(dimensions: List[Any], indices: Optional[int], leading: int) -> List[List[int]]:
    """The sizes of one Range, first dimension fastest.

    A dimension is [size], [step, max], [min, step, max] or [min, step, growth, max], or the number
    of the dimension whose value it takes. Missing ones are 0.
    """
    total = len(dimensions) if indices is None else indices + leading
    dimensions = list(dimensions[:total])
    if indices is not None:
        # The host pads a missing size as equal to dimension 0 and a leading one as [0].
        while len(dimensions) < total:
            dimensions.append(0 if len(dimensions) < indices else [0])
    values = [_values(dimension) for dimension in dimensions if isinstance(dimension, list)]
    count = 1
    for choices in values:
        count *= len(choices)
    if count > _MOST_SIZES:
        raise ValueError("Range %s has more than %d sizes" % (dimensions, _MOST_SIZES))
    sizes: List[List[int]] = []
    size = [0] * len(dimensions)
    for number in range(count):
        sized = iter(values)
        for index, dimension in enumerate(dimensions):
            if isinstance(dimension, list):
                choices = next(sized)
                number, choice = divmod(number, len(choices))
                size[index] = choices[choice]
            else:
                size[index] = size[dimension]
        # Leading dimensions of 0 are the smallest possible ones, as in an entry without them.
        short = indices is not None and not any(size[indices:])
        sizes.append(size[:indices] if short else list(size))
    return sizes


def _values(dimension: List[int]) -> List[int]:
    forms = {
        1: lambda a: (a, 1, 0, a),
        2: lambda a, c: (a, a, 0, c),
        3: lambda a, b, c: (a, b, 0, c),
        4: lambda a, b, growth, c: (a, b, growth, c),
    }
    value, step, growth, last = forms[len(dimension)](*dimension)
    values = [value]  # the first is there even if it lies beyond the last
    while value + step <= last:
        value += step
        step += growth
        values.append(value)
        if step <= 0 and growth <= 0 or len(values) > _MOST_SIZES:
            raise ValueError("Range dimension %s does not end" % (dimension,))
    return values


def indicesOf(problemType: Any) -> Tuple[Optional[int], int]:
    """(indices of a problem, leading dimensions) of a problem type, as the host counts them."""
    if not isinstance(problemType, dict):
        return None, 0
    operation = problemType.get("OperationType", "GEMM")
    if operation == "GEMM":
        return (4 if problemType.get("Batched") else 3), 4
    assigned = problemType.get("IndexAssignmentsA")
    if operation == "TensorContraction" and assigned:
        return 1 + max(assigned), 0
    return None, 0


def groupOf(parts: Sequence[Any], group: int) -> Any:
    return parts[group + 1] if len(parts) > group + 1 else {}


def listedSizes(group: Any) -> Optional[List[dict]]:
    """The group's ProblemSizes; None where it has none of its own."""
    final = (group or {}).get("BenchmarkFinalParameters")
    sizes = final[0].get("ProblemSizes") if final and isinstance(final[0], dict) else None
    return sizes if isinstance(sizes, list) else None


def unrolledSizes(config: Any, parts: Sequence[Any], group: int) -> Optional[List[dict]]:
    """One entry per size of a group; None where that cannot be told."""
    sizes = listedSizes(groupOf(parts, group))
    if sizes is None:
        return None
    try:
        unrolled = unrollSizes(sizes, *indicesOf(parts[0]))
        if globalParameters(config).get("SortProblems"):
            unrolled.sort(key=_sizesOf)
        return unrolled
    except MISSHAPEN:
        return None


def sizesOfStep(config: Any, parts: Sequence[Any], group: int) -> List[dict]:
    """The same also for a group without sizes of its own, which has the host's default ones.

    Raises:
        One of MISSHAPEN: they cannot be told.
    """
    wanted = _wantedSizes(parts[0], groupOf(parts, group) or {})
    unrolled = unrollSizes(wanted, *indicesOf(parts[0]))
    if globalParameters(config).get("SortProblems"):
        unrolled.sort(key=_sizesOf)
    return unrolled


def _sizesOf(entry: dict) -> Tuple[int, ...]:
    """What the host sorts by with SortProblems."""
    value = entry["Exact"]
    return tuple(value["sizes"] if isinstance(value, dict) else value)


def _load(path: str) -> Any:
    with open(path, "rb") as stream:
        try:
            return yaml.load(stream, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (LookupError, AttributeError, TypeError, RecursionError) as error:
            # What PyYAML raises for some scalars (!!int '') and for very deep nesting.
            raise yaml.YAMLError("%s: %s" % (type(error).__name__, error)) from None
