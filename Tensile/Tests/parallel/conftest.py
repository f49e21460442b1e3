# SPDX-License-Identifier: MIT
"""What the tests share: where things are, real hosts, small INIs, and processes that are real."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DATA = HERE / "data"
HOST = HERE / "host"
# In a host's tree there are our folders, but not the rest of this repository; and there is a host.
ownCheckout = pytest.mark.skipif(
    not (ROOT / "TensileParallelCommands.py").is_file(),
    reason="these tests do not lie in TensileParallel's own checkout",
)

# Takes the lock of an emulated device, says so, and holds it until its stdin ends; or hands it to a
# grandchild first.
HOLDER = """
import subprocess, sys
sys.path[:0] = sys.argv[4:]
from Tensile.Parallel.Errors import RunError
from Tensile.Parallel.Locks import acquireLock
from Tensile.Parallel.Types import Device
number = sys.argv[2]
device = Device(0, "0", emulated=True, uniqueId="emulated-" + number)
try:
    lock = acquireLock(device, sys.argv[1], True, lambda line: None)
except RunError as error:
    print(error, flush=True)
    sys.exit(1)
if sys.argv[3] == "hand on":
    client = subprocess.Popen(["sleep", "600"], pass_fds=[lock.fileno()], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL)
    print(client.pid, flush=True)
else:
    print("held", flush=True)
sys.stdin.read()
"""

# A program that says that it runs, and goes on when it is told to.
UNTIL_TOLD = """
import os, time
open(os.environ["STARTED"], "w").close()
while not os.path.exists(os.environ["STARTED"] + ".end"):
    time.sleep(0.02)
"""

# The stand-in host has modules called test_*-like or named as real ones; nothing there is a test.
collect_ignore = ["host", "data", "benchmarks"]

# Without a host's Tensile/__init__.py here, another installed Tensile would win the name.
_first = ROOT if (ROOT / "Tensile" / "__init__.py").is_file() else ROOT / "Tensile/Parallel/Alone"
for entry in (str(HERE), str(_first)):
    if entry not in sys.path:
        sys.path.insert(0, entry)


def pytest_addoption(parser):
    """--tensile-root TREE, several times: real hosts for the tests that take one.

    In a host's tree, `pytest Tensile/Tests` finds this file too late for options: who asks for one
    names its default again.
    """
    parser.addoption(
        "--tensile-root",
        action="append",
        default=[],
        metavar="TREE",
        help="a real Tensile tree for the contract tests; may be given several times",
    )
    parser.addoption(
        "--kills",
        type=int,
        default=8,
        metavar="N",
        help="how many processes test_Kills.py kills (default: 8)",
    )
    parser.addoption(
        "--rounds",
        type=int,
        default=2,
        metavar="N",
        help="how many rounds of two runs test_Overlap.py disturbs (default: 2)",
    )


def pytest_configure(config):
    """The marks that a host's pytest.ini may not know; and signals as a terminal gives them.

    A shell's background job or nohup starts us with signals ignored, which our commands respect:
    those that the tests start are to be stopped by them.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.addinivalue_line("markers", "unit: Unit tests")
    config.addinivalue_line("markers", "parallel: Tests of Tensile/Parallel")
    config.addinivalue_line("markers", "slow: runs for more than a few seconds")


@pytest.fixture(autouse=True)
def _cleanEnvironment(monkeypatch, tmp_path):
    """No variable of the person who runs the tests decides their result."""
    for name in list(os.environ):
        if name.startswith("TENSILE_") or name.endswith("_VISIBLE_DEVICES"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("GPU_DEVICE_ORDINAL", raising=False)
    monkeypatch.setenv("TENSILE_PARALLEL_LOCK_DIR", str(tmp_path / "locks"))


@pytest.fixture
def smallConfig(tmp_path):
    """A config of one step: four sizes, four solutions."""
    fork = [{"PrefetchGlobalRead": [1, 2]}, {"DepthU": [16, 32]}]
    sizes = [{"Exact": [128 * edge, 128, 1, 64]} for edge in (1, 2, 3, 4)]
    kind = {"OperationType": "GEMM", "DataType": "s", "UseBeta": True, "Batched": True}
    group = {"ForkParameters": fork, "BenchmarkFinalParameters": [{"ProblemSizes": sizes}]}
    config = {
        "GlobalParameters": {"DeviceList": [0, 1], "Architecture": "gfx90a"},
        "BenchmarkProblems": [[kind, group]],
    }
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


class Recorded:
    """One recorded run of a real client, with its placeholders filled in."""

    def __init__(self, folder: Path, into: Path) -> None:
        self.folder = folder
        self.into = into
        self.out = into / "results"
        self.out.mkdir(parents=True, exist_ok=True)
        library = into / "source" / "library"
        if not library.exists():
            library.parent.mkdir(parents=True)
            library.symlink_to(folder.parent / "library")
        text = (folder / "ClientParameters.ini").read_text()
        text = text.replace("@SOURCE@", str(into / "source")).replace("@OUT@", str(self.out))
        self.ini = into / "ClientParameters.ini"
        self.ini.write_text(text)
        self.results = self.out / "results.csv"

    def change(self, **values: str) -> None:
        """Replaces or appends scalar lines; underscores stand for dashes."""
        lines = self.ini.read_text().splitlines()
        for name, value in values.items():
            key = name.replace("_", "-")
            lines = [line for line in lines if not line.startswith(key + "=")]
            lines.append("%s=%s" % (key, value))
        self.ini.write_text("\n".join(lines) + "\n")


@pytest.fixture
def recorded(tmp_path):
    """A function (name such as "tensilelite-2024/full") -> Recorded."""

    def make(name: str, into: str = "step") -> Recorded:
        return Recorded(DATA / name, tmp_path / into)

    return make


@pytest.fixture
def runScript():
    """Runs one of our commands as a real process and returns what subprocess.run does."""

    def run(script, *arguments, environment=None, cwd=None, timeout=120):
        command = [sys.executable, str(ROOT / "Tensile" / "bin" / script), *map(str, arguments)]
        changed = {**os.environ, **(environment or {})}
        return subprocess.run(
            command,
            env=changed,
            cwd=cwd,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    return run


@pytest.fixture
def holders():
    """Starts processes that hold an emulated device, and ends them with the test."""
    started = []

    def start(folder, what="hold", number=3):
        """(the process, the line by which it says that it holds the device)."""
        command = [sys.executable, "-c", HOLDER, str(folder), str(number), what, *sys.path]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def hostThat(tmp_path):
    """A function: source of Tensile.main() -> a copy of the stand-in host that does that.

    What it did before is Tensile.Original.main().
    """

    def make(source: str) -> str:
        tree = tmp_path / "tree"
        shutil.copytree(HOST, tree, ignore=shutil.ignore_patterns("__pycache__"))
        main = "def main():\n" + textwrap.indent(textwrap.dedent(source), "    ")
        package = tree / "tensilelite" / "Tensile"
        (package / "Tensile.py").rename(package / "Original.py")
        (package / "Tensile.py").write_text(main)
        return str(tree / "tensilelite")

    return make
