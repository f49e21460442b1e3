# SPDX-License-Identifier: MIT
"""The closing words of a run on the terminal and in its log: what went wrong first."""

from __future__ import annotations

import os
import shlex
from typing import Any, Dict, List

from .DeviceNames import nameIn
from .RunRecord import stepName
from .Terminal import duration, many, oneLine

EMULATED_NOTE = "EMULATED: the times are made up, nothing was measured"
# Failures that are told one by one; the rest is counted.
LISTED_FAILURES = 5
# Characters of a failure's line.
LONGEST_LINE = 160

_TROUBLES = (
    ("failed", "failed"),
    ("crashed", "crashed"),
    ("hung", "hung"),
    ("validationFailures", "gave wrong results"),
)


def textSummary(summary: Dict[str, Any]) -> str:
    """The closing words.

    Args:
        summary: the content of execution_summary.json.
    """
    lines = [EMULATED_NOTE] if summary["emulated"] else []
    lines += _failureLines(summary)
    lines += clientTroubles(summary)
    lines.append(_timeLine(summary))
    lines += _speedUpLine(summary)
    lines += [_nodeLine(node) for node in summary.get("nodes") or () if summary["steps"]]
    lines += _setAsideLines(summary)
    if summary["steps"]:
        resumed = summary["counts"]["resumedPairs"] > 0
        lines += [_deviceLine(device, resumed) for device in summary["devices"]]
    lines += _spreadLine(summary)
    lines += _otherCounts(summary["counts"])
    lines.append("output: %s" % summary["mergedOutput"])
    out = shlex.quote(os.path.dirname(summary["mergedOutput"]) or ".")
    lines.append("TensileParallel --report %s makes a page of it" % out)
    return "\n".join(lines)


def _failureLines(summary: Dict[str, Any]) -> List[str]:
    counts = summary["counts"]
    lines = ["%d pairs %s" % (counts[name], words) for name, words in _TROUBLES if counts[name]]
    listed = summary["failures"][:LISTED_FAILURES]
    for failure in listed:
        # "size" is the problem in words; files of older versions may lack it.
        where = failure.get("size") or "problem %s" % failure.get("problem")
        text = "%s on device %s: %s, %s: %s" % (
            failure.get("kind"),
            nameIn(failure),
            where,
            shortened(failure.get("solution") or "no solution", 50),
            failure.get("message"),
        )
        lines.append("  " + shortened(oneLine(text), LONGEST_LINE))
    more = len(summary["failures"]) - len(listed) + summary["failuresNotListed"]
    if more:
        lines.append("  and %d more: failures in execution_summary.json" % more)
    return lines


def clientTroubles(summary: Dict[str, Any]) -> List[str]:
    """A line on clients that crashed, hung or failed, and one on units that lost their worker,
    whatever became of their pairs."""
    kinds, lines = summary["failedUnits"], []
    told = ["%d %s" % (count, kind) for kind, count in kinds.items() if count]
    if told:
        lines.append("clients that went wrong: %s" % ", ".join(told))
    if summary.get("lostUnits"):  # files of older versions lack it
        units = many(summary["lostUnits"], "unit")
        lines.append("lost with their worker or node, which is no client's fault: %s" % units)
    lost = sum(summary["counts"][kind] for kind in kinds)
    if lines and summary["state"] == "finished" and not (lost or summary["exitStatus"]):
        lines = [line + "; all their pairs were measured at another try" for line in lines]
    return lines


def _timeLine(summary: Dict[str, Any]) -> str:
    seconds, again = summary["seconds"], summary["counts"]["retimedPairs"]
    nodes = summary.get("nodes")
    text = "%s: %d pairs%s in %s on %s%s, %s (benchmarks %s, the rest of Tensile %s)"
    return text % (
        summary["state"],
        summary["counts"]["measured"],
        " (%d of them timed again on another device)" % again if again else "",
        many(len(summary["steps"]), "step"),
        many(len(summary["devices"]), "device"),
        " of %s" % many(len(nodes), "node") if nodes else "",
        duration(seconds["total"], tenths=True),
        duration(seconds["benchmark"], tenths=True),
        duration(seconds["host"], tenths=True),
    )


def _speedUpLine(summary: Dict[str, Any]) -> List[str]:
    known = summary["speedUp"]
    if known is None:
        return []
    text = "speed-up: %.2f in the benchmarks, %.2f in all; one device would have taken %s (%s)"
    serial = duration(known["serialTotalSeconds"], tenths=True)
    return [text % (known["benchmark"], known["total"], serial, known["basis"])]


def _nodeLine(node: Dict[str, Any]) -> str:
    line = "node %s: %s, %s, %s, busy %.0f %% of the benchmark time" % (
        node["node"],
        many(len(node["devices"]), "device"),
        many(node["units"], "unit"),
        _pairs(node),
        100 * node["busyShare"],
    )
    lost = len(node["lost"])
    return line + (", %s set aside" % many(lost, "device") if lost else "")


def _pairs(entry: Dict[str, Any]) -> str:
    """So that those of all devices add up: what was timed again is told apart."""
    again = entry.get("retimedPairs") or 0  # files of older versions lack it
    return "%d pairs%s" % (entry["pairs"] - again, ", %d timed again" % again if again else "")


def _setAsideLines(summary: Dict[str, Any]) -> List[str]:
    names = {device["ordinal"]: nameIn(device, "ordinal") for device in summary["devices"]}
    return [
        "device(s) %s set aside: %s" % (", ".join(names[n] for n in each["devices"]), each["why"])
        for node in summary.get("nodes") or ()
        for each in node.get("lostBecause") or ()  # files of older versions lack it
    ]


def _deviceLine(device: Dict[str, Any], resumed: bool) -> str:
    # The results hold what earlier runs measured too; the time is this one's.
    line = "device %s: %s, %s, busy %s (%.0f %% of the benchmark time)"
    if resumed:
        line = line.replace(", busy", " in all runs, in this one busy")
    line %= (
        nameIn(device, "ordinal"),
        many(device["units"], "unit"),
        _pairs(device),
        duration(device["busySeconds"], tenths=True),
        100 * device["busyShare"],
    )
    if device["baselineRatio"] is not None:
        line += ", speed %.3f of the median device" % device["baselineRatio"]
    return line


def _spreadLine(summary: Dict[str, Any]) -> List[str]:
    """The step in which the devices' baselines differed most."""
    known = [step for step in summary["steps"] if step.get("baseline")]
    widest = max(known, key=lambda step: step["baseline"]["spreadPercent"], default=None)
    if widest is None:
        return []
    spread = widest["baseline"]
    text = "devices differ by up to %.1f %% (device %s from device %s, in %s)"
    names = {device["ordinal"]: nameIn(device, "ordinal") for device in summary["devices"]}
    far = [names.get(spread[which], str(spread[which])) for which in ("slowest", "fastest")]
    return [text % (spread["spreadPercent"], *far, stepName(widest))]


def _otherCounts(counts: Dict[str, int]) -> List[str]:
    lines = []
    if counts["rejected"]:
        lines.append("%d pairs were refused by the client's own checks" % counts["rejected"])
    if counts["resumedPairs"]:
        lines.append("%d pairs were measured by an earlier run" % counts["resumedPairs"])
    if counts["correctedWinners"]:
        text = "%d rows name another winner than the client did: its own had no valid measurement"
        lines.append(text % counts["correctedWinners"])
    return lines


def shortened(text: str, longest: int) -> str:
    """Both ends of a long text: kernel names go on for pages."""
    if len(text) <= longest:
        return text
    head = longest * 3 // 5
    return "%s…%s" % (text[:head], text[head + 1 - longest :])
