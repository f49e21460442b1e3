# SPDX-License-Identifier: MIT
"""--plan: steps, solutions, times and first units before anything is started.

What the host would make is asked of the stand-in host in a process of its own; what a run leaves
is that of one emulated run. TENSILE_PARALLEL_TEST_CONFIGS may name a folder of real configs (see
test_ConfigSteps.py): their plans have the counts of a real Tensile, within two seconds each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from conftest import DATA, HOST, ROOT, ownCheckout
from hypothesis import example, given, settings
from hypothesis import strategies as st
from Machines import NoHip, makeMachine

from Tensile.Parallel.ClientConfig import readClientConfig
from Tensile.Parallel.ConfigSteps import configSteps, groupOf
from Tensile.Parallel.Cost import Cost
from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.ExpectedIni import describeType, expectedIni, hostDefaults
from Tensile.Parallel.ForkedSolutions import customKernelCount, forkedSolutions
from Tensile.Parallel.Host import findHost
from Tensile.Parallel.Journal import Journal, readJournal
from Tensile.Parallel.ParseArguments import parseRunArguments
from Tensile.Parallel.Plan import EXAMPLE_DEVICES, makePlan
from Tensile.Parallel.PlanText import assumptions, planJson, planText
from Tensile.Parallel.Platform import System
from Tensile.Parallel.Schedule import Rectangle, Schedule
from Tensile.Parallel.SolutionNames import readSolutions

pytestmark = pytest.mark.unit

QUICK = ROOT / "Tensile" / "Tests" / "parallel" / "configs" / "quick.yaml"
TREE = HOST / "tensilelite"
REAL_CONFIGS = os.environ.get("TENSILE_PARALLEL_TEST_CONFIGS")
real = pytest.mark.skipif(REAL_CONFIGS is None, reason="TENSILE_PARALLEL_TEST_CONFIGS is not set")

GEMM = {
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

# Asks a stand-in tree what it makes of groups: a JSON line in, a JSON line out.
ASK_HOST = """
import contextlib, io, json, os, sys
sys.path.insert(0, sys.argv[1])
from Tensile.BenchmarkStructs import BenchmarkStep
from Tensile.ClientWriter import writeClientConfigIni
from Tensile.Common import globalParameters
defaults = dict(globalParameters)
for line in sys.stdin:
    asked = json.loads(line)
    globalParameters.update(defaults)
    globalParameters.update(asked["globals"])
    path = os.path.join(sys.argv[2], "asked.ini")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            step = BenchmarkStep(asked["type"], asked["group"])
            writeClientConfigIni(path, step, "library", [], "r.csv")
            answer = {"ini": path, "solutions": asked["count"] and len(step.solutions())}
    except (SystemExit, Exception) as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
"""


class AskedHost:
    """A stand-in host that is asked for one group after the other."""

    def __init__(self, generation, folder):
        command = [sys.executable, "-c", ASK_HOST, str(HOST / generation), str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, problemType, group, parameters=(), count=True):
        """{"solutions", "ini"} or {"error"}."""
        asked = {"type": problemType, "group": group, "globals": dict(parameters), "count": count}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(timeout=60) == 0
        self._process.stdout.close()


@pytest.fixture(scope="module")
def askHost(tmp_path_factory):
    """A function: generation -> AskedHost."""
    hosts = {}

    def get(generation):
        if generation not in hosts:
            hosts[generation] = AskedHost(generation, tmp_path_factory.mktemp(generation))
        return hosts[generation]

    yield get
    for host in hosts.values():
        host.close()


@pytest.fixture(scope="module")
def finishedRun(tmp_path_factory):
    """The output of one emulated run of quick.yaml, for all that needs one."""
    folder = tmp_path_factory.mktemp("finished")
    command = [sys.executable, str(ROOT / "Tensile/bin/TensileParallel"), str(QUICK), "out"]
    command += ["--emulate", "2", "--tensile-root", str(TREE)]
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_VISIBLE_DEVICES")}
    done = subprocess.run(
        command, cwd=folder, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


def planOf(*arguments, system=None):
    """The plan that a command line asks for; by default on a machine with nothing in it."""
    parsed = parseRunArguments(["--plan", *map(str, arguments)])
    return makePlan(parsed, system or NoHip("/nowhere", {}))


def write(path, sizes=((64, 64, 1, 64),), forks=(), parameters=None, kind=None, **sections):
    """A config of one group."""
    group = {
        "ForkParameters": list(forks),
        "BenchmarkFinalParameters": [{"ProblemSizes": [{"Exact": list(size)} for size in sizes]}],
    }
    config = {
        "GlobalParameters": {"DeviceList": [0, 1, 2, 3], "NumElementsToValidate": 0},
        "BenchmarkProblems": [[dict(GEMM, **(kind or {})), group]],
        "LibraryLogic": None,
        **sections,
    }
    config["GlobalParameters"].update(parameters or {})
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


MANY = {"DepthU": list(range(2000))}
BIG, SMALL = (8192, 8192, 1, 8192), (256, 256, 1, 256)


def test_theTableOfSteps():
    """Every step with entry, group, type, sizes, problems, and the bound on its solutions."""
    plan = planOf(QUICK, "--emulate", 4, "--tensile-root", TREE)
    lines = planText(plan).split("\n")
    assert plan.devices.devices[3].emulated and not plan.devices.assumed
    for row in (
        "     1      1     00  TN HHS      5         5      <= 12  <= 60",
        "     2      1     01  TN HHS     10        10       <= 8  <= 80",
        "     3      2     00  NN S        5         5       <= 4  <= 20",
    ):
        assert "  " + row[2:] in lines, "\n".join(lines)
    told = planJson(plan)
    assert [(s["entry"], s["group"], s["solutions"], s["exact"]) for s in told["steps"]] == [
        (1, 0, 12, False),
        (1, 1, 8, False),
        (2, 0, 4, False),
    ]
    assert told["schema"] == 1 and told["seconds"]["complete"]
    assert told["seconds"]["serial"] == pytest.approx(
        sum(step["seconds"]["serial"] for step in told["steps"]), abs=0.01
    )


VALUES = st.lists(st.integers(0, 3), min_size=0, max_size=4)
PARAMETERS = st.lists(
    st.dictionaries(st.sampled_from("DepthU StaggerU SourceSwap".split()), VALUES, max_size=2),
    max_size=3,
)
GROUPS = st.lists(
    st.lists(
        st.dictionaries(st.sampled_from(["DepthU", "GlobalSplitU"]), st.integers(0, 2), max_size=2),
        max_size=3,
    ),
    max_size=2,
)


@settings(max_examples=60, deadline=None)
@given(
    common=PARAMETERS,
    forked=PARAMETERS,
    groups=GROUPS,
    kernels=st.lists(st.sampled_from(["k1", "k2", "k3"]), max_size=3),
    generation=st.sampled_from(["tensilelite", "classic"]),
)
def test_theBoundIsNeverBelowWhatAHostMakes(askHost, common, forked, groups, kernels, generation):
    """Whatever is forked, in both sections, in groups, and with custom kernels."""
    group = {
        "BenchmarkCommonParameters": common,
        "ForkParameters": forked + ([{"Groups": groups}] if groups else []),
        "CustomKernels": kernels,
    }
    made = askHost(generation).ask(GEMM, group)
    assert made["solutions"] <= forkedSolutions(group).most


def test_theBoundIsWhatTheHostCounts():
    """Products of lists, a later section over an earlier one, groups by their entries."""
    many = {
        "BenchmarkCommonParameters": [{"DepthU": [1, 2, 3]}, {"StaggerU": [0, 1]}],
        "ForkParameters": [{"DepthU": [8, 16]}, {"Groups": [[{"a": 1}, {"a": 2}, {"a": 3}]]}],
        "CustomKernels": ["one", "two"],
    }
    assert forkedSolutions(many).most == 2 * 2 * 3 + 2
    assert forkedSolutions(None).most == 1  # the defaults are one solution
    assert forkedSolutions({"ForkParameters": [{"DepthU": []}]}).most == 1
    assert forkedSolutions({"ForkParameters": [{"Groups": [[]]}]}).most == 0
    assert forkedSolutions({"CustomKernels": ["*"]}, allKernels=5).most == 6
    for odd in ({"ForkParameters": [{"DepthU": 8}]}, {"ForkParameters": 5}, [1], "x"):
        told = forkedSolutions(odd)
        assert told.most is None and "cannot be told" in told.remark
    unknown = forkedSolutions({"CustomKernels": ["*"]})
    assert unknown.most is None and "every custom kernel" in unknown.remark


def test_customKernelsAreThoseOfTheTree(tmp_path):
    """Its .s files, as the host counts them."""
    folder = tmp_path / "Tensile" / "CustomKernels"
    folder.mkdir(parents=True)
    for name in ("a.s", "b.s", "__init__.py"):
        (folder / name).touch()
    assert customKernelCount(str(tmp_path)) == 2
    assert customKernelCount(str(tmp_path / "nothing")) == 0


# The parameters and sizes that the recorded clients were given, and the solutions that the real
# trees made of them.
RECORDED = {
    "tensilelite-2024": (
        [{"MatrixInstruction": [1, 2, 3]}, {"PrefetchGlobalRead": [1, 2]}, {"DepthU": [32, 64]}]
        + [{"WorkGroupMapping": [1, 8]}],
        GEMM,
    ),
    "classic-4.44": (
        [{"ThreadTile": [[4, 4], [8, 8]]}, {"DepthU": [8, 16]}, {"PrefetchGlobalRead": [0, 1]}],
        {"OperationType": "GEMM", "DataType": "s", "Batched": True},
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_realRunsAreAsThePlanHasThem(name):
    """The INI that a real tree wrote, what the plan expects of it, and the first units of both."""
    forks, kind = RECORDED[name]
    ini = readClientConfig(str(DATA / name / "full" / "ClientParameters.ini"))
    sizes = [{"Exact": list(size.sizes)} for size in ini.sizes]
    group = {"ForkParameters": forks, "BenchmarkFinalParameters": [{"ProblemSizes": sizes}]}
    config = {
        "GlobalParameters": {"NumElementsToValidate": 0, "SleepPercent": 0},
        "BenchmarkProblems": [[kind, group]],
    }
    classic = name.startswith("classic")
    (step,) = configSteps(config, classic)
    expected, why = expectedIni(config, step, config["GlobalParameters"].get, {}, classic)
    assert not why
    for key, _ in expected.entries:
        assert expected.getAll(key) == ini.getAll(key), key
    library = next((DATA / name / "library").iterdir())
    solutions = len(readSolutions(str(library)))
    assert solutions <= forkedSolutions(group).most
    table = Rectangle(0, ini.problemCount, 0, solutions)
    units = []
    for each in (ini, expected):
        schedule = Schedule([table], [0, 1, 2], Cost(each))
        units.append([schedule.next(device) for device in (0, 1, 2)])
    assert units[0] == units[1] and None not in units[0][:1]


ARGS = [
    {"BiasTypeArgs": ["h", "s"]},
    {"ActivationArgs": [[{"Enum": "none"}], [{"Enum": "relu"}]]},
    {"FactorDimArgs": [0, 1]},
    {"ICacheFlush": [False, True]},
]
KINDS = {
    "plain": {},
    "epilogue": dict(UseBias=3, UseScaleAlphaVec=3, Activation=True, ActivationType="all"),
    "bias only": dict(UseBias=1),
    "not batched": dict(Batched=False, TransposeA=0, TransposeB=1),
    "grouped": dict(GroupedGemm=True),
    "types": dict(DataType="f8", DestDataType="B", HighPrecisionAccumulate=True),
    "hybrid": dict(DataType="F8B8", DestDataType="s"),
    "number": dict(DataType=0, DestDataType=0, ComputeDataType=0, HighPrecisionAccumulate=False),
    "contraction": dict(
        OperationType="TensorContraction",
        IndexAssignmentsA=[0, 2, 3],
        IndexAssignmentsB=[3, 2, 1],
        NumIndicesC=2,
        MirrorDimsA=[2],
    ),
    "complex": dict(DataType="complexSingle", DestDataType="c", ComputeDataType="c"),
}


ONLY_TENSILELITE = ("epilogue", "bias only", "grouped")


@pytest.mark.parametrize(
    "generation, name",
    [("tensilelite", name) for name in KINDS if name != "contraction"]
    + [("classic", name) for name in KINDS if name not in ONLY_TENSILELITE],
)
def test_theExpectedIniIsTheOneThatIsWritten(askHost, generation, name):
    """Every line that is expected is written by the host with the same values in their order."""
    kind = dict(GEMM, **KINDS[name])
    if name == "complex":
        kind.update(HighPrecisionAccumulate=False, ComplexConjugateB=True)
    batch = [[1]] if kind["Batched"] else []
    sizes = [{"Exact": [96, 64] + ([2] if batch else []) + [32]}]
    sizes += [{"Range": [[64, 64, 128], [128]] + batch + [[256]]}]
    sizes += [{"Exact": {"sizes": [8, 8] + ([1] if batch else []) + [8]}}]
    group = {"BenchmarkFinalParameters": [{"ProblemSizes": sizes}, *ARGS]}
    parameters = {"NumWarmups": 3, "EnqueuesPerSync": 7, "SortProblems": name == "types"}
    config = {"GlobalParameters": parameters, "BenchmarkProblems": [[kind, group]]}
    classic = generation == "classic"
    (step,) = configSteps(config, classic)
    expected, why = expectedIni(config, step, parameters.get, {}, classic)
    made = askHost(generation).ask(kind, group, parameters)
    assert not why and "error" not in made, (why, made)
    written = readClientConfig(made["ini"])
    for key, _ in expected.entries:
        assert expected.getAll(key) == written.getAll(key), key
    assert expected.problemCount == written.problemCount


def test_hostDefaultsAreRead(tmp_path):
    """A tree's own defaults beat ours, whichever of its two files has them."""
    for name in ("Common.py", "Common/GlobalParameters.py"):
        tree = tmp_path / name.replace("/", "_")
        shutil.copytree(TREE, tree)
        (tree / "Tensile" / "Common.py").unlink()
        path = tree / "Tensile" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            'globalParameters["SleepPercent"] = 25  # less\n'
            'globalParameters["NumWarmups"] = (\n    9  # more\n)\n'
            'globalParameters["Architecture"] = "all"\n'
        )
        found = hostDefaults(findHost({}, str(tree)))
        assert found == {"SleepPercent": 25, "NumWarmups": 9}
    assert hostDefaults(None) == {}


def test_typesInAFewWords():
    """What tells entries apart, and "?" for what is none."""
    assert describeType(GEMM) == "TN HHS"
    assert describeType({"DataType": "s"}) == "NT S"
    assert describeType(dict(GEMM, UseBias=1, Activation=True, ActivationType="all")) == (
        "TN HHS bias act"
    )
    assert describeType({"OperationType": "TensorContraction", "DataType": "d"}) == (
        "TensorContraction D"
    )
    assert describeType(None) == describeType({}) == "?"


# -- what an earlier run knows ------------------------------------------------------------------


def test_anEarlierRunMakesItExact(finishedRun):
    """Tensile's library there has the solutions, its journal the pairs and their pace."""
    before = sorted((p, p.stat().st_mtime_ns) for p in finishedRun.rglob("*"))
    plan = planOf(QUICK, finishedRun, "--emulate", 2, "--tensile-root", TREE)
    assert sorted((p, p.stat().st_mtime_ns) for p in finishedRun.rglob("*")) == before
    for step, solutions in zip(plan.steps, (12, 8, 4)):
        assert step.exact and step.solutions == solutions
        assert step.measuredPairs == step.pairs and step.serialSeconds == 0.0
        assert step.taught > 0 and not step.first
    assert plan.warnings[-1] == "all pairs are measured already: a run would measure nothing"
    text = planText(plan)
    assert "<=" not in text and "none" in text and "as 1" not in text
    assert plan.hostSeconds is not None and "the last run in" in text


def test_freshMeasuresItAgainAtThePaceOfThen(finishedRun):
    """--fresh: nothing is left out, and the times are those of the units that were measured."""
    plan = planOf(QUICK, finishedRun, "--emulate", 2, "--fresh", "--tensile-root", TREE)
    cold = planOf(QUICK, "--emulate", 2, "--tensile-root", TREE)
    for step, other in zip(plan.steps, cold.steps):
        assert step.exact and step.measuredPairs == 0 and step.first and step.taught
        assert step.serialSeconds != other.serialSeconds
    # Times that an emulator made up say nothing of a real device.
    here = planOf(QUICK, finishedRun, "--fresh", "--devices", "0,1", "--tensile-root", TREE)
    assert [step.taught for step in here.steps] == [0, 0, 0]
    assert [step.exact for step in here.steps] == [True] * 3


def test_unitsThatRanAtAKillAreTold(finishedRun, tmp_path):
    """What their clients had finished is kept by a run; the plan does not know it, and says so."""
    out = tmp_path / "out"
    shutil.copytree(finishedRun, out, symlinks=True)
    path = next(out.glob("outputs/Cijk_Alik_*_00/*/journal.msgpack"))
    records = readJournal(path)
    extra = {
        record["begunUnit"]["unit"]["number"]
        for record in records
        if "begunUnit" in record
        and (record["begunUnit"]["unit"]["retiming"] or record["begunUnit"]["unit"]["baseline"])
    }
    path.unlink()
    with Journal(path) as journal:
        for record in records:
            if "unit" not in record or record["unit"] in extra:
                journal.append(record)
    plan = planOf(QUICK, out, "--emulate", 2, "--tensile-root", TREE)
    begun = sum("begunUnit" in record for record in records)
    assert [step.unendedUnits for step in plan.steps] == [begun - len(extra), 0, 0] != [0, 0, 0]
    assert plan.steps[0].measuredPairs == 0
    assert "ran when an earlier run in" in " ".join(assumptions(plan))
    fresh = planOf(QUICK, out, "--emulate", 2, "--tensile-root", TREE, "--fresh")
    assert fresh.steps[0].unendedUnits == 0


def test_whatAnInterruptedRunHasNotMeasuredIsLeft(finishedRun, tmp_path):
    """A unit whose file is gone is measured again; the plan begins with it."""
    out = tmp_path / "out"
    shutil.copytree(finishedRun, out, symlinks=True)
    shard = sorted(out.glob("outputs/gpu_*/Cijk_Alik_*_00/*/unit_*.csv"))[-1]
    rows = len(shard.read_text().splitlines()) - 1
    shard.unlink()
    plan = planOf(QUICK, out, "--emulate", 2, "--tensile-root", TREE)
    step = plan.steps[0]
    assert 0 < step.measuredPairs < step.pairs and step.serialSeconds > 0
    assert sum(first.unit.problemCount for first in step.first) <= rows
    assert "  measured" in planText(plan) and "that are left" in planText(plan)


@pytest.mark.parametrize("section", ["ForkParameters", "sizes", "DataType", "common"])
def test_anotherStepIsNotMistakenForIt(finishedRun, tmp_path, section):
    """Other parameters, sizes or types: that library's number says nothing, the others' do."""
    config = yaml.safe_load(QUICK.read_text())
    kind, group = config["BenchmarkProblems"][0][:2]
    if section == "ForkParameters":
        group["ForkParameters"][1] = {"PrefetchGlobalRead": [1, 0]}
    elif section == "common":
        group["BenchmarkCommonParameters"] = [{"KernelLanguage": ["Source"]}]
    elif section == "sizes":
        group["BenchmarkFinalParameters"][0]["ProblemSizes"].pop()
    else:
        config["BenchmarkProblems"][0][0] = dict(kind, DataType="b", DestDataType="b")
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    plan = planOf(path, finishedRun, "--emulate", 2, "--tensile-root", TREE)
    assert [step.exact for step in plan.steps] == [False, section != "DataType", True]
    assert plan.steps[0].measuredPairs == 0 and plan.steps[0].solutions == 12


def test_aSlowerBenchmarkHasThePairsAnew(finishedRun):
    """Other repetitions: the solutions are the same, what was measured is not."""
    parameters = ["--global-parameters", "EnqueuesPerSync=20"]
    plan = planOf(QUICK, finishedRun, "--emulate", 2, "--tensile-root", TREE, *parameters)
    assert all(step.exact and not step.measuredPairs and not step.taught for step in plan.steps)


def test_aDamagedFolderIsNone(tmp_path, finishedRun):
    """Half a cache, half an INI, half a summary: the bound stands, nothing is raised."""
    out = tmp_path / "out"
    shutil.copytree(finishedRun, out, symlinks=True)
    damage = {"cache.yaml": "ForkParams: [", "ClientParameters.ini": "no line", "step.json": "{"}
    for at, (name, text) in enumerate(damage.items()):
        sorted(out.rglob(name))[at].write_text(text)
    (out / "execution_summary.json").write_text("[")
    plan = planOf(QUICK, out, "--emulate", 2, "--tensile-root", TREE)
    assert sum(step.exact for step in plan.steps) == 1
    assert plan.hostSeconds is None
    assert not any(step.measuredPairs for step in plan.steps)


# -- how the work is spread ---------------------------------------------------------------------


def test_firstUnitsAreTheSchedules(tmp_path):
    """What each device begins with is disjoint, inside the table, and what the schedule gives."""
    sizes = [(256 * n, 256 * n, 1, 1024) for n in range(1, 21)]
    plan = planOf(write(tmp_path / "c.yaml", sizes, [MANY]), "--emulate", 4, "--baseline", "off")
    (step,) = plan.steps
    config = yaml.safe_load((tmp_path / "c.yaml").read_text())
    (counted,) = configSteps(config)
    ini, _ = expectedIni(config, counted, config["GlobalParameters"].get, {}, False)
    schedule = Schedule([Rectangle(0, 20, 0, 2000)], range(4), Cost(ini))
    assert [first.unit for first in step.first] == [schedule.next(device) for device in range(4)]
    assert step.first[0].sizes[0] == "5120x5120x1x1024"
    assert step.parallelSeconds >= step.serialSeconds / 4


def test_severalDevicesAreFaster(tmp_path):
    """Long steps are about as many times faster as there are devices; one device is not."""
    sizes = [(4096, 4096, 1, n) for n in range(4096, 4160)]
    config = write(tmp_path / "c.yaml", sizes, [MANY], {"DeviceList": [-1]})
    for count in (1, 2, 8):
        (step,) = planOf(config, "--emulate", count).steps
        speedUp = step.serialSeconds / step.parallelSeconds
        assert 0.88 * count < speedUp <= count, count
        assert bool(step.baselinePairs) == (count == 2)  # for 8, it would cost too much
        assert len(step.first) == count


@pytest.mark.parametrize(
    "sizes, option, says",
    [
        ([BIG], [], "single problem, 8192x8192x1x8192: its solutions are split"),
        (
            [SMALL, BIG, SMALL],
            [],
            "one problem, 8192x8192x1x8192, takes 99 % of its time: its solu",
        ),
        ([SMALL, BIG], ["--keep-sizes-whole"], "stay on one device: --keep-sizes-whole"),
        ([BIG] * 8, [], ""),
    ],
)
def test_giantSizes(tmp_path, sizes, option, says):
    """One size that takes most of a step is named, with what becomes of it."""
    config = write(tmp_path / "c.yaml", sizes, [MANY])
    plan = planOf(config, "--emulate", 4, *option)
    assert says in " ".join(plan.warnings) and bool(says) == bool(plan.warnings)
    (step,) = plan.steps
    assert step.isSplit == bool(says and not option)
    if not option and len(sizes) == 1:
        alone = " ".join(planOf(write(tmp_path / "c.yaml", sizes), "--emulate", 4).warnings)
        assert "has one solution: there is nothing to split" in alone and "short" not in alone
    if option:
        assert step.parallelSeconds >= step.serialSeconds
    elif says:
        assert {first.unit.firstProblem for first in step.first} == {sizes.index(BIG)}
        assert all(first.unit.solutionCount < 2000 for first in step.first)


def test_whatKeepsRowsOrStepsWhole(tmp_path):
    """Several passes keep rows whole; a grouped GEMM goes to one device with all its sizes."""
    config = write(tmp_path / "c.yaml", [BIG, SMALL], [MANY], {"NumBenchmarks": 2})
    plan = planOf(config, "--emulate", 4)
    assert plan.steps[0].rowsWhole and "several passes" in " ".join(plan.warnings)
    config = write(tmp_path / "c.yaml", [BIG, BIG], [MANY], kind={"GroupedGemm": True})
    plan = planOf(config, "--emulate", 4, "--tensile-root", TREE)
    assert plan.steps[0].step.problems == 1 and not plan.steps[0].first
    assert "whole to one device: grouped GEMM" in " ".join(plan.warnings)
    one = write(tmp_path / "c.yaml", [BIG], [MANY], kind={"GroupedGemm": True})
    single = planOf(one, "--tensile-root", TREE)
    assert plan.steps[0].serialSeconds > 1.9 * single.steps[0].serialSeconds


# -- devices ------------------------------------------------------------------------------------


def test_devicesThatAreThere(tmp_path):
    """The kernel's topology is enough; no runtime is asked, and masks count."""
    makeMachine(tmp_path / "root", 3)

    class Asked(System):
        def hipProbe(self, *_, **__):
            raise AssertionError("a runtime was started for a plan")

    config = write(tmp_path / "c.yaml", parameters={"DeviceList": [-1]})
    plan = planOf(config, system=Asked(str(tmp_path / "root"), {"HIP_VISIBLE_DEVICES": "0,2"}))
    assert [d.ordinal for d in plan.devices.devices] == [0, 1] and not plan.devices.assumed
    assert not plan.devices.serial and "gfx90a" in planText(plan)
    assert planJson(plan)["devices"]["architectures"] == ["gfx90a"]
    plan = planOf(config, "--devices", "0,7", system=Asked(str(tmp_path / "root"), {}))
    assert [d.ordinal for d in plan.devices.devices] == [0]
    assert "device 7 is not available" in " ".join(plan.warnings)


def test_mixedArchitecturesAreAWarning(tmp_path):
    """A run would be refused; the plan says so and goes on."""
    makeMachine(tmp_path / "root", 1)
    other = ("gfx942", 90402, 304, "AMD Instinct MI300X")
    makeMachine(tmp_path / "root", 1, first=1, kind=other)
    config = write(tmp_path / "c.yaml", parameters={"DeviceList": [-1]})
    plan = planOf(config, system=NoHip(str(tmp_path / "root"), {}))
    assert "would be refused: DeviceList mixes architectures" in " ".join(plan.warnings)
    assert len(plan.devices.devices) == 2


def test_devicesThatAreNotThere(tmp_path):
    """Named ones are counted with; for "all" and for no list there is an example, which is said."""
    config = write(tmp_path / "c.yaml")
    plan = planOf(config)
    assert [d.ordinal for d in plan.devices.devices] == [0, 1, 2, 3] and plan.devices.assumed
    assert "a run here would be serial Tensile: no AMD GPU" in planText(plan).replace("\n", " ")
    everything = planOf(write(tmp_path / "c.yaml", parameters={"DeviceList": [-1]}))
    assert len(everything.devices.devices) == EXAMPLE_DEVICES
    assert "an example" in planText(everything)
    nothing = planOf(write(tmp_path / "c.yaml", parameters={"DeviceList": None}))
    assert "DeviceList names no device" in nothing.devices.serial
    assert "serial" in planText(nothing) and nothing.steps[0].parallelSeconds
    assert planOf(config, "--cpu-only").devices.serial.startswith("--cpu-only")


# -- what else a person is told ------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, says",
    [
        ({}, ""),
        ({"LibraryLogic": "absent"}, "there is no LibraryLogic: no library logic will be written"),
        ({"PinClocks": True}, "PinClocks is turned off"),
        ({"Device": 2}, "Device is overruled"),
        ({"twice": True}, "have the same problem type"),
        ({"JoinParameters": [1]}, "step 1: Tensile no longer supports JoinParameters: a run"),
        ({"GroupForkParameters": [[1]]}, "step 1: Tensile reads no GroupForkParameters"),
        ({"Conv": True}, "step 1: its time is not known"),
        ({"LibraryClient": None}, "LibraryClient runs one more step"),
        ({"BenchmarkProblems": None}, "there are no BenchmarkProblems"),
    ],
)
def test_warnings(tmp_path, change, says):
    """Each of these has its line, and a good config has none."""
    config = yaml.safe_load(write(tmp_path / "c.yaml", [BIG] * 8, [MANY]).read_text())
    kind, group = config["BenchmarkProblems"][0]
    for key, value in change.items():
        if key == "LibraryLogic":
            del config[key]
        elif key == "twice":
            config["BenchmarkProblems"] *= 2
        elif key == "Conv":
            kind["OperationType"] = "ConvolutionForward"
        elif key in ("PinClocks", "Device"):
            config["GlobalParameters"][key] = value
        elif key in ("LibraryClient", "BenchmarkProblems"):
            config[key] = value
        else:
            group[key] = value
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    plan = planOf(tmp_path / "c.yaml", "--emulate", 4)
    assert says in "\n".join(plan.warnings)
    assert bool(says) == bool(plan.warnings)
    text = " ".join(planText(plan).split())
    assert says in text
    json.dumps(planJson(plan))


def test_theClockThatAHostAsksFor(tmp_path):
    """A tree that asks for it, devices whose clock nobody knows: said before, not after minutes."""
    tree = tmp_path / "host" / "tensilelite"
    shutil.copytree(HOST, tmp_path / "host")
    with open(tree / "Tensile" / "Tensile.py", "a") as stream:
        stream.write("\ndef get_gpu_max_frequency(device):\n    pass\n")
    config = write(tmp_path / "c.yaml", parameters={"UseEffLike": True})
    said = " ".join(planOf(config, "--tensile-root", tree).warnings)
    assert "--max-frequency" in said
    for option in (["--max-frequency", 1700], ["--emulate", 2]):
        plan = planOf(config, "--tensile-root", tree, *option)
        assert "--max-frequency" not in " ".join(plan.warnings)


def test_oneLineForWhatCannotBePlanned(tmp_path, runScript):
    """A config that is missing, no YAML, no mapping, or with a bad list: exit 2 and one line."""
    bad = {
        "tab.yaml": "GlobalParameters:\n\tDeviceList: [0]\n",
        "list.yaml": "- 1\n",
        "device.yaml": "GlobalParameters: {DeviceList: [true]}\n",
        "empty.yaml": "",
    }
    for name, text in bad.items():
        (tmp_path / name).write_text(text)
    for name in [*bad, "missing.yaml"]:
        with pytest.raises(InputError) as error:
            planOf(tmp_path / name)
        assert "\n" not in str(error.value) and name in str(error.value)
    with pytest.raises(InputError, match="there is a word too many: 'extra'"):
        planOf(QUICK, "out", "extra")
    with pytest.raises(InputError, match="not a Tensile tree"):
        planOf(QUICK, "--tensile-root", tmp_path)
    done = runScript("TensileParallel", "--plan", tmp_path / "tab.yaml", "out", cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and "tab.yaml cannot be read" in done.stderr
    assert "(line 2, column 1)" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text",
    [
        "GlobalParameters: 5\nBenchmarkProblems: 7\n",
        "BenchmarkProblems: [5, [], [1, 2]]\n",
        "BenchmarkProblems:\n- - {OperationType: GEMM, DataType: s, UseBeta: true, Batched: true}\n"
        "  - BenchmarkFinalParameters:\n    - ProblemSizes:\n      - Exact: [4, .inf, 1, .nan]\n",
    ],
)
@pytest.mark.parametrize("emulated", [False, True])
def test_oddShapesAreNoTraceback(tmp_path, text, emulated):
    """What a config should not be is planned as far as it goes."""
    (tmp_path / "odd.yaml").write_text(text)
    options = ["--emulate", "2"] if emulated else []
    try:
        planText(planOf(tmp_path / "odd.yaml", *options))
    except InputError as error:
        assert "\n" not in str(error)


SIZES = {"BenchmarkFinalParameters": [{"ProblemSizes": [{"Exact": [8, 8, 1, 8]}]}]}


@pytest.mark.parametrize(
    "entry, says",
    [
        ([3, 4], "the problem type is the value 3, not a mapping"),
        ([], "the entry is an empty list"),
        ({"a": 1}, "the entry is a mapping, not a list"),
        ([GEMM, 5], "the group is the value 5"),
        ([GEMM, {"BenchmarkFinalParameters": {}}], "FinalParameters is a mapping, not a list"),
        ([GEMM, {"BenchmarkFinalParameters": [{}]}], "has no ProblemSizes"),
        ([GEMM, {"BenchmarkFinalParameters": [{"ProblemSizes": 5}]}], "ProblemSizes is the value"),
        ([GEMM, {**SIZES, "ForkParameters": {"DepthU": [8]}}], "ForkParameters is a mapping"),
        ([GEMM, {**SIZES, "ForkParameters": "x" * 99}], "ForkParameters is the value 'xxx"),
        ([GEMM, {**SIZES, "ForkParameters": [{"DepthU": 16}]}], "DepthU in ForkParameters is the"),
        (
            [GEMM, {"BenchmarkFinalParameters": [{"ProblemSizes": [{"Exact": [64.5, 1, 1, 1]}]}]}],
            "64.5 in an Exact of ProblemSizes is no whole number",
        ),
    ],
)
def test_otherShapesInPlainWords(tmp_path, entry, says):
    """What Tensile would end at is named with its place: alone it is refused, beside steps that
    can be planned it is a note; neither speaks Python."""
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"BenchmarkProblems": [entry]}))
    with pytest.raises(InputError, match="c.yaml: entry 1 of BenchmarkProblems, group 00: ") as odd:
        planOf(tmp_path / "c.yaml")
    assert says in str(odd.value) and len(str(odd.value)) < 200 + len(str(tmp_path))
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"BenchmarkProblems": [[GEMM, SIZES], entry]}))
    (note,) = [each for each in planOf(tmp_path / "c.yaml").warnings if each.startswith("step 2: ")]
    assert says in note and note.endswith(": a run would end there")


def test_aNoteNamesFewSteps(tmp_path):
    """Hundreds of steps of which the same is true are counted."""
    config = {"BenchmarkProblems": [[GEMM, SIZES, *[5] * 300]]}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    notes = planOf(tmp_path / "c.yaml").warnings
    assert [each[:47] for each in notes if "the group" in each] == [
        "steps 2, 3, 4, 5, 6, 7, 8, 9 and 292 more: the "
    ]


@pytest.mark.parametrize(
    "parameters, says",
    [
        ({"NumBenchmarks": "abc"}, "c.yaml: NumBenchmarks is 'abc', not a whole number"),
        ({"NumBenchmarks": -5}, "c.yaml: NumBenchmarks is -5, which is too small"),
        ({"SleepPercent": float("nan")}, "c.yaml: SleepPercent is nan, not a whole number"),
    ],
)
def test_parametersThatAreNoNumbers(tmp_path, parameters, says):
    """Named as the user wrote them, with the file."""
    with pytest.raises(InputError, match=says):
        planOf(write(tmp_path / "c.yaml", parameters=parameters))
    with pytest.raises(InputError, match="--global-parameters: NumWarmups is 'x', not a whole"):
        planOf(write(tmp_path / "c.yaml"), "--global-parameters", "NumWarmups=x")


@pytest.mark.parametrize(
    "line, says",
    [
        ("--plan", "--plan CONFIG"),
        ("--plan c.yaml --doctor", "one at a time"),
        ("c.yaml out --json", "--plan"),
        ("--doctor --json", "--plan"),
        ("--plan=yes c.yaml", "--plan"),
        ("--plan c.yaml --emulate 100000", "from 1 to 99999"),
    ],
)
def test_optionsThatMakeNoSense(line, says):
    """Refused with a line, not guessed at."""
    with pytest.raises(InputError, match=says):
        parseRunArguments(line.split())


@ownCheckout
def test_theCommand(tmp_path, runScript):
    """As a real process: JSON and text with exit 0, and no folder is made."""
    done = runScript("TensileParallel", QUICK, "out", "--plan", "--json", cwd=tmp_path)
    assert done.returncode == 0 and not done.stderr
    told = json.loads(done.stdout)
    assert told["hostMissing"].startswith("no Tensile tree") and told["host"] is None
    assert told["out"] == str(tmp_path / "out")
    assert [step["problems"] for step in told["steps"]] == [5, 10, 5]
    assert not list(tmp_path.glob("out*"))


def test_theAlternateFormat(tmp_path):
    """Two files, with and without an output folder, and one file alone."""
    config, sizes = tmp_path / "alternate.yaml", tmp_path / "sizes.yaml"
    config.write_text(
        yaml.safe_dump({"ProblemType": GEMM, "ForkParameters": [{"DepthU": [8, 16]}]})
    )
    sizes.write_text("- Exact: [1, 1, 1, 1]\n- Range: [[8, 16], [8], [1], [8]]\n")
    for words in ([config, sizes, tmp_path / "out"], [config, sizes]):
        plan = planOf(*words, "--alternate-format", "--emulate", 2)
        assert [step.step.problems for step in plan.steps] == [3]
        assert plan.steps[0].solutions == 2
        assert bool(plan.settings.out) == (len(words) == 3)
    alone = planOf(config, "--alternate-format", "--emulate", 2)
    assert [step.step.problems for step in alone.steps] == [0]
    assert "there is no work" in " ".join(alone.warnings)


@ownCheckout
def test_withoutAHostWhatItKnowsIsSaid(tmp_path):
    """A config of every custom kernel has no bound without the tree that holds them."""
    config = yaml.safe_load(write(tmp_path / "c.yaml").read_text())
    config["BenchmarkProblems"][0][1]["CustomKernels"] = ["*"]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    plan = planOf(tmp_path / "c.yaml")
    assert plan.host is None and plan.steps[0].solutions is None
    text = " ".join(planText(plan).split())
    assert "No Tensile tree was found" in text and "every custom kernel" in text
    told = planJson(plan)
    assert not told["seconds"]["complete"] and told["steps"][0]["seconds"]["serial"] is None


def places(node, path=()):
    """The path of every part of a config."""
    yield path
    for key in node if isinstance(node, dict) else range(len(node) if type(node) is list else 0):
        yield from places(node[key], (*path, key))


ODD = [None, 5, -1, 10**30, 1.5, True, "x", "nan", [], [1], [[]], {}, {"a": 1}, {1: 2}]
EVERYTHING = {
    "GlobalParameters": {"SortProblems": True, "NumBenchmarks": 1, "SleepPercent": 5},
    "BenchmarkProblems": [
        [
            dict(GEMM, UseBias=3, UseScaleAlphaVec=3, Activation=True, ActivationType="all"),
            {
                "BenchmarkCommonParameters": [{"KernelLanguage": ["Assembly"]}],
                "ForkParameters": [{"DepthU": [8, 16]}, {"Groups": [[{"a": 1}]]}],
                "CustomKernels": ["one"],
                "BenchmarkFinalParameters": [
                    {"ProblemSizes": [{"Exact": [8, 8, 1, 8]}, {"Range": [[8, 16], 0, [1], 0]}]},
                    *ARGS,
                ],
            },
        ]
    ],
    "LibraryLogic": {"ArchitectureName": "gfx90a"},
}

TO_SIZES = ("BenchmarkProblems", 0, 1, "BenchmarkFinalParameters", 0, "ProblemSizes")


@settings(max_examples=60, deadline=None)
@example(path=("BenchmarkProblems", 0, 0), odd={1: 2})
@example(path=(*TO_SIZES, 0, "Exact", 2), odd=-1)
@given(path=st.sampled_from(list(places(EVERYTHING))[1:]), odd=st.sampled_from(ODD))
def test_anyShapeOfConfigHasAPlan(tmp_path_factory, path, odd):
    """One part of a config replaced by something else: a plan or one line, never a traceback."""
    config = json.loads(json.dumps(EVERYTHING))
    node = config
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = odd
    file = tmp_path_factory.getbasetemp() / "odd.yaml"
    file.write_text(yaml.safe_dump(config))
    try:
        plan = planOf(file, "--emulate", 2)
    except InputError as error:
        assert "\n" not in str(error)
        return
    assert planText(plan) and json.dumps(planJson(plan))


@pytest.mark.parametrize("edge", [64, 16384])
def test_everyLineFitsATerminal(tmp_path, monkeypatch, edge):
    """80 columns, with long types, many numbers, and lists that multiply the sizes."""
    kind = dict(UseBias=3, UseScaleAlphaVec=3, Activation=True, ActivationType="all", Sparse=1)
    sizes = [(edge, edge, 1, edge + n) for n in range(300)]
    path = write(tmp_path / "c.yaml", sizes, [{"a": list(range(999))}, MANY], kind=kind)
    config = yaml.safe_load(path.read_text())
    config["BenchmarkProblems"][0][1]["BenchmarkFinalParameters"] += ARGS
    path.write_text(yaml.safe_dump(config))
    monkeypatch.chdir(tmp_path)
    plan = planOf("c.yaml", "--emulate", 16, "--tensile-root", TREE)
    assert plan.steps[0].step.problems == 300 * 8
    for line in planText(plan).split("\n"):
        assert len(line) <= 80 and line == line.rstrip(), line


# -- real configs -------------------------------------------------------------------------------


def realConfigs():
    """What COUNTS.json says, per config."""
    return json.loads((Path(REAL_CONFIGS) / "COUNTS.json").read_text())


@real
@pytest.mark.parametrize("withHost", [True, False])
def test_plansOfRealConfigs(withHost):
    """The counts of a real Tensile per step, two seconds of CPU each; one line for bad files."""
    checked = refused = 0
    for name, content in realConfigs().items():
        host = ["--tensile-root", HOST / name.split("/")[0]] if withHost else []
        begun = time.process_time()
        try:
            plan = planOf(Path(REAL_CONFIGS) / name, *host)
        except InputError as error:
            assert "\n" not in str(error) and all(
                "error" in each for each in content["steps"]
            ), name
            refused += 1
            continue
        for line in planText(plan).split("\n"):
            # Nothing but a path or a file's name is longer than a line.
            assert len(line) <= 80 or max(map(len, line.split())) > 60, line
        json.dumps(planJson(plan))
        assert time.process_time() - begun < 2, name
        told = content["steps"]
        assert [(each.step.entry, each.step.group) for each in plan.steps] == [
            (each["type"], each["group"]) for each in told
        ], name
        for each, counts in zip(plan.steps, told):
            if "error" not in counts:
                assert each.step.sizes == counts["problems"], (name, each.step)
                checked += 1
    assert checked > 100 and refused == 3


@real
def test_iniOfRealConfigs(askHost):
    """What is expected of the INI is what the stand-in writes, for every step that it accepts."""
    checked = 0
    for name, content in realConfigs().items():
        generation = name.split("/")[0]
        try:
            config = yaml.safe_load((Path(REAL_CONFIGS) / name).read_bytes())
        except yaml.YAMLError:
            continue
        classic = generation == "classic"
        parameters = (config.get("GlobalParameters") or {}) if isinstance(config, dict) else {}
        for step in configSteps(config, classic):
            kind, group = config["BenchmarkProblems"][step.entry][0], None
            group = groupOf(config["BenchmarkProblems"][step.entry], step.group) or {}
            expected, why = expectedIni(config, step, parameters.get, {}, classic)
            few = (forkedSolutions(group).most or 0) < 5000
            made = askHost(generation).ask(kind, group, {}, count=few)
            if "error" in made or why:
                continue
            written = readClientConfig(made["ini"])
            for key in ("problem-identifier", "problem-size", "a-type", "b-type", "d-type"):
                assert expected.getAll(key) == written.getAll(key), (name, key)
            assert expected.problemCount == written.problemCount, name
            assert made["solutions"] <= forkedSolutions(group).most, name
            checked += 1
    assert checked > 100
