# SPDX-License-Identifier: MIT
"""What we count on in a host, and what a host can count on: on real trees and on the stand-ins.

    pytest Tensile/Tests/parallel/test_Contract.py --tensile-root TREE --tensile-root TREE

runs these tests on real trees; without a tree they run on the stand-in hosts, whose agreement with
the real ones they define. A real host takes a minute at each start, so each of its runs serves
several tests:

    reference   serial, as the fallback of TensileParallel, from this checkout
    continued   with ours laid into a copy of the tree: the host builds its client, the run is
                killed among the measurements and started again
    variant     from this checkout, the alternate format with relative paths, a msgpack library and
                MergeFiles, and a clock for UseEffLike
    cached      the same once more with the host's own option about its cache

The client's build is recorded, not done: `cmake` and `make` on the PATH are scripts, and the
second leaves an executable where the real one would.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from FakeHip import FakeHipUnavailable, buildFakeHip, fakeHipEnvironment
from Processes import MARK, Marked, waitFor
from test_Run import EMULATED_CLIENT, HERE, SCRIPT, readPieces, sameFiles, summaryOf
from test_Shim import layOver

from Tensile.Parallel.Host import (
    CLASSIC,
    TENSILELITE_2024,
    TENSILELITE_2025,
    TENSILELITE_2026,
    findHost,
)
from Tensile.Parallel.HostClock import asksForClock
from Tensile.Parallel.ParseArguments import parseRunArguments

# The host's own option about its cache, and the error that it then ends with; None: it works.
CACHES = {
    CLASSIC: ("--no-cache", None),
    TENSILELITE_2024: ("--use-cache", "KeyError: 'InternalSupportParams'"),
    TENSILELITE_2025: ("--use-cache", "KeyError: 'InternalSupportParams'"),
}
MHZ = 1000
DEVICES = ["gfx90a:0000:03:00.0", "gfx90a:0000:83:00.0"]
RUN_SECONDS = 1500.0


def pytest_generate_tests(metafunc):
    """One tree after the other."""
    if "tree" in metafunc.fixturenames:
        trees = metafunc.config.getoption("--tensile-root", default=[])
        trees = trees or [str(HERE / "host" / name) for name in ("tensilelite", "classic")]
        ids = ["-".join(Path(tree).resolve().parts[-2:]) for tree in trees]
        metafunc.parametrize("tree", trees, ids=ids, indirect=True, scope="module")


@pytest.fixture(scope="module")
def tree(request):
    """Path of a tree as it was given."""
    return request.param


class Bed:
    """A tree, a copy of it with ours in it, a config for it, and a folder for what is run.

    Attributes:
        host: the tree as it was given.
        overlaid: our command in a copy of it.
        asks: whether it would ask a GPU for its clock.
    """

    def __init__(self, tree: str, folder: Path) -> None:
        self.host = findHost({}, tree)
        self.folder = folder
        name = "classic" if self.host.generation == CLASSIC else "tensilelite"
        self.content = yaml.safe_load((HERE / "configs" / ("contract-%s.yaml" % name)).read_text())
        self.config = self.write("config.yaml", self.content)
        logic = dict(self.content, GlobalParameters={"UseEffLike": True})
        self.asks = asksForClock(self.host, parseRunArguments(["c", "o"]), logic)
        self.overlaid = self._copy() / "Tensile" / "bin" / "TensileParallel"

    def _copy(self) -> Path:
        source, copy = Path(self.host.tree), self.folder / "tree"
        ignore = shutil.ignore_patterns("__pycache__", "Tests", ".git")
        if self.host.standIn:  # its generations share a folder
            source, inside = source.parent, source.name
        shutil.copytree(source, copy, ignore=ignore, symlinks=True)
        copied = copy / inside if self.host.standIn else copy
        layOver(copied)
        return copied

    def write(self, name: str, content) -> Path:
        """A YAML file in the folder."""
        path = self.folder / name
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    def environment(self, **more) -> dict:
        """This process's, without what decides a run."""
        decides = ("TENSILE_", "HIP_", "ROCR_", "CUDA_", "GPU_DEVICE")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(decides)}
        return {**kept, "XDG_RUNTIME_DIR": str(self.folder), **more}

    def run(self, *arguments, script=SCRIPT, environment=None):
        """One of our commands to its end, in the folder: stdin is closed, nobody answers."""
        return subprocess.run(
            [sys.executable, str(script), *map(str, arguments)],
            env=environment or self.environment(),
            cwd=str(self.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=RUN_SECONDS,
        )

    def log(self, out: str) -> str:
        """A run's log."""
        path = self.folder / out / "tensile_parallel.log"
        return path.read_text(errors="replace") if path.exists() else ""


@pytest.fixture(scope="module")
def bed(tree, tmp_path_factory):
    """The test bed of a tree."""
    folder = tmp_path_factory.mktemp("contract")
    os.chmod(folder, 0o700)  # it is an XDG_RUNTIME_DIR as well
    return Bed(tree, folder)


@pytest.fixture(scope="module")
def reference(bed):
    """The result of a serial run that we have fallen back to, into `serial`."""
    base = [bed.config, "serial", "--library-format", "yaml", "--tensile-root", bed.host.tree]
    return bed.run(*base, "--emulate", 1, "--devices", 9)


@pytest.fixture(scope="module")
def tools(bed):
    """A folder with the recorders of a client's build, or the reason why there is none."""
    folder = bed.folder / "tools"
    folder.mkdir()
    (folder / "cmake").write_text('#!/bin/sh\necho "cmake $*" >> %s/calls\n' % folder)
    client = "#!/bin/sh\nexec %s %s \\$@\n" % (sys.executable, EMULATED_CLIENT)
    (folder / "make").write_text(
        '#!/bin/sh\necho "make $*" >> %s/calls\nmkdir -p client\n'
        "cat > client/tensile_client <<END\n%sEND\nchmod 755 client/tensile_client\n"
        % (folder, client)
    )
    for name in ("cmake", "make"):
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def continued(bed, tools):
    """(status of a run that was killed, pairs in its journal then, result of the second run)."""
    try:
        library = buildFakeHip(str(bed.folder / "hip"))
    except FakeHipUnavailable as error:
        pytest.skip(str(error))
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    environment = fakeHipEnvironment(bed.environment(PATH=path), library, DEVICES)
    environment["TENSILE_EMULATED_DEVICES"] = str(len(DEVICES))
    slow = bed.folder / "slow.json"
    slow.write_text('{"pairSeconds": 0.2}')
    marked = Marked()
    first = {**environment, MARK: marked.environment[MARK], "TENSILE_EMULATOR": str(slow)}
    arguments = [bed.config, "parallel", "--library-format", "yaml", "--no-warm-up"]
    with open(bed.folder / "killed.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(bed.overlaid), *map(str, arguments)],
            env=first,
            cwd=str(bed.folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            held = _untilSomethingIsMeasured(bed.folder / "parallel", process)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    waitFor(lambda: not marked.own())
    second = bed.run(*arguments, script=bed.overlaid, environment=environment)
    return process.returncode, held, second


def _untilSomethingIsMeasured(out: Path, process) -> int:
    """Waits until the journal holds pairs, and says how many pieces."""
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for path in out.glob("outputs/*/*/journal.msgpack"):
            pieces = readPieces(path)
            if pieces:
                return len(pieces)
        time.sleep(0.05)
    return 0


@pytest.fixture(scope="module")
def variant(bed):
    """(arguments, result) of a run of the alternate format and all that is another way."""
    content = dict(bed.content)
    problemType, group = content.pop("BenchmarkProblems")[0]
    group = dict(group)
    sizes = group.pop("BenchmarkFinalParameters")[0]["ProblemSizes"]
    parameters = dict(content["GlobalParameters"], MergeFiles=True, UseEffLike=bed.asks)
    if bed.host.generation == CLASSIC:
        del parameters["UseEffLike"]
    content.update(group, ProblemType=problemType, GlobalParameters=parameters)
    bed.write("alternate.yaml", content)
    bed.write("sizes.yaml", sizes)
    arguments = ["alternate.yaml", "sizes.yaml", "variant", "--alternate-format"]
    arguments += ["--library-format", "msgpack", "--emulate", 2, "--max-frequency", MHZ]
    arguments += ["--tensile-root", os.path.relpath(bed.host.tree, bed.folder)]
    return arguments, bed.run(*arguments)


def libraries(out: Path):
    """The endings of the solution libraries that a run's kernels have."""
    found = out.glob("1_BenchmarkProblems/*/*/source/library/**/TensileLibrary*")
    return {"".join(path.suffixes) for path in found} - {".co"}


def testTheTreeIsKnown(bed):
    """Its generation and version are read from its files; a real one is not taken for ours."""
    assert bed.host.version
    assert bed.host.generation in (CLASSIC, TENSILELITE_2024, TENSILELITE_2025, TENSILELITE_2026)
    version = bed.run("--version", script=bed.overlaid)
    assert version.returncode == 0 and bed.host.generation in version.stdout, version.stderr


def testTheSerialFallbackIsTensile(bed, reference):
    """Without a usable device: said in a line, the host's own layout, nothing of ours."""
    assert reference.returncode == 0, reference.stdout[-3000:] + reference.stderr[-3000:]
    assert "serial Tensile on device" in reference.stderr
    out = bed.folder / "serial"
    assert list(out.glob("2_BenchmarkData/*.csv")) and list(out.glob("3_LibraryLogic/*.yaml"))
    assert not (out / "merged_output").exists() and not (out / "outputs").exists()
    assert libraries(out) == {".yaml"}


def testTheHostBuildsItsClientAndWeFindIt(bed, tools, continued):
    """By cmake and make on the PATH; each start of the host builds once, units run the result."""
    _, _, result = continued
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    calls = [line.split()[0] for line in (tools / "calls").read_text().splitlines()]
    assert calls == ["cmake", "make"] * 2
    built = bed.folder / "parallel/merged_output/0_Build/client/tensile_client"
    assert built.exists() and summaryOf(bed.folder / "parallel")["client"] == str(built)


def testTheHostKnowsDeviceList(bed, continued):
    """No warning about it, and the host is told nothing else that it does not know."""
    log = bed.log("parallel")
    assert "Tensile is told that the devices are gfx90a" in log
    doubts = [line for line in log.splitlines() if "unrecogni" in line and "arameter" in line]
    assert not [line for line in doubts if "DeviceList" in line or "CurrentISA" in line]


def testAKilledRunContinues(bed, continued):
    """What was measured is not measured again, and nothing is missing."""
    killed, held, result = continued
    assert killed == -signal.SIGKILL and held > 0
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    counts = summaryOf(bed.folder / "parallel")["counts"]
    assert counts["resumedPairs"] > 0 and counts["measured"] > 0


def testTheMergedTreeIsTheSerialOne(bed, reference, continued):
    """Results and logic byte for byte, after a kill and on two devices."""
    assert reference.returncode == 0 and continued[2].returncode == 0
    merged = bed.folder / "parallel" / "merged_output"
    for folder in ("2_BenchmarkData", "3_LibraryLogic"):
        assert sameFiles(merged, bed.folder / "serial", folder)
    assert libraries(merged) == {".yaml"}


def testEveryOtherWayGivesTheSameResults(bed, reference, variant):
    """Alternate format, msgpack, MergeFiles, relative paths, ours beside the tree."""
    _, result = variant
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    merged = bed.folder / "variant" / "merged_output"
    assert libraries(merged) in ({".dat"}, {".dat.zlib"})
    serial = bed.folder / "serial"
    tables = [{p.name: p.read_bytes() for p in f.glob("2_*/*.csv")} for f in (merged, serial)]
    assert tables[0] and tables[0] == tables[1]
    for path in serial.glob("3_LibraryLogic/*.yaml"):
        expected, found = (
            yaml.safe_load((folder / "3_LibraryLogic" / path.name).read_text())
            for folder in (serial, merged)
        )
        assert found == _perMegahertz(expected) if bed.asks else found == expected


def _perMegahertz(logic):
    """A logic file with its winners' speeds divided by the clock, as UseEffLike has them."""
    changed = list(logic)
    for place, value in enumerate(changed):
        if _isExactLogic(value):
            changed[place] = [
                [size, [winner, round(speed / MHZ, 2)]] for size, (winner, speed) in value
            ]
    return changed


def _isExactLogic(value) -> bool:
    """Whether a field of a logic file is its list of [size, [winner, speed]]."""
    if not isinstance(value, list) or not value or not isinstance(value[0], list):
        return False
    return len(value[0]) == 2 and all(isinstance(part, list) for part in value[0])


def testAskingForTheClockInstallsNothingAndHangsNowhere(bed, variant):
    """The host is answered; its question, its pip and its prompt do not come up."""
    log = bed.log("variant")
    answers = [line for line in log.splitlines() if "ax frequency: %d " % MHZ in line]
    assert bool(answers) == bed.asks
    assert "pip" not in log and "Please enter" not in log and "Frequency:" not in log


def testTheCacheDoesWhatItDoesInTheHost(bed, variant):
    """Classic has a cache unless told otherwise; TensileLite of 2024 and early 2025 dies of it."""
    if bed.host.generation not in CACHES:
        pytest.skip("nobody has run --use-cache on %s" % bed.host.generation)
    arguments, result = variant
    assert result.returncode == 0
    before = {p: p.read_bytes() for p in (bed.folder / "variant").glob("*/2_*/*.csv")}
    option, error = CACHES[bed.host.generation]
    result = bed.run(*arguments, option)
    if error is None:
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
        assert before == {path: path.read_bytes() for path in before}
    else:
        assert result.returncode == 1 and error in bed.log("variant"), result.stderr[-3000:]
        assert "Tensile ended with status 1" in result.stderr
