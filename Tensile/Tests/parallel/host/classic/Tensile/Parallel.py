# SPDX-License-Identifier: MIT
"""Work on many CPU threads, under the names that classic Tensile has for it.

The functions import from their package when they are called, and joblib's workers find them by
their qualified name: what hides this file must hand on both.
"""

from __future__ import annotations

import os

import joblib


def CPUThreadCount(enable: bool = True) -> int:
    """How many threads CpuThreads asks for, at most what this process may use."""
    from .Common import globalParameters

    if not enable:
        return 1
    present = len(os.sched_getaffinity(0))
    wanted = globalParameters["CpuThreads"]
    return min(present, 64 if wanted < 1 else wanted)


def OverwriteGlobalParameters(newGlobalParameters: dict) -> None:
    """Bring a worker's parameters to the caller's."""
    from . import Common

    Common.globalParameters.clear()
    Common.globalParameters.update(newGlobalParameters)


def pcallWithGlobalParamsMultiArg(f, args, newGlobalParameters):
    """In a worker: f(*args) under the caller's parameters."""
    OverwriteGlobalParameters(newGlobalParameters)
    return f(*args)


def pcallWithGlobalParamsSingleArg(f, arg, newGlobalParameters):
    """In a worker: f(arg) under the caller's parameters."""
    OverwriteGlobalParameters(newGlobalParameters)
    return f(arg)


def ParallelMap(function, objects, message="", enable=True, multiArg=True) -> list:
    """list(map(function, objects)) in joblib's workers; each object a tuple of arguments."""
    from .Common import globalParameters

    count = CPUThreadCount(enable)
    if count <= 1:
        return [function(*item) if multiArg else function(item) for item in objects]
    call = pcallWithGlobalParamsMultiArg if multiArg else pcallWithGlobalParamsSingleArg
    return joblib.Parallel(n_jobs=count)(
        joblib.delayed(call)(function, item, globalParameters) for item in objects
    )
