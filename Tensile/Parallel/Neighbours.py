# SPDX-License-Identifier: MIT
"""Who else uses the GPUs: told before a run, for a neighbour's load shows in its times.

The kernel's amdkfd driver (kfd_process.c, kfd_create_process_sysfs and what it calls) has below
/sys/class/kfd/kfd/proc a folder per process that computes on a GPU, named by its process id in
the machine's first PID namespace:

    PID/queues/QUEUE/gpuid      the GPU of a compute queue
    PID/vram_GPUID              bytes of its memory on a GPU; there is one for every GPU it may use

The GPU's id is that of its topology node (gpu_id). amdgpu's gpu_busy_percent (amdgpu_pm.c) tells
of work that no such process does, such as a display's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence

from .Devices import KfdNode, readTopology
from .Platform import System
from .Types import Device

PROCESSES = "/sys/class/kfd/kfd/proc"
# The runtime allocates some memory on every GPU that it sees, used or not.
LEAST_BYTES = 256 << 20
LEAST_PERCENT = 10
_LONGEST_COMMAND = 100
# Files that container engines leave; within, process ids are not those that the kernel's list has.
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True)
class GpuUser:
    """A process that uses a GPU.

    Attributes:
        pid: as the machine counts, which within a container may be nobody or somebody else.
        queues: its compute queues there.
        bytes: its memory there.
        command: its command line; empty where it cannot be told.
    """

    pid: int
    queues: int
    bytes: int
    command: str = ""

    def __str__(self) -> str:
        amounts = ["%d queue%s" % (self.queues, "s" if self.queues > 1 else "")]
        amounts = amounts if self.queues else []
        if self.bytes >= LEAST_BYTES:
            amounts.append("%.1f GiB" % (self.bytes / (1 << 30)))
        command = " (%s)" % self.command if self.command else ""
        return "process %d%s, %s" % (self.pid, command, ", ".join(amounts))


def busyNotes(system: System, devices: Sequence[Device]) -> List[str]:
    """A line for every device that somebody uses now.

    Args:
        devices: emulated ones are passed over.
    """
    real = [device for device in devices if not device.emulated]
    nodes = readTopology(system) if real else []
    notes = []
    for device in real:
        users = gpuUsers(system, _nodeOf(device, nodes))
        who = "; ".join(str(user) for user in users)
        percent = busyPercent(system, device)
        if not who and percent is not None and percent >= LEAST_PERCENT:
            who = "somebody unknown: its card is %d %% busy" % percent
        if who:
            notes.append(
                "device %d is in use by %s: that load will show in the times; end it, or choose "
                "other devices" % (device.ordinal, who)
            )
    return notes


def canTell(system: System) -> bool:
    """Whether the driver says who uses its GPUs."""
    return system.exists(PROCESSES)


def gpuUsers(system: System, node: Optional[KfdNode]) -> List[GpuUser]:
    """The processes that compute on a GPU, or hold much of its memory."""
    if node is None or not node.gpuId:
        return []
    users = []
    inside = any(system.exists(mark) for mark in _CONTAINER_MARKS)
    for name in sorted(filter(str.isdigit, system.listFolder(PROCESSES)), key=int):
        folder = "%s/%s" % (PROCESSES, name)
        queues = [
            _number(system.readText("%s/queues/%s/gpuid" % (folder, queue)))
            for queue in system.listFolder(folder + "/queues")
        ]
        memory = _number(system.readText("%s/vram_%d" % (folder, node.gpuId)))
        own = queues.count(node.gpuId)
        if own or memory >= LEAST_BYTES:
            command = "" if inside else system.commandLine(int(name))[:_LONGEST_COMMAND]
            users.append(GpuUser(int(name), own, memory, command))
    return users


def busyPercent(system: System, device: Device) -> Optional[int]:
    """How busy the device's card is now, in per cent; None where it cannot be told."""
    path = "/sys/bus/pci/devices/%s/gpu_busy_percent" % device.pciAddress
    text = system.readText(path) if device.pciAddress else None
    return int(text) if text is not None and text.strip().isdecimal() else None


def _nodeOf(device: Device, nodes: Sequence[KfdNode]) -> Optional[KfdNode]:
    """The device's node: by its render node, else by an address that only one has."""
    for node in nodes:
        if device.renderNode and node.renderNode == device.renderNode:
            return node
    matching = [node for node in nodes if node.pciAddress == device.pciAddress]
    return matching[0] if len(matching) == 1 else None


def _number(text: Optional[str]) -> int:
    text = (text or "").strip()
    return int(text) if text.isdecimal() else 0
