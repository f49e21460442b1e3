# SPDX-License-Identifier: MIT
"""Both commands' arguments, each as one frozen settings object.

The two commands stand in front of other programs: TensileParallel in front of Tensile,
TensileParallelClient in front of tensile_client. What is not ours is handed on as it was written
and in its order. Names are never abbreviated on our side, because the host has names that begin
like ours (`--device`, `--devices`). What neither knows and looks like one of ours is refused: the
host would refuse it minutes later, with its own list of options.

Our options are written once, in the parsers below. docs/options.md is made from them
(tools/optionsTable).
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import uuid
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .ClientConfig import SWITCHES, isKnownOption, longName
from .CommandLine import (
    HOST_OPTIONS,
    Word,
    isNamedIn,
    joinWords,
    lastValue,
    meantOptions,
    serialArguments,
    settlePositionals,
    splitWords,
    unknownOptions,
)
from .Errors import InputError
from .Types import Device

SETTINGS_VERSION = 1
# Of a machine: it is part of names of files and folders.
LONGEST_NODE_NAME = 64

RUN_USAGE = "TensileParallel CONFIG [SIZES] OUT [options] [Tensile's own]"
CLIENT_USAGE = "TensileParallelClient --config-file INI [options] [tensile_client's own]"

RUN_EXAMPLES = """\
examples:
  TensileParallel config.yaml out
      on the GPUs that DeviceList in config.yaml's GlobalParameters names
  TensileParallel config.yaml out --devices all --library-format msgpack
      on every GPU; the second option is Tensile's own
  TensileParallel alternate.yaml sizes.yaml out --alternate-format
      the two-file format; DeviceList is read from the first file
  TensileParallel --doctor config.yaml
      could a run start here, and on which GPUs?
  TensileParallel config.yaml out --emulate 4
      a rehearsal: four emulated devices instead of the machine's
  TensileParallel --plan config.yaml out
      what that would measure, and about how long it takes; starts nothing

Every option that is not listed here is handed on to Tensile; its -v also shows
here what Tensile prints. Without a usable DeviceList this is `Tensile CONFIG
OUT`, unchanged. The same command again goes on where it was stopped.

exit status:
  0        done
  1        the run failed, or some pairs could not be measured
  2        bad input; nothing was started
  128 + n  stopped by signal n (130: Ctrl-C); the same command goes on
"""

CLIENT_EXAMPLES = """\
examples:
  TensileParallelClient --config-file ClientParameters.ini \\
      --client ./tensile_client
      what that tensile_client would write, made by it on every GPU
  TensileParallelClient --config-file ClientParameters.ini \\
      --client ./tensile_client --devices 0,2
      on two GPUs
  TensileParallelClient --config-file ClientParameters.ini --emulate 4
      a rehearsal: four emulated devices instead of the machine's

Every option that is not listed here is one of tensile_client's and means what
it means there.

exit status: tensile_client's own
  0        done, and every result was right
  n        so many pairs gave wrong results (255: more)
  1        some pairs could not be measured, or the run failed
  2        bad input; nothing was started
  128 + n  stopped by signal n; the same command goes on
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
        scheduler: --scheduler; empty where it was not given.
        schedulerFile: --scheduler-file; empty where it was not given.
        join: the scheduler that --join names; None where this machine is not to join any.
        nodeName: --node-name; empty for the machine's own.
        leaveAfter: --leave-after in seconds; None to wait for a scheduler for ever.
        localCluster: --local-cluster; 0 where it was not given.
        slurm: --slurm; 0 where it was not given.
        awaitedNodes: how many nodes to wait for at the start.
        unknownOptions: options that neither we know nor any host that we know.
        status: the output folder of --status; None where it was not given.
        json: --json was given.
        report: the output folder that --report names; None where it was not given.
        reportFile: where its page is to be; empty: in that folder.
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
    scheduler: str = ""
    schedulerFile: str = ""
    join: Optional[str] = None
    nodeName: str = ""
    leaveAfter: Optional[float] = None
    localCluster: int = 0
    slurm: int = 0
    awaitedNodes: int = 1
    unknownOptions: Tuple[str, ...] = ()
    plan: bool = False
    status: Optional[str] = None
    json: bool = False
    report: Optional[str] = None
    reportFile: str = ""
    argv: Tuple[str, ...] = ()

    @property
    def usesCluster(self) -> bool:
        """Whether the devices are those of the machines that have joined a scheduler."""
        return bool(self.scheduler or self.schedulerFile or self.localCluster or self.slurm)

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
        scheduler: address of a cluster's scheduler; empty where there is none.
        schedulerFile: a file that tells it; empty where there is none.
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
    scheduler: str = ""
    schedulerFile: str = ""


def parseRunArguments(argv: Sequence[str]) -> RunSettings:
    """Settings of the command TensileParallel.

    Args:
        argv: the arguments after the command's name.

    Raises:
        InputError: an option of ours is malformed, or CONFIG or OUT is missing.
        SystemExit: after --help.
    """
    words = splitWords(argv, runOptions(), HOST_OPTIONS)
    ours = runParser().parse(words)
    if ours.version:
        return RunSettings(version=True, tensileRoot=ours.tensile_root, argv=tuple(argv))
    _refuseTogether(ours)
    for option, value in (("--status", ours.status), ("--report", ours.report)):
        if value is not None:
            return _lookSettings(option, value, ours, words, argv)
    words = settlePositionals(words)
    if ours.join is not None:
        others = [word.tokens[0] for word in words if not word.ours]
        if others:
            raise InputError("--join waits for runs and starts none: leave out %s" % others[0])
    positionals = [word.values[0] for word in words if not word.option]
    readsOnly = ours.doctor or ours.join is not None
    if (readsOnly or ours.plan and positionals) and len(positionals) < 2:
        positionals = [*positionals, ""]  # it needs no output folder, and a config only to read it
    if len(positionals) < 2 and not readsOnly:
        for name in unknownOptions(words):
            if meantOptions(name, runOptions()):
                raise InputError(_didYouMean(name, runOptions()))
        if ours.plan:
            raise InputError("usage: TensileParallel --plan CONFIG [SIZES] [OUT] [options]")
        raise InputError("usage: %s (a config file and an output folder are needed)" % RUN_USAGE)
    host = [word for word in words if word.option and not word.ours]
    prebuilt = lastValue(host, "--prebuilt-client")
    return RunSettings(
        configs=tuple(positionals[:-1]),
        out=positionals[-1],
        hostOptions=joinWords(word for word in host if word.option != "--prebuilt-client"),
        hostArguments=serialArguments(words),
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
        scheduler=ours.scheduler or "",
        schedulerFile=os.path.abspath(ours.scheduler_file) if ours.scheduler_file else "",
        join=ours.join,
        nodeName=ours.node_name or "",
        leaveAfter=ours.leave_after or None,
        localCluster=ours.local_cluster,
        slurm=ours.slurm,
        unknownOptions=unknownOptions(host),
        plan=ours.plan,
        json=ours.json,
        argv=tuple(argv),
    )


def _refuseTogether(ours: argparse.Namespace) -> None:
    """Options of which at most one, or both, can be meant.

    Raises:
        InputError: such a pair, or half of one.
    """
    if ours.plan and ours.doctor:
        raise InputError("--plan and --doctor are two questions: ask one at a time")
    if ours.json and not ours.plan and ours.status is None:
        raise InputError("--json is how --plan and --status answer: give one of them too")
    _refuseClusters(ours)


def _refuseClusters(ours: argparse.Namespace) -> None:
    """At most one cluster, and nothing that would not look at it.

    Raises:
        InputError: with what to leave out.
    """
    given = _clusters(ours)
    _refuseEmpty(ours)
    name = ours.node_name or ""
    if len(name) > LONGEST_NODE_NAME or not all(c.isalnum() or c in "-_." for c in name):
        text = "--node-name %r: give up to %d letters, digits, '-', '_' and '.'"
        raise InputError(text % (name, LONGEST_NODE_NAME))
    if ours.join is not None and (ours.local_cluster or ours.slurm):
        raise InputError("--join offers this machine's devices: leave out %s" % given[-1])
    _refuseTwoClusters(given, ours.emulate and ours.join is None)
    given = given or ["--join"] * (ours.join is not None)
    if given and ours.plan:
        text = "--plan looks at no cluster: leave out %s, and give --emulate N for its N devices"
        raise InputError(text % given[0])
    if given and ours.doctor:
        text = "--doctor looks at this machine alone: leave out %s, and ask it on each node"
        raise InputError(text % given[0])
    if ours.join is None and ours.node_name is not None:
        raise InputError("--node-name goes with --join")
    if ours.join is None and ours.leave_after is not None:
        raise InputError("--leave-after goes with --join")


def _refuseEmpty(ours: argparse.Namespace) -> None:
    """An unset variable of a script must not mean this machine.

    Raises:
        InputError: an option that names something was given nothing.
    """
    for name in ("scheduler", "scheduler_file", "node_name"):
        if getattr(ours, name, None) == "":
            raise InputError("--%s was given nothing" % name.replace("_", "-"))
    if getattr(ours, "scheduler_file", None) and os.path.isdir(ours.scheduler_file):
        raise InputError("--scheduler-file %s is a folder: name the file" % ours.scheduler_file)


def _clusters(ours: argparse.Namespace) -> List[str]:
    """The options that name one."""
    names = ("join", "scheduler", "scheduler_file", "local_cluster", "slurm")
    return ["--" + n.replace("_", "-") for n in names if getattr(ours, n, None)]


def _refuseTwoClusters(given: Sequence[str], emulate: Any) -> None:
    """The same for both commands.

    Raises:
        InputError: two clusters are named, or one and devices of another kind.
    """
    if len(given) > 1:
        raise InputError("%s and %s name two clusters: give one" % tuple(given[:2]))
    if emulate and given and given[0].startswith("--scheduler"):
        text = "the devices of %s are its nodes' own: give --emulate to each --join instead"
        raise InputError(text % given[0])


def _lookSettings(
    option: str,
    folder: str,
    ours: argparse.Namespace,
    words: Sequence[Word],
    argv: Sequence[str],
) -> RunSettings:
    """--status OUT and --report OUT stand alone: what is meant for a run would be in vain.

    Raises:
        InputError: there is something else.
    """
    others = [word.tokens[0] for word in words if word.option not in (option, "--json", "--quiet")]
    file = ""
    if option == "--report" and others and others[0].endswith((".html", ".htm")):
        file = others.pop(0)  # by its name: it would replace a config that stands there by mistake
    if others:
        raise InputError("%s looks at a run and starts none: leave out %s" % (option, others[0]))
    if not folder:
        raise InputError("%s needs the output folder of a run" % option)
    return RunSettings(
        status=ours.status, report=ours.report, reportFile=file, json=ours.json, argv=tuple(argv)
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
    words = splitWords(argv, clientOptions(), {}, unknownArity=1)
    ours = clientParser().parse(words)
    if ours.version:
        print("TensileParallelClient %s" % ourVersion())
        raise SystemExit(0)
    _refuseEmpty(ours)
    _refuseTwoClusters(_clusters(ours), ours.emulate)
    theirs = [word for word in words if not word.ours]
    for name in unknownOptions(theirs):
        meant = _didYouMean(name, clientOptions())
        if meant and not isKnownOption(longName(name.lstrip("-"))):
            raise InputError(meant)
    for word in theirs:
        if word.option and not word.values and word.option.lstrip("-") not in SWITCHES:
            raise InputError("the client's option %s needs a value" % word.option)
    settings = ClientSettings(
        configFiles=tuple(
            value for word in theirs if word.option == "--config-file" for value in word.values
        ),
        clientArguments=tuple(
            (word.option.lstrip("-"), _clientValue(word))
            for word in theirs
            if word.option and word.option != "--config-file"
        ),
        clientArgv=joinWords(theirs),
        run=str(uuid.uuid4()),
    )
    if ours.settings is not None:
        settings = _withSettingsFile(settings, ours.settings)
    return _withClientOptions(settings, ours)


def refuseMisspelt(settings: RunSettings, hostSource: str) -> None:
    """End where an option is a slip of one of ours and not the host's.

    Args:
        settings: the command line.
        hostSource: text of the host's module Tensile.py; empty where there is no host.

    Raises:
        InputError: with what was probably meant.
    """
    for name in settings.unknownOptions:
        meant = _didYouMean(name, runOptions())
        if meant and not isNamedIn(hostSource, name):
            raise InputError(meant)


def _didYouMean(name: str, ours: Dict[str, int]) -> str:
    """The words that say so; empty where nothing of ours is near."""
    meant = " or ".join(meantOptions(name, ours))
    return "unknown option %s: did you mean %s?" % (name, meant) if meant else ""


@functools.lru_cache(maxsize=None)
def runParser() -> "_OurParser":
    """The parser of TensileParallel's own options."""
    return _ourParser(RUN_USAGE, RUN_EXAMPLES, _addRunOptions)


@functools.lru_cache(maxsize=None)
def clientParser() -> "_OurParser":
    """The parser of TensileParallelClient's own options."""
    return _ourParser(CLIENT_USAGE, CLIENT_EXAMPLES, _addClientOptions)


def runOptions() -> Dict[str, int]:
    """TensileParallel's own options, each with the number of its values."""
    return runParser().arities


def clientOptions() -> Dict[str, int]:
    """TensileParallelClient's own options, each with the number of its values."""
    return clientParser().arities


def ourVersion() -> str:
    """The version of TensileParallel."""
    from . import __version__

    return __version__


def _clientValue(word: Word) -> str:
    """An option's value; a switch without one is on."""
    if not word.values and word.option.lstrip("-") in SWITCHES:
        return "1"
    return " ".join(word.values)


def _globalParameters(words: Sequence[Word]) -> Tuple[Tuple[str, str], ...]:
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
            devicesWanted=_selectionOf(run.get("devicesWanted")),
            scheduler=run.get("scheduler") or "",
            schedulerFile=run.get("schedulerFile") or "",
        )
    except OSError as error:
        raise InputError("--settings %s: %s" % (path, error.strerror or error)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("--settings %s is not a run's settings: %r" % (path, error)) from None


def _selectionOf(value: Any) -> Any:
    """A selection of devices as DeviceList.py has it, from JSON."""
    return tuple(value) if isinstance(value, list) else value


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
    if ours.scheduler is not None or ours.scheduler_file is not None:
        changes["scheduler"] = ours.scheduler or ""
        file = ours.scheduler_file
        changes["schedulerFile"] = os.path.abspath(file) if file else ""
        changes["devices"] = ()
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

    @functools.cached_property
    def arities(self) -> Dict[str, int]:
        """Each option with the number of its values, 0 or 1."""
        return {
            name: 0 if action.nargs == 0 else 1
            for action in self._actions
            for name in action.option_strings
        }

    def parse(self, words: Sequence[Word]) -> argparse.Namespace:
        """Parse the words that are ours."""
        return self.parse_args(joinWords(word for word in words if word.ours))


def _ourParser(usage: str, epilog: str, addOptions: Any) -> _OurParser:
    parser = _OurParser(
        prog=usage.split()[0],
        usage=usage,
        epilog=epilog,
        allow_abbrev=False,
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    addOptions(parser)
    group = parser.add_argument_group("about")
    group.add_argument("--version", action="store_true", help="show the versions and stop")
    group.add_argument("-h", "--help", action="help", help="show this and stop")
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
        "--no-wait",
        action="store_true",
        help="give up at once if another run uses one of the devices, instead of waiting",
    )
    group = parser.add_argument_group("measuring")
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
        "--no-warm-up",
        action="store_true",
        help="no thrown-away pair before work on a device that was idle for over a second",
    )
    group.add_argument(
        "--baseline",
        choices=("auto", "off"),
        metavar="auto|off",
        help="off: devices are not compared by a short measurement at the start of a step",
    )


def _addClusterOptions(parser: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    group = parser.add_argument_group("more than one machine (docs/cluster.md)")
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run on the devices of all machines that have joined this scheduler, such as "
        "tcp://host:8786; --devices and DeviceList then choose on each of them",
    )
    group.add_argument(
        "--scheduler-file", metavar="FILE", help="the same, with a file that tells its address"
    )
    return group


def _addRunOptions(parser: argparse.ArgumentParser) -> None:
    _addDeviceOptions(parser)
    group = _addClusterOptions(parser)
    group.add_argument(
        "--join",
        metavar="ADDRESS",
        nargs="?",
        const="",
        help="let the runs of that scheduler use this machine's devices, until this is stopped; "
        "--scheduler-file in place of the address will do",
    )
    group.add_argument(
        "--node-name", metavar="NAME", help="with --join: this machine's name (its host name)"
    )
    group.add_argument(
        "--leave-after",
        metavar="SECONDS",
        type=_seconds,
        help="with --join: end where no scheduler has taken the devices for so long (default, and "
        "0: never)",
    )
    group.add_argument(
        "--local-cluster",
        metavar="N",
        type=_positive,
        default=0,
        help="try it: a scheduler and N nodes on this machine, each with the devices of --emulate",
    )
    group.add_argument(
        "--slurm",
        metavar="N",
        type=_positive,
        default=0,
        help="a scheduler here and N Slurm jobs that join it, by dask-jobqueue",
    )
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
    group.add_argument(
        "--plan",
        action="store_true",
        help="say what a run would measure, how long, and with what each device begins. Starts "
        "nothing, needs no GPU; with OUT it uses what an earlier run knows",
    )
    group = parser.add_argument_group("during a run")
    group.add_argument(
        "--status",
        metavar="OUT",
        help="show how the run in OUT is, from any shell. Exit status 0: it runs or ended well; "
        "1: it failed, was stopped or died; 2: there is none",
    )
    group = parser.add_argument_group("what the two print")
    group.add_argument("--json", action="store_true", help="with --plan and --status: as JSON")
    group = parser.add_argument_group("after a run")
    group.add_argument(
        "--report",
        metavar="OUT",
        help="make OUT/report.html, one page on the run in OUT, also of one that goes on or was "
        "interrupted; with a FILE.html after it, there. Starts nothing",
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
        "--quiet",
        action="store_true",
        help="no progress and no summary on the terminal: only notes and errors",
    )


def _addClientOptions(parser: argparse.ArgumentParser) -> None:
    _addDeviceOptions(parser)
    _addClusterOptions(parser)
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
        raise argparse.ArgumentTypeError("give a whole number, from 1 to 99999")
    return number
