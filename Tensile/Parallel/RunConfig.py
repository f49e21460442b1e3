# SPDX-License-Identifier: MIT
"""What a run takes from the user's config and command line together, as the host would have it."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple

import yaml

from .ConfigSteps import globalParameters, readConfig
from .DeviceList import parseDeviceList, parseDeviceListText
from .Errors import InputError
from .ParseArguments import RunSettings


def refuseMissing(settings: RunSettings) -> None:
    """A config that is not there is nobody's to judge.

    Raises:
        InputError: CONFIG or SIZES is no file, or OUT is empty.
    """
    for config in settings.configs:
        if not os.path.isfile(config):
            raise InputError("the config %r is not a file" % config)
    if not settings.out:
        raise InputError("the output folder's name is empty: name one")


def readUsersConfig(settings: RunSettings) -> Tuple[Any, str]:
    """(config in the default format, why it could not be read).

    A config that the host would reject is the host's to reject: it is run and shows its own error.
    """
    sizes = settings.configs[1] if len(settings.configs) > 1 else None
    most = 2 if settings.alternateFormat else 1
    if len(settings.configs) > most:
        return {}, "there are more config files than Tensile accepts"
    try:
        config = readConfig(settings.configs[0], sizes, settings.alternateFormat)
    except OSError as error:
        return {}, "%s: %s" % (error.filename, error.strerror)
    except (yaml.YAMLError, ValueError) as error:
        return {}, "%s cannot be read: %s" % (settings.configs[0], _inOneLine(error))
    if not isinstance(config, dict):
        return {}, "%s holds no mapping" % settings.configs[0]
    return config, ""


def _inOneLine(error: Exception) -> str:
    """What is wrong with a YAML file, and where."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem is None or mark is None:
        return str(error).split("\n")[0]
    return "%s (line %d, column %d)" % (problem, mark.line + 1, mark.column + 1)


def globalParameter(settings: RunSettings, config: Any, name: str) -> Any:
    """A global parameter as the host would have it: command line, else config; None if neither.

    What is on the command line is Python in the host; for what is asked here YAML reads the same.
    """
    text = settings.parameter(name)
    if text is not None:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return text
    return globalParameters(config).get(name)


def wantedDevices(settings: RunSettings, config: Any) -> Any:
    """What --devices, else --global-parameters, else the config says; None for a serial run."""
    if settings.devices is not None:
        return settings.devices
    text = settings.parameter("DeviceList")
    if text is not None:
        return parseDeviceListText(text)
    value = globalParameter(settings, config, "DeviceList")
    return parseDeviceList(value, "DeviceList in %s" % settings.configs[0])


def whyNoList(settings: RunSettings, config: Any) -> str:
    """Why there are no wanted devices although the config could be read, in a few words."""
    parameters = globalParameters(config)
    if "DeviceList" in parameters or settings.parameter("DeviceList") is not None:
        return "DeviceList names no device"
    places = [("outside GlobalParameters", config), ("in GlobalParameters", parameters)]
    for where, keys in places:
        for key in keys:
            if str(key).lower() == "devicelist":
                return "there is %s %s, which is not GlobalParameters: DeviceList" % (key, where)
    return "there is no DeviceList in GlobalParameters"


def configNotes(settings: RunSettings, config: Any) -> List[str]:
    """What is to be said about a config before a parallel run."""
    notes = []
    if "Device" in globalParameters(config) or settings.parameter("Device") is not None:
        notes.append("Device is overruled by DeviceList")
    if globalParameter(settings, config, "ParallelGpuExecution") not in (None, 1):
        notes.append("ParallelGpuExecution is overruled by DeviceList")
    if globalParameter(settings, config, "PinClocks"):
        notes.append(
            "PinClocks is turned off: Tensile pins the clocks of GPU 0, whichever GPUs are used"
        )
    return notes + repeatedTypes(config)


def repeatedTypes(config: Any) -> List[str]:
    """A warning for every problem type that has several entries."""
    entries: Dict[str, List[int]] = {}
    problems = config.get("BenchmarkProblems")
    for number, entry in enumerate(problems if isinstance(problems, list) else (), 1):
        if isinstance(entry, list) and entry and isinstance(entry[0], dict):
            entries.setdefault(_typeKey(entry[0]), []).append(number)
    return [
        "BenchmarkProblems entries %s have the same problem type. All are measured, but Tensile "
        "keeps only the last one's results: write them as several groups of one entry"
        % " and ".join(str(number) for number in numbers)
        for numbers in entries.values()
        if len(numbers) > 1
    ]


def _typeKey(problemType: Dict[str, Any]) -> str:
    """Equal for entries that mean one problem type; a default that is spelled out is as none."""
    values = {key: _plain(value) for key, value in problemType.items()}
    values.setdefault("UseBeta", "1")
    values["OperationType"] = values.get("OperationType") or "gemm"
    values.setdefault("DestDataType", values.get("DataType", ""))
    values.setdefault("ComputeDataType", values["DestDataType"])
    parts = ((str(key), value) for key, value in values.items() if value not in ("", "0"))
    return repr(sorted(parts))


def _plain(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value).lower()
