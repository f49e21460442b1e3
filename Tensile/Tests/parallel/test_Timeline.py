# SPDX-License-Identifier: MIT
"""timeline.json: the rules of its format, and that it tells the same as the summary."""

import json
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_Report import STEP, makeRecord

from Tensile.Parallel.Report import executionSummary
from Tensile.Parallel.Timeline import (
    EXTRA,
    UNIT,
    WAIT,
    WARM_UP,
    deviceSpans,
    hostSpans,
    timeline,
    timelineText,
)

pytestmark = pytest.mark.unit

METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


def checkTrace(trace):
    """The rules of Chrome's trace-event format ("Trace Event Format", JSON object form).

    Returns:
        The complete events of each track, by its name.
    """
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in trace["otherData"].values())
    tracks, names = defaultdict(list), {}
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["args"], dict)
        for key in ("pid", "tid"):
            assert type(event[key]) is int and event[key] >= 0
        track = (event["pid"], event["tid"])
        if event["ph"] == "M":
            assert event["name"] in METADATA
            kind = str if event["name"].endswith("_name") else int
            assert type(event["args"]["name" if kind is str else "sort_index"]) is kind
            if event["name"] == "thread_name":
                names[track] = event["args"]["name"]
            continue
        assert event["ph"] in ("X", "i") and isinstance(event["cat"], str)
        assert type(event["ts"]) is int and event["ts"] >= 0
        if event["ph"] == "i":
            assert event["s"] in ("t", "p", "g")
        else:
            assert type(event["dur"]) is int and event["dur"] >= 0
            tracks[track].append(event)
    assert set(tracks) <= set(names), "a track without a name"
    for events in tracks.values():
        checkNesting(events)
    return {names[track]: events for track, events in tracks.items()}


def checkNesting(events):
    """Spans of one track are one within the other, or apart; in the order of the file."""
    around = []
    for event in sorted(events, key=lambda each: (each["ts"], -each["dur"])):
        end = event["ts"] + event["dur"]
        while around and around[-1] <= event["ts"]:
            around.pop()
        assert not around or end <= around[-1], "%r overlaps what it is not in" % event
        around.append(end)


def unitOf(**changes):
    """A unit of 2 s on device 0."""
    values = {"unit": 0, "device": 0, "size": "64x64x1x64", "problems": [0, 1], "kind": "measured",
              "solutions": [0, 2], "attempt": 1, "exit": 0, "message": "", "retiming": False,
              "baseline": False, "warmUp": None, "startSeconds": 0.5,
              "started": 111.0, "ended": 113.0}  # fmt: skip
    return {**values, **changes}


def stepOf(*units, **changes):
    """A step from 110 to 120 with these units, and the devices' sums of them."""
    busy = defaultdict(float)
    for unit in units:
        busy[unit["device"]] += unit["ended"] - unit["started"]
    devices = [
        {"ordinal": ordinal, "units": 1, "pairs": 1, "busySeconds": round(busy[ordinal], 3)}
        for ordinal in (0, 1)
    ]
    return {**STEP, "units": list(units), "devices": devices, "failures": [], **changes}


def testUnitsAreNamedByWhatTheyMeasured():
    """Size and solutions; that it is a retry, a re-timing, or failed, is in the name."""
    spans = deviceSpans(
        makeRecord(),
        [
            stepOf(
                unitOf(),
                unitOf(started=113.5, ended=114, problems=[0, 4], attempt=2),
                unitOf(started=114, ended=115, kind="crashed", message="exit 139"),
                unitOf(started=115, ended=116, retiming=True),
            )
        ],
        0,
    )
    assert [(span.name, span.category) for span in spans if span.category != WAIT] == [
        ("64x64x1x64, solutions 0-1", UNIT),
        ("64x64x1x64 and 3 more, solutions 0-1 (try 2)", UNIT),
        ("crashed: 64x64x1x64, solutions 0-1", UNIT),
        ("64x64x1x64, solutions 0-1 (re-timing)", EXTRA),
    ]
    assert [span.failure for span in spans if span.failure] == ["exit 139"]


def testWaitsAreSpansOfTheirOwn():
    """A device waits for its worker, for its lock, between units, and for the others."""
    workers = [
        {"device": 0, "begun": 110.0, "ready": 112.0, "lockSeconds": 1.5},
        {"device": 1, "begun": 110.0, "ready": None, "lockSeconds": 0.0},
    ]
    units = (
        unitOf(started=112.75, ended=114.0, warmUp=0.25),
        unitOf(unit=1, started=115.0, ended=117.0),
    )
    step = stepOf(*units, workers=workers)
    found = [(s.name, s.start, s.end) for s in deviceSpans(makeRecord(), [step], 0)]
    assert found == [
        ("waits for its worker", 110.0, 110.5),
        ("waits for its lock", 110.5, 112.0),
        ("idle", 112.0, 112.5),
        ("warm-up", 112.5, 112.75),
        ("64x64x1x64, solutions 0-1", 112.75, 114.0),
        ("idle", 114.0, 115.0),
        ("64x64x1x64, solutions 0-1", 115.0, 117.0),
        ("waits for the other devices", 117.0, 120.0),
    ]
    other = [(s.name, s.start, s.end) for s in deviceSpans(makeRecord(), [step], 1)]
    assert other == [("waits for its worker or lock", 110.0, 120.0)]
    assert deviceSpans(makeRecord(), [step], 7)[0].name == "not used in this step"


def testTheHostsTrack():
    """Kernels before each step, the logic after the last; no logic where the run has failed."""
    second = dict(STEP, started=150.0, ended=160.0, group="01")
    found = [(span.name, span.start, span.end) for span in hostSpans(makeRecord(), [STEP, second])]
    assert found == [
        ("kernels: Type_00/00_Final", 100.0, 110.0),
        ("benchmark: Type_00/00_Final", 110.0, 120.0),
        ("kernels: Type_01/00_Final", 120.0, 150.0),
        ("benchmark: Type_01/00_Final", 150.0, 160.0),
        ("library logic", 160.0, 200.0),
    ]
    failed = hostSpans(makeRecord(state="failed"), [STEP])
    assert failed[-1].name == "Tensile"
    assert [span.name for span in hostSpans(makeRecord(), [])] == ["Tensile"]


def testEarlierRunsAreNotMixedUp():
    """A step that an earlier run has finished is on no track of this one; how much is told."""
    earlier = dict(STEP, run="before", started=10.0, ended=20.0)
    record = makeRecord()
    resumed = stepOf(unitOf(), resumedUnits=7)
    trace = timeline(record, [earlier, resumed])
    assert trace["otherData"]["unitsOfEarlierRunsNotShown"] == "9"
    tracks = checkTrace(trace)
    assert len([each for each in tracks["device 0 gfx90a"] if each["cat"] == UNIT]) == 1
    summary = executionSummary(record, [earlier, stepOf(unitOf())])
    assert summary["devices"][0]["busySeconds"] == 2.0


def testAStepWithoutAnEndGoesToTheEndOfTheRun():
    """Of a run that was stopped, what its units did is shown, and the rest is said to be open."""
    step = stepOf(unitOf(), ended=None)
    record = makeRecord(state="stopped", ended=130.0)
    spans = deviceSpans(record, [step], 0)
    assert (spans[-1].name, spans[-1].end) == ("not known: its unit has not ended", 130.0)
    assert executionSummary(record, [step])["seconds"]["benchmark"] == 20.0


moments = st.floats(min_value=90, max_value=140, allow_nan=False)
units = st.builds(
    lambda device, start, seconds, kind, extra, warmUp: unitOf(
        device=device, started=start, ended=start + seconds, kind=kind, message="m",
        retiming=extra, warmUp=warmUp),
    st.integers(0, 1), moments, st.floats(0, 20), st.sampled_from(["measured", "crashed"]),
    st.booleans(), st.none() | st.floats(0, 9),
)  # fmt: skip
workers = st.builds(
    lambda device, begun, ready, lock: {
        "device": device, "begun": begun, "ready": ready, "lockSeconds": lock},
    st.integers(0, 1), moments, st.none() | moments, st.floats(0, 30),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(units, max_size=6), st.lists(workers, max_size=3), st.booleans())
def testAnyTimesMakeAValidTrace(someUnits, someWorkers, ended):
    """Clocks that were set, workers that died: whatever the times are, the rules hold."""
    someWorkers.sort(key=lambda worker: worker["begun"])
    step = stepOf(*someUnits, workers=someWorkers, ended=120.0 if ended else None)
    checkTrace(json.loads(timelineText(makeRecord(), [step, dict(STEP, started=125.0)])))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 0.5), st.booleans()),
        max_size=9,
    )
)
def testADevicesSpansAddUp(lengths):
    """Within a step a track has no holes; its units, re-timings among them, add up to the
    summary's busy seconds."""
    cursor, made = 111.0, []
    for seconds, gap, warmUp, again in lengths:
        start = cursor + gap + warmUp
        unit = unitOf(started=start, ended=start + seconds, warmUp=warmUp, retiming=again)
        made.append(unit)
        cursor = start + seconds
    step = stepOf(*made, ended=cursor + 1)
    events = checkTrace(timeline(makeRecord(), [step]))["device 0 gfx90a"]
    sums = defaultdict(int)
    for event in events:
        sums[event["cat"]] += event["dur"]
    summary = executionSummary(makeRecord(), [step])
    busy = summary["devices"][0]["busySeconds"]
    assert (sums[UNIT] + sums[EXTRA]) / 1e6 == pytest.approx(busy, abs=0.001)
    assert sums[WARM_UP] / 1e6 == pytest.approx(sum(each[2] for each in lengths), abs=0.001)
    benchmark = summary["seconds"]["benchmark"]
    assert sum(sums.values()) / 1e6 == pytest.approx(benchmark, abs=0.001)


def testManyUnitsMakeAnEventALine():
    """Ten thousand units: a file that an editor and a diff can take, of a few MB."""
    made = [
        unitOf(unit=at, started=110 + at / 1e3, ended=110.0009 + at / 1e3) for at in range(10000)
    ]
    text = timelineText(makeRecord(), [stepOf(*made)])
    assert len(text) < 8e6
    checkTrace(json.loads(text))
    assert text.count("\n") > 10000 and max(map(len, text.split("\n"))) < 1000
