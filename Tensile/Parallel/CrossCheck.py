# SPDX-License-Identifier: MIT
"""What other tools say of the GPUs: a cross-check, never a source.

The devices of a run come from Devices.py alone. amd-smi (where it is silent, rocm-smi) and
rocminfo are asked for `--doctor`, and by a run that misses a device. A tool that is missing, slow,
failing or not understood is "unknown", which is no disagreement.

What the tools say is joined on the PCI address, never on their own numbers:

- amd-smi and rocm-smi number GPUs by PCI address, HIP by the kernel's node (pytorch 131901).
- They ignore every mask. rocminfo obeys ROCR_VISIBLE_DEVICES, not HIP_VISIBLE_DEVICES.
- Partitions of a card (CPX, DPX) are no PCI devices. The tools give them the card's address with
  the partition in place of the function (rocm_smi_lib 208, rocm-systems 5805), or "N/A"; the
  kernel has put the partition into the function's bits, and at other times above the address
  (amd-gfx list, 23 February and 23 April 2024: "Add partition id field to location_id" and its
  revert). So what is compared is the card, an address without its function, and how often it is
  there.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from .Devices import FROM_EMULATION, DeviceScan, KfdNode, baseArchitecture, readTopology
from .Masks import ROCR, hipMask
from .Platform import DEFAULT_TIMEOUT, ProgramResult, System
from .Terminal import oneLine
from .Types import Device

__all__ = [
    "EnumeratorAnswer",
    "SourceNote",
    "ToolAnswer",
    "ToolGpu",
    "askTools",
    "compareSources",
    "crossCheck",
    "readEnumerator",
    "readRocminfo",
    "readSmi",
    "smiOrdinals",
]

AMD_SMI = "amd-smi"
ROCM_SMI = "rocm-smi"
ROCMINFO = "rocminfo"

# How the line of a tool begins that gave no answer.
UNKNOWN = "unknown: "
# What rocm_agent_enumerator prints for the CPU.
CPU_ARCHITECTURE = "gfx000"
# As the hosts' own readers have it (gfxArch, later gfxToIsa): anywhere in a line.
_ARCHITECTURE = re.compile(r"gfx[0-9a-fA-F]{3,}")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# Brackets in the text before the JSON at which it is looked for: more than any warning has.
MOST_STARTS = 1000
# Numbers told in one line; more would not be read.
MOST_NUMBERS = 8


@dataclass(frozen=True)
class EnumeratorAnswer:
    """What a host's enumerator of GPUs printed.

    Attributes:
        architectures: one per GPU, in its order, without features ("gfx90a"). What was printed
            before a failure stands here as well: hosts read it whatever the exit status.
        failure: one line why the list is not to be relied on; empty where it is. An empty list
            without a failure is an answer: it ran well and named no GPU.
    """

    architectures: Tuple[str, ...]
    failure: str = ""


@dataclass(frozen=True)
class ToolGpu:
    """A GPU as a tool lists it.

    Attributes:
        number: the tool's own number for it; None where it gives none.
        pciAddress: "0000:63:00.0"; "63:00.0" where the tool gives no domain; empty for "N/A".
        architecture: gfx name; empty where the tool does not tell, as for the following.
        computeUnits: 0 where it does not tell.
        uniqueId: 16 hexadecimal digits, as in Device.
    """

    number: Optional[int]
    pciAddress: str
    architecture: str = ""
    product: str = ""
    computeUnits: int = 0
    uniqueId: str = ""


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool said.

    Attributes:
        source: its name.
        gpus: what it listed.
        failure: one line why it is not known what it would list; empty where it is.
    """

    source: str
    gpus: Tuple[ToolGpu, ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class SourceNote:
    """One line about what a tool says.

    Attributes:
        source: the tool.
        ok: False where it disagrees with the devices found and nothing explains it.
        text: the line; it starts with "unknown" where the tool gave no answer.
    """

    source: str
    ok: bool
    text: str


# -- asking -------------------------------------------------------------------------------------


def crossCheck(
    system: System, scan: DeviceScan, timeout: float = DEFAULT_TIMEOUT
) -> Tuple[SourceNote, ...]:
    """Ask the tools and compare what they say with a scan of the same system.

    Args:
        timeout: seconds for each tool.
    """
    if scan.source == FROM_EMULATION:
        return ()
    answers = askTools(system, timeout)
    return compareSources(scan, answers, system.environment, readTopology(system))


def askTools(system: System, timeout: float = DEFAULT_TIMEOUT) -> Tuple[ToolAnswer, ...]:
    """Ask amd-smi, rocm-smi where that does not answer, and rocminfo. Never raises.

    rocminfo starts ROCr, so this is not for a time at which somebody measures.

    Args:
        timeout: seconds for each.
    """
    answers = [_ask(system, AMD_SMI, ["list", "--json"], readSmi, timeout)]
    if answers[0].failure:
        options = ["--showbus", "--showproductname", "--json"]
        answers.append(_ask(system, ROCM_SMI, options, readSmi, timeout))
    answers.append(_ask(system, ROCMINFO, [], readRocminfo, timeout))
    return tuple(answers)


def _ask(
    system: System,
    name: str,
    options: Sequence[str],
    read: Callable[[str], Optional[Tuple[ToolGpu, ...]]],
    timeout: float,
) -> ToolAnswer:
    path = _findTool(system, name)
    if path is None:
        return ToolAnswer(name, failure="%s is not installed" % name)
    result = system.run([path, *options], timeout)
    if not result.succeeded:
        return ToolAnswer(name, failure=_whyFailed(name, result))
    gpus = read(result.stdout)
    if gpus is None:
        words = _lastLine(result) or "nothing"
        return ToolAnswer(name, failure="%s printed no list of GPUs: %s" % (name, words))
    return ToolAnswer(name, gpus)


def _findTool(system: System, name: str) -> Optional[str]:
    """A tool on the user's PATH, else in ROCm's own folder."""
    path = "%s/bin/%s" % (system.environment.get("ROCM_PATH") or "/opt/rocm", name)
    installed = system.realPath(path) if system.exists(path) else None
    return system.findProgram(name) or installed


def readEnumerator(system: System, path: str, timeout: float = DEFAULT_TIMEOUT) -> EnumeratorAnswer:
    """Run `amdgpu-arch` or `rocm_agent_enumerator` under the user's own environment.

    A line per GPU: "gfx942", or with features, "gfx90a:sramecc+:xnack-". rocm_agent_enumerator
    lists the CPU first, as gfx000 or as a blank line. Lines are read as hosts read them: the
    first name in each counts, and what names none is passed over.

    Args:
        path: the program; no arguments are given to it.
        timeout: seconds.
    """
    result = system.run([path], timeout)
    matches = (_ARCHITECTURE.search(line) for line in result.stdout.splitlines())
    found = (match.group().lower() for match in matches if match)
    architectures = tuple(name for name in found if name != CPU_ARCHITECTURE)
    if result.succeeded:
        return EnumeratorAnswer(architectures)
    return EnumeratorAnswer(architectures, _whyFailed(path, result))


def _whyFailed(name: str, result: ProgramResult) -> str:
    """One line on a program that did not succeed."""
    if result.failure:
        return _short(result.failure)
    words = _lastLine(result)
    ended = "%s ended with status %s" % (name, result.exitStatus)
    return _short("%s: %s" % (ended, words) if words else ended)


def _lastLine(result: ProgramResult) -> str:
    """A program's last words: of its errors, else of its output."""
    for text in (result.stderr, result.stdout):
        lines = [line for line in text.splitlines() if line.strip()]
        if lines:
            return _short(lines[-1])
    return ""


def _short(text: str) -> str:
    return oneLine(text)[:300]


# -- reading ------------------------------------------------------------------------------------


def readSmi(text: str) -> Optional[Tuple[ToolGpu, ...]]:
    """The GPUs in what amd-smi or rocm-smi printed; None where there is no list of them.

    Shapes: a list of rows with "gpu" and "bdf" (amd-smi before 26), the same as "gpu_data" of a
    mapping (rocm-systems 223), and rocm-smi's mapping of "card0", "card1"... Warnings may stand
    before it (amdsmi 114), and other lists after it (amd-smi's network cards).
    """
    empty = False
    for value, alone in _jsonValues(text):
        rows = _smiRows(value)
        if rows:
            return tuple(rows)
        empty = empty or (alone and value in ([], {"gpu_data": []}))
    return () if empty else None


def _jsonValues(text: str) -> Iterator[Tuple[Any, bool]]:
    """The JSON lists and mappings in a text, each with whether it has its lines for itself.

    Brackets of a warning open no JSON; those within a value are tried too, and do no harm.
    """
    decoder = json.JSONDecoder()
    for match in islice(re.finditer(r"[\[{]", text), MOST_STARTS):
        start = match.start()
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        before = text[text.rfind("\n", 0, start) + 1 : start]
        yield value, not before.strip() and not text[end:].strip()


def _smiRows(value: Any) -> List[ToolGpu]:
    """The GPUs that a JSON value lists; none where it is something else."""
    if isinstance(value, dict) and "gpu_data" in value:
        value = value["gpu_data"]
    if isinstance(value, list):
        rows = [row for row in value if isinstance(row, dict) and "gpu" in row]
        return [ToolGpu(_number(row["gpu"]), _address(row.get("bdf"))) for row in rows]
    if not isinstance(value, dict):
        return []
    cards = [(re.fullmatch(r"card([0-9]+)", name), row) for name, row in value.items()]
    return [
        ToolGpu(_number(match.group(1)), _address(row.get("PCI Bus")), product=_series(row))
        for match, row in cards
        if match and isinstance(row, dict)
    ]


def _number(value: Any) -> Optional[int]:
    """A tool's number for a GPU, be it a number or a text."""
    text = "" if isinstance(value, bool) else str(value)
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) else None


def _address(value: Any) -> str:
    """A PCI address in small letters; empty where the value is none, such as "N/A"."""
    text = value.strip().lower() if isinstance(value, str) else ""
    return text if _PCI_ADDRESS.fullmatch(text) else ""


def _series(row: Mapping[str, Any]) -> str:
    """rocm-smi's name of the product; its key was written otherwise before ROCm 6."""
    value = row.get("Card Series", row.get("Card series", ""))
    return _short(value) if isinstance(value, str) and value != "N/A" else ""


def readRocminfo(text: str) -> Optional[Tuple[ToolGpu, ...]]:
    """The GPUs among rocminfo's agents, in ROCr's order; None where it lists no agent.

    An agent is a block of "Name: value" lines under a line "Agent 2". BDFID is KFD's location_id
    in decimal; the PCI domain is not printed (rocminfo.cc, DisplayAgentInfo), and on WSL neither.
    """
    agents: List[Dict[str, str]] = []
    for line in text.splitlines():
        if re.fullmatch(r"Agent [0-9]+", line.strip(), re.ASCII):
            agents.append({})
        elif agents:
            name, _, value = line.partition(":")
            # The first of a name: an ISA's "Name" comes later in the block.
            agents[-1].setdefault(name.strip(), value.strip())
    if not agents:
        return None
    found = [agent for agent in agents if agent.get("Device Type") == "GPU"]
    return tuple(_agentGpu(number, agent) for number, agent in enumerate(found))


def _agentGpu(number: int, agent: Mapping[str, str]) -> ToolGpu:
    location = _decimal(agent.get("BDFID", ""))
    address = ""
    if location is not None:
        parts = (location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7)
        address = "%02x:%02x.%x" % parts
    uuid = re.fullmatch(r"GPU-([0-9a-f]{16})", agent.get("Uuid", ""))
    return ToolGpu(
        number=number,
        pciAddress=address,
        architecture=baseArchitecture(agent.get("Name", "")),
        product=agent.get("Marketing Name", ""),
        computeUnits=_decimal(agent.get("Compute Unit", "")) or 0,
        uniqueId=uuid.group(1) if uuid else "",
    )


def _decimal(text: str) -> Optional[int]:
    """The number that a value starts with ("128(0x80)"); None where it starts with none."""
    match = re.match(r"[0-9]{1,10}(?![0-9])", text, re.ASCII)
    return int(match.group()) if match else None


# -- comparing ----------------------------------------------------------------------------------


def compareSources(
    scan: DeviceScan,
    answers: Sequence[ToolAnswer],
    environment: Mapping[str, str],
    nodes: Sequence[KfdNode] = (),
) -> Tuple[SourceNote, ...]:
    """What the tools say, held against the devices that were found. Asks and changes nothing.

    Args:
        environment: the one of the scan: its masks explain what the tools list beyond it.
        nodes: the kernel's topology; nodes that cannot be opened explain the same.

    Returns:
        At least one note per tool; none for emulated devices, which no tool knows.
    """
    if scan.source == FROM_EMULATION:
        return ()
    notes: List[SourceNote] = []
    for answer in answers:
        if answer.failure:
            notes.append(SourceNote(answer.source, True, UNKNOWN + answer.failure))
            continue
        lines = _presence(scan, answer, _masksBeyond(answer.source, environment), nodes)
        lines += [(False, line) for line in _contradictions(scan, answer)]
        line = _renumbered(answer, smiOrdinals(scan, answer, environment))
        lines += [(True, line)] if line else []
        notes += [SourceNote(answer.source, ok, _short(line)) for ok, line in lines]
    return tuple(notes)


def smiOrdinals(
    scan: DeviceScan, answer: ToolAnswer, environment: Mapping[str, str]
) -> Dict[int, int]:
    """A tool's numbers for the GPUs -> the ordinals of the devices here, by PCI address.

    Partitions of one card are told apart by their order, which is the kernel's for both, and so
    only where no mask changes it. What is hidden, or not told apart, is left out.
    """
    ordinals: Dict[int, int] = {}
    domain = _hasDomains(answer)
    masked = bool(_masksBeyond(AMD_SMI, environment))
    for card in _cards((device.pciAddress for device in scan.devices), domain):
        here = [d for d in scan.devices if _card(d.pciAddress, domain) == card]
        there = [g for g in answer.gpus if _card(g.pciAddress, domain) == card]
        there.sort(key=lambda gpu: (gpu.pciAddress, gpu.number or 0))
        if len(here) == len(there) and (len(here) == 1 or not masked):
            pairs = zip(there, here)
            ordinals.update((g.number, d.ordinal) for g, d in pairs if g.number is not None)
    return ordinals


def _presence(
    scan: DeviceScan, answer: ToolAnswer, masks: Sequence[str], nodes: Sequence[KfdNode]
) -> List[Tuple[bool, str]]:
    """Which GPUs only one side has: (whether that is explained, a line) each."""
    domain = _hasDomains(answer)
    listed = _cards((gpu.pciAddress for gpu in answer.gpus), domain)
    visible = _cards((device.pciAddress for device in scan.devices), domain)
    closed = _cards((node.pciAddress for node in nodes if not node.usable), domain)
    # Either side's GPUs without an address may be any that the other side has beyond it.
    nameless = len(answer.gpus) - sum(listed.values())
    unnamed = len(scan.devices) - sum(visible.values())

    lines: List[Tuple[bool, str]] = []
    missing = visible - listed
    if sum(missing.values()) > nameless:
        names = _deviceNames(d for d in scan.devices if _card(d.pciAddress, domain) in missing)
        lines.append((False, "%s does not list %s, visible here" % (answer.source, names)))
    beyond = listed - visible
    left = max(nameless - sum(missing.values()), 0)
    shut = sum((beyond & closed).values()) + min(left, sum((closed - beyond).values()))
    hidden = max(sum(beyond.values()) + left - shut - unnamed, 0)
    counts = "%s lists %s, %s visible" % (
        answer.source,
        _gpus(len(answer.gpus)),
        {0: "none is", 1: "1 is"}.get(len(scan.devices), "%d are" % len(scan.devices)),
    )
    if hidden and masks:
        lines.append((True, "%s: it ignores %s" % (counts, " and ".join(masks))))
    elif hidden:
        why = scan.reason or "nothing hides %s" % (_cardNames(beyond - closed) or "the others")
        lines.append((False, "%s, and %s" % (counts, why)))
    if shut:
        why = "the render nodes of %d cannot be opened here, as in a container" % shut
        lines.append((True, "%s: %s" % (counts, why)))
    if not lines:
        lines.append(
            (True, "%s lists what is visible: %s" % (answer.source, _gpus(len(scan.devices))))
        )
    return lines


def _contradictions(scan: DeviceScan, answer: ToolAnswer) -> List[str]:
    """One line for each fact of a device that a tool tells otherwise.

    Only where a card is one device on both sides.
    """
    lines = []
    for device, gpu in _alone(scan.devices, answer.gpus, _hasDomains(answer)):
        facts = [
            (baseArchitecture(device.architecture), gpu.architecture),
            (device.uniqueId, gpu.uniqueId),
        ]
        # HIP counts pairs of compute units on some architectures (clr, rocdevice.cpp: WGP mode).
        if gpu.computeUnits != 2 * device.computeUnits and gpu.computeUnits and device.computeUnits:
            facts.append(("%d CUs" % device.computeUnits, "%d CUs" % gpu.computeUnits))
        lines += [
            "%s is %s by %s, %s by %s"
            % (_deviceNames([device]), ours, scan.source, theirs, answer.source)
            for ours, theirs in facts
            if ours and theirs and ours != theirs
        ]
    return lines


def _alone(
    devices: Sequence[Device], gpus: Sequence[ToolGpu], domain: bool
) -> List[Tuple[Device, ToolGpu]]:
    """The devices whose card is one device and one GPU of a tool's, with the latter."""
    ours = _cards((device.pciAddress for device in devices), domain)
    theirs = _cards((gpu.pciAddress for gpu in gpus), domain)
    byCard = {_card(gpu.pciAddress, domain): gpu for gpu in gpus}
    cards = [(device, _card(device.pciAddress, domain)) for device in devices]
    return [(d, byCard[card]) for d, card in cards if ours[card] == theirs[card] == 1]


def _renumbered(answer: ToolAnswer, ordinals: Mapping[int, int]) -> str:
    """One line where an smi tool's numbers are not ours; rocminfo's are nobody's."""
    if answer.source == ROCMINFO or all(number == ordinal for number, ordinal in ordinals.items()):
        return ""
    pairs = ["its GPU %d is device %d here" % pair for pair in sorted(ordinals.items())]
    more = ["and so on"] if len(pairs) > MOST_NUMBERS else []
    return "%s numbers GPUs in its own way: %s" % (
        answer.source,
        ", ".join(pairs[:MOST_NUMBERS] + more),
    )


def _masksBeyond(source: str, environment: Mapping[str, str]) -> List[str]:
    """The masks that are set and that a tool does not obey."""
    masks = []
    if ROCR in environment and source != ROCMINFO:
        masks.append("%s=%s" % (ROCR, environment[ROCR]))
    mask = hipMask(environment)
    return masks + ([str(mask)] if mask is not None else [])


def _hasDomains(answer: ToolAnswer) -> bool:
    """Whether a tool's addresses have PCI domains; else those of the devices are not looked at."""
    return all(gpu.pciAddress.count(":") != 1 for gpu in answer.gpus)


def _card(address: str, domain: bool) -> str:
    """A PCI address without the function, and without the domain if the other side has none."""
    card = address.rpartition(".")[0]
    return card if domain else ":".join(card.split(":")[-2:])


def _cards(addresses: Iterable[str], domain: bool) -> "Counter[str]":
    """How many GPUs each card is, by their addresses; those without one do not count."""
    return Counter(_card(address, domain) for address in addresses if address)


def _deviceNames(devices: Iterable[Device]) -> str:
    return ", ".join("device %d (%s)" % (d.ordinal, d.pciAddress) for d in devices)


def _cardNames(cards: Mapping[str, int]) -> str:
    """Cards, such as "0000:05:00, 0000:26:00 (8 times)"."""
    return ", ".join(
        "%s (%d times)" % (card, count) if count > 1 else card
        for card, count in sorted(cards.items())
    )


def _gpus(count: int) -> str:
    return "no GPU" if not count else "1 GPU" if count == 1 else "%d GPUs" % count
