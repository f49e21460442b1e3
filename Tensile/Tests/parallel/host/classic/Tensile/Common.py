# SPDX-License-Identifier: MIT
"""Global parameters and messages, as classic Tensile 4.44 has them."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
import warnings
from collections import OrderedDict
from copy import deepcopy
from typing import Optional

from . import Parallel, __version__
from .CommonParameters import sharedParameters
from .Toolchain import (
    detectIsas,
    isaToGfx,
    locateExecutable,
    rocmPath,
    versionIsCompatible,
)

startTime = time.time()

ParallelMap = Parallel.ParallelMap

HR = "#" * 80

globalParameters = OrderedDict(sharedParameters)
globalParameters.update(
    {
        "BufferOffsetA": 0,
        "BufferOffsetB": 0,
        "BufferOffsetC": 0,
        "BufferOffsetD": 0,
        "CCompiler": "amdclang",
        "ConvolutionVsContraction": False,
        "CxxCompiler": "amdclang++",
        "DebugSkipAtomic": False,
        "DebugSkipNonAtomic": False,
        "DictLibraryLogic": False,
        "ExperimentalLogicDir": "/experimental/",
        "FlushCount": 1,
        "FlushMemorySize": 0,
        "IgnoreAsmCapCache": False,
        "KeepBuildTmp": True,
        "LibraryFormat": "msgpack",
        "MaxDepthU": 1024,
        "MaxWorkspaceSize": 32 * 1024 * 1024,
        "PrintConvolutionUsage": 0,
        "ROCmAgentEnumeratorPath": None,
        "RuntimeLanguage": "HIP",
        "ScriptPath": os.path.dirname(os.path.realpath(__file__)),
        "VerifyManifest": False,
        "WorkingPath": os.getcwd(),
    }
)
globalParameters["SourcePath"] = os.path.join(globalParameters["ScriptPath"], "Source")
globalParameters["CustomKernelDirectory"] = os.path.join(
    globalParameters["ScriptPath"], "CustomKernels"
)
globalParameters["SupportedISA"] = [
    (9, 0, 6),
    (9, 0, 8),
    (9, 0, 10),
    (9, 4, 2),
    (10, 3, 0),
    (11, 0, 0),
]
defaultGlobalParameters = deepcopy(globalParameters)

_notForBenchmarking = (
    "LogicPath",
    "OutputPath",
    "EmbedLibraryKey",
    "Version",
    "BuildClient",
    "ClientConfig",
    "WriteMasterSolutionIndex",
    "HipConfig",
    "OffloadBundler",
    "Assembler",
)


class DeveloperWarning(Warning):
    """For those who develop the host; a user may ignore it."""


def tPrint(level: int, message: str) -> None:
    """A message, if PrintLevel is at least that."""
    if globalParameters["PrintLevel"] >= level:
        print(message, flush=True)


def print1(message: str) -> None:
    """What a user sees."""
    tPrint(1, message)


def print2(message: str) -> None:
    """What -v adds."""
    tPrint(3, message)


def printWarning(message: str, category: type = UserWarning) -> None:
    """A warning, on stderr."""
    warnings.warn(message, category)
    sys.stdout.flush()


def printExit(message: str) -> None:
    """The end: a line on stdout, exit status 255."""
    print(message, flush=True)
    sys.exit(-1)


def restoreDefaultGlobalParameters() -> None:
    """Back to the defaults; the dictionary stays the same object, others hold it."""
    globalParameters.clear()
    globalParameters.update(deepcopy(defaultGlobalParameters))


def assignGlobalParameters(config: dict, capabilitiesCache: Optional[dict] = None) -> None:
    """Take the config's GlobalParameters over; one that is not known is only warned about."""
    wanted = config.get("MinimumRequiredVersion", "0.0.0")
    if "MinimumRequiredVersion" in config and not versionIsCompatible(wanted, __version__):
        printExit(
            "Config file requires version=%s is not compatible with current Tensile version=%s"
            % (wanted, __version__)
        )
    globalParameters["ROCmPath"] = rocmPath()
    globalParameters["ROCmBinPath"] = os.path.join(globalParameters["ROCmPath"], "bin")
    globalParameters["ROCmSMIPath"] = locateExecutable(globalParameters["ROCmBinPath"], "rocm-smi")
    # A config's own ROCmAgentEnumeratorPath is overwritten; the last GPU that is listed counts.
    config["ROCmAgentEnumeratorPath"] = locateExecutable(
        globalParameters["ROCmBinPath"], "rocm_agent_enumerator"
    )
    found = detectIsas(config["ROCmAgentEnumeratorPath"], globalParameters["SupportedISA"])
    for number, isa in enumerate(found):
        tPrint(1, "# Detected GPU %d:    %s" % (number, isaToGfx(isa)))
        globalParameters["CurrentISA"] = isa
    isasWithDisabledHWMonitor = ((9, 4, 2), (11, 0, 0))
    if globalParameters["CurrentISA"] in isasWithDisabledHWMonitor:
        globalParameters["HardwareMonitor"] = False
    for key, value in config.items():
        if key in _notForBenchmarking:
            continue
        if key not in globalParameters:
            printWarning("Global parameter %s = %s unrecognized." % (key, value), DeveloperWarning)
        globalParameters[key] = value


def _restoreClocks() -> None:
    if globalParameters["PinClocks"] and globalParameters["ROCmSMIPath"]:
        for arguments in (["--resetclocks"], ["--setfan", "50"]):
            subprocess.call([globalParameters["ROCmSMIPath"], "-d", "0", *arguments])


atexit.register(_restoreClocks)
