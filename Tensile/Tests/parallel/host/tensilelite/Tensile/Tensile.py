# SPDX-License-Identifier: MIT
"""The command of TensileLite 2024, as a stand-in."""

from __future__ import annotations

import argparse
import os
import sys

from . import Steps
from .Common import (
    assignGlobalParameters,
    globalParameters,
    restoreDefaultGlobalParameters,
)
from .WorkingPath import ensurePath


def Tensile(userArgs: list) -> None:
    """Run a config: benchmark, library logic, library client. Exits with 2 on bad arguments."""
    Steps.splash()
    parser = argparse.ArgumentParser()
    Steps.addArguments(parser)
    parser.add_argument("--use-cache", dest="useCache", action="store_true")
    parser.add_argument("--runtime-language", choices=["HIP", "OCL"])
    parser.add_argument("--logic-format", choices=["yaml", "json"], default="yaml")
    parser.add_argument("--library-format", choices=["yaml", "msgpack"], default="yaml")
    arguments = parser.parse_args(userArgs)
    restoreDefaultGlobalParameters()
    globalParameters["LibraryFormat"] = arguments.library_format
    config = Steps.readConfig(arguments)
    globalParameters["ConfigPath"] = arguments.config_file
    assignGlobalParameters(config["GlobalParameters"] if "GlobalParameters" in config else {})
    globalParameters["OutputPath"] = ensurePath(os.path.abspath(arguments.output_path))
    globalParameters["WorkingPath"] = globalParameters["OutputPath"]
    Steps.assignOverrides(Steps.overrides(arguments, verboseLevel=2))
    Steps.executeSteps(config, arguments.useCache)


def main() -> None:
    """The installed command."""
    Tensile(sys.argv[1:])
