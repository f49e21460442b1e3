# SPDX-License-Identifier: MIT
"""Devices of several machines, by real processes on loopback: Dask's scheduler and two nodes.

The second node sees nothing of the front end's folder where that can be arranged: files are then
sent to it. docs/cluster.md has what must hold; benchmarks/benchCluster.py tries it at length.
"""

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from Clusters import BIN, SCHEDULER, Nodes, elapsed, freePort, killHard
from conftest import DATA, HERE, Recorded
from Processes import Marked, runToEnd, waitFor
from test_Report import makeRecord
from test_Timeline import checkTrace

from Tensile.Parallel import NodeSide, WorkerCalls
from Tensile.Parallel.Report import executionSummary
from Tensile.Parallel.Timeline import timeline
from Tensile.Parallel.Types import MEASURED, Device
from Tensile.Parallel.UnitLogs import SUFFIX, openLog

pytestmark = [
    pytest.mark.unit,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed"),
]

PAGE = HERE.parents[2] / "docs" / "cluster.md"
PAIR_SECONDS = 0.04
# A shell in a network of its own.
NETWORK = ["unshare", "--user", "--map-root-user", "--net", "--mount", "bash", "-c"]
# Mounts an empty folder over the front end's, as far as this node can see.
HIDE = 'mount -t tmpfs none "$1" && shift && exec "$@"'


# A front end that gives a node's work to others sooner than the usual half minute.
IMPATIENT = """
import runpy, sys
sys.argv = sys.argv[1:]
own = runpy.run_path(sys.argv[0])
from Tensile.Parallel import Cluster, ParallelClient
Cluster.ABSENCE_SECONDS = 12.0
sys.exit(ParallelClient.main(sys.argv[1:]))
"""


def _canHide(folder):
    command = ["unshare", "-rm", "sh", "-c", HIDE, "hide", str(folder), "true"]
    try:
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


class Cluster(Nodes):
    """A node with two devices, and one with one device that does not see `front`."""

    def __init__(self, folder):
        self.front = folder / "front"
        self.front.mkdir()
        super().__init__(folder / "cluster")
        self.hides = _canHide(self.front)
        self.settings = {"pairSeconds": PAIR_SECONDS}
        self.startA()
        self.startB()

    def startA(self):
        self.startNode("a", 2, self.settings)

    def startB(self, devices=1):
        prefix = ["unshare", "-rm", "sh", "-c", HIDE, "hide", self.front] if self.hides else []
        self.startNode("b", devices, self.settings, prefix=prefix)

    def record(self, name, **settings):
        """Has the nodes' clients note what they do from now on; returns the file of node a."""
        path = self.folder / name
        for node in ("a", "b"):
            own = {**self.settings, **settings, "record": str(path) + "." + node}
            (self.folder / node / "emulator.json").write_text(json.dumps(own))
        return path

    def events(self, path, node, event="pair"):
        """What a node's clients have noted."""
        file = Path(str(path) + "." + node)
        lines = file.read_bytes().splitlines() if file.exists() else []
        found = [json.loads(line) for line in lines if line.endswith(b"}")]
        return [each for each in found if each["event"] == event]

    def step(self, name):
        """A step to run, its results as one client writes them, and what starts it."""
        step = Recorded(DATA / "tensilelite-2024/full", self.front / name)
        expected = self.front / "serial.csv"
        if not expected.exists():
            command = [sys.executable, BIN / "TensileEmulatedClient", "--config-file", step.ini]
            subprocess.run(
                [*map(str, command), "--results-file", str(expected)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        return step, expected.read_bytes()

    def begin(self, step, *options):
        """Starts a front end, to which a node is gone for good after IMPATIENT seconds."""
        command = [sys.executable, "-c", IMPATIENT, BIN / "TensileParallelClient"]
        command += ["--config-file", step.ini, "--scheduler", self.address]
        return self.marked.start([*command, *options])

    def clients(self):
        return self.own("TensileEmulatedClient")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The cluster of all tests here; at the end, nothing of it may be left. Whatever was killed,
    at last the scheduler, the joins have said nothing but our own lines."""
    own = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        own.waitForJoins(3)
        yield own
        killHard(own.scheduler.pid)
        own.stop()
        assert not own.strangeLines()
    finally:
        for pid in own.marked.own():
            killHard(pid)


def finish(process):
    """(exit status, what it said)."""
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def report(step):
    return json.loads((Path(str(step.results) + ".parallel") / "step.json").read_text())


def _checkNodes(step, output):
    """Every record of a run on nodes a and b names its node, and so does every line."""
    own = report(step)
    progress = json.loads((Path(str(step.results) + ".parallel") / "progress.json").read_text())
    known = {d["ordinal"]: (d["node"], d["nodeOrdinal"]) for d in own["devices"]}
    for each in [*own["units"], *own["workers"], *own["deviceChanges"], *progress["devices"]]:
        assert (each["node"], each["nodeOrdinal"]) == known[each["device"]], each
    assert set(own["nodes"]) == {"a", "b"} and own["nodes"]["b"]["python"]
    for number in re.findall(r"(?<!emulated )device (\d+.{0,3})", output):
        assert re.match(r"\d+ \([ab]", number), output
    devices = [Device(n, "0", node=node, nodeOrdinal=at) for n, (node, at) in known.items()]
    run = {"run": own["run"], "started": own["started"] - 1, "ended": own["ended"] + 1}
    record = makeRecord(devices=tuple(devices), **run)
    checkTrace(timeline(record, [own]))
    assert [node["node"] for node in executionSummary(record, [own])["nodes"]] == ["a", "b"]


def test_aRunEqualsSerialAndNamesItsNodes(cluster):
    """Units run on both nodes; the file is the serial one; whatever tells of a device names its
    node, and what that runs; the client is one that only the front end's machine has, and is sent
    once per node."""
    step, expected = cluster.step("equal")
    client = cluster.front / "client.sh"
    emulated = "%s %s" % (sys.executable, BIN / "TensileEmulatedClient")
    client.write_text('#!/bin/sh\nexec %s "$@"\n' % emulated)
    client.chmod(0o755)
    record = cluster.record("equal")
    status, output = finish(cluster.begin(step, "--client", client))
    assert status == 0, output
    assert step.results.read_bytes() == expected
    devices = [(d["ordinal"], d["node"], d["nodeOrdinal"]) for d in report(step)["devices"]]
    assert devices == [(0, "a", 0), (1, "a", 1), (2, "b", 0)]
    _checkNodes(step, output)
    own, counts = report(step)["devices"], report(step)["counts"]
    pairs = sum(device["pairs"] - device["retimedPairs"] for device in own)
    assert pairs == counts["measured"] + counts["rejected"] + counts["failed"]
    assert sum(device["retimedPairs"] for device in own) == report(step)["retimedPairs"]
    said = cluster.log("b")
    assert "node b: device 0 (emulated" in said and "node b: device 0 has joined" in said
    assert report(step)["clientHash"] == hashlib.sha256(client.read_bytes()).hexdigest()
    assert all(cluster.events(record, node) for node in ("a", "b")), output
    if cluster.hides:
        cache = cluster.folder / "b" / "cache" / "tensile-parallel"
        assert len(list((cache / "blobs").iterdir())) == 2  # library and client
        assert not list((cluster.folder / "a" / "cache" / "tensile-parallel" / "blobs").iterdir())
        argv = cluster.events(record, "b", "start")[0]["argv"]
        assert not any(str(cluster.front) in word for word in argv)
    logs = list(Path(str(step.results) + ".parallel").glob("gpu_2/**/unit_*.log*"))
    texts = [openLog(str(path).replace(SUFFIX, "")).read() for path in logs]
    assert texts and all(b"Log level: " in text for text in texts)
    cache = cluster.folder / "a" / "cache" / "tensile-parallel"
    assert not list((cache / "work").rglob("unit_*.csv"))  # fetched, so it is gone there


def test_aNodeWhoseFilesCannotBeWrittenIsSetAside(cluster):
    """It is said once, with node, folder and reason; its device is tried no more; no client is
    blamed, and the other node does the work."""
    step, expected = cluster.step("full")
    cluster.record("full", pairSeconds=0.01)
    cache = cluster.folder / "b" / "cache" / "tensile-parallel"
    (own,) = cache.glob("work/*/worker-*")
    own.rename(own.with_name("kept"))
    own.write_bytes(b"")
    try:
        status, output = finish(cluster.begin(step))
    finally:
        own.unlink()
        own.with_name("kept").rename(own)
    assert status == 0 and step.results.read_bytes() == expected, output
    assert output.count("device 2 (b:0) is set aside: node b: %s/" % own) == 1, output
    assert "Not a directory; set XDG_CACHE_HOME there" in output and "crashed" not in output
    assert report(step)["devicesLost"] == [2]
    assert not any(each["pairs"] for each in report(step)["devices"] if each["node"] == "b")


def _ofNode(cluster, node, *words):
    """The processes of a node whose command lines have all the words."""
    own = ("%s/%s/cache" % (cluster.folder, node)).encode()
    found = []
    for pid in cluster.own(*words):
        try:
            if own in Path("/proc/%d/environ" % pid).read_bytes():
                found.append(pid)
        except OSError:
            continue
    return sorted(found)


def test_killsAreMendedAndANodeLeavesAndComes(cluster):
    """A client, a worker and a Nanny are killed in the middle: the file is the serial one, what was
    measured before is kept, and the devices come back. A node that is told to leave gives its unit
    back with what it has measured, which is no failure; it joins again in the middle of the run,
    and takes work."""
    step, expected = cluster.step("kills")
    record = cluster.record("kills", pairSeconds=0.25)
    process = cluster.begin(step)
    for kind in ("TensileEmulatedClient", "spawn_main", "runDevice"):
        timed = len(cluster.events(record, "a"))
        waitFor(lambda: len(cluster.events(record, "a")) > timed + 3)
        assert killHard(_ofNode(cluster, "a", kind)[0])
    waitFor(lambda: len(cluster.events(record, "b")) > 8)
    cluster.nodes["b"].send_signal(signal.SIGTERM)
    assert cluster.nodes["b"].wait(timeout=60) == 0
    timed = len(cluster.events(record, "b"))
    process.send_signal(signal.SIGSTOP)  # whatever a join takes, the run is not over before
    before = cluster.log("b").count("has joined")
    cluster.startB(2)
    waitFor(lambda: cluster.log("b").count("has joined") > before + 1)
    process.send_signal(signal.SIGCONT)
    status, output = finish(process)
    assert status == 0 and step.results.read_bytes() == expected, output
    assert not cluster.clients()
    crashed = [line for line in output.splitlines() if "crashed" in line]
    assert crashed and not any("device 2" in line for line in crashed), output
    assert "has left" in output and "has joined" in output
    assert not report(step)["devicesLost"], output
    assert len(cluster.events(record, "b")) > timed
    own = [d for d in report(step)["devices"] if d["node"] == "b"]
    assert [d["nodeOrdinal"] for d in own] == [0, 1]
    # All but the pair that was running, the baselines, and the pairs that warm the devices up.
    assert sum(d["pairs"] for d in own) >= len(cluster.events(record, "b")) - 1 - 2 * (5 + 3)
    changes = [each for each in report(step)["deviceChanges"] if each["node"] == "b"]
    changes = [(each["nodeOrdinal"], each["what"]) for each in changes]
    assert changes[0] == (0, "left") and sorted(changes[1:]) == [(0, "joined"), (1, "joined")]
    assert "device 3 (b:1" in output
    _checkNodes(step, output)


def test_idleAndBusyDevicesLeaveAtOnce(cluster):
    """What a leaving device gives back goes to none that is leaving too, though it was idle, and
    nobody waits for devices that are gone: nothing is lost, and each has left, not vanished."""
    step, expected = cluster.step("leave")
    record = cluster.record("leave", pairSeconds=0.02)
    slow = cluster.folder / "b" / "emulator.json"
    slow.write_text(json.dumps({**json.loads(slow.read_text()), "pairSeconds": 1.0}))
    process = cluster.begin(step, "--keep-sizes-whole")
    try:
        waitFor(lambda: cluster.events(record, "b"))
        waitFor(lambda: _stands(lambda: len(cluster.events(record, "a"))))
        cluster.startNode("c", 1, {"pairSeconds": 0.02})
        waitFor(lambda: "has joined" in cluster.log("c"))
        begun = time.monotonic()
        for node in "ab":
            cluster.nodes[node].send_signal(signal.SIGTERM)
        assert [cluster.nodes[node].wait(timeout=60) for node in "ab"] == [0, 0]
        took = elapsed(begun)
        status, output = finish(process)
    finally:  # as the other tests want it
        cluster.nodes["c"].terminate()
        joined = sum(cluster.log(node).count("has joined") for node in "ab")
        cluster.startA()
        cluster.startB()
        assert cluster.nodes.pop("c").wait(timeout=60) == 0
        waitFor(lambda: sum(cluster.log(n).count("has joined") for n in "ab") >= joined + 3)
    assert status == 0 and step.results.read_bytes() == expected, output
    assert took < NodeSide.FAREWELL_SECONDS / 2
    changes = {(each["node"], each["what"]) for each in report(step)["deviceChanges"]}
    assert changes == {("a", "left"), ("b", "left"), ("c", "joined")}, output
    assert output.count("has left") >= 3 and not report(step)["devicesLost"]
    assert {unit["kind"] for unit in report(step)["units"]} == {MEASURED}
    for word in ("is gone", "set aside", "lost", "leaving"):
        assert word not in output, output


def _stands(count):
    """Whether a count stays the same for a second."""
    before = count()
    time.sleep(1.0)
    return before == count()


def test_theFrontEndIsKilledAndThenANode(cluster):
    """Nobody waits for the units: their clients end, the devices are free, and the same command
    goes on from the journal. It may choose other devices of each node; one that none has is said.
    Then all processes of a node are killed at once: the others do its work, and it is named."""
    step, expected = cluster.step("front")
    record = cluster.record("front", pairSeconds=0.2)
    process = cluster.begin(step)
    waitFor(lambda: sum(len(cluster.events(record, node)) for node in "ab") > 80)
    process.kill()
    process.communicate()
    waitFor(lambda: not cluster.clients())
    record = cluster.record("node", pairSeconds=0.1)
    process = cluster.begin(step, "--devices", "0,7")
    waitFor(lambda: len(cluster.events(record, "b")) > 2 or process.poll() is not None)
    assert process.poll() is None, finish(process)
    for pid in _ofNode(cluster, "b"):
        killHard(pid)
    cluster.nodes.pop("b").wait()
    status, output = finish(process)
    assert status == 0 and step.results.read_bytes() == expected, output
    assert "were measured before" in output
    assert "node b: device 7 is not available" in output
    assert "node b: its worker is gone" in output
    gone = [each for each in report(step)["deviceChanges"] if each["node"] == "b"]
    assert gone and gone[0]["what"] in ("away", "lost"), gone


def test_aNameThatAnotherJoinHasIsRefused(cluster):
    """A second join of a node's name ends with one line while the first answers, and only then:
    workers that the scheduler still has, but which are dead, keep nobody out."""
    second = cluster.startNode("other", 1, None, "--node-name", "a")
    assert second.wait(timeout=60) == 2
    assert re.fullmatch(
        "TensileParallel: error: node a has joined already, from tcp://127.0.0.1:[0-9]+: give this "
        "join another name with --node-name",
        cluster.log("other").splitlines()[-1],
    )
    silent = _ofNode(cluster, "a")
    for pid in silent:
        os.kill(pid, signal.SIGSTOP)
    try:
        second = cluster.startNode("other", 1, None, "--node-name", "a")
        waitFor(lambda: "has joined tcp" in cluster.log("other") or second.poll() is not None)
        assert second.poll() is None, cluster.log("other")
    finally:
        for pid in silent:
            os.kill(pid, signal.SIGCONT)
    second.terminate()
    assert second.wait(timeout=60) == 0


AUDIT = """
import runpy, sys
def audit(event, arguments):
    if event in ("socket.bind", "socket.connect"):
        print("SOCKET", event, arguments[1], file=sys.stderr)
    if event == "import" and arguments[0].split(".")[0] in ("distributed", "dask", "tornado"):
        print("IMPORT", arguments[0], file=sys.stderr)
sys.addaudithook(audit)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_aJoinDoesNotWaitForAWorkerThatIsGone(monkeypatch):
    """Slurm signals every process of a job: the worker may be gone before it is told to leave."""
    monkeypatch.setattr(WorkerCalls, "WORKER_SECONDS", 0.2)
    address = "tcp://127.0.0.1:%d" % freePort()
    with pytest.raises(OSError, match="0.2 s"):
        asyncio.run(asyncio.wait_for(WorkerCalls.callWorker(address, {}, NodeSide.leave), 20))


def test_withoutASchedulerNothingListens(recorded):
    """On one machine no socket is opened, and nothing of Dask is imported."""
    step = recorded("tensilelite-2024/full")
    script = [sys.executable, "-c", AUDIT, str(BIN / "TensileParallelClient")]
    done = subprocess.run(
        [*script, "--emulate", "1", "--config-file", str(step.ini)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0
    assert "SOCKET" not in done.stderr and "IMPORT" not in done.stderr


def test_aKilledLocalClusterLeavesNothing(tmp_path):
    """No process and no file, though nobody could tidy up."""
    marked = Marked(XDG_CACHE_HOME=str(tmp_path / "cache"))
    config, tree = HERE / "configs" / "quick.yaml", HERE / "host" / "tensilelite"
    command = [sys.executable, BIN / "TensileParallel", config, tmp_path / "out"]
    command += ["--local-cluster", "1", "--emulate", "1", "--tensile-root", tree]
    run = marked.start(command)
    local = tmp_path / "cache" / "tensile-parallel" / "local"
    waitFor(lambda: list(local.glob("scheduler-*.json")))
    waitFor(lambda: [line for line in marked.own().values() if "--join" in line])
    killHard(run.pid)
    run.communicate(timeout=60)
    waitFor(lambda: not marked.own())
    assert not list(local.iterdir())


def _hasNetworks():
    """Whether this user may make networks here, as the page's trial does."""
    try:
        words = [*NETWORK, "mount -t tmpfs none /run && mkdir /run/netns && ip netns add n"]
        return subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not PAGE.is_file(), reason="docs are not here")
@pytest.mark.skipif(not _hasNetworks(), reason="no networks of one's own can be made here")
def test_theTrialOfThePageRuns(tmp_path):
    """Two nodes with networks and caches of their own, by the page's script: both are used, the
    output is that of one machine, and nothing is left."""
    (script,) = re.findall(r"`two-nodes.sh`\n\n```bash\n(.*?)```", PAGE.read_text(), re.S)
    own = tmp_path / "bin"
    own.mkdir()
    dask = "#!%s\nimport sys\nfrom dask.__main__ import main\nsys.exit(main())\n" % sys.executable
    ours = '#!/bin/sh\nexec %s %s "$@"\n' % (sys.executable, BIN / "TensileParallel")
    for name, text in (("dask", dask), ("TensileParallel", ours)):
        (own / name).write_text(text)
        (own / name).chmod(0o755)
    config = (HERE / "configs" / "quick.yaml").read_text()
    (tmp_path / "config.yaml").write_text(config)
    path = "%s:%s" % (own, os.environ["PATH"])
    marked = Marked(PATH=path, DASK_LOGGING__DISTRIBUTED="critical")
    marked.environment.pop("XDG_CACHE_HOME", None)
    process = marked.start([*NETWORK, "cd '%s' && %s" % (tmp_path, script)])
    status, output = finish(process)
    assert status == 0, output
    for node in ("node1", "node2"):
        assert "node %s: 2 devices" % node in output and "node %s is leaving" % node in output
        assert (tmp_path / node.replace("node", "home-") / ".cache").is_dir()
    serial = [sys.executable, BIN / "TensileParallel", "config.yaml", "serial", "--emulate", "1"]
    done = runToEnd(*serial, environment=marked.environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    made = {folder: _tables(tmp_path / folder) for folder in ("out", "serial")}
    assert made["out"] == made["serial"] and len(made["out"]) >= 3
    marked.assertNothingIsLeft()


def _tables(output):
    """Name -> content of a run's CSV files and library logic."""
    merged = output / "merged_output"
    found = [*merged.rglob("*.csv"), *merged.glob("3_*/**/*.yaml")]
    return {str(path.relative_to(merged)): path.read_bytes() for path in found}


def _certificates(folder):
    """The commands of docs/cluster.md: an authority of our own and one certificate."""
    lines = PAGE.read_text().splitlines()
    commands = [line.strip() for line in lines if line.startswith("    openssl ")]
    for command in commands:
        subprocess.run(command.split(), cwd=folder, check=True, stderr=subprocess.DEVNULL)
    variables = {}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        for what, name in (("CERT", "cluster.pem"), ("KEY", "cluster.key")):
            variables["DASK_DISTRIBUTED__COMM__TLS__%s__%s" % (role, what)] = str(folder / name)
    variables["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] = str(folder / "ca.pem")
    return variables


def _dask(variables):
    """What such variables make of Dask's configuration."""
    names = {k: k[len("DASK_") :].lower().replace("__", ".").replace("_", "-") for k in variables}
    return {names[key]: value for key, value in variables.items()}


CONNECT = """
import sys; sys.path.insert(0, %r)
import dask
import distributed
from Tensile.Parallel import Cluster
Cluster.CONNECT_SECONDS = 3.0
for own, place in %r:
    with dask.config.set(own):
        try:
            cluster = Cluster.Cluster(place)
            cluster.connect()
            print("in")
            cluster.close()
        except Cluster.InputError as error:
            print("out")
            print(error, file=sys.stderr)
"""


def _runWith(place, folder, environment):
    """A run with the scheduler at a place, when it has ended."""
    step = Recorded(DATA / "tensilelite-2024/full", folder / "run")
    command = [sys.executable, BIN / "TensileParallelClient", "--config-file", step.ini]
    return runToEnd(*command, "--scheduler", place, environment=environment)


def _joinWith(place, folder, environment, *more):
    """A join of a scheduler, when it has ended."""
    own = {**environment, "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, BIN / "TensileParallel", "--join", place, "--emulate", "1"]
    return runToEnd(*command, *more, environment=own)


NO_CERTIFICATE = "no certificate is configured for %s: tell Dask"


def _checkRefusal(done, said):
    """Exit status 2, the reason, and nothing of Dask's own."""
    output = done.stdout
    assert done.returncode == 2 and said in output, output
    assert "Traceback" not in output and "distributed.core" not in output
    assert len([line for line in output.splitlines() if "error" in line]) == 1, output


def test_aConfigurationOfDasksThatCannotBeReadIsRefused(tmp_path):
    """One line that names the file, whoever needs it."""
    (tmp_path / "own.yaml").write_text("distributed:\n  comm: {tls: [\n")
    environment = {**os.environ, "DASK_CONFIG": str(tmp_path)}
    for start in (_runWith, _joinWith):
        done = start("tcp://127.0.0.1:1", tmp_path, environment)
        _checkRefusal(done, "%s' is malformed" % (tmp_path / "own.yaml"))
    words = [HERE / "configs" / "quick.yaml", tmp_path / "out", "--local-cluster", "1"]
    command = [sys.executable, BIN / "TensileParallel", *words, "--emulate", "1"]
    _checkRefusal(runToEnd(*command, environment=environment), "own.yaml' is malformed")


@pytest.mark.skipif(not PAGE.is_file(), reason="docs are not here")
def test_withTlsOnlyWhoHasACertificateGetsIn(tmp_path):
    """With TLS by Dask's own configuration, made by the commands of the docs: who has no
    certificate, or another authority's, is turned away; who has one gets in."""
    variables = _certificates(tmp_path)
    (tmp_path / "other").mkdir()
    others = _certificates(tmp_path / "other")
    port = freePort()
    marked = Marked(DASK_LOGGING__DISTRIBUTED="critical")
    command = [*SCHEDULER, "--host", "127.0.0.1", "--port", str(port), "--protocol", "tls"]
    command += ["--dashboard-address", "127.0.0.1:0"]
    marked.environment.update(variables)
    scheduler = marked.start(command)
    try:
        address = "127.0.0.1:%d" % port
        tls = "tls://" + address
        tries = [(_dask(variables), tls), (_dask(others), tls), ({}, tls), ({}, "tcp://" + address)]
        code = CONNECT % (str(HERE.parents[1] / "Parallel/Alone"), tries)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DASK_")}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "DASK_LOGGING__DISTRIBUTED": "critical"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
        )
        assert done.stdout.split() == ["in", "out", "out", "out"], (done.stdout, done.stderr)
        foreign, none, named = done.stderr.splitlines()
        assert "no scheduler answers at " + tls in foreign and NO_CERTIFICATE % tls in none
        assert "no scheduler answers at tcp" in named and "it is one with TLS" in named
        for start in (_runWith, _joinWith):
            _checkRefusal(start(tls, tmp_path, environment), NO_CERTIFICATE % tls)
        foreign = {**environment, **others}
        for start in (_runWith, _joinWith):
            _checkRefusal(start(tls, tmp_path, foreign), "are not of one authority")
        key = "DASK_DISTRIBUTED__COMM__TLS__%s__KEY"
        for start, role in ((_runWith, "CLIENT"), (_joinWith, "WORKER")):
            lacking = {**environment, **variables, key % role: "/no/such.key"}
            _checkRefusal(start(tls, tmp_path, lacking), "/no/such.key cannot be used for TLS (No")
        named = "it is one with TLS: name it as tls://"
        _checkRefusal(_joinWith("tcp://" + address, tmp_path, environment), named)
    finally:
        scheduler.kill()
        scheduler.communicate()
