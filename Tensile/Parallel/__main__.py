# SPDX-License-Identifier: MIT
"""`python -m Tensile.Parallel` is the command TensileParallel."""

import sys

from .Run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
