# SPDX-License-Identifier: MIT
"""`setup.py overlay` lays us into a host's tree, takes us out again, and touches nothing else."""

import fcntl
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import HOST, ROOT
from Processes import runToEnd

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(
        not (ROOT / "tools" / "overlay.py").is_file(),
        reason="these tests do not lie in TensileParallel's own checkout",
    ),
]

OURS = ("Tensile/Parallel/", "Tensile/Tests/", "Tensile/bin/Tensile", "Tensile/.TensileParallel.")


@pytest.fixture
def tree(request, tmp_path):
    """A host's tree (as a parameter: of which generation), in a folder with what all share."""
    shutil.copytree(HOST, tmp_path / "host", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "host" / getattr(request, "param", "tensilelite")


def overlay(tree, *options):
    """(exit status, lines) of the command. Without site-packages: it needs no setuptools."""
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / "setup.py"), "overlay", "--into", str(tree), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stdout
    return done.returncode, done.stdout.splitlines()


def contents(folder):
    """Path -> bytes or link target, of everything below a folder but what Python compiled."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = os.path.join(place, name)
            relative = os.path.relpath(path, folder)
            if os.path.islink(path):
                found[relative] = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as stream:
                    found[relative] = stream.read()
            elif name != "__pycache__":
                found[relative] = None
    return {name: value for name, value in found.items() if not name.endswith(".pyc")}


def runPython(*arguments, cwd):
    """Standard output and error of this Python."""
    return runToEnd(sys.executable, *arguments, cwd=cwd).stdout


@pytest.mark.parametrize("tree", ["tensilelite", "classic"], indirect=True)
@pytest.mark.parametrize("options", [[], ["--link"]], ids=["copied", "linked"])
def testInAndOutAgain(tree, tmp_path, options):
    """Only our places are written; the commands there work and say where they are; --remove leaves
    the tree as it was, less what Python compiled of ours."""
    before = contents(tree)
    status, lines = overlay(tree, *options)
    assert status == 0, lines
    after = contents(tree)
    assert {name: after[name] for name in before} == before
    new = [name for name in after if name not in before and after[name] is not None]
    assert all(name.startswith(OURS) or name in ("Tensile/Parallel",) for name in new), new
    for name in ("setup.py", "README.md", "docs"):
        assert name not in after
    # As a user would: from another folder, and a host's own command.
    version = runPython(tree / "Tensile/bin/TensileParallel", "--version", cwd=tmp_path)
    assert "in %s (the tree this lies in)\n" % tree in version
    code = "from Tensile.Parallel import CPUThreadCount; print(CPUThreadCount(False))"
    assert runPython("-c", code, cwd=tree) == "1\n"
    assert overlay(tree, "--remove")[0] == 0
    assert contents(tree) == before
    assert not (tree / "Tensile" / "Parallel").exists()
    status, lines = overlay(tree, "--remove")
    assert (status, len(lines)) == (2, 1)


def testTheSameFilesAsInTheRepository(tree):
    """What is laid in is what is committed in these folders, with the scripts' modes."""
    overlay(tree)
    there = {p for p in contents(tree) if p.startswith(OURS[:2]) and (tree / p).is_file()}
    for folder in ("Parallel", "Tests/parallel"):
        for path in (ROOT / "Tensile" / folder).rglob("*"):
            if path.is_file() and path.suffix in (".py", ".csv", ".ini", ".yaml"):
                assert str(path.relative_to(ROOT)) in there
    for name in there:
        assert (tree / name).read_bytes() == (ROOT / name).read_bytes()
    assert os.access(tree / "Tensile" / "bin" / "TensileEmulatedClient", os.X_OK)


def testAgainIsAnUpdate(tree):
    """An older version that was laid in is replaced, and what belongs to it alone goes; the same
    version again changes nothing."""
    overlay(tree)
    record = next((tree / "Tensile").glob(".TensileParallel.*"))
    fresh = contents(tree)
    assert overlay(tree)[0] == 0 and contents(tree) == fresh
    # Make the tree what an older version would have left, record and all.
    content = json.loads(record.read_text())
    older = tree / "Tensile/Parallel/Older.py"
    older.write_bytes((tree / "Tensile/Parallel/Run.py").read_bytes())
    content["items"]["Tensile/Parallel/Older.py"] = content["items"]["Tensile/Parallel/Run.py"]
    errors = tree / "Tensile/Parallel/Errors.py"
    errors.write_bytes((tree / "Tensile/Parallel/Types.py").read_bytes())
    content["items"]["Tensile/Parallel/Errors.py"] = content["items"]["Tensile/Parallel/Types.py"]
    (tree / "Tensile/Parallel/Cost.py").unlink()
    record.write_text(json.dumps(content))
    status, lines = overlay(tree, "-v")
    assert status == 0 and contents(tree) == fresh
    assert {"removed: Tensile/Parallel/Older.py", "written: Tensile/Parallel/Errors.py"} < set(
        lines
    )


@pytest.mark.parametrize("way", ["file", "script", "folder is a link", "changed since"])
def testNothingForeignIsOverwritten(tree, tmp_path, way):
    """A file, a script or a link in our places that this did not lay there, or that was changed
    since: one line that names it, status 2, nothing done."""
    foreign = tree / "Tensile/Parallel/Run.py"
    if way == "changed since":
        overlay(tree)
    if way == "script":
        foreign = tree / "Tensile/bin/TensileParallelClient"
    if way == "folder is a link":
        foreign = foreign.parent
        (tmp_path / "elsewhere").mkdir()
        foreign.symlink_to(tmp_path / "elsewhere")
    else:
        foreign.parent.mkdir(exist_ok=True)
        foreign.write_text("# mine\n")
    before = contents(tree)
    for options in ([], ["--link"]):
        status, lines = overlay(tree, *options)
        assert (status, len(lines)) == (2, 1), lines
        assert contents(tree) == before
    assert str(foreign) in overlay(tree)[1][0]


def testRemoveKeepsWhatIsNotOurs(tree):
    """A file that was changed since, one that somebody added, and one that was there before and
    equal: all stay; the first two are named. The host's Parallel.py is found again."""
    equal = tree / "Tensile/bin/TensileEmulatedClient"
    shutil.copy(ROOT / "Tensile/bin" / equal.name, equal)
    overlay(tree)
    changed, added = tree / "Tensile/Parallel/Run.py", tree / "Tensile/Parallel/Mine.py"
    for path in (changed, added):
        path.write_text("# mine\n")
    status, lines = overlay(tree, "--remove")
    assert status == 0
    assert "kept: changed since: Tensile/Parallel/Run.py" in lines
    assert "kept: holds something else: Tensile/Parallel/" in lines
    assert sorted(os.listdir(tree / "Tensile/Parallel")) == ["Mine.py", "Run.py"]
    assert equal.exists()
    code = "import Tensile.Parallel; print(Tensile.Parallel.__file__)"
    assert runPython("-c", code, cwd=tree).strip() == str(tree / "Tensile" / "Parallel.py")


def testStoppedHalfwayItGoesOn(tree):
    """Stopped after its record and some files: the command completes it, --remove undoes it."""
    before = contents(tree)
    overlay(tree)
    whole = contents(tree)
    for again in ([], ["--remove"]):
        for name in ("Parallel/Types.py", "bin/TensileParallel", "Tests/parallel/conftest.py"):
            (tree / "Tensile" / name).unlink()
        assert overlay(tree, *again)[0] == 0
        assert contents(tree) == (before if again else whole)


def testRootsAboveATree(tmp_path):
    """hipBLASLt's and rocm-libraries' root mean the tree in them; no tree is a one-line error."""
    for inside in ("tensilelite", "projects/hipblaslt/tensilelite"):
        root = tmp_path / inside.partition("/")[0]
        tree = root / "root" / inside
        shutil.copytree(HOST / "tensilelite", tree)
        assert overlay(root / "root")[0] == 0
        assert (tree / "Tensile/Parallel/Run.py").is_file()
    (tmp_path / "empty").mkdir()
    status, lines = overlay(tmp_path / "empty")
    assert (status, len(lines)) == (2, 1) and "is not a Tensile tree" in lines[0]


def testWhatAKilledCommandLeavesGoes(tree):
    """Files that were not yet moved to their places are ours: both commands take them away."""
    before = contents(tree)
    overlay(tree)
    whole = contents(tree)
    for again in ([], ["--remove"]):
        for name in ("Parallel/Run.py", "Tests/parallel/host/x", "bin/TensileParallel"):
            (tree / "Tensile" / (name + ".TensileParallel.half-done")).write_text("half")
        assert overlay(tree, *again)[0] == 0
        assert contents(tree) == (before if again else whole)


@pytest.mark.parametrize(
    "content",
    [
        {"items": {}, "folders": ["../../victim"]},
        {"items": {"../../victim/file": ["sha256 0"]}, "folders": []},
        {"items": {"Tensile/Parallel/../../../victim/file": ["sha256 0"]}, "folders": []},
        {"items": {"Tensile/Parallel": ["folder"]}, "folders": []},
        {"items": {"Tensile/Common.py": ["sha256 0"]}, "folders": []},
    ],
)
def testARecordIsNotTrustedBeyondOurPlaces(tree, content):
    """A tree comes from anywhere: its record can name nothing but what this command writes."""
    victim = tree.parent.parent / "victim"
    (victim / "__pycache__").mkdir(parents=True)
    record = tree / "Tensile" / ".TensileParallel.overlay.json"
    record.write_text(json.dumps({"linked": False, **content}))
    before = contents(tree)
    for options in ([], ["--remove"]):
        status, lines = overlay(tree, *options)
        assert (status, len(lines)) == (2, 1) and "is damaged" in lines[0]
    assert contents(tree) == before and (victim / "__pycache__").is_dir()


def testOneCommandAtATime(tree):
    """Two at once would write each other's record: the second is refused, with one line."""
    descriptor = os.open(tree / "Tensile", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    status, lines = overlay(tree)
    os.close(descriptor)
    assert (status, len(lines)) == (2, 1) and "another overlay command" in lines[0]
    assert overlay(tree)[0] == 0


def testAWrongCommandLineIsOneLine(tree):
    """Named as it was typed."""
    for options in (["--no-such"], ["--link", "--remove"]):
        status, lines = overlay(tree, *options)
        assert (status, len(lines)) == (2, 1), lines
    assert "setup.py overlay --help" in overlay(tree, "--no-such")[1][0]


def testWhatWasThereBeforeIsNamed(tree):
    """A copy whose record was lost: nothing is taken for ours, and how to remove it is said."""
    overlay(tree)
    (tree / "Tensile" / ".TensileParallel.overlay.json").unlink()
    assert overlay(tree)[0] == 0
    status, lines = overlay(tree, "--remove")
    assert status == 0 and any("rm -r Tensile/Parallel" in line for line in lines)
    assert (tree / "Tensile/Parallel/Run.py").is_file()
