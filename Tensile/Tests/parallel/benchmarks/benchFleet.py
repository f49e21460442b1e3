# SPDX-License-Identifier: MIT
"""What 64 devices on 16 nodes cost the front end: its processor time, memory and messages.

    python Tensile/Tests/parallel/benchmarks/benchFleet.py [--nodes 16] [--devices 4] [--seconds 60]

The parallel client and Dask's scheduler are real; the nodes are workers in one process in which a
unit only takes its time: what the emulated client writes for it appears bit by bit. Printed: the
front end's share of a core while units run (without its start), its and the scheduler's peak
memory, and the largest unit, answer and result that was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "Tensile" / "Parallel" / "Alone")]

from benchSchedule import serialResults  # noqa: E402
from benchSchedule import (  # noqa: E402
    START_SECONDS,
    Setup,
    Workload,
    _agreement,
    growing,
)
from Clusters import BIN, SCHEDULER, freePort  # noqa: E402
from Processes import waitFor  # noqa: E402

LIMIT_SHARE = 0.05
TICKS = os.sysconf("SC_CLK_TCK")


def cpuSeconds(pid: int) -> float:
    fields = Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peakMegabytes(pid: int) -> float:
    lines = Path("/proc/%d/status" % pid).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


# -- the nodes ----------------------------------------------------------------------------------


class Pretence:
    """A worker's unit: its files are there at once, and shown bit by bit."""

    def __init__(self, job: Any, seconds: float) -> None:
        self.job, self.seconds, self.begun = job, seconds, time.monotonic()

    def shown(self, path: str) -> bytes:
        data = Path(path).read_bytes()
        share = min(1.0, (time.monotonic() - self.begun) / max(1e-9, self.seconds))
        return data[: data.rfind(b"\n", 0, int(len(data) * share)) + 1]


def emulate(arguments: List[str], log: str) -> None:
    """The emulated client, without its start."""
    from Tensile.Parallel import Emulator

    with open(log, "wb") as stream, open(os.devnull, "wb") as nothing:
        os.dup2(stream.fileno(), 1)  # this process is nobody else's
        os.dup2(nothing.fileno(), 2)
        Emulator.main(arguments)
        sys.stdout.flush()


def pretend(
    folder: Path, pairs: Dict[str, float], largest: Dict[str, int], pool: ProcessPoolExecutor
) -> None:
    """Puts functions that only take their time in the place of NodeSide's."""
    from distributed import get_worker

    from Tensile.Parallel import NodeFiles, NodeSide
    from Tensile.Parallel.ClientConfig import readClientConfig
    from Tensile.Parallel.NodeUnit import Answer, FilePart, UnitEnd
    from Tensile.Parallel.Outcomes import examine
    from Tensile.Parallel.ParallelClient import emulatedCommand
    from Tensile.Parallel.Types import ClientExit, Device
    from Tensile.Parallel.Worker import WorkerFacts

    running: Dict[str, Pretence] = {}

    def note(name: str, value: Any) -> None:
        largest[name] = max(largest.get(name, 0), len(pickle.dumps(value)))

    def facts(dask_worker: Any = None) -> Dict[str, Any]:
        node, ordinal = dask_worker.name.split("/")
        device = Device(int(ordinal), ordinal, emulated=True, uniqueId="emulated-" + ordinal)
        own = {name: "" for name in ("driver", "rocm", "kernel", "python", "version")}
        return {
            **own,
            "node": node,
            "join": node,
            "device": device,
            "client": emulatedCommand(),
            "leaving": False,
            "now": time.time(),
            "hash": NodeSide.packageHash(),
        }

    def runUnit(order: Any) -> Any:
        note("unit", order)
        address = get_worker().address
        own = folder / order.id
        own.mkdir()
        mark = order.folderMark.encode()
        for name, content in order.files.items():
            (own / name).write_bytes(content.replace(mark, os.fsencode(str(own))))
        job = replace(
            order.job,
            folder=str(own),
            command=tuple(w.replace(order.folderMark, str(own)) for w in order.job.command),
        )
        rest = list(job.command[len(emulatedCommand()) :])
        pool.submit(emulate, rest, job.file(".log")).result()
        sizes = readClientConfig(job.file(".ini")).sizes[: job.unit.problemCount]
        each = sum(pairs[",".join(map(str, size.sizes))] for size in sizes)
        begun = time.time()
        running[address] = pretence = Pretence(job, START_SECONDS + each * job.unit.solutionCount)
        time.sleep(pretence.seconds)
        end = ClientExit(0, False, begun, time.time(), START_SECONDS)
        result = examine(job, end)
        files = {s: job.file(s) for s in (".log", ".csv")}
        hashes = {s: NodeFiles.hashFile(path) for s, path in files.items()}
        have = getattr(pretence, "asked", {})
        parts = {
            s: NodeSide.readPart(path, have.get(s, 0), NodeSide.CHUNK_BYTES)
            for s, path in files.items()
        }
        answer = UnitEnd(
            result,
            time.time(),
            {s: os.path.getsize(path) for s, path in files.items()},
            hashes,
            parts,
            False,
        )
        note("result", answer)
        return answer

    def poll(questions: Dict[str, Any], dask_worker: Any = None) -> Any:
        question = questions.get(dask_worker.address)
        pretence = running.get(dask_worker.address)
        parts = {}
        if question is not None and question.job and pretence is not None:
            if question.job in pretence.job.folder:
                pretence.asked = dict(question.offsets)  # type: ignore[attr-defined]
                for suffix in (".log", ".csv"):
                    have = question.offsets.get(suffix, 0)
                    data = pretence.shown(pretence.job.file(suffix))[have:]
                    parts[suffix] = FilePart(have, data[: NodeSide.CHUNK_BYTES], 0.0)
        answer = Answer(question.job if question else "", parts, False, False)
        note("answer", answer)
        return answer

    NodeSide.facts = facts  # type: ignore[assignment]
    NodeSide.runUnit = runUnit  # type: ignore[assignment]
    NodeSide.poll = poll  # type: ignore[assignment]
    NodeSide.locate = lambda run, files: ({f.path: f.path for f in files}, [])
    NodeSide.prepare = lambda run, wait: WorkerFacts(os.getpid(), "")
    NodeSide.stop = NodeSide.release = NodeSide.forget = lambda *arguments: None


def _end(child: "subprocess.Popen[Any]") -> None:
    child.terminate()
    try:
        child.wait(timeout=20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


async def serveNodes(spec: Dict[str, Any]) -> None:
    import dask
    from distributed import Worker

    dask.config.set({"distributed.worker.profile.enabled": False})
    largest: Dict[str, int] = {}
    folder = Path(spec["folder"])
    os.environ.pop("TENSILE_EMULATOR", None)
    os.environ["TENSILE_PARALLEL_LOCK_DIR"] = str(folder)
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
    pretend(folder, spec["pairs"], largest, pool)
    workers: List[Any] = []
    for node in range(spec["nodes"]):
        for device in range(spec["devices"]):
            name = "node%02d/%d" % (node, device)
            own = {"host": "127.0.0.1", "dashboard": False, "memory_limit": 0}
            workers.append(Worker(spec["address"], name=name, nthreads=2, **own))
    await asyncio.gather(*workers)
    (folder / "ready").touch()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        await asyncio.wait({asyncio.ensure_future(stop.wait())}, timeout=1.0)
        (folder / "largest.new").write_text(json.dumps(largest))
        os.replace(folder / "largest.new", folder / "largest")
    pool.shutdown()  # its processes would not notice the end of this one
    os._exit(0)


# -- the measurement ----------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--devices", type=int, default=4, help="of each node")
    parser.add_argument("--seconds", type=float, default=120.0, help="work per device")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serveNodes(json.loads(options.serve)))
        return 0
    count = options.nodes * options.devices
    children: List[Any] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "units").mkdir()
        setup = Setup(folder, Workload(growing(4 * count), 48), count, options.seconds)
        port = freePort()
        environment = {**os.environ, "DASK_LOGGING__DISTRIBUTED": "critical"}
        try:
            command = [*SCHEDULER, "--host", "127.0.0.1", "--port", str(port)]
            command += ["--dashboard-address", "127.0.0.1:0"]
            children.append(subprocess.Popen(command, env=environment))
            spec = {
                "address": "tcp://127.0.0.1:%d" % port,
                "nodes": options.nodes,
                "devices": options.devices,
                "folder": str(folder / "units"),
                "pairs": setup.pairs,
            }
            command = [sys.executable, str(Path(__file__).resolve()), "--serve", json.dumps(spec)]
            children.append(subprocess.Popen(command, env=environment))
            waitFor(lambda: (folder / "units" / "ready").exists())
            command = [sys.executable, str(BIN / "TensileParallelClient"), "--config-file"]
            command += [str(setup.ini), "--scheduler", spec["address"], "--no-warm-up"]
            front = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            children.append(front)
            assert front.stdout is not None
            front.stdout.readline()  # it announces the step: all is imported
            begun, before = time.monotonic(), cpuSeconds(front.pid)
            output: List[str] = []
            reader = threading.Thread(target=lambda: output.extend(front.stdout))
            reader.start()
            while front.poll() is None:
                try:
                    cpu, memory = cpuSeconds(front.pid) - before, peakMegabytes(front.pid)
                except (OSError, StopIteration, IndexError):
                    break
                time.sleep(0.1)
            wall = time.monotonic() - begun
            front.wait()
            reader.join()
            scheduler = (cpuSeconds(children[0].pid) / wall, peakMegabytes(children[0].pid))
            time.sleep(1.5)
            largest = json.loads((folder / "units" / "largest").read_text())
            report = json.loads((folder / "results.csv.parallel" / "step.json").read_text())
            units = len(report["units"])
            same = _agreement(serialResults(setup), (folder / "results.csv").read_bytes())
        finally:
            for child in children:
                _end(child)
    share = cpu / wall
    print(
        "%d devices on %d nodes, %d units in %.1f s, bound %.1f s (%.3f), exit %d, %s"
        % (
            count,
            options.nodes,
            units,
            wall,
            setup.bound,
            setup.bound / wall,
            front.returncode,
            same,
        )
    )
    print("front end: %.1f %% of a core, peak %.0f MB" % (100 * share, memory))
    print("scheduler: %.1f %% of a core, peak %.0f MB" % (100 * scheduler[0], scheduler[1]))
    print("largest, in bytes: %s" % ", ".join("%s %d" % each for each in sorted(largest.items())))
    return 0 if share < LIMIT_SHARE and not front.returncode else 1


if __name__ == "__main__":
    sys.exit(main())
