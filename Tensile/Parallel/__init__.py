# SPDX-License-Identifier: MIT
"""TensileParallel: Tensile run once, with a client that uses every GPU.

This package may lie beside a host's own module `Tensile/Parallel.py` (TensileLite up to 2024,
classic Tensile), which it then hides. So it hands on every name of that module, when asked for
the first time: importing this package alone costs next to nothing.

The hidden module is executed as what it was, a plain module called `Tensile.Parallel` in the
package `Tensile`. Its relative imports therefore mean what they meant; and its functions say that
they live in `Tensile.Parallel`, which is where any other process finds them again (this package),
so that they pickle into joblib, loky and multiprocessing workers by name.
"""

import os
import sys
from _thread import RLock

__version__ = "0.1.0"

_hidden = None
_hiddenLock = RLock()


def _hiddenFile():
    """Path of the module that this package hides, or None."""
    here = os.path.dirname(os.path.abspath(__file__))
    parents = [os.path.dirname(here)]
    # Where this package was put before a host's in Tensile.__path__, the host's folder counts too.
    parents += list(getattr(sys.modules.get(__name__.rpartition(".")[0]), "__path__", []))
    for parent in parents:
        path = os.path.join(parent, "Parallel.py")
        if os.path.isfile(path):
            return path
    return None


def _loadHidden():
    """Execute the hidden module once and hand on its names; None where there is none."""
    global _hidden
    with _hiddenLock:
        # While it is being executed, a circular import sees what is there so far, as ever.
        if _hidden is not None:
            return _hidden
        path = _hiddenFile()
        if path is None:
            return None
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location(__name__, path)
        _hidden = module_from_spec(spec)
        try:
            spec.loader.exec_module(_hidden)
        except BaseException:
            _hidden = None
            raise
        for name, value in vars(_hidden).items():
            if not name.startswith("__"):
                globals().setdefault(name, value)
        return _hidden


def _isOwnModule(name):
    return os.path.isfile(os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py"))


def __getattr__(name):
    """Names of the hidden module (PEP 562: asked only for what this package itself lacks)."""
    # `from Tensile.Parallel import Run` asks for the attribute before it imports the module.
    special = name.startswith("__") and name != "__all__"
    if not special and not _isOwnModule(name):
        hidden = _loadHidden()
        if name == "__all__" and hidden is not None and not hasattr(hidden, name):
            return [public for public in vars(hidden) if not public.startswith("_")]
        if hidden is not None and hasattr(hidden, name):
            return getattr(hidden, name)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


def __dir__():
    """Own names, and those of the hidden module."""
    return sorted(set(globals()) | set(vars(_loadHidden() or object) if _hiddenFile() else ()))
