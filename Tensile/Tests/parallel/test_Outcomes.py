# SPDX-License-Identifier: MIT
"""What is made of a unit's files and of its client's end; the files are the real clients'."""

import os
import shutil
from dataclasses import replace

import pytest

from Tensile.Parallel.Outcomes import describeExit, examine, readTail
from Tensile.Parallel.Results import readHeader
from Tensile.Parallel.SolutionNames import readSolutionNames
from Tensile.Parallel.Types import (
    CRASHED,
    FAILED,
    HUNG,
    MEASURED,
    ClientExit,
    Device,
    Job,
    Unit,
)

pytestmark = pytest.mark.unit

DEVICE = Device(3, "3")


@pytest.fixture
def makeJob(recorded, tmp_path):
    """A function: recorded run, and how much of it is the unit -> job with the run's files."""

    def make(name, problems=(0, 6), solutions=(0, 24), **more):
        step = recorded(name)
        folder = tmp_path / "gpu_3"
        folder.mkdir()
        job = Job(
            unit=Unit(5, problems[0], problems[1], solutions[0], solutions[1]),
            device=DEVICE,
            command=("client",),
            folder=str(folder),
            pathBase="gpu_3",
            **{"written": problems[0], "firstColumn": 0, "passes": 1, **more},
            columns=_names(step)[solutions[0] :][: solutions[1]],
            workingFolder=str(tmp_path),
        )
        shutil.copy(step.ini, job.file(".ini"))
        shutil.copy(step.folder / "results.csv", job.file(".csv"))
        shutil.copy(step.folder / "stdout.txt", job.file(".log"))
        return job

    return make


def _names(step):
    library = next((step.into / "source" / "library").glob("TensileLibrary.*"))
    return tuple(readSolutionNames(str(library)))


def ended(status, hung=False):
    return ClientExit(status, hung, 100.0, 107.5, 0.5)


def edit(job, suffix, change):
    """Replaces a file of the unit by what `change` makes of its lines."""
    with open(job.file(suffix), "rb") as handle:
        lines = handle.read().splitlines(keepends=True)
    with open(job.file(suffix), "wb") as handle:
        handle.writelines(change(lines))


def pairLines(lines):
    return [at for at, line in enumerate(lines) if b"Contraction_" in line and b"/" in line[:8]]


def spans(result):
    return [
        (p.firstProblem, p.problemCount, p.firstSolution, p.solutionCount) for p in result.pieces
    ]


def test_wholeUnit(makeJob):
    """Exit 0 and every row there: measured, one piece, nothing to say."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    result = examine(job, ended(0))
    assert result.outcome.kind == MEASURED
    assert result.outcome.message == "" and result.outcome.lastPair is None
    assert result.outcome.seconds == 7.5 and result.startSeconds == 0.5
    assert spans(result) == [(2, 2, 0, 24)]
    assert (result.failedPairs, result.rejected, result.validationFailures) == (0, 0, 0)
    piece = result.pieces[0]
    assert (piece.path, piece.device, piece.unit) == (os.path.join("gpu_3", "unit_5.csv"), 3, 5)


def test_segmentationFault(makeJob):
    """The recorded crash: no row was written, but eight pairs were printed; they are kept."""
    job = makeJob("tensilelite-2024/segfault-on-MT64x64")
    result = examine(job, ended(139))
    assert result.outcome.kind == CRASHED
    assert "139" in result.outcome.message and "segmentation fault" in result.outcome.message
    assert result.outcome.lastPair == (0, 8)
    assert "MT64x64" in job.columns[8]
    assert spans(result) == [(0, 1, 0, 8)]
    salvaged = os.path.join(os.path.dirname(job.folder), result.pieces[0].path)
    assert readHeader(salvaged).solutions == job.columns[:8]
    with open(salvaged, "rb") as handle:
        row = handle.read().splitlines()[1].split(b", ")
    assert row[0] == b"0" and row[1:5] == [b"1024", b"1024", b"1", b"1024"]
    assert row[-3:] == [b"641998", b"796840", b"641998"]  # as the client printed them


def test_segmentationFaultInsideARange(makeJob):
    """A unit that is a part of the table names its pairs in the step's indices."""
    job = makeJob("tensilelite-2024/segfault-on-MT64x64", (40, 6), (2, 22), written=0)
    job = replace(job, firstColumn=0)
    result = examine(job, ended(139))
    assert result.outcome.lastPair == (40, 8)
    # Solutions 0 and 1 are not the unit's, whatever the log says.
    assert spans(result) == [(40, 1, 2, 6)]


def test_launchErrors(makeJob):
    """Exit 0 with -1 cells: measured, and the failed pairs are named with the client's reason."""
    job = makeJob("tensilelite-2024/launch-error-on-MT64x16")
    result = examine(job, ended(0))
    assert result.outcome.kind == MEASURED
    assert spans(result) == [(0, 6, 0, 24)]
    assert result.failedPairs == len(result.failures) > 0
    assert all("MT64x16" in job.columns[failure.solution] for failure in result.failures)
    assert all("719" in failure.message for failure in result.failures)
    assert result.rejected == 0 and result.validationFailures == 0


def _validation(lines, word, pairs):
    """The same log where some pairs' results were wrong."""
    at = pairLines(lines)
    for number in pairs:
        lines[at[number]] = lines[at[number]].replace(b"NO_CHECK", word)
    return lines


def _minusOne(lines):
    """The same results with a -1 in the first row's last cell."""
    cells = lines[1].rstrip().split(b", ")
    lines[1] = b", ".join([*cells[:-1], b"-1"]) + b"\n"
    return lines


def test_validationFailures(makeJob):
    """The exit status is the number of wrong results: the client went on, so it did not crash."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".log", lambda lines: _validation(lines, b"FAILED", [23, 40]))
    edit(job, ".csv", _minusOne)
    result = examine(job, ended(2))
    assert result.outcome.kind == MEASURED
    assert result.validationFailures == 2
    assert [(f.problem, f.solution) for f in result.failures] == [(2, 23), (3, 16)]
    assert all("FAILED" in failure.message for failure in result.failures)


@pytest.mark.parametrize("wrong, kind", [(48, CRASHED), (139, MEASURED), (138, CRASHED)])
def test_statusThatCouldBeASignal(makeJob, wrong, kind):
    """139 wrong results end as a segmentation fault does: the log's count tells them apart."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2), passes=1)

    def repeat(lines):  # as several passes would have printed them
        at = pairLines(lines)
        bad = [lines[i].replace(b"NO_CHECK", b"FAILED") for i in at]
        return (bad * 4)[:wrong]

    edit(job, ".log", repeat)
    result = examine(job, ended(139))
    assert result.outcome.kind == kind
    # All rows are there: a client that falls over at its very end loses nothing.
    assert spans(result) == [(2, 2, 0, 24)]


def test_moreThan255WrongResults(makeJob):
    """The client's exit status stops at 255."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(
        job,
        ".log",
        lambda lines: [lines[pairLines(lines)[0]].replace(b"NO_CHECK", b"FAILED")] * 300,
    )
    result = examine(job, ended(255))
    assert result.outcome.kind == MEASURED
    assert result.validationFailures == 300
    assert result.failedPairs == 1  # one pair, however often


def test_rejectedPairsAreNoFailures(makeJob):
    """A pair that the client's own predicates refuse is counted apart."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".log", lambda lines: _validation(lines, b"DID_NOT_SATISFY_ASSERTS", [23]))
    edit(job, ".csv", _minusOne)
    result = examine(job, ended(0))
    assert result.outcome.kind == MEASURED
    assert (result.rejected, result.failedPairs, result.failures) == (1, 0, ())


@pytest.mark.parametrize("content", [None, b"", b"no header at all\n1, 2, 3\n", b"GFlops, SizeI"])
def test_exitZeroWithoutResults(makeJob, content):
    """Exit 0 and no results, or something else in their place: failed, nothing is made up."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    os.remove(job.file(".csv"))
    if content is not None:
        with open(job.file(".csv"), "wb") as handle:
            handle.write(content)
    result = examine(job, ended(0))
    assert result.outcome.kind == FAILED
    assert "results" in result.outcome.message
    assert result.pieces == ()


def test_exitZeroWithNothingAtAll(makeJob):
    """No results, no output: still an outcome, no exception."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    for suffix in (".csv", ".log", ".ini"):
        os.remove(job.file(suffix))
    for status in (0, 1, 139, None):
        result = examine(job, ended(status))
        assert result.outcome.kind in (FAILED, CRASHED)
        assert result.outcome.message and result.pieces == () and result.tail == ""


def test_tornRow(makeJob):
    """A row cut in half by an abort is dropped; the log still has its pairs."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".csv", lambda lines: [*lines[:2], lines[2][:40]])
    edit(job, ".log", lambda lines: lines[: pairLines(lines)[30]])
    result = examine(job, ended(134))
    assert result.outcome.kind == CRASHED and result.outcome.exitStatus == 134
    assert spans(result) == [(2, 1, 0, 24), (3, 1, 0, 6)]
    assert result.outcome.lastPair == (3, 6)


def test_tornLineIsNoPair(makeJob):
    """A line of the log without its end is not a result, and the pair is the one that died."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".csv", lambda lines: lines[:1])
    edit(job, ".log", lambda lines: [*lines[: (at := pairLines(lines)[5])], lines[at][:-1]])
    result = examine(job, ended(139))
    assert spans(result) == [(2, 1, 0, 5)]
    assert result.outcome.lastPair == (2, 5)


def test_diesBetweenTwoRows(makeJob):
    """All of a row printed, none of the next: the next row's first pair was running."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".csv", lambda lines: lines[:2])
    edit(job, ".log", lambda lines: lines[: pairLines(lines)[24]])
    result = examine(job, ended(139))
    assert result.outcome.lastPair == (3, 0)
    assert spans(result) == [(2, 1, 0, 24)]


def test_rowPrintedButNotWritten(makeJob):
    """Killed between the last line of a row and its writing: the log gives the whole row."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".csv", lambda lines: lines[:1])
    edit(job, ".log", lambda lines: lines[: pairLines(lines)[24]])
    result = examine(job, ended(137))
    assert spans(result) == [(2, 1, 0, 24)]


def test_diesBeforeItsFirstPair(makeJob):
    """A client that never got ready names no pair: the device or the data may be at fault."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".csv", lambda lines: [])
    edit(job, ".log", lambda lines: lines[:5])
    result = examine(job, ended(134))
    assert result.outcome.kind == CRASHED and result.outcome.lastPair is None
    edit(job, ".log", lambda lines: [b"Log level: Debug\n"])
    assert examine(job, ended(134)).outcome.lastPair == (2, 0)


def test_terseLog(makeJob):
    """Where the log names no pairs the first row that is not complete is the one that died."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".csv", lambda lines: lines[:2])
    edit(job, ".log", lambda lines: [b"Log level: Terse\n"])
    result = examine(job, ended(139))
    assert spans(result) == [(2, 1, 0, 24)]
    assert result.outcome.lastPair == (3, 0)


def test_logOfWinnersOnly(makeJob):
    """Where the log has some pairs only, it cannot name one of a row that is complete."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".csv", lambda lines: lines[:2])
    edit(job, ".log", lambda lines: lines[: pairLines(lines)[3]])
    result = examine(job, ended(139))
    assert spans(result) == [(2, 1, 0, 24)]
    assert result.outcome.lastPair == (3, 0)


def test_exitZeroWithoutResultsIsNotMadeUpFromTheLog(makeJob):
    """A client that ends well and wrote nothing did not do its work, whatever it printed."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    os.remove(job.file(".csv"))
    edit(job, ".log", lambda lines: lines[: pairLines(lines)[24]])
    assert examine(job, ended(0)).pieces == ()


def test_hung(makeJob):
    """Ended for its silence: hung whatever its exit status, with what it had done."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    job = replace(job, silenceSeconds=33.0)
    edit(job, ".csv", lambda lines: lines[:2])
    edit(job, ".log", lambda lines: lines[: pairLines(lines)[26]])
    for status in (143, 137, 0):
        result = examine(job, ended(status, hung=True))
        assert result.outcome.kind == HUNG and "33 s" in result.outcome.message
        assert spans(result) == [(2, 1, 0, 24), (3, 1, 0, 2)]
        assert result.outcome.lastPair == (3, 2)


def test_exitOnError(makeJob):
    """exit-on-error ends the client with 1 and its row unwritten: kept, and counted as wrong."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".csv", lambda lines: lines[:1])
    edit(job, ".log", lambda lines: _validation(lines[: pairLines(lines)[7]], b"FAILED", [6]))
    result = examine(job, ended(1))
    assert result.outcome.kind == FAILED
    assert result.validationFailures == 1
    assert spans(result) == [(2, 1, 0, 7)]


def test_clientThatCannotBeStarted(makeJob):
    """No exit status: failed, with the reason that the worker left in the log."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    os.remove(job.file(".csv"))
    edit(job, ".log", lambda lines: [b"cannot start client: Permission denied\n"])
    result = examine(job, ended(None))
    assert result.outcome.kind == FAILED
    assert result.outcome.message == "cannot start client: Permission denied"


def test_severalPasses(makeJob):
    """num-benchmarks: all passes there make it whole; a cut second pass leaves no piece."""
    job = makeJob("tensilelite-2024/two-passes", passes=2)
    result = examine(job, ended(0))
    assert result.outcome.kind == MEASURED and spans(result) == [(0, 6, 0, 24)]
    edit(job, ".csv", lambda lines: lines[:9])  # pass 0 and two rows of pass 1
    result = examine(job, ended(139))
    assert result.outcome.kind == CRASHED
    assert spans(result) == [(0, 2, 0, 24)]


def test_betweenTwoPasses(makeJob):
    """After the last pair of a pass comes the first of the next."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2), passes=2)
    result = examine(job, ended(139))
    assert result.outcome.lastPair == (2, 0)
    assert spans(result) == []


def test_failuresOfPairsThatAreMeasuredAgain(makeJob):
    """A crashed unit answers only for the pairs that it keeps: the others are judged again."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2), passes=2)
    edit(job, ".log", lambda lines: _validation(lines, b"FAILED", [3]))
    result = examine(job, ended(139))
    assert (result.validationFailures, result.failedPairs, result.failures) == (0, 0, ())


def test_linesAboutForeignPairs(makeJob):
    """Lines that only look like the unit's own neither end the run nor count."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".csv", lambda lines: lines[:1])

    def foreign(lines):
        at = pairLines(lines)
        own = lines[: at[4]]
        line = lines[at[4]]
        return own + [line.replace(b"0,2/3,4/", b"0,77/3,4/"), line.replace(b",4/", b",400/")]

    edit(job, ".log", foreign)
    result = examine(job, ended(139))
    assert result.outcome.lastPair == (2, 4)
    assert spans(result) == [(2, 1, 0, 4)]


def test_otherSolutionsThanTheLibrary(makeJob):
    """A header that names other solutions: nothing of it is used."""
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    names = list(job.columns)
    result = examine(replace(job, columns=tuple(reversed(names))), ended(0))
    assert result.outcome.kind == FAILED and result.pieces == ()


def test_classicClient(makeJob):
    """The classic client's files are judged alike."""
    job = makeJob("classic-4.44/problems-1-2", (1, 2), (0, 6))
    assert spans(examine(job, ended(0))) == [(1, 2, 0, 6)]
    edit(job, ".csv", lambda lines: lines[:1])
    edit(job, ".log", lambda lines: lines[: pairLines(lines)[3]])
    result = examine(job, ended(139))
    assert spans(result) == [(1, 1, 0, 3)]
    assert result.outcome.lastPair == (1, 3)


def test_manyFailuresAreCountedNotListed(makeJob, monkeypatch):
    """Beyond a limit failures are counted only; the count stays right."""
    monkeypatch.setattr("Tensile.Parallel.Outcomes.MAX_LISTED_FAILURES", 3)
    job = makeJob("tensilelite-2024/problems-2-3", (2, 2))
    edit(job, ".log", lambda lines: _validation(lines, b"INVALID", range(10)))
    edit(job, ".csv", _minusOne)
    result = examine(job, ended(0))
    assert result.failedPairs == 10 and len(result.failures) == 3


@pytest.mark.parametrize(
    "status, hung, csv, kind",
    [
        (0, False, True, MEASURED),
        (5, False, True, MEASURED),
        (0, False, False, FAILED),
        (139, False, True, CRASHED),
        (143, True, True, HUNG),
        (None, False, False, FAILED),
    ],
)
def test_wholeStep(makeJob, status, hung, csv, kind):
    """A step that went whole to one device is judged by its end alone."""
    job = replace(makeJob("tensilelite-2024/full"), whole=True)
    if not csv:
        os.remove(job.file(".csv"))
    result = examine(job, ended(status, hung))
    assert result.outcome.kind == kind and result.pieces == ()
    assert bool(result.outcome.message) == (kind != MEASURED)


def test_wholeStepWithManyWrongResults(makeJob):
    """Also there a status above 127 can be a count."""
    job = replace(makeJob("tensilelite-2024/full"), whole=True)
    edit(
        job,
        ".log",
        lambda lines: [lines[pairLines(lines)[0]].replace(b"NO_CHECK", b"FAILED")] * 200,
    )
    assert examine(job, ended(200)).outcome.kind == MEASURED
    assert examine(job, ended(139)).outcome.kind == CRASHED


def test_tailIsReadable(tmp_path):
    """The last lines of any bytes at all are a few printable lines."""
    path = tmp_path / "log"
    path.write_bytes(os.urandom(100_000) + b"\n\x1b[31mthe end\x00\n")
    tail = readTail(str(path))
    assert len(tail.splitlines()) <= 12 and len(tail) <= 4096
    assert all(c.isprintable() or c in "\t\n" for c in tail)
    assert "the end" in tail.splitlines()[-1]
    assert readTail(str(tmp_path / "none")) == ""


@pytest.mark.parametrize(
    "status, words", [(0, "exit 0"), (139, "segmentation"), (None, "not be started"), (77, "77")]
)
def test_exitInWords(status, words):
    """A status in words that a person understands."""
    assert words in describeExit(status)
