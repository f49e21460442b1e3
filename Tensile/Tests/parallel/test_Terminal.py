# SPDX-License-Identifier: MIT
"""Streams that are closed, readers that are gone, files that may not grow: one line or nothing."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.unit

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "bin"


@pytest.fixture
def step(recorded):
    """(command of the parallel client, results file, what serial writes)."""
    one = recorded("tensilelite-2024/full")
    expected = one.into / "serial.csv"
    client = [sys.executable, str(SCRIPTS / "TensileEmulatedClient"), "--config-file"]
    subprocess.run(
        [*client, str(one.ini), "--results-file", str(expected)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    command = [sys.executable, str(SCRIPTS / "TensileParallelClient"), "--emulate", "2"]
    return [*command, "--config-file", str(one.ini)], one.results, expected.read_bytes()


@pytest.fixture
def run(tmp_path):
    """(command of TensileParallel on the stand-in host, its output folder)."""
    config = {
        "GlobalParameters": {"DeviceList": [0, 1], "Architecture": "gfx90a"},
        "BenchmarkProblems": [
            [
                {"OperationType": "GEMM", "DataType": "s", "UseBeta": True, "Batched": True},
                {
                    "ForkParameters": [{"PrefetchGlobalRead": [1, 2]}],
                    "BenchmarkFinalParameters": [{"ProblemSizes": [{"Exact": [64, 64, 1, 64]}]}],
                },
            ]
        ],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, str(SCRIPTS / "TensileParallel"), str(tmp_path / "config.yaml")]
    command += [str(tmp_path / "out"), "--emulate", "2"]
    command += ["--tensile-root", str(HERE / "host" / "tensilelite")]
    return command, tmp_path / "out"


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closedStreamsChangeNothing(step, closing):
    """Started without stdin, stdout or stderr: the same file, and nothing foreign in any file."""
    command, results, expected = step
    done = subprocess.run(["sh", "-c", 'exec "$@" ' + closing, "sh", *command], timeout=120)
    assert done.returncode == 0
    assert results.read_bytes() == expected
    for path in Path(str(results) + ".parallel").rglob("*"):
        if path.suffix in (".msgpack", ".csv", ".lock"):
            assert b"TensileParallel:" not in path.read_bytes()


@pytest.mark.parametrize("closing", ["<&-", "<&- >&- 2>&-"])
def test_closedStreamsOfARun(run, closing):
    """The same for TensileParallel itself, with a host below it."""
    command, out = run
    done = subprocess.run(["sh", "-c", 'exec "$@" ' + closing, "sh", *command], timeout=120)
    assert done.returncode == 0
    assert json.loads((out / "execution_summary.json").read_text())["state"] == "finished"


def readOneLine(command):
    """As `command | head -1` does; returns (exit status, what was said on stderr)."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read().decode()
    return process.wait(120), errors


def test_readerThatIsGoneChangesNothing(step, run):
    """`| head -1`: the run goes on to its end, with its own exit status and not a word on it."""
    command, results, expected = step
    assert readOneLine(command) == (0, "")
    assert results.read_bytes() == expected
    command, out = run
    status, errors = readOneLine(command)
    assert status == 0 and "Error" not in errors
    assert json.loads((out / "execution_summary.json").read_text())["state"] == "finished"


@pytest.mark.parametrize("room", [0, 300, 3000, 12000])
def test_filesThatMayNotGrow(step, room):
    """A full disk, a quota, a limit: one clear line and exit 1 where it matters, nothing is lost,
    and with room the same command ends with the serial file."""
    command, results, expected = step

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

    full = subprocess.run(
        command,
        preexec_fn=limit,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in full.stdout + full.stderr
    if full.returncode == 0:
        assert results.read_bytes() == expected
    else:
        assert full.returncode in (1, 2)
        assert not results.exists() or results.read_bytes() == expected
        ours = [line for line in full.stderr.splitlines() if line.startswith("TensileP")]
        assert len(ours) == 1, full.stderr  # joblib may warn as well
        assert ours[0].startswith("TensileParallelClient: error: ") and "too large" in ours[0]
        assert "give the same command again" in ours[0]
    assert os.path.exists(results.parent)
    done = subprocess.run(command, timeout=120, stdout=subprocess.DEVNULL)
    assert done.returncode == 0
    assert results.read_bytes() == expected
