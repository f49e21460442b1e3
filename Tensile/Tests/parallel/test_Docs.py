# SPDX-License-Identifier: MIT
"""The pages of docs/: they build, and what they quote is what the code says."""

import ast
import re
import runpy
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from conftest import ROOT

from Tensile.Parallel.ParseArguments import clientOptions, runOptions

DOCS = ROOT / "docs"
PARALLEL = ROOT / "Tensile" / "Parallel"

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(
        not (ROOT / "TensileParallelCommands.py").is_file(),
        reason="these tests do not lie in TensileParallel's own checkout",
    ),
]

# What stands for something else in a quoted message, and in the code.
_VARYING = re.compile(r"…|\b[NM]\b|\b\d+\b|%%|%[-+ 0-9.]*[srdif]|\{[^}]*\}")


def testThePagesBuildWithoutWarnings(tmp_path):
    """Sphinx reads every page and finds every link's target; it needs no network."""
    for module in ("sphinx", "myst_parser"):
        pytest.importorskip(module, reason="Sphinx and myst-parser are not installed")
    options = ("-q", "-W", "--keep-going", "-E", "-b", "html", "-d", tmp_path / "trees")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, DOCS, tmp_path / "html"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    built = {path.stem for path in (tmp_path / "html").glob("*.html")}
    assert {path.stem for path in DOCS.glob("*.md")} <= built
    contents = (tmp_path / "html" / "index.html").read_text("utf-8")
    assert 'href="quick-start.html"' in contents and "toctree-l1" in contents


def testTheTableOfOptionsIsUpToDate():
    """docs/options.md has every option of the parsers, with their text."""
    page = runpy.run_path(str(ROOT / "tools" / "optionsTable"))["page"]()
    assert (DOCS / "options.md").read_text("utf-8") == page, "run tools/optionsTable"
    for name in (*runOptions(), *clientOptions()):
        assert "`%s`" % name in page


def testTheFigureIsAnImage():
    """The figure is well-formed SVG, and names what it shows for who cannot see it."""
    tree = ElementTree.parse(DOCS / "how-it-works.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert tree.tag == space + "svg" and tree.get("viewBox")
    assert tree.findtext(space + "title") and tree.findtext(space + "desc")
    assert "how-it-works.svg" in (DOCS / "how-it-works.md").read_text("utf-8")


def _texts():
    """Every text in the code, with what varies taken out."""
    for path in sorted(PARALLEL.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield _VARYING.sub("…", node.value)


def testQuotedMessagesExist():
    """A message that troubleshooting.md quotes is one that the code can say."""
    page = (DOCS / "troubleshooting.md").read_text("utf-8")
    page = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    quotes = [" ".join(quote.split()) for quote in re.findall(r'"([^"]+)"', page)]
    assert len(quotes) > 15
    texts = list(_texts())
    missing = []
    for quote in quotes:
        pieces = [piece.strip() for piece in _VARYING.split(quote.rstrip("."))]
        wanted = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL)
        missing += [] if any(wanted.search(text) for text in texts) else [quote]
    assert missing == []
