# SPDX-License-Identifier: MIT
"""How many solutions a size group can have at most, from the parameters that it forks.

The hosts make a solution of every combination of values (BenchmarkStructs.py:
constructForkPermutations), then leave out those that are invalid and those that are there already,
and add the custom kernels that fit. So the number of combinations and custom kernels is a bound.
What is valid only the host can tell, after it has started for 45 s.

`GroupForkParameters` is read by no host but for handing it on from the alternate format: groups are
forked by `Groups` in ForkParameters.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from .ConfigSteps import MISSHAPEN, reasonOf

# CustomKernels: ["*"] means every kernel that the host has.
WILDCARD = ["*"]
_CUSTOM_KERNELS = ("Tensile", "CustomKernels")


@dataclass(frozen=True)
class ForkedSolutions:
    """What a group forks, as the host takes it apart and writes it into its cache.yaml.

    Attributes:
        most: a number that the solutions do not exceed; None where it cannot be told.
        remark: why it cannot be told; empty where it can.
        constants: parameters with one value, of those that the config names.
        forks: parameters with several values: name -> values.
        groups: the parameter groups: each a list of entries.
        customKernels: as the config names them.
    """

    most: Optional[int]
    remark: str = ""
    constants: Dict[str, Any] = field(default_factory=dict)
    forks: Dict[str, List[Any]] = field(default_factory=dict)
    groups: List[List[Any]] = field(default_factory=list)
    customKernels: List[str] = field(default_factory=list)


def forkedSolutions(group: Any, allKernels: Optional[int] = None) -> ForkedSolutions:
    """What a size group forks.

    Args:
        group: the group's part of the config; None and {} are a group with defaults alone.
        allKernels: how many custom kernels the host has; None where that is not known.
    """
    try:
        return _forkedSolutions(group or {}, allKernels)
    except MISSHAPEN as error:
        return ForkedSolutions(None, "its fork parameters cannot be told%s" % reasonOf(error))


def _forkedSolutions(group: Any, allKernels: Optional[int]) -> ForkedSolutions:
    forked = _flat(group.get("ForkParameters"))
    groups = forked.pop("Groups", None) or []
    values = {**_flat(group.get("BenchmarkCommonParameters")), **forked}
    kernels = group.get("CustomKernels") or []
    # One value is a constant, none at all is nothing (separateParameters).
    constants = {name: given[0] for name, given in values.items() if len(given) == 1}
    forks = {name: given for name, given in values.items() if len(given) > 1}
    combinations = 1
    for choices in [*forks.values(), *groups]:
        combinations *= len(choices)
    most: Optional[int] = combinations + len(kernels)
    remark = ""
    if kernels == WILDCARD:
        most = None if allKernels is None else combinations + allKernels
        remark = "it takes every custom kernel that Tensile has" if allKernels is None else ""
    return ForkedSolutions(most, remark, constants, forks, groups, kernels)


def customKernelCount(tree: str) -> int:
    """How many custom kernels a host's tree has."""
    try:
        names = os.listdir(os.path.join(tree, *_CUSTOM_KERNELS))
    except OSError:
        return 0
    return sum(name.endswith(".s") for name in names)


def _flat(section: Any) -> Dict[str, Any]:
    """A list of mappings as one; the last of a name counts."""
    flat: Dict[str, Any] = {}
    for entry in section or ():
        flat.update(entry)
    return flat
