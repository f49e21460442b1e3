# SPDX-License-Identifier: MIT
"""A tensile_client for machines without GPUs: same options, same files, computed times.

It goes through the same steps, in the same order, as the real clients' main.cpp, so that an error
comes at the same point and leaves the same files behind:

    options, INIs → device → library → range → results file → pass → problem → solution → row

What the real program prints and writes is in docs/emulator.md, with what is left out here. Files
and lines come from EmulatedOutput.py, times from EmulatedTimes.py; devices, faults and the record
from EmulatedDevice.py.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Dict, Optional, Sequence, Tuple

from .ClientConfig import (
    LIST_OPTIONS,
    ClientConfig,
    isKnownOption,
    mergeConfigs,
    parseClientOptions,
    parseIni,
)
from .EmulatedDevice import (
    Fault,
    Record,
    Settings,
    lastUse,
    noteUse,
    takeDevice,
    visibleDevices,
)
from .EmulatedOutput import (
    FREQUENCY,
    HOTSPOT,
    NUMBER,
    POWER,
    ROW_LEVELS,
    VALID,
    ClientDeath,
    LogFile,
    Pair,
    ResultsFile,
    abort,
    formatNumber,
)
from .EmulatedTimes import (
    COMPUTE_UNITS,
    ProblemFacts,
    granularities,
    indexRoles,
    kernelMicroseconds,
    problemFacts,
    solutionSeed,
    tileOf,
)
from .Errors import InputError
from .SolutionNames import readSolutions

LABEL = "# emulated client: times are computed, not measured"

_LEVELS = {"Error": 0, "Terse": 1, "Normal": 2, "Verbose": 3, "Debug": 4}
_CLOCKS = "42,1700,1090,1600,0,1"  # the hardware monitor's columns
_PLUSES = "++++++++++++++++++++++++\n"
_NAN = float("nan")


def _optionError(error: InputError) -> ClientDeath:
    return abort(str(error), "boost::wrapexcept<boost::program_options::error>")


class EmulatedClient:
    """One run of the client."""

    def __init__(self, argv: Sequence[str], environment=os.environ, age: float = 0.0) -> None:
        """Prepares.

        Args:
            argv: the options.
            environment: its masks, and where its settings are.
            age: how long the program has run already, in seconds.
        """
        self.argv = argv
        self.environment = environment
        self.begun = time.monotonic() - age
        self.record = Record(None, -1)
        self.lock = -1
        self.cold = False
        self.stdout = LogFile(1, _LEVELS["Debug"], False, False)
        self.dropResults = False
        self.due = 0.0

    def run(self) -> int:
        """Everything; returns the exit status.

        Raises:
            ClientDeath: where the real client dies by a signal.
            InputError: the emulator's own settings are wrong.
        """
        self.settings = Settings.read(self.environment)
        self.stdout.write(LABEL + "\n")
        self._readOptions()
        if self.config.has("help"):
            self.stdout.write("Tensile client options: see docs/emulator.md\n")
            return 1
        try:
            return self._runConfigured()
        except InputError as error:
            raise _optionError(error) from None
        except ValueError as error:
            raise abort(str(error)) from None

    def _runConfigured(self) -> int:
        config = self.config
        self.classic = config.generation == "classic"
        if not self.classic:
            seed = config.number("init-seed") or int(time.time())
            self.stdout.write("\nsrand seed is set to %d\n\n" % seed)
        self.problemCount = config.problemCount if config.sizeCount else 0
        if self.problemCount:
            self.roles = indexRoles(config.get("problem-identifier", ""))
        self._openDevice()
        self._readLibrary()
        self._readRanges()
        self._openOutputs()
        return self._measure()

    def _readOptions(self) -> None:
        try:
            options = parseClientOptions(self.argv)
        except InputError as error:
            raise _optionError(error) from None
        for name, _ in options.options:
            if not isKnownOption(name):
                kind = "boost::wrapexcept<boost::program_options::unknown_option>"
                raise abort("unrecognised option '--%s'" % name, kind)
        configs = [ClientConfig(options.options)]
        for path in options.configFiles:
            self.stdout.write("loading config file %s\n" % path)
            try:
                with open(path, "rb") as file:
                    text = file.read().decode("utf-8", "surrogateescape")
            except OSError:
                continue  # a missing INI is ignored, as the client ignores it
            try:
                configs.append(ClientConfig(parseIni(text, path), path))
            except InputError as error:
                raise _optionError(error) from None
        for config in configs:
            _refuseDuplicates(config)
        self.config = mergeConfigs(configs)

    def _openDevice(self) -> None:
        visible = visibleDevices(self.environment)
        index = self.config.number("device-idx")
        if not visible:
            raise abort(
                "Error 100(hipErrorNoDevice) emulated client: \n"
                "hipGetDeviceCount(&deviceCount)\nno ROCm-capable device is detected\n"
            )
        if index >= len(visible):
            text = "Invalid device index %d (%d total found.)" % (index, len(visible))
            raise abort(text)
        if index < 0:
            raise abort(
                "Error 101(hipErrorInvalidDevice) emulated client: \n"
                "hipSetDevice(deviceIdx)\ninvalid device ordinal\n"
            )
        self.device = visible[index]
        self.record = Record(self.settings.record, self.device)
        self.record.write("start", argv=list(self.argv))
        self._markBusy()
        self.factor = self.settings.perDevice("deviceFactors", self.device)
        self.slowness = self.settings.perDevice("deviceSlowness", self.device)
        self.faults = [f for f in self.settings.faults if f.meansDevice(self.device)]
        time.sleep(max(0.0, self.begun + self.settings.startSeconds - time.monotonic()))

    def _markBusy(self) -> None:
        """Detect a second client on this device; it is reported, and the run goes on."""
        try:
            if self.settings.coldFactor != 1:
                self.cold = self._isCold(lastUse(self.device, self.environment))
            self.lock = takeDevice(self.device, self.environment)
        except (InputError, OSError) as error:
            print("EMULATOR: cannot tell other clients apart: %s" % error, file=sys.stderr)
            return
        if self.lock < 0:
            message = "EMULATOR: two clients on device %d" % self.device
            print(message, file=sys.stderr, flush=True)
            self.record.write("conflict", message=message)

    def _isCold(self, used: Optional[float]) -> bool:
        """Whether the device has been idle for so long that its first launches are slow."""
        return used is None or time.time() - used > self.settings.coldAfterSeconds

    def _readLibrary(self) -> None:
        path = self.config.get("library-file")
        if path is None:
            raise abort(
                "Client must be linked with an embedded library or a library must be "
                "specified at runtime."
            )
        try:
            solutions = readSolutions(path)
        except InputError:
            raise ClientDeath(signal.SIGSEGV) from None  # as the real one, without a word
        self.names = [solution.name for solution in solutions]
        self.logicIndices = [solution.logicIndex for solution in solutions]
        # Code objects are never opened; the real client says which it loads.
        if self._level() >= _LEVELS["Verbose"]:
            for name in self.config.getAll("code-object"):
                self.stdout.write("Loading %s\n" % name)

    def _level(self) -> int:
        return _LEVELS.get(self.config.get("log-level", "Debug"), _LEVELS["Debug"])

    def _readRanges(self) -> None:
        config = self.config
        first, count = config.number("problem-start-idx"), config.number("num-problems", -1)
        count = self.problemCount if count < 0 else count
        self.firstProblem, self.lastProblem = first, first + count - 1
        first, count = config.number("solution-start-idx", -1), config.number("num-solutions", -1)
        first = max(first, 0)
        self.firstSolution = first
        self.lastSolution = len(self.names) - 1 if count < 0 else first + count - 1
        if self.classic:
            # It asks every solution of the range for its workspace before anything else.
            beyond = self.lastProblem >= max(self.firstProblem, self.problemCount)
            if beyond or self.lastSolution >= len(self.names):
                raise abort("Could not find a solution")

    def _openOutputs(self) -> None:
        config = self.config
        classic = self.classic
        self.monitored = config.flag("hardware-monitor", True)
        self.perUnit = config.get("performance-metric") == "CUEfficiency"
        winnersOnly = config.flag("PrintWinnersOnly") and not classic
        self.stdout.level, self.stdout.winnersOnly = self._level(), winnersOnly
        self.stdout.eagerHeader = not classic
        self.logs = [self.stdout]
        self._wait(self.settings.initSecondsPerElement * self._largestProblem())
        self.stdout.write("Log level: %s\n" % config.get("log-level", "Debug"))
        self.results = ResultsFile(
            config.get("results-file", "results.csv"),
            config.flag("csv-export-extra-cols"),
            config.flag("csv-merge-same-problems"),
            classic,
            self.perUnit,
        )
        self.update = _openUpdate(config.get("library-update-file", ""))
        path = config.get("log-file")
        if path is not None:
            self.stdout.write("Log level: Normal\n")
            how = os.O_APPEND if config.flag("log-file-append") else os.O_TRUNC
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how
            try:
                descriptor = os.open(path, flags, 0o666)
            except OSError:
                descriptor = -1
            self.logs.append(LogFile(descriptor, _LEVELS["Normal"], winnersOnly, classic))

    def _largestProblem(self) -> int:
        if not self.settings.initSecondsPerElement:
            return 0
        config = self.config
        problems = (config.problemAt(n) for n in range(min(self.problemCount, config.sizeCount)))
        return max((problemFacts(config, p, self.roles).elements for p in problems), default=0)

    def _measure(self) -> int:
        config = self.config
        self.exitOnError = config.flag("exit-on-error")
        self.validating = config.number("num-elements-to-validate") != 0
        self.best = config.flag("best-solution")
        self.seeds = [solutionSeed(name) for name in self.names]
        self.tiles = [tileOf(name) for name in self.names]
        self.errors = 0
        self.header = self._headerLine()
        for fault in self.faults:
            if fault.atStart and fault.take(self.settings.path):
                self._harm(fault)
        icache = 1 if self.classic else max(1, len(config.getAll("icache-flush-args")))
        for run in range(config.passes):
            for _ in range(icache):
                for index in range(self.firstProblem, self.lastProblem + 1):
                    if self._problem(run, index):
                        return min(self.errors, 255)
        self.results.finish()
        if self.dropResults:
            self.results.drop()
        return min(self.errors, 255)

    def _headerLine(self) -> str:
        speed = "gflops-per-cu" if self.perUnit else "gflops"
        lite = "" if self.classic else "bias-type,factor-dim,activation-type,"
        clocks = "temp-edge,clock-sys,clock-soc,clock-mem,fan-rpm,hardware-samples,"
        if self.classic:
            clocks += "gfx-frequency(median),power(median),hotspot-temperature(median),"
        return (
            "run,problem-progress,solution-progress,operation,problem-sizes,%ssolution,validation,"
            "time-us,%s,empty,total-gran,tiles-per-cu,num-cus,tile0-gran,tile1-gran,cu-gran,"
            "wave-gran,mem-read-bytes,mem-write-bytes,%senqueue-time\n" % (lite, speed, clocks)
        )

    def _problem(self, run: int, index: int) -> bool:
        """One problem; True where exit-on-error ends the run."""
        if index >= self.problemCount or index < 0:
            if self.firstProblem >= self.problemCount:
                raise abort("Failed to cast to any ContractionProblem.")
            raise ClientDeath(signal.SIGSEGV)
        config = self.config
        facts = problemFacts(config, config.problemAt(index), self.roles)
        self.results.describe(facts)
        for log in self.logs:
            log.startProblem()
        text = self._problemText(run, index, facts)
        sizeText = ",".join(map(str, facts.sizes))
        self._wait(self.settings.validateSecondsPerFlop * facts.flops * self.validating)
        fits: Dict[Tuple[int, int, int], Tuple[str, Tuple[str, str], int]] = {}
        solutions: Sequence[int] = range(self.firstSolution, self.lastSolution + 1)
        if self.best:
            solutions = [min(range(len(self.names)), key=lambda s: self._kernel(facts, s))]
        best: Tuple[str, int, float] = ("", -1, -1.0)
        row = None
        for solution in solutions:
            if solution >= len(self.names):
                raise abort("Could not find a solution")
            tile = self.tiles[solution]
            fit = fits.get(tile)
            if fit is None:
                fit = fits[tile] = self._fit(facts, tile)
            row = self._solution(run, index, facts, sizeText, text, solution, fit)
            speed = float(row.speed) if row.validation in VALID else _NAN
            if speed > best[2]:
                best = (self.names[solution], solution, speed)
            if self.exitOnError and self.errors:
                return True
        self.results.finishProblem(index, facts)
        self._note(facts, best)
        if not self.classic and row is not None:
            level = ROW_LEVELS.get(row.validation, 2)
            # Every reporter prints its line of pluses, and all of them to stdout.
            self.stdout.write(_PLUSES * sum(level <= log.level for log in self.logs))
        return False

    def _problemText(self, run: int, index: int, facts: ProblemFacts) -> Tuple[str, str]:
        """The parts of a pair's line that depend on the problem: before and after the progress."""
        config = self.config
        if config.groupedGemm:
            sizes = ",".join("(%s)" % ",".join(map(str, s.sizes)) for s in config.sizes)
        else:
            sizes = ",".join(map(str, facts.sizes))
        operation = config.get("problem-identifier", "")
        lite = ""
        if not self.classic:
            lite = "%s,%s,%s," % (facts.bias, facts.factor, facts.activation)
        start = "%d,%d/%d," % (run, index, self.lastProblem)
        return start, ',%s,"(%s)",%s' % (operation, sizes, lite)

    def _fit(self, facts: ProblemFacts, tile) -> Tuple[str, Tuple[str, str], int]:
        fit = granularities(self.config, facts, tile)
        total, perUnit = formatNumber(fit.total), formatNumber(fit.tilesPerUnit)
        units, tile0, tile1 = map(formatNumber, (fit.units, fit.tile0, fit.tile1))
        moved = "%d,%d" % (fit.readBytes, fit.writtenBytes)
        text = ",,%s,%s,%d,%s,%s,%s,1,%s," % (
            total,
            perUnit,
            COMPUTE_UNITS,
            tile0,
            tile1,
            units,
            moved,
        )
        return text, (perUnit, total), fit.busyUnits

    def _kernel(self, facts: ProblemFacts, solution: int) -> float:
        return kernelMicroseconds(facts, self.seeds[solution]) * self.factor

    def _solution(self, run, index, facts, sizeText, text, solution, fit) -> Pair:
        """Measure, print and note one pair."""
        name = self.names[solution]
        begin = time.monotonic() if self.record.active else 0.0
        time_us = self._kernel(facts, solution)
        if self.cold:  # by the time of its second pair a device is warm
            self.cold = False
            time_us *= self.settings.coldFactor
        self._sleepPair(index, sizeText, solution, facts, time_us)
        if self.settings.coldFactor != 1 and self.lock >= 0:
            noteUse(self.lock)
        speed = facts.flops / time_us / 1000.0
        if self.perUnit:
            speed /= fit[2]
        good = "PASSED" if self.validating else "NO_CHECK"
        pair = Pair(good, NUMBER % time_us, NUMBER % speed, False, True)
        if self.faults:
            pair = self._applyFaults(pair, run, index, facts, sizeText, solution)
        if pair.validation == "FAILED":
            self.errors += 1
        self.results.add(name, pair, fit[1], self.monitored)
        progress = "0/1" if self.best else "%d/%d" % (solution, self.lastSolution)
        if self.best and self.classic:
            progress = "1/1"
        line = "%s%s%s%s,%s,%s,%s%s%s\n" % (
            text[0],
            progress,
            text[1],
            name,
            pair.validation,
            pair.time,
            pair.speed,
            fit[0],
            self._hardware(pair),
        )
        for log in self.logs:
            log.pair(self.header, line, pair)
        if self.record.active:
            self.record.write(
                "pair",
                run=run,
                problem=index,
                solution=solution,
                size=sizeText,
                name=name,
                begin=begin,
                timeUs=pair.time,
                validation=pair.validation,
            )
        return pair

    def _hardware(self, pair: Pair) -> str:
        """Clock columns and time of day."""
        if not pair.ran:
            return ",,,,,,,,," if self.classic else ",,,,,,"
        if self.monitored:
            clocks = _CLOCKS
            if self.classic:
                clocks += ",%d,%d,%d" % (FREQUENCY, POWER, HOTSPOT)
        else:
            clocks = ",,,,,,,," if self.classic else ",,,,,"
        now = time.time()
        second = int(now)
        if second != getattr(self, "second", None):
            self.second = second
            self.clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return "%s,%s.%06d" % (clocks, self.clock, (now - second) * 1e6)

    def _sleepPair(self, index, sizeText, solution, facts, time_us) -> None:
        """Let the pair take the wall time it is meant to take."""
        settings = self.settings
        seconds = None
        if settings.pairSeconds is not None:
            seconds = settings.prescribedSeconds(index, sizeText, solution)
        if seconds is None:
            if not settings.timeScale:
                return
            warmups, timed = self._launches(facts)
            kernels = warmups + timed * (1 + self.config.number("sleep-percent") / 100.0)
            seconds = kernels * time_us * 1e-6 * settings.timeScale
        self._wait(seconds * self.slowness)

    def _launches(self, facts: ProblemFacts) -> Tuple[int, int]:
        """Kernels that one pair launches: warm-ups, and timed ones (BenchmarkTimer)."""
        number = self.config.number
        enqueues, syncs = number("num-enqueues-per-sync", 1), number("num-syncs-per-benchmark", 1)
        wanted = enqueues * syncs
        least, most = number("min-flops-per-sync"), number("max-enqueues-per-sync", -1)
        if least > 0 and facts.flops:
            enqueues = max(enqueues, -(-least // facts.flops))
        if most >= 0 and not self.classic:
            enqueues = min(enqueues, most)
        warmups = max(number("num-warmups"), 1 if self.validating else 0)
        rounds = max(1, -(-wanted // max(1, enqueues * syncs)))
        return warmups * rounds, enqueues * syncs * rounds

    def _wait(self, seconds: float) -> None:
        """Sleep, against a running account, so that oversleeping does not add up."""
        if seconds <= 0:
            return
        now = time.monotonic()
        if self.due < now - 0.05:
            self.due = now
        self.due += seconds
        if self.due > now:
            time.sleep(self.due - now)

    def _note(self, facts: ProblemFacts, best: Tuple[str, int, float]) -> None:
        """The problem's entry in the library update file."""
        if self.update is None:
            return
        sizes = ", ".join(map(str, facts.sizes))
        index = self.logicIndices[best[1]] if best[1] >= 0 else -1
        if index < 0:  # the client tells "none" by the same number
            self.update.write("# [%s] no valid solutions.\n" % sizes)
            return
        comment = ""
        if self.config.flag("library-update-comment"):
            comment = " # " + best[0]
        text = "  - - [%s]\n    - [%d, %s]%s\n"
        self.update.write(text % (sizes, index, formatNumber(best[2]), comment))
        self.update.flush()

    def _applyFaults(self, pair, run, index, facts, sizeText, solution) -> Pair:
        name = self.names[solution]
        for fault in self.faults:
            if fault.atStart or not fault.matches(index, solution, sizeText, name, run):
                continue
            if not fault.take(self.settings.path):
                continue
            if fault.kind == "torn-row":
                self.results.tear(index, facts)
            pair = self._harm(fault, pair)
        return pair

    def _harm(self, fault: Fault, pair: Optional[Pair] = None) -> Optional[Pair]:
        """Let a fault happen; what is left of the pair, if the client lives on."""
        rule, kind = fault.rule, fault.kind
        self.record.write("fault", kind=kind, rule=fault.number)
        if kind in ("crash", "torn-row"):
            default = signal.SIGSEGV if kind == "crash" else signal.SIGABRT
            raise ClientDeath(int(rule.get("signal", default)))
        if kind == "exit":
            raise SystemExit(int(rule.get("status", 1)))
        if kind == "hang":
            if rule.get("ignoreTerm"):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(3600)
        if kind == "slow":
            time.sleep(float(rule.get("seconds", 1)))
        elif kind == "noise":
            self._noise(float(rule.get("megabytes", 10)))
        elif kind == "no-csv":
            self.dropResults = True
        elif pair is None:
            pass  # the others are about a pair
        elif kind == "error":
            return self._launchError()
        elif kind == "rejected":
            word = "DID_NOT_SATISFY_ASSERTS" if self.validating else "NO_CHECK"
            return Pair(word, "-nan", "-nan", True, False)
        elif kind == "invalid":
            return pair._replace(validation="FAILED")
        elif kind == "huge":
            return pair._replace(time="-nan", speed="9223372036854775808")
        elif kind == "value":
            pair = pair._replace(
                time=str(rule.get("time", pair.time)), speed=str(rule.get("speed", pair.speed))
            )
        return pair

    def _launchError(self) -> Pair:
        message = (
            "Exception occurred: Error 719(hipErrorLaunchFailure) emulated client: \n"
            "adapter.launchKernels( kernels[kIdx], stream, nullptr, nullptr)\n"
            "unspecified launch failure\n\n"
        )
        for log in self.logs:
            log.write(message)
        # The validator, where it is off, calls every solution unchecked in the end.
        return Pair("INVALID" if self.validating else "NO_CHECK", "-nan", "-nan", True, False)

    def _noise(self, megabytes: float) -> None:
        block = bytes(range(256)) * 256
        for descriptor in (1, 2):
            sink = LogFile(descriptor, 0, False, True)
            for _ in range(max(1, int(megabytes * 16))):
                sink.write(block.decode("utf-8", "surrogateescape"))
            sink.write("\n")


def _refuseDuplicates(config: ClientConfig) -> None:
    seen = set()
    for key, _ in config.entries:
        if key in seen and key not in LIST_OPTIONS and isKnownOption(key):
            kind = "boost::wrapexcept<boost::program_options::multiple_occurrences>"
            raise abort("option '--%s' cannot be specified more than once" % key, kind)
        seen.add(key)


def _openUpdate(path: str):
    if not path:
        return None
    try:
        return open(path, "w", encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


def _age() -> float:
    """How long this process has run, in seconds: its own start is part of a client's."""
    with open("/proc/self/stat", "rb") as file:
        begun = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - begun


def _die(number: int) -> None:
    """End this process by a signal, as the real client does, but without a core file."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(10)  # the signal may take a moment
    raise SystemExit(128 + number)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the emulated client; dies by a signal where the real one does.

    Args:
        argv: the options, without the program's name; the command line's where it is None.
    """
    # As a C++ program: nobody reading stdout any more ends it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    client = EmulatedClient(argv) if argv is not None else EmulatedClient(sys.argv[1:], age=_age())
    try:
        status = client.run()
    except ClientDeath as death:
        sys.stderr.write(death.message)
        sys.stderr.flush()
        client.record.write("end", signal=int(death.number))
        _die(int(death.number))
        return 128 + int(death.number)
    except InputError as error:
        print("EMULATOR: %s" % error, file=sys.stderr)
        return 2
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except KeyboardInterrupt:
        client.record.write("end", signal=int(signal.SIGINT))
        _die(signal.SIGINT)
        return 130
    client.record.write("end", exit=status)
    return status


if __name__ == "__main__":
    sys.exit(main())
