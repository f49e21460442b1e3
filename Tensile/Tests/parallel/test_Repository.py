# SPDX-License-Identifier: MIT
"""What holds for the repository as a whole: layout, imports, packages, README.md's commands."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from configparser import ConfigParser

import pytest
from conftest import HERE, HOST, ROOT, ownCheckout
from Processes import runToEnd

PARALLEL = ROOT / "Tensile" / "Parallel"
SCRIPTS = ("TensileParallel", "TensileParallelClient", "TensileEmulatedClient")
ROOT_FILES = (
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "TensileParallelCommands.py",
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
)

# A module imports only from those after it. docs/design.md has a line for each.
ORDER = """
    __main__ Run SerialRun ParallelRun RunEnd RunFiles RunDevices
    PlanText Plan PlanStep EarlierRun ExpectedIni ForkedSolutions
    Slurm LocalCluster Join
    RunConfig RunLog HtmlReport HtmlDevices ReportData Picture HtmlParts Winners
    ParallelClient StepRun StepResults ClientTelling
    StepCluster NodeWorker NodeOrder Mirror Cluster News Fleet WorkerCalls NodeSide NodeUnit
    NodeFiles
    Knock Place OwnProcess Certificates
    History StepReport StepFolder HangLimit Progress Step Loop Worker Guard
    HostRun Doctor Toolchain HostArchitecture HostClock Host
    Report Timeline TextSummary NodeRecord RunRecord
    Status Display DeviceTable StatusText
    DeviceConfigs ConfigShape ConfigSteps ParseArguments CommandLine DeviceList
    LoopTypes Remaining Contest Baseline Schedule Seldom Cost WarmUp
    Outcomes BestSolution LibraryUpdate
    ResultsJoin ShardRows Cells Results Journal ClientLog ClientOutput UnitLogs
    Emulator EmulatedOutput EmulatedTimes EmulatedDevice
    SolutionNames ClientConfig
    Neighbours QuietMachine SerialLock Locks CrossCheck Devices DeviceNames Masks Platform Files
    Terminal Requirements Types Errors __init__
    HostBootstrap
""".split()

# What the scripts in a host's bin/ do, after somebody has imported our package.
LATE_HOST = """
import sys
import Tensile.Parallel
assert "TensileParallelFiles" in Tensile.Parallel.__file__
try:
    from Tensile import Tensile
except ImportError:
    sys.path.append(sys.argv[1])
    from Tensile import Tensile
print(Tensile.__file__)
"""


def _canMakeWheels():
    try:
        return importlib.util.find_spec("setuptools.command.bdist_wheel") is not None
    except ModuleNotFoundError:
        return False


needsSetuptools = pytest.mark.skipif(
    not _canMakeWheels(),
    reason="setuptools from 70.1 on, which makes wheels, is not installed",
)


def _ourFiles():
    """Every file of ours that belongs to the repository, wherever the tests lie."""
    folders = [PARALLEL, HERE]
    files = [ROOT / "Tensile" / "bin" / name for name in SCRIPTS]
    if (ROOT / "TensileParallelCommands.py").is_file():
        folders += [ROOT / name for name in (".ci", "docs", "requirements", "tools")]
        files += [ROOT / name for name in ROOT_FILES]
    for folder in folders:
        files += [path for path in folder.rglob("*") if path.is_file()]
    ignored = {"__pycache__", ".pytest_cache", ".hypothesis"}
    return sorted(path for path in files if not ignored & set(path.parts))


def _isProgram(path):
    """Whether a file is Python or shell source."""
    return path.suffix in (".py", ".sh") or path.read_bytes().startswith(b"#!")


def _modules():
    return sorted(PARALLEL.glob("*.py"))


def _relativeImports(tree):
    """Names of the modules of this package that a syntax tree imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            known = {path.stem for path in _modules()}
            yield from (name if name in known else "__init__" for name in names)


@pytest.mark.unit
def test_everyProgramNamesItsLicence():
    """The first line of a program, or the one after #!, is the SPDX line."""
    for path in _ourFiles():
        if _isProgram(path):
            lines = path.read_text("utf-8").split("\n")
            first = lines[1] if lines[0].startswith("#!") else lines[0]
            assert first == "# SPDX-License-Identifier: MIT", path


@pytest.mark.unit
def test_noFileNamesAPlaceOfOneMachine():
    """What is committed says nothing about the machine it was made on."""
    places = [r"/%s/" % name for name in ("work", "root", "opt/pypi")] + ["/tmp/" + "hosts"]
    pattern = re.compile("|".join(r"(?<![\w.@$}])" + place for place in places))
    for path in _ourFiles():
        text = path.read_bytes().decode("utf-8", "replace")
        found = pattern.search(text)
        assert found is None, "%s: %s" % (path, text[found.start() :][:60])


@pytest.mark.unit
@ownCheckout
def test_tensileBelongsToTheHost():
    """There is no Tensile/__init__.py here: it would hide an installed host's."""
    assert not (ROOT / "Tensile" / "__init__.py").exists()
    assert not (ROOT / "Tensile" / "Tests" / "__init__.py").exists()


@pytest.mark.unit
def test_importsRunOneWay():
    """A module imports only from modules below it, also inside functions."""
    place = {name: number for number, name in enumerate(ORDER)}
    for path in _modules():
        assert path.stem in place, "%s is not in the order" % path.name
        for name in _relativeImports(ast.parse(path.read_text("utf-8"))):
            assert place[name] > place[path.stem], "%s imports %s" % (path.stem, name)


@pytest.mark.unit
def test_onlyTheBootstrapImportsTheHost():
    """The host's modules are imported in a process of their own, by HostBootstrap.py alone."""
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level < 2, "%s imports from above the package" % path.name
                names = [] if node.level else [node.module or ""]
            if any(name.split(".")[0] == "Tensile" for name in names):
                assert path.name == "HostBootstrap.py", path.name


@pytest.mark.unit
def test_scheduleTouchesNoProcessAndNoClock():
    """The schedule is a state machine that tests drive without either."""
    tree = ast.parse((PARALLEL / "Schedule.py").read_text("utf-8"))
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert not imported & {"os", "subprocess", "time", "threading", "signal", "multiprocessing"}


def _isolatedPython(code, *options):
    """What Python prints for `code` with our package first on its path."""
    start = "import sys; sys.path.insert(0, %r)\n" % str(PARALLEL / "Alone")
    done = subprocess.run(
        [sys.executable, "-I", *options, "-c", start + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importingThePackageIsLight():
    """Every command of an older host imports Tensile.Parallel: that costs next to nothing."""
    loaded = _isolatedPython(
        "before = set(sys.modules); import Tensile.Parallel\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    assert set(loaded) == {"Tensile", "Tensile.Parallel"}


def test_theEmulatorNeedsNoOtherPackage():
    """The emulated client runs on the standard library alone (-S: no site-packages)."""
    code = "import Tensile.Parallel.Emulator, Tensile.Parallel.HostBootstrap; print('fine')"
    assert _isolatedPython(code, "-S") == ["fine"]


@pytest.mark.unit
def test_python39CanReadEverything():
    """No syntax that is newer than Python 3.9."""
    for path in _ourFiles():
        if path.suffix == ".py":
            ast.parse(path.read_text("utf-8"), str(path), feature_version=(3, 9))


@pytest.mark.unit
@ownCheckout
def test_everyModuleHasItsLineInTheDesign():
    """docs/design.md names every module of the package."""
    design = (ROOT / "docs" / "design.md").read_text("utf-8")
    for path in _modules():
        assert "`%s`" % path.name in design, path.name


@pytest.mark.unit
@ownCheckout
def test_documentsNameFilesThatExist():
    """Every relative link of README.md and docs/ leads to a file."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), "%s: %s" % (page.name, target)


@pytest.mark.unit
@ownCheckout
def test_everyPageIsInTheIndex():
    """docs/index.md leads to every page."""
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or "(%s)" % page.name in index, page.name


@pytest.mark.unit
@ownCheckout
def test_readmeCommandsCanBeRun():
    """The demo, the tests and CI are executable, and a shell can read them."""
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in ("tools/demo", "tools/test"):
        assert re.search(r"^    %s$" % name, readme, re.MULTILINE), name
    for name in (
        "tools/demo",
        "tools/test",
        "tools/docs",
        "tools/lint",
        "tools/packages",
        ".ci/run",
    ):
        path = ROOT / name
        assert os.access(path, os.X_OK), name
        shell = path.read_text("utf-8").split("\n")[0].lstrip("#!").split()
        subprocess.run([*shell, "-n", str(path)], check=True)
    assert "tools/test" in (ROOT / ".ci" / "run").read_text("utf-8")


@pytest.mark.unit
def test_scriptsAreExecutable():
    """The commands can be started by their paths."""
    for name in SCRIPTS:
        assert os.access(ROOT / "Tensile" / "bin" / name, os.X_OK), name


@pytest.mark.unit
@ownCheckout
def test_skipsThatAreNotAllowedFail(tmp_path):
    """CI fails on a skip whose whole reason matches no line of the list, and prints them all."""
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="t" name="a"><skipped message="no gpu: 7"/>'
        '</testcase><testcase classname="t" name="b"/></testsuite></testsuites>'
    )
    allowed = tmp_path / "allowed"
    script = ROOT / ".ci" / "listSkips.py"
    for text, status in (("# no gpu.*\n\nno gpu\n", 1), ("no gpu: [0-9]\n", 0)):
        allowed.write_text(text)
        done = subprocess.run(
            [sys.executable, str(script), str(report), str(allowed)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert (done.returncode, "t::a: no gpu: 7" in done.stdout) == (status, True)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """(wheel, source package) of a copy of this checkout."""
    folder = tmp_path_factory.mktemp("packages")
    source = folder / "source"
    for path in _ourFiles():
        if path.suffix != ".pyc":
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
    done = runToEnd(sys.executable, "setup.py", "-q", "sdist", "bdist_wheel", cwd=source)
    assert done.returncode == 0, done.stdout
    (wheel,) = (source / "dist").glob("*.whl")
    (sdist,) = (source / "dist").glob("*.tar.gz")
    return wheel, sdist


def _install(wheel, into):
    """Unpack a wheel as pip does, into a folder where there may be another Tensile."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)
    (points,) = into.glob("*.dist-info/entry_points.txt")
    parser = ConfigParser()
    parser.optionxform = str
    parser.read(points)
    return dict(parser["console_scripts"])


def _runInstalled(command, path, cwd):
    """Run an installed command with `path` as PYTHONPATH on two emulated devices."""
    module, function = command.split(":")
    code = "import sys; from %s import %s as main; sys.exit(main())" % (module, function)
    config = HERE / "configs" / "quick.yaml"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, path)))
    # The lock folder of the tests would be shared; a run's own default is what is tried here.
    environment.pop("TENSILE_PARALLEL_LOCK_DIR", None)
    command = [sys.executable, "-c", code, config, "out", "--emulate", "2"]
    return runToEnd(*command, cwd=cwd, environment=environment)


@ownCheckout
@needsSetuptools
@pytest.mark.parametrize("other", ["no other", "other before it", "other in its folder"])
def test_anInstalledPackageRuns(packages, tmp_path, other):
    """From an empty folder, an installed TensileParallel rehearses a run; another Tensile that is
    installed or on PYTHONPATH is its host and no obstacle."""
    site, path = tmp_path / "site", [tmp_path / "site"]
    if other != "no other":
        shutil.copytree(HOST, tmp_path / "tree")
    if other == "other before it":
        path = [tmp_path / "tree" / "tensilelite", site]
    if other == "other in its folder":
        site = tmp_path / "tree" / "tensilelite"
        path = [site]
    commands = _install(packages[0], site)
    assert set(commands) == set(SCRIPTS)
    empty = tmp_path / "empty"
    empty.mkdir()
    done = _runInstalled(commands["TensileParallel"], path, empty)
    assert done.returncode == 0, done.stdout
    assert list((empty / "out" / "merged_output" / "3_LibraryLogic").glob("*.yaml"))
    assert ("a stand-in is used" in done.stdout) == (other == "no other")
    assert os.listdir(empty) == ["out"]


@ownCheckout
@needsSetuptools
def test_anInstalledTensileStillWorks(packages, tmp_path):
    """A Tensile of the older kind, into whose folder the package was installed, finds its own
    Parallel.py and runs serially as before."""
    shutil.copytree(HOST, tmp_path / "tree")
    site = tmp_path / "tree" / "tensilelite"
    _install(packages[0], site)
    done = subprocess.run(
        [
            sys.executable,
            str(site / "Tensile" / "bin" / "Tensile"),
            str(HERE / "configs" / "quick.yaml"),
            "out",
            "--prebuilt-client",
            str(ROOT / "Tensile" / "bin" / "TensileEmulatedClient"),
        ],
        cwd=tmp_path,
        env=dict(os.environ, PYTHONPATH=str(site)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert list((tmp_path / "out" / "3_LibraryLogic").glob("*.yaml"))


@pytest.fixture(scope="module")
def environment(packages, tmp_path_factory):
    """A virtual environment with the wheel in it (and what else the tests' own Python has)."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(packages[0]) as archive:
        archive.extractall(site)
    # Last, so that the wheel's own file of this kind is executed before.
    (site / "zz.pth").write_text("\n".join(e for e in sys.path if e.endswith("-packages")))
    return folder


def _python(environment, *arguments, cwd, **variables):
    """What the environment's Python prints, from an empty folder."""
    python = environment / "bin" / "python"
    done = runToEnd(python, *arguments, cwd=cwd, environment={**os.environ, **variables})
    return done.returncode, done.stdout


@ownCheckout
@needsSetuptools
@pytest.mark.parametrize("name", ["tensilelite", "classic"])
def test_hostsAreUntouchedByAnInstalledPackage(environment, tmp_path, name):
    """Where this is installed, a tree's own scripts find their tree, by no more than their place;
    its Tensile.Parallel is its own; and both hold for a tree on PYTHONPATH."""
    tree = HOST / name
    script = tree / "Tensile" / "bin" / "Tensile"
    assert "sys.path.append" in script.read_text("utf-8")
    status, output = _python(environment, script, "--version", cwd=tmp_path)
    assert (status, "ImportError" in output) == (0, False), output
    code = "from Tensile.Parallel import ParallelMap as f; print(f.__code__.co_filename)"
    status, output = _python(environment, "-c", code, cwd=tmp_path, PYTHONPATH=str(tree))
    assert output.strip() == str(tree / "Tensile" / "Parallel.py")
    status, output = _python(environment, script, "--version", cwd=tmp_path, PYTHONPATH=str(tree))
    assert status == 0, output


@ownCheckout
@needsSetuptools
def test_anInstalledPackageCanBeImported(environment, tmp_path):
    """Where there is no host, Tensile.Parallel is ours, for `import` and for `python -m`; and it
    steps aside for a tree that comes to the path later, which goes on with its own modules."""
    status, output = _python(environment, "-m", "Tensile.Parallel", "--version", cwd=tmp_path)
    assert status == 0 and re.match(r"TensileParallel \d.*\nno host: ", output), output
    status, output = _python(environment, "-c", LATE_HOST, HOST / "classic", cwd=tmp_path)
    assert output.strip() == str(HOST / "classic" / "Tensile" / "Tensile.py")


@ownCheckout
@needsSetuptools
def test_versionsOfAnInstalledPackageAndItsHost(environment, tmp_path):
    """Installed beside a tree that lies elsewhere: --version says both, by TENSILE_ROOT."""
    arguments = ["-m", "Tensile.Parallel", "--version"]
    variables = {"TENSILE_ROOT": str(HOST / "classic")}
    status, output = _python(environment, *arguments, cwd=tmp_path, **variables)
    text = "host: stand-in for classic Tensile 4.44.0 in %s (TENSILE_ROOT)" % (HOST / "classic")
    assert (status, output.splitlines()[1]) == (0, text)


@ownCheckout
@needsSetuptools
def test_missingModulesAreOneLine(packages, tmp_path):
    """On a Python without joblib, msgpack and PyYAML a command says so in one line, status 2;
    --version answers, and says it as well."""
    _install(packages[0], tmp_path / "site")
    code = "import sys; sys.path.append(%r); import TensileParallelCommands as commands\n"
    code += "sys.exit(commands.runTensileParallel())"
    scripts = [["-c", code % str(tmp_path / "site")]]
    scripts += [[str(ROOT / "Tensile" / "bin" / name)] for name in SCRIPTS[:2]]
    for script in scripts:
        for option, status, says in (
            ("--help", 2, r"TensileParallel: error: .* has no joblib, .*\n"),
            ("--version", 0, r"TensileParallel \d.*\nnothing can be run: .* has no joblib, .*\n"),
        ):
            done = subprocess.run(
                [sys.executable, "-I", "-S", *script, option],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert done.returncode == status
            assert re.fullmatch(says, done.stdout), done.stdout


@ownCheckout
@needsSetuptools
def test_theSourcePackageIsWhole(packages):
    """It holds tests, documents, licence and README.md's commands; the wheel holds no tests."""
    wheel, sdist = packages
    with tarfile.open(sdist) as archive:
        members = {m.name.partition("/")[2]: m for m in archive.getmembers()}
    for path in _ourFiles():
        name = str(path.relative_to(ROOT))
        if path.suffix != ".pyc":
            assert name in members, name
    assert members["tools/test"].mode & 0o100
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if "test_" in name or "__pycache__" in name]


@ownCheckout
@needsSetuptools
def test_oneVersion(packages):
    """The package states its version once; the wheel has it, and the changelog begins with it."""
    text = (PARALLEL / "__init__.py").read_text("utf-8")
    version = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE).group(1)
    assert packages[0].name.split("-")[1] == version
    changelog = (ROOT / "docs" / "changelog.md").read_text("utf-8")
    assert re.search(r"^## (\S+)", changelog, re.MULTILINE).group(1) == version
