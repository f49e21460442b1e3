# SPDX-License-Identifier: MIT
"""The package `Tensile` of a process that runs our commands where this is not in a host's tree.

Without a host `Tensile` is a namespace package, and any regular package of that name on the path
(an installed host, one on PYTHONPATH) beats it, wherever it stands. Our commands put this folder
first on the path: then `Tensile` is this one, in the process and in every loky worker of it, which
is given the same path.
"""

import os

__path__ = [os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3))]
