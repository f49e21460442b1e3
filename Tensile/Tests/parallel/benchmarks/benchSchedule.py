# SPDX-License-Identifier: MIT
"""How close a step comes to the bound: serial, a static split, and the parallel client.

    python Tensile/Tests/parallel/benchmarks/benchSchedule.py [--devices 8] [--seconds 60]
        [--workloads equal,growing] [--measure serial,static]

Emulated devices whose pairs take prescribed wall times; a client's start takes 0.2 s. The bound is
max(sum of pair times / devices, longest pair). The wall time is that of the whole command, with
its start, its workers' start and the writing of the results file. Every run's results file is
compared with that of one serial client. "serial" is one client that does all; "static" is a list
that is cut into contiguous parts of equal length, one client each. Both are computed (the starts
and the pairs) unless --measure has them run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
sys.path.insert(0, str(ROOT / "Tensile" / "Parallel" / "Alone"))

from Tensile.Parallel.ClientConfig import readClientConfig  # noqa: E402
from Tensile.Parallel.Cost import Cost  # noqa: E402

START_SECONDS = 0.2
SCRIPTS = ROOT / "Tensile" / "bin"
KEYS = HERE.parent / "data" / "tensilelite-2024" / "full" / "ClientParameters.ini"

Sizes = List[Tuple[int, int, int, int]]


class Workload(NamedTuple):
    """A table and how its wall times deviate from the model's."""

    sizes: Sizes
    solutions: int
    weights: Dict[str, float] = {}  # size text -> factor on the model's time
    slowness: Dict[str, float] = {}  # device -> factor on every time
    factors: Dict[str, float] = {}  # device -> factor on what is measured


def cube(edge: int) -> Tuple[int, int, int, int]:
    return (edge, edge, 1, edge)


def growing(count: int = 48) -> Sizes:
    """From 128³ to 8192³ in equal steps of the edge."""
    return [cube(128 + round(at * (8192 - 128) / (count - 1))) for at in range(count)]


def realistic(count: int = 150) -> Sizes:
    """Like tuned lists: edges spread over decades, some dimensions thin."""
    rng = random.Random(3)

    def edge() -> int:
        return max(1, round(2 ** rng.gauss(9.5, 1.8)))

    return [(min(edge(), 16384), min(edge(), 16384), 1, min(edge(), 8192)) for _ in range(count)]


def workloads() -> Dict[str, Workload]:
    rng = random.Random(1)
    wrong = {_text(size): 10 ** rng.uniform(-1, 1) for size in growing()}
    small = [cube(1024 + 8 * at) for at in range(59)]
    giant = small[:30] + [cube(4096)] + small[30:]
    return {
        "equal 64 x 24": Workload([cube(1024)] * 64, 24),
        "growing 48 x 24": Workload(growing(), 24),
        "shrinking 48 x 24": Workload(growing()[::-1], 24),
        "few x many 3 x 400": Workload([cube(1024), cube(1536), cube(2048)], 400),
        "giant + small 60 x 200": Workload(giant, 200, {"4096,4096,1,4096": -0.4}),
        "like real lists 150 x 24": Workload(realistic(), 24),
        "growing, model wrong by 10": Workload(growing(), 24, wrong),
        "growing, one device slow": Workload(growing(), 24, {}, {"0": 1.3}),
    }


def _text(size: Tuple[int, ...]) -> str:
    return ",".join(map(str, size))


class Setup:
    """The files of one workload for a number of devices."""

    def __init__(self, folder: Path, load: Workload, devices: int, seconds: float) -> None:
        self.folder = folder
        self.load = load
        self.devices = devices
        self.ini = folder / "ClientParameters.ini"
        self._writeInputs(1)
        pairs = self._pairSeconds(seconds * self._speed())
        # As many enqueues as make the model's times those that are prescribed, on the whole.
        cost = Cost(readClientConfig(str(self.ini)))
        modelled = sum(cost.pairSeconds(at) for at in range(len(load.sizes)))
        prescribed = sum(pairs[_text(size)] for size in load.sizes)
        self._writeInputs(max(1, round(prescribed / modelled)))
        self.pairs = self._pairSeconds(seconds * self._speed())
        self.settings = folder / "emulator.json"
        self.settings.write_text(
            json.dumps(
                {
                    "startSeconds": START_SECONDS,
                    "pairSeconds": self.pairs,
                    "deviceSlowness": load.slowness,
                    "deviceFactors": load.factors,
                }
            )
        )

    @property
    def bound(self) -> float:
        """Seconds that no schedule can beat."""
        each = [self.pairs[_text(size)] for size in self.load.sizes]
        return max(sum(each) * self.load.solutions / self._speed(), max(each))

    def parts(self, count: int) -> List[range]:
        """The problems, cut into contiguous parts of equal length."""
        problems = len(self.load.sizes)
        size = -(-problems // count)
        parts = [range(at * size, min(problems, (at + 1) * size)) for at in range(count)]
        return [part for part in parts if part]

    def clients(self, count: int) -> float:
        """Seconds of so many clients at once, each with its part of the problems."""
        walls = []
        for device, part in enumerate(self.parts(count)):
            work = sum(self.pairs[_text(self.load.sizes[at])] for at in part) * self.load.solutions
            walls.append(START_SECONDS + work * self.load.slowness.get(str(device), 1.0))
        return max(walls)

    def _speed(self) -> float:
        return sum(1 / self.load.slowness.get(str(d), 1.0) for d in range(self.devices))

    def _writeInputs(self, enqueues: int) -> None:
        library = self.folder / "TensileLibrary.yaml"
        names = [
            "Cijk_Alik_Bljk_HHS_BH_MT%dx%d_S%d" % (32 + s % 7 * 16, 32 + s % 5 * 32, s)
            for s in range(self.load.solutions)
        ]
        library.write_text(
            "solutions:\n"
            + "".join("- index: %d\n  name: %s\n" % (i, n) for i, n in enumerate(names))
        )
        skipped = ("problem-size", "code-object", "library-file", "results-file", "num-enqueues")
        lines = [
            line
            for line in KEYS.read_text().splitlines()
            if not line.startswith(skipped) and "-strides" not in line
        ]
        head = ["library-file=%s" % library, "results-file=%s" % (self.folder / "results.csv")]
        head.append("num-enqueues-per-sync=%d" % enqueues)
        sizes = []
        for i, j, batch, k in self.load.sizes:
            sizes.append("problem-size=%d,%d,%d,%d" % (i, j, batch, k))
            sizes += ["a-strides=-1,%d,-1" % k, "b-strides=-1,%d,-1" % k]
            sizes += ["c-strides=-1,%d,-1" % i, "d-strides=-1,%d,-1" % i]
        self.ini.write_text("\n".join(head + lines + sizes) + "\n")

    def _pairSeconds(self, total: float) -> Dict[str, float]:
        """Wall seconds per pair of each size, `total` for all pairs together."""
        cost = Cost(readClientConfig(str(self.ini)))
        weights = {}
        for at, size in enumerate(self.load.sizes):
            factor = self.load.weights.get(_text(size), 1.0)
            weights[_text(size)] = cost.pairSeconds(at) * abs(factor)
        for text, share in self.load.weights.items():
            if share < 0:  # a negative weight is a share of the whole
                rest = sum(weights[_text(s)] for s in self.load.sizes if _text(s) != text)
                weights[text] = rest * -share / (1 + share)
        whole = sum(weights[_text(size)] for size in self.load.sizes) * self.load.solutions
        return {text: weight * total / whole for text, weight in weights.items()}


def run(setup: Setup, *options: str) -> Tuple[float, dict]:
    """Runs the parallel client; returns (wall seconds, step.json)."""
    results = setup.folder / "results.csv"
    results.unlink(missing_ok=True)
    environment = {**os.environ, "TENSILE_EMULATOR": str(setup.settings)}
    command = [sys.executable, str(SCRIPTS / "TensileParallelClient")]
    command += ["--config-file", str(setup.ini), "--emulate", str(setup.devices), "--fresh"]
    begun = time.monotonic()
    done = subprocess.run([*command, *options], env=environment, stdout=subprocess.PIPE, text=True)
    wall = time.monotonic() - begun
    if done.returncode:
        raise SystemExit("the run failed: %s" % done.stdout)
    report = json.loads((Path(str(results) + ".parallel") / "step.json").read_text())
    return wall, report


def runClients(setup: Setup, count: int) -> float:
    """Runs so many clients at once, each with its part of the problems; returns wall seconds."""
    environment = {**os.environ, "TENSILE_EMULATOR": str(setup.settings)}
    environment["TENSILE_EMULATED_DEVICES"] = str(count)
    environment["TENSILE_PARALLEL_LOCK_DIR"] = str(setup.folder)
    begun = time.monotonic()
    running = []
    for device, part in enumerate(setup.parts(count)):
        command = [sys.executable, str(SCRIPTS / "TensileEmulatedClient")]
        command += ["--config-file", str(setup.ini)]
        command += ["--results-file", str(setup.folder / ("part_%d.csv" % device))]
        command += ["--problem-start-idx", str(part[0]), "--num-problems", str(len(part))]
        environment["HIP_VISIBLE_DEVICES"] = str(device)
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
    if any([client.wait() for client in running]):
        raise SystemExit("a client failed")
    return time.monotonic() - begun


def serialResults(setup: Setup) -> bytes:
    """What one client would have written; its pairs take no time here."""
    results = setup.folder / "serial.csv"
    environment = {k: v for k, v in os.environ.items() if k != "TENSILE_EMULATOR"}
    environment["TENSILE_PARALLEL_LOCK_DIR"] = str(setup.folder)
    command = [sys.executable, str(SCRIPTS / "TensileEmulatedClient")]
    command += ["--config-file", str(setup.ini), "--results-file", str(results)]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return results.read_bytes()


def _losses(setup: Setup, wall: float, report: dict) -> str:
    """Where the time beyond the bound went, in device seconds of the whole."""
    units = report["units"]
    whole = wall * setup.devices
    first = min((unit["started"] for unit in units), default=0.0)
    last = max((unit["ended"] for unit in units), default=0.0)
    busy = sum(unit["ended"] - unit["started"] for unit in units)
    starts = START_SECONDS * len(units)
    retimes = sum(u["ended"] - u["started"] - START_SECONDS for u in units if u.get("retiming"))
    idle = (last - first) * setup.devices - busy
    outside = whole - (last - first) * setup.devices
    return (
        "%4d units: starts %4.1f%%, idle %4.1f%%, re-timing %4.1f%%, before and after %4.1f%%"
        % (
            len(units),
            100 * starts / whole,
            100 * idle / whole,
            100 * retimes / whole,
            100 * outside / whole,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="8", help="numbers of devices, such as 1,2,4,8,16")
    parser.add_argument("--seconds", type=float, default=60.0, help="work per device")
    parser.add_argument("--workloads", default="", help="beginnings of their names")
    parser.add_argument("--measure", default="", help="run serial or static, or both, too")
    parser.add_argument("--factors", default="", help="device factors, such as 1.00,0.97,1.05,0.93")
    options = parser.parse_args()
    wanted = [word for word in options.workloads.split(",") if word]
    print(
        "%d cores; %g s of work per device; bound / wall" % (os.cpu_count() or 0, options.seconds)
    )
    if options.measure:
        print("run, not computed: %s" % options.measure)
    head = ("workload", "devices", "serial", "static", "ours", "losses of ours")
    print("%-28s %7s %7s %7s %7s  %s" % head)
    for title, load in workloads().items():
        if wanted and not any(title.startswith(word) for word in wanted):
            continue
        if options.factors:
            factors = dict(enumerate(map(float, options.factors.split(","))))
            load = load._replace(factors={str(d): f for d, f in factors.items()})
        for devices in map(int, options.devices.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                setup = Setup(Path(folder), load, devices, options.seconds)
                walls = {}
                for name, count in (("serial", 1), ("static", devices)):
                    measured = name in options.measure.split(",")
                    walls[name] = runClients(setup, count) if measured else setup.clients(count)
                wall, report = run(setup)
                expected = serialResults(setup)
                found = (setup.folder / "results.csv").read_bytes()
                same = _agreement(expected, found)
                print(
                    "%-28s %7d %7.3f %7.3f %7.3f  %s; %s"
                    % (
                        title,
                        devices,
                        setup.bound / walls["serial"],
                        setup.bound / walls["static"],
                        setup.bound / wall,
                        _losses(setup, wall, report),
                        same,
                    ),
                    flush=True,
                )


def _agreement(expected: bytes, found: bytes) -> str:
    """Whether two results files are equal, or at least name the same winners."""
    if expected == found:
        return "equal to serial"
    names = expected.split(b"\n", 1)[0].split(b", ")
    at = names.index(b"WinnerName")
    pairs = zip(expected.splitlines()[1:], found.splitlines()[1:])
    wrong = sum(a.split(b", ")[at] != b.split(b", ")[at] for a, b in pairs)
    return "same winners" if not wrong else "%d WRONG WINNERS" % wrong


if __name__ == "__main__":
    main()
