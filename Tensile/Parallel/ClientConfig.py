# SPDX-License-Identifier: MIT
"""The client's INI (ClientParameters.ini) and command line: read, cut, write.

What the real client makes of both was read in its sources (`Source/client/main.cpp`,
`ClientProblemFactory.cpp`, both generations) and in boost::program_options:

- One `key=value` a line; everything from a '#' on is dropped, wherever it stands; white space
  around key and value is dropped; `[x]` puts "x." before the keys that follow.
- A list option takes one element a line. A scalar option twice in one file ends the client.
- The command line beats the INI, and the first of several INIs beats the later ones. That holds
  per option: a list is taken whole from the first place that has it.
- Relative paths in an INI are relative to the client's working directory, not to the INI.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .Errors import InputError

# What boost::program_options strips from both ends of a key and of a value.
WHITE_SPACE = " \t\r\n"

# One line of these applies to all sizes, as many lines as sizes apply one each; any other number
# of lines is ignored by the client.
STRIDE_OPTIONS = ("a-strides", "b-strides", "c-strides", "d-strides", "e-strides", "bias-strides")
STRIDE_OPTIONS += ("gate-strides",)  # 2026

# Options of the 2026 client that may stand without a value, and are then true (main.cpp,
# implicit_value): a value has to be attached to them.
SWITCHES = ("best-solution", "timing-instrumentation")

# Lists of the 2026 client: each value makes problems of its own, in an order that nobody here has
# seen run (ClientProblemFactory.cpp).
_MULTIPLYING = ("gate-type-args", "streamk-hybrid-mode", "hybrid-assignment-policy")

# The k-th line of these belongs to the k-th size, however many lines there are (classic only).
INDEXED_OPTIONS = ("a-zero-pads", "b-zero-pads", "convolution-problem")

LIST_OPTIONS = frozenset(
    STRIDE_OPTIONS
    + INDEXED_OPTIONS
    + ("config-file", "code-object", "problem-size", "activation-additional-args")
    + ("activation-enum-args", "bias-type-args", "factor-dim-args", "icache-flush-args")
    + _MULTIPLYING
    + ("prob-sol-map", "rocprof-counter")
    + ("a-ops", "b-ops", "c-ops", "d-ops", "free", "batch", "bound")
)

# Options that only one generation's client has; its host writes some of them into every INI.
_TENSILELITE = """
PrintWinnersOnly activation-additional-args activation-compute-type activation-enum-args
activation-hpa activation-no-guard activation-type amaxD-type bias-source bias-strides
bias-type-args compute-input-type e-strides e-type factor-dim-args grouped-gemm icache-flush-args
init-bias init-e init-scaleA init-scaleAlphaVec init-scaleB init-scaleC init-scaleD init-seed
max-enqueues-per-sync offset-e output-amaxD print-tensor-amaxd print-tensor-bias prune-mode
rotating-buffer-mode rotating-buffer-size skip-slow-solution-ratio sparse swizzle-tensor-a
swizzle-tensor-b use-bias use-e use-gradient use-scaleAB use-scaleAlphaVec use-scaleCD
use-user-args
batch-mode gate-strides gate-type-args hybrid-assignment-policy icache-rotate-copies
icache-rotate-size init-gate init-mx-a init-mx-b metadata-layout mx-scale-format
print-tensor-gate prob-sol-map rocprof-counter streamk-hybrid-mode
timing-instrumentation use-gate-residual
"""
_CLASSIC = """
a-ops a-zero-pads arithmetic-unit b-ops b-zero-pads batch bound c-ops convolution-identifier
convolution-problem convolution-vs-contraction d-ops flush-count flush-memory-size free
stochastic-rounding
"""
_COMMON = """
a-strides a-type alpha-type b-strides b-type best-solution beta-type bounds-check c-equal-d
c-strides c-type code-object config-file csv-export-extra-cols csv-merge-same-problems d-strides
d-type deterministic-mode device-idx dump-tensors exit-on-error f32-xdl-math-op
granularity-threshold hardware-monitor help high-precision-accumulate init-a init-alpha init-b
init-beta init-c init-d kernel-language library-file library-update-comment library-update-file
log-file log-file-append log-level max-workspace-size min-flops-per-sync num-benchmarks
num-elements-to-validate num-enqueues-per-sync num-problems num-solutions num-syncs-per-benchmark
num-warmups offset-a offset-b offset-c offset-d perf-l2-read-bw-mul perf-l2-read-hits
perf-l2-write-hits perf-ops-per-cycle perf-read-efficiency performance-metric platform-idx
print-max print-tensor-a print-tensor-b print-tensor-c print-tensor-d print-tensor-ref
print-valids pristine-on-gpu problem-identifier problem-size problem-start-idx results-file
selection-only sleep-percent solution-start-idx strided-batched sync-after-warmups type
use-default-stream use-gpu-timer
"""
TENSILELITE_OPTIONS = frozenset(_TENSILELITE.split())
CLASSIC_OPTIONS = frozenset(_CLASSIC.split())
CLIENT_OPTIONS = TENSILELITE_OPTIONS | CLASSIC_OPTIONS | frozenset(_COMMON.split())
SHORT_OPTIONS = {"h": "help", "l": "library-file", "c": "code-object", "p": "problem-size"}

# Any of these makes the client validate, and then it runs at least one pass (ReferenceValidator).
_PRINT_TENSORS = ("a", "b", "c", "d", "ref", "bias", "amaxd")

_TRUE = ("", "on", "yes", "1", "true")
_FALSE = ("off", "no", "0", "false")

Entry = Tuple[str, str]


class Size(NamedTuple):
    """One `problem-size` with the strides that go with it.

    Attributes:
        sizes: the index sizes, in the order of the problem identifier (free, batch, then bound).
        strides: option name -> strides, for the options that say something about this size; -1
            means "packed".
    """

    sizes: Tuple[int, ...]
    strides: Dict[str, Tuple[int, ...]]

    @property
    def text(self) -> str:
        """For people: 1024x1024x1x1024."""
        return "x".join(str(size) for size in self.sizes)


class ProblemId(NamedTuple):
    """Where one problem lies in the lists that multiply: all are indices from 0.

    Attributes:
        index: the client's own number for it: ((factor*nBias + bias)*nAct + activation)*nSizes
            + size.
        size: index in the list of sizes.
        bias: index in bias-type-args.
        activation: index in activation-enum-args.
        factor: index in factor-dim-args.
    """

    index: int
    size: int
    bias: int
    activation: int
    factor: int


class ClientOptions(NamedTuple):
    """A client's command line.

    Attributes:
        configFiles: the values of --config-file, in order; the first one wins.
        options: all other options, in order, as (long name, value).
    """

    configFiles: Tuple[str, ...]
    options: Tuple[Entry, ...]

    def get(self, key: str, default: Optional[str] = None) -> Optional[str]:
        """The value of an option, or `default`."""
        for name, value in self.options:
            if name == key:
                return value
        return default


class ClientConfig:
    """The content of one INI, or of several that were merged. It does not change.

    Attributes:
        entries: (key, value) as they stand in the file.
        path: where it was read; empty for one that was not read from a file.
    """

    # No dataclass: the emulated client reads this, and `dataclasses` is a third of its imports.

    def __init__(self, entries: Tuple[Entry, ...], path: str = "") -> None:
        self.entries = entries
        self.path = path

    @cached_property
    def _values(self) -> Dict[str, List[str]]:
        values: Dict[str, List[str]] = {}
        for key, value in self.entries:
            try:
                values[key].append(value)
            except KeyError:
                values[key] = [value]
        return values

    def get(self, key: str, default: Optional[str] = None) -> Optional[str]:
        """The (first) value of a key, or `default`."""
        found = self._values.get(key)
        return found[0] if found else default

    def getAll(self, key: str) -> List[str]:
        """All values of a key in file order; empty when it is absent."""
        return list(self._values.get(key, ()))

    def has(self, key: str) -> bool:
        """Whether the key is there at all."""
        return key in self._values

    def flag(self, key: str, default: bool = False) -> bool:
        """A truth value as boost reads it (true, 1, yes, on or nothing; any case).

        Raises:
            InputError: any other text; the client ends with it.
        """
        text = self.get(key)
        if text is None:
            return default
        lower = text.lower()
        if lower in _TRUE:
            return True
        if lower in _FALSE:
            return False
        raise InputError(self._message("%s=%s is not a truth value" % (key, text)))

    def number(self, key: str, default: int = 0) -> int:
        """A whole number.

        Raises:
            InputError: the text is not one; the client ends with it.
        """
        text = self.get(key)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise InputError(self._message("%s=%s is not a whole number" % (key, text))) from None

    def _message(self, text: str) -> str:
        return "%s: %s" % (self.path or "client options", text)

    @property
    def sizeCount(self) -> int:
        """How many `problem-size` lines there are."""
        return len(self._values.get("problem-size", ()))

    @cached_property
    def sizes(self) -> Tuple[Size, ...]:
        """All sizes with their strides, in order.

        Raises:
            InputError: a size or stride that is not a list of whole numbers.
        """
        texts = self._values.get("problem-size", [])
        columns = []
        for key in STRIDE_OPTIONS:
            lines = self._values.get(key, [])
            if len(lines) == len(texts):
                columns.append((key, [self._numbers(key, line) for line in lines]))
            elif len(lines) == 1:
                columns.append((key, [self._numbers(key, lines[0])] * len(texts)))
        keys = [key for key, _ in columns]
        strides = zip(*(values for _, values in columns)) if columns else ((),) * len(texts)
        sizes = [self._numbers("problem-size", text) for text in texts]
        return tuple(Size(size, dict(zip(keys, row))) for size, row in zip(sizes, strides))

    def _numbers(self, key: str, text: str) -> Tuple[int, ...]:
        # Separators as the client's split_nums: ',' and ';', empty parts are skipped.
        if ";" in text:
            text = text.replace(";", ",")
        try:
            return tuple([int(part) for part in text.split(",") if part])
        except ValueError:
            message = "%s=%s is not a list of whole numbers" % (key, text)
            raise InputError(self._message(message)) from None

    @property
    def biasCount(self) -> int:
        """How many bias types each size is run with; a list that is absent counts as one."""
        return max(1, len(self._values.get("bias-type-args", ())))

    @property
    def activationCount(self) -> int:
        """How many activations each size is run with."""
        return max(1, len(self._values.get("activation-enum-args", ())))

    @property
    def factorCount(self) -> int:
        """How many factor dims; the list counts only where use-bias or use-scaleAlphaVec is 3."""
        if 3 not in (self.number("use-bias"), self.number("use-scaleAlphaVec")):
            return 1
        return max(1, len(self._values.get("factor-dim-args", ())))

    @property
    def groupedGemm(self) -> bool:
        """Whether all sizes make one single problem."""
        return self.flag("grouped-gemm")

    @property
    def problemCount(self) -> int:
        """How many problems the client makes of the lists."""
        if self.groupedGemm:
            return 1
        bias, vector = self.number("use-bias"), self.number("use-scaleAlphaVec")
        if bias and vector and bias != vector:
            return 0  # createProblems skips them all
        return self.sizeCount * self.biasCount * self.activationCount * self.factorCount

    @property
    def passes(self) -> int:
        """How often the client goes through the problems (num-benchmarks)."""
        once = self.number("num-elements-to-validate") != 0 or self.flag("selection-only")
        once = once or any(self.flag("print-tensor-" + name) for name in _PRINT_TENSORS)
        return max(self.number("num-benchmarks", 1), 1 if once else 0)

    def problemAt(self, index: int) -> ProblemId:
        """Which size, bias type, activation and factor dim the client's problem `index` has.

        Raises:
            IndexError: there is no such problem.
        """
        if not 0 <= index < self.problemCount:
            raise IndexError("no problem %d among %d" % (index, self.problemCount))
        if self.groupedGemm:
            return ProblemId(0, 0, 0, 0, 0)
        rest, size = divmod(index, self.sizeCount)
        rest, activation = divmod(rest, self.activationCount)
        factor, bias = divmod(rest, self.biasCount)
        return ProblemId(index, size, bias, activation, factor)

    def describeProblem(self, index: int) -> str:
        """For messages: "1024x1024x1x1024 bias=Half"; only the lists that the INI gives."""
        problem = self.problemAt(index)
        if self.groupedGemm:
            return "grouped GEMM of %d sizes" % self.sizeCount
        text = self._values["problem-size"][problem.size]
        parts = ["x".join(str(number) for number in self._numbers("problem-size", text))]
        for label, key, position in (
            ("bias", "bias-type-args", problem.bias),
            ("activation", "activation-enum-args", problem.activation),
            ("factor", "factor-dim-args", problem.factor),
        ):
            values = self._values.get(key)
            if values and (label != "factor" or self.factorCount > 1):
                parts.append("%s=%s" % (label, values[position]))
        return " ".join(parts)

    @property
    def generation(self) -> str:
        """Whose host wrote this, "tensilelite" or "classic", told by the options only it has.

        TensileLite's hosts write use-bias, compute-input-type and many more into every INI,
        classic's write stochastic-rounding and flush-count. Where neither shows, the newer
        generation is assumed.
        """
        keys = self._values.keys()
        if keys & TENSILELITE_OPTIONS or not keys & CLASSIC_OPTIONS:
            return "tensilelite"
        return "classic"

    @property
    def rounds(self) -> int:
        """How often the client goes through the problems in all.

        TensileLite's does so once per pass and value of icache-flush-args, under the same indices
        and the same number of the pass (main.cpp).
        """
        values = len(self._values.get("icache-flush-args", ()))
        return max(1, self.passes) * (max(1, values) if self.generation != "classic" else 1)

    def replaced(self, changes: Mapping[str, Optional[str]]) -> ClientConfig:
        """A copy with other values: in place where the key stands, else at the end.

        Args:
            changes: key -> value; None removes the key. A key that stands several times is left
                once, since the client ends at a scalar that is given twice.
        """
        todo = dict(changes)
        entries: List[Entry] = []
        for key, value in self.entries:
            if key not in changes:
                entries.append((key, value))
            elif key in todo:
                text = todo.pop(key)
                if text is not None:
                    entries.append((key, text))
        entries.extend((key, value) for key, value in todo.items() if value is not None)
        return ClientConfig(tuple(entries), self.path)

    def withOptions(self, options: ClientOptions) -> ClientConfig:
        """What the client sees: its command line beats the INI, lists are replaced whole."""
        given: Dict[str, List[str]] = {}
        for key, value in options.options:
            given.setdefault(key, []).append(value)
        entries = [entry for entry in self.entries if entry[0] not in given]
        entries.extend((key, value) for key, values in given.items() for value in values)
        return ClientConfig(tuple(entries), self.path)

    def withSizes(self, indices: Sequence[int]) -> ClientConfig:
        """A copy that lists only the given sizes, in the given order.

        Their stride lines go with them. The other lists stay, so problem
        ((f*nBias + b)*nAct + a)*n + k of the copy is problem
        ((f*nBias + b)*nAct + a)*nSizes + indices[k] of this one.

        Args:
            indices: which sizes, from 0.

        Raises:
            IndexError: there is no such size.
        """
        count = self.sizeCount
        for index in indices:
            if not 0 <= index < count:
                raise IndexError("no size %d among %d" % (index, count))
        columns, whole = self._sizeColumns()
        entries: List[Entry] = []
        placed = False
        for key, value in self.entries:
            if key == "problem-size":
                if not placed:
                    placed = True
                    for index in indices:
                        entries.extend((name, lines[index]) for name, lines in columns)
            elif key in whole or not _belongsToSize(key):
                entries.append((key, value))
        return ClientConfig(tuple(entries), self.path)

    def _sizeColumns(self) -> Tuple[List[Tuple[str, List[str]]], List[str]]:
        """The options with one line per size (padded to it), and those with one line for all."""
        count = self.sizeCount
        columns = [("problem-size", self._values.get("problem-size", []))]
        whole = []
        for key in STRIDE_OPTIONS:
            lines = self._values.get(key, [])
            if lines and len(lines) == count:
                columns.append((key, lines))
            elif len(lines) == 1:
                whole.append(key)
            # Any other number is ignored by the client, but might not be with fewer sizes.
        for key in INDEXED_OPTIONS:
            lines = self._values.get(key, [])[:count]
            if lines:
                columns.append((key, lines + [""] * (count - len(lines))))
        return columns, whole


def _belongsToSize(key: str) -> bool:
    return key in STRIDE_OPTIONS or key in INDEXED_OPTIONS


def parseIni(text: str, path: str = "") -> Tuple[Entry, ...]:
    """The entries of an INI's text.

    Raises:
        InputError: a line that is neither key=value, [section], comment nor empty; the client
            ends with it.
    """
    entries: List[Entry] = []
    append = entries.append
    section = ""
    for line in text.split("\n"):
        if "#" in line:
            line = line[: line.index("#")]
        key, separator, value = line.partition("=")
        if "[" in key:
            stripped = line.strip(WHITE_SPACE)
            if stripped[0] == "[" and stripped[-1] == "]":
                # As boost does it: a section's name ends in exactly one dot.
                section = stripped[1:-1]
                section += "" if section.endswith(".") else "."
                continue
        if separator:
            append((section + key.strip(WHITE_SPACE), value.strip(WHITE_SPACE)))
        elif line.strip(WHITE_SPACE):
            message = "%s: not a line of an INI: %r" % (path or "client INI", line[:80])
            raise InputError(message)
    return tuple(entries)


def _readText(path: str) -> str:
    with open(path, "rb") as file:
        # Bytes that are not UTF-8 (a file name in an old encoding) survive reading and writing.
        return file.read().decode("utf-8", "surrogateescape")


def readClientConfig(path) -> ClientConfig:
    """Read a client's INI.

    Raises:
        InputError: missing, unreadable or not an INI.
    """
    return readClientConfigs([path])


def readClientConfigs(paths: Sequence) -> ClientConfig:
    """Read several INIs as the client does: per option the first file that has it counts.

    Raises:
        InputError: one is missing, unreadable or not an INI.
    """
    return mergeConfigs([_readOne(os.fspath(path)) for path in paths])


def _readOne(path: str) -> ClientConfig:
    try:
        text = _readText(path)
    except OSError as error:
        raise InputError("%s: cannot read the client's INI: %s" % (path, error.strerror)) from None
    return ClientConfig(parseIni(text, path), path)


def mergeConfigs(configs: Iterable[ClientConfig]) -> ClientConfig:
    """Several INIs as one: per option the first that has it counts, with all of its lines."""
    merged: List[Entry] = []
    seen = set()
    path = ""
    for config in configs:
        path = path or config.path
        merged.extend(entry for entry in config.entries if entry[0] not in seen)
        seen.update(key for key, _ in config.entries)
    return ClientConfig(tuple(merged), path)


def writeClientConfig(config: ClientConfig, path) -> None:
    """Write an INI that reads back as the same entries.

    Raises:
        InputError: an entry that no INI can hold (a '#', a line break, white space at an end).
    """
    path = os.fspath(path)
    lines = []
    for key, value in config.entries:
        line = key + "=" + value
        if "#" in line or "\n" in line or "[" in key or "=" in key or _padded(key, value):
            raise InputError("%s: an INI cannot hold %r" % (path, line[:200]))
        lines.append(line + "\n")
    data = "".join(lines).encode("utf-8", "surrogateescape")
    with open(path, "wb") as file:
        file.write(data)


def _padded(key: str, value: str) -> bool:
    return key.strip(WHITE_SPACE) != key or value.strip(WHITE_SPACE) != value


def longName(name: str) -> str:
    """The option a name on the command line means: boost lets unique beginnings stand for it."""
    if name in CLIENT_OPTIONS:
        return name
    matches = [option for option in CLIENT_OPTIONS if option.startswith(name)] if name else []
    return matches[0] if len(matches) == 1 else name


def _isOption(token: str) -> bool:
    """Whether the client would see an option here, and not a value such as -1."""
    if token.startswith("--"):
        return longName(token[2:].partition("=")[0]) in CLIENT_OPTIONS
    return token.startswith("-") and token[1:2] in SHORT_OPTIONS


def parseClientOptions(argv: Sequence[str]) -> ClientOptions:
    """A client's command line: --key value, --key=value, -k value, -kvalue.

    Unknown options are kept (a newer client may know them); isKnownOption tells.

    Args:
        argv: without the program's name.

    Raises:
        InputError: an option without its value, or an argument that is no option; the client
            ends with either.
    """
    configFiles: List[str] = []
    options: List[Entry] = []
    tokens = list(argv)
    position = 0
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if token.startswith("--") and len(token) > 2:
            name, separator, value = token[2:].partition("=")
            name = longName(name)
        elif token.startswith("-") and token[1:2] in SHORT_OPTIONS:
            name, value = SHORT_OPTIONS[token[1]], token[2:]
            separator = value
        else:
            raise InputError("%r is not an option of the client" % token)
        if name == "help":
            options.append((name, ""))
            continue
        if not separator and name in SWITCHES:
            value = "1"
            if position < len(tokens) and not _isOption(tokens[position]):
                value = tokens[position]
                position += 1
        elif not separator:
            if position == len(tokens) or _isOption(tokens[position]):
                raise InputError("the client's option --%s needs a value" % name)
            value = tokens[position]
            position += 1
        if name == "config-file":
            configFiles.append(value)
        else:
            options.append((name, value))
    return ClientOptions(tuple(configFiles), tuple(options))


def isKnownOption(name: str) -> bool:
    """Whether any known generation's client has this option."""
    return name in CLIENT_OPTIONS


def wholeReason(config: ClientConfig, options: ClientOptions) -> Optional[str]:
    """Why these inputs must go whole to one device, or None where they can be cut.

    Args:
        config: the INI.
        options: the client's command line, which beats the INI.
    """
    effective = config.withOptions(options)
    if not effective.sizeCount:
        return "its list of sizes is empty"  # the client then leaves an empty file
    if effective.flag("best-solution") and effective.rounds > 1:
        return "best-solution in several passes makes rows whose columns depend on every pass"
    if effective.get("library-update-file"):
        if effective.rounds > 1:
            return "library-update-file lists the problems anew in every pass"
        if effective.get("performance-metric") == "CUEfficiency":
            return "library-update-file holds GFlops, and with CUEfficiency the results do not"
    for key in _MULTIPLYING:
        if len(effective.getAll(key)) > 1:
            return "several %s make more problems of each size" % key
    if effective.getAll("prob-sol-map"):
        return "prob-sol-map names problems by their place in the whole list"
    if effective.groupedGemm:
        return "grouped GEMM makes one problem of all sizes"
    if effective.flag("dump-tensors"):
        return "dump-tensors writes files of fixed names"
    return None


def keepsSizesWhole(config: ClientConfig) -> str:
    """Why a problem's solutions must stay on one device; empty where they need not."""
    if config.rounds > 1:
        return "several passes are merged per device"
    if config.get("skip-slow-solution-ratio") not in (None, "", "0", "0.0"):
        return "skip-slow-solution-ratio compares a solution with those before it"
    if config.get("performance-metric") == "CUEfficiency":
        return "with CUEfficiency the row names the least time of all its solutions"
    return ""
