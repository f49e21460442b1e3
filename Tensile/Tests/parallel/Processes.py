# SPDX-License-Identifier: MIT
"""Processes of a command that a test starts: run to their end, or found by a mark."""

import os
import subprocess
import time
import uuid
from pathlib import Path

MARK = "TENSILE_TEST_MARK"
GONE_SECONDS = 5.0
WAIT_SECONDS = 100.0


def waitFor(condition):
    """Waits until something is true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it has not become true"
        time.sleep(0.02)


def runToEnd(*command, cwd=None, environment=None):
    """The process, when it has ended; its stdout holds all that it said."""
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_SECONDS,
    )


class Marked:
    """A command and all that it starts, however often it is started.

    Attributes:
        environment: what it is started with.
    """

    def __init__(self, **variables):
        self._mark = str(uuid.uuid4())
        self.environment = {**os.environ, **variables, MARK: self._mark}

    def start(self, command):
        """The process, with all that it says on its stdout."""
        return subprocess.Popen(
            list(map(str, command)),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def own(self):
        """pid -> command line of every process of it that runs."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().decode()
            except OSError:
                continue  # it has just ended, or is another user's
        return found

    def assertNothingIsLeft(self):
        """Shortly after the end of the command, all that it has started has ended."""
        deadline = time.monotonic() + GONE_SECONDS
        while self.own() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not self.own()
