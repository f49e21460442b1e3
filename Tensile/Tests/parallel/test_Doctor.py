# SPDX-License-Identifier: MIT
"""What the doctor says of machines of every kind; docs/troubleshooting.md shows the same lines."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import replace

import pytest
from conftest import HOST, ROOT
from Machines import NoHip, addProcess, hipMachine, makeMachine, pciAddress, put

from Tensile.Parallel.DeviceList import parseDeviceList
from Tensile.Parallel.Devices import scanDevices
from Tensile.Parallel.Doctor import Visit, exitStatus, report, visit
from Tensile.Parallel.Locks import acquireLock
from Tensile.Parallel.Platform import ProgramResult

pytestmark = pytest.mark.unit

DOCS = ROOT / "docs" / "troubleshooting.md"
QUICK = ROOT / "Tensile" / "Tests" / "parallel" / "configs" / "quick.yaml"
TREE = ("--tensile-root", HOST / "tensilelite")


def _quiet(system):
    """A System class for a machine of ours: no programs but its own, and known groups."""

    class Quiet(system):
        def groups(self):
            return frozenset({"render", "video"} if self.exists("/dev/kfd") else {"users"})

    return Quiet


def _programs(root, **texts):
    """Programs that print a text; the PATH that holds them and no others."""
    for name, text in texts.items():
        path = put(
            root, "usr/bin/" + name.replace("_", "-"), "#!/bin/sh\ncat <<'END'\n%s\nEND\n" % text
        )
        path.chmod(0o755)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    return str(root / "usr/bin") + os.pathsep + "/bin"


def _amdSmi(count):
    """What `amd-smi list --json` prints (ROCm 6)."""
    rows = [
        '    {"gpu": %d, "bdf": "%s", "uuid": "%02xff740f-0000-1000-80f6-a5b0b1f2e4c%x"}'
        % (number, pciAddress(number), number, number)
        for number in range(count)
    ]
    return "[\n%s\n]" % ",\n".join(rows)


def _nothing(root):
    return _quiet(NoHip)(str(root), {"PATH": _programs(root)}), Visit()


def _rocmWithoutGpu(root):
    class Empty(NoHip):
        def hipProbe(self, timeout=0, environment=None):
            answer = 'TENSILE_PARALLEL_HIP_ANSWER {"library": "libamdhip64.so.6", "devices": []}\n'
            return ProgramResult(["python"], 0, answer)

    for name in ("amdclang++", "clang-offload-bundler", "amdgpu-arch"):
        put(root, "opt/rocm/bin/" + name, "")
    return _quiet(Empty)(str(root), {"PATH": _programs(root)}), Visit()


def _oneBusy(root):
    makeMachine(root, 8)
    put(root, "sys/module/amdgpu/version", "6.7.0\n")
    addProcess(root, 4711, "python train.py", queues=[3, 3], vram={3: 12 << 30})
    system = _quiet(hipMachine(range(8)))
    return system(str(root), {"PATH": _programs(root, amd_smi=_amdSmi(8))}), Visit()


def _allHidden(root):
    makeMachine(root, 8)
    put(root, "sys/module/amdgpu/version", "6.7.0\n")
    environment = {"PATH": _programs(root), "HIP_VISIBLE_DEVICES": "-1"}
    return _quiet(hipMachine([]))(str(root), environment), Visit()


def _container(root):
    makeMachine(root, 8, renderNodes=[1])
    environment = {"PATH": _programs(root, amd_smi=_amdSmi(8))}
    return _quiet(hipMachine([1]))(str(root), environment), Visit()


SITUATIONS = {
    "nothing installed": (_nothing, 1),
    "ROCm without a GPU": (_rocmWithoutGpu, 1),
    "eight GPUs, one busy": (_oneBusy, 0),
    "masks that hide all": (_allHidden, 1),
    "a container with one render node": (_container, 0),
}


def _lines(system, asked, tree=HOST / "tensilelite"):
    findings = visit(system, Visit(tensileRoot=tree and str(tree), **_without(asked)))
    return report(findings, "utf-8"), exitStatus(findings)


def _without(asked):
    values = {name: getattr(asked, name) for name in ("client", "emulate", "wanted", "pinClocks")}
    return {name: value for name, value in values.items() if value}


@pytest.mark.parametrize("name", SITUATIONS)
def test_theDocsShowWhatItSays(name, tmp_path):
    """Each situation's lines and exit status; the page has them word for word."""
    make, expected = SITUATIONS[name]
    system, asked = make(tmp_path)
    tree = None if name == "nothing installed" else HOST / "tensilelite"
    lines, status = _lines(system, asked, tree)
    assert status == expected, lines
    if not DOCS.is_file():
        pytest.skip("these tests do not lie in TensileParallel's own checkout")
    # Of our own versions and the host's place each machine has others.
    own = [
        line for line in lines[2:] if "host: stand-in" not in line and "stand-in host" not in line
    ]
    own = [line for line in own if not (name == "nothing installed" and "toolchain" in line)]
    text = "\n".join(own)
    blocks = re.findall(r"```text\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    assert text + "\n" in blocks, "docs/troubleshooting.md lacks:\n" + text


def test_theBusyDeviceIsNoted(tmp_path):
    """The busy device is a cross with the process; the others are checks; a run could start."""
    lines, status = _lines(*_oneBusy(tmp_path))
    crosses = [line for line in lines if line.startswith("\u2717")]
    assert len(crosses) == 1 and "device 3" in crosses[0] and "process 4711" in crosses[0]
    assert status == 0 and lines[-1].startswith("A run can start")


def test_theVariableThatHidesIsNamed(tmp_path):
    """All hidden: the line names the variable, and it cannot start."""
    lines, status = _lines(*_allHidden(tmp_path))
    assert any(line.startswith("\u2717") and "HIP_VISIBLE_DEVICES=-1" in line for line in lines)
    assert status == 1 and "devices" in lines[-1]


def test_aMissingGroupIsAdvised(tmp_path):
    """/dev/kfd is there and may not be opened: the group and the command that mends it."""
    makeMachine(tmp_path, 2)

    class Outsider(NoHip):
        def canAccess(self, path):
            return False

        def canOpen(self, path):
            return False

        def groups(self):
            return frozenset({"users"})

    system = Outsider(str(tmp_path), {"PATH": _programs(tmp_path)})
    lines, status = _lines(system, Visit())
    (line,) = [line for line in lines if "driver" in line and "not in the group render" in line]
    assert "usermod -aG render,video" in line and status == 1


@pytest.mark.parametrize("tool", ["amdclang++", "clang-offload-bundler", "amdgpu-arch"])
def test_aMissingToolIsNamed(tool, tmp_path):
    """A real tree needs its tools: the one that is missing is named, with where it was sought."""
    tree = tmp_path / "tree"
    put(tree, "Tensile/__init__.py", '__version__ = "4.33.0"\n')
    put(tree, "Tensile/bin/Tensile", "")
    put(tree, "Tensile/TensileInstructions/__init__.py", "")
    for name in {"amdclang++", "clang-offload-bundler", "amdgpu-arch"} - {tool}:
        put(tmp_path, "rocm/bin/" + name, "")
    makeMachine(tmp_path, 1)
    environment = {"PATH": _programs(tmp_path), "ROCM_PATH": "/rocm"}
    asked = Visit(client=sys.executable)
    lines, status = _lines(_quiet(hipMachine([0]))(str(tmp_path), environment), asked, tree)
    (line,) = [line for line in lines if "toolchain" in line and line.startswith("\u2717")]
    assert tool in line and "/rocm" in line and status == 1


def test_whatTensileItselfWouldAskIsShown(tmp_path):
    """The host's enumerator lists an integrated GPU first: shown beside what the run uses."""
    tree = tmp_path / "tree"
    put(tree, "Tensile/__init__.py", '__version__ = "4.33.0"\n')
    put(tree, "Tensile/bin/Tensile", "")
    put(tree, "Tensile/TensileInstructions/__init__.py", "")
    makeMachine(tmp_path, 2)
    environment = {"ROCM_PATH": "/rocm"}
    environment["PATH"] = _programs(tmp_path, amdgpu_arch="gfx1036\ngfx90a:sramecc+:xnack-\ngfx90a")
    asked = Visit(client=sys.executable)
    lines, _ = _lines(_quiet(hipMachine([0, 1]))(str(tmp_path), environment), asked, tree)
    assert "\u2713 cross-check: amdgpu-arch lists 1 gfx1036, 2 gfx90a" in lines


def test_aClientThatIsNoneIsSaid(tmp_path):
    """--client names a file that cannot be executed."""
    lines, status = _lines(_oneBusy(tmp_path)[0], Visit(client=str(put(tmp_path, "x", ""))))
    assert any("client" in line and "no executable file" in line for line in lines) and status == 1


def test_devicesAreThoseOfTheRun(tmp_path):
    """With a DeviceList only its devices are judged: the busy one is not among them."""
    system, _ = _oneBusy(tmp_path)
    lines, status = _lines(system, Visit(wanted=parseDeviceList([0, 9])))
    assert status == 0 and "\u2713 a run would use device 0" in lines
    assert any("device 9 is not available" in line for line in lines)
    assert not any("4711" in line for line in lines)
    lines, status = _lines(system, Visit(wanted=parseDeviceList([9])))
    assert status == 1


def test_terminalsWithoutCheckMarks(tmp_path):
    """An ASCII terminal gets + and x, and no question marks."""
    system, asked = _oneBusy(tmp_path)
    lines = report(visit(system, asked), "ascii")
    "\n".join(lines).encode("ascii")
    assert any(line.startswith("x ") for line in lines)


def test_theCommand(runScript, tmp_path):
    """The command itself, on whatever machine this is: emulated, with a config, with a bad one."""
    config = ROOT / "Tensile" / "Tests" / "parallel" / "configs" / "quick.yaml"
    tree = ["--tensile-root", HOST / "tensilelite"]
    done = runScript("TensileParallel", "--doctor", "--emulate", 4, config, *tree)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("A run can start.\n") and "4 visible" in done.stdout
    done = runScript("TensileParallel", "--doctor", tmp_path / "none.yaml", *tree)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    bad = tmp_path / "bad.yaml"
    bad.write_text("GlobalParameters: {DeviceList: x}\n")
    done = runScript("TensileParallel", "--doctor", bad, *tree)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    done = runScript("TensileParallel", "--doctor", "--devices", "9", "--emulate", 2, *tree)
    assert done.returncode == 1 and "device 9 is not available" in done.stdout


def test_itLeavesNothingBehind(runScript, tmp_path):
    """It looks only: no file is written, no lock taken."""
    before = sorted(path.name for path in tmp_path.rglob("*"))
    tree = ["--tensile-root", HOST / "tensilelite"]
    runScript("TensileParallel", "--doctor", "--emulate", 2, *tree, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def _say(system, asked, tree=HOST / "tensilelite"):
    findings = visit(system, replace(asked, tensileRoot=str(tree)))
    return findings, exitStatus(findings)


def _one(findings, words):
    (found,) = [finding for finding in findings if words in finding.text]
    return found


def test_aDriverThatMayNotBeOpenedIsFatalByItself(tmp_path):
    """Where the runtime sees devices all the same, /dev/kfd decides: no client could open it."""
    makeMachine(tmp_path, 1)

    class Closed(_quiet(hipMachine([0]))):
        def canAccess(self, path):
            return path != "/dev/kfd"

    for groups, words in (
        (frozenset({"users"}), "not in the group render"),
        (frozenset({"render"}), ""),
    ):
        Closed.groups = lambda self, groups=groups: groups
        findings, status = _say(Closed(str(tmp_path), {"PATH": _programs(tmp_path)}), Visit())
        found = _one(findings, "/dev/kfd may not be opened")
        assert status == 1 and ("not in the group" in found.text) == bool(words)


def test_devicesWithoutADriverFileAreNoFault(tmp_path):
    """As on WSL: the runtime has found devices, so a run can start."""
    system = _quiet(hipMachine([0, 1]))(str(tmp_path), {"PATH": _programs(tmp_path)})
    findings, status = _say(system, Visit())
    assert status == 0 and _one(findings, "there is no /dev/kfd").ok


def test_aMissingRuntimeIsACross(tmp_path):
    """The kernel knows the devices, but a client needs the runtime."""
    makeMachine(tmp_path, 2)
    findings, status = _say(_quiet(NoHip)(str(tmp_path), {"PATH": _programs(tmp_path)}), Visit())
    assert not _one(findings, "libamdhip64.so is not installed").ok and status == 0
    assert "worth a look" in report(findings, "utf-8")[-1]


@pytest.mark.parametrize("noWait", [False, True])
def test_heldDevicesAreCrosses(noWait, tmp_path, monkeypatch):
    """A device that another run has is named with the run; --no-wait could not start."""
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    environment = {"PATH": _programs(tmp_path), "TENSILE_PARALLEL_LOCK_DIR": str(locks)}
    system = NoHip(str(tmp_path), environment)
    asked = Visit(emulate=2, noWait=noWait)
    assert _one(_say(system, asked)[0], "locks:").ok
    device = scanDevices(system, 2).devices[1]
    with acquireLock(device, None, False, print, NoHip("/", environment)):
        findings, status = _say(system, asked)
    found = _one(findings, "locks: another run has device 1")
    assert not found.ok and "pid %d" % os.getpid() in found.text and status == int(noWait)


def test_aLockFolderThatOthersCanWriteIsFatal(tmp_path):
    """A run would refuse it."""
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o777)
    environment = {"PATH": _programs(tmp_path), "TENSILE_PARALLEL_LOCK_DIR": str(locks)}
    findings, status = _say(NoHip(str(tmp_path), environment), Visit(emulate=2))
    assert "can be written by others" in _one(findings, "locks:").text and status == 1


def test_numaBalancingIsACross(tmp_path):
    """What makes times jump is worth a look."""
    system, asked = _oneBusy(tmp_path)
    put(tmp_path, "proc/sys/kernel/numa_balancing", "1\n")
    assert not _one(_say(system, asked)[0], "NUMA balancing").ok


def test_mixedArchitectures(tmp_path):
    """A list that mixes them could not start; no list at all is only told of."""
    makeMachine(tmp_path, 1)
    makeMachine(tmp_path, 1, first=1, kind=("gfx942", 90402, 304, "AMD Instinct MI300X"))
    system = NoHip(str(tmp_path), {"PATH": _programs(tmp_path)})
    findings, status = _say(system, Visit(wanted=(0, 1)))
    assert status == 1 and not _one(findings, "mixes architectures").ok
    findings, status = _say(system, Visit())
    assert status == 0 and not _one(findings, "mixes architectures").ok


def test_aMaskThatEndsEarlyIsACross(tmp_path):
    """`0, 1` is device 0 alone: most likely two were meant."""
    makeMachine(tmp_path, 2)
    environment = {"PATH": _programs(tmp_path), "HIP_VISIBLE_DEVICES": "0, 1"}
    findings, _ = _say(NoHip(str(tmp_path), environment), Visit())
    assert not _one(findings, "ends before the token").ok


def test_aToolThatContradictsIsACross(tmp_path):
    """amd-smi lists one GPU less, and no mask explains it."""
    system, asked = _oneBusy(tmp_path)
    _programs(tmp_path, amd_smi=_amdSmi(7))
    crosses = [f for f in _say(system, asked)[0] if f.text.startswith("cross-check") and not f.ok]
    assert crosses


@pytest.mark.parametrize(
    "text, words",
    [
        ("GlobalParameters: {}\nDeviceList: [0]\n", "outside GlobalParameters"),
        ("GlobalParameters: {devicelist: [0]}\n", "devicelist in GlobalParameters"),
        ("GlobalParameters: {DeviceList: []}\n", "names no device"),
        ("GlobalParameters: 3\n", "no DeviceList in GlobalParameters"),
    ],
)
def test_aConfigWithoutAListWouldBeSerial(text, words, runScript, tmp_path):
    """The doctor and the run agree that it is serial, and say why."""
    config = put(tmp_path, "c.yaml", text)
    done = runScript(*("TensileParallel", "--doctor", config, "--emulate", 2), *TREE)
    assert done.returncode == 1 and words in done.stdout
    done = runScript(*("TensileParallel", config, tmp_path / "out", "--emulate", 2), *TREE)
    assert words in done.stderr and "serial Tensile" in done.stderr


def test_whatARunRefusesTheDoctorRefuses(runScript, tmp_path):
    """--strict with a device that is missing; an output path that Tensile's shell takes apart."""
    for arguments in (["--devices", "0,9", "--strict"], [QUICK, tmp_path / "sp ace"]):
        done = runScript(*("TensileParallel", "--doctor", "--emulate", 2, *arguments), *TREE)
        assert done.returncode == 1, done.stdout


def test_oddTextReachesAnAsciiTerminal(runScript, tmp_path):
    """A host's folder with other letters is shown as escapes, to the last line."""
    tree = tmp_path / "\u00fcn\u00ef"
    shutil.copytree(HOST, tree)
    environment = {"PYTHONIOENCODING": "ascii", "HIP_VISIBLE_DEVICES": "0,\x1b[31m"}
    arguments = ("--doctor", "--emulate", 2, "--tensile-root", tree / "tensilelite")
    done = runScript("TensileParallel", *arguments, environment=environment)
    assert done.stdout.splitlines()[-1].startswith("A "), done.stdout
    assert "\\xfcn\\xef" in done.stdout
    assert "\x1b" not in done.stdout
