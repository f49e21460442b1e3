# SPDX-License-Identifier: MIT
"""Kill any process, at any moment: nothing measured is lost, nothing is left running.

    pytest Tensile/Tests/parallel/test_Kills.py --kills 200

Short runs of the parallel client on emulated devices; the parent, a worker or a client gets SIGKILL
or SIGTERM at a random moment; the same command is given again until it has finished.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from Processes import Marked

from Tensile.Parallel.ClientConfig import readClientConfig
from Tensile.Parallel.Journal import readJournal
from Tensile.Parallel.SolutionNames import readSolutionNames

pytestmark = [pytest.mark.unit, pytest.mark.slow]

SCRIPTS = Path(__file__).resolve().parents[2] / "bin"
KILLS_PER_RUN = 4
DEVICES = 3


def pytest_generate_tests(metafunc):
    """One test for every few kills that were asked for."""
    count = -(-metafunc.config.getoption("--kills", default=8) // KILLS_PER_RUN)
    metafunc.parametrize("seed", range(count))


class Killing(Marked):
    """One step that is begun, killed and begun again."""

    def __init__(self, step, folder, seed):
        self.step = step
        config = readClientConfig(str(step.ini))
        self.sizes = [",".join(map(str, size.sizes)) for size in config.sizes]
        self.names = readSolutionNames(config.get("library-file"))
        self.random = random.Random(seed)
        self.record = folder / "record.jsonl"
        settings = {"pairSeconds": 0.012, "startSeconds": 0.05, "record": str(self.record)}
        (folder / "emulator.json").write_text(json.dumps(settings))
        super().__init__(TENSILE_EMULATOR=str(folder / "emulator.json"))
        self.command = [sys.executable, str(SCRIPTS / "TensileParallelClient"), "--emulate"]
        self.command += [str(DEVICES), "--config-file", str(step.ini)]
        self.whole = bool(seed % 2)
        if self.whole:
            self.command += ["--keep-sizes-whole"]

    def target(self, parent):
        """A process to be killed: the parent, a worker or a client, as chance will have it."""
        kind = self.random.choice(["parent", "worker", "client"])
        words = {"worker": "popen_loky", "client": "TensileEmulatedClient"}
        fitting = [pid for pid, line in self.own().items() if words.get(kind, "\n") in line]
        return self.random.choice(sorted(fitting)) if fitting else parent

    def kill(self, process):
        """Kills something after a while; says what."""
        time.sleep(self.random.uniform(0.2, 2.2))
        if process.poll() is not None:
            return "nothing: it had finished"
        pid = self.target(process.pid)
        number = self.random.choice([signal.SIGKILL, signal.SIGTERM])
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return "nothing: %d was gone" % pid
        return "%s to %s" % (number.name, "the parent" if pid == process.pid else pid)

    def held(self):
        """(size, solution's name) of every pair that the journal holds."""
        journal = Path(str(self.step.results) + ".parallel") / "journal.msgpack"
        return {
            (self.sizes[problem], self.names[solution])
            for record in readJournal(journal)
            for piece in record.get("pieces", ())
            for problem in range(
                piece["firstProblem"], piece["firstProblem"] + piece["problemCount"]
            )
            for solution in range(
                piece["firstSolution"], piece["firstSolution"] + piece["solutionCount"]
            )
        }

    def timedSince(self, offset):
        """(size, solution's name) of every pair that a client has timed since then."""
        with open(self.record, "rb") as stream:
            stream.seek(offset)
            lines = stream.read().splitlines()
        events = [json.loads(line) for line in lines if line.endswith(b"}")]
        return [(e["size"], e["name"]) for e in events if e["event"] == "pair"]

    def recorded(self):
        return self.record.stat().st_size if self.record.exists() else 0

    def clear(self):
        """Makes the step one that was never run."""
        self.step.results.unlink()
        shutil.rmtree(str(self.step.results) + ".parallel")


def test_killedAnywhereItContinues(recorded, tmp_path, seed):
    """Rules 4 and 8: after any kill the same command goes on and ends with the serial file; no
    process is left; with sizes kept whole, no pair that the journal held is timed again."""
    step = recorded("tensilelite-2024/full")
    killing = Killing(step, tmp_path, seed)
    expected = tmp_path / "serial.csv"
    subprocess.run(
        [sys.executable, str(SCRIPTS / "TensileEmulatedClient"), "--config-file", str(step.ini)]
        + ["--results-file", str(expected)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    story = []
    for attempt in range(KILLS_PER_RUN + 2):
        held, offset = killing.held(), killing.recorded()
        process = killing.start(killing.command)
        if attempt < KILLS_PER_RUN:
            story.append(killing.kill(process))
        output, _ = process.communicate(timeout=120)
        story.append("exit %d" % process.returncode)
        killing.assertNothingIsLeft()
        if killing.whole and killing.record.exists():
            again = held & set(killing.timedSince(offset))
            assert not again, (story, sorted(again)[:3])
        assert held <= killing.held(), (story, "the journal has lost something")
        if process.returncode == 0:
            assert step.results.read_bytes() == expected.read_bytes(), story
            if attempt < KILLS_PER_RUN:
                killing.clear()
    assert process.returncode == 0, (story, output)
    print("; ".join(story))  # -rP shows it
