# SPDX-License-Identifier: MIT
"""What ran where and when: timeline.json, and the picture of the report.

A track per device and one for the host. Within a step a device's track has no holes: it measures,
warms up, or waits, and each is a span of its own. So the spans of a device add up to the step, and
those of its units to its busySeconds in execution_summary.json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from .RunRecord import RunRecord, ownSteps, stepName, unitName
from .Types import MEASURED

UNIT = "unit"
EXTRA = "extra"
WARM_UP = "warm-up"
WAIT = "wait"
HOST = "host"
STEP = "step"

# Processes of the trace. 0 is the idle process of an operating system to Perfetto.
_HOST_PID, _DEVICES_PID = 1, 2
# A lock that was free is taken in less: then there was no waiting. Seconds.
_LOCK_SECONDS = 0.05


@dataclass(frozen=True)
class Span:
    """What one track did for a while.

    Attributes:
        name: for a person.
        category: UNIT, EXTRA (a baseline or re-timing), WARM_UP, WAIT, HOST or STEP.
        start: seconds since the epoch.
        end: seconds since the epoch, not before `start`.
        arguments: what is shown beside it.
        failure: what went wrong, one line; empty where nothing did.
    """

    name: str
    category: str
    start: float
    end: float
    arguments: Dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def seconds(self) -> float:
        """How long."""
        return self.end - self.start


def hostSpans(record: RunRecord, steps: Sequence[dict]) -> List[Span]:
    """The host's work between the steps, and the steps. They follow each other without holes.

    All that is known of the host is when its clients started and ended: before a step it makes
    that one's kernels, after the last one the library logic.
    """
    spans: List[Span] = []
    cursor = record.started
    for step in ownSteps(record, steps):
        start = min(max(cursor, step.get("started") or cursor), record.ended)
        end = min(max(start, step["ended"]), record.ended)
        spans.append(Span("kernels: %s" % stepName(step), HOST, cursor, start))
        keys = ("problems", "solutions", "whole", "state")
        arguments = {key: step.get(key) for key in keys}
        spans.append(Span("benchmark: %s" % stepName(step), STEP, start, end, arguments))
        cursor = end
    finished = record.state == "finished" and spans
    name = "library logic" if finished else "Tensile"
    spans.append(Span(name, HOST, cursor, max(cursor, record.ended)))
    return [span for span in spans if span.seconds > 0]


def deviceSpans(record: RunRecord, steps: Sequence[dict], ordinal: int) -> List[Span]:
    """What a device did in the steps of this run, in order, without holes within a step."""
    spans: List[Span] = []
    cursor = 0.0  # clocks are set, and files have clocks of their own: nothing begins before it
    for step in ownSteps(record, steps):
        start = max(cursor, step.get("started") or record.started)
        end = max(start, step["ended"])
        if ordinal not in [part.get("ordinal") for part in step.get("devices") or ()]:
            spans.append(Span("not used in this step", WAIT, start, end))
        else:
            clients = _clients(step, ordinal, cursor)
            spans += _fill(start, end, clients, _workers(step, ordinal, end), step)
        cursor = max(end, spans[-1].start)  # the last one may have run over the step's end
    return [span for span in spans if span.seconds > 0 or span.failure]


def _clients(step: dict, ordinal: int, cursor: float) -> List[Span]:
    """Units and warm-ups of a device, in order; none of them begins before `cursor`."""
    spans: List[Span] = []
    units = [unit for unit in step.get("units") or () if unit.get("device") == ordinal]
    for unit in sorted(units, key=lambda unit: unit.get("started") or 0.0):
        if not unit.get("started") or not unit.get("ended"):
            continue  # it never started
        # A worker that died has no times of its own: the files' say when, by another clock.
        start = max(cursor, unit["started"])
        end = max(start, unit["ended"])
        warm = max(cursor, start - (unit.get("warmUp") or 0.0))
        if warm < start:
            spans.append(Span("warm-up", WARM_UP, warm, start))
        spans.append(_unitSpan(step, unit, start, end))
        cursor = end
    return spans


def _unitSpan(step: dict, unit: dict, start: float, end: float) -> Span:
    keys = ("unit", "kind", "exit", "problems", "solutions", "attempt", "startSeconds", "shortened")
    arguments = {key: unit.get(key) for key in keys}
    arguments["step"] = stepName(step)
    name = unitName(step, unit)
    failure = ""
    if unit.get("kind") != MEASURED:
        name = "%s: %s" % (unit.get("kind"), name)
        failure = unit.get("message") or str(unit.get("kind"))
    extra = unit.get("retiming") or unit.get("baseline")
    return Span(name, EXTRA if extra else UNIT, start, end, arguments, failure)


def _workers(step: dict, ordinal: int, end: float) -> List[Span]:
    """The waits for a device's worker and for its lock, as far as the loop has noted them."""
    spans = []
    for worker in step.get("workers") or ():
        if worker.get("device") != ordinal:
            continue
        begun, ready = worker["begun"], worker.get("ready")
        if ready is None:
            spans.append(Span("waits for its worker or lock", WAIT, begun, max(begun, end)))
            continue
        locked = worker.get("lockSeconds") or 0.0
        lock = max(begun, ready - locked) if locked >= _LOCK_SECONDS else max(begun, ready)
        spans.append(Span("waits for its worker", WAIT, begun, lock))
        spans.append(Span("waits for its lock", WAIT, lock, max(lock, ready)))
    return spans


def _fill(
    start: float, end: float, clients: Sequence[Span], workers: Sequence[Span], step: dict
) -> List[Span]:
    """Clients' spans with all between them: what the worker did there, or nothing."""
    spans: List[Span] = []
    cursor = start
    for span in clients:
        spans += _gap(cursor, span.start, workers, "idle")
        spans.append(span)
        cursor = max(cursor, span.end)
    rest = "waits for the other devices" if clients else "no work"
    if step.get("open"):
        rest = "not known: its unit has not ended"
    return spans + _gap(cursor, end, workers, rest)


def _gap(start: float, end: float, workers: Iterable[Span], name: str) -> List[Span]:
    spans = []
    cursor = start
    for worker in workers:
        first, last = max(cursor, worker.start), min(end, worker.end)
        if first < last:
            spans.append(Span(name, WAIT, cursor, first))
            spans.append(Span(worker.name, WAIT, first, last))
            cursor = last
    return spans + [Span(name, WAIT, cursor, end)]


def timeline(record: RunRecord, steps: Sequence[dict]) -> Dict[str, Any]:
    """The content of timeline.json, in Chrome's trace-event format (Perfetto opens it).

    Times are whole microseconds since the start of the run. Spans of a track are nested or
    disjoint. Units of earlier runs, whose times are not of this run, are counted and left out.
    """
    events = [
        *_names("process", _HOST_PID, 0, "Tensile", 0),
        *_names("thread", _HOST_PID, 1, "host", 0),
        *_names("process", _DEVICES_PID, 0, _devicesLabel(record), 1),
    ]
    whole = Span("run", "run", record.started, record.ended)
    events += _events(record, [whole, *hostSpans(record, steps)], _HOST_PID, 1)
    for device in record.devices:
        label = "device %d %s" % (device.ordinal, device.architecture or device.product)
        row = (_DEVICES_PID, device.ordinal + 1)
        events += _names("thread", *row, label.strip(), device.ordinal)
        events += _events(record, deviceSpans(record, steps, device.ordinal), *row)
    others = [step for step in steps if step.get("run") != record.run]
    earlier = sum(len(step.get("units") or ()) for step in others)
    earlier += sum(step.get("resumedUnits") or 0 for step in ownSteps(record, steps))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "run": record.run,
            "state": record.state,
            "started": datetime.fromtimestamp(record.started).astimezone().isoformat(),
            "emulated": str(record.emulated).lower(),
            "unitsOfEarlierRunsNotShown": str(earlier),
        },
    }


def timelineText(record: RunRecord, steps: Sequence[dict]) -> str:
    """timeline.json as text, an event a line: there may be tens of thousands."""
    content = timeline(record, steps)
    events = content.pop("traceEvents")
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return '{"traceEvents": [\n%s\n],\n%s\n' % (lines, json.dumps(content, indent=1)[1:].lstrip())


def _devicesLabel(record: RunRecord) -> str:
    return "emulated GPUs" if record.emulated else "GPUs"


def _events(record: RunRecord, spans: Sequence[Span], pid: int, tid: int) -> List[dict]:
    events = []
    for span in spans:
        start, end = _microseconds(record, span.start), _microseconds(record, span.end)
        place = {"cat": span.category, "pid": pid, "tid": tid}
        events.append(
            {
                "name": span.name,
                "ph": "X",
                **place,
                "ts": start,
                "dur": max(0, end - start),
                "args": span.arguments,
            }
        )
        if span.failure:
            mark = {"name": span.failure, "ph": "i", "s": "t", **place, "ts": end, "args": {}}
            events.append(mark)
    return events


def _microseconds(record: RunRecord, moment: float) -> int:
    # Ends are rounded as starts are, so that spans which touch still touch.
    return max(0, round((moment - record.started) * 1e6))


def _names(kind: str, pid: int, tid: int, name: str, order: int) -> Tuple[dict, dict]:
    row = {"ph": "M", "pid": pid, "tid": tid}
    return (
        {"name": kind + "_name", **row, "args": {"name": name}},
        {"name": kind + "_sort_index", **row, "args": {"sort_index": order}},
    )
