# SPDX-License-Identifier: MIT
"""What a long run leaves: logs of units are packed, step.json is not written all the time."""

import gzip
import json

import pytest

from Tensile.Parallel import UnitLogs
from Tensile.Parallel.Seldom import Seldom
from Tensile.Parallel.StepReport import WRITE_PAUSE, StepReport
from Tensile.Parallel.UnitLogs import LEAST_BYTES, openLog, packLogs


@pytest.mark.unit
def testLargeLogsArePackedAndReadAsBefore(tmp_path):
    """A large log is packed, a small one stays; both are read by the name they had."""
    large, small = tmp_path / "unit_0.log", tmp_path / "unit_1.log"
    text = b"".join(b"line %d of a client\n" % number for number in range(LEAST_BYTES // 16))
    large.write_bytes(text)
    small.write_bytes(b"few\n")
    packLogs([large, small, tmp_path / "unit_2.log"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["unit_0.log.gz", "unit_1.log"]
    assert openLog(large).read() == text and openLog(small).read() == b"few\n"
    assert (tmp_path / "unit_0.log.gz").stat().st_size < len(text) / 5
    with pytest.raises(FileNotFoundError):
        openLog(tmp_path / "unit_2.log")


@pytest.mark.unit
def testAFullDiskLeavesTheLog(tmp_path, monkeypatch):
    """Where a log cannot be packed it stays, and nothing else is left behind."""
    path = tmp_path / "unit_0.log"
    path.write_bytes(bytes(LEAST_BYTES))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(UnitLogs.os, "fsync", full)
    packLogs([path])
    assert [p.name for p in tmp_path.iterdir()] == ["unit_0.log"]


def testAStepGoesOnFromPackedLogs(recorded, runScript):
    """After a step the logs of units that went well are packed, that of a crash is not; a later run
    has the results file, and the client's log-file, from what is there."""
    step = recorded("tensilelite-2024/full")
    clientLog = step.into / "client.log"
    step.change(log_file=str(clientLog))
    settings = step.into / "settings.json"
    fault = {"problem": 2, "solution": 3, "kind": "crash", "times": 1}
    settings.write_text(json.dumps({"faults": [fault]}))
    command = ["--config-file", step.ini, "--emulate", "1", "--no-warm-up"]
    environment = {"TENSILE_EMULATOR": str(settings)}
    done = runScript("TensileParallelClient", *command, environment=environment)
    assert done.returncode == 0, done.stdout
    outputs = step.into / "results" / "results.csv.parallel"
    units = json.loads((outputs / "step.json").read_text("utf-8"))["units"]
    crashed = ["unit_%d.log" % each["unit"] for each in units if each["kind"] == "crashed"]
    packed = sorted(outputs.rglob("*.log.gz"))
    assert crashed and packed
    assert set(crashed) <= {path.name for path in outputs.rglob("*.log")}
    with gzip.open(packed[0]) as stream:
        assert len(stream.read()) >= LEAST_BYTES
    results, lines = step.results.read_bytes(), clientLog.read_bytes()
    step.results.unlink()
    clientLog.unlink()
    again = runScript("TensileParallelClient", *command)
    assert again.returncode == 0 and "pairs were measured before" in again.stdout, again.stdout
    assert step.results.read_bytes() == results
    assert clientLog.read_bytes() == lines


@pytest.mark.unit
def testAStepOfManyUnitsIsNotRewrittenAllTheTime():
    """step.json holds all units: writing it after each takes a hundredth of the time at most."""
    now, written = [1000.0], []
    report = StepReport.__new__(StepReport)
    report._writing = Seldom(WRITE_PAUSE, clock=lambda: now[0])

    def write(state):
        written.append(state)
        now[0] += 0.2

    report.write = write
    for _ in range(1000):
        report.keepCurrent()
        now[0] += 0.1
    assert 3 < len(written) < 8 and set(written) == {"running"}
