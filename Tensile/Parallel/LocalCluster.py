# SPDX-License-Identifier: MIT
"""A scheduler that lives as long as a run; and, to try it out, nodes on this machine as well.

    --local-cluster N [--emulate M]   a scheduler on loopback and N nodes, children of this process

Slurm.py uses the scheduler with nodes that are Slurm jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from .Cluster import requireDistributed
from .Errors import InputError, RunError
from .Files import replaceJson
from .Host import ourRoot
from .Join import causeOf
from .NodeFiles import cacheFolder, privateFolder
from .OwnProcess import endWithParent, ownProcess
from .ParseArguments import RunSettings
from .Place import Place
from .Terminal import tell

SCHEDULER_SECONDS = 60.0
TERM_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class OwnScheduler:
    """A scheduler that lives as long as a run.

    Attributes:
        file: the file that tells its address.
        address: the address.
    """

    file: str
    address: str


@contextlib.contextmanager
def ownScheduler(option: str, options: Mapping[str, Any]) -> Iterator[OwnScheduler]:
    """A scheduler, as a child of this process.

    Args:
        option: what it is for, for messages.
        options: of distributed.Scheduler; host is needed. Without "dashboard_address" there is no
            page for browsers.

    Raises:
        RunError: it did not come up.
    """
    folder = privateFolder(os.path.join(privateFolder(cacheFolder(os.environ)), "local"))
    file = os.path.join(folder, "scheduler-%s-%d.json" % (socket.gethostname(), os.getpid()))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(file)
    spec = {"file": file, "options": dict(options)}
    child = _start(ownProcess(__name__, "runScheduler", spec))
    try:
        yield OwnScheduler(file, _awaitFile(file, child, option))
    finally:
        _end([child])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)


@contextlib.contextmanager
def localCluster(settings: RunSettings) -> Iterator[str]:
    """A scheduler on loopback and nodes that join it; the name of the scheduler's file.

    Raises:
        InputError: several nodes are asked for that would have the same devices.
        RunError: the scheduler did not come up.
    """
    count = settings.localCluster
    if count > 1 and not settings.emulate:
        raise InputError(
            "--local-cluster %d: the nodes would have the same devices: give each emulated ones "
            "with --emulate N, or write --local-cluster 1" % count
        )
    requireDistributed()
    nodes: "List[subprocess.Popen[bytes]]" = []
    with ownScheduler("--local-cluster", {"host": "127.0.0.1"}) as scheduler:
        try:
            for number in range(count):
                words = ["--join", "--scheduler-file", scheduler.file, *joinWords(settings)]
                nodes.append(_start([*ownCommand(), *words, "--node-name", "local-%d" % number]))
            yield scheduler.file
        finally:
            _end(nodes)


def joinWords(settings: RunSettings) -> List[str]:
    """What of a run's options its nodes are to know."""
    words = ["--emulate", str(settings.emulate)] if settings.emulate else []
    return [*words, "--affinity"] if settings.affinity else words


def ownCommand(python: str = sys.executable) -> List[str]:
    """Words that start TensileParallel again."""
    script = os.path.join(ourRoot(), "Tensile", "bin", "TensileParallel")
    ours = [script] if os.path.isfile(script) else ["-m", "Tensile.Parallel"]
    return [python, *ours]


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    parent = os.getpid()
    libc = ctypes.CDLL(None)

    def beforeExec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        start_new_session=True,
        preexec_fn=beforeExec,
    )


def _awaitFile(file: str, scheduler: "subprocess.Popen[bytes]", option: str) -> str:
    deadline = time.monotonic() + SCHEDULER_SECONDS
    place = Place("", file)
    while not place.current():
        if scheduler.poll() is not None or time.monotonic() > deadline:
            raise RunError("the scheduler of %s did not come up: see above" % option)
        time.sleep(0.05)
    return place.current()


def _end(children: "Sequence[subprocess.Popen[bytes]]") -> None:
    for child in children:
        child.terminate()
    deadline = time.monotonic() + TERM_SECONDS
    for child in children:
        try:
            child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def runScheduler(spec: Dict[str, Any]) -> int:
    """The scheduler's process."""
    if not endWithParent(spec, signal.SIGTERM):
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # "error" would tell of every connection that was open when this ends.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    return asyncio.run(_schedule(spec))


async def _schedule(spec: Dict[str, Any]) -> int:
    import dask
    from distributed import Scheduler

    options = {"port": 0, "dashboard": "dashboard_address" in spec["options"], **spec["options"]}
    if not options["dashboard"]:
        # No page for browsers, and nothing that listens beyond loopback.
        dask.config.set({"distributed.scheduler.http.routes": []})
        options["dashboard_address"] = "127.0.0.1:0"
    if dask.config.get("distributed.comm.require-encryption", None):
        options.setdefault("protocol", "tls")  # Dask refuses its own default then
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        scheduler = await Scheduler(**options)
    except Exception as error:
        tell("TensileParallel: the scheduler: %s" % causeOf(error), sys.stderr)
        return 1
    try:
        async with scheduler:
            replaceJson(spec["file"], {"address": scheduler.address})
            await stop.wait()
    finally:
        # Whoever has started this cannot do it where it was killed.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(spec["file"])
    return 0
