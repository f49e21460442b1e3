# SPDX-License-Identifier: MIT
"""The files of a host: configs, solution libraries, solutions of a step, library logic."""

from __future__ import annotations

import os
from copy import deepcopy
from typing import Any

import msgpack
import yaml

from . import Generation, __version__
from .SolutionStructs import Problem, ProblemSizes, ProblemType, Solution

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):
    """Writes shared values out each time; the client's reader knows no aliases."""

    def ignore_aliases(self, data):
        return True


def readYAML(path: str) -> Any:
    """A YAML file's value."""
    with open(path, encoding="utf-8") as stream:
        return yaml.load(stream, _Loader)


def writeYAML(path: str, data: Any, **options) -> None:
    """In the hosts' style: a list of plain values on one line."""
    with open(path, "w", encoding="utf-8") as stream:
        yaml.dump(data, stream, Dumper=_Dumper, default_flow_style=None, **options)


def writeLibrary(pathWithoutExtension: str, data: dict, libraryFormat: str) -> None:
    """A solution library, as .yaml or as msgpack in .dat."""
    if libraryFormat == "yaml":
        path = pathWithoutExtension + ".yaml"
        writeYAML(path, data, explicit_start=True, explicit_end=True)
    else:
        with open(pathWithoutExtension + ".dat", "wb") as stream:
            msgpack.pack(data, stream)


def writeSolutions(path: str, step, states: list) -> None:
    """A step's sizes and solutions, from which LibraryLogic knows the columns of the CSV."""
    data: list = [{"MinimumRequiredVersion": __version__}]
    sizes: list = [{"Range": entry} for entry in step.sizes.ranges]
    for exact in step.sizes.exacts:
        strides = {"strides" + tensor: value for tensor, value in exact.strides.items()}
        value = list(exact.sizes)
        sizes.append({"Exact": dict(sizes=value, **strides) if strides else value})
    data.append({"ProblemSizes": sizes})
    if Generation.configSections:
        data.append({"BiasTypeArgs": [[dataType.value for dataType in step.biasTypes]]})
        data.append({"ActivationArgs": [[{"Enum": name}] for name in step.activations]})
    writeYAML(path, data + states)


def solutionStates(path: str) -> list:
    """The solutions of a file that writeSolutions wrote, as plain values."""
    return [entry for entry in readYAML(path) if "SolutionNameMin" in entry]


def readSolutions(path: str) -> tuple:
    """(ProblemType, sizes as tuples with the leading dimensions, list of Solution)."""
    states = solutionStates(path)
    problemType = ProblemType(deepcopy(states[0]["ProblemType"]))
    entries = readYAML(path)[1]["ProblemSizes"]
    ranges = [entry for entry in entries if "Range" in entry]
    sizes = [problem.sizes for problem in ProblemSizes(problemType, ranges).problems]
    for entry in entries:
        if "Exact" in entry:
            exact = entry["Exact"]
            sizes.append(tuple(exact["sizes"] if isinstance(exact, dict) else exact))
    return problemType, sizes, [_solution(problemType, state) for state in states]


def _solution(problemType: ProblemType, state: dict) -> Solution:
    derived = ("ProblemType", "MacroTile0", "MacroTile1", "SolutionNameMin", "SolutionIndex")
    parameters = {key: value for key, value in state.items() if key not in derived}
    return Solution(problemType, parameters, state["SolutionNameMin"])


def readLogic(path: str) -> tuple:
    """(ProblemType, problems, solutions) of a library logic file."""
    data = readYAML(path)
    problemType = ProblemType(deepcopy(data[4]))
    solutions = [_solution(problemType, state) for state in data[5]]
    return problemType, [Problem(tuple(sizes)) for sizes, _ in data[7] or []], solutions


def yamlFiles(folder: str) -> list:
    """Paths of a folder's YAML files, sorted."""
    return [
        os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".yaml")
    ]
