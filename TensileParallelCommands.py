# SPDX-License-Identifier: MIT
"""The commands of an installed package: what `TensileParallel` and the others in bin/ start.

They stand outside the package `Tensile` because that name may belong to another Tensile: one on
PYTHONPATH, say, which comes before an installed package and has no Tensile.Parallel. So the first
thing to do is to make ours win.
"""

import os
import sys


def runTensileParallel():
    """The command TensileParallel."""
    _useOurPackage()
    from Tensile.Parallel.Run import main

    return main()


def runTensileParallelClient():
    """The command TensileParallelClient."""
    _useOurPackage()
    from Tensile.Parallel.ParallelClient import main

    return main()


def runTensileEmulatedClient():
    """The command TensileEmulatedClient."""
    _useOurPackage()
    from Tensile.Parallel.Emulator import main

    return main()


def _useOurPackage():
    """Make `import Tensile.Parallel` find the one beside this file.

    Workers are given this process's path, so it holds for them as well.
    """
    root = os.path.dirname(os.path.abspath(__file__))
    inHost = os.path.isfile(os.path.join(root, "Tensile", "__init__.py"))
    first = root if inHost else os.path.join(root, "Tensile", "Parallel", "Alone")
    if first not in sys.path[:1]:
        sys.path.insert(0, first)
