# SPDX-License-Identifier: MIT
"""Wrong GPU, no GPU, two on one: whole commands on machines that public reports tell of.

The machines are made of a HIP runtime of our own (FakeHip.py). What depends on one module alone
is tested with that module: masks, partitions, integrated GPUs, tools that print nonsense.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import HERE, ROOT
from FakeHip import FakeHipUnavailable, buildFakeClient, fakeHipEnvironment

pytestmark = [pytest.mark.unit, pytest.mark.slow]

BIN = ROOT / "Tensile" / "bin"
PCI = ["0000:03:00.0", "0000:43:00.0", "0000:83:00.0", "0000:c3:00.0"]


@pytest.fixture(scope="module")
def fakeClient(tmp_path_factory):
    """A program of the fake runtime's, compiled once: prints what it sees."""
    try:
        return buildFakeClient(tmp_path_factory.mktemp("hip"))
    except FakeHipUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def machine(fakeClient, tmp_path):
    """The environment of a machine with four GPUs; hip.log is the runtime's."""
    devices = ["gfx90a:" + pci for pci in PCI]
    library = os.path.join(os.path.dirname(fakeClient), "x")
    environment = fakeHipEnvironment(os.environ, library, devices, tmp_path / "hip.log")
    environment["TENSILE_EMULATED_DEVICES"] = "4"
    return environment


@pytest.fixture
def client(fakeClient, tmp_path):
    """A client that starts HIP, writes down its variables and its devices, and then measures.

    With MEET=n it waits until n devices have had one (20 s at most): on a busy machine the first
    worker could else measure everything before the last one is there.
    """
    path = tmp_path / "client"
    path.write_text(
        "#!/bin/sh\n"
        'tries=0; client="%s"\n'
        '{ env; echo "SEES $(%s)"; echo; } >> "$client.$HIP_VISIBLE_DEVICES"\n'
        'while [ "$(ls "$client".* | wc -l)" -lt "${MEET:-1}" ] && [ $tries -lt 200 ]; do\n'
        "    tries=$((tries + 1)); sleep 0.1\n"
        "done\n"
        'exec %s %s "$@"\n' % (path, fakeClient, sys.executable, BIN / "TensileEmulatedClient")
    )
    path.chmod(0o755)
    return path


def _start(script, *arguments, environment):
    """The command as a process: (pid, status, output)."""
    process = subprocess.Popen(
        [sys.executable, str(BIN / script), *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output, _ = process.communicate(timeout=180)
    return process.pid, process.returncode, output


def _initialised(tmp_path):
    """(pid, mask) of every process that has started HIP."""
    lines = (tmp_path / "hip.log").read_text().splitlines()
    return [(int(line.split()[0]), line.split()[1]) for line in lines]


def test_onlyTheProbeAndTheClientsStartHip(machine, client, recorded, tmp_path):
    """The parent and its workers never start HIP; the probe sees all, each client its own.

    The PyTorch project shipped the opposite: a mask set after the start, all workers on one GPU.
    """
    step = recorded("tensilelite-2024/full")
    pid, status, output = _start(
        *("TensileParallelClient", "--config-file", step.ini, "--client", client),
        environment={**machine, "MEET": "4"},
    )
    assert status == 0, output
    report = json.loads((Path(str(step.results) + ".parallel") / "step.json").read_text())
    assert len(report["devices"]) == 4
    started = _initialised(tmp_path)
    assert pid not in [each for each, _ in started]
    assert [mask for _, mask in started].count("(unset)") == 1, "one probe without a mask"
    assert {mask for _, mask in started} == {"(unset)", "0", "1", "2", "3"}
    for number in range(4):
        written = Path("%s.%d" % (client, number)).read_text()
        assert {line for line in written.splitlines() if line.startswith("SEES")} == {
            "SEES " + PCI[number]
        }


@pytest.mark.parametrize(
    "masks, devices, expected",
    [
        ({"ROCR_VISIBLE_DEVICES": "3"}, "0", {"0": PCI[3]}),
        ({"HIP_VISIBLE_DEVICES": "2"}, "all", {"2": PCI[2]}),
        ({"ROCR_VISIBLE_DEVICES": "GPU-1111111111111111,GPU-2222222222222222"}, "1", {"1": PCI[1]}),
        (
            {"HIP_VISIBLE_DEVICES": "3,1", "GPU_DEVICE_ORDINAL": "0"},
            "1,0",
            {"1": PCI[1], "3": PCI[3]},
        ),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, "0", {"1": PCI[1]}),
    ],
)
def test_clientsEndUpOnTheDeviceThatWasMeant(
    masks, devices, expected, machine, client, recorded, tmp_path
):
    """Masks of Slurm, Kubernetes or a user: each client sees the one GPU that its number means."""
    step = recorded("tensilelite-2024/full")
    _, status, output = _start(
        *("TensileParallelClient", "--config-file", step.ini, "--client", client),
        *("--devices", devices),
        environment={**machine, **masks, "MEET": str(len(expected))},
    )
    assert status == 0, output
    found = {path.name.rpartition(".")[2] for path in tmp_path.glob("client.*")}
    assert found == set(expected)
    for token, pci in expected.items():
        written = Path("%s.%s" % (client, token)).read_text().splitlines()
        assert {line for line in written if line.startswith("SEES")} == {"SEES " + pci}
        assert not [line for line in written if line.startswith(("CUDA_VIS", "GPU_DEVICE"))]
        kept = [line for line in written if line.startswith("ROCR_VISIBLE")]
        inherited = masks.get("ROCR_VISIBLE_DEVICES")
        assert set(kept) == ({"ROCR_VISIBLE_DEVICES=" + inherited} if inherited else set())


def test_aNumberBeyondTheMaskIsSerialWithTheReason(machine, client, recorded):
    """One GPU is visible and number 3 is asked for: serial, and the variable is named."""
    step = recorded("tensilelite-2024/full")
    _, status, output = _start(
        *("TensileParallelClient", "--config-file", step.ini, "--client", client),
        *("--devices", "3"),
        environment={**machine, "ROCR_VISIBLE_DEVICES": "3"},
    )
    assert status == 0, output
    assert "device 3 is not available" in output and "by itself" in output
    assert not Path(str(step.results) + ".parallel").exists()


def _hasRealRuntime():
    """Whether a libamdhip64 is installed, found out in a process of its own."""
    load = "import ctypes; ctypes.CDLL('libamdhip64.so')"
    done = subprocess.run([sys.executable, "-c", load], stderr=subprocess.DEVNULL)
    return done.returncode == 0


def test_aRealRuntimeWithoutAGpuMeansSerial(tmp_path):
    """A real libamdhip64 that says "no device": serial Tensile, with the driver as the reason."""
    if os.path.exists("/dev/kfd"):
        pytest.skip("this machine has /dev/kfd")
    if not _hasRealRuntime():
        pytest.skip("libamdhip64 is needed: it is not installed")
    config = _config(tmp_path, DeviceList=[0, 1])
    _, status, output = _start(
        *("TensileParallel", config, tmp_path / "out"),
        *("--client", BIN / "TensileEmulatedClient"),
        *("--tensile-root", HERE / "host" / "tensilelite"),
        environment={**os.environ, "TENSILE_EMULATED_DEVICES": "1"},
    )
    assert status == 0, output
    assert "serial Tensile on device 0: no device is visible" in output
    assert "there is no /dev/kfd" in output and "was not used" not in output
    assert (tmp_path / "out" / "3_LibraryLogic").is_dir()
    assert not (tmp_path / "out" / "outputs").exists()


def test_threadsOfClientsDoNotMultiply(machine, client, recorded):
    """Four clients share the processors; and one processor for loky is still four workers."""
    step = recorded("tensilelite-2024/full")
    environment = {k: v for k, v in machine.items() if not k.startswith("OMP_")}
    _, status, output = _start(
        *("TensileParallelClient", "--config-file", step.ini, "--client", client),
        environment={**environment, "LOKY_MAX_CPU_COUNT": "1", "MEET": "4"},
    )
    assert status == 0, output
    share = max(1, len(os.sched_getaffinity(0)) // 4)
    for number in range(4):
        written = Path("%s.%d" % (client, number)).read_text().splitlines()
        assert "OMP_NUM_THREADS=%d" % share in written
        assert "OMP_THREAD_LIMIT=%d" % share in written


def _config(folder, **parameters):
    with open(HERE / "configs" / "quick.yaml", encoding="utf-8") as stream:
        config = yaml.safe_load(stream)
    config["GlobalParameters"].update(parameters)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("devices", [[0, 1], []])
def test_clocksOfAGpuThatIsNotOursStay(devices, tmp_path):
    """PinClocks runs `rocm-smi -d 0` whatever is used: not in a run of ours. Serially it does."""
    smi = tmp_path / "rocm" / "bin" / "rocm-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text('#!/bin/sh\necho "$@" >> "%s/smi.log"\n' % tmp_path)
    smi.chmod(0o755)
    config = _config(tmp_path, PinClocks=True, DeviceList=devices)
    environment = {**os.environ, "ROCM_PATH": str(tmp_path / "rocm")}
    environment["PATH"] = "%s:%s" % (smi.parent, environment["PATH"])
    _, status, output = _start(
        *("TensileParallel", config, tmp_path / "out", "--emulate", 2),
        *("--tensile-root", HERE / "host" / "tensilelite"),
        environment=environment,
    )
    assert status == 0, output
    assert "Tensile pins the clocks of GPU 0" in output
    assert (tmp_path / "smi.log").exists() == (not devices)


def test_nothingForksWithoutExec():
    """A fork of a process that has touched HIP, or holds its threads' locks, hangs or lies.

    So nothing in the package forks by itself or asks multiprocessing for it; loky's workers are
    programs that were executed anew.
    """
    for path in (ROOT / "Tensile" / "Parallel").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        modules = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not names & {"fork", "forkpty"}, path
        assert not [name for name in modules if name and name.startswith("multiprocessing")], path
