# SPDX-License-Identifier: MIT
"""Reading what the client prints, from recorded runs of real clients and from noise."""

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Tensile.Parallel.ClientOutput import lastLine, parsePairLine, readPairs

pytestmark = pytest.mark.unit

DATA = Path(__file__).resolve().parent / "data"
LITE = (
    '0,2/5,9/23,Contraction_l_Alik_Bljk_Cijk_Dijk,"(4096,4096,1,4096)",None,,None,Cijk_Name,'
    "NO_CHECK,13.04,1.05398e+07,,0.984615,39.3846,104,1,1,0.98,1,69206016,2097152,42,1700,1090,"
    "1600,0,1,2026-11-30 03:56:31.620556"
)
CLASSIC = (
    '1,3/8,4/5,Contraction_l_Ailk_Bjlk_Cijk_Dijk,"(64,128,1,64)",Cijk_Name,PASSED,0.5655,1854.25,'
    ",0.00480769,0.00961538,104,0.5,1,0.00961538,1,65536,32768,42,1700,1090,1600,0,1,1701,300,50,"
    "2026-11-30 03:57:10."
)


def resultCells(folder):
    """problem, solution -> cell of a recorded results file."""
    header, *rows = (folder / "results.csv").read_text().splitlines()
    first = next(i for i, name in enumerate(header.split(", ")) if name.startswith("Cijk"))
    return {
        (int(row.split(", ")[0]), solution): text
        for row in rows
        for solution, text in enumerate(row.split(", ")[first:])
    }


@pytest.mark.parametrize("generation", ["classic-4.44", "tensilelite-2024"])
def test_everyRecordedPairHasTheTextOfItsCell(generation):
    """A pair's line has the very text that the results file has for it."""
    folder = DATA / generation / "full"
    cells, pairs = resultCells(folder), list(readPairs(str(folder / "stdout.txt")))
    assert len(pairs) > 50
    for pair in pairs:
        assert pair.valid and pair.cell == cells[pair.problem, pair.solution]


def test_aLineOfTensileLiteIsReadWhole():
    """Bias, factor and activation columns do not shift what is read."""
    pair = parsePairLine(LITE + "\n")
    assert (pair.run, pair.problem, pair.lastProblem) == (0, 2, 5)
    assert (pair.solution, pair.lastSolution, pair.name) == (9, 23, "Cijk_Name")
    assert (pair.timeUs, pair.timeText, pair.cellText) == (13.04, "13.04", "1.05398e+07")
    assert (pair.totalGranularity, pair.tilesPerCu) == ("0.984615", "39.3846")
    assert (pair.frequency, pair.power, pair.temperature) == ("", "", "")


def test_aLineOfClassicHasClockPowerAndTemperature():
    """Classic prints three columns more, which its results file names for the winner."""
    pair = parsePairLine(CLASSIC.encode() + b"\n")
    assert (pair.run, pair.problem, pair.solution, pair.name) == (1, 3, 4, "Cijk_Name")
    assert (pair.frequency, pair.power, pair.temperature) == ("1701", "300", "50")
    assert pair.valid


@pytest.mark.parametrize("line", [LITE, CLASSIC])
def test_aLineCutAnywhereIsTheSamePairOrNone(line):
    """A cut line never gives another number than the whole one."""
    whole = parsePairLine(line)
    for length in range(len(line)):
        assert parsePairLine(line[:length]) in (None, whole)
    assert parsePairLine(line[: line.index(",104,")]) is None


@pytest.mark.parametrize("line", [LITE, CLASSIC])
def test_twoLinesRunTogetherAreNoPair(line):
    """A cut line that the next one follows without a newline is not read as either."""
    for length in range(1, len(line)):
        pair = parsePairLine(line[:length] + line)
        whole = parsePairLine(line)
        assert pair is None or (pair.timeUs, pair.cellText) == (whole.timeUs, whole.cellText)


@pytest.mark.parametrize(
    "time, speed",
    [("0", "inf"), ("0.0", "1.5"), ("-nan", "-nan"), ("-nan", "9.22337e+18"), ("1", "inf")]
    + [("1", "9223372036854775808"), ("1", "0"), ("1", "-1"), ("inf", "0"), ("-2", "5")],
)
def test_absurdValuesAreNoMeasurement(time, speed):
    """0.0 us, nan, inf, overflows and what is not positive never count as measured."""
    pair = parsePairLine(LITE.replace("13.04,1.05398e+07", "%s,%s" % (time, speed)))
    assert not pair.valid and pair.cell == "-1"


@pytest.mark.parametrize("word", ["FAILED", "FAILED_CONV", "INVALID"])
def test_failedValidationIsAFailure(word):
    """A pair whose validation failed has a time, but gives -1."""
    pair = parsePairLine(LITE.replace("NO_CHECK", word))
    assert pair.failed and not pair.rejected and pair.cell == "-1"


@pytest.mark.parametrize("word", ["WRONG_HARDWARE", "DID_NOT_SATISFY_ASSERTS"])
def test_rejectedByTheClientIsNoFailure(word):
    """What the client's own predicates leave out is rejected, not failed."""
    pair = parsePairLine(LITE.replace("NO_CHECK,13.04,1.05398e+07", word + ",-nan,-nan"))
    assert pair.rejected and not pair.failed and pair.cell == "-1"


def test_skippedSlowSolutionIsRejected():
    """skip-slow-solution-ratio of newer trees prints a line of its own."""
    pair = parsePairLine("0,2/5,9/23, Skip Slow Solution: Cijk_Name\n")
    assert (pair.problem, pair.solution, pair.name) == (2, 9, "Cijk_Name")
    assert pair.rejected and math.isnan(pair.timeUs)


def test_launchErrorsAreFailuresWithTheirMessage():
    """The client overwrites INVALID with NO_CHECK; the exception before the line tells."""
    folder = DATA / "tensilelite-2024/launch-error-on-MT64x16"
    pairs = list(readPairs(str(folder / "stdout.txt")))
    failed = [pair for pair in pairs if pair.failed]
    assert failed and all("MT64x16" in pair.name for pair in failed)
    assert all(pair.message.startswith("Error 719") for pair in failed)
    assert not any(pair.message for pair in pairs if pair.valid)


def test_aLastLineWithoutNewlineIsNoResult(tmp_path):
    """What a killed client was just writing does not count."""
    log = tmp_path / "log"
    log.write_text(LITE + "\n" + LITE)
    assert len(list(readPairs(str(log)))) == 1


def test_binaryMegabytesBetweenLinesAreSkipped(tmp_path):
    """10 MB of binary without newlines cost no result and no exception."""
    log = tmp_path / "log"
    log.write_bytes(
        LITE.encode() + b"\n" + bytes(range(11, 256)) * 40000 + b"\n" + LITE.encode() + b"\n"
    )
    assert len(list(readPairs(str(log)))) == 2


def test_aMissingLogHasNoPairs(tmp_path):
    """A client that never started left no log, which is no error here."""
    assert list(readPairs(str(tmp_path / "none"))) == []
    assert list(readPairs(str(tmp_path))) == []


@given(st.one_of(st.text(), st.binary()))
def test_anyTextIsReadWithoutAnException(text):
    """The client's output is untrusted: kernels print into it."""
    parsePairLine(text)


@given(st.lists(st.sampled_from(list('0123,/"()\n _nae+-') + ["NO_CHECK", "PASSED", "9" * 5000])))
def test_anythingThatStartsLikeAPairIsReadWithoutAnException(parts):
    """Neither are lines trusted that start as a pair does."""
    parsePairLine('0,0/5,1/23,Op,"(1,2)",' + "".join(parts))
    parsePairLine("0,0/5,1/23," + "".join(parts))


def test_theLastPairOfALogThatGrows(tmp_path):
    """It is the last whole line about a pair, and the time is that of the last write."""
    log = DATA / "tensilelite-2024" / "full" / "stdout.txt"
    lines = [line for line in log.read_bytes().splitlines(True) if parsePairLine(line)]
    path = tmp_path / "log"
    path.write_bytes(b"noise\n")
    assert lastLine(str(path)).pair is None and lastLine(str(tmp_path / "none")) is None
    for count in (1, 2, 5):
        path.write_bytes(b"noise\n" + b"".join(lines[:count]) + lines[count][:20])
        os.utime(path, (1000.0, 1000.0 + count))
        last = lastLine(str(path))
        assert (last.pair, last.written) == (parsePairLine(lines[count - 1]), 1000.0 + count)
