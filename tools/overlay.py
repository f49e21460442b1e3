#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lays TensileParallel into a Tensile tree, and takes it out again.

    python setup.py overlay --into TREE             lay it in; again: bring it up to date
    python setup.py overlay --into TREE --link      the same as symbolic links to this checkout
    python setup.py overlay --into TREE --remove    take away what was laid in, and nothing else

It writes Tensile/Parallel/, Tensile/Tests/parallel/ and our three scripts in Tensile/bin/, and
notes them in a record in the tree. What is there and is not known to be ours is never overwritten.
Needs Python alone, no setuptools and no pip.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, NoReturn, Optional, Sequence

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "Tensile" / "Parallel" / "Alone"))

from Tensile.Parallel.Errors import (  # noqa: E402
    InputError,
    TensileParallelError,
    describeError,
)
from Tensile.Parallel.Files import replaceFile, replaceJson  # noqa: E402
from Tensile.Parallel.Host import treeWithin  # noqa: E402
from Tensile.Parallel.Terminal import tell  # noqa: E402

TARGETS = (
    "Tensile/Parallel",
    "Tensile/Tests/parallel",
    "Tensile/bin/TensileParallel",
    "Tensile/bin/TensileParallelClient",
    "Tensile/bin/TensileEmulatedClient",
)
RECORD = "Tensile/.TensileParallel.overlay.json"
IGNORED = {"__pycache__", "a.out"}
# What is written beside its place and moved there. Who finds one knows that a command was killed.
HALF_DONE = ".TensileParallel.half-done"


class Record:
    """What was laid into a tree: the fingerprints that each path may have, and new folders."""

    def __init__(self, tree: Path) -> None:
        """Read the tree's record; an empty one where there is none.

        Raises:
            InputError: it is no such record.
        """
        self.path = tree / RECORD
        self.exists = self.path.is_file()
        self.linked: Optional[bool] = None
        self.items: Dict[str, List[str]] = {}
        self.folders: List[str] = []
        if self.exists:
            try:
                content = json.loads(self.path.read_text("utf-8"))
                self.linked = bool(content["linked"])
                self.items = {str(name): list(marks) for name, marks in content["items"].items()}
                self.folders = [str(name) for name in content["folders"]]
                marks = [mark for marks in self.items.values() for mark in marks]
                ours = all(map(mayBeOurs, self.items)) and all(map(mayHold, self.folders))
                if not ours or not all(mark.startswith(("sha256 ", "link ")) for mark in marks):
                    raise ValueError("it names what this command never writes")
            except (ValueError, KeyError, TypeError, AttributeError):
                raise InputError(
                    "%s is damaged: delete it and what was laid in (%s)"
                    % (self.path, ", ".join(TARGETS))
                ) from None

    def write(self) -> None:
        """Write it as a whole."""
        content = {"linked": self.linked, "items": self.items, "folders": self.folders}
        replaceJson(self.path, content)


def mayBeOurs(name: str) -> bool:
    """Whether a path in the tree can be one that this command writes."""
    parts = Path(name).parts
    inside = any(name == target or name.startswith(target + "/") for target in TARGETS)
    return inside and ".." not in parts and not Path(name).is_absolute()


def mayHold(name: str) -> bool:
    """Whether a path in the tree can be a folder that this command makes."""
    return mayBeOurs(name) or any(name in parentsWithin(target) for target in TARGETS)


@contextlib.contextmanager
def onlyOne(tree: Path) -> Iterator[None]:
    """Keeps a second command away from a tree until this one has ended, however it ends.

    Raises:
        InputError: there is another.
    """
    descriptor = os.open(tree / "Tensile", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError("another overlay command is at work in %s: wait for it" % tree) from None
    finally:
        os.close(descriptor)


def clearHalfDone(tree: Path) -> None:
    """What a command that was killed had not yet moved to its place."""
    folders = {parent for target in TARGETS for parent in parentsWithin(target)}
    for name in sorted(folders | set(TARGETS)):
        folder = tree / name
        if folder.is_symlink() or not folder.is_dir():
            continue
        whole = name in TARGETS
        for path in folder.rglob("*" + HALF_DONE) if whole else folder.glob("*" + HALF_DONE):
            path.unlink()


def fingerprint(path: Path) -> Optional[str]:
    """What is at a path: a file's hash, a link's target, another kind of thing; None: nothing."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(mode):
        return "link " + os.readlink(path)
    if stat.S_ISREG(mode):
        return "sha256 " + hashlib.sha256(path.read_bytes()).hexdigest()
    return "folder" if stat.S_ISDIR(mode) else "special"


def wantedItems(linked: bool) -> Dict[str, str]:
    """Path in the tree -> fingerprint, of everything that belongs there."""
    if linked:
        return {name: "link " + str(ROOT / name) for name in TARGETS}
    wanted = {}
    for target in TARGETS:
        for path in [ROOT / target, *sorted((ROOT / target).rglob("*"))]:
            name = path.relative_to(ROOT)
            hidden = any(part in IGNORED or part.startswith(".") for part in name.parts)
            if path.is_file() and not hidden and path.suffix != ".pyc":
                wanted[name.as_posix()] = str(fingerprint(path.resolve()))
    return wanted


def parentsWithin(name: str) -> List[str]:
    """The folders on the way to a path in the tree, outermost first."""
    return [parent.as_posix() for parent in reversed(Path(name).parents) if parent.parts]


def refuseWhatIsNotOurs(tree: Path, record: Record, wanted: Dict[str, str]) -> None:
    """Before anything is touched.

    Raises:
        InputError: something is in the way that was not laid there, or was changed since.
    """
    foreign = []
    for name in {parent for item in wanted for parent in parentsWithin(item)}:
        if fingerprint(tree / name) not in (None, "folder"):
            foreign.append(name)
    for name, mark in wanted.items():
        if fingerprint(tree / name) not in (None, mark, *record.items.get(name, ())):
            foreign.append(name)
    if foreign:
        more = " (and %d more)" % (len(foreign) - 1) if len(foreign) > 1 else ""
        raise InputError(
            "%s%s was not laid there by this command, or was changed since: move it away; "
            "nothing was done" % (tree / min(foreign), more)
        )


def layIn(tree: Path, linked: bool, say: "Listing") -> None:
    """Lay everything in, or bring it up to date.

    The record is written first, with both the old and the new fingerprints: stopped at any
    moment, the same command or --remove knows what is ours.

    Raises:
        InputError: something is in the way.
    """
    record = Record(tree)
    if record.exists and record.linked != linked:
        raise InputError(
            "%s holds %s: take them away first, with --remove"
            % (tree, "links" if record.linked else "copied files")
        )
    wanted = wantedItems(linked)
    refuseWhatIsNotOurs(tree, record, wanted)
    # What lies there already and is equal is somebody else's copy, and stays when ours goes.
    found = {name for name in wanted if name not in record.items and os.path.lexists(tree / name)}
    ours = {name: mark for name, mark in wanted.items() if name not in found}
    record.linked = linked
    stale = {name: marks for name, marks in record.items.items() if name not in wanted}
    for name, mark in ours.items():
        record.items.setdefault(name, []).append(mark)
        for parent in parentsWithin(name):
            if parent not in record.folders and not os.path.lexists(tree / parent):
                record.folders.append(parent)
    record.write()
    for name in found:
        say.did("was there", name)
    for name, mark in ours.items():
        if fingerprint(tree / name) == mark:
            say.did("unchanged", name)
            continue
        put(tree, name, linked)
        say.did("linked" if linked else "written", name)
    takeAway(tree, stale, say)
    record.items = {name: [mark] for name, mark in ours.items()}
    record.write()
    say.total()
    tell("run it: %s" % (tree / "Tensile" / "bin" / "TensileParallel"))


def put(tree: Path, name: str, linked: bool) -> None:
    """One file or link, in place of an older one."""
    path, source = tree / name, ROOT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(path.name + HALF_DONE)
    if linked:
        os.symlink(source, half)
    else:
        replaceFile(half, source.read_bytes(), executable=os.access(source, os.X_OK))
    os.replace(half, path)


def takeAway(tree: Path, items: Dict[str, List[str]], say: "Listing") -> None:
    """Delete what is as it was laid in; name and keep what is not."""
    for name, marks in items.items():
        there = fingerprint(tree / name)
        if there in marks:
            (tree / name).unlink()
            say.did("removed", name)
        elif there is not None:
            say.did("kept: changed since", name, always=True)


def takeOut(tree: Path, say: "Listing") -> None:
    """--remove.

    Raises:
        InputError: nothing was laid in.
    """
    record = Record(tree)
    if not record.exists:
        raise InputError("%s: nothing was laid into this tree by this command" % tree)
    takeAway(tree, record.items, say)
    if not record.items:
        tell("what lies there was there before, and stays; by hand: rm -r %s" % " ".join(TARGETS))
    for name in reversed(record.folders):
        for cache in (tree / name).glob("__pycache__"):
            shutil.rmtree(cache)
        try:
            (tree / name).rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            say.did("kept: holds something else", name + "/", always=True)
    record.path.unlink()
    say.total()


class Listing:
    """Says what was done: every path, or how many there were of each kind."""

    def __init__(self, verbose: bool) -> None:
        self.verbose = verbose
        self.counts: Counter = Counter()

    def did(self, what: str, name: str, always: bool = False) -> None:
        """One path."""
        target = next((t for t in TARGETS if name == t or name.startswith(t + "/")), name)
        self.counts[target, what] += 1
        if self.verbose or always:
            tell("%s: %s" % (what, name))

    def total(self) -> None:
        """One line for each of the places."""
        for target in TARGETS:
            parts = ["%d %s" % (n, what) for (t, what), n in self.counts.items() if t == target]
            if parts:
                tell("%s: %s" % (target, ", ".join(parts)))


class OneLineParser(argparse.ArgumentParser):
    """Its errors are ours, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Raises InputError."""
        raise InputError("%s (see %s --help)" % (message, self.prog))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command. Returns its exit status: 0 done, 2 refused, 1 could not be written."""
    lines = str(__doc__).splitlines()
    parser = OneLineParser(
        prog="setup.py overlay",
        description=lines[0],
        epilog="\n".join(lines[1:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--into", metavar="TREE", required=True, help="the tree, or a root above it"
    )
    parser.add_argument("--link", action="store_true", help="links to this checkout, no copies")
    parser.add_argument("--remove", action="store_true", help="take away what was laid in")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every path")
    tree = None
    try:
        options = parser.parse_args(argv)
        if options.link and options.remove:
            raise InputError("--remove takes links away as well as copies: leave --link out")
        tree = treeWithin(options.into)
        if tree is None:
            raise InputError(
                "--into %s is not a Tensile tree: there is no Tensile/bin/Tensile in it, nor in "
                "tensilelite/ or projects/hipblaslt/tensilelite/ below it" % options.into
            )
        with onlyOne(Path(tree)):
            clearHalfDone(Path(tree))
            if options.remove:
                takeOut(Path(tree), Listing(options.verbose))
            else:
                layIn(Path(tree), options.link, Listing(options.verbose))
    except TensileParallelError as error:
        tell("overlay: error: %s" % error, sys.stderr)
        return error.exitStatus
    except OSError as error:
        more = "" if tree is None else "; the same command goes on, --remove undoes"
        tell("overlay: error: %s%s" % (describeError(error), more), sys.stderr)
        return 1
    except KeyboardInterrupt:
        tell("overlay: stopped; the same command goes on, --remove undoes", sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
