# SPDX-License-Identifier: MIT
"""Files that a unit needs on another machine: what they are, and the cache that holds them there.

    front end: stepFiles(step) -> [SentFile]    path, hash, size of client, library, code objects
    node:      NodeCache.locate(files)          the same path with the same content, else the cache
               NodeCache.receive(hash, ...)     what it has not: sent once, in parts, and checked

The cache is private to its user, and nothing in it is used before its content was hashed:

    blobs/<sha256>                 what was sent
    views/<hash>/<k>/<name>        the files of one step under their own names; <k>: their folder
    work/<join>/                   a join's, for as long as it runs: the files of running units
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import time
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from .Errors import RunError, describeCacheError
from .SolutionNames import libraryOnDisk
from .Step import Step

# Options whose values are files that a client reads.
READ_OPTIONS = ("library-file", "code-object")
# A lazily loaded library has its parts beside it.
_LAZY_PARTS = (".dat", ".dat.zlib", ".co", ".hsaco")
# What was not used for so long, in seconds, is removed when a node joins.
KEEP_SECONDS = 14 * 24 * 3600.0
_BLOCK = 1 << 20
# Less room than this for a unit's files is none.
ROOM_BYTES = 1 << 16
_LOCK = ".lock"
# In place of a hash.
_OTHER_SIZE = "-"


@dataclass(frozen=True)
class SentFile:
    """A file that units of a step read.

    Attributes:
        path: absolute, on the front end's machine.
        sha256: of its content.
        size: in bytes.
        executable: whether it is a program.
        client: whether it is the tensile_client itself.
    """

    path: str
    sha256: str
    size: int
    executable: bool = False
    client: bool = False


def stepFiles(step: Step, emulated: bool) -> Tuple[SentFile, ...]:
    """What a step's clients read. A file that is not there is the client's to complain of.

    Args:
        step: the step.
        emulated: whether the client is the emulated one, which every node has.
    """
    paths: Dict[str, bool] = {}
    if not emulated:
        paths[step.client[-1]] = True
    named = [value for key, value in step.config.entries if key in READ_OPTIONS]
    for value in named:
        path = os.path.join(step.workingFolder, value)
        found = libraryOnDisk(path)
        for each in [found, *_lazyParts(found)]:
            paths.setdefault(os.path.normpath(each), False)
    files = []
    for path, isClient in paths.items():
        with contextlib.suppress(OSError):
            files.append(describeFile(path, isClient))
    return tuple(files)


def _lazyParts(library: str) -> List[str]:
    name = os.path.basename(library)
    if "_lazy_" not in name:
        return []
    folder = os.path.dirname(library)
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder))
        return [os.path.join(folder, n) for n in names if n.endswith(_LAZY_PARTS) and n != name]
    return []


def describeFile(path: str, client: bool = False) -> SentFile:
    """A file's hash and size.

    Raises:
        OSError: it cannot be read.
    """
    found = os.stat(path)
    executable = bool(found.st_mode & stat.S_IXUSR)
    return SentFile(path, hashFile(path), found.st_size, executable, client)


def hashFile(path: str) -> str:
    """SHA-256 of a file's content, in hex.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def cacheFolder(environment: Mapping[str, str]) -> str:
    """Where this user's cache lies: below XDG_CACHE_HOME, else ~/.cache."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(os.path.abspath(base), "tensile-parallel")


def privateFolder(path: str) -> str:
    """Makes a folder that is this user's alone, and refuses one that is not.

    Raises:
        RunError: it cannot be made, is a link, somebody else's, or open to others.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.lstat(path)
    except OSError as error:
        raise RunError(describeCacheError(path, error)) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        advice = "set XDG_CACHE_HOME to a folder of your own"
        raise RunError("%s is not a folder of this user alone; %s" % (path, advice))
    return path


def checkRoom(folder: str) -> None:
    """Looks whether a folder takes more: a client may not say that it does not.

    Raises:
        OSError: it does not.
    """
    path = os.path.join(folder, "room")
    try:
        with open(path, "wb") as stream:
            stream.write(bytes(ROOM_BYTES))
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


@contextlib.contextmanager
def errorsNameNode(node: str, folder: str) -> Iterator[None]:
    """Has what goes wrong with a node's files say on which node, where, why, and what to do.

    Args:
        node: its name.
        folder: its cache's.

    Raises:
        RunError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise RunError("node %s: %s" % (node, describeCacheError(folder, error))) from None
    except RunError as error:
        if type(error) is not RunError or str(error).startswith("node "):
            raise
        raise RunError("node %s: %s" % (node, error)) from None


class NodeCache:
    """A node's cache. Several processes of one user may use it at once."""

    def __init__(self, root: str) -> None:
        """Opens or makes it.

        Raises:
            RunError: its place is not private.
        """
        self.root = privateFolder(root)
        self._blobs = privateFolder(os.path.join(root, "blobs"))
        self._views = privateFolder(os.path.join(root, "views"))
        self._work = privateFolder(os.path.join(root, "work"))
        self._hashes: Dict[Tuple[str, int, int, int], str] = {}

    def locate(self, files: Sequence[SentFile]) -> Tuple[Dict[str, str], List[str]]:
        """Where the files are on this machine.

        Returns:
            (their path on the front end's machine -> here, hashes of those that are not here).

        Raises:
            RunError: this machine has another client at the client's path.
        """
        found: Dict[str, str] = {}
        missing: List[str] = []
        for file in files:
            here = self._hash(file.path, file.size)
            if here == file.sha256:
                found[file.path] = file.path
            elif file.client and here is not None:
                other = "another size" if here == _OTHER_SIZE else "sha256 %.12s" % here
                raise RunError(
                    "the client %s differs on this machine from the front end's (%s, not sha256 "
                    "%.12s): give all the same one" % (file.path, other, file.sha256)
                )
            elif self._hash(self._blob(file.sha256), file.size) != file.sha256:
                missing.append(file.sha256)
        if not missing:
            self._view([file for file in files if file.path not in found], found)
        return found, missing

    def receive(self, sha256: str, offset: int, data: bytes, size: int, sender: str) -> int:
        """Takes a part of a file. Parts come in order.

        Args:
            sha256: the file's hash.
            offset: where the part begins.
            data: the part.
            size: of the whole file.
            sender: tells senders apart, who may send the same file at once.

        Returns:
            How many bytes are there now.

        Raises:
            RunError: what was sent is not what was promised.
            OSError: there is no room for it.
        """
        target = self._blob(sha256)
        part = "%s.%s.part" % (target, _plain(sender))
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if offset == 0 else 0)
        with _removedIfFull(part), open(os.open(part, flags, 0o600), "wb") as stream:
            stream.seek(offset)
            stream.write(data)
            there = offset + len(data)
        if there >= size:
            if hashFile(part) != sha256:
                os.unlink(part)
                raise RunError("a file was damaged on its way to %s: run it again" % self.root)
            os.replace(part, target)
        return there

    def prune(self, now: Optional[float] = None) -> None:
        """Removes what nobody has used for two weeks, and what joins have left that are dead."""
        before = (time.time() if now is None else now) - KEEP_SECONDS
        for folder in (self._blobs, self._views):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    if os.stat(path).st_mtime < before:
                        _removeAny(path)
        for name in os.listdir(self._work):
            path = os.path.join(self._work, name)
            with contextlib.suppress(OSError):
                lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _removeAny(path)
                finally:
                    os.close(lock)

    def joinFolder(self, join: str) -> str:
        """The folder of one join's running units."""
        return privateFolder(os.path.join(self._work, _plain(join)))

    @contextlib.contextmanager
    def joinFolderInUse(self, join: str) -> Iterator[str]:
        """The same for the join itself: it goes at the end, or when the next one prunes."""
        folder = self.joinFolder(join)
        path = os.path.join(folder, _LOCK)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            _removeAny(folder)
            os.close(lock)

    def _blob(self, sha256: str) -> str:
        return os.path.join(self._blobs, _plain(sha256))

    def _hash(self, path: str, size: int) -> Optional[str]:
        """A file's hash, None where there is none. Read once as long as the file is the same."""
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                return None
            if found.st_size != size:
                return _OTHER_SIZE  # it cannot be the same, whatever it holds
            key = (path, found.st_size, found.st_mtime_ns, found.st_ino)
            if key not in self._hashes:
                self._hashes[key] = hashFile(path)
            return self._hashes[key]
        except OSError:
            return None

    def _view(self, files: Sequence[SentFile], found: Dict[str, str]) -> None:
        """Gives cached files their own names, those of one folder beside each other."""
        if not files:
            return
        folders = sorted({os.path.dirname(file.path) for file in files})
        key = hashlib.sha256()
        for file in files:
            place = (folders.index(os.path.dirname(file.path)), os.path.basename(file.path))
            key.update(repr((place, file.sha256, file.executable)).encode())
        view = os.path.join(self._views, key.hexdigest()[:32])
        for file in files:
            place = os.path.join(view, str(folders.index(os.path.dirname(file.path))))
            os.makedirs(place, mode=0o700, exist_ok=True)
            path = os.path.join(place, os.path.basename(file.path))
            if self._hash(path, file.size) != file.sha256:
                self._copy(file, path)
            found[file.path] = path
        for each in (view, *(self._blob(file.sha256) for file in files)):
            with contextlib.suppress(OSError):
                os.utime(each)

    def _copy(self, file: SentFile, path: str) -> None:
        """A copy and no link: what a client does to its own files must not reach the blob."""
        temporary = "%s.%d" % (path, os.getpid())
        with _removedIfFull(temporary):
            shutil.copyfile(self._blob(file.sha256), temporary)
            os.chmod(temporary, 0o700 if file.executable else 0o600)
            os.replace(temporary, path)


def mappedValues(
    entries: Iterable[Tuple[str, str]], paths: Mapping[str, str], workingFolder: str
) -> Dict[str, str]:
    """What an INI calls the files, and what it must call them on the node.

    Args:
        entries: the INI's (key, value).
        paths: the files' paths on the front end's machine -> on the node.
        workingFolder: what the values count from.
    """
    changed = {}
    for key, value in entries:
        if key not in READ_OPTIONS:
            continue
        path = os.path.normpath(os.path.join(workingFolder, value))
        disk = os.path.normpath(libraryOnDisk(path))
        if disk in paths:
            packed = len(disk) - len(path)  # ".zlib", which no INI names
            changed[value] = paths[disk][: len(paths[disk]) - packed]
    return changed


def _plain(text: str) -> str:
    """A name that is no path, whoever sent it."""
    kept = "".join(c for c in text if c.isalnum() or c in "-_")
    if not kept:
        raise RunError("%r names no file" % text)
    return kept


@contextlib.contextmanager
def _removedIfFull(path: str) -> Iterator[None]:
    """Leaves no half of a file behind on a disk that takes no more."""
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _removeAny(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)
