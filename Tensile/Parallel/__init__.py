# SPDX-License-Identifier: MIT
"""TensileParallel: Tensile run once, with a client that uses every GPU."""
