# SPDX-License-Identifier: MIT
"""Tests of the emulated client: real processes, compared with what the real clients left."""

from __future__ import annotations

import ast
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from Tensile.Parallel.ClientConfig import readClientConfig, writeClientConfig
from Tensile.Parallel.EmulatedOutput import LogFile
from Tensile.Parallel.Emulator import EmulatedClient, _age

pytestmark = pytest.mark.unit

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
ROOT = HERE.parents[2]
CLIENT = ROOT / "Tensile" / "bin" / "TensileEmulatedClient"
FOLDERS = sorted(path.parent for path in DATA.glob("*/*/ClientParameters.ini"))
LITE = "tensilelite-2024/full"
CLASSIC = "classic-4.44/full-winner-columns"

# What made the recorded runs go wrong, as the emulator's settings say it.
FAULTS = {
    "launch-error-on-MT64x16": [{"name": "MT64x16", "kind": "error"}],
    "segfault-on-MT64x64": [{"name": "MT64x64", "kind": "crash"}],
}


class Runner:
    """Runs the emulated client on recorded INIs, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results.csv"

    def prepare(self, name: str, **changes) -> Path:
        """A recorded INI with its placeholders filled in and scalars changed (dashes as _)."""
        text = (DATA / name / "ClientParameters.ini").read_text()
        text = text.replace("@SOURCE@", str(DATA / name.split("/")[0]))
        path = self.folder / "client.ini"
        path.write_text(text.replace("@OUT@", str(self.folder)))
        changed = {key.replace("_", "-"): value for key, value in changes.items()}
        writeClientConfig(readClientConfig(path).replaced(changed), path)
        return path

    def settings(self, **values) -> dict:
        """The environment that names these settings."""
        path = self.folder / "emulator.json"
        path.write_text(json.dumps(values))
        return {"TENSILE_EMULATOR": str(path)}

    def start(self, *arguments, environment=None) -> subprocess.Popen:
        """A client as a process of its own."""
        return subprocess.Popen(
            [sys.executable, str(CLIENT), *map(str, arguments)],
            env={**os.environ, **(environment or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments, environment=None):
        """(exit status as a shell shows it, stdout, stderr)."""
        process = self.start(*arguments, environment=environment)
        out, err = process.communicate(timeout=60)
        status = process.returncode
        status = 128 - status if status < 0 else status
        return status, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def table(self):
        """The results file as rows of texts."""
        return [line.split(", ") for line in self.results.read_text().splitlines()]


@pytest.fixture
def runner(tmp_path):
    """A Runner in a fresh folder."""
    return Runner(tmp_path)


def pairLines(out: str):
    """The fields of stdout's pair lines, header first; a line that was cut off is left out."""
    whole, cutMark, _ = out.partition("@CUT@")
    lines = whole.rstrip("\n").split("\n")
    if cutMark:
        lines.pop()
    return [row for row in csv.reader(lines) if row and (row[0] == "run" or row[0].isdigit())]


def prefix(header):
    """How many columns come before the winner's, per generation."""
    return header.index("LDB") + 1


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_agreesWithTheRecordedClient(runner, folder):
    """Everything but measured numbers and times of day equals what the real client left."""
    name = "%s/%s" % (folder.parent.name, folder.name)
    environment = runner.settings(faults=FAULTS.get(folder.name, []))
    if folder.name == "no-device":
        environment["TENSILE_EMULATED_DEVICES"] = "0"
    status, out, err = runner.run("--config-file", runner.prepare(name), environment=environment)
    recorded = (folder / "exit.txt").read_text().split("\n")
    assert status == int(recorded[0])
    if folder.name == "no-device":
        assert "no ROCm-capable device is detected" in err
        assert err.split("\n")[0] == recorded[1]
        assert not runner.results.exists()
        return
    compareResults(folder / "results.csv", runner)
    comparePairLines((folder / "stdout.txt").read_text(), out)


def compareResults(path: Path, runner: Runner) -> None:
    """Header, rows in order, sizes, leading dimensions, TotalFlops, failed cells."""
    theirs = [line.split(", ") for line in path.read_text().splitlines()]
    ours = runner.table()
    assert len(ours) == len(theirs)
    if not theirs:
        return
    header = theirs[0]
    assert ours[0] == header
    last = prefix(header)
    flops = header.index("TotalFlops")
    solutions = [n for n, name in enumerate(header) if name.startswith("Cijk_")]
    for mine, yours in zip(ours[1:], theirs[1:]):
        assert len(mine) == len(yours)
        assert mine[:last] == yours[:last]
        assert mine[flops] == yours[flops]
        assert [mine[n] == "-1" for n in solutions] == [yours[n] == "-1" for n in solutions]


def comparePairLines(theirs: str, ours: str) -> None:
    """Header, fields, progress, sizes, names, validation, granularities, blanks, pluses."""
    recorded, emulated = pairLines(theirs), pairLines(ours)
    if "@CUT@" not in theirs:
        assert len(emulated) == len(recorded)
    header = recorded[0]
    assert emulated[0] == header
    measured = {header.index(name) for name in ("time-us", "gflops", "enqueue-time")}
    for mine, yours in zip(emulated[1:], recorded[1:]):
        assert len(mine) == len(yours)
        for column, (a, b) in enumerate(zip(mine, yours)):
            if column in measured:
                assert (a in ("", "-nan")) == (b in ("", "-nan"))
            else:
                assert a == b, header[column]
    if "@CUT@" not in theirs:
        assert ours.count("\n++++") == theirs.count("\n++++")
    elif "\n++++" not in theirs:
        assert "\n++++" not in ours or "bias-type" in header


def test_saysThatItIsEmulated(runner):
    """Computed numbers must not be taken for measured ones."""
    status, out, _ = runner.run("--config-file", runner.prepare(LITE))
    assert status == 0
    assert out.startswith("# emulated client: times are computed, not measured\n")


@pytest.mark.parametrize("name", [LITE, CLASSIC])
def test_speedTimeAndWinnerBelongTogether(runner, name):
    """gflops = flops / time; a row's winner is its greatest cell, the first of equals."""
    _, out, _ = runner.run("--config-file", runner.prepare(name, csv_export_extra_cols="1"))
    table = runner.table()
    header = table[0]
    first = min(n for n, column in enumerate(header) if column.startswith("Cijk_"))
    lines = pairLines(out)
    time_us, speed = lines[0].index("time-us"), lines[0].index("gflops")
    winners = set()
    for row in table[1:]:
        own = [line for line in lines[1:] if line[1].split("/")[0] == row[0]]
        assert [line[speed] for line in own] == row[first:]
        flops = int(row[header.index("TotalFlops")])
        for line in own:
            assert flops / float(line[time_us]) / 1000 == pytest.approx(float(line[speed]), 1e-4)
        cells = [float(cell) for cell in row[first:]]
        best = cells.index(max(cells))
        assert row[header.index("WinnerIdx")] == str(best)
        assert row[header.index("WinnerName")] == header[first + best]
        assert row[header.index("WinnerGFlops")] == row[first + best]
        winners.add(best)
    assert len(winners) > 1, "winners should differ between sizes"


def cut(runner, name, *options):
    """The table of one run with these options."""
    status, _, err = runner.run("--config-file", runner.prepare(name), *options)
    assert status == 0, err
    return runner.table()


@pytest.mark.parametrize("name", [LITE, CLASSIC])
def test_rangesOfProblemsAreRowsOfTheWhole(runner, name):
    """Global indices, the whole's cells, whatever else is in the range."""
    whole = cut(runner, name)
    for first, count in ((0, 1), (2, 3), (len(whole) - 2, 1)):
        part = cut(runner, name, "--problem-start-idx", first, "--num-problems", count)
        assert part == whole[:1] + whole[1 + first : 1 + first + count]


def test_rangesOfSolutionsAreColumnsOfTheWhole(runner):
    """Only the range's columns; WinnerIdx counts within the range, WinnerName is right."""
    whole = cut(runner, LITE)
    part = cut(runner, LITE, "--solution-start-idx=8", "--num-solutions=8")
    for mine, full in zip(part, whole):
        assert mine[:10] == full[:10]
        assert mine[16:] == full[24:32]
    for row in part[1:]:
        cells = [float(cell) for cell in row[16:]]
        best = cells.index(max(cells))
        assert row[14:16] == [str(best), part[0][16 + best]]


def test_aCutIniGivesTheRowsOfTheWhole(runner):
    """Times depend on the problem and not on its index: fewer sizes, the same numbers."""
    whole = cut(runner, LITE)
    path = runner.prepare(LITE)
    writeClientConfig(readClientConfig(path).withSizes([4, 1]), path)
    assert runner.run("--config-file", path)[0] == 0
    part = runner.table()
    assert [row[1:] for row in part[1:]] == [whole[5][1:], whole[2][1:]]
    assert [row[0] for row in part[1:]] == ["0", "1"]


def test_biasAndActivationMakeDifferentRows(runner):
    """Only the index tells these rows apart; a mix-up must show in the numbers."""
    table = cut(runner, "tensilelite-2024/two-activations-two-biases")
    assert len({tuple(row[16:]) for row in table[1:]}) == 24


@pytest.mark.parametrize(
    "name, options, status, rows",
    [
        (LITE, "--problem-start-idx 4 --num-problems 3", 139, 2),
        (LITE, "--problem-start-idx 4", 139, 2),
        (LITE, "--problem-start-idx 6 --num-problems 1", 134, 0),
        (LITE, "--solution-start-idx 20 --num-solutions 5", 134, 0),
        (LITE, "--solution-start-idx 24 --num-solutions 1", 134, 0),
        (LITE, "--num-problems 0", 0, 0),
        (CLASSIC, "--problem-start-idx 7 --num-problems 3", 134, None),
        (CLASSIC, "--solution-start-idx 4 --num-solutions 3", 134, None),
        (CLASSIC, "--num-problems 0", 0, 0),
    ],
)
def test_rangesThatAreTooLong(runner, name, options, status, rows):
    """139 after the last real problem, 134 with the row lost; classic looks first: no file."""
    path = runner.prepare(name, csv_merge_same_problems="0")
    assert runner.run("--config-file", path, *options.split())[0] == status
    if rows is None:
        assert not runner.results.exists()
    else:
        content = runner.results.read_text().splitlines()
        assert len(content) == (rows + 1 if rows else 0)


@pytest.mark.parametrize("merge, rows", [("0", [0, 1]), ("1", [])])
def test_whatIsInTheFileWhenAClientIsKilled(runner, merge, rows):
    """Row by row without merging; with it the header alone until the end."""
    environment = runner.settings(faults=[{"problem": 2, "solution": 3, "kind": "hang"}])
    path = runner.prepare(LITE, csv_merge_same_problems=merge)
    process = runner.start("--config-file", path, environment=environment)
    try:
        seen = b""
        while not seen.startswith(b"0,2/5,2/23"):
            seen = process.stdout.readline()  # each line is flushed as its pair is finished
            assert seen, process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    table = runner.table()
    assert table[0][0] == "GFlops"
    assert [int(row[0]) for row in table[1:]] == rows


def test_severalPasses(runner):
    """num-benchmarks repeats the rows; merged, they are once there. icache values likewise."""
    path = runner.prepare(LITE, num_benchmarks="2", csv_merge_same_problems="0")
    _, out, _ = runner.run("--config-file", path)
    assert [row[0] for row in runner.table()[1:]] == list("012345") * 2
    assert [line[0] for line in pairLines(out)[1:]] == ["0"] * 144 + ["1"] * 144
    twice = runner.table()[:7]
    assert cut(runner, "tensilelite-2024/two-passes", "--csv-merge-same-problems", "1") == twice
    path = runner.prepare(LITE, csv_merge_same_problems="0")
    text = path.read_text() + "icache-flush-args=True\n"
    path.write_text(text)
    _, out, _ = runner.run("--config-file", path)
    assert [row[0] for row in runner.table()[1:]] == list("012345") * 2
    assert {line[0] for line in pairLines(out)[1:]} == {"0"}


def test_mergedPassesKeepWhatTheClientKeeps(runner):
    """Its comparison truncates to integers and reads 1 in 1.7e+06, so 900000 stays."""
    faults = [
        {"problem": 0, "solution": 0, "run": 0, "kind": "value", "speed": "900000"},
        {"problem": 0, "solution": 0, "run": 1, "kind": "value", "speed": "1.7e+06"},
        {"problem": 0, "solution": 1, "run": 0, "kind": "value", "speed": "5"},
        {"problem": 0, "solution": 1, "run": 1, "kind": "value", "speed": "6"},
    ]
    environment = runner.settings(faults=faults)
    path = runner.prepare("tensilelite-2024/two-passes", csv_merge_same_problems="1")
    runner.run("--config-file", path, environment=environment)
    assert runner.table()[1][16:18] == ["900000", "6"]


def test_groupedGemmIsOneRow(runner):
    """One problem of all sizes: one row with the first size, all sizes in stdout."""
    status, out, _ = runner.run("--config-file", runner.prepare(LITE, grouped_gemm="True"))
    assert status == 0
    assert len(runner.table()) == 2
    assert pairLines(out)[1][4].startswith("((1024,1024,1,1024),(128,128,1,128),")


def test_bestSolutionIsARaggedFile(runner):
    """One solution per problem, WinnerIdx 0; the header knows only the first problem's."""
    status, out, _ = runner.run("--config-file", runner.prepare(LITE), "--best-solution", "1")
    table = runner.table()
    assert status == 0 and len(table) == 7 and len(table[0]) == 17
    assert {row[14] for row in table[1:]} == {"0"}
    assert table[1][15] == table[0][16]
    assert {line[2] for line in pairLines(out)[1:]} == {"0/1"}


def test_failuresOfTheCommandLine(runner):
    """Unknown option, bad value, stray argument, missing INI: 134 with a word on stderr."""
    path = runner.prepare(LITE)
    for options in (
        ["--no-such-option", "1"],
        ["--num-problems", "many"],
        ["stray"],
        ["--log-file"],
        ["--num-problems", "1", "--num-problems", "2"],
    ):
        status, _, err = runner.run("--config-file", path, *options)
        assert status == 134 and "terminate called" in err, options
    status, _, err = runner.run("--config-file", runner.folder / "none.ini")
    assert status == 134 and "library" in err
    assert runner.run("--help")[0] == 1
    assert not runner.results.exists()


def test_iniDetails(runner):
    """Unknown keys are ignored; a scalar twice ends the client; the first INI wins."""
    path = runner.prepare(LITE)
    second = runner.folder / "second.ini"
    second.write_text("results-file=other.csv\nnum-problems=2\nproblem-start-idx=0\n")
    assert runner.run("--config-file", path, "--config-file", second)[0] == 0
    assert len(runner.table()) == 3 and not (runner.folder / "other.csv").exists()
    text = path.read_text()
    path.write_text(text + "a-key-of-tomorrow=1\n")
    assert runner.run("--config-file", path)[0] == 0
    path.write_text(text + "device-idx=0\n")
    assert runner.run("--config-file", path)[0] == 134


def test_missingFiles(runner):
    """No library: 139 without a word. No folder for the results: 0 and no file."""
    path = runner.prepare(LITE, library_file=str(runner.folder / "none.yaml"))
    status, _, err = runner.run("--config-file", path)
    assert (status, err) == (139, "")
    path = runner.prepare(LITE, results_file=str(runner.folder / "none" / "r.csv"))
    status, _, err = runner.run("--config-file", path)
    assert (status, err) == (0, "")
    assert not runner.results.exists()


def test_relativePathsAndDefaults(runner):
    """Relative to the working directory; without the key the file is results.csv."""
    status, _, _ = runner.run("--config-file", runner.prepare(LITE, results_file=None))
    assert status == 0 and len(runner.table()) == 7


def test_extraColumnsAndCuEfficiency(runner):
    """csv-export-extra-cols=0 drops six columns; CUEfficiency names column 1 differently."""
    table = cut(runner, LITE, "--csv-export-extra-cols", "0")
    assert table[0][9:11] == ["TotalFlops", table[0][10]] and table[0][10].startswith("Cijk_")
    per_unit = cut(runner, LITE, "--performance-metric", "CUEfficiency")
    assert per_unit[0][0] == "GFlopsPerCU"


@pytest.mark.parametrize("level, lines", [("Error", 0), ("Terse", 0), ("Normal", 144)])
def test_logLevels(runner, level, lines):
    """Error and Terse suppress the lines: then only the CSV tells."""
    path = runner.prepare(LITE, log_level=level)
    _, out, _ = runner.run("--config-file", path)
    assert len(pairLines(out)) == 1 + lines
    assert len(runner.table()) == 7
    assert ("Loading " in out) is False


def test_winnersOnly(runner):
    """PrintWinnersOnly shows a pair only where it beats those before it."""
    path = runner.prepare(LITE, PrintWinnersOnly="True")
    _, out, _ = runner.run("--config-file", path)
    lines = pairLines(out)[1:]
    assert 6 < len(lines) < 144
    for problem in range(6):
        times = [float(line[10]) for line in lines if line[1] == "%d/5" % problem]
        assert times == sorted(times, reverse=True)


def test_logFile(runner):
    """log-file gets the same lines; log-file-append adds to it."""
    path = runner.prepare(LITE, log_level="Error")
    options = ["--config-file", path, "--log-file", "log.txt"]
    runner.run(*options)
    log = runner.folder / "log.txt"
    assert len(pairLines(log.read_text())) == 145
    runner.run(*options, "--log-file-append", "1")
    assert len(pairLines(log.read_text())) == 290


def test_libraryUpdateFile(runner, tmp_path):
    """The best solution's index in its logic and its speed; none where the library has no index."""
    text = (DATA / "tensilelite-2024" / "library" / "TensileLibrary.yaml").read_text()
    parts = text.split("libraryLogicIndex: -1")
    numbers = ["libraryLogicIndex: %d" % (1000 + n) for n in range(len(parts) - 1)] + [""]
    library = tmp_path / "TensileLibrary.yaml"
    library.write_text("".join(part + number for part, number in zip(parts, numbers)))
    path = runner.prepare(LITE, library_update_file="update.yaml", library_update_comment="1")
    runner.run("--config-file", path, "--library-file", library)
    lines = (runner.folder / "update.yaml").read_text().split("\n")
    row = runner.table()[1]
    assert lines[0] == "  - - [1024, 1024, 1, 1024]"
    assert lines[1] == "    - [%d, %s] # %s" % (1000 + int(row[14]), row[12], row[15])
    runner.run("--config-file", path)
    lines = (runner.folder / "update.yaml").read_text().split("\n")
    assert lines[0] == "# [1024, 1024, 1, 1024] no valid solutions."


@pytest.mark.parametrize(
    "variables, index, device",
    [
        ({"TENSILE_EMULATED_DEVICES": "4"}, 2, 2),
        ({"TENSILE_EMULATED_DEVICES": "8", "HIP_VISIBLE_DEVICES": "3,5,6"}, 1, 5),
        ({"TENSILE_EMULATED_DEVICES": "8", "ROCR_VISIBLE_DEVICES": "3"}, 0, 3),
        (
            {
                "TENSILE_EMULATED_DEVICES": "8",
                "ROCR_VISIBLE_DEVICES": "4,5",
                "HIP_VISIBLE_DEVICES": "1",
            },
            0,
            5,
        ),
        ({"TENSILE_EMULATED_DEVICES": "4", "CUDA_VISIBLE_DEVICES": "3"}, 0, 3),
        (
            {
                "TENSILE_EMULATED_DEVICES": "4",
                "CUDA_VISIBLE_DEVICES": "3",
                "HIP_VISIBLE_DEVICES": "",
            },
            0,
            3,
        ),
        (
            {
                "TENSILE_EMULATED_DEVICES": "4",
                "CUDA_VISIBLE_DEVICES": "3",
                "HIP_VISIBLE_DEVICES": "1",
            },
            0,
            1,
        ),
        ({"TENSILE_EMULATED_DEVICES": "4", "HIP_VISIBLE_DEVICES": "0, 1"}, 1, None),
        ({"TENSILE_EMULATED_DEVICES": "4", "HIP_VISIBLE_DEVICES": "-1"}, 0, None),
        ({"TENSILE_EMULATED_DEVICES": "4", "ROCR_VISIBLE_DEVICES": ""}, 0, None),
        ({"TENSILE_EMULATED_DEVICES": "4", "HIP_VISIBLE_DEVICES": "2"}, 1, None),
        ({}, 0, 0),
        ({}, 1, None),
    ],
)
def test_masks(runner, variables, index, device):
    """The emulated devices obey the visibility variables; what is not visible is 134."""
    record = runner.folder / "record.jsonl"
    environment = {**variables, **runner.settings(record=str(record))}
    path = runner.prepare(LITE, num_problems="1", problem_start_idx="0", device_idx=str(index))
    status, _, err = runner.run("--config-file", path, environment=environment)
    if device is None:
        assert status == 134 and "terminate called" in err
        assert not runner.results.exists()
    else:
        events = readRecord(record)
        assert status == 0 and {event["device"] for event in events} == {device}


def readRecord(path: Path):
    """The record's lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_recordTellsWhatRan(runner):
    """Start, every pair with its time span, end."""
    record = runner.folder / "record.jsonl"
    path = runner.prepare(LITE, num_problems="2", problem_start_idx="1")
    runner.run("--config-file", path, environment=runner.settings(record=str(record)))
    events = readRecord(record)
    assert [event["event"] for event in events] == ["start"] + ["pair"] * 48 + ["end"]
    assert [(e["problem"], e["solution"]) for e in events[1:-1]] == [
        (problem, solution) for problem in (1, 2) for solution in range(24)
    ]
    assert all(event["begin"] <= event["monotonic"] for event in events[1:-1])
    assert events[-1]["exit"] == 0
    assert events[1]["size"] == "128,128,1,128"


def test_twoClientsOnOneDeviceAreReported(runner):
    """Said on stderr and in the record; on two devices there is nothing to say."""
    record = runner.folder / "record.jsonl"
    settings = runner.settings(
        record=str(record), faults=[{"device": 0, "run": 0, "kind": "hang", "times": 1}]
    )
    environment = {"TENSILE_EMULATED_DEVICES": "2", **settings}
    path = runner.prepare(LITE)
    first = runner.start("--config-file", path, environment=environment)
    try:
        wait(lambda: record.exists() and "fault" in record.read_text())
        _, _, err = runner.run("--config-file", path, environment=environment)
        assert err == "EMULATOR: two clients on device 0\n"
        _, _, err = runner.run("--config-file", path, "--device-idx=1", environment=environment)
        assert err == ""
    finally:
        first.kill()
        first.communicate()
    assert [e["device"] for e in readRecord(record) if e["event"] == "conflict"] == [0]
    assert runner.run("--config-file", path, environment=environment)[2] == ""


def wait(condition, seconds=30.0):
    """Until it holds, or an error after a generous time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_lockFolderIsPrivate(runner, tmp_path):
    """Without a folder of ours a private one is made; somebody else's is not trusted."""
    environment = {"TENSILE_PARALLEL_LOCK_DIR": "", "XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)}
    path = runner.prepare(LITE, num_problems="1", problem_start_idx="0")
    assert runner.run("--config-file", path, environment=environment)[2] == ""
    folder = tmp_path / ("tensile-emulated-%d" % os.getuid())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "emulator-gpu-0.busy").stat().st_mode & 0o077 == 0
    folder.chmod(0o777)
    status, _, err = runner.run("--config-file", path, environment=environment)
    assert status == 0 and "not a folder of this user alone" in err


@pytest.mark.parametrize(
    "rule, status",
    [
        ({"kind": "crash"}, 139),
        ({"kind": "crash", "signal": 6}, 134),
        ({"kind": "exit", "status": 3}, 3),
        ({"kind": "exit", "status": 4, "when": "start"}, 4),
        ({"kind": "torn-row"}, 134),
    ],
)
def test_faultsThatEndTheClient(runner, rule, status):
    """By a real signal or status, and with what was finished before in the file."""
    if "when" not in rule:
        rule = dict(rule, problem=2, solution=1)
    path = runner.prepare(LITE, csv_merge_same_problems="0")
    environment = runner.settings(faults=[rule])
    assert runner.run("--config-file", path, environment=environment)[0] == status
    text = runner.results.read_text()
    assert len(text.splitlines()) == (0 if "when" in rule else 3 + (rule["kind"] == "torn-row"))
    assert text.endswith("\n") == (rule["kind"] != "torn-row") or not text


def test_crashIsARealSignal(runner):
    """A parent must see what it sees of the real client."""
    environment = runner.settings(faults=[{"kind": "crash"}])
    process = runner.start("--config-file", runner.prepare(LITE), environment=environment)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGSEGV


def test_validation(runner):
    """PASSED; failures are counted, their cells -1, though the Winner columns may name them."""
    path = runner.prepare(LITE, num_elements_to_validate="128")
    status, out, _ = runner.run("--config-file", path)
    assert status == 0 and {line[9] for line in pairLines(out)[1:]} == {"PASSED"}
    winner = int(runner.table()[1][14])
    rules = [{"problem": 3, "kind": "invalid"}]
    rules.append({"problem": 0, "solution": winner, "kind": "invalid"})
    environment = runner.settings(faults=rules)
    status, out, _ = runner.run("--config-file", path, environment=environment)
    row = runner.table()[1]
    assert status == 25
    assert row[14] == str(winner) and row[16 + winner] == "-1" and float(row[12]) > 0
    options = ["--config-file", path, "--num-benchmarks=40"]
    assert runner.run(*options, environment=environment)[0] == 255


def test_exitOnError(runner):
    """The first failure ends the run with 1, and its row is lost."""
    path = runner.prepare(LITE, num_elements_to_validate="1", csv_merge_same_problems="0")
    path.write_text(path.read_text() + "exit-on-error=1\n")
    environment = runner.settings(faults=[{"problem": 1, "solution": 2, "kind": "invalid"}])
    status, out, _ = runner.run("--config-file", path, environment=environment)
    assert status == 1 and len(runner.table()) == 2
    assert pairLines(out)[-1][1:3] == ["1/5", "2/23"]


def test_absurdValuesWinInTheRealClient(runner):
    """-nan time and a huge speed take the Winner columns; the merged file must not believe it."""
    environment = runner.settings(faults=[{"problem": 1, "solution": 5, "kind": "huge"}])
    status, out, _ = runner.run("--config-file", runner.prepare(LITE), environment=environment)
    row = runner.table()[2]
    assert status == 0 and row[14] == "5" and row[21] == "9223372036854775808"
    assert [line[10:12] for line in pairLines(out) if line[1:3] == ["1/5", "5/23"]] == [
        ["-nan", "9223372036854775808"]
    ]


def test_noCsvNoiseSlow(runner):
    """Exit 0 without a file; megabytes of bytes on both outputs; a pair that takes its time."""
    path = runner.prepare(LITE)
    environment = runner.settings(faults=[{"problem": 0, "solution": 0, "kind": "no-csv"}])
    assert runner.run("--config-file", path, environment=environment)[0] == 0
    assert not runner.results.exists()
    rule = {"problem": 0, "solution": 0, "kind": "noise", "megabytes": 1}
    status, out, err = runner.run("--config-file", path, environment=runner.settings(faults=[rule]))
    assert status == 0 and len(runner.table()) == 7
    assert len(out) > 2**20 and len(err) > 2**20
    rule = {"problem": 0, "solution": 0, "kind": "slow", "seconds": 0.3}
    begin = time.monotonic()
    runner.run("--config-file", path, environment=runner.settings(faults=[rule]))
    assert time.monotonic() - begin >= 0.3


def test_faultsFireSoManyTimesOverAllProcesses(runner):
    """`times` is counted across clients, `device` means the physical one."""
    rule = {"problem": 0, "solution": 0, "kind": "exit", "status": 7, "times": 2, "device": 0}
    environment = {"TENSILE_EMULATED_DEVICES": "2", **runner.settings(faults=[rule])}
    path = runner.prepare(LITE)
    statuses = []
    for hip in ("1", "0", "0", "1", "0"):
        changed = {**environment, "HIP_VISIBLE_DEVICES": hip}
        statuses.append(runner.run("--config-file", path, environment=changed)[0])
    assert statuses == [0, 7, 7, 0, 0]


def test_wallTimes(runner):
    """startSeconds, pairSeconds by size, index or for all, and slowness: at least that long."""
    path = runner.prepare(LITE, num_problems="1", problem_start_idx="1")
    tick = 1 / os.sysconf("SC_CLK_TCK")  # as exactly is a process's start known
    for pair in (0.02, {"128,128,1,128": 0.02}, {"1": 0.02}, {"default": 0.02}, [0, 0.02]):
        environment = runner.settings(pairSeconds=pair, startSeconds=0.1)
        begin = time.monotonic()
        assert runner.run("--config-file", path, environment=environment)[0] == 0
        assert time.monotonic() - begin >= 24 * 0.02 + 0.1 - tick
    environment = runner.settings(pairSeconds=0.01, deviceSlowness={"0": 2.0})
    begin = time.monotonic()
    runner.run("--config-file", path, environment=environment)
    assert time.monotonic() - begin >= 24 * 0.02


def test_startIncludesPython(runner, monkeypatch):
    """startSeconds counts from the process's start: what that took already is not waited again."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    path = str(runner.prepare(LITE, num_problems="1"))
    environment = {**os.environ, **runner.settings(startSeconds=1000.0)}
    for age in (0.0, 600.0, 2000.0):
        client = EmulatedClient(["--config-file", path], environment, age)
        client.stdout = LogFile(-1, 0, False, False)
        assert client.run() == 0
    assert slept[0] == pytest.approx(1000.0, abs=10) and slept[1] == pytest.approx(400.0, abs=10)
    assert slept[2] == 0.0
    before = _age()
    begun = time.monotonic()
    while time.monotonic() - begun < 0.05:
        pass
    assert 0 < before < _age() < 86400


def test_deviceFactorsChangeWhatIsMeasured(runner):
    """A device that is a tenth slower measures a tenth less, and no winner changes."""
    whole = cut(runner, LITE)
    environment = runner.settings(deviceFactors={"0": 1.1})
    runner.run("--config-file", runner.prepare(LITE), environment=environment)
    slower = runner.table()
    for mine, full in zip(slower[1:], whole[1:]):
        assert mine[14] == full[14]
        for a, b in zip(mine[16:], full[16:]):
            assert float(a) * 1.1 == pytest.approx(float(b), 1e-4)


def test_coldDeviceIsSlowAtFirst(runner):
    """coldFactor: the first pair of a process on a device that was idle for long, or never used."""
    whole = cut(runner, LITE)
    path = runner.prepare(LITE)
    locks = runner.folder / "devices"
    environment = {"TENSILE_PARALLEL_LOCK_DIR": str(locks), "TENSILE_EMULATED_DEVICES": "2"}

    def slowCells():
        status, _, err = runner.run("--config-file", path, environment=environment)
        assert status == 0 and not err
        rows = zip(whole[1:], runner.table()[1:])
        cells = [cell for warm, found in rows for cell in zip(warm[16:], found[16:])]
        return [float(warm) / float(found) for warm, found in cells if warm != found]

    environment.update(runner.settings(coldFactor=3, coldAfterSeconds=1000))
    assert slowCells() == [pytest.approx(3.0, 1e-3)]
    assert slowCells() == []
    environment["HIP_VISIBLE_DEVICES"] = "1"
    assert slowCells() == [pytest.approx(3.0, 1e-3)]
    used = time.time() - 1001
    os.utime(locks / "emulator-gpu-1.busy", (used, used))
    assert slowCells() == [pytest.approx(3.0, 1e-3)]
    assert time.time() - os.stat(locks / "emulator-gpu-1.busy").st_mtime < 100
    assert slowCells() == []


def test_badSettingsAreSaid(runner):
    """A mistake in the settings must not look like a client that failed."""
    for text in ("{", "[]", '{"faults": [{"kind": "sulk"}]}'):
        (runner.folder / "bad.json").write_text(text)
        environment = {"TENSILE_EMULATOR": str(runner.folder / "bad.json")}
        status, _, err = runner.run("--config-file", "x.ini", environment=environment)
        assert status == 2 and err.startswith("EMULATOR: ")


def test_worksByPathWhateverElseIsCalledTensile(runner, tmp_path):
    """Another Tensile on the path, another working directory, a symbolic link: our modules."""
    other = tmp_path / "other" / "Tensile"
    (other / "Parallel").mkdir(parents=True)
    (other / "__init__.py").write_text("raise RuntimeError('the wrong Tensile')\n")
    link = tmp_path / "client"
    link.symlink_to(CLIENT)
    path = runner.prepare(LITE)
    environment = {**os.environ, "PYTHONPATH": str(other.parent)}
    command = [str(link), "--config-file", str(path)]
    done = subprocess.run(command, env=environment, cwd=other, stdout=subprocess.DEVNULL)
    assert done.returncode == 0 and len(runner.table()) == 7


def test_importsNothingHeavy(runner):
    """It is started thousands of times: no joblib, no YAML, and msgpack only for msgpack."""
    code = (
        "import runpy, sys\n"
        "sys.argv = ['client', '--config-file', %r]\n"
        "try:\n    runpy.run_path(%r, run_name='__main__')\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'joblib', 'yaml', 'msgpack', 'json', 'numpy', 'tempfile'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)\n"
    ) % (str(runner.prepare(LITE)), str(CLIENT))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr


def test_filesAreWrittenForPython39():
    """Nothing newer than Python 3.9's grammar."""
    for path in sorted((ROOT / "Tensile" / "Parallel").glob("*.py")) + [CLIENT]:
        ast.parse(path.read_text(), str(path), feature_version=(3, 9))
