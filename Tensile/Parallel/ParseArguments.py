# SPDX-License-Identifier: MIT
"""Both commands' arguments, each as one frozen settings object.

The two commands stand in front of other programs: TensileParallel in front of Tensile,
TensileParallelClient in front of tensile_client. What is not ours is handed on as it was written
and in its order. Names are never abbreviated on our side, because the host has names that begin
like ours (`--device`, `--devices`).

To tell CONFIG and OUT from the values of the host's own options, the number of values that each
of those takes has to be known. They are listed in HOST_OPTIONS, read from the argument parsers of
TensileLite 2024, early 2025 and 2026 and of classic 4.44. An option that is not listed (of a newer
host) takes the word after it as its value if two positional arguments are left without that word;
write `--option=value` to be sure.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import uuid
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .ClientConfig import SWITCHES
from .Errors import InputError
from .Types import Device

SETTINGS_VERSION = 1

# How many values each option of the hosts' `Tensile` command takes; MANY: one or more.
MANY = -1
HOST_OPTIONS: Dict[str, int] = {
    "--alternate-format": 0,
    "--arch": 1,
    "--asm-cache": 1,
    "--assembler": 1,
    "--build-only": 0,
    "--c-compiler": 1,
    "--client-build-path": 1,
    "--client-lock": 1,
    "--client-path": 1,
    "--code-object-version": 1,
    "--cpu-only": 0,
    "--cxx-compiler": 1,
    "--debug": 0,
    "--device": 1,
    "--device-enumerator": 1,
    "--global-parameters": MANY,
    "--gpu-targets": 1,
    "--library-format": 1,
    "--logic-format": 1,
    "--mx-scale-format": 1,
    "--no-cache": 0,
    "--no-merge-files": 0,
    "--offload-bundler": 1,
    "--platform": 1,
    "--prebuilt-client": 1,
    "--restore-from-log": 1,
    "--rocm-agent-enumerator": 1,
    "--runtime-language": 1,
    "--short-names": 0,
    "--solution-pool": 1,
    "--use-cache": 0,
    "--validate-metadata": 0,
    "--verbose": 0,
    "-d": 1,
    "-p": 1,
    "-v": 0,
}

# Ours, on the two commands.
RUN_OPTIONS: Dict[str, int] = {
    "--affinity": 0,
    "--allow-failures": 0,
    "--baseline": 1,
    "--client": 1,
    "--devices": 1,
    "--doctor": 0,
    "--emulate": 1,
    "--fresh": 0,
    "--hang-limit": 1,
    "--help": 0,
    "--keep-sizes-whole": 0,
    "--max-frequency": 1,
    "--no-wait": 0,
    "--no-warm-up": 0,
    "--quiet": 0,
    "--report": 1,
    "--strict": 0,
    "--tensile-root": 1,
    "--version": 0,
    "-h": 0,
}
CLIENT_OPTIONS: Dict[str, int] = {
    "--affinity": 0,
    "--allow-failures": 0,
    "--baseline": 1,
    "--client": 1,
    "--devices": 1,
    "--emulate": 1,
    "--fresh": 0,
    "--hang-limit": 1,
    "--help": 0,
    "--keep-sizes-whole": 0,
    "--no-wait": 0,
    "--no-warm-up": 0,
    "--outputs": 1,
    "--settings": 1,
    "--strict": 0,
    "--verbose": 0,
    "--version": 0,
    "-h": 0,
    "-v": 0,
}
# Planned, and not to be mistaken for an option of the host meanwhile.
NOT_YET: Dict[str, int] = {
    "--plan": 0,
    "--status": 1,
}

# Values that begin with a dash: -1, -0.5, and the client's lists of strides such as -1,-1,64.
_NEGATIVE_NUMBER = re.compile(r"^-\d*\.?\d+(,-?\d+)*$")

RUN_USAGE = "TensileParallel CONFIG [SIZES] OUT [options] [any option of Tensile's own]"
CLIENT_USAGE = "TensileParallelClient --config-file INI [options] [any option of tensile_client]"

RUN_EXAMPLES = """\
examples:
  TensileParallel config.yaml out
      benchmark on the GPUs that GlobalParameters: DeviceList in config.yaml names
  TensileParallel config.yaml out --devices all --library-format msgpack
      on every GPU; the second option is Tensile's own
  TensileParallel alternate.yaml sizes.yaml out --alternate-format
      the two-file format; DeviceList is read from the first file
  TensileParallel config.yaml out --emulate 4
      try it out: four emulated devices instead of the machine's

every option that is not listed here is handed on to Tensile.
Without a usable DeviceList this is `Tensile CONFIG OUT`, unchanged.
exit status: 0 done; 1 the run failed or some pairs could not be measured; 2 bad input,
nothing was started; 130 or 143 interrupted.
"""

CLIENT_EXAMPLES = """\
examples:
  TensileParallelClient --config-file ClientParameters.ini --client ./tensile_client --devices 0,1
  TensileParallelClient --config-file ClientParameters.ini --emulate 4

every option that is not listed here is one of tensile_client's and means what it means there.
The results file and the exit status are those of tensile_client.
"""


@dataclass(frozen=True)
class RunSettings:
    """What one `TensileParallel` command line asks for.

    Attributes:
        configs: CONFIG, and SIZES of the alternate format where it was given.
        out: the output folder, as written.
        hostOptions: the host's own options in their order, without the positional arguments and
            without --prebuilt-client.
        hostArguments: the whole command line without our own options, for a serial run.
        alternateFormat: --alternate-format was given.
        client: the tensile_client to run (--client, or the host's --prebuilt-client); None where
            neither was given.
        prebuiltClient: the value of the host's --prebuilt-client alone.
        devices: --devices as parseDevicesOption gives it; None where it was not given.
        parameters: the host's --global-parameters, as (name, text) in their order.
        tensileRoot: --tensile-root.
        emulate: number of emulated devices; 0 for the machine's own.
        hangLimit: --hang-limit in seconds; None to derive it.
        baseline: "auto" or "off".
        maxFrequency: --max-frequency in MHz; None where it was not given.
        report: the output folder that --report names; None where it was not given.
        argv: the command line as it was.
    """

    configs: Tuple[str, ...] = ()
    out: str = ""
    hostOptions: Tuple[str, ...] = ()
    hostArguments: Tuple[str, ...] = ()
    alternateFormat: bool = False
    client: Optional[str] = None
    prebuiltClient: Optional[str] = None
    devices: Any = None
    parameters: Tuple[Tuple[str, str], ...] = ()
    tensileRoot: Optional[str] = None
    emulate: int = 0
    strict: bool = False
    allowFailures: bool = False
    fresh: bool = False
    noWait: bool = False
    noWarmUp: bool = False
    baseline: str = "auto"
    keepSizesWhole: bool = False
    affinity: bool = False
    hangLimit: Optional[float] = None
    maxFrequency: Optional[int] = None
    verbose: bool = False
    quiet: bool = False
    version: bool = False
    doctor: bool = False
    report: Optional[str] = None
    argv: Tuple[str, ...] = ()

    def parameter(self, name: str) -> Optional[str]:
        """Text of a --global-parameters NAME=TEXT, or None; the last one counts, as in the host."""
        texts = [text for key, text in self.parameters if key == name]
        return texts[-1] if texts else None


@dataclass(frozen=True)
class ClientSettings:
    """What one `TensileParallelClient` command line asks for, run.json included.

    Attributes:
        configFiles: the INI files, in their order (the client lets the first win).
        clientArguments: the other options of tensile_client as (key, value).
        clientArgv: the command line for tensile_client: what was given, without our options.
        client: path of tensile_client; None for the emulated one.
        devicesWanted: --devices as parseDevicesOption gives it; None where it was not given.
        devices: those that the front end chose; empty where there is none or --devices was given.
        emulate: number of emulated devices; 0 for the machine's own.
        hangLimit: --hang-limit in seconds; None to derive it.
        baseline: "auto" or "off".
        outputs: folder for unit files and journals; None for one beside the results file.
        settingsFile: path of run.json; None without a front end.
        run: id of the run, shared by all steps of one front end.
        frontEnd: TensileParallel started this: recorded failures are its business, so exit 0.
        log: the run's log file; None without a front end.
        config: the tuning config; None without a front end.
        sizesFile: the second file of the alternate format; None where there is none.
        alternateFormat: config is in the alternate format.
        hostInputs: what the kernels depend on beside the config: (name, hash).
    """

    configFiles: Tuple[str, ...] = ()
    clientArguments: Tuple[Tuple[str, str], ...] = ()
    clientArgv: Tuple[str, ...] = ()
    client: Optional[str] = None
    devicesWanted: Any = None
    devices: Tuple[Device, ...] = ()
    emulate: int = 0
    outputs: Optional[str] = None
    settingsFile: Optional[str] = None
    run: str = ""
    frontEnd: bool = False
    fresh: bool = False
    noWait: bool = False
    noWarmUp: bool = False
    baseline: str = "auto"
    keepSizesWhole: bool = False
    affinity: bool = False
    hangLimit: Optional[float] = None
    verbose: bool = False
    allowFailures: bool = False
    strict: bool = False
    log: Optional[str] = None
    config: Optional[str] = None
    sizesFile: Optional[str] = None
    alternateFormat: bool = False
    hostInputs: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Word:
    """One option with its values, or one positional argument (option is then empty).

    `tokens` are the words of the command line that it was made of.
    """

    option: str
    values: Tuple[str, ...]
    tokens: Tuple[str, ...]
    ours: bool = False
    unknown: bool = False


def parseRunArguments(argv: Sequence[str]) -> RunSettings:
    """Settings of the command TensileParallel.

    Args:
        argv: the arguments after the command's name.

    Raises:
        InputError: an option of ours is malformed, or CONFIG or OUT is missing.
        SystemExit: after --help.
    """
    words = _splitWords(argv, RUN_OPTIONS, HOST_OPTIONS)
    ours = _ourParser(RUN_USAGE, RUN_EXAMPLES, _addRunOptions).parse(words)
    if ours.version:
        return RunSettings(version=True, tensileRoot=ours.tensile_root, argv=tuple(argv))
    if ours.report is not None:
        others = [word.tokens[0] for word in words if not word.ours]
        if others:
            raise InputError("--report OUT stands alone; it has no use for %s" % others[0])
        return RunSettings(report=ours.report, argv=tuple(argv))
    words = _settlePositionals(words)
    positionals = [word.values[0] for word in words if not word.option]
    if ours.doctor and len(positionals) < 2:
        positionals = [*positionals, ""]  # it needs no output folder, and a config only to read it
    if len(positionals) < 2 and not ours.doctor:
        raise InputError("usage: %s (a config file and an output folder are needed)" % RUN_USAGE)
    host = [word for word in words if word.option and not word.ours]
    prebuilt = _lastValue(host, "--prebuilt-client")
    return RunSettings(
        configs=tuple(positionals[:-1]),
        out=positionals[-1],
        hostOptions=_joinWords(word for word in host if word.option != "--prebuilt-client"),
        hostArguments=_serialArguments(words),
        alternateFormat=any(word.option == "--alternate-format" for word in host),
        client=prebuilt if ours.client is None else ours.client,
        prebuiltClient=prebuilt,
        devices=_devicesOption(ours.devices),
        parameters=_globalParameters(host),
        tensileRoot=ours.tensile_root,
        emulate=ours.emulate,
        strict=ours.strict,
        allowFailures=ours.allow_failures,
        fresh=ours.fresh,
        noWait=ours.no_wait,
        noWarmUp=ours.no_warm_up,
        baseline=ours.baseline or "auto",
        keepSizesWhole=ours.keep_sizes_whole,
        affinity=ours.affinity,
        hangLimit=ours.hang_limit,
        maxFrequency=ours.max_frequency,
        verbose=any(word.option in ("-v", "--verbose") for word in host),
        quiet=ours.quiet,
        doctor=ours.doctor,
        argv=tuple(argv),
    )


def parseClientArguments(argv: Sequence[str]) -> ClientSettings:
    """Settings of the command TensileParallelClient; the command line beats run.json.

    Args:
        argv: the arguments after the command's name.

    Raises:
        InputError: an option of ours is malformed, or the settings file cannot be read.
        SystemExit: after --help and --version.
    """
    # Every option of tensile_client takes one value but for --help, which is ours.
    words = _splitWords(argv, CLIENT_OPTIONS, {}, unknownArity=1)
    ours = _ourParser(CLIENT_USAGE, CLIENT_EXAMPLES, _addClientOptions).parse(words)
    if ours.version:
        print("TensileParallelClient %s" % ourVersion())
        raise SystemExit(0)
    theirs = [word for word in words if not word.ours]
    settings = ClientSettings(
        configFiles=tuple(
            value for word in theirs if word.option == "--config-file" for value in word.values
        ),
        clientArguments=tuple(
            (word.option.lstrip("-"), _clientValue(word))
            for word in theirs
            if word.option and word.option != "--config-file"
        ),
        clientArgv=_joinWords(theirs),
        run=str(uuid.uuid4()),
    )
    if ours.settings is not None:
        settings = _withSettingsFile(settings, ours.settings)
    return _withClientOptions(settings, ours)


def ourVersion() -> str:
    """The version of TensileParallel."""
    from . import __version__

    return __version__


def globalParametersOption(
    hostOptions: Sequence[str], additions: Dict[str, str]
) -> Tuple[str, ...]:
    """The host's options with further global parameters, which beat the user's.

    The host keeps only the last --global-parameters (the 2026 one keeps all), so the additions
    have to go into that one; within it, the last of a name counts.

    Args:
        hostOptions: the host's options, without positional arguments.
        additions: name to Python literal, as text.
    """
    if not additions:
        return tuple(hostOptions)
    new = tuple("%s=%s" % item for item in additions.items())
    words = _splitWords(hostOptions, {}, HOST_OPTIONS)
    given = [i for i, word in enumerate(words) if word.option == "--global-parameters"]
    if not given:
        return tuple(hostOptions) + ("--global-parameters",) + new
    last = words[given[-1]]
    words[given[-1]] = replace(last, tokens=("--global-parameters",) + last.values + new)
    return _joinWords(words)


def hostOptionValue(hostOptions: Sequence[str], names: Sequence[str]) -> Optional[str]:
    """The last value that the host's options give to one of the names; None where none does.

    An abbreviation that is one in some hosts only counts as well.
    """
    words = _splitWords(hostOptions, {}, HOST_OPTIONS, unknownArity=1)

    def isMeant(option: str) -> bool:
        return option in names or any(
            len(option) > 4 and option not in HOST_OPTIONS and name.startswith(option)
            for name in names
        )

    values = [word.values[-1] for word in words if word.values and isMeant(word.option)]
    return values[-1] if values else None


def givesHostOption(hostOptions: Sequence[str], name: str) -> bool:
    """Whether the host's options hold this one, abbreviated or not."""
    return any(word.option == name for word in _splitWords(hostOptions, {}, HOST_OPTIONS))


def _splitWords(
    argv: Sequence[str],
    ours: Dict[str, int],
    theirs: Dict[str, int],
    unknownArity: Optional[int] = None,
) -> List[_Word]:
    """Cut a command line into options with their values, and positional arguments.

    An option that nobody knows is marked and takes no value here unless `unknownArity` says so;
    see _settlePositionals.
    """
    words: List[_Word] = []
    index = 0
    while index < len(argv):
        token = argv[index]
        if token == "--":
            words.append(_Word("--", (), ("--",)))
            words.extend(_Word("", (rest,), (rest,)) for rest in argv[index + 1 :])
            break
        if not _isOption(token):
            words.append(_Word("", (token,), (token,)))
            index += 1
            continue
        name, attached, text = _splitOption(token, theirs)
        if name in NOT_YET and name not in ours and theirs:
            raise InputError("%s is not available in this version of TensileParallel" % name)
        known = ours.get(name, theirs.get(name))
        arity = known if known is not None else unknownArity or 0
        end = index + 1
        if not attached:
            while end < len(argv) and not _isOption(argv[end]):
                if arity != MANY and end - index > arity:
                    break
                end += 1
        values = (text,) if attached else tuple(argv[index + 1 : end])
        tokens = tuple(argv[index:end])
        words.append(_Word(name, values, tokens, name in ours, known is None))
        index = end
    return words


def _isOption(token: str) -> bool:
    """Whether a word is an option, as argparse tells them apart (-1 is a value)."""
    if len(token) < 2 or token[0] != "-" or _NEGATIVE_NUMBER.match(token):
        return False
    return " " not in token.split("=", 1)[0]


def _splitOption(token: str, theirs: Dict[str, int]) -> Tuple[str, bool, str]:
    """(name, whether a value is attached, that value) of an option's word.

    Abbreviations of the host's names and values attached to its short options (-d1) are resolved
    as its argparse does.
    """
    if token.startswith("--"):
        name, equals, value = token.partition("=")
        if name not in theirs:
            fitting = [option for option in theirs if option.startswith(name)]
            # Ours are exact, and the host's own parser reports what is ambiguous.
            if len(fitting) == 1 and name not in RUN_OPTIONS and name not in NOT_YET:
                name = fitting[0]
        return name, bool(equals), value
    if token[:2] in theirs and len(token) > 2:
        return token[:2], True, token[2:].lstrip("=")
    return token, False, ""


def _settlePositionals(words: List[_Word]) -> List[_Word]:
    """Give unknown options the word after them, unless CONFIG or OUT would then be missing."""
    settled: List[_Word] = []
    spare = sum(1 for word in words if not word.option) - 2
    for word in words:
        before = settled[-1] if settled else None
        takes = before is not None and before.unknown and len(before.tokens) == 1
        if takes and not word.option and spare > 0 and "=" not in before.tokens[0]:
            settled[-1] = replace(before, values=word.values, tokens=before.tokens + word.tokens)
            spare -= 1
        else:
            settled.append(word)
    return settled


def _joinWords(words: Any) -> Tuple[str, ...]:
    return tuple(token for word in words for token in word.tokens)


def _serialArguments(words: Sequence[_Word]) -> Tuple[str, ...]:
    """The user's command line without our options.

    Where one of ours stood between an option that takes many values and a positional argument,
    leaving it out would join the two; then the positional arguments go first.
    """
    rest = [word for word in words if not word.ours]
    for before, after in zip(rest, rest[1:]):
        if HOST_OPTIONS.get(before.option) == MANY and not after.option:
            options = [word for word in rest if word.option and word.option != "--"]
            return _joinWords([word for word in rest if not word.option] + options)
    return _joinWords(rest)


def _clientValue(word: _Word) -> str:
    """An option's value; a switch without one is on."""
    if not word.values and word.option.lstrip("-") in SWITCHES:
        return "1"
    return " ".join(word.values)


def _lastValue(words: Sequence[_Word], option: str) -> Optional[str]:
    values = [word.values[-1] for word in words if word.option == option and word.values]
    return values[-1] if values else None


def _globalParameters(words: Sequence[_Word]) -> Tuple[Tuple[str, str], ...]:
    """(name, text) of the last --global-parameters, the one that the host keeps."""
    given = [word for word in words if word.option == "--global-parameters"]
    if not given:
        return ()
    pairs = [value.partition("=") for value in given[-1].values]
    return tuple((name, text) for name, _, text in pairs)


def _devicesOption(text: Optional[str]) -> Any:
    """The selection that --devices asks for; None where it was not given."""
    if text is None:
        return None
    from .DeviceList import parseDevicesOption

    return parseDevicesOption(text)


def _withSettingsFile(settings: ClientSettings, path: str) -> ClientSettings:
    """The settings with what the front end wrote into run.json."""
    try:
        with open(path, encoding="utf-8") as stream:
            run = json.load(stream)
        if run["version"] != SETTINGS_VERSION:
            raise InputError(
                "%s was written by another version of TensileParallel: run it again" % path
            )
        return replace(
            settings,
            settingsFile=path,
            client=run["client"],
            devices=tuple(Device(**device) for device in run["devices"]),
            emulate=run["emulate"],
            outputs=run["outputs"],
            run=run["run"],
            frontEnd=bool(run.get("frontEnd")),
            fresh=bool(run.get("fresh")),
            noWait=bool(run.get("noWait")),
            noWarmUp=bool(run.get("noWarmUp")),
            baseline=run.get("baseline") or "auto",
            keepSizesWhole=bool(run.get("keepSizesWhole")),
            affinity=bool(run.get("affinity")),
            hangLimit=run.get("hangLimit"),
            verbose=bool(run.get("verbose")),
            allowFailures=bool(run.get("allowFailures")),
            strict=bool(run.get("strict")),
            log=run.get("log"),
            config=run.get("config"),
            sizesFile=run.get("sizesFile"),
            alternateFormat=bool(run.get("alternateFormat")),
            hostInputs=tuple((run.get("hostInputs") or {}).items()),
        )
    except OSError as error:
        raise InputError("--settings %s: %s" % (path, error.strerror or error)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("--settings %s is not a run's settings: %r" % (path, error)) from None


def _withClientOptions(settings: ClientSettings, ours: argparse.Namespace) -> ClientSettings:
    """The settings with what the command line itself says."""
    changes: Dict[str, Any] = {}
    if ours.client is not None:
        changes["client"] = ours.client
    if ours.devices is not None:
        changes["devicesWanted"] = _devicesOption(ours.devices)
        changes["devices"] = ()
    if ours.emulate:
        changes["emulate"] = ours.emulate
        changes["devices"] = ()
        # Without --client the emulated client is meant, whatever run.json names.
        changes["client"] = ours.client
    if ours.hang_limit is not None:
        changes["hangLimit"] = ours.hang_limit
    if ours.outputs is not None:
        changes["outputs"] = ours.outputs
    if ours.baseline is not None:
        changes["baseline"] = ours.baseline
    switches = ("fresh", "no_wait", "no_warm_up", "keep_sizes_whole", "affinity", "verbose")
    switches += ("allow_failures", "strict")
    for name in switches:
        if getattr(ours, name):
            first, *others = name.split("_")
            changes[first + "".join(other.capitalize() for other in others)] = True
    return replace(settings, **changes)


class _OurParser(argparse.ArgumentParser):
    """Parses our own options; its errors are InputError."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise InputError("%s (see %s --help)" % (message, self.prog))

    def parse(self, words: Sequence[_Word]) -> argparse.Namespace:
        """Parse the words that are ours."""
        return self.parse_args(_joinWords(word for word in words if word.ours))


def _ourParser(usage: str, epilog: str, addOptions: Any) -> _OurParser:
    parser = _OurParser(
        prog=usage.split()[0],
        usage=usage,
        epilog=epilog,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    addOptions(parser)
    parser.add_argument("--version", action="store_true", help="show the versions and stop")
    return parser


def _addDeviceOptions(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--devices",
        metavar="0,2|all",
        help="the GPUs to use, in HIP's numbering; beats DeviceList in --global-parameters and "
        "in the config",
    )
    group.add_argument(
        "--emulate",
        metavar="N",
        type=_positive,
        default=0,
        help="N emulated devices instead of the machine's; with --client, that executable runs "
        "on them. Times are made up: a rehearsal, not a measurement",
    )
    group.add_argument(
        "--hang-limit",
        metavar="SECONDS",
        type=_seconds,
        help="a client that says nothing for so long is ended (default: derived from the sizes, "
        "300 s or more; 0: never)",
    )
    group.add_argument(
        "--keep-sizes-whole",
        action="store_true",
        help="never split the solutions of a problem over several devices",
    )
    group.add_argument(
        "--affinity",
        action="store_true",
        help="keep each device's client on the processors beside the device",
    )
    group.add_argument(
        "--no-wait",
        action="store_true",
        help="give up at once if another run uses one of the devices, instead of waiting",
    )
    group.add_argument(
        "--no-warm-up",
        action="store_true",
        help="no thrown-away pair before work on a device that was idle for over a second",
    )
    group.add_argument(
        "--baseline",
        choices=("auto", "off"),
        help="off: devices are not compared by a short measurement at the start of a step",
    )


def _addRunOptions(parser: argparse.ArgumentParser) -> None:
    _addDeviceOptions(parser)
    group = parser.add_argument_group("programs")
    group.add_argument(
        "--client",
        metavar="PATH",
        help="the tensile_client to run; the host's --prebuilt-client means the same",
    )
    group.add_argument(
        "--tensile-root",
        metavar="TREE",
        help="the Tensile tree; else TENSILE_ROOT, else the tree this lies in, else an "
        "importable Tensile",
    )
    group.add_argument(
        "--max-frequency",
        metavar="MHZ",
        type=_megahertz,
        help="the GPUs' clock, by which newer Tensiles divide speeds (UseEffLike); default: as the "
        "runtime tells it",
    )
    group = parser.add_argument_group("before a run")
    group.add_argument(
        "--doctor",
        action="store_true",
        help="say whether a run could start here, and what to do about it; with CONFIG, for its "
        "DeviceList. Starts nothing; exit status 1 if a run could not start",
    )
    group = parser.add_argument_group("after a run")
    group.add_argument(
        "--report",
        metavar="OUT",
        help="make OUT/report.html, one page on the run in OUT, also of one that goes on or was "
        "interrupted. Starts nothing",
    )
    group = parser.add_argument_group("the run")
    group.add_argument(
        "--strict",
        action="store_true",
        help="a device of DeviceList that is missing ends it, one that is lost is an error",
    )
    group.add_argument(
        "--allow-failures",
        action="store_true",
        help="exit 0 although some pairs could not be measured",
    )
    group.add_argument(
        "--fresh", action="store_true", help="measure everything again, resume nothing"
    )
    group.add_argument(
        "--quiet", action="store_true", help="no progress and no summary on the terminal"
    )


def _addClientOptions(parser: argparse.ArgumentParser) -> None:
    _addDeviceOptions(parser)
    group = parser.add_argument_group("programs and places")
    group.add_argument("--client", metavar="PATH", help="the tensile_client to run")
    group.add_argument(
        "--outputs",
        metavar="DIR",
        help="unit files and journals (default: RESULTS.parallel/ beside the results file)",
    )
    group.add_argument("--settings", metavar="FILE", help="run.json of a TensileParallel run")
    group = parser.add_argument_group("the run")
    group.add_argument(
        "--fresh", action="store_true", help="measure everything again, resume nothing"
    )
    group.add_argument(
        "--strict",
        action="store_true",
        help="a missing device ends it, one that is lost is an error",
    )
    group.add_argument(
        "--allow-failures",
        action="store_true",
        help="exit 0 although some pairs could not be measured",
    )
    group.add_argument("-v", "--verbose", action="store_true", help="say more")


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError("give seconds, or 0 for no limit")
    return number


def _megahertz(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError("give a whole number of MHz, 1 or more")
    return number


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 6 else 0
    if number < 1:
        raise argparse.ArgumentTypeError("give a number of devices, 1 or more")
    return number
