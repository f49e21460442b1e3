# SPDX-License-Identifier: MIT
"""TensileParallel --plan: what a run would do, and how long it may take. Nothing is started.

The config is counted as the host counts it; the host itself is not started (it takes 45 s), no HIP
runtime is asked and no kernel is made. What only a run can find out is said to be unknown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .CommandLine import givesHostOption
from .ConfigShape import kindOf, oddNumber, oddShape
from .ConfigSteps import REFUSED, ConfigStep, configSteps, groupOf
from .DeviceList import ALL_DEVICES, selectDevices
from .Devices import scanDevices, scanTopology
from .Errors import InputError
from .ExpectedIni import COUNTING_PARAMETERS
from .Host import CLASSIC, Host, findHost, unsafeInShell
from .HostClock import clockFor
from .ParseArguments import RunSettings
from .PlanStep import StepPlan, StepPlanner
from .Platform import System
from .RunConfig import (
    configNotes,
    globalParameter,
    readUsersConfig,
    refuseMissing,
    repeatedTypes,
    wantedDevices,
    whyNoList,
)
from .Types import Device

# How the remark on a step ends that no Tensile can run.
ENDS_THERE = ": a run would end there"
# So many numbers of steps stand before a note at most.
MOST_NUMBERS = 8
# Where nothing says how many devices there will be.
EXAMPLE_DEVICES = 8


@dataclass(frozen=True)
class DevicePlan:
    """The devices that a plan counts with.

    Attributes:
        devices: never empty.
        assumed: whether they are not known to be there.
        source: where the number is from.
        serial: why a run here would be serial Tensile; empty where it would not.
        wanted: whether the user asks for a parallel run, wherever that is to be.
    """

    devices: Tuple[Device, ...]
    assumed: bool
    source: str
    serial: str = ""
    wanted: bool = True


@dataclass(frozen=True)
class Plan:
    """What a run would do.

    Attributes:
        settings: the command line; OUT is empty where none was given.
        host: the tree; None where none was found.
        hostMissing: why there is none; empty where there is.
        classic: whether it is counted as classic Tensile counts.
        devices: those that it counts with.
        steps: in the order in which they run.
        hostSeconds: what an earlier run in OUT took beside benchmarks; None where not known.
        warnings: one line each.
    """

    settings: RunSettings
    host: Optional[Host]
    hostMissing: str
    classic: bool
    devices: DevicePlan
    steps: Tuple[StepPlan, ...]
    hostSeconds: Optional[float]
    warnings: Tuple[str, ...]

    def total(self, serial: bool) -> Tuple[float, bool]:
        """(seconds of all steps whose time can be told, whether those are all)."""
        times = [each.serialSeconds if serial else each.parallelSeconds for each in self.steps]
        return sum(time for time in times if time is not None), None not in times


def makePlan(settings: RunSettings, system: System) -> Plan:
    """Looks at the config, the machine's topology and OUT.

    Raises:
        InputError: the config cannot be read, its DeviceList is malformed, or --tensile-root names
            no tree.
    """
    settings = _withSizesFile(settings)
    if len(settings.configs) > (2 if settings.alternateFormat else 1):
        text = "there is a word too many: %r (--plan CONFIG [SIZES] [OUT])"
        raise InputError(text % settings.out)
    refuseMissing(replace(settings, out=settings.out or "-"))
    config, unreadable = readUsersConfig(settings)
    if unreadable:
        raise InputError(unreadable)
    _refuseOddNumbers(settings, config)
    host, missing = _host(settings, system)
    classic = _isClassic(config) if host is None else host.generation == CLASSIC
    warnings: List[str] = []
    devices = _devices(settings, config, system, warnings)
    planner = StepPlanner(settings, config, host, classic, devices.devices)
    steps = [planner.plan(step) for step in _wellShaped(settings, config, classic)]
    warnings += configNotes(settings, config) if devices.wanted else repeatedTypes(config)
    warnings += _aboutLogic(host, settings, config, devices)
    warnings += _aboutSteps(steps, config, len(devices.devices))
    warnings += _aboutOut(settings)
    hostSeconds = planner.earlier.hostSeconds()
    plan = Plan(
        settings, host, missing, classic, devices, tuple(steps), hostSeconds, tuple(warnings)
    )
    return replace(plan, warnings=(*plan.warnings, *_aboutGain(plan)))


def _refuseOddNumbers(settings: RunSettings, config: Any) -> None:
    """Parameters that the times depend on.

    Raises:
        InputError: one is no number that could be meant.
    """
    for name, least in COUNTING_PARAMETERS.items():
        value = globalParameter(settings, config, name)
        wrong = oddNumber(value, least) if value is not None else ""
        if wrong:
            given = settings.parameter(name) is not None
            where = (
                "--global-parameters" if given else "GlobalParameters in %s" % settings.configs[0]
            )
            raise InputError("%s: %s %s" % (where, name, wrong))


def _wellShaped(settings: RunSettings, config: Any, classic: bool) -> List[ConfigStep]:
    """The steps; those that Tensile would end at, as their parts have another shape, say so.

    Raises:
        InputError: it would at all of them.
    """
    entries, steps, first = config.get("BenchmarkProblems"), [], ""
    if entries is not None and not isinstance(entries, list):
        text = "%s: BenchmarkProblems is %s, not a list: Tensile would end there"
        raise InputError(text % (settings.configs[0], kindOf(entries)))
    for step in configSteps(config, classic):
        odd = oddShape(entries[step.entry], step.group)
        if odd:
            place = "%s: entry %d of BenchmarkProblems, group %02d: %s: Tensile would end there"
            first = first or place % (settings.configs[0], step.entry + 1, step.group, odd)
            step = ConfigStep(step.entry, step.group, None, remark="%s%s" % (odd, ENDS_THERE))
        steps.append(step)
    if first and all(step.remark.endswith(ENDS_THERE) for step in steps):
        raise InputError(first)
    return steps


def _withSizesFile(settings: RunSettings) -> RunSettings:
    """CONFIG SIZES, without OUT: a file is no output folder."""
    if settings.alternateFormat and len(settings.configs) == 1 and os.path.isfile(settings.out):
        return replace(settings, configs=(*settings.configs, settings.out), out="")
    return settings


def _host(settings: RunSettings, system: System) -> Tuple[Optional[Host], str]:
    emulated = settings.emulate > 0
    try:
        return findHost(system.environment, settings.tensileRoot, emulated=emulated), ""
    except InputError as error:
        if settings.tensileRoot:
            raise
        return None, str(error)


def _isClassic(config: Any) -> bool:
    """Whether a config can only be a classic Tensile's: it has something beside GEMMs."""
    entries = config.get("BenchmarkProblems")
    entries = entries if isinstance(entries, list) else []
    types = [each[0] for each in entries if isinstance(each, list) and each]
    operations = [each.get("OperationType") for each in types if isinstance(each, dict)]
    return any(operation not in (None, "GEMM") for operation in operations)


def _devices(settings: RunSettings, config: Any, system: System, warnings: List[str]) -> DevicePlan:
    """Those that a run would use; else those that were named, or an example."""
    wanted = wantedDevices(settings, config)
    serial = "" if wanted is not None else whyNoList(settings, config)
    if givesHostOption(settings.hostOptions, "--cpu-only"):
        serial = "--cpu-only measures on no GPU"
    named = "--devices" if settings.devices is not None else "DeviceList"
    scan = scanDevices(system, settings.emulate) if settings.emulate else scanTopology(system)
    parallel = not serial
    asked = ALL_DEVICES if wanted is None else wanted
    reason = scan.reason
    if scan.devices:
        source = scan.source if wanted is None else "%s, by %s" % (named, scan.source)
        try:
            selection = selectDevices(asked, scan, settings.strict)
        except InputError as error:
            warnings.append("a run on these devices would be refused: %s" % error)
            return DevicePlan(scan.devices, False, scan.source, serial, parallel)
        warnings += scan.notes + selection.notes
        if selection.devices:
            return DevicePlan(selection.devices, False, source, serial, parallel)
        reason = selection.reason
    serial = serial or reason
    if isinstance(asked, str):
        ordinals: Sequence[int] = range(EXAMPLE_DEVICES)
        source = "an example: --devices or --emulate sets another number"
    else:
        ordinals, source = list(dict.fromkeys(asked)), named
    devices = tuple(Device(ordinal, str(ordinal)) for ordinal in ordinals)
    return DevicePlan(devices, True, source, serial, parallel)


def _aboutLogic(
    host: Optional[Host], settings: RunSettings, config: Any, devices: DevicePlan
) -> List[str]:
    notes = []
    if not config.get("BenchmarkProblems"):
        notes.append("there are no BenchmarkProblems: nothing is measured")
    elif "LibraryLogic" not in config:
        notes.append("there is no LibraryLogic: no library logic will be written")
    if "LibraryClient" in config:
        notes.append("LibraryClient runs one more step at the end, which is not counted here")
    if host is not None and devices.wanted:
        try:
            _, note = clockFor(host, settings, config, devices.devices)
            notes += [note] if note else []
        except InputError as error:
            notes.append(str(error))
    return notes


def _aboutSteps(steps: Sequence[StepPlan], config: Any, devices: int) -> List[str]:
    """What is to be said of steps, once for all of which it is true."""
    found: Dict[str, List[int]] = {}
    for number, each in enumerate(steps, 1):
        texts = _aboutStep(each, devices)
        parts = config["BenchmarkProblems"][each.step.entry]
        group = groupOf(parts, each.step.group) if isinstance(parts, list) else None
        if isinstance(group, dict) and group.get("GroupForkParameters"):
            texts.append("Tensile reads no GroupForkParameters: write Groups in ForkParameters")
        for text in texts:
            found.setdefault(text, []).append(number)
    return ["%s: %s" % (_stepsWords(at), text) for text, at in found.items()]


def _stepsWords(numbers: Sequence[int]) -> str:
    words = "%s %s" % (
        "step" if len(numbers) == 1 else "steps",
        ", ".join(map(str, numbers[:MOST_NUMBERS])),
    )
    more = len(numbers) - MOST_NUMBERS
    return "%s and %d more" % (words, more) if more > 0 else words


def _aboutStep(planned: StepPlan, devices: int) -> List[str]:
    remark = planned.step.remark
    ends = ENDS_THERE if remark.startswith(REFUSED) else ""
    notes = [remark and remark + ends]
    if planned.solutionsRemark and not planned.exact:
        notes.append("the number of its solutions is not known: %s" % planned.solutionsRemark)
    if planned.timeRemark not in (planned.step.remark, planned.solutionsRemark):
        notes.append("its time is not known: %s" % planned.timeRemark)
    if planned.whole:
        notes.append("it goes whole to one device: %s" % planned.whole)
    elif planned.giant and devices > 1:
        notes.append(_aboutGiant(planned))
    return [note for note in notes if note]


def _aboutGiant(planned: StepPlan) -> str:
    what = "it has a single problem, %s" % planned.giant
    if planned.step.problems != 1:
        share = 100 * planned.giantShare
        what = "one problem, %s, takes %.0f %% of its time" % (planned.giant, share)
    if planned.rowsWhole:
        return "%s, and its solutions stay on one device: %s" % (what, planned.rowsWhole)
    if planned.solutions == 1:
        return "%s, and has one solution: there is nothing to split over the devices" % what
    if planned.isSplit:
        return "%s: its solutions are split over the devices" % what
    return "%s, which is too short to be split over the devices" % what


def _aboutGain(plan: Plan) -> List[str]:
    """Whether several devices are worth it, or anything is left to do."""
    if plan.steps and all(each.pairs and each.measuredPairs == each.pairs for each in plan.steps):
        return ["all pairs are measured already: a run would measure nothing"]
    serial, parallel = plan.total(serial=True)[0], plan.total(serial=False)[0]
    if len(plan.devices.devices) < 2 or not 0 < serial < parallel:
        return []
    return ["several devices would gain nothing: there is too little that could be spread"]


def _aboutOut(settings: RunSettings) -> List[str]:
    unsafe = unsafeInShell(os.path.abspath(settings.out)) if settings.out else None
    if unsafe is None:
        return []
    text = "a run would refuse the output folder %r: its path has %r, which run.sh does not quote"
    return [text % (settings.out, unsafe)]
