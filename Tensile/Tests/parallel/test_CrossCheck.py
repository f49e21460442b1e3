# SPDX-License-Identifier: MIT
"""What other tools say of the GPUs, read from real processes and real text."""

from __future__ import annotations

import os

import pytest

from Tensile.Parallel.CrossCheck import EnumeratorAnswer, readEnumerator
from Tensile.Parallel.Platform import System

pytestmark = pytest.mark.unit


def _tool(folder, name, body):
    """A program made of a few lines of sh."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + body + "\n")
    path.chmod(0o755)
    return str(path)


# -- the host's enumerators (CASES.md 25: Tensile 1298, rocm-libraries 6183) --------------------


@pytest.mark.parametrize(
    "printed, expected",
    [
        # rocm_agent_enumerator: the CPU first (hcc 663, llama.cpp 11209).
        ("gfx000\ngfx942\ngfx1100\n", ("gfx942", "gfx1100")),
        # Some releases print a blank line for it; one line per GPU (iree 22283).
        ("\ngfx942\ngfx942\n", ("gfx942", "gfx942")),
        # With features, as HIP's gcnArchName has them.
        ("gfx90a:sramecc+:xnack-\r\n  gfx1036  \n", ("gfx90a", "gfx1036")),
        # No GPU is an answer (legacy-rocm-build 223 has the CPU's line alone).
        ("", ()),
        ("gfx000\n", ()),
        # Not the name of a GPU; a name within a line counts, because it does for the hosts.
        ("ROCk module is loaded\ngfx\ngfx9-4-generic\nfound gfx942 here\n", ("gfx942",)),
    ],
)
def test_enumeratorsNameTheGpusAlone(tmp_path, printed, expected):
    """Case 25: the CPU, features, blank and other lines do not count; nothing is no failure."""
    (tmp_path / "printed").write_text(printed)
    path = _tool(tmp_path / "bin", "amdgpu-arch", "cat %s" % (tmp_path / "printed"))
    assert readEnumerator(System(), path) == EnumeratorAnswer(expected)


def test_aFailingEnumeratorSaysWhy(tmp_path):
    """Case 25: a failure is told apart from "no GPU", with the tool's own last words."""
    path = _tool(tmp_path, "rocm_agent_enumerator", "echo gfx90a; echo 'no /dev/kfd' >&2; exit 3")
    answer = readEnumerator(System(), path)
    assert answer.architectures == ("gfx90a",)
    assert answer.failure == "%s ended with status 3: no /dev/kfd" % path
    missing = readEnumerator(System(), str(tmp_path / "none"))
    assert missing.architectures == () and "cannot be run" in missing.failure


def test_aSlowEnumeratorIsNotWaitedFor(tmp_path):
    """Case 25: the enumerator has a time limit, and what it started ends with it."""
    path = _tool(tmp_path, "amdgpu-arch", "echo $$ > %s/pid; sleep 60" % tmp_path)
    answer = readEnumerator(System(), path, timeout=1)
    assert answer == EnumeratorAnswer((), "amdgpu-arch did not answer within 1 s")
    assert not _isAlive(int((tmp_path / "pid").read_text()))


def _isAlive(pid):
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
