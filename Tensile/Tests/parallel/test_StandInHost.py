# SPDX-License-Identifier: MIT
"""The stand-in host drives a benchmark as real Tensile trees do."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
import yaml

pytestmark = pytest.mark.unit

here = Path(__file__).resolve().parent
hostFolder = here / "host"
generations = ("tensilelite", "classic")

# Writes what a tensile_client writes: one row a size, one column a solution of the library, with
# the Winner columns in their place. Settings come from the environment.
fakeClient = """\
import json, os, re, sys
import msgpack

ini = sys.argv[sys.argv.index("--config-file") + 1]
with open(os.environ["CLIENT_LOG"], "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
pairs = [line.rstrip("\\n").split("=", 1) for line in open(ini)]
values = dict(pairs)
library = values["library-file"]
if library.endswith(".yaml"):
    lines = open(library).read().split("solutions:", 1)[1]
    names = re.findall(r"^  name: (.*)$", lines, re.M)
else:
    content = msgpack.unpackb(open(library, "rb").read(), strict_map_key=False)
    names = [solution["name"] for solution in content["solutions"]]
sizes = [value.split(",") for key, value in pairs if key == "problem-size"]
leading = [[v.split(",")[1] for k, v in pairs if k == t + "-strides"] for t in "dcab"]
isClassic = "offset-a" in values
hasWinner = values["csv-export-extra-cols"] in ("1", "True")
header = ["GFlops"] + ["Size" + "IJKLMN"[i] for i in range(len(sizes[0]))]
header += ["LDD", "LDC", "LDA", "LDB"]
winner = ["WinnerGFlops", "WinnerTimeUS", "WinnerIdx", "WinnerName"] if hasWinner else []
if isClassic:
    header += ["WinnerFreq"] + winner + ["TotalFlops", "WinnerPower", "WinnerTemperature"]
else:
    header += ["TotalFlops"] + (["TilesPerCu", "TotalGranularity"] + winner if hasWinner else [])
rows = [header + names]
for number, size in enumerate(sizes):
    cells = [100 + (number * 7 + solution * 13) % 29 for solution in range(len(names))]
    best = cells.index(max(cells))
    # The Winner columns name the solution after the best one, so that a reader can be told by.
    named = (best + 1) % len(names)
    won = [cells[named], 1.5, named, names[named]] if hasWinner else []
    row = [number] + size + [column[number] for column in leading]
    row += [1700] + won + [1, 300, 50] if isClassic else [1] + ([1, 1] + won if hasWinner else [])
    rows.append(row + cells)
mode = os.environ.get("CLIENT_MODE", "")
if mode != "no-csv":
    with open(values["results-file"], "w") as stream:
        for row in rows:
            stream.write(", ".join(map(str, row)) + "\\n")
sys.exit(3 if mode in ("fails", "no-csv") else 0)
"""

halfType = {
    "OperationType": "GEMM",
    "DataType": "h",
    "DestDataType": "h",
    "ComputeDataType": "s",
    "HighPrecisionAccumulate": True,
    "TransposeA": 1,
    "TransposeB": 0,
    "UseBeta": True,
    "Batched": True,
}
singleType = {
    "OperationType": "GEMM",
    "DataType": "s",
    "TransposeA": False,
    "TransposeB": True,
    "UseBeta": True,
    "Batched": True,
}


def makeGroup(sizes, forks=None, more=()):
    """A size group of a config: what is forked, the sizes, further final parameters."""
    forks = {"DepthU": [8, 16], "PrefetchGlobalRead": [0, 1]} if forks is None else forks
    return {
        "ForkParameters": [{key: values} for key, values in forks.items()],
        "BenchmarkFinalParameters": [{"ProblemSizes": sizes}, *more],
    }


def makeConfig(problems, parameters=None, **sections):
    """A config with a LibraryLogic section."""
    logic = {"ScheduleName": "s", "DeviceNames": ["d"], "ArchitectureName": "gfx90a"}
    return {
        "GlobalParameters": {"MinimumRequiredVersion": "4.4.0", **(parameters or {})},
        "BenchmarkProblems": problems,
        "LibraryLogic": logic,
        **sections,
    }


class Runner:
    """Runs a stand-in tree's own command in a folder of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.out = folder / "out"
        self.log = folder / "client.log"
        self.client = folder / "tensile_client"
        self.client.write_text("#!%s\n%s" % (sys.executable, fakeClient))
        self.client.chmod(0o755)
        self.environment = dict(os.environ, CLIENT_LOG=str(self.log))
        for name in ("ROCM_PATH", "TENSILE_ROCM_PATH"):
            self.environment[name] = str(folder / "no-rocm")

    def __call__(self, generation, config, *options, tree=hostFolder, client=True):
        """Completed process; the config is a mapping, written to a file first."""
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        script = tree / generation / "Tensile" / "bin" / "Tensile"
        arguments = [sys.executable, str(script), str(path), str(self.out), *options]
        if client:
            arguments += ["--prebuilt-client", str(self.client)]
        # The tree must win over an installed package of the same name, as for real hosts.
        environment = dict(self.environment, PYTHONPATH=str(tree / generation))
        return subprocess.run(
            arguments,
            env=environment,
            cwd=str(self.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )

    def calls(self):
        """The client's argument lists, in order."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def ini(self, step):
        """(key, value) pairs of a step's ClientParameters.ini, in order."""
        path = self.out / "1_BenchmarkProblems" / step / "00_Final/source/ClientParameters.ini"
        return [tuple(line.split("=", 1)) for line in path.read_text().splitlines()]

    def files(self):
        """Paths of all files in the output folder, relative to it, sorted."""
        return sorted(
            str(path.relative_to(self.out)) for path in self.out.rglob("*") if path.is_file()
        )


@pytest.fixture
def run(tmp_path):
    """Runs the host with a client that needs no GPU."""
    return Runner(tmp_path)


def ask(generation, expression, values):
    """Evaluate an expression of `value` inside a tree, for each value; results by way of JSON."""
    code = (
        "import json, sys\n"
        "from Tensile.SolutionStructs import *\n"
        "values = json.load(sys.stdin)\n"
        "print(json.dumps([%s for value in values]))\n" % expression
    )
    environment = dict(os.environ, PYTHONPATH=str(hostFolder / generation))
    answer = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(values),
        # `-c` looks in the current folder first, which may be a real tree.
        cwd=hostFolder / generation,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def recordedIni(*parts):
    """(key, value) pairs of a recorded INI, without code objects and paths."""
    path = here.joinpath("data", *parts, "full", "ClientParameters.ini")
    return withoutPaths([tuple(line.split("=", 1)) for line in path.read_text().splitlines()])


def withoutPaths(pairs):
    """Without code objects; what names a file keeps only its last part."""
    kept = [(key, value) for key, value in pairs if key != "code-object"]
    return [
        (key, value.rsplit("/", 1)[-1] if key == "library-file" else value)
        for key, value in kept
        if key != "results-file"
    ]


def test_iniIsTheRecordedOneOfTensileLite(run):
    """Same keys, order and values as the INI that the real TensileLite 2024 host wrote."""
    sizes = [
        [1024, 1024, 1, 1024],
        [128, 128, 1, 128],
        [4096, 4096, 1, 4096],
        [256, 512, 1, 2048],
        [77, 33, 1, 511],
        [2048, 128, 2, 512],
    ]
    parameters = {
        "KernelTime": True,
        "SleepPercent": 0,
        "NumElementsToValidate": 0,
        "CSVExportWinner": 1,
        "CSVMergeSameProblemID": 1,
        "MaxWorkspaceSize": 13421772800,
    }
    group = makeGroup([{"Exact": size} for size in sizes])
    done = run("tensilelite", makeConfig([[halfType, group]], parameters))
    assert done.returncode == 0, done.stdout
    ours = withoutPaths(run.ini("Cijk_Alik_Bljk_HHS_BH_UserArgs_00"))
    assert ours == recordedIni("tensilelite-2024")


def test_iniIsTheRecordedOneOfClassic(run):
    """Same keys, order and values as the INI that the real classic host wrote, Range included."""
    sizes = [
        {"Exact": [512, 512, 1, 512]},
        {"Range": [[64, 64, 256], [128], [1], [64, 64, 128]]},
    ]
    parameters = {"KernelTime": True, "NumElementsToValidate": 0, "SleepPercent": 0}
    done = run("classic", makeConfig([[singleType, makeGroup(sizes)]], parameters))
    assert done.returncode == 0, done.stdout
    assert withoutPaths(run.ini("Cijk_Ailk_Bjlk_SB_00")) == recordedIni("classic-4.44")


def test_listsThatMultiplyTheSizesAreInTheIni(run):
    """Bias, factor, activation and icache lists follow the type; bias strides follow a size."""
    problemType = dict(halfType, UseBias=3, Activation=True, ActivationType="all")
    more = [
        {"BiasTypeArgs": ["s", "h"]},
        {"FactorDimArgs": [0, 1]},
        {"ActivationArgs": [[{"Enum": "none"}], [{"Enum": "relu"}]]},
        {"ICacheFlush": [True, False]},
    ]
    group = makeGroup([{"Exact": [96, 64, 1, 32]}], more=more)
    done = run("tensilelite", makeConfig([[problemType, group]]))
    assert done.returncode == 0, done.stdout
    pairs = run.ini("Cijk_Alik_Bljk_HHS_BH_Bias_FDMN_AS_UserArgs_00")
    for key, values in (
        ("bias-type-args", ["Float", "Half"]),
        ("factor-dim-args", ["0", "1"]),
        ("activation-enum-args", ["None", "Relu"]),
        ("icache-flush-args", ["True", "False"]),
        ("bias-strides", ["1,96,0"]),
        ("activation-type", ["All"]),
    ):
        assert [value for found, value in pairs if found == key] == values


@pytest.mark.parametrize("generation", generations)
def test_outputIsLaidOutAsByARealHost(run, generation):
    """Folders and files of both generations, and a run.sh that only its owner can change."""
    group = makeGroup([{"Exact": [64, 64, 1, 64]}])
    done = run(generation, makeConfig([[singleType, group]]))
    assert done.returncode == 0, done.stdout
    name = "Cijk_Ailk_Bjlk_SB" + ("_UserArgs" if generation == "tensilelite" else "")
    extension = "yaml" if generation == "tensilelite" else "dat"
    step = "1_BenchmarkProblems/%s_00" % name
    expected = [
        "%s/00_Final/build/run.sh" % step,
        "%s/00_Final/cache.yaml" % step,
        "%s/00_Final/source/ClientParameters.ini" % step,
        "%s/00_Final/source/library/Kernels.so-000-gfx90a.hsaco" % step,
        "%s/00_Final/source/library/TensileLibrary.%s" % (step, extension),
        "%s/00_Final/source/library/TensileLibrary_gfx90a.co" % step,
        "%s/Data/00_Final.csv" % step,
        "%s/Data/00_Final.yaml" % step,
        "2_BenchmarkData/%s_00.csv" % name,
        "2_BenchmarkData/%s_00.yaml" % name,
        "3_LibraryLogic/s_%s.yaml" % name,
    ]
    assert run.files() == expected
    script = run.out / step / "00_Final/build/run.sh"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    ini = str(run.out / step / "00_Final/build/../source/ClientParameters.ini")
    assert run.calls() == [["--config-file", ini]]
    assert "set -ex" in script.read_text().splitlines()


def test_forksMakeSolutionsInTheLibrarysOrder(run):
    """A cartesian product, indices from 0, unique names; the CSV's columns are in its order."""
    forks = {
        "DepthU": [16, 32],
        "WorkGroupMapping": [1, 8],
        "PrefetchGlobalRead": [1, 2],
        "StaggerU": [0],
    }
    group = makeGroup([{"Exact": [64, 64, 1, 64]}], forks)
    assert run("tensilelite", makeConfig([[halfType, group]])).returncode == 0
    step = "Cijk_Alik_Bljk_HHS_BH_UserArgs_00"
    library = run.out / "1_BenchmarkProblems" / step / "00_Final/source/library"
    solutions = yaml.safe_load((library / "TensileLibrary.yaml").read_text())["solutions"]
    names = [solution["name"] for solution in solutions]
    assert [solution["index"] for solution in solutions] == list(range(8))
    assert len(set(names)) == 8
    # PrefetchGlobalRead runs fastest, DepthU slowest: the order of the host's own defaults.
    assert [name[name.index("x64x") + 4 :] for name in names[:3]] == [
        "16_PGR1_WGM1",
        "16_PGR2_WGM1",
        "16_PGR1_WGM8",
    ]
    header = (run.out / "2_BenchmarkData" / (step + ".csv")).read_text().splitlines()[0]
    assert header.split(", ")[-8:] == names


def test_classicLibraryIsMsgpack(run):
    """TensileLibrary.dat holds the solutions with index and name; --library-format yaml wins."""
    group = makeGroup([{"Exact": [64, 64, 1, 64]}])
    assert run("classic", makeConfig([[singleType, group]])).returncode == 0
    library = run.out / "1_BenchmarkProblems/Cijk_Ailk_Bjlk_SB_00/00_Final/source/library"
    content = msgpack.unpackb((library / "TensileLibrary.dat").read_bytes(), strict_map_key=False)
    assert [solution["index"] for solution in content["solutions"]] == [0, 1, 2, 3]
    config = makeConfig([[singleType, group]])
    assert run("classic", config, "--library-format", "yaml", "--no-cache").returncode == 0
    assert dict(run.ini("Cijk_Ailk_Bjlk_SB_00"))["library-file"].endswith("TensileLibrary.yaml")


def logicOf(run):
    """(solutions, {sizes: [solution, GFlops]}) of the only logic file."""
    (path,) = (run.out / "3_LibraryLogic").glob("*.yaml")
    data = yaml.safe_load(path.read_text())
    return data[5], {tuple(sizes[:4]): winner for sizes, winner in data[7]}


@pytest.mark.parametrize("generation", generations)
@pytest.mark.parametrize("winnerColumns", [False, True])
def test_logicTakesCellsOrWinnerColumns(run, generation, winnerColumns):
    """The greatest cell wins; with CSVExportWinner the Winner columns are believed."""
    sizes = [{"Exact": [64, 64, 1, 64]}, {"Exact": [128, 64, 1, 64]}]
    config = makeConfig([[singleType, makeGroup(sizes)]], {"CSVExportWinner": winnerColumns})
    assert run(generation, config).returncode == 0
    (path,) = (run.out / "2_BenchmarkData").glob("*.csv")
    assert path.stem.endswith("_CSVWinner") == winnerColumns
    lines = [line.split(", ") for line in path.read_text().splitlines()]
    (logic,) = (run.out / "3_LibraryLogic").glob("*.yaml")
    # TensileLite's logic ends with the library type, classic's does not know it.
    fields = yaml.safe_load(logic.read_text())
    assert fields[10:] == ["DeviceEfficiency", "GridBased"][: 2 if generation != "classic" else 1]
    solutions, winners = logicOf(run)
    for line in lines[1:]:
        cells = [float(cell) for cell in line[-4:]]
        best = cells.index(max(cells))
        if winnerColumns:  # the fake client names the next one
            best = (best + 1) % 4
        place, speed = winners[tuple(int(cell) for cell in line[1:5])]
        assert speed == cells[best]
        assert solutions[place]["SolutionNameMin"] == lines[0][-4:][best]


@pytest.mark.parametrize("generation", generations)
def test_failedClientEndsTheRunBeforeLogic(run, generation):
    """A client's failure is counted, all groups still run, then exit 1 without library logic."""
    problems = [
        [singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])],
        [halfType, makeGroup([{"Exact": [64, 64, 1, 64]}])],
    ]
    run.environment["CLIENT_MODE"] = "fails"
    done = run(generation, makeConfig(problems))
    assert done.returncode == 1
    assert "clientExit=2 (ERROR)" in done.stdout
    assert len(run.calls()) == 2
    assert len(list((run.out / "2_BenchmarkData").glob("*.csv"))) == 2
    assert not (run.out / "3_LibraryLogic").exists()
    done = run(generation, makeConfig(problems, {"ExitOnFails": 0}))
    assert done.returncode == 0
    assert len(list((run.out / "3_LibraryLogic").glob("*.yaml"))) == 2


@pytest.mark.parametrize("generation", generations)
def test_missingResultsAreATraceback(run, generation):
    """A CSV that was not written is a traceback of the copy step, exit 1."""
    run.environment["CLIENT_MODE"] = "no-csv"
    done = run(generation, makeConfig([[singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])]]))
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stdout
    assert "00_Final.csv" in done.stdout


def test_sameTypeInTwoEntriesKeepsTheSecond(run):
    """The group index starts again with each entry, so the second entry's rows are what stays."""
    problems = [
        [singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])],
        [singleType, makeGroup([{"Exact": [96, 64, 1, 64]}])],
    ]
    assert run("tensilelite", makeConfig(problems)).returncode == 0
    assert len(run.calls()) == 2
    (path,) = (run.out / "2_BenchmarkData").glob("*.csv")
    assert [line.split(", ")[1] for line in path.read_text().splitlines()[1:]] == ["96"]


def test_groupsOfOneEntryAreNumbered(run):
    """Several groups of one entry end in _00 and _01, and in one logic file."""
    groups = [makeGroup([{"Exact": [size, 64, 1, 64]}]) for size in (64, 96)]
    assert run("tensilelite", makeConfig([[singleType, *groups]])).returncode == 0
    names = sorted(path.stem[-2:] for path in (run.out / "2_BenchmarkData").glob("*.csv"))
    assert names == ["00", "01"]
    assert set(logicOf(run)[1]) == {(64, 64, 1, 64), (96, 64, 1, 64)}


def test_finishedStepIsSkippedOnlyWhenAsked(run):
    """ForceRedoBenchmarkProblems is True by default; False leaves what is there."""
    problems = [[singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])]]
    assert run("tensilelite", makeConfig(problems)).returncode == 0
    assert run("tensilelite", makeConfig(problems)).returncode == 0
    assert len(run.calls()) == 2
    config = makeConfig(problems, {"ForceRedoBenchmarkProblems": False})
    done = run("tensilelite", config)
    assert done.returncode == 0
    assert "already benchmarked; skipping" in done.stdout
    assert len(run.calls()) == 2


def makeBuildTools(run):
    """cmake and make that note their arguments and leave an executable where a build would."""
    tools = run.folder / "tools"
    tools.mkdir()
    for name in ("cmake", "make"):
        script = '#!/bin/sh\necho "%s $@" >> %s/build.log\n' % (name, run.folder)
        if name == "make":
            script += "mkdir -p client && cp %s client/tensile_client\n" % run.client
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    run.environment["PATH"] = "%s:%s" % (tools, os.environ["PATH"])


def test_nullProblemsBuildTheClientOnly(run):
    """TensileLite: BenchmarkProblems: null runs cmake and make into 0_Build, and nothing else."""
    makeBuildTools(run)
    config = {"GlobalParameters": {}, "BenchmarkProblems": None}
    done = run("tensilelite", config, client=False)
    assert done.returncode == 0, done.stdout
    assert "built client only" in done.stdout
    assert os.access(run.out / "0_Build/client/tensile_client", os.X_OK)
    assert not (run.out / "1_BenchmarkProblems").exists()
    assert [line.split()[0] for line in (run.folder / "build.log").read_text().splitlines()] == [
        "cmake",
        "make",
    ]


@pytest.mark.parametrize("generation", generations)
def test_clientIsBuiltOnceAndRun(run, generation):
    """Without a prebuilt client the one in 0_Build is built once and run for every group."""
    makeBuildTools(run)
    groups = [makeGroup([{"Exact": [size, 64, 1, 64]}]) for size in (64, 96)]
    done = run(generation, makeConfig([[singleType, *groups]]), client=False)
    assert done.returncode == 0, done.stdout
    assert len((run.folder / "build.log").read_text().splitlines()) == 2
    assert len(run.calls()) == 2


def test_unknownGlobalParameterIsWarnedAboutAndTaken(run):
    """The text of the real hosts' warning, with the key and the value; the run goes on."""
    problems = [[singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])]]
    config = makeConfig(problems, {"DeviceList": [0, 1]})
    done = run("tensilelite", config)
    assert done.returncode == 0
    expected = "Tensile::WARNING: Global parameter DeviceList = [0, 1] unrecognised."
    assert expected in done.stdout.splitlines()
    done = run("classic", config)
    assert done.returncode == 0
    assert "Global parameter DeviceList = [0, 1] unrecognized." in done.stdout


@pytest.mark.parametrize("generation", generations)
@pytest.mark.parametrize("version", ["5.0.0", "4.99.0"])
def test_newerConfigIsRefused(run, generation, version):
    """MinimumRequiredVersion of another major or a later minor version ends the run."""
    config = makeConfig([], {"MinimumRequiredVersion": version})
    done = run(generation, config)
    assert done.returncode == 255
    assert "Config file requires version=%s is not compatible" % version in done.stdout


@pytest.mark.parametrize("generation", generations)
def test_commandLine(run, generation):
    """Bad arguments exit with 2; --device and --global-parameters beat the config."""
    problems = [[singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])]]
    config = makeConfig(problems, {"Device": 1, "NumWarmups": 1})
    assert run(generation, config, "--no-such-option").returncode == 2
    assert run(generation, config, "--global-parameters", "NumWarmups").returncode == 2
    assert run(generation, config, "--version").returncode == 0
    assert run.calls() == []
    options = ("-d", "3", "--global-parameters", "NumWarmups=7", "ClientArgs='--log-level Terse'")
    assert run(generation, config, *options).returncode == 0
    (step,) = (run.out / "1_BenchmarkProblems").iterdir()
    values = dict(run.ini(step.name))
    assert (values["device-idx"], values["num-warmups"]) == ("3", "7")
    assert run.calls()[0][2:] == ["--log-level", "Terse"]


@pytest.mark.parametrize("generation", generations)
def test_alternateFormatTakesTwoFiles(run, generation):
    """--alternate-format: the first file is the config, the second a list of sizes."""
    sizes = run.folder / "sizes.yaml"
    sizes.write_text(yaml.safe_dump([{"Exact": [64, 64, 1, 64]}, {"Exact": [96, 64, 1, 64]}]))
    config = {
        "GlobalParameters": {},
        "ProblemType": singleType,
        "ForkParameters": [{"DepthU": [8, 16]}],
        "LibraryLogic": {"ScheduleName": "s"},
    }
    base = run.folder / "base.yaml"
    base.write_text(yaml.safe_dump(config))
    script = hostFolder / generation / "Tensile/bin/Tensile"
    arguments = [sys.executable, str(script), "--alternate-format", str(base), str(sizes)]
    arguments += [str(run.out), "--prebuilt-client", str(run.client)]
    environment = dict(run.environment, PYTHONPATH=str(hostFolder / generation))
    subprocess.run(
        arguments, env=environment, check=True, timeout=60, cwd="/", stdout=subprocess.DEVNULL
    )
    assert set(logicOf(run)[1]) == {(64, 64, 1, 64), (96, 64, 1, 64)}


def test_secondRunWithTheCache(run):
    """--use-cache is a KeyError on TensileLite 2024, as in reality; classic uses its cache."""
    problems = [[singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])]]
    assert run("tensilelite", makeConfig(problems), "--use-cache").returncode == 0
    done = run("tensilelite", makeConfig(problems), "--use-cache")
    assert done.returncode == 1
    assert "KeyError: 'InternalSupportParams'" in done.stdout
    shutil.rmtree(run.out)
    assert run("classic", makeConfig(problems)).returncode == 0
    done = run("classic", makeConfig(problems))
    assert done.returncode == 0, done.stdout
    assert "Using cached solution data" in done.stdout
    assert len(logicOf(run)[0]) == 1


def test_pathWithASpaceBreaksInRunSh(run):
    """run.sh does not quote: a client whose path holds a space cannot be run (exit 127)."""
    folder = run.folder / "a folder"
    folder.mkdir()
    run.client = Path(shutil.copy(str(run.client), str(folder)))
    problems = [[singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])]]
    done = run("tensilelite", makeConfig(problems))
    assert done.returncode == 1
    assert "exited with code 127" in done.stdout
    assert run.calls() == []


def test_pinClocksAsksForDeviceZero(run):
    """PinClocks runs rocm-smi on device 0 whatever Device says."""
    smi = run.folder / "rocm/bin/rocm-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text('#!/bin/sh\necho "$@" >> %s/smi.log\n' % run.folder)
    smi.chmod(0o755)
    run.environment["TENSILE_ROCM_PATH"] = str(run.folder / "rocm")
    problems = [[singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])]]
    done = run("tensilelite", makeConfig(problems, {"PinClocks": True, "Device": 1}))
    assert done.returncode == 0, done.stdout
    lines = (run.folder / "smi.log").read_text().splitlines()
    assert lines[0] == "-d 0 --setfan 255 --setsclk 7"
    assert all(line.startswith("-d 0 ") for line in lines)


def test_libraryClientAsksForTheBestSolution(run):
    """LibraryClient runs the client on the logic's sizes with --best-solution 1."""
    problems = [[singleType, makeGroup([{"Exact": [64, 64, 1, 64]}])]]
    run("tensilelite", makeConfig(problems, LibraryClient=None))
    assert run.calls()[1][2:] == ["--best-solution", "1"]
    pairs = [line.strip().split("=", 1) for line in open(run.calls()[1][1])]
    assert dict(pairs)["problem-size"] == "64,64,1,64"


@pytest.mark.parametrize("generation", generations)
def test_extensionLiesInTheTree(run, generation):
    """With Tensile/Parallel/ over Parallel.py the tree still imports, and its workers too."""
    tree = run.folder / "trees"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(str(hostFolder), str(tree), ignore=ignored)
    overlay = tree / generation / "Tensile" / "Parallel"
    shutil.copytree(str(here.parent.parent / "Parallel"), str(overlay), ignore=ignored)
    forks = {"DepthU": list(range(1, 21)), "WorkGroupMapping": list(range(1, 13))}
    group = makeGroup([{"Exact": [64, 64, 1, 64]}], forks)
    config = makeConfig([[singleType, group]], {"CpuThreads": 2})
    done = run(generation, config, tree=tree)
    assert done.returncode == 0, done.stdout
    (path,) = (run.out / "2_BenchmarkData").glob("*.yaml")
    names = [line for line in path.read_text().splitlines() if "SolutionNameMin" in line]
    assert len(names) == 240


def test_generationsAreRecognisedByTheirFiles():
    """Common.py and Parallel.py in both; TensileInstructions only in TensileLite."""
    for generation in generations:
        package = hostFolder / generation / "Tensile"
        assert (package / "Common.py").is_file()
        assert (package / "Parallel.py").is_file()
        assert (package / "TensileInstructions").is_dir() == (generation == "tensilelite")
    assert not any(path.is_symlink() for path in hostFolder.rglob("*"))


typeNames = [
    ("both", {"DataType": "s"}, "Cij_Aik_Bjk_SB"),
    ("both", singleType, "Cijk_Ailk_Bjlk_SB"),
    ("both", dict(singleType, UseBeta=False), "Cijk_Ailk_Bjlk_S"),
    ("both", dict(singleType, StridedBatched=False), "Cijk_Ailk_Bjlk_SB_GB"),
    ("both", halfType, "Cijk_Alik_Bljk_HHS_BH"),
    ("both", dict(halfType, ComputeDataType="h"), "Cijk_Alik_Bljk_HHS_BH"),
    ("both", dict(halfType, DestDataType="s"), "Cijk_Alik_Bljk_HSS_BH"),
    (
        "both",
        dict(singleType, DataType="b", DestDataType="b", ComputeDataType="s"),
        "Cijk_Ailk_Bjlk_BBS_B",
    ),
    (
        "both",
        dict(singleType, DataType="C", ComplexConjugateA=True, TransposeA=True),
        "Cijk_AlikC_Bjlk_CB",
    ),
    ("classic", dict(singleType, F32XdlMathOp="x"), "Cijk_Ailk_Bjlk_SB_MX"),
    ("tensilelite", dict(singleType, F32XdlMathOp="x"), "Cijk_Ailk_Bjlk_S_MX_B"),
    ("tensilelite", dict(halfType, GroupedGemm=True), "Cijk_Alik_Bljk_HHS_BH_GG"),
    ("tensilelite", dict(halfType, UseBias=1), "Cijk_Alik_Bljk_HHS_BH_Bias"),
    (
        "tensilelite",
        dict(halfType, UseBias=1, BiasDataTypeList=["s"]),
        "Cijk_Alik_Bljk_HHS_BH_BiasS",
    ),
    (
        "tensilelite",
        dict(
            halfType,
            UseBias=1,
            Activation=True,
            ActivationType="hipblaslt_all",
            UseScaleAlphaVec=1,
        ),
        "Cijk_Alik_Bljk_HHS_BH_Bias_HAS_SAV",
    ),
    (
        "tensilelite",
        dict(singleType, DataType="F8", DestDataType="s", UseScaleAB="Scalar", UseScaleCD=True),
        "Cijk_Ailk_Bjlk_F8SS_B_SAB_SCD",
    ),
]


@pytest.mark.parametrize("generation", generations)
def test_typeNamesAreTheHosts(generation):
    """Names of problem types, as the real trees make them; TensileLite adds _UserArgs."""
    rows = [row for row in typeNames if row[0] in ("both", generation)]
    suffix = "_UserArgs" if generation == "tensilelite" else ""
    found = ask(generation, "str(ProblemType(value))", [config for _, config, _ in rows])
    assert found == [name + suffix for _, _, name in rows]


def test_sizesInTheClientsOrder():
    """All ranges first, whatever their place, then the exact ones; the first index is fastest."""
    sizes = [
        {"Exact": [5, 6, 1, 7]},
        {"Range": [[16, 16, 32], [8, 24], [1], 0]},
        {"Range": [[1, 1, 2, 10], [3], [1], [4]]},
        {"Exact": [100, 10, 2, 50, 128, 200, -1, 60]},
        {"Exact": {"sizes": [9, 9, 1, 9], "stridesA": [1, 32, -1]}},
    ]
    expression = "[p.sizes for p in ProblemSizes(ProblemType(value[0]), value[1]).problems]"
    for generation in generations:
        (found,) = ask(generation, expression, [[singleType, sizes]])
        assert found == [
            # [first, step, last], [step, last], [n], and a number that repeats another index
            [16, 8, 1, 16, 16, 16, 16, 8],
            [32, 8, 1, 32, 32, 32, 32, 8],
            [16, 16, 1, 16, 16, 16, 16, 16],
            [32, 16, 1, 32, 32, 32, 32, 16],
            [16, 24, 1, 16, 16, 16, 16, 24],
            [32, 24, 1, 32, 32, 32, 32, 24],
            # [first, step, growth of the step, last]
            [1, 3, 1, 4, 1, 1, 1, 3],
            [2, 3, 1, 4, 2, 2, 2, 3],
            [5, 3, 1, 4, 5, 5, 5, 3],
            [10, 3, 1, 4, 10, 10, 10, 3],
            [5, 6, 1, 7, 5, 5, 5, 6],
            [100, 10, 2, 50, 128, 200, 100, 60],
            [9, 9, 1, 9, 9, 9, 32, 9],
        ]


@pytest.mark.parametrize("name", ["quick.yaml", "classic.yaml"])
def test_exampleConfigsRun(run, name):
    """The configs of the README run through; quick.yaml has two types, one with two groups."""
    config = yaml.safe_load((here / "configs" / name).read_text())
    assert config["GlobalParameters"]["DeviceList"] == [-1]
    generation = "tensilelite" if name == "quick.yaml" else "classic"
    done = run(generation, config)
    assert done.returncode == 0, done.stdout
    rows = [
        len(path.read_text().splitlines()) - 1
        for path in sorted((run.out / "2_BenchmarkData").glob("*.csv"))
    ]
    if name == "quick.yaml":
        assert rows == [5, 5, 10]
        assert len(list((run.out / "3_LibraryLogic").glob("*.yaml"))) == 2
    else:
        assert rows == [11]
