# SPDX-License-Identifier: MIT
"""The client's executable: the one that is given, or built once with cmake and make."""

from __future__ import annotations

import os
import subprocess
from typing import Optional

from .Common import globalParameters
from .Parallel import CPUThreadCount
from .WorkingPath import ensurePath

_built: dict = {}


def getClientExecutable(builddir: Optional[str] = None) -> str:
    """Path of the client; builds it in 0_Build (ClientBuildPath) unless PrebuiltClient is set.

    A build that fails is the traceback of the command that failed, as in real hosts.
    """
    if "PrebuiltClient" in globalParameters:
        return globalParameters["PrebuiltClient"]
    if "path" not in _built:
        folder = builddir or os.path.join(
            globalParameters["OutputPath"], globalParameters["ClientBuildPath"]
        )
        folder = ensurePath(folder)
        options = {
            "CMAKE_BUILD_TYPE": globalParameters["CMakeBuildType"],
            "TENSILE_USE_MSGPACK": "ON",
            "TENSILE_USE_LLVM": "ON",
            "Tensile_LIBRARY_FORMAT": globalParameters["LibraryFormat"],
            "CMAKE_CXX_COMPILER": os.path.join(
                globalParameters["ROCmBinPath"], globalParameters["CxxCompiler"]
            ),
        }
        definitions = [part for item in options.items() for part in ("-D", "%s=%s" % item)]
        subprocess.check_call(["cmake", *definitions, globalParameters["SourcePath"]], cwd=folder)
        subprocess.check_call(["make", "-j%d" % CPUThreadCount()], cwd=folder)
        _built["path"] = os.path.join(folder, "client/tensile_client")
    return _built["path"]
