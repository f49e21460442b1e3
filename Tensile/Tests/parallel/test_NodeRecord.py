# SPDX-License-Identifier: MIT
"""What tells of a cluster's device names its node, also of one that came late or has gone."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from test_Display import status
from test_HtmlReport import pageOf, writeRun
from test_Report import STEP, makeRecord
from test_Status import Run
from test_Timeline import checkTrace

from Tensile.Parallel.Baseline import spreadOf, spreadWarning
from Tensile.Parallel.DeviceConfigs import writeDeviceConfigs
from Tensile.Parallel.DeviceNames import (
    deviceFields,
    listed,
    nameIn,
    nameOf,
    nodeFields,
)
from Tensile.Parallel.Display import renderLines
from Tensile.Parallel.Fleet import Register, usedDevices
from Tensile.Parallel.Report import executionSummary
from Tensile.Parallel.RunRecord import lostDevices
from Tensile.Parallel.Status import RunStatus
from Tensile.Parallel.StatusText import progressLine, stallText, statusLines
from Tensile.Parallel.TextSummary import textSummary
from Tensile.Parallel.Timeline import timeline, timelineText
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit

# Node a's third device joined last: its number comes after that of node b.
DEVICES = tuple(
    Device(ordinal, str(own), architecture="gfx90a", node=node, nodeOrdinal=own)
    for ordinal, (node, own) in enumerate([("a", 0), ("a", 1), ("b", 0), ("a", 2)])
)
HASH = "0123456789abcdef" * 4
VERSIONS = {
    "a": {"driver": "6.10.5", "rocm": "6.3.1", "kernel": "5.15", "python": "3.11.7"},
    "b": {"driver": "6.8.5", "rocm": "6.3.1", "kernel": "5.15", "python": "3.9.2"},
}


def entry(ordinal, **more):
    return {"device": ordinal, **nodeFields(DEVICES[ordinal]), **more}


def clusterStep(changes=None, **more):
    """A step from 110 to 120: b went and was given up, a's third device came."""
    if changes is None:
        changes = [(3, "joined", 113.0), (2, "away", 114.0), (2, "lost", 116.0)]
    parts = [
        {"ordinal": d.ordinal, **nodeFields(d), "token": d.token, "problems": [[d.ordinal, 1]],
         "units": 1, "pairs": 2, "busySeconds": 2.0}
        for d in DEVICES
    ]  # fmt: skip
    units = [
        entry(n, unit=n, size="64x64x1x64", problems=[n, 1], solutions=[0, 2], kind="measured",
              exit=0, attempt=1, started=113.0, ended=115.0 - (n == 2))
        for n in range(4)
    ]  # fmt: skip
    units[2].update(kind="lost", message="node b: its worker is gone")
    failure = entry(2, kind="crashed", problem=2, solution="S", message="m", tail="last words")
    return {
        **STEP,
        "devices": parts,
        "units": units,
        "failures": [failure],
        "workers": [entry(n, begun=110.5, ready=112.0, lockSeconds=0.0) for n in range(3)],
        "deviceChanges": [entry(n, what=what, at=at, why="") for n, what, at in changes],
        "devicesLost": [2],
        "nodes": VERSIONS,
        "clientHash": HASH,
        "baseline": {
            "spreadPercent": 4.0, "slowest": 3, "fastest": 0,
            "devices": [{"device": n, "ratio": 1.0 - n / 100} for n in range(4)],
        },
        **more,
    }  # fmt: skip


def clusterSummary():
    return executionSummary(makeRecord(devices=DEVICES), [clusterStep()])


def test_whyANodeIsOutIsTold():
    """The closing words have a line with the reason, once, and the devices that it holds for."""
    changes = [(2, "lost", 113.0), (2, "joined", 114.0), (2, "lost", 115.0)]
    step = clusterStep(changes=changes)
    for change in step["deviceChanges"]:
        change["why"] = "node b: /cache: No space left on device"
    summary = executionSummary(makeRecord(devices=DEVICES), [step])
    told = [line for line in textSummary(summary).splitlines() if "No space" in line]
    assert told == ["device(s) 2 (b:0) set aside: node b: /cache: No space left on device"]


def test_thePairsOfNodesAndDevicesAddUp():
    """What was timed again is told apart, so that the rest of all is what was measured."""
    step = clusterStep(retimedPairs=1)
    step["devices"][1]["retimedPairs"] = 1
    lines = textSummary(executionSummary(makeRecord(devices=DEVICES), [step])).splitlines()
    assert any(line.startswith("node a: 3 devices, 3 units, 5 pairs, 1 timed") for line in lines)
    assert any(
        line.startswith("device 1 (a:1): 1 unit, 1 pairs, 1 timed again, busy") for line in lines
    )


def test_aLostWorkerIsNoCrashOfAClient():
    """A unit that was lost with its node is no client that went wrong: it is told apart."""
    fine = clusterStep(counts={"measured": 8}, failures=[])
    summary = executionSummary(makeRecord(devices=DEVICES), [fine])
    assert not any(summary["failedUnits"].values()) and summary["lostUnits"] == 1
    assert not any(device["failedUnits"] for device in summary["devices"])
    assert textSummary(summary).splitlines()[0] == (
        "lost with their worker or node, which is no client's fault: 1 unit; "
        "all their pairs were measured at another try"
    )


def test_namesOfDevices():
    """A number in the run, and the node with the number there; on one machine nothing changes."""
    alone = Device(5, "5")
    assert [nameOf(DEVICES[2]), nameOf(alone), nameIn(entry(3))] == ["2 (b:0)", "5", "3 (a:2)"]
    assert listed(DEVICES[:3]) == "0, 1 of a; 2 of b" and listed([alone, alone]) == "5, 5"
    assert nodeFields(alone) == {} and "node" not in deviceFields(alone)
    assert deviceFields(DEVICES[2]) == asdict(DEVICES[2])
    assert lostDevices([clusterStep()]) == ["2 (b:0)"]
    assert lostDevices([{**STEP, "devicesLost": [1, 7]}]) == ["1", "7"]
    spread = spreadOf({0: [100.0], 2: [90.0]})
    text = spreadWarning(spread, lambda device: nameOf(DEVICES[device]))
    assert text.startswith("device 2 (b:0) is 10.0 % slower than device 0 (a:0) ")


def test_theSummaryHasNodes():
    """What each node did and runs, when it was there, what was lost; every record names it."""
    summary = clusterSummary()
    a, b = summary["nodes"]
    assert (a["node"], a["devices"], a["units"], a["pairs"]) == ("a", [0, 1, 3], 3, 6)
    assert (a["busySeconds"], a["busyShare"], b["busyShare"]) == (6.0, 0.2, 0.2)
    assert {key: b[key] for key in VERSIONS["b"]} == VERSIONS["b"] and a["clientHash"] == HASH
    assert (a["lost"], b["lost"]) == ([], [2])
    seconds = {name: (each["firstSeen"][-10:-6], each["lastSeen"][-10:-6])
               for name, each in (("a", a), ("b", b))}  # fmt: skip
    # 110.5 to the end of the step at 120; b to 116, when it was given up.
    assert seconds == {"a": (".500", ".000"), "b": (".500", ".000")}
    assert a["lastSeen"] > b["lastSeen"] > a["firstSeen"] == b["firstSeen"]
    records = [*summary["devices"], *summary["failures"], *summary["slowestUnits"]]
    records += summary["steps"][0]["devices"]
    assert all(each["node"] in ("a", "b") and each["nodeOrdinal"] >= 0 for each in records)


def test_theClosingWordsNameNodes():
    """Failures, nodes, devices, and which devices differ."""
    text = textSummary(clusterSummary())
    for words in (
        "crashed on device 2 (b:0)", "on 4 devices of 2 nodes,", "device 3 (a:2): 1 unit,",
        "node a: 3 devices, 3 units, 6 pairs, busy 20 % of the benchmark time\n",
        "node b: 1 device, 1 unit, 2 pairs, busy 20 % of the benchmark time, 1 device set aside\n",
        "(device 3 (a:2) from device 0 (a:0), in",
    ):  # fmt: skip
        assert words in text, text


def test_oneMachineHasNoNodes():
    """Nothing of a node is in what is told of a run on one machine."""
    summary = executionSummary(makeRecord(), [STEP])
    text = json.dumps([summary, timeline(makeRecord(), [STEP])]) + textSummary(summary)
    assert "node" not in text.replace("renderNode", "").lower()


def test_theTimelineGroupsDevicesByNode():
    """A process per node beside the host's; marks where a device came and went, and no other."""
    trace = timeline(makeRecord(devices=DEVICES), [clusterStep()])
    tracks = checkTrace(trace)
    names = {e["args"]["name"]: e["pid"] for e in trace["traceEvents"] if e["name"][-5:] == "_name"}
    assert names["Tensile"] == names["host"] == 1
    pids = [names["device %s gfx90a" % nameOf(device)] for device in DEVICES]
    assert pids == [names["node a: GPUs"]] * 2 + [names["node b: GPUs"], names["node a: GPUs"]]
    marks = [(e["pid"], e["ts"], e["name"]) for e in trace["traceEvents"] if e.get("cat") == "node"]
    assert marks == [
        (pids[2], 14000000, "b:0 is gone"),
        (pids[2], 16000000, "b:0 is set aside"),
        (pids[3], 13000000, "a:2 has joined"),
    ]
    waits = [(e["name"], e["ts"], e["dur"]) for e in tracks["device 2 (b:0) gfx90a"]][-2:]
    assert waits == [
        ("its worker or node is gone", 14000000, 2000000),
        ("is set aside", 16000000, 4000000),
    ]
    assert [e["name"] for e in tracks["device 3 (a:2) gfx90a"]][0] == "not there yet"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["joined", "left", "away", "back", "lost", "unheard of"]),
            st.floats(100, 130),
        ),
        max_size=8,
    )
)
def test_anyChangesMakeAValidTrace(changes):
    """However devices come and go, a track keeps the rules of its format and has no holes."""
    record = makeRecord(devices=DEVICES)
    step = clusterStep(changes)
    tracks = checkTrace(json.loads(timelineText(record, [step])))
    for device in DEVICES:
        events = tracks["device %s gfx90a" % nameOf(device)]
        assert sum(event["dur"] for event in events) == 10 * 10**6
    assert len(executionSummary(record, [step])["nodes"]) == 2


def test_thePageGroupsDevicesByNode(tmp_path):
    """Nodes with their devices, also one that joined later; failures; what each node runs."""
    out = writeRun(tmp_path / "out", [clusterStep()], ended=False, devices=DEVICES[:3])
    register = Register(str(out / "outputs" / "cluster.json"))
    register._devices = list(DEVICES)
    register.write()
    read, text = pageOf(out)
    order = ["node a", "0 (a:0) gfx90a", "1 (a:1) gfx90a", "3 (a:2) gfx90a", "node b",
             "2 (b:0) gfx90a"]  # fmt: skip
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    ends = [text.rindex(nameOf(DEVICES[ordinal])) for ordinal in (0, 1, 3, 2)]  # the environment
    assert ends == sorted(ends)
    assert "The client&#x27;s last lines: device 2 (b:0)" in text
    for words in ("devices of 2 nodes", "6.10.5", "6.8.5", HASH[:12], "Nodes", "last seen"):
        assert words in read.text, words
    assert HASH in read.titles


def test_onlyNodesDevicesJoin(tmp_path):
    """On one machine a run's devices are those that it began with, whatever the register holds."""
    register = Register(str(tmp_path / "cluster.json"))
    register._devices = list(DEVICES)
    register.write()
    alone = (Device(0, "0"),)
    assert usedDevices(alone, str(tmp_path), [clusterStep()]) == alone
    assert usedDevices(DEVICES[:1], str(tmp_path), [clusterStep()]) == DEVICES


def clusterStatus(nodes=2, devices=2, **changes):
    """A status of so many nodes with so many devices each."""
    shown = status(devices=nodes * devices, **changes)
    for number, device in enumerate(shown["devices"]):
        device.update(node="node-%d" % (number // devices), nodeOrdinal=number % devices)
    return shown


def test_theDisplayNamesNodes():
    """A row per device by its node's name, or where these have no room one per node."""
    pytest.importorskip("rich")
    shown = clusterStatus(2, 8)
    shown["devices"][0].update(state="away", node="a-host-with-a-name-that-is-long.example.org")
    wide = "\n".join(line for _, line in renderLines(shown, 1020.0, 100, 40))
    assert "node-1:7" in wide and "…me-that-is-long.example.org:0"[-20:] in wide
    low = [line for _, line in renderLines(clusterStatus(3, 8), 1020.0, 80, 12)]
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line).split()[:4] for line in low if "node-" in line]
    assert rows == [["node-%d" % n, "8/8", str(sum(range(8 * n, 8 * n + 8))), "4"]
                    for n in range(3)]  # fmt: skip
    many = "\n".join(line for _, line in renderLines(clusterStatus(30, 8), 1020.0, 80, 20))
    assert "more nodes" in many


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 200), st.integers(1, 60), st.integers(1, 12), st.integers(1, 8))
def test_theDisplayOfNodesFitsItsTerminal(columns, rows, nodes, devices):
    """As that of one machine does: no line is too wide, and all fit above the last row."""
    pytest.importorskip("rich")
    drawn = renderLines(clusterStatus(nodes, devices), 1020.0, columns, rows)
    assert 1 <= len(drawn) <= max(1, rows - 1)
    assert all(width <= max(8, columns - 1) for width, _ in drawn)


def test_theWordsNameNodes():
    """Plain lines, --status, and what is said when nothing moves."""
    shown = clusterStatus()
    shown["devices"][3].update(state="left")
    assert "3 of 4 devices on 2 nodes busy" in progressLine(shown, 1020.0)
    lines = statusLines({**shown, "ended": None}, 1020.0)
    assert "3 of 4 devices on 2 nodes busy" in lines
    assert lines[-1].startswith("device 3 (node-1:1): has left")
    assert "device 2 (node-1:0): 1024x" in stallText(shown, 60.0, 1020.0)


def test_statusJsonNamesNodes(tmp_path):
    """From the start; one that has left is not told to be idle when the run ends."""
    out = tmp_path / "cluster"
    (out / "outputs").mkdir(parents=True)
    run = RunStatus(str(out), "run", 1000.0, [], DEVICES[:3], True)
    written = json.loads((out / "status.json").read_text())["devices"]
    assert written[2] == {"device": 2, "node": "b", "nodeOrdinal": 0, "state": "idle"}
    run.status["devices"][2]["state"] = "left"
    run.end("finished", 0)
    assert [device["state"] for device in run.status["devices"]] == ["idle", "idle", "left"]
    assert Run(tmp_path / "alone").onDisk()["devices"][0] == {"device": 0, "state": "idle"}


def test_aConfigOfANodesDeviceIsForThatNode(tmp_path):
    """Stock Tensile on that node uses that GPU: `Device` is its number there."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "GlobalParameters: {DeviceList: [-1]}\n"
        "BenchmarkProblems: [[{OperationType: GEMM}, {BenchmarkFinalParameters: [ProblemSizes: ["
        "Exact: [1, 1, 1, 1], Exact: [2, 2, 1, 2], Exact: [3, 3, 1, 3], Exact: [4, 4, 1, 4]]]}]]\n"
    )
    step = clusterStep(sizes={"count": 4}, failures=[])
    written = [Path(name) for name in writeDeviceConfigs(str(tmp_path), str(config), [step])]
    assert [name.name for name in written] == ["config_gpu_%d.yaml" % n for n in range(4)]
    parts = [yaml.safe_load(name.read_text()) for name in written]
    assert [part["GlobalParameters"]["Device"] for part in parts] == [0, 1, 0, 2]
    head = written[3].read_text().splitlines()[:2]
    assert head[0].startswith("# TensileParallel: what device 3 (a:2) benchmarked")
    assert "GPU on a," in head[1]
