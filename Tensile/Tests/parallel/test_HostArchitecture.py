# SPDX-License-Identifier: MIT
"""One architecture per run, also for the host: on text of its trees, and on the stand-ins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from FakeHip import FakeHipUnavailable, buildFakeHip, fakeHipEnvironment
from test_Run import EMULATED_CLIENT, HERE, runIt, setParameters, summaryOf, writeConfig

from Tensile.Parallel.Host import (
    CLASSIC,
    TENSILELITE_2024,
    TENSILELITE_2025,
    TENSILELITE_2026,
    Host,
)
from Tensile.Parallel.HostArchitecture import gfxName, isaOf, isasIn, tellArchitecture
from Tensile.Parallel.ParseArguments import parseRunArguments
from Tensile.Parallel.Types import Device

# The shapes in which the trees write their lists.
SUPPORTED = """
globalParameters["SupportedISA"] = [(8,0,3), (9,0,10),
                                    (9,4,2), # a note with (1,2,3) in it
                                    (11,0,0)] # assembly kernels
globalParameters["CurrentISA"] = (0,0,0)
"""
PLACES = {
    TENSILELITE_2024: ("Common.py", SUPPORTED),
    CLASSIC: (
        "Common.py",
        SUPPORTED + "  isasWithDisabledHWMonitor = ((9,4,2), (11,0,0))\n  isaString = (7, 7, 7)\n",
    ),
    TENSILELITE_2025: (
        "Common/GlobalParameters.py",
        'globalParameters["SupportedISA"] = [\n    (8, 0, 3),\n    (9, 0, 10),\n    (9, 4, 2),\n]\n'
        'globalParameters["CurrentISA"] = (0, 0, 0)\n',
    ),
    TENSILELITE_2026: ("Tensile.py", 'argParser.add_argument("--gpu-targets")\n'),
}
BY_PARAMETER = [TENSILELITE_2024, TENSILELITE_2025, CLASSIC]


def tell(tmp_path, generation, architecture, *words, parameters=None, environment=None, tree=True):
    """What a host of a generation is told for two devices of an architecture."""
    name, text = PLACES[generation]
    path = tmp_path / "Tensile" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if tree else "")
    host = Host(str(tmp_path), generation, "", "a test")
    settings = parseRunArguments(["config.yaml", "out", *words])
    devices = [Device(k, str(k), architecture=architecture) for k in range(2)]
    config = {"GlobalParameters": parameters}
    return tellArchitecture(host, settings, config, devices, environment or {})


@pytest.mark.unit
@pytest.mark.parametrize(
    "name, isa",
    [
        ("gfx90a", (9, 0, 10)),
        ("gfx90a:sramecc+:xnack-", (9, 0, 10)),
        ("gfx942", (9, 4, 2)),
        ("gfx1100", (11, 0, 0)),
        ("gfx1250v0", (12, 5, 0)),
        ("gfx9-4-generic", None),
        ("", None),
        ("all", None),
    ],
)
def test_gfxNamesMeanIsas(name, isa):
    """The last two digits are minor version and step, the step in hexadecimal."""
    assert isaOf(name) == isa
    if isa:
        assert name.startswith(gfxName(isa))


@pytest.mark.unit
def test_listsAreReadAsTheTreesWriteThem():
    """On one line or several, with comments, as tuples or IsaVersion; nothing that follows."""
    assert isasIn(SUPPORTED, "SupportedISA") == ((8, 0, 3), (9, 0, 10), (9, 4, 2), (11, 0, 0))
    text = (
        "SUPPORTED_ISA = [\n    IsaVersion(8, 0, 3),\n    IsaVersion(12, 5, 0),\n]\nx = (1, 2, 3)"
    )
    assert isasIn(text, "SUPPORTED_ISA") == ((8, 0, 3), (12, 5, 0))
    classic = PLACES[CLASSIC][1]
    assert isasIn(classic, "isasWithDisabledHWMonitor") == ((9, 4, 2), (11, 0, 0))
    assert isasIn(SUPPORTED, "isasWithDisabledHWMonitor") == ()
    assert isasIn('globalParameters["SupportedISA"] = []\nx = [(1, 2, 3)]', "SupportedISA") == ()


@pytest.mark.unit
@pytest.mark.parametrize("generation", BY_PARAMETER)
def test_hostsAreToldByCurrentIsa(tmp_path, generation):
    """Hosts with a global parameter for it get the ISA as a Python literal."""
    told = tell(tmp_path, generation, "gfx90a:sramecc+:xnack-", parameters={"Device": 1})
    assert told.parameters == {"CurrentISA": "(9, 0, 10)"}
    assert told.options == () and not told.warning and "gfx90a" in told.line


@pytest.mark.unit
def test_hostsWithGpuTargetsAreToldByThem(tmp_path):
    """It stands for the config's Architecture as well, which alone can name a stepping."""
    told = tell(tmp_path, TENSILELITE_2026, "gfx942")
    assert told.options == ("--gpu-targets", "gfx942") and told.parameters == {}
    stepping = {"Architecture": "gfx942; gfx1250v0"}
    told = tell(tmp_path, TENSILELITE_2026, "gfx1250", parameters=stepping)
    assert told.options == ("--gpu-targets", "gfx1250v0")
    told = tell(tmp_path, TENSILELITE_2026, "gfx942", parameters={"Architecture": "all"})
    assert told.options == ("--gpu-targets", "gfx942")


@pytest.mark.unit
def test_classicTensilesHardwareMonitorIsOffWhereItWouldBe(tmp_path):
    """Classic Tensile decides it by what the enumerator told; the user's own word stands."""

    def monitor(*arguments, **keywords):
        return tell(tmp_path, CLASSIC, *arguments, **keywords).parameters.get("HardwareMonitor")

    assert monitor("gfx942") == "False"
    assert monitor("gfx90a") is None
    assert monitor("gfx942", parameters={"HardwareMonitor": True}) is None
    assert monitor("gfx942", "--global-parameters", "HardwareMonitor=True") is None
    assert tell(tmp_path, TENSILELITE_2024, "gfx942").parameters == {"CurrentISA": "(9, 4, 2)"}


@pytest.mark.unit
@pytest.mark.parametrize(
    "generation, words, parameters, environment",
    [
        (TENSILELITE_2024, (), {"AMDGPUArchPath": "/mine"}, {}),
        (TENSILELITE_2025, (), {"AMDGPUArchPath": "/mine"}, {}),
        (TENSILELITE_2024, (), {"CurrentISA": [9, 4, 2]}, {}),
        (CLASSIC, ("--arch", "gfx942"), {}, {}),
        (CLASSIC, ("--arch=gfx942",), {}, {}),
        (CLASSIC, ("--global-parameters", "CurrentISA=(9,4,2)"), {}, {}),
        (CLASSIC, (), {}, {"HSA_OVERRIDE_GFX_VERSION": "9.4.2"}),
        (TENSILELITE_2026, ("--gpu-targets", "gfx942"), {}, {}),
        (TENSILELITE_2026, ("--gpu-t", "gfx942"), {}, {}),
        (TENSILELITE_2026, ("--rocm-agent-enumerator", "/mine"), {}, {}),
        (TENSILELITE_2026, (), {"ISA": [[9, 4, 2]]}, {}),
        (TENSILELITE_2026, (), {}, {"HSA_OVERRIDE_GFX_VERSION_1": "9.4.2"}),
    ],
)
def test_whatTheUserSaysStands(tmp_path, generation, words, parameters, environment):
    """Who names an architecture, or who is to be asked for it, means that; the log says so."""
    told = tell(
        tmp_path, generation, "gfx90a", *words, parameters=parameters, environment=environment
    )
    assert told.parameters == {} and told.options == ()
    assert "decides the architecture" in told.line


@pytest.mark.unit
@pytest.mark.parametrize(
    "generation, words, parameters",
    [
        (CLASSIC, (), {"ROCmAgentEnumeratorPath": "/mine"}),
        (CLASSIC, (), {"AMDGPUArchPath": "/mine"}),
        (TENSILELITE_2024, ("--global-parameters", "AMDGPUArchPath='/mine'"), {}),
        (TENSILELITE_2024, (), {"Architecture": "gfx942", "ISA": [[9, 4, 2]]}),
    ],
)
def test_whatTheHostWouldNotHeedDecidesNothing(tmp_path, generation, words, parameters):
    """An enumerator that the host never asks is no reason to leave it to its own."""
    told = tell(tmp_path, generation, "gfx90a", *words, parameters=parameters)
    assert told.parameters["CurrentISA"] == "(9, 0, 10)"


@pytest.mark.unit
@pytest.mark.parametrize("generation", BY_PARAMETER)
def test_anArchitectureThatTheHostLacksIsSaidAndNotForced(tmp_path, generation):
    """A host would stumble over an ISA that it has no capabilities of."""
    told = tell(tmp_path, generation, "gfx1036")
    assert told.parameters == {} and told.warning
    assert "gfx1036" in told.line and "SupportedISA" in told.line


@pytest.mark.unit
@pytest.mark.parametrize("generation", list(PLACES))
def test_unknownArchitecturesAndTreesAreLeftAlone(tmp_path, generation):
    """Emulated devices have none; and a tree that cannot be told is not."""
    assert tell(tmp_path, generation, "").line == ""
    told = tell(tmp_path, generation, "gfx90a", tree=False)
    assert told.parameters == {} and told.options == ()
    assert "ISA: [[9, 0, 10]]" in told.line


# -- on the stand-in hosts ----------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function (devices, what the enumerators do) -> environment of a faked machine."""
    try:
        library = buildFakeHip(tmp_path / "hip")
    except FakeHipUnavailable as error:
        pytest.skip(str(error))
    os.chmod(tmp_path, 0o700)
    monkeypatch.delenv("HSA_OVERRIDE_GFX_VERSION", raising=False)

    def make(architectures, enumerator):
        for name in ("llvm/bin/amdgpu-arch", "bin/rocm_agent_enumerator"):
            path = tmp_path / "rocm" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n%s\n" % enumerator)
            path.chmod(0o755)
        client = tmp_path / "tensile_client"
        client.write_text('#!/bin/sh\nexec %s %s "$@"\n' % (sys.executable, EMULATED_CLIENT))
        client.chmod(0o755)
        addresses = ["%s:0000:%02x:00.0" % (name, 3 + k) for k, name in enumerate(architectures)]
        environment = fakeHipEnvironment(os.environ, library, addresses)
        environment.update(
            ROCM_PATH=str(tmp_path / "rocm"),
            TENSILE_EMULATED_DEVICES=str(len(architectures)),
            XDG_RUNTIME_DIR=str(tmp_path),
        )
        return environment

    return make


def runOn(environment, generation, config, out, *words):
    """TensileParallel on a stand-in host and a faked machine."""
    client = ("--client", config.parent / "tensile_client")
    host = HERE / "host" / generation
    return runIt(config, out, "--tensile-root", host, *client, *words, environment=environment)


def iniOf(folder):
    """The one ClientParameters.ini below a merged tree."""
    (ini,) = Path(folder).glob("1_BenchmarkProblems/*/*/source/ClientParameters.ini")
    return ini.read_text().splitlines()


def architecturesIn(ini):
    """The gfx names of the code objects in an INI."""
    names = [line.partition("=")[2] for line in ini if line.startswith("code-object=")]
    return {word for name in names for word in Path(name).stem.split("_") if word[:3] == "gfx"}


@pytest.mark.parametrize(
    "generation, enumerator, alone",
    [
        ("tensilelite", "echo gfx000; echo gfx942; echo gfx90a; echo gfx1100", "gfx942"),
        ("classic", "echo gfx000; echo gfx942; echo gfx90a; echo gfx1100", "gfx1100"),
        ("tensilelite", ":", "gfx906"),
        ("classic", "exit 1", "gfx906"),
    ],
)
def test_theHostBuildsForTheDevicesInUse(machine, tmp_path, generation, enumerator, alone):
    """Whatever the host's enumerator lists, prints nothing or fails: kernels are the devices'.

    `alone` is what the same host comes to by itself. The command line tells it, so the config
    file that it is given, and that the summary names, is the user's.
    """
    change = setParameters(DeviceList=[1, 2], Architecture="gfx906")
    config = writeConfig(tmp_path, change)
    environment = machine(["gfx942", "gfx90a", "gfx90a"], enumerator)
    serial = tmp_path / "serial"
    command = [sys.executable, HERE / "host" / generation / "Tensile" / "bin" / "Tensile"]
    options = ["--prebuilt-client", tmp_path / "tensile_client"]
    done = subprocess.run(
        [*command, config, serial, *options], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert architecturesIn(iniOf(serial)) == {alone}
    out = tmp_path / "out"
    result = runOn(environment, generation, config, out)
    assert result.returncode == 0, result.stdout + result.stderr
    assert architecturesIn(iniOf(out / "merged_output")) == {"gfx90a"}
    log = (out / "tensile_parallel.log").read_text()
    assert "Tensile is told that the devices are gfx90a" in log
    assert "Overriding CurrentISA=(9, 0, 10)" in log
    assert "#  Config: %s" % config in log
    assert summaryOf(out)["config"] == str(config)


def test_theUsersOwnGlobalParametersStayBesideIt(machine, tmp_path):
    """The host keeps one --global-parameters only: the user's, with ours in it."""
    config = writeConfig(tmp_path, setParameters(DeviceList=[0]))
    environment = machine(["gfx942"], "echo gfx90a")
    words = ("--global-parameters", "SleepPercent=7", "NumWarmups=3")
    result = runOn(environment, "classic", config, tmp_path / "out", *words)
    assert result.returncode == 0, result.stdout + result.stderr
    ini = iniOf(tmp_path / "out" / "merged_output")
    assert architecturesIn(ini) == {"gfx942"}
    assert {"num-warmups=3", "sleep-percent=7", "hardware-monitor=False"} <= set(ini)


def test_theAlternateFormatIsToldAsWell(machine, tmp_path):
    """What the first of two files says decides, as for everything else."""
    environment = machine(["gfx90a"], "echo gfx942")
    content = yaml.safe_load(writeConfig(tmp_path).read_text())
    problemType, group = content["BenchmarkProblems"][0]
    base = {
        "GlobalParameters": dict(content["GlobalParameters"], DeviceList=[0]),
        "ProblemType": problemType,
        "BenchmarkCommonParameters": group["BenchmarkCommonParameters"],
        "ForkParameters": group["ForkParameters"],
    }
    first, sizes = tmp_path / "alternate.yaml", tmp_path / "sizes.yaml"
    first.write_text(yaml.safe_dump(base))
    sizes.write_text(yaml.safe_dump([{"Exact": [128, 128, 1, 128]}]))
    for number, parameters in enumerate(({}, {"AMDGPUArchPath": _printing(tmp_path, "gfx1100")})):
        base["GlobalParameters"].update(parameters)
        first.write_text(yaml.safe_dump(base))
        out = tmp_path / ("out%d" % number)
        words = (first, sizes, out, "--alternate-format", "--client", tmp_path / "tensile_client")
        host = HERE / "host" / "tensilelite"
        result = runIt(*words, "--tensile-root", host, environment=environment)
        assert result.returncode == 0, result.stdout + result.stderr
        expected = "gfx1100" if parameters else "gfx90a"
        assert architecturesIn(iniOf(out / "merged_output")) == {expected}


def _printing(folder, text):
    path = folder / "enumerator"
    path.write_text("#!/bin/sh\necho %s\n" % text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("names", [["gfx1100", "gfx1036"], ["gfx1036", "gfx1100"]])
def test_mixedListsAreRefused(machine, tmp_path, names):
    """An explicit mix is an error that names the architectures; [-1] leaves the integrated out."""
    environment = machine(names, "echo gfx1036; echo gfx1100")
    config = writeConfig(tmp_path, setParameters(DeviceList=[0, 1]))
    result = runOn(environment, "tensilelite", config, tmp_path / "out")
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    for number, name in enumerate(names):
        assert "%s (device %d)" % (name, number) in result.stderr
    assert not (tmp_path / "out").exists()
    config = writeConfig(tmp_path, setParameters(DeviceList=[-1]))
    result = runOn(environment, "tensilelite", config, tmp_path / "out")
    assert result.returncode == 0, result.stdout + result.stderr
    integrated = names.index("gfx1036")
    assert "device %d (gfx1036) is left out of [-1]" % integrated in result.stderr
    assert [d["architecture"] for d in summaryOf(tmp_path / "out")["devices"]] == ["gfx1100"]
    assert architecturesIn(iniOf(tmp_path / "out" / "merged_output")) == {"gfx1100"}


def test_devicesOfSeveralSizesAreToldApart(machine, tmp_path):
    """304 and 80 compute units: a warning, and who measured which row is on record."""
    environment = machine(["gfx942", "gfx942"], "echo gfx942")
    environment["FAKE_HIP_UNITS"] = "304,80"
    config = writeConfig(tmp_path)
    out = tmp_path / "out"
    result = runOn(environment, "tensilelite", config, out, "--keep-sizes-whole")
    assert result.returncode == 0, result.stdout + result.stderr
    warning = "compute units (device 0 has 304, 1 has 80)"
    assert warning in result.stderr
    summary = summaryOf(out)
    assert any(warning in note for note in summary["notes"])
    assert [device["computeUnits"] for device in summary["devices"]] == [304, 80]
    (path,) = out.glob("outputs/*/*/step.json")
    step = json.loads(path.read_text())
    rows = {}
    for device in step["devices"]:
        assert (out / ("config_gpu_%d.yaml" % device["ordinal"])).is_file()
        for first, count in device["problems"]:
            for row in range(first, first + count):
                rows.setdefault(row, []).append(device["ordinal"])
    assert sorted(rows) == list(range(step["problems"]))
    assert all(len(devices) == 1 for devices in rows.values())
    assert {device for devices in rows.values() for device in devices} == {0, 1}
