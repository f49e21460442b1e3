# SPDX-License-Identifier: MIT
"""Global parameters and messages, as TensileLite 2024 has them."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
from collections import OrderedDict
from copy import deepcopy

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
ParallelMap2 = Parallel.ParallelMap2

HR = "#" * 80

globalParameters = OrderedDict(sharedParameters)
globalParameters.update(
    {
        "AMDGPUArchPath": None,
        "AsmDebug": False,
        "BuildIdKind": "sha1",
        "CCompiler": "amdclang",
        "CxxCompiler": "amdclang++",
        "DataInitSeed": 0,
        "DataInitTypeBias": 3,
        "DataInitTypeE": 0,
        "DataInitTypeScaleA": 2,
        "DataInitTypeScaleAlphaVec": 3,
        "DataInitTypeScaleB": 2,
        "DataInitTypeScaleC": 2,
        "DataInitTypeScaleD": 2,
        "DataInitValueActivationArgs": [2.0, 2.0],
        "EnableHalf": False,
        "EnableMarker": False,
        "ExitAfterKernelGen": False,
        "KeepBuildTmp": False,
        "LibraryFormat": "yaml",
        "LogicFormat": "yaml",
        "MaxEnqueuesPerSync": -1,
        "MaxWorkspaceSize": 128 * 1024 * 1024,
        "MinFlopsPerSync": 1,
        "MinKForGSU": 32,
        "NewClient": 2,
        "PackageLibrary": False,
        "PrintCodeCommands": False,
        "PrintTensorAmaxD": 0,
        "PrintTensorBias": 0,
        "PrintTiming": False,
        "Profiler": 0,
        "PruneSparseMode": 0,
        "RotatingBufferSize": 0,
        "RotatingMode": 0,
        "SaveTemps": False,
        "ScriptPath": os.path.dirname(os.path.realpath(__file__)),
        "SplitGSU": False,
        "UseUserArgs": False,
        "ValidateLibrary": False,
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


def _printAtLevel(level: int, message: str) -> None:
    if globalParameters["PrintLevel"] >= level:
        print(message, flush=True)


def print1(message: str) -> None:
    """What a user sees."""
    _printAtLevel(1, message)


def print2(message: str) -> None:
    """What -v adds."""
    _printAtLevel(2, message)


def printWarning(message: str) -> None:
    """A warning, on stdout."""
    print("Tensile::WARNING: %s" % message, flush=True)


def printExit(message: str) -> None:
    """The end: a line on stdout, exit status 255."""
    print("Tensile::FATAL: %s" % message, flush=True)
    sys.exit(-1)


def restoreDefaultGlobalParameters() -> None:
    """Back to the defaults; the dictionary stays the same object, others hold it."""
    globalParameters.clear()
    globalParameters.update(deepcopy(defaultGlobalParameters))


def assignGlobalParameters(config: dict) -> None:
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
    # Asked before the other values of the config are assigned, so Device has no say in it.
    globalParameters["AMDGPUArchPath"] = config.get(
        "AMDGPUArchPath", locateExecutable(globalParameters["ROCmPath"], "llvm/bin/amdgpu-arch")
    )
    found = detectIsas(globalParameters["AMDGPUArchPath"], globalParameters["SupportedISA"])
    for isa in found:
        print1("# Detected local GPU with ISA: %s" % isaToGfx(isa))
    if found:
        globalParameters["CurrentISA"] = found[globalParameters["Device"]]
    for key, value in config.items():
        if key not in globalParameters:
            printWarning("Global parameter %s = %s unrecognised." % (key, value))
        globalParameters[key] = value


def _restoreClocks() -> None:
    if globalParameters["PinClocks"] and globalParameters["ROCmSMIPath"]:
        for arguments in (["--resetclocks"], ["--setfan", "50"]):
            subprocess.call([globalParameters["ROCmSMIPath"], "-d", "0", *arguments])


atexit.register(_restoreClocks)
