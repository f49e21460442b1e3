# SPDX-License-Identifier: MIT
"""TensileParallel --doctor: whether a run could start here, and what stands in its way.

It looks and asks; it starts no benchmark, takes no lock and changes nothing. A host takes 45 s
to start, so none is started either: what is said of it is read from its files.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence

from . import __version__
from .CrossCheck import UNKNOWN, crossCheck, readEnumerator
from .DeviceList import ALL_DEVICES, DeviceSelection, Selection, selectDevices
from .Devices import (
    FROM_HIP,
    FROM_KFD,
    DeviceScan,
    describeDevice,
    readTopology,
    scanDevices,
)
from .Errors import InputError
from .Files import isProgram
from .Host import Host, findHost, unsafeInShell
from .HostClock import clockFor
from .Locks import LOCK_DIR_VARIABLE, firstProblem, lockHolder
from .Masks import CONTAINER, ENDS_BEFORE, MASK_VARIABLES
from .Neighbours import busyNotes, canTell
from .ParseArguments import RunSettings
from .Platform import System
from .QuietMachine import numaNotes
from .Report import installedVersions
from .Terminal import oneLine
from .Toolchain import ENUMERATORS, findToolchain

YES, NO = "\u2713", "\u2717"
_PLAIN = {YES: "+", NO: "x"}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's.

    Attributes:
        ok: whether all is well.
        text: what was found.
        advice: what to do; empty where there is nothing to do.
        fatal: a run could not start because of it.
    """

    ok: bool
    text: str
    advice: str = ""
    fatal: bool = False

    def __str__(self) -> str:
        return "%s %s%s" % (YES if self.ok else NO, self.text, self.advice and ": " + self.advice)


@dataclass(frozen=True)
class Visit:
    """What the doctor is asked about.

    Attributes:
        tensileRoot: --tensile-root.
        client: the tensile_client to run; None where none was named.
        emulate: number of emulated devices; 0 for the machine's own.
        out: the output folder; empty where none was named.
        wanted: the devices that a run would name; None: every one.
        noList: why a run with this config would be serial; empty where it would not.
        strict, noWait: the options.
        pinClocks: whether the config asks for PinClocks.
        settings: the command line.
        config: in the default format; None where none was named.
    """

    tensileRoot: Optional[str] = None
    client: Optional[str] = None
    emulate: int = 0
    out: str = ""
    wanted: DeviceSelection = None
    noList: str = ""
    strict: bool = False
    noWait: bool = False
    pinClocks: bool = False
    settings: RunSettings = RunSettings()
    config: Any = None


def visit(system: System, asked: Visit) -> List[Finding]:
    """Everything that can be found out, in the order in which a run would meet it."""
    findings = _ourselves()
    host = _findHost(system, asked, findings)
    if host is not None:
        findings += _client(system, asked, host) + _toolchain(system, asked, host)
    scan = scanDevices(system, asked.emulate)
    if not asked.emulate:
        findings += _driver(system, needed=not scan.devices)
    findings += _visible(scan)
    findings += _masks(system, scan)
    findings += _otherSources(system, scan)
    findings += _enumerator(system, asked, host, scan)
    findings += _chosen(system, asked, host, scan)
    return findings + _output(asked)


def report(findings: Sequence[Finding], encoding: Optional[str]) -> List[str]:
    """The findings as lines, and whether a run could start.

    Args:
        encoding: of the terminal; one without check marks gets "+" and "x".
    """
    lines = ["TensileParallel %s" % __version__, *map(str, findings)]
    fatal = [finding.text.partition(":")[0] for finding in findings if finding.fatal]
    if fatal:
        causes = ", ".join(dict.fromkeys(fatal))
        lines.append("A parallel run cannot start, because of: %s." % causes)
    elif all(finding.ok for finding in findings):
        lines.append("A run can start.")
    else:
        lines.append("A run can start; what has a %s is worth a look." % NO)
    try:
        (YES + NO).encode(encoding or "ascii")
    except (UnicodeError, LookupError):
        for mark, plain in _PLAIN.items():
            lines = [line.replace(mark, plain) for line in lines]
    return lines


def exitStatus(findings: Sequence[Finding]) -> int:
    """0, or 1 where a run could not start."""
    return int(any(finding.fatal for finding in findings))


def _ourselves() -> List[Finding]:
    versions = installedVersions()
    python = "Python %s (%s)" % (versions.pop("python"), sys.executable)
    names = ("joblib", "msgpack", "PyYAML", "loky")
    shown = ", ".join("%s %s" % (name, versions[name]) for name in names)
    return [Finding(True, "%s with %s" % (python, shown))]


def _findHost(system: System, asked: Visit, findings: List[Finding]) -> Optional[Host]:
    try:
        host = findHost(system.environment, asked.tensileRoot, emulated=asked.emulate > 0)
    except InputError as error:
        findings.append(Finding(False, "host: %s" % error, fatal=True))
        return None
    findings.append(Finding(True, "host: %s (%s)" % (host.description, host.source)))
    return host


def _client(system: System, asked: Visit, host: Host) -> List[Finding]:
    if asked.client is None and asked.emulate:
        return [Finding(True, "client: the emulated one; its times are made up")]
    if asked.client is None and host.buildsClient:
        return [Finding(True, "client: none was named, so Tensile builds its own")]
    path = os.path.abspath(asked.client) if asked.client is not None else host.defaultClient
    if isProgram(path):
        return [Finding(True, "client: %s" % path)]
    text = "client: %s is no executable file" % path
    return [Finding(False, text, "build it, or name one with --client", True)]


def _toolchain(system: System, asked: Visit, host: Host) -> List[Finding]:
    if host.standIn:
        return [Finding(True, "toolchain: the stand-in host needs none")]
    builds = host.buildsClient and asked.client is None and not asked.emulate
    tools = findToolchain(system, host, builds)
    if tools.missing:
        names = ", no ".join(tools.missing)
        text = "toolchain: no %s in %s or on the PATH" % (names, tools.rocm)
        return [Finding(False, text, "install ROCm's compilers, or set ROCM_PATH", True)]
    names = ", ".join(name for name, _ in tools.found)
    return [Finding(True, "toolchain: %s (ROCm in %s)" % (names, tools.rocm))]


def _driver(system: System, needed: bool) -> List[Finding]:
    """The kernel's driver, and whether this user may open what it offers.

    Args:
        needed: no device is visible. Else the runtime has found some without it (as on WSL).
    """
    if not system.exists("/dev/kfd"):
        advice = "load it (`modprobe amdgpu`); a container needs --device=/dev/kfd"
        return [Finding(not needed, "driver: there is no /dev/kfd", advice, needed)]
    version = (system.readText("/sys/module/amdgpu/version") or "").strip()
    driver = "driver: amdgpu %s" % (version or "(part of the kernel)")
    member = "render" in system.groups()
    groups = "`sudo usermod -aG render,video $LOGNAME`, then log in anew"
    if not system.canAccess("/dev/kfd"):
        who = "" if member else " (this user is not in the group render)"
        text = "%s: /dev/kfd may not be opened%s" % (driver, who)
        return [Finding(False, text, groups, True)]
    found = [Finding(True, "%s: /dev/kfd can be opened" % driver)]
    nodes = readTopology(system)
    closed = [node for node in nodes if not node.usable]
    if nodes and len(closed) == len(nodes):
        text = "render nodes: none of %d can be opened" % len(nodes)
        advice = groups if not member else "give the container --device=/dev/dri/renderDN"
        found.append(Finding(False, text, advice, True))
    elif closed:
        names = [os.path.basename(node.renderNode) for node in nodes if node.usable]
        text = "render nodes: %d of %d can be opened (%s): only those are devices here"
        found.append(Finding(True, text % (len(names), len(nodes), ", ".join(names))))
    elif nodes:
        found.append(Finding(True, "render nodes: all %d can be opened" % len(nodes)))
    return found


def _visible(scan: DeviceScan) -> List[Finding]:
    if not scan.devices:
        return [Finding(False, "devices: none is visible: %s" % scan.reason, fatal=True)]
    kinds = sorted({device.architecture for device in scan.devices if device.architecture})
    what = " (%s)" % ", ".join(kinds) if kinds else ""
    count = "%d visible%s, by %s" % (len(scan.devices), what, scan.source)
    lines = [Finding(True, "devices: %s" % count)]
    if scan.source == FROM_KFD:
        advice = "a client cannot start without: install ROCm's runtime, or find out what ails it"
        broken = next((note for note in scan.notes if note.startswith(FROM_HIP)), FROM_HIP)
        lines = [Finding(False, broken, advice), *lines]
    return lines + [Finding(True, describeDevice(device)) for device in scan.devices]


def _masks(system: System, scan: DeviceScan) -> List[Finding]:
    """The variables that hide devices, and what the scan has to say."""
    names = [name for name in (*MASK_VARIABLES, CONTAINER) if name in system.environment]
    told = [*scan.notes, scan.reason]
    notes = [note for note in scan.notes if note != scan.reason and not note.startswith(FROM_HIP)]
    silent = [name for name in names if not any(name in line for line in told)]
    pairs = ["%s=%s" % (name, system.environment[name]) for name in silent]
    lines = ["masks: %s is set, and leaves what is listed" % oneLine(pair) for pair in pairs]
    if not names:
        lines = ["masks: no variable hides a device"]
    return [Finding(True, line) for line in lines] + [
        Finding(ENDS_BEFORE not in note, note) for note in notes
    ]


def _otherSources(system: System, scan: DeviceScan) -> List[Finding]:
    """Whether the tools agree, which are asked for nothing else."""
    lines = []
    for note in crossCheck(system, scan):
        text = note.text[len(UNKNOWN) :] if note.text.startswith(UNKNOWN) else note.text
        named = text if note.source in text else "%s: %s" % (note.source, text)
        lines.append(Finding(note.ok, "cross-check: %s" % named))
    return lines


def _enumerator(
    system: System, asked: Visit, host: Optional[Host], scan: DeviceScan
) -> List[Finding]:
    """What Tensile itself would ask for the architecture; a run tells it (HostArchitecture.py)."""
    if host is None or host.standIn or asked.emulate or not scan.devices:
        return []
    tools = findToolchain(system, host, False)
    path = next((path for name, path in tools.found if name in ENUMERATORS), None)
    if path is None:
        return []
    answer = readEnumerator(system, path)
    if answer.failure:
        line = "cross-check: %s; a run tells Tensile the architecture" % answer.failure
        return [Finding(True, line)]
    counts = Counter(answer.architectures)
    listed = ", ".join("%d %s" % (count, name) for name, count in counts.items()) or "no GPU"
    return [Finding(True, "cross-check: %s lists %s" % (os.path.basename(path), listed))]


def _chosen(system: System, asked: Visit, host: Optional[Host], scan: DeviceScan) -> List[Finding]:
    """The devices that a run would use: their kinds, users and locks."""
    if not scan.devices:
        return []
    if asked.noList:
        text = "DeviceList: %s, so a run would be serial Tensile" % asked.noList
        return [Finding(False, text, "write DeviceList: [-1], or give --devices all", True)]
    wanted = ALL_DEVICES if asked.wanted is None else asked.wanted
    try:
        selection = selectDevices(wanted, scan, asked.strict)
    except InputError as error:
        if asked.wanted is None:
            return [Finding(False, "all devices together would not do: %s" % error)]
        text = str(error)
        text = text if text.startswith("DeviceList") else "DeviceList: %s" % text
        return [Finding(False, text, fatal=True)]
    findings = [Finding(False, note) for note in selection.notes]
    if not selection.devices:
        return findings + [Finding(False, "DeviceList: %s" % selection.reason, fatal=True)]
    numbers = ", ".join(str(device.ordinal) for device in selection.devices)
    findings.append(Finding(True, "a run would use device %s" % numbers))
    return findings + _clock(asked, host, selection) + _quiet(system, asked, selection)


def _clock(asked: Visit, host: Optional[Host], selection: Selection) -> List[Finding]:
    """Whether the host would ask for a clock that nobody knows."""
    if host is None or asked.config is None:
        return []
    try:
        clock, note = clockFor(host, asked.settings, asked.config, selection.devices)
    except InputError as error:
        return [Finding(False, "clock: %s" % error, fatal=True)]
    if note:
        return [Finding(False, "clock: %s" % note)]
    return [Finding(True, "clock: Tensile is told %d MHz" % clock)] if clock else []


def _quiet(system: System, asked: Visit, selection: Selection) -> List[Finding]:
    """Whether anything would disturb the measurements."""
    findings: List[Finding] = []
    busy = busyNotes(system, selection.devices)
    findings += [Finding(False, note) for note in busy]
    if not busy and (asked.emulate or canTell(system)):
        findings.append(Finding(True, "neighbours: nobody else uses them"))
    elif not busy:
        findings.append(Finding(True, "neighbours: the driver here does not tell who they are"))
    findings += _locks(system, asked, selection)
    findings += [Finding(False, note) for note in numaNotes(system, selection.devices)]
    if asked.pinClocks:
        text = "PinClocks: Tensile pins the clocks of GPU 0, whichever are used"
        findings.append(Finding(False, text, "a run turns it off"))
    return findings


def _locks(system: System, asked: Visit, selection: Selection) -> List[Finding]:
    if asked.emulate and not system.environment.get(LOCK_DIR_VARIABLE):
        return [Finding(True, "locks: emulated devices are those of one run")]
    problem = firstProblem(selection.devices, None, system)
    if problem:
        return [Finding(False, "locks: %s" % problem, fatal=True)]
    found = []
    for device in selection.devices:
        holder = lockHolder(device, None, system)
        if holder:
            text = "locks: another run has device %d: %s" % (device.ordinal, holder)
            advice = "with --no-wait a run gives up" if asked.noWait else "a run would wait for it"
            found.append(Finding(False, text, advice, asked.noWait))
    return found or [Finding(True, "locks: no other run has them")]


def _output(asked: Visit) -> List[Finding]:
    """Whether the output folder would do, where one was named."""
    unsafe = unsafeInShell(os.path.abspath(asked.out)) if asked.out else None
    if unsafe is None:
        return []
    text = "output folder: %r has %r in its path, which Tensile's run.sh does not quote"
    return [Finding(False, text % (asked.out, unsafe), "choose another", True)]
