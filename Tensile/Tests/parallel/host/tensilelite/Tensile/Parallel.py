# SPDX-License-Identifier: MIT
"""Work on many CPU threads, under the names that TensileLite 2024 has for it.

The functions import from their package when they are called, and joblib's workers find them by
their qualified name: what hides this file must hand on both.
"""

from __future__ import annotations

import itertools
import os
import sys

from joblib import Parallel, delayed


def joblibParallelSupportsGenerator() -> bool:
    """Whether joblib can return results as they come (1.4 and later)."""
    import joblib

    return tuple(int(part) for part in joblib.__version__.split(".")[:2]) >= (1, 4)


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


def apply_print_exception(item, *args):
    """Call, and print the traceback where the call was made."""
    function, argument = (item, args[0]) if args else item
    try:
        return function(*argument) if args else function(argument)
    except Exception:
        import traceback

        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def ProcessingPool(enable: bool = True, maxTasksPerChild=None):
    """A multiprocessing pool; one of a single thread where threads are not wanted."""
    import multiprocessing
    import multiprocessing.dummy

    count = CPUThreadCount()
    if not enable or count <= 1:
        return multiprocessing.dummy.Pool(1)
    from . import Common

    return multiprocessing.Pool(
        count,
        initializer=OverwriteGlobalParameters,
        maxtasksperchild=maxTasksPerChild,
        initargs=(Common.globalParameters,),
    )


def ParallelMap(function, objects, message="", enable=True, method=None, maxTasksPerChild=None):
    """list(map(function, objects)) in a multiprocessing pool."""
    if CPUThreadCount(enable) <= 1:
        mapping = map if method is None else method(itertools)
        return list(mapping(function, objects))
    pool = ProcessingPool(enable, maxTasksPerChild)
    try:
        mapping = pool.map if method is None else method(pool)
        return list(mapping(apply_print_exception, zip(itertools.repeat(function), objects)))
    finally:
        pool.close()


def ParallelMapReturnAsGenerator(function, objects, message="", enable=True, multiArg=True):
    """Results as they come, for a joblib that cannot do it."""
    for argument in objects:
        yield function(*argument) if multiArg else function(argument)


def ParallelMap2(function, objects, message="", enable=True, multiArg=True, return_as="list"):
    """list(map(function, objects)) in joblib's workers; each object a tuple of arguments."""
    from .Common import globalParameters

    if return_as != "list" and not joblibParallelSupportsGenerator():
        return ParallelMapReturnAsGenerator(function, objects, message, enable, multiArg)
    count = CPUThreadCount(enable)
    if count <= 1:
        return [function(*item) if multiArg else function(item) for item in objects]
    print("%sLaunching %d threads..." % (message + ": " if message else "", count), flush=True)
    call = pcallWithGlobalParamsMultiArg if multiArg else pcallWithGlobalParamsSingleArg
    how = {"return_as": return_as} if joblibParallelSupportsGenerator() else {}
    return Parallel(n_jobs=count, timeout=99999, **how)(
        delayed(call)(function, item, globalParameters) for item in objects
    )
