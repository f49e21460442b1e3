# SPDX-License-Identifier: MIT
"""Folders that stand for "/" of a machine with AMD GPUs, with the files as its drivers make them.

The shapes: topology as amdgpu's kfd_topology.c prints it, process folders as kfd_process.c,
gpu_busy_percent and local_cpulist as amdgpu_pm.c and the PCI core.
"""

from __future__ import annotations

import json
from pathlib import Path

from Tensile.Parallel.Platform import HIP_ANSWER, ProgramResult, System

NODES = "sys/class/kfd/kfd/topology/nodes"
MI210 = ("gfx90a", 90010, 104, "AMD Instinct MI210")

# A node's properties as the amdgpu driver prints them (a selection of its lines).
PROPERTIES = """cpu_cores_count 0
simd_count %(simds)d
mem_banks_count 1
caches_count 177
io_links_count 1
max_waves_per_simd 8
simd_per_cu 4
gfx_target_version %(version)d
vendor_id 4098
device_id 29711
location_id %(location)d
domain 0
drm_render_minor %(minor)d
hive_id 0
num_xcc 1
max_engine_clk_fcompute 1700
local_mem_size 0
unique_id %(unique)d
"""
CPU = "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\ndrm_render_minor 0\n"


def pciAddress(number: int) -> str:
    """The address of the machine's GPU of this number, from 0."""
    return "0000:%02x:00.0" % (0x03 + 0x20 * number)


def gpuId(number: int) -> int:
    """The driver's number for it."""
    return 10000 + 1111 * number


def put(root: Path, path: str, text: str) -> Path:
    """Write a file below a root, with its folders."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def makeMachine(root: Path, gpus: int, renderNodes=None, kind=MI210, first=0) -> Path:
    """A machine with a CPU and some GPUs of one kind.

    Args:
        gpus: how many; GPU k has render node 128 + k.
        renderNodes: numbers of the GPUs whose render node is there; None: all.
        first: number of its first GPU, to add to a machine that is there.
    """
    _, version, units, _ = kind
    put(root, "dev/kfd", "")
    put(root, NODES + "/0/properties", CPU)
    for number in range(first, first + gpus):
        folder = "%s/%d" % (NODES, number + 1)
        facts = dict(simds=units * 4, version=version, minor=128 + number, unique=number + 1)
        facts["location"] = (0x03 + 0x20 * number) << 8
        put(root, folder + "/properties", PROPERTIES % facts)
        put(root, folder + "/name", "\n")
        put(root, folder + "/gpu_id", "%d\n" % gpuId(number))
        put(root, "sys/bus/pci/devices/%s/gpu_busy_percent" % pciAddress(number), "0\n")
        if renderNodes is None or number in renderNodes:
            put(root, "dev/dri/renderD%d" % (128 + number), "")
    return root


def addProcess(root: Path, pid: int, command: str, queues=(), vram=None) -> None:
    """A process that has the driver open.

    Args:
        queues: numbers of the GPUs that it has a queue on, one each.
        vram: GPU number -> bytes.
    """
    folder = "sys/class/kfd/kfd/proc/%d" % pid
    put(root, folder + "/pasid", "32771\n")
    for place, number in enumerate(queues):
        put(root, "%s/queues/%d/gpuid" % (folder, place), "%d\n" % gpuId(number))
        put(root, "%s/queues/%d/type" % (folder, place), "0\n")
    for number, size in (vram or {}).items():
        put(root, "%s/vram_%d" % (folder, gpuId(number)), "%d\n" % size)
    if command:
        put(root, "proc/%d/cmdline" % pid, command.replace(" ", "\0") + "\0")


class NoHip(System):
    """A machine without a HIP runtime."""

    def hipProbe(self, timeout=0, environment=None):
        return ProgramResult(["python"], 1, stderr="libamdhip64.so is not installed")


def hipMachine(numbers, kind=MI210):
    """A System whose HIP runtime has these GPUs, whatever the masks."""
    name, _, units, product = kind
    devices = [
        {
            "product": product,
            "pci": pciAddress(number),
            "architecture": name,
            "computeUnits": units,
        }
        for number in numbers
    ]

    class AnsweringHip(System):
        """A machine whose HIP runtime gives a prepared answer."""

        def hipProbe(self, timeout=0, environment=None):
            text = json.dumps({"library": "libamdhip64.so.6", "devices": devices})
            return ProgramResult(["python"], 0, HIP_ANSWER + text + "\n")

    return AnsweringHip
