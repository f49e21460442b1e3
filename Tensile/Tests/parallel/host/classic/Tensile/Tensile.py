# SPDX-License-Identifier: MIT
"""The command of classic Tensile 4.44, as a stand-in."""

from __future__ import annotations

import argparse
import os
import sys

from . import ClientExecutable, Steps
from .Common import (
    assignGlobalParameters,
    globalParameters,
    restoreDefaultGlobalParameters,
)
from .Toolchain import gfxToIsa
from .WorkingPath import ensurePath


def Tensile(userArgs: list) -> None:
    """Run a config: benchmark, library logic, library client. Exits with 2 on bad arguments."""
    Steps.splash()
    parser = argparse.ArgumentParser()
    Steps.addArguments(parser)
    parser.add_argument("--no-cache", dest="NoCache", action="store_true")
    parser.add_argument("--client-path", dest="ClientPath", default=None)
    parser.add_argument("--runtime-language", choices=["HIP"])
    parser.add_argument("--arch")
    parser.add_argument("--library-format", choices=["yaml", "msgpack"])
    parser.add_argument("--asm-cache", dest="AsmCacheFile")
    arguments = parser.parse_args(userArgs)
    restoreDefaultGlobalParameters()
    if arguments.library_format:
        globalParameters["LibraryFormat"] = arguments.library_format
    config = Steps.readConfig(arguments)
    globalParameters["ConfigPath"] = arguments.config_file
    assignGlobalParameters(config.get("GlobalParameters", {}))
    globalParameters["OutputPath"] = ensurePath(os.path.abspath(arguments.output_path))
    globalParameters["WorkingPath"] = globalParameters["OutputPath"]
    chosen = Steps.overrides(arguments, verboseLevel=3)
    if arguments.arch:
        chosen["CurrentISA"] = gfxToIsa(arguments.arch)
    Steps.assignOverrides(chosen)
    clientPath = arguments.ClientPath and os.path.abspath(arguments.ClientPath)
    ClientExecutable.getClientExecutable(clientPath)
    Steps.executeSteps(config, not arguments.NoCache)


def main() -> None:
    """The installed command."""
    Tensile(sys.argv[1:])
