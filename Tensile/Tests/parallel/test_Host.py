# SPDX-License-Identifier: MIT
"""Finding a host, knowing its generation, and running it in a process of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from Tensile.Parallel import Host
from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.Host import findHost, hostCommand, serialCommand, unsafeInShell
from Tensile.Parallel.HostRun import runHost

HOSTS = Path(__file__).resolve().parent / "host"


def makeTree(folder, *files, version="1.2.3"):
    """A folder that looks like a Tensile tree with these files in its package."""
    for name in ("bin/Tensile", *files):
        path = folder / "Tensile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (folder / "Tensile" / "__init__.py").write_text('__version__ = "%s"\n' % version)
    return folder


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Ours lies in no tree."""
    monkeypatch.setattr(Host, "ourRoot", lambda: str(tmp_path / "ours"))


@pytest.mark.unit
@pytest.mark.parametrize(
    "files, generation",
    [
        (("Common.py", "Parallel.py", "TensileInstructions/__init__.py"), Host.TENSILELITE_2024),
        (("Common.py", "Parallel.py"), Host.CLASSIC),
        (("Common/__init__.py", "ClientExecutable.py"), Host.TENSILELITE_2025),
        (("Common/__init__.py", "ParallelExecution.py"), Host.TENSILELITE_2026),
        (("Everything.py",), Host.UNKNOWN),
    ],
)
def testGenerationIsReadFromTheFiles(alone, tmp_path, files, generation):
    """Each generation is known by its files, without importing anything of the tree."""
    tree = makeTree(tmp_path / "tree", *files)
    host = findHost({}, str(tree))
    assert (host.generation, host.version, host.standIn) == (generation, "1.2.3", False)
    builds = generation not in (Host.TENSILELITE_2026, Host.UNKNOWN)
    assert host.buildsClient == builds
    files = [str(getattr(module, "__file__", None)) for module in list(sys.modules.values())]
    assert not [path for path in files if path.startswith(str(tree))]


@pytest.mark.unit
def testOrderOfTheWaysToFindAHost(monkeypatch, tmp_path):
    """--tensile-root, TENSILE_ROOT, the tree this lies in, an importable one."""
    names = ("option", "variable", "ours", "importable")
    trees = {name: str(makeTree(tmp_path / name, version=name)) for name in names}
    monkeypatch.setattr(Host, "ourRoot", lambda: trees["ours"])
    variable = {"TENSILE_ROOT": trees["variable"]}
    path = [str(tmp_path / "nothing"), trees["importable"]]
    assert findHost(variable, trees["option"], path=path).version == "option"
    assert findHost(variable, path=path).version == "variable"
    assert findHost({"TENSILE_ROOT": ""}, path=path).version == "ours"
    monkeypatch.setattr(Host, "ourRoot", lambda: str(tmp_path / "nothing"))
    assert findHost({}, path=path).version == "importable"


@pytest.mark.unit
@pytest.mark.parametrize("below", ["", "tensilelite", "projects/hipblaslt/tensilelite"])
def testTheTreeMayBeNamedByAFolderAboveIt(alone, tmp_path, below):
    """hipBLASLt's and rocm-libraries' roots, the tree, and its package name the same tree."""
    tree = makeTree(tmp_path / "root" / below)
    assert findHost({}, str(tmp_path / "root")).tree == str(tree)
    assert findHost({}, str(tree / "Tensile")).tree == str(tree)


@pytest.mark.unit
def testANamedTreeThatIsNoneIsAnError(alone, tmp_path):
    """It is not passed over in silence: the user named it."""
    makeTree(tmp_path / "importable")
    for variable, option in (({}, str(tmp_path)), ({"TENSILE_ROOT": str(tmp_path)}, None)):
        with pytest.raises(InputError, match="is not a Tensile tree"):
            findHost(variable, option, path=[str(tmp_path / "importable")])


@pytest.mark.unit
def testNoHostIsAnErrorAndTheStandInServesEmulatedRuns(tmp_path):
    """Without a tree: exit 2; with emulated devices the stand-in, which is labelled."""
    if findHostOrNone() is not None:
        pytest.skip("these tests lie in a host's tree, which is always found")
    with pytest.raises(InputError, match="TENSILE_ROOT"):
        findHost({}, path=[])
    host = findHost({}, path=[], emulated=True)
    assert host.standIn and "stand-in" in host.description


def findHostOrNone():
    """The tree that these tests lie in."""
    try:
        return findHost({}, path=[])
    except InputError:
        return None


@pytest.mark.unit
def testASerialRunTakesTheTreeThatWasFound(alone, tmp_path):
    """Its own script would take another Tensile that Python finds first."""
    tree = makeTree(tmp_path / "tree")
    host = findHost({}, str(tree))
    command, environment = serialCommand(host, ["c", "o"], {"PYTHONPATH": "/x", "A": "b"})
    assert command == [sys.executable, str(tree / "Tensile/bin/Tensile"), "c", "o"]
    assert environment == {"PYTHONPATH": str(tree) + os.pathsep + "/x", "A": "b"}


@pytest.mark.unit
@pytest.mark.parametrize("path", ["/a b", "/a\tb", "/a\nb", "/a$b", "/a'b", "/a;b", "/a*b", "/(a)"])
def testPathsThatAShellTakesApartAreKnown(path):
    """run.sh holds paths unquoted."""
    assert unsafeInShell(path) is not None
    assert unsafeInShell("/plain/path-1_2.3/ü,=+%@:") is None


@pytest.fixture(params=["tensilelite", "classic"])
def standIn(request, tmp_path):
    """A copy of a stand-in tree, whose Tensile.main tells what it was given."""
    shutil.copytree(HOSTS, tmp_path / "host", ignore=shutil.ignore_patterns("__pycache__"))
    return findHost({}, str(tmp_path / "host" / request.param))


def runCode(host, code, bootstrapOptions=(), arguments=(), **others):
    """Run the host with this code as its Tensile.py; its output and end."""
    path = Path(host.tree) / "Tensile" / "Tensile.py"
    path.write_text(textwrap.dedent(code))
    log = path.parent / "log"
    command = hostCommand(host, bootstrapOptions, arguments)
    with open(log, "wb", buffering=0) as stream:
        end = runHost(command, os.environ, stream, echoMarked=False, **others)
    return end, log.read_bytes()


def testTheHostKnowsDeviceList(standIn):
    """DeviceList gives no warning, also after the host has restored its defaults."""
    end, log = runCode(
        standIn,
        """
        import sys
        from . import Common
        def main():
            Common.restoreDefaultGlobalParameters()
            print("arguments", sys.argv[1:], sys.path[0], Common.globalParameters["DeviceList"])
            config = {"DeviceList": [0, 1], "Nonsense": 1}
            try:
                Common.assignGlobalParameters(config)
            except TypeError:
                Common.assignGlobalParameters(config, None)
            print("assigned", Common.globalParameters["DeviceList"])
        """,
        arguments=["a b", "-1"],
    )
    assert end.status == 0, log
    assert b"arguments ['a b', '-1'] %s None" % standIn.tree.encode() in log
    assert b"assigned [0, 1]" in log
    assert b"Nonsense" in log and b"DeviceList = " not in log


def testTheHostBuildsItsClientAndThenRunsTheLauncher(standIn, tmp_path):
    """The first question for the client builds it, notes it in run.json, answers the launcher."""
    settings = tmp_path / "run.json"
    settings.write_text(json.dumps({"client": None, "other": 1}))
    end, log = runCode(
        standIn,
        """
        from . import ClientExecutable, Common
        def main():
            Common.globalParameters["OutputPath"] = "/out"
            print("first", ClientExecutable.getClientExecutable())
            print("second", ClientExecutable.getClientExecutable())
            print("set", Common.globalParameters["PrebuiltClient"])
        class Builder:
            @staticmethod
            def check_call(command, cwd):
                print("built with", command[0])
        ClientExecutable.subprocess = Builder
        ClientExecutable.ensurePath = lambda path: path
        Common.globalParameters.update(ROCmBinPath="/bin", CMakeBuildType="Release")
        """,
        bootstrapOptions=["--settings", str(settings), "--launcher", "/launcher"],
    )
    assert end.status == 0, log
    for word in (b"first /launcher", b"second /launcher", b"set /launcher"):
        assert word in log
    assert log.count(b"built with make") == 1
    run = json.loads(settings.read_text())
    assert run == {"client": "/out/0_Build/client/tensile_client", "other": 1}


def testEveryKindOfOutputReachesTheLog(standIn):
    """10 MB, lines without end, bytes that are no UTF-8: all in the log, no deadlock."""
    end, log = runCode(
        standIn,
        r"""
        import os
        def main():
            os.write(1, b"\xff\xfe not text\n")
            os.write(2, b"x" * (1 << 20) + b"\n")
            for number in range(100000):
                os.write(1 + number % 2, b"line %06d of a hundred thousand, padded out: %s\n"
                         % (number, b"." * 50))
            os.write(1, b"no newline")
        """,
    )
    assert end.status == 0
    assert b"\xff\xfe not text\n" in log and log.endswith(b"no newline\n")
    assert log.count(b"x") >= 1 << 20
    assert log.count(b"of a hundred thousand") == 100000
    first = log.split(b" ", 1)[0].decode()
    assert first[10] == "T" and first[-6] in "+-", "no time with a zone: %s" % first
    assert "no newline" in end.tail


def testTheFirstErrorIsKeptWithTheLastLines(standIn):
    """What Tensile ended at may stand long before its last lines, which only follow from it."""
    code = r"""
        def main():
            print("a\nb\nTraceback (most recent call last):\n  the cause")
            print("\n".join("later %%d" %% number for number in range(%d)))
            raise SystemExit(1)
        """
    end, _ = runCode(standIn, code % 60)
    assert end.tail[:2] == ("Traceback (most recent call last):", "  the cause")
    assert end.tail[10:12] == ("...", "later 45") and end.tail[-1] == "later 59"
    end, _ = runCode(standIn, code % 3)
    assert end.tail[:2] == ("a", "b") and len(end.tail) == 7
    ours = "TensileParallelClient: error: no node has joined"  # the host's own comes of it
    end, _ = runCode(standIn, (code % 60).replace("a\\nb", ours))
    assert end.tail[0] == ours


def testMarkedLinesReachTheTerminal(standIn, capfdbinary):
    """What is marked for the user is shown while the rest is only logged."""
    path = Path(standIn.tree) / "Tensile" / "Tensile.py"
    path.write_text("def main():\n    print('TensileParallel: hello')\n    print('other')\n")
    for echoAll, echoMarked, expected in (
        (False, True, b"TensileParallel: hello\n"),
        (False, False, b""),
        (True, True, b"TensileParallel: hello\nother\n"),
    ):
        with open(path.parent / "log", "wb", buffering=0) as log:
            runHost(hostCommand(standIn, [], []), os.environ, log, echoAll, echoMarked)
        assert capfdbinary.readouterr().out == expected


@pytest.mark.parametrize("status", [0, 1, 3])
def testTheHostsStatusIsKnown(standIn, status):
    """Its exit status, and a signal as a shell shows it."""
    end, _ = runCode(standIn, "import sys\ndef main():\n    sys.exit(%d)\n" % status)
    assert (end.status, end.signal) == (status, None)
    end, _ = runCode(
        standIn, "import os, signal\ndef main():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert end.status == 137


LONG_LIVED = """
import os, subprocess, sys, time
def main():
    child = subprocess.Popen(["sleep", "1000"])
    with open(sys.argv[1] + ".part", "w") as stream:
        stream.write("%d %d" % (os.getpid(), child.pid))
    os.replace(sys.argv[1] + ".part", sys.argv[1])
    time.sleep(1000)
"""


def isRunning(pid):
    """Whether a process exists and is more than a leftover in the process table."""
    try:
        return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def waitFor(condition, seconds=30):
    """Poll; a deadline is only there to end a test that fails."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError("waited %d s in vain" % seconds)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def testNothingOfTheHostOutlivesUs(standIn, tmp_path, number):
    """However this process ends, the host and what it has started end too."""
    (Path(standIn.tree) / "Tensile" / "Tensile.py").write_text(LONG_LIVED)
    pids = tmp_path / "pids"
    script = tmp_path / "front.py"
    code = """
            import os, sys
            sys.path[:0] = %r
            from Tensile.Parallel.Host import findHost, hostCommand
            from Tensile.Parallel.HostRun import runHost
            host = findHost({}, %r)
            command = hostCommand(host, ["--parent", str(os.getpid())], [%r])
            with open(%r, "wb", buffering=0) as log:
                end = runHost(command, os.environ, log)
            sys.exit(128 + (end.signal or 0))
            """
    code %= (sys.path, standIn.tree, str(pids), str(tmp_path / "log"))
    script.write_text(textwrap.dedent(code))
    front = subprocess.Popen([sys.executable, str(script)])
    try:
        waitFor(pids.exists)
        host, child = map(int, pids.read_text().split())
        assert isRunning(host) and isRunning(child)
        front.send_signal(number)
        front.wait(timeout=60)
        waitFor(lambda: not isRunning(host) and not isRunning(child))
        if number != signal.SIGKILL:
            assert front.returncode == 128 + number
    finally:
        front.kill()
        front.wait()


def testWhatTheHostLeavesBehindIsEnded(standIn, tmp_path):
    """A host that ends does not leave a process that keeps a GPU, nor can one keep us waiting."""
    end, log = runCode(
        standIn,
        """
        import subprocess
        def main():
            print("child", subprocess.Popen(["sleep", "1000"]).pid)
        """,
    )
    child = int(log.partition(b"child ")[2].split()[0])
    assert end.status == 0
    assert not isRunning(child)


def testRealTreesKnowDeviceList(request, tmp_path):
    """With --tensile-root: the parser hook and the client's build on real trees."""
    roots = request.config.getoption("--tensile-root", default=[])
    if not roots:
        pytest.skip("no --tensile-root was given")
    for root in roots:
        host = findHost({}, root)
        assert host.version and not host.standIn
        code = """
            import sys
            sys.path.insert(0, %r)
            import HostBootstrap
            HostBootstrap.useTree(%r)
            common = HostBootstrap.registerDeviceList()
            common.restoreDefaultGlobalParameters()
            assert common.globalParameters["DeviceList"] is None
            from Tensile import ClientExecutable
            HostBootstrap.launchInstead(common, "/launcher", "/nowhere")
            common.globalParameters["PrebuiltClient"] = "/launcher"
            ClientExecutable.getClientExecutable(*"xyz"[: 3 if "Common/" in repr(common) else 0])
            print(ClientExecutable.getClientExecutable.__module__, "knows DeviceList")
            """
        code %= (os.path.dirname(os.path.abspath(Host.__file__)), host.tree)
        command = [sys.executable, "-c", textwrap.dedent(code)]
        output = subprocess.check_output(command, text=True)
        assert "Tensile.ClientExecutable knows DeviceList" in output
