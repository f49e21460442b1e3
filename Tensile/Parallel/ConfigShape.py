# SPDX-License-Identifier: MIT
"""Whether the parts of a tuning config have the shapes that every host needs, in plain words.

A host ends by a Python error where they have not, some of them after minutes of other steps.
"""

from __future__ import annotations

import math
from typing import Any

from .ConfigSteps import groupOf

_KINDS = {list: "a list", dict: "a mapping"}


class _Odd(Exception):
    """A part that has another shape."""


def oddShape(parts: Any, number: int) -> str:
    """What has another shape in a group of an entry of BenchmarkProblems; empty: nothing.

    Args:
        parts: the entry.
        number: of the group, from 0.
    """
    try:
        _checkEntry(parts, number)
    except _Odd as odd:
        return str(odd)
    return ""


def oddNumber(value: Any, least: float = -math.inf) -> str:
    """What is wrong with the value of a parameter that counts something; empty: nothing."""
    whole = isinstance(value, int) or isinstance(value, float) and value.is_integer()
    if not whole or isinstance(value, bool):
        return "is %s, not a whole number" % _shown(value)
    return "is %s, which is too small" % _shown(value) if value < least else ""


def kindOf(value: Any) -> str:
    """What a part of a YAML file is, in plain words."""
    if value is None:
        return "empty"
    return _KINDS.get(type(value)) or "the value %s" % _shown(value)


def _checkEntry(parts: Any, number: int) -> None:
    _be(parts, list, "the entry")
    if not parts:
        raise _Odd("the entry is an empty list: it has no problem type")
    _be(parts[0], dict, "the problem type")
    group = groupOf(parts, number)
    if group is None:
        return
    _be(group, dict, "the group")
    for name in ("BenchmarkCommonParameters", "ForkParameters"):
        if group.get(name) is not None:
            _checkParameters(group[name], name)
    if "BenchmarkFinalParameters" in group:
        _checkFinal(group["BenchmarkFinalParameters"])


def _checkParameters(section: Any, name: str) -> None:
    _be(section, list, name)
    for entry in section:
        _be(entry, dict, "an entry of %s" % name)
        for key, values in entry.items():
            _be(values, list, "%s in %s" % (key, name))
            for choices in values if key == "Groups" else ():
                _be(choices, list, "an entry of Groups in %s" % name)


def _checkFinal(final: Any) -> None:
    name = "BenchmarkFinalParameters"
    _be(final, list, name)
    if not final:
        raise _Odd("%s is an empty list: it has no ProblemSizes" % name)
    for entry in final:
        _be(entry, dict, "an entry of %s" % name)
    if "ProblemSizes" not in final[0]:
        raise _Odd("the first entry of %s has no ProblemSizes" % name)
    sizes = final[0]["ProblemSizes"]
    if sizes is None:
        return
    _be(sizes, list, "ProblemSizes")
    for entry in sizes:
        _be(entry, dict, "an entry of ProblemSizes")
        for key, value in entry.items():
            if key == "Exact" and isinstance(value, dict):
                value = value.get("sizes")
            if key in ("Range", "Exact"):
                _be(value, list, "%s in ProblemSizes" % key)
            for number in value if key == "Exact" else ():
                if not isinstance(number, int):
                    text = "%s in an Exact of ProblemSizes is no whole number"
                    raise _Odd(text % _shown(number))


def _be(value: Any, kind: type, name: str) -> None:
    if not isinstance(value, kind):
        raise _Odd("%s is %s, not %s" % (name, kindOf(value), _KINDS[kind]))


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else text[:37] + "..."
