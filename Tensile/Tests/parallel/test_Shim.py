# SPDX-License-Identifier: MIT
"""Tensile/Parallel/ beside a host's Tensile/Parallel.py hands on what it hides."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HOSTS = Path(__file__).resolve().parent / "host"


@pytest.fixture(params=["tensilelite", "classic"])
def overlaid(request, tmp_path):
    """A host tree of each generation with our package laid over it, as a user would copy it."""
    shutil.copytree(HOSTS, tmp_path / "host", ignore=shutil.ignore_patterns("__pycache__"))
    tree = tmp_path / "host" / request.param
    layOver(tree)
    return tree


def layOver(tree):
    """Copy the extension into a tree."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "Tensile" / "Parallel", tree / "Tensile" / "Parallel", ignore=ignore)
    for script in (ROOT / "Tensile" / "bin").glob("Tensile*"):
        shutil.copy(script, tree / "Tensile" / "bin" / script.name)


def runPython(tree, code, *options):
    """Run Python code from a file, with the tree on its path."""
    script = tree.parent / "script.py"
    script.write_text(textwrap.dedent(code))
    environment = dict(os.environ, PYTHONPATH=str(tree))
    result = subprocess.run(
        [sys.executable, *options, str(script)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def testEveryPublicNameIsHandedOn(overlaid):
    """Every name of the hidden module is the package's, and works."""
    names = runPython(
        overlaid,
        """
        import runpy, sys, os, importlib.util
        import Tensile.Common
        from Tensile.Parallel import ParallelMap, CPUThreadCount
        import Tensile.Parallel as package
        path = os.path.join(os.path.dirname(Tensile.__file__), "Parallel.py")
        spec = importlib.util.spec_from_file_location("Tensile.Other", path)
        other = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(other)
        missing = [n for n in vars(other) if not n.startswith("_") and not hasattr(package, n)]
        print("missing", missing, "threads", CPUThreadCount() >= 1, CPUThreadCount(False))
        assert package.__file__.endswith(os.path.join("Parallel", "__init__.py"))
        assert set(n for n in vars(other) if not n.startswith("_")) <= set(dir(package))
        namespace = {}
        exec("from Tensile.Parallel import *", namespace)
        assert "ParallelMap" in namespace
        """,
        "-W",
        "error::ImportWarning",
    )
    assert "missing [] threads True 1" in names


def testHiddenFunctionsPickleIntoLoky(overlaid):
    """The hidden functions are found by name in a loky worker, and the host's own map works."""
    output = runPython(
        overlaid,
        """
        import pickle
        import Tensile.Common as Common
        import Tensile.Parallel as Parallel
        from joblib.externals.loky import ProcessPoolExecutor

        def double(x):
            return 2 * x

        if __name__ == "__main__":
            function = Parallel.pcallWithGlobalParamsSingleArg
            assert pickle.loads(pickle.dumps(function)) is function
            assert function.__module__ == "Tensile.Parallel"
            with ProcessPoolExecutor(max_workers=1) as executor:
                parameters = dict(Common.globalParameters)
                print(executor.submit(function, len, "abc", parameters).result())
            Common.globalParameters["CpuThreads"] = 2
            name = "ParallelMap2" if hasattr(Parallel, "ParallelMap2") else "ParallelMap"
            print(list(getattr(Parallel, name)(double, [(1,), (2,)], multiArg=True)))
        """,
    )
    assert "3\n" in output and "[2, 4]" in output


@pytest.mark.parametrize("method", ["fork", "spawn"])
def testHiddenFunctionsPickleIntoMultiprocessing(overlaid, method):
    """The same for multiprocessing's two ways to start a process."""
    code = """
        import multiprocessing
        import Tensile.Common as Common
        import Tensile.Parallel as Parallel

        if __name__ == "__main__":
            context = multiprocessing.get_context("%s")
            parameters = dict(Common.globalParameters)
            with context.Pool(1) as pool:
                call = Parallel.pcallWithGlobalParamsMultiArg
                print(pool.apply(call, (divmod, (7, 2), parameters)))
        """
    output = runPython(overlaid, code % method)
    assert "(3, 1)" in output


@pytest.mark.unit
def testImportOfThePackageIsLight(overlaid):
    """A host that imports the package gets neither joblib nor yaml nor msgpack by our doing."""
    output = runPython(
        overlaid,
        """
        import sys
        import Tensile
        before = set(sys.modules)
        import Tensile.Parallel
        print(sorted(set(sys.modules) - before))
        """,
    )
    assert output.strip() == "['Tensile.Parallel']"


@pytest.mark.unit
def testHandingOnLoadsNoModuleOfOurs(overlaid):
    """Asked for a name of the hidden module, the package loads that module and what it imports
    itself, and none of ours."""
    code = """
        import sys
        import concurrent.futures, importlib.util, itertools, multiprocessing, joblib
        import Tensile
        before = set(sys.modules)
        from Tensile.Parallel import CPUThreadCount, ParallelMap
        print(sorted(name for name in set(sys.modules) - before))
        """
    assert runPython(overlaid, code).strip() == "['Tensile.Parallel']"


@pytest.mark.unit
def testNamesThatNobodyHasAreAttributeErrors(overlaid):
    """A misspelt name is an AttributeError, an import of it an ImportError; modules import."""
    output = runPython(
        overlaid,
        """
        import Tensile.Parallel
        for name in ("nothing", "__nothing__"):
            try:
                getattr(Tensile.Parallel, name)
            except AttributeError as error:
                print(error)
        try:
            from Tensile.Parallel import nothing
        except ImportError:
            print("ImportError")
        from Tensile.Parallel import Types
        print(Types.__name__)
        """,
    )
    assert "module 'Tensile.Parallel' has no attribute 'nothing'" in output
    assert "ImportError\nTensile.Parallel.Types" in output


@pytest.mark.unit
def testWithoutAHiddenModuleThePackageIsItself(tmp_path):
    """Where there is no Parallel.py (newer hosts, no host), only our own names are there."""
    tree = tmp_path / "tree"
    (tree / "Tensile" / "bin").mkdir(parents=True)
    layOver(tree)
    output = runPython(
        tree,
        """
        import Tensile.Parallel
        print(hasattr(Tensile.Parallel, "ParallelMap"), Tensile.Parallel.__version__ != "")
        print("__version__" in dir(Tensile.Parallel))
        """,
    )
    assert output == "False True\nTrue\n"


@pytest.mark.unit
def testAnErrorInTheHiddenModuleIsItsOwnAndNotRemembered(overlaid):
    """What the hidden module raises reaches the importer; a second import tries again."""
    (overlaid / "Tensile" / "Parallel.py").write_text("raise RuntimeError('broken module')\n")
    output = runPython(
        overlaid,
        """
        import Tensile.Parallel
        for attempt in range(2):
            try:
                Tensile.Parallel.CPUThreadCount
            except RuntimeError as error:
                print(error)
        """,
    )
    assert output.count("broken module") == 2


def testTheHostsOwnCommandRunsWithUsBesideIt(overlaid, tmp_path):
    """bin/Tensile of an overlaid tree gets as far as the same tree without us."""
    result = subprocess.run(
        [sys.executable, str(overlaid / "Tensile" / "bin" / "Tensile"), "--version"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=str(tmp_path),
    )
    assert result.returncode == 0, result.stdout


def testScriptsFindUsBesideAnotherTensileOnThePath(tmp_path):
    """Another Tensile on PYTHONPATH does not hide this checkout from its own scripts.

    A loky worker is given the same path, so it finds us too.
    """
    other = tmp_path / "other"
    (other / "Tensile").mkdir(parents=True)
    (other / "Tensile" / "__init__.py").write_text("raise RuntimeError('the wrong Tensile')\n")
    script = tmp_path / "useScript.py"
    code = """
            import runpy
            if __name__ == "__main__":
                runpy.run_path(%r, run_name="notMain")
                from joblib.externals.loky import ProcessPoolExecutor
                from Tensile.Parallel.Types import Unit
                with ProcessPoolExecutor(max_workers=1) as executor:
                    print(executor.submit(Unit, 1, 0, 1, 0, 1).result())
            """
    code %= str(ROOT / "Tensile" / "bin" / "TensileParallelClient")
    script.write_text(textwrap.dedent(code))
    result = subprocess.run(
        [sys.executable, str(script)],
        env=dict(os.environ, PYTHONPATH=str(other)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert "Unit(number=1" in result.stdout, result.stdout


def testRealTrees(request, tmp_path):
    """With --tensile-root: a copy of a real tree with us in it hands on what it hides."""
    roots = request.config.getoption("--tensile-root", default=[])
    trees = [root for root in roots if (Path(root) / "Tensile" / "Parallel.py").is_file()]
    if not trees:
        pytest.skip("no --tensile-root with a Tensile/Parallel.py was given")
    for number, root in enumerate(trees):
        tree = tmp_path / str(number)
        ignore = shutil.ignore_patterns("__pycache__", "Tests", "Parallel")
        shutil.copytree(Path(root) / "Tensile", tree / "Tensile", ignore=ignore)
        layOver(tree)
        output = runPython(
            tree,
            """
            import multiprocessing
            import Tensile.Common as Common
            from Tensile.Parallel import ParallelMap, CPUThreadCount
            from Tensile.Parallel import pcallWithGlobalParamsMultiArg as call
            from joblib.externals.loky import ProcessPoolExecutor
            if __name__ == "__main__":
                parameters = dict(Common.globalParameters)
                with ProcessPoolExecutor(max_workers=1) as executor:
                    print(executor.submit(call, divmod, (7, 2), parameters).result())
                for method in ("fork", "spawn"):
                    with multiprocessing.get_context(method).Pool(1) as pool:
                        print(pool.apply(call, (divmod, (7, 2), parameters)))
            """,
        )
        assert output.count("(3, 1)") == 3
