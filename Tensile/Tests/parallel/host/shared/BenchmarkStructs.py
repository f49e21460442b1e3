# SPDX-License-Identifier: MIT
"""One benchmark step: what a size group of the config asks for."""

from __future__ import annotations

import os
from copy import deepcopy

from . import Generation
from .Common import printExit
from .SolutionStructs import (
    ProblemSizes,
    ProblemType,
    Solution,
    activations,
    biasTypes,
    factorDims,
    nameSolutions,
)

_notSupported = (
    "InitialSolutionParameters",
    "BenchmarkForkParameters",
    "JoinParameters",
    "BenchmarkJoinParameters",
)


class BenchmarkStep:
    """The only step of a size group: its sizes, the lists that multiply them, its solutions."""

    name = "00_Final"

    def __init__(self, problemTypeConfig: dict, group: dict):
        self.problemType = ProblemType(problemTypeConfig)
        asked = [key for key in _notSupported if group.get(key) is not None]
        if asked:
            printExit("Benchmark step(s) no longer supported: %s" % ", ".join(asked))
        self._readParameters(group)
        self._readSizes(group, bool(problemTypeConfig.get("Batched")))

    def _readParameters(self, group: dict) -> None:
        forked: dict = {}
        for section in ("BenchmarkCommonParameters", "ForkParameters"):
            for entry in group.get(section) or []:
                forked.update(deepcopy(entry))
        self.parameterGroups = forked.pop("Groups", None) or []
        self.customKernels = group.get("CustomKernels") or []
        for key, values in forked.items():
            if values is None:
                printExit('You must specify value(s) for parameter "%s"' % key)
        order = {key: position for position, key in enumerate(Generation.forkOrder)}
        several = [key for key in forked if len(forked[key]) > 1]
        several.sort(key=lambda key: order.get(key, len(order)))
        self.constantParameters = {k: v[0] for k, v in forked.items() if len(v) == 1}
        self.forkParameters = {key: forked[key] for key in several}

    def _readSizes(self, group: dict, isBatched: bool) -> None:
        final = group.get("BenchmarkFinalParameters")
        config: dict = {}
        if final:
            sizes = final[0]["ProblemSizes"]
            for entry in final[1:]:
                for key in set(entry) & set(Generation.configSections):
                    if key in config:
                        printExit("Duplicated %s." % key)
                    config[key] = entry[key]
        else:
            dimensions = [[64, 64, 64, 512], 0] + ([[1], 0] if isBatched else [0])
            sizes = [{"Range": dimensions}]
        self.sizes = ProblemSizes(self.problemType, sizes)
        self.biasTypes = []
        if "BiasTypeArgs" in Generation.configSections:
            self.biasTypes = biasTypes(self.problemType, config.get("BiasTypeArgs"))
        self.factorDims = factorDims(self.problemType, config.get("FactorDimArgs"))
        self.activations = activations(self.problemType, config.get("ActivationArgs"))
        self.icacheFlush = config.get("ICacheFlush", [False])

    def permutations(self) -> list:
        """The cartesian product of what is forked, the first parameter running fastest."""
        choices: list = []
        for key, values in self.forkParameters.items():
            choices.append([{key: value} for value in values])
        choices += [list(group) for group in self.parameterGroups]
        total = 1
        for choice in choices:
            total *= len(choice)
        found = []
        # Real configs fork ten thousand solutions; a test may do with the first few.
        most = int(os.environ.get("TENSILE_STAND_IN_PERMUTATIONS", total))
        for number in range(min(total, most)):
            permutation: dict = {}
            for choice in choices:
                permutation.update(deepcopy(choice[number % len(choice)]))
                number //= len(choice)
            found.append(permutation)
        return found

    def solutions(self) -> list:
        """Solutions in the order of the CSV's columns; one that is there already is left out."""
        found = {}
        for permutation in self.permutations():
            parameters = {**deepcopy(self.constantParameters), **permutation}
            solution = Solution(self.problemType, parameters)
            found.setdefault(solution.identity, solution)
        for kernel in self.customKernels:
            solution = Solution(self.problemType, {"CustomKernelName": kernel})
            found.setdefault(solution.identity, solution)
        forked = list(self.forkParameters)
        for group in self.parameterGroups:
            forked += sorted({key for entry in group for key in entry})
        nameSolutions(list(found.values()), forked)
        return list(found.values())

    def cacheData(self) -> dict:
        """What must be the same for cached solutions to be used again."""
        return {
            "ConstantParams": self.constantParameters,
            "ForkParams": self.forkParameters,
            "ParamGroups": self.parameterGroups,
            "CustomKernels": self.customKernels,
        }
