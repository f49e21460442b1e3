# SPDX-License-Identifier: MIT
"""The loop and the schedule where devices come and go, and workers are lost; and the options."""

import asyncio
import errno
import socket
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import HERE
from Processes import waitFor
from test_Loop import RUNS, FakeWorker, Run, Script

from Tensile.Parallel import Cluster as ClusterModule
from Tensile.Parallel import Join
from Tensile.Parallel import Loop as LoopModule
from Tensile.Parallel import News as NewsModule
from Tensile.Parallel import NodeSide
from Tensile.Parallel import NodeWorker as NodeWorkerModule
from Tensile.Parallel import StepCluster as StepClusterModule
from Tensile.Parallel import __version__
from Tensile.Parallel.DeviceList import ALL_DEVICES
from Tensile.Parallel.Errors import InputError, NodeLeft, RunError, WayLost, WorkerLost
from Tensile.Parallel.NodeUnit import Answer
from Tensile.Parallel.NodeWorker import NodeWorker
from Tensile.Parallel.ParseArguments import parseClientArguments, parseRunArguments
from Tensile.Parallel.Place import Place, hostAndPort
from Tensile.Parallel.Run import main
from Tensile.Parallel.Schedule import LOSSES_PER_UNIT, Rectangle
from Tensile.Parallel.StepCluster import openCluster
from Tensile.Parallel.Types import MEASURED, WORKER_LOST, Device, Job, Unit
from Tensile.Parallel.Worker import WorkerFacts

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _noWaiting(monkeypatch):
    """Nothing here waits for time to pass."""
    monkeypatch.setattr(LoopModule, "TICK_SECONDS", 0.01)


class Changes:
    """What the loop is told of devices that come and go: one answer a call, by its number."""

    def __init__(self, **answers):
        self.answers = answers
        self.calls = 0

    def __call__(self, using):
        self.calls += 1
        return self.answers.get("at%d" % self.calls, ((), ()))


def test_aDeviceThatComesTakesWork():
    """It gets units, and the step's result says that it has joined."""
    script = Script()
    late = FakeWorker(7, script)
    run = Run(script, devices=1, problems=8, changes=Changes(at1=([late], [])))
    run.workers.append(late)
    result = run.run()
    assert late.jobs and not result.lost and not result.leftOver
    assert any("device 7 has joined" in note for note in result.notes)


def test_aDeviceThatLeavesIsNoLoss():
    """It gets no more units; its part goes to the others; nothing counts as lost."""
    run = Run(Script(), devices=2, problems=12, changes=Changes(at3=((), [0])))
    result = run.run()
    assert not (result.lost or result.leftOver or result.devicesLost)
    assert run.workers[0].state == "closed"
    assert any("device 0 has left" in note for note in result.notes)
    assert all(r.outcome.device == 1 for r in result.results[4:])


def test_whereAllLeaveTheNextOneIsAwaited():
    """The last device has left: a step waits for one that comes, which does the rest."""
    late = FakeWorker(7, Script())
    changes = Changes(at3=((), [0, 1]), at6=([late], []))
    run = Run(Script(), devices=2, problems=12, changes=changes, patience=60.0)
    run.workers.append(late)
    result = run.run()
    assert late.jobs and not (result.lost or result.leftOver or result.devicesLost)
    assert sum("waiting for one to join" in note for note in result.notes) == 1


def test_whereAllLeaveNobodyIsAwaitedForEver():
    """Nobody comes, or all devices failed instead of leaving: the step ends, with what is there."""
    run = Run(Script(), devices=2, problems=12, changes=Changes(at3=((), [0, 1])), patience=0.05)
    result = run.run()
    assert result.leftOver and not result.lost
    script = Script(start=lambda device, number: RunError("no room"))
    failed = Run(script, devices=2, problems=12, patience=60.0).run()
    assert failed.leftOver and sorted(failed.devicesLost) == [0, 1]


@pytest.mark.parametrize("trouble", [asyncio.CancelledError, ConnectionError, "slow"])
def test_newsIsAskedForAgain(monkeypatch, trouble):
    """Whatever becomes of one question (Dask cancels them where its connection ends), others
    follow; a node that is slow to answer holds up no other."""
    monkeypatch.setattr(NewsModule, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(NewsModule, "SLOW_SECONDS", 0.05)
    heard = []

    def worker(node):
        found = NewsModule.Connected(SimpleNamespace(node=node, address="tcp://" + node))
        answered = lambda answer: heard.append(node)  # noqa: E731
        found.follower = SimpleNamespace(question=lambda: None, answered=answered)
        return found

    async def run():
        workers, asked = [worker("a"), worker("b")], []

        async def ask(questions):
            asked.append(sorted(questions))
            if trouble == "slow" and "tcp://a" in questions:
                await asyncio.sleep(1000)
            if len(asked) == 2 and trouble != "slow":
                raise trouble()
            return {address: Answer("", {}, False, False) for address in questions}

        news = NewsModule.News(lambda: workers, ask)
        news.begin()
        while heard.count("b") < 4:
            await asyncio.sleep(0.005)
        news.stop()
        return asked

    asked = asyncio.run(asyncio.wait_for(run(), 30))
    assert len(asked) >= 5 and ("a" in heard) == (trouble != "slow")


def test_aBusyDeviceLeavesAfterItsUnit():
    """What runs on it is not dropped."""
    script = Script(unit=lambda device, unit: RUNS if unit.number == 0 else None)
    run = Run(script, devices=2, problems=4)
    changes = Changes()

    def leave(using):
        changes.calls += 1
        if changes.calls == 4:
            worker = run.workers[0]
            worker.pending.set_result(Script().unit(0, worker.jobs[-1].unit))
        return (), [0] if 0 in using and changes.calls > 1 else []

    run.loop._changes = leave
    result = run.run()
    assert 0 in {r.outcome.device for r in result.results}
    assert not result.lost and not result.leftOver


def test_aDeviceThatLeavesWhileItStartsIsNoLoss():
    """It has left: that is no failure of its worker, and it is not set aside for it."""
    script = Script(
        start=lambda device, number: NodeLeft("gone") if not device else WorkerFacts(1, "")
    )
    run = Run(script, devices=2, problems=8)
    run.loop._changes = lambda using: ((), [0] if 0 in using and run.workers[0].starts else [])
    result = run.run()
    assert not (result.lost or result.leftOver or result.devicesLost)
    assert run.workers[0].starts == 1
    assert [note for note in result.notes if "device 0" in note] == ["device 0 has left"]


def test_aDeviceComesBackAfterItWasSetAside():
    """One that was away for too long is no loss once it is there again."""

    def start(device, number):
        return RunError("node b was away for 30 s") if device == 0 else WorkerFacts(1, "")

    script = Script(start=start)
    again = FakeWorker(0, Script())
    run = Run(script, devices=2, problems=8, changes=Changes(at1=([again], [])))
    run.workers[0] = again
    result = run.run()
    assert again.jobs and not result.devicesLost and not result.leftOver


def test_aLostWorkerCountsAgainstNobody():
    """However often workers are lost under different units, nothing is given up for it, and no
    device is suspected."""
    lost = set()

    def unit(device, unit):
        key = (unit.firstProblem, unit.firstSolution)
        if key in lost:
            return None
        lost.add(key)
        return WorkerLost("node a: its worker is gone")

    run = Run(Script(unit=unit), devices=3, problems=20)
    for worker in run.workers:
        worker.submit = _withStartsForgotten(worker)
    result = run.run()
    assert lost and not result.lost and not result.leftOver and not result.devicesLost
    ends = [r.outcome for r in result.results if r.outcome.kind != MEASURED]
    assert {(end.kind, end.message) for end in ends} == {
        (WORKER_LOST, "node a: its worker is gone")
    }
    assert len(result.notes) == len(ends) and "crash" not in "".join(result.notes)


def test_aNodeThatCannotGoOnIsSetAsideAtOnce():
    """A node that says so under a unit, for its disk is full, is tried no more: one line, no
    crash, and the others do its work."""
    why = "node b: /cache: No space left on device; free space there"

    def unit(device, unit):
        return RunError(why) if device == 1 and not unit.baseline else None

    run = Run(Script(unit=unit), devices=2, problems=8)
    result = run.run()
    assert not result.lost and not result.leftOver and result.devicesLost == [1]
    assert run.workers[1].starts == 1
    assert result.notes == ["device 1 is set aside: %s; 1 left" % why]
    assert [(e.device, e.what, e.why) for e in result.changes] == [(1, "lost", why)]


def _withStartsForgotten(worker):
    """As NodeWorker does: a unit that went well makes up for earlier deaths."""
    submit = worker.submit

    def forgetful(job):
        worker.starts = min(worker.starts, 1)
        return submit(job)

    return forgetful


def test_aUnitThatLosesEveryWorkerIsGivenUp():
    """A unit under which workers are lost again and again fails after all, alone."""

    def unit(device, unit):
        if unit.firstProblem <= 3 <= unit.lastProblem:
            return WorkerLost("node a: its worker is gone")
        return None

    run = Run(Script(unit=unit), devices=2, problems=6, solutions=2)
    for worker in run.workers:
        worker.submit = _withStartsForgotten(worker)
    result = run.run()
    assert {p.rectangle.firstProblem for p in result.lost} == {3}
    ends = [r for r in result.results if r.outcome.message]
    assert LOSSES_PER_UNIT < len(ends) < 100


def test_howeverOftenTheSchedulerRestartsNoUnitIsGivenUp():
    """With the scheduler all workers are gone: that says nothing of the unit that was running."""
    left = [WayLost("node a: the connection was lost")] * (3 * LOSSES_PER_UNIT)

    def unit(device, unit):
        return left.pop() if left and unit.firstProblem == 0 else None

    run = Run(Script(unit=unit), devices=2, problems=4)
    for worker in run.workers:
        worker.submit = _withStartsForgotten(worker)
    result = run.run()
    assert not left and not (result.lost or result.leftOver or result.devicesLost)


def test_aBaselineThatWasLostIsRunAgain():
    """A worker lost under the baseline: the device is compared when it is back."""
    ends = []

    def unit(device, unit):
        if unit.baseline and device == 0 and not ends:
            ends.append(unit)
            return WorkerLost("node a: its worker is gone")
        return None

    run = Run(Script(unit=unit), devices=2, problems=8, baseline=Rectangle(0, 1, 0, 2))
    result = run.run()
    baselines = [r.outcome for r in result.results if r.outcome.unit.baseline]
    assert [o.device for o in baselines if not o.message] in ([0, 1], [1, 0])


def test_theOptionsOfACluster():
    """The commands know them; --join needs no config, and takes its scheduler from a file too."""
    settings = parseRunArguments(["c.yaml", "out", "--scheduler", "tcp://h:1", "--devices", "0"])
    assert settings.usesCluster and settings.scheduler == "tcp://h:1"
    assert not parseRunArguments(["c.yaml", "out"]).usesCluster
    joining = parseRunArguments(["--join", "tcp://h:1", "--node-name", "n", "--emulate", "2"])
    assert (joining.join, joining.nodeName, joining.emulate) == ("tcp://h:1", "n", 2)
    byFile = parseRunArguments(["--join", "--scheduler-file", "/f"])
    assert (byFile.join, byFile.schedulerFile) == ("", "/f")
    client = parseClientArguments(["--config-file", "i", "--scheduler-file", "/f"])
    assert client.schedulerFile == "/f" and not client.scheduler
    leaving = parseRunArguments(["--join", "tcp://h:1", "--leave-after", "60"])
    assert leaving.leaveAfter == 60 and joining.leaveAfter is None


TOGETHER = [
    ("c o --scheduler tcp://h:1 --slurm 2", "--scheduler and --slurm name two clusters"),
    ("c o --local-cluster 2 --scheduler-file f", "--scheduler-file and --local-cluster name two"),
    ("--join tcp://h:1 --scheduler-file f", "--join and --scheduler-file name two clusters"),
    ("--join --slurm 2", "offers this machine's devices: leave out --slurm"),
    ("--join tcp://h:1 c.yaml o", "starts none: leave out c.yaml"),
    ("--join tcp://h:1 --plan", "--plan looks at no cluster: leave out --join"),
    ("--plan c --local-cluster 2 --emulate 2", "leave out --local-cluster, and give --emulate"),
    ("--doctor --scheduler tcp://h:1", "--doctor looks at this machine alone"),
    ("--doctor --join", "--doctor looks at this machine alone: leave out --join"),
    ("--status o --scheduler tcp://h:1", "--status looks at a run and starts none"),
    ("--report o --slurm 2", "--report looks at a run and starts none"),
    ("c o --node-name n", "--node-name goes with --join"),
    ("c o --leave-after 1 --slurm 2", "--leave-after goes with --join"),
    ("c o --emulate 2 --scheduler tcp://h:1", "its nodes' own: give --emulate to each --join"),
    ("c o --slurm 0", "give a whole number, from 1 to 99999"),
]


@pytest.mark.parametrize(
    "words, said",
    [
        (["c", "o", "--scheduler", ""], "--scheduler was given nothing"),
        (["--join", "--scheduler-file", ""], "--scheduler-file was given nothing"),
        (["--join", "tcp://h:1", "--node-name", ""], "--node-name was given nothing"),
        (["--join", "tcp://h:1", "--node-name", "a\nb"], "--node-name 'a\\nb': give up to 64"),
        (["--join", "tcp://h:1", "--node-name", "a:1"], "--node-name 'a:1': give up to 64"),
        (["--join", "tcp://h:1", "--node-name", "../a"], "--node-name '../a': give up to 64"),
        (["--join", "tcp://h:1", "--node-name", "a" * 65], "aaa': give up to 64 letters"),
        (["--join", "--scheduler-file", "/"], "--scheduler-file / is a folder: name the file"),
    ],
)
def test_namesThatNameNothingAreRefused(words, said):
    """An unset variable must not have a campaign run on the machine that starts it; a node's name
    stands in lines, in files and before a device's number."""
    with pytest.raises(InputError) as caught:
        parseRunArguments(words)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["http://h:1", "ucx://h:1", "tcp://h", "tcp://:1", "h", "tcp://h:0", "tcp://h:99999", "h:x"],
)
def test_anAddressOfNoSchedulerIsRefused(address):
    """It would be waited for, for ever."""
    with pytest.raises(InputError, match="the scheduler's address .* is none: write it as tcp://"):
        hostAndPort(address)


def test_aSchedulersFileThatTellsNoAddressIsSaidToBeSo(tmp_path):
    """Who waits for it knows why."""
    file = tmp_path / "scheduler.json"
    place = Place("", str(file))
    for text, problem in (
        (None, "No such file or directory"),
        ("{", "it holds no scheduler's address"),
        ("[]", "it holds no scheduler's address"),
        ('{"address": "tcp://h:1"}', ""),
    ):
        if text is not None:
            file.write_text(text)
        assert place.problem() == problem
        assert place.current() == ("" if problem else "tcp://h:1")
    assert Place("tcp://h:1", "").problem() == ""
    assert hostAndPort("tls://[::1]:8786") == ("::1", 8786)


@pytest.mark.parametrize("line, said", TOGETHER)
def test_whatCannotBeMeantIsRefused(line, said):
    """Two clusters, or a question that looks at none: one line, before anything starts."""
    with pytest.raises(InputError) as caught:
        parseRunArguments(line.split())
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_theClientRefusesTwoClusters():
    """So does the client's command."""
    with pytest.raises(InputError, match="name two clusters"):
        parseClientArguments("--config-file i --scheduler tcp://h:1 --scheduler-file f".split())
    with pytest.raises(InputError, match="give --emulate to each --join"):
        parseClientArguments("--config-file i --scheduler tcp://h:1 --emulate 2".split())


def test_aDeviceOfANodeNamesIt():
    """In the log, a device says which node's it is."""
    from Tensile.Parallel.Devices import describeDevice

    device = Device(5, "1", node="b", nodeOrdinal=1, architecture="gfx90a")
    assert describeDevice(device) == "device 5 (b:1, gfx90a)"


def test_itIsKeptWhenDevicesCameAndWent():
    """Joined, left, gone with its worker, back, given up: each with its time, in order."""
    script = Script()
    late = FakeWorker(7, script)
    run = Run(script, devices=2, problems=12, changes=Changes(at1=([late], []), at3=((), [0])))
    run.workers.append(late)
    changes = run.run().changes
    assert [(each.device, each.what) for each in changes] == [(7, "joined"), (0, "left")]
    assert changes[0].at <= changes[1].at

    lost = []

    def unit(device, unit):
        if device == 0 and not lost:
            lost.append(unit)
            return WorkerLost("node a: its worker is gone")
        return None

    def start(device, number):
        return RunError("node b was away for 30 s") if device == 1 else WorkerFacts(1, "")

    run = Run(Script(unit=unit, start=start), devices=2, problems=8)
    changes = run.run().changes
    assert [(each.device, each.what, each.why) for each in changes] == [
        (1, "lost", "node b was away for 30 s"),
        (0, "away", "node a: its worker is gone"),
        (0, "back", ""),
    ]


class DasksClient:
    """Dask's client, as far as Cluster.py uses it. Where the scheduler is away, it hangs."""

    def __init__(self, members):
        self.status = "running"
        self._members = members

    async def nthreads(self):
        """A worker of each address."""
        if self.status != "running":
            await asyncio.sleep(1000)
        return dict.fromkeys(self._members, 1)

    async def run(self, function, *arguments, workers, on_error):
        """What each of them answers."""
        await self.nthreads()
        return {address: self._members[address] for address in workers}

    async def close(self, timeout):
        """That hangs, too."""
        was, self.status = self.status, "closing"
        if was != "running":
            await asyncio.sleep(timeout)


def facts(node):
    """What NodeSide.facts says of a device."""
    words = dict.fromkeys("version hash driver rocm kernel python".split(), "")
    device = Device(0, "0", emulated=True, uniqueId="1")
    own = {"node": node, "join": node, "device": device, "client": (), "leaving": False}
    return {**words, **own, "now": time.time()}


def test_theSchedulerRestarts(monkeypatch):
    """However long it was away, the front end is there soon after it: Dask's own client would try
    again after pauses that double. Meanwhile nothing is handed to workers, and a worker that was
    lost with it has not died."""
    monkeypatch.setattr(ClusterModule, "WATCH_SECONDS", 0.02)
    clients = [DasksClient({"tcp://w:1": facts("a")}), DasksClient({"tcp://w:2": facts("a")})]
    left = list(clients)

    async def openClient(self, address, seconds):
        return left.pop(0)

    monkeypatch.setattr(ClusterModule.Cluster, "_openClient", openClient)
    monkeypatch.setattr(ClusterModule, "requireDistributed", lambda: None)
    scheduler = socket.create_server(("127.0.0.1", 0))
    address = scheduler.getsockname()
    cluster = ClusterModule.Cluster("tcp://127.0.0.1:%d" % address[1])
    cluster.connect()
    try:
        waitFor(cluster.members)
        device = replace(cluster.members()[0].device, node="a")
        worker = NodeWorker(device, cluster, "", None, (), True)
        worker.starts = 3
        begun = cluster.connected()[0]
        scheduler.close()
        clients[0].status = "connecting"
        waitFor(lambda: not cluster.members())
        assert begun.gone.is_set()

        async def lost():
            return cluster.submit(begun, facts)

        with pytest.raises(WorkerLost):
            cluster.spawn(worker._noting(lost())).result()
        assert worker.starts == 2 and left
        scheduler = socket.create_server(address)
        waitFor(cluster.members)
        assert [member.address for member in cluster.members()] == ["tcp://w:2"] and not left
        with pytest.raises(WorkerLost):  # one of the old ones
            cluster.spawn(worker._noting(lost())).result()
        assert worker.starts == 2
    finally:
        cluster.close()
        scheduler.close()


def test_aSchedulersFileThatIsNotThereYetIsWaitedFor(monkeypatch, tmp_path):
    """As a scheduler that is about to start; what is missing is said when the time is over."""
    monkeypatch.setattr(ClusterModule, "requireDistributed", lambda: None)
    cluster = ClusterModule.Cluster("", str(tmp_path / "none.json"))
    begun = time.monotonic()
    with pytest.raises(InputError, match="none.json .No such file or directory.: start one with"):
        cluster.connect(0.6)
    assert time.monotonic() - begun > 0.6


def test_aWorkerThatDoesNotAnswerIsNamed(monkeypatch):
    """The run begins with the others, and whoever misses a device reads why."""

    class OneHangs(DasksClient):
        async def run(self, function, *arguments, workers, on_error):
            if workers == ["tcp://w:2"]:
                await asyncio.sleep(1000)
            return await super().run(function, *arguments, workers=workers, on_error=on_error)

    async def openClient(self, address, seconds):
        mine = {**facts("a"), "hash": NodeSide.packageHash(), "version": __version__}
        return OneHangs({"tcp://w:1": mine, "tcp://w:2": mine})

    monkeypatch.setattr(ClusterModule, "MEET_SECONDS", 0.1)
    monkeypatch.setattr(ClusterModule.Cluster, "_openClient", openClient)
    monkeypatch.setattr(ClusterModule, "requireDistributed", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as scheduler:
        place = "tcp://127.0.0.1:%d" % scheduler.getsockname()[1]
        with openCluster(place, "", lambda text: None) as step:
            selection = step.choose(ALL_DEVICES, strict=False)
            (note,) = [each for each in selection.notes if "does not answer" in each]
            assert "tcp://w:2" in note and step.count == 1


def awayFor(monkeypatch, **events):
    """How long a device is waited for, in seconds, by a clock of our own.

    Args:
        events: such as at40=f: what happens when.
    """
    cluster = ClusterModule.Cluster("tcp://h:1")
    clock = SimpleNamespace(now=0)

    async def sleep(seconds):
        events.get("at%d" % clock.now, lambda cluster: None)(cluster)
        clock.now += 1

    monkeypatch.setattr(ClusterModule.asyncio, "sleep", sleep)
    monkeypatch.setattr(ClusterModule.time, "monotonic", lambda: clock.now)
    with pytest.raises(RunError, match="^(node a|the scheduler) was away for [0-9]+ s$") as caught:
        cluster.find(Device(0, "0", uniqueId="1", node="a")).send(None)
    monkeypatch.undo()
    return clock.now, str(caught.value)


def test_aDeviceIsGivenUpWhereAnotherCanTakeItsWork(monkeypatch):
    """Where all nodes are away, as when a switch restarts, or the scheduler, the run waits longer;
    and when that is over, for the others of them as for any node."""

    def join(cluster):
        member = ClusterModule._memberOf("tcp://b:1", facts("b"), 0.0, 0.0)
        cluster._connected["tcp://b:1"] = ClusterModule.Connected(member)

    def lose(cluster):
        cluster._lostSince = 1.0

    def find(cluster):
        cluster._lostSince = None

    assert awayFor(monkeypatch) == (601, "node a was away for 601 s")
    assert awayFor(monkeypatch, at0=join) == (31, "node a was away for 31 s")
    assert awayFor(monkeypatch, at5=lose) == (601, "the scheduler was away for 601 s")
    story = {"at5": lose, "at100": join, "at200": find}
    assert awayFor(monkeypatch, **story) == (231, "node a was away for 231 s")


class DasksWorker:
    """Dask's worker, as far as a leaving one uses it."""

    address = "tcp://w:1"

    def __init__(self):
        self.told = []

    def log_event(self, topic, event):
        """Tells whoever listens."""
        self.told.append((topic, event))


def test_aLeavingWorkerWaitsUntilItIsGivenUp(monkeypatch, tmp_path):
    """It says at once that it leaves, refuses what is on its way to it, and is there until whoever
    has its device knows; where nobody has, it need not wait."""
    device = Device(0, "0", emulated=True, uniqueId="1")
    identity = NodeSide.NodeIdentity("a", "j", device, None, str(tmp_path), ())
    monkeypatch.setenv(NodeSide.NODE_VARIABLE, identity.toJson())
    monkeypatch.setattr(NodeSide, "_Task", SimpleNamespace)
    monkeypatch.setattr(NodeSide._Node, "_watch", lambda self: None)  # it would go on for ever
    worker = DasksWorker()

    async def leaves(run):
        monkeypatch.setattr(NodeSide, "_node", None)
        node = NodeSide._here()
        node.hear(run)
        leaving = asyncio.ensure_future(NodeSide.leave(worker))
        await asyncio.sleep(0)
        assert worker.told.pop() == (NodeSide.LEAVING_TOPIC, {"address": "tcp://w:1"})
        with pytest.raises(NodeLeft, match="node a is leaving"):
            NodeSide.runUnit(SimpleNamespace(run=run))
        with pytest.raises(NodeLeft, match="node a is leaving"):
            NodeSide.prepare("another run, which knows by that", True)
        if run:
            await asyncio.sleep(0.5)
            assert not leaving.done()
            await NodeSide.release(run)
            late = {worker.address: NodeSide.Question(run)}  # its question was on its way
            assert NodeSide.poll(late, worker).leaving
        await asyncio.wait_for(leaving, 5)

    asyncio.run(leaves("r"))
    asyncio.run(leaves(""))


def test_whatALeavingWorkerDoesIsNoLoss(monkeypatch, tmp_path):
    """Its word is enough, whatever has reached it or not: a unit is given back, nobody waits for
    the device, and one that comes later is another."""

    def connect(cluster, address):
        member = ClusterModule._memberOf(address, facts("a"), 0.0, 0.0)
        cluster._connected[address] = ClusterModule.Connected(member)
        return cluster._connected[address]

    async def refuses():
        raise NodeLeft("node a is leaving")

    async def never():
        await asyncio.sleep(1000)

    job = Job(Unit(0, 0, 2, 0, 3), Device(0, "0"), (), str(tmp_path), "", 0, 0, (), 1, "/")

    async def story(leaveFirst, outcome):
        cluster = ClusterModule.Cluster("tcp://h:1")
        first = connect(cluster, "tcp://w:1")
        device = replace(first.member.device, node="a")
        worker = NodeWorker(device, cluster, "r", None, (), True)
        future = SimpleNamespace(result=outcome, release=lambda: None)
        monkeypatch.setattr(cluster, "submit", lambda *a: future)
        assert await cluster.find(device) is first and not cluster.whoLeft()
        if leaveFirst:
            cluster._onLeave((0.0, {"address": "tcp://w:1"}))
        running = asyncio.ensure_future(worker._submit(first, job))
        await asyncio.sleep(0)
        if leaveFirst:
            assert cluster.whoLeft() == {first.member.key}
            cluster._lose("tcp://w:1")
            assert cluster.whoLeft() == {first.member.key}
            with pytest.raises(NodeLeft, match="node a has left"):
                await cluster.find(device)
        result = await running
        assert result.outcome.kind == MEASURED and result.shortened and not result.pieces
        assert worker.leaving
        connect(cluster, "tcp://w:2")
        assert not cluster.whoLeft()

    monkeypatch.setattr(NodeWorkerModule, "makeOrder", lambda *a: SimpleNamespace(id="u"))
    for leaveFirst, outcome in ((True, never), (False, refuses)):
        asyncio.run(asyncio.wait_for(story(leaveFirst, outcome), 20))


def test_aNodeIsWaitedForOnceAndNotForEachDevice(monkeypatch):
    """Of an idle device nobody notices at once that it is gone: what it was away before counts."""

    async def story():
        cluster = ClusterModule.Cluster("tcp://h:1")
        for name in ("a", "b"):
            member = ClusterModule._memberOf("tcp://" + name, facts(name), 0.0, 0.0)
            cluster._connected["tcp://" + name] = ClusterModule.Connected(member)
        device = replace(member.device, node="a", nodeOrdinal=member.device.ordinal)
        cluster._lose("tcp://a")
        lost = time.monotonic()
        monkeypatch.setattr(ClusterModule.time, "monotonic", lambda: lost + 35.0)
        with pytest.raises(RunError, match="node a was away for 35 s"):
            await cluster.find(device)

    asyncio.run(asyncio.wait_for(story(), 20))


def test_aNodeThatAnswersLateHasNoOtherClock():
    """What a node's clock differs by is known as well as the time of its answer, and no better."""
    for ahead, seconds, found in ((0, 9, 0), (9, 9, 0), (3600, 9, 3595.5), (-3600, 1, -3600.5)):
        said = {**facts("a"), "now": 1000.0 + ahead}
        member = ClusterModule._memberOf("tcp://a:1", said, 1000.0, 1000.0 + seconds)
        assert member.clockAhead == found


def test_aJoinDoesNotWaitForDaskWhereTheSchedulerIsGone(monkeypatch):
    """A device whose scheduler goes while it joins begins anew: Dask's Nanny would try again after
    pauses that double."""
    monkeypatch.setattr(Join, "_CONNECT_SECONDS", 0.05)

    async def joining():
        with socket.create_server(("127.0.0.1", 0)) as scheduler:
            place = Place("tcp://127.0.0.1:%d" % scheduler.getsockname()[1], "")
            never = asyncio.get_running_loop().create_future()
            waits = {"leaveAfter": None}
            task = asyncio.ensure_future(
                Join._joined(NeverReady(), place, "device 0", never, waits)
            )
            await asyncio.sleep(0.2)
            assert not task.done()
        await task

    with pytest.raises(ConnectionError, match="the scheduler is gone"):
        asyncio.run(joining())


class NeverReady:
    """Dask's Nanny, where what listens at the scheduler's address never answers."""

    def __await__(self):
        return asyncio.sleep(1000).__await__()


def test_aJoinLeavesWhateverListensThere(monkeypatch):
    """Who ends a join need not wait until Dask has given up, nor who has said for how long."""

    async def joining():
        with socket.create_server(("127.0.0.1", 0)) as scheduler:
            place = Place("tcp://127.0.0.1:%d" % scheduler.getsockname()[1], "")
            left = asyncio.get_running_loop().create_future()
            waits = {"leaveAfter": 0.0, "aloneSince": time.monotonic()}
            task = asyncio.ensure_future(Join._joined(NeverReady(), place, "device 0", left, waits))
            await asyncio.sleep(0.05)
            left.set_result(True)
            assert await asyncio.wait_for(task, 5) is False
            monkeypatch.setattr(Join, "_CONNECT_SECONDS", 0.05)
            monkeypatch.setattr(Join, "QUIET_SECONDS", 0.1)
            never = asyncio.get_running_loop().create_future()
            with pytest.raises(ConnectionError, match="does not answer as a scheduler"):
                await asyncio.wait_for(Join._joined(NeverReady(), place, "d", never, waits), 5)

    asyncio.run(joining())


def test_aDeviceThatAnotherRunHasIsSaidToBeWaitedFor(caplog):
    """Once, and to whoever asks why the device is not ready, for as long as that lasts."""
    cluster = StepClusterModule.StepCluster(SimpleNamespace())
    device = Device(3, "0", uniqueId="1", node="a", nodeOrdinal=1)
    worker = cluster._workers[3] = NodeWorker(device, None, "r", None, (), True)
    assert cluster.holderOf(3) == cluster.holderOf(4) == ""
    for _ in range(3):
        worker.answered(Answer("", {}, False, False, waits=True))
    assert cluster.holderOf(3) == "another run of this cluster"
    worker.answered(Answer("", {}, False, False))
    assert cluster.holderOf(3) == ""
    assert [each.getMessage() for each in caplog.records] == [
        "device 3 (a:1) is in use by another run of this cluster: waiting for its end"
    ]


def test_whoCameAndWentBetweenTwoStepsIsKnown(tmp_path):
    """A step says so at its beginning; what came or went in a step, the step itself has said."""
    here = ["a", "b"]

    def members():
        found = [ClusterModule._memberOf("tcp://%s" % n, facts(n), 0.0, 0.0) for n in here]
        own = {"hash": NodeSide.packageHash(), "version": __version__}
        return [replace(member, **own) for member in found]

    connection = SimpleNamespace(members=members, silent=[], whoLeft=lambda: gone)
    gone = set()

    def names(devices):
        return [device.node for device in devices]

    def begin():
        step = StepClusterModule.StepCluster(connection)
        step.choose(ALL_DEVICES, strict=False)
        devices = step.number(str(tmp_path))
        step._step = object()
        step.workers(devices)
        return step, *map(names, step.changesBefore())

    assert begin()[1:] == (["a", "b"], [])
    here[:] = ["b", "c"]
    step, come, left = begin()
    assert (come, left) == (["c"], ["a"])
    here[:] = ["b", "d"]
    gone.add(members()[0].key)
    joined, leaving = step.changes([1, 2])
    assert names(worker.device for worker in joined) == ["d"] and leaving == [1]
    here[:] = ["c", "d"]
    assert begin()[1:] == ([], [])


def test_aUnitWhoseFilesHaveNoRoomEndsEarly():
    """What it would measure from then on could not be kept, and its end ends the run."""
    called = []

    class Connection:
        async def call(self, worker, function, run, job):
            called.append((function.__name__, run, job))

    device = Device(0, "0", uniqueId="1", node="a")
    worker = NodeWorker(device, Connection(), "r", None, (), True)
    worker._worker, worker._job = object(), "j"
    worker._mirror = SimpleNamespace(problem=None, add=lambda suffix, part: None)
    answer = Answer("j", {}, False, False)

    async def answered(problem):
        worker._mirror.problem = problem
        worker.answered(answer)
        await asyncio.sleep(0)

    asyncio.run(answered(None))
    assert not called
    asyncio.run(answered(OSError(errno.ENOSPC, "full")))
    assert called == [("stop", "r", "j")]


def test_nobodyJoins(monkeypatch):
    """A run says that no node has joined, and no other thing that it would miss then."""
    monkeypatch.setattr(StepClusterModule, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(StepClusterModule.Cluster, "connect", lambda self, seconds: None)
    for place, said in (
        (("tcp://h:1", ""), r"--join tcp://h:1`$"),
        (("", "/f"), "--join --scheduler-file /f`$"),
    ):
        with pytest.raises(InputError, match="^no device .*no node has joined.*" + said):
            with openCluster(*place, lambda text: None):
                pass


def test_noRunThatWouldBeSerialIsOneOfACluster(monkeypatch, tmp_path, capsys):
    """Serial Tensile runs on this machine, which may have no GPU: refused, with the reason."""
    cluster = SimpleNamespace(isEmulated=True, count=2)
    monkeypatch.setattr(StepClusterModule, "openCluster", lambda *a, **k: nullcontext(cluster))
    config = tmp_path / "config.yaml"
    line = [str(config), str(tmp_path / "out"), "--scheduler", "tcp://h:1"]
    line += ["--tensile-root", str(HERE / "host" / "tensilelite")]
    for text, more, said in (
        ("GlobalParameters: {}\n", ["--cpu-only"], "--cpu-only measures on no GPU: no cluster"),
        ("GlobalParameters: [\n", [], "config.yaml"),
    ):
        config.write_text(text)
        assert main([*line, *more]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_aLongWaitForTheSchedulerIsTold(monkeypatch):
    """Who waits knows for what."""
    told = []

    def connect(self, seconds):
        waitFor(lambda: told)
        raise InputError("no scheduler answers")

    monkeypatch.setattr(StepClusterModule, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(StepClusterModule.Cluster, "connect", connect)
    with pytest.raises(InputError, match="no scheduler answers"):
        with openCluster("tcp://h:1", "", told.append):
            pass
    assert told == ["waiting for the scheduler tcp://h:1"]
