# SPDX-License-Identifier: MIT
"""A plan for people, at 80 columns, and as JSON (docs/planning.md has the schema)."""

from __future__ import annotations

import os
import re
import textwrap
from typing import Any, Dict, List, Optional, Sequence

from . import __version__
from .Cost import (
    BANDWIDTH,
    DEFAULT_START_SECONDS,
    FLOPS_BY_BYTES,
    INIT_SECONDS_PER_ELEMENT,
    LAUNCH_SECONDS,
    VALIDATION_SECONDS_PER_MAC,
)
from .Devices import describeDevice
from .Plan import Plan
from .PlanStep import STEP_SECONDS, FirstUnit, StepPlan
from .Schedule import MODEL_ERROR
from .Terminal import duration, many

SCHEMA = 1
WIDTH = 80
# More lines than this on what devices begin with are left to --json.
MOST_FIRST_LINES = 48


def planText(plan: Plan) -> str:
    """The plan as a person reads it."""
    lines = ["TensileParallel %s: a plan. Nothing is started." % __version__, ""]
    lines += _heading(plan)
    lines += ["", *_steps(plan), "", *_times(plan)]
    first = _first(plan)
    lines += ["", *first] if first else []
    for title, texts in (("Notes", plan.warnings), ("Assumptions", assumptions(plan))):
        if texts:
            lines += ["", title]
            lines += [line for text in texts for line in _bullet(text)]
    return "\n".join(lines)


def planJson(plan: Plan) -> Dict[str, Any]:
    """The plan for scripts."""
    serial, complete = plan.total(serial=True)
    parallel, _ = plan.total(serial=False)
    settings, host = plan.settings, plan.host
    return {
        "schema": SCHEMA,
        "tensileParallel": __version__,
        "config": os.path.abspath(settings.configs[0]),
        "sizesFile": os.path.abspath(settings.configs[1]) if settings.configs[1:] else None,
        "out": os.path.abspath(settings.out) if settings.out else None,
        "host": host
        and {
            "generation": host.generation,
            "version": host.version,
            "tree": host.tree,
            "standIn": host.standIn,
        },
        "hostMissing": plan.hostMissing or None,
        "serialBecause": plan.devices.serial or None,
        "devices": {
            "count": len(plan.devices.devices),
            "ordinals": [device.ordinal for device in plan.devices.devices],
            "architectures": sorted({d.architecture for d in plan.devices.devices} - {""}),
            "assumed": plan.devices.assumed,
            "source": plan.devices.source,
        },
        "steps": [_stepJson(number, each) for number, each in enumerate(plan.steps, 1)],
        "seconds": {
            "serial": _rounded(serial),
            "parallel": _rounded(parallel),
            "complete": complete,
            "outsideBenchmarks": _rounded(plan.hostSeconds),
        },
        "notes": list(plan.warnings),
        "assumptions": assumptions(plan),
    }


def assumptions(plan: Plan) -> List[str]:
    """What the numbers rest on, one line each."""
    timed = [each for each in plan.steps if each.serialSeconds is not None]
    texts = []
    if any(each.solutions is not None and not each.exact for each in plan.steps):
        texts.append(
            "<=: as many solutions as the fork parameters have combinations, and custom kernels. "
            "Tensile leaves out those that are invalid, often most; the times shrink with them."
        )
    if timed:
        texts += _aboutPace(timed)
        texts += _aboutRepeats(timed)
        texts.append(
            "A client takes %s s to start, %.0f ns per element of A, B and C for its data, and "
            "for validation %.0f ns per multiply-add on the CPU, once per problem and client. "
            "A step of a parallel run takes %.0f s beside its clients."
            % (
                DEFAULT_START_SECONDS,
                1e9 * INIT_SECONDS_PER_ELEMENT,
                1e9 * VALIDATION_SECONDS_PER_MAC,
                STEP_SECONDS,
            )
        )
        texts.append(
            "The devices are alike, nobody else uses them, nothing fails. What is timed again "
            "where solutions of a problem are split is not counted."
        )
    beside = "not known before a run"
    if plan.hostSeconds is not None:
        beside = "the last run in %s took %s" % (
            plan.settings.out,
            duration(plan.hostSeconds, tenths=True),
        )
    texts.append(
        "Making kernels and library logic is not in these times, and takes a serial run as long: "
        "%s." % beside
    )
    if any(each.measuredPairs for each in plan.steps):
        texts.append(
            "measured: by earlier runs in %s, and not again, if Tensile, its options, client and "
            "architecture are the same." % plan.settings.out
        )
    unended = sum(each.unendedUnits for each in plan.steps)
    if unended:
        text = (
            "%s ran when an earlier run in %s was ended: what their clients had finished is kept "
        )
        text += "by a run, but not known here and counted as left."
        texts.append(text % (many(unended, "unit"), plan.settings.out))
    if plan.settings.emulate:
        texts.append("Emulated devices make their times up; the model's are those of real ones.")
    if plan.host is None:
        kind = "classic Tensile" if plan.classic else "TensileLite"
        texts.append(
            "No Tensile tree was found: the config is counted as %s's, with the defaults that all "
            "have. Not known: which custom kernels there are, whether it asks for the GPU's clock."
            % kind
        )
    return texts


def _aboutPace(timed: Sequence[StepPlan]) -> List[str]:
    texts = []
    if any(not each.taught for each in timed):
        texts.append(
            "Times are a model's, not measured: a nominal GPU with %.0f TFlop/s in half and %.0f "
            "in single precision, %.1f TB/s, %.0f us per launch. Yours may take up to %.0f times "
            "as long, or less; how steps, sizes and devices compare is surer."
            % (
                FLOPS_BY_BYTES[2] / 1e12,
                FLOPS_BY_BYTES[4] / 1e12,
                BANDWIDTH / 1e12,
                1e6 * LAUNCH_SECONDS,
                MODEL_ERROR,
            )
        )
    units = sum(each.taught for each in timed)
    if units:
        steps = sum(bool(each.taught) for each in timed)
        texts.append(
            "The pace of %d of %d steps is as %d units of earlier runs in the output folder had it."
            % (steps, len(timed), units)
        )
    return texts


def _aboutRepeats(timed: Sequence[StepPlan]) -> List[str]:
    return [
        "Every pair as the config says, else as the host's defaults do: %s." % repeats
        for repeats in dict.fromkeys(each.repeats for each in timed)
    ]


def _heading(plan: Plan) -> List[str]:
    settings = plan.settings
    rows = [("config", " and ".join(settings.configs))]
    if settings.out:
        rows.append(("output", settings.out))
    rows.append(("host", plan.host.description if plan.host else plan.hostMissing))
    devices = plan.devices
    rows.append(("devices", "%s (%s)" % (_numbers(plan), devices.source)))
    if not devices.assumed:
        kinds = sorted({_kind(describeDevice(device)) for device in devices.devices} - {""})
        rows += [("", kind) for kind in kinds[:4]]
    if devices.serial:
        rows.append(("serial", "a run here would be serial Tensile: %s" % devices.serial))
    lines = []
    for name, text in rows:
        lead = "%-9s" % name
        # A long path is not taken away from its name.
        lines += _wrapped(text, lead, 9) if " " in text else [lead + text]
    return lines


def _kind(description: str) -> str:
    """What is known of a device beside its number and its place."""
    facts = description.partition("(")[2].rstrip(")").split(", ")
    return ", ".join(fact for fact in facts if ":" not in fact and "emulated d" not in fact)


def _numbers(plan: Plan) -> str:
    ordinals = [device.ordinal for device in plan.devices.devices]
    if len(ordinals) > 2 and ordinals == list(range(ordinals[0], ordinals[0] + len(ordinals))):
        return "%d to %d" % (ordinals[0], ordinals[-1])
    return ", ".join(map(str, ordinals))


def _steps(plan: Plan) -> List[str]:
    """The table of steps: what there is to measure."""
    if not plan.steps:
        return ["No benchmark step."]
    before = any(each.measuredPairs for each in plan.steps)
    head = ["step", "entry", "group", "type", "sizes", "problems", "solutions", "pairs"]
    rows = [head + (["measured"] if before else [])]
    for number, each in enumerate(plan.steps, 1):
        step, sign = each.step, "" if each.exact else "<= "
        row = [str(number), str(step.entry + 1), "%02d" % step.group, each.problemType]
        row += [_count(step.sizes), _count(step.problems)]
        row += [_count(each.solutions, sign), _count(each.pairs, sign)]
        rows.append(row + ([_count(each.measuredPairs)] if before else []))
    return _table(rows, left=(3,))


def _times(plan: Plan) -> List[str]:
    """The table of times."""
    timed = [each for each in plan.steps if each.serialSeconds is not None]
    if not timed:
        return ["No times can be told."] if plan.steps else []
    count = len(plan.devices.devices)
    parallel = "%d devices" % count if count > 1 else "1 device"
    rows = [["step", "serial", parallel, "speed-up"]]
    for number, each in enumerate(plan.steps, 1):
        cells = _timeCells(each.serialSeconds, each.parallelSeconds, each.exact)
        rows.append([str(number), *cells])
    exact = all(each.exact for each in timed)
    serial, complete = plan.total(serial=True)
    total = _timeCells(serial, plan.total(serial=False)[0], exact)
    if len(plan.steps) > 1:
        rows.append(["all" if complete else "known", *total])
    left = " that are left" if any(each.measuredPairs for each in plan.steps) else ""
    return ["Expected times of the benchmarks%s" % left, *_table(rows)]


def _timeCells(serial: Optional[float], parallel: Optional[float], exact: bool) -> List[str]:
    if serial is None or parallel is None:
        return ["?", "?", ""]
    if not serial:
        return ["none", "none", ""]
    sign = "" if exact else "<= "
    speedUp = "%.1f" % (serial / parallel) if parallel else ""
    return [sign + duration(serial, tenths=True), sign + duration(parallel, tenths=True), speedUp]


def _first(plan: Plan) -> List[str]:
    """What each device begins with, in the longest steps where there are many."""
    steps = [(number, each) for number, each in enumerate(plan.steps, 1) if each.first]
    if not steps:
        return []
    most = max(1, MOST_FIRST_LINES // (2 + len(plan.devices.devices)))
    shown = sorted(steps, key=lambda step: -(step[1].parallelSeconds or 0.0))[:most]
    lines = ["What each device begins with"]
    for number, each in sorted(shown, key=lambda step: step[0]):
        lead = "step %d" % number
        if each.baselinePairs:
            lead += ", after a baseline of %d pairs" % each.baselinePairs
        rows = [_firstCells(each, first) for first in each.first]
        lines += [lead, *_table(rows, left=(1, 2))]
    if len(shown) < len(steps):
        lines.append("(the %d longest of %d steps; --json has all)" % (len(shown), len(steps)))
    return lines


def _firstCells(planned: StepPlan, first: FirstUnit) -> List[str]:
    unit = first.unit
    # "64x64x1x64 bias=Half activation=Relu" is too long for a line.
    what = re.sub(r" \w+=", " / ", first.sizes[0])
    if unit.problemCount > 1:
        what = "%s and %d more" % (what, unit.problemCount - 1)
    solutions = "all solutions"
    if unit.solutionCount < (planned.solutions or 0):
        solutions = "solutions %d-%d" % (unit.firstSolution, unit.lastSolution)
    return ["device %d" % first.device, what, solutions, duration(first.seconds, tenths=True)]


def _stepJson(number: int, planned: StepPlan) -> Dict[str, Any]:
    step = planned.step
    return {
        "step": number,
        "entry": step.entry + 1,
        "group": step.group,
        "problemType": planned.problemType,
        "sizes": step.sizes,
        "biases": step.biases,
        "activations": step.activations,
        "factors": step.factors,
        "icache": step.icache,
        "problems": step.problems,
        "solutions": planned.solutions,
        "exact": planned.exact,
        "solutionsFrom": planned.solutionsRemark or None,
        "pairs": planned.pairs,
        "measuredPairs": planned.measuredPairs,
        "unendedUnits": planned.unendedUnits,
        "whole": planned.whole or None,
        "rowsWhole": planned.rowsWhole or None,
        "learnedFromUnits": planned.taught,
        "seconds": {
            "serial": _rounded(planned.serialSeconds),
            "parallel": _rounded(planned.parallelSeconds),
        },
        "remark": step.remark or planned.timeRemark or None,
        "baselinePairs": planned.baselinePairs,
        "first": [
            {
                "device": first.device,
                "problems": [first.unit.firstProblem, first.unit.problemCount],
                "solutions": [first.unit.firstSolution, first.unit.solutionCount],
                "sizes": list(first.sizes),
                "seconds": _rounded(first.seconds),
            }
            for first in planned.first
        ],
    }


def _count(number: Optional[int], sign: str = "") -> str:
    if number is None:
        return "?"
    return sign + ("%d" % number if number < 10**7 else "%.0fM" % (number / 1e6))


def _rounded(seconds: Optional[float]) -> Optional[float]:
    return None if seconds is None else round(seconds, 3)


def _table(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> List[str]:
    """Columns of equal width, numbers to the right; no line is wider than a terminal."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    excess = 2 + sum(widths) + 2 * (len(widths) - 1) - WIDTH
    if excess > 0 and left:
        widest = max(left, key=lambda at: widths[at])
        widths[widest] = max(8, widths[widest] - excess)
    lines = []
    for row in rows:
        cells = [
            _cut(cell, width).ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _bullet(text: str) -> List[str]:
    return _wrapped(text, "  - ", 4)


def _wrapped(text: str, lead: str, indent: int) -> List[str]:
    return textwrap.wrap(
        lead + text,
        WIDTH,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
