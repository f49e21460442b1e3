# SPDX-License-Identifier: MIT
"""config_gpu_N.yaml: what one device benchmarked, as a config for stock Tensile on that GPU alone.

Everything of the user's config stays but for DeviceList (removed), Device (N; on a node, the
device's number there), and the sizes and groups of which the device measured nothing.

The client counts problems, not the config's entries: problem = ((factor * biases + bias) *
activations + activation) * sizes + size; and its sizes are first those of every Range, then those
of every Exact (or Conv) entry. So the entries are unrolled in that order, and the ones that a
device measured are written one by one. Where the unrolled entries are not as many as the client's
sizes (a form of entry that is not known here), the group is kept whole.
"""

from __future__ import annotations

import copy
import logging
import os
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import yaml

from .ConfigSteps import (
    MISSHAPEN,
    SINGLE_SIZES,
    globalParameters,
    groupOf,
    listedSizes,
    readConfig,
    unrolledSizes,
)
from .DeviceNames import nameIn
from .Files import replaceFile

log = logging.getLogger("TensileParallel")

FILE_NAME = "config_gpu_%d.yaml"
_HEADER = (
    "# TensileParallel: what device %s benchmarked%s. Stock Tensile runs it on that GPU alone.\n"
)
_NODE = (
    "# Device is the number of that GPU on %s, under the masks with which this node has joined.\n"
)
_HEADER_START = b"# TensileParallel: "

# (entry of BenchmarkProblems, size group in it), both from 0
Position = Tuple[int, int]


class _PlainDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes what anchors stood for, and lists of plain values on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def listOnOneLine(self, data: List[Any]) -> Any:
        """A list as a person would write it."""
        flow = not any(isinstance(value, (list, dict)) for value in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)


_PlainDumper.add_representer(list, _PlainDumper.listOnOneLine)


def writeDeviceConfigs(
    outFolder: str,
    config: str,
    steps: Iterable[dict],
    sizesFile: Optional[str] = None,
    alternateFormat: bool = False,
) -> List[str]:
    """Write config_gpu_N.yaml of every device that has a part in the steps.

    Args:
        outFolder: the output folder of the run.
        config: the tuning config.
        steps: step.json of every step so far, in any order.
        sizesFile: the size list of the alternate format.
        alternateFormat: whether the config is in that format.

    Returns:
        The paths written; empty, with a warning in the log, where the config cannot be read.
    """
    steps = [step for step in steps if not step.get("bestSolution")]  # no group of the config
    steps.sort(key=lambda step: step.get("started") or 0)
    try:
        whole = readConfig(config, sizesFile, alternateFormat)
        positions = placeSteps(whole, steps)
        known = {part["ordinal"]: part for step in steps for part in step["devices"]}
        written = []
        for ordinal, device in sorted(known.items()):
            path = os.path.join(outFolder, FILE_NAME % ordinal)
            part = deviceConfig(whole, ordinal, positions, device.get("nodeOrdinal"))
            if part is None:
                _removeOwn(path)
                continue
            plan = any(step.get("state") == "planned" for step in steps)
            name = nameIn(device, "ordinal")
            text = _HEADER % (name, " (as planned)" if plan else "")
            text += _NODE % device["node"] if device.get("node") else ""
            text += _dump(part)
            replaceFile(path, text.encode("utf-8"))
            written.append(path)
        return written
    except (OSError, yaml.YAMLError, *MISSHAPEN) as error:
        log.warning("the configs per device were not written: %s: %s", config, error)
        return []


def placeSteps(config: Any, steps: Sequence[dict]) -> Dict[Position, dict]:
    """Which group of the config each step measured.

    The host goes through entries and groups in their order and may skip some; a step knows its
    group number and how many sizes it has. A problem type that comes twice in the config starts
    again with group 0, and its steps follow each other in the same order.

    Args:
        config: the tuning config, in the default format.
        steps: step.json of the steps, in the order in which they started.
    """
    free = [
        (entry, group)
        for entry, parts in enumerate(config.get("BenchmarkProblems") or [])
        for group in range(max(1, len(parts) - 1))
    ]
    placed: Dict[Position, dict] = {}
    for step in steps:
        number = int(step["group"]) if str(step.get("group", "")).isdigit() else None
        fitting = [
            place
            for place in free
            if (number is None or place[1] == number) and _mayBe(config, place, step, placed)
        ]
        if fitting:
            placed[fitting[0]] = step
            free.remove(fitting[0])
        else:
            log.debug("no group of the config fits step %s", step.get("resultsFile"))
    return placed


def deviceConfig(
    config: Any,
    ordinal: int,
    positions: Dict[Position, dict],
    nodeOrdinal: Optional[int] = None,
) -> Optional[dict]:
    """The config of one device; None where it measured nothing.

    Args:
        config: the tuning config, in the default format. Not changed.
        ordinal: the device.
        positions: what placeSteps gave.
        nodeOrdinal: its number on its node; None where there is one machine.
    """
    entries = []
    for entry, parts in enumerate(config.get("BenchmarkProblems") or []):
        kept = []
        for group in range(max(1, len(parts) - 1)):
            step = positions.get((entry, group))
            problems = _problemsOf(step, ordinal) if step else set()
            if problems:
                kept.append(_cutGroup(config, parts, group, problems, step))
        if kept:
            entries.append([copy.deepcopy(parts[0])] + ([] if len(parts) < 2 else kept))
    if not entries:
        return None
    result = {key: copy.deepcopy(value) for key, value in config.items()}
    parameters = dict(globalParameters(result))
    parameters.pop("DeviceList", None)
    parameters["Device"] = ordinal if nodeOrdinal is None else nodeOrdinal
    result["GlobalParameters"] = parameters
    result["BenchmarkProblems"] = entries
    return result


def _mayBe(config: Any, place: Position, step: dict, placed: Dict[Position, dict]) -> bool:
    """Whether a step can be the one of a group: same number of sizes, same type as before."""
    entry, group = place
    for (otherEntry, _), other in placed.items():
        sameType = other.get("problemType") == step.get("problemType")
        if otherEntry == entry and not sameType:
            return False
    unrolled = unrolledSizes(config, config["BenchmarkProblems"][entry], group)
    return unrolled is None or len(unrolled) == step["sizes"]["count"]


def _problemsOf(step: dict, ordinal: int) -> Set[int]:
    return {
        problem
        for part in step["devices"]
        if part["ordinal"] == ordinal
        for first, count in part["problems"]
        for problem in range(first, first + count)
    }


def _cutGroup(
    config: Any, parts: Sequence[Any], number: int, problems: Set[int], step: dict
) -> Any:
    """A group with only the sizes of these problems, in the client's order; MinStride stays."""
    group = copy.deepcopy(groupOf(parts, number))
    sizes = listedSizes(group)
    count = step["sizes"]["count"]
    wanted = {problem % count for problem in problems} if count else set()
    if sizes is None or len(wanted) == count or step.get("problems", 0) < count:
        return group
    unrolled = unrolledSizes(config, parts, number)
    if unrolled is None or len(unrolled) != count:
        log.warning(
            "%s: its sizes could not be told apart, so each device's config has them all",
            step.get("resultsFile"),
        )
        return group
    kept = [unrolled[index] for index in sorted(wanted)]
    others = [
        {key: value}
        for dictionary in sizes
        for key, value in dictionary.items()
        if key != "Range" and key not in SINGLE_SIZES
    ]
    group["BenchmarkFinalParameters"][0]["ProblemSizes"] = others + kept
    return group


def _dump(config: Any) -> str:
    return yaml.dump(config, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=99)


def _removeOwn(path: str) -> None:
    """Remove a file of an earlier plan; one that is not ours stays."""
    try:
        with open(path, "rb") as stream:
            ours = stream.read(len(_HEADER_START)) == _HEADER_START
        if ours:
            os.unlink(path)
    except FileNotFoundError:
        pass
