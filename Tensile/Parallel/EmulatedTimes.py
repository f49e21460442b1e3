# SPDX-License-Identifier: MIT
"""What the emulated client "measures": a roofline times an efficiency per solution.

Everything here is a function of the problem and the solution's name alone. Neither the device nor
the index of a problem enters, so however the work is cut, the numbers are the same.

    seconds = launch + max(flops / peak(type), bytes / bandwidth) / efficiency

with an efficiency between 0.35 and 0.90 from a CRC of the solution's name (seven tenths of it)
and of name and problem together (three tenths, so that winners differ between sizes).
"""

from __future__ import annotations

import re
from binascii import crc32
from math import ceil
from typing import Dict, NamedTuple, Tuple

from .ClientConfig import ClientConfig, ProblemId

# An imaginary accelerator, the same for every emulated device.
COMPUTE_UNITS = 104
BANDWIDTH = 1.6e12  # bytes per second
LAUNCH_SECONDS = 2e-6
_DEFAULT_PEAK = 190e12  # operations per second, a multiply-add counting as two
_PEAK = {
    "Float": 48e12,
    "Double": 48e12,
    "ComplexFloat": 12e12,  # four multiplications each; the client counts one
    "ComplexDouble": 12e12,
    "XFloat32": 95e12,
    "Int8": 380e12,
    "Int8x4": 380e12,
}
_DEFAULT_BYTES = 1  # the many eight-bit formats
_BYTES = {
    "Half": 2,
    "BFloat16": 2,
    "Float": 4,
    "XFloat32": 4,
    "Int32": 4,
    "Int8x4": 4,
    "Double": 8,
    "ComplexFloat": 8,
    "Int64": 8,
    "ComplexDouble": 16,
}
_MACRO_TILE = re.compile(r"_MT(\d+)x(\d+)")
_SPLIT_U = re.compile(r"_GSU(\d+)(?:_|$)")
_MASK = 0xFFFFFFFF


class ProblemFacts(NamedTuple):
    """One problem, as far as the output and the times need it.

    Attributes:
        sizes: index sizes, as in the INI.
        leading: LDD, LDC, LDA, LDB: the second stride of each tensor.
        flops: the client's TotalFlops.
        roofline: seconds at full efficiency.
        seed: a CRC of everything that makes the problem what it is.
        shape: (M, N, K, batches) for the granularities.
        elements: of A, B and C together, as allocated.
        bias: bias type, or "None".
        activation: activation, or "None".
        factor: factor dim as text, or "" where neither bias nor scaleAlphaVec is used.
    """

    sizes: Tuple[int, ...]
    leading: Tuple[int, int, int, int]
    flops: int
    roofline: float
    seed: int
    shape: Tuple[int, int, int, int]
    elements: int
    bias: str
    activation: str
    factor: str


def indexRoles(identifier: str) -> Tuple[str, str, str, str, str]:
    """The index letters of A, B, C, D and the bound ones, in the order in which sizes name them.

    Sizes give the indices of D in D's order, then the bound ones in alphabetical order
    (ContractionProblem::FromIndexSizes).

    Args:
        identifier: such as Contraction_l_Alik_Bljk_Cijk_Dijk; a trailing C is a conjugate.

    Raises:
        ValueError: not such an identifier.
    """
    parts = identifier.split("_")
    if len(parts) != 6 or parts[0] != "Contraction":
        raise ValueError("not a contraction: %r" % identifier)
    tensors = []
    for letter, part in zip("ABCD", parts[2:]):
        if part[:1] != letter:
            raise ValueError("not a contraction: %r" % identifier)
        tensors.append(part[1:].rstrip("C").lower())
    a, b, c, d = tensors
    bound = "".join(sorted(set(a) & set(b) - set(d)))
    return a, b, c, d, bound


def _tensor(letters: str, extent: Dict[str, int], given: Tuple[int, ...]) -> Tuple[int, int]:
    """Second stride and allocated elements of one tensor; -1 or nothing means packed."""
    strides = []
    for position, letter in enumerate(letters):
        stride = given[position] if position < len(given) else -1
        if stride == -1:
            stride = strides[-1] * extent[letters[position - 1]] if position else 1
        strides.append(stride)
    elements = 1 + sum(s * (extent[letter] - 1) for s, letter in zip(strides, letters))
    return (strides[1] if len(strides) > 1 else 0), max(elements, 0)


def problemFacts(config: ClientConfig, problem: ProblemId, roles) -> ProblemFacts:
    """The facts of one problem.

    Args:
        config: the client's effective INI.
        problem: which one.
        roles: indexRoles() of the INI's problem-identifier.

    Raises:
        ValueError: fewer sizes than indices.
    """
    a, b, c, d, bound = roles
    size = config.sizes[problem.size]
    letters = d + bound
    if len(size.sizes) < len(letters):
        raise ValueError("%d sizes for %d indices" % (len(size.sizes), len(letters)))
    extent = dict(zip(letters, size.sizes))
    tensors = {}
    for name, own in (("d", d), ("c", c), ("a", a), ("b", b)):
        tensors[name] = _tensor(own, extent, size.strides.get(name + "-strides", ()))

    def listed(key: str, position: int, absent: str) -> str:
        values = config.getAll(key)
        return values[position] if position < len(values) else absent

    types = {name: config.get(name + "-type") or config.get("type", "Float") for name in "abcd"}
    usesBias = config.number("use-bias")
    factors = usesBias or config.number("use-scaleAlphaVec")
    bias = listed("bias-type-args", problem.bias, "None") if usesBias else "None"
    factor = ""
    if factors:
        factor = "1" if factors == 2 else "0"
        if factors == 3:
            factor = listed("factor-dim-args", problem.factor, "0")
    activation = listed("activation-enum-args", problem.activation, "None")

    flops = 8 if types["a"] == "Int8x4" else 2
    for value in size.sizes[: len(letters)]:
        flops *= value
    moved = sum(_count(own, extent) * _width(types[n]) for n, own in zip("abcd", (a, b, c, d)))
    compute = config.get("compute-input-type") or types["a"]
    if config.get("f32-xdl-math-op") == "XFloat32":
        compute = "XFloat32"
    roofline = max(flops / _PEAK.get(compute, _DEFAULT_PEAK), moved / BANDWIDTH)
    leading = tuple(tensors[name][0] for name in ("d", "c", "a", "b"))
    # A bias type that is listed though no bias is used still makes another problem.
    key = "%s|%s|%s|%s|%s|%s|%s" % (
        size.sizes,
        leading,
        sorted(types.items()),
        listed("bias-type-args", problem.bias, "None"),
        activation,
        factor,
        compute,
    )
    freeA = _count([x for x in a if x in d and x not in b], extent)
    freeB = _count([x for x in b if x in d and x not in a], extent)
    batches = _count([x for x in d if x in a and x in b], extent)
    return ProblemFacts(
        sizes=size.sizes,
        leading=leading,
        flops=flops,
        roofline=roofline,
        seed=crc32(key.encode()),
        shape=(freeA, freeB, _count(bound, extent), batches),
        elements=tensors["a"][1] + tensors["b"][1] + tensors["c"][1],
        bias=bias,
        activation=activation,
        factor=factor,
    )


def _count(letters, extent: Dict[str, int]) -> int:
    product = 1
    for letter in letters:
        product *= extent[letter]
    return product


def _width(dataType: str) -> int:
    return _BYTES.get(dataType, _DEFAULT_BYTES)


def solutionSeed(name: str) -> int:
    """A number for a solution's name that is the same in every process and on every machine."""
    return crc32(name.encode("utf-8", "surrogateescape"))


def kernelMicroseconds(facts: ProblemFacts, seed: int) -> float:
    """How long one kernel takes on a device of factor 1.

    Args:
        facts: the problem.
        seed: solutionSeed() of the solution.
    """
    # Two rounds of a multiplicative hash; a plain xor would order all solutions alike.
    mixed = ((seed ^ facts.seed) * 0x9E3779B1) & _MASK
    mixed = ((mixed ^ (mixed >> 15)) * 0x85EBCA6B) & _MASK
    mixed ^= mixed >> 13
    own = (((seed * 0x2C1B3C6D) & _MASK) ^ (seed >> 7)) / _MASK
    efficiency = 0.35 + 0.55 * (0.7 * own + 0.3 * (mixed / _MASK))
    return (LAUNCH_SECONDS + facts.roofline / efficiency) * 1e6


class Granularities(NamedTuple):
    """How well a solution's tiles fit a problem, as the client computes it.

    Attributes:
        total: product of the others.
        tilesPerUnit: tiles per compute unit.
        tile0: filling of the last tile in the first dimension.
        tile1: filling of the last tile in the second dimension.
        units: filling of the last round over the compute units.
        readBytes: bytes read by all tiles.
        writtenBytes: bytes of D.
        busyUnits: compute units with any work.
    """

    total: float
    tilesPerUnit: float
    tile0: float
    tile1: float
    units: float
    readBytes: int
    writtenBytes: int
    busyUnits: int


def tileOf(name: str) -> Tuple[int, int, int]:
    """Macro tile and GlobalSplitU that a solution's name tells; 64, 64, 1 where it does not."""
    tile = _MACRO_TILE.search(name)
    split = _SPLIT_U.search(name)
    first, second = (int(tile.group(1)), int(tile.group(2))) if tile else (64, 64)
    return max(1, first), max(1, second), max(1, int(split.group(1))) if split else 1


def granularities(config: ClientConfig, facts: ProblemFacts, tile) -> Granularities:
    """The granularities of one problem with one tile (ContractionSolution.cpp).

    The wave granularity, below 1 only for very small work groups, is left out.
    """
    m, n, k, batches = facts.shape
    width = _width(config.get("a-type") or "Float")
    tiles0, tiles1 = m / tile[0], n / tile[1]
    perUnit = batches * ceil(tiles0) * ceil(tiles1) / (COMPUTE_UNITS / tile[2])
    tile0, tile1, units = (x / ceil(x) if x else 0.0 for x in (tiles0, tiles1, perUnit))
    work = batches * m * n
    read = int(work * k / tile[1] * width) + int(work * k / tile[0] * width) + work * width
    busy = min(int(perUnit * COMPUTE_UNITS + 0.5), COMPUTE_UNITS)
    total = tile0 * tile1 * units
    return Granularities(total, perUnit, tile0, tile1, units, read, work * width, max(1, busy))
