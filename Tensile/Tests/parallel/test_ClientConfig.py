# SPDX-License-Identifier: MIT
"""Tests of Tensile.Parallel.ClientConfig."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Tensile.Parallel.ClientConfig import (
    ClientConfig,
    ClientOptions,
    mergeConfigs,
    parseClientOptions,
    parseIni,
    readClientConfig,
    wholeReason,
    writeClientConfig,
)
from Tensile.Parallel.Errors import InputError

pytestmark = pytest.mark.unit

DATA = Path(__file__).resolve().parent / "data"
FULL = DATA / "tensilelite-2024" / "full" / "ClientParameters.ini"
CLASSIC = DATA / "classic-4.44" / "full" / "ClientParameters.ini"
MULTIPLIED = DATA / "tensilelite-2024" / "two-activations-two-biases" / "ClientParameters.ini"
INIS = sorted(DATA.glob("*/*/ClientParameters.ini"))
NOTHING = ClientOptions((), ())


def config(*lines: str) -> ClientConfig:
    """A config of these lines."""
    return ClientConfig(parseIni("\n".join(lines)))


def leftRows(ini: Path) -> bool:
    """Whether the recorded run of this INI left any rows."""
    results = ini.parent / "results.csv"
    return results.exists() and bool(results.read_text())


@pytest.mark.parametrize("path", [*filter(leftRows, INIS)], ids=lambda path: path.parent.name)
def test_rowsOfARecordedRunAreItsProblems(path):
    """Counting problems gives what the real client made of the same INI."""
    ini = readClientConfig(path)
    rows = len((path.parent / "results.csv").read_text().splitlines()) - 1
    if ini.get("num-problems"):
        assert rows == ini.number("num-problems")
    elif ini.flag("csv-merge-same-problems"):
        assert rows == ini.problemCount
    else:
        assert rows == ini.problemCount * ini.passes


def test_bothGenerationsAreToldApart():
    """The options that only one generation's host writes tell whose INI it is."""
    assert readClientConfig(FULL).generation == "tensilelite"
    assert readClientConfig(CLASSIC).generation == "classic"
    assert config("problem-size=1,1,1,1").generation == "tensilelite"


def test_sizesCarryTheirStrides():
    """The k-th stride line belongs to the k-th size."""
    sizes = readClientConfig(FULL).sizes
    assert sizes[3].sizes == (256, 512, 1, 2048)
    assert sizes[3].strides["a-strides"] == (-1, 2048, -1)
    assert sizes[3].strides["d-strides"] == (-1, 256, -1)
    assert sizes[3].text == "256x512x1x2048"


def test_oneStrideLineIsForAllSizesAndAnOddNumberForNone():
    """As ClientProblemFactory has it: one line for all, as many as sizes one each, else none."""
    ini = config(
        "problem-size=1,2", "problem-size=3;4;", "problem-size=5,6", "a-strides=-1,9"
    ).replaced({})
    ini = ClientConfig(ini.entries + (("b-strides", "1"), ("b-strides", "2")))
    assert [size.strides for size in ini.sizes] == [{"a-strides": (-1, 9)}] * 3
    assert ini.sizes[1].sizes == (3, 4)
    # Cut to two sizes, the two lines that nobody listened to must not come to life.
    assert not ini.withSizes([0, 1]).has("b-strides")
    assert ini.withSizes([2]).getAll("a-strides") == ["-1,9"]


def test_biasActivationAndFactorMultiplyTheSizes():
    """index = ((factor*nBias + bias)*nAct + act)*nSizes + size."""
    ini = readClientConfig(MULTIPLIED)
    assert ini.problemCount == 24
    assert ini.problemAt(0)[1:] == (0, 0, 0, 0)
    assert ini.problemAt(7)[1:] == (1, 0, 1, 0)
    assert ini.problemAt(23)[1:] == (5, 1, 1, 0)
    assert ini.describeProblem(12) == "1024x1024x1x1024 bias=Float activation=None"
    for index in range(24):
        _, size, bias, activation, factor = ini.problemAt(index)
        assert ((factor * 2 + bias) * 2 + activation) * 6 + size == index
    with pytest.raises(IndexError):
        ini.problemAt(24)


@pytest.mark.parametrize(
    "bias, vector, count",
    [("0", "0", 1), ("1", "0", 1), ("2", "0", 1), ("3", "0", 2), ("0", "3", 2), ("3", "3", 2)],
)
def test_factorDimsCountOnlyWithThree(bias, vector, count):
    """The factor-dim list counts only where use-bias or use-scaleAlphaVec is 3."""
    ini = config(
        "problem-size=1,1,1,1",
        "use-bias=" + bias,
        "use-scaleAlphaVec=" + vector,
        "factor-dim-args=0",
        "factor-dim-args=1",
    )
    assert ini.problemCount == count


def test_contradictingBiasAndVectorMakeNoProblem():
    """Where both are used and differ, the client skips every problem."""
    ini = config("problem-size=1,1,1,1", "use-bias=1", "use-scaleAlphaVec=3")
    assert ini.problemCount == 0


def test_groupedGemmIsOneProblem():
    """grouped-gemm makes one problem of all sizes, and must go whole to one device."""
    ini = config("problem-size=1,1,1,1", "problem-size=2,2,1,2", "grouped-gemm=True")
    assert ini.problemCount == 1
    assert ini.describeProblem(0) == "grouped GEMM of 2 sizes"
    assert "grouped" in wholeReason(ini, NOTHING)


@pytest.mark.parametrize(
    "lines, passes",
    [
        ([], 1),
        (["num-benchmarks=3"], 3),
        (["num-benchmarks=0"], 0),
        (["num-benchmarks=0", "num-elements-to-validate=-1"], 1),
        (["num-benchmarks=0", "print-tensor-ref=1"], 1),
    ],
)
def test_passes(lines, passes):
    """num-benchmarks passes; validation needs at least one."""
    assert config("problem-size=1,1,1,1", *lines).passes == passes


def test_iniIsReadAsBoostReadsIt():
    """Comments anywhere, white space around both parts, sections, '=' in values, CRLF."""
    text = "# all\n\n a-type = Half \t# why\r\nuse-scaleAB=\n[x]\nkey=a=b\n[y.]\n  k=v"
    assert parseIni(text) == (
        ("a-type", "Half"),
        ("use-scaleAB", ""),
        ("x.key", "a=b"),
        ("y.k", "v"),
    )
    with pytest.raises(InputError, match="not a line of an INI"):
        parseIni("a-type=Half\nnonsense\n")


def test_whatCannotBeReadIsAnInputError(tmp_path):
    """Missing file, directory, not a number: one line, exit status 2."""
    with pytest.raises(InputError, match="cannot read"):
        readClientConfig(tmp_path / "none.ini")
    with pytest.raises(InputError, match="cannot read"):
        readClientConfig(tmp_path)
    with pytest.raises(InputError, match="whole numbers"):
        config("problem-size=1,x").sizes
    with pytest.raises(InputError, match="truth value"):
        config("grouped-gemm=perhaps").groupedGemm


def test_truthValues():
    """True, 1, yes and on in any case; nothing at all is true as well."""
    for text in ("True", "1", "YES", "on", ""):
        assert config("best-solution=" + text).flag("best-solution") is True
    for text in ("False", "0", "no", "OFF"):
        assert config("best-solution=" + text).flag("best-solution", True) is False
    assert config().flag("best-solution", True) is True


def test_replacedKeepsThePlaceAndLeavesOne():
    """A scalar twice ends the client: lines are replaced, not appended; None removes."""
    ini = config("a=1", "results-file=x", "a=2", "b=3")
    assert ini.replaced({"a": "9", "b": None, "new": "n"}).entries == (
        ("a", "9"),
        ("results-file", "x"),
        ("new", "n"),
    )


_word = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="#\n\r="), max_size=12
).map(lambda text: text.strip(" \t\r\n"))
_key = _word.filter(lambda text: "[" not in text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(_key, _word | st.just("a=b=[c]")), max_size=20))
def test_writingGivesTheSameEntriesBack(tmp_path_factory, entries):
    """Whatever an INI can hold reads back as it was written."""
    path = tmp_path_factory.mktemp("ini") / "client.ini"
    entries = tuple(entries) + (("problem-size", "1,1,1,1"),)
    writeClientConfig(ClientConfig(entries), path)
    assert readClientConfig(path).entries == entries


def test_bytesThatAreNoTextSurvive(tmp_path):
    """A path in another encoding is written back as the same bytes."""
    data = b"library-file=/caf\xe9/l.yaml\nproblem-size=1,1,1,1\n"
    (tmp_path / "a.ini").write_bytes(data)
    writeClientConfig(readClientConfig(tmp_path / "a.ini"), tmp_path / "b.ini")
    assert (tmp_path / "b.ini").read_bytes() == data


@pytest.mark.parametrize("value", ["a#b", "a\nb", " a", "a\t"])
def test_whatNoIniCanHoldIsRefused(tmp_path, value):
    """Better an error than a file that says something else."""
    with pytest.raises(InputError, match="cannot hold"):
        writeClientConfig(ClientConfig((("results-file", value),)), tmp_path / "x.ini")


def test_recordedInisSurviveAWrite(tmp_path):
    """Real INIs are written back byte for byte."""
    for path in INIS:
        writeClientConfig(readClientConfig(path), tmp_path / "copy.ini")
        assert (tmp_path / "copy.ini").read_bytes() == path.read_bytes()


def _drawSizes(draw, count):
    lines = []
    for index in range(count):
        lines.append("problem-size=%d,%d,1,%d" % (index + 1, draw(st.integers(1, 99)), index))
        lines.append("a-strides=-1,%d" % (100 + index))
        if index < 2:
            lines.append("a-zero-pads=0,1,%d,%d" % (index, index))
    return lines


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_cutSizesKeepTheirLines(data):
    """Each kept size has the strides it had, in whatever order the sizes are asked for."""
    count = data.draw(st.integers(1, 8))
    ini = config("a=1", *_drawSizes(data.draw, count), "bias-type-args=Half", "z=2")
    indices = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=8))
    cut = ini.withSizes(indices)
    assert cut.sizes == tuple(ini.sizes[index] for index in indices)
    pads = ["0,1,%d,%d" % (index, index) if index < 2 else "" for index in indices]
    assert cut.getAll("a-zero-pads") == pads
    others = [entry for entry in cut.entries if entry[0] in ("a", "z", "bias-type-args")]
    assert others == [("a", "1"), ("bias-type-args", "Half"), ("z", "2")]


def test_cutNamesAMissingSize():
    """An index outside the list is an error, not a shorter file."""
    with pytest.raises(IndexError):
        readClientConfig(FULL).withSizes([0, 6])


def test_manySizesAreRead(tmp_path):
    """100,000 sizes are all there (reading them takes about a second)."""
    line = "problem-size=%d,%d,1,%d\na-strides=-1,%d,-1\nd-strides=-1,%d,-1\n"
    path = tmp_path / "many.ini"
    path.write_text("".join(line % ((size,) * 5) for size in range(1, 100001)))
    ini = readClientConfig(path)
    assert ini.problemCount == len(ini.sizes) == 100000
    assert ini.sizes[-1].strides == {"a-strides": (-1, 100000, -1), "d-strides": (-1, 100000, -1)}


def test_clientOptions():
    """Both spellings, short ones, several config files, a negative number as a value."""
    line = "--config-file a.ini --num-problems=-1 --solution-start-idx -1 -l lib.yaml"
    options = parseClientOptions(line.split() + ["--config-file=b.ini", "-p1,2"])
    assert options.configFiles == ("a.ini", "b.ini")
    assert options.options == (
        ("num-problems", "-1"),
        ("solution-start-idx", "-1"),
        ("library-file", "lib.yaml"),
        ("problem-size", "1,2"),
    )
    assert options.get("num-problems") == "-1" and options.get("log-file") is None


@pytest.mark.parametrize("line", ["stray", "--log-file", "--log-file --num-problems 1", "-"])
def test_badClientOptions(line):
    """An argument that is no option, or an option without its value, ends the client."""
    with pytest.raises(InputError):
        parseClientOptions(line.split())


def test_commandLineBeatsTheIni():
    """Scalars are overridden, lists are replaced whole."""
    options = parseClientOptions(["--problem-size", "7,7,1,7", "--num-benchmarks", "2"])
    effective = readClientConfig(FULL).withOptions(options)
    assert [size.sizes for size in effective.sizes] == [(7, 7, 1, 7)]
    assert effective.passes == 2


def test_firstConfigFileWins():
    """Per option the first INI that has it counts, with all of its lines."""
    first = config("problem-size=1,1", "a=1")
    second = config("problem-size=2,2", "problem-size=3,3", "a=2", "b=2")
    merged = mergeConfigs([first, second])
    assert merged.getAll("problem-size") == ["1,1"]
    assert (merged.get("a"), merged.get("b")) == ("1", "2")


@pytest.mark.parametrize(
    "lines, argv, word",
    [
        (["best-solution=1"], "", None),
        (["num-benchmarks=2"], "--best-solution 1", "best-solution"),
        (["best-solution=1", "num-benchmarks=2"], "--best-solution 0", None),
        (["library-update-file=u.yaml"], "", None),
        (["library-update-file=u.yaml", "num-benchmarks=2"], "", "in every pass"),
        (["library-update-file=u.yaml", "performance-metric=CUEfficiency"], "", "GFlops"),
        (["library-update-file=", "num-benchmarks=2"], "", None),
        (["icache-flush-args=0", "icache-flush-args=1"], "", None),
        (["icache-flush-args=0", "icache-flush-args=1", "best-solution=1"], "", "best-solution"),
        (["grouped-gemm=1"], "", "grouped"),
        (["dump-tensors=1"], "", "dump-tensors"),
        ([], "--config-file a --config-file b", None),
        (["gate-type-args=Half", "gate-type-args=Float"], "", "gate-type-args"),
        (["streamk-hybrid-mode=0", "streamk-hybrid-mode=1"], "", "streamk-hybrid-mode"),
        (["gate-type-args=Half", "streamk-hybrid-mode=1"], "", None),
        (["prob-sol-map=0,3"], "", "prob-sol-map"),
        (["num-benchmarks=2"], "--best-solution --mx-scale-format 1", "best-solution"),
        ([], "--timing-instrumentation", None),
    ],
)
def test_whatMustGoWhole(lines, argv, word):
    """The settings that tie problems together are named; everything else can be cut."""
    reason = wholeReason(config("problem-size=1,1", *lines), parseClientOptions(argv.split()))
    assert reason is None if word is None else re.search(word, reason)
    assert "empty" in wholeReason(config(*lines), parseClientOptions(argv.split()))
    sizes = parseClientOptions(("--problem-size 1,1 " + argv).split())
    assert wholeReason(config(*lines), sizes) == reason
