# SPDX-License-Identifier: MIT
"""The commands of an installed package: what `TensileParallel` and the others in bin/ start.

They stand outside the package `Tensile` because that name belongs to a host, one on PYTHONPATH,
say, or an installed one, which has no Tensile.Parallel of ours. So the first thing to do is to make
ours win. Where somebody else imports `Tensile`, ours never does: see `helpImport`.
"""

import os
import sys


def runTensileParallel():
    """The command TensileParallel."""
    _endAtOnce()
    _useOurPackage()
    _requireModules()
    from Tensile.Parallel.Run import main

    return main()


def runTensileParallelClient():
    """The command TensileParallelClient."""
    _endAtOnce()
    _useOurPackage()
    _requireModules()
    from Tensile.Parallel.ParallelClient import main

    return main()


def runTensileEmulatedClient():
    """The command TensileEmulatedClient."""
    _useOurPackage()
    from Tensile.Parallel.Emulator import main

    return main()


def helpImport():
    """Let `import Tensile.Parallel` and `python -m Tensile.Parallel` work where no host is found.

    Called by tensile-parallel.pth in every Python of the environment, so it does next to nothing.
    """
    sys.meta_path.append(LastResort())


class LastResort:
    """Finds our package when no Tensile that Python itself can find has a `Parallel`.

    It is asked last, so it hides no host. And it steps aside: the scripts in a tree's bin/ say
    `from Tensile import Tensile`, and only where that fails put their tree on the path and say it
    again. The first attempt finds our package, and that must not be what the second one finds.
    """

    def __init__(self):
        self._given = None

    def find_spec(self, name, path=None, target=None):
        """The import system's question: where is the module `name`? None: not here."""
        if not name.startswith("Tensile"):
            return None
        # Not at the top: every Python of the environment loads this file, few get here.
        from importlib.machinery import PathFinder

        if name == "Tensile":
            self._given = PathFinder.find_spec(name, [_aloneFolder()])
            return self._given
        if name == "Tensile.Parallel":
            return PathFinder.find_spec(name, [os.path.join(_root(), "Tensile")])
        package, _, module = name.partition(".")
        spec = getattr(sys.modules.get(package), "__spec__", None)
        if spec is not None and spec is self._given and "." not in module:
            del sys.modules[package]
        return None


def _endAtOnce():
    """Have Ctrl-C end this process while modules are still read, without a traceback."""
    import signal  # not at the top: every Python of the environment loads this file

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _useOurPackage():
    """Make `import Tensile.Parallel` find the one that belongs to this file.

    Workers are given this process's path, so it holds for them as well.
    """
    inHost = os.path.isfile(os.path.join(_root(), "Tensile", "__init__.py"))
    first = _root() if inHost else _aloneFolder()
    if first not in sys.path[:1]:
        sys.path.insert(0, first)


def _requireModules():
    """End with one line where this Python lacks a module (installed with --no-deps, say)."""
    from Tensile.Parallel.Requirements import requireModules

    requireModules()


def _root():
    """The folder that holds our Tensile/: the installed one, or this checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(here, "TensileParallelFiles")
    return installed if os.path.isdir(installed) else here


def _aloneFolder():
    """The folder to import from where `Tensile` shall be our package alone."""
    return os.path.join(_root(), "Tensile", "Parallel", "Alone")
