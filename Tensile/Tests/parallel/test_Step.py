# SPDX-License-Identifier: MIT
"""A step's inputs, and the INI and command of its units."""

import json

import pytest

from Tensile.Parallel.ClientConfig import readClientConfig
from Tensile.Parallel.ParseArguments import parseClientArguments
from Tensile.Parallel.Step import makeJob, makeStep
from Tensile.Parallel.Types import Device, Unit

pytestmark = pytest.mark.unit


def test_sizesOfTheCommandLine(recorded, tmp_path):
    """A --problem-size replaces the INI's list: units get their own sizes of it, and only those.

    On a unit's command line the option would replace the unit's list as well, and a row would
    hold another problem's times.
    """
    step = recorded("tensilelite-2024/full")
    sizes = ["64,64,1,64", "128,64,1,64", "256,64,1,64"]
    given = [text for size in sizes for text in ("--problem-size", size)]
    arguments = ["--config-file", str(step.ini), "--emulate", "2", *given, "--num-warmups", "7"]
    made = makeStep(parseClientArguments(arguments), ("client",), "gfx90a")
    assert made.table.problemCount == 3
    job = makeJob(made, Unit(0, 1, 2, 0, 24), Device(0, "0"), tmp_path / "outputs", "x")
    unit = readClientConfig(job.file(".ini"))
    assert unit.getAll("problem-size") == sizes[1:]
    assert not [text for text in job.command if "problem-size" in text or "strides" in text]
    assert unit.get("num-warmups") == "7"


def test_sizesOfTheCommandLineGiveTheSerialFile(recorded, runScript):
    """The same, by running it: the parallel file is the serial one."""
    step = recorded("tensilelite-2024/full")
    sizes = [text for n in (64, 512, 128, 96) for text in ("--problem-size", "%d,64,1,64" % n)]
    done = runScript("TensileParallelClient", "--config-file", step.ini, "--emulate", 3, *sizes)
    assert done.returncode == 0, done.stderr
    serial = step.into / "serial.csv"
    done = runScript(
        "TensileEmulatedClient", "--config-file", step.ini, "--results-file", serial, *sizes
    )
    assert done.returncode == 0, done.stderr
    assert step.results.read_bytes() == serial.read_bytes()


def test_wholeStepRunsOnce(recorded, runScript):
    """A step that cannot be cut is one unit, however long it is expected to take."""
    step = recorded("tensilelite-2024/full")
    step.change(best_solution="1", num_benchmarks="2", num_enqueues_per_sync="10000")
    lines = [line for line in step.ini.read_text().splitlines() if "strides" not in line]
    lines += ["problem-size=%d,8192,1,8192" % (8192 + 8 * n) for n in range(40)]
    step.ini.write_text("\n".join(lines) + "\n")
    done = runScript("TensileParallelClient", "--config-file", step.ini, "--emulate", 3)
    assert done.returncode == 0, done.stderr
    report = json.loads((step.out / "results.csv.parallel" / "step.json").read_text())
    assert report["whole"] and len(report["units"]) == 1
