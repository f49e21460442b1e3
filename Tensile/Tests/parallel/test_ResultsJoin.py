# SPDX-License-Identifier: MIT
"""Joining shards: whatever way a recorded run is cut, the whole comes back byte for byte."""

import math
import os
import resource
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from Tensile.Parallel.ClientOutput import readPairs
from Tensile.Parallel.Errors import RunError
from Tensile.Parallel.Results import makeHeader, readHeader, readPrefix
from Tensile.Parallel.ResultsJoin import Override, Piece, joinShards

pytestmark = pytest.mark.unit

DATA = Path(__file__).resolve().parent / "data"
LITE = DATA / "tensilelite-2024"
CLASSIC = DATA / "classic-4.44"
TABLES = [LITE / "full", LITE / "full-no-winner-columns", CLASSIC / "full"]
TABLES += [CLASSIC / "full-winner-columns"]


class Table:
    """A results file in memory; cuts pieces out of it as the client would have written them."""

    def __init__(self, path):
        self.header = readHeader(str(path))
        self.names = self.header.solutions
        count = len(self.header.columns)
        rows = [line.split(", ") for line in path.read_text().splitlines()[1:]]
        self.metas = [dict(zip(self.header.columns, row[:count])) for row in rows]
        self.cells = [row[count:] for row in rows]
        self.bytes = path.read_bytes()

    def winner(self, problem, solutions):
        """The first greatest cell of a range of solutions, as the client finds it."""
        best, name = -1.0, None
        for solution in solutions:
            speed = float(self.cells[problem][solution])
            if best < speed:
                best, name = speed, solution
        return name

    def row(self, problem, solutions, written):
        meta = dict(self.metas[problem])
        best = self.winner(problem, solutions)
        whole = self.winner(problem, range(len(self.names)))
        if best is not None:
            speed = float(self.cells[problem][best])
            meta["WinnerGFlops"] = self.cells[problem][best]
            meta["WinnerIdx"], meta["WinnerName"] = str(best - solutions.start), self.names[best]
            if best != whole:
                time = float(meta["TotalFlops"]) / speed / 1000 if speed else math.inf
                other = {"WinnerTimeUS": "%g" % time}
                meta.update(other, TilesPerCu="0.5", TotalGranularity="0.25", WinnerFreq="1500")
        cells = [self.cells[problem][solution] for solution in solutions]
        return self.header.row(written, meta, cells)

    def cut(self, path, problems, solutions, written=None):
        """Write a piece's file."""
        with open(path, "wb") as stream:
            stream.write(self.header.line([self.names[i] for i in solutions]))
            for at, problem in enumerate(problems):
                shown = problem if written is None else written[at]
                stream.write(self.row(problem, solutions, shown))
        return Piece(str(path), problems, solutions, written)


def join(folder, pieces, table, **options):
    """Join into folder/out.csv; its bytes and the report."""
    output = os.path.join(str(folder), "out.csv")
    options.setdefault("problemCount", len(table.cells))
    report = joinShards(output, pieces, table.names, **options)
    with open(output, "rb") as stream:
        return stream.read(), report


def recorded(folder, problems, solutions):
    return Piece(str(folder / "results.csv"), problems, solutions)


def lines(content):
    return [row.split(", ") for row in content.decode().splitlines()[1:]]


def test_columnsJoinToTheRecordedWhole(tmp_path):
    """Three solution ranges of a real client give the full file, Winner columns included."""
    table = Table(LITE / "full/results.csv")
    ranges = [range(0, 8), range(8, 16), range(16, 24)]
    folders = ["solutions-%d-%d" % (r.start, r.stop - 1) for r in ranges]
    pieces = [recorded(LITE / f, range(6), r) for f, r in zip(folders, ranges)]
    content, report = join(tmp_path, pieces, table)
    assert content == table.bytes
    assert (report.rows, report.missing, report.corrected, report.damaged) == (6, 0, (), ())


def test_rowsJoinToTheRecordedWhole(tmp_path):
    """Problem ranges of real clients give the full file; pieces come in any order."""
    table = Table(LITE / "full/results.csv")
    pieces = [
        recorded(LITE / ("problems-%d-%d" % (first, first + 1)), range(first, first + 2), range(24))
        for first in (4, 0, 2)
    ]
    assert join(tmp_path, pieces, table)[0] == table.bytes
    table = Table(CLASSIC / "full/results.csv")
    pieces = [recorded(CLASSIC / "problems-1-2", range(1, 3), range(6))]
    pieces += [recorded(CLASSIC / "full", range(3, 9), range(6))]
    pieces += [recorded(CLASSIC / "problems-0-0", range(1), range(6))]
    assert join(tmp_path, pieces, table)[0] == table.bytes


def rectangles(draw, problems, solutions, depth):
    """A random tiling of a rectangle."""
    if depth == 0 or (len(problems) == 1 and len(solutions) == 1):
        return [(problems, solutions)]
    byRows = draw(st.booleans()) if min(len(problems), len(solutions)) > 1 else len(problems) > 1
    cut = problems if byRows else solutions
    at = draw(st.integers(cut.start + 1, cut.stop - 1))
    tiles = []
    for half in (range(cut.start, at), range(at, cut.stop)):
        p, s = (half, solutions) if byRows else (problems, half)
        tiles += rectangles(draw, p, s, depth - 1)
    return tiles


@pytest.mark.parametrize("folder", TABLES, ids=lambda f: "%s-%s" % (f.parent.name, f.name))
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_anyCuttingJoinsToTheWhole(folder, data):
    """Any tiling, joined in any order, with local or global indices, gives the serial file."""
    table = Table(folder / "results.csv")
    tiles = rectangles(data.draw, range(len(table.cells)), range(len(table.names)), 4)
    tiles = data.draw(st.permutations(tiles))
    with tempfile.TemporaryDirectory() as into:
        pieces = []
        for number, (problems, solutions) in enumerate(tiles):
            own = tuple(range(len(problems))) if data.draw(st.booleans()) else None
            path = os.path.join(into, "%d.csv" % number)
            pieces.append(table.cut(path, problems, solutions, own))
        content, report = join(into, pieces, table)
    assert content == table.bytes
    assert (report.missing, report.absurd, report.corrected, report.damaged) == (0, 0, (), ())


def test_problemsOfAPieceNeedNotBeNeighbours(tmp_path):
    """A unit's INI with its own sizes and two biases has gaps between its global indices."""
    table = Table(LITE / "full/results.csv")
    one = table.cut(tmp_path / "a", (0, 2, 5), range(24), (0, 1, 2))
    two = table.cut(tmp_path / "b", (1, 3, 4), range(24), (0, 1, 2))
    assert join(tmp_path, [one, two], table)[0] == table.bytes


def test_aPieceMayUsePartOfItsFile(tmp_path):
    """Rows and columns of a file that do not count are ignored."""
    table = Table(LITE / "full/results.csv")
    path = str(LITE / "full/results.csv")
    pieces = [
        Piece(path, range(0, 6), range(0, 5), None, range(24)),
        Piece(path, range(0, 4), range(5, 24), None, range(24)),
        Piece(path, range(4, 6), range(5, 24), None, range(24)),
    ]
    assert join(tmp_path, pieces, table)[0] == table.bytes


def test_aLaterPieceBeatsAnEarlierOne(tmp_path):
    """Where pieces overlap, the later measurement counts, and the winner follows."""
    table = Table(LITE / "full/results.csv")
    other = Table(LITE / "full/results.csv")
    other.cells[1] = [str(float(cell) / 2) for cell in other.cells[1]]
    pieces = [
        table.cut(tmp_path / "a", range(6), range(24)),
        other.cut(tmp_path / "b", range(1, 2), range(4, 9)),
    ]
    rows = lines(join(tmp_path, pieces, table)[0])
    assert rows[1][16:] == table.cells[1][:4] + other.cells[1][4:9] + table.cells[1][9:]
    assert rows[1][12:15] == ["9238.56", "%g" % (4194304 / 9238.56 / 1000), "16"]
    assert rows[0] == lines(table.bytes)[0]


def test_hundredsOfPiecesNeedFewOpenFiles(tmp_path):
    """A problem cut into single pairs joins under a small limit of open files."""
    table = Table(LITE / "full/results.csv")
    pieces = [
        table.cut(tmp_path / ("%d-%d" % (first, s)), range(first, first + 3), range(s, s + 1))
        for first in (0, 3)
        for s in range(24)
    ]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    import Tensile.Parallel.ShardRows as ShardRows

    before, ShardRows._OPEN_FILES = ShardRows._OPEN_FILES, 5
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 12, hard))
    try:
        content = join(tmp_path, pieces, table)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        ShardRows._OPEN_FILES = before
    assert content == table.bytes


ABSURD = ["nan", "-nan", "inf", "-inf", "9.22337e+18", "1e+300", "9223372036854775808"]


@pytest.mark.parametrize("text", ABSURD)
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("cuts", [1, 3])
def test_absurdCellsNeverWin(tmp_path, text, named, cuts):
    """nan, inf and overflows become -1, and the best valid cell is named instead."""
    table = Table(LITE / "full/results.csv")
    table.cells[3][11] = text
    paths = []
    for first in range(0, 24, 24 // cuts):
        solutions = range(first, first + 24 // cuts)
        piece = table.cut(tmp_path / str(first), range(6), solutions)
        if 11 in solutions:
            row = table.row(3, solutions, 3).decode().split(", ")
            row[12], row[14], row[15] = text, str(11 - first), table.names[11]
            if not named:
                row[12], row[14], row[15] = "1.03046e+06", str(9 - first), table.names[9]
            content = Path(piece.path).read_bytes().splitlines(keepends=True)
            content[4] = ", ".join(row).encode()
            Path(piece.path).write_bytes(b"".join(content))
        paths.append(piece)
    pairs = {(p.problem, p.solution): p for p in readPairs(str(LITE / "solutions-8-15/stdout.txt"))}
    content, report = join(
        tmp_path, paths, table, pairOf=lambda run, problem, solution: pairs.get((problem, solution))
    )
    rows, serial = lines(content), lines((LITE / "full/results.csv").read_bytes())
    expected = serial[3][:]
    expected[16 + 11] = "-1"
    assert rows[3] == expected and rows[:3] + rows[4:] == serial[:3] + serial[4:]
    assert report.absurd == 1
    assert report.corrected == (((0, 3),) if named else ())


@pytest.mark.parametrize("withOutput", [True, False])
def test_aFailedValidationNeverWins(tmp_path, withOutput):
    """The client still names the failed solution; the merged file names the best valid one."""
    table = Table(LITE / "full/results.csv")
    serial = lines(table.bytes)
    rows = (LITE / "full/results.csv").read_bytes().splitlines(keepends=True)
    cells = rows[4].split(b", ")
    cells[16 + 9] = b"-1"
    (tmp_path / "a").write_bytes(b"".join(rows[:4] + [b", ".join(cells)] + rows[5:]))
    pairs = {(p.problem, p.solution): p for p in readPairs(str(LITE / "solutions-8-15/stdout.txt"))}
    find = (lambda run, problem, solution: pairs.get((problem, solution))) if withOutput else None
    piece = Piece(str(tmp_path / "a"), range(6), range(24))
    content, report = join(tmp_path, [piece], table, pairOf=find)
    assert report.corrected == ((0, 3),) and report.absurd == 0
    row = lines(content)[3]
    assert row[16 + 9] == "-1" and row[12] == "1.03046e+06"
    assert row[13:16] == ["0.521" if withOutput else "0.521001", "11", table.names[11]]
    assert row[10:12] == (serial[3][10:12] if withOutput else ["-1", "-1"])


def test_aRowWithoutAnyValidCellHasNoWinner(tmp_path):
    """Every cell -1: -1 in the numbers, an empty name, as the client writes it."""
    table = Table(LITE / "full/results.csv")
    table.cells[2] = ["-1"] * 24
    table.metas[2].update(dict.fromkeys(("TilesPerCu", "TotalGranularity"), "-1"))
    table.metas[2].update(WinnerGFlops="-1", WinnerTimeUS="-1", WinnerIdx="-1", WinnerName="")
    pieces = [table.cut(tmp_path / "a", range(6), range(24))]
    content, report = join(tmp_path, pieces, table)
    assert content == Path(pieces[0].path).read_bytes() and report.corrected == ()
    pieces = [table.cut(tmp_path / str(f), range(6), range(f, f + 8)) for f in (0, 8, 16)]
    assert join(tmp_path, pieces, table)[0] == content


def test_pairsThatNobodyMeasuredAreMinusOne(tmp_path):
    """Missing cells and rows are written as failures and counted; no row is left out."""
    table = Table(LITE / "full/results.csv")
    prefix = readPrefix(str(LITE / "full/results.csv"), 5)
    pieces = [table.cut(tmp_path / "a", range(5), range(4, 24))]
    content, report = join(tmp_path, pieces, table, prefixOf=lambda problem: prefix)
    rows = lines(content)
    assert report.rows == 6 and report.missing == 5 * 4 + 24
    assert all(row[16:20] == ["-1"] * 4 and "-1" not in row[20:] for row in rows[:5])
    assert rows[1][12:15] == ["9331.04", "0.4495", "4"]
    assert rows[5][:10] == lines(table.bytes)[5][:10]
    assert rows[5][10:] == ["-1"] * 5 + [""] + ["-1"] * 24
    with pytest.raises(RunError, match="problem 5"):
        join(tmp_path, pieces, table)


def test_nothingMeasuredNeedsAHeader(tmp_path):
    """Without any file the columns come from the INI's settings, else it is an error."""
    table = Table(LITE / "full/results.csv")
    made = makeHeader(classic=False, sizeCount=4, extraColumns=True, perCu=False)
    prefix = readPrefix(str(LITE / "full/results.csv"), 0)
    content, report = join(tmp_path, [], table, header=made, prefixOf=lambda problem: prefix)
    assert report.missing == 6 * 24 and content.splitlines()[0] == table.bytes.splitlines()[0]
    with pytest.raises(RunError, match="nothing to write"):
        join(tmp_path, [recorded(tmp_path, range(6), range(24))], table)


def test_aTornOrForeignPieceIsReportedAndItsCellsFail(tmp_path):
    """A row that is cut, or of another problem, is never mixed in."""
    table = Table(LITE / "full/results.csv")
    good = table.cut(tmp_path / "a", range(6), range(12))
    torn = table.cut(tmp_path / "b", range(6), range(12, 24))
    content = Path(torn.path).read_bytes()
    Path(torn.path).write_bytes(content[: content.rindex(b", ")])
    joined, report = join(tmp_path, [good, torn], table)
    assert lines(joined)[5][28:] == ["-1"] * 12 and report.missing == 12
    assert len(report.damaged) == 1 and "problem 5" in report.damaged[0]
    Path(torn.path).write_bytes(content.replace(b"\n2, 4096, ", b"\n2, 4097, "))
    joined, report = join(tmp_path, [good, torn], table)
    assert lines(joined)[2][28:] == ["-1"] * 12 and "another problem" in report.damaged[0]
    Path(torn.path).write_bytes(content.replace(b"\n3, 256", b"\n3, 9, 256"))
    joined, report = join(tmp_path, [good, torn], table)
    assert report.missing == 12 and len(report.damaged) == 1
    os.unlink(torn.path)
    joined, report = join(tmp_path, [good, torn], table)
    assert report.missing == 72 and lines(joined)[0][28:] == ["-1"] * 12


def test_retimedCellsBeatPiecesAndDecideTheWinner(tmp_path):
    """A contender's second timing stands in its cell; the row's greatest cell is the winner."""
    table = Table(LITE / "full/results.csv")
    pieces = [table.cut(tmp_path / str(f), range(6), range(f, f + 8)) for f in (0, 8, 16)]
    pair = next(p for p in readPairs(str(LITE / "solutions-8-15/stdout.txt")) if p.solution == 10)
    pair = replace(pair, timeText="1.1", cellText="1.9e+06", gflops=1.9e6, timeUs=1.1)
    overrides = [Override(0, 10, "1.9e+06", pair), Override(0, 9, "1.2e+06")]
    overrides += [Override(1, 4, "-1"), Override(2, 0, "nan")]
    content, report = join(tmp_path, pieces, table, overrides=overrides)
    rows = lines(content)
    assert rows[0][12:16] == ["1.9e+06", "1.1", "10", table.names[10]]
    assert (rows[0][16 + 9], rows[0][16 + 10]) == ("1.2e+06", "1.9e+06")
    assert rows[1][16 + 4] == "-1" and rows[1][12] == "9331.04" and rows[1][14] == "6"
    assert rows[2][16] == "-1" and report.absurd == 1
    for row in rows:
        assert float(row[12]) == max(map(float, row[16:]))
    assert rows[3:] == lines(table.bytes)[3:]


def test_theClientsChoiceAmongEqualTextsStands(tmp_path):
    """It compares more digits than it prints; between pieces the lowest index wins."""
    table = Table(LITE / "full/results.csv")
    row = table.row(0, range(24), 0).decode().split(", ")
    row[14], row[15] = "11", table.names[11]
    own = table.header.line(table.names) + ", ".join(row).encode()
    (tmp_path / "a").write_bytes(own)
    piece = Piece(str(tmp_path / "a"), range(1), range(24))
    assert join(tmp_path, [piece], table, problemCount=1)[0] == own
    pieces = [table.cut(tmp_path / "b", range(1), range(10, 24))]
    pieces += [table.cut(tmp_path / "c", range(1), range(10))]
    assert join(tmp_path, pieces, table, problemCount=1)[0].splitlines() == (
        table.bytes.splitlines()[:2]
    )


def test_passesFollowEachOther(tmp_path):
    """num-benchmarks=2 without merging: all rows of the first pass, then all of the second."""
    folder = LITE / "two-passes"
    table = Table(LITE / "full/results.csv")
    content = (folder / "results.csv").read_bytes()
    assert join(tmp_path, [recorded(folder, range(6), range(24))], table, passes=2)[0] == content
    pieces = []
    for number, problems in enumerate((range(0, 2), range(2, 6))):
        path = tmp_path / str(number)
        rows = [table.row(p, range(24), p) for p in problems]
        path.write_bytes(table.header.line(table.names) + b"".join(rows * 2))
        pieces.append(Piece(str(path), problems, range(24)))
    assert join(tmp_path, pieces, table, passes=2)[0] == content


def test_mergedPassesKeepTheBestOfEachCell(tmp_path):
    """csv-merge-same-problems compares numbers: 1.75663e+06 beats 878316; -1 and nan lose."""
    table = Table(LITE / "full/results.csv")
    worse = Table(LITE / "full/results.csv")
    worse.cells = [["%g" % (float(c) / 2) for c in row] for row in table.cells]
    worse.cells[0][3], worse.cells[4][5] = "-1", "nan"
    for order in ((table, worse), (worse, table), (table, table)):
        path = tmp_path / "a"
        rows = [t.row(p, range(24), p) for t in order for p in range(6)]
        path.write_bytes(table.header.line(table.names) + b"".join(rows))
        piece = Piece(str(path), range(6), range(24))
        content, report = join(tmp_path, [piece], table, passes=2, mergePasses=True)
        assert content == table.bytes and report.rows == 6 and report.missing == 0


def test_cuEfficiencyNamesTheLeastTime(tmp_path):
    """With GFlopsPerCU the client's WinnerTimeUS is the least of the row, perhaps another's."""
    header = makeHeader(classic=False, sizeCount=1, extraColumns=True, perCu=True)
    base = dict(SizeI="4", LDD="4", LDC="4", LDA="4", LDB="4", TotalFlops="8")
    pieces = []
    for first, name, speed, time in ((0, "a", "50", "9"), (1, "b", "40", "3")):
        winner = dict(WinnerGFlops=speed, WinnerTimeUS=time, WinnerIdx="0", WinnerName=name)
        row = header.row(
            0, {**base, **winner, "TilesPerCu": time, "TotalGranularity": "1"}, [speed]
        )
        (tmp_path / name).write_bytes(header.line([name]) + row)
        pieces.append(Piece(str(tmp_path / name), range(1), range(first, first + 1)))
    joinShards(str(tmp_path / "out"), pieces, ["a", "b"], 1)
    assert lines((tmp_path / "out").read_bytes())[0][7:13] == ["3", "1", "50", "3", "0", "a"]


def test_firstProblemIsWhereTheRowsBegin(tmp_path):
    """A client that was given a problem range has only those rows."""
    table = Table(LITE / "full/results.csv")
    pieces = [recorded(LITE / "problems-2-3", range(2, 4), range(24))]
    content = join(tmp_path, pieces, table, problemCount=2, firstProblem=2)[0]
    assert content == (LITE / "problems-2-3/results.csv").read_bytes()


def test_aFailingJoinLeavesTheOldFile(tmp_path):
    """Whatever ends a join, the results file that was there is still there, and whole."""
    table = Table(LITE / "full/results.csv")
    (tmp_path / "out.csv").write_text("old")
    with pytest.raises(RunError):
        join(tmp_path, [recorded(LITE / "full", range(6), range(24))], table, problemCount=7)
    assert (tmp_path / "out.csv").read_text() == "old" and os.listdir(tmp_path) == ["out.csv"]


def test_aPieceIsChecked():
    """A piece without pairs, or outside its file, is refused where it is made."""
    for bad in (
        dict(problems=range(0), solutions=range(1)),
        dict(problems=range(2), solutions=range(1), written=(1,)),
        dict(problems=range(2), solutions=range(3), fileSolutions=range(1, 3)),
    ):
        with pytest.raises(ValueError):
            Piece("a", **bad)


TEXTS = ["-1", "0", "-3.5", "12.5", "99.25", "99.25", "1.2e+06", "3e+12", *ABSURD]


def valid(text):
    value = float(text)
    return value if 0 < value < 9.2e18 else 0.0


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(st.sampled_from(TEXTS), min_size=6, max_size=6), min_size=1, max_size=3),
    st.sets(st.integers(1, 5)),
    st.booleans(),
)
def test_anyCellsJoinAsThePlainRuleSays(cells, cuts, extraColumns):
    """Against the rule written plainly: absurd is -1, the first greatest valid cell wins."""
    header = makeHeader(classic=False, sizeCount=2, extraColumns=extraColumns, perCu=False)
    table = Table.__new__(Table)
    table.header, table.names, table.cells = header, tuple("abcdef"), cells
    base = {name: "2" for name in header.columns if not name.startswith("Winner")}
    none = dict(WinnerGFlops="-1", WinnerTimeUS="-1", WinnerIdx="-1", WinnerName="")
    table.metas = [{**base, **none} for _ in cells]
    edges = [0, *sorted(cuts), 6]
    with tempfile.TemporaryDirectory() as into:
        pieces = [
            table.cut(os.path.join(into, str(a)), range(len(cells)), range(a, b))
            for a, b in zip(edges, edges[1:])
        ]
        content, report = join(into, pieces, table)
    rows = lines(content)
    assert len(rows) == len(cells)
    for row, texts in zip(rows, cells):
        expected = [t if math.isfinite(float(t)) and float(t) < 9.2e18 else "-1" for t in texts]
        assert row[len(header.columns) :] == expected
        if extraColumns:
            best = max(range(6), key=lambda i: (valid(texts[i]), -i))
            named = (
                [texts[best], str(best), "abcdef"[best]] if valid(texts[best]) else ["-1", "-1", ""]
            )
            at = header.at("WinnerGFlops")
            assert [row[at], row[at + 2], row[at + 3]] == named
    changed = sum(t in ABSURD for texts in cells for t in texts)
    assert report.absurd == changed and report.missing == 0
