# SPDX-License-Identifier: MIT
"""One benchmark per device at a time: held against real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from Tensile.Parallel.Errors import RunError
from Tensile.Parallel.Locks import acquireLock, acquireLocks
from Tensile.Parallel.Platform import System
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit

TREE = str(Path(__file__).resolve().parents[3])
EMULATED = Device(0, "0", emulated=True, uniqueId="emulated-3")
GENEROUS = 60  # seconds; only a broken lock takes as long

# Takes the lock, says so, and holds it until its stdin ends; or hands it to a grandchild first.
HOLDER = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from Tensile.Parallel.Locks import acquireLock
from Tensile.Parallel.Types import Device
device = Device(0, "0", emulated=True, uniqueId="emulated-3")
lock = acquireLock(device, sys.argv[2], True, lambda line: None)
if sys.argv[3] == "hand on":
    client = subprocess.Popen(["sleep", "600"], pass_fds=[lock.fileno()], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL)
    print(client.pid, flush=True)
else:
    print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def noVariable(monkeypatch):
    """The user's own lock folder is none of the tests'."""
    monkeypatch.delenv("TENSILE_PARALLEL_LOCK_DIR", raising=False)


@pytest.fixture
def holders():
    """Starts holders, and ends them with the test."""
    started = []

    def start(folder, what="hold"):
        command = [sys.executable, "-c", HOLDER, TREE, str(folder), what]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _take(folder, device=EMULATED, wait=False, onWait=lambda line: None, system=None):
    return acquireLock(device, str(folder), wait, onWait, system)


def _waits(folder):
    """A thread that waits for the lock: (thread, event of having begun to wait, lines)."""
    begun, lines = threading.Event(), []

    def run():
        with _take(folder, wait=True, onWait=lambda line: (lines.append(line), begun.set())):
            lines.append("got it")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, begun, lines


def test_theSecondFailsAtOnceAndLearnsTheHolder(tmp_path, holders):
    """Without waiting, another process's lock is an error that names the process."""
    process, _ = holders(tmp_path)
    with pytest.raises(RunError, match="device 0 is in use by .*%d" % process.pid) as refused:
        _take(tmp_path)
    assert "\n" not in str(refused.value)


def test_theSecondWaitsAndSaysForWhom(tmp_path, holders):
    """A waiting run says once for whom, and goes on when the other ends."""
    process, _ = holders(tmp_path)
    thread, begun, lines = _waits(tmp_path)
    assert begun.wait(GENEROUS) and len(lines) == 1 and str(process.pid) in lines[0]
    process.stdin.close()
    thread.join(GENEROUS)
    assert lines[1:] == ["got it"]


def test_aKilledHolderFreesTheDevice(tmp_path, holders):
    """SIGKILL leaves no stale lock: the kernel frees it."""
    process, _ = holders(tmp_path)
    thread, begun, lines = _waits(tmp_path)
    assert begun.wait(GENEROUS)
    process.send_signal(signal.SIGKILL)
    thread.join(GENEROUS)
    assert lines[1:] == ["got it"]


def test_anOrphanedClientKeepsTheDevice(tmp_path, holders):
    """A client that inherits the descriptor holds the lock when its worker is gone."""
    process, clientPid = holders(tmp_path, "hand on")
    try:
        process.kill()
        process.wait(GENEROUS)
        with pytest.raises(RunError, match="in use"):
            _take(tmp_path)
        thread, begun, lines = _waits(tmp_path)
        assert begun.wait(GENEROUS)
    finally:
        os.kill(int(clientPid), signal.SIGKILL)
    thread.join(GENEROUS)
    assert lines[1:] == ["got it"]


def test_releaseDoesNotTakeItFromAChild(tmp_path):
    """Giving up our descriptor leaves the inherited one holding the lock."""
    lock = _take(tmp_path)
    client = subprocess.Popen(["sleep", "600"], pass_fds=[lock.fileno()])
    try:
        lock.release()
        with pytest.raises(RunError):
            _take(tmp_path)
    finally:
        client.kill()
        client.wait()
    _take(tmp_path).release()


def test_theLockIsNotInheritedUnlessAllowed(tmp_path):
    """Other children of a worker do not keep its device."""
    for allowed in (False, True):
        with _take(tmp_path) as lock:
            if allowed:
                lock.allowInheritance()
            found = subprocess.run(
                [sys.executable, "-c", "import os, sys; os.fstat(int(sys.argv[1]))"]
                + [str(lock.fileno())],
                close_fds=False,
                stderr=subprocess.DEVNULL,
            ).returncode
            assert (found == 0) == allowed


def test_theRenderNodeIsLockedReadOnly(tmp_path):
    """A real device locks on its render node: nothing is written, every user meets there."""
    node = tmp_path / "dev/dri/renderD128"
    node.parent.mkdir(parents=True)
    node.write_text("")
    node.chmod(0o444)
    device = Device(0, "0", pciAddress="0000:03:00.0", renderNode="/dev/dri/renderD128")
    system = System(str(tmp_path), {})
    with _take(tmp_path / "unused", device, system=system) as lock:
        assert (lock.path, lock.note) == ("/dev/dri/renderD128", "")
        other = Device(4, "9", pciAddress="0000:03:00.0", renderNode="/dev/dri/renderD128")
        with pytest.raises(RunError, match="device 4 is in use"):
            _take(tmp_path / "unused", other, system=system)
    assert node.read_text() == "" and not (tmp_path / "unused").exists()


def test_withoutARenderNodeAPrivateFileIsUsed(tmp_path):
    """The fallback lies in the user's runtime folder, under the device's name in every run."""
    system = System(environment={"XDG_RUNTIME_DIR": str(tmp_path)})
    device = Device(0, "0", pciAddress="0000:03:00.0")
    with _take("unused", device, system=system) as lock:
        assert lock.path == str(tmp_path / "tensile-parallel" / "0000_03_00.0.lock")
        assert "other users are not kept off" in lock.note
        assert os.stat(lock.path).st_mode & 0o777 == 0o600
        assert os.stat(os.path.dirname(lock.path)).st_mode & 0o777 == 0o700
        renumbered = Device(2, "5", pciAddress="0000:03:00.0")
        with pytest.raises(RunError):
            _take("unused", renumbered, system=system)


def test_theVariableBeatsTheGivenFolder(tmp_path):
    """Emulated devices lock under TENSILE_PARALLEL_LOCK_DIR, so that two runs can meet there."""
    system = System(environment={"TENSILE_PARALLEL_LOCK_DIR": str(tmp_path / "shared")})
    with _take(tmp_path / "a", system=system) as lock:
        assert lock.path == str(tmp_path / "shared" / "emulated-3.lock")
        with pytest.raises(RunError):
            _take(tmp_path / "b", system=system)


def test_aPlantedLinkIsNotFollowed(tmp_path):
    """A link in the lock's place would have us open, and empty, another file."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "locks"
    folder.mkdir(0o700)
    (folder / "emulated-3.lock").symlink_to(victim)
    with pytest.raises(RunError, match="cannot be opened"):
        _take(folder)
    (folder / "emulated-3.lock").unlink()
    os.link(victim, folder / "emulated-3.lock")
    with pytest.raises(RunError, match="second name"):
        _take(folder)
    assert victim.read_text() == "precious"


def test_aFolderThatOthersCanWriteIsRefused(tmp_path):
    """Whoever can write the folder can take the lock's name away from under us."""
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(RunError, match="can be written by others"):
        _take(folder)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(RunError):
        _take(link)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_aFolderOfAnotherUserIsRefused(tmp_path):
    """A folder that somebody else made for us in a shared place is not used."""
    folder = tmp_path / "locks"
    folder.mkdir(0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(RunError, match="another user"):
        _take(folder)


def test_severalLocksAreAllOrNothing(tmp_path):
    """When one device is in use the others are given up again."""
    devices = [Device(k, str(k), emulated=True, uniqueId="emulated-%d" % k) for k in range(3)]
    with _take(tmp_path, devices[1]):
        with pytest.raises(RunError, match="device 1"):
            acquireLocks(devices, str(tmp_path), False, lambda line: None)
        _take(tmp_path, devices[0]).release()
    locks = acquireLocks(list(reversed(devices)), str(tmp_path), False, lambda line: None)
    names = [os.path.basename(lock.path) for lock in locks]
    assert names == ["emulated-%d.lock" % k for k in (2, 1, 0)]
    for lock in locks:
        lock.release()


def test_twoRunsNeverWaitInARing(tmp_path):
    """Two runs that name the same devices in opposite orders both get through."""
    devices = [Device(k, str(k), emulated=True, uniqueId="emulated-%d" % k) for k in range(2)]
    done = []

    def run(order):
        for _ in range(200):
            for lock in acquireLocks(order, str(tmp_path), True, lambda line: None):
                lock.release()
        done.append(1)

    threads = [
        threading.Thread(target=run, args=(order,), daemon=True)
        for order in (devices, list(reversed(devices)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GENEROUS)
    assert done == [1, 1]
