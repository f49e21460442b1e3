# SPDX-License-Identifier: MIT
"""TensileLite 2026, of which no tree can be run here: a stand-in for what its source says.

Its shapes are those of ROCm/rocm-libraries, projects/hipblaslt/tensilelite: Tensile.py,
ClientWriter.py, BenchmarkProblems.py, ParallelExecution.py and Common/GlobalParameters.py.
"""

import json
import os
import shutil
import textwrap
import zlib

import msgpack
import pytest
import yaml
from test_Run import (
    DATA_2024,
    EMULATED_CLIENT,
    runIt,
    setParameters,
    summaryOf,
    writeConfig,
)

from Tensile.Parallel.SolutionNames import readSolutionNames

PARAMETERS = """
class ConfigTypeError(TypeError):
    pass


globalParameters = {"ParallelGpuExecution": 1, "MinimumRequiredVersion": "", "KernelTime": False}
globalParameters.update(NumElementsToValidate=0, CSVExportWinner=0, CSVMergeSameProblemID=0)
globalParameters.update(UseEffLike=False, PinClocks=False, ForceRedoBenchmarkProblems=True)
defaultGlobalParameters = dict(globalParameters)


def assignGlobalParameters(config):
    for key, value in config.items():
        if key in ("Architecture", "Device", "MinimumRequiredVersion"):
            continue
        if key not in globalParameters:
            raise ConfigTypeError("Unknown global parameter '%s' = %r." % (key, value))
        default = globalParameters[key]
        if default is not None and type(value) is not type(default):
            raise ConfigTypeError("GlobalParameters.%s" % key)
        globalParameters[key] = value
"""

# One step with the recorded INI, in the folders of 2026, by a run.sh as it writes it.
MAIN = """
import argparse, ast, json, os, shutil, subprocess, sys
import yaml
from Tensile.Common.GlobalParameters import assignGlobalParameters, globalParameters

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT = os.path.join(os.path.dirname(HERE), "build_tmp/tensilelite/client/tensilelite-client")


def pair(text):
    key, value = text.split("=", 1)
    return key, ast.literal_eval(value)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("out")
    parser.add_argument("--gpu-targets")
    parser.add_argument("--prebuilt-client", default=CLIENT, type=os.path.abspath)
    parser.add_argument("--global-parameters", nargs="+", type=pair, action="extend", default=[])
    arguments = parser.parse_args()
    with open(arguments.config) as stream:
        assignGlobalParameters(yaml.safe_load(stream)["GlobalParameters"])
    globalParameters.update(arguments.global_parameters)
    group = os.path.join(os.path.abspath(arguments.out), "1_BenchmarkProblems", "Cijk_00")
    source = os.path.join(group, "00_Final", "caches", "0123abcd", "source")
    library = os.path.join(source, "library", "gfx90a")
    for folder in (library, os.path.join(group, "Data"), os.path.join(group, "00_Final", "build")):
        os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(HERE, "TensileLibrary.dat.zlib"), library)
    with open(os.path.join(HERE, "ClientParameters.ini")) as stream:
        text = stream.read().replace("@LIBRARY@", os.path.join(library, "TensileLibrary.dat"))
    results = os.path.join(group, "00_Final", "../Data/00_Final.csv")
    ini = os.path.join(source, "ClientParameters.ini")
    with open(ini, "w") as stream:
        stream.write(text.replace("@RESULTS@", results))
    with open(os.path.join(arguments.out, "told.json"), "w") as stream:
        gpus = globalParameters["ParallelGpuExecution"]
        json.dump({"gpus": gpus, "targets": arguments.gpu_targets}, stream)
    script = os.path.join(group, "00_Final", "build", "run.sh")
    with open(script, "w") as stream:
        line = "%s --config-file %s --timing-instrumentation --mx-scale-format 1"
        stream.write("#!/bin/bash\\nset +e\\n" + line % (arguments.prebuilt_client, ini))
    os.chmod(script, 0o755)
    status = subprocess.call([script], cwd=os.path.dirname(script))
    data = os.path.join(arguments.out, "2_BenchmarkData")
    os.makedirs(data, exist_ok=True)
    shutil.copy(results, os.path.join(data, "Cijk_00.csv"))
    sys.exit(1 if status else 0)
"""


@pytest.fixture
def tree(tmp_path):
    """A tree of 2026's files, with a recorded step to run."""
    tree = tmp_path / "tensilelite"
    package = tree / "Tensile"
    (package / "Common").mkdir(parents=True)
    (package / "bin").mkdir()
    (package / "__init__.py").write_text('__version__ = "5.0.0"\n')
    (package / "Common" / "__init__.py").write_text("")
    (package / "Common" / "GlobalParameters.py").write_text(PARAMETERS)
    (package / "Tensile.py").write_text(textwrap.dedent(MAIN))
    (package / "bin" / "Tensile").write_text("from Tensile.Tensile import main\nmain()\n")
    names = readSolutionNames(DATA_2024 / "library" / "TensileLibrary.yaml")
    library = {"solutions": [{"index": k, "name": name} for k, name in enumerate(names)]}
    (package / "TensileLibrary.dat.zlib").write_bytes(zlib.compress(msgpack.packb(library)))
    lines = (DATA_2024 / "full" / "ClientParameters.ini").read_text().splitlines()
    own = ("library-file=", "results-file=", "code-object=")
    lines = [line for line in lines if not line.startswith(own)]
    lines += ["library-file=@LIBRARY@", "results-file=@RESULTS@"]
    (package / "ClientParameters.ini").write_text("\n".join(lines) + "\n")
    return tree


def testAStepOf2026(tree, tmp_path):
    """Its library's logical name, its folders, its client's switches; nothing is split twice."""
    config = writeConfig(tmp_path, setParameters(ParallelGpuExecution=8))
    out = tmp_path / "out"
    result = runIt(config, out, "--emulate", 2, "--tensile-root", tree)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "ParallelGpuExecution is overruled" in result.stderr
    told = json.loads((out / "merged_output" / "told.json").read_text())
    assert told == {"gpus": 1, "targets": None}  # emulated devices have no architecture
    (step,) = summaryOf(out)["steps"]
    assert (step["problemType"], step["step"], step["whole"]) == ("Cijk", "00_Final", None)
    table = (out / "merged_output/2_BenchmarkData/Cijk_00.csv").read_text()
    assert table.count("\n") == 1 + step["problems"] and step["solutions"] == 24


def testItsOwnClientIsTheDefault(tree, tmp_path):
    """It builds none: without one the run is refused before it starts, naming the place."""
    config = writeConfig(tmp_path)
    built = tree / "build_tmp" / "tensilelite" / "client" / "tensilelite-client"
    from FakeHip import FakeHipUnavailable, buildFakeHip, fakeHipEnvironment

    try:
        library = buildFakeHip(str(tmp_path / "hip"))
    except FakeHipUnavailable as error:
        pytest.skip(str(error))
    os.chmod(tmp_path, 0o700)
    environment = fakeHipEnvironment(os.environ, library, ["gfx90a:0000:03:00.0"])
    environment.update(TENSILE_EMULATED_DEVICES="1", XDG_RUNTIME_DIR=str(tmp_path))
    out = tmp_path / "out"
    base = [config, out, "--tensile-root", tree, "--devices", "0"]
    result = runIt(*base, environment=environment)
    assert result.returncode == 2 and str(built) in result.stderr and not out.exists()
    built.parent.mkdir(parents=True)
    shutil.copy(EMULATED_CLIENT, built)
    # The copy is away from what it imports, so a script stands in for it.
    built.write_text('#!/bin/sh\nexec %s "$@"\n' % EMULATED_CLIENT)
    result = runIt(*base, environment=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert summaryOf(out)["client"] == str(built)
    told = json.loads((out / "merged_output" / "told.json").read_text())
    assert told == {"gpus": 1, "targets": "gfx90a"}


@pytest.mark.parametrize("value", [None, []])
def testAnEmptyDeviceListDoesNotStopIt(tree, tmp_path, value):
    """Stock 2026 refuses a DeviceList whatever it is; with us it runs, parallel or serial."""
    config = writeConfig(tmp_path)
    content = yaml.safe_load(config.read_text())
    content["GlobalParameters"]["DeviceList"] = value
    config.write_text(yaml.safe_dump(content))
    base = [config, tmp_path / "out", "--emulate", 1, "--tensile-root", tree]
    serial = runIt(*base)
    assert serial.returncode == 0, serial.stderr
    assert "DeviceList names no device" in serial.stderr
    assert (tmp_path / "out" / "2_BenchmarkData" / "Cijk_00.csv").exists()
    parallel = runIt(*base[:1], tmp_path / "parallel", *base[2:], "--devices", "0")
    assert parallel.returncode == 0, parallel.stdout + parallel.stderr


def testCpuOnlyIsSerial(tree, tmp_path):
    """It measures on no GPU, so there is nothing to spread."""
    config = writeConfig(tmp_path)
    result = runIt(config, tmp_path / "out", "--emulate", 2, "--cpu-only", "--tensile-root", tree)
    assert "--cpu-only measures on no GPU" in result.stderr
    assert "unrecognized arguments: --cpu-only" in result.stderr  # this stand-in has it not
