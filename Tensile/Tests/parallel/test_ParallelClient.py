# SPDX-License-Identifier: MIT
"""The parallel client against the emulated client: the same command, the same file."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit


def serial(runScript, recorded, *arguments, devices=1, environment=None):
    """Runs the emulated client by itself; returns (exit status, results)."""
    results = recorded.into / "serial.csv"
    done = runScript(
        "TensileEmulatedClient",
        "--config-file",
        recorded.ini,
        "--results-file",
        results,
        *arguments,
        environment={"TENSILE_EMULATED_DEVICES": str(devices), **(environment or {})},
    )
    return done, results.read_bytes() if results.exists() else None


def parallel(runScript, recorded, *arguments, devices=3, environment=None):
    """Runs the parallel client on emulated devices."""
    return runScript(
        "TensileParallelClient",
        "--config-file",
        recorded.ini,
        "--emulate",
        devices,
        *arguments,
        environment=environment,
    )


def emulatorSettings(folder: Path, **settings) -> dict:
    """The environment that hands settings to the emulated client."""
    path = folder / "emulator.json"
    path.write_text(json.dumps(settings))
    return {"TENSILE_EMULATOR": str(path)}


# The sizes of tensilelite-2024/full. A unit's INI lists only its own, so faults are named by them.
SIZES = [
    "1024,1024,1,1024",
    "128,128,1,128",
    "4096,4096,1,4096",
    "256,512,1,2048",
    "77,33,1,511",
    "2048,128,2,512",
]

CASES = [
    "tensilelite-2024/full",
    "tensilelite-2024/full-no-winner-columns",
    "tensilelite-2024/two-activations-two-biases",
    "tensilelite-2024/two-passes",
    "tensilelite-2024/problems-2-3",
    "tensilelite-2024/solutions-8-15",
    "classic-4.44/full",
    "classic-4.44/full-winner-columns",
    "classic-4.44/problems-1-2",
]


@pytest.mark.parametrize("name", CASES)
def test_resultsEqualSerial(recorded, runScript, name):
    """Rule 6: the results file is, byte for byte, the one that the serial client writes."""
    step = recorded(name)
    done = parallel(runScript, step)
    assert done.returncode == 0, done.stderr
    expected, results = serial(runScript, step)
    assert expected.returncode == 0
    assert step.results.read_bytes() == results


def test_mergedPasses(recorded, runScript):
    """num-benchmarks with csv-merge-same-problems gives one row per problem, as serially."""
    step = recorded("tensilelite-2024/two-passes")
    step.change(csv_merge_same_problems="1")
    assert parallel(runScript, step).returncode == 0
    _, results = serial(runScript, step)
    assert step.results.read_bytes() == results


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"grouped_gemm": "True"}, "grouped GEMM"),
        ({"best_solution": "1", "num_benchmarks": "2"}, "best-solution in several passes"),
    ],
)
def test_wholeSteps(recorded, runScript, changes, reason):
    """What cannot be cut goes whole to one device, with the reason said."""
    step = recorded("tensilelite-2024/full")
    step.change(**changes)
    done = parallel(runScript, step)
    assert done.returncode == 0, done.stderr
    assert reason in done.stdout
    _, results = serial(runScript, step)
    assert step.results.read_bytes() == results


def test_withoutAnySizeTheClientDecides(recorded, runScript):
    """A config without sizes: the file is the client's, here an empty one, and so is the exit."""
    step = recorded("classic-4.44/full")
    lines = step.ini.read_text().splitlines()
    lines = [line for line in lines if not re.match(r"problem-size|\w+-strides", line)]
    step.ini.write_text("\n".join(lines) + "\n")
    done = parallel(runScript, step)
    assert done.returncode == 0, done.stderr
    assert "its list of sizes is empty" in done.stdout
    assert step.results.read_bytes() == b""


def test_severalIniFiles(recorded, runScript):
    """Of several --config-file the first one that has an option counts, and all are cut."""
    step = recorded("tensilelite-2024/full")
    first = step.into / "first.ini"
    first.write_text("num-problems=2\nproblem-start-idx=1\n")
    done = runScript(
        "TensileParallelClient",
        "--config-file",
        first,
        "--config-file",
        step.ini,
        "--emulate",
        2,
    )
    assert done.returncode == 0, done.stderr
    rows = step.results.read_text().splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == ["1", "2"]
    assert "whole" not in done.stdout
    units = json.loads(stepJson(step).read_text())["units"]
    assert {unit["problems"][0] for unit in units} == {1, 2}


def stepJson(step):
    """Where a step without a front end tells what it did."""
    return step.out / "results.csv.parallel" / "step.json"


def test_commandLineBeatsIni(recorded, runScript):
    """tensile_client's own options mean what they mean there: the command line beats the INI."""
    step = recorded("tensilelite-2024/full")
    other = step.into / "other.csv"
    done = parallel(runScript, step, "--results-file", other, "--csv-export-extra-cols", "0")
    assert done.returncode == 0, done.stderr
    assert not step.results.exists()
    assert "WinnerName" not in other.read_text().splitlines()[0]


def test_relativePathsCountFromTheCurrentFolder(recorded, runScript):
    """Relative paths in an INI mean what they mean to the client, though units lie elsewhere."""
    step = recorded("tensilelite-2024/full")
    text = step.ini.read_text().replace(str(step.into) + "/", "")
    step.ini.write_text(text)
    done = runScript(
        "TensileParallelClient", "--config-file", step.ini, "--emulate", 2, cwd=step.into
    )
    assert done.returncode == 0, done.stderr
    assert step.results.exists()


def test_logFileHasAllPairsInSerialOrder(recorded, runScript):
    """The client's log-file holds every pair's line in the order of a serial run."""
    step = recorded("tensilelite-2024/full")
    logFile = step.into / "client.log"
    assert parallel(runScript, step, "--log-file", logFile).returncode == 0
    got = [line.split(",", 3)[:3] for line in logFile.read_text().splitlines() if line[:1] == "0"]
    assert got == [["0", "%d/5" % p, "%d/23" % s] for p in range(6) for s in range(24)]


def test_everyClientNamesItsOneDevice(recorded, runScript, tmp_path):
    """Rule 1: what the clients were born with names one device each, within the inherited mask."""
    step = recorded("tensilelite-2024/full")
    record = tmp_path / "record.jsonl"
    environment = emulatorSettings(tmp_path, record=str(record), pairSeconds=0.02)
    environment["HIP_VISIBLE_DEVICES"] = "5,2,7"
    done = parallel(runScript, step, devices=8, environment=environment)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in record.read_text().splitlines()]
    assert {event["device"] for event in events} == {5, 2, 7}
    assert "two clients" not in done.stderr


def test_crashIsContained(recorded, runScript, tmp_path):
    """One pair that kills its client costs that pair only: -1, named, and exit 1."""
    step = recorded("tensilelite-2024/full")
    environment = emulatorSettings(
        tmp_path, faults=[{"size": SIZES[2], "solution": 5, "kind": "crash"}]
    )
    done = parallel(runScript, step, environment=environment)
    assert done.returncode == 1, done.stdout
    _, clean = serial(runScript, step)
    want = [line.split(b", ") for line in clean.splitlines()]
    got = [line.split(b", ") for line in step.results.read_bytes().splitlines()]
    first = len(want[0]) - 24
    assert got[3][first + 5] == b"-1"
    got[3][first + 5] = want[3][first + 5]
    assert [row[first:] for row in got] == [row[first:] for row in want]
    assert "problem 2, solution 5" in done.stderr
    report = json.loads((Path(str(step.results) + ".parallel") / "step.json").read_text())
    assert report["counts"]["crashed"] == 1
    assert report["failures"][0]["problem"] == 2


def test_frontEndGetsZeroForRecordedCrashes(recorded, runScript, tmp_path):
    """The host would stop before its library logic: for recorded crashes it gets 0."""
    step = recorded("tensilelite-2024/full")
    environment = emulatorSettings(
        tmp_path, faults=[{"size": SIZES[0], "solution": 0, "kind": "crash"}]
    )
    settings = tmp_path / "run.json"
    run = {"version": 1, "run": "r", "client": None, "emulate": 2, "outputs": str(tmp_path / "o")}
    run["devices"] = [{"ordinal": n, "token": str(n), "emulated": True} for n in range(2)]
    settings.write_text(json.dumps({**run, "frontEnd": True}))
    done = runScript(
        "TensileParallelClient",
        "--config-file",
        step.ini,
        "--settings",
        settings,
        environment=environment,
    )
    assert done.returncode == 0, done.stderr
    assert step.results.exists()


def test_validationFailuresAreCounted(recorded, runScript, tmp_path):
    """The exit status of wrong results is their number, as the serial client's."""
    step = recorded("tensilelite-2024/full")
    step.change(num_elements_to_validate="10")
    faults = [{"size": SIZES[p], "solution": 3, "kind": "invalid"} for p in (0, 4, 5)]
    environment = emulatorSettings(tmp_path, faults=faults)
    done = parallel(runScript, step, environment=environment)
    expected, _ = serial(runScript, step, environment=environment)
    assert done.returncode == expected.returncode == 3


def test_secondRunMeasuresNothing(recorded, runScript, tmp_path):
    """The same command after a finished one times no pair again and keeps the file."""
    step = recorded("tensilelite-2024/full")
    record = tmp_path / "record.jsonl"
    environment = emulatorSettings(tmp_path, record=str(record))
    assert parallel(runScript, step, environment=environment).returncode == 0
    before, results = record.read_bytes(), step.results.read_bytes()
    done = parallel(runScript, step, environment=environment)
    assert done.returncode == 0, done.stderr
    assert record.read_bytes() == before
    assert step.results.read_bytes() == results
    assert not (step.out / "results.csv.previous").exists()


def test_foreignResultsAreMovedAside(recorded, runScript):
    """A results file of unknown origin is kept under another name before the first unit."""
    step = recorded("tensilelite-2024/full")
    step.results.write_text("somebody's work\n")
    assert parallel(runScript, step).returncode == 0
    assert (step.out / "results.csv.previous").read_text() == "somebody's work\n"


def test_everyForeignResultsFileIsKept(recorded, runScript):
    """Two files of other inputs, one after the other: both are kept, and none twice."""
    step = recorded("tensilelite-2024/full")
    contents = ["first\n", "second\n", "first\n"]
    for content in contents:
        step.results.write_text(content)
        assert parallel(runScript, step, "--fresh").returncode == 0
    kept = {path.read_text() for path in step.out.glob("results.csv.previous*")}
    assert kept == set(contents)
    assert len(list(step.out.glob("results.csv.previous*"))) == 2


def test_clientThatNeverStartsLeavesEarlierResults(recorded, runScript, tmp_path):
    """A results file of the same inputs is never replaced by a less complete one."""
    step = recorded("tensilelite-2024/full")
    client = tmp_path / "client"
    shutil.copy(Path(__file__).parents[2] / "bin" / "TensileEmulatedClient", client)
    script = "#!/bin/sh\nexec %s '%s' \"$@\"\n"
    real = Path(__file__).parents[2] / "bin" / "TensileEmulatedClient"
    client.write_text(script % (shutil.which("python3"), real))
    client.chmod(0o755)
    assert parallel(runScript, step, "--client", client).returncode == 0
    good = step.results.read_bytes()
    fresh = parallel(
        runScript,
        step,
        "--client",
        client,
        "--fresh",
        environment=emulatorSettings(tmp_path, faults=[{"kind": "no-csv"}]),
    )
    assert fresh.returncode == 1
    assert step.results.read_bytes() == good


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "--config-file"),
        (["--config-file", "/nowhere/x.ini", "--emulate", "2"], "/nowhere/x.ini"),
        (["--config-file", "x", "--emulate", "none"], "--emulate"),
        (["--config-file", "x", "--client", "/nowhere/client", "--emulate", "1"], "--client"),
    ],
)
def test_badInputIsRefused(runScript, arguments, words):
    """Bad input: one line, exit 2, no traceback."""
    done = runScript("TensileParallelClient", *arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_resultsFileIsNeverHalf(recorded, runScript, tmp_path):
    """A reader sees the whole file or none: no temporary file is left beside it."""
    step = recorded("tensilelite-2024/full")
    assert parallel(runScript, step).returncode == 0
    assert sorted(os.listdir(step.out)) == ["results.csv", "results.csv.parallel"]


def start(recorded, *arguments, devices=3, environment=None):
    """Starts the parallel client and returns the running process."""
    script = Path(__file__).parents[2] / "bin" / "TensileParallelClient"
    command = [sys.executable, str(script), "--config-file", str(recorded.ini)]
    command += ["--emulate", str(devices), *map(str, arguments)]
    return subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def waitForUnits(recorded, count, seconds=60):
    """Waits until a run has finished some units; the deadline only ends a test that fails."""
    report = Path(str(recorded.results) + ".parallel") / "step.json"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if report.exists() and len(json.loads(report.read_text())["units"]) >= count:
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain for %d units" % count)


def test_secondClientOnOneResultsFileIsRefused(recorded, runScript, tmp_path):
    """Two parallel clients never share a step's folder: the second ends at once, with 2."""
    step = recorded("tensilelite-2024/full")
    environment = emulatorSettings(tmp_path, pairSeconds=0.05)
    first = start(step, environment=environment)
    waitForUnits(step, 0)
    done = parallel(runScript, step)
    assert done.returncode == 2, done.stdout
    assert "another parallel client" in done.stderr
    assert first.wait(120) == 0, first.communicate()
    _, results = serial(runScript, step)
    assert step.results.read_bytes() == results


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signalEndsItAndTheSameCommandContinues(recorded, runScript, tmp_path, number):
    """Stopped by a signal: 128 + n, one line, nothing left running; what was measured is kept."""
    step = recorded("tensilelite-2024/full")
    record = tmp_path / "record.jsonl"
    environment = emulatorSettings(tmp_path, pairSeconds=0.03, record=str(record))
    running = start(step, environment=environment, devices=2)
    waitForUnits(step, 1)
    running.send_signal(number)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 128 + number, errors
    assert "Traceback" not in errors and "the same command continues" in errors
    kept = json.loads((Path(str(step.results) + ".parallel") / "step.json").read_text())
    done = parallel(runScript, step, environment=emulatorSettings(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "were measured before" in done.stdout
    assert kept["counts"]["measured"] > 0
    _, results = serial(runScript, step)
    assert step.results.read_bytes() == results


def test_wholeStepKeepsTheBetterResults(recorded, runScript, tmp_path):
    """A step that goes whole never replaces a complete file of the same inputs by a part of one."""
    step = recorded("tensilelite-2024/full")
    step.change(best_solution="1", num_benchmarks="2")
    assert parallel(runScript, step).returncode == 0
    good = step.results.read_bytes()
    faults = [{"size": SIZES[5], "kind": "crash"}]
    done = parallel(runScript, step, environment=emulatorSettings(tmp_path, faults=faults))
    assert done.returncode == 139, done.stdout
    assert step.results.read_bytes() == good
    assert not (step.out / "results.csv.previous").exists()


def test_optionThatTheClientRefusesEndsTheStepAtOnce(recorded, runScript):
    """It would refuse it at every unit: no pair counts as crashed, and there is no results file."""
    step = recorded("tensilelite-2024/full")
    done = parallel(runScript, step, "--no-such", "1")
    assert done.returncode == 2
    assert not step.results.exists()
    assert "the client refuses its options: unrecognised option '--no-such'" in done.stdout
    assert done.stdout.count(" crashed ") <= 4 and ", 0 were not tried" not in done.stdout
    again = parallel(runScript, step)
    assert again.returncode == 0, again.stdout


@pytest.mark.parametrize(
    "words, text",
    [
        (["--num-warmups"], "--num-warmups needs a value"),
        (["--library-update-file", "no/where.yaml"], "its folder does not exist"),
    ],
)
def test_optionsThatCannotWorkAreRefusedBeforeAnythingRuns(recorded, runScript, words, text):
    """Bad input is told in one line before a client has started."""
    step = recorded("tensilelite-2024/full")
    done = parallel(runScript, step, *words)
    assert done.returncode == 2 and not step.results.exists()
    assert len(done.stderr.splitlines()) == 1 and text in done.stderr


def test_lostShardIsNoSilentGap(recorded, runScript):
    """A journalled piece whose file is gone is measured again by the same command."""
    step = recorded("tensilelite-2024/full")
    assert parallel(runScript, step).returncode == 0
    good = step.results.read_bytes()
    shards = sorted(Path(str(step.results) + ".parallel").glob("gpu_*/unit_*.csv"))
    shards[0].unlink()
    shards[-1].write_bytes(b"")
    assert parallel(runScript, step).returncode == 0
    assert step.results.read_bytes() == good


# Problems 0 and 1 of tensilelite-2024/full, and what their pairs take on the clock.
SPLIT_PROBLEMS = 2
SOLUTIONS = 24
PAIR_SECONDS = 0.1


@pytest.fixture
def longRows(recorded):
    """A step of two problems that are long even before anything was measured.

    The cost model takes so many enqueues for seconds, so that rows are split from the beginning
    and not only where a device has become idle in time.
    """
    step = recorded("tensilelite-2024/full")
    step.change(
        problem_start_idx="0", num_problems=str(SPLIT_PROBLEMS), num_enqueues_per_sync="20000"
    )
    return step


def stepReport(step) -> dict:
    return json.loads((Path(str(step.results) + ".parallel") / "step.json").read_text())


def tableOf(results: bytes):
    """(WinnerName, cells) of each row, as text."""
    header, *rows = [line.split(", ") for line in results.decode().splitlines()]
    at = header.index("WinnerName")
    return [(row[at], row[-SOLUTIONS:]) for row in rows]


def splitRow(report):
    """The first problem that was measured on several devices, and its first measurements."""
    problem = report["splitProblems"][0]
    units = [unit for unit in report["units"] if not unit["retiming"]]
    own = [u for u in units if 0 <= problem - u["problems"][0] < u["problems"][1]]
    assert len({unit["device"] for unit in own}) > 1
    return problem, own


def test_splitRowsEqualSerial(longRows, runScript, tmp_path):
    """Fewer problems than devices: rows are split, and the file is the serial one. A second run of
    the same command measures nothing and says the same of the split problems."""
    record = tmp_path / "record.jsonl"
    environment = emulatorSettings(tmp_path, record=str(record), pairSeconds=PAIR_SECONDS)
    done = parallel(runScript, longRows, devices=4, environment=environment)
    assert done.returncode == 0, done.stderr
    _, results = serial(runScript, longRows)
    assert longRows.results.read_bytes() == results
    report = stepReport(longRows)
    splitRow(report)
    pairs = SPLIT_PROBLEMS * SOLUTIONS
    assert report["counts"]["measured"] == pairs
    assert report["retimedPairs"] == _retimed(report) > 0
    # Devices that are equal: what was timed twice is the same both times.
    assert report["deviceRatios"]
    assert all((r["least"], r["greatest"]) == (1.0, 1.0) for r in report["deviceRatios"])

    before = record.read_bytes()
    again = parallel(runScript, longRows, devices=4, environment=environment)
    assert again.returncode == 0, again.stderr
    assert record.read_bytes() == before
    assert longRows.results.read_bytes() == results
    second = stepReport(longRows)
    assert second["splitProblems"] == report["splitProblems"]
    assert (second["resumedPairs"], second["retimedPairs"], second["units"]) == (pairs, 0, [])
    assert second["resumedUnits"] == sum(not unit["baseline"] for unit in report["units"])


def _retimed(report) -> int:
    units = [unit for unit in report["units"] if unit["retiming"] and unit["kind"] == "measured"]
    return sum(unit["problems"][1] * unit["solutions"][1] for unit in units)


FACTORS = {"0": 1.0, "1": 0.97, "2": 1.05, "3": 0.93}


def test_winnersAreThoseOfOneDevice(longRows, runScript, tmp_path):
    """Rule 3: devices differ by fixed factors, and each row's winner is that of any one of them.

    The winner's cell is what one device measured, and no cell of another beats it.
    """
    environment = emulatorSettings(tmp_path, pairSeconds=PAIR_SECONDS, deviceFactors=FACTORS)
    done = parallel(runScript, longRows, devices=4, environment=environment)
    assert done.returncode == 0, done.stderr
    alone = []
    for device in FACTORS:
        quick = emulatorSettings(tmp_path, deviceFactors=FACTORS)
        quick["HIP_VISIBLE_DEVICES"] = device
        alone.append(tableOf(serial(runScript, longRows, devices=4, environment=quick)[1]))
    found = tableOf(longRows.results.read_bytes())
    assert len(found) == SPLIT_PROBLEMS
    for row, (winner, cells) in enumerate(found):
        assert winner == alone[0][row][0]
        top = max(range(SOLUTIONS), key=lambda s: float(cells[s]))
        assert top == max(range(SOLUTIONS), key=lambda s: float(alone[0][row][1][s]))
        assert cells[top] in [table[row][1][top] for table in alone]

    report = stepReport(longRows)
    splitRow(report)
    assert report["retimedPairs"] == _retimed(report) > 0
    assert report["deviceRatios"]
    for ratio in report["deviceRatios"]:
        # Speeds are as the inverse of times: value at home over value there.
        expected = FACTORS[str(ratio["device"])] / FACTORS[str(ratio["home"])]
        assert ratio["least"] == pytest.approx(expected, rel=1e-3)
        assert ratio["greatest"] == pytest.approx(expected, rel=1e-3)


def test_keepSizesWholeSplitsNothing(longRows, runScript, tmp_path):
    """--keep-sizes-whole: all solutions of a problem are timed on one device, in one unit."""
    environment = emulatorSettings(tmp_path, pairSeconds=PAIR_SECONDS / 4)
    done = parallel(runScript, longRows, "--keep-sizes-whole", devices=4, environment=environment)
    assert done.returncode == 0, done.stderr
    report = stepReport(longRows)
    assert (report["splitProblems"], report["retimedPairs"], report["deviceRatios"]) == ([], 0, [])
    assert all(unit["solutions"] == [0, SOLUTIONS] for unit in report["units"])
    assert not any(unit["retiming"] or unit["shortened"] for unit in report["units"])
    _, results = serial(runScript, longRows)
    assert longRows.results.read_bytes() == results


def test_skippedSlowSolutionsKeepSizesWhole(longRows, runScript, tmp_path):
    """skip-slow-solution-ratio compares a solution with those before it: nothing is split."""
    longRows.change(skip_slow_solution_ratio="0.5")
    environment = emulatorSettings(tmp_path, pairSeconds=PAIR_SECONDS / 4)
    done = parallel(runScript, longRows, devices=4, environment=environment)
    assert done.returncode == 0, done.stderr
    assert all(unit["solutions"] == [0, SOLUTIONS] for unit in stepReport(longRows)["units"])


def test_crashInASplitRow(longRows, runScript, tmp_path):
    """A pair that kills its client costs that pair only, also where its row is split."""
    _, clean = serial(runScript, longRows)
    want = tableOf(clean)
    winners = {max(range(SOLUTIONS), key=lambda s: float(cells[s])) for _, cells in want}
    killer = next(solution for solution in range(3, SOLUTIONS) if solution not in winners)
    environment = emulatorSettings(
        tmp_path,
        pairSeconds=PAIR_SECONDS,
        faults=[{"size": SIZES[0], "solution": killer, "kind": "crash"}],
    )
    done = parallel(runScript, longRows, devices=4, environment=environment)
    assert done.returncode == 1, done.stdout
    report = stepReport(longRows)
    splitRow(report)
    assert report["counts"]["crashed"] == 1
    lost = [(f["problem"], f["pairs"]) for f in report["failures"] if f["kind"] == "crashed"]
    assert lost == [(0, 1)]
    want[0][1][killer] = "-1"
    assert tableOf(longRows.results.read_bytes()) == want


# Each of its clients takes seconds to end: one test of it, in test_stubbornHang, is enough.
STUBBORN = "stubborn hang"
FAULTS = {
    "crash": {"kind": "crash"},
    "hang": {"kind": "hang"},
    STUBBORN: {"kind": "hang", "ignoreTerm": True},
    "exit": {"kind": "exit", "status": 3},
    "error": {"kind": "error"},
    "torn row": {"kind": "torn-row"},
    "no csv": {"kind": "no-csv"},
    "absurd": {"kind": "value", "time": "0", "speed": "inf"},
}
# How each is named where that is not "crashed".
NAMED = {"hang": "hung", STUBBORN: "hung"}
NAMED.update({"error": "failed", "exit": "failed", "no csv": "failed"})


def withoutWinners(results: bytes, chosen):
    """Rows with their Winner columns left out, and the chosen cells replaced by -1."""
    header, *rows = [line.split(", ") for line in results.decode().splitlines()]
    winners = [at for at, name in enumerate(header) if name.startswith("Winner")]
    for row, column in chosen:
        rows[row][len(header) - SOLUTIONS + column] = "-1"
    return [[cell for at, cell in enumerate(row) if at not in winners] for row in rows]


def wasMeasured(results: bytes, row, column):
    """Whether a cell holds a value."""
    return results.decode().splitlines()[1 + row].split(", ")[-SOLUTIONS:][column].strip() != "-1"


@pytest.mark.parametrize(
    "name, split", [(name, split) for name in FAULTS for split in (False, True) if name != STUBBORN]
)
def test_faultsCostTheirPairsOnly(recorded, longRows, runScript, tmp_path, name, split):
    """Every other cell equals the serial run's; the chosen ones are -1, named, and in the status.
    The same command then tries nothing again and ends in the same way; --fresh measures all."""
    step = longRows if split else recorded("tensilelite-2024/full")
    # None of them is its row's winner.
    chosen = [(0, 4), (1, 9)] if split else [(0, 4), (4, 17), (4, 18)]
    faults = [{**FAULTS[name], "size": SIZES[row], "solution": column} for row, column in chosen]
    pair = PAIR_SECONDS if split else 0.0
    environment = emulatorSettings(tmp_path, faults=faults, pairSeconds=pair)
    arguments = ["--hang-limit", "1"] if "hang" in name else []
    done = parallel(runScript, step, *arguments, devices=4, environment=environment)
    _, clean = serial(runScript, step)
    found = step.results.read_bytes()
    if name == "absurd":
        # A client that ended well has measured them; one that was ended early has failed at them.
        assert done.returncode in (0, 1)
        assert withoutWinners(found, []) == withoutWinners(clean, chosen)
        assert [winner for winner, _ in tableOf(found)] == [w for w, _ in tableOf(clean)]
        return
    if name == "no csv":
        # One that was ended early, for the others' sake, had told its pairs before: they count.
        chosen = [(row, column) for row, column in chosen if not wasMeasured(found, row, column)]
        assert chosen or split
        if not chosen:
            assert done.returncode == 0 and found == clean
            return
    assert done.returncode == 1, done.stdout
    assert withoutWinners(found, []) == withoutWinners(clean, chosen)
    report = stepReport(step)
    kind = NAMED.get(name, "crashed")
    listed = {(f["problem"], f["solution"], f["kind"]) for f in report["failures"]}
    names = found.decode().splitlines()[0].split(", ")[-SOLUTIONS:]
    assert listed == {(row, names[column], kind) for row, column in chosen}
    assert report["counts"][kind] == len(chosen)
    assert all(f["size"] and f["message"] for f in report["failures"])

    again = parallel(runScript, step, *arguments, devices=4, environment=environment)
    assert again.returncode == 1 and step.results.read_bytes() == found
    second = stepReport(step)
    assert second["units"] == [] and second["counts"][kind] == len(chosen)
    lenient = parallel(runScript, step, "--allow-failures", devices=4)
    assert lenient.returncode == 0
    fresh = parallel(runScript, step, "--fresh", devices=4, environment=emulatorSettings(tmp_path))
    assert fresh.returncode == 0, fresh.stdout
    assert step.results.read_bytes() == clean


def test_wrongResultsBeforeAStopStillCount(recorded, runScript, tmp_path):
    """Validation failures of an interrupted run are in the exit status of the one that ends it."""
    step = recorded("tensilelite-2024/full")
    faults = [{"kind": "invalid", "size": size, "solution": 3} for size in SIZES]
    environment = emulatorSettings(tmp_path, pairSeconds=0.05, faults=faults)
    running = start(step, environment=environment, devices=2)
    waitForUnits(step, 2)
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 143
    done = parallel(runScript, step, environment=emulatorSettings(tmp_path, faults=faults))
    assert done.returncode == len(SIZES), done.stdout
    assert stepReport(step)["validationFailures"] == len(SIZES)
    assert parallel(runScript, step).returncode == len(SIZES)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("devices", [1, 3])
def test_killedUnitKeepsWhatItHadMeasured(recorded, runScript, tmp_path, number, devices):
    """Killed in the middle of long units: their finished pairs count in the next run."""
    step = recorded("tensilelite-2024/full")
    record = tmp_path / "record.jsonl"
    environment = emulatorSettings(tmp_path, pairSeconds=0.06, record=str(record))
    options = ["--keep-sizes-whole", "--no-warm-up"]  # a warm-up's pairs would be counted as well
    running = start(step, *options, environment=environment, devices=devices)
    deadline = time.monotonic() + 60
    while timedPairs(record) < 40 and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(number)
    running.wait(60)
    before = timedPairs(record)
    quick = emulatorSettings(tmp_path, record=str(record))
    done = parallel(runScript, step, *options, environment=quick, devices=devices)
    assert done.returncode == 0, done.stdout
    _, results = serial(runScript, step)
    assert step.results.read_bytes() == results
    # What each device was at is timed again, and nothing else.
    assert 40 <= before and timedPairs(record) - len(SIZES) * SOLUTIONS <= devices


def timedPairs(record):
    """How many pairs clients have finished."""
    return record.read_bytes().count(b'"event": "pair"') if record.exists() else 0


def test_cutShardIsMeasuredAgain(recorded, runScript):
    """A journalled file that has become shorter is noticed; complete results are not spoiled."""
    step = recorded("tensilelite-2024/full")
    assert parallel(runScript, step, devices=2).returncode == 0
    good = step.results.read_bytes()
    shards = Path(str(step.results) + ".parallel").glob("gpu_*/unit_*.csv")
    shard = max(shards, key=lambda path: path.stat().st_size)
    shard.write_bytes(shard.read_bytes()[:-300])
    done = parallel(runScript, step, devices=2)
    assert done.returncode == 0, done.stdout
    assert step.results.read_bytes() == good
    assert stepReport(step)["units"]


def test_otherGpusBehindTheSameOrdinals(longRows, runScript, tmp_path):
    """Resumed where the ordinals mean other GPUs: they are not taken for those that began."""
    factors = {"0": 1.25, "1": 1.25, "2": 0.8, "3": 0.8}
    record = tmp_path / "record.jsonl"
    environment = emulatorSettings(
        tmp_path, pairSeconds=PAIR_SECONDS, deviceFactors=factors, record=str(record)
    )
    first = {**environment, "HIP_VISIBLE_DEVICES": "0,1"}
    running = start(longRows, environment=first, devices=4)
    while timedPairs(record) < 16:
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 143
    second = {**environment, "HIP_VISIBLE_DEVICES": "2,3"}
    done = parallel(runScript, longRows, devices=4, environment=second)
    assert done.returncode == 0, done.stdout
    _, clean = serial(runScript, longRows)
    for (winner, cells), (expected, _) in zip(
        tableOf(longRows.results.read_bytes()), tableOf(clean)
    ):
        assert winner == expected
        assert max(map(float, cells)) == float(cells[_columnOf(longRows, winner)])


def _columnOf(step, name):
    header = step.results.read_text().splitlines()[0].split(", ")[-SOLUTIONS:]
    return header.index(name)


def test_resultsFileThatIsAFolderIsRefused(recorded, runScript):
    """A folder of the user's is not moved out of the way."""
    step = recorded("tensilelite-2024/full")
    step.results.mkdir()
    done = parallel(runScript, step)
    assert done.returncode == 2 and "it is a folder" in done.stderr
    assert step.results.is_dir()


def test_stubbornHang(recorded, runScript, tmp_path):
    """A client that neither goes on nor heeds SIGTERM is killed, and costs its pair only."""
    step = recorded("tensilelite-2024/full")
    faults = [{**FAULTS[STUBBORN], "size": SIZES[0], "solution": 4}]
    environment = emulatorSettings(tmp_path, faults=faults)
    done = parallel(runScript, step, "--hang-limit", "1", devices=1, environment=environment)
    assert done.returncode == 1, done.stdout
    _, clean = serial(runScript, step)
    found = step.results.read_bytes()
    assert withoutWinners(found, []) == withoutWinners(clean, [(0, 4)])
    assert stepReport(step)["counts"]["hung"] == 1
