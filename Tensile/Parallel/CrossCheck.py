# SPDX-License-Identifier: MIT
"""What other tools say of the GPUs: a cross-check, never a source.

The devices of a run come from Devices.py alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Tuple

from .Platform import DEFAULT_TIMEOUT, ProgramResult, System

__all__ = ["EnumeratorAnswer", "readEnumerator"]

# What rocm_agent_enumerator prints for the CPU.
CPU_ARCHITECTURE = "gfx000"
# As the hosts' own readers have it (gfxArch, later gfxToIsa): anywhere in a line.
_ARCHITECTURE = re.compile(r"gfx[0-9a-fA-F]{3,}")


@dataclass(frozen=True)
class EnumeratorAnswer:
    """What a host's enumerator of GPUs printed.

    Attributes:
        architectures: one per GPU, in its order, without features ("gfx90a"). What was printed
            before a failure stands here as well: hosts read it whatever the exit status.
        failure: one line why the list is not to be relied on; empty where it is. An empty list
            without a failure is an answer: it ran well and named no GPU.
    """

    architectures: Tuple[str, ...]
    failure: str = ""


def readEnumerator(system: System, path: str, timeout: float = DEFAULT_TIMEOUT) -> EnumeratorAnswer:
    """Run `amdgpu-arch` or `rocm_agent_enumerator` under the user's own environment.

    A line per GPU: "gfx942", or with features, "gfx90a:sramecc+:xnack-". rocm_agent_enumerator
    lists the CPU first, as gfx000 or as a blank line. Lines are read as hosts read them: the
    first name in each counts, and what names none is passed over.

    Args:
        path: the program; no arguments are given to it.
        timeout: seconds.
    """
    result = system.run([path], timeout)
    matches = (_ARCHITECTURE.search(line) for line in result.stdout.splitlines())
    found = (match.group().lower() for match in matches if match)
    architectures = tuple(name for name in found if name != CPU_ARCHITECTURE)
    if result.succeeded:
        return EnumeratorAnswer(architectures)
    return EnumeratorAnswer(architectures, _whyFailed(path, result))


def _whyFailed(name: str, result: ProgramResult) -> str:
    """One line on a program that did not succeed."""
    if result.failure:
        return _oneLine(result.failure)
    words = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    ended = "%s ended with status %s" % (name, result.exitStatus)
    return _oneLine("%s: %s" % (ended, words[-1]) if words else ended)


def _oneLine(text: str) -> str:
    return " ".join(text.split())[:300]
