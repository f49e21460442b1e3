# SPDX-License-Identifier: MIT
"""What the commands need beside Python: said before a module that needs it is imported."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Optional

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
    """Whether what is installed is older than what we need; a version of another form is not."""
    try:
        numbers = version(name).split(".")
        return (int(numbers[0]), int(numbers[1])) < JOBLIB
    except (PackageNotFoundError, ValueError, IndexError):
        return False


def requireModules() -> None:
    """End this process with one line and exit status 2 where something is missing.

    The first thing that a command does: its other modules import these at once.
    """
    missing = whatIsMissing()
    if missing is not None:
        print("TensileParallel: error: %s" % missing, file=sys.stderr)
        sys.exit(2)
