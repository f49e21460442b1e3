# SPDX-License-Identifier: MIT
"""The pieces that the report's page is made of: escaped text, tables, bars, its style."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Iterable, List, Sequence, Union

MEASURED_COLOUR = "#2f6fb0"
EXTRA_COLOUR = "#8fb8de"
WARM_UP_COLOUR = "#e3a857"
WAIT_COLOUR = "#dfe3e8"
FAILED_COLOUR = "#b3261e"
HOST_COLOUR = "#7a8793"

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 24px 20px 48px; background: #fff; color: #1d232a;
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 10px; padding-bottom: 4px; border-bottom: 1px solid #d5dae0;
  break-after: avoid; }
h3 { font-size: 15px; margin: 20px 0 6px; overflow-wrap: anywhere; break-after: avoid; }
p { margin: 6px 0; overflow-wrap: anywhere; }
.quiet { color: #5a6672; font-size: 13.5px; }
h2 + .quiet { break-after: avoid; }
.badge { display: inline-block; padding: 1px 10px; border-radius: 10px; font-size: 13px;
  font-weight: 600; background: #e3efe5; color: #1d5c2a; vertical-align: 3px; }
.badge.bad { background: #fbe4e2; color: #8c1d18; }
.badge.busy { background: #e2ecf7; color: #1c4a7a; }
.banner { margin: 14px 0 0; padding: 8px 12px; border-left: 4px solid #e3a857;
  background: #fdf5e6; }
.banner.bad { border-color: #b3261e; background: #fdf0ef; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px;
  margin: 18px 0 0; }
.tile { border: 1px solid #d5dae0; border-radius: 6px; padding: 10px 12px; break-inside: avoid; }
.tile b { display: block; font-size: 22px; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { color: #5a6672; font-size: 13px; display: block; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 4px 16px 4px 0; text-align: left; vertical-align: top; overflow-wrap: anywhere; }
th { font-weight: 600; color: #5a6672; font-size: 13px; border-bottom: 1px solid #b9c1ca;
  overflow-wrap: normal; }
td { border-bottom: 1px solid #eceff2; }
tr { break-inside: avoid; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.k { white-space: nowrap; }
td.name { font-size: 12.5px;
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.wide { width: 40%; }
.rest { width: 60%; }
.why { width: 30%; }
pre { margin: 4px 0 14px; padding: 8px 10px; background: #f6f7f9; border: 1px solid #e3e7eb;
  border-radius: 4px; font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.bar { display: flex; width: 100%; min-width: 90px; height: 14px; margin-top: 4px;
  border-radius: 3px; overflow: hidden; background: #dfe3e8; }
.bar i { display: block; height: 100%; }
.legend { font-size: 13px; color: #5a6672; margin: 8px 0 16px; }
.legend span { display: inline-block; margin-right: 16px; }
.legend i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; border-radius: 2px;
  vertical-align: -1px; }
.picture svg { display: block; width: 100%; height: auto; }
.picture .narrow { display: none; }
ul { padding-left: 20px; margin: 6px 0; } li { margin: 3px 0; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0;
  font-size: 14px; }
dt { color: #5a6672; } dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
@media screen and (max-width: 640px) {
  body { padding: 16px 14px 32px; font-size: 15px; }
  h1 { font-size: 20px; }
  .tiles { grid-template-columns: 1fr 1fr; }
  .tile b { font-size: 19px; }
  .picture .narrow { display: block; } .picture .broad { display: none; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 8px; }
  table, tbody, tr, td { display: block; width: auto; }
  thead { display: none; }
  tr { border-bottom: 1px solid #d5dae0; padding: 7px 0; }
  td, td.n, td.k, td.wide, td.why, td.name { border: 0; padding: 1px 0; width: auto;
    text-align: left; white-space: normal; display: flex; gap: 10px; }
  td::before { content: attr(data-label); flex: 0 0 96px; color: #5a6672;
    font: 13px/1.6 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
  td:empty { display: none; }
  td > * { min-width: 0; flex: 1 1 0; } td > .bar { align-self: center; margin: 0; }
}
@page { size: A4; margin: 14mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  h1 { font-size: 17pt; } h2 { font-size: 13pt; margin-top: 18pt; }
  table { font-size: 9pt; } th { font-size: 8.5pt; } td.name, pre { font-size: 7.5pt; }
  dl, .quiet, .legend, .tile span { font-size: 9pt; } .tile b { font-size: 14pt; }
  .tiles { grid-template-columns: repeat(5, 1fr); gap: 6pt; } .tile { padding: 6pt 8pt; }
  thead { display: table-header-group; }
}
"""


@dataclass(frozen=True)
class Raw:
    """Text that is HTML already."""

    html: str


Cell = Union[str, int, float, Raw]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its heading.
        kind: classes of its cells: "n" for numbers, "k" for words that are not broken, "name" for
            kernels' names; "why", "wide" and "rest" for those that take 30, 40, 60 % of the room.
    """

    title: str
    kind: str = ""


def escaped(value: Any) -> str:
    """Any text as HTML, also within the quotes of an attribute.

    Characters that no page may hold, and halves of characters (names of files may be any bytes),
    become signs.
    """
    text = str(value).encode("utf-8", "backslashreplace").decode("utf-8")
    text = "".join(
        char if char in "\n\t" or (char >= " " and not "\x7f" <= char <= "\x9f") else "\ufffd"
        for char in text.replace("\r\n", "\n")
    )
    return html.escape(text, quote=True)


def named(text: str, shown: str) -> Raw:
    """A name that is shown shortened, in full where one points at it."""
    return Raw('<span title="%s">%s</span>' % (escaped(text), escaped(shown)))


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> str:
    """A table, which becomes a list of cards in a narrow window.

    A column in which nothing stands is left out.
    """
    rows = list(rows)
    kept = [at for at in range(len(columns)) if any(row[at] != "" for row in rows)]
    columns = [columns[at] for at in kept]
    rows = [[row[at] for at in kept] for row in rows]
    head = "".join("<th%s>%s</th>" % (_kind(column), escaped(column.title)) for column in columns)
    lines = ["<table><thead><tr>%s</tr></thead><tbody>" % head]
    for row in rows:
        cells = [
            '<td%s data-label="%s">%s</td>' % (_kind(column), escaped(column.title), _html(cell))
            for column, cell in zip(columns, row)
        ]
        lines.append("<tr>%s</tr>" % "".join(cells))
    return "\n".join([*lines, "</tbody></table>"])


def _kind(column: Column) -> str:
    return ' class="%s"' % column.kind if column.kind else ""


def _html(cell: Cell) -> str:
    if isinstance(cell, Raw):
        return cell.html
    # An element of its own, so that a card lays it out beside its label as a whole. Names of steps
    # are broken at their slash where that is enough.
    return "<span>%s</span>" % escaped(cell).replace("/", "/<wbr>") if cell != "" else ""


def section(title: str, *parts: str) -> str:
    """A heading and what belongs to it; nothing where there is nothing."""
    content = "\n".join(part for part in parts if part)
    return "<section><h2>%s</h2>\n%s</section>" % (escaped(title), content) if content else ""


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return "<p%s>%s</p>" % (' class="%s"' % kind if kind else "", escaped(text)) if text else ""


def bulleted(lines: Sequence[str]) -> str:
    """A list of plain texts."""
    items = "".join("<li>%s</li>" % escaped(line) for line in lines)
    return "<ul>%s</ul>" % items if lines else ""


def preformatted(text: str) -> str:
    """A program's own lines."""
    return "<pre>%s</pre>" % escaped(text) if text.strip() else ""


def facts(pairs: Iterable[Sequence[str]]) -> str:
    """Words with what they stand for; those that stand for nothing are left out."""
    items: List[str] = [
        "<dt>%s</dt><dd>%s</dd>" % (escaped(key), escaped(value)) for key, value in pairs if value
    ]
    return "<dl>%s</dl>" % "".join(items) if items else ""


def bar(parts: Sequence[Sequence[Any]]) -> Raw:
    """A bar of coloured parts.

    Args:
        parts: (share of the whole from 0 to 1, colour, words) each.
    """
    pieces = [
        '<i style="width:%.2f%%;background:%s" title="%s"></i>'
        % (100 * min(1.0, share), colour, escaped(words))
        for share, colour, words in parts
        if share > 0
    ]
    return Raw('<span class="bar">%s</span>' % "".join(pieces))


def legend(entries: Sequence[Sequence[str]]) -> str:
    """What the colours mean: (colour, words) each."""
    parts = ['<span><i style="background:%s"></i>%s</span>' % (c, escaped(w)) for c, w in entries]
    return '<p class="legend">%s</p>' % "".join(parts)
