# SPDX-License-Identifier: MIT
"""The Tensile tree that is being extended: find it, know its generation, say how to run it.

Nothing here imports the host. What is known about it is read from its files; it runs in a process
of its own (HostBootstrap.py).
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import List, Mapping, Optional, Sequence, Tuple

from .Errors import InputError

TENSILELITE_2024 = "TensileLite 2024"
TENSILELITE_2025 = "TensileLite early 2025"
TENSILELITE_2026 = "TensileLite 2026"
CLASSIC = "classic Tensile"
UNKNOWN = "Tensile of an unknown generation"

# Where the host lies within the folder that a user may name: the tree itself, hipBLASLt's root,
# rocm-libraries' root.
_INSIDE = ("", "tensilelite", os.path.join("projects", "hipblaslt", "tensilelite"))

# Characters that end or change a word of an unquoted shell line.
_UNSAFE_IN_SHELL = re.compile(r"[\s'\"\\$`;&|<>()*?\[\]{}#!~]")


@dataclass(frozen=True)
class Host:
    """One Tensile tree.

    Attributes:
        tree: the folder that holds the package `Tensile`.
        generation: one of the names above.
        version: its own version; empty where it says none.
        source: how it was found, for the log.
        standIn: it is the stand-in tree of our tests, not a Tensile.
    """

    tree: str
    generation: str
    version: str
    source: str
    standIn: bool = False

    @property
    def command(self) -> str:
        """Path of its own command, bin/Tensile."""
        return os.path.join(self.tree, "Tensile", "bin", "Tensile")

    @property
    def buildsClient(self) -> bool:
        """Whether it builds a client of its own when it is given none."""
        return self.generation not in (TENSILELITE_2026, UNKNOWN)

    @property
    def defaultClient(self) -> str:
        """Path of the client that is built beforehand (TensileLite 2026)."""
        parts = ("build_tmp", "tensilelite", "client", "tensilelite-client")
        return os.path.join(self.tree, *parts)

    def module(self, *name: str) -> str:
        """Text of a module of its package `Tensile`; empty where it has none."""
        path = os.path.join(self.tree, "Tensile", *name)
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                return stream.read()
        except OSError:
            return ""

    @property
    def description(self) -> str:
        """One line for a person."""
        words = (self.generation, self.version or "(version unknown)", self.tree)
        return ("stand-in for " if self.standIn else "") + "%s %s in %s" % words


def ourRoot() -> str:
    """The folder that holds Tensile/Parallel: this checkout, a host's tree, site-packages."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def findHost(
    environment: Mapping[str, str],
    tensileRoot: Optional[str] = None,
    emulated: bool = False,
    path: Optional[Sequence[str]] = None,
) -> Host:
    """The host: --tensile-root, else TENSILE_ROOT, else the tree this lies in, else an importable.

    Args:
        environment: the process environment.
        tensileRoot: --tensile-root; None where it was not given.
        emulated: with emulated devices the stand-in host serves where there is no other.
        path: where an importable Tensile is looked for; None for sys.path.

    Raises:
        InputError: there is none, or the one that was named is none.
    """
    named = (
        (tensileRoot, "--tensile-root"),
        (environment.get("TENSILE_ROOT"), "TENSILE_ROOT"),
    )
    for folder, source in named:
        if folder:
            tree = treeWithin(folder)
            if tree is None:
                raise InputError(
                    "%s %s is not a Tensile tree: there is no Tensile/bin/Tensile in it, nor in "
                    "tensilelite/ or projects/hipblaslt/tensilelite/ below it" % (source, folder)
                )
            return _describe(tree, source)
    if _isTree(ourRoot()):
        return _describe(ourRoot(), "the tree this lies in")
    for entry in sys.path if path is None else path:
        folder = os.path.abspath(entry)
        if _isTree(folder):
            return _describe(folder, "the Tensile on Python's path")
    standIn = os.path.join(ourRoot(), "Tensile", "Tests", "parallel", "host", "tensilelite")
    if emulated and _isTree(standIn):
        return _describe(standIn, "the stand-in, as there is no Tensile here")
    raise InputError(
        "no Tensile tree: give one with --tensile-root or TENSILE_ROOT (the folder that holds "
        "Tensile/bin/Tensile, such as hipBLASLt/tensilelite)"
    )


def hostCommand(host: Host, bootstrapOptions: Sequence[str], arguments: Sequence[str]) -> List[str]:
    """Command line that runs the host's own Tensile(...) in a process of its own.

    Args:
        host: the tree.
        bootstrapOptions: options of HostBootstrap.py.
        arguments: the arguments of the host's command.
    """
    bootstrap = os.path.join(os.path.dirname(os.path.abspath(__file__)), "HostBootstrap.py")
    return [sys.executable, bootstrap, *bootstrapOptions, host.tree, "--", *arguments]


def refusesUnknownParameters(host: Host) -> bool:
    """Whether the host ends at a global parameter that it does not know (newer 2026 trees)."""
    return "raise ConfigTypeError" in host.module("Common", "GlobalParameters.py")


def serialCommand(
    host: Host,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    deviceList: bool = False,
) -> Tuple[List[str], Mapping[str, str]]:
    """The host's own command and its environment.

    Its script takes whichever Tensile Python finds first, so the tree goes to the front of
    PYTHONPATH: what runs is the tree that was found, and not an installed one.

    Args:
        deviceList: the config has a DeviceList. A host that would refuse to run such a config is
            started by HostBootstrap.py, which does what its script does and makes DeviceList
            known; nothing else differs.
    """
    inherited = environment.get("PYTHONPATH")
    path = host.tree if not inherited else host.tree + os.pathsep + inherited
    command = [sys.executable, host.command, *arguments]
    if deviceList and refusesUnknownParameters(host):
        command = hostCommand(host, [], arguments)
    return command, dict(environment, PYTHONPATH=path)


def unsafeInShell(path: str) -> Optional[str]:
    """The first character that the host's run.sh, which quotes nothing, would stumble over."""
    found = _UNSAFE_IN_SHELL.search(path)
    return None if found is None else found.group()


def treeWithin(folder: str) -> Optional[str]:
    """The tree that a user means by a folder: it, one below it, or the package itself."""
    folder = os.path.abspath(os.path.expanduser(folder))
    candidates = [os.path.normpath(os.path.join(folder, inside)) for inside in _INSIDE]
    if os.path.basename(folder) == "Tensile":
        candidates.append(os.path.dirname(folder))
    return next((candidate for candidate in candidates if _isTree(candidate)), None)


def _isTree(folder: str) -> bool:
    package = os.path.join(folder, "Tensile")
    return all(
        os.path.isfile(os.path.join(package, *name))
        for name in (("__init__.py",), ("bin", "Tensile"))
    )


def _describe(tree: str, source: str) -> Host:
    package = os.path.join(tree, "Tensile")
    standIns = os.path.join("Tests", "parallel", "host") + os.sep
    return Host(
        tree=tree,
        generation=_generation(package),
        version=_version(os.path.join(package, "__init__.py")),
        source=source,
        standIn=standIns in os.path.realpath(tree) + os.sep,
    )


def _generation(package: str) -> str:
    """Generation of a tree, from which files it has (seen in the four trees themselves).

    Early 2025 made Common a package; by 2026 the host no longer builds a client, so
    ClientExecutable.py is gone. Before that, TensileInstructions/ tells TensileLite from classic
    Tensile. A tree without Common is of a generation that nobody here has seen.
    """

    def has(*name: str) -> bool:
        return os.path.exists(os.path.join(package, *name))

    if has("Common", "__init__.py"):
        return TENSILELITE_2025 if has("ClientExecutable.py") else TENSILELITE_2026
    if not has("Common.py"):
        return UNKNOWN
    return TENSILELITE_2024 if has("TensileInstructions") else CLASSIC


def _version(initFile: str) -> str:
    try:
        with open(initFile, encoding="utf-8", errors="replace") as stream:
            found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", stream.read(), re.MULTILINE)
    except OSError:
        return ""
    return found.group(1) if found else ""
