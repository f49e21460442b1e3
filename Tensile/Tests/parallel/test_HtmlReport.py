# SPDX-License-Identifier: MIT
"""report.html: what is on it, for runs of every state, and that nothing in a run can break it."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser

import pytest
from conftest import HERE, HOST, ROOT
from test_Report import STEP, makeRecord
from test_Timeline import checkTrace

from Tensile.Parallel import Picture
from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.HtmlParts import escaped
from Tensile.Parallel.HtmlReport import MAX_FAILURES, MAX_WINNERS, makePage, page
from Tensile.Parallel.Picture import Row, draw
from Tensile.Parallel.Report import writeReports
from Tensile.Parallel.ReportData import readRun
from Tensile.Parallel.Results import makeHeader
from Tensile.Parallel.Run import main
from Tensile.Parallel.Timeline import UNIT, Span
from Tensile.Parallel.Winners import readWinners

pytestmark = pytest.mark.unit

VOID = {"meta", "br", "wbr", "img", "hr", "input", "link"}
EVIL = '<script>alert("x")</script> & "quoted"\n\x1b[31mred\x00 ñ\udcff'


class Page(HTMLParser):
    """Reads a page: every element is closed, in its order; what is shown is kept."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.titles = [], defaultdict(int), [], []
        self.feed(text)
        self.close()
        assert not self.open, "not closed: %r" % self.open

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), "%s has an attribute twice: %r" % (tag, names)
        assert not [name for name in names if name.startswith("on") or name == "src"], names
        self.titles += [value for name, value in attributes if name == "title"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, "%s ends within %r" % (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def checkPage(text):
    """The rules of the page: well-formed, complete in itself, no script. Returns it, read."""
    read = Page(text)
    assert "script" not in read.tags and "link" not in read.tags and "iframe" not in read.tags
    assert not re.search(r"@import|url\((?!#)|(href|src)=\"(?!#)", text)
    shown = re.sub(r">[^<]*<", "><", text)  # what a run's own words say is no reference
    assert not re.search(r"https?:|//[a-z]", re.sub(r'(title|data-label)="[^"]*"', "", shown))
    assert read.tags["html"] == read.tags["h1"] == 1
    return read


def writeRun(folder, steps=(STEP,), ended=True, **changes):
    """An output folder as a run leaves it; without a summary where it has not ended."""
    record = makeRecord(merged=str(folder / "merged_output"), **changes)
    outputs = folder / "outputs"
    outputs.mkdir(parents=True)
    (folder / "merged_output").mkdir()
    for at, step in enumerate(steps):
        (outputs / str(at)).mkdir()
        (outputs / str(at) / "step.json").write_text(json.dumps(step))
    run = {
        "run": record.run,
        "command": list(record.command),
        "started": record.started,
        "emulate": 0,
        "devices": [vars(device) for device in record.devices],
        "client": record.client,
        "config": record.config,
        "merged": record.merged,
        "host": record.host,
    }
    (outputs / "run.json").write_text(json.dumps(run))
    os.utime(outputs / "run.json", (record.started, record.started))
    (outputs / ".lock").touch()
    (folder / "tensile_parallel.log").write_text(
        "1970-01-01T00:02:30.000+00:00 host: + ERR2=1\n1970-01-01T00:02:31.000+00:00 info: ours\n"
    )
    if ended:
        writeReports(str(folder), record, list(steps))
    return folder


def pageOf(folder):
    """(the page of a folder, read; its text)."""
    text, _ = page(readRun(str(folder), 210.0))
    return checkPage(text), text


def testAFinishedRun(tmp_path):
    """Everything that the page is for: times, devices, failures, steps, units, environment."""
    read, text = pageOf(writeRun(tmp_path / "out"))
    for words in (
        "a b.yaml finished", "speed-up of the benchmarks", "estimated from the units' own times",
        "What went wrong", "crashed", "Type_00/00_Final", "Slowest units", "a note", "gfx90a",
        "TensileParallel 'a b.yaml' out", "classic Tensile 4.44.0", "missing devices 9",
    ):  # fmt: skip
        assert words in read.text, words
    assert "still running" not in read.text and "EMULATED" not in read.text
    assert len(text) < 60000


def testClientsThatRecoveredAreOnThePage(tmp_path):
    """A crash that cost no pair stands under what went wrong all the same."""
    counts = dict(STEP["counts"], crashed=0)
    read, _ = pageOf(writeRun(tmp_path / "out", [dict(STEP, failures=[], counts=counts)]))
    assert "What went wrong clients that went wrong: 1 crashed; all their pairs" in read.text


def testARunThatGoesOnSaysSo(tmp_path):
    """Whoever holds the folder's lock runs: the page is of this moment."""
    folder = writeRun(tmp_path / "out", [dict(STEP, state="running", ended=None)], ended=False)
    with open(folder / "outputs" / ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        read, _ = pageOf(folder)
    assert "still running" in read.text and "as it was at" in read.text
    assert "1 min 50 s so far" in read.text  # from 100 to 210
    again, _ = pageOf(folder)
    assert "interrupted; the same command continues" in again.text
    assert "still running" not in again.text
    assert "in all; benchmarks 41.0 s" in again.text  # the log was written to until 151
    assert "+ ERR2=1" in again.text and "info: ours" not in again.text


def testAnEarlierRunsSummaryIsNotThisRuns(tmp_path):
    """After a resume was killed the old summary is still there: it does not count."""
    folder = writeRun(tmp_path / "out", exitStatus=0)
    path = folder / "outputs" / "run.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), run="next", started=140.0)))
    read, _ = pageOf(folder)
    assert "interrupted" in read.text and "finished, exit" not in read.text
    assert "earlier run" in read.text


def testNothingInARunBreaksThePage(tmp_path):
    """Names, messages, notes, paths, a client's lines: all is text, none is markup."""
    failure = dict(STEP["failures"][0], message=EVIL, solution=EVIL, size=EVIL, tail=EVIL)
    step = dict(STEP, problemType=EVIL, notes=[EVIL], failures=[failure])
    step["units"] = [dict(STEP["units"][0], size=EVIL, kind=EVIL)]
    folder = writeRun(tmp_path / "o<u>t & ñ", [step], notes=(EVIL,), config="/" + EVIL,
                      command=("TensileParallel", EVIL))  # fmt: skip
    read, text = pageOf(folder)
    assert 'alert("x")' in read.text and "<script>" in read.text
    assert "\x1b" not in text and "\x00" not in text
    assert makePage(str(folder)) == 0
    assert (folder / "report.html").read_bytes().decode("utf-8").startswith("<!DOCTYPE html>")
    assert escaped("a\"b'c") == "a&quot;b&#x27;c"


def writeResults(folder, rows, solutions, extra=True):
    """A results file of TensileLite with that many rows, and its step."""
    path = folder / "merged_output" / "1_BenchmarkProblems" / "Type_00" / "Data" / "00_Final.csv"
    path.parent.mkdir(parents=True)
    header = makeHeader(classic=False, sizeCount=4, extraColumns=extra, perCu=False)
    names = ["Type_%s%d" % ("K" * 90, at) for at in range(solutions)]
    sizes = {"SizeI": "64", "SizeJ": "32", "SizeK": "1", "SizeL": "16", "TotalFlops": "9"}
    with open(path, "wb") as stream:
        stream.write(header.line(names))
        for row in range(rows):
            winner = {"WinnerName": names[0], "WinnerIdx": "0", "WinnerGFlops": "77.5"}
            cells = ["77.5", "-1"] + ["5"] * (solutions - 2)
            if row == 1:
                winner, cells = {"WinnerName": "", "WinnerGFlops": "-1"}, ["-1"] * solutions
            values = {**sizes, **(winner if extra else {})}
            stream.write(header.row(row, values, cells))
    return dict(STEP, resultsFile="/moved" + str(path)[len(str(folder)) :], problems=rows), names


@pytest.mark.parametrize("extra", [True, False])
def testTheWinnerOfEachSize(tmp_path, extra):
    """With and without the client's winner columns; where all cells are -1 there is none. The
    folder may have been moved. A split problem was decided where it was timed again."""
    step, names = writeResults(tmp_path, 4, 3, extra)
    step["units"] = [{"problems": [0, 1], "device": 1, "retiming": True, "kind": "measured"}]
    found = readWinners(step, str(tmp_path / "merged_output"), 10)
    assert [w.solution for w in found.winners] == [names[0], "", names[0], names[0]]
    assert [w.speed for w in found.winners] == ["77.5", "", "77.5", "77.5"]
    assert [w.devices for w in found.winners] == [(1,), (0,), (0,), (1,)]
    assert found.winners[0].size == "64x32x1x16" and found.leftOut == 0


def testLongNamesAreShortenedAndStillThere(tmp_path):
    """A kernel's name is cut on the page, and whole in its title."""
    folder = tmp_path / "out"
    step, names = writeResults(folder, 3, 3)
    shutil.move(folder, tmp_path / "results")
    writeRun(folder, [step])
    shutil.rmtree(folder / "merged_output")
    shutil.move(tmp_path / "results" / "merged_output", folder / "merged_output")
    read, _ = pageOf(folder)
    assert names[0] in read.titles and names[0] not in read.text
    assert "no valid measurement" in read.text and "…" in read.text


def testABigRunIsCutAndSaysSo(tmp_path):
    """Ten thousand units, five thousand sizes, many failures: a page that can be mailed."""
    folder = tmp_path / "out"
    step, _ = writeResults(folder, 5000, 3)
    units = [
        dict(STEP["units"][0], unit=at, started=110 + at / 1e3, ended=110.0005 + at / 1e3)
        for at in range(10000)
    ]
    failures = [dict(STEP["failures"][0], tail="line %d\n" % at * 99) for at in range(900)]
    shutil.move(folder / "merged_output", tmp_path / "merged")
    shutil.rmtree(folder)
    writeRun(folder, [dict(step, units=units, failures=failures, notes=["n"] * 500)])
    shutil.rmtree(folder / "merged_output")
    shutil.move(tmp_path / "merged", folder / "merged_output")
    read, text = pageOf(folder)
    assert len(text) < 1.5e6
    for count, what in (
        (5000 - MAX_WINNERS, "sizes"),
        (900 - MAX_FAILURES, "failures"),
        (9980, "units"),
        (401, "notes"),
    ):
        assert "{:,} more {}".format(count, what) in read.text, what


def testTheBarsStandAlone(tmp_path, monkeypatch):
    """Without matplotlib, or with a broken one, the page has bars and says nothing is missing."""
    folder = writeRun(tmp_path / "out")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text, drawn = page(readRun(str(folder), 210.0))
    read = checkPage(text)
    assert not drawn and "svg" not in read.tags and 'class="bar"' in text and "waiting" in read.text


def testThePicture(tmp_path):
    """matplotlib's two pictures are parts of the page: no addresses, no ids twice, few pieces."""
    sys.path.append(os.path.join(sys.prefix, "apart"))  # tools/test puts it there
    pytest.importorskip("matplotlib")
    spans = [Span("u", UNIT, at / 100, (at + 0.6) / 100) for at in range(20000)]
    broad, narrow = draw([Row("host", ()), Row("device 0", tuple(spans))], 0.0, 200.0)
    assert len(broad) < 200000
    read = Page(broad + narrow)
    assert read.tags["svg"] == 2 and "device 0" in read.text
    ids = re.findall(r'\bid="([^"]*)"', broad + narrow)
    assert len(ids) == len(set(ids))
    for reference in re.findall(r'(?:href="#|url\(#)([^")]*)', broad + narrow):
        assert reference in ids
    folder = writeRun(tmp_path / "out")
    text, drawn = page(readRun(str(folder), 210.0))
    assert drawn and checkPage(text).tags["svg"] == 2
    assert draw([Row("host", ())], 5.0, 5.0) is None


def testOddTimesDrawSomething(monkeypatch):
    """Pieces lie within the picture and in order, whatever is asked to be drawn."""
    spans = [Span("a", UNIT, -5.0, 1.0), Span("b", UNIT, 1.0, 1.0), Span("c", UNIT, 9.0, 99.0)]
    ((_, pieces),) = Picture._pieces(spans, 0.0, 10.0)
    assert all(0 <= first <= last <= 10 for first, last in pieces)
    assert pieces == sorted(pieces) and pieces[-1][1] == 10.0


def testAFolderWithoutARun(tmp_path):
    """One line that says what is wrong, and exit 2."""
    for name in ("missing", "empty"):
        folder = tmp_path / name
        if name == "empty":
            folder.mkdir()
        with pytest.raises(InputError) as caught:
            makePage(str(folder))
        assert "no run of TensileParallel in" in str(caught.value)
        assert caught.value.exitStatus == 2 and "\n" not in str(caught.value)
        assert not (folder / "report.html").exists()
    torn = writeRun(tmp_path / "torn")
    (torn / "outputs" / "run.json").write_text('{"run": ')
    with pytest.raises(InputError, match="cannot be read"):
        makePage(str(torn))


def command(*arguments, cwd):
    """Runs TensileParallel as a person does."""
    words = [sys.executable, str(ROOT / "Tensile" / "bin" / "TensileParallel"), *arguments]
    return subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The output folder of a real run on two emulated devices."""
    folder = tmp_path_factory.mktemp("Läufe")
    shutil.copy(HERE / "configs" / "quick.yaml", folder / "quick.yaml")
    words = ["quick.yaml", "out", "--emulate", "2", "--tensile-root", str(HOST / "tensilelite")]
    done = command(*words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("TensileParallel --report") and last.endswith("makes a page of it")
    return folder / "out"


def testTheTraceTellsWhatTheSummaryTells(finished):
    """A real run's timeline keeps the format's rules; its sums are those of the summary."""
    summary = json.loads((finished / "execution_summary.json").read_text())
    tracks = checkTrace(json.loads((finished / "timeline.json").read_text()))
    assert len(tracks) == 3
    for device in summary["devices"]:
        (name,) = [name for name in tracks if name.startswith("device %d " % device["ordinal"])]
        sums = defaultdict(float)
        for event in tracks[name]:
            sums[event["cat"]] += event["dur"] / 1e6
        assert sums["unit"] + sums["extra"] == pytest.approx(device["busySeconds"], abs=0.01)
        assert sum(sums.values()) == pytest.approx(summary["seconds"]["benchmark"], abs=0.01)
        assert "waits for its worker" in [event["name"] for event in tracks[name]]
    host = defaultdict(float)
    for event in tracks["host"]:
        host[event["cat"]] += event["dur"] / 1e6
    assert host["host"] == pytest.approx(summary["seconds"]["host"], abs=0.01)
    assert host["step"] == pytest.approx(summary["seconds"]["benchmark"], abs=0.01)
    names = [event["name"] for event in tracks["host"]]
    assert names[-1] == "library logic" and names[1].startswith("kernels: Cijk_")


def testTheCommand(finished):
    """--report makes the page of a real run, changes nothing else, and starts nothing."""
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    done = command("--report", str(finished), cwd=finished.parent)
    assert done.returncode == 0, done.stderr
    path = finished / "report.html"
    assert "report: %s" % path in done.stdout
    read = checkPage(path.read_text("utf-8"))
    for words in ("EMULATED", "4096x4096x1x4096", "The fastest solution of each size", "stand-in"):
        assert words in read.text
    path.unlink()
    after = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    assert after == before


def testThePageElsewhere(tmp_path, capsys):
    """Where OUT cannot be written the page goes to a FILE.html; the error names no file that a
    person has not named, and leaves none."""
    folder = writeRun(tmp_path / "out")
    file = tmp_path / "page.html"
    assert main(["--report", str(folder), str(file)]) == 0
    checkPage(file.read_text("utf-8"))
    assert not (folder / "report.html").exists()
    (folder / "report.html").mkdir()
    before = sorted(os.listdir(folder))
    capsys.readouterr()
    assert main(["--report", str(folder)]) == 1
    said = capsys.readouterr().err
    assert "/out/report.html cannot be written: Is a directory; --report OUT FILE.html" in said
    assert sorted(os.listdir(folder)) == before


def testTheCommandsMistakes(tmp_path):
    """Nothing there, or more than a folder: one line and exit 2."""
    for arguments in (("--report", "nowhere"), ("--report", ".", "more"), ("--report",)):
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert os.listdir(tmp_path) == []
