# SPDX-License-Identifier: MIT
"""How Sphinx builds these pages: tools/docs.

The pages are Markdown that GitHub shows as it is. So the order of the pages is taken from the table
in index.md, and not from a toctree, which GitHub would show as code.
"""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "Tensile" / "Parallel" / "__init__.py"

project = "TensileParallel"
author = "the authors of TensileParallel"
copyright = author  # noqa: A001
release = re.search(r'^__version__ = "(.+)"$', PACKAGE.read_text("utf-8"), re.MULTILINE).group(1)

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
smartquotes = False  # "--client" is no dash
highlight_language = "none"  # an indented block is output, or a tree of files

html_theme = "alabaster"
html_theme_options = {
    "description": "Tensile run once, with a client that uses every GPU",
    "page_width": "1080px",
    "fixed_sidebar": True,
}
html_sidebars = {"**": ["about.html", "navigation.html", "searchbox.html"]}
html_show_sourcelink = False


def addContents(app, name, source):
    """The toctree that index.md's table stands for."""
    if name == "index":
        pages = re.findall(r"\]\((\S+)\.md\) \|$", source[0], re.MULTILINE)
        source[0] += "\n```{toctree}\n:hidden:\n\n%s\n```\n" % "\n".join(pages)


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", addContents)
