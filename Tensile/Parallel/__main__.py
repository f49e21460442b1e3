# SPDX-License-Identifier: MIT
"""`python -m Tensile.Parallel` is the command TensileParallel."""

import signal
import sys

from .Requirements import requireModules

if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C while modules are still read ends it at once, without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    requireModules()
    from .Run import main

    sys.exit(main(sys.argv[1:]))
