# SPDX-License-Identifier: MIT
"""TensileParallel as a user runs it: real processes on the stand-in host, emulated devices."""

import fcntl
import filecmp
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import yaml

from Tensile.Parallel import SerialRun
from Tensile.Parallel.Journal import readJournal
from Tensile.Parallel.ParseArguments import parseRunArguments

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SCRIPT = ROOT / "Tensile" / "bin" / "TensileParallel"
DATA_2024 = HERE / "data" / "tensilelite-2024"
EMULATED_CLIENT = ROOT / "Tensile" / "bin" / "TensileEmulatedClient"

CONFIG = """
GlobalParameters:
  MinimumRequiredVersion: 4.14.0
  DeviceList: [0, 1]
  Architecture: gfx90a
  KernelTime: True
  NumElementsToValidate: 0
  CSVExportWinner: 1
  CSVMergeSameProblemID: 1
BenchmarkProblems:
  - - {OperationType: GEMM, DataType: s, TransposeA: 0, TransposeB: 0, UseBeta: True, Batched: True}
    - BenchmarkCommonParameters:
        - KernelLanguage: ["Assembly"]
      ForkParameters:
        - MatrixInstruction:
          - [32, 32, 2, 1, 1, 1, 1, 4, 1]
          - [16, 16, 4, 1, 1, 2, 2, 2, 2]
        - PrefetchGlobalRead: [1, 2]
        - DepthU: [16]
      BenchmarkFinalParameters:
        - ProblemSizes:
          - Range: [[64, 64, 128], [128], [1], [64]]
          - Exact: [128, 128, 1, 128]
          - Exact: [77, 33, 1, 511]
LibraryLogic:
  ScheduleName: "aldebaran"
  DeviceNames: ["Device 7400"]
  ArchitectureName: "gfx90a"
"""


@pytest.fixture(params=["tensilelite", "classic"])
def host(request):
    """A stand-in host of each generation."""
    return str(HERE / "host" / request.param)


@pytest.fixture
def config(tmp_path):
    """A small config with DeviceList [0, 1]."""
    return writeConfig(tmp_path)


def writeConfig(folder, change=lambda config: None):
    """The small config, changed as asked."""
    content = yaml.safe_load(CONFIG)
    change(content)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def setParameters(**parameters):
    """A change of global parameters; None removes."""

    def change(config):
        config["GlobalParameters"].update(parameters)
        for name, value in parameters.items():
            if value is None:
                del config["GlobalParameters"][name]

    return change


def runIt(*arguments, environment=None, cwd=None):
    """Run the command; stdout and stderr apart."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env=dict(os.environ, **(environment or {})),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=180,
    )


def runSerially(host, config, out):
    """The host's own command with the emulated client."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    subprocess.run(
        [sys.executable, host + "/Tensile/bin/Tensile", str(config), str(out)]
        + ["--prebuilt-client", str(EMULATED_CLIENT)],
        env=dict(os.environ, PATH=path),
        check=True,
        stdout=subprocess.DEVNULL,
    )


def sameFiles(first, second, folder):
    """Whether a folder below both holds the same files with the same content."""
    comparison = filecmp.dircmp(str(first / folder), str(second / folder))
    names = comparison.common_files
    assert names and not comparison.left_only and not comparison.right_only
    return not filecmp.cmpfiles(str(first / folder), str(second / folder), names, False)[1]


def summaryOf(out):
    """execution_summary.json."""
    return json.loads((out / "execution_summary.json").read_text())


def testTheMergedTreeIsTheSerialOne(host, config, tmp_path):
    """Benchmark data and logic equal the serial run's, and the output is laid out as documented."""
    out, serial = tmp_path / "out", tmp_path / "serial"
    result = runIt(config, out, "--emulate", 2, "--tensile-root", host)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "EMULATED" in result.stdout and str(out / "merged_output") in result.stdout
    runSerially(host, writeConfig(tmp_path, setParameters(DeviceList=None)), serial)
    for folder in ("2_BenchmarkData", "3_LibraryLogic"):
        assert sameFiles(out / "merged_output", serial, folder)
    names = set(os.listdir(out))
    assert names >= {"outputs", "merged_output", "execution_summary.json", "timeline.json"}
    assert "tensile_parallel.log" in names
    worked = [part["ordinal"] for part in summaryOf(out)["devices"] if part["pairs"]]
    assert worked and names >= {"config_gpu_%d.yaml" % ordinal for ordinal in worked}
    summary = summaryOf(out)
    assert (summary["state"], summary["exitStatus"], summary["emulated"]) == ("finished", 0, True)
    assert [device["ordinal"] for device in summary["devices"]] == [0, 1]
    assert summary["counts"]["measured"] == 16
    log = (out / "tensile_parallel.log").read_text()
    assert "unrecognised" not in log and "unrecognized" not in log
    runInfo = json.loads((out / "outputs" / "run.json").read_text())
    assert runInfo["client"] is None and runInfo["emulate"] == 2
    assert stat.S_IMODE(os.stat(out / "outputs" / "client").st_mode) & 0o111


def testEachDevicesConfigRunsInStockTensile(host, config, tmp_path):
    """Together the configs hold every size that was measured, where it was measured."""
    out = tmp_path / "out"
    assert runIt(config, out, "--emulate", 2, "--tensile-root", host).returncode == 0
    step = json.loads(next(out.glob("outputs/*/*/step.json")).read_text())
    ini = next(out.glob("merged_output/1_BenchmarkProblems/*/00_Final/source/*.ini")).read_text()
    sizes = [line[13:] for line in ini.splitlines() if line.startswith("problem-size=")]
    for part in step["devices"]:
        path = out / ("config_gpu_%d.yaml" % part["ordinal"])
        measured = [
            sizes[index]
            for first, count in part["problems"]
            for index in range(first, first + count)
        ]
        if not measured:
            assert not path.exists()
            continue
        content = yaml.safe_load(path.read_text())
        assert content["GlobalParameters"]["Device"] == part["ordinal"]
        assert "DeviceList" not in content["GlobalParameters"]
        alone = tmp_path / ("alone%d" % part["ordinal"])
        environment = {"TENSILE_EMULATED_DEVICES": "2"}
        result = runIt(
            path,
            alone,
            "--tensile-root",
            host,
            "--client",
            EMULATED_CLIENT,
            environment=environment,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        text = next(alone.glob("1_BenchmarkProblems/*/00_Final/source/*.ini")).read_text()
        lines = [line[13:] for line in text.splitlines() if line.startswith("problem-size=")]
        assert lines == [sizes[i] for i in range(len(sizes)) if sizes[i] in measured]


@pytest.fixture
def recordingHost(host, tmp_path):
    """A tree whose bin/Tensile and Tensile.main write what they were given."""
    tree = tmp_path / "tree"
    shutil.copytree(HERE / "host", tree, ignore=shutil.ignore_patterns("__pycache__"))
    tree = tree / Path(host).name
    record = """
        import json, os, sys
        def main():
            with open(os.environ["RECORD"], "w") as stream:
                devices = os.environ.get("TENSILE_EMULATED_DEVICES")
                json.dump([sys.argv, os.getpid(), devices], stream)
            sys.exit(int(os.environ.get("RECORD_EXIT", "0")))
        """
    (tree / "Tensile" / "Tensile.py").write_text(textwrap.dedent(record))
    return str(tree)


@pytest.mark.parametrize("value", [None, [], "absent"])
def testWithoutADeviceListItIsTensile(recordingHost, tmp_path, value):
    """The host's own command replaces this process, with the user's own arguments."""
    change = setParameters(DeviceList=None if value == "absent" else value)
    config = writeConfig(tmp_path, change)
    if value is None:
        config.write_text(
            config.read_text().replace("GlobalParameters:", "GlobalParameters:\n  DeviceList:")
        )
    record = tmp_path / "record"
    own = [str(config), "out", "-v", "--library-format", "msgpack"]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "--tensile-root", recordingHost, *own],
        env=dict(os.environ, RECORD=str(record), RECORD_EXIT="7"),
        cwd=str(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
    )
    _, errors = process.communicate()
    argv, pid, _ = json.loads(record.read_text())
    assert argv[1:] == own and process.returncode == 7
    assert pid == process.pid, "the host runs in a process of ours instead of in its place"
    assert len(errors.splitlines()) == 1 and "serial" in errors and "device 0" in errors
    assert not (tmp_path / "out").exists()


def testASerialEmulatedRunHasTheEmulatedClient(recordingHost, tmp_path):
    """There is nothing else to run; a client that was given stays."""
    config = writeConfig(tmp_path, setParameters(DeviceList=None))
    record = tmp_path / "record"
    base = [config, tmp_path / "out", "--tensile-root", recordingHost, "--emulate", "3"]
    for extra, expected in (
        ([], ["--prebuilt-client", str(EMULATED_CLIENT), str(config), str(tmp_path / "out")]),
        (["--client", "/c"], ["--prebuilt-client", "/c", str(config), str(tmp_path / "out")]),
        (
            ["--prebuilt-client", "/c"],
            [str(config), str(tmp_path / "out"), "--prebuilt-client", "/c"],
        ),
    ):
        runIt(*base, *extra, environment={"RECORD": str(record)})
        argv, _, devices = json.loads(record.read_text())
        assert argv[1:] == expected and devices == "3"


def testASerialEmulatedRunFinishes(host, tmp_path):
    """Whatever `python3` is first on the PATH: the client needs the Python that has msgpack."""
    config = writeConfig(tmp_path, setParameters(DeviceList=None))
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").write_text("#!/bin/sh\nexit 99\n")
    (bare / "python3").chmod(0o755)
    path = os.pathsep.join([str(bare), os.environ["PATH"]])
    out = tmp_path / "out"
    result = runIt(config, out, "--emulate", 1, "--tensile-root", host, environment={"PATH": path})
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr
    assert list((out / "3_LibraryLogic").glob("*.yaml"))


@pytest.mark.parametrize(
    "change, why",
    [
        ({"HIP_VISIBLE_DEVICES": "-1"}, "HIP_VISIBLE_DEVICES"),
        ({"ROCR_VISIBLE_DEVICES": ""}, "ROCR_VISIBLE_DEVICES"),
    ],
)
def testWithoutAUsableDeviceItIsTensile(recordingHost, config, tmp_path, change, why):
    """All devices hidden: serial, naming the variable that hides them."""
    record = tmp_path / "record"
    result = runIt(
        config,
        tmp_path / "out",
        "--tensile-root",
        recordingHost,
        "--emulate",
        2,
        environment=dict(change, RECORD=str(record)),
    )
    assert record.exists() and why in result.stderr and "serial" in result.stderr


@pytest.mark.parametrize(
    "value", ["0", "3", "all", 3, True, 1.5, [True], [1.5], [-2], [[0]], ["0"], {"a": 0}]
)
def testAMalformedDeviceListStopsBeforeAnythingStarts(recordingHost, tmp_path, value):
    """Exit 2 and one line that names DeviceList."""
    config = writeConfig(tmp_path, setParameters(DeviceList=value))
    record = tmp_path / "record"
    result = runIt(
        config,
        tmp_path / "out",
        "--tensile-root",
        recordingHost,
        "--emulate",
        2,
        environment={"RECORD": str(record)},
    )
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1 and "DeviceList" in result.stderr
    assert not record.exists() and not (tmp_path / "out").exists()


def testWhichDeviceListCounts(recordingHost, config, tmp_path):
    """--devices beats --global-parameters, which beats the config."""
    record = tmp_path / "record"
    base = [config, tmp_path / "out", "--tensile-root", recordingHost, "--emulate", 4]
    given = ["--global-parameters", "DeviceList=[2]"]
    for extra, expected in (([], [0, 1]), (given, [2]), ([*given, "--devices", "3,0"], [3, 0])):
        result = runIt(*base, *extra, environment={"RECORD": str(record)})
        assert result.returncode == 0, result.stderr
        run = json.loads((tmp_path / "out" / "outputs" / "run.json").read_text())
        assert [device["ordinal"] for device in run["devices"]] == expected
    result = runIt(*base, "--global-parameters", "DeviceList=0", environment={"RECORD": "/x"})
    assert result.returncode == 2 and "DeviceList" in result.stderr


def testAMissingDeviceIsAWarningOrAnError(recordingHost, config, tmp_path):
    """[0, 9] with 9 missing runs on 0; --strict: exit 2."""
    base = [config, tmp_path / "out", "--tensile-root", recordingHost, "--emulate", 2]
    environment = {"RECORD": str(tmp_path / "record")}
    result = runIt(*base, "--devices", "0,9", environment=environment)
    assert result.returncode == 0 and "9" in result.stderr
    assert summaryOf(tmp_path / "out")["missingDevices"] == [9]
    assert runIt(*base, "--devices", "0,9", "--strict", environment=environment).returncode == 2


def testTheHostGetsTheUsersOptions(recordingHost, config, tmp_path):
    """In their order, with our launcher and output folder, PinClocks off, and a closed stdin."""
    record = tmp_path / "record"
    config = writeConfig(tmp_path, setParameters(PinClocks=True, Device=1))
    result = runIt(
        config,
        tmp_path / "out",
        "--emulate",
        2,
        "--tensile-root",
        recordingHost,
        "--use-cache",
        "--global-parameters",
        "CpuThreads=2",
        environment={"RECORD": str(record)},
    )
    assert result.returncode == 0, result.stderr
    argv, _, devices = json.loads(record.read_text())
    out = tmp_path / "out"
    assert argv[1:] == [
        str(config),
        str(out / "merged_output"),
        "--prebuilt-client",
        str(out / "outputs" / "client"),
        "--use-cache",
        "--global-parameters",
        "CpuThreads=2",
        "PinClocks=False",
    ]
    assert devices == "2"
    assert "PinClocks" in result.stderr and "Device is overruled" in result.stderr


@pytest.mark.parametrize(
    "line, inConfig, device",
    [
        ("", None, "0"),
        ("", 2, "2"),
        ("-d2", None, "2"),
        ("-d=2", None, "2"),
        ("--devic 2", None, "2"),
        ("--device=2", 1, "2"),
        ("-d 0", 2, "2"),
        ("-d 1 --global-parameters Device=2", None, "2"),
        ("-d 2 --global-parameters Device=0", 1, "0"),
    ],
)
def testTheSerialDeviceIsTheHosts(line, inConfig, device):
    """Global parameters on the command line, --device but for 0, the config: as in the hosts."""
    settings = parseRunArguments(["c.yaml", "out", *line.split()])
    config = {} if inConfig is None else {"GlobalParameters": {"Device": inConfig}}
    assert SerialRun._serialDevice(settings, config) == device


@pytest.mark.parametrize("name", ["a b", "a\tb", "a\nb", "a$HOME", "a'b", "a&b"])
def testAPathThatTheHostsShellTakesApartIsRefused(recordingHost, config, tmp_path, name):
    """Before the host starts: exit 2, with the reason."""
    record = tmp_path / "record"
    result = runIt(
        config,
        tmp_path / name,
        "--tensile-root",
        recordingHost,
        "--emulate",
        2,
        environment={"RECORD": str(record)},
    )
    assert result.returncode == 2 and "does not quote" in result.stderr
    assert not record.exists()
    result = runIt(
        config,
        tmp_path / "out",
        "--tensile-root",
        recordingHost,
        "--emulate",
        2,
        "--client",
        tmp_path / "my client",
    )
    assert result.returncode == 2 and "does not quote" in result.stderr


def testTheLauncherIsSafeForAnyPathOfOurs(tmp_path):
    """Spaces, quotes, newlines and $ in the paths of Python and of the client are kept."""
    from Tensile.Parallel import RunFiles

    folder = tmp_path / "a 'b' \"c\" $HOME `id`\nd"
    folder.mkdir()
    script = folder / "client"
    script.write_text("import sys\nprint(repr(sys.argv))\n")
    places = RunFiles.placesOf(str(folder / "out"))
    os.makedirs(places.outputs)
    original = RunFiles.parallelClient
    RunFiles.parallelClient = lambda: [str(script)]
    try:
        RunFiles.writeLauncher(places)
    finally:
        RunFiles.parallelClient = original
    assert stat.S_IMODE(os.stat(places.launcher).st_mode) == 0o777 & ~currentUmask()
    output = subprocess.check_output([places.launcher, "--x", "a  b", "*"], text=True)
    assert output.strip() == repr([str(script), "--settings", places.settings, "--x", "a  b", "*"])


def currentUmask():
    """The mask of new files' modes."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("out", ["afile", "afile/below", "/proc/nothing"])
def testAnOutputFolderThatCannotBeIsRefused(recordingHost, config, tmp_path, out):
    """Before the host starts: exit 2 and one line, no traceback."""
    (tmp_path / "afile").write_text("somebody's")
    result = runIt(config, out, "--emulate", 2, "--tensile-root", recordingHost, cwd=str(tmp_path))
    assert result.returncode == 2, result.stdout + result.stderr
    assert "cannot be written" in result.stderr and "Traceback" not in result.stderr
    assert (tmp_path / "afile").read_text() == "somebody's"


def testASecondRunInTheSameFolderIsRefused(recordingHost, config, tmp_path):
    """While one is running: exit 2 and a clear message; afterwards it goes on."""
    out = tmp_path / "out"
    (out / "outputs").mkdir(parents=True)
    command = [config, out, "--tensile-root", recordingHost, "--emulate", 2]
    environment = {"RECORD": str(tmp_path / "record")}
    with open(out / "outputs" / ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = runIt(*command, environment=environment)
        assert result.returncode == 2 and "another TensileParallel" in result.stderr
    assert runIt(*command, environment=environment).returncode == 0


def testAConfigThatTheHostRejectsShowsItsOwnError(host, tmp_path):
    """Not valid YAML: the host says so, without a traceback of ours."""
    broken = tmp_path / "broken.yaml"
    broken.write_text("GlobalParameters: {DeviceList: [0, 1]\nBenchmarkProblems")
    result = runIt(broken, tmp_path / "out", "--emulate", 2, "--tensile-root", host)
    assert result.returncode != 0
    assert "Tensile/Parallel" not in result.stderr
    assert "serial" in result.stderr


@pytest.mark.parametrize("config, out", [("missing.yaml", "out"), (".", "out"), ("c.yaml", "")])
def testWhatIsNotThereIsRefused(host, tmp_path, config, out):
    """A config that is no file, an output folder without a name: exit 2, and nothing starts."""
    (tmp_path / "c.yaml").write_text(CONFIG)
    result = runIt(config, out, "--emulate", 2, "--tensile-root", host, cwd=str(tmp_path))
    assert result.returncode == 2, result.stdout + result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert os.listdir(tmp_path) == ["c.yaml"]


def testTheHostsFailureIsOurs(recordingHost, config, tmp_path):
    """A status of the host other than 0 ends with 1, a line that says where to look, a summary."""
    out = tmp_path / "out"
    environment = {"RECORD": str(tmp_path / "record"), "RECORD_EXIT": "3"}
    result = runIt(
        config, out, "--tensile-root", recordingHost, "--emulate", 2, environment=environment
    )
    assert result.returncode == 1
    assert "ended with status 3" in result.stderr and "tensile_parallel.log" in result.stderr
    assert (summaryOf(out)["state"], summaryOf(out)["hostStatus"]) == ("failed", 3)


def testTheSameTypeInTwoEntriesIsWarnedAbout(host, tmp_path):
    """The warning names both entries; both are measured; the merged tree is the serial one."""

    def twice(config):
        entry = yaml.safe_load(yaml.safe_dump(config["BenchmarkProblems"][0]))
        entry[0]["TransposeA"] = False
        entry[0]["DestDataType"] = "S"
        sizes = [{"Exact": [n, 64, 1, 64]} for n in (64, 96, 160)]
        entry[1]["BenchmarkFinalParameters"][0]["ProblemSizes"] = sizes
        config["BenchmarkProblems"].append(entry)

    config = writeConfig(tmp_path, twice)
    out, serial = tmp_path / "out", tmp_path / "serial"
    result = runIt(config, out, "--emulate", 2, "--tensile-root", host)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "entries 1 and 2" in result.stderr
    runSerially(host, config, serial)
    for folder in ("2_BenchmarkData", "3_LibraryLogic"):
        assert sameFiles(out / "merged_output", serial, folder)
    assert summaryOf(out)["counts"]["measured"] == 28


def testAlternateFormat(host, tmp_path):
    """DeviceList comes from the first file, sizes from the second."""
    content = yaml.safe_load(CONFIG)
    problemType, group = content.pop("BenchmarkProblems")[0]
    sizes = group.pop("BenchmarkFinalParameters")[0]["ProblemSizes"]
    content.update(group, ProblemType=problemType)
    (tmp_path / "alternate.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "sizes.yaml").write_text(yaml.safe_dump(sizes))
    out = tmp_path / "out"
    result = runIt(
        "alternate.yaml",
        "sizes.yaml",
        "out",
        "--alternate-format",
        "--emulate",
        2,
        "--tensile-root",
        host,
        cwd=str(tmp_path),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert list((out / "merged_output" / "3_LibraryLogic").glob("*.yaml"))
    assert summaryOf(out)["counts"]["measured"] == 16
    configs = list(out.glob("config_gpu_*.yaml"))  # of the devices that were quick enough
    assert configs and all(yaml.safe_load(c.read_text())["BenchmarkProblems"] for c in configs)


def testTheHostsOwnClientIsBuiltOnceAndRunByTheUnits(host, config, tmp_path):
    """Without --client the host builds its client; the units run it, not the launcher."""
    from FakeHip import FakeHipUnavailable, buildFakeHip, fakeHipEnvironment

    try:
        library = buildFakeHip(str(tmp_path / "hip"))
    except FakeHipUnavailable as error:
        pytest.skip(str(error))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "cmake").write_text("#!/bin/sh\necho cmake >> %s/calls\n" % tools)
    client = '#!/bin/sh\necho \\$* >> %s/units\nexec %s %s "\\$@"\n' % (
        tools,
        sys.executable,
        EMULATED_CLIENT,
    )
    (tools / "make").write_text(
        "#!/bin/sh\necho make >> %s/calls\nmkdir -p client\n"
        "cat > client/tensile_client <<END\n%sEND\n"
        "chmod 755 client/tensile_client\n" % (tools, client)
    )
    for name in ("cmake", "make"):
        (tools / name).chmod(0o755)
    devices = ["gfx90a:0000:03:00.0", "gfx90a:0000:83:00.0"]
    environment = fakeHipEnvironment(os.environ, library, devices)
    environment.update(
        PATH=os.pathsep.join([str(tools), os.environ["PATH"]]),
        TENSILE_EMULATED_DEVICES="2",
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    os.chmod(tmp_path, 0o700)
    out = tmp_path / "out"
    result = runIt(config, out, "--tensile-root", host, environment=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tools / "calls").read_text().split() == ["cmake", "make"]
    built = str(out / "merged_output" / "0_Build" / "client" / "tensile_client")
    assert json.loads((out / "outputs" / "run.json").read_text())["client"] == built
    assert summaryOf(out)["client"] == built
    assert (tools / "units").read_text().count("--config-file") >= 2
    assert list((out / "merged_output" / "3_LibraryLogic").glob("*.yaml"))


def emulatorWith(tmp_path, **settings):
    """Environment with settings of the emulated client."""
    path = tmp_path / "emulator.json"
    path.write_text(json.dumps(settings))
    return {"TENSILE_EMULATOR": str(path)}


@pytest.mark.parametrize("kind", ["crash", "torn-row"])
def testAClientThatCrashesOnAPairStillEndsInLogic(host, config, tmp_path, kind):
    """The host sees 0, the logic is written; we end with 1 and a count, or 0 where allowed."""
    fault = {"kind": kind, "size": "77,33,1,511", "solution": 2}
    environment = emulatorWith(tmp_path, faults=[fault])
    out = tmp_path / "out"
    base = [config, out, "--emulate", 2, "--tensile-root", host]
    result = runIt(*base, environment=environment)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "1 pairs could not be measured" in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 2
    assert list((out / "merged_output" / "3_LibraryLogic").glob("*.yaml"))
    summary = summaryOf(out)
    assert summary["state"] == "finished" and summary["exitStatus"] == 1
    assert summary["counts"]["crashed"] == 1 and summary["counts"]["measured"] == 15
    assert [failure["kind"] for failure in summary["failures"]] == ["crashed"]
    result = runIt(*base, "--allow-failures", environment=environment)
    assert result.returncode == 0, result.stdout + result.stderr


def testAFinishedRunIsNotDoneAgain(host, config, tmp_path):
    """The same command measures nothing, says so first and ends as before; --fresh measures."""
    fault = {"kind": "crash", "size": "77,33,1,511", "solution": 2}
    record = tmp_path / "record.jsonl"
    environment = emulatorWith(tmp_path, faults=[fault], record=str(record))
    out = tmp_path / "out"
    base = [config, out, "--emulate", 2, "--tensile-root", host]
    assert runIt(*base, environment=environment).returncode == 1
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    timed = record.read_bytes()
    again = runIt(*base, environment=environment)
    assert again.returncode == 1, again.stdout + again.stderr
    first = again.stdout.splitlines()[0]
    assert "exit status 1" in first and "nothing is measured again" in first
    assert runIt(*base, "--allow-failures", environment=environment).returncode == 0
    assert record.read_bytes() == timed
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    changed = [path.name for path in after if after[path] != before.get(path)]
    assert set(changed) <= {"tensile_parallel.log"}
    # The logic is wanted again: it is made from what is there.
    shutil.rmtree(out / "merged_output" / "3_LibraryLogic")
    result = runIt(*base, environment=environment)
    assert result.returncode == 1, result.stdout + result.stderr
    assert list((out / "merged_output" / "3_LibraryLogic").glob("*.yaml"))
    assert summaryOf(out)["counts"]["crashed"] == 1
    assert record.read_bytes() == timed
    fresh = runIt(*base, "--fresh", environment=emulatorWith(tmp_path, record=str(record)))
    assert fresh.returncode == 0, fresh.stdout + fresh.stderr
    assert len(record.read_bytes()) > len(timed)


def testAChangedConfigIsMeasured(host, config, tmp_path):
    """Another size in the config: nothing stale is taken, and what changed is said."""
    out = tmp_path / "out"
    base = [config, out, "--emulate", 2, "--tensile-root", host]
    assert runIt(*base).returncode == 0

    def more(content):
        sizes = content["BenchmarkProblems"][0][1]["BenchmarkFinalParameters"][0]["ProblemSizes"]
        sizes.append({"Exact": [96, 32, 1, 256]})

    writeConfig(tmp_path, more)
    result = runIt(*base)
    assert result.returncode == 0 and "the config changed" in result.stderr
    rows = next((out / "merged_output" / "2_BenchmarkData").glob("*.csv")).read_text()
    assert "96, 32, 1, 256" in rows


def pairsIn(record):
    """(size, solution's name) of every pair that any client has timed, in order."""
    lines = record.read_text().splitlines() if record.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [(event["size"], event["name"]) for event in events if event["event"] == "pair"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def testAKilledRunContinuesWhereItWas(host, tmp_path, number):
    """Two groups; killed in the second: the first is not measured again, no pair of the journal
    is timed twice, nothing is left running, and the results are the serial ones."""

    def twoGroups(content):
        content["BenchmarkProblems"][0].append(content["BenchmarkProblems"][0][1])

    config = writeConfig(tmp_path, twoGroups)
    record = tmp_path / "record.jsonl"
    environment = emulatorWith(tmp_path, pairSeconds=0.15, record=str(record))
    environment["TENSILE_TEST_MARK"] = str(tmp_path)
    out = tmp_path / "out"
    arguments = [config, out, "--emulate", 2, "--tensile-root", host, "--keep-sizes-whole"]
    arguments += ["--no-warm-up"]  # its pairs would be counted as well
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(pairsIn(record)) < 16 + 6 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    process.wait(60)
    gone = time.monotonic() + 5
    while marked(str(tmp_path)) and time.monotonic() < gone:
        time.sleep(0.05)
    assert marked(str(tmp_path)) == []
    held = {path: len(readPieces(path)) for path in out.glob("outputs/*/*/journal.msgpack")}
    assert 16 in held.values()
    quick = emulatorWith(tmp_path, record=str(record))
    result = runIt(*arguments, environment=quick)
    assert result.returncode == 0, result.stdout + result.stderr
    # What both devices were at is timed again, and nothing else.
    assert 32 <= len(pairsIn(record)) <= 32 + 2
    serial = tmp_path / "serial"
    stock = tmp_path / "stock"
    stock.mkdir()
    content = yaml.safe_load(config.read_text())
    del content["GlobalParameters"]["DeviceList"]
    (stock / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    runSerially(host, stock / "config.yaml", serial)
    for folder in ("2_BenchmarkData", "3_LibraryLogic"):
        assert sameFiles(out / "merged_output", serial, folder)
    counts = summaryOf(out)["counts"]
    assert counts["measured"] + counts["resumedPairs"] == 32


def marked(mark):
    """Processes that were born with a mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if b"TENSILE_TEST_MARK=" + mark.encode() + b"\0" in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def readPieces(path):
    """(problem, solution) of every pair that a journal holds."""
    return [
        (problem, solution)
        for record in readJournal(path)
        for piece in record.get("pieces", ())
        for problem in range(piece["firstProblem"], piece["firstProblem"] + piece["problemCount"])
        for solution in range(
            piece["firstSolution"], piece["firstSolution"] + piece["solutionCount"]
        )
    ]


def testValidationFailuresEndAsInSerialTensile(host, config, tmp_path):
    """The host gets their number as the exit status, and stops before the logic, as it would."""
    fault = {"kind": "invalid", "size": "77,33,1,511", "solution": 1}
    environment = emulatorWith(tmp_path, faults=[fault])
    out = tmp_path / "out"
    result = runIt(config, out, "--emulate", 2, "--tensile-root", host, environment=environment)
    assert result.returncode == 1 and "ended with status 1" in result.stderr
    assert summaryOf(out)["counts"]["validationFailures"] == 1
    assert not (out / "merged_output" / "3_LibraryLogic").exists()
    # The same command: nothing is timed again, and Tensile hears of it again.
    record = tmp_path / "record.jsonl"
    environment = emulatorWith(tmp_path, record=str(record))
    result = runIt(config, out, "--emulate", 2, "--tensile-root", host, environment=environment)
    assert result.returncode == 1 and "ended with status 1" in result.stderr
    assert pairsIn(record) == []
    assert not (out / "merged_output" / "3_LibraryLogic").exists()


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def testAStoppedRunHasASummaryAndContinues(config, tmp_path, number, status):
    """Ctrl-C: 130, everything below is gone, a partial summary; the same command then finishes."""
    slow = tmp_path / "slow"
    slow.write_text(
        '#!/bin/sh\ntouch %s/started\n[ -e %s/fast ] || sleep 1000\nexec %s %s "$@"\n'
        % (tmp_path, tmp_path, sys.executable, EMULATED_CLIENT)
    )
    slow.chmod(0o755)
    host = str(HERE / "host" / "tensilelite")
    out = tmp_path / "out"
    arguments = [str(config), str(out), "--emulate", "2", "--tensile-root", host]
    arguments += ["--client", str(slow)]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == status, errors
    assert "continues" in errors
    assert summaryOf(out)["state"] == "stopped"
    assert not running(str(slow)), "a client outlived its run"
    (tmp_path / "fast").touch()
    result = runIt(*arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    assert summaryOf(out)["state"] == "finished"


def running(word):
    """Processes whose command line holds a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if word in command and str(os.getpid()) != path.parent.name:
            found.append(command)
    return found


def testVersionNamesUsAndTheHost(host):
    """Ours, and the host's version, generation and path."""
    result = runIt("--version", "--tensile-root", host)
    assert result.returncode == 0
    assert "TensileParallel 0." in result.stdout and host in result.stdout
    assert ("classic Tensile" in result.stdout) == host.endswith("classic")


def testTheStandInIsUsedAndSaysSo(config, tmp_path):
    """Without a Tensile an emulated run takes the stand-in; a real one ends with exit 2."""
    if (ROOT / "Tensile" / "__init__.py").exists():
        pytest.skip("these tests lie in a host's tree, which is always found")
    result = runIt(config, tmp_path / "out", "--emulate", 1)
    assert result.returncode == 0 and "stand-in" in result.stderr + result.stdout
    assert summaryOf(tmp_path / "out")["host"]["standIn"] is True
    result = runIt(config, tmp_path / "out2")
    assert result.returncode == 2 and "--tensile-root" in result.stderr


@pytest.mark.parametrize("module", ["Tensile.Parallel"])
def testTheModuleIsTheCommand(module, tmp_path):
    """python -m Tensile.Parallel, for trees that were installed without the scripts."""
    result = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0 and "TensileParallel CONFIG" in result.stdout


def testAnInterruptedFreshRunMixesNothingIn(host, config, tmp_path):
    """What --fresh had not come to before it was stopped is measured anew by the next run too."""
    out = tmp_path / "out"
    base = [config, out, "--emulate", 2, "--tensile-root", host]
    assert runIt(*base).returncode == 0
    record = tmp_path / "record.jsonl"
    settings = {"deviceFactors": {"0": 2.0, "1": 2.0}, "record": str(record)}
    environment = emulatorWith(tmp_path, pairSeconds=5, **settings)
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, base), "--fresh"],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not record.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    result = runIt(*base, environment=emulatorWith(tmp_path, **settings))
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(set(pairsIn(record))) == 16


@pytest.mark.parametrize("redo", [True, False])
def testChangedTensileIsMeasuredAnew(host, config, tmp_path, redo):
    """Other kernels under the same names: whoever edits Tensile gets new measurements, also where
    the config tells Tensile not to redo benchmarks."""
    tree = tmp_path / "hosts" / os.path.basename(host)
    shutil.copytree(HERE / "host", tmp_path / "hosts")
    writeConfig(tmp_path, setParameters(ForceRedoBenchmarkProblems=redo))
    out = tmp_path / "out"
    base = [config, out, "--emulate", 2, "--tensile-root", tree, "--no-warm-up"]
    assert runIt(*base).returncode == 0
    (tree / "Tensile" / "Edited.py").write_text("# another kernel\n")
    record = tmp_path / "record.jsonl"
    result = runIt(*base, environment=emulatorWith(tmp_path, record=str(record)))
    assert result.returncode == 0 and "Tensile itself changed" in result.stderr
    assert len(pairsIn(record)) == 16


def testNoRoomIsOneLine(config, tmp_path):
    """A full disk: one line, exit 1, no traceback; with room the same command ends well."""
    out = tmp_path / "out"
    base = [str(config), str(out), "--emulate", "2"]
    base += ["--tensile-root", str(HERE / "host" / "tensilelite")]

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))

    full = subprocess.run(
        [sys.executable, str(SCRIPT), *base],
        preexec_fn=limit,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert full.returncode == 1
    assert "Traceback" not in full.stderr and "make room" in full.stderr
    assert runIt(*base).returncode == 0
