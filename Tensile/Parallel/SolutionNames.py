# SPDX-License-Identifier: MIT
"""Names and order of the solutions in a library: the columns of the client's results file.

A YAML library of a few thousand solutions takes PyYAML minutes, so it is never loaded: only the
lines of its top-level `solutions:` list are looked at, for `name`, `index` and
`libraryLogicIndex` of each item.
"""

from __future__ import annotations

import os
import re
import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from .Errors import InputError

_KEYS = "name|index|libraryLogicIndex"
_FIELD = re.compile(r"""\s*(['"]?)(%s)\1\s*:(?:\s+|$)(.*)""" % _KEYS)
_FLOW_FIELD = re.compile(r"""\s*(['"]?)(%s)\1\s*:\s*(.*)""" % _KEYS, re.DOTALL)
_COMMENT = re.compile(r"\s+#.*$")


class Solution(NamedTuple):
    """What the client makes known of a solution.

    Attributes:
        index: its place among the columns.
        name: its column's header.
        logicIndex: its number in the library logic that the library was made of; what the client
            writes into the library-update-file. -1, the client's default, where it has none, as
            in a benchmark's own library.
    """

    index: int
    name: str
    logicIndex: int


def readSolutionNames(libraryPath) -> List[str]:
    """Names of a library's solutions, in the order of the client's columns.

    Raises:
        InputError: as readSolutions.
    """
    return [solution.name for solution in readSolutions(libraryPath)]


def readSolutions(libraryPath) -> List[Solution]:
    """A library's solutions, in the order of the client's columns.

    The client keeps the solutions in a map by `index` (MasterSolutionLibrary) and runs from the
    first to the last index, so that is the order; of two with one index the later one counts.

    Args:
        libraryPath: TensileLibrary.yaml, .dat (msgpack) or .dat.zlib.

    Raises:
        InputError: missing, not a library, without solutions, or with a gap in its indices (the
            client would end at it).
    """
    path = libraryOnDisk(os.fspath(libraryPath))
    byIndex: Dict[int, Solution] = {}
    try:
        for solution in _solutions(path):
            byIndex[solution.index] = solution
    except OSError as error:
        message = "%s: cannot read the solution library: %s" % (path, error.strerror)
        raise InputError(message) from None
    if not byIndex:
        raise InputError("%s: no solutions in this library" % path)
    indices = sorted(byIndex)
    if indices[0] != 0 or indices[-1] != len(indices) - 1:
        message = "%s: its solutions are not numbered 0 to %d" % (path, len(indices) - 1)
        raise InputError(message)
    return [byIndex[index] for index in indices]


def libraryOnDisk(path: str) -> str:
    """Where a library lies that an INI names.

    TensileLite 2026 names TensileLibrary.dat and writes TensileLibrary.dat.zlib; its client tries
    the name with .zlib by itself (clientLibraryFiles in ClientWriter.py; fileToMsgObject in
    MasterSolutionLibrary.hpp).
    """
    packed = path + ".zlib"
    return packed if not os.path.exists(path) and os.path.exists(packed) else path


def _solutions(path: str) -> Iterator[Solution]:
    if path.endswith((".dat", ".dat.zlib", ".zlib")):
        return _packedSolutions(path)
    return _yamlSolutions(path)


def _packedSolutions(path: str) -> Iterator[Solution]:
    with open(path, "rb") as file:
        data = file.read()
    try:
        if path.endswith(".zlib"):
            import zlib

            data = zlib.decompress(data)
        library = _unpack(data)
        solutions = [
            Solution(int(each["index"]), each["name"], int(each.get("libraryLogicIndex", -1)))
            for each in library["solutions"]
        ]
    except Exception as error:  # msgpack and zlib have a dozen kinds of "not that format"
        raise InputError("%s: not a msgpack solution library (%s)" % (path, error)) from None
    return iter(solutions)


def _unpack(data: bytes):
    """A msgpack text as Python values; maps with integer keys (newer hosts) are fine."""
    try:
        import msgpack
    except ImportError:
        # The emulated client is started by path, by whichever Python its first line finds.
        return _unpackSlowly(data)
    return msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogateescape")


# Type byte -> (bytes of the length or the number, what follows); the msgpack specification.
_SIZED = {0xC4: (1, "bytes"), 0xC5: (2, "bytes"), 0xC6: (4, "bytes"), 0xD9: (1, "text")}
_SIZED.update({0xDA: (2, "text"), 0xDB: (4, "text"), 0xDC: (2, "list"), 0xDD: (4, "list")})
_SIZED.update({0xDE: (2, "map"), 0xDF: (4, "map")})
_FIXED = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_FIXED.update({0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"})
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def _unpackSlowly(data: bytes):
    """msgpack without the package; extension types, which no library has, are refused."""
    position = 0

    def take(count: int) -> bytes:
        nonlocal position
        begin, position = position, position + count
        if position > len(data):
            raise ValueError("cut off")
        return data[begin:position]

    def value():
        kind = take(1)[0]
        if kind < 0x80 or kind >= 0xE0:
            return kind if kind < 0x80 else kind - 0x100
        if kind < 0x90:
            return {value(): value() for _ in range(kind & 0x0F)}
        if kind < 0xA0:
            return [value() for _ in range(kind & 0x0F)]
        if kind < 0xC0:
            return take(kind & 0x1F).decode("utf-8", "surrogateescape")
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in _FIXED:
            return struct.unpack(_FIXED[kind], take(struct.calcsize(_FIXED[kind])))[0]
        size, form = _SIZED[kind]
        count = int.from_bytes(take(size), "big")
        if form == "list":
            return [value() for _ in range(count)]
        if form == "map":
            return {value(): value() for _ in range(count)}
        content = take(count)
        return content if form == "bytes" else content.decode("utf-8", "surrogateescape")

    return value()


def _yamlSolutions(path: str) -> Iterator[Solution]:
    with open(path, "r", encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    start = _listStart(text)
    if start is None:
        raise InputError("%s: no top-level 'solutions:' list, so not a library" % path)
    rest = text[start:]
    if rest.lstrip()[:1] == "[":
        return _flowList(rest.lstrip(), path)
    return _blockList(rest, path)


def _listStart(text: str) -> Optional[int]:
    """Where the value of the top-level key `solutions` begins."""
    flow = re.match(r"\s*(?:---\s*)?\{", text)
    if flow is None:
        match = re.search(r"""^(['"]?)solutions\1[ \t]*:(?=\s)""", text, re.MULTILINE)
        return None if match is None else match.end()
    # One flow mapping, as JSON is: the key that stands at its own level.
    depth = 0
    for position, char in _structure(text):
        if char in "{," and depth + (char == "{") == 1:
            match = _LIST_KEY.match(text, position + 1)
            if match:
                return match.end()
        depth += (char in "[{") - (char in "]}")
    return None


_LIST_KEY = re.compile(r"""\s*(['"]?)solutions\1\s*:""")


def _blockList(text: str, path: str) -> Iterator[Solution]:
    """Items of a block list: `- key: value` with further keys below, or `- {…}`."""
    listIndent = itemIndent = -1
    item: Dict[str, str] = {}
    flow: List[str] = []
    depth = 0
    for line in text.split("\n"):
        if depth:
            flow.append(line)
            depth = _depth(line, depth)
            if not depth:
                yield _solution(_flowFields("\n".join(flow)), path)
            continue
        stripped = line.lstrip(" ")
        if not stripped or stripped[0] in "#\r":
            continue
        indent = len(line) - len(stripped)
        if stripped.startswith("- ") and listIndent in (-1, indent):
            if item:
                yield _solution(item, path)
            item, listIndent = {}, indent
            content = stripped[2:].lstrip(" ")
            itemIndent = len(line) - len(content)
            if content[0] == "{":
                flow, depth = [content], _depth(content, 0)
                if not depth:
                    yield _solution(_flowFields(content), path)
                continue
            stripped, indent = content, itemIndent
        elif indent <= listIndent or listIndent < 0:
            break  # the list has ended: next top-level key, "..." or an empty list
        # Only an item's own keys: predicates have an `index` too, further to the right.
        if indent == itemIndent and stripped[0] in "nil'\"":
            match = _FIELD.match(stripped)
            if match:
                item[match.group(2)] = _scalar(match.group(3))
    if item:
        yield _solution(item, path)


def _flowList(text: str, path: str) -> Iterator[Solution]:
    """Items of `[{…}, {…}]`."""
    depth = begin = 0
    for position, char in _structure(text):
        if char in "[{":
            depth += 1
            if depth == 2:
                begin = position
        elif char in "]}":
            depth -= 1
            if depth == 1:
                yield _solution(_flowFields(text[begin : position + 1]), path)
            elif depth == 0:
                return


# A quote opens a text only at the beginning of a value; inside a plain one it is a letter.
_STRUCTURE = re.compile(
    r"""(?<=[\[{,:\s])(?:'(?:[^']|'')*'|"(?:[^"\\]|\\.)*")|[\[\]{},]""", re.DOTALL
)


def _structure(text: str) -> Iterator[Tuple[int, str]]:
    """Brackets and commas of a flow text that are not inside quotes."""
    for match in _STRUCTURE.finditer(text):
        if match.group()[0] not in "'\"":
            yield match.start(), match.group()


def _depth(line: str, depth: int) -> int:
    for _, char in _structure(line):
        depth += (char in "[{") - (char in "]}")
    return depth


def _flowFields(text: str) -> Dict[str, str]:
    """The fields that are wanted of one `{…}`, at its own level."""
    fields: Dict[str, str] = {}
    depth, begin = 0, 1
    for position, char in _structure(text):
        if char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        if (char == "," and depth == 1) or depth == 0:
            match = _FLOW_FIELD.match(text[begin:position])
            if match:
                fields[match.group(2)] = _scalar(match.group(3))
            begin = position + 1
    return fields


def _scalar(text: str) -> str:
    text = text.strip()
    if text[:1] == "'":
        return text[1 : text.rindex("'")].replace("''", "'")
    if text[:1] == '"':
        body = text[1 : text.rindex('"')]
        return re.sub(r"\\(.)", r"\1", body)
    return _COMMENT.sub("", text)


def _solution(item: Dict[str, str], path: str) -> Solution:
    try:
        logicIndex = int(item.get("libraryLogicIndex", -1))
        return Solution(int(item["index"]), item["name"], logicIndex)
    except (KeyError, ValueError):
        message = "%s: a solution without a name or a number: %r" % (path, item)
        raise InputError(message) from None
