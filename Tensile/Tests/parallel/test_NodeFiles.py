# SPDX-License-Identifier: MIT
"""Files on a node: the same path with the same content, or the private cache, always verified."""

import hashlib
import os
import resource
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Tensile.Parallel.Errors import RunError
from Tensile.Parallel.Mirror import Mirror
from Tensile.Parallel.NodeFiles import (
    KEEP_SECONDS,
    NodeCache,
    SentFile,
    checkRoom,
    describeFile,
    errorsNameNode,
    hashFile,
    mappedValues,
)
from Tensile.Parallel.NodeOrder import FOLDER_MARK, mappedWord
from Tensile.Parallel.NodeUnit import FilePart, UnitEnd, mirroredFile
from Tensile.Parallel.Types import Device, Job, Unit

pytestmark = pytest.mark.unit


def send(cache, data, file, step=7):
    """Sends a file in parts."""
    for offset in range(0, len(data), step):
        cache.receive(file.sha256, offset, data[offset : offset + step], len(data), "sender-1")


@pytest.fixture
def library(tmp_path):
    """A library on the front end's machine, and its description."""
    path = tmp_path / "front" / "library.yaml"
    path.parent.mkdir()
    path.write_bytes(b"solutions: of some length\n")
    return path, describeFile(str(path))


def test_aSharedFileIsUsedWhereItIs(library, tmp_path):
    """The same path with the same content needs no copy."""
    path, file = library
    cache = NodeCache(str(tmp_path / "cache"))
    assert cache.locate([file]) == ({str(path): str(path)}, [])


def test_whatIsMissingIsSentOnceAndVerified(library, tmp_path):
    """A file that is not there is asked for once, keeps its name, and is used by later runs."""
    path, file = library
    data = path.read_bytes()
    path.unlink()
    cache = NodeCache(str(tmp_path / "cache"))
    assert cache.locate([file]) == ({}, [file.sha256])
    send(cache, data, file)
    for each in (cache, NodeCache(str(tmp_path / "cache"))):
        found, missing = each.locate([file])
        assert not missing
        assert os.path.basename(found[str(path)]) == "library.yaml"
        assert open(found[str(path)], "rb").read() == data
        assert os.stat(found[str(path)]).st_mode & 0o777 == 0o600


def test_otherContentAtThePathIsNotUsed(library, tmp_path):
    """A library at the same path with other content is no library of ours: ours is sent."""
    path, file = library
    data = path.read_bytes()
    path.write_bytes(data.upper())
    cache = NodeCache(str(tmp_path / "cache"))
    assert cache.locate([file]) == ({}, [file.sha256])
    send(cache, data, file)
    assert open(cache.locate([file])[0][str(path)], "rb").read() == data


@pytest.mark.parametrize("content", [b"another client, longer", b"client"])
def test_anotherClientIsAnError(content, tmp_path):
    """A node with another client at the client's path is refused, not silently mixed in."""
    path = tmp_path / "tensile_client"
    path.write_bytes(b"Client")
    file = describeFile(str(path), client=True)
    path.write_bytes(content)
    with pytest.raises(RunError, match="differs on this machine"):
        NodeCache(str(tmp_path / "cache")).locate([file])


def test_aClientThatWasSentCanBeRun(tmp_path):
    """An executable is executable in the cache, for its user alone."""
    path = tmp_path / "tensile_client"
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o755)
    file = describeFile(str(path), client=True)
    path.unlink()
    cache = NodeCache(str(tmp_path / "cache"))
    send(cache, b"#!/bin/sh\n", file)
    assert os.stat(cache.locate([file])[0][str(path)]).st_mode & 0o777 == 0o700


def test_damageIsSeen(library, tmp_path):
    """Damaged on its way: refused. Changed in the cache later: fetched anew."""
    path, file = library
    data = path.read_bytes()
    path.unlink()
    cache = NodeCache(str(tmp_path / "cache"))
    with pytest.raises(RunError, match="damaged"):
        send(cache, data[:-1] + b"X", file)
    assert cache.locate([file])[1] == [file.sha256]
    send(cache, data, file)
    view = cache.locate([file])[0][str(path)]
    blob = os.path.join(cache.root, "blobs", file.sha256)
    for changed in (view, blob):
        with open(changed, "r+b") as stream:
            stream.write(b"#")
        found, missing = cache.locate([file])
        if missing:
            send(cache, data, file)
            found, missing = cache.locate([file])
        assert not missing and hashFile(found[str(path)]) == file.sha256


@pytest.fixture
def smallFiles():
    """As on a full disk, no file grows beyond some bytes; ends after the test."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_aFullCacheIsToldInOneLine(tmp_path, smallFiles):
    """No half of a file is left, neither of what is sent nor of a copy; the error names the node,
    the folder, the reason and the advice, and is none of the connection."""
    cache = NodeCache(str(tmp_path / "cache"))
    file = SentFile("/nowhere/library.yaml", hashlib.sha256(bytes(8192)).hexdigest(), 8192)
    tries = [lambda: cache.receive(file.sha256, 0, bytes(8192), 8192, "x")]
    tries.append(lambda: checkRoom(cache.root))
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    send(cache, bytes(8192), file, 8192)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    tries.append(lambda: cache.locate([file]))
    for each in tries:
        with pytest.raises(RunError) as caught, errorsNameNode("b", cache.root):
            each()
        assert str(caught.value) == (
            "node b: %s: File too large; free space there, or set XDG_CACHE_HOME there to a "
            "folder with room" % cache.root
        )
    files = [name for _, _, names in os.walk(cache.root) for name in names]
    assert files == [file.sha256]
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RunError) as caught, errorsNameNode("b", str(tmp_path / "file")):
        NodeCache(str(tmp_path / "file" / "cache"))
    assert str(caught.value) == (
        "node b: %s: Not a directory; set XDG_CACHE_HOME there to a folder of your own"
        % (tmp_path / "file" / "cache")
    )


def test_namesFromTheNetworkAreNoPaths(library, tmp_path):
    """No hash or sender, whoever made it up, leads out of the cache."""
    _, file = library
    cache = NodeCache(str(tmp_path / "cache"))
    with pytest.raises(RunError):
        cache.receive("../../../x", 0, b"x", 1, "../y")
    inside = [
        os.path.join(folder, name) for folder, _, names in os.walk(tmp_path) for name in names
    ]
    assert all(
        name.startswith((str(tmp_path / "cache"), str(tmp_path / "front"))) for name in inside
    )


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_aCacheThatOthersCanEnterIsRefused(mode, tmp_path):
    """The cache is its user's alone."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(RunError, match="XDG_CACHE_HOME"):
        NodeCache(str(tmp_path / "cache"))


def test_pruneKeepsWhatIsUsed(library, tmp_path):
    """Two weeks unused, or left by a dead join: gone. A living join's folder stays."""
    path, file = library
    data = path.read_bytes()
    path.unlink()
    cache = NodeCache(str(tmp_path / "cache"))
    send(cache, data, file)
    with cache.joinFolderInUse("alive") as alive:
        dead = cache.joinFolder("dead")
        open(os.path.join(dead, ".lock"), "wb").close()
        NodeCache(cache.root).prune()
        assert os.path.isdir(alive) and not os.path.exists(dead)
        assert not cache.locate([file])[1]
        NodeCache(cache.root).prune(os.stat(cache.root).st_mtime + 2 * KEEP_SECONDS)
        assert NodeCache(cache.root).locate([file])[1]
    assert not os.path.exists(alive)


def test_iniValuesAreMapped(tmp_path):
    """Relative names count from the working folder; a packed library keeps its plain name."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "T.dat.zlib").write_bytes(b"")
    paths = {
        str(tmp_path / "lib" / "T.dat.zlib"): "/cache/0/T.dat.zlib",
        str(tmp_path / "k.co"): "/cache/1/k.co",
    }
    entries = [("library-file", "lib/T.dat"), ("code-object", str(tmp_path / "k.co"))]
    entries += [("code-object", "absent.co"), ("results-file", str(tmp_path / "k.co"))]
    found = mappedValues(entries, paths, str(tmp_path))
    assert found == {"lib/T.dat": "/cache/0/T.dat", str(tmp_path / "k.co"): "/cache/1/k.co"}


def test_wordsOfTheCommandAreMapped():
    """Files by name, also behind an option's "="; the unit's folder by its place; else nothing."""
    words = {"/a/lib.yaml": "/n/lib.yaml"}
    mapped = [
        mappedWord(word, words, "/out/gpu_0")
        for word in ("/a/lib.yaml", "--library-file=/a/lib.yaml", "/out/gpu_0/unit_1.ini", "/out/g")
    ]
    assert mapped == [
        "/n/lib.yaml",
        "--library-file=/n/lib.yaml",
        FOLDER_MARK + "/unit_1.ini",
        "/out/g",
    ]


def job(folder):
    """A unit of no interest."""
    unit = Unit(3, 0, 1, 0, 1)
    return Job(unit, Device(0, "0"), ("client",), str(folder), "gpu_0", 0, 0, (), 1, str(folder))


@settings(deadline=None, max_examples=40)
@given(cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_theMirrorIsThePartsInOrder(tmp_path_factory, cuts):
    """Whatever parts come, twice, late or early: there is the file's beginning, and then all."""
    data = bytes(range(40))
    mine = job(tmp_path_factory.mktemp("mirror"))
    mirror = Mirror(mine)
    for offset, length in cuts:
        mirror.add(".log", FilePart(offset, data[offset : offset + length], 0.0))
        there = b""
        if os.path.exists(mine.file(".log")):
            there = open(mine.file(".log"), "rb").read()
        assert data.startswith(there) and len(there) == mirror.sizes.get(".log", 0)
    mirror.add(".log", FilePart(0, data, 0.0))
    assert open(mine.file(".log"), "rb").read() == data


def test_theMirrorComparesAndTidies(tmp_path):
    """What differs from the node's is seen; what the node has removed goes; other names are not
    written; the time is the node's, by our clock."""
    mine = job(tmp_path)
    mirror = Mirror(mine)
    mirror.add(".csv", FilePart(0, b"row\n", 100.0))
    mirror.add(".warmup.log", FilePart(0, b"warm\n", 0.0))
    mirror.add("/../../evil", FilePart(0, b"x", 0.0))
    assert sorted(os.listdir(tmp_path)) == ["unit_3.csv", "unit_3.warmup.log"]
    assert abs(os.stat(mine.file(".csv")).st_mtime + 100 - os.stat(tmp_path).st_mtime) < 30
    end = UnitEnd(None, 0.0, {".csv": 4}, {".csv": hashFile(mine.file(".csv"))}, {}, False)
    mirror.keepOnly([".csv"])
    assert os.listdir(tmp_path) == ["unit_3.csv"]
    assert mirror.matches(end)
    assert not mirror.matches(replace(end, hashes={".csv": "0" * 64}))
    assert not mirror.matches(replace(end, hashes={".log": "0" * 64}))
    assert mirroredFile(mine, ".warmup.log").endswith("unit_3.warmup.log")
