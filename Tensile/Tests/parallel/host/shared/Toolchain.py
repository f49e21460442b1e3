# SPDX-License-Identifier: MIT
"""What a host asks of the machine: versions, tools, the architecture of the GPU."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Optional


def versionIsCompatible(wanted: str, present: str) -> bool:
    """Same major version, and not older in the rest."""
    wantedParts = [int(part) for part in str(wanted).split(".")]
    presentParts = [int(part) for part in present.split(".")]
    return wantedParts[0] == presentParts[0] and wantedParts[1:] <= presentParts[1:]


def rocmPath() -> str:
    """Root of the ROCm installation; the variable of Tensile's own goes first."""
    for variable in ("TENSILE_ROCM_PATH", "ROCM_PATH"):
        if variable in os.environ:
            return os.environ[variable]
    return "/opt/rocm"


def locateExecutable(folder: str, name: str) -> Optional[str]:
    """Path of a program: in that folder, else on the PATH, else None."""
    for candidate in [folder] + os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(candidate, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def gfxToIsa(name: str) -> tuple:
    """(9, 0, 10) for "gfx90a"."""
    digits = name[len("gfx") :]
    return int(digits[:-2]), int(digits[-2]), int(digits[-1], 16)


def isaToGfx(isa: tuple) -> str:
    """ "gfx90a" for (9, 0, 10)."""
    return "gfx%d%d%x" % tuple(isa)


def detectIsas(enumerator: Optional[str], supported: list) -> list:
    """The ISAs that a device enumerator prints and a host supports, in its order."""
    if not enumerator:
        return []
    printed = subprocess.run([enumerator], stdout=subprocess.PIPE).stdout.decode()
    isas = [gfxToIsa(name) for name in re.findall(r"gfx[0-9a-f]{3,}", printed)]
    return [isa for isa in isas if isa in supported]
