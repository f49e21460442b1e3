# SPDX-License-Identifier: MIT
"""Four nodes on one machine, each with a network and a root folder of its own: does it hold?

    sudo python Tensile/Tests/parallel/benchmarks/benchCluster.py [--rounds 30] [--seconds 30]
        [--nodes 4] [--devices 4] [--only equal,speed,join,kills]

Each node is started by the documented command in a network namespace with its own address and
below a folder that becomes its root: it has Python and TensileParallel there, and no path in
common with the front end. It needs root, `ip` and `unshare`.

    equal   a run through the stand-in host leaves what serial Tensile leaves
    speed   bound / wall of the growing workload, with so many seconds of work per device
    join    a node that joins half-way takes work within 5 s; two that leave then lose nothing
    kills   rounds of a run through the stand-in host, while workers, Nannies, clients, nodes, the
            scheduler and the front end are killed and networks are cut for 10 s: the files are
            those of serial Tensile, and nothing is left running
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "Tensile" / "Parallel" / "Alone")]

from benchSchedule import Setup, _agreement, serialResults, workloads  # noqa: E402
from Clusters import BIN, SCHEDULER, killHard  # noqa: E402
from Processes import Marked, waitFor  # noqa: E402

BRIDGE, NETWORK, PORT = "tpbridge", "10.213.7.", 8786
CONFIG = HERE.parent / "configs" / "quick.yaml"
CUT_SECONDS = 10.0
# What a node sees of this machine beside its own root.
SHARED = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/dev", "/sys")
ENTER = r"""
root=$1; shift
while [ "$1" != -- ]; do
    mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift
done
shift
exec chroot "$root" "$@"
"""
WORDS = {
    "worker": "spawn_main",
    "nanny": "runDevice",
    "client": "TensileEmulatedClient",
}


def do(*words: Any) -> None:
    """Runs a program that must succeed."""
    subprocess.run([str(word) for word in words], check=True)


class Lan:
    """A bridge with a namespace per node."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.remove()
        do("ip", "link", "add", BRIDGE, "type", "bridge")
        do("ip", "addr", "add", NETWORK + "1/24", "dev", BRIDGE)
        do("ip", "link", "set", BRIDGE, "up")
        for k in range(nodes):
            name = "tpnode%d" % k
            do("ip", "netns", "add", name)
            peer = ("type", "veth", "peer", "name", "eth0", "netns", name)
            do("ip", "link", "add", "tpveth%d" % k, *peer)
            do("ip", "-n", name, "addr", "add", NETWORK + "%d/24" % (k + 11), "dev", "eth0")
            do("ip", "-n", name, "link", "set", "eth0", "up")
            do("ip", "-n", name, "link", "set", "lo", "up")
            do("ip", "link", "set", "tpveth%d" % k, "up")
            self.connect(k)

    def connect(self, k: int) -> None:
        do("ip", "link", "set", "tpveth%d" % k, "master", BRIDGE)

    def cut(self, k: int) -> None:
        """Packets are lost from now on; nobody is told."""
        do("ip", "link", "set", "tpveth%d" % k, "nomaster")

    def remove(self) -> None:
        for k in range(64):
            for words in (("netns", "del", "tpnode%d" % k), ("link", "del", "tpveth%d" % k)):
                if k < self.nodes or k == 0:
                    subprocess.run(["ip", *words], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", BRIDGE], stderr=subprocess.DEVNULL)


class Farm:
    """The scheduler and the nodes."""

    def __init__(self, folder: Path, nodes: int, devices: int) -> None:
        self.folder, self.devices = folder, devices
        self.lan = Lan(nodes)
        self.address = "tcp://%s1:%d" % (NETWORK, PORT)
        self.marked = Marked(DASK_LOGGING__DISTRIBUTED="critical")
        self.joins: Dict[int, "subprocess.Popen[bytes]"] = {}
        self.scheduler: "Optional[subprocess.Popen[bytes]]" = None
        self.startScheduler()
        for k in range(nodes):
            self._makeRoot(k)

    def _makeRoot(self, k: int) -> None:
        root = self.root(k)
        for name in ("tmp", "home/tune", "opt"):
            (root / name).mkdir(parents=True)
        target = root / "opt" / "TensileParallel" / "Tensile"
        for name in ("Parallel", "bin"):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / "Tensile" / name, target / name, ignore=ignore)

    def root(self, k: int) -> Path:
        return self.folder / ("root%d" % k)

    def settings(self, k: int, values: Dict[str, Any]) -> None:
        """The emulator's, for the clients that start from now on."""
        path = self.root(k) / "home" / "tune" / "emulator.json"
        path.with_suffix(".new").write_text(json.dumps(values))
        os.replace(path.with_suffix(".new"), path)

    def startScheduler(self) -> None:
        command = [*SCHEDULER, "--host", NETWORK + "1", "--port", str(PORT)]
        command += ["--dashboard-address", "127.0.0.1:0"]
        self.scheduler = self._start(command, {}, "scheduler")

    def startNode(self, k: int) -> None:
        shared = [*(name for name in SHARED if os.path.exists(name))]
        shared += sorted({sys.prefix, sys.base_prefix})
        words = ["ip", "netns", "exec", "tpnode%d" % k, "unshare", "-m", "--propagation", "private"]
        words += ["sh", "-c", ENTER, "enter", str(self.root(k)), *shared, "--"]
        words += [sys.executable, "/opt/TensileParallel/Tensile/bin/TensileParallel"]
        words += ["--join", self.address, "--node-name", "node%d" % k]
        words += ["--emulate", str(self.devices)]
        variables = {"HOME": "/home/tune", "TENSILE_EMULATOR": "/home/tune/emulator.json"}
        self.joins[k] = self._start(words, variables, "node%d" % k)

    def _start(
        self, command: List[str], variables: Dict[str, str], name: str
    ) -> "subprocess.Popen[bytes]":
        environment = {**self.marked.environment, **variables}
        for key in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TENSILE_PARALLEL_LOCK_DIR"):
            environment.pop(key, None)
        environment["TENSILE_TEST_NODE"] = name
        with open(self.folder / (name + ".log"), "ab") as log:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def log(self, name: str) -> str:
        return (self.folder / (name + ".log")).read_text(errors="replace")

    def waitForJoins(self) -> None:
        """Waits until every device has joined at least once."""
        wanted = self.devices
        waitFor(
            lambda: all(self.log("node%d" % k).count("has joined") >= wanted for k in self.joins)
        )

    def processes(self, k: int, kind: str = "") -> List[int]:
        """A node's processes, or those of one kind."""
        found = []
        for pid, line in self.marked.own().items():
            try:
                environment = Path("/proc/%d/environ" % pid).read_bytes()
            except OSError:
                continue
            if b"TENSILE_TEST_NODE=node%d\0" % k in environment and WORDS.get(kind, "") in line:
                found.append(pid)
        return sorted(found)

    def clients(self) -> List[int]:
        return [p for k in self.joins for p in self.processes(k, "client")]

    def killNode(self, k: int) -> None:
        """All of it at once, as by a power cut."""
        for pid in self.processes(k):
            killHard(pid)
        self.joins[k].wait()

    def end(self) -> None:
        """Politely; then nothing may be left."""
        for process in self.joins.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.joins.values():
            process.wait(timeout=90)
        if self.scheduler is not None:
            self.scheduler.kill()
            self.scheduler.wait()
        try:
            self.marked.assertNothingIsLeft()
        finally:
            for pid in self.marked.own():
                killHard(pid)
            self.lan.remove()


def frontEnd(farm: Farm, *arguments: Any, script: str = "TensileParallel") -> List[str]:
    return [sys.executable, str(BIN / script), *map(str, arguments), "--scheduler", farm.address]


def serialTree(folder: Path) -> Path:
    """What serial Tensile leaves."""
    out = folder / "serial"
    command = [sys.executable, str(BIN / "TensileParallel"), str(CONFIG), str(out)]
    command += ["--emulate", "1", "--global-parameters", "DeviceList=None"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return out


def differences(serial: Path, merged: Path) -> List[str]:
    """Files of results and logic that are not byte for byte those of serial Tensile."""
    found = []
    for path in sorted(serial.rglob("*")):
        name = path.relative_to(serial)
        isResult = path.suffix == ".csv" or name.parts[0] == "3_LibraryLogic"
        if path.is_file() and isResult:
            other = merged / name
            if not other.exists() or not filecmp.cmp(path, other, shallow=False):
                found.append(str(name))
    return found


def checkEqual(farm: Farm, folder: Path, serial: Path) -> bool:
    out = folder / "equal"
    done = subprocess.run(
        frontEnd(farm, CONFIG, out),
        env=farm.marked.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wrong = differences(serial, out / "merged_output")
    print("equal: exit %d, %s" % (done.returncode, wrong or "every file as serial Tensile's"))
    if done.returncode:
        print(done.stdout)
    return not (done.returncode or wrong)


def checkSpeed(farm: Farm, folder: Path, seconds: float) -> bool:
    inside = folder / "speed"
    inside.mkdir()
    load = workloads()["growing 48 x 24"]
    count = farm.devices * len(farm.joins)
    setup = Setup(inside, load, count, seconds)
    for k in farm.joins:
        farm.settings(k, json.loads(setup.settings.read_text()))
    best = 0.0
    for attempt in range(2):
        begun = time.monotonic()
        command = frontEnd(
            farm, "--config-file", setup.ini, "--fresh", script="TensileParallelClient"
        )
        done = subprocess.run(
            command, env=farm.marked.environment, stdout=subprocess.PIPE, text=True
        )
        wall = time.monotonic() - begun
        same = _agreement(serialResults(setup), (inside / "results.csv").read_bytes())
        report = json.loads((inside / "results.csv.parallel" / "step.json").read_text())
        begin = min(unit["started"] for unit in report["units"])
        last = max(unit["ended"] for unit in report["units"])
        usage = "units %d, first to last %.1f s" % (len(report["units"]), last - begin)
        print(
            "speed: %d devices, bound %.1f s, wall %.1f s: %.3f; exit %d, %s; %s"
            % (count, setup.bound, wall, setup.bound / wall, done.returncode, same, usage),
            flush=True,
        )
        best = max(best, setup.bound / wall)
    return best >= 0.90


def pairsTimed(farm: Farm, k: int) -> List[dict]:
    path = farm.root(k) / "home" / "tune" / "record.jsonl"
    if not path.exists():
        return []
    events = [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    return [event for event in events if event["event"] == "pair"]


def checkJoin(farm: Farm, folder: Path) -> bool:
    """The last node joins half-way; as soon as it works, the two first leave at once."""
    inside = folder / "join"
    inside.mkdir()
    late = max(farm.joins)
    setup = Setup(inside, workloads()["growing 48 x 24"], farm.devices * len(farm.joins), 40.0)
    record = {"record": "/home/tune/record.jsonl", **json.loads(setup.settings.read_text())}
    for k in farm.joins:
        farm.settings(k, record)
    farm.joins[late].send_signal(signal.SIGTERM)
    farm.joins[late].wait()
    process = farm.marked.start(
        frontEnd(farm, "--config-file", setup.ini, script="TensileParallelClient")
    )
    waitFor(lambda: len(pairsTimed(farm, 0)) > 20)
    before = farm.log("node%d" % late).count("has joined")
    farm.startNode(late)
    waitFor(lambda: farm.log("node%d" % late).count("has joined") > before)
    joined = time.monotonic()
    waitFor(lambda: pairsTimed(farm, late) or process.poll() is not None)
    taken = time.monotonic() - joined
    leaving = [k for k in farm.joins if k != late][:2]
    timed = sum(len(pairsTimed(farm, k)) for k in leaving)
    told = time.monotonic()
    for k in leaving:
        farm.joins[k].send_signal(signal.SIGTERM)
    for k in leaving:
        farm.joins[k].wait()
    left = time.monotonic()
    output = process.communicate(timeout=600)[0]
    same = _agreement(serialResults(setup), (inside / "results.csv").read_bytes())
    words = ("crashed", "not be", "lost", "is gone", "set aside")
    lost = [line for line in output.splitlines() if any(word in line for word in words)]
    print(
        "join: work %.1f s after it had joined; %d nodes that left, in %.1f s, had timed %d pairs, "
        "%d devices have left, the run went on for %.1f s; exit %d, %s, %s"
        % (
            taken,
            len(leaving),
            left - told,
            timed,
            output.count(") has left"),
            time.monotonic() - left,
            process.returncode,
            same,
            lost or "nothing lost",
        ),
        flush=True,
    )
    for k in leaving:
        farm.startNode(k)
    good = taken < 5 and not process.returncode and not lost
    return good and same == "equal to serial"


class Trouble:
    """What goes wrong in one round, on a thread of its own."""

    def __init__(self, farm: Farm, rng: random.Random, front: "subprocess.Popen[str]") -> None:
        self.farm, self.rng, self.front = farm, rng, front
        self.story: List[str] = []
        self._stop = threading.Event()
        self._later: List[threading.Timer] = []
        self._restarting: set = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        kinds = ["worker", "worker", "nanny", "client", "node", "cut", "cut", "leave"]
        kinds += ["scheduler", "front"]
        self._stop.wait(self.rng.uniform(2, 5))
        while not self._stop.is_set():
            kind = self.rng.choice(kinds)
            k = self.rng.choice(sorted(self.farm.joins))
            try:
                self.story.append(self._do(kind, k))
            except (ProcessLookupError, subprocess.CalledProcessError) as error:
                self.story.append("%s failed: %s" % (kind, error))
            self._stop.wait(self.rng.uniform(1, 8))

    def _do(self, kind: str, k: int) -> str:
        farm = self.farm
        if kind in WORDS:
            found = farm.processes(k, kind)
            return "%s of node%d %s" % (
                kind,
                k,
                "killed" if found and killHard(self.rng.choice(found)) else "not there",
            )
        if kind == "front":
            if self.front.poll() is None:
                self.front.kill()
            return "front end killed"
        if kind == "scheduler":
            assert farm.scheduler is not None
            farm.scheduler.kill()
            farm.scheduler.wait()
            self._stop.wait(self.rng.uniform(0, 4))
            farm.startScheduler()
            return "scheduler restarted"
        if farm.joins[k].poll() is not None or k in self._restarting:
            return "node%d not there" % k
        if kind == "cut":
            farm.lan.cut(k)
            self._after(CUT_SECONDS, lambda: farm.lan.connect(k))
            return "node%d cut off" % k
        self._restarting.add(k)
        if kind == "leave":
            farm.joins[k].send_signal(signal.SIGTERM)
            self._after(0.1, lambda: self._restart(k))
            return "node%d leaves" % k
        farm.killNode(k)
        self._after(self.rng.uniform(0, 6), lambda: self._restart(k))
        return "node%d killed" % k

    def _restart(self, k: int) -> None:
        self.farm.joins[k].wait()
        self.farm.startNode(k)
        self._restarting.discard(k)

    def _after(self, seconds: float, what: Any) -> None:
        timer = threading.Timer(seconds, what)
        timer.start()
        self._later.append(timer)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        for timer in self._later:
            timer.join()


def checkKills(farm: Farm, folder: Path, serial: Path, rounds: int, seed: int) -> bool:
    fine = True
    for k in farm.joins:
        farm.settings(k, {"pairSeconds": 1.2, "startSeconds": 0.2})
    for number in range(rounds):
        rng = random.Random(seed + number)
        out = folder / ("kills%d" % number)
        begun, attempts, story = time.monotonic(), 0, []
        output = ""
        while True:
            attempts += 1
            process = farm.marked.start(frontEnd(farm, CONFIG, out))
            trouble = Trouble(farm, rng, process) if attempts < 4 else None
            try:
                output, _ = process.communicate(timeout=420)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
                output = process.communicate()[0]
                story.append("HUNG")
            if trouble is not None:
                trouble.end()
                story += trouble.story
            if process.returncode == 0 or attempts >= 7:
                break
            time.sleep(3)
            last = (output.strip().splitlines() or [""])[-1]
            story.append("(exit %d: %s)" % (process.returncode, last[-160:]))
        wrong = differences(serial, out / "merged_output")
        deadline = time.monotonic() + 10
        while farm.clients() and time.monotonic() < deadline:
            time.sleep(0.2)
        clients = len(farm.clients())
        good = not (process.returncode or wrong or clients or "HUNG" in story)
        fine = fine and good
        print(
            "round %d: %s after %.0f s and %d commands: %s"
            % (number, "well" if good else "WRONG", time.monotonic() - begun, attempts, story),
            flush=True,
        )
        if not good:
            print("  exit %s, %s, %d clients left" % (process.returncode, wrong, clients))
            (folder / ("kills%d.out" % number)).write_text(output)
            print("  " + "\n  ".join(output.splitlines()[-25:]), flush=True)
        else:
            shutil.rmtree(out)
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--devices", type=int, default=4, help="of each node")
    parser.add_argument("--seconds", type=float, default=30.0, help="work per device, for speed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="equal,speed,join,kills")
    parser.add_argument("--folder", help="keep the files here")
    options = parser.parse_args()
    if os.geteuid():
        raise SystemExit("namespaces need root")
    wanted = options.only.split(",")
    results: List[Tuple[str, bool]] = []
    folder = Path(options.folder or tempfile.mkdtemp(prefix="benchCluster"))
    folder.mkdir(exist_ok=True)
    os.environ.pop("TENSILE_EMULATOR", None)
    farm = Farm(folder, options.nodes, options.devices)
    try:
        serial = serialTree(folder)
        for k in range(options.nodes):
            farm.settings(k, {"pairSeconds": 0.05})
            farm.startNode(k)
        farm.waitForJoins()
        print("%d nodes with %d devices each" % (options.nodes, options.devices), flush=True)
        if "equal" in wanted:
            results.append(("equal", checkEqual(farm, folder, serial)))
        if "speed" in wanted:
            results.append(("speed", checkSpeed(farm, folder, options.seconds)))
        if "join" in wanted:
            results.append(("join", checkJoin(farm, folder)))
        if "kills" in wanted:
            rounds = checkKills(farm, folder, serial, options.rounds, options.seed)
            results.append(("kills", rounds))
    finally:
        farm.end()
    for name, good in results:
        print("%s: %s" % (name, "holds" if good else "FAILED"))
    if not options.folder and all(good for _, good in results):
        shutil.rmtree(folder)
    return 0 if all(good for _, good in results) else 1


if __name__ == "__main__":
    sys.exit(main())
