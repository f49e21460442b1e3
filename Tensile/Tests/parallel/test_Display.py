# SPDX-License-Identifier: MIT
"""What a person sees while a run goes on: on real terminals, on dumb ones, in pipes, on none."""

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from conftest import HOST, ROOT
from hypothesis import given
from hypothesis import settings as hypothesisSettings
from hypothesis import strategies as st

from Tensile.Parallel import Display as DisplayModule
from Tensile.Parallel.Display import (
    Display,
    LiveDisplay,
    PlainDisplay,
    Stalls,
    isDrawable,
    renderLines,
)

SCRIPT = ROOT / "Tensile" / "bin" / "TensileParallel"
# Longest a run may take here, in seconds.
PATIENCE = 150.0


def status(done=30, devices=4, **changes):
    entries = [
        {
            "device": number,
            "state": "running",
            "since": 1000.0,
            "unit": number,
            "kind": "pairs",
            "problem": number,
            "size": "1024x1024x1x1024",
            "solution": 5,
            "ofSolutions": 12,
            "name": "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32" * 3,
            "gflops": 123456.0,
            "lastLine": 1019.0,
            "units": number,
            "failures": number % 2,
        }
        for number in range(devices)
    ]
    step = {
        "name": "T_00/00_Final",
        "started": 1000.0,
        "pairs": {"done": done, "total": 60, "resumed": 0, "failed": 0},
        "units": {"done": 2, "failed": 0},
        "secondsLeft": 10.0,
    }
    return {
        "state": "benchmarking",
        "started": 1000.0,
        "stepNumber": 1,
        "stepCount": 3,
        "step": step,
        "devices": entries,
        "resumedPairs": 7,
        "secondsLeft": 60.0,
        "secondsLeftIs": "about",
        **changes,
    }


def lines(display=PlainDisplay, stream=None):
    """(a display with a clock that the test sets, that clock, the stream)."""
    clock = [1000.0]
    stream = stream or io.StringIO()
    return display(stream, now=lambda: clock[0]), clock, stream


@pytest.mark.unit
def test_plainLinesComeAtMarksAndMinutes():
    """Not with each unit: at every tenth of a step, or each minute; and no control characters."""
    display, clock, stream = lines()
    for done in range(60):
        for _ in range(10):
            clock[0] += 1
            display.show(status(done))
    said = stream.getvalue().splitlines()
    # Ten minutes, nine marks.
    assert 9 <= len(said) <= 20, said
    for mark in (10, 50, 90):
        assert any(re.search(r": %d %% \(" % mark, line) for line in said), mark
    assert all(line.startswith("TensileParallel: step 1 of 3: ") for line in said)
    assert all(character.isprintable() for line in said for character in line)


@pytest.mark.unit
def test_tenThousandUnitsAreFewLines():
    """A fast run says no more than a slow one: its marks keep a distance."""
    display, clock, stream = lines()
    for done in range(10000):
        clock[0] += 0.001
        display.show(status(60 * done // 10000))
    assert len(stream.getvalue().splitlines()) <= 6


@pytest.mark.unit
def test_kernelsAndLogicAreSaid():
    """What is not benchmarking is said when it begins, and each minute."""
    display, clock, stream = lines()
    for state in ("kernels", "logic"):
        for _ in range(150):
            clock[0] += 1
            display.show(status(state=state, step=None, stepNumber=0))
    said = stream.getvalue().splitlines()
    assert len([line for line in said if "makes kernels for step 1 of 3" in line]) == 3
    assert len([line for line in said if "library logic" in line]) == 3


@pytest.mark.unit
def test_aStallIsSaidWithWhatEachDeviceDoes():
    """After a minute without progress, in every mode, then ever more rarely; also to the log."""
    pytest.importorskip("rich")
    for kind in (Display, PlainDisplay, LiveDisplay):
        logged = []
        clock = [1000.0]
        stream = io.StringIO()
        display = kind(stream, now=lambda: clock[0], onStall=logged.append)
        for _ in range(55):
            clock[0] += 1
            display.show(status())
        assert not logged
        for _ in range(400):
            clock[0] += 1
            display.show(status())
        assert len(logged) == 3, logged
        assert "device 3: 1024x1024x1x1024 (problem 3), solution 5 of 12 since " in logged[0]
        assert "no progress for 1 min 00 s" in logged[0]
        assert logged[0] in stream.getvalue()


@pytest.mark.unit
def test_aPairIsProgress(monkeypatch):
    """A unit of a day is no stall as long as its client finishes pairs, but other lines of it are
    no progress; the knob is in the environment."""
    monkeypatch.setenv(DisplayModule.STALL_VARIABLE, "5")
    stalls = Stalls()
    now = status()
    for second in range(30):
        now["devices"][2]["solution"] += 1
        assert not stalls.look(json.loads(json.dumps(now)), 1000.0 + second)
    now["devices"][2]["lastLine"] += 1
    assert stalls.look(now, 1036.0)
    assert not stalls.look(status(state="kernels"), 1100.0)


@pytest.mark.unit
@hypothesisSettings(deadline=None, max_examples=60)
@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, 20), st.booleans())
def test_theDisplayFitsItsTerminal(columns, rows, devices, benchmarking):
    """Whatever its size: no line is as wide as the terminal, and all fit above its last row."""
    pytest.importorskip("rich")
    shown = status(devices=devices, **({} if benchmarking else {"state": "kernels"}))
    drawn = renderLines(shown, 1020.0, columns, rows)
    assert 1 <= len(drawn) <= max(1, rows - 1)
    assert all(width <= max(8, columns - 1) for width, _ in drawn)


@pytest.mark.unit
def test_theDisplaySaysWhatMatters():
    """Problem, solution n of m, speed, failures, what is left, what was resumed; names if wide."""
    pytest.importorskip("rich")
    text = "\n".join(line for _, line in renderLines(status(), 1020.0, 140, 40))
    for word in ("1024x1024x1x1024", "5/12", "123456", "50 %", "step 1 of 3", "20 s so far"):
        assert word in text
    assert "about 10 s left in this step" in text and "7 pairs were measured" in text
    assert "MT128" in text
    narrow = "\n".join(line for _, line in renderLines(status(), 1020.0, 50, 40))
    assert "5/12" in narrow and "MT128" not in narrow
    low = "\n".join(line for _, line in renderLines(status(devices=16), 1020.0, 80, 12))
    assert "more devices" in low


@pytest.mark.unit
def test_asciiTerminalsGetAscii():
    """A terminal that cannot show a bar's character gets none of them."""
    pytest.importorskip("rich")
    for _, line in renderLines(status(), 1020.0, 80, 24, "ascii"):
        assert "━" not in line


@pytest.mark.unit
def test_noColorMeansNone(monkeypatch):
    """NO_COLOR takes the colours, not the display."""
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    assert any(coloured.search(line) for _, line in renderLines(status(), 1020.0, 80, 24))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any(coloured.search(line) for _, line in renderLines(status(), 1020.0, 80, 24))


@pytest.mark.unit
def test_onlyRealTerminalsAreDrawnOn(monkeypatch):
    """No pipe, no dumb terminal, nothing without rich."""
    pytest.importorskip("rich")
    master, slave = pty.openpty()
    with open(slave, "w") as terminal:
        assert isDrawable(terminal, {"TERM": "xterm"})
        assert not isDrawable(terminal, {"TERM": "dumb"})
        assert not isDrawable(terminal, {})
        assert not isDrawable(io.StringIO(), {"TERM": "xterm"})
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stdout", terminal)
        assert isinstance(DisplayModule.makeDisplay(quiet=False), LiveDisplay)
        monkeypatch.setitem(sys.modules, "rich.table", None)
        assert not isDrawable(terminal, {"TERM": "xterm"})
        assert isinstance(DisplayModule.makeDisplay(quiet=False), PlainDisplay)
        monkeypatch.undo()
        # Whoever could have the live display is told how, and nobody else.
        assert os.read(master, 4096).count(b"pip install rich") == 1
    os.close(master)


@pytest.mark.unit
def test_linesOfOthersStandAboveTheDisplay():
    """They are not drawn over; what is drawn is taken away at the end."""
    pytest.importorskip("rich")
    display, clock, stream = lines(LiveDisplay)
    display.show(status())
    display.write(b"TensileParallel: an event\n")
    clock[0] += 5
    display.show(status())
    display.close()
    text = stream.getvalue()
    before, after = text.split("TensileParallel: an event\n")
    rows = before.count("\n")
    assert before.endswith("\r\x1b[%dA\x1b[J" % rows) and after.endswith("\r\x1b[%dA\x1b[J" % rows)


@pytest.mark.unit
def test_itIsDrawnAtMostFourTimesASecond():
    """However often the run looks, and once a second where nothing happens but time."""
    pytest.importorskip("rich")
    display, clock, stream = lines(LiveDisplay)
    for tick in range(1000):
        clock[0] += 0.01
        display.show(status(done=tick % 60))
    assert 30 <= stream.getvalue().count("step 1 of 3") <= 41
    display, clock, stream = lines(LiveDisplay)
    for _ in range(1000):
        clock[0] += 0.01
        display.show(status())
    assert stream.getvalue().count("step 1 of 3") <= 11


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text):
        raise OSError(5, "Input/output error")


@pytest.mark.unit
@pytest.mark.parametrize("kind", [Display, PlainDisplay, LiveDisplay])
def test_aClosedTerminalIsNoError(kind):
    """Nothing is shown any more, and nobody notices."""
    pytest.importorskip("rich")
    clock = [1000.0]
    display = kind(Gone(), now=lambda: clock[0])
    for _ in range(200):
        clock[0] += 1
        display.show(status())
        display.write(b"TensileParallel: an event\n")
    display.close()


class Terminal:
    """A run on a pseudo terminal of its own, which is its controlling one."""

    def __init__(self, config, pairSeconds, *options, columns=80, rows=24, **variables):
        folder = config.parent
        settings = folder / "emulator.json"
        settings.write_text(json.dumps({"pairSeconds": pairSeconds}))
        self.out = folder / "out"
        command = [sys.executable, str(SCRIPT), str(config), str(self.out), "--emulate", "2"]
        command += ["--tensile-root", str(HOST / "tensilelite"), *options]
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        environment = {**os.environ, "TERM": "xterm-256color", "TENSILE_EMULATOR": str(settings)}
        environment.update(variables)
        self.said = b""
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def readUntil(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.said
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.said += os.read(self.master, 65536)
                except OSError:  # the other end is closed
                    return

    def end(self):
        """Reads on to its end; returns its exit status."""
        self.readUntil(lambda: False)
        return self.process.wait(PATIENCE)


def test_aRunOnATerminal(smallConfig):
    """It is drawn in its place, is resized in the middle to almost nothing, and ends with 0."""
    pytest.importorskip("rich")
    terminal = Terminal(smallConfig, 0.4)
    terminal.readUntil(lambda: b"step 1 of 1" in terminal.said and b"GFlops" in terminal.said)
    for columns, rows in ((200, 50), (20, 5), (3, 2), (80, 24)):
        terminal.resize(columns, rows)  # which also sends SIGWINCH
        time.sleep(0.4)
    assert terminal.end() == 0
    assert b"\x1b[J" in terminal.said
    # What stays on the screen is text: the last erasure comes before the closing words.
    last = terminal.said.rsplit(b"\x1b[J", 1)[1]
    assert b"finished: 16 pairs" in last and b"Traceback" not in terminal.said
    assert b"measured after" not in terminal.said
    log = (terminal.out / "tensile_parallel.log").read_text()
    assert re.search(r"host: device \d: unit \d+ \(problems .*\) measured after", log)
    assert "\x1b" not in log


def test_aTerminalThatIsClosed(smallConfig):
    """The run goes on without it, through SIGHUP, to its end; and what it says is in the log."""
    terminal = Terminal(smallConfig, 0.3)
    terminal.readUntil(lambda: b"step 1 of 1" in terminal.said)
    os.close(terminal.master)
    assert terminal.process.wait(PATIENCE) == 0
    log = (terminal.out / "tensile_parallel.log").read_text()
    assert "finished: 16 pairs" in log
    assert json.loads((terminal.out / "status.json").read_text())["state"] == "finished"


def test_aHangUpOfAnotherKindStops(smallConfig):
    """SIGHUP while the terminal is there is a person's word: the run stops and can go on.

    With --quiet, all that is said are notes (here: of devices that stand still) and errors.
    """
    terminal = Terminal(smallConfig, 100.0, "--quiet", TENSILE_PARALLEL_STALL_SECONDS="1.5")
    terminal.readUntil(lambda: b"no progress for" in terminal.said)
    os.kill(terminal.process.pid, signal.SIGHUP)
    assert terminal.end() == 128 + signal.SIGHUP
    assert json.loads((terminal.out / "status.json").read_text())["state"] == "stopped"
    said = terminal.said.decode().splitlines()
    words = ("TensileParallel: note: ", "TensileParallel: error: stopped")
    assert all(line.startswith(words) for line in said), said
    assert "no progress for" in (terminal.out / "tensile_parallel.log").read_text()


def test_aDumbTerminal(smallConfig):
    """There are plain lines, without any control character."""
    terminal = Terminal(smallConfig, 0, TERM="dumb")
    assert terminal.end() == 0
    text = terminal.said.decode().replace("\r\n", "\n")
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "makes kernels for step 1 of 1" in text
