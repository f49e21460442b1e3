# SPDX-License-Identifier: MIT
"""A worker's guard ends what the worker has started when the worker is gone."""

import os
import signal
import subprocess
import sys
import time

import pytest

from Tensile.Parallel import Guard as GuardModule
from Tensile.Parallel.Guard import Guard

pytestmark = pytest.mark.unit

WORKER = """
import subprocess, sys, time
sys.path[:0] = %r
from Tensile.Parallel.Guard import Guard
guard = Guard()
groups = [subprocess.Popen(["sh", "-c", "sleep 1000 & wait"], start_new_session=True,
                           preexec_fn=guard.watchSelf)
          for _ in range(2)]
try:
    subprocess.Popen(["/nonexistent"], start_new_session=True, preexec_fn=guard.watchSelf)
except OSError:
    guard.forgetLast()
guard.forget(groups[1].pid)
print(groups[0].pid, groups[1].pid, guard._process.pid, flush=True)
time.sleep(1000)
"""


def groupIsThere(group):
    """Whether any process of a group is left, but for what is dead already."""
    listing = subprocess.run(["ps", "-eo", "pgid,stat"], stdout=subprocess.PIPE, text=True).stdout
    rows = [line.split() for line in listing.splitlines()[1:]]
    return any(int(pgid) == group and not state.startswith("Z") for pgid, state in rows)


def waitUntil(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whatAWorkerStartedGoesWithIt(number):
    """A wrapper's children too, which the kernel would leave; but nothing that was forgotten."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER % (sys.path,)], stdout=subprocess.PIPE, text=True
    )
    watched, forgotten, guard = map(int, worker.stdout.readline().split())
    try:
        assert groupIsThere(watched) and groupIsThere(forgotten)
        worker.send_signal(number)
        worker.wait()
        assert waitUntil(lambda: not groupIsThere(watched))
        assert waitUntil(lambda: not groupIsThere(guard)), "the guard has outlived its worker"
        assert groupIsThere(forgotten)
    finally:
        os.killpg(forgotten, signal.SIGKILL)
        worker.kill()


def test_killedGuardStopsNobody():
    """Somebody kills the guard: the worker goes on."""
    guard = Guard()
    guard._process.kill()
    guard._process.wait()
    for _ in range(3):
        client = subprocess.run(["true"], preexec_fn=guard.watchSelf)
        assert client.returncode == 0
        guard.forget(2**22 + 1)


def test_groupsThatAreGoneAreNoError(tmp_path):
    """What has ended by itself is nothing to kill."""
    ended = subprocess.Popen(["true"], start_new_session=True)
    ended.wait()
    words = tmp_path / "words"
    words.write_bytes(b"-\n+%d\n+%d\n-%d\n-\n" % (ended.pid, 2**22 + 1, 2**22 + 1))
    with open(words, "rb") as stream:
        GuardModule.guard(stream)


def test_whoDidNotBecomeAClientIsForgotten(tmp_path):
    """A program that cannot be executed has announced itself: its number may be somebody else's."""
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        words = tmp_path / "words"
        words.write_bytes(b"+%d\n-\n" % other.pid)
        with open(words, "rb") as stream:
            GuardModule.guard(stream)
        assert other.poll() is None and groupIsThere(other.pid)
    finally:
        other.kill()
        other.wait()
