# SPDX-License-Identifier: MIT
"""DeviceList: read it, and pick the devices it names from those that there are.

It is a list of integers from 0, which count in what the user's environment leaves visible as
HIP orders it, or [-1] for every device. Absent, null or empty means: run serially.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set, Tuple, Union

from .Devices import DeviceScan, baseArchitecture
from .Errors import InputError
from .Types import Device

ALL_DEVICES = "all"
WHAT_IS_RIGHT = "write a list of device numbers from 0, such as [0, 1, 2], or [-1] for all"

# None: no list was given; ALL_DEVICES; or the numbers as they were written.
DeviceSelection = Union[None, str, Tuple[int, ...]]


@dataclass(frozen=True)
class Selection:
    """The devices that a run is to use.

    Attributes:
        devices: in the order of the list; empty for a serial run.
        missing: ordinals that were asked for and are not there.
        notes: warnings, one line each.
        reason: why devices is empty, in one line; empty where it is not.
    """

    devices: Tuple[Device, ...]
    missing: Tuple[int, ...] = ()
    notes: Tuple[str, ...] = ()
    reason: str = ""


def parseDeviceList(value: object, where: str = "DeviceList") -> DeviceSelection:
    """The selection that a value from YAML or Python means.

    Args:
        value: what the file gave.
        where: how the message names the setting.

    Raises:
        InputError: it is malformed; true, 1.5, text, a bare number and a mapping are.
    """
    if value is None:
        return None
    if not isinstance(value, list):
        raise InputError("%s: %s is no list: %s" % (where, _shown(value), WHAT_IS_RIGHT))
    for entry in value:
        # Exactly int: True is an int to Python, and would mean device 1.
        if type(entry) is not int or entry < -1:
            raise InputError(
                "%s: %s is no device number (in %s): %s"
                % (where, _shown(entry), _shown(value), WHAT_IS_RIGHT)
            )
    if -1 in value:
        return ALL_DEVICES
    return tuple(value) or None


def parseDevicesOption(text: str, where: str = "--devices") -> DeviceSelection:
    """The selection that `--devices 0,2` or `--devices all` means.

    Raises:
        InputError: it is malformed, or empty.
    """
    if text.strip().lower() == "all":
        return ALL_DEVICES
    numbers = [token.strip() for token in text.split(",")]
    if not all(re.fullmatch(r"-1|[0-9]{1,9}", number, re.ASCII) for number in numbers):
        raise InputError(
            "%s: %s is no list of devices: write numbers from 0 separated by commas, such as "
            "0,2, or all" % (where, _shown(text))
        )
    return parseDeviceList([int(number) for number in numbers], where)


def parseDeviceListText(
    text: str, where: str = "--global-parameters DeviceList"
) -> DeviceSelection:
    """The selection that the text of a Python literal means, such as "[0, 1]" or "None".

    Raises:
        InputError: it is no literal, or malformed.
    """
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError("%s: %s cannot be read: %s" % (where, _shown(text), WHAT_IS_RIGHT))
    return parseDeviceList(value, where)


def selectDevices(selection: DeviceSelection, scan: DeviceScan, strict: bool = False) -> Selection:
    """The devices of a scan that a selection names.

    Args:
        strict: a device that is not there is an error, not a warning.

    Raises:
        InputError: strict and a device is missing, or the devices are of several architectures.
    """
    if selection is None:
        return Selection((), reason="no DeviceList was given")
    notes: List[str] = []
    if selection == ALL_DEVICES:
        devices, missing = _withoutIntegrated(scan, notes), ()
    else:
        devices, missing = _named(selection, scan, notes)
    if strict and (missing or not devices):
        raise InputError(_whatIsMissing(missing, scan) + "; --strict does not go on without")
    if not devices:
        return Selection((), missing, tuple(notes), _whatIsMissing(missing, scan))
    if missing:
        notes.append(_whatIsMissing(missing, scan) + "; the run goes on without")
    _refuseMixedArchitectures(devices)
    notes += _unequalDevices(devices)
    return Selection(tuple(devices), missing, tuple(notes))


def _named(
    ordinals: Sequence[int], scan: DeviceScan, notes: List[str]
) -> Tuple[List[Device], Tuple[int, ...]]:
    distinct = list(dict.fromkeys(ordinals))
    if len(distinct) < len(ordinals):
        twice = sorted({ordinal for ordinal in ordinals if ordinals.count(ordinal) > 1})
        notes.append("DeviceList names device %s more than once: it counts once" % _list(twice))
    present = {device.ordinal: device for device in scan.devices}
    devices = [present[ordinal] for ordinal in distinct if ordinal in present]
    return devices, tuple(ordinal for ordinal in distinct if ordinal not in present)


def _withoutIntegrated(scan: DeviceScan, notes: List[str]) -> List[Device]:
    """Every device, less the integrated GPUs where there are others.

    "All" means the cards: one run tunes one architecture, and nobody who has a card means the
    display unit of the processor beside it. Alone, an integrated GPU is what there is.
    """
    discrete = [device for device in scan.devices if device.ordinal not in scan.integrated]
    if not discrete or len(discrete) == len(scan.devices):
        return list(scan.devices)
    for device in scan.devices:
        if device.ordinal in scan.integrated:
            notes.append(
                "device %d (%s) is left out of [-1]: it is an integrated GPU; name it to use it"
                % (device.ordinal, device.architecture)
            )
    return discrete


def _refuseMixedArchitectures(devices: Sequence[Device]) -> None:
    """One run tunes one architecture: a kernel's times on one say nothing of another."""
    found: Dict[str, List[int]] = defaultdict(list)
    for device in devices:
        if device.architecture:
            found[baseArchitecture(device.architecture)].append(device.ordinal)
    if len(found) > 1:
        parts = ["%s (device %s)" % (name, _list(found[name])) for name in sorted(found)]
        raise InputError(
            "DeviceList mixes architectures: %s: a run tunes one, so name the devices of one"
            % ", ".join(parts)
        )


def _unequalDevices(devices: Sequence[Device]) -> List[str]:
    counts: Set[int] = {device.computeUnits for device in devices if device.computeUnits}
    if len(counts) < 2:
        return []
    parts = ["%d has %d" % (d.ordinal, d.computeUnits) for d in devices if d.computeUnits]
    return [
        "the devices differ in their number of compute units (device %s): their times do not "
        "compare" % ", ".join(parts)
    ]


def _whatIsMissing(missing: Sequence[int], scan: DeviceScan) -> str:
    """One line: which devices are not there, and why."""
    if not scan.devices:
        return "no device is visible: " + (scan.reason or "none was found")
    last = len(scan.devices) - 1
    there = "only device 0 is" if last == 0 else "devices 0 to %d are" % last
    hidden = "; ".join(note for note in scan.notes if "hides device" in note)
    return "device %s is not available: %s visible%s" % (
        _list(missing),
        there,
        " (%s)" % hidden if hidden else "",
    )


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _shown(value: object, limit: int = 80) -> str:
    """A value for a message: on one line, and not without end."""
    text: Optional[str] = None
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        text = "<%s>" % type(value).__name__
    return text if len(text) <= limit else text[:limit] + "..."
