# SPDX-License-Identifier: MIT
"""Clusters that a run starts for itself: on this machine to try it out, or as Slurm jobs.

    --local-cluster N [--emulate M]   a scheduler on loopback and N nodes, children of this process
    --slurm N                         a scheduler here and N jobs, by dask-jobqueue

Both end with the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, Dict, Iterator, List, Sequence

from .Cluster import requireDistributed
from .Errors import InputError, RunError
from .Files import replaceJson
from .Host import ourRoot
from .NodeFiles import cacheFolder, privateFolder
from .ParseArguments import RunSettings

SCHEDULER_SECONDS = 60.0
TERM_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1

_BOOT = """
import json, sys
spec = json.loads(sys.argv[1])
sys.path[:] = spec["path"]
from Tensile.Parallel.LocalCluster import runScheduler
sys.exit(runScheduler(spec))
"""


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
    folder = privateFolder(os.path.join(privateFolder(cacheFolder(os.environ)), "local"))
    file = os.path.join(folder, "scheduler-%d.json" % os.getpid())
    children: "List[subprocess.Popen[bytes]]" = []
    try:
        spec = {"path": sys.path, "parent": os.getpid(), "file": file, "host": "127.0.0.1"}
        children.append(_start([sys.executable, "-c", _BOOT, json.dumps(spec)]))
        _awaitFile(file, children[0])
        for number in range(count):
            command = [*ownCommand(), "--join", "--scheduler-file", file]
            command += ["--node-name", "local-%d" % number]
            if settings.emulate:
                command += ["--emulate", str(settings.emulate)]
            children.append(_start(command))
        yield file
    finally:
        _end(children[1:])
        _end(children[:1])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)


@contextlib.contextmanager
def slurmCluster(settings: RunSettings) -> Iterator[str]:
    """Slurm jobs, each of which joins with its node's devices; the scheduler's address.

    What a job asks for (partition, account, GPUs, time) is dask-jobqueue's configuration
    (jobqueue.yaml, docs/cluster.md).

    Raises:
        InputError: dask-jobqueue is not installed, or not configured.
    """
    requireDistributed()
    try:
        from dask_jobqueue.core import Job
        from dask_jobqueue.slurm import SLURMCluster, SLURMJob
    except ImportError:
        raise InputError("--slurm needs dask-jobqueue: pip install dask-jobqueue") from None
    del Job

    class JoinJob(SLURMJob):  # type: ignore[misc, valid-type]
        """A job whose command is ours in place of Dask's worker."""

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            scheduler = arguments[0] if arguments else keywords["scheduler"]
            words = [*ownCommand(), "--join", str(scheduler)]
            if settings.emulate:
                words += ["--emulate", str(settings.emulate)]
            self._command_template = " ".join(words)

    class JoinCluster(SLURMCluster):  # type: ignore[misc, valid-type]
        """Such jobs."""

        job_cls = JoinJob

    try:
        cluster = JoinCluster(cores=1, memory="1 GB", processes=1)
    except (ValueError, OSError) as error:
        raise InputError("--slurm: %s; see docs/cluster.md" % str(error).split("\n")[0]) from None
    with cluster:
        cluster.scale(jobs=settings.slurm)
        yield str(cluster.scheduler_address)


def ownCommand() -> List[str]:
    """Words that start TensileParallel again."""
    script = os.path.join(ourRoot(), "Tensile", "bin", "TensileParallel")
    ours = [script] if os.path.isfile(script) else ["-m", "Tensile.Parallel"]
    return [sys.executable, *ours]


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


def _awaitFile(file: str, scheduler: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + SCHEDULER_SECONDS
    while not os.path.exists(file):
        if scheduler.poll() is not None or time.monotonic() > deadline:
            raise RunError("the scheduler of --local-cluster did not come up: see above")
        time.sleep(0.05)


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
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != spec["parent"]:
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")
    return asyncio.run(_schedule(spec))


async def _schedule(spec: Dict[str, Any]) -> int:
    import dask
    from distributed import Scheduler

    # No page for browsers, and nothing that listens beyond loopback.
    dask.config.set({"distributed.scheduler.http.routes": []})
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    host = spec["host"]
    async with Scheduler(
        host=host, port=0, dashboard=False, dashboard_address="%s:0" % host
    ) as scheduler:
        replaceJson(spec["file"], {"address": scheduler.address})
        await stop.wait()
    return 0
