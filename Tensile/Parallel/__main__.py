# SPDX-License-Identifier: MIT
"""`python -m Tensile.Parallel` is the command TensileParallel."""

import sys

from .Requirements import requireModules

if __name__ == "__main__":
    requireModules()
    from .Run import main

    sys.exit(main(sys.argv[1:]))
