# SPDX-License-Identifier: MIT
"""What keeps several clients on one machine from disturbing each other.

- Threads: each client would start as many as there are processors (the reference that validates
  results asks for 64: Tensile, Source/client/source/Reference.cpp). So a client gets its share,
  unless the user has set the variables.
- --affinity: a worker, and so its clients, stay on the processors beside their GPU.
- NUMA balancing: the kernel moves memory pages while a benchmark runs; AMD's tuning guides for
  Instinct machines turn it off. Only said, for it is the administrator's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, FrozenSet, List, Mapping, Sequence, Tuple

from .Platform import System
from .Types import Device

# OMP_THREAD_LIMIT holds even against omp_set_num_threads, which the client's reference calls.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT")
NUMA_BALANCING = "/proc/sys/kernel/numa_balancing"
# CPU lists of the kernel do not reach further; a file that says otherwise is no CPU list.
_MOST_CPUS = 1 << 16


@dataclass(frozen=True)
class Surroundings:
    """What a device's worker and its clients get besides their pin.

    Attributes:
        variables: for their environment.
        processors: where they are to stay; empty: anywhere.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    processors: FrozenSet[int] = frozenset()


def surroundings(
    system: System, devices: Sequence[Device], affinity: bool
) -> Tuple[Dict[int, Surroundings], List[str]]:
    """(ordinal -> its worker's surroundings, what is to be said).

    Args:
        devices: those of the run.
        affinity: whether workers are to stay beside their devices.
    """
    allowed = system.processors()
    near: Dict[int, FrozenSet[int]] = {}
    notes: List[str] = []
    if affinity:
        near, notes = nearbyProcessors(system, devices, allowed)
    found = {}
    for device in devices:
        own = near.get(device.ordinal, allowed)
        sharing = sum(bool(near.get(other.ordinal, allowed) & own) for other in devices)
        variables = threadSettings(system.environment, len(own), sharing)
        found[device.ordinal] = Surroundings(variables, near.get(device.ordinal, frozenset()))
    return found, notes


def threadSettings(
    environment: Mapping[str, str], processors: int, deviceCount: int
) -> Dict[str, str]:
    """Variables that give each of several clients its share of the processors.

    Args:
        environment: the user's; where it sets one of them, nothing is changed.
        processors: how many this process may use.
        deviceCount: how many clients run at once.
    """
    if any(name in environment for name in THREAD_VARIABLES):
        return {}
    share = str(max(1, processors // max(1, deviceCount)))
    return {name: share for name in THREAD_VARIABLES}


def nearbyProcessors(
    system: System, devices: Sequence[Device], allowed: FrozenSet[int]
) -> Tuple[Dict[int, FrozenSet[int]], List[str]]:
    """The processors beside each device's slot, for --affinity.

    Args:
        allowed: those that this process may use (a container, taskset or Slurm may limit them).

    Returns:
        (ordinal -> processors, a line for each device that gets none).
    """
    found: Dict[int, FrozenSet[int]] = {}
    notes = []
    for device in devices:
        path = "/sys/bus/pci/devices/%s/local_cpulist" % device.pciAddress
        text = system.readText(path) if device.pciAddress else None
        near = readCpuList(text or "") & allowed
        if near:
            found[device.ordinal] = near
        else:
            why = "the machine does not tell which processors are beside it"
            if text is not None and text.strip():
                why = "none of the processors beside it (%s) may be used" % text.strip()
            notes.append("--affinity: device %d stays free to roam: %s" % (device.ordinal, why))
    return found, notes


def readCpuList(text: str) -> FrozenSet[int]:
    """The numbers of a kernel CPU list such as "0-3,64-67"; none where it is malformed."""
    numbers: List[int] = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or int(last) >= _MOST_CPUS:
            return frozenset()
        numbers += range(int(first), int(last) + 1)
    return frozenset(numbers)


def numaNotes(system: System, devices: Sequence[Device]) -> List[str]:
    """A line where the kernel balances memory between NUMA nodes."""
    text = (system.readText(NUMA_BALANCING) or "").strip()
    if text in ("", "0") or all(device.emulated for device in devices):
        return []
    return [
        "NUMA balancing is on, which makes times jump: `sysctl kernel.numa_balancing=0` turns it "
        "off until the next boot"
    ]
