# SPDX-License-Identifier: MIT
"""`TensileParallel --report OUT`: OUT/report.html, one page on a run, complete in itself.

No script, nothing from the network: the file can be mailed and printed. It is made from what lies
in OUT, so a run may go on, or have been interrupted.
"""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Any, Dict, List, Sequence, Tuple

from .DeviceNames import nameIn, nameOf
from .Errors import RunError
from .Files import replaceFile
from .HtmlDevices import devicesSection, environmentSection
from .HtmlParts import (
    STYLE,
    Cell,
    Column,
    bulleted,
    escaped,
    named,
    paragraph,
    preformatted,
    section,
    table,
)
from .ReportData import INTERRUPTED, RUNNING, RunData, readRun
from .RunRecord import countOf, slowestUnits, stepName
from .Terminal import duration, many, tell
from .TextSummary import EMULATED_NOTE, clientTroubles, shortened
from .Winners import Winner, readWinners

PAGE_FILE = "report.html"
# Longer lists are cut, and the page says by how much.
MAX_WINNERS = 500
LEAST_WINNERS = 10  # of a step
MAX_FAILURES = 50
MAX_STEPS = 200
MAX_NOTES = 100
MAX_SLOWEST = 20
LONGEST_NAME = 64
TAIL_LINES = 8
LONGEST_TAIL = 2000

_STATES = {
    "finished": ("", "finished"),
    "failed": ("bad", "failed"),
    "stopped": ("bad", "stopped; the same command continues"),
    RUNNING: ("busy", "still running"),
    INTERRUPTED: ("bad", "interrupted; the same command continues"),
}


def makePage(out: str, file: str = "") -> int:
    """Write a page and say where it is; returns the exit status.

    Args:
        out: the output folder of a run.
        file: where the page is to be; empty: OUT/report.html.

    Raises:
        InputError: there is no run in OUT.
        RunError: the page could not be written.
    """
    data = readRun(out, time.time())
    path = os.path.abspath(file) if file else os.path.join(data.out, PAGE_FILE)
    content, drawn = page(data)
    try:
        replaceFile(path, content.encode("utf-8"))
    except OSError as error:
        text = "the report %s cannot be written: %s; --report OUT FILE.html writes it elsewhere"
        raise RunError(text % (path, error.strerror or error)) from None
    tell("report: %s" % path)
    if not drawn:
        tell("the picture is of bars alone: with matplotlib it shows when each device measured")
    return 0


def page(data: RunData) -> Tuple[str, bool]:
    """(the whole page, whether it has matplotlib's picture)."""
    devices, drawn = devicesSection(data)
    parts = [
        _head(data),
        _failures(data),
        devices,
        _steps(data),
        _winners(data),
        _slowest(data),
        _notes(data),
        environmentSection(data),
    ]
    title = escaped("TensileParallel: %s" % os.path.basename(data.out))
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    text = '<!DOCTYPE html>\n<html lang="en"><head>%s<title>%s</title><style>%s</style></head>'
    body = "\n".join(part for part in parts if part)
    return (text % (head, title, STYLE)) + "\n<body>\n%s\n</body></html>\n" % body, drawn


def _head(data: RunData) -> str:
    summary, record = data.summary, data.record
    kind, words = _STATES.get(record.state, ("bad", record.state))
    if record.state == "finished" and record.exitStatus:
        kind, words = "bad", "finished, exit status %d" % record.exitStatus
    lines = [
        '<header><h1>%s <span class="badge %s">%s</span></h1>'
        % (escaped(os.path.basename(record.config) or data.out), kind, escaped(words)),
        paragraph(_when(data), "quiet"),
    ]
    if record.emulated:
        lines.append(paragraph(EMULATED_NOTE, "banner"))
    if record.state == RUNNING:
        text = "The run goes on: this page shows it as it was at %s. Units that run are not in it."
        lines.append(paragraph(text % _clock(data.made), "banner"))
    if record.state == INTERRUPTED:
        text = "The run ended without a summary: it was killed, the machine went down, or its disk "
        text += "was full. "
        text += "What was measured is kept."
        lines.append(paragraph(text, "banner bad"))
    lines.append(_tiles(summary, data))
    return "\n".join(lines) + "</header>"


def _when(data: RunData) -> str:
    record = data.record
    text = "started %s" % _clock(record.started)
    if record.state != RUNNING:
        text += ", ended %s" % _clock(record.ended)
    if data.runs > 1:
        text += "; run %d of this command in this folder" % data.runs
    return text + "; page made %s" % _clock(data.made)


def _tiles(summary: Dict[str, Any], data: RunData) -> str:
    seconds, counts, known = summary["seconds"], summary["counts"], summary["speedUp"]
    bad = sum(counts[name] for name in ("failed", "crashed", "hung"))
    nodes = " of %s" % many(len(summary["nodes"]), "node") if "nodes" in summary else ""
    pairs = "pairs measured"
    if counts["resumedPairs"]:
        pairs += " now, and {:,} by earlier runs".format(counts["resumedPairs"])
    if counts["retimedPairs"]:
        pairs += "; {:,} of them timed again on another device".format(counts["retimedPairs"])
    tiles = [
        (
            duration(seconds["total"], tenths=True),
            (
                "so far"
                if data.record.state == RUNNING
                else "in all; benchmarks %s" % duration(seconds["benchmark"], tenths=True)
            ),
        ),
        (
            "%.2f×" % known["benchmark"] if known else "–",
            (
                "speed-up of the benchmarks; %.2f in all (%s)" % (known["total"], known["basis"])
                if known
                else "speed-up: not known yet"
            ),
        ),
        ("{:,}".format(counts["measured"]), pairs),
        (str(len(summary["devices"])), "devices%s, %d steps" % (nodes, len(summary["steps"]))),
        ("{:,}".format(bad), "pairs that could not be measured"),
    ]
    boxes = ["<div class=tile><b>%s</b><span>%s</span></div>" % (escaped(a), escaped(b))
             for a, b in tiles]  # fmt: skip
    return "<div class=tiles>%s</div>" % "".join(boxes)


def _failures(data: RunData) -> str:
    failures = [
        (stepName(step), failure) for step in data.steps for failure in step.get("failures") or ()
    ]
    parts = [paragraph(line) for line in clientTroubles(data.summary)]
    if failures:
        columns = [Column("what", "k"), Column("device", "n"), Column("problem")]
        columns += [Column("solution", "name"), Column("why", "why")]
        rows = [
            (
                (
                    "%s, %d pairs" % (failure.get("kind"), failure["pairs"])
                    if (failure.get("pairs") or 1) > 1
                    else str(failure.get("kind"))
                ),
                nameIn(failure),
                "%s (%s)" % (failure.get("size") or failure.get("problem"), step),
                _solution(failure.get("solution") or ""),
                failure.get("message") or "",
            )
            for step, failure in failures[:MAX_FAILURES]
        ]
        parts.append(table(columns, rows))
        parts.append(_leftOut(len(failures) - MAX_FAILURES, "failures: see each step.json"))
        parts += _tails(failures)
    if data.record.state in ("failed", INTERRUPTED) or data.record.exitStatus == 1:
        if data.logTail:
            parts.append("<h3>The last lines of the log</h3>")
            parts.append(preformatted("\n".join(data.logTail)))
    return section("What went wrong", *parts)


def _tails(failures: Sequence[Tuple[str, Dict[str, Any]]]) -> List[str]:
    """The clients' last lines, each text once."""
    parts: List[str] = []
    seen = set()
    for step, failure in failures[:MAX_FAILURES]:
        tail = "\n".join((failure.get("tail") or "").splitlines()[-TAIL_LINES:])[-LONGEST_TAIL:]
        if tail.strip() and tail not in seen:
            seen.add(tail)
            title = "The client's last lines: device %s, %s, %s"
            size = failure.get("size") or failure.get("problem")
            parts.append("<h3>%s</h3>" % escaped(title % (nameIn(failure), size, step)))
            parts.append(preformatted(tail))
    return parts


def _steps(data: RunData) -> str:
    columns = [Column("step", "wide"), Column("state", "k"), Column("problems", "n")]
    columns += [Column("solutions", "n"), Column("time", "n"), Column("measured", "n")]
    columns += [Column("resumed", "n"), Column("not measured", "n")]
    rows: List[Sequence[Cell]] = []
    for step, summary in list(zip(data.steps, data.summary["steps"]))[:MAX_STEPS]:
        bad = sum(countOf(step, name) for name in ("failed", "crashed", "hung"))
        earlier = step.get("run") != data.record.run
        state = step.get("state") or ""
        if not step.get("ended") and data.record.state != RUNNING:
            state = "not ended"
        rows.append(
            (
                stepName(step),
                "earlier run" if earlier else state,
                "{:,}".format(step.get("problems") or 0),
                "{:,}".format(step.get("solutions") or 0),
                duration(summary["seconds"], tenths=True) if step.get("ended") else "",
                "{:,}".format(countOf(step, "measured")),
                "{:,}".format(step["resumedPairs"]) if step.get("resumedPairs") else "",
                "{:,}".format(bad) if bad else "",
            )
        )
    more = _leftOut(len(data.steps) - MAX_STEPS, "steps")
    if not rows:
        return section("Steps", paragraph("No step has begun."))
    return section("Steps", table(columns, rows), more)


def _winners(data: RunData) -> str:
    parts: List[str] = []
    shown = 0
    names = {device.ordinal: nameOf(device) for device in data.record.devices}
    # Of each step some: a run of many steps would else show the first one's alone.
    share = max(LEAST_WINNERS, MAX_WINNERS // max(1, len(data.steps)))
    for step in data.steps[:MAX_STEPS]:
        found = readWinners(step, data.record.merged, share)
        heading = "<h3>%s</h3>" % escaped(stepName(step))
        if found is None:
            parts += [heading, paragraph("This step has no results file yet.", "quiet")]
            continue
        shown += len(found.winners)
        columns = [Column("size", "k"), Column("GFlops per CU" if found.perCu else "GFlops", "n")]
        columns += [Column("device", "n"), Column("fastest solution", "name rest")]
        solutions = [winner.solution for winner in found.winners if winner.solution]
        prefix = _commonPrefix(solutions, "%s_" % step.get("problemType"))
        rows = [_winnerRow(winner, prefix, names) for winner in found.winners]
        parts.append(heading)
        parts.append(table(columns, rows) if rows else "")
        parts.append(_leftOut(found.leftOut, "sizes: see %s" % found.path))
    hint = "Names are shortened; pointing at one shows it in full." if shown else ""
    return section("The fastest solution of each size", paragraph(hint, "quiet"), *parts)


def _winnerRow(winner: Winner, prefix: str, names: Dict[int, str]) -> Tuple[Cell, ...]:
    device = ", ".join(names.get(ordinal, str(ordinal)) for ordinal in winner.devices)
    if not winner.solution:
        return winner.size, "–", device, "no valid measurement"
    return winner.size, winner.speed, device, _solution(winner.solution, prefix)


def _solution(name: str, prefix: str = "") -> Cell:
    """A solution's name without what all of them begin with, and without its middle."""
    if not name:
        return ""
    return named(name, shortened(name[len(prefix) :] or name, LONGEST_NAME))


def _commonPrefix(names: Sequence[str], kind: str) -> str:
    """What all names begin with, up to the last underscore of it; `kind` where they are one."""
    prefix = os.path.commonprefix(list(names))
    if len(set(names)) == 1:
        prefix = kind if prefix.startswith(kind) else ""
    return prefix[: prefix.rfind("_") + 1]


def _slowest(data: RunData) -> str:
    columns = [Column("time", "n"), Column("device", "n"), Column("what", "wide")]
    columns += [Column("pairs", "n"), Column("step"), Column("end", "k")]
    units = slowestUnits(data.steps, MAX_SLOWEST)
    rows = [
        (
            duration(unit["seconds"], tenths=True),
            nameIn(unit),
            unit["name"],
            "{:,}".format(unit["pairs"]),
            unit["step"],
            str(unit["kind"]),
        )
        for unit in units
    ]
    whole = sum(len(step.get("units") or ()) for step in data.steps)
    more = _leftOut(whole - len(rows), "units: timeline.json and each step.json have them")
    return section("Slowest units", table(columns, rows), more) if rows else ""


def _notes(data: RunData) -> str:
    notes = list(data.record.notes)
    for step in data.steps:
        notes += ["%s: %s" % (stepName(step), note) for note in step.get("notes") or ()]
    more = _leftOut(len(notes) - MAX_NOTES, "notes: see tensile_parallel.log")
    return section("Notes", bulleted(notes[:MAX_NOTES]), more)


def _leftOut(count: int, what: str) -> str:
    return paragraph("{:,} more {}".format(count, what), "quiet") if count > 0 else ""


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
