# SPDX-License-Identifier: MIT
"""How a device is called: "5" on one machine, "5 (b:1)" where it is device 1 of node b.

What tells of a device in JSON has `node` and `nodeOrdinal` beside its number where there are nodes;
on one machine it has neither.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Dict, Iterable, List, Mapping

from .Types import Device


def nodeFields(device: Device) -> Dict[str, Any]:
    """What stands beside a device's number in JSON; empty on one machine."""
    return {"node": device.node, "nodeOrdinal": device.nodeOrdinal} if device.node else {}


def deviceFields(device: Device) -> Dict[str, Any]:
    """All that is known of a device, for JSON."""
    fields = asdict(device)
    if not device.node:
        del fields["node"], fields["nodeOrdinal"]
    return fields


def placeIn(entry: Mapping[str, Any]) -> str:
    """ "b:1", the node and the number there; empty on one machine.

    Args:
        entry: what JSON has of a device.
    """
    return "%s:%s" % (entry["node"], entry.get("nodeOrdinal")) if entry.get("node") else ""


def nameIn(entry: Mapping[str, Any], key: str = "device") -> str:
    """ "5 (b:1)"; on one machine "5".

    Args:
        entry: what JSON has of a device.
        key: where its number stands.
    """
    place = placeIn(entry)
    return "%s (%s)" % (entry.get(key), place) if place else str(entry.get(key))


def nodeIn(entry: Mapping[str, Any]) -> Dict[str, Any]:
    """The same of what JSON has of a device."""
    return {key: entry[key] for key in ("node", "nodeOrdinal") if entry.get("node")}


def placeOf(device: Device) -> str:
    """ "b:1"; empty on one machine."""
    return placeIn(nodeFields(device))


def nameOf(device: Device) -> str:
    """ "5 (b:1)"; on one machine "5"."""
    return nameIn({"device": device.ordinal, **nodeFields(device)})


def listed(devices: Iterable[Device]) -> str:
    """ "0, 1 of a; 2 of b"; on one machine "0, 1"."""
    nodes: Dict[str, List[str]] = {}
    for device in devices:
        nodes.setdefault(device.node, []).append(str(device.ordinal))
    return "; ".join(
        ", ".join(numbers) + (" of %s" % node if node else "") for node, numbers in nodes.items()
    )


def nodesIn(entries: Iterable[Mapping[str, Any]]) -> List[str]:
    """The nodes of devices, each once, in the order of the devices.

    Args:
        entries: what JSON has of them.
    """
    return list(dict.fromkeys(entry["node"] for entry in entries if entry.get("node")))
