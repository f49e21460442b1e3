# SPDX-License-Identifier: MIT
"""Clusters that tests start: a scheduler, nodes with emulated devices, all real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from Processes import Marked, waitFor

ROOT = Path(__file__).resolve().parents[3]
BIN = ROOT / "Tensile" / "bin"
SCHEDULER = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]


def freePort(host="127.0.0.1"):
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class Nodes:
    """A scheduler and nodes. What they start carries a mark, by which it is found.

    Attributes:
        address: the scheduler's.
        marked: finds every process.
    """

    def __init__(self, folder, host="127.0.0.1", **variables):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._host = host
        self._port = freePort(host)
        self.address = "tcp://%s:%d" % (host, self._port)
        self.marked = Marked(DASK_LOGGING__DISTRIBUTED="critical", **variables)
        self.scheduler = None
        self.nodes = {}
        self.startScheduler()

    def startScheduler(self):
        """Starts it, again at the same address where it was killed."""
        command = [*SCHEDULER, "--host", self._host, "--port", str(self._port)]
        self.scheduler = self._start(command, {}, "scheduler")

    def startNode(self, name, devices=1, settings=None, *options, prefix=(), command=None):
        """Starts a join; its cache, locks and log are its own."""
        own = self.folder / name
        own.mkdir(exist_ok=True)
        variables = {"XDG_CACHE_HOME": own / "cache", "TENSILE_PARALLEL_LOCK_DIR": own / "locks"}
        if settings is not None:
            if not (own / "emulator.json").exists():  # a test may have changed it since
                (own / "emulator.json").write_text(json.dumps(settings))
            variables["TENSILE_EMULATOR"] = own / "emulator.json"
        words = command or [sys.executable, BIN / "TensileParallel"]
        words = [*prefix, *words, "--join", self.address, "--node-name", name]
        words += ["--emulate", devices, *options]
        self.nodes[name] = self._start(words, variables, name)
        return self.nodes[name]

    def _start(self, command, variables, name):
        environment = {**self.marked.environment, **{k: str(v) for k, v in variables.items()}}
        if "XDG_CACHE_HOME" in variables:  # a join: what it says by itself is looked at
            environment.pop("DASK_LOGGING__DISTRIBUTED", None)
        with open(self.folder / (name + ".log"), "ab") as log:
            return subprocess.Popen(
                list(map(str, command)),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def log(self, name):
        """What a node, or the scheduler, has said."""
        return (self.folder / (name + ".log")).read_text(errors="replace")

    def strangeLines(self):
        """What joins have said that is none of our lines: Dask's own words."""
        names = [path.stem for path in self.folder.glob("*.log") if path.stem != "scheduler"]
        lines = [line for name in names for line in self.log(name).splitlines()]
        return [line for line in lines if line and not line.startswith("TensileParallel: ")]

    def waitForJoins(self, count):
        """Waits until so many devices have joined, in all."""
        waitFor(lambda: sum(self.log(n).count("has joined") for n in self.nodes) >= count)

    def own(self, *words):
        """pid -> command line of the processes whose command line has all the words."""
        return {p: c for p, c in self.marked.own().items() if all(word in c for word in words)}

    def stop(self):
        """Ends everything, politely first; then nothing may be left."""
        for process in self.nodes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.nodes.values():
            process.wait(timeout=60)
        if self.scheduler.poll() is None:
            self.scheduler.terminate()
        self.scheduler.wait(timeout=60)
        self.marked.assertNothingIsLeft()


def killHard(pid):
    """SIGKILL; whether the process was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def runOnCluster(nodes, arguments, seconds=120.0, script="TensileParallelClient"):
    """A front end of ours on the cluster: (exit status, what it said)."""
    command = [sys.executable, str(BIN / script), *map(str, arguments)]
    process = nodes.marked.start([*command, "--scheduler", nodes.address])
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError("it hangs: " + process.communicate()[0][-3000:]) from None
    return process.returncode, output


def elapsed(begun):
    """Seconds since a time of the monotonic clock."""
    return time.monotonic() - begun
