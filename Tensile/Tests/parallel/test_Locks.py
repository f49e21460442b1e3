# SPDX-License-Identifier: MIT
"""One benchmark per device at a time: held against real processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import HOLDER
from Processes import waitFor

from Tensile.Parallel.Errors import RunError
from Tensile.Parallel.Locks import (
    DeviceInUse,
    acquireLock,
    acquireLocks,
    lockHolder,
    lookAtLocks,
)
from Tensile.Parallel.Platform import System
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit

EMULATED = Device(0, "0", emulated=True, uniqueId="emulated-3")
GENEROUS = 60  # seconds; only a broken lock takes as long


@pytest.fixture(autouse=True)
def noVariable(monkeypatch):
    """The user's own lock folder is none of the tests'."""
    monkeypatch.delenv("TENSILE_PARALLEL_LOCK_DIR", raising=False)


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


def test_aLookNamesTheHolderAndTakesNothing(tmp_path, holders):
    """Who looks learns the holder, is free to look again, and makes no file of its own."""
    folder = tmp_path / "locks"
    assert lockHolder(EMULATED, str(folder)) == "" and not folder.exists()
    process, _ = holders(folder)
    for _ in range(2):
        assert lockHolder(EMULATED, str(folder)).startswith("process %d (" % process.pid)
    process.stdin.close()
    process.wait(GENEROUS)
    assert lockHolder(EMULATED, str(folder)) == ""


def test_aLookAtWhatCannotBeLookedAtIsNoError(tmp_path):
    """Acquiring says what is wrong with a lock; a look before that must not end the run."""
    folder = tmp_path / "locks"
    (folder / "emulated-3.lock").mkdir(parents=True)
    assert lockHolder(EMULATED, str(folder)) == ""
    assert lockHolder(EMULATED, None, System(environment={})) == ""
    unreadable = Device(0, "0", renderNode="/dev/dri/renderD128")
    system = System(str(tmp_path), {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert lockHolder(unreadable, None, system) == ""


def test_aLookGoesToTheRenderNode(tmp_path):
    """The place where the lock is, not the one where it would be without a render node."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD128").write_text("")
    device = Device(0, "0", pciAddress="0000:03:00.0", renderNode="/dev/dri/renderD128")
    system = System(str(tmp_path), {})
    with _take("unused", device, system=system):
        assert lockHolder(device, None, system) == "another process"  # this root has no /proc
    assert lockHolder(device, None, system) == ""


def test_aLookIsInNobodysWay(tmp_path):
    """Somebody's look, for as long as it takes, is neither a holder nor in a holder's way."""
    _take(tmp_path).release()
    look = os.open(tmp_path / "emulated-3.lock", os.O_RDONLY)
    fcntl.flock(look, fcntl.LOCK_SH)
    assert lockHolder(EMULATED, str(tmp_path)) == ""
    lines = []
    for wait in (False, True):
        threading.Timer(0.1, lambda: fcntl.flock(look, fcntl.LOCK_UN)).start()
        _take(tmp_path, wait=wait, onWait=lines.append).release()
        fcntl.flock(look, fcntl.LOCK_SH)
    assert lines == []
    os.close(look)


def test_manyLooksAndAcquisitionsAtOnce(tmp_path):
    """However many look, nobody who acquires without waiting is refused a free device."""
    _take(tmp_path).release()
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from Tensile.Parallel.Locks import lockHolder; from Tensile.Parallel.Types import Device\n"
        "device = Device(0, '0', emulated=True, uniqueId='emulated-3')\n"
        "print(flush=True)\n"
        "while True: lockHolder(device, sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(tmp_path), *sys.path]
    lookers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for looker in lookers:
            looker.stdout.readline()
        for _ in range(300):
            _take(tmp_path).release()
    finally:
        for looker in lookers:
            looker.kill()
            looker.wait()
            looker.stdout.close()


def test_whatIsSaidBeforeARun(tmp_path, holders):
    """One line per held device; without waiting, one error that names them all."""
    devices = [EMULATED, Device(1, "1", emulated=True, uniqueId="emulated-1")]
    assert lookAtLocks(devices, str(tmp_path), False) == []
    process, _ = holders(tmp_path)
    lines = lookAtLocks(devices, str(tmp_path), True)
    assert len(lines) == 1 and "it will be waited for" in lines[0]
    assert lines[0].startswith("device 0 is in use by process %d (" % process.pid)
    other, _ = holders(tmp_path, number=1)
    with pytest.raises(DeviceInUse) as refused:
        lookAtLocks(devices, str(tmp_path), False)
    text = str(refused.value)
    assert str(process.pid) in text and str(other.pid) in text and "\n" not in text


def test_aWorkersRunIsNamed(tmp_path, holders):
    """A worker's command line says nothing to a person: its parent's names the run."""
    holders(tmp_path, what="popen_loky")
    assert lockHolder(EMULATED, str(tmp_path)).startswith("process %d (" % os.getpid())


def test_nobodyWaitsForAProcessThatWaitsForIt(tmp_path, holders):
    """A serial run's client that is a parallel client would wait for the run that waits for it."""
    with _take(tmp_path):
        process, answer = holders(tmp_path)
        assert "held by process %d" % os.getpid() in answer and "waits for it" in answer
        assert process.wait(GENEROUS) == 1


def test_aReplacementWaitsForItsPredecessor(tmp_path, holders):
    """Two workers of one run are brothers: the one that follows is not refused as a descendant."""
    first, _ = holders(tmp_path, what="popen_loky")
    command = [sys.executable, "-c", HOLDER, str(tmp_path), "3", "popen_loky", *sys.path]
    second = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    word = " %d " % second.pid
    waitFor(lambda: word in Path("/proc/locks").read_text() or second.poll() is not None)
    first.stdin.close()
    output, _ = second.communicate(timeout=GENEROUS)
    assert output == "held\n"
