# SPDX-License-Identifier: MIT
"""Two runs on the same devices: never two clients on one, and nobody hangs, whatever is killed.

    pytest Tensile/Tests/parallel/test_Overlap.py --rounds 50 -rP

Runs are started together on overlapping devices; signals go to processes of either at random
moments. What the emulated clients have recorded tells whether two were on one device.
"""

import filecmp
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from conftest import DATA, HERE, HOST, ROOT, UNTIL_TOLD, Recorded
from Processes import Marked, waitFor

from Tensile.Parallel.Locks import lockHolder
from Tensile.Parallel.Types import Device

pytestmark = [pytest.mark.unit, pytest.mark.slow]

SCRIPTS = ROOT / "Tensile" / "bin"
DEVICES = 4
LIMIT = 150  # seconds within which a run of a few ends, on a busy machine and after any signal

# What a process's command line holds.
KINDS = {
    "front end": "bin/TensileParallel\0",
    "host": "HostBootstrap.py",
    "parallel client": "bin/TensileParallelClient",
    "worker": "popen_loky",
    "client": "TensileEmulatedClient",
}
# A pair whose client dies three times is given up: a run loses at most two of these.
COSTS_A_TRY = ("worker", "client")
TRIES = 2
SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT)


def pytest_generate_tests(metafunc):
    """One test for every round that was asked for."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--rounds", default=2)))


class Run(Marked):
    """One command on some of the devices, which may be started several times.

    Attributes:
        command: its command line.
        process: as it was started last.
    """

    def __init__(self, folder, record, command, devices, pairSeconds):
        folder.mkdir(exist_ok=True)
        self.settings = folder / "emulator.json"
        self.record = record
        self.pace(pairSeconds)
        super().__init__(TENSILE_EMULATOR=str(self.settings))
        self.command = [sys.executable, *command, "--emulate", DEVICES]
        self.command += ["--devices", ",".join(map(str, devices))]
        self.process = None
        self.tries = TRIES

    def pace(self, pairSeconds):
        """How long a pair takes from now on."""
        settings = {"pairSeconds": pairSeconds, "startSeconds": 0.05, "record": str(self.record)}
        self.settings.write_text(json.dumps(settings))

    def begin(self, *options):
        self.process = self.start([*self.command, *options])

    def end(self):
        """Its output, when it has ended. One that hangs is a failure."""
        output, _ = self.process.communicate(timeout=LIMIT)
        return output

    def kill(self):
        for pid in self.own():
            send(pid, signal.SIGKILL)

    def disturb(self, chance):
        """Sends some signal to some process of a kind that runs; says what, or nothing."""
        own = sorted(self.own().items())
        pids = {kind: [pid for pid, line in own if word in line] for kind, word in KINDS.items()}
        kinds = [k for k in KINDS if pids[k] and (self.tries or k not in COSTS_A_TRY)]
        if not kinds:
            return ""
        kind, number = chance.choice(kinds), chance.choice(SIGNALS)
        if not send(chance.choice(pids[kind]), number):
            return ""
        self.tries -= kind in COSTS_A_TRY
        return "%s to a %s" % (number.name, kind)


def send(pid, number):
    """Whether there was a process to get the signal."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class ClientRun(Run):
    """The parallel client by itself."""

    def __init__(self, folder, record, recorded, devices, pairSeconds, *options):
        self.step = recorded("tensilelite-2024/full", folder.name)
        command = [SCRIPTS / "TensileParallelClient", "--config-file", self.step.ini, *options]
        super().__init__(folder, record, command, devices, pairSeconds)

    def isSerial(self, serial):
        return self.step.results.read_bytes() == (serial / "results.csv").read_bytes()


class FrontEndRun(Run):
    """TensileParallel on the stand-in host: two steps."""

    def __init__(self, folder, record, recorded, devices, pairSeconds):
        self.out = folder / "out"
        folder.mkdir()
        config = smallConfig(folder)
        command = [SCRIPTS / "TensileParallel", config, self.out]
        command += ["--tensile-root", HOST / "tensilelite"]
        super().__init__(folder, record, command, devices, 3 * pairSeconds)

    def isSerial(self, serial):
        return all(
            sameFiles(self.out / "merged_output" / name, serial / "tree" / name)
            for name in ("2_BenchmarkData", "3_LibraryLogic")
        )


def smallConfig(folder, **parameters):
    """Two problem types, of 8 and 4 solutions."""
    content = yaml.safe_load((HERE / "configs" / "quick.yaml").read_text())
    del content["BenchmarkProblems"][0][1]
    content["GlobalParameters"].update(parameters)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def sameFiles(first, second):
    """Whether two folders hold the same files with the same content."""
    comparison = filecmp.dircmp(str(first), str(second))
    if comparison.left_only or comparison.right_only or not comparison.common_files:
        return False
    return not filecmp.cmpfiles(str(first), str(second), comparison.common_files, False)[1]


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """A folder with what serial runs leave: the client's results.csv, and Tensile's tree/."""
    folder = tmp_path_factory.mktemp("serial")
    step = Recorded(DATA / "tensilelite-2024" / "full", folder / "step")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    quick = Marked(PATH=path, TENSILE_PARALLEL_LOCK_DIR=str(folder / "locks"))
    client = SCRIPTS / "TensileEmulatedClient"
    for command in (
        [client, "--config-file", step.ini, "--results-file", folder / "results.csv"],
        [
            HOST / "tensilelite" / "Tensile" / "bin" / "Tensile",
            smallConfig(folder, DeviceList=[]),
            folder / "tree",
            "--prebuilt-client",
            client,
        ],
    ):
        process = quick.start([sys.executable, *command])
        output, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, output
    return folder


@pytest.fixture
def record(tmp_path):
    """The file in which all emulated clients write what they do."""
    return tmp_path / "record.jsonl"


@pytest.fixture
def keep():
    """A function: has a run ended with the test."""
    runs = []
    yield lambda run: runs.append(run) or run
    for run in runs:
        run.kill()
        if run.process is not None:
            run.process.wait(LIMIT)
            run.process.stdout.close()


def eventsIn(record):
    """What the clients have recorded so far, in order; a line that is being written is left out."""
    lines = record.read_bytes().splitlines() if record.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"}")]


def clientsOn(events):
    """device -> [(begin, end, pid)] of the clients that were on it, in order.

    A client that was killed leaves no end; it then was there at least until its last line.
    """
    seen = {}
    for event in events:
        first, _, device = seen.get(event["pid"], (event["monotonic"], 0, event["device"]))
        seen[event["pid"]] = (first, event["monotonic"], device)
    found = defaultdict(list)
    for pid, (begin, end, device) in seen.items():
        found[device].append((begin, end, pid))
    return {device: sorted(clients) for device, clients in found.items()}


def overlapsIn(events):
    """Where two clients were on a device at a time: by their times, and by their own finding.

    The latter is a lock that an emulated client holds on its device as long as it lives.
    """
    overlaps = [event for event in events if event["event"] == "conflict"]
    for device, clients in clientsOn(events).items():
        for before, after in zip(clients, clients[1:]):
            if after[0] < before[1]:
                overlaps.append((device, before, after))
    return overlaps


def lockFolder():
    return Path(os.environ["TENSILE_PARALLEL_LOCK_DIR"])


def emulated(number):
    return Device(number, str(number), emulated=True, uniqueId="emulated-%d" % number)


def assertDevicesAreFree():
    holders = [lockHolder(emulated(number), str(lockFolder())) for number in range(DEVICES)]
    assert holders == [""] * DEVICES


def test_disturbedRunsNeverShareADevice(recorded, record, serial, keep, tmp_path, seed):
    """Rules 2, 4 and 8: whatever process of two runs gets whatever signal, no two clients are on
    one device, both runs end, nothing is left of them, and both, given again, end as serially."""
    chance = random.Random(seed)
    kinds = [chance.choice([ClientRun, FrontEndRun]) for _ in range(2)]
    runs = [
        keep(kind(tmp_path / name, record, recorded, devices, 0.04))
        for name, kind, devices in zip("ab", kinds, ([0, 1, 2], [1, 2, 3]))
    ]
    story = ["seed %d" % seed, " beside ".join(kind.__name__ for kind in kinds)]
    for run in runs:
        run.begin()
    for _ in range(chance.randint(2, 6)):
        time.sleep(chance.uniform(0.1, 1.5))
        order = chance.sample(runs, 2)
        story.append(order[0].disturb(chance) or order[1].disturb(chance) or "nothing to kill")
    outputs = [run.end() for run in runs]
    story.append("exits %s" % [run.process.returncode for run in runs])
    print("; ".join(story))  # -rP shows it; a failure does as well
    for run in runs:
        run.assertNothingIsLeft()
    assertDevicesAreFree()
    for run in runs:
        run.pace(0.001)
        run.begin()
    outputs += [run.end() for run in runs]
    for run, output in zip(runs, outputs[2:]):
        assert run.process.returncode == 0, output
        assert run.isSerial(serial)
        run.assertNothingIsLeft()
    events = eventsIn(record)
    assert not overlapsIn(events), outputs
    assert set(clientsOn(events)) <= set(range(DEVICES)) and len(clientsOn(events)) > 2


def test_theCheckFindsAnOverlap(recorded, record, keep, tmp_path):
    """Two runs that lock in different places do share a device, and the record shows it."""
    runs = [keep(ClientRun(tmp_path / n, record, recorded, [1], 0.008)) for n in "ab"]
    for run in runs:
        run.environment["TENSILE_PARALLEL_LOCK_DIR"] = str(tmp_path / run.step.into.name / "locks")
        run.begin()
    for run in runs:
        run.end()
    events = eventsIn(record)
    assert overlapsIn(events) and not [e for e in events if e["event"] == "conflict"]


def test_theSecondRunSaysForWhomItWaits(recorded, record, serial, keep, tmp_path):
    """Undisturbed, on the same devices: the second names the first one's process, and both end."""
    first, second = (keep(ClientRun(tmp_path / n, record, recorded, [0, 1], 0.3)) for n in "ab")
    first.begin()
    waitFor(lambda: {0, 1} <= set(clientsOn(eventsIn(record))))
    second.begin()
    said = readUntil(second, "waiting for device") + readUntil(second, "waiting for device")
    for run in (first, second):
        run.pace(0.001)
    outputs = first.end(), said + second.end()
    assert (first.process.returncode, second.process.returncode) == (0, 0), outputs
    holder = "in use by process %d (%s" % (first.process.pid, sys.executable)
    for device in (0, 1):
        assert "waiting for device %d, which is %s" % (device, holder) in outputs[1]
    assert first.isSerial(serial) and second.isSerial(serial)
    assert not overlapsIn(eventsIn(record))


def workerOf(run, device):
    """The worker that is pinned to a device; 0 where there is none yet."""
    for pid, line in run.own().items():
        try:
            born = Path("/proc/%d/environ" % pid).read_bytes().split(b"\0")
        except OSError:
            continue
        if "popen_loky" in line and b"HIP_VISIBLE_DEVICES=%d" % device in born:
            return pid
    return 0


def holds(run, device):
    """Whether a run holds a device."""
    return "process %d (" % run.process.pid in lockHolder(emulated(device), str(lockFolder()))


def readUntil(run, text):
    """What a run says until it says this."""
    lines = []
    while not lines or text not in lines[-1]:
        lines.append(run.process.stdout.readline())
        assert lines[-1], lines
    return "".join(lines)


def beginRing(first, second, holders):
    """Has the first run hold device 1 and wait for 2, and the second hold 2 and wait for 1."""
    holder, _ = holders(lockFolder(), number=1)
    second.begin()
    readUntil(second, "waiting for device 1")
    waitFor(lambda: holds(second, 2))
    # A process that is stopped is in no queue for the lock: so the first run gets it.
    waiting = workerOf(second, 1)
    os.kill(waiting, signal.SIGSTOP)
    first.begin()
    readUntil(first, "waiting for device 2")
    holder.stdin.close()
    waitFor(lambda: holds(first, 1))
    os.kill(waiting, signal.SIGCONT)
    for run in (first, second):
        run.pace(0.001)


def test_aRingOfRunsEnds(recorded, record, serial, keep, holders, tmp_path):
    """A holds 1 and waits for 2, B holds 2 and waits for 1: each measures on what it has, ends
    without the other device, and gives up what it has."""
    runs = [keep(ClientRun(tmp_path / n, record, recorded, [1, 2], 0.05)) for n in "ab"]
    beginRing(*runs, holders)
    for run in runs:
        output = run.end()
        assert run.process.returncode == 0, output
        assert run.isSerial(serial)
        run.assertNothingIsLeft()
    assert not overlapsIn(eventsIn(record))
    assertDevicesAreFree()


def test_aRingOfRunsThatMustGoOnWhereTheyWereEnds(
    recorded, record, serial, keep, holders, tmp_path
):
    """With sizes kept whole the rest of a begun row has to be measured where the row was begun.
    Both runs were killed on both devices: each then needs the device that the other one holds."""
    runs = [
        keep(ClientRun(tmp_path / n, record, recorded, [1, 2], 0.2, "--keep-sizes-whole"))
        for n in "ab"
    ]
    for run in runs:
        offset = len(eventsIn(record))
        run.begin()
        waitFor(lambda: pairsOn(eventsIn(record)[offset:], 1) > 1)
        waitFor(lambda: pairsOn(eventsIn(record)[offset:], 2) > 1)
        run.process.kill()
        run.end()
        run.assertNothingIsLeft()
        run.pace(0.05)
    beginRing(*runs, holders)
    for run in runs:
        output = run.end()
        assert run.process.returncode == 0, output
        assert run.isSerial(serial)
    assert not overlapsIn(eventsIn(record))


def pairsOn(events, device):
    return sum(e["event"] == "pair" and e["device"] == device for e in events)


def test_aDeviceThatIsNamedTwiceCountsOnce(recorded, record, serial, keep, tmp_path):
    """`[1, 1, 2]` are two devices, and two such runs leave each to one client at a time."""
    runs = [keep(ClientRun(tmp_path / n, record, recorded, [1, 1, 2], 0.005)) for n in "ab"]
    for run in runs:
        run.begin()
    outputs = [run.end() for run in runs]
    for run, output in zip(runs, outputs):
        assert run.process.returncode == 0 and run.isSerial(serial), output
        assert "names device 1 more than once" in output
        assert "on device(s) 1, 2" in output
    events = eventsIn(record)
    assert not overlapsIn(events) and set(clientsOn(events)) <= {1, 2}


def test_heldDevicesAreNamedBeforeTensileStarts(hostThat, keep, holders, record, tmp_path):
    """Kernels take minutes to make: whom the run will wait for is said before, in the log too."""
    flag = tmp_path / "started"
    out = tmp_path / "out"
    command = [SCRIPTS / "TensileParallel", smallConfig(tmp_path), out]
    run = keep(Run(tmp_path, record, [*command, "--tensile-root", hostThat(UNTIL_TOLD)], [0, 1], 0))
    run.environment["STARTED"] = str(flag)
    holder, _ = holders(lockFolder(), number=1)
    words = "device 1 is in use by process %d (" % holder.pid
    run.begin()
    said = readUntil(run, words)
    assert "it will be waited for" in said.splitlines()[-1] and "device 0" not in said
    assert said.index(words) > 0 and "TensileParallel 0." not in said  # first of all
    waitFor(flag.exists)
    (tmp_path / "started.end").touch()
    run.end()
    assert words in (out / "tensile_parallel.log").read_text()


def test_withNoWaitTensileIsNotStarted(hostThat, keep, holders, record, tmp_path):
    """Exit 1 and one line that names every held device and its holder; nothing was started."""
    flag = tmp_path / "started"
    out = tmp_path / "out"
    command = [SCRIPTS / "TensileParallel", smallConfig(tmp_path), out]
    run = keep(
        Run(tmp_path, record, [*command, "--tensile-root", hostThat(UNTIL_TOLD)], [0, 1, 2], 0)
    )
    run.environment["STARTED"] = str(flag)
    pids = [holders(lockFolder(), number=number)[0].pid for number in (0, 2)]
    run.begin("--no-wait")
    output = run.end()
    assert run.process.returncode == 1 and len(output.splitlines()) == 1, output
    for device, pid in zip((0, 2), pids):
        assert "device %d is in use by process %d (" % (device, pid) in output
    assert not flag.exists() and not (out / "merged_output").exists()


def test_aFinishedRunNeedsNoDevice(keep, holders, record, recorded, serial, tmp_path):
    """Nothing is measured again, so nobody is waited for and --no-wait is no reason to fail."""
    for kind in (ClientRun, FrontEndRun):
        run = keep(kind(tmp_path / kind.__name__, record, recorded, [0, 1], 0))
        run.begin()
        output = run.end()
        assert run.process.returncode == 0, output
        holder, _ = holders(lockFolder(), number=1)
        run.begin("--no-wait")
        output = run.end()
        assert run.process.returncode == 0 and "in use" not in output, output
        assert run.isSerial(serial)
        holder.stdin.close()
        holder.wait(LIMIT)


def test_withNoWaitTheParallelClientGivesUp(recorded, record, keep, holders, tmp_path):
    """By itself too: exit 1 and a line that names the holder; no client is started."""
    holder, _ = holders(lockFolder(), number=2)
    run = keep(ClientRun(tmp_path / "a", record, recorded, [1, 2], 0))
    run.begin("--no-wait")
    output = run.end()
    assert run.process.returncode == 1 and not run.step.results.exists()
    words = "error: device 2 is in use by process %d (" % holder.pid
    assert words in output.splitlines()[-1] and not eventsIn(record)


@pytest.mark.parametrize("options, status", [([], 0), (["--strict"], 1)])
def test_aDeviceThatWasHeldToTheEndIsReported(recorded, holders, runScript, options, status):
    """It has measured nothing: said with its holder, and a lost device to --strict."""
    step = recorded("tensilelite-2024/full")
    holder, _ = holders(lockFolder(), number=1)
    done = runScript("TensileParallelClient", "--config-file", step.ini, "--emulate", 2, *options)
    assert done.returncode == status
    words = "device 1 was in use by process %d" % holder.pid
    assert words in done.stdout
    report = json.loads((Path(str(step.results) + ".parallel") / "step.json").read_text())
    assert report["devicesLost"] == [1] and any(words in note for note in report["notes"])


def test_aRelativeLockFolderIsOneForAll(runScript, tmp_path):
    """Programs of a run have different current folders: one folder, where the user meant it."""
    done = runScript(
        *("TensileParallel", HERE / "configs" / "quick.yaml", tmp_path / "out", "--emulate", 2),
        *("--tensile-root", HERE / "host" / "tensilelite"),
        environment={"TENSILE_PARALLEL_LOCK_DIR": "my locks"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert [path.parent for path in tmp_path.rglob("my locks")] == [tmp_path]


def test_aLockFolderThatOthersCanWriteIsRefusedAtOnce(runScript, tmp_path):
    """Before Tensile makes kernels: exit 2 and one line."""
    locks = tmp_path / "locks of all"
    locks.mkdir()
    locks.chmod(0o777)
    done = runScript(
        *("TensileParallel", HERE / "configs" / "quick.yaml", tmp_path / "out", "--emulate", 2),
        *("--tensile-root", HERE / "host" / "tensilelite"),
        environment={"TENSILE_PARALLEL_LOCK_DIR": str(locks)},
    )
    assert done.returncode == 2 and "can be written by others" in done.stderr
    assert not (tmp_path / "out" / "merged_output").exists()


def test_aDeviceThatIsTakenLaterIsSetAside(
    hostThat, recorded, record, serial, keep, holders, tmp_path
):
    """With --no-wait a front end has looked; what is held when a step begins is done without."""
    run = keep(FrontEndRun(tmp_path / "a", record, recorded, [0, 1], 0.001))
    source = UNTIL_TOLD + "from Tensile.Original import main as goOn\ngoOn()"
    run.command += ["--tensile-root", hostThat(source)]
    flag = tmp_path / "started"
    run.environment["STARTED"] = str(flag)
    run.begin("--no-wait")
    waitFor(flag.exists)  # the look is over
    holders(lockFolder(), number=1)
    (tmp_path / "started.end").touch()
    output = run.end()
    assert run.process.returncode == 0 and "device 1 is set aside: device 1 is in use" in output
    assert run.isSerial(serial)
    assert set(clientsOn(eventsIn(record))) == {0}
