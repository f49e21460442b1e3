# SPDX-License-Identifier: MIT
"""Stand-in for TensileLite 2024: drives the flow of a benchmark, generates no kernels.

What both generations share lies in ``../../shared``; it is part of this package.
"""

from __future__ import annotations

import os

__version__ = "4.33.0"

__path__.append(os.path.normpath(os.path.join(os.path.dirname(__file__), "../../shared")))
