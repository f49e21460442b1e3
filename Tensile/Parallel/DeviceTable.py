# SPDX-License-Identifier: MIT
"""The rows of the display: one per device, or per node where there are more devices than room."""

from __future__ import annotations

from typing import Any, Dict, List

from .DeviceNames import nodesIn, placeIn
from .StatusText import NODE_STATES, speedText
from .Terminal import duration, many, oneLine

Status = Dict[str, Any]

# Columns that a device's name may take.
LONGEST_PLACE = 24
SHORTEST_PLACE = 10


def deviceTable(status: Status, now: float, width: int, most: int) -> Any:
    """A table of rich: as many columns as have room.

    Args:
        status: as in status.json.
        now: seconds since the epoch.
        width: columns of the terminal.
        most: rows that have room.
    """
    if len(status["devices"]) > most and nodesIn(status["devices"]):
        return _nodeTable(status, width, most)
    return _deviceTable(status, now, width, most)


def _deviceTable(status: Status, now: float, width: int, most: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    wide, narrow = width >= 110, width < 60
    table.add_column("device", justify="right", no_wrap=True, min_width=6)
    table.add_column("problem", no_wrap=True, overflow="ellipsis", min_width=8 if narrow else 18)
    table.add_column("solution", justify="right", no_wrap=True, min_width=8)
    if not narrow:
        table.add_column("GFlops", justify="right", no_wrap=True, min_width=7)
        table.add_column("units", justify="right", no_wrap=True, min_width=5)
        table.add_column("failed", justify="right", no_wrap=True, min_width=6)
    if wide:
        table.add_column("kernel", no_wrap=True, overflow="ellipsis", style="dim")
    devices = status["devices"]
    shown = devices if len(devices) <= most else devices[: max(0, most - 1)]
    for device in shown:
        failures = device.get("failures") or 0
        cells = [
            Text(_nameCell(device, narrow)),
            Text(_problemCell(device, now)),
            Text(_solutionCell(device)),
        ]
        if not narrow:
            cells.append(Text(speedText(device.get("gflops"))))
            cells.append(Text(str(device.get("units") or 0)))
            cells.append(Text(str(failures), style="red" if failures else ""))
        if wide:
            cells.append(Text(oneLine(device.get("name") or "")))
        table.add_row(*cells)
    if len(shown) < len(devices):
        table.add_row("", Text("… and %d more devices" % (len(devices) - len(shown)), style="dim"))
    return table


def _nameCell(device: Dict[str, Any], narrow: bool) -> str:
    """Its number; "a:0" where it is a node's. Of a long name the end is kept, with the number."""
    place = oneLine(placeIn(device))
    longest = SHORTEST_PLACE if narrow else LONGEST_PLACE
    if len(place) > longest:
        place = "…" + place[1 - longest :]
    return place or str(device["device"])


def _nodeTable(status: Status, width: int, most: int) -> Any:
    """A row per node: what its devices do, together."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("node", no_wrap=True, overflow="ellipsis", min_width=4)
    table.add_column("busy", justify="right", no_wrap=True, min_width=5)
    table.add_column("units", justify="right", no_wrap=True, min_width=5)
    if width >= 60:
        table.add_column("failed", justify="right", no_wrap=True, min_width=6)
        table.add_column("", no_wrap=True, overflow="ellipsis")
    nodes = nodesIn(status["devices"])
    shown = nodes if len(nodes) <= most else nodes[: max(0, most - 1)]
    for node in shown:
        own = [device for device in status["devices"] if device.get("node") == node]
        failures = sum(device.get("failures") or 0 for device in own)
        cells = [
            Text(oneLine(node)),
            Text("%d/%d" % (sum(d["state"] == "running" for d in own), len(own))),
            Text(str(sum(device.get("units") or 0 for device in own))),
        ]
        if width >= 60:
            cells.append(Text(str(failures), style="red" if failures else ""))
            cells.append(Text(_otherStates(own), style="dim"))
        table.add_row(*cells)
    if len(shown) < len(nodes):
        more = many(len(nodes) - len(shown), "more node")
        table.add_row(Text("… and %s" % more, style="dim"))
    return table


def _otherStates(devices: List[Dict[str, Any]]) -> str:
    """ "1 away, 2 starting": what those do that do not measure."""
    states = [device["state"] for device in devices if device["state"] != "running"]
    return ", ".join("%d %s" % (states.count(state), state) for state in dict.fromkeys(states))


def _problemCell(device: Dict[str, Any], now: float) -> str:
    if device["state"] == "running":
        text = oneLine(device.get("size") or "problem %d" % device["problem"])
        kind = {"again": " (again)", "baseline": " (baseline)"}.get(device.get("kind") or "", "")
        quiet = now - device.get("lastLine", device["since"])
        return text + kind + (" silent for %s" % duration(quiet) if quiet > 30 else "")
    words = {
        "starting": "starting",
        "waiting": "waits for its lock",
        "idle": "idle",
        "lost": "lost",
        **NODE_STATES,
    }
    text = words.get(device["state"], str(device["state"]))
    return text + (" of %s" % oneLine(device["holder"]) if device.get("holder") else "")


def _solutionCell(device: Dict[str, Any]) -> str:
    if device["state"] != "running":
        return ""
    return "%d/%d" % (device["solution"], device["ofSolutions"])
