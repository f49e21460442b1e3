# SPDX-License-Identifier: MIT
"""What an output folder holds of earlier runs, and what the host may skip."""

import json
import os

import pytest

from Tensile.Parallel.History import (
    History,
    hashInputs,
    isUntouched,
    outputMarks,
    readHistory,
    setAsideUnfinished,
)
from Tensile.Parallel.StepFolder import changedInputs, fileMark

pytestmark = pytest.mark.unit


@pytest.fixture
def merged(tmp_path):
    """A finished run's output tree with two groups, as hosts lay it out."""
    folder = tmp_path / "merged"
    for group in ("Cijk_SB_00", "Cijk_SB_01"):
        data = folder / "1_BenchmarkProblems" / group / "Data"
        data.mkdir(parents=True)
        (data / "00_Final.csv").write_text("results of %s\n" % group)
        (data / "00_Final.yaml").write_text("solutions of %s\n" % group)
        (data / "00_Final_Granularity.csv").write_text("granularity\n")
        copies = folder / "2_BenchmarkData"
        copies.mkdir(exist_ok=True)
        (copies / (group + ".csv")).write_text("results of %s\n" % group)
        (copies / (group + ".yaml")).write_text("solutions of %s\n" % group)
    logic = folder / "3_LibraryLogic"
    logic.mkdir()
    (logic / "logic.yaml").write_text("logic\n")
    return folder


def stepsOf(merged, **changes):
    """step.json of both groups."""
    results = sorted((merged / "1_BenchmarkProblems").glob("*/Data/00_Final.csv"))
    return [
        {"state": "finished", "resultsFile": str(path), "file": fileMark(path), **changes}
        for path in results
    ]


def names(moved, merged):
    return sorted(os.path.relpath(path, merged) for path in moved)


def test_finishedStepsMayBeSkipped(merged):
    """Whole results with whole copies stay where they are."""
    before = outputMarks(str(merged))
    assert setAsideUnfinished(str(merged), stepsOf(merged)) == []
    assert outputMarks(str(merged)) == before


@pytest.mark.parametrize(
    "change",
    [
        {"state": "running"},
        {"state": "stopped"},
        {"leftOver": 3},
        {"exit": 2},
        {"file": None},
        {"file": [1, 2]},
    ],
)
def test_whatIsNotFinishedIsDoneAgain(merged, change):
    """Results of a step that did not end, or that somebody changed, and all copies of them."""
    moved = setAsideUnfinished(str(merged), stepsOf(merged, **change))
    assert len(moved) == 6
    assert not list(merged.glob("2_BenchmarkData/*.csv"))
    assert not list(merged.glob("1_BenchmarkProblems/*/Data/00_Final.csv"))
    kept = merged / "1_BenchmarkProblems" / "Cijk_SB_00" / "Data" / "00_Final.csv.previous"
    assert kept.read_text() == "results of Cijk_SB_00\n"


@pytest.mark.parametrize("name", ["Cijk_SB_01.csv", "Cijk_SB_01.yaml"])
@pytest.mark.parametrize("how", ["cut", "missing"])
def test_copiesThatWereCutShortAreMadeAgain(merged, name, how):
    """The host was killed while it copied: the group is done again, its results are kept."""
    path = merged / "2_BenchmarkData" / name
    if how == "cut":
        path.write_text(path.read_text()[:5])
    else:
        path.unlink()
    setAsideUnfinished(str(merged), stepsOf(merged))
    left = sorted(p.name for p in (merged / "2_BenchmarkData").iterdir() if ".prev" not in p.name)
    assert "Cijk_SB_00.csv" in left and "Cijk_SB_00.yaml" in left
    assert "Cijk_SB_01.csv" not in left
    assert len(list(merged.glob("1_BenchmarkProblems/*/Data/00_Final.csv"))) == 2


def test_untouchedMeansEveryFile(merged):
    """A finished run's files are as they were: one that is gone, new or changed is noticed."""
    history = History({}, ["a"])
    assert not isUntouched(history, str(merged))
    history.finished = {"exit": 0, "time": 0.0, "files": outputMarks(str(merged))}
    assert isUntouched(history, str(merged))
    logic = merged / "3_LibraryLogic" / "logic.yaml"
    logic.write_text("changed\n")
    assert not isUntouched(history, str(merged))
    logic.unlink()
    assert not isUntouched(history, str(merged))


def test_historyIsReadAsItWasWritten(tmp_path):
    """Round trip; what is missing, torn or of another version is no history."""
    assert readHistory(str(tmp_path)) is None
    history = History({"the config": "x"}, ["a", "b"], {"exit": 1, "time": 2.0, "files": {}})
    history.write(str(tmp_path))
    assert readHistory(str(tmp_path)) == history
    path = tmp_path / "history.json"
    whole = path.read_text()
    for text in ("", whole[:20], "[]", json.dumps({"version": 99}), json.dumps({"version": 1})):
        path.write_text(text)
        assert readHistory(str(tmp_path)) is None


def test_inputsAreNamedWhereTheyDiffer(tmp_path):
    """Whatever results depend on is noticed and named; what they do not depend on is not."""
    tree = tmp_path / "tree"
    (tree / "Tensile" / "Parallel").mkdir(parents=True)
    source = tree / "Tensile" / "Common.py"
    source.write_text("a = 1\n")
    config, client = tmp_path / "config.yaml", tmp_path / "client"
    config.write_text("x")
    client.write_text("y")

    def now(options=("-x",), architecture="gfx90a"):
        return hashInputs([str(config)], options, str(client), str(tree), architecture)

    before = now()
    assert changedInputs(before, now()) == []
    (tree / "Tensile" / "Parallel" / "Ours.py").write_text("b")
    (tree / "Tensile" / "__pycache__").mkdir()
    (tree / "Tensile" / "__pycache__" / "Common.pyc").write_text("c")
    assert changedInputs(before, now()) == []
    assert changedInputs(before, now(options=("-v", "-x", "--verbose"))) == []
    assert changedInputs(before, now(options=("-x", "y"))) == ["Tensile's options"]
    assert changedInputs(before, now(architecture="gfx942")) == ["the architecture"]
    (tree / "Tensile" / "kernel.s").write_text("s_nop 0")
    assert changedInputs(before, now()) == ["Tensile itself"]
    config.write_text("X")
    client.write_text("Y")
    source.write_text("a = 2\n")
    assert changedInputs(before, now()) == ["the config", "the client", "Tensile itself"]
