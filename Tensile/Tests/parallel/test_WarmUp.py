# SPDX-License-Identifier: MIT
"""Cold devices: the pair that is run and thrown away, and what it must not touch."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from Tensile.Parallel.ClientConfig import readClientConfig
from Tensile.Parallel.ParseArguments import parseClientArguments
from Tensile.Parallel.Step import makeJob, makeStep
from Tensile.Parallel.Types import CRASHED, MEASURED, Device, Unit
from Tensile.Parallel.WarmUp import (
    IDLE_SECONDS,
    LEAST_SECONDS,
    clientBegun,
    isCold,
    warmUpOf,
    writeWarmUp,
)
from Tensile.Parallel.Worker import STOP_SUFFIX, DeviceWorker

pytestmark = pytest.mark.unit

LIMIT = 20  # seconds within which everything here must have happened, on a busy machine
DEVICE = Device(0, "0", emulated=True, uniqueId="emulated-0")
CLIENT = (sys.executable, str(ROOT / "Tensile" / "bin" / "TensileEmulatedClient"))


def test_coldIsIdleForOverASecond():
    """CASES 33: a device that was never used, or not within the last second."""
    assert isCold(None, 5.0)
    assert not isCold(5.0, 5.0) and not isCold(5.0, 5.0 + IDLE_SECONDS)
    assert isCold(5.0, 5.01 + IDLE_SECONDS)


@pytest.fixture
def makeUnit(recorded, tmp_path):
    """A function: unit, options of the command line -> job with a warm-up."""

    def make(unit, *options, name="tensilelite-2024/full", client=CLIENT, **changes):
        step = recorded(name)
        step.change(**changes)
        arguments = ["--config-file", str(step.ini), "--emulate", "1", *options]
        made = makeStep(parseClientArguments(arguments), tuple(client), "")
        return makeJob(made, unit, DEVICE, tmp_path / "outputs", "", warmUp=True)

    return make


def test_itIsTheUnitsFirstPair(makeUnit):
    """One problem, one solution, one pass, no reference on the CPU; else the unit's own INI.

    num-warmups is never altered, and what the user says on the command line is said once."""
    options = ["--num-warmups", "7", "--num-benchmarks", "3", "--num-elements-to-validate", "9"]
    job = makeUnit(Unit(4, 2, 3, 5, 6), *options, "--num-enqueues-per-sync", "8")
    writeWarmUp(job)
    own = readClientConfig(job.file(".ini"))
    pair = readClientConfig(warmUpOf(job).file(".ini"))
    assert pair.sizeCount == 1 and pair.sizes[0] == own.sizes[0]
    expected = {
        "problem-start-idx": "0",
        "num-problems": "1",
        "solution-start-idx": "5",
        "num-solutions": "1",
        "num-benchmarks": "1",
        "num-elements-to-validate": "0",
        "num-warmups": "7",
        "num-enqueues-per-sync": "8",
    }
    assert {key: pair.get(key) for key in expected} == expected
    assert pair.get("results-file") not in (None, own.get("results-file"))
    assert "--num-benchmarks" not in job.warmUp and "--num-elements-to-validate" not in job.warmUp
    assert job.warmUp[-1] == warmUpOf(job).file(".ini") and "--num-warmups" in job.warmUp
    # The unit itself knows nothing of it.
    assert own.get("num-benchmarks") == "3" and own.get("num-elements-to-validate") == "9"


def test_firstPairOfALaterRound(makeUnit):
    """The list of sizes is gone through once per bias and activation: the pair keeps its round."""
    job = makeUnit(Unit(0, 7, 1, 0, 4), name="tensilelite-2024/two-activations-two-biases")
    writeWarmUp(job)
    own = readClientConfig(job.file(".ini"))
    pair = readClientConfig(warmUpOf(job).file(".ini"))
    at = own.problemAt(job.written)
    again = pair.problemAt(pair.number("problem-start-idx"))
    assert pair.sizes[again.size] == own.sizes[at.size]
    assert (again.bias, again.activation, again.factor) == (at.bias, at.activation, at.factor)
    assert at.bias or at.activation, "the unit is in the first round: it tests nothing"


def test_silenceOfAWarmUp(makeUnit):
    """Ending it costs nothing, so it is waited for no longer than the unit, and rather less."""
    job = makeUnit(Unit(0, 0, 1, 0, 4))
    limits = [None, 5.0, 300.0, 6000.0]
    found = [warmUpOf(replace(job, silenceSeconds=limit)).silenceSeconds for limit in limits]
    assert found == [None, 5.0, LEAST_SECONDS, 600.0]


def test_whenTheClientBegan(makeUnit):
    """The time of a warm-up is none of the unit's: the loop reads from the files when it ended."""
    job = makeUnit(Unit(0, 0, 1, 0, 4))
    log, warm = Path(job.file(".log")), Path(warmUpOf(job).file(".log"))
    assert clientBegun(replace(job, warmUp=()), 100.0, 109.0) == 100.0
    warm.write_text("it runs")
    assert clientBegun(job, 100.0, 109.0) == 109.0
    os.utime(warm, (107.0, 107.0))
    log.write_text("the unit runs")
    assert clientBegun(job, 100.0, 109.0) == 107.0
    warm.unlink()
    assert clientBegun(job, 100.0, 109.0) == 100.0


@pytest.fixture
def record(tmp_path, monkeypatch):
    """A function: the pairs that emulated clients ran until now, as (pid, size, solution)."""
    path = tmp_path / "record.jsonl"
    settings = tmp_path / "emulator.json"
    settings.write_text(json.dumps({"record": str(path)}))
    monkeypatch.setenv("TENSILE_EMULATOR", str(settings))

    def pairs():
        events = [json.loads(line) for line in path.read_text().splitlines()]
        return [(e["pid"], e["size"], e["solution"]) for e in events if e["event"] == "pair"]

    return pairs


@pytest.fixture
def worker(tmp_path, monkeypatch, record):
    """A started worker; killed at the end."""
    monkeypatch.setenv("TENSILE_EMULATED_DEVICES", "1")
    worker = DeviceWorker(DEVICE, str(tmp_path / "locks"), True)
    worker.start().result(LIMIT)
    yield worker
    worker.kill()


def test_coldDevicesOnly(worker, makeUnit, record):
    """A worker's first unit has one, the next at once has none, and one after a pause has."""
    first = worker.submit(makeUnit(Unit(0, 1, 2, 3, 4))).result(LIMIT)
    assert first.outcome.kind == MEASURED and first.warmUp.message == ""
    pairs = record()
    assert len(pairs) == 1 + 8 and pairs[0][1:] == pairs[1][1:]
    assert pairs[0][0] != pairs[1][0], "it must be a client of its own"

    second = worker.submit(makeUnit(Unit(1, 1, 1, 0, 4))).result(LIMIT)
    gap = second.outcome.started - first.outcome.ended
    assert second.warmUp is None or gap > IDLE_SECONDS
    time.sleep(IDLE_SECONDS + 0.1)
    third = worker.submit(makeUnit(Unit(2, 1, 1, 0, 4))).result(LIMIT)
    assert third.warmUp is not None and third.warmUp.message == ""


def test_itLeavesNothing(worker, makeUnit, record):
    """Its time is not the unit's, its values are nowhere, and its files are gone."""
    job = makeUnit(Unit(0, 1, 2, 3, 4))
    before = time.time()
    result = worker.submit(job).result(LIMIT)
    assert result.outcome.started >= before + result.warmUp.seconds > before
    assert result.startSeconds is None or result.startSeconds < result.outcome.seconds
    assert len(result.pieces) == 1 and result.pieces[0].problemCount == 2
    names = sorted(path.name for path in Path(job.folder).iterdir())
    assert names == ["unit_0.csv", "unit_0.ini", "unit_0.log"]


def clientThat(folder, does):
    """A client that does this in a warm-up, and otherwise is the emulated one."""
    path = folder / "client"
    path.write_text(
        '#!/bin/sh\ncase "$*" in *warmup*) %s;; esac\nexec %s %s "$@"\n' % (does, *CLIENT)
    )
    path.chmod(0o755)
    return [str(path)]


@pytest.mark.parametrize(
    "does, words",
    [
        ("echo bad luck; kill -SEGV $$", "exit 139, segmentation fault; its last line: bad luck"),
        ("exit 3", "exit 3"),
        ("sleep 1000", "no line from its client"),
    ],
)
def test_whatGoesWrongIsNotTheUnitsOutcome(worker, makeUnit, tmp_path, does, words):
    """A warm-up that crashes, fails or hangs is told, its log is kept, and the unit is measured."""
    job = makeUnit(Unit(0, 1, 2, 3, 4), client=clientThat(tmp_path, does))
    result = worker.submit(replace(job, silenceSeconds=2.0)).result(LIMIT)
    assert (result.outcome.kind, result.outcome.message) == (MEASURED, "")
    assert words in result.warmUp.message
    assert Path(warmUpOf(job).file(".log")).exists()


def test_unitThatCrashesAfterItsWarmUp(worker, makeUnit, tmp_path):
    """The unit is judged by itself, also where its warm-up went well."""
    client = tmp_path / "client"
    client.write_text('#!/bin/sh\ncase "$*" in *warmup*) exit 0;; esac\nkill -SEGV $$\n')
    client.chmod(0o755)
    result = worker.submit(makeUnit(Unit(0, 1, 2, 3, 4), client=[str(client)])).result(LIMIT)
    assert result.outcome.kind == CRASHED and result.warmUp.message == ""


def test_noIniForAWarmUp(worker, makeUnit, record):
    """Where its INI cannot be written the unit is measured without it."""
    job = makeUnit(Unit(0, 1, 2, 3, 4))
    os.mkdir(warmUpOf(job).file(".ini"))
    result = worker.submit(job).result(LIMIT)
    assert result.outcome.kind == MEASURED
    assert "unit_0.warmup.ini: Is a directory" in result.warmUp.message


def test_stopEndsTheWarmUpToo(worker, makeUnit, tmp_path):
    """Asked to end in the middle of the warm-up: unit and warm-up end, and nothing has failed."""
    job = makeUnit(Unit(0, 1, 2, 3, 4), client=clientThat(tmp_path, "exec sleep 1000"))
    future = worker.submit(job)
    end = time.monotonic() + LIMIT
    while not os.path.exists(warmUpOf(job).file(".log")):
        assert time.monotonic() < end
        time.sleep(0.01)
    worker.shorten(job)
    result = future.result(LIMIT)
    assert (result.outcome.kind, result.shortened, result.pieces) == (MEASURED, True, ())
    assert result.warmUp.message == "" and not os.path.exists(job.file(STOP_SUFFIX))


# The whole way, with an emulated client whose first pair on a cold device takes three times as
# long. No device of theirs is ever cold again: what a busy machine does decides nothing.
COLD = {"coldFactor": 3.0, "coldAfterSeconds": 1e9}


def emulate(runScript, step, tmp_path, *options, **settings):
    """The parallel client on three devices; returns (its process, results, step.json)."""
    path = tmp_path / "emulator.json"
    path.write_text(json.dumps({**COLD, **settings}))
    done = runScript(
        *("TensileParallelClient", "--config-file", step.ini, "--emulate", 3, *options),
        environment={
            "TENSILE_EMULATOR": str(path),
            # Devices that nobody has used yet.
            "TENSILE_PARALLEL_LOCK_DIR": str(tmp_path / "locks of this run"),
        },
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((Path(str(step.results) + ".parallel") / "step.json").read_text())
    return done, step.results.read_bytes(), report


def warmResults(runScript, step):
    """What one client writes on a device that is warm."""
    results = step.into / "serial.csv"
    runScript("TensileEmulatedClient", "--config-file", step.ini, "--results-file", results)
    return results.read_bytes()


@pytest.mark.parametrize("warmUp", [True, False])
def test_coldDevicesChangeNoValue(recorded, runScript, tmp_path, warmUp):
    """CASES 33: with the warm-up the file is that of a warm device; with --no-warm-up it is not."""
    step = recorded("tensilelite-2024/full")
    options = [] if warmUp else ["--no-warm-up"]
    _, results, report = emulate(runScript, step, tmp_path, *options, "--baseline", "off")
    assert (results == warmResults(runScript, step)) == warmUp
    assert any(unit["warmUp"] for unit in report["units"]) == warmUp
    assert report["counts"]["measured"] == 6 * 24 and report["baseline"] is None


def longStep(recorded):
    """Three problems that are so long by the model that a baseline compares a single pair."""
    step = recorded("tensilelite-2024/full")
    step.change(num_enqueues_per_sync="200000", problem_start_idx="2", num_problems="3")
    return step


# Clients that take so long that no worker comes too late for its baseline.
UNHURRIED = {"startSeconds": 1.0, "pairSeconds": 0.01}


@pytest.mark.parametrize("slower, percent", [(1.0, 0.0), (1.02, 1.96), (1.06, 5.66)])
def test_aBaselineIsItsOwnWarmUp(recorded, runScript, tmp_path, slower, percent):
    """A step with a baseline pays for no second client at its start: the first pair of the
    baseline warms the device and is not compared. Above 3 % there is one warning.

    Device 0 is warm from the start, so that the first pairs alone would differ threefold."""
    locks = tmp_path / "locks of this run"
    locks.mkdir()
    (locks / "emulator-gpu-0.busy").touch()
    step = longStep(recorded)
    record = tmp_path / "record.jsonl"
    settings = {"record": str(record), "deviceFactors": {"1": slower}, **UNHURRIED}
    done, _, report = emulate(runScript, step, tmp_path, "--keep-sizes-whole", **settings)
    baselines = [unit for unit in report["units"] if unit["baseline"]]
    assert sorted(unit["device"] for unit in baselines) == [0, 1, 2]
    assert all(unit["solutions"][1] == 2 and not unit["warmUp"] for unit in baselines)
    events = [json.loads(line)["event"] for line in record.read_text().splitlines()]
    warmed = [unit for unit in report["units"] if unit["warmUp"]]
    assert events.count("start") == len(report["units"]) + len(warmed)

    assert report["baseline"]["spreadPercent"] == pytest.approx(percent, abs=0.01)
    ratios = {one["device"]: one["ratio"] for one in report["baseline"]["devices"]}
    assert ratios == pytest.approx({0: 1.0, 1: 1 / slower, 2: 1.0}, abs=1e-4)
    warnings = [note for note in report["notes"] if "slower than" in note]
    assert len(warnings) == done.stderr.count("slower than") == (1 if percent > 3 else 0)
    assert all("device 1 is 5.7 % slower than device" in note for note in warnings)


@pytest.mark.parametrize("kind", ["huge", "error", "crash"])
def test_aBaselineThatFailsWarnsOfNothing(recorded, runScript, tmp_path, kind):
    """Values that are none are not compared, on whatever device; nothing of it gets anywhere."""
    step = longStep(recorded)
    fault = {"kind": kind, "device": 1, "size": "77,33,1,511", "solution": 1, "times": 1}
    options = ["--keep-sizes-whole"]
    _, results, report = emulate(runScript, step, tmp_path, *options, faults=[fault], **UNHURRIED)
    assert Path(tmp_path / "emulator.json.fired").exists(), "the baseline was another pair"
    assert results == warmResults(runScript, step)
    assert report["counts"]["measured"] == 3 * 24 and not report["failures"]
    assert not [note for note in report["notes"] if "slower than" in note]
    assert [one["device"] for one in report["baseline"]["devices"]] == [0, 2]
