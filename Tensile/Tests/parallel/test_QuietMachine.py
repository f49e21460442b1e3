# SPDX-License-Identifier: MIT
"""Threads, processors and memory of several clients beside each other."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from Machines import NoHip, makeMachine, pciAddress, put

from Tensile.Parallel.Devices import scanDevices
from Tensile.Parallel.QuietMachine import (
    THREAD_VARIABLES,
    numaNotes,
    readCpuList,
    surroundings,
    threadSettings,
)
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit


class Many(NoHip):
    """A machine with 128 processors, of which we may use all."""

    def processors(self):
        return frozenset(range(128))


def test_threadsDoNotMultiply():
    """Eight clients on 128 processors get 16 threads each, not 128; the last gets one at least."""
    assert threadSettings({}, 128, 8) == {name: "16" for name in THREAD_VARIABLES}
    assert threadSettings({}, 2, 8) == {name: "1" for name in THREAD_VARIABLES}


def test_whatTheUserHasSetStays():
    """OMP_NUM_THREADS of the user's environment is not overruled."""
    for name in THREAD_VARIABLES:
        assert threadSettings({name: "64"}, 128, 8) == {}


def test_overlappingSlotsShareTheirProcessors(tmp_path):
    """Sets that overlap without being equal are not counted twice."""
    system, devices = _machine(tmp_path, ["0-7\n", "0-15\n"])
    found, _ = surroundings(system, devices, affinity=True)
    assert sum(int(found[n].variables["OMP_NUM_THREADS"]) for n in range(2)) <= 16


def _machine(tmp_path, lists):
    makeMachine(tmp_path, len(lists))
    for number, text in enumerate(lists):
        put(tmp_path, "sys/bus/pci/devices/%s/local_cpulist" % pciAddress(number), text)
    system = Many(str(tmp_path), {})
    return system, scanDevices(system).devices


def test_affinityIsThatOfTheSlot(tmp_path):
    """Each worker stays beside its device and shares those processors with its neighbours."""
    halves = ["0-31,64-95\n"] * 2 + ["32-63,96-127\n"]
    system, devices = _machine(tmp_path, halves)
    found, notes = surroundings(system, devices, affinity=True)
    assert notes == []
    assert [min(found[n].processors) for n in range(3)] == [0, 0, 32]
    assert [len(found[n].processors) for n in range(3)] == [64, 64, 64]
    assert [found[n].variables["OMP_NUM_THREADS"] for n in range(3)] == ["32", "32", "64"]


def test_affinityIsOffByDefault(tmp_path):
    """Without the option nothing is pinned, and the threads are shared out all the same."""
    system, devices = _machine(tmp_path, ["0-31\n"] * 4)
    found, _ = surroundings(system, devices, affinity=False)
    assert all(not found[n].processors for n in range(4))
    assert {found[n].variables["OMP_THREAD_LIMIT"] for n in range(4)} == {"32"}


@pytest.mark.parametrize("text, word", [("", "does not tell"), ("200-210\n", "200-210")])
def test_affinityThatCannotBeHadIsSaid(text, word, tmp_path):
    """No list, or none of its processors is ours (a container): said, and not pinned."""
    system, devices = _machine(tmp_path, [text])
    found, notes = surroundings(system, devices, affinity=True)
    assert not found[0].processors
    assert len(notes) == 1 and "device 0" in notes[0] and word in notes[0]


def test_numaBalancingIsSaid(tmp_path):
    """1 in the kernel's setting is a warning for real devices, and nothing for emulated ones."""
    system, devices = _machine(tmp_path, ["0-1\n"])
    assert numaNotes(system, devices) == []
    put(tmp_path, "proc/sys/kernel/numa_balancing", "0\n")
    assert numaNotes(system, devices) == []
    put(tmp_path, "proc/sys/kernel/numa_balancing", "1\n")
    assert "numa_balancing=0" in numaNotes(system, devices)[0]
    assert numaNotes(system, [Device(0, "0", emulated=True)]) == []


@given(st.sets(st.integers(0, 500), min_size=1))
def test_cpuListsAreRead(numbers):
    """Any set of processors, written as the kernel writes it, comes back."""
    ordered = sorted(numbers)
    runs = [[ordered[0], ordered[0]]]
    for number in ordered[1:]:
        if number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ",".join("%d-%d" % (a, b) if a < b else str(a) for a, b in runs)
    assert readCpuList(text + "\n") == numbers


@given(st.text(max_size=20))
def test_anythingElseIsNoCpuList(text):
    """Whatever is in the file, there is an answer."""
    assert isinstance(readCpuList(text), frozenset)


def test_theMachinesOwnProcessorsAreAsked():
    """What a container or taskset allows counts, not what the machine has."""
    if hasattr(os, "sched_getaffinity"):
        assert NoHip().processors() == frozenset(os.sched_getaffinity(0))
