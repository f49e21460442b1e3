# SPDX-License-Identifier: MIT
"""What both commands do once their arguments are read."""

from __future__ import annotations

import argparse
import ast
import os
from datetime import datetime

from . import BenchmarkProblems, ClientWriter, LibraryIO, LibraryLogic, __version__
from .Common import HR, globalParameters, print1, printExit


def addArguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that both generations have."""
    parser.add_argument("config_file", type=os.path.realpath, nargs="+")
    parser.add_argument("output_path")
    parser.add_argument("--version", action="version", version="%(prog)s " + __version__)
    parser.add_argument("--alternate-format", dest="AlternateFormat", action="store_true")
    parser.add_argument("-d", "--device", dest="device", type=int)
    parser.add_argument("-p", "--platform", dest="platform", type=int)
    parser.add_argument("--code-object-version", choices=["default", "V4", "V5"])
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--short-names", dest="shortNames", action="store_true")
    parser.add_argument("--no-merge-files", dest="noMergeFiles", action="store_true")
    parser.add_argument(
        "--cxx-compiler", dest="CxxCompiler", choices=["amdclang++", "hipcc"], default="amdclang++"
    )
    parser.add_argument("--client-build-path", default=None)
    parser.add_argument("--client-lock", default=None)
    parser.add_argument("--prebuilt-client", default=None)
    parser.add_argument("--global-parameters", nargs="+", type=_keyAndValue, default=[])


def _keyAndValue(text: str) -> tuple:
    """KEY=VALUE, the value in Python's notation (real hosts evaluate any expression)."""
    key, value = text.split("=")
    return key, ast.literal_eval(value)


def splash() -> None:
    """What a host says first."""
    print1("\n%s\n#\n#  Tensile v%s (stand-in)" % (HR, __version__))


def readConfig(arguments: argparse.Namespace) -> dict:
    """The config; from one or two files in the alternate format."""
    paths = arguments.config_file
    if arguments.AlternateFormat and len(paths) > 2:
        printExit(
            "Only 1 or 2 config_files are accepted for the alternate config format: "
            "the alternate config file and an optional size list"
        )
    if not arguments.AlternateFormat and len(paths) != 1:
        printExit("Only 1 config_file is accepted for the default config format.")
    print1("#  Config: %s" % " and ".join(paths))
    print1("#  Date & Time: %s\n#\n%s" % (datetime.now().strftime("%d/%m/%Y %H:%M:%S"), HR))
    base = LibraryIO.readYAML(paths[0])
    if not arguments.AlternateFormat:
        return base
    sizes = LibraryIO.readYAML(paths[1]) if len(paths) == 2 else []
    config = {"GlobalParameters": base.get("GlobalParameters")}
    for section in ("LibraryLogic", "LibraryClient"):
        if section in base and sizes:
            config[section] = base[section] if section == "LibraryLogic" else None
    group = {key: base.get(key) for key in ("BenchmarkCommonParameters", "ForkParameters")}
    group["BenchmarkFinalParameters"] = [{"ProblemSizes": sizes}]
    config["BenchmarkProblems"] = [[base["ProblemType"], group]]
    return config


def overrides(arguments: argparse.Namespace, verboseLevel: int) -> dict:
    """Global parameters that the command line sets, over the config's."""
    chosen: dict = {}
    if arguments.device:
        chosen["Device"] = arguments.device
    if arguments.platform:
        chosen["Platform"] = arguments.platform
    if arguments.code_object_version:
        chosen["CodeObjectVersion"] = arguments.code_object_version
    if arguments.verbose or arguments.debug:
        chosen["PrintLevel"] = verboseLevel
    if arguments.debug:
        chosen["CMakeBuildType"] = "Debug"
    if arguments.shortNames:
        chosen["ShortNames"] = True
    if arguments.noMergeFiles:
        chosen["MergeFiles"] = False
    chosen["CxxCompiler"] = arguments.CxxCompiler
    for name, key in (
        ("client_build_path", "ClientBuildPath"),
        ("client_lock", "ClientExecutionLockPath"),
        ("prebuilt_client", "PrebuiltClient"),
    ):
        if getattr(arguments, name):
            chosen[key] = getattr(arguments, name)
    chosen.update(arguments.global_parameters)
    return chosen


def assignOverrides(chosen: dict) -> None:
    """Take them over; unknown names are welcome here, and nothing is said about them."""
    for key, value in chosen.items():
        print("Overriding %s=%s" % (key, value))
        globalParameters[key] = value


def executeSteps(config: dict, useCache: bool) -> None:
    """The sections of a config, in their order."""
    if "BenchmarkProblems" in config:
        BenchmarkProblems.main(config["BenchmarkProblems"], useCache)
    if "LibraryLogic" in config:
        path = os.path.join(globalParameters["WorkingPath"], globalParameters["LibraryLogicPath"])
        isDone = os.path.exists(path) and bool(os.listdir(path))
        if isDone and not globalParameters["ForceRedoLibraryLogic"]:
            print1("# LibraryLogic already done.")
        else:
            LibraryLogic.main(config["LibraryLogic"] or {})
    if "LibraryClient" in config:
        ClientWriter.main(config["LibraryClient"] or {})
