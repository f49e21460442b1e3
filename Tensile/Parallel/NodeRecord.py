# SPDX-License-Identifier: MIT
"""What a run's nodes did, and when they came and went, from its step.json files.

Nothing of it is there for a run on one machine.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from .DeviceNames import nodesIn

# Words for a device's changes (Loop.DeviceChange), for people.
CHANGES = {
    "joined": "has joined",
    "left": "has left",
    "away": "is gone",
    "back": "is back",
    "lost": "is set aside",
}
_GONE = ("left", "away", "lost")
_FACTS = ("driver", "rocm", "kernel", "python")


def changesOf(step: dict, ordinal: int) -> List[dict]:
    """When a device came and went in a step, in order."""
    own = [each for each in step.get("deviceChanges") or () if each.get("device") == ordinal]
    return sorted(own, key=lambda change: change.get("at") or 0.0)


def nodeSummaries(
    devices: Sequence[Dict[str, Any]], steps: Sequence[dict], own: Sequence[dict], wall: float
) -> List[Dict[str, Any]]:
    """An entry per node, for execution_summary.json.

    Args:
        devices: the run's devices with what they did, as that file has them.
        steps: all steps.
        own: those of this run; times are theirs alone.
        wall: how long these took in all, in seconds.
    """
    return [
        _nodeSummary(node, [d for d in devices if d.get("node") == node], steps, own, wall)
        for node in nodesIn(devices)
    ]


def _nodeSummary(
    node: str, devices: Sequence[dict], steps: Sequence[dict], own: Sequence[dict], wall: float
) -> Dict[str, Any]:
    ordinals = [device["ordinal"] for device in devices]
    busy = sum(device["busySeconds"] for device in devices)
    known = [step for step in [*steps, *own] if node in (step.get("nodes") or {})]
    facts = known[-1]["nodes"][node] if known else {}
    lost = {device for step in own for device in step.get("devicesLost") or ()}
    return {
        "node": node,
        "devices": ordinals,
        "units": sum(device["units"] for device in devices),
        "pairs": sum(device["pairs"] for device in devices),
        "retimedPairs": sum(device["retimedPairs"] for device in devices),
        "busySeconds": round(busy, 3),
        "busyShare": round(busy / wall / len(devices), 4) if wall > 0 else 0.0,
        "firstSeen": _firstSeen(ordinals, own),
        "lastSeen": _lastSeen(ordinals, own),
        "lost": [ordinal for ordinal in ordinals if ordinal in lost],
        "lostBecause": _lostBecause(ordinals, own),
        **{name: facts.get(name) for name in _FACTS},
        "clientHash": known[-1].get("clientHash") if known else None,
    }


def _lostBecause(ordinals: Sequence[int], own: Sequence[dict]) -> List[Dict[str, Any]]:
    """Why devices of a node were given up: each reason once, with the devices."""
    reasons: Dict[str, List[int]] = {}
    for step in own:
        for change in step.get("deviceChanges") or ():
            if change.get("what") == "lost" and change.get("device") in ordinals:
                devices = reasons.setdefault(change.get("why") or "", [])
                if change["device"] not in devices:
                    devices.append(change["device"])
    return [{"why": why, "devices": sorted(devices)} for why, devices in reasons.items() if why]


def _firstSeen(ordinals: Sequence[int], own: Sequence[dict]) -> Optional[float]:
    """When a node's first device was there: it joined, or its worker was started in a step."""
    times = [
        entry[key]
        for step in own
        for name, key in (("deviceChanges", "at"), ("workers", "begun"), ("units", "started"))
        for entry in step.get(name) or ()
        if entry.get("device") in ordinals and entry.get(key)
    ]
    return min(times, default=None)


def _lastSeen(ordinals: Sequence[int], own: Sequence[dict]) -> Optional[float]:
    """When the last device of a node went, or the end of the last step that had it."""
    for step in reversed(own):
        used = [part["ordinal"] for part in step.get("devices") or ()]
        there = [ordinal for ordinal in ordinals if ordinal in used]
        if not there:
            continue
        last = [changesOf(step, ordinal)[-1:] for ordinal in there]
        gone = [each[0] for each in last if each and each[0]["what"] in _GONE]
        return max(each["at"] for each in gone) if len(gone) == len(there) else step["ended"]
    return None
