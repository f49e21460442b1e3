# SPDX-License-Identifier: MIT
"""Who else uses the GPUs."""

from __future__ import annotations

import pytest
from Machines import NoHip, addProcess, makeMachine, pciAddress, put

from Tensile.Parallel.Devices import scanDevices
from Tensile.Parallel.Neighbours import busyNotes
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit


def _notes(root, **environment):
    system = NoHip(str(root), environment)
    return busyNotes(system, scanDevices(system).devices)


def test_anIdleMachineIsNotWarnedAbout(tmp_path):
    """No process, or one that only has the driver open, is no neighbour."""
    makeMachine(tmp_path, 4)
    addProcess(tmp_path, 300, "rocm-smi", vram={number: 0 for number in range(4)})
    assert _notes(tmp_path) == []


def test_aBusyDeviceIsNamedWithItsProcess(tmp_path):
    """The device, the process and its command line, in one line; the others are not named."""
    makeMachine(tmp_path, 4)
    addProcess(tmp_path, 4711, "python train.py --big", queues=[2, 2], vram={2: 12 << 30, 1: 4096})
    (note,) = _notes(tmp_path)
    assert "device 2" in note and "process 4711 (python train.py --big)" in note
    assert "2 queues, 12.0 GiB" in note and "\n" not in note


def test_theOrdinalIsHips(tmp_path):
    """A mask renumbers the devices: the warning has the number that DeviceList counts with."""
    makeMachine(tmp_path, 4)
    addProcess(tmp_path, 4711, "x", queues=[2])
    (note,) = _notes(tmp_path, HIP_VISIBLE_DEVICES="3,2")
    assert "device 1 is in use" in note
    assert _notes(tmp_path, ROCR_VISIBLE_DEVICES="0,1") == []


def test_memoryAloneCounts(tmp_path):
    """A process that holds much of the memory is told of, though it has no queue now."""
    makeMachine(tmp_path, 2)
    addProcess(tmp_path, 8, "jupyter", vram={0: 20 << 30, 1: 1 << 20})
    (note,) = _notes(tmp_path)
    assert "device 0" in note and "20.0 GiB" in note


def test_workOfNoProcessShowsInTheBusyPercent(tmp_path):
    """Graphics have no entry in the compute driver's list; the card's load is read instead."""
    makeMachine(tmp_path, 2)
    put(tmp_path, "sys/bus/pci/devices/%s/gpu_busy_percent" % pciAddress(1), "97\n")
    (note,) = _notes(tmp_path)
    assert "device 1" in note and "97 % busy" in note


def test_inAContainerTheCommandIsNotGuessed(tmp_path):
    """Process ids of the machine are other processes' in a container: only the number is said."""
    makeMachine(tmp_path, 1)
    addProcess(tmp_path, 12, "sleep 1000", queues=[0])
    put(tmp_path, ".dockerenv", "")
    (note,) = _notes(tmp_path)
    assert "process 12," in note and "sleep" not in note


@pytest.mark.parametrize("text", ["", "many\n", "-3\n", "\x00"])
def test_whatCannotBeReadIsNoNeighbour(text, tmp_path):
    """Files that hold no number are passed over."""
    makeMachine(tmp_path, 1)
    put(tmp_path, "sys/bus/pci/devices/%s/gpu_busy_percent" % pciAddress(0), text)
    put(tmp_path, "sys/class/kfd/kfd/proc/5/queues/0/gpuid", text)
    put(tmp_path, "sys/class/kfd/kfd/proc/5/vram_10000", text)
    assert _notes(tmp_path) == []


def test_emulatedDevicesHaveNoNeighbours(tmp_path):
    """The machine's own GPUs are nothing to an emulated run."""
    makeMachine(tmp_path, 1)
    addProcess(tmp_path, 5, "x", queues=[0])
    assert busyNotes(NoHip(str(tmp_path), {}), [Device(0, "0", emulated=True)]) == []
