# SPDX-License-Identifier: MIT
"""Which devices there are, and the environment that pins a process to one of them.

Sources, in the order in which they are asked; the first that answers is used, and named in the
scan:

1. the HIP runtime, in a short-lived child that inherits the user's environment: it applies the
   masks itself, and its order is the order that DeviceList counts in;
2. the kernel's KFD topology in /sys, with the masks applied by the rules in Masks.py.

The topology also adds to what HIP tells: render node, unique id, compute units. Tools such as
amd-smi are not asked: they ignore the masks and number devices in an order of their own.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from .DeviceNames import placeOf
from .Masks import (
    CONTAINER,
    CUDA,
    HIP,
    MASK_VARIABLES,
    OPENCL,
    ROCR,
    UNKNOWN_COUNT,
    MaskResult,
    applyHip,
    applyRocr,
    emulatedUuids,
    emulatedVisible,
    hipMask,
    maskTokens,
)
from .Platform import HIP_ANSWER, System
from .Terminal import oneLine
from .Types import Device

__all__ = [
    "MASK_VARIABLES",
    "DeviceScan",
    "KfdNode",
    "baseArchitecture",
    "describeDevice",
    "emulatedVisible",
    "pinMismatch",
    "pinnedEnvironment",
    "readTopology",
    "scanDevices",
    "scanTopology",
]

TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
FROM_HIP = "the HIP runtime"
FROM_KFD = "the kernel's KFD topology"
FROM_EMULATION = "emulation"
FROM_NOTHING = "nothing"

# MHz, as an MI210 has it. The emulator prints the same for its hardware monitor.
EMULATED_FREQUENCY = 1700

# The processors that LLVM's AMDGPUUsage.rst (table "AMDGPU Processors") calls APU. The MI300A is
# left out: its gfx942 is also the discrete MI300X. The kernel tells it no better: KFD prints
# local_mem_size as 0 for every node (kfd_topology.c, node_show).
INTEGRATED = frozenset(
    "gfx700 gfx801 gfx902 gfx909 gfx90c gfx1013 gfx1033 gfx1035 gfx1036 gfx1037 gfx1103 "
    "gfx1150 gfx1151 gfx1152 gfx1153".split()
)


@dataclass(frozen=True)
class DeviceScan:
    """What the user's environment leaves visible.

    Attributes:
        devices: in HIP's order; device k has ordinal k.
        source: who told.
        notes: one line each: what hides devices, and what else a person should know.
        integrated: ordinals of integrated GPUs.
        reason: why there is no device, in one line; empty where there is one.
    """

    devices: Tuple[Device, ...]
    source: str
    notes: Tuple[str, ...] = ()
    integrated: FrozenSet[int] = frozenset()
    reason: str = ""


@dataclass(frozen=True)
class KfdNode:
    """One GPU of the kernel's topology.

    Attributes:
        node: the number of its folder.
        uuid: as ROCr forms it from the unique id: "GPU-" and 16 hex digits; empty for none.
        usable: whether its render node can be opened; ROCr does not count it otherwise.
        gpuId: the driver's own number for it; 0 where unknown.
        maxFrequency: in MHz, 0 where unknown. It is what HIP's hipDeviceAttributeClockRate
            comes from (ROCr, HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY).
    """

    node: int
    architecture: str
    computeUnits: int
    pciAddress: str
    uniqueId: str
    renderNode: str
    product: str
    usable: bool
    gpuId: int = 0
    maxFrequency: int = 0

    @property
    def uuid(self) -> str:
        """The token by which ROCR_VISIBLE_DEVICES may name it."""
        return "GPU-" + self.uniqueId if self.uniqueId else ""


def scanDevices(system: System, emulate: int = 0) -> DeviceScan:
    """Find the devices that the user's environment leaves visible.

    Args:
        emulate: how many emulated devices the machine is to have instead of its own.
    """
    if emulate > 0:
        return _scanEmulated(system, emulate)
    nodes = readTopology(system)
    answer, failure = _askHip(system)
    if answer is not None:
        return _scanHip(system, answer, nodes)
    return _scanKfd(system, nodes, "%s was not used: %s" % (FROM_HIP, failure))


def scanTopology(system: System) -> DeviceScan:
    """The same by the kernel's topology alone: milliseconds, and no runtime is started."""
    return _scanKfd(system, readTopology(system), None)


def pinnedEnvironment(environment: Mapping[str, str], device: Device) -> Dict[str, str]:
    """The whole environment of a process that may see this one device only.

    ROCR_VISIBLE_DEVICES stays as inherited, for HIP's number counts within it.
    CUDA_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL are removed: some tools abort when they disagree.
    """
    pinned = {name: value for name, value in environment.items() if name not in (CUDA, OPENCL)}
    pinned[HIP] = device.token
    return pinned


def pinMismatch(environment: Mapping[str, str], device: Device) -> str:
    """One line if an environment does not name exactly this device; empty if it does."""
    found = environment.get(HIP)
    if found == device.token:
        return ""
    return "a process meant for device %d has %s=%s in place of %s" % (
        device.ordinal,
        HIP,
        "(unset)" if found is None else found,
        device.token,
    )


def describeDevice(device: Device) -> str:
    """A device for the log: "device 1 (gfx90a, AMD Instinct MI210, 104 CUs, 0000:63:00.0)"."""
    facts = [
        placeOf(device),
        "emulated" if device.emulated else "",
        device.architecture,
        device.product,
        "%d CUs" % device.computeUnits if device.computeUnits else "",
        device.pciAddress,
    ]
    known = ", ".join(fact for fact in facts if fact)
    return "device %d%s" % (device.ordinal, " (%s)" % known if known else "")


def baseArchitecture(name: str) -> str:
    """An architecture without its features: "gfx90a" for "gfx90a:sramecc+:xnack-"."""
    return name.split(":")[0]


# -- emulated devices ---------------------------------------------------------------------------


def _scanEmulated(system: System, count: int) -> DeviceScan:
    numbers = emulatedVisible(system.environment, count)
    tokens = _tokens(system.environment, len(numbers))
    devices = tuple(
        Device(
            ordinal=ordinal,
            token=tokens[ordinal],
            emulated=True,
            product="emulated device %d" % number,
            uniqueId="emulated-%d" % number,
            maxFrequency=EMULATED_FREQUENCY,
        )
        for ordinal, number in enumerate(numbers)
    )
    notes, hides = _maskNotes(system.environment, emulatedUuids(system.environment, count))
    reason = "" if devices else hides
    notes += _oddities(system.environment)
    return DeviceScan(devices, FROM_EMULATION, tuple(notes), reason=reason)


def _tokens(environment: Mapping[str, str], count: int) -> List[str]:
    """The tokens that pick the `count` visible devices, one by one.

    They are the first distinct ones of the mask that HIP reads: what follows a bad token is
    not visible, and repeated tokens are passed over. Without a mask they are the ordinals.
    """
    mask = hipMask(environment)
    if mask is None:
        return [str(ordinal) for ordinal in range(count)]
    return list(dict.fromkeys(maskTokens(mask.text)))[:count]


# -- the HIP runtime ----------------------------------------------------------------------------


def _askHip(
    system: System, environment: Optional[Mapping[str, str]] = None
) -> Tuple[Optional[dict], str]:
    """The runtime's answer, or None and one line why there is none."""
    result = system.hipProbe(environment=environment)
    for line in reversed(result.stdout.splitlines()):
        # Not at the line's start where the runtime wrote an unfinished line before it.
        _, marker, text = line.partition(HIP_ANSWER)
        if marker:
            try:
                return json.loads(text), ""
            except ValueError:
                break
    if result.failure:
        return None, result.failure
    words = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    status = "the child that asked it ended with status %s" % result.exitStatus
    return None, words[-1][:300] if words else status


def _scanHip(system: System, answer: dict, nodes: Sequence[KfdNode]) -> DeviceScan:
    source = "%s (%s)" % (FROM_HIP, answer.get("library", ""))
    found = answer["devices"]
    uuids = [node.uuid for node in nodes if node.usable]
    notes, hides = _maskNotes(system.environment, uuids, runtime=True)
    if not found:
        reason = hides or _whyHipSeesNone(system, nodes)
        return DeviceScan((), source, tuple(notes), reason=reason)
    tokens = _tokens(system.environment, len(found))
    devices = [
        Device(
            ordinal=ordinal,
            token=tokens[ordinal] if ordinal < len(tokens) else str(ordinal),
            architecture=entry["architecture"] or _architectureIn(entry["product"]),
            product=entry["product"],
            computeUnits=entry["computeUnits"],
            pciAddress=entry["pci"],
            maxFrequency=entry.get("maxFrequency", 0),
        )
        for ordinal, entry in enumerate(found)
    ]
    if len(tokens) < len(found) or not all(token.isdigit() for token in tokens):
        wrong = _unconfirmed(system, devices)
        if wrong:
            mask = hipMask(system.environment)
            reason = "%s is not understood (%s): write it as plain numbers" % (mask, wrong)
            return DeviceScan((), source, tuple(notes), reason=reason)
    devices = _named(system.environment, _joined(system.environment, devices, nodes))
    return _finished(devices, source, notes + _oddities(system.environment))


def _unconfirmed(system: System, devices: Sequence[Device]) -> str:
    """One line on the first device that its token does not pick; empty where all do.

    Newer runtimes take UUIDs in HIP_VISIBLE_DEVICES, and two tokens may then name one device.
    So where the mask is more than plain numbers each pin is tried on the runtime itself.
    """
    for device in devices:
        pinned = pinnedEnvironment(system.environment, device)
        answer, failure = _askHip(system, pinned)
        seen = [entry["pci"] for entry in answer["devices"]] if answer is not None else []
        if seen != [device.pciAddress]:
            what = failure or "it leaves %s" % (", ".join(seen) or "no device")
            return "%s=%s does not pick device %d (%s)" % (
                HIP,
                device.token,
                device.ordinal,
                what,
            )
    return ""


def _joined(
    environment: Mapping[str, str], devices: Sequence[Device], nodes: Sequence[KfdNode]
) -> List[Device]:
    """The devices that HIP told of, with what the topology knows of each.

    Joined on the PCI address. Partitions share one, so there the n-th visible node by our own
    mask rules is taken, provided that it has the right address at every place.
    """
    predicted = [node for node, _ in _visibleNodes(environment, nodes, knowsUuids=True)]
    if [n.pciAddress for n in predicted] == [d.pciAddress for d in devices]:
        return [_withNode(device, node) for device, node in zip(devices, predicted)]
    byAddress = Counter(device.pciAddress for device in devices)
    joined = []
    for device in devices:
        matching = [node for node in nodes if node.pciAddress == device.pciAddress]
        alone = len(matching) == 1 and byAddress[device.pciAddress] == 1
        joined.append(_withNode(device, matching[0]) if alone else device)
    return joined


def _withNode(device: Device, node: KfdNode) -> Device:
    return replace(
        device,
        architecture=device.architecture or node.architecture,
        product=device.product or node.product,
        computeUnits=node.computeUnits or device.computeUnits,
        uniqueId=node.uniqueId,
        renderNode=node.renderNode if node.usable else "",
        maxFrequency=device.maxFrequency or node.maxFrequency,
    )


def _named(environment: Mapping[str, str], devices: Sequence[Device]) -> List[Device]:
    """The devices, with an id of our own where the topology gives none and one card has several.

    Partitions share the card's address: a lock on that alone would let one wait for another. The
    id must be the same in every run, so it is made of the number in ROCr's list, which is HIP's
    own where no ROCR_VISIBLE_DEVICES is set.
    """
    rocr = maskTokens(environment.get(ROCR, "")) if environment.get(ROCR) else []

    def numbered(device: Device) -> Device:
        if device.renderNode or device.uniqueId or not device.pciAddress:
            return device
        token = device.token
        if rocr and token.isdecimal() and len(token) < 4 and int(token) < len(rocr):
            token = rocr[int(token)].strip()
        return replace(device, uniqueId="%s-%s" % (device.pciAddress, token))

    return [numbered(device) for device in devices]


# -- the kernel's topology ----------------------------------------------------------------------


def readTopology(system: System) -> List[KfdNode]:
    """The GPUs of the kernel's topology, in the order of their node numbers.

    A node is a GPU when it has SIMDs (libhsakmt, src/topology.c). ROCr leaves out those whose
    render node cannot be opened, as in a container that was given some GPUs only.
    """
    nodes = []
    for name in sorted(filter(str.isdigit, system.listFolder(TOPOLOGY)), key=int):
        folder = "%s/%s" % (TOPOLOGY, name)
        facts = _properties(system.readText(folder + "/properties") or "")
        if facts.get("simd_count", 0) > 0:
            nodes.append(_node(system, int(name), folder, facts))
    return nodes


def _node(system: System, number: int, folder: str, facts: Mapping[str, int]) -> KfdNode:
    minor = facts.get("drm_render_minor", 0)
    renderNode = "/dev/dri/renderD%d" % minor if minor > 0 else ""
    uniqueId = facts.get("unique_id", 0)
    gpuId = (system.readText(folder + "/gpu_id") or "").strip()
    return KfdNode(
        node=number,
        architecture=_architecture(facts.get("gfx_target_version", 0)),
        computeUnits=facts.get("simd_count", 0) // max(facts.get("simd_per_cu", 0), 1),
        pciAddress=_pciAddress(facts),
        uniqueId="%016x" % uniqueId if uniqueId else "",
        renderNode=renderNode,
        product=(system.readText(folder + "/name") or "").strip(),
        usable=bool(renderNode) and system.canOpen(renderNode),
        gpuId=int(gpuId) if gpuId.isdecimal() else 0,
        maxFrequency=facts.get("max_engine_clk_fcompute", 0),
    )


def _properties(text: str) -> Dict[str, int]:
    """A properties file: one "name number" per line; other lines are passed over."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _architecture(version: int) -> str:
    """KFD's gfx_target_version, major * 10000 + minor * 100 + stepping, as a name: 90010 is
    gfx90a. Minor and stepping are hexadecimal digits in the name."""
    if version <= 0:
        return ""
    return "gfx%d%x%x" % (version // 10000, version // 100 % 100, version % 100)


def _architectureIn(product: str) -> str:
    """The architecture where a runtime gives it as the product's name; else empty."""
    return product if re.fullmatch(r"gfx[0-9a-f]{3,5}(:\S+)?", product) else ""


def _pciAddress(facts: Mapping[str, int]) -> str:
    """KFD's location_id is bus (8 bits), device (5), function (3)."""
    if "location_id" not in facts:
        return ""
    location = facts["location_id"]
    return "%04x:%02x:%02x.%x" % (
        facts.get("domain", 0),
        location >> 8 & 0xFF,
        location >> 3 & 0x1F,
        location & 0x7,
    )


def _visibleNodes(
    environment: Mapping[str, str], nodes: Sequence[KfdNode], knowsUuids: bool
) -> List[Tuple[KfdNode, str]]:
    """The nodes that the masks leave, in HIP's order, each with the token that picks it.

    Args:
        knowsUuids: whether HIP's own mask is taken to name devices by UUID too.
    """
    usable = [node for node in nodes if node.usable]
    if ROCR in environment:
        kept = applyRocr(environment[ROCR], [node.uuid for node in usable])
        usable = [usable[index] for index in kept.indices]
    mask = hipMask(environment)
    if mask is None:
        return [(node, str(ordinal)) for ordinal, node in enumerate(usable)]
    uuids = [node.uuid for node in usable] if knowsUuids else []
    return [(usable[index], token) for index, token in applyHip(mask, len(usable), uuids).visible]


def _scanKfd(system: System, nodes: Sequence[KfdNode], note: Optional[str]) -> DeviceScan:
    """What the topology tells.

    Args:
        note: why no HIP runtime told. None where none was asked: it may then be one that knows
            UUIDs, and only what it would name is wanted, not a pin.
    """
    knowsUuids = note is None
    uuids = [n.uuid for n in nodes if n.usable]
    notes, hides = _maskNotes(system.environment, uuids, knowsUuids)
    notes += _oddities(system.environment) + ([] if note is None else [note])
    notes += [
        "%s was left out: its render node %s cannot be opened"
        % (node.pciAddress, node.renderNode or "(none)")
        for node in nodes
        if not node.usable
    ]
    visible = _visibleNodes(system.environment, nodes, knowsUuids)
    reason = hides or _whyNoDevice(system, nodes)
    if reason:
        source = FROM_KFD if nodes else FROM_NOTHING
        return DeviceScan((), source, tuple(notes), reason=reason)
    devices = [
        _withNode(Device(ordinal, token, pciAddress=node.pciAddress), node)
        for ordinal, (node, token) in enumerate(visible)
    ]
    return _finished(devices, FROM_KFD, notes)


# -- notes --------------------------------------------------------------------------------------


def _finished(devices: Sequence[Device], source: str, notes: List[str]) -> DeviceScan:
    """A scan, with the notes that hold for devices from whatever source."""
    # Some kernels put the partition's number into the place of the PCI function (amd-gfx list,
    # February to April 2024).
    for card, count in Counter(device.pciAddress[:-2] for device in devices).items():
        if card and count > 1:
            notes.append(
                "%d devices are partitions of the card %s: they share its power and memory, "
                "so one's load shows in another's times" % (count, card)
            )
    integrated = frozenset(
        device.ordinal for device in devices if baseArchitecture(device.architecture) in INTEGRATED
    )
    return DeviceScan(tuple(devices), source, tuple(notes), integrated)


def _maskNotes(
    environment: Mapping[str, str], uuids: Sequence[str], runtime: bool = False
) -> Tuple[List[str], str]:
    """What the variables do: (notes, the one of them that leaves no device or "").

    Args:
        uuids: of the devices that ROCr counts, "" where one has none; empty where it is not
            known how many there are.
        runtime: a HIP runtime has applied the masks, which may know UUIDs in HIP's.
    """
    notes: List[str] = []
    hides = ""
    count = len(uuids) if uuids else UNKNOWN_COUNT
    kept = list(uuids)
    if ROCR in environment:
        text = environment[ROCR]
        result = applyRocr(text, uuids)
        if uuids or not text:
            line = _hidden(ROCR, text, result, count)
            notes += [line] if line else []
            hides = "" if result.visible else line
            count = len(result.visible)
            kept = [uuids[index] for index in result.indices]
    mask = hipMask(environment)
    known = kept if runtime else []
    untold = runtime and not (known and all(known)) and mask is not None and "GPU-" in mask.text
    if mask is not None and not hides and not untold:
        result = applyHip(mask, count, known)
        line = _hidden(mask.variable, mask.text, result, count)
        notes += [line] if line else []
        hides = "" if result.visible else line
    return notes, hides


def _oddities(environment: Mapping[str, str]) -> List[str]:
    """One line for each variable that does not do what it seems to."""
    notes = []
    if environment.get(HIP) == "":
        notes.append("%s is set but empty, which is taken as unset" % HIP)
    if environment.get(HIP) and CUDA in environment:
        notes.append("%s does not count beside %s" % (CUDA, HIP))
    if OPENCL in environment:
        notes.append("%s is OpenCL's: HIP does not read it" % OPENCL)
    if CONTAINER in environment:
        notes.append("%s is the container runtime's: HIP does not read it" % CONTAINER)
    return notes


def _hidden(variable: str, text: str, result: MaskResult, count: int) -> str:
    """One line on what a mask hides of `count` devices; empty where it hides nothing."""
    numbers = range(0 if count == UNKNOWN_COUNT else count)
    hidden = [str(index) for index in numbers if index not in result.indices]
    setting = "%s=%s" % (variable, text)
    if not result.visible:
        why = "" if text in ("", "-1") else " (%s)" % result.note
        what = "is set but empty, which hides every device" if not text else "hides every device"
        return oneLine("%s %s%s" % (setting if text else variable, what, why))
    what = "hides device %s of %d" % (", ".join(hidden), len(numbers)) if hidden else ""
    if result.note:
        return oneLine("; ".join(filter(None, [result.note, what])))
    return oneLine("%s %s" % (setting, what)) if what else ""


def _whyNoDevice(system: System, nodes: Sequence[KfdNode]) -> str:
    """Why there is no device although no mask hides them all; empty where there is one."""
    groups = "add this user to the groups render and video"
    if not system.exists("/dev/kfd"):
        return "no AMD GPU can be used: there is no /dev/kfd (is the amdgpu driver loaded?)"
    if not system.canAccess("/dev/kfd"):
        return "no AMD GPU can be used: /dev/kfd may not be opened; " + groups
    if not nodes:
        return "no AMD GPU can be used: the kernel's topology lists none"
    if not any(node.usable for node in nodes):
        return "no AMD GPU can be used: none of their render nodes can be opened; " + groups
    return ""


def _whyHipSeesNone(system: System, nodes: Sequence[KfdNode]) -> str:
    """Why the HIP runtime reports no device although no mask of our rules hides them all."""
    reason = _whyNoDevice(system, nodes)
    if reason:
        return reason
    reason = "the HIP runtime reports no device, although the kernel lists %d" % len(nodes)
    for variable in (HIP, CUDA):
        if system.environment.get(variable) == "":
            return (
                "%s; %s is set but empty, which hides every device from ROCm 5.6 on: unset it"
                % (reason, variable)
            )
    masks = [
        "%s=%s" % (name, system.environment[name])
        for name in (ROCR, HIP, CUDA)
        if system.environment.get(name)
    ]
    return oneLine("%s (%s)" % (reason, ", ".join(masks))) if masks else reason
