# SPDX-License-Identifier: MIT
"""What the commands need beside Python: said before a module that needs it is imported."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Optional

MODULES = ("joblib", "msgpack", "yaml")


def whatIsMissing() -> Optional[str]:
    """One line about what this Python lacks and how it gets it; None: nothing."""
    missing = [name for name in MODULES if find_spec(name) is None]
    if not missing:
        return None
    advice = "pip install 'joblib>=1.4' msgpack PyYAML"
    return "%s has no %s: %s" % (sys.executable, ", ".join(missing), advice)


def requireModules() -> None:
    """End this process with one line and exit status 2 where something is missing.

    The first thing that a command does: its other modules import these at once.
    """
    missing = whatIsMissing()
    if missing is not None:
        print("TensileParallel: error: %s" % missing, file=sys.stderr)
        sys.exit(2)
