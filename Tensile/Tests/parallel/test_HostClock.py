# SPDX-License-Identifier: MIT
"""The clock that newer hosts ask a GPU for: known before they start, and nobody is asked."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest
import yaml
from FakeHip import FakeHipUnavailable, buildFakeHip, fakeHipEnvironment
from Machines import NoHip, hipMachine, makeMachine
from test_Run import HERE, SCRIPT, runIt, setParameters, writeConfig

from Tensile.Parallel.Devices import scanDevices
from Tensile.Parallel.Doctor import Visit, exitStatus, visit
from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.Host import TENSILELITE_2025, Host
from Tensile.Parallel.HostClock import asksForClock, clockFor, mayHangWithoutTerminal
from Tensile.Parallel.ParseArguments import parseRunArguments
from Tensile.Parallel.Platform import System
from Tensile.Parallel.Types import Device

ASKS = "def get_gpu_max_frequency(device_id):\n    pass\n"
DEFAULT = 'globalParameters["UseEffLike"] = True  # note\n'


def makeHost(tmp_path, source=ASKS, default=DEFAULT):
    """A tree of which only the files that are looked at are there."""
    (tmp_path / "Tensile" / "Common").mkdir(parents=True)
    (tmp_path / "Tensile" / "Tensile.py").write_text(source)
    (tmp_path / "Tensile" / "Common" / "GlobalParameters.py").write_text(default)
    return Host(str(tmp_path), TENSILELITE_2025, "", "a test")


def devicesOf(*clocks):
    """Devices with these clocks."""
    return [Device(k, str(k), maxFrequency=clock) for k, clock in enumerate(clocks)]


def settingsOf(*words):
    """Of a command line."""
    return parseRunArguments(["config.yaml", "out", *words])


@pytest.mark.unit
@pytest.mark.parametrize(
    "parameters, words, source, default, logic, expected",
    [
        ({}, (), ASKS, DEFAULT, True, True),
        ({}, (), ASKS, "", True, False),
        ({"UseEffLike": True}, (), ASKS, "", True, True),
        ({"UseEffLike": False}, (), ASKS, DEFAULT, True, False),
        ({}, (), ASKS, DEFAULT, False, False),
        ({}, (), "def main():\n", DEFAULT, True, False),
        # Tensile() does not look at the command line, LibraryLogic does.
        ({}, ("--global-parameters", "UseEffLike=False"), ASKS, DEFAULT, True, True),
        ({"UseEffLike": False}, ("--global-parameters", "UseEffLike=True"), ASKS, "", True, True),
        ({}, ("--build-only",), ASKS, DEFAULT, True, False),
        (None, (), ASKS, DEFAULT, True, True),
    ],
)
def testWhenAHostAsks(tmp_path, parameters, words, source, default, logic, expected):
    """As the trees decide it: the function is there, LibraryLogic is there, UseEffLike is on."""
    host = makeHost(tmp_path, source, default)
    config = {"GlobalParameters": parameters}
    if logic:
        config["LibraryLogic"] = None
    assert asksForClock(host, settingsOf(*words), config) is expected


@pytest.mark.unit
def testWhichClockAHostIsGiven(tmp_path):
    """The option's, else the first device's that is known; devices that differ are noted; an
    unknown one is refused, with both ways out of it."""
    host = makeHost(tmp_path)
    config = {"LibraryLogic": None}
    given = settingsOf("--max-frequency", "1900")
    assert clockFor(host, given, config, devicesOf(0, 0)) == (1900, "")
    assert clockFor(host, settingsOf(), config, devicesOf(1700, 1700)) == (1700, "")
    clock, note = clockFor(host, settingsOf(), config, devicesOf(0, 1700, 2100))
    assert clock == 1700 and "2100 MHz" in note and "--max-frequency" in note
    with pytest.raises(InputError, match="--max-frequency MHZ.*UseEffLike: False"):
        clockFor(host, settingsOf(), config, devicesOf(0, 0))
    assert clockFor(host, settingsOf(), {}, devicesOf(0)) == (None, "")


@pytest.mark.unit
def testTheDoctorKnowsOfTheClock(tmp_path):
    """Where a run would be refused for want of a clock, the doctor does not say that it can start;
    where there is one, it says which."""
    makeHost(tmp_path / "tree")
    (tmp_path / "tree" / "Tensile" / "bin").mkdir()
    for name in ("__init__.py", "bin/Tensile"):
        (tmp_path / "tree" / "Tensile" / name).write_text("")
    makeMachine(tmp_path / "machine", 1)
    for path in (tmp_path / "machine").rglob("properties"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if "max_engine_clk" not in line))
    system = hipMachine([0])(str(tmp_path / "machine"), {})
    for words, clocked, expected in (((), False, 1), (("--max-frequency", "1900"), True, 0)):
        asked = Visit(
            tensileRoot=str(tmp_path / "tree"),
            client=sys.executable,
            settings=settingsOf(*words),
            config={"LibraryLogic": None},
        )
        findings = [each for each in visit(system, asked) if "clock: " in each.text]
        assert [each.ok for each in findings] == [clocked]
        assert exitStatus(findings) == expected


@pytest.mark.unit
@pytest.mark.parametrize("text", ["0", "-5", "1.5", "fast", ""])
def testAMalformedClockIsRefused(text):
    """It is a whole number of MHz."""
    with pytest.raises(InputError, match="MHz"):
        settingsOf("--max-frequency=%s" % text)


@pytest.mark.unit
def testAHostThatLooksForATerminalDoesNotHang(tmp_path):
    """2026 asks only where stdin is a terminal."""
    assert mayHangWithoutTerminal(makeHost(tmp_path / "a"))
    guarded = ASKS + "if not sys.stdin.isatty():\n    pass\n"
    assert not mayHangWithoutTerminal(makeHost(tmp_path / "b", guarded))
    assert not mayHangWithoutTerminal(makeHost(tmp_path / "c", "def main():\n"))


@pytest.mark.unit
def testTheScanKnowsTheClock(tmp_path):
    """From the kernel's topology where the runtime does not tell; emulated devices have one."""
    machine = makeMachine(tmp_path, 2)
    for system in (NoHip(str(machine), {}), hipMachine([0, 1])(str(machine), {})):
        assert [device.maxFrequency for device in scanDevices(system).devices] == [1700, 1700]
    assert scanDevices(System(str(machine), {}), emulate=1).devices[0].maxFrequency > 0


@pytest.mark.parametrize("clock, expected", [("1950000", 1950), (None, 0), ("2147483647", 0)])
def testTheRuntimeTellsTheClock(tmp_path, clock, expected):
    """hipDeviceAttributeClockRate is in kHz; what no GPU could have is not believed."""
    try:
        library = buildFakeHip(str(tmp_path / "hip"))
    except FakeHipUnavailable as error:
        pytest.skip(str(error))
    environment = fakeHipEnvironment(os.environ, library, ["gfx90a:0000:03:00.0"])
    if clock:
        environment["FAKE_HIP_CLOCK"] = clock
    scan = scanDevices(System(str(tmp_path), environment))
    assert [device.maxFrequency for device in scan.devices] == [expected]


@pytest.fixture
def askingHost(tmp_path):
    """A stand-in that asks at its start as early 2025 does, and never takes no for an answer."""
    tree = tmp_path / "tree"
    shutil.copytree(HERE / "host", tree, ignore=shutil.ignore_patterns("__pycache__"))
    package = tree / "tensilelite" / "Tensile"
    (package / "Tensile.py").rename(package / "Original.py")
    source = """
        import os, sys
        def get_gpu_max_frequency(device_id):
            open(os.environ["ASKED"], "w").close()
            sys.exit("the host has asked")
        def main():
            from . import Original
            frequency = get_gpu_max_frequency(0)
            open(os.environ["ASKED"] + ".answer", "w").write(
                "%d %s" % (frequency, os.environ["MAX_FREQ"])
            )
            Original.main()
        """
    (package / "Tensile.py").write_text(textwrap.dedent(source))
    return str(tree / "tensilelite")


def testTheHostIsAnsweredBeforeItAsks(askingHost, tmp_path):
    """Emulated devices have a clock, the option beats it, and a changed one makes the logic anew
    without a pair being measured again."""
    config = writeConfig(tmp_path, setParameters(UseEffLike=True))
    asked = tmp_path / "asked"
    base = [config, tmp_path / "out", "--tensile-root", askingHost, "--emulate", 2]
    result = runIt(*base, environment={"ASKED": str(asked)})
    assert result.returncode == 0, result.stdout + result.stderr
    answer = tmp_path / "asked.answer"
    assert not asked.exists() and answer.read_text() == "1700 1700"
    result = runIt(*base, "--max-frequency", 2100, environment={"ASKED": str(asked)})
    assert result.returncode == 0, result.stdout + result.stderr
    assert not asked.exists() and answer.read_text() == "2100 2100"
    assert "the GPU's clock changed" in result.stderr
    assert "16 pairs were measured before" in result.stdout


def testAnUnknownClockStopsBeforeAnythingStarts(askingHost, tmp_path):
    """Exit 2, one line with the way out; no output folder, no host."""
    try:
        library = buildFakeHip(str(tmp_path / "hip"))
    except FakeHipUnavailable as error:
        pytest.skip(str(error))
    config = writeConfig(tmp_path, setParameters(UseEffLike=True))
    asked = tmp_path / "asked"
    devices = ["gfx90a:0000:03:00.0", "gfx90a:0000:83:00.0"]
    environment = fakeHipEnvironment(os.environ, library, devices)
    environment["ASKED"] = str(asked)
    out = tmp_path / "out"
    result = runIt(config, out, "--tensile-root", askingHost, environment=environment)
    assert result.returncode == 2, result.stdout + result.stderr
    error = result.stderr.strip().splitlines()[-1]
    assert "--max-frequency" in error and "UseEffLike: False" in error
    assert not out.exists() and not asked.exists()


def testASerialRunThatMayHangIsAnnounced(askingHost, tmp_path):
    """The host's own question is left to it; where nobody can answer, that is said first."""
    config = writeConfig(tmp_path, setParameters(UseEffLike=True, DeviceList=None))
    base = [config, tmp_path / "out", "--tensile-root", askingHost]
    result = runIt(*base, "--max-frequency", 2000, environment={"ASKED": str(tmp_path / "asked")})
    assert (tmp_path / "asked").exists() and "the host has asked" in result.stderr
    assert "UseEffLike: False" in result.stderr and "--max-frequency is not used" in result.stderr
    main, terminal = os.openpty()
    command = [sys.executable, str(SCRIPT), *map(str, base)]
    environment = dict(os.environ, ASKED=str(tmp_path / "asked"))
    done = subprocess.run(
        command, stdin=terminal, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.close(main)
    os.close(terminal)
    assert b"the host has asked" in done.stderr and b"UseEffLike" not in done.stderr


@pytest.mark.parametrize("value", [[], [0], None])
def testASerialRunOnAHostThatRefusesUnknownParameters(tmp_path, value):
    """2026 ends at a parameter that it does not know, or whose type is another than its default's.

    A config with DeviceList runs all the same, by the host's own main and with the user's own
    arguments; other unknown parameters are the host's to refuse.
    """
    tree = tmp_path / "tree"
    package = tree / "Tensile"
    (package / "Common").mkdir(parents=True)
    (package / "bin").mkdir()
    (package / "__init__.py").write_text('__version__ = "5.0.0"\n')
    (package / "Common" / "__init__.py").write_text("")
    parameters = """
        class ConfigTypeError(Exception):
            pass
        globalParameters = {"Known": 1}
        defaultGlobalParameters = dict(globalParameters)
        def assign(config):
            for key, value in config.items():
                if key not in globalParameters:
                    raise ConfigTypeError(key)
                default = globalParameters[key]
                if default is not None and type(value) is not type(default):
                    raise ConfigTypeError("type of " + key)
        """
    (package / "Common" / "GlobalParameters.py").write_text(textwrap.dedent(parameters))
    main = """
        import sys, yaml
        from Tensile.Common.GlobalParameters import assign
        def main():
            assign(yaml.safe_load(open(sys.argv[3]))["GlobalParameters"])
            print("ran", sys.argv)
        """
    (package / "Tensile.py").write_text(textwrap.dedent(main))
    script = "from Tensile.Tensile import main\nmain()\n"
    (package / "bin" / "Tensile").write_text(script)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"GlobalParameters": {"Known": 2, "DeviceList": value}}))
    environment = {"HIP_VISIBLE_DEVICES": "-1"}
    base = [config, tmp_path / "out", "--emulate", 1, "--client", "/c", "--tensile-root", tree]
    result = runIt(*base, environment=environment)
    assert result.returncode == 0, result.stderr
    arguments = ["--prebuilt-client", "/c", str(config), str(tmp_path / "out")]
    assert "ran %s" % [str(package / "bin" / "Tensile"), *arguments] in result.stdout
    config.write_text(yaml.safe_dump({"GlobalParameters": {"Other": 2, "DeviceList": value}}))
    result = runIt(*base, environment=environment)
    assert result.returncode == 1 and "ConfigTypeError: Other" in result.stderr
