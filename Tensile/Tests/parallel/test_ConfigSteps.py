# SPDX-License-Identifier: MIT
"""Tuning configs: which steps and problems they make, and how odd or old ones end.

TENSILE_PARALLEL_TEST_CONFIGS may name a folder of real configs with a COUNTS.json, which says for
each what a real Tensile counts: {"tensilelite/NAME.yaml": {"steps": [{"type": 0, "group": 0,
"problems": 27, "bias": 1, "activation": 1, "factor": 0, "icache": 1}, {..., "error": "..."}]}}.
A name's first folder is the generation. They are not part of this repository.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from Tensile.Parallel.ConfigSteps import ConfigStep, configSteps, readConfig

pytestmark = pytest.mark.unit

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[2] / "Tensile" / "bin"
REAL_CONFIGS = os.environ.get("TENSILE_PARALLEL_TEST_CONFIGS")

GEMM = {"OperationType": "GEMM", "DataType": "h", "Batched": True}
ONE = [{"Exact": [8, 8, 1, 8]}]


def counted(problemType, *finals, classic=False, **group):
    """The one step of a config with one group."""
    if finals:
        group["BenchmarkFinalParameters"] = list(finals)
    (step,) = configSteps({"BenchmarkProblems": [[problemType, group]]}, classic)
    return step


def test_listsMultiplyTheProblems():
    """Bias types and activations always, factor dims only for types with both of them."""
    lists = [
        {"BiasTypeArgs": ["h", "s"]},
        {"ActivationArgs": [[{"Enum": "none"}], [{"Enum": "relu"}], [{"Enum": "gelu"}]]},
        {"FactorDimArgs": [0, 1]},
        {"ICacheFlush": [False, True]},
    ]
    sizes = {"ProblemSizes": ONE + [{"Range": [[64, 64, 128], [64], [1], [64]]}]}
    kind = dict(GEMM, UseBias=3, Activation=True, ActivationType="all")
    step = counted(kind, sizes, *lists)
    assert step == ConfigStep(0, 0, 3, 2, 3, 2, 2, bothFactors=True)
    assert step.problems == 3 * 2 * 3 * 2
    assert counted(dict(kind, UseBias=1), sizes, *lists).problems == 3 * 2 * 3
    assert counted(dict(kind, UseBias=0), sizes, *lists).problems == 3 * 3
    assert counted(dict(kind, UseBias=0, UseScaleAlphaVec=3), sizes, *lists).problems == 3 * 3 * 2
    assert counted(GEMM, sizes, *lists).problems == 3
    assert counted(kind, sizes, *lists, classic=True).problems == 3
    assert counted(dict(kind, GroupedGemm=True), sizes, *lists).problems == 1


def test_sizesThatAreNotGiven():
    """A group without sizes has the host's default ones; null or an empty list none at all."""
    bare = configSteps({"BenchmarkProblems": [[GEMM], [{"DataType": "s"}]]})
    assert [(step.entry, step.group, step.sizes) for step in bare] == [(0, 0, 4), (1, 0, 4)]
    assert counted(GEMM, {"ProblemSizes": None}).problems == 0
    assert counted(GEMM, {"ProblemSizes": []}).problems == 0
    # The first value of a range is there even if it lies beyond the last.
    assert counted(GEMM, {"ProblemSizes": [{"Range": [[128, 64, 64], [1], [1], [1]]}]}).sizes == 1


@pytest.mark.parametrize(
    "config, remarks",
    [
        (None, []),
        ([1], []),
        ({"BenchmarkProblems": None}, []),
        ({"BenchmarkProblems": 5}, []),
        ({"BenchmarkProblems": [5, [], [None, {}], [[1], {}]]}, ["shape"] * 4),
        ({"BenchmarkProblems": [[GEMM, 5]]}, ["shape"]),
        ({"BenchmarkProblems": [[GEMM, {"BenchmarkFinalParameters": None}]]}, ["is empty"]),
        ({"BenchmarkProblems": [[GEMM, {"InitialSolutionParameters": [1]}]]}, ["no longer"]),
    ],
)
def test_whatCannotBeCountedSaysWhy(config, remarks):
    """Any shape of config is answered, and one remark belongs to one step."""
    steps = configSteps(config)
    assert len(steps) == len(remarks)
    for step, remark in zip(steps, remarks):
        assert remark in step.remark


@pytest.mark.parametrize("sizes", [5, [5], [{"Range": 5}], [{"Range": [[0, 8]]}], [{"New": []}]])
def test_sizesThatCannotBeTold(sizes):
    """Not a guess: None, with the reason."""
    step = counted(GEMM, {"ProblemSizes": sizes})
    assert step.sizes is None and step.problems is None and "cannot be told" in step.remark


def run(script, *arguments, folder, **environment):
    """(exit status, output): of one of our commands, or of the stand-in host."""
    search = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PATH": search, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=600,
    )
    return done.returncode, done.stdout


def hostTree(generation):
    """A stand-in host."""
    return HERE / "host" / generation


# Anchors, an alias, a merge key, DeviceList and a section given twice, keys that nobody knows,
# TestParameters, a BOM, CRLF and letters beyond ASCII: all of it is good YAML to PyYAML.
ODD = """\ufeff# für Ümlaute
GlobalParameters: {DeviceList: [7]}
TestParameters:
  marks: [skip-gfx906]
GlobalParameters:
  MinimumRequiredVersion: 4.14.0
  DeviceList: [9]
  DeviceList: [0, 1]
  Architecture: gfx90a
  NumElementsToValidate: 0
  Ключ: значение
SomethingElse: [1]
Defaults: &sizes
  BenchmarkFinalParameters:
    - ProblemSizes:
      - Exact: [64, 64, 1, 64]
      - Exact: [128, 64, 1, 64]
BenchmarkProblems:
  - - &type {OperationType: GEMM, DataType: s, UseBeta: True, Batched: True}
    - &group
      ForkParameters: [MatrixInstruction: [[16, 16, 4, 1, 1, 2, 2, 2, 2]]]
      <<: *sizes
    - *group
  - - {<<: *type, TransposeA: True}
    - *group
"""


def test_oddYamlRunsAsInTensile(tmp_path):
    """One run: the last of two equal keys counts, and every group of the config is measured."""
    config = tmp_path / "config.yaml"
    config.write_bytes(ODD.replace("\n", "\r\n").encode())
    steps = configSteps(readConfig(str(config)))
    assert [(step.entry, step.group, step.problems) for step in steps] == [
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 2),
    ]
    arguments = [config, "out", "--emulate", 2, "--tensile-root", hostTree("tensilelite")]
    status, output = run(SCRIPTS / "TensileParallel", *arguments, folder=tmp_path)
    assert status == 0, output
    told = [
        json.loads(path.read_text()) for path in (tmp_path / "out").glob("outputs/*/*/step.json")
    ]
    assert [step["problems"] for step in told] == [2, 2, 2]
    for ordinal in (0, 1):
        part = yaml.safe_load((tmp_path / "out" / ("config_gpu_%d.yaml" % ordinal)).read_text())
        assert part["GlobalParameters"]["Ключ"] == "значение" and "TestParameters" in part


@pytest.mark.parametrize(
    "text",
    [
        "GlobalParameters:\n\tDeviceList: [0, 1]\n",
        "",
        "GlobalParameters: {MinimumRequiredVersion: 99.0.0, DeviceList: [0, 1]}\n",
        "GlobalParameters: {DeviceList: [0, 1]}\nBenchmarkProblems: [[null, {}]]\n",
        "GlobalParameters: {DeviceList: [0, 1]}\nx: !!int ''\n",
    ],
    ids=["tab", "empty", "newer", "misshapen", "PyYAML's IndexError"],
)
def test_theHostsOwnErrorIsShown(tmp_path, text):
    """The line that stock Tensile ends with is shown or in the log, and no traceback of ours."""
    config = tmp_path / "config.yaml"
    config.write_text(text)
    host = hostTree("tensilelite")
    client = ["--prebuilt-client", SCRIPTS / "TensileEmulatedClient"]
    stock, output = run(
        host / "Tensile/bin/Tensile",
        config,
        "stock",
        *client,
        folder=tmp_path,
        PYTHONPATH=str(host),
    )
    error = output.rstrip().splitlines()[-1]
    assert stock != 0
    arguments = [config, "out", "--emulate", 2, "--tensile-root", host]
    status, output = run(SCRIPTS / "TensileParallel", *arguments, folder=tmp_path)
    log = tmp_path / "out" / "tensile_parallel.log"
    output += log.read_text() if log.exists() else ""
    assert status != 0
    assert error in output
    assert_noTracebackOfOurs(output)


def test_alternateFormatIsCounted(tmp_path):
    """Sizes come from the second file; without one there are none."""
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"ProblemType": GEMM, "ForkParameters": []}))
    (tmp_path / "s.yaml").write_text("- Exact: [1, 1, 1, 1]\n- Range: [[8, 16], [8], [1], [8]]\n")
    config = readConfig(str(tmp_path / "a.yaml"), str(tmp_path / "s.yaml"), True)
    assert [step.problems for step in configSteps(config)] == [3]
    config = readConfig(str(tmp_path / "a.yaml"), None, True)
    assert [step.problems for step in configSteps(config)] == [0]


def assert_noTracebackOfOurs(output):
    """A traceback may only have frames of the host; its bootstrap calls it."""
    frames = [line for line in output.splitlines() if 'File "' in line and "/Parallel/" in line]
    assert not [frame for frame in frames if "HostBootstrap.py" not in frame], output


def realConfigs():
    """What COUNTS.json says, per config."""
    if REAL_CONFIGS is None:
        return {}
    return json.loads((Path(REAL_CONFIGS) / "COUNTS.json").read_text())


real = pytest.mark.skipif(REAL_CONFIGS is None, reason="TENSILE_PARALLEL_TEST_CONFIGS is not set")


@real
def test_realConfigsHaveTheProblemsThatTensileCounts():
    """Each step's sizes, and the lists that multiply them, are as many as in a real Tensile."""
    checked = 0
    for name, content in realConfigs().items():
        try:
            config = readConfig(str(Path(REAL_CONFIGS) / name))
        except yaml.YAMLError:
            assert not content["steps"]
            continue
        steps = configSteps(config, name.startswith("classic"))
        assert [(s.entry, s.group) for s in steps] == [
            (told["type"], told["group"]) for told in content["steps"]
        ], name
        for step, told in zip(steps, content["steps"]):
            if "error" in told:
                continue
            assert step.sizes == told["problems"], (name, step)
            lists = (step.biases, step.activations, step.factors, step.icache)
            names = ("bias", "activation", "factor", "icache")
            assert "bias" not in told or lists == tuple(told[key] for key in names), (name, step)
            checked += 1
    assert checked > 100


@real
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(realConfigs()) or ["none"])
def test_realConfigsRunOrShowTheHostsError(tmp_path, name):
    """On the stand-in of its generation: results and exit 0, or the host's error; never ours.

    With the first few solutions of each step: some of these configs fork ten thousand.
    """
    host = hostTree(name.split("/")[0])
    arguments = [Path(REAL_CONFIGS) / name, "out", "--devices", "0,1", "--emulate", 2]
    script = SCRIPTS / "TensileParallel"
    arguments += ["--tensile-root", host]
    few = {"TENSILE_STAND_IN_PERMUTATIONS": "3"}
    status, output = run(script, *arguments, folder=tmp_path, **few)
    log = tmp_path / "out" / "tensile_parallel.log"
    output += log.read_text(errors="replace") if log.exists() else ""
    assert_noTracebackOfOurs(output)
    steps = realConfigs()[name]["steps"]
    measured = list((tmp_path / "out").glob("merged_output/2_BenchmarkData/*.csv"))
    assert status != 0 or measured or not steps
