# SPDX-License-Identifier: MIT
"""A serial run, in which our process becomes another program, holds the lock of its GPU too."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import HERE, ROOT, UNTIL_TOLD
from Processes import waitFor

from Tensile.Parallel.Devices import DeviceScan
from Tensile.Parallel.Locks import DeviceInUse, acquireLock, lockHolder
from Tensile.Parallel.Platform import ProgramResult, System
from Tensile.Parallel.SerialLock import lockForSerial
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit

RUN = ROOT / "Tensile" / "bin" / "TensileParallel"
GENEROUS = 60  # seconds


def emulated(number):
    return Device(number, str(number), emulated=True, uniqueId="emulated-%d" % number)


@pytest.fixture
def locks():
    """Where emulated devices lock."""
    return Path(os.environ["TENSILE_PARALLEL_LOCK_DIR"])


@pytest.fixture
def config(tmp_path):
    """A tuning config without DeviceList."""
    content = yaml.safe_load((HERE / "configs" / "quick.yaml").read_text())
    del content["GlobalParameters"]["DeviceList"]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def start(script, *arguments, **variables):
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def assertHeldUntilItsEnd(process, flag, device, locks):
    """The program holds the device under our process's id; killed, it does so no more."""
    try:
        waitFor(flag.exists)
        holder = lockHolder(device, str(locks))
        assert holder.startswith("process %d (" % process.pid), holder
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert lockHolder(device, str(locks)) == ""


@pytest.mark.parametrize("options, number", [([], 0), (["--device", "2"], 2), (["-d", "1"], 1)])
def test_theHostHoldsItsDevice(hostThat, config, tmp_path, locks, options, number):
    """Serial Tensile holds the GPU that it uses, and no other, as long as it lives."""
    flag = tmp_path / "started"
    arguments = [config, tmp_path / "out", "--emulate", 3, "--tensile-root", hostThat(UNTIL_TOLD)]
    process = start(RUN, *arguments, *options, STARTED=str(flag))
    waitFor(flag.exists)
    others = [lockHolder(emulated(other), str(locks)) for other in {0, 1, 2} - {number}]
    assertHeldUntilItsEnd(process, flag, emulated(number), locks)
    assert others == ["", ""]


def test_serialTensileWaitsAndSaysForWhom(hostThat, config, tmp_path, locks, holders):
    """The same line as in a parallel run; then the host runs as if nothing had been."""
    holder, _ = holders(locks, number=0)
    flag = tmp_path / "started"
    (tmp_path / "started.end").touch()
    arguments = [config, tmp_path / "out", "--emulate", 3, "--tensile-root", hostThat(UNTIL_TOLD)]
    process = start(RUN, *arguments, STARTED=str(flag))
    lines = [process.stdout.readline() for _ in range(3)]
    assert "serial Tensile on device 0" in lines[0] and not flag.exists()
    assert "waiting for device 0, which is in use by process %d (" % holder.pid in lines[2]
    holder.stdin.close()
    process.communicate(timeout=GENEROUS)
    assert process.returncode == 0 and flag.exists()


def test_serialTensileGivesUpWithNoWait(hostThat, config, tmp_path, locks, holders):
    """Exit 1 and one line that names the device and its holder; the host is not started."""
    holder, _ = holders(locks, number=0)
    flag = tmp_path / "started"
    arguments = [config, tmp_path / "out", "--emulate", 3, "--tensile-root", hostThat(UNTIL_TOLD)]
    process = start(RUN, *arguments, "--no-wait", STARTED=str(flag))
    output, _ = process.communicate(timeout=GENEROUS)
    assert process.returncode == 1 and not flag.exists()
    assert "error: device 0 is in use by process %d (" % holder.pid in output.splitlines()[-1]


def test_emulatedDevicesLockOnlyWhereRunsCanMeet(hostThat, config, tmp_path, locks):
    """Without TENSILE_PARALLEL_LOCK_DIR there is no folder for it, and serial runs make none."""
    flag = tmp_path / "started"
    (tmp_path / "started.end").touch()
    arguments = [config, tmp_path / "out", "--emulate", 3, "--tensile-root", hostThat(UNTIL_TOLD)]
    process = start(RUN, *arguments, STARTED=str(flag), TENSILE_PARALLEL_LOCK_DIR="")
    output, _ = process.communicate(timeout=GENEROUS)
    assert process.returncode == 0 and flag.exists(), output
    assert not locks.exists()


@pytest.mark.parametrize("where", ["INI", "command line"])
def test_theClientHoldsItsDevice(recorded, tmp_path, locks, where):
    """The parallel client that becomes the client locks the GPU that its device-idx names."""
    step = recorded("tensilelite-2024/full")
    flag = tmp_path / "started"
    client = tmp_path / "client"
    client.write_text("#!%s\n%s" % (sys.executable, UNTIL_TOLD))
    client.chmod(0o755)
    step.change(device_idx="2" if where == "INI" else "1")
    arguments = ["--config-file", step.ini, "--emulate", 3, "--devices", 7, "--client", client]
    if where == "command line":
        arguments += ["--device-idx", 2]
    script = ROOT / "Tensile" / "bin" / "TensileParallelClient"
    process = start(script, *arguments, STARTED=str(flag))
    assertHeldUntilItsEnd(process, flag, emulated(2), locks)


def test_theClientAloneGivesUpWithNoWait(recorded, runScript, locks, holders):
    """Exit 1 and one line, in place of becoming a client that would disturb the holder."""
    step = recorded("tensilelite-2024/full")
    holder, _ = holders(locks, number=0)
    arguments = ["--config-file", step.ini, "--emulate", 3, "--devices", 7, "--no-wait"]
    done = runScript("TensileParallelClient", *arguments)
    assert done.returncode == 1 and not step.results.exists()
    assert "device 0 is in use by process %d (" % holder.pid in done.stderr.splitlines()[-1]


class NoHip(System):
    """A system on which asking the HIP runtime is a mistake."""

    def hipProbe(self, timeout=0, environment=None) -> ProgramResult:
        raise AssertionError("a serial run has started the HIP runtime")


@pytest.fixture
def twoGpus(tmp_path):
    """The kernel's topology with two GPUs behind a CPU, as the amdgpu driver prints it."""
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    text = "simd_count %d\nsimd_per_cu 4\ngfx_target_version 90010\nlocation_id %d\n"
    for number, (simds, minor) in enumerate(((0, 0), (416, 128), (416, 129))):
        (nodes / str(number)).mkdir(parents=True)
        content = text % (simds, number << 8) + "drm_render_minor %d\n" % minor
        content += "unique_id %d\n" % number
        (nodes / str(number) / "properties").write_text(content)
        if minor:
            (tmp_path / "dev/dri").mkdir(parents=True, exist_ok=True)
            (tmp_path / ("dev/dri/renderD%d" % minor)).touch()
    (tmp_path / "dev/kfd").touch()
    return tmp_path


@pytest.mark.parametrize(
    "masks, ordinal, node",
    [
        ({}, "0", "renderD128"),
        ({}, " 1 ", "renderD129"),
        ({"HIP_VISIBLE_DEVICES": "1"}, "0", "renderD129"),
        ({"HIP_VISIBLE_DEVICES": "1"}, "1", None),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "1"}, "0", "renderD128"),
        ({}, "2", None),
        ({}, "-1", None),
        ({}, "[0, 1]", None),
    ],
)
def test_theTopologyTellsWhichGpu(twoGpus, masks, ordinal, node):
    """Without a DeviceList nobody asks HIP: the kernel's topology and the masks tell the GPU."""
    lock = lockForSerial(ordinal, None, 0, False, print, NoHip(str(twoGpus), masks))
    assert (lock and lock.path) == (node and "/dev/dri/" + node)
    if lock is not None:
        assert os.get_inheritable(lock.fileno())
        with pytest.raises(DeviceInUse):
            lockForSerial(ordinal, None, 0, False, print, NoHip(str(twoGpus), masks))
        lock.release()


def test_aScanThatIsThereIsUsed(twoGpus):
    """Where DeviceList had the devices looked for, their order is that scan's."""
    device = Device(0, "0", renderNode="/dev/dri/renderD129")
    scan = DeviceScan((device,), "a test")
    lock = lockForSerial("0", scan, 0, False, print, NoHip(str(twoGpus), {}))
    assert lock.path == "/dev/dri/renderD129"
    lock.release()


def test_aDeviceNamedByUuidIsLockedToo(twoGpus):
    """HIP's own mask may hold UUIDs; what cannot be told is said."""
    said = []
    environment = {"HIP_VISIBLE_DEVICES": "GPU-" + "0" * 15 + "2"}
    lock = lockForSerial("0", None, 0, False, said.append, System(str(twoGpus), environment))
    assert lock is not None and lock.path.endswith("renderD129") and not said
    lock.release()
    environment = {"HIP_VISIBLE_DEVICES": "GPU-ffff"}
    system = System(str(twoGpus), environment)
    assert lockForSerial("0", None, 0, False, said.append, system) is None
    assert len(said) == 1 and "not locked" in said[0]


def test_aMachineWithNothingLocksNothing(tmp_path):
    """No GPU, no lock, and nothing is said: serial Tensile is to show its own error."""
    said = []
    assert lockForSerial("0", None, 0, True, said.append, NoHip(str(tmp_path), {})) is None
    assert said == []


def test_noPlaceForALockIsNoReasonNotToRun(tmp_path):
    """A serial run is the host's own command: it says that it is not locked, and goes on."""
    (tmp_path / "tensile-parallel").touch()  # where the folder should be
    system = System(str(tmp_path), {"XDG_RUNTIME_DIR": str(tmp_path)})
    scan = DeviceScan((Device(0, "0", uniqueId="a"),), "a test")
    said = []
    assert lockForSerial("0", scan, 0, True, said.append, system) is None
    assert len(said) == 1 and "not locked" in said[0]


def test_twoSerialRunsOfOneDevice(locks):
    """What a serial run locks is what the workers of parallel runs lock."""
    with acquireLock(emulated(1), str(locks), False, print):
        with pytest.raises(DeviceInUse):
            lockForSerial("1", None, 2, False, print)
