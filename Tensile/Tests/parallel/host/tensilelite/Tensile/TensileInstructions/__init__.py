# SPDX-License-Identifier: MIT
"""Empty: its presence tells TensileLite from classic Tensile."""
