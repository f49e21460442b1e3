# SPDX-License-Identifier: MIT
"""What public reports tell of tuners and worker pools, with the behaviour that we want.

Others of these cases are tested where their module is: a worker that exits between units, an
initializer that raises, workers that die while others wait, lines that were cut in half.
"""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from Tensile.Parallel.UnitLogs import SUFFIX, openLog

pytestmark = [pytest.mark.unit, pytest.mark.slow]

CLIENT = Path(__file__).resolve().parents[2] / "bin" / "TensileEmulatedClient"


@pytest.fixture
def step(recorded):
    """A step of 6 problems x 24 solutions."""
    return recorded("tensilelite-2024/full")


def settingsOf(folder, **settings):
    path = folder / "emulator.json"
    path.write_text(json.dumps(settings))
    return {"TENSILE_EMULATOR": str(path)}


def serialOf(step, runScript):
    results = step.into / "serial.csv"
    runScript("TensileEmulatedClient", "--config-file", step.ini, "--results-file", results)
    return results.read_bytes()


def reportOf(step):
    return json.loads((Path(str(step.results) + ".parallel") / "step.json").read_text())


def wrapper(folder, text):
    """An executable client: `text`, then the emulated client."""
    path = folder / "wrapper"
    path.write_text('#!/bin/sh\n%s\nexec %s %s "$@"\n' % (text, sys.executable, CLIENT))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("times", [1, 2])
def test_clientThatAbortsNowAndThen(step, runScript, tmp_path, times):
    """Aborts that do not come again cost nothing: the pair is tried again, and again elsewhere."""
    fault = {"kind": "crash", "signal": 6, "size": "256,512,1,2048", "solution": 7}
    environment = settingsOf(tmp_path, faults=[{**fault, "times": times}])
    done = runScript(
        *("TensileParallelClient", "--config-file", step.ini, "--emulate", 3),
        environment=environment,
    )
    assert done.returncode == 0, done.stdout
    assert step.results.read_bytes() == serialOf(step, runScript)
    assert [unit["kind"] for unit in reportOf(step)["units"]].count("crashed") == times


def test_unitWhoseProcessVanishesWhileOthersAreSlow(step, runScript, tmp_path):
    """One client is gone at once, the others take long: its pairs are measured, nobody else is."""
    flag = tmp_path / "first"
    client = wrapper(tmp_path, "if mkdir %s 2>/dev/null; then kill -9 $$; fi" % flag)
    environment = settingsOf(tmp_path, pairSeconds=0.03)
    done = runScript(
        *("TensileParallelClient", "--config-file", step.ini, "--emulate", 2),
        *("--client", client, "--hang-limit", 20, "--no-warm-up"),
        environment=environment,
    )
    assert done.returncode == 0, done.stdout
    assert step.results.read_bytes() == serialOf(step, runScript)
    kinds = [unit["kind"] for unit in reportOf(step)["units"]]
    assert kinds.count("crashed") == 1 and "hung" not in kinds


def test_waitingForItsTurnIsNoSilence(step, runScript, tmp_path):
    """One device, several units of seconds each, a limit that each of them keeps: none expires."""
    step.change(num_benchmarks="1")
    environment = settingsOf(
        tmp_path,
        pairSeconds=0.02,
        startSeconds=0.7,
        faults=[
            {"kind": "crash", "size": size, "solution": 23, "times": 2}
            for size in ("1024,1024,1,1024", "77,33,1,511")
        ],
    )
    done = runScript(
        *("TensileParallelClient", "--config-file", step.ini, "--emulate", 1),
        *("--hang-limit", 1.5),
        environment=environment,
    )
    assert "hung" not in [unit["kind"] for unit in reportOf(step)["units"]], done.stdout
    assert len(reportOf(step)["units"]) > 2


def test_megabytesOfNoise(step, runScript, tmp_path):
    """10 MB that are no text, on both streams: logged whole, no deadlock, nothing lost."""
    faults = [{"kind": "noise", "megabytes": 10, "size": "1024,1024,1,1024", "solution": 5}]
    done = runScript(
        *("TensileParallelClient", "--config-file", step.ini, "--emulate", 2),
        environment=settingsOf(tmp_path, faults=faults),
    )
    assert done.returncode == 0, done.stdout
    assert step.results.read_bytes() == serialOf(step, runScript)
    logs = Path(str(step.results) + ".parallel").rglob("unit_*.log*")
    sizes = []
    for log in logs:
        with openLog(str(log)[: -len(SUFFIX)] if log.suffix == SUFFIX else log) as stream:
            sizes.append(len(stream.read()))
    assert max(sizes) > 20 * 10**6


def test_oneWorkerNeverComesUp(step, runScript, tmp_path):
    """One of four devices cannot be locked: it is reported, and the run goes on with three."""
    locks = Path(os.environ["TENSILE_PARALLEL_LOCK_DIR"])
    locks.mkdir(parents=True, exist_ok=True)
    (locks / "emulated-2.lock").mkdir()  # no file: it can be neither opened nor locked
    arguments = ("TensileParallelClient", "--config-file", step.ini, "--emulate", 4, "--fresh")
    done = runScript(*arguments, environment=settingsOf(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "device 2 is set aside" in done.stdout + done.stderr
    assert step.results.read_bytes() == serialOf(step, runScript)
    assert reportOf(step)["devicesLost"] == [2]
    strict = runScript(*arguments, "--strict", environment=settingsOf(tmp_path))
    assert strict.returncode == 1
    assert step.results.read_bytes() == serialOf(step, runScript)


def test_exitOnErrorEndsAllDevices(step, runScript, tmp_path):
    """The first wrong result ends the run on every device, with 1; what was measured is kept."""
    step.change(exit_on_error="1")
    slow = {size: 0.5 for size in ("4096,4096,1,4096", "1024,1024,1,1024")}
    environment = settingsOf(
        tmp_path,
        pairSeconds={**slow, "default": 0.02},
        faults=[{"kind": "invalid", "size": "77,33,1,511", "solution": 2}],
    )
    done = runScript(
        *("TensileParallelClient", "--config-file", step.ini, "--emulate", 6),
        environment=environment,
    )
    assert done.returncode == 1, done.stdout
    report = reportOf(step)
    # The slow rows were ended in the middle.
    assert report["leftOver"] > 0 and report["counts"]["measured"] > 0
