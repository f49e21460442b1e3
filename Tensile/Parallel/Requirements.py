# SPDX-License-Identifier: MIT
"""What the commands need beside Python: said before a module that needs it is imported."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from typing import Optional

from . import __version__

MODULES = ("joblib", "msgpack", "yaml")
# The oldest joblib whose loky does what Worker.py needs.
JOBLIB = (1, 4)


def whatIsMissing() -> Optional[str]:
    """One line about what this Python lacks and how it gets it; None: nothing."""
    missing = [name for name in MODULES if find_spec(name) is None]
    if "joblib" not in missing and _isOld("joblib"):
        missing.append("joblib %d.%d or newer" % JOBLIB)
    if not missing:
        return None
    advice = "pip install 'joblib>=%d.%d' msgpack PyYAML" % JOBLIB
    return "%s has no %s: %s" % (sys.executable, ", ".join(missing), advice)


def _isOld(name: str) -> bool:
    """Whether what is installed is older than what we need; a version of another form is not.

    The version is read in its file: to import it, or importlib.metadata, takes each command longer
    than all that is ours.
    """
    found = re.search(r"""^__version__\s*=\s*['"](\d+)\.(\d+)""", _source(name), re.MULTILINE)
    return found is not None and (int(found[1]), int(found[2])) < JOBLIB


def _source(name: str) -> str:
    """Text of a package's __init__.py; empty where it has none that can be read."""
    spec = find_spec(name)
    try:
        with open(spec.origin if spec and spec.origin else "", encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError):
        return ""


def requireModules() -> None:
    """End this process with one line and exit status 2 where something is missing.

    The first thing that a command does: its other modules import these at once. --version is
    answered all the same.
    """
    missing = whatIsMissing()
    if missing is not None and "--version" in sys.argv[1:]:
        print("TensileParallel %s" % __version__)
        print("nothing can be run: %s" % missing)
        sys.exit(0)
    if missing is not None:
        print("TensileParallel: error: %s" % missing, file=sys.stderr)
        sys.exit(2)
