# SPDX-License-Identifier: MIT
"""The one class that touches the system: files below a root, and programs with a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from Tensile.Parallel.Platform import System

pytestmark = pytest.mark.unit


def _gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends within a generous time; a zombie has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with open("/proc/%d/stat" % pid) as stream:
                if stream.read().rpartition(")")[2].split()[0] in "ZX":
                    return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_pathsLieBelowTheRoot(tmp_path):
    """A faked root stands for "/" in every method, so tests can give real text for sysfs."""
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "name").write_bytes(b"a\xffb\n")
    system = System(root=str(tmp_path), environment={})
    assert system.readText("/sys/name") == "a\ufffdb\n"
    assert system.listFolder("/sys") == ["name"]
    assert system.exists("/sys/name") and system.canOpen("/sys/name")


def test_whatCannotBeReadIsNoError(tmp_path):
    """A missing file or folder is an answer, not an exception."""
    system = System(root=str(tmp_path), environment={})
    assert system.readText("/sys/none") is None
    assert system.listFolder("/sys") == []
    assert not system.canOpen("/dev/kfd") and not system.canAccess("/dev/kfd")


def test_canOpenReallyOpens(tmp_path):
    """A name alone is not enough: a dangling link and a folder cannot be opened."""
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    system = System(root=str(tmp_path), environment={})
    assert not system.canOpen("/link") and not system.canOpen("/folder")


def test_aProgramSeesTheGivenEnvironmentAlone():
    """A child gets the system's environment, not this process's."""
    system = System(environment={"ONLY": "this"})
    result = system.run([sys.executable, "-I", "-S", "-c", "import os; print(dict(os.environ))"])
    assert result.succeeded
    assert "'ONLY': 'this'" in result.stdout and "PATH" not in result.stdout


def test_outputThatIsNoTextDoesNotBreakIt():
    """Tools print what they like: bytes that are not UTF-8 are replaced."""
    script = "import sys; sys.stdout.buffer.write(b'\\xff\\n'); sys.exit(3)"
    result = System().run([sys.executable, "-c", script])
    assert result.stdout == "\ufffd\n" and result.exitStatus == 3 and not result.succeeded


def test_aMissingProgramIsAResult():
    """What cannot be started is one line, not an exception."""
    result = System().run(["/nonexistent/amd-smi"])
    assert result.exitStatus is None and "cannot be run" in result.failure


def test_aSlowProgramIsEndedWithItsChildren(tmp_path):
    """At the time limit the whole session ends, children included, and nothing is awaited."""
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    pidFile = tmp_path / "pid"
    result = System().run([sys.executable, "-c", script, str(pidFile)], timeout=3)
    assert result.exitStatus is None and "did not answer within 3 s" in result.failure
    assert _gone(int(pidFile.read_text()))


def test_aProgramThatCannotBeKilledIsNotWaitedFor(monkeypatch):
    """A tool that sleeps in the driver does not die of SIGKILL, and must not keep us with it."""

    class Unkillable(subprocess.Popen):
        """A process whose end is never seen, once it was waited for with a limit."""

        def wait(self, timeout=None):
            super().wait(timeout)
            assert timeout is not None, "it would be waited for without end"
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", Unkillable)
    result = System().run(["sleep", "600"], timeout=0.1)
    assert result.failure == "sleep did not answer within 0.1 s"


def test_aProgramHasNoTerminalAndASessionOfItsOwn():
    """It cannot ask at a prompt, and a Ctrl-C for us is not one for it."""
    script = "import os, sys; print(repr(sys.stdin.read()), os.getsid(0) == os.getpid())"
    assert System().run([sys.executable, "-c", script]).stdout == "'' True\n"


def test_theEnvironmentIsACopy(monkeypatch):
    """What the user's environment was when we started is what counts."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2")
    system = System()
    os.environ["HIP_VISIBLE_DEVICES"] = "3"
    assert system.environment["HIP_VISIBLE_DEVICES"] == "2"
    with pytest.raises(TypeError):
        system.environment["HIP_VISIBLE_DEVICES"] = "4"  # type: ignore[index]
