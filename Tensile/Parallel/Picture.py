# SPDX-License-Identifier: MIT
"""The picture of who measured when, drawn by matplotlib (extra `report`), as SVG for the page."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple

from .HtmlParts import (
    EXTRA_COLOUR,
    FAILED_COLOUR,
    HOST_COLOUR,
    MEASURED_COLOUR,
    WARM_UP_COLOUR,
)
from .Timeline import EXTRA, HOST, UNIT, WARM_UP, Span

# A row has no more pieces than this, however many units ran: what is finer than the paper.
PIECES = 400
LONGEST_LABELS = (28, 12)  # on a broad page, on a narrow one
_LEVELS = (WARM_UP, EXTRA, UNIT)
_COLOURS = {
    UNIT: MEASURED_COLOUR,
    EXTRA: EXTRA_COLOUR,
    WARM_UP: WARM_UP_COLOUR,
    HOST: HOST_COLOUR,
}


@dataclass(frozen=True)
class Row:
    """A row of the picture: its label, what happened there."""

    label: str
    spans: Tuple[Span, ...]


def draw(rows: Sequence[Row], start: float, end: float) -> Optional[Tuple[str, str]]:
    """The picture for a broad page and for a narrow one, as SVG elements.

    Args:
        rows: from the top.
        start: where its clock begins, seconds since the epoch.
        end: where it ends.

    Returns:
        None where matplotlib is not there, or does not work.
    """
    if end <= start or not rows:
        return None
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except Exception:  # not installed; or broken, which takes nothing from the report
        return None
    try:
        # Text stays text: it is found by a search and uses the page's own font.
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "0", "font.family": "sans-serif"}):
            return (
                _svg(_figure(Figure, rows, start, end, 10.4), "broad"),
                _svg(_figure(Figure, rows, start, end, 3.6), "narrow"),
            )
    except Exception:
        return None


def _figure(figureClass: Any, rows: Sequence[Row], start: float, end: float, width: float) -> Any:
    narrow = width < 5
    unit, word = _unit(end - start)
    height = 0.62 + (0.24 if narrow else 0.30) * len(rows)
    figure = figureClass(figsize=(width, height))
    labels = _labels(rows, narrow)
    longest = max(map(len, labels))
    left = 0.42 if narrow else 0.85
    if longest > (4 if narrow else 9):  # of a node's devices
        left = 0.14 + 0.07 * longest
    axes = figure.add_axes(
        (left / width, 0.45 / height, 1 - (left + 0.16) / width, 1 - 0.53 / height)
    )
    for at, row in enumerate(rows):
        for colour, pieces in _pieces(row.spans, start, end):
            scaled = [((first - start) / unit, (last - first) / unit) for first, last in pieces]
            axes.broken_barh(scaled, (at - 0.36, 0.72), facecolors=colour, linewidth=0)
    axes.set_yticks(range(len(rows)), labels, fontsize=8.5)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, (end - start) / unit)
    axes.set_xlabel(word, fontsize=8.5, color="#5a6672")
    axes.tick_params(axis="x", labelsize=8.5, colors="#5a6672")
    axes.tick_params(axis="y", length=0, colors="#1d232a")
    axes.locator_params(axis="x", nbins=5 if narrow else 10)
    axes.grid(axis="x", color="#e3e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#b9c1ca")
    return figure


def _labels(rows: Sequence[Row], narrow: bool) -> List[str]:
    """What stands before each row. Of a long name the end is kept, with the device's number."""
    labels = [row.label.replace("device ", "") if narrow else row.label for row in rows]
    longest = LONGEST_LABELS[narrow]
    return [each if len(each) <= longest else "…" + each[1 - longest :] for each in labels]


def _unit(seconds: float) -> Tuple[float, str]:
    if seconds < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")


def _pieces(
    spans: Sequence[Span], start: float, end: float
) -> List[Tuple[str, List[Tuple[float, float]]]]:
    """(colour, [(first, last)]) of a row; what lies closer together than a line can show is one."""
    least = (end - start) / PIECES
    found: List[Tuple[str, List[Tuple[float, float]]]] = []
    for colour in (HOST_COLOUR, WARM_UP_COLOUR, EXTRA_COLOUR, MEASURED_COLOUR, FAILED_COLOUR):
        pieces: List[Tuple[float, float]] = []
        for span in spans:
            if colourOf(span) != colour:
                continue
            first, last = max(start, span.start), min(end, span.end)
            if pieces and first - pieces[-1][1] < least / 4:
                first = pieces.pop()[0]
            elif pieces and first < pieces[-1][1] + least and last - first < least:
                first = pieces.pop()[0]
            pieces.append((first, max(first, last)))
        if pieces:
            found.append((colour, pieces))
    return found


def colourOf(span: Span) -> str:
    """The colour of a span; empty for what is not drawn."""
    return FAILED_COLOUR if span.failure else _COLOURS.get(span.category, "")


def _svg(figure: Any, kind: str) -> str:
    """A figure as an element of an HTML page: no prologue, no size of its own, no addresses."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    head, rest = text.split(">", 1)
    head = re.sub(r'\s(xmlns(:\w+)?|width|height|version)="[^"]*"', "", head)
    text = head + ' class="%s" role="img" aria-label="who measured when">' % kind + rest
    text = text.replace("xlink:href", "href")
    # Both pictures stand on one page: what they refer to is their own.
    text = re.sub(r'(\bid="|href="#|url\(#)', r"\g<1>%s-" % kind, text)
    return re.sub(r"\n\s*", "\n", text)
