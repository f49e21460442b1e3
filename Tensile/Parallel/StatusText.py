# SPDX-License-Identifier: MIT
"""A run's status in words: the lines of --status, of the display, of a run without a terminal."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

from .Terminal import duration, many, oneLine

Status = Dict[str, Any]

_STATES = {
    "preparing": "preparing",
    "kernels": "Tensile makes kernels",
    "benchmarking": "benchmarking",
    "logic": "Tensile writes the library logic",
    "finished": "finished",
    "failed": "failed",
    "stopped": "stopped; the same command continues",
    "died": "died, or could not write how it ended (a full disk?); the same command continues",
}


def percent(status: Status) -> int:
    """Of the current step, rounded down; 100 only where nothing is left."""
    step = status.get("step")
    if not step or not step["pairs"]["total"]:
        return 0
    pairs = step["pairs"]
    return int(100 * min(1.0, (pairs["done"] + pairs["failed"]) / pairs["total"]))


def stepWords(status: Status) -> str:
    """ "step 2 of 3"; the step's own name where the config's steps are not known."""
    if status.get("stepNumber"):
        return "step %d of %d" % (status["stepNumber"], status["stepCount"])
    step = status.get("step")
    return oneLine(step["name"]) if step else ""


def stateWords(status: Status) -> str:
    """What the run does: "Tensile makes kernels for step 2 of 3"."""
    words = _STATES.get(status["state"], str(status["state"]))
    if status["state"] == "kernels" and status.get("stepCount"):
        number = min(status["stepNumber"] + 1, status["stepCount"])
        return "%s for step %d of %d" % (words, number, status["stepCount"])
    return words


def leftWords(status: Status) -> str:
    """ "about 18 s left in this step, about 2 min 05 s in all"; empty where nothing is known."""
    words = []
    step = status.get("step") if status["state"] == "benchmarking" else None
    inStep = step and step["secondsLeft"]
    inAll, word = status.get("secondsLeft"), status.get("secondsLeftIs")
    if inStep is not None and step:
        words.append("about %s left" % duration(inStep))
        more = status.get("stepNumber", 0) < status.get("stepCount", 0)
        if more:
            words[0] += " in this step"
        if inAll is not None and more and word == "about":
            words.append("about %s in all" % duration(inAll))
        elif more:
            words.append("later steps not counted")
    elif inAll:
        words.append("%s %s left" % (word, duration(inAll)))
    return ", ".join(words)


def progressLine(status: Status, now: float) -> str:
    """How far it is, in one line."""
    so = "%s so far" % duration(now - status["started"])
    if status["state"] != "benchmarking" or not status["step"]:
        return ", ".join(each for each in (stateWords(status), so, leftWords(status)) if each)
    step, devices = status["step"], status["devices"]
    pairs = step["pairs"]
    busy = sum(device["state"] == "running" for device in devices)
    parts = [
        "%s: %d %% (%d of %d pairs)"
        % (stepWords(status), percent(status), pairs["done"], pairs["total"]),
        "%d of %d devices busy" % (busy, len(devices)),
        so,
        leftWords(status),
        failureWords(step),
    ]
    return ", ".join(part for part in parts if part)


def failureWords(step: Dict[str, Any]) -> str:
    """ "2 units failed, 1 pairs lost"; empty where nothing did."""
    words = []
    if step["units"]["failed"]:
        words.append("%s failed" % many(step["units"]["failed"], "unit"))
    if step["pairs"]["failed"]:
        words.append("%d pairs could not be measured" % step["pairs"]["failed"])
    return ", ".join(words)


def placeWords(device: Dict[str, Any]) -> str:
    """Where a running unit is: "1024x1024x1x1024 (problem 17), solution 5 of 12"."""
    words = device.get("size") or ""
    number = "problem %d" % device["problem"]
    words = "%s (%s)" % (words, number) if words else number
    words += ", solution %d of %d" % (device["solution"], device["ofSolutions"])
    kinds = {"again": "timed again", "baseline": "baseline"}
    kind = kinds.get(device.get("kind") or "")
    return words + (", %s" % kind if kind else "")


def doingWords(device: Dict[str, Any]) -> str:
    """What a device is doing, in a few words."""
    if device["state"] == "running":
        return placeWords(device)
    if device["state"] == "waiting":
        return "waits for its lock" + (
            ": held by %s" % oneLine(device["holder"]) if device.get("holder") else ""
        )
    words = {"starting": "its worker starts", "idle": "no work", "lost": "lost"}
    return words.get(device["state"], str(device["state"]))


def deviceLine(device: Dict[str, Any], now: float) -> str:
    """A device in one line."""
    parts = [doingWords(device)]
    if device.get("gflops"):
        parts.append("%s GFlops" % speedText(device["gflops"]))
    if "lastLine" in device and now - device["lastLine"] > 10:
        parts.append("last line %s ago" % duration(now - device["lastLine"]))
    if device.get("units"):
        parts.append("%s done" % many(device["units"], "unit"))
    if device.get("failures"):
        parts.append("%d failed" % device["failures"])
    return "device %d: %s" % (device["device"], ", ".join(parts))


def speedText(gflops: Optional[float]) -> str:
    """A speed with three or more digits that count; empty where there is none."""
    if gflops is None:
        return ""
    return "%.0f" % gflops if gflops >= 100 else "%.3g" % gflops


def stallText(status: Status, seconds: float, now: float) -> str:
    """Which device is doing what since when, for a run in which nothing moves."""
    parts = []
    for device in status["devices"]:
        since = device.get("lastLine", device.get("since"))
        when = " since %s" % time.strftime("%H:%M:%S", time.localtime(since)) if since else ""
        what = "its worker" if device["state"] == "starting" else doingWords(device)
        parts.append("device %d: %s%s" % (device["device"], what, when))
    return "no progress for %s; %s" % (duration(seconds), "; ".join(parts))


def statusLines(status: Status, now: float) -> List[str]:
    """--status: the run in a few lines."""
    died = status["state"] == "died"
    ended = status.get("ended") or (died and status.get("updated"))
    seconds = (ended or now) - status["started"]
    head = stateWords(status)
    if status["state"] in ("finished", "failed", "stopped"):
        head += ", exit status %s, after %s" % (status["exitStatus"], duration(seconds))
    elif died and ended:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ended))
        head += ", last heard of at %s, after %s" % (when, duration(seconds))
    elif not died:
        head += ", %s so far" % duration(seconds)
    lines = [head + (" (EMULATED)" if status.get("emulated") else "")]
    step = status.get("step")
    if step:
        pairs = step["pairs"]
        text = "%s: %d %% (%d of %d pairs)" % (
            stepWords(status),
            percent(status),
            pairs["done"],
            pairs["total"],
        )
        left = leftWords(status) if not (ended or died) else ""
        lines.append(", ".join(part for part in (text, left, failureWords(step)) if part))
    if status.get("resumedPairs"):
        lines.append("%d pairs were measured by an earlier run" % status["resumedPairs"])
    if not (ended or died):
        devices = status["devices"]
        if status["state"] != "benchmarking" and all(each["state"] == "idle" for each in devices):
            lines.append("no work for the devices yet")
        else:
            lines += [deviceLine(device, now) for device in devices]
    return lines
