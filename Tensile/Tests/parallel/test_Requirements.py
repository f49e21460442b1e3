# SPDX-License-Identifier: MIT
"""What a command says where its Python lacks something."""

import signal
import subprocess
import sys

import pytest
from conftest import HERE, ownCheckout

from Tensile.Parallel import Requirements

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "version, missing",
    [("1.3.2", True), ("0.17", True), ("1.4.0", False), ("1.10.dev0", False), ("2", False)],
)
def test_joblibIsNewEnough(tmp_path, monkeypatch, version, missing):
    """1.4 is the oldest; what cannot be read as a version is given a try."""
    (tmp_path / "joblib").mkdir()
    (tmp_path / "joblib" / "__init__.py").write_text(
        '"""Text."""\n\n__version__ = "%s"\n' % version
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "joblib", raising=False)
    said = Requirements.whatIsMissing()
    assert bool(said) == missing
    if missing:
        assert "joblib 1.4 or newer" in said and "pip install" in said


def test_theInstalledJoblibIsRead():
    """Its version stands where it is looked for."""
    assert Requirements._source("joblib").count("__version__") >= 1


def test_joblibWithoutAVersionIsGivenATry(monkeypatch):
    """A copy whose file cannot be read, or says no version, is not refused."""
    monkeypatch.setattr(Requirements, "_source", lambda name: "")
    assert Requirements.whatIsMissing() is None


@pytest.mark.parametrize("command", ["TensileParallel", "TensileParallelClient"])
def test_aCommandSaysWhatItsPythonLacks(command):
    """One line with the way out, status 2, before any import could fail."""
    done = subprocess.run(
        [sys.executable, "-S", str(HERE.parents[1] / "bin" / command), "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 2 and len(done.stdout.splitlines()) == 1
    assert "has no joblib, msgpack, yaml: pip install" in done.stdout


# Ctrl-C comes when a command begins to read its modules.
CTRL_C = """
import os, signal, sys
sys.path.insert(0, %r)
signal.signal(signal.SIGINT, signal.default_int_handler)
import TensileParallelCommands as commands
commands._useOurPackage = lambda: os.kill(os.getpid(), signal.SIGINT)
commands.%s()
"""


@ownCheckout
@pytest.mark.parametrize("command", ["runTensileParallel", "runTensileParallelClient"])
def test_ctrlCEndsAnInstalledCommandWithoutATraceback(command):
    """Also before it can say anything."""
    code = CTRL_C % (str(HERE.parents[2]), command)
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
