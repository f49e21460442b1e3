# SPDX-License-Identifier: MIT
"""Which devices there are, by which source, and the environment that pins a process to one."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import pytest
from FakeHip import FakeHipUnavailable, buildFakeClient, fakeHipEnvironment
from Machines import CPU, NODES, PROPERTIES, NoHip

from Tensile.Parallel.DeviceList import ALL_DEVICES, selectDevices
from Tensile.Parallel.Devices import (
    DeviceScan,
    describeDevice,
    pinMismatch,
    pinnedEnvironment,
    readTopology,
    scanDevices,
)
from Tensile.Parallel.Masks import ENDS_BEFORE
from Tensile.Parallel.Platform import HIP_ANSWER, ProgramResult, System
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit

PCI = ["0000:03:00.0", "0000:43:00.0", "0000:83:00.0", "0000:c3:00.0"]
NAMES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
OPENCL = "GPU_DEVICE_ORDINAL"
CONTAINER = "AMD_VISIBLE_DEVICES"


class AnsweringHip(System):
    """A machine whose HIP runtime gives a prepared answer, whatever the masks."""

    answer: list = []
    before = ""

    def hipProbe(self, timeout=0, environment=None):
        text = json.dumps({"library": "libamdhip64.so.6", "devices": self.answer})
        return ProgramResult(["python"], 0, self.before + HIP_ANSWER + text + "\n")


def _node(root, number, text):
    folder = root / NODES / str(number)
    folder.mkdir(parents=True)
    (folder / "properties").write_text(text)
    (folder / "name").write_text("\n")


def _gpu(root, number, minor, location, version=90010, unique=0, simds=416, render=True):
    facts = dict(simds=simds, version=version, location=location, minor=minor)
    _node(root, number, PROPERTIES % {**facts, "unique": unique})
    if render:
        (root / "dev/dri").mkdir(parents=True, exist_ok=True)
        (root / ("dev/dri/renderD%d" % minor)).write_text("")


@pytest.fixture
def machine(tmp_path):
    """Two sockets and four MI210 on nodes 2, 3, 10, 11, with unique ids 1 to 4."""
    for number in (0, 1):
        _node(tmp_path, number, CPU)
    for k, number in enumerate((2, 3, 10, 11)):
        _gpu(tmp_path, number, 128 + k, (0x03 + 0x40 * k) << 8, unique=k + 1)
    (tmp_path / "dev/kfd").write_text("")
    return tmp_path


@pytest.fixture(scope="module")
def fakeHip(tmp_path_factory):
    """The fake runtime and a client of it, compiled once."""
    try:
        client = buildFakeClient(tmp_path_factory.mktemp("hip"))
    except FakeHipUnavailable as reason:
        pytest.skip(str(reason))
    return client


def _seen(client, environment):
    """What a client sees that is started with an environment: PCI addresses."""
    done = subprocess.run([client], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def _fake(client, masks, log=None):
    devices = ["gfx90a:" + pci for pci in PCI]
    return fakeHipEnvironment(masks, os.path.join(os.path.dirname(client), "x"), devices, log)


# -- a second account of the runtime's rules, to hold ours against ------------------------------


def _modelRocr(environment, all):
    if "ROCR_VISIBLE_DEVICES" not in environment:
        return list(all)
    left = []
    for token in environment["ROCR_VISIBLE_DEVICES"].split(","):
        token = token.strip()
        if token.upper().startswith("GPU-"):
            number = "123456789abcdef".find(token[4:5].lower()) if len(token) == 20 else -1
        else:
            try:
                number = int(token, 0)
            except ValueError:
                number = -1
        if not 0 <= number < len(all) or all[number] in left:
            break
        left.append(all[number])
    return left


def _modelHip(environment, left):
    text = environment.get("HIP_VISIBLE_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES")
    if not text:
        return left
    chosen = []
    for token in text.split(","):
        if token not in [str(number) for number in range(len(left))]:
            break
        if left[int(token)] not in chosen:
            chosen.append(left[int(token)])
    return chosen


def _model(environment, all=tuple(PCI)):
    return _modelHip(environment, _modelRocr(environment, all))


ROCR_VALUES = [None, "", "3", "2,0", " 1 ,3", "1,1,2", "0x2,0", "9,0", "-1"] + [
    "GPU-2222222222222222,GPU-1111111111111111"
]
HIP_VALUES = [None, "", "-1", "1", "1,0", "0, 1", "0,9,1", "0,0,1", "01"]
CUDA_VALUES = [None, "", "1,0", "-1"]
# (GPU_DEVICE_ORDINAL, AMD_VISIBLE_DEVICES): what HIP does not read, one or the other.
OTHER_VALUES = [(None, "0,2"), ("1", None)]
LISTS = [ALL_DEVICES, (0,), (1, 0), (3,), (0, 9), (1, 1, 2)]
MATRIX = list(itertools.product(ROCR_VALUES, HIP_VALUES, CUDA_VALUES, OTHER_VALUES))


def _masks(values):
    *masks, others = values
    named = zip(NAMES + (OPENCL, CONTAINER), (*masks, *others))
    return {name: value for name, value in named if value is not None}


def _checkPins(scan, masks, expected, look):
    """Every list form picks the right device, and each pin leaves exactly that one."""
    assert len(scan.devices) == len(expected)
    assert bool(scan.reason) == (not expected)
    for selection in LISTS:
        wanted = range(len(expected)) if selection == ALL_DEVICES else dict.fromkeys(selection)
        chosen = selectDevices(selection, scan)
        assert [d.ordinal for d in chosen.devices] == [n for n in wanted if n < len(expected)]
        assert bool(chosen.reason) == (not chosen.devices)
    for device in scan.devices:
        pinned = pinnedEnvironment(masks, device)
        assert look(pinned) == [expected[device.ordinal]]
        assert pinMismatch(pinned, device) == ""
        assert pinned.get(NAMES[0]) == masks.get(NAMES[0])
        assert OPENCL not in pinned and "CUDA_VISIBLE_DEVICES" not in pinned
        assert {k: v for k, v in pinned.items() if k not in NAMES + (OPENCL,)} == {
            k: v for k, v in masks.items() if k not in NAMES + (OPENCL,)
        }


def test_theMatrixIsLarge():
    """The matrix has at least 300 settings of the variables, each with every list form."""
    assert len(MATRIX) >= 300 and len(LISTS) >= 5


@pytest.mark.parametrize("rocr", ROCR_VALUES, ids=repr)
def test_emulatedDevicesAgreeWithTheModel(rocr):
    """The rules of the runtime, over every setting: which devices there are, and each pin."""
    for values in (v for v in MATRIX if v[0] == rocr):
        masks = {"HOME": "/home/user", **_masks(values)}
        expected = _model(masks)
        scan = scanDevices(System(environment=masks), emulate=4)
        assert [d.product for d in scan.devices] == [
            "emulated device %d" % PCI.index(pci) for pci in expected
        ]
        _checkPins(scan, masks, expected, _model)


@pytest.mark.parametrize("rocr", ROCR_VALUES, ids=repr)
def test_theTopologyAgreesWithTheModel(rocr, machine):
    """The same on the kernel's topology, without a HIP runtime."""
    for k, number in enumerate((2, 3, 10, 11)):
        path = machine / "sys/class/kfd/kfd/topology/nodes" / str(number) / "properties"
        text = path.read_text().replace("unique_id %d" % (k + 1), "unique_id %d" % _unique(k))
        path.write_text(text)
    for values in (v for v in MATRIX if v[0] == rocr):
        masks = _masks(values)
        expected = _model(masks)
        scan = scanDevices(NoHip(str(machine), masks))
        assert [d.pciAddress for d in scan.devices] == expected
        _checkPins(scan, masks, expected, _model)


def _unique(k):
    return int(str(k + 1) * 16, 16)


@pytest.mark.parametrize("rocr", ROCR_VALUES, ids=repr)
def test_theFakeRuntimeAgreesWithTheModel(rocr, fakeHip):
    """The same against a runtime in C: a client with the pin ends up on the expected device."""
    for values in (v for v in MATRIX if v[0] == rocr):
        masks = _fake(fakeHip, _masks(values))
        expected = _model(masks)
        seen = _seen(fakeHip, masks)
        assert seen == expected, masks

        class Probed(AnsweringHip):
            answer = [
                {"product": "gfx90a", "pci": pci, "architecture": "", "computeUnits": 0}
                for pci in seen
            ]

        scan = scanDevices(Probed("/nonexistent", masks))
        assert [d.pciAddress for d in scan.devices] == expected
        _checkPins(scan, masks, expected, lambda pinned: _seen(fakeHip, pinned))


# -- the HIP runtime ----------------------------------------------------------------------------


def test_theRuntimeIsAskedInAChild(fakeHip, tmp_path):
    """Devices, architecture and order come from HIP; this process never initialises it."""
    log = tmp_path / "log"
    system = System(str(tmp_path), _fake(fakeHip, {"HIP_VISIBLE_DEVICES": "2,0"}, log))
    scan = scanDevices(system)
    assert scan.source.startswith("the HIP runtime (libamdhip64.so")
    assert [(d.token, d.pciAddress) for d in scan.devices] == [("2", PCI[2]), ("0", PCI[0])]
    assert {(d.architecture, d.computeUnits) for d in scan.devices} == {("gfx90a", 104)}
    pids = [int(line.split()[0]) for line in log.read_text().splitlines()]
    assert len(pids) == 1 and os.getpid() not in pids
    with open("/proc/self/maps") as stream:
        assert "libamdhip64" not in stream.read()


def test_aLatePinIsNoticed(fakeHip):
    """The mask is read once: setting it after the start leaves the old devices."""
    late = (
        "import ctypes, os\n"
        "hip, n = ctypes.CDLL('libamdhip64.so'), ctypes.c_int()\n"
        "hip.hipGetDeviceCount(ctypes.byref(n))\n"
        "os.environ['HIP_VISIBLE_DEVICES'] = '3'\n"
        "hip.hipGetDeviceCount(ctypes.byref(n))\n"
        "print(n.value)\n"
    )
    command = [sys.executable, "-c", late]
    environment = _fake(fakeHip, {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "4\n"
    pinned = pinnedEnvironment(environment, Device(3, "3"))
    done = subprocess.run(command, env=pinned, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n" and _seen(fakeHip, pinned) == [PCI[3]]


def test_aTokenWithASpaceIsAWarning(fakeHip, tmp_path):
    """`0, 1` is device 0 alone: said, for the user meant two."""
    system = System(str(tmp_path), _fake(fakeHip, {"HIP_VISIBLE_DEVICES": "0, 1"}))
    scan = scanDevices(system)
    assert len(scan.devices) == 1
    assert any("' 1'" in note and "without spaces" in note for note in scan.notes)


def test_aRuntimeThatHidesOnEmptyIsBelieved(fakeHip, machine):
    """From ROCm 5.6 on an empty mask hides all: the runtime's word stands, and is explained."""
    masks = _fake(fakeHip, {"HIP_VISIBLE_DEVICES": "", "FAKE_HIP_EMPTY_HIDES": "1"})
    scan = scanDevices(System(str(machine), masks))
    assert scan.devices == () and "HIP_VISIBLE_DEVICES is set but empty" in scan.reason


def test_uuidsInHipsMaskAreKeptWhereTheRuntimeKnowsThem(fakeHip, tmp_path):
    """Newer runtimes take UUIDs: the token is handed on as it is, once the runtime confirms it."""
    masks = {"HIP_VISIBLE_DEVICES": "GPU-3333333333333333,0", "FAKE_HIP_UUIDS": "1"}
    environment = _fake(fakeHip, masks)
    scan = scanDevices(System(str(tmp_path), environment))
    assert [d.token for d in scan.devices] == ["GPU-3333333333333333", "0"]
    for device, pci in zip(scan.devices, (PCI[2], PCI[0])):
        assert _seen(fakeHip, pinnedEnvironment(environment, device)) == [pci]
    assert not any(ENDS_BEFORE in note for note in scan.notes)


def test_aPinThatTheRuntimeDoesNotConfirmIsNotUsed(fakeHip, tmp_path):
    """Two names of one device would put two workers on it: no device, and the reason."""
    masks = {"HIP_VISIBLE_DEVICES": "0,GPU-1111111111111111,1", "FAKE_HIP_UUIDS": "1"}
    scan = scanDevices(System(str(tmp_path), _fake(fakeHip, masks)))
    assert scan.devices == () and "plain numbers" in scan.reason


def test_warningsBeforeTheAnswerDoNotHideIt(tmp_path):
    """Libraries print to stdout what they like; the answer is found behind it."""

    class Chatty(AnsweringHip):
        before = "warning: no such file\nunfinished "
        answer = [{"product": "", "pci": PCI[0], "architecture": "gfx942", "computeUnits": 304}]

    scan = scanDevices(Chatty(str(tmp_path), {}))
    assert describeDevice(scan.devices[0]) == "device 0 (gfx942, 304 CUs, %s)" % PCI[0]


@pytest.mark.parametrize(
    "result",
    [
        ProgramResult(["p"], None, failure="p did not answer within 60 s"),
        ProgramResult(["p"], -11, stderr="Segmentation fault"),
        ProgramResult(["p"], 0, stdout=HIP_ANSWER + "{torn"),
        ProgramResult(["p"], 0),
    ],
)
def test_aFailedSourceMeansTheNextIsAsked(result, machine):
    """A runtime that crashes, hangs or says nothing is unknown, not "no device"."""

    class Broken(System):
        def hipProbe(self, timeout=0, environment=None):
            return result

    scan = scanDevices(Broken(str(machine), {}))
    assert len(scan.devices) == 4 and scan.source == "the kernel's KFD topology"
    assert any("HIP runtime was not used" in note for note in scan.notes)


def test_aRuntimeWithoutDevicesIsBelieved(machine):
    """The client will ask the same runtime, so its "no device" ends the search."""
    scan = scanDevices(AnsweringHip(str(machine), {"ROCR_VISIBLE_DEVICES": "0,1"}))
    assert scan.devices == ()
    assert "reports no device" in scan.reason and "ROCR_VISIBLE_DEVICES=0,1" in scan.reason


def test_theTopologyAddsToWhatHipTells(machine):
    """Render node, unique id and compute units are joined on the PCI address, in HIP's order."""

    class Reversed(AnsweringHip):
        answer = [
            {"product": "AMD Instinct MI210", "pci": pci, "architecture": "", "computeUnits": 0}
            for pci in reversed(PCI)
        ]

    scan = scanDevices(Reversed(str(machine), {}))
    assert [d.renderNode for d in scan.devices] == [
        "/dev/dri/renderD%d" % n for n in (131, 130, 129, 128)
    ]
    assert scan.devices[0] == Device(
        0,
        "0",
        False,
        "gfx90a",
        "AMD Instinct MI210",
        104,
        PCI[3],
        "%016x" % 4,
        "/dev/dri/renderD131",
        1700,
    )


def test_partitionsAreSeparateDevices(tmp_path):
    """Partitions share a PCI address: each is a device with its own render node, with a warning."""
    for k in range(8):
        _gpu(tmp_path, k + 1, 128 + k, 0x0C00, version=90402, simds=152)
    (tmp_path / "dev/kfd").write_text("")

    class Partitioned(AnsweringHip):
        answer = [
            {"product": "", "pci": "0000:0c:00.0", "architecture": "gfx942", "computeUnits": 38}
        ] * 8

    for scan in (
        scanDevices(Partitioned(str(tmp_path), {})),
        scanDevices(NoHip(str(tmp_path), {})),
    ):
        assert len({d.renderNode for d in scan.devices}) == 8
        assert {d.architecture for d in scan.devices} == {"gfx942"}
        assert any("8 devices are partitions" in note for note in scan.notes)
    bare = scanDevices(Partitioned(str(tmp_path / "other"), {}))
    assert len({d.uniqueId for d in bare.devices}) == 8, "each needs a lock of its own"


def test_aPartitionHasOneLockHoweverItIsNamed(tmp_path):
    """By number, by UUID in HIP's list, behind ROCR: the same render node, so the same lock."""
    for k in range(4):
        _gpu(tmp_path, k + 1, 128 + k, 0x0C00, version=90402, simds=152, unique=_unique(k))
    (tmp_path / "dev/kfd").write_text("")
    uuid = "GPU-" + "3" * 16
    entry = {"product": "", "pci": "0000:0c:00.0", "architecture": "gfx942", "computeUnits": 38}

    class Third(AnsweringHip):
        answer = [entry]

    for masks in (
        {"HIP_VISIBLE_DEVICES": "2"},
        {"HIP_VISIBLE_DEVICES": uuid},
        {"ROCR_VISIBLE_DEVICES": "2"},
        {"ROCR_VISIBLE_DEVICES": uuid, "HIP_VISIBLE_DEVICES": uuid},
    ):
        scan = scanDevices(Third(str(tmp_path), masks))
        assert [device.renderNode for device in scan.devices] == ["/dev/dri/renderD130"], masks
        assert any("hides device 0, 1, 3 of 4" in note for note in scan.notes), masks
    # Nobody knows the topology: the number in ROCr's list is all that there is.
    bare = [Third("/nonexistent", {name: "2"}) for name in NAMES[:2]]
    assert len({scanDevices(system).devices[0].uniqueId for system in bare}) == 1


@pytest.mark.parametrize("name", NAMES)
def test_numbersWithoutEndAreNoNumbers(name, machine):
    """Thousands of digits end the list like any other number that is out of range."""
    masks = {name: "1" * 5000}
    assert scanDevices(NoHip(str(machine), masks)).devices == ()
    assert scanDevices(System(environment=masks), emulate=4).devices == ()


def test_partitionsInThePlaceOfFunctionsAreOneCard(tmp_path):
    """Some kernels number partitions .0 to .7: still one card, with the warning."""
    for k in range(8):
        _gpu(tmp_path, k + 1, 128 + k, 0x0C00 + k, version=90402, simds=152)
    (tmp_path / "dev/kfd").write_text("")
    scan = scanDevices(NoHip(str(tmp_path), {}))
    assert [d.pciAddress[-2:] for d in scan.devices] == [".%d" % k for k in range(8)]
    assert any("8 devices are partitions of the card 0000:0c:00:" in n for n in scan.notes)


def test_aRealRuntimeWithoutAGpuSaysSo():
    """Debian's real libamdhip64 on a machine without a GPU: no device, and the right reason."""
    if os.path.exists("/dev/kfd"):
        pytest.skip("this machine has /dev/kfd")
    scan = scanDevices(System(environment={"PATH": os.defpath}))
    if not scan.source.startswith("the HIP runtime"):
        pytest.skip("libamdhip64 is needed: it is not installed")
    assert scan.devices == () and "no /dev/kfd" in scan.reason


# -- the kernel's topology ----------------------------------------------------------------------


def test_topologyIsReadInNumericOrder(machine):
    """Node 10 comes after node 3, CPUs are passed over, and each fact is found."""
    nodes = readTopology(NoHip(str(machine), {}))
    assert [node.node for node in nodes] == [2, 3, 10, 11]
    assert [node.pciAddress for node in nodes] == PCI
    assert {(node.architecture, node.computeUnits) for node in nodes} == {("gfx90a", 104)}
    assert nodes[0].uuid == "GPU-0000000000000001"


@pytest.mark.parametrize(
    "version, name",
    [
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (100306, "gfx1036"),
        (110000, "gfx1100"),
        (90012, "gfx90c"),
    ],
)
def test_targetVersionsBecomeNames(version, name, tmp_path):
    """Minor and stepping are hexadecimal digits in an architecture's name."""
    _gpu(tmp_path, 1, 128, 0x300, version=version)
    assert readTopology(NoHip(str(tmp_path), {}))[0].architecture == name


def test_onlyDevicesThatCanBeOpenedCount(tmp_path):
    """A container was given renderD129 only: one device, and a line for each other."""
    for k in range(4):
        _gpu(tmp_path, k + 1, 128 + k, (3 + k) << 8, render=k == 1)
    (tmp_path / "dev/kfd").write_text("")
    scan = scanDevices(NoHip(str(tmp_path), {}))
    assert [d.renderNode for d in scan.devices] == ["/dev/dri/renderD129"]
    assert scan.devices[0].token == "0"
    assert sum("cannot be opened" in note for note in scan.notes) == 3


def test_integratedGpusAreKnownByArchitecture(tmp_path):
    """KFD does not say which GPU is integrated; LLVM's table of processors does."""
    _gpu(tmp_path, 1, 128, 0x300, version=110000)
    _gpu(tmp_path, 2, 129, 0x1000, version=100306)
    (tmp_path / "dev/kfd").write_text("")
    scan = scanDevices(NoHip(str(tmp_path), {}))
    assert scan.integrated == {1}


def test_tornPropertiesDoNotBreakTheScan(tmp_path):
    """Lines that are no "name number" are passed over."""
    _node(
        tmp_path,
        1,
        "simd_count 416\nsimd_per_cu 4\ngfx_target_version ninety\n\nx\nlocation_id -1\n",
    )
    assert readTopology(NoHip(str(tmp_path), {}))[0].architecture == ""


@pytest.mark.parametrize(
    "masks, words",
    [
        ({"ROCR_VISIBLE_DEVICES": ""}, "ROCR_VISIBLE_DEVICES is set but empty"),
        ({"HIP_VISIBLE_DEVICES": "-1"}, "HIP_VISIBLE_DEVICES=-1 hides every device"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "CUDA_VISIBLE_DEVICES=-1 hides every device"),
        (
            {"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "-1"},
            "CUDA_VISIBLE_DEVICES=-1 hides every device",
        ),
        ({"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "5"}, "HIP_VISIBLE_DEVICES=5"),
    ],
)
def test_theVariableThatHidesAllIsNamed(masks, words, machine):
    """Hidden by a mask: the reason is one line with the variable, from every source."""
    nothing = AnsweringHip(str(machine), masks)
    for scan in (
        scanDevices(NoHip(str(machine), masks)),
        scanDevices(nothing),
        scanDevices(System(environment=masks), emulate=4),
    ):
        assert scan.devices == () and words in scan.reason and "\n" not in scan.reason


def test_aMachineWithNothingSaysWhy(tmp_path):
    """No driver, no library: a reason, not an exception."""
    scan = scanDevices(NoHip(str(tmp_path), {}))
    assert scan.source == "nothing" and "no /dev/kfd" in scan.reason
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").write_text("")
    assert "lists none" in scanDevices(NoHip(str(tmp_path), {})).reason
    _gpu(tmp_path, 1, 128, 0x300, render=False)
    assert "render" in scanDevices(NoHip(str(tmp_path), {})).reason


def test_partlyHiddenDevicesAreExplained(machine):
    """One line names the variable and what it hides; OpenCL's variable is said not to count."""
    masks = {"ROCR_VISIBLE_DEVICES": "3", "GPU_DEVICE_ORDINAL": "0"}
    scan = scanDevices(NoHip(str(machine), masks))
    assert [d.pciAddress for d in scan.devices] == [PCI[3]] and scan.devices[0].token == "0"
    assert "ROCR_VISIBLE_DEVICES=3 hides device 0, 1, 2 of 4" in scan.notes
    assert any("GPU_DEVICE_ORDINAL is OpenCL's" in note for note in scan.notes)
    assert selectDevices((3,), scan).devices == ()


# -- emulated devices and pins ------------------------------------------------------------------


def test_emulatedDevicesObeyTheVariables():
    """--emulate 8 under HIP_VISIBLE_DEVICES=3,5,6 leaves three; the second is device 5."""
    scan = scanDevices(System(environment={"HIP_VISIBLE_DEVICES": "3,5,6"}), emulate=8)
    assert [(d.ordinal, d.token, d.uniqueId) for d in scan.devices] == [
        (0, "3", "emulated-3"),
        (1, "5", "emulated-5"),
        (2, "6", "emulated-6"),
    ]
    assert all(d.emulated for d in scan.devices) and scan.source == "emulation"


@pytest.mark.parametrize("wrong", [{}, {"HIP_VISIBLE_DEVICES": "0,3"}, {"HIP_VISIBLE_DEVICES": ""}])
def test_aWrongPinIsTold(wrong):
    """A worker that was started with another mask learns it from its environment, in one line."""
    line = pinMismatch(wrong, Device(1, "3"))
    assert "device 1" in line and "HIP_VISIBLE_DEVICES" in line and "\n" not in line


def test_aScanWithoutDevicesIsNoMistake():
    """Selecting from an empty scan gives a reason in every case."""
    assert selectDevices(ALL_DEVICES, DeviceScan((), "nothing")).reason
