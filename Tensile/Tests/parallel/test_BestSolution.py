# SPDX-License-Identifier: MIT
"""Steps with best-solution, library-update-file or several icache-flush-args, cut by problems.

What the serial client writes is what the emulated client writes by itself for the same INI.
"""

import json
import re
from pathlib import Path

import msgpack
import pytest

from Tensile.Parallel.BestSolution import readBest
from Tensile.Parallel.LibraryUpdate import winnersOf, writeLibraryUpdate

pytestmark = pytest.mark.unit

LITE = "tensilelite-2024/full"
WINNERS = "classic-4.44/full-winner-columns"

SIZES = ["%d,%d,1,%d" % (64 * n, 32 * (n % 3 + 1), 128 * n) for n in range(1, 10)]


def numbered(step):
    """Gives the step a library whose solutions have numbers of a logic file; returns options."""
    folder = step.into / "numbered"
    folder.mkdir()
    source = step.folder.parent / "library"
    packed = source / "TensileLibrary.dat"
    if packed.exists():
        library = msgpack.unpackb(packed.read_bytes(), strict_map_key=False)
        for solution in library["solutions"]:
            solution["libraryLogicIndex"] = 1000 + solution["index"]
        path = folder / "TensileLibrary.dat"
        path.write_bytes(msgpack.packb(library))
    else:
        parts = (source / "TensileLibrary.yaml").read_text().split("libraryLogicIndex: -1")
        numbers = ["libraryLogicIndex: %d" % (1000 + n) for n in range(len(parts) - 1)] + [""]
        path = folder / "TensileLibrary.yaml"
        path.write_text("".join(part + number for part, number in zip(parts, numbers)))
    step.change(library_file=str(path))


def moreSizes(step):
    """Replaces the step's sizes by SIZES, without strides."""
    lines = step.ini.read_text().splitlines()
    lines = [line for line in lines if "strides" not in line and "problem-size" not in line]
    step.ini.write_text("\n".join(lines + ["problem-size=" + size for size in SIZES]) + "\n")


def both(runScript, step, *arguments, environment=None, status=0):
    """Runs the emulated client, then the parallel one; returns (serial's file, step.json)."""
    serial = step.into / "serial.csv"
    emulated = [*arguments, "--results-file", serial]
    if "--library-update-file" in arguments:
        emulated += ["--library-update-file", step.into / "serial.yaml"]
        at = arguments.index("--library-update-file")
        del emulated[at : at + 2]
    done = runScript(
        "TensileEmulatedClient", "--config-file", step.ini, *emulated, environment=environment
    )
    assert done.returncode == status, done.stderr
    report = parallel(runScript, step, *arguments, environment=environment)
    return serial.read_bytes(), report


def parallel(runScript, step, *arguments, environment=None, status=0):
    """Runs the parallel client on two emulated devices; returns step.json."""
    options = ["--config-file", step.ini, "--emulate", 2, *arguments]
    done = runScript("TensileParallelClient", *options, environment=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads((step.out / "results.csv.parallel" / "step.json").read_text())


def usedDevices(report):
    """How many devices have a part in the step."""
    return len([part for part in report["devices"] if part["problems"]])


@pytest.mark.parametrize(
    "name, changes",
    [
        (LITE, {}),
        (LITE, {"csv_merge_same_problems": "1", "log_level": "Error"}),
        (LITE, {"csv_export_extra_cols": "0", "PrintWinnersOnly": "1"}),
        (WINNERS, {"log_level": "Terse"}),
    ],
)
def test_bestSolutionEqualsSerial(recorded, runScript, name, changes):
    """The ragged file of best-solution is the serial one, byte for byte, from several devices."""
    step = recorded(name)
    moreSizes(step)
    step.change(num_enqueues_per_sync="100", **changes)
    serial, report = both(runScript, step, "--best-solution", "1", "--log-level", "Error")
    assert step.results.read_bytes() == serial
    widths = {line.count(b",") for line in serial.splitlines()}
    assert len(widths) > 1, "the test's sizes have one best solution: nothing is ragged"
    assert usedDevices(report) == 2 and not report["whole"]


def test_clientLogOfBestSolutions(recorded, runScript):
    """The log-file has a line per problem, with the numbers of a serial run."""
    texts = []
    for script, devices in (("TensileEmulatedClient", ()), ("TensileParallelClient", (2,))):
        step = recorded(LITE, script)
        moreSizes(step)
        log = step.into / "log.txt"
        options = ["--config-file", step.ini, "--best-solution", "1", "--log-file", log]
        done = runScript(script, *options, *[o for n in devices for o in ("--emulate", n)])
        assert done.returncode == 0, done.stderr
        lines = [line for line in log.read_text().splitlines() if line[:1].isdigit()]
        # The rest of a line is hardware columns and the time of day.
        texts.append([",".join(line.split(",")[:12]) for line in lines])
    assert texts[0] == texts[1] and len(texts[0]) == len(SIZES)


def test_bestSolutionOfAProblemThatKillsTheClient(recorded, runScript, tmp_path):
    """Its row is there without any result, the others are measured, and a rerun adds nothing."""
    step = recorded(LITE)
    moreSizes(step)
    settings = {"faults": [{"size": SIZES[4], "kind": "crash"}], "record": str(tmp_path / "pairs")}
    (tmp_path / "emulator.json").write_text(json.dumps(settings))
    environment = {"TENSILE_EMULATOR": str(tmp_path / "emulator.json")}
    update = str(tmp_path / "update.yaml")
    numbered(step)
    options = ["--best-solution", "1", "--library-update-file", update]
    parallel(runScript, step, *options, environment=environment, status=1)
    rows = step.results.read_text().splitlines()[1:]
    assert [row.split(", ")[0] for row in rows] == [str(n) for n in range(len(SIZES))]
    columns = len(rows[0].split(", ")) - 1  # the first row has one solution's cell
    assert all("-1" not in row.split(", ")[columns:] for row in rows)
    failed = rows[4].split(", ")
    assert failed[1:5] == SIZES[4].split(",") and not any(failed[columns:])
    entries = (tmp_path / "update.yaml").read_text().splitlines()
    assert entries[8] == "# [%s] no valid solutions." % ", ".join(SIZES[4].split(","))
    assert len(entries) == 2 * len(SIZES) - 1
    before = step.results.read_bytes(), (tmp_path / "pairs").read_text().count('"pair"')
    parallel(runScript, step, *options, environment=environment, status=1)
    assert (step.results.read_bytes(), (tmp_path / "pairs").read_text().count('"pair"')) == before


def test_bestSolutionThatFailsValidationWinsNothing(recorded, runScript, tmp_path):
    """The client's Winner columns name it; ours say that there is no winner, and count the row."""
    step = recorded(LITE)
    moreSizes(step)
    step.change(num_elements_to_validate="10")
    (tmp_path / "emulator.json").write_text(
        json.dumps({"faults": [{"size": SIZES[2], "kind": "invalid"}]})
    )
    environment = {"TENSILE_EMULATOR": str(tmp_path / "emulator.json")}
    options = ["--best-solution", "1", "--no-warm-up"]
    report = parallel(runScript, step, *options, environment=environment, status=1)
    lines = step.results.read_text().splitlines()
    row = dict(zip(lines[0].split(", "), lines[3].split(", ")))
    assert (row["WinnerName"], row["WinnerGFlops"], row["WinnerIdx"]) == ("", "-1", "-1")
    assert "-1" in lines[3].split(", ")[16:]
    assert report["correctedWinners"] and report["validationFailures"] == 1


@pytest.mark.parametrize(
    "name, options",
    [
        ("tensilelite-2024/full-no-winner-columns", []),
        (WINNERS, []),
        (LITE, ["--best-solution", "1"]),
    ],
)
def test_libraryUpdateFileEqualsSerial(recorded, runScript, name, options):
    """The winners of all problems, in order, whichever devices measured them."""
    step = recorded(name)
    moreSizes(step)
    numbered(step)
    update = ["--library-update-file", str(step.into / "update.yaml")]
    serial, report = both(runScript, step, *options, *update, "--library-update-comment", "1")
    assert step.results.read_bytes() == serial
    text = (step.into / "update.yaml").read_bytes()
    assert text == (step.into / "serial.yaml").read_bytes()
    assert text.count(b" # ") == len(SIZES)
    assert usedDevices(report) == 2


def test_whatTheUpdateFileSays(tmp_path):
    """A benchmark's own library has no numbers (-1), a failed row no winner: both are a comment."""
    results = tmp_path / "results.csv"
    results.write_text(
        "GFlops, SizeI, SizeJ, LDD, LDC, LDA, LDB, TotalFlops, a, b\n"
        "0, 1, 2, 1, 1, 1, 1, 4, 5.5, 1.5e+06\n"
        "1, 3, 4, 3, 3, 3, 3, 24, -1, nan\n"
        "2, 5, 6, 5, 5, 5, 5, 60, 7, 7\n"
    )
    winners = list(winnersOf(str(results)))
    assert [(each.name, each.speed) for each in winners] == [
        ("b", "1.5e+06"),
        ("", "-1"),
        ("a", "7"),
    ]
    writeLibraryUpdate(str(tmp_path / "u.yaml"), winners, {"a": -1, "b": 17}, False)
    assert (tmp_path / "u.yaml").read_text() == (
        "  - - [1, 2]\n    - [17, 1.5e+06]\n"
        "# [3, 4] no valid solutions.\n# [5, 6] no valid solutions.\n"
    )


def test_libraryUpdateFileThatCannotBeWritten(recorded, runScript):
    """The results are there all the same; a line says why the other file is not, and exit 1."""
    step = recorded(LITE)
    options = ["--library-update-file", "/dev/full"]
    arguments = ["--config-file", step.ini, "--emulate", 2, *options]
    done = runScript("TensileParallelClient", *arguments)
    assert done.returncode == 1 and step.results.exists()
    assert "no library-update-file: cannot write" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("merged, passes", [("0", "2"), ("1", "1")])
def test_icacheFlushArgsEqualSerial(recorded, runScript, merged, passes):
    """Each value repeats the list under the same indices, within each pass."""
    step = recorded(LITE)
    step.change(csv_merge_same_problems=merged, num_benchmarks=passes)
    lines = [x for x in step.ini.read_text().splitlines() if not x.startswith("icache-flush")]
    step.ini.write_text("\n".join(lines + ["icache-flush-args=0", "icache-flush-args=1"]) + "\n")
    serial, report = both(runScript, step)
    assert step.results.read_bytes() == serial
    assert serial.count(b"\n") == 1 + 6 * (1 if merged == "1" else 2 * int(passes))
    assert usedDevices(report) == 2 and not report["whole"]


def test_rowsThatDoNotFitAreNotRead(tmp_path):
    """A row counts when it is whole, is its problem's, and the output names its solution."""
    header = "GFlops, SizeI, LDD, LDC, LDA, LDB, TotalFlops, kernelA\n"
    rows = ["0, 1, 1, 1, 1, 1, 2, 5.5\n", "1, 2, 1, 1, 1, 1, 2, , 6.5\n"]
    tail = ",PASSED,1.5,6.5" + "," * 17 + "12:00:00\n"
    names = [
        '0,%d/1,0/1,Contraction,"(1)",None,0,None,%s%s' % (problem, name, tail)
        for problem, name in ((0, "kernelA"), (1, "kernelB"))
    ]
    csv, log = tmp_path / "unit_0.csv", tmp_path / "unit_0.log"

    def read(text, output):
        csv.write_text(text)
        log.write_text("".join(output))
        return readBest(str(csv), str(log), range(2))

    whole = read(header + "".join(rows), names)
    assert [row.cells for row in whole.rows] == [{"kernelA": "5.5"}, {"kernelB": "6.5"}]
    assert whole.problem is None
    for text, output in (
        (header + rows[0] + rows[1][:-1], names),
        (header + rows[0] + rows[0], names),
        (header + rows[0] + rows[1].replace(" , ", " "), names),
        (header + "".join(rows), names[:1]),
    ):
        found = read(text, output)
        assert len(found.rows) == 1 and "row 2" in found.problem
    assert "no complete header" in read(header[:-3], names).problem


def test_libraryClientOfARun(tmp_path, runScript):
    """LibraryClient's client is spread as well; its results are there, and are no group's."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "GlobalParameters: {DeviceList: [0, 1], Architecture: gfx90a, NumElementsToValidate: 0}\n"
        "BenchmarkProblems:\n"
        "- - {OperationType: GEMM, DataType: s, UseBeta: True, Batched: True}\n"
        "  - ForkParameters: [DepthU: [16, 32], WorkGroupMapping: [1, 8]]\n"
        "    BenchmarkFinalParameters: [ProblemSizes: [Range: [[64, 64, 256], [64], [1], [64]]]]\n"
        "LibraryLogic: {ScheduleName: aldebaran, DeviceNames: [x], ArchitectureName: gfx90a}\n"
        "LibraryClient:\n"
    )
    out = tmp_path / "out"
    host = Path(__file__).resolve().parent / "host" / "tensilelite"
    done = runScript("TensileParallel", config, out, "--emulate", 2, "--tensile-root", host)
    assert done.returncode == 0, done.stdout + done.stderr
    (ini,) = out.glob("merged_output/4_LibraryClient/source/*.ini")
    (results,) = out.glob("merged_output/4_LibraryClient/Data/*.csv")
    options = ["--config-file", ini, "--results-file", tmp_path / "serial.csv"]
    assert runScript("TensileEmulatedClient", *options, "--best-solution", 1).returncode == 0
    assert results.read_bytes() == (tmp_path / "serial.csv").read_bytes()
    (path,) = out.glob("outputs/4_LibraryClient/*/step.json")
    step = json.loads(path.read_text())
    assert step["problems"] == 4 and usedDevices(step) == 2 and step["bestSolution"]
    lines = (out / "tensile_parallel.log").read_text().splitlines()
    assert len([line for line in lines if re.search(r"host: 0,\d/3,[01]/1,Contraction", line)]) == 4
    kept = [(out / ("config_gpu_%d.yaml" % n)).read_text() for n in (0, 1)]
    assert sum(text.count("Exact") for text in kept) == 4
