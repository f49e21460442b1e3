# SPDX-License-Identifier: MIT
"""config_gpu_N.yaml: what each device benchmarked."""

import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from Tensile.Parallel.ConfigSteps import unrollSizes
from Tensile.Parallel.DeviceConfigs import (
    deviceConfig,
    placeSteps,
    readConfig,
    writeDeviceConfigs,
)

pytestmark = pytest.mark.unit

GEMM = {"OperationType": "GEMM", "DataType": "h", "Batched": True}


def makeStep(group, count, devices, started=1, problemType="Type", factor=1, **others):
    """A step.json: devices is {ordinal: [[first, count], ...]} in problems."""
    step = {
        "problemType": problemType,
        "group": group,
        "step": "00_Final",
        "state": "finished",
        "started": started,
        "resultsFile": "/x.csv",
        "problems": count * factor,
        "sizes": {"count": count},
        "devices": [
            {"ordinal": ordinal, "problems": problems} for ordinal, problems in devices.items()
        ],
    }
    return dict(step, **others)


def makeConfig(*entries, **parameters):
    """A config; each entry is (problem type, ProblemSizes of a group, ...)."""
    return {
        "GlobalParameters": dict({"DeviceList": [0, 1], "Architecture": "gfx90a"}, **parameters),
        "BenchmarkProblems": [
            [problemType]
            + [
                {"ForkParameters": [{"A": [1]}], "BenchmarkFinalParameters": [{"ProblemSizes": s}]}
                for s in groups
            ]
            for problemType, *groups in entries
        ],
        "LibraryLogic": {"ScheduleName": "x"},
    }


def sizesOf(config, entry=0, group=0):
    """ProblemSizes of a group."""
    return config["BenchmarkProblems"][entry][group + 1]["BenchmarkFinalParameters"][0][
        "ProblemSizes"
    ]


# (ProblemSizes, problem type, the sizes in the client's order)
SHAPES = [
    ([{"Exact": [5, 6, 7, 8]}, {"Exact": [1, 2, 1, 3]}], GEMM, [[5, 6, 7, 8], [1, 2, 1, 3]]),
    # All ranges come first, wherever they stand; the first dimension is the fastest.
    (
        [{"Exact": [9, 9, 1, 9]}, {"Range": [[64, 64, 128], [128], [1], [64, 64, 128]]}],
        GEMM,
        [[64, 128, 1, 64], [128, 128, 1, 64], [64, 128, 1, 128], [128, 128, 1, 128], [9, 9, 1, 9]],
    ),
    # [step, max], and a dimension that takes another's value.
    ([{"Range": [[32, 64], 0, [1], 0]}], GEMM, [[32, 32, 1, 32], [64, 64, 1, 64]]),
    # [min, step, growth, max]; missing dimensions take the first one's value.
    ([{"Range": [[2, 2, 3, 20]]}], GEMM, [[v] * 4 for v in (2, 4, 9, 17)]),
    # Leading dimensions of a range stay where they are more than the smallest.
    (
        [{"Range": [[8], [8], [1], [8], [16], [16], [16], [16]]}],
        GEMM,
        [[8, 8, 1, 8, 16, 16, 16, 16]],
    ),
    ([{"Range": [[8], [4], [2]]}], {"DataType": "s"}, [[8, 4, 2]]),
    (
        [{"Exact": [1, 1, 1, 1]}, {"Exact": [1, 1, 1, 1]}],
        GEMM,
        [[1, 1, 1, 1], [1, 1, 1, 1]],
    ),
    (
        [{"Range": [[1, 1, 2], [3]]}],
        {"OperationType": "TensorContraction", "IndexAssignmentsA": [0, 1], "DataType": "s"},
        [[1, 3], [2, 3]],
    ),
]


@pytest.mark.parametrize("problemSizes, problemType, expected", SHAPES)
def testEachDeviceGetsTheSizesItMeasured(problemSizes, problemType, expected):
    """A size stands in the file of every device that measured it, in the client's order."""
    config = makeConfig((problemType, problemSizes))
    count = len(expected)
    for index in range(count):
        positions = placeSteps(config, [makeStep("00", count, {0: [[index, 1]]})])
        part = deviceConfig(config, 0, positions)
        if count > 1:
            assert sizesOf(part) == [{"Exact": expected[index]}]
        else:
            assert sizesOf(part) == problemSizes


def testEverythingElseStays():
    """Types, groups, fork parameters, mappings, MinStride, LibraryLogic; DeviceList goes."""
    mapping = {"sizes": [4, 4, 1, 4], "stridesA": [-1, 8]}
    sizes = [{"MinStride": [8, 8, 8, 8]}, {"Exact": mapping}, {"Exact": [1, 1, 1, 1]}]
    config = makeConfig((GEMM, sizes), Device=5, Other=[1])
    before = json.dumps(config)
    step = makeStep("00", 2, {2: [[0, 1]], 3: [[1, 1]]})
    part = deviceConfig(config, 2, placeSteps(config, [step]))
    assert part["GlobalParameters"] == {"Architecture": "gfx90a", "Device": 2, "Other": [1]}
    assert part["LibraryLogic"] == config["LibraryLogic"]
    assert part["BenchmarkProblems"][0][0] == GEMM
    assert part["BenchmarkProblems"][0][1]["ForkParameters"] == [{"A": [1]}]
    assert sizesOf(part) == [{"MinStride": [8, 8, 8, 8]}, {"Exact": mapping}]
    assert json.dumps(config) == before


def testProblemsOfAllListsCount():
    """problem = ((factor * biases + bias) * activations + activation) * sizes + size."""
    sizes = [{"Exact": [n, 1, 1, 1]} for n in (1, 2, 3)]
    config = makeConfig((GEMM, sizes))
    step = makeStep("00", 3, {0: [[3, 1], [10, 1]], 1: [[2, 1]]}, factor=4)
    positions = placeSteps(config, [step])
    assert sizesOf(deviceConfig(config, 0, positions)) == [sizes[0], sizes[1]]
    assert sizesOf(deviceConfig(config, 1, positions)) == [sizes[2]]


def testGroupsAndEntriesWithoutADevicesWorkAreDropped():
    """And a device that measured nothing has no config."""
    one, two, three = ([{"Exact": [n, 1, 1, 1]}] for n in (1, 2, 3))
    other = dict(GEMM, DataType="s")
    config = makeConfig((GEMM, one, two), (other, three))
    steps = [
        makeStep("00", 1, {0: [[0, 1]]}, 1),
        makeStep("01", 1, {1: [[0, 1]]}, 2),
        makeStep("00", 1, {1: [[0, 1]]}, 3, "Other"),
    ]
    positions = placeSteps(config, steps)
    part = deviceConfig(config, 0, positions)
    assert [entry[0] for entry in part["BenchmarkProblems"]] == [GEMM]
    assert sizesOf(part) == one
    part = deviceConfig(config, 1, positions)
    assert [entry[0] for entry in part["BenchmarkProblems"]] == [GEMM, other]
    assert sizesOf(part) == two and sizesOf(part, 1) == three
    assert deviceConfig(config, 2, positions) is None


def testTheSameTypeInTwoEntriesIsToldApart():
    """Their steps have the same names; they are in the config's order."""
    config = makeConfig((GEMM, [{"Exact": [1] * 4}]), (GEMM, [{"Exact": [2] * 4}]))
    steps = [makeStep("00", 1, {0: [[0, 1]]}, 1), makeStep("00", 1, {1: [[0, 1]]}, 2)]
    positions = placeSteps(config, steps)
    assert sizesOf(deviceConfig(config, 0, positions)) == [{"Exact": [1] * 4}]
    assert sizesOf(deviceConfig(config, 1, positions)) == [{"Exact": [2] * 4}]


def testGroupsThatCannotBeCutStayWhole():
    """No sizes of their own, a form that is not known, one grouped problem: all sizes stay."""
    whole = makeStep("00", 2, {0: [[0, 1]]})
    for sizes in (None, [{"Unknown": [1]}], [{"Range": [[0, 8]]}]):
        config = makeConfig((GEMM, sizes))
        positions = {(0, 0): whole}
        assert sizesOf(deviceConfig(config, 0, positions)) == sizes
    grouped = makeConfig((GEMM, [{"Exact": [1] * 4}, {"Exact": [2] * 4}]))
    step = makeStep("00", 2, {0: [[0, 1]]}, problems=1)
    positions = placeSteps(grouped, [step])
    assert len(sizesOf(deviceConfig(grouped, 0, positions))) == 2
    bare = {"BenchmarkProblems": [[GEMM]]}
    part = deviceConfig(bare, 1, placeSteps(bare, [makeStep("00", 4, {1: [[0, 4]]})]))
    assert part == {"BenchmarkProblems": [[GEMM]], "GlobalParameters": {"Device": 1}}


def testFilesAreWrittenAndReadBack(tmp_path):
    """Anchors, non-ASCII and CRLF survive; a rewrite removes what is no longer true."""
    path = tmp_path / "config.yaml"
    path.write_bytes(
        "GlobalParameters: {DeviceList: [0, 1], Note: 'für'}\r\n"
        "BenchmarkProblems:\r\n"
        "- - &type {OperationType: GEMM, DataType: h, Batched: yes}\r\n"
        "  - &group {BenchmarkFinalParameters: [ProblemSizes: [Exact: [1, 1, 1, 1]]]}\r\n"
        "  - *group\r\n".encode()
    )
    steps = [makeStep("00", 1, {0: [[0, 1]]}, 1), makeStep("01", 1, {1: [[0, 1]]}, 2)]
    written = writeDeviceConfigs(str(tmp_path), str(path), steps)
    assert [os.path.basename(name) for name in written] == [
        "config_gpu_0.yaml",
        "config_gpu_1.yaml",
    ]
    for number, name in enumerate(written):
        part = yaml.safe_load(Path(name).read_text())
        assert part["GlobalParameters"] == {"Device": number, "Note": "für"}
        assert part["BenchmarkProblems"][0][0]["Batched"] is True
        assert "&" not in Path(name).read_text()
    steps[1]["devices"] = [{"ordinal": 1, "problems": []}]
    assert len(writeDeviceConfigs(str(tmp_path), str(path), steps)) == 1
    assert not (tmp_path / "config_gpu_1.yaml").exists()
    (tmp_path / "config_gpu_1.yaml").write_text("mine")
    writeDeviceConfigs(str(tmp_path), str(path), steps)
    assert (tmp_path / "config_gpu_1.yaml").read_text() == "mine"


def testAConfigThatCannotBeReadIsAWarning(tmp_path, caplog):
    """The files per device are a convenience: without them the run goes on."""
    path = tmp_path / "config.yaml"
    for text in ("a: [", "- 1", "null", "BenchmarkProblems: 5"):
        path.write_text(text)
        step = makeStep("00", 1, {0: [[0, 1]]})
        assert writeDeviceConfigs(str(tmp_path), str(path), [step]) == [], text
        assert "config.yaml" in caplog.records[-1].getMessage()
    assert writeDeviceConfigs(str(tmp_path), str(tmp_path / "none"), []) == []


def testAlternateFormatBecomesTheDefaultOne(tmp_path):
    """As the host converts it: sizes from the second file, the client only with sizes."""
    base = {"GlobalParameters": {"DeviceList": [0]}, "ProblemType": GEMM, "LibraryLogic": {"a": 1}}
    base.update(ForkParameters=[{"A": [1]}], LibraryClient={"b": 2})
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(base))
    (tmp_path / "s.yaml").write_text("- Exact: [1, 1, 1, 1]\n- Exact: [2, 2, 1, 2]\n")
    config = readConfig(str(tmp_path / "a.yaml"), str(tmp_path / "s.yaml"), True)
    assert config["BenchmarkProblems"][0][0] == GEMM
    assert config["LibraryLogic"] == {"a": 1} and config["LibraryClient"] is None
    assert len(sizesOf(config)) == 2
    without = readConfig(str(tmp_path / "a.yaml"), None, True)
    assert "LibraryLogic" not in without and sizesOf(without) == []


dimension = st.one_of(
    st.lists(st.integers(1, 9), min_size=1, max_size=1),
    st.tuples(st.integers(1, 5), st.integers(1, 12)).map(list),
    st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 12)).map(sorted).map(list),
)


@settings(deadline=None)
@given(st.lists(st.lists(dimension, min_size=1, max_size=4), max_size=3), st.integers(0, 4))
def testDevicesTogetherHaveEverySizeOnce(ranges, devices):
    """However the sizes are dealt out, the devices' files together hold each exactly once."""
    problemSizes = [{"Range": dimensions} for dimensions in ranges]
    problemSizes += [{"Exact": [7, 7, 7, 7]}]
    everything = unrollSizes(problemSizes, 4, 4)
    count = len(everything)
    dealt = {n: [[i, 1] for i in range(count) if i % (devices + 1) == n] for n in range(9)}
    config = makeConfig((GEMM, problemSizes))
    positions = placeSteps(config, [makeStep("00", count, dealt)])
    together = []
    for ordinal in dealt:
        part = deviceConfig(config, ordinal, positions)
        if part is not None:
            together += unrollSizes(sizesOf(part), 4, 4)
    key = json.dumps
    assert sorted(map(key, together)) == sorted(map(key, everything))
