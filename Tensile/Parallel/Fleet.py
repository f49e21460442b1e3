# SPDX-License-Identifier: MIT
"""The devices of several machines as those of one run: which are used, and how they are numbered.

Every device of the cluster has a number of its own in the run: machines in the order of their
names, then HIP's order. A number stays a device's for as long as the output folder is used, whoever
joins later (cluster.json). DeviceList and --devices choose on each machine.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .DeviceList import DeviceSelection, Selection, selectDevices
from .Devices import DeviceScan, baseArchitecture
from .Errors import InputError
from .Files import replaceJson
from .StepFolder import keepAside
from .Types import Device

REGISTER_FILE = "cluster.json"
VERSION = 1


@dataclass(frozen=True)
class Member:
    """A worker that has joined: one device of one machine.

    Attributes:
        address: where Dask's scheduler finds it.
        node: the machine's name.
        join: tells two joins of one name apart.
        device: as the machine numbers it.
        client: the command of the emulated client there.
        version: of TensileParallel there.
        hash: of its modules there.
        versions: of driver, ROCm, kernel and Python there; for the record.
        leaving: whether it takes no more units.
        busy: whether another run had it when we came.
        clockAhead: of its clock before ours, in seconds.
    """

    address: str
    node: str
    join: str
    device: Device
    client: Tuple[str, ...]
    version: str
    hash: str
    versions: Mapping[str, str]
    leaving: bool = False
    busy: bool = False
    clockAhead: float = 0.0

    @property
    def key(self) -> Tuple[str, str, int]:
        """What stays the same when its worker is started anew."""
        return deviceKey(self.node, self.device.uniqueId, self.device.ordinal)


def deviceKey(node: str, uniqueId: str, ordinal: int) -> Tuple[str, str, int]:
    """A device among those of all machines. A GPU keeps its unique id under other masks."""
    return (node, uniqueId, -1 if uniqueId else ordinal)


def keyOf(device: Device) -> Tuple[str, str, int]:
    """The same of a device that has its number in the run."""
    return deviceKey(device.node, device.uniqueId, device.nodeOrdinal)


class Register:
    """Which number each device has in an output folder."""

    def __init__(self, path: Optional[str]) -> None:
        """Reads it.

        Args:
            path: cluster.json; None to keep it in memory.
        """
        self._path = path
        self._devices: List[Device] = []
        self._versions: Dict[str, Any] = {}
        self._present: List[int] = []
        self._first = 0
        if path is None:
            return
        self._first = _firstFree(os.path.dirname(path))
        try:
            with open(path, encoding="utf-8") as stream:
                data = json.load(stream)
            if data["version"] == VERSION:
                self._devices = [Device(**device) for device in data["devices"]]
                self._versions = dict(data["nodes"])
                self._present = list(data.get("present") or ())  # files of older versions lack it
                self._first = 0
        except (OSError, ValueError, KeyError, TypeError):
            pass  # it is not there yet, or nothing that we wrote

    @property
    def devices(self) -> Tuple[Device, ...]:
        """All that were ever used here."""
        return tuple(self._devices)

    @property
    def versions(self) -> Dict[str, Any]:
        """Node -> its driver, ROCm, kernel and Python."""
        return dict(self._versions)

    @property
    def present(self) -> Tuple[Device, ...]:
        """Those that were there and used when it was looked last."""
        return tuple(device for device in self._devices if device.ordinal in self._present)

    def setPresent(self, ordinals: Iterable[int]) -> None:
        """Says which these are now."""
        self._present = sorted(ordinals)

    def number(self, members: Sequence[Member], chosen: Sequence[Member]) -> List[Device]:
        """Gives devices their numbers in the run.

        Args:
            members: all that have joined; they are numbered in this order.
            chosen: those that are used.

        Returns:
            The chosen ones.
        """
        known = {keyOf(device): device.ordinal for device in self._devices}
        for member in sorted(members, key=lambda m: (m.node, m.device.ordinal)):
            if member.key not in known:
                known[member.key] = max([self._first - 1, *known.values()]) + 1
            ordinal, own = known[member.key], member.device
            device = replace(own, ordinal=ordinal, node=member.node, nodeOrdinal=own.ordinal)
            self._devices = [d for d in self._devices if d.ordinal != ordinal] + [device]
            self._versions[member.node] = dict(member.versions)
        self._devices.sort(key=lambda device: device.ordinal)
        wanted = {member.key for member in chosen}
        return [device for device in self._devices if keyOf(device) in wanted]

    def write(self) -> None:
        """Keeps it."""
        if self._path is not None:
            devices = [asdict(device) for device in self._devices]
            data = {"version": VERSION, "devices": devices, "nodes": self._versions}
            replaceJson(self._path, {**data, "present": self._present})


def _firstFree(outputs: str) -> int:
    """The first number that no device of this machine has had in an outputs folder."""
    try:
        names = os.listdir(outputs)
    except OSError:
        return 0
    found = [int(name[4:]) for name in names if name.startswith("gpu_") and name[4:].isdigit()]
    return max(found, default=-1) + 1


def refuseNodesFolder(outputs: str, fresh: bool) -> None:
    """This machine's own devices would have the numbers of nodes' devices in such a folder.

    Args:
        outputs: the outputs folder.
        fresh: whether what it holds is to be forgotten.

    Raises:
        InputError: nodes have measured there.
    """
    path = registerPath(outputs)
    if fresh and os.path.exists(path):
        keepAside(Path(path))
    if os.path.exists(path):
        raise InputError(
            "%s holds what nodes of a cluster have measured: go on with --scheduler, or with "
            "--local-cluster 1 for this machine's devices, or choose another folder" % outputs
        )


def registerPath(outputs: str) -> str:
    """Where an outputs folder keeps its register."""
    return os.path.join(outputs, REGISTER_FILE)


def usedDevices(begun: Sequence[Device], outputs: str, steps: Sequence[dict]) -> Tuple[Device, ...]:
    """The devices that a run began with, and those of nodes that have joined it later.

    Args:
        begun: those that it began with.
        outputs: its outputs folder.
        steps: every step.json.
    """
    if not begun or not begun[0].node:
        return tuple(begun)
    own = {device.ordinal for device in begun}
    own |= {part["ordinal"] for step in steps for part in step.get("devices") or ()}
    known = {device.ordinal: device for device in begun}
    known.update((each.ordinal, each) for each in Register(registerPath(outputs)).devices)
    return tuple(device for ordinal, device in sorted(known.items()) if ordinal in own)


def refuseStrangers(members: Sequence[Member], version: str, ownHash: str) -> None:
    """Both sides of the wire must be the same program.

    Raises:
        InputError: a node has another one, or two joins have one name.
    """
    joins: Dict[str, set] = defaultdict(set)
    for member in members:
        joins[member.node].add(member.join)
        if member.hash != ownHash:
            other = "another TensileParallel (%s)" % member.version
            if member.version == version:
                other = "other files of TensileParallel %s" % version
            raise InputError(
                "node %s has %s than this machine: install the same on both and start its join "
                "anew, or end that join" % (member.node, other)
            )
    for node, names in sorted(joins.items()):
        if len(names) > 1:
            raise InputError(
                "two joins call themselves %s: end one, or give it another name with "
                "--node-name" % node
            )


def choose(
    members: Sequence[Member], selection: DeviceSelection, strict: bool = False
) -> Tuple[List[Member], Selection]:
    """The devices that a DeviceList names, of every machine.

    Args:
        members: those that have joined.
        selection: as DeviceList.py reads it.
        strict: a device that a machine lacks is an error.

    Returns:
        (the members, a selection without devices: notes, what is missing, and the reason where
        nothing is left).

    Raises:
        InputError: strict and one is missing, or they are of several architectures.
    """
    chosen: List[Member] = []
    notes: List[str] = []
    missing: List[int] = []
    reason = "" if members else "no node has joined"
    for node in sorted({member.node for member in members}):
        own = sorted((m for m in members if m.node == node), key=lambda m: m.device.ordinal)
        scan = DeviceScan(tuple(m.device for m in own), "node " + node)
        try:
            picked = selectDevices(selection, scan, strict)
        except InputError as error:
            raise InputError("node %s: %s" % (node, error)) from None
        notes += ["node %s: %s" % (node, note) for note in picked.notes]
        missing += picked.missing
        reason = reason or picked.reason and "node %s: %s" % (node, picked.reason)
        chosen += [member for member in own if member.device in picked.devices]
    _refuseMixed(chosen)
    if chosen:
        reason = ""
    return chosen, Selection((), tuple(missing), tuple(notes), reason)


def fits(member: Member, architecture: str) -> bool:
    """Whether a device that comes later can be used in a run."""
    own = member.device.architecture
    return not (own and architecture) or baseArchitecture(own) == baseArchitecture(architecture)


def _refuseMixed(members: Sequence[Member]) -> None:
    found: Dict[str, List[str]] = defaultdict(list)
    for member in members:
        if member.device.architecture:
            name = baseArchitecture(member.device.architecture)
            if member.node not in found[name]:
                found[name].append(member.node)
    if len(found) > 1:
        parts = ["%s (node %s)" % (name, ", ".join(found[name])) for name in sorted(found)]
        raise InputError(
            "the nodes have several architectures: %s: a run tunes one, so let only nodes of one "
            "join" % ", ".join(parts)
        )
