# SPDX-License-Identifier: MIT
"""The report's sections on devices and nodes: what each did, and what it is."""

from __future__ import annotations

import shlex
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .DeviceNames import nameIn, nameOf, placeOf
from .HtmlParts import (
    EXTRA_COLOUR,
    FAILED_COLOUR,
    HOST_COLOUR,
    MEASURED_COLOUR,
    WAIT_COLOUR,
    WARM_UP_COLOUR,
    Cell,
    Column,
    Raw,
    bar,
    escaped,
    facts,
    legend,
    named,
    paragraph,
    section,
    table,
)
from .Picture import Row, colourOf, draw
from .ReportData import RunData
from .Terminal import duration
from .Timeline import WAIT, Span, deviceSpans, hostSpans
from .Types import Device

MAX_WORDS = 60  # of the command line

_LEGEND = (
    (MEASURED_COLOUR, "measuring"),
    (EXTRA_COLOUR, "baselines, re-timings"),
    (WARM_UP_COLOUR, "warming up"),
    (FAILED_COLOUR, "failed units"),
    (HOST_COLOUR, "Tensile: kernels, logic"),
)


def devicesSection(data: RunData) -> Tuple[str, bool]:
    """(who did what and when, whether that has matplotlib's picture)."""
    record, summary = data.record, data.summary
    spans = {
        device.ordinal: deviceSpans(record, data.steps, device.ordinal) for device in record.devices
    }
    rows = [Row("host", tuple(hostSpans(record, data.steps)))]
    rows += [
        Row(placeOf(device) or "device %d" % device.ordinal, tuple(spans[device.ordinal]))
        for device in _byNode(record.devices)
    ]
    pictures = draw(rows, record.started, record.ended)
    columns = [Column("device", "k"), Column("units", "n"), Column("pairs", "n")]
    columns += [Column("busy", "n"), Column("in the steps", "wide")]
    columns += [Column("speed", "n")]
    cells = _rows(summary, spans)
    shown = {colourOf(span) for row in rows for span in row.spans}
    shown = shown - {HOST_COLOUR} if pictures is None else shown
    colours = [pair for pair in _LEGEND if pair[0] in shown]
    colours += [] if pictures else [(WAIT_COLOUR, "waiting")]
    parts = [
        '<div class="picture">%s%s</div>' % pictures if pictures else "",
        legend(colours),
        table(columns, cells) if cells else "",
    ]
    if any(row[-1] != "" for row in cells):
        text = "Speed is that of a short measurement on each device, over the median device's."
        parts.append(paragraph(text, "quiet"))
    return section("Devices", *parts), pictures is not None


def _byNode(devices: Sequence[Device]) -> List[Device]:
    """Devices by their nodes: one that came later has a number after those of other nodes."""
    nodes = list(dict.fromkeys(device.node for device in devices))
    return sorted(devices, key=lambda device: (nodes.index(device.node), device.ordinal))


def _rows(summary: Dict[str, Any], spans: Dict[int, List[Span]]) -> List[Sequence[Cell]]:
    """A row per device; with nodes, one of each node above those of its devices."""
    if "nodes" not in summary:
        return [_row(device, spans) for device in summary["devices"]]
    rows: List[Sequence[Cell]] = []
    for node in summary["nodes"]:
        own = [device for device in summary["devices"] if device["ordinal"] in node["devices"]]
        whole = [span for device in own for span in spans[device["ordinal"]]]
        title = Raw("<b>%s</b>" % escaped("node %s" % node["node"]))
        rows.append((title, *_numbers(node), _busyBar(whole), ""))
        rows += [_row(device, spans) for device in own]
    return rows


def _row(device: Dict[str, Any], spans: Dict[int, List[Span]]) -> Sequence[Cell]:
    ratio = device["baselineRatio"]
    return (
        "%s %s" % (nameIn(device, "ordinal"), device["architecture"]),
        *_numbers(device),
        _busyBar(spans[device["ordinal"]]),
        "%.3f" % ratio if ratio is not None else "",
    )


def _numbers(entry: Dict[str, Any]) -> Tuple[str, str, str]:
    """Units, pairs and time of a device or a node."""
    seconds, share = duration(entry["busySeconds"], tenths=True), 100 * entry["busyShare"]
    return (
        "{:,}".format(entry["units"]),
        "{:,}".format(entry["pairs"]),
        "%s (%.0f %%)" % (seconds, share),
    )


def _busyBar(spans: Sequence[Span]) -> Cell:
    """How a device spent the steps' time."""
    whole = sum(span.seconds for span in spans)
    sums: Dict[str, float] = {}
    for span in spans:
        if span.category != WAIT:
            sums[colourOf(span)] = sums.get(colourOf(span), 0.0) + span.seconds
    order = (MEASURED_COLOUR, EXTRA_COLOUR, WARM_UP_COLOUR, FAILED_COLOUR)
    times = {color: sums.get(color, 0.0) for color in order}
    parts = [(t / whole, color, duration(t, tenths=True)) for color, t in times.items() if whole]
    return bar(parts)


def environmentSection(data: RunData) -> str:
    """With what it was run: command, host, versions, devices, nodes."""
    record, summary = data.record, data.summary
    host = record.host
    words = list(record.command[:MAX_WORDS]) + ["…"] * (len(record.command) > MAX_WORDS)
    described = "%s %s in %s" % (
        host.get("generation", ""),
        host.get("version", ""),
        host.get("tree", ""),
    )
    if host.get("standIn"):
        described = "stand-in for " + described
    missing = ", ".join(map(str, record.missing))
    versions = ["%s %s" % (name, version or "–") for name, version in summary["versions"].items()]
    known = facts(
        [
            ("command", " ".join(word if word == "…" else shlex.quote(word) for word in words)),
            ("config", record.config),
            ("output", data.out),
            ("Tensile", described.strip()),
            ("client", record.client or ("the emulated one" if record.emulated else "")),
            ("versions", ", ".join(versions)),
            ("missing devices", missing),
            ("run", record.run),
        ]
    )
    columns = [Column("device", "n"), Column("architecture", "k"), Column("product", "wide")]
    columns += [Column("CUs", "n"), Column("MHz", "n"), Column("PCI address", "k")]
    columns += [Column("unique id", "k")]
    rows = [
        (
            nameOf(device),
            device.architecture,
            device.product,
            str(device.computeUnits or ""),
            str(device.maxFrequency or ""),
            device.pciAddress,
            device.uniqueId,
        )
        for device in _byNode(record.devices)
    ]
    devices = table(columns, rows) if rows else ""
    heading = "<h3>Devices of the run</h3>" if rows else ""
    return section("Environment", known, heading, devices, *_nodes(summary))


def _nodes(summary: Dict[str, Any]) -> List[str]:
    """What each node runs, and when it was there."""
    nodes = summary.get("nodes")
    if not nodes:
        return []
    columns = [Column("node", "k"), Column("devices"), Column("driver"), Column("ROCm")]
    columns += [Column("kernel"), Column("Python"), Column("client"), Column("first seen", "k")]
    columns += [Column("last seen", "k"), Column("set aside")]
    rows = [
        (
            node["node"],
            ", ".join(map(str, node["devices"])),
            *(node[name] or "" for name in ("driver", "rocm", "kernel", "python")),
            named(node["clientHash"], node["clientHash"][:12]) if node["clientHash"] else "",
            _time(node["firstSeen"]),
            _time(node["lastSeen"]),
            ", ".join(map(str, node["lost"])),
        )
        for node in nodes
    ]
    parts = ["<h3>Nodes</h3>", table(columns, rows)]
    if any(node["clientHash"] for node in nodes):
        text = "The client is told by the beginning of its SHA-256; pointing at it shows the rest."
        parts.append(paragraph(text, "quiet"))
    return parts


def _time(moment: Optional[str]) -> str:
    """ "11-30 17:40:05" of a time in ISO 8601: the year is said above."""
    return moment[5:19].replace("T", " ") if moment else ""
