# SPDX-License-Identifier: MIT
"""Both commands' arguments."""

import argparse
import json
import re

import pytest
from conftest import HOST
from hypothesis import given
from hypothesis import settings as hypothesisSettings
from hypothesis import strategies as st

from Tensile.Parallel.ClientConfig import CLIENT_OPTIONS
from Tensile.Parallel.CommandLine import HOST_OPTIONS, MANY, globalParametersOption
from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.ParseArguments import (
    clientOptions,
    parseClientArguments,
    parseRunArguments,
    refuseMisspelt,
)

pytestmark = pytest.mark.unit


def testPositionalsAreFoundAmongTheHostsOptions():
    """CONFIG and OUT are not the values of the host's options, wherever those stand."""
    lines = (
        "config.yaml out --library-format yaml -d 1 --debug",
        "--library-format yaml config.yaml -d 1 out --debug",
        "-d1 --library-format=yaml --debug config.yaml out",
        "config.yaml out --debug --global-parameters A=1 B=2 --library-format msgpack",
        "--device -1 config.yaml out",
        "--debug -- config.yaml out",
    )
    for line in lines:
        settings = parseRunArguments(line.split())
        assert (settings.configs, settings.out) == (("config.yaml",), "out"), line
        assert settings.hostArguments == tuple(line.split()), line


def testOurOptionsAreTakenOutAndTheRestKeepsItsOrder():
    """What is not ours is handed on as it was written, -v included."""
    settings = parseRunArguments(
        "c.yaml --emulate 4 -v out --devices 0,2 --use-cache --strict --client /x --quiet".split()
    )
    assert settings.hostArguments == ("c.yaml", "-v", "out", "--use-cache")
    assert settings.hostOptions == ("-v", "--use-cache")
    assert (settings.emulate, settings.devices, settings.client) == (4, (0, 2), "/x")
    assert settings.strict and settings.verbose and settings.quiet and not settings.fresh


def testOurNamesAreNeverAbbreviated():
    """--dev and --device are the host's; --devices is ours."""
    settings = parseRunArguments("c.yaml out --device 3 --devices 1".split())
    assert settings.devices == (1,)
    assert settings.hostOptions == ("--device", "3")
    settings = parseRunArguments("c.yaml out --emul 3".split())
    assert settings.emulate == 0
    assert settings.hostOptions == ("--emul", "3")


STAND_IN = (HOST / "tensilelite" / "Tensile" / "Tensile.py").read_text("utf-8")


@pytest.mark.parametrize(
    "line, meant",
    [
        ("c.yaml out --devics 0,2", "--devices"),
        ("c.yaml --emulat 4 out", "--emulate"),
        ("c.yaml out --emul=4", "--emulate"),
        ("c.yaml out --dev 0", "--devices"),
        ("c.yaml out -devices 0", "--devices"),
        ("c.yaml out --No_Wait", "--no-wait"),
        ("c.yaml out --no-w", "--no-wait or --no-warm-up"),
        ("c.yaml out --frehs", "--fresh"),
        ("--docter", "--doctor"),
    ],
)
def testSlipsOfOurOptionsAreRefused(line, meant):
    """One line with what was meant, where the host would refuse it after its start."""
    with pytest.raises(InputError) as error:
        refuseMisspelt(parseRunArguments(line.split()), STAND_IN)
    assert str(error.value).endswith("did you mean %s?" % meant)
    assert error.value.exitStatus == 2


@pytest.mark.parametrize("option", ["--clean", "--emulation-mode", "--debug", "-d1", "--newer"])
def testWhatTheHostKnowsIsNoSlip(option):
    """An option that stands in the host's parser, or is far from ours, is handed on."""
    settings = parseRunArguments(["c.yaml", "out", option])
    refuseMisspelt(settings, 'add("--clean")\nadd("--emulation-mode", "-e")')
    assert settings.hostArguments == ("c.yaml", "out", option)
    assert settings.unknownOptions == (() if option in ("--debug", "-d1") else (option,))


@pytest.mark.parametrize("option, meant", [("--devics", "--devices"), ("--no_wait", "--no-wait")])
def testSlipsOfOurOptionsAreRefusedByTheClient(option, meant):
    """As in the other command."""
    with pytest.raises(InputError, match="did you mean %s" % meant):
        parseClientArguments(["--config-file", "a.ini", option, "1"])


def testOptionsOfTheClientAreNoSlips():
    """Every option of every known tensile_client, and the beginnings that boost takes for it."""
    for name in sorted(CLIENT_OPTIONS - {"help", "config-file"}) + ["device", "device-i"]:
        if "--" + name not in clientOptions():
            assert parseClientArguments(["--" + name, "1"]).clientArguments == ((name, "1"),)


@pytest.mark.parametrize("text", ["--prebuilt-client /x", "--prebuilt-client=/x", "--prebuilt /x"])
def testPrebuiltClientMeansClient(text):
    """The host's --prebuilt-client is --client, in every way that its parser accepts."""
    settings = parseRunArguments(["c.yaml", "out", *text.split()])
    assert settings.client == settings.prebuiltClient == "/x"
    assert settings.hostOptions == ()
    assert settings.hostArguments == ("c.yaml", "out", *text.split())


def testClientBeatsPrebuiltClient():
    """--client is asked for by name."""
    settings = parseRunArguments("c.yaml out --client /a --prebuilt-client /b".split())
    assert settings.client == "/a"


def testGlobalParametersAreTheLastOnes():
    """The host stores --global-parameters: only the last one given counts."""
    settings = parseRunArguments(
        "c out --global-parameters A=1 --global-parameters DeviceList=[0,1] B='x'".split()
    )
    assert settings.parameters == (("DeviceList", "[0,1]"), ("B", "'x'"))
    assert settings.parameter("DeviceList") == "[0,1]"
    assert settings.parameter("A") is None


def testAValueWithASpaceIsAValue():
    """--global-parameters 'DeviceList=[0, 1]' is one word of the command line."""
    settings = parseRunArguments(["c", "out", "--global-parameters", "DeviceList=[0, 1]"])
    assert settings.parameter("DeviceList") == "[0, 1]"


def testPositionalsDoNotMergeIntoAnOptionWithManyValues():
    """Where ours stood between them, taking it out must not feed CONFIG to the host's option."""
    settings = parseRunArguments("--global-parameters A=1 --emulate 2 c.yaml out".split())
    assert settings.hostArguments == ("c.yaml", "out", "--global-parameters", "A=1")


def testAlternateFormatHasASizeList():
    """With three positional arguments the second is the size list."""
    settings = parseRunArguments("a.yaml s.yaml out --alternate-format".split())
    assert settings.configs == ("a.yaml", "s.yaml")
    assert settings.alternateFormat


def testAnUnknownOptionTakesAValueOnlyWhenPositionalsAreLeft():
    """An option of a newer host: its value is found, CONFIG and OUT are never swallowed."""
    settings = parseRunArguments("--newer value c.yaml out".split())
    assert settings.configs == ("c.yaml",) and settings.hostOptions == ("--newer", "value")
    settings = parseRunArguments("--newer c.yaml out".split())
    assert settings.configs == ("c.yaml",) and settings.hostOptions == ("--newer",)
    settings = parseRunArguments("c.yaml out --newer=1".split())
    assert settings.hostOptions == ("--newer=1",)


@pytest.mark.parametrize(
    "line",
    [
        "c.yaml",
        "",
        "c.yaml out --emulate 0",
        "c.yaml out --emulate x",
        "c.yaml out --emulate",
        "c.yaml out --devices 0,x",
        "c.yaml out --strict=yes",
    ],
)
def testBadCommandLinesAreInputErrors(line):
    """One line and exit status 2, not a traceback, and nothing was started."""
    with pytest.raises(InputError) as error:
        parseRunArguments(line.split())
    assert "\n" not in str(error.value)
    assert error.value.exitStatus == 2


def testReportNamesAFolderAndStandsAlone():
    """It needs no config; what else is on the line would be ignored, so it is refused."""
    for line in (["--report", "out"], ["--report=out"], ["--report", "out", "--quiet"]):
        assert parseRunArguments(line).report == "out"
    assert parseRunArguments(["c.yaml", "out"]).report is None
    for line in (["c.yaml", "--report", "out"], ["--report", "a", "b"], ["--report"]):
        with pytest.raises(InputError, match="--report"):
            parseRunArguments(line)


@pytest.mark.parametrize("parse", [parseRunArguments, parseClientArguments])
def testHelpFitsATerminal(parse, capsys, monkeypatch):
    """--help of both commands: groups, examples and exit statuses, within 80 columns, and no option
    takes more than three lines."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        parse(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for title in ("devices:", "measuring:", "the run:", "examples:"):
        assert "\n%s\n" % title in text
    assert re.search(r"^exit status:?", text, re.M) and "128 + n" in text
    assert max(map(len, text.splitlines())) < 80
    options = text[text.index("\n\n") : text.index("\nexamples:")]
    for option in re.split(r"\n  (?=-)|\n\n", options):
        assert option.count("\n") < 3, option


def testHelpsExamplesAreUnderstood(capsys):
    """Each command line of both --help is one that the command takes."""
    for parse, name in (
        (parseRunArguments, "TensileParallel"),
        (parseClientArguments, "TensileParallelClient"),
    ):
        with pytest.raises(SystemExit):
            parse(["--help"])
        text = capsys.readouterr().out.replace("\\\n", "")
        lines = re.findall(r"^  %s (.*)" % name, text, re.M)
        assert len(lines) >= 3
        for line in lines:
            parse(line.split())


def testAdditionsGoIntoTheLastGlobalParameters():
    """The host would forget an earlier --global-parameters; ours are last, so they count."""
    options = "--global-parameters A=1 --debug --global-parameters PinClocks=True".split()
    assert globalParametersOption(options, {"PinClocks": "False"}) == tuple(
        "--global-parameters A=1 --debug --global-parameters PinClocks=True PinClocks=False".split()
    )
    assert globalParametersOption(["--debug"], {"A": "1"}) == (
        "--debug",
        "--global-parameters",
        "A=1",
    )
    assert globalParametersOption(["--debug"], {}) == ("--debug",)


def hostParser():
    """A parser with the host's options, as argparse sees them."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("config", nargs="+")
    parser.add_argument("out")
    for name, arity in HOST_OPTIONS.items():
        if arity == 0:
            parser.add_argument(name, action="store_true")
        else:
            parser.add_argument(name, nargs="+" if arity == MANY else None)
    return parser


words = st.sampled_from(["a.yaml", "b", "1", "-1", "x=1"])
options = st.sampled_from(sorted(HOST_OPTIONS))


@st.composite
def hostLines(draw):
    """Command lines that the host's parser understands."""
    parts = [["config.yaml"], ["out"]]
    for name in draw(st.lists(options, max_size=5, unique=True)):
        arity = HOST_OPTIONS[name]
        count = draw(st.integers(1, 3)) if arity == MANY else arity
        parts.append([name] + [draw(words) for _ in range(count)])
    # An option with many values would take the positional arguments after it.
    positionals, named = parts[:2], draw(st.permutations(parts[2:]))
    cut = draw(st.integers(0, len(named)))
    if any(HOST_OPTIONS[part[0]] == MANY for part in named[:cut]):
        cut = 0
    return [word for part in named[:cut] + positionals + named[cut:] for word in part]


@hypothesisSettings(deadline=None)
@given(hostLines())
def testAgreesWithArgparseOnTheHostsOptions(line):
    """Positional arguments are those that the host's own parser finds."""
    theirs = hostParser().parse_args(line)
    ours = parseRunArguments(line)
    assert list(ours.configs) == theirs.config
    assert ours.out == theirs.out
    assert list(ours.hostArguments) == line


@hypothesisSettings(deadline=None)
@given(hostLines(), st.integers(0, 20))
def testOursAnywhereChangesNothingForTheHost(line, place):
    """Our options may stand anywhere but between an option and its value."""
    starts = [0]
    while starts[-1] < len(line):
        word = line[starts[-1]]
        arity = HOST_OPTIONS.get(word, 0)
        end = starts[-1] + 1 + max(arity, 0)
        while arity == MANY and end < len(line) and line[end] not in HOST_OPTIONS:
            end += 1
        starts.append(end)
    at = starts[place % len(starts)]
    mixed = line[:at] + ["--emulate", "2", "--fresh"] + line[at:]
    settings = parseRunArguments(mixed)
    assert settings.emulate == 2 and settings.fresh
    assert hostParser().parse_args(settings.hostArguments) == hostParser().parse_args(line)


RUN = {
    "version": 1,
    "run": "an-id",
    "client": "/c",
    "emulate": 2,
    "devices": [{"ordinal": 1, "token": "5", "emulated": True}],
    "outputs": "/o",
    "frontEnd": True,
    "noWait": False,
    "fresh": False,
    "verbose": False,
    "allowFailures": True,
    "strict": False,
    "log": "/l",
    "config": "/config.yaml",
    "sizesFile": None,
    "alternateFormat": False,
}


def writeRun(tmp_path, **changes):
    """A run.json, as the front end writes it."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(dict(RUN, **changes)))
    return str(path)


def testClientTakesTheSettingsOfTheRun(tmp_path):
    """What run.json says holds where the command line says nothing."""
    path = writeRun(tmp_path)
    settings = parseClientArguments(["--settings", path, "--config-file", "a.ini"])
    assert settings.configFiles == ("a.ini",)
    assert settings.clientArgv == ("--config-file", "a.ini")
    assert (settings.client, settings.run, settings.outputs) == ("/c", "an-id", "/o")
    assert settings.frontEnd and settings.allowFailures and settings.settingsFile == path
    assert [(device.ordinal, device.token) for device in settings.devices] == [(1, "5")]


def testTheCommandLineBeatsTheSettings(tmp_path):
    """Options on the command line beat run.json."""
    path = writeRun(tmp_path)
    settings = parseClientArguments(
        ["--settings", path, "--client", "/d", "--outputs", "/p", "--devices", "all", "--fresh"]
    )
    assert (settings.client, settings.outputs, settings.fresh) == ("/d", "/p", True)
    assert settings.devices == () and settings.devicesWanted == "all"
    settings = parseClientArguments(["--settings", path, "--emulate", "3"])
    assert settings.emulate == 3 and settings.client is None and settings.devices == ()


def testWarmUpAndBaselineOnBothCommands(tmp_path):
    """--no-warm-up and --baseline: from the command line, else from run.json, else as usual."""
    run = parseRunArguments(["a.yaml", "out", "--no-warm-up", "--baseline", "off"])
    assert (run.noWarmUp, run.baseline, run.hostArguments) == (True, "off", ("a.yaml", "out"))
    usual = parseRunArguments(["a.yaml", "out"])
    assert (usual.noWarmUp, usual.baseline) == (False, "auto")
    path = writeRun(tmp_path, noWarmUp=True, baseline="off")
    client = parseClientArguments(["--settings", path])
    assert (client.noWarmUp, client.baseline) == (True, "off")
    client = parseClientArguments(["--settings", path, "--baseline", "auto"])
    assert (client.noWarmUp, client.baseline) == (True, "auto")
    client = parseClientArguments(["--settings", writeRun(tmp_path), "--no-warm-up"])
    assert (client.noWarmUp, client.baseline) == (True, "auto")
    with pytest.raises(InputError, match="baseline"):
        parseClientArguments(["--baseline", "on"])


def testASwitchOfTheClientNeedsNoValue():
    """TensileLite 2026 writes --timing-instrumentation and --best-solution without one."""
    settings = parseClientArguments(
        ["--config-file", "a.ini", "--timing-instrumentation", "--mx-scale-format", "1"]
    )
    assert settings.configFiles == ("a.ini",)
    assert settings.clientArguments == (("timing-instrumentation", "1"), ("mx-scale-format", "1"))
    assert parseClientArguments(["--best-solution", "0"]).clientArguments == (
        ("best-solution", "0"),
    )


def testTheClientsOwnOptionsAreHandedOn():
    """tensile_client's options, values with dashes included, in both spellings."""
    settings = parseClientArguments(
        "--config-file=a.ini --device-idx 1 --a-strides -1,-1,64 --config-file b.ini "
        "--num-warmups=2 -v".split()
    )
    assert settings.configFiles == ("a.ini", "b.ini")
    assert settings.clientArguments == (
        ("device-idx", "1"),
        ("a-strides", "-1,-1,64"),
        ("num-warmups", "2"),
    )
    assert settings.verbose and not settings.frontEnd and settings.run


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"version": 99}', "null"])
def testUnreadableSettingsAreInputErrors(tmp_path, text):
    """A settings file that is none ends with one line that names it."""
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(InputError, match="run.json"):
        parseClientArguments(["--settings", str(path)])
    with pytest.raises(InputError, match="missing.json"):
        parseClientArguments(["--settings", str(tmp_path / "missing.json")])
