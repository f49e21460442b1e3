# SPDX-License-Identifier: MIT
"""Tests of Tensile.Parallel.SolutionNames."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import msgpack
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from Tensile.Parallel import SolutionNames
from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.SolutionNames import readSolutionNames

pytestmark = pytest.mark.unit

DATA = Path(__file__).resolve().parent / "data"
YAML = DATA / "tensilelite-2024" / "library" / "TensileLibrary.yaml"
PACKED = DATA / "classic-4.44" / "library" / "TensileLibrary.dat"


def columns(results: Path, count: int):
    """The solution columns of a recorded header."""
    return results.read_text().splitlines()[0].split(", ")[-count:]


def test_yamlNamesAreTheRecordedColumns():
    """Names and order are those of the real client's header."""
    names = readSolutionNames(YAML)
    assert names == columns(DATA / "tensilelite-2024/full/results.csv", 24)


def test_packedNamesAreTheRecordedColumns():
    """The same for classic's msgpack library."""
    assert readSolutionNames(PACKED) == columns(DATA / "classic-4.44/full/results.csv", 6)


def test_compressedLibrary(tmp_path):
    """Newer hosts compress the msgpack library."""
    path = tmp_path / "TensileLibrary.dat.zlib"
    path.write_bytes(zlib.compress(PACKED.read_bytes()))
    assert readSolutionNames(path) == readSolutionNames(PACKED)


def test_compressedLibraryUnderItsLogicalName(tmp_path):
    """2026 names .dat in the INI and writes .dat.zlib; what is there under its own name counts."""
    named = tmp_path / "TensileLibrary.dat"
    (tmp_path / "TensileLibrary.dat.zlib").write_bytes(zlib.compress(PACKED.read_bytes()))
    assert readSolutionNames(named) == readSolutionNames(PACKED)
    named.write_bytes(msgpack.packb({"solutions": [{"index": 0, "name": "other"}]}))
    assert readSolutionNames(named) == ["other"]


def test_lineScanAgreesWithPyYaml():
    """What the scan finds is what is in the file."""
    library = yaml.safe_load(YAML.read_text())
    names = {entry["index"]: entry["name"] for entry in library["solutions"]}
    assert readSolutionNames(YAML) == [names[index] for index in sorted(names)]


def test_manySolutions(tmp_path):
    """5,000 solutions are all found (in well under a second)."""
    head, body = YAML.read_text().split("\nsolutions:\n")
    items = [item for item in re.split(r"(?m)^(?=- )", body) if item.startswith("- ")][:20]
    parts = [head, "\nsolutions:\n"]
    for index in range(5000):
        item = re.sub(r"(?m)^  index: \d+", "  index: %d" % index, items[index % 20])
        parts.append(re.sub(r"(?m)^  name: .*", "  name: solution_%d" % index, item))
    path = tmp_path / "TensileLibrary.yaml"
    path.write_text("".join(parts) + "...\n")
    assert readSolutionNames(path) == ["solution_%d" % index for index in range(5000)]


def test_orderIsByIndexAndTheLaterOfTwoCounts(tmp_path):
    """The client keeps them in a map by index."""
    path = tmp_path / "l.yaml"
    path.write_text(
        "solutions:\n- {index: 1, name: b}\n- name: old\n  index: 0\n"
        "- ideals: {}\n  index: 0\n  name: 'a'\nlibrary: {index: 7, name: no}\n"
    )
    assert readSolutionNames(path) == ["a", "b"]


_name = st.text("abcXYZ019_ .,:{}[]'\"#-&*", min_size=1, max_size=20).filter(str.strip)
# Real names are identifiers; a quote within a plain text is as odd as the scan needs to take.
_name = _name.filter(lambda name: not re.search(r"""[ :,\[{]['"]""", name))


@settings(max_examples=150, deadline=None)
@given(
    names=st.lists(_name, min_size=1, max_size=6),
    style=st.sampled_from([None, True, False]),
    indent=st.booleans(),
)
def test_everyStyleThatPyYamlWrites(tmp_path_factory, names, style, indent):
    """Block, flow and mixed style, quoted or not, items indented or not."""
    solutions = [
        {"ideals": {}, "index": n, "name": name, "sizeMapping": {"index": 9, "name": [1, {"a": 2}]}}
        for n, name in enumerate(names)
    ]
    library = {"library": {"rows": [{"index": 3, "name": "no"}]}, "solutions": solutions}
    text = yaml.dump(library, default_flow_style=style, explicit_start=True, width=10**6)
    if indent and style is False:
        head, body = text.split("solutions:\n")
        text = head + "solutions:\n" + "".join("  " + line + "\n" for line in body.splitlines())
    path = tmp_path_factory.mktemp("lib") / "l.yaml"
    path.write_text(text)
    assert readSolutionNames(path) == names


def test_jsonIsYamlToo(tmp_path):
    """A library written as JSON under a .yaml name."""
    path = tmp_path / "l.yaml"
    library = {"solutions": [{"index": 0, "name": "a"}, {"name": "b", "index": 1}], "x": 1}
    for indent in (None, 2):
        path.write_text(json.dumps(library, indent=indent))
        assert readSolutionNames(path) == ["a", "b"]


def test_whatIsNoLibraryIsAnInputError(tmp_path):
    """Missing, empty, something else, cut off, a gap in the numbers: one line each."""
    cases = {
        "a.yaml": b"library: {}\n",
        "b.yaml": b"solutions: []\n",
        "c.yaml": b"solutions:\nlibrary: {}\n",
        "d.yaml": b"solutions:\n- index: 0\n",
        "e.yaml": b"solutions:\n- {index: 0, name: a}\n- {index: 2, name: c}\n",
        "f.dat": PACKED.read_bytes()[:500],
        "g.dat": b"",
        "h.dat.zlib": PACKED.read_bytes(),
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=re.escape(str(tmp_path / name))):
            readSolutionNames(tmp_path / name)
    with pytest.raises(InputError, match="cannot read"):
        readSolutionNames(tmp_path / "none.yaml")


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20)
    | st.dictionaries(st.text(max_size=9), inner, max_size=20),
    max_leaves=40,
)


@settings(max_examples=200, deadline=None)
@given(_values)
def test_withoutMsgpackTheSameIsRead(value):
    """The emulated client may run under a Python that has no msgpack."""
    data = msgpack.packb(value)
    assert SolutionNames._unpackSlowly(data) == msgpack.unpackb(data, strict_map_key=False)
    with pytest.raises(Exception):
        SolutionNames._unpackSlowly(data[:-1])
