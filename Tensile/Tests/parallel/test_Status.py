# SPDX-License-Identifier: MIT
"""status.json and --status: a run as others see it, alive, ended, dead, or not there at all."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile

import pytest
from conftest import HOST, ROOT
from hypothesis import given
from hypothesis import settings as hypothesisSettings
from hypothesis import strategies as st
from Processes import waitFor

from Tensile.Parallel.ConfigSteps import ConfigStep
from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.Files import replaceJson
from Tensile.Parallel.Run import main
from Tensile.Parallel.Status import (
    BENCHMARKING,
    FAILED,
    FINISHED,
    KERNELS,
    LOGIC,
    SCHEMA,
    STOPPED,
    WRITE_SECONDS,
    RunStatus,
    StepCounter,
    readStatus,
    showStatus,
)
from Tensile.Parallel.StatusText import progressLine, statusLines
from Tensile.Parallel.Terminal import duration

FIRST = {
    "name": "T_00/00_Final",
    "best": False,
    "whole": False,
    "problems": 5,
    "solutions": 12,
    "started": 1010.0,
    "pairs": {"done": 30, "total": 60, "resumed": 0, "failed": 0},
    "units": {"done": 2, "failed": 0},
    "secondsLeft": 10.0,
}


class Run:
    """A run with a clock that the test sets, and a parallel client that the test is."""

    def __init__(self, folder, steps=(5, 10)):
        (folder / "outputs").mkdir(parents=True)
        self.folder = folder
        self.time = 1000.0
        known = [ConfigStep(0, group, sizes) for group, sizes in enumerate(steps)]
        self.status = RunStatus(
            str(folder), "run", 1000.0, known, [0, 1], True, now=lambda: self.time
        )

    def tell(self, state="running", run="run", updated=1020.0, devices=(), **changes):
        step = {**FIRST, **changes}
        told = {"run": run, "state": state, "step": step, "updated": updated}
        replaceJson(self.folder / "outputs" / "progress.json", {**told, "devices": list(devices)})
        self.time = updated
        return self.status.tick()

    def onDisk(self):
        return json.loads((self.folder / "status.json").read_text())


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "out")


@pytest.mark.unit
def test_theStatesOfARun(run):
    """Preparing, kernels, benchmarking, kernels, benchmarking, logic, finished: each at once."""
    assert run.onDisk()["state"] == "preparing"
    run.status.setState(KERNELS)
    assert run.onDisk()["state"] == KERNELS
    run.tell()
    assert (run.onDisk()["state"], run.onDisk()["stepNumber"]) == (BENCHMARKING, 1)
    run.tell("finished", updated=1030.0)
    assert (run.onDisk()["state"], run.onDisk()["stepNumber"]) == (KERNELS, 1)
    run.tell(name="T_01/00_Final", problems=10, started=1040.0, updated=1041.0)
    assert (run.onDisk()["state"], run.onDisk()["stepNumber"]) == (BENCHMARKING, 2)
    run.tell("finished", name="T_01/00_Final", problems=10, started=1040.0, updated=1050.0)
    assert run.onDisk()["state"] == LOGIC
    run.status.end(FINISHED, 0)
    ended = run.onDisk()
    assert (ended["state"], ended["exitStatus"], ended["schema"]) == (FINISHED, 0, SCHEMA)
    assert ended["secondsLeft"] is None


@pytest.mark.unit
def test_aStoppedRunGoesOnToNothing(run):
    """After a step that was stopped the host writes no logic, and makes no kernels."""
    run.tell()
    run.tell("stopped", updated=1030.0)
    assert run.onDisk()["state"] == BENCHMARKING
    run.status.end(STOPPED, 130)
    assert run.onDisk()["state"] == STOPPED


@pytest.mark.unit
def test_whatIsLeftOfTheRun(run):
    """This step and, as long per problem, the later ones; before that is known, at least this."""
    run.tell(secondsLeft=None)
    assert run.onDisk()["secondsLeft"] is None
    status = run.tell(secondsLeft=10.0, updated=1020.0)
    # 20 s for five problems; ten more, and 10 s of kernels before them.
    assert (status["secondsLeft"], status["secondsLeftIs"]) == (10 + 40 + 10, "about")
    unknown = Run(run.folder / "other", (5, None)).tell()
    assert (unknown["secondsLeft"], unknown["secondsLeftIs"]) == (10, "at least")


@pytest.mark.unit
def test_resumedPairsTellNothingOfTheTime(run):
    """A step that an earlier run had half measured takes half: the later ones take all."""
    pairs = {"done": 45, "total": 60, "resumed": 30, "failed": 0}
    status = run.tell(secondsLeft=10.0, pairs=pairs)
    assert status["secondsLeft"] == 10 + 80 + 10
    assert status["resumedPairs"] == 30


@pytest.mark.unit
def test_aSkippedStepIsCountedAll(run):
    """Where the host skips the first step, the second is still the second."""
    status = run.tell(name="T_01/00_Final", problems=10)
    assert (status["stepNumber"], status["stepCount"]) == (2, 2)
    counter = StepCounter([])
    counter.begin(FIRST, 1.0)
    assert (counter.number, counter.count) == (1, 1)


@pytest.mark.unit
def test_anotherRunsProgressIsNotOurs(run):
    """What an earlier run left in the folder says nothing of this one."""
    assert run.tell(run="earlier")["step"] is None


@pytest.mark.unit
def test_halfAProgressFileIsNoError(run):
    """Whatever stands there, the next whole one counts."""
    (run.folder / "outputs" / "progress.json").write_text('{"run": "ru')
    run.status.tick()
    assert run.tell()["state"] == BENCHMARKING


@pytest.mark.unit
def test_itIsWrittenAtMostOnceASecondAndOnlyForNews(run):
    """Nobody's disk is kept busy by a run that has nothing to say."""
    run.tell()
    mark = os.stat(run.folder / "status.json").st_mtime_ns
    run.tell(pairs={**FIRST["pairs"], "done": 31}, updated=1020.0 + WRITE_SECONDS / 2)
    assert os.stat(run.folder / "status.json").st_mtime_ns == mark
    run.time += WRITE_SECONDS
    run.status.tick()
    assert run.onDisk()["step"]["pairs"]["done"] == 31
    mark = os.stat(run.folder / "status.json").st_mtime_ns
    for _ in range(5):
        run.time += WRITE_SECONDS
        run.status.tick()
    assert os.stat(run.folder / "status.json").st_mtime_ns == mark


@pytest.mark.unit
def test_aRunThatEndsByAnErrorOfOursHasFailed(run):
    """It is not left as if it were alive."""
    with pytest.raises(ValueError), run.status:
        raise ValueError("a bug")
    assert (run.onDisk()["state"], run.onDisk()["exitStatus"]) == (FAILED, 1)


@pytest.mark.unit
@pytest.mark.parametrize("state, exitStatus, expected", [(FINISHED, 0, 0), (FINISHED, 1, 1)])
def test_exitStatusOfStatus(run, state, exitStatus, expected):
    """0 where it ended well; 1 where pairs are missing, it failed, was stopped or died."""
    said = []
    run.status.end(state, exitStatus)
    assert showStatus(str(run.folder), False, said.append) == expected
    for other in (FAILED, STOPPED):
        run.status.end(other, 1)
        assert showStatus(str(run.folder), False, said.append) == 1
    run.status.setState(KERNELS)
    assert showStatus(str(run.folder), False, said.append) == 1
    assert "died" in " ".join(said)


@pytest.mark.unit
def test_theLockTellsWhetherARunLives(run):
    """However old its file is; and a look takes the lock from nobody."""
    run.status.setState(BENCHMARKING)
    os.utime(run.folder / "status.json", (1.0, 1.0))
    with open(run.folder / "outputs" / ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert readStatus(str(run.folder))["state"] == BENCHMARKING
        assert readStatus(str(run.folder))["state"] == BENCHMARKING
    assert readStatus(str(run.folder))["state"] == "died"
    # Its clock has stopped with it: 42 s, whenever it is looked at.
    run.tell(updated=1042.0)
    for now in (1050.0, 9e9):
        head = statusLines(readStatus(str(run.folder)), now)[0]
        assert head.startswith("died, or could not write how it ended (a full disk?); the same com")
        assert ", last heard of at 1970-01-01 " in head and ", after 42 s" in head
    with open(run.folder / "outputs" / ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.unit
def test_noRunIsOneLine(tmp_path, capsys):
    """No folder, no run, an older run, half a file, another schema, no status at all."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "older" / "outputs").mkdir(parents=True)
    (tmp_path / "older" / "outputs" / "run.json").write_text("{}")
    for name, text in (
        ("half", '{"schema": 1, "run'),
        ("later", '{"schema": 99}'),
        ("list", "[]"),
        ("bare", '{"schema": 1}'),
        (
            "odd",
            '{"schema": 1, "run": 1, "state": "finished", "started": 1, "devices": [],'
            ' "step": 7, "exitStatus": 0}',
        ),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status.json").write_text(text)
    for name in ("none", "empty", "older", "half", "later", "list", "bare", "odd"):
        assert main(["--status", str(tmp_path / name)]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("TensileParallel: error: "), name
        assert name in lines[0] and "None" not in lines[0]
    for option in ("--status", "--report"):
        assert main([option, str(tmp_path / "two\nlines")]) == 2
        assert "/two\\nlines" in capsys.readouterr().err.splitlines()[0]


@pytest.mark.unit
def test_anAnswerThatCannotBeWrittenIsAFailure(run):
    """On a full disk --status has not answered; a reader that is gone has what it wanted."""
    run.status.end(FINISHED, 0)
    command = [sys.executable, str(ROOT / "Tensile" / "bin" / "TensileParallel")]
    command += ["--status", str(run.folder)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "error: the output: No space left" in done.stderr
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.unit
@hypothesisSettings(deadline=None, max_examples=40)
@given(st.text(), st.recursive(st.none() | st.integers(), st.lists, max_leaves=3))
def test_aDamagedStatusIsNoTraceback(text, value):
    """Whatever stands where words and numbers are expected, it is one line."""
    status = {"schema": 1, "run": text, "state": text, "started": value, "devices": [value]}
    with tempfile.TemporaryDirectory() as out:
        with open(os.path.join(out, "status.json"), "w", encoding="utf-8") as stream:
            json.dump({**status, "step": value, "exitStatus": value}, stream)
        try:
            showStatus(out, False, lambda line: None)
        except InputError:
            pass


@pytest.mark.unit
@pytest.mark.parametrize(
    "words", [["--json"], ["--status"], ["--status", "o", "--fresh"], ["--status", "o", "c.yaml"]]
)
def test_statusStandsAlone(words, capsys):
    """It starts nothing, so what is meant for a run is refused."""
    assert main(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.unit
def test_wordsForPeople(run):
    """Nothing is claimed that is not known; times are short."""
    assert "left" not in progressLine(run.status.status, 1002.0)
    status = run.tell()
    line = progressLine(status, 1020.0)
    assert "step 1 of 2: 50 % (30 of 60 pairs)" in line
    assert "about 10 s left in this step, about 1 min 00 s in all" in line
    assert "1 unit failed" in progressLine(run.tell(units={"done": 2, "failed": 1}), 1020.0)
    run.status.setState(KERNELS)
    idle = [{"device": number, "state": "idle", "units": 0} for number in range(4)]
    assert statusLines({**run.onDisk(), "devices": idle}, 1e3)[2:] == [
        "no work for the devices yet"
    ]
    busy = [*idle[1:], {"device": 0, "state": "starting", "units": 1}]
    assert len(statusLines({**run.onDisk(), "devices": busy}, 1e3)[2:]) == 4
    run.status.end(STOPPED, 130)
    assert "continues" in statusLines(run.onDisk(), 1e9)[0]
    expected = {0: "0 s", 59.6: "1 min 00 s", 3599: "59 min 59 s", 7260: "2 h 01 min"}
    assert {seconds: duration(seconds) for seconds in expected} == expected
    assert duration(200000) == "2 d 07 h"


def test_aRealRunFromAnotherShell(tmp_path, smallConfig, runScript):
    """Seen while it runs, after it was killed, and after the same command has ended it."""
    settings = tmp_path / "emulator.json"
    settings.write_text(json.dumps({"pairSeconds": {"512,128,1,64": 6.0, "default": 0.01}}))
    out = tmp_path / "out"
    command = [sys.executable, str(ROOT / "Tensile" / "bin" / "TensileParallel"), str(smallConfig)]
    command += [str(out), "--emulate", "2", "--tensile-root", str(HOST / "tensilelite")]
    environment = {**os.environ, "TENSILE_EMULATOR": str(settings)}
    log = open(tmp_path / "said", "wb")
    run = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def look(*more):
        return runScript("TensileParallel", "--status", out, *more)

    def pairs():
        try:
            step = json.loads((out / "status.json").read_text())["step"]
        except OSError:
            return 0
        return step["pairs"]["done"] if step else 0

    waitFor(lambda: pairs() > 1)
    seen = look()
    assert seen.returncode == 0 and "benchmarking" in seen.stdout, seen
    assert "device 1: " in seen.stdout and "step 1 of 1" in seen.stdout
    assert json.loads(look("--json").stdout)["state"] == BENCHMARKING
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    waitFor(lambda: readStatus(str(out))["state"] == "died")
    dead = look()
    assert dead.returncode == 1 and "died" in dead.stdout
    settings.write_text("{}")
    done = runScript("TensileParallel", *command[2:], timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "status.json").read_text())["resumedPairs"] > 0
    assert showStatus(str(out), False, lambda line: None) == 0
    assert readStatus(str(out))["state"] == FINISHED
    log.close()
