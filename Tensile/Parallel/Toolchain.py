# SPDX-License-Identifier: MIT
"""Where a host's tools are: looked for as hosts do, and not run.

TensileLite 2024 looks below $ROCM_PATH alone (Common.py, assignGlobalParameters), the others also
in its lib/llvm/bin and on the PATH (Utilities/Toolchain.py, Toolchain/Validators.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import List, Tuple

from .Host import CLASSIC, Host
from .Platform import System

# For every generation: the assembler, which is a compiler; and what joins code objects.
_GENERATION_TOOLS = ("amdclang++", "clang-offload-bundler")
# Any of these tells the host which GPU there is.
ENUMERATORS = ("amdgpu-arch", "rocm_agent_enumerator")
_BUILD_TOOLS = ("cmake", "make")
_FOLDERS = ("bin", "llvm/bin", "lib/llvm/bin")


@dataclass(frozen=True)
class Toolchain:
    """What was found.

    Attributes:
        rocm: the folder that counts as ROCm's.
        found: (name, path) of every tool that is there.
        missing: names of those that are needed and are not.
    """

    rocm: str
    found: Tuple[Tuple[str, str], ...]
    missing: Tuple[str, ...]


def findToolchain(system: System, host: Host, buildsClient: bool) -> Toolchain:
    """The tools that a host needs to generate kernels, and to build its client.

    Args:
        buildsClient: whether the host is to build one.
    """
    environment = system.environment
    rocm = environment.get("TENSILE_ROCM_PATH") or environment.get("ROCM_PATH") or "/opt/rocm"
    needed: List[Tuple[str, ...]] = [(name,) for name in _GENERATION_TOOLS]
    needed.append(ENUMERATORS)
    if host.generation == CLASSIC:
        needed.append(("hipconfig",))
    if buildsClient:
        needed += [(name,) for name in _BUILD_TOOLS]
    found, missing = [], []
    for names in needed:
        places = [(name, _place(system, rocm, name)) for name in names]
        there = [(name, path) for name, path in places if path]
        found += there[:1]
        missing += [] if there else [" or ".join(names)]
    return Toolchain(rocm, tuple(found), tuple(missing))


def _place(system: System, rocm: str, name: str) -> str:
    """Where a tool is; empty where it is nowhere."""
    for folder in _FOLDERS:
        path = os.path.join(rocm, folder, name)
        if system.exists(path):
            return path
    return system.findProgram(name) or ""
