# SPDX-License-Identifier: MIT
"""The journal: whatever happens to the file, what is read is a prefix of what was written."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Tensile.Parallel.Journal import Journal, readJournal

pytestmark = pytest.mark.unit

value = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
record = st.dictionaries(st.text(max_size=8), value, max_size=4)
RECORDS = [{"unit": n, "pieces": [{"path": "unit_%d.csv" % n}], "text": "é" * n} for n in range(5)]


def write(path, records):
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        for one in records:
            journal.append(one)
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("journal") / "journal.msgpack"


@given(st.lists(record, max_size=5), st.lists(record, max_size=5))
@settings(deadline=None, max_examples=50)
def test_recordsSurviveReopening(path, first, second):
    """What was appended is read, in order, also what was added after opening it again."""
    write(path, first)
    with Journal(path) as journal:
        assert journal.records == first
        for one in second:
            journal.append(one)
        assert journal.records == first + second
    assert readJournal(path) == first + second


def test_missingJournalIsEmpty(tmp_path):
    """No file: no records, and reading does not make one."""
    assert readJournal(tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_everyTruncationIsAPrefix(path):
    """Cut at any byte: the whole records before the cut, and appending goes on from there."""
    data = write(path, RECORDS)
    ends = [0]
    for n in range(len(RECORDS)):
        ends.append(len(write(path, RECORDS[: n + 1])))
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = sum(end <= length for end in ends) - 1
        assert readJournal(path) == RECORDS[:whole]
        with Journal(path) as journal:
            journal.append({"new": length})
        assert readJournal(path) == RECORDS[:whole] + [{"new": length}]


def test_everyBitFlipIsAPrefix(path):
    """One bit turned anywhere: the records before the damaged one, never a changed record."""
    data = write(path, RECORDS)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found = readJournal(path)
        assert len(found) < len(RECORDS) and found == RECORDS[: len(found)]


@given(st.integers(0, 400), st.binary(max_size=300))
@settings(deadline=None)
def test_anyTailIsAPrefix(path, length, tail):
    """Other bytes in place of the end, as a disk may leave them: never a record of their own."""
    data = write(path, RECORDS)
    path.write_bytes(data[:length] + tail)
    found = readJournal(path)
    assert found == RECORDS[: len(found)]


@pytest.mark.parametrize("size", [1, 8, 4096])
def test_zerosAfterAPowerCut(path, size):
    """A file that was lengthened but not filled: zeros are no records."""
    data = write(path, RECORDS)
    path.write_bytes(data + b"\0" * size)
    assert readJournal(path) == RECORDS
    with Journal(path):
        pass
    assert path.read_bytes() == data


def test_fullDiskLosesOnlyTheRecord(tmp_path, monkeypatch):
    """A write that fails half way is taken back: what is appended later is read."""
    path = tmp_path / "journal"
    real = os.write

    def full(descriptor, data):
        if len(data) > 5:
            return real(descriptor, bytes(data)[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(path) as journal:
        journal.append(RECORDS[0])
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            journal.append({"lost": "x"})
        monkeypatch.undo()
        journal.append(RECORDS[1])
        assert journal.records == RECORDS[:2]
    assert readJournal(path) == RECORDS[:2]


def test_shortWritesAreCompleted(tmp_path, monkeypatch):
    """write(2) may take less than it was given."""
    path = tmp_path / "journal"
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
    write(path, RECORDS)
    assert readJournal(path) == RECORDS


def test_syncedBeforeItCounts(tmp_path, monkeypatch):
    """append() returns only after the data has been synced."""
    path = tmp_path / "journal"
    synced = []
    real = os.fdatasync

    def sync(descriptor):
        synced.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    with Journal(path) as journal:
        for one in RECORDS:
            journal.append(one)
            assert synced[-1] == path.stat().st_size
    assert len(synced) == len(RECORDS)


def test_notInheritedByClients(tmp_path):
    """The descriptor is closed in programs that are started meanwhile."""
    with Journal(tmp_path / "journal"):
        command = (
            "import os; folder = '/proc/self/fd/'; print([os.readlink(folder + n) "
            "for n in os.listdir(folder) if os.path.lexists(folder + n)])"
        )
        done = subprocess.run(
            [sys.executable, "-c", command], close_fds=False, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    assert "journal" not in done.stdout


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from Tensile.Parallel.Journal import Journal
journal = Journal(Path(sys.argv[1]))
for n in range(len(journal.records), 10**9):
    journal.append({"n": n, "text": "x" * (n % 3000)})
    print(n, flush=True)
"""


def test_killedWhileAppending(tmp_path):
    """A real process, killed again and again while it appends: all it had reported is there."""
    path = tmp_path / "journal"
    root = next(entry for entry in sys.path if os.path.isdir(os.path.join(entry, "Tensile")))
    told = -1
    for turn in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), root], stdout=subprocess.PIPE, text=True
        )
        while told < 40 * (turn + 1):
            told = int(process.stdout.readline())
        time.sleep(turn * 0.0007)  # so that not every kill comes right after a report
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        told = int(rest[-1]) if rest else told
        found = readJournal(path)
        assert [one["n"] for one in found] == list(range(len(found)))
        assert all(len(one["text"]) == one["n"] % 3000 for one in found)
        assert len(found) in (told + 1, told + 2)  # one may be there that was not reported
        told = len(found) - 1
