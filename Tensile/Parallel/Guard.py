# SPDX-License-Identifier: MIT
"""Ends what a worker has started when the worker itself is gone, however it ended.

A client dies with its worker by the kernel's hand, but not what it has started in turn (a wrapper
that does not exec). So each worker has a guard: a small process that reads a pipe whose other end
only the worker holds. The worker tells it which process groups it has started; when the pipe ends,
the guard kills those that are left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import BinaryIO, Optional, Set


class Guard:
    """A worker's guard, as the worker sees it."""

    def __init__(self) -> None:
        """Starts the guard; its session is its own, so that nothing meant for others ends it."""
        self._process: Optional["subprocess.Popen[bytes]"] = subprocess.Popen(
            # Isolated: what lies in the current folder or in PYTHONPATH does not matter to it.
            [sys.executable, "-I", "-S", os.path.abspath(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watchSelf(self) -> None:
        """For a child of ours between fork and exec: its group is ended when our process ends.

        The child says it itself, so that there is no moment at which it runs unwatched.
        """
        if self._process is None or self._process.stdin is None:
            return
        before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # the guard may have been killed
        try:
            os.write(self._process.stdin.fileno(), b"+%d\n" % os.getpid())
        except OSError:
            pass
        signal.signal(signal.SIGPIPE, before)

    def forget(self, group: int) -> None:
        """The group has ended."""
        self._tell(b"-%d\n" % group)

    def forgetLast(self) -> None:
        """The child that spoke last did not get as far as its exec."""
        self._tell(b"-\n")

    def _tell(self, line: bytes) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:  # somebody killed the guard: clients still die with their worker
            self._process = None


def guard(stream: BinaryIO) -> None:
    """Reads a worker's words until there is nobody to say any, then kills what is left."""
    groups: Set[int] = set()
    last = 0
    for line in stream:
        number = int(line[1:].strip() or last)
        if line.startswith(b"+"):
            groups.add(number)
            last = number
        else:
            groups.discard(number)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    guard(sys.stdin.buffer)
