# SPDX-License-Identifier: MIT
"""A process of ours that runs one of our functions, and ends with the process that started it."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any, List, Mapping

_PR_SET_PDEATHSIG = 1

# Our modules are found as the parent found them.
_BOOT = """
import json, sys
from importlib import import_module
spec = json.loads(sys.argv[1])
sys.path[:] = spec["path"]
sys.exit(getattr(import_module(spec["module"]), spec["function"])(spec))
"""


def ownProcess(module: str, function: str, spec: Mapping[str, Any]) -> List[str]:
    """The command of a process that calls module.function(spec); its result is the exit status.

    Args:
        module: such as "Tensile.Parallel.Join".
        function: a name in it; it begins with endWithParent().
        spec: what it is given, as JSON takes it.
    """
    own = {"path": sys.path, "parent": os.getpid(), "module": module, "function": function}
    return [sys.executable, "-c", _BOOT, json.dumps({**spec, **own})]


def endWithParent(spec: Mapping[str, Any], number: int) -> bool:
    """Has the kernel send this process a signal when its parent ends; False: it has already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    return bool(os.getppid() == spec["parent"])
