# SPDX-License-Identifier: MIT
"""Workers and clients as real processes: the pin, and every way in which they can end."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import TimeoutError as StillRunning
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT
from FakeHip import (
    FakeHipUnavailable,
    buildFakeClient,
    buildFakeHip,
    fakeHipEnvironment,
)
from joblib.externals.loky import ProcessPoolExecutor

from Tensile.Parallel.Errors import RunError
from Tensile.Parallel.Locks import acquireLock
from Tensile.Parallel.ParseArguments import parseClientArguments
from Tensile.Parallel.QuietMachine import Surroundings
from Tensile.Parallel.Schedule import Rectangle, subtract
from Tensile.Parallel.Step import makeJob as makeStepJob
from Tensile.Parallel.Step import makeStep
from Tensile.Parallel.Types import CRASHED, FAILED, HUNG, MEASURED, Device, Job, Unit
from Tensile.Parallel.Worker import (
    STOP_SUFFIX,
    DeviceWorker,
    _birthMismatch,
    _endOf,
)

pytestmark = pytest.mark.unit

LIMIT = 20  # seconds within which everything here must have happened, on a busy machine
PCI = ["0000:0%d:00.0" % n for n in range(1, 5)]


def emulated(ordinal):
    return Device(ordinal, str(ordinal), emulated=True, uniqueId="emulated-%d" % ordinal)


@pytest.fixture
def makeWorker(tmp_path):
    """A function: device -> started worker; all of them are killed at the end."""
    workers = []

    def make(device=emulated(0), wait=True, start=True, surroundings=Surroundings()):
        worker = DeviceWorker(device, str(tmp_path / "locks"), wait, surroundings)
        workers.append(worker)
        if start:
            worker.start().result(LIMIT)
        return worker

    yield make
    for worker in workers:
        worker.kill()


@pytest.fixture
def makeJob(tmp_path):
    """A function: device and script of a client (sh, or Python after a #! of its own) -> job."""
    count = []

    def make(device, script, **more):
        count.append(1)
        client = tmp_path / ("client-%d" % len(count))
        client.write_text(script if script.startswith("#!") else "#!/bin/sh\n" + script)
        client.chmod(0o755)
        folder = tmp_path / ("gpu_%d" % device.ordinal)
        folder.mkdir(exist_ok=True)
        job = Job(
            unit=Unit(len(count), 0, 1, 0, 1),
            device=device,
            command=(str(client),),
            folder=str(folder),
            pathBase=folder.name,
            written=0,
            firstColumn=0,
            columns=("one",),
            passes=1,
            workingFolder=str(tmp_path),
        )
        return replace(job, **more)

    return make


# A client that does what a good one does, as little as that is.
GOOD = """
csv="$(dirname "$0")/gpu_%(ordinal)d/unit_%(unit)d.csv"
printf 'GFlops, SizeI, SizeJ, SizeK, SizeL, LDD, LDC, LDA, LDB, TotalFlops, one\\n' > "$csv"
printf '0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 7\\n' >> "$csv"
"""


def good(device, number):
    return GOOD % {"ordinal": device.ordinal, "unit": number}


def assertUsable(worker, makeJob):
    """After every harm: the worker measures a unit."""
    job = makeJob(worker.device, "")
    job = replace(job, command=(*_script(job, good(worker.device, job.unit.number)),))
    result = worker.submit(job).result(LIMIT)
    assert result.outcome.kind == MEASURED, (result.outcome, result.tail)


def _script(job, text):
    Path(job.command[0]).write_text("#!/bin/sh\n" + text)
    return job.command


def waitFor(condition, what):
    """Waits until a condition holds; fails with `what` after LIMIT seconds."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "still waiting for: " + what
        time.sleep(0.01)


def isAlive(pid):
    """Whether a process runs (a zombie does not)."""
    try:
        state = Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def readPid(path):
    """The process number that a client writes into a file, once it is there."""
    waitFor(lambda: path.exists() and path.read_text().endswith("\n"), str(path))
    return int(path.read_text())


def environOf(data):
    return dict(entry.split(b"=", 1) for entry in data.split(b"\0") if b"=" in entry)


def assertPinned(environ, device):
    """An environment names its one device, and no other mask can interfere."""
    assert environ.get(b"HIP_VISIBLE_DEVICES") == device.token.encode()
    assert b"CUDA_VISIBLE_DEVICES" not in environ
    assert b"GPU_DEVICE_ORDINAL" not in environ
    assert environ.get(b"ROCR_VISIBLE_DEVICES") == b"0,1,2,3"


@pytest.fixture
def masks(monkeypatch):
    """Masks of all kinds, as a user's job may have inherited them."""
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("GPU_DEVICE_ORDINAL", "0,1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0,1,2,3")


def ownEnviron():
    """What a process was born with; runs in a worker."""
    with open("/proc/self/environ", "rb") as handle:
        return environOf(handle.read())


def test_pinnedBeforeBirth(masks, makeWorker, makeJob, tmp_path):
    """Workers and clients are born with their one device: /proc/self/environ says so."""
    devices = [emulated(n) for n in range(4)]
    workers = [makeWorker(device, start=False) for device in devices]
    futures = [worker.start() for worker in workers]
    for worker, future in zip(workers, futures):
        facts = future.result(LIMIT)
        born = Path("/proc/%d/environ" % facts.pid).read_bytes()
        assertPinned(environOf(born), worker.device)
        job = makeJob(worker.device, 'cat /proc/self/environ > "$0.environ"\n')
        worker.submit(job).result(LIMIT)
        client = Path(job.command[0] + ".environ").read_bytes()
        assertPinned(environOf(client), worker.device)
    # The parent's own environment is as it was.
    assert os.environ["CUDA_VISIBLE_DEVICES"] == os.environ["GPU_DEVICE_ORDINAL"] == "0,1"
    assert os.environ["HIP_VISIBLE_DEVICES"] == "0,1,2,3"


def test_oneProcessorStillGivesAWorkerPerDevice(monkeypatch, makeWorker):
    """LOKY_MAX_CPU_COUNT=1 with four devices: four workers, four processes."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    workers = [makeWorker(emulated(n), start=False) for n in range(4)]
    futures = [worker.start() for worker in workers]
    assert len({future.result(LIMIT).pid for future in futures}) == 4


def test_surroundingsReachWorkerAndClient(makeWorker, makeJob):
    """Variables and processors of a device hold in its worker, in clients and in replacements."""
    one = max(os.sched_getaffinity(0))
    worker = makeWorker(
        surroundings=Surroundings({"OMP_THREAD_LIMIT": "3"}, frozenset({one})),
    )
    for _ in range(2):
        job = makeJob(
            emulated(0), 'env > "$0.env"; grep Cpus_allowed_list /proc/self/status >> "$0.env"\n'
        )
        worker.submit(job).result(LIMIT)
        lines = Path(job.command[0] + ".env").read_text().split("\n")
        assert "OMP_THREAD_LIMIT=3" in lines and "Cpus_allowed_list:\t%d" % one in lines
        worker.kill()
        worker.start().result(LIMIT)
    assert os.environ.get("OMP_THREAD_LIMIT") is None
    assert len(os.sched_getaffinity(0)) > 1 or os.cpu_count() == 1


def test_processorsThatAreGoneAreNoFailure(makeWorker, makeJob):
    """A processor that cannot be had leaves the worker where it is."""
    worker = makeWorker(surroundings=Surroundings({}, frozenset({4095})))
    assertUsable(worker, makeJob)


def test_replacedWorkerHasTheSamePin(masks, makeWorker, makeJob):
    """After a worker was killed its replacement is born with the same device."""
    device = emulated(2)
    worker = makeWorker(device)
    for _ in range(2):
        worker.kill()
        pid = worker.start().result(LIMIT).pid
        assertPinned(environOf(Path("/proc/%d/environ" % pid).read_bytes()), device)
    assertUsable(worker, makeJob)


@pytest.fixture(scope="module")
def fakeHip(tmp_path_factory):
    """(library, client) of the fake HIP runtime."""
    folder = tmp_path_factory.mktemp("hip")
    try:
        return buildFakeHip(folder), buildFakeClient(folder)
    except FakeHipUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def machine(fakeHip, monkeypatch):
    """A machine with four fake devices: the parent's environment, inherited by all children."""
    devices = ["gfx90a:" + address for address in PCI]
    for name, value in fakeHipEnvironment({}, fakeHip[0], devices).items():
        monkeypatch.setenv(name, value)
    return fakeHip


def seenByHip(library):
    """PCI addresses of the devices that the HIP runtime shows to this process."""
    hip = ctypes.CDLL(library)
    count = ctypes.c_int()
    hip.hipGetDeviceCount(ctypes.byref(count))
    found = []
    for device in range(count.value):
        text = ctypes.create_string_buffer(64)
        hip.hipDeviceGetPCIBusId(text, 64, device)
        found.append(text.value.decode())
    return found


def setLate(library, token):
    """What must not be done: the variable is set after the runtime has started."""
    ctypes.CDLL(library).hipInit(0)
    os.environ["HIP_VISIBLE_DEVICES"] = token
    return seenByHip(library)


def assertSeesItsOwn(seen, ordinal):
    assert seen == [PCI[ordinal]]


@pytest.mark.parametrize("ordinal", range(4))
def test_clientSeesItsOwnDevice(machine, makeWorker, makeJob, ordinal):
    """On a runtime that reads its mask once, a unit's client has its own device and no other."""
    device = emulated(ordinal)
    worker = makeWorker(device)
    job = replace(makeJob(device, ""), command=(machine[1],))
    result = worker.submit(job).result(LIMIT)
    assertSeesItsOwn(result.tail.split(), ordinal)
    # The worker itself would see the same.
    assertSeesItsOwn(worker._executor.submit(seenByHip, machine[0]).result(LIMIT), ordinal)


def test_variableSetLateIsCaught(machine):
    """The counter-proof: where the variable is set late the same assertion fails."""
    with ProcessPoolExecutor(max_workers=1) as executor:
        seen = executor.submit(setLate, machine[0], "2").result(LIMIT)
    assert len(seen) == 4
    with pytest.raises(AssertionError):
        assertSeesItsOwn(seen, 2)


def test_lateClientIsCaught(machine, makeWorker, makeJob):
    """The same for a client that widens its mask after the runtime has started: no effect."""
    script = "#!%s\nimport ctypes, os, sys\nsys.path[:0] = %r\n" % (sys.executable, sys.path)
    script += "from test_Worker import setLate\nprint(*setLate(%r, '0,1,2,3'))\n" % machine[0]
    worker = makeWorker(emulated(1))
    result = worker.submit(makeJob(worker.device, script)).result(LIMIT)
    assertSeesItsOwn(result.tail.split(), 1)


class BadlyBornWorker(DeviceWorker):
    """A worker whose process is born with another device than the one it is told to be."""

    def start(self):
        self._executor = ProcessPoolExecutor(
            max_workers=1,
            env={"HIP_VISIBLE_DEVICES": "3"},
            initializer=_lateInitialise,
            initargs=(self.device, os.getpid()),
        )
        from Tensile.Parallel.Worker import _prepare

        return self._executor.submit(_prepare)


def _lateInitialise(device, parent):
    """Ours, with the pin of a device that is not the one of the process's birth."""
    from Tensile.Parallel import Worker

    pinned = {**os.environ, "HIP_VISIBLE_DEVICES": device.token}
    Worker._initialise(pinned, parent, Worker._Claim(device, None, True))


def test_mismatchIsRaisedByTheFirstTask(tmp_path):
    """A pin that came too late: the first task says so, in words, and nothing is run."""
    worker = BadlyBornWorker(emulated(1), str(tmp_path / "locks"), True)
    try:
        with pytest.raises(RunError, match="born with HIP_VISIBLE_DEVICES='3' instead of '1'"):
            worker.start().result(LIMIT)
    finally:
        worker.kill()


def test_birthMismatchComparesWithProc(monkeypatch):
    """What counts is what the process was born with, not what os.environ says by now."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "5")
    born = ownEnviron().get(b"HIP_VISIBLE_DEVICES", b"").decode()
    assert "'5'" in _birthMismatch({"HIP_VISIBLE_DEVICES": "5"})
    assert _birthMismatch({"HIP_VISIBLE_DEVICES": born}) == ""


def test_lockIsHeld(makeWorker, tmp_path):
    """From its start to its end a worker holds its device's lock, and then it is free."""
    worker = makeWorker()
    with pytest.raises(RunError, match="in use"):
        acquireLock(worker.device, str(tmp_path / "locks"), False, print)
    second = makeWorker(wait=False, start=False)
    with pytest.raises(RunError, match="in use"):
        second.start().result(LIMIT)
    worker.close()
    acquireLock(worker.device, str(tmp_path / "locks"), False, print).release()


HANGS = 'echo $$ > "$0.pid"\nexec sleep 1000\n'


def startHanging(worker, makeJob, script=HANGS, **more):
    """Submits a client that never ends; (future, job, pid of the client)."""
    job = makeJob(worker.device, script, **more)
    future = worker.submit(job)
    return future, job, readPid(Path(job.command[0] + ".pid"))


def test_clientDiesWithItsWorker(makeWorker, makeJob):
    """A worker that is SIGKILLed takes its client with it, and its replacement works."""
    worker = makeWorker(wait=False)
    pid = worker._executor.submit(os.getpid).result(LIMIT)
    future, _, client = startHanging(worker, makeJob)
    os.kill(pid, signal.SIGKILL)
    waitFor(lambda: not isAlive(client), "the client's end")
    assert future.exception(LIMIT) is not None
    worker.kill()
    # Even with wait=False: the lock that a dying client still holds is not another run's.
    worker.start().result(LIMIT)
    assertUsable(worker, makeJob)


def test_wrappersChildrenDieWithTheWorker(makeWorker, makeJob):
    """A client that is a wrapper and does not exec: what it started ends with the worker too."""
    worker = makeWorker()
    pid = worker._executor.submit(os.getpid).result(LIMIT)
    script = 'sleep 1000 & echo $! > "$0.child"\necho $$ > "$0.pid"\nwait\n'
    _, job, client = startHanging(worker, makeJob, script)
    child = readPid(Path(job.command[0] + ".child"))
    os.kill(pid, signal.SIGKILL)
    waitFor(lambda: not isAlive(client), "the wrapper's end")
    waitFor(lambda: not isAlive(child), "the end of what it had started")


def test_replacementWaitsForItsPredecessorsClient(makeWorker, makeJob, holders, tmp_path):
    """With wait=False too: the lock is then held by a client of ours that is about to end."""
    worker = makeWorker(wait=False)
    worker.kill()
    dying, _ = holders(tmp_path / "locks", number=0)
    future = worker.start()
    with pytest.raises(StillRunning):
        future.result(1.0)
    dying.stdin.close()
    future.result(LIMIT)
    assertUsable(worker, makeJob)


def test_killEndsTheClient(makeWorker, makeJob):
    """kill() ends worker and client, wherever they are."""
    worker = makeWorker()
    _, _, client = startHanging(worker, makeJob)
    worker.kill()
    waitFor(lambda: not isAlive(client), "the client's end")
    worker.start().result(LIMIT)
    assertUsable(worker, makeJob)


def test_workerThatExitsBetweenUnits(makeWorker, makeJob):
    """A worker that exits by itself between two units is noticed and can be replaced."""
    worker = makeWorker()
    assert worker._executor.submit(os._exit, 0).exception(LIMIT) is not None
    worker.kill()
    worker.start().result(LIMIT)
    assertUsable(worker, makeJob)


PARENT = """
import os, sys, time
sys.path[:0] = %(path)r
from test_Worker import parentOfTwo
if __name__ == "__main__":
    parentOfTwo(%(folder)r)
"""


def parentOfTwo(folder):
    """A parent with two workers whose clients hang; prints the workers' process numbers."""
    jobs = []
    for ordinal in range(2):
        worker = DeviceWorker(emulated(ordinal), os.path.join(folder, "locks"), True)
        print(worker.start().result(LIMIT).pid, flush=True)
        job = Job(
            unit=Unit(ordinal, 0, 1, 0, 1),
            device=worker.device,
            command=(os.path.join(folder, "client-%d" % ordinal),),
            folder=folder,
            pathBase=".",
            written=0,
            firstColumn=0,
            columns=("one",),
            passes=1,
            workingFolder=folder,
        )
        jobs.append(worker.submit(job))
    time.sleep(1000)


def test_workersAndClientsDieWithTheParent(tmp_path):
    """A parent that is SIGKILLed leaves no worker and no client behind."""
    for ordinal in range(2):
        client = tmp_path / ("client-%d" % ordinal)
        client.write_text("#!/bin/sh\n" + HANGS)
        client.chmod(0o755)
    script = tmp_path / "parent.py"
    script.write_text(PARENT % {"path": sys.path, "folder": str(tmp_path)})
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        pids += [readPid(tmp_path / ("client-%d.pid" % ordinal)) for ordinal in range(2)]
        assert all(isAlive(pid) for pid in pids)
    finally:
        parent.kill()
        parent.wait()
    for pid in pids:
        waitFor(lambda: not isAlive(pid), "the end of process %d" % pid)
    parent.stdout.close()


# Ignores SIGTERM, and so does its child, which is in the same group.
STUBBORN = """
trap '' TERM
sleep 1000 &
echo $! > "$0.child"
echo $$ > "$0.pid"
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("script", [HANGS, STUBBORN], ids=["sleeps", "ignores TERM"])
def test_hungClientIsEnded(makeWorker, makeJob, script):
    """Silent for too long: the client's group is ended, and the worker goes on."""
    worker = makeWorker()
    future, job, pid = startHanging(worker, makeJob, script, silenceSeconds=0.3)
    result = future.result(LIMIT)
    assert result.outcome.kind == HUNG
    assert not isAlive(pid)
    child = Path(job.command[0] + ".child")
    if child.exists():
        waitFor(lambda: not isAlive(readPid(child)), "the end of its child")
    assertUsable(worker, makeJob)


def test_slowIsNotHung(makeWorker, makeJob):
    """A client that says something now and then may take longer than the silence allows."""
    worker = makeWorker()
    script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.25; echo $i; done\n"
    job = makeJob(worker.device, script, silenceSeconds=2.0)
    number = job.unit.number
    _script(job, script + good(worker.device, number))
    result = worker.submit(job).result(LIMIT)
    assert result.outcome.kind == MEASURED
    assert result.outcome.seconds > 2.0


def test_tenMegabytesOfNoise(makeWorker, makeJob):
    """10 MB on both outputs, much of it no UTF-8: logged whole, and the unit is judged."""
    worker = makeWorker()
    noise = "head -c 5000000 /dev/urandom; head -c 5000000 /dev/urandom >&2\n"
    job = makeJob(worker.device, noise)
    _script(job, noise + good(worker.device, job.unit.number))
    result = worker.submit(job).result(LIMIT)
    assert result.outcome.kind == MEASURED, result.outcome
    assert os.stat(job.file(".log")).st_size == 10_000_000
    assert result.tail.isprintable() or "\n" in result.tail
    job = makeJob(worker.device, noise + "kill -ABRT $$\n")
    result = worker.submit(job).result(LIMIT)
    assert (result.outcome.kind, result.outcome.exitStatus) == (CRASHED, 134)


def test_clientsStdinIsEmpty(makeWorker, makeJob):
    """A client that asks for input gets an end of file, not the user's terminal."""
    reading, writing = os.pipe()
    own = os.dup(0)
    os.write(writing, b"typed\n")
    os.dup2(reading, 0)
    try:
        worker = makeWorker()
        assert worker._executor.submit(os.readlink, "/proc/self/fd/0").result(LIMIT)[:4] == "pipe"
        result = worker.submit(makeJob(worker.device, "read x || echo nothing\n")).result(LIMIT)
    finally:
        os.dup2(own, 0)
        for descriptor in (own, reading, writing):
            os.close(descriptor)
    assert result.tail == "nothing"


@pytest.mark.parametrize("how", ["missing", "not executable", "no program", "no working folder"])
def test_clientThatCannotBeStarted(makeWorker, makeJob, how):
    """A client that does not start is a failed unit with the reason, and no dead worker."""
    worker = makeWorker()
    job = makeJob(worker.device, "exit 0\n")
    client = Path(job.command[0])
    if how == "missing":
        client.unlink()
    elif how == "not executable":
        job = replace(job, command=(str(client.parent),))
    elif how == "no program":
        client.write_bytes(b"\x7fELF and no more")
    else:
        job = replace(job, workingFolder="/nowhere")
    result = worker.submit(job).result(LIMIT)
    assert result.outcome.kind == FAILED and result.outcome.exitStatus is None
    assert "cannot start" in result.outcome.message
    assertUsable(worker, makeJob)


def test_descendantsDoNotOutliveTheClient(makeWorker, makeJob):
    """What a client leaves running behind it is ended before the unit counts as over."""
    worker = makeWorker()
    job = makeJob(worker.device, 'sleep 1000 & echo $! > "$0.child"\nexit 3\n')
    result = worker.submit(job).result(LIMIT)
    assert result.outcome.exitStatus == 3
    pid = readPid(Path(job.command[0] + ".child"))
    waitFor(lambda: not isAlive(pid), "the end of its descendant")


def test_earlierFilesAreNotThisUnits(makeWorker, makeJob):
    """Files that an earlier attempt left under the same number are not taken for this one's."""
    worker = makeWorker()
    job = makeJob(worker.device, "exit 0\n")
    Path(job.file(".csv")).write_text("old")
    Path(job.file(".log")).write_text("old")
    result = worker.submit(job).result(LIMIT)
    assert result.outcome.kind == FAILED and result.tail == ""
    assert not os.path.exists(job.file(".csv"))


@pytest.mark.parametrize("byDescriptor", [True, False])
def test_endIsNoticed(monkeypatch, byDescriptor):
    """A client's end is seen, and its status kept, with descriptors of processes and without."""
    if not byDescriptor:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    command = ["sh", "-c", "read line; exit 7"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as client, _endOf(client) as hasEnded:
        assert not hasEnded(0.01)
        client.stdin.close()
        assert hasEnded(LIMIT)
        assert client.returncode == 7


def test_startIsTimed(makeWorker, makeJob):
    """The time until the client was ready is told apart from that of its pairs."""
    worker = makeWorker()
    script = "sleep 0.2; echo Log level: Debug; sleep 1; echo done\n"
    result = worker.submit(makeJob(worker.device, script)).result(LIMIT)
    assert result.startSeconds is not None
    assert 0.15 < result.startSeconds < result.outcome.seconds - 0.3


# Sizes and solutions of tensilelite-2024/full.
SOLUTIONS = 24
SECOND_SIZE = "128,128,1,128"


@pytest.fixture
def stuckAt(recorded, tmp_path, monkeypatch):
    """A function: solution, more settings -> job of an emulated client that stops before it.

    Its first problem and the second one's solutions up to that one take no time.
    """

    def make(solution, number=0, **more):
        step = recorded("tensilelite-2024/full")
        step.change(**more)
        times = [0.0] * solution + [1000.0] * (SOLUTIONS - solution)
        settings = tmp_path / "emulator.json"
        settings.write_text(json.dumps({"pairSeconds": {SECOND_SIZE: times, "default": 0.0}}))
        monkeypatch.setenv("TENSILE_EMULATOR", str(settings))
        monkeypatch.setenv("TENSILE_EMULATED_DEVICES", "1")
        client = (sys.executable, str(ROOT / "Tensile" / "bin" / "TensileEmulatedClient"))
        settings = parseClientArguments(["--config-file", str(step.ini), "--emulate", "1"])
        made = makeStep(settings, client, "")
        unit = Unit(number, 0, 3, 0, SOLUTIONS)
        return makeStepJob(made, unit, emulated(0), tmp_path / "outputs", "")

    return make


def waitForPair(job, problem, solution):
    """Waits until a client's log has the line of a pair."""
    start = ("0,%d/" % problem, "%d/" % solution)

    def isThere():
        lines = Path(job.file(".log")).read_text().split("\n")[:-1]
        fields = [line.split(",") for line in lines if line.startswith(start[0])]
        return any(field[2].startswith(start[1]) for field in fields)

    there = "problem %d, solution %d" % (problem, solution)
    waitFor(lambda: os.path.exists(job.file(".log")) and isThere(), there)


@pytest.mark.parametrize("solution", [0, 1, 7, 23])
def test_shortenedClientKeepsWhatItHasFinished(makeWorker, stuckAt, solution):
    """Ended in the middle of a row: the pairs before are measured, the others are free again."""
    job = stuckAt(solution)
    worker = makeWorker()
    future = worker.submit(job)
    waitForPair(job, *((1, solution - 1) if solution else (0, SOLUTIONS - 1)))
    worker.shorten(job)
    result = future.result(LIMIT)
    assert (result.outcome.kind, result.shortened) == (MEASURED, True), result.outcome
    assert result.outcome.message == "" and result.outcome.lastPair is None
    rest = [Rectangle(0, 3, 0, SOLUTIONS)]
    for one in result.pieces:
        area = Rectangle(one.firstProblem, one.problemCount, one.firstSolution, one.solutionCount)
        rest = [left for whole in rest for left in subtract(whole, area)]
    begun = [Rectangle(1, 1, solution, SOLUTIONS - solution)] if solution else []
    whole = [Rectangle(2, 1, 0, SOLUTIONS)] if solution else [Rectangle(1, 2, 0, SOLUTIONS)]
    assert rest == begun + whole
    assert not os.path.exists(job.file(STOP_SUFFIX))


def test_shortenedBeforeItsFirstPair(makeWorker, stuckAt):
    """A client that has finished nothing gives everything back, and is no failure."""
    job = stuckAt(0, problem_start_idx="0")
    job = replace(job, command=("sleep", "1000"))
    worker = makeWorker()
    future = worker.submit(job)
    waitFor(lambda: os.path.exists(job.file(".log")), "the client's start")
    worker.shorten(job)
    result = future.result(LIMIT)
    assert (result.outcome.kind, result.shortened, result.pieces) == (MEASURED, True, ())


def test_shortenedTooLateIsWhole(makeWorker, makeJob):
    """A client that ends by itself with everything measured was not shortened."""
    worker = makeWorker()
    job = makeJob(worker.device, "")
    script = good(worker.device, job.unit.number) + 'touch "%s"\nsleep 1000\n'
    _script(job, script % job.file(STOP_SUFFIX))
    result = worker.submit(job).result(LIMIT)
    assert (result.outcome.kind, result.shortened) == (MEASURED, False)
    assert len(result.pieces) == 1


def test_stopFileFromBeforeShortensNothing(makeWorker, makeJob):
    """A request that came when its unit was over does not end the next try of that number."""
    worker = makeWorker()
    job = makeJob(worker.device, "")
    _script(job, "sleep 0.3\n" + good(worker.device, job.unit.number))
    worker.shorten(job)
    assert os.path.exists(job.file(STOP_SUFFIX))
    result = worker.submit(job).result(LIMIT)
    assert (result.outcome.kind, result.shortened) == (MEASURED, False)
    assertUsable(worker, makeJob)


def test_crashIsNotAShortenedUnit(makeWorker, makeJob):
    """A client that has died by itself when the request comes is judged as what it is."""
    worker = makeWorker()
    result = worker.submit(makeJob(worker.device, "kill -SEGV $$\n")).result(LIMIT)
    assert (result.outcome.kind, result.shortened) == (CRASHED, False)
