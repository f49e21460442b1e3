# SPDX-License-Identifier: MIT
"""Tells the host which architecture a run's devices have.

Left to itself a host asks an enumerator, whichever devices DeviceList names, and takes of those
that it supports (detectGlobalCurrentISA in the trees):

- TensileLite 2024 and early 2025: amdgpu-arch, or the config's AMDGPUArchPath; the first, since
  Device still has its default then;
- classic 4.44: rocm_agent_enumerator, whatever the config says; the last;
- TensileLite 2026: amdgpu-arch; the one at the config's Device.

The enumerators count in an order of their own and need not obey HIP's masks; they may print
nothing. So no host is left to itself where the architecture is known, which is what our own scan
found. It is told on the command line, which all of them have for it, and the config stays the
user's own:

- where there is --gpu-targets (2026), with that: nothing is asked then;
- else with the global parameter CurrentISA. It is assigned after the enumerator was asked and
  before anything else reads it (assignGlobalParameters and argUpdatedGlobalParameters in the
  trees), but for classic Tensile's HardwareMonitor: it is turned off here as well where it would
  have been, and stays off where the enumerator's answer had turned it off.

An enumerator of our own, named in a config of our own, would do on TensileLite 2024 and early
2025 alone: classic Tensile overwrites ROCmAgentEnumeratorPath (Tensile.py), and 2026 has no such
parameter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence, Tuple

from .CommandLine import givesHostOption
from .ConfigSteps import globalParameters
from .Devices import baseArchitecture
from .Host import CLASSIC, Host
from .ParseArguments import RunSettings
from .Types import Device

# (9, 0, 10) for gfx90a: what hosts call an ISA.
Isa = Tuple[int, int, int]

# ROCr then reports another architecture than the kernel does.
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"

_ISA = r"\(\s*(\d+),\s*(\d+),\s*(\d+)\s*\)"
# What is between the ISAs of a list in a host's source.
_BETWEEN = r"(?:\s|,|IsaVersion)*"


@dataclass(frozen=True)
class Telling:
    """How a host is told the architecture.

    Attributes:
        parameters: global parameters for its command line, name to Python literal.
        options: further options for its command line.
        line: one line for the log; empty where there is nothing to say.
        warning: whether the line is one for the user to see.
    """

    parameters: Mapping[str, str] = field(default_factory=dict)
    options: Tuple[str, ...] = ()
    line: str = ""
    warning: bool = False


def tellArchitecture(
    host: Host,
    settings: RunSettings,
    config: Any,
    devices: Sequence[Device],
    environment: Mapping[str, str],
) -> Telling:
    """What the host is to be told. Nothing where the user decides, or the devices are emulated.

    Args:
        config: in the default format.
        devices: those of the run: of one architecture, as DeviceList.py makes sure.
        environment: the user's.
    """
    names = {baseArchitecture(device.architecture) for device in devices} - {""}
    isa = isaOf(names.pop()) if len(names) == 1 else None
    if isa is None:
        return Telling()
    name = gfxName(isa)
    parameters = globalParameters(config)
    targets = "--gpu-targets" in host.module("Tensile.py")
    decides = _whatDecides(host, settings, parameters, environment, targets)
    if decides:
        return Telling(line="%s decides the architecture; the devices are %s" % (decides, name))
    line = "Tensile is told that the devices are %s" % name
    if targets:
        return Telling(options=("--gpu-targets", _targets(parameters, isa)), line=line)
    common = host.module("Common.py") or host.module("Common", "GlobalParameters.py")
    if "CurrentISA" not in common:
        line = "Tensile finds the architecture by itself; if that is not %s, add ISA: [%s] to the "
        return Telling(line=line % (name, list(isa)) + "config's GlobalParameters")
    supported = isasIn(common, "SupportedISA")
    if supported and isa not in supported:
        line = "this Tensile makes no assembly kernels for %s (see SupportedISA in %s)"
        return Telling(line=line % (name, host.tree), warning=True)
    told = {"CurrentISA": str(isa)}
    given = "HardwareMonitor" in parameters or settings.parameter("HardwareMonitor") is not None
    if not given and isa in isasIn(common, "isasWithDisabledHWMonitor"):
        told["HardwareMonitor"] = "False"
    return Telling(told, line=line)


def isaOf(name: str) -> Optional[Isa]:
    """The ISA that a gfx name means; None where it is none: "gfx90a:xnack-" is (9, 0, 10)."""
    found = re.match(r"gfx(\d+)(\d)([0-9a-f])(?![0-9a-f])", name.strip().lower())
    return (int(found[1]), int(found[2]), int(found[3], 16)) if found else None


def gfxName(isa: Isa) -> str:
    """ "gfx90a" for (9, 0, 10)."""
    return "gfx%d%d%x" % isa


def isasIn(source: str, name: str) -> Tuple[Isa, ...]:
    """The ISAs in a list or tuple that a host's source assigns to a name; none where not found."""
    pattern = r"%s[\"'\]]*\s*=\s*[\[(]((?:%s%s)+)" % (re.escape(name), _BETWEEN, _ISA)
    found = re.search(pattern, re.sub("#.*", "", source))
    if found is None:
        return ()
    listed = re.findall(_ISA, found[1])
    return tuple((int(major), int(minor), int(step)) for major, minor, step in listed)


def _whatDecides(
    host: Host,
    settings: RunSettings,
    parameters: Mapping[str, Any],
    environment: Mapping[str, str],
    targets: bool,
) -> str:
    """What of the user's says the architecture, or who is to be asked for it; empty for nothing.

    Only what the host would heed: a config's ROCmAgentEnumeratorPath is overwritten by classic
    Tensile, and a command line's enumerator comes too late for the others.
    """
    options = ("--gpu-targets", "--rocm-agent-enumerator") if targets else ("--arch",)
    for option in options:
        if givesHostOption(settings.hostOptions, option):
            return option
    if not targets and settings.parameter("CurrentISA") is not None:
        return "--global-parameters CurrentISA"
    inConfig = ["ISA"] if targets else ["CurrentISA"]
    if not targets and host.generation != CLASSIC:
        inConfig.append("AMDGPUArchPath")
    for name in inConfig:
        if name in parameters:
            return "the config's %s" % name
    return next((name for name in environment if name.startswith(OVERRIDE)), "")


def _targets(parameters: Mapping[str, Any], isa: Isa) -> str:
    """The value of --gpu-targets.

    It keeps the host from reading the config's Architecture, which alone can tell a stepping
    ("gfx1250v0") that has no ISA of its own. So the names there that mean this ISA are given.
    """
    named = [name.strip() for name in str(parameters.get("Architecture", "")).split(";")]
    return ";".join([name for name in named if isaOf(name) == isa] or [gfxName(isa)])
