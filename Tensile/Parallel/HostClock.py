# SPDX-License-Identifier: MIT
"""The clock that some hosts ask a GPU for, answered before they start.

TensileLite from early 2025 on divides a winner's speed by the GPU's clock (UseEffLike, on by
default). Where a config has LibraryLogic, Tensile() asks the GPU at its start, before it has read
a parameter of the command line (Tensile.py in the trees):

- early 2025: hip-python, which it installs by pip where it is missing; then rocm-smi; then
  input(), again and again until there is a number, also where stdin has ended;
- 2026: hip-python where it is there; then amd-smi; then input(), where stdin is a terminal.

A run has its answer from the scan of its devices, or from --max-frequency, and hands it over
(HostBootstrap.py). So the host neither asks nor installs anything, nor waits for anybody.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

from .CommandLine import givesHostOption
from .ConfigSteps import globalParameters
from .Errors import InputError
from .Host import Host
from .ParseArguments import RunSettings
from .Types import Device

# The function of a host that asks, and what a host has that asks nobody where nobody is there.
_ASKS = "def get_gpu_max_frequency("
_TERMINAL_ONLY = ".isatty()"
_DEFAULT = 'globalParameters["UseEffLike"] = True'
# Runs that write no logic.
_WITHOUT_LOGIC = ("--build-only", "--cpu-only")


def clockFor(
    host: Host, settings: RunSettings, config: Any, devices: Sequence[Device]
) -> Tuple[Optional[int], str]:
    """(the clock that the host is to be given, in MHz; a note or "").

    None where the host does not ask for it. Where devices differ, it is the first one's, as the
    host itself would ask one device for all.

    Args:
        config: in the default format.
        devices: those of the run.

    Raises:
        InputError: the host would ask, and it is not known.
    """
    if not asksForClock(host, settings, config):
        return None, ""
    if settings.maxFrequency is not None:
        return settings.maxFrequency, ""
    known = [device for device in devices if device.maxFrequency]
    if not known:
        raise InputError(
            "this Tensile divides by the GPU's clock, which is not known here: give it with "
            "--max-frequency MHZ, or set UseEffLike: False in the config's GlobalParameters"
        )
    first = known[0]
    different = sorted({device.maxFrequency for device in known} - {first.maxFrequency})
    if not different:
        return first.maxFrequency, ""
    note = (
        "the devices' clocks differ (%d MHz of device %d, and %s): Tensile divides all speeds by "
        "the first; --max-frequency MHZ decides otherwise"
    )
    others = ", ".join("%d MHz" % each for each in different)
    return first.maxFrequency, note % (first.maxFrequency, first.ordinal, others)


def asksForClock(host: Host, settings: RunSettings, config: Any) -> bool:
    """Whether the host would ask for the clock at its start, or LibraryLogic at the end.

    The command line's UseEffLike reaches LibraryLogic alone: Tensile() looks into the config.
    """
    if not isinstance(config, dict) or "LibraryLogic" not in config:
        return False
    if any(givesHostOption(settings.hostOptions, option) for option in _WITHOUT_LOGIC):
        return False
    if _ASKS not in host.module("Tensile.py"):
        return False
    text = settings.parameter("UseEffLike")
    if text is not None and text.strip() not in ("False", "0", "None"):
        return True
    default = _DEFAULT in host.module("Common", "GlobalParameters.py")
    return bool(globalParameters(config).get("UseEffLike", default))


def mayHangWithoutTerminal(host: Host) -> bool:
    """Whether its question for the clock has no end where stdin is no terminal."""
    source = host.module("Tensile.py")
    return _ASKS in source and _TERMINAL_ONLY not in source
