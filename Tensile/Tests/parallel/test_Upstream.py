# SPDX-License-Identifier: MIT
"""The patches for a Tensile tree, and the check of its library builds: tools/ of the checkout."""

import importlib.machinery
import importlib.util
import os
import shutil
import struct
import subprocess
import sys

import pytest
from conftest import HOST, ROOT
from Processes import runToEnd

TOOLS = ROOT / "tools"

pytestmark = [
    pytest.mark.skipif(
        not (ROOT / "TensileParallelCommands.py").is_file(),
        reason="these tests do not lie in TensileParallel's own checkout",
    ),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

# As real trees have them.
SETUP = """from setuptools import setup

setup(
  name="Tensile",
  entry_points={"console_scripts": [
    # user runs a benchmark
    "Tensile = Tensile.Tensile:main"
    ]}
  )
"""
MANIFEST = """recursive-include Tensile *.py *.yaml
include Tensile/bin/Tensile Tensile/bin/TensileCreateLibrary
"""
PARAMETER = 'globalParameters["Device"] = 0          # the device\ndefaultGlobalParameters = '


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A git checkout of the stand-in tree, made to look a little more like a real one."""
    shutil.copytree(HOST, tmp_path / "host", ignore=shutil.ignore_patterns("__pycache__"))
    tree = tmp_path / "host" / "tensilelite"
    (tree / "setup.py").write_text(SETUP)
    (tree / "MANIFEST.in").write_text(MANIFEST)
    (tree / "requirements.txt").write_text("pyyaml\njoblib\n")
    common = tree / "Tensile" / "Common.py"
    text = common.read_text()
    assert text.count("defaultGlobalParameters = ") == 1
    common.write_text(text.replace("defaultGlobalParameters = ", PARAMETER))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv("GIT_%s_NAME" % role, "Somebody")
        monkeypatch.setenv("GIT_%s_EMAIL" % role, "somebody@example.invalid")
    for words in (("init", "-q"), ("add", "-A", "-f"), ("commit", "-q", "-m", "the tree")):
        subprocess.run(["git", *words], cwd=tree.parent, check=True)
    return tree


def _run(*command, cwd=None):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return runToEnd(sys.executable, *command, cwd=cwd, environment=environment)


def test_theSeriesAppliesAndTheTreeBenchmarks(checkout, tmp_path):
    """`git am` takes every patch; then the tree's own names are where they were, Parallel.py is
    gone, DeviceList is the tree's own parameter, and a config runs on two devices."""
    made = _run(TOOLS / "upstreamPatch", checkout, tmp_path / "series")
    assert made.returncode == 0, made.stdout
    patches = made.stdout.split()
    assert len(patches) == 6
    words = ["git", "am", "-q", "--directory=tensilelite", *patches]
    subprocess.run(words, cwd=checkout.parent, check=True, stderr=subprocess.DEVNULL)
    left = ["git", "status", "--porcelain"]
    assert subprocess.run(left, cwd=checkout.parent, stdout=subprocess.PIPE).stdout == b""

    assert not (checkout / "Tensile" / "Parallel.py").exists()
    code = (
        "import pickle, sys; import Tensile.Parallel; assert 'joblib' not in sys.modules\n"
        "from Tensile.Parallel import ParallelMap, CPUThreadCount\n"
        "from Tensile import Common; assert Common.ParallelMap is ParallelMap\n"
        "assert pickle.loads(pickle.dumps(CPUThreadCount)) is CPUThreadCount\n"
        "print(ParallelMap.__module__, Common.defaultGlobalParameters['DeviceList'])"
    )
    seen = _run("-c", code, cwd=checkout)
    assert seen.stdout == "Tensile.ParallelMap []\n"
    for script in ("TensileParallel", "TensileParallelClient", "TensileEmulatedClient"):
        assert ' "%s = Tensile.Parallel.' % script in (checkout / "setup.py").read_text()
        assert " Tensile/bin/%s" % script in (checkout / "MANIFEST.in").read_text()
    assert (checkout / "requirements.txt").read_text() == "pyyaml\njoblib>=1.4\n"

    script = checkout / "Tensile" / "bin" / "TensileParallel"
    config = checkout / "Tensile" / "Tests" / "parallel" / "configs" / "quick.yaml"
    done = _run(script, config, "out", "--emulate", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert list((tmp_path / "out" / "merged_output" / "3_LibraryLogic").glob("*.yaml"))


def test_theSeriesIsForATreeWithoutUs(checkout, tmp_path):
    """A tree that holds the package, one that is none, and a folder that is in use: exit 2, a line
    that says so, nothing written."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    (tmp_path / "empty").mkdir()
    for tree, out, words in (
        (ROOT, "series", "not a Tensile tree"),
        (tmp_path / "empty", "series", "not a Tensile tree"),
        (checkout, "used", "not an empty folder"),
        (checkout, "series", "has a Tensile/Parallel already"),
    ):
        if "already" in words:
            (checkout / "Tensile" / "Parallel").mkdir()
        done = _run(TOOLS / "upstreamPatch", tree, tmp_path / out)
        assert done.returncode == 2 and words in done.stdout, done.stdout
        assert not (tmp_path / "series").exists()
    assert os.listdir(tmp_path / "used") == ["file"]


def _checkBuildFlow():
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("checkBuildFlow", str(TOOLS / "checkBuildFlow"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def _elf(**contents):
    """An ELF file of 64 bit with these sections; their names have a dot in front."""
    names, data, headers = b"\0", b"", [b"\0" * 64]
    for name, content in (*contents.items(), ("shstrtab", b"")):
        start = len(names)
        names += b"." + name.encode() + b"\0"
        content = content or names
        headers.append(
            struct.pack("<IIQQQQIIQQ", start, 1, 0, 0, 64 + len(data), len(content), 0, 0, 1, 0)
        )
        data += content
    begin = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(data))
    begin += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, len(headers), len(headers) - 1)
    return begin + data + b"".join(headers)


@pytest.mark.unit
def test_librariesAreComparedByWhatCounts(tmp_path):
    """A library with other symbols is the same; with other instructions, another table, another
    file, or without a section that counts, it is not."""
    differences = _checkBuildFlow().differences
    whole = dict(text=b"code", rodata=b"kernels", note=b"arguments", strtab=b"label_1")

    def lay(name, tables=b"rows", **sections):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernels.co").write_bytes(_elf(**{**whole, **sections}))
        (tmp_path / name / "library.dat").write_bytes(tables)
        return tmp_path / name

    one = lay("one")
    found, counts = differences(one, lay("symbols", strtab=b"label_2 is longer"))
    assert (found, list(counts.values())) == ([], [1, 1])
    for section in ("text", "rodata", "note"):
        found, counts = differences(one, lay(section, **{section: b"others"}))
        assert found == ["kernels.co: section .%s differs or is missing" % section]
    found, counts = differences(one, lay("tables", tables=b"Rows"))
    assert (found, list(counts.values())) == (["library.dat differs"], [1, 0])
    more = lay("more")
    (more / "extra.co").touch()
    assert differences(one, more)[0] == ["extra.co is in one of them only"]
    (more / "extra.co").unlink()
    (more / "kernels.co").write_bytes(_elf(text=b"code", rodata=b"kernels"))
    assert len(differences(one, more)[0]) == 1
