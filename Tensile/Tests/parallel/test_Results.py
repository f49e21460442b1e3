# SPDX-License-Identifier: MIT
"""One results file: headers of both generations, completeness, salvage, atomic writing."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Tensile.Parallel.ClientConfig import readClientConfig
from Tensile.Parallel.ClientOutput import readPairs
from Tensile.Parallel.Errors import RunError
from Tensile.Parallel.Results import (
    NO_WINNER,
    atomicOutput,
    checkShard,
    copyResults,
    failedRow,
    makeHeader,
    parseHeader,
    problemPrefix,
    readHeader,
    readPrefix,
    writeShardFromPairs,
)
from Tensile.Parallel.Types import Unit

pytestmark = pytest.mark.unit

DATA = Path(__file__).resolve().parent / "data"
LITE = DATA / "tensilelite-2024"
CLASSIC = DATA / "classic-4.44"
FULL = Unit(0, 0, 6, 0, 24)

HEADERS = [
    (LITE / "full", dict(classic=False, extraColumns=True)),
    (LITE / "full-no-winner-columns", dict(classic=False, extraColumns=False)),
    (CLASSIC / "full", dict(classic=True, extraColumns=False)),
    (CLASSIC / "full-winner-columns", dict(classic=True, extraColumns=True)),
]


def names(folder):
    return readHeader(str(folder / "results.csv")).solutions


@pytest.mark.parametrize("folder, made", HEADERS)
def test_headersOfBothGenerationsAreRead(folder, made):
    """Columns and solutions are told apart, and a header can be made without any file."""
    line = (folder / "results.csv").read_bytes().split(b"\n")[0] + b"\n"
    header = parseHeader(line)
    assert header.classic == made["classic"] and header.hasWinner == made["extraColumns"]
    assert len(header.solutions) == (6 if header.classic else 24)
    assert header.sizeColumns == ("SizeI", "SizeJ", "SizeK", "SizeL")
    assert makeHeader(sizeCount=4, perCu=False, **made).columns == header.columns
    assert header.line(header.solutions) == line


def test_theFirstColumnSaysWhatTheCellsAre():
    """GFlopsPerCU (CUEfficiency) and other numbers of sizes are headers too."""
    header = makeHeader(classic=False, sizeCount=6, extraColumns=True, perCu=True)
    assert header.perCu and header.sizeColumns[-1] == "SizeN"
    assert parseHeader(header.line(["a"])).columns == header.columns


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"GFlops, SizeI", b"GFlops, a\n", b"a, b\n", b"\xff\n"]
)
def test_whatIsNoHeaderIsNone(line):
    """A cut or foreign first line is not a header."""
    assert parseHeader(line) is None


@given(st.binary())
def test_anyFirstLineIsReadWithoutAnException(line):
    """A shard may hold anything after a crash."""
    parseHeader(line)
    parseHeader(line + b"\n")


@pytest.mark.parametrize("folder, made", HEADERS)
def test_aPrefixIsComputedAsTheClientDoes(folder, made):
    """Sizes, leading dimensions and flops from the INI are the recorded ones."""
    config = readClientConfig(folder / "ClientParameters.ini")
    for index in range(config.problemCount):
        size = config.sizes[index]
        prefix = problemPrefix(
            sizes=size.sizes,
            strides=size.strides,
            identifier=config.get("problem-identifier"),
            aType=config.get("a-type"),
        )
        assert prefix == readPrefix(str(folder / "results.csv"), index)


def test_packedStridesFollowFromTheSizes():
    """Without strides the leading dimension is the first index's size; Int8x4 counts four."""
    prefix = problemPrefix(
        sizes=(5, 7, 1, 11),
        strides={},
        identifier="Contraction_l_Alik_Bjlk_Cijk_Dijk",
        aType="Int8x4",
    )
    assert (prefix["LDA"], prefix["LDB"], prefix["LDC"], prefix["LDD"]) == ("11", "7", "5", "5")
    assert prefix["TotalFlops"] == str(8 * 5 * 7 * 11)


def test_aRowWithoutWinnerIsWhatTheClientWrites():
    """-1 in every number and an empty name; classic's clock, power and temperature are 0."""
    prefix = readPrefix(str(LITE / "full/results.csv"), 1)
    header = readHeader(str(LITE / "full/results.csv"))
    assert failedRow(header, 1, prefix, 2) == (
        b"1, 128, 128, 1, 128, 128, 128, 128, 128, 4194304, -1, -1, -1, -1, -1, , -1, -1\n"
    )
    prefix = readPrefix(str(CLASSIC / "full-winner-columns/results.csv"), 1)
    header = readHeader(str(CLASSIC / "full-winner-columns/results.csv"))
    assert failedRow(header, 1, prefix, 1) == (
        b"1, 128, 128, 1, 64, 128, 128, 128, 128, 0, -1, -1, -1, , 2097152, 0, 0, -1\n"
    )


@pytest.mark.parametrize(
    "folder, unit, passes",
    [("full", FULL, 1), ("solutions-8-15", Unit(1, 0, 6, 8, 8), 1), ("two-passes", FULL, 2)]
    + [("problems-2-3", Unit(1, 2, 2, 0, 24), 1)],
)
def test_aCompleteShardIsFinished(folder, unit, passes):
    """Recorded files of every cut are complete for their own rectangle."""
    check = checkShard(str(LITE / folder / "results.csv"), unit, names(LITE / "full"), passes)
    assert check.finished and check.problem is None and not check.torn
    assert check.rows == passes * unit.problemCount and check.whole == unit.problemCount


@pytest.mark.parametrize("passes, folder", [(1, "full"), (2, "two-passes")])
def test_aShardCutAnywhereCountsItsCompleteRows(tmp_path, passes, folder):
    """Whatever byte a crash cuts at, the rows before it count and the cut one does not."""
    content = (LITE / folder / "results.csv").read_bytes()
    path = tmp_path / "shard.csv"
    header = content.index(b"\n") + 1
    places = list(range(header, len(content), 61)) + [len(content) - 1, 0, 5, header - 1]
    for place in places:
        path.write_bytes(content[:place])
        check = checkShard(str(path), FULL, names(LITE / "full"), passes)
        assert check.rows == max(content[:place].count(b"\n") - 1, 0)
        assert check.torn == (content[:place][-1:] not in (b"", b"\n"))
        assert not check.finished and check.problem
        assert check.whole == max(check.rows - 6 * (passes - 1), 0)


def test_aRowWithTooFewCellsIsTorn(tmp_path):
    """A cut row that got a newline later (the next writer's) is not taken for a whole one."""
    lines = (LITE / "full/results.csv").read_bytes().splitlines(keepends=True)
    path = tmp_path / "shard.csv"
    path.write_bytes(lines[0] + lines[1] + b"128,128,1,\n" + lines[2])
    check = checkShard(str(path), FULL, names(LITE / "full"))
    assert (check.rows, check.torn, check.finished) == (1, True, False)


@pytest.mark.parametrize("order", [(1, 1), (2,), (1, 3), (1, 2, 3, 4, 5, 6, 6), (1, 2, 99)])
def test_rowsThatDoNotBelongAreReported(tmp_path, order):
    """Duplicate, missing, surplus and unknown indices are a problem text, and not counted."""
    lines = (LITE / "full/results.csv").read_bytes().splitlines(keepends=True)
    rows = [lines[at] if at < 7 else b"99" + lines[1][1:] for at in order]
    path = tmp_path / "shard.csv"
    path.write_bytes(lines[0] + b"".join(rows))
    check = checkShard(str(path), FULL, names(LITE / "full"))
    expected = next((i for i, at in enumerate(order) if at != i + 1), len(order))
    assert check.rows == min(expected, 6) and not check.finished and "\n" not in check.problem


def test_anIniWithItsOwnSizesPrintsItsOwnIndices(tmp_path):
    """The printed indices are compared with those that the unit's INI makes the client print."""
    lines = (LITE / "problems-0-1/results.csv").read_bytes()
    path = tmp_path / "shard.csv"
    path.write_bytes(lines)
    unit = Unit(0, 4, 2, 0, 24)
    assert checkShard(str(path), unit, names(LITE / "full"), 1, range(2)).finished
    assert not checkShard(str(path), unit, names(LITE / "full")).finished


@pytest.mark.parametrize("content", [None, b"", b"GFlops, Si", b"a, b\n0, 1\n", b"\x00" * 100])
def test_aMissingOrForeignFileIsAProblemText(tmp_path, content):
    """No file, an empty one and nonsense are reported, never raised."""
    path = tmp_path / "shard.csv"
    if content is not None:
        path.write_bytes(content)
    check = checkShard(str(path), FULL, names(LITE / "full"))
    assert (
        check.rows == 0 and check.whole == 0 and not check.finished and "shard.csv" in check.problem
    )


def test_otherSolutionsThanTheLibrarysAreReported():
    """A file of other columns is never taken for the unit's."""
    path = str(LITE / "solutions-8-15/results.csv")
    check = checkShard(path, Unit(0, 0, 6, 0, 8), names(LITE / "full"))
    assert check.rows == 0 and "other solutions" in check.problem


@pytest.mark.parametrize("folder, first", [("solutions-0-7", 0), ("solutions-8-15", 8)])
def test_salvagedPairsAreTheRowOfTheClient(tmp_path, folder, first):
    """A row made from printed lines has the bytes of the row that the client wrote."""
    path, recorded = tmp_path / "salvaged.csv", LITE / folder / "results.csv"
    lines = recorded.read_bytes().splitlines(keepends=True)
    for problem in range(6):
        pairs = [p for p in readPairs(str(LITE / folder / "stdout.txt")) if p.problem == problem]
        count = writeShardFromPairs(
            str(path),
            readHeader(str(recorded)),
            names(LITE / "full"),
            pairs,
            problem=problem,
            firstSolution=first,
            prefix=readPrefix(str(recorded), problem),
        )
        assert count == 8 and path.read_bytes() == lines[0] + lines[problem + 1]


def test_classicSalvageHasClockPowerAndTemperature(tmp_path):
    """The same for classic, with and without winner columns."""
    for folder in ("full", "full-winner-columns"):
        path, recorded = tmp_path / "salvaged.csv", CLASSIC / folder / "results.csv"
        lines = recorded.read_bytes().splitlines(keepends=True)
        pairs = [p for p in readPairs(str(CLASSIC / folder / "stdout.txt")) if p.problem == 2]
        prefix = readPrefix(str(recorded), 2)
        header = readHeader(str(recorded))
        arguments = dict(problem=2, firstSolution=0, prefix=prefix)
        assert writeShardFromPairs(str(path), header, header.solutions, pairs, **arguments) == 6
        assert path.read_bytes() == lines[0] + lines[3]


def test_salvageStopsAtAGapAndMarksFailures(tmp_path):
    """Only a range without gaps is a shard; pairs that failed are -1 and do not win."""
    folder = LITE / "launch-error-on-MT64x16"
    pairs = [p for p in readPairs(str(folder / "stdout.txt")) if p.problem == 1]
    kept = [pair for pair in pairs if pair.solution != 14]
    path, header = tmp_path / "salvaged.csv", readHeader(str(folder / "results.csv"))
    arguments = dict(problem=1, firstSolution=2, prefix=readPrefix(str(folder / "results.csv"), 1))
    assert writeShardFromPairs(str(path), header, header.solutions, kept, **arguments) == 12
    row = path.read_text().splitlines()[1].split(", ")
    assert row[16:] == [pair.cell for pair in pairs[2:14]]
    assert row[10:16] == ["0.0384615", "0.0384615", "8050.49", "0.521", "7", pairs[9].name]
    assert writeShardFromPairs(str(path), header, header.solutions, kept[5:], **arguments) == 0


def test_outputIsWholeOrNotThere(tmp_path):
    """A reader sees the old file until the new one is complete; an error changes nothing."""
    path = tmp_path / "results.csv"
    path.write_text("old")
    with atomicOutput(str(path)) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(KeyError):
        with atomicOutput(str(path)) as stream:
            stream.write(b"half")
            raise KeyError("stopped")
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["results.csv"]


def test_outputHasTheModeOfTheUmask(tmp_path):
    """The file may be read by whom the user's umask lets, as the client's own."""
    before = os.umask(0o027)
    try:
        with atomicOutput(str(tmp_path / "a")):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640


def test_outputFollowsALinkAndLeavesADeviceBe(tmp_path):
    """As the client would: a link stays a link, a pipe or device is written to."""
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomicOutput(str(tmp_path / "link")) as stream:
        stream.write(b"x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"x"
    (tmp_path / "null").symlink_to("/dev/null")
    with atomicOutput(str(tmp_path / "null")) as stream:
        stream.write(b"x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_unwritableOutputIsOneLine(tmp_path):
    """A folder that is not there, or a full disk, is an error of one line."""
    with pytest.raises(RunError, match="cannot write .*none/results.csv: No such file"):
        with atomicOutput(str(tmp_path / "none" / "results.csv")):
            pass
    if os.path.exists("/dev/full"):
        with pytest.raises(RunError, match="No space left"):
            with atomicOutput("/dev/full") as stream:
                stream.write(b"x" * 100000)


def test_aFileIsCopiedAsItIs(tmp_path):
    """A step that went whole to one device keeps its file, byte for byte."""
    source = LITE / "full/results.csv"
    copyResults(str(tmp_path / "out.csv"), str(source))
    assert (tmp_path / "out.csv").read_bytes() == source.read_bytes()
    with pytest.raises(RunError, match="cannot read"):
        copyResults(str(tmp_path / "out.csv"), str(tmp_path / "none"))


def test_everyWinnerColumnHasATextForNoWinner():
    """No column of any header depends on the winner without a text for the lack of one."""
    for classic in (True, False):
        header = makeHeader(classic=classic, sizeCount=4, extraColumns=True, perCu=False)
        other = {"GFlops", "LDD", "LDC", "LDA", "LDB", "TotalFlops", *header.sizeColumns}
        assert set(header.columns) - other <= set(NO_WINNER)
