# SPDX-License-Identifier: MIT
"""execution_summary.json, timeline.json and the closing words."""

import json
import os

import pytest

from Tensile.Parallel.Report import executionSummary, writeReports
from Tensile.Parallel.RunRecord import (
    RunRecord,
    lostPairs,
    readSteps,
    slowestUnits,
    speedUp,
)
from Tensile.Parallel.Terminal import duration
from Tensile.Parallel.TextSummary import LISTED_FAILURES, textSummary
from Tensile.Parallel.Timeline import timeline
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit

STEP = {
    "version": 1,
    "run": "id",
    "state": "finished",
    "resultsFile": "/out/00_Final.csv",
    "problemType": "Type",
    "group": "00",
    "step": "00_Final",
    "problems": 4,
    "solutions": 2,
    "passes": 1,
    "whole": None,
    "started": 110.0,
    "ended": 120.0,
    "devices": [
        {"ordinal": 0, "token": "3", "problems": [[0, 3]],
         "units": 2, "pairs": 6, "busySeconds": 9},
        {"ordinal": 1, "token": "5", "problems": [[3, 1]],
         "units": 1, "pairs": 2, "busySeconds": 4},
    ],
    "units": [
        {"unit": 0, "device": 0, "problems": [0, 2], "solutions": [0, 2], "kind": "measured",
         "exit": 0, "started": 110.5, "ended": 115.0},
        {"unit": 1, "device": 1, "problems": [2, 1], "solutions": [0, 2], "kind": "crashed",
         "exit": 139, "started": 110.5, "ended": 111.0},
    ],
    "failures": [{"kind": "crashed", "device": 1, "problem": 2, "solution": "S", "message": "m"}],
    "counts": {"measured": 6, "rejected": 1, "failed": 0, "crashed": 1, "hung": 0},
    "validationFailures": 0,
    "correctedWinners": 0,
    "exit": 0,
}  # fmt: skip


def makeRecord(**changes):
    """A run of 100 s on two devices."""
    values = dict(
        run="id",
        command=("TensileParallel", "a b.yaml", "out"),
        started=100.0,
        ended=200.0,
        state="finished",
        exitStatus=0,
        hostStatus=0,
        emulated=False,
        devices=(Device(0, "3", architecture="gfx90a"), Device(1, "5")),
        missing=(9,),
        notes=("a note",),
        client="/client",
        config="/a b.yaml",
        merged="/out/merged_output",
        host={"generation": "classic Tensile", "version": "4.44.0"},
    )
    return RunRecord(**dict(values, **changes))


def testSummaryAddsUpTheSteps():
    """Times, balance, counts and failures are those of all steps."""
    second = dict(STEP, started=130.0, ended=140.0, resultsFile="/other.csv")
    summary = executionSummary(makeRecord(), [STEP, second])
    assert summary["schema"] == 1 and summary["command"][1] == "a b.yaml"
    assert summary["seconds"] == {"total": 100.0, "benchmark": 20.0, "host": 80.0}
    first = summary["devices"][0]
    assert (first["units"], first["pairs"], first["busySeconds"]) == (4, 12, 18)
    assert first["busyShare"] == 0.9 and first["architecture"] == "gfx90a"
    assert summary["counts"]["measured"] == 12 and summary["counts"]["crashed"] == 2
    assert [failure["resultsFile"] for failure in summary["failures"]] == [
        "/out/00_Final.csv",
        "/other.csv",
    ]
    assert summary["missingDevices"] == [9] and summary["notes"] == ["a note"]
    assert {"tensileParallel", "python", "joblib", "loky"} <= set(summary["versions"])
    assert all(summary["versions"].values())
    assert lostPairs([STEP, second]) == 2


def baselineOf(first, second, percent):
    ratios = [{"device": 0, "ratio": first}, {"device": 1, "ratio": second}]
    return {"spreadPercent": percent, "slowest": 1, "fastest": 0, "devices": ratios}


def testSpreadBetweenDevices():
    """Per device the middle of its ratios; of all steps the one where devices differ most is told.
    A step without a baseline says nothing, nor does a run without any."""
    steps = [
        dict(STEP, baseline=baselineOf(1.0, 0.98, 2.0)),
        dict(STEP, baseline=baselineOf(1.0, 0.959, 4.1), group="01"),
        dict(STEP, baseline=baselineOf(1.0, 0.97, 3.0)),
        dict(STEP, baseline=None),
    ]
    summary = executionSummary(makeRecord(), steps)
    assert [device["baselineRatio"] for device in summary["devices"]] == [1.0, 0.97]
    assert summary["steps"][1]["baseline"] == steps[1]["baseline"]
    text = textSummary(summary)
    assert "devices differ by up to 4.1 % (device 1 from device 0, in Type_01/00_Final)" in text
    assert ", speed 0.970 of the median device" in text
    without = executionSummary(makeRecord(), [STEP])
    assert without["devices"][0]["baselineRatio"] is None
    assert "differ" not in textSummary(without) and "median" not in textSummary(without)


def testAPartialRunHasASummary():
    """Steps that were stopped or only planned lack numbers; that is no error."""
    planned = dict(STEP, state="planned", ended=None, counts={}, devices=[], units=[], failures=[])
    for steps in ([], [planned]):
        record = makeRecord(state="stopped", exitStatus=130, hostStatus=None)
        summary = executionSummary(record, steps)
        assert summary["counts"]["measured"] == 0
        assert summary["devices"][0]["busyShare"] == 0.0
        json.dumps(summary)
        json.dumps(timeline(record, steps))
        assert "stopped" in textSummary(summary)


def testEmulatedNumbersAreLabelled():
    """Wherever the numbers appear it is said that they are made up."""
    summary = executionSummary(makeRecord(emulated=True), [STEP])
    assert summary["emulated"] is True
    assert textSummary(summary).startswith("EMULATED")
    names = [e["args"].get("name") for e in timeline(makeRecord(emulated=True), [])["traceEvents"]]
    assert "emulated GPUs" in names
    assert "EMULATED" not in textSummary(executionSummary(makeRecord(), [STEP]))


def testClosingWordsBeginWithWhatFailed():
    """Failures first, a few of them one by one on a line each; last where to look."""
    failure = dict(STEP["failures"][0], size="64x64", solution="S" * 300, message="died\nof it")
    lines = textSummary(executionSummary(makeRecord(), [STEP])).splitlines()
    assert lines[0] == "1 pairs crashed"
    assert lines[1].split() == "crashed on device 1: problem 2, S: m".split()
    assert lines[2] == "clients that went wrong: 1 crashed"
    assert lines[-2] == "output: /out/merged_output"
    assert lines[-1] == "TensileParallel --report /out makes a page of it"
    many = dict(STEP, failures=[failure] * 9)
    lines = textSummary(executionSummary(makeRecord(), [many])).splitlines()
    assert sum("64x64" in line for line in lines) == LISTED_FAILURES
    assert "  and 4 more: failures in execution_summary.json" in lines
    assert max(map(len, lines)) < 170 and "died of it" in lines[1]


def testClientsThatRecoveredAreTold():
    """A crash whose pairs went well at another try is not silent; it claims no more than is so."""
    fine = dict(STEP, failures=[], counts=dict(STEP["counts"], crashed=0), retimedPairs=3)
    summary = executionSummary(makeRecord(), [dict(fine, run="before"), fine])
    assert summary["failedUnits"] == {"failed": 0, "crashed": 1, "hung": 0}
    assert [device["failedUnits"] for device in summary["devices"]] == [0, 1]
    lines = textSummary(summary).splitlines()
    assert lines[0] == (
        "clients that went wrong: 1 crashed; all their pairs were measured at another try"
    )
    assert lines[1].startswith("finished: 6 pairs (3 of them timed again on another device) in 2 ")
    for steps, changes in (
        ([STEP], {}),
        ([fine], {"exitStatus": 1}),
        ([fine], {"state": "failed"}),
    ):
        text = textSummary(executionSummary(makeRecord(**changes), steps))
        assert "wrong: 1 crashed\n" in text and "(3 of" in text or steps == [STEP]
    assert "went wrong" not in textSummary(executionSummary(makeRecord(), [dict(fine, units=[])]))


def testSpeedUpSaysWhatItRestsOn():
    """One device would have taken the units' time, without what only a split costs."""
    unit = dict(STEP["units"][0], started=0.0, ended=10.0, startSeconds=2.0)
    units = [
        unit,
        dict(unit, startSeconds=3.0),
        dict(unit, startSeconds=None),
        dict(unit, baseline=True),
        dict(unit, retiming=True),
        dict(unit, kind="crashed"),
    ]
    found = speedUp([dict(STEP, units=units)], total=20.0, benchmark=14.0)
    assert found["serialBenchmarkSeconds"] == 28.0  # three units, less the shorter start
    assert found["serialTotalSeconds"] == 34.0
    assert (found["benchmark"], found["total"]) == (2.0, 1.7)
    assert found["leftOutSeconds"] == {
        "baselines": 10.0, "retimings": 10.0, "failedTries": 10.0, "clientStarts": 2.0,
    }  # fmt: skip
    assert speedUp([dict(STEP, units=[])], 20.0, 14.0) is None
    text = textSummary(executionSummary(makeRecord(), [STEP]))
    assert "(estimated from the units' own times)" in text


def testAnEarlierRunsTimesAreNotThisOnes():
    """A step that an earlier run has finished: its pairs are resumed ones, its time is no time."""
    earlier = dict(STEP, run="before")
    summary = executionSummary(makeRecord(), [earlier, STEP])
    assert summary["counts"]["measured"] == 6 and summary["counts"]["resumedPairs"] == 6
    assert summary["devices"][0]["busySeconds"] == 9
    assert summary["seconds"]["benchmark"] == 10.0
    assert "in all runs" in textSummary(summary)


def testSlowestUnitsComeFirst():
    """The longest of all steps, and no more than were asked for."""
    found = slowestUnits([STEP, dict(STEP, group="01")], 3)
    assert [unit["seconds"] for unit in found] == [4.5, 4.5, 0.5]
    assert found[0]["name"] == "problem 0 and 1 more, solutions 0-1"


def testDurations():
    """No 60.0 s, no 60 min."""
    texts = [duration(s, tenths=True) for s in (0.04, 59.94, 59.96, 245, 3599.6, 10920)]
    assert duration(1e30) == "over 100 years"
    assert texts == ["0.0 s", "59.9 s", "1 min 00 s", "4 min 05 s", "1 h 00 min", "3 h 02 min"]


def testStepsAreFoundBelowTheOutputs(tmp_path):
    """In the order of their starts, those of this run alone; torn files are passed over."""
    for name, content in (
        ("A_00/00_Final/step.json", dict(STEP, started=3)),
        ("A_01/00_Final/step.json", dict(STEP, started=2)),
        ("A_01/00_Final/step-0123.json", dict(STEP, started=1)),
        ("B_00/00_Final/step.json", dict(STEP, run="other")),
        ("gpu_0/A_00/00_Final/step.json", dict(STEP, started=0)),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    (tmp_path / "C_00").mkdir()
    (tmp_path / "C_00" / "step.json").write_text('{"run": "id", ')
    (tmp_path / "run.json").write_text("{}")
    assert [step["started"] for step in readSteps(str(tmp_path), ["id"])] == [1, 2, 3]
    assert len(readSteps(str(tmp_path))) == 4


def testFilesAreWrittenWhole(tmp_path):
    """Both files are JSON, and nothing temporary is left."""
    summary = writeReports(str(tmp_path), makeRecord(), [STEP])
    assert sorted(os.listdir(tmp_path)) == ["execution_summary.json", "timeline.json"]
    assert json.loads((tmp_path / "execution_summary.json").read_text()) == summary
    json.loads((tmp_path / "timeline.json").read_text())
