# SPDX-License-Identifier: MIT
"""What other tools say of the GPUs: read from real processes and real text, and compared.

Where the shapes come from:

- `amd-smi list --json`: keys and "N/A" as amdsmi_cli/amdsmi_commands.py (list_gpu) of ROCm/amdsmi
  writes them. A bare list (OpenLinkHub 117) or, from version 26 on, "gpu_data" (rocm-systems
  223): both are reported for `amd-smi static`.
- The warning before it: amdsmi 114, and amdsmi_helpers.py (check_required_groups), which prints it
  to stdout; the text of other ones: amdsmi 125 and 184.
- `rocm-smi --showbus --showproductname --json`: rocm_smi_lib 159 for the product's keys, wandb
  5449 and systeminformation 960 for the address in capitals, rocm-build 5849 for its warning.
- Partitions: rocm_smi_lib 208, rocm-build 4261, amdsmi 132 (the function counts them), amdsmi 100
  and rocm-build 4759 ("N/A" in later rows).
- rocminfo: rocm_smi_lib 160, aiter 179 (an MI250's agent), rocm-build 4411 (a CPU's), rocm-build
  2995 (no driver).
"""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Tensile.Parallel.CrossCheck import (
    EnumeratorAnswer,
    SourceNote,
    ToolAnswer,
    ToolGpu,
    askTools,
    compareSources,
    crossCheck,
    readEnumerator,
    readRocminfo,
    readSmi,
    smiOrdinals,
)
from Tensile.Parallel.Devices import readTopology, scanDevices
from Tensile.Parallel.Platform import HIP_ANSWER, ProgramResult, System

pytestmark = pytest.mark.unit

GROUPS = (
    "WARNING: User is missing the following required groups: render, video. "
    "Please add user to these groups."
)
LOW_POWER = (
    "\nWARNING: AMD GPU device(s) is/are in a low-power state. "
    "Check power control/runtime_status\n"
)

AGENT = """*******
Agent %(agent)d
*******
  Name:                    %(architecture)s
  Uuid:                    %(uuid)s
  Marketing Name:          AMD Instinct MI210
  Vendor Name:             AMD
  Feature:                 KERNEL_DISPATCH
  Max Queue Number:        128(0x80)
  Node:                    %(agent)d
  Device Type:             GPU
  Cache Info:
    L1:                      16(0x10) KB
  Chip ID:                 29711(0x740f)
  Max Clock Freq. (MHz):   1700
  BDFID:                   %(location)d
  Internal Node ID:        %(agent)d
  Compute Unit:            %(units)d
  SIMDs per CU:            4
  Features:                KERNEL_DISPATCH
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-
"""
CPU_AGENT = """ROCk module version 6.10.5 is loaded
=====================
HSA System Attributes
=====================
Runtime Version:         1.14
==========
HSA Agents
==========
*******
Agent 1
*******
  Name:                    AMD EPYC 7742 64-Core Processor
  Uuid:                    CPU-XX
  Marketing Name:          AMD EPYC 7742 64-Core Processor
  Vendor Name:             CPU
  Node:                    0
  Device Type:             CPU
  Chip ID:                 0(0x0)
  BDFID:                   0
  Compute Unit:            64
"""

PROPERTIES = """simd_count 416
simd_per_cu 4
gfx_target_version 90010
location_id %(location)d
domain %(domain)d
drm_render_minor %(minor)d
unique_id %(unique)d
"""


class Machine(System):
    """A machine by its kernel's topology, with no HIP runtime and none but the test's tools."""

    def __init__(self, folder, **masks):
        environment = {"PATH": str(folder / "bin"), "ROCM_PATH": "/rocm", **masks}
        super().__init__(root=str(folder), environment=environment)

    def hipProbe(self, timeout=0, environment=None):
        """No runtime."""
        return ProgramResult(["python"], 1, stderr="libamdhip64.so is not installed")


class HipMachine(Machine):
    """The same with a HIP runtime that names GPUs by their PCI addresses, in its own order."""

    order: list = []

    def hipProbe(self, timeout=0, environment=None):
        """The prepared answer."""
        facts = {"architecture": "gfx90a", "product": "", "computeUnits": 104}
        devices = [{"pci": pci, **facts} for pci in self.order]
        text = json.dumps({"library": "libamdhip64.so.6", "devices": devices})
        return ProgramResult(["python"], 0, HIP_ANSWER + text + "\n")


def _machine(root, locations, closed=()):
    """A topology of GPUs at KFD location ids, nodes from 1, unique ids from 1."""
    (root / "dev/dri").mkdir(parents=True)
    (root / "dev/kfd").write_text("")
    for number, location in enumerate(locations, 1):
        folder = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
        folder.mkdir(parents=True)
        facts = dict(location=location, domain=0, minor=127 + number, unique=number)
        (folder / "properties").write_text(PROPERTIES % facts)
        if number not in closed:
            (root / ("dev/dri/renderD%d" % (127 + number))).write_text("")
    return root


def _tool(folder, name, body):
    """A program made of a few lines of sh, which finds no other program on its PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + body + "\n")
    path.chmod(0o755)
    return str(path)


def _prints(folder, name, text, end=""):
    """A program that prints a text."""
    folder.mkdir(exist_ok=True)
    (folder / (name + ".out")).write_text(text)
    return _tool(folder, name, "/bin/cat '%s'\n%s" % (folder / (name + ".out"), end))


def _amdSmi(addresses):
    """What `amd-smi list --json` prints, in the order of its own numbers."""
    rows = [
        {
            "gpu": number,
            "bdf": address,
            "uuid": "%02xff740f-0000-1000-8000-000000000000" % number,
            "kfd_id": 40000 + number,
            "node_id": 1 + number,
            "partition_id": 0,
        }
        for number, address in enumerate(addresses)
    ]
    return json.dumps(rows, indent=4) + "\n"


def _rocmSmi(addresses):
    """What `rocm-smi --showbus --showproductname --json` prints."""
    rows = {
        "card%d"
        % number: {
            "PCI Bus": address.upper(),
            "Card Series": "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2",
            "Card Model": "0x7408",
            "GFX Version": "gfx9010",
        }
        for number, address in enumerate(addresses)
    }
    return json.dumps(rows) + "\n"


def _rocminfo(locations, architecture="gfx90a", units=104):
    """What rocminfo prints."""
    facts = dict(architecture=architecture, units=units)
    return CPU_AGENT + "".join(
        AGENT % dict(facts, agent=number + 1, location=location, uuid="GPU-%016x" % number)
        for number, location in enumerate(locations, 1)
    )


def _texts(notes):
    return [note.text for note in notes]


BUSES = [0x03, 0x23, 0x43, 0x63, 0x83, 0xA3, 0xC3, 0xE3]
PCI = ["0000:%02x:00.0" % bus for bus in BUSES]
LOCATIONS = [bus << 8 for bus in BUSES]


# -- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before", ["", GROUPS + "\n", "RuntimeWarning [amdgpu] {0}\n", "{[\n", GROUPS]
)
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "after", ["", "\nWARNING: done [x]\n", '[{"nic": 0, "bdf": "0000:01:00.0"}]']
)
def test_bothShapesOfAmdSmiAreRead(before, wrapped, after):
    """Case 9: a bare list and one in gpu_data, with warnings before and other lists after it."""
    text = _amdSmi(PCI[:2])
    if wrapped:
        text = json.dumps({"gpu_data": json.loads(text)}, indent=4)
    assert readSmi(before + text + after) == (ToolGpu(0, PCI[0]), ToolGpu(1, PCI[1]))


def test_rocmSmisShapeIsRead():
    """Case 9: cards by name, addresses in capitals, after its own warning; "system" is no card."""
    text = json.loads(_rocmSmi(["0000:c1:00.0"]))
    text["system"] = {"Driver version": "6.7.0"}
    text["card10"] = {"PCI Bus": "N/A", "Card series": "Instinct MI210"}
    assert readSmi(LOW_POWER + json.dumps(text)) == (
        ToolGpu(0, "0000:c1:00.0", product="AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2"),
        ToolGpu(10, "", product="Instinct MI210"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        GROUPS,
        "null",
        "[1, 2]",
        '{"gpu_data": {"gpu": 0}}',
        '[{"bdf": "0000:03:00.0"}]',
        "WARNING: No JSON data to report",
        _amdSmi(PCI)[:-10],
        _rocmSmi(PCI)[:-10],
        "[" * 100000,
        '{"gpu":' * 5000,
        '[{"gpu": ' + "9" * 5000 + "}]",
        '[{"gpu": 0, "list": []',
    ],
)
def test_whatIsNoListOfGpusIsUnknown(text):
    """A list that was cut off is not read as a shorter one, and nothing is no empty list."""
    assert readSmi(text) is None


@pytest.mark.parametrize("text", ["[]\n", GROUPS + '\n{"gpu_data": []}\n'])
def test_anEmptyListIsAnAnswer(text):
    """A tool that lists no GPU has answered."""
    assert readSmi(text) == ()


@given(st.text())
def test_anyTextMayStandBeforeTheJson(text):
    """Whatever a tool prints first: the list behind it is found."""
    assert readSmi(text + "\n" + _amdSmi(PCI[:1])) == (ToolGpu(0, PCI[0]),)


@given(st.one_of(st.text(), st.text(alphabet='[]{}",:0 \n\\gpu'), st.binary().map(repr)))
def test_noTextMakesTheReadersRaise(text):
    """Junk is not understood, which is no error."""
    readSmi(text)
    readRocminfo(text)
    readRocminfo(CPU_AGENT + text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner)
    | st.dictionaries(st.sampled_from(["gpu", "bdf", "gpu_data", "card0", "PCI Bus"]), inner),
)


@given(_JSON)
def test_anyJsonIsReadOrUnknown(value):
    """Values of any type where a number, an address or a row is expected."""
    for gpu in readSmi(json.dumps(value)) or ():
        assert isinstance(gpu.pciAddress, str) and (gpu.number is None or gpu.number >= 0)


def test_rocminfosAgentsAreRead():
    """GPUs alone, in order, each fact from its own agent; the ISA's name is not the agent's."""
    text = _rocminfo([0x300, 0x10004300]).replace("GPU-%016x" % 2, "GPU-XX")
    assert readRocminfo(text) == (
        ToolGpu(0, "03:00.0", "gfx90a", "AMD Instinct MI210", 104, "%016x" % 1),
        ToolGpu(1, "43:00.0", "gfx90a", "AMD Instinct MI210", 104, ""),
    )
    assert readRocminfo(CPU_AGENT) == ()
    assert readRocminfo("ROCk module is NOT loaded, possibly no GPU devices\n") is None


# -- asking -------------------------------------------------------------------------------------


def test_theNextSourceIsAsked(tmp_path):
    """Case 9: amd-smi sleeps, so rocm-smi is asked; rocminfo fails, which is one line."""
    _tool(tmp_path / "bin", "amd-smi", "echo $$ > %s/pid; exec /bin/sleep 60" % tmp_path)
    _prints(tmp_path / "bin", "rocm-smi", LOW_POWER + _rocmSmi(PCI[:1]))
    _tool(tmp_path / "bin", "rocminfo", "echo 'ROCk module is NOT loaded'; exit 1")
    answers = askTools(Machine(tmp_path), timeout=2)
    assert answers[0] == ToolAnswer("amd-smi", (), "amd-smi did not answer within 2 s")
    assert [gpu.pciAddress for gpu in answers[1].gpus] == PCI[:1] and not answers[1].failure
    words = "rocminfo ended with status 1: ROCk module is NOT loaded"
    assert answers[2] == ToolAnswer("rocminfo", (), words)
    assert not _isAlive(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "body, failure",
    [
        ("exit 1", "amd-smi ended with status 1"),
        ("echo '[]'; echo oops >&2; exit 255", "amd-smi ended with status 255: oops"),
        ("echo; exit 0", "amd-smi printed no list of GPUs: nothing"),
        ("echo '[{]'", "amd-smi printed no list of GPUs: [{]"),
        ("kill -SEGV $$", "amd-smi ended with status -11"),
        (None, "amd-smi is not installed"),
    ],
)
def test_aFailedSourceIsUnknown(tmp_path, body, failure):
    """Case 9: empty with exit 1, nonsense, a crash, nothing there: one line, no disagreement."""
    _machine(tmp_path, LOCATIONS[:1])
    if body is not None:
        _tool(tmp_path / "bin", "amd-smi", body)
    system = Machine(tmp_path)
    notes = crossCheck(system, scanDevices(system))
    assert notes == (
        SourceNote("amd-smi", True, "unknown: " + failure),
        SourceNote("rocm-smi", True, "unknown: rocm-smi is not installed"),
        SourceNote("rocminfo", True, "unknown: rocminfo is not installed"),
    )


def test_rocmsOwnFolderIsLookedInAsWell(tmp_path):
    """A tool is often not on the PATH; and rocm-smi is not asked where amd-smi has answered."""
    (tmp_path / "rocm").mkdir()
    _prints(tmp_path / "rocm/bin", "amd-smi", _amdSmi(PCI[:1]))
    _tool(tmp_path / "rocm/bin", "rocm-smi", "echo asked > %s/asked" % tmp_path)
    answers = askTools(Machine(tmp_path))
    assert [answer.source for answer in answers] == ["amd-smi", "rocminfo"]
    assert answers[0].gpus == (ToolGpu(0, PCI[0]),)
    assert not (tmp_path / "asked").exists()


def test_emulatedDevicesAreNotCompared(tmp_path):
    """No tool knows them, so none is asked."""
    _tool(tmp_path / "bin", "amd-smi", "echo asked > %s/asked" % tmp_path)
    system = Machine(tmp_path)
    assert crossCheck(system, scanDevices(system, emulate=2)) == ()
    assert not (tmp_path / "asked").exists()


# -- comparing ----------------------------------------------------------------------------------


def test_agreementIsOneLinePerTool(tmp_path):
    """The same GPUs in the same order: nothing but that is said."""
    _machine(tmp_path, LOCATIONS)
    _prints(tmp_path / "bin", "amd-smi", _amdSmi(PCI))
    _prints(tmp_path / "bin", "rocminfo", _rocminfo(LOCATIONS))
    system = Machine(tmp_path)
    assert crossCheck(system, scanDevices(system)) == (
        SourceNote("amd-smi", True, "amd-smi lists what is visible: 8 GPUs"),
        SourceNote("rocminfo", True, "rocminfo lists what is visible: 8 GPUs"),
    )


@pytest.mark.parametrize(
    "masks, number",
    [
        ({"HIP_VISIBLE_DEVICES": "2"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "2"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "5"}, 5),
        ({"ROCR_VISIBLE_DEVICES": "4,5,6", "HIP_VISIBLE_DEVICES": "1"}, 5),
    ],
)
def test_theToolsIgnoreTheMasks(tmp_path, masks, number):
    """Case 2: amd-smi lists eight, one is visible: explained, and which of them it is."""
    _machine(tmp_path, LOCATIONS)
    _prints(tmp_path / "bin", "amd-smi", _amdSmi(PCI))
    # rocminfo obeys ROCr's variable.
    rocr = masks.get("ROCR_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7").split(",")
    locations = [LOCATIONS[int(token)] for token in rocr]
    text = _rocminfo(locations)
    for place, token in enumerate(rocr, 1):
        text = text.replace("GPU-%016x" % place, "GPU-unknown-%s" % token)
    _prints(tmp_path / "bin", "rocminfo", text)
    system = Machine(tmp_path, **masks)
    scan = scanDevices(system)
    assert [device.pciAddress for device in scan.devices] == [PCI[number]]
    notes = crossCheck(system, scan)
    names = ["%s=%s" % item for item in masks.items()]
    beyond = [name for name in names if not name.startswith("ROCR")]
    assert notes == (
        SourceNote(
            "amd-smi", True, "amd-smi lists 8 GPUs, 1 is visible: it ignores " + " and ".join(names)
        ),
        SourceNote(
            "amd-smi",
            True,
            "amd-smi numbers GPUs in its own way: its GPU %d is device 0 here" % number,
        ),
        SourceNote(
            "rocminfo",
            True,
            (
                "rocminfo lists %d GPUs, 1 is visible: it ignores %s" % (len(rocr), beyond[0])
                if beyond
                else "rocminfo lists what is visible: 1 GPU"
            ),
        ),
    )


def test_whatNothingHidesIsADisagreement(tmp_path):
    """No variable is set and amd-smi lists a GPU more; then one that it does not list."""
    _machine(tmp_path, LOCATIONS[:2])
    system = Machine(tmp_path)
    scan = scanDevices(system)
    more = ToolAnswer("amd-smi", readSmi(_amdSmi(PCI[:3])))
    less = ToolAnswer("rocm-smi", readSmi(_rocmSmi(PCI[1:2])))
    text = "amd-smi lists 3 GPUs, 2 are visible, and nothing hides 0000:43:00"
    assert compareSources(scan, [more], {}) == (SourceNote("amd-smi", False, text),)
    assert compareSources(scan, [less], {})[0] == SourceNote(
        "rocm-smi", False, "rocm-smi does not list device 0 (0000:03:00.0), visible here"
    )
    # A mask explains what is hidden, and never what is missing.
    masks = {"HIP_VISIBLE_DEVICES": "0,1"}
    assert [note.ok for note in compareSources(scan, [more, less], masks)[:2]] == [True, False]


def test_whyNothingIsVisibleIsSaid(tmp_path):
    """Where no device was found the reason stands beside what the tool lists."""
    system = Machine(tmp_path)
    answer = ToolAnswer("amd-smi", readSmi(_amdSmi(PCI[:1])))
    (note,) = compareSources(scanDevices(system), [answer], {})
    assert not note.ok
    assert note.text.startswith("amd-smi lists 1 GPU, none is visible, and no AMD GPU can be used")


def test_closedRenderNodesExplainAsWell(tmp_path):
    """Case 8's container: the tools read /sys and list GPUs that cannot be opened."""
    _machine(tmp_path, LOCATIONS[:4], closed=(1, 3, 4))
    system = Machine(tmp_path)
    scan = scanDevices(system)
    answer = ToolAnswer("amd-smi", readSmi(_amdSmi(PCI[:4])))
    notes = compareSources(scan, [answer], {}, readTopology(system))
    assert _texts(notes)[0] == (
        "amd-smi lists 4 GPUs, 1 is visible: the render nodes of 3 cannot be opened here, "
        "as in a container"
    )
    assert all(note.ok for note in notes)
    assert not compareSources(scan, [answer], {})[0].ok


def test_numbersAreJoinedOnThePciAddress(tmp_path):
    """Case 5 (pytorch 131901, rocm_smi_lib 122): smi 0-3 are HIP's devices 2, 0, 3, 1."""
    _machine(tmp_path, LOCATIONS[:4])
    system = HipMachine(tmp_path)
    system.order = [PCI[1], PCI[3], PCI[0], PCI[2]]
    scan = scanDevices(system)
    for text in (_amdSmi(PCI[:4]), _rocmSmi(PCI[:4])):
        answer = ToolAnswer("amd-smi", readSmi(text))
        assert smiOrdinals(scan, answer, {}) == {0: 2, 1: 0, 2: 3, 3: 1}
        assert _texts(compareSources(scan, [answer], {})) == [
            "amd-smi lists what is visible: 4 GPUs",
            "amd-smi numbers GPUs in its own way: its GPU 0 is device 2 here, "
            "its GPU 1 is device 0 here, its GPU 2 is device 3 here, its GPU 3 is device 1 here",
        ]


CARD = 0x0500
KERNELS = {
    "one address": [CARD] * 8,
    "partition in bits 28 to 31": [CARD | k << 28 for k in range(8)],
    "partition in the function": [CARD | k for k in range(8)],
}
SMI_ROWS = {
    "N/A": ["0000:05:00.0"] + ["N/A"] * 7,
    "one address": ["0000:05:00.0"] * 8,
    "functions": ["0000:05:00.%d" % k for k in range(8)],
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", SMI_ROWS)
def test_partitionsAreDevicesOfOneCard(tmp_path, kernel, rows):
    """Case 6: eight partitions, however kernel and tool write their addresses, are in agreement;
    hidden ones are explained, missing and surplus ones are not."""
    _machine(tmp_path, KERNELS[kernel])
    system = Machine(tmp_path)
    scan = scanDevices(system)
    assert len(scan.devices) == 8
    answer = ToolAnswer("amd-smi", readSmi(_amdSmi(SMI_ROWS[rows])))
    rocminfo = ToolAnswer("rocminfo", readRocminfo(_rocminfo(KERNELS[kernel])))
    notes = compareSources(scan, [answer, rocminfo], {})
    assert notes == (
        SourceNote("amd-smi", True, "amd-smi lists what is visible: 8 GPUs"),
        SourceNote("rocminfo", True, "rocminfo lists what is visible: 8 GPUs"),
    )
    expected = {} if rows == "N/A" else {k: k for k in range(8)}
    assert smiOrdinals(scan, answer, {}) == expected

    masked = Machine(tmp_path, HIP_VISIBLE_DEVICES="3,1")
    notes = compareSources(scanDevices(masked), [answer], masked.environment)
    assert _texts(notes) == [
        "amd-smi lists 8 GPUs, 2 are visible: it ignores HIP_VISIBLE_DEVICES=3,1"
    ]
    assert smiOrdinals(scanDevices(masked), answer, masked.environment) == {}

    fewer = ToolAnswer("amd-smi", answer.gpus[:7])
    more = ToolAnswer("amd-smi", answer.gpus + answer.gpus[-1:])
    assert not compareSources(scan, [fewer], {})[0].ok
    assert not compareSources(scan, [more], {})[0].ok


def test_factsThatDifferAreTold(tmp_path):
    """Architecture, unique id and compute units of a device, where rocminfo has others."""
    _machine(tmp_path, LOCATIONS[:2])
    scan = scanDevices(Machine(tmp_path))
    same = ToolAnswer("rocminfo", readRocminfo(_rocminfo(LOCATIONS[:2], units=208)))
    other = ToolAnswer("rocminfo", readRocminfo(_rocminfo(LOCATIONS[1::-1], "gfx942", 38)))
    # Twice the units is another way to count them.
    assert [note.ok for note in compareSources(scan, [same], {})] == [True]
    notes = compareSources(scan, [other], {})
    assert [note.ok for note in notes] == [True] + [False] * 6
    ours = "device 0 (0000:03:00.0) is %s by the kernel's KFD topology, %s by rocminfo"
    assert _texts(notes)[1:4] == [
        ours % ("gfx90a", "gfx942"),
        ours % ("%016x" % 1, "%016x" % 2),
        ours % ("104 CUs", "38 CUs"),
    ]


def test_domainsTellCardsApart(tmp_path):
    """MI300A: the same bus in several PCI domains (rocm_smi_lib 208), which rocminfo omits."""
    _machine(tmp_path, [0x0100] * 2)
    second = tmp_path / "sys/class/kfd/kfd/topology/nodes/2/properties"
    second.write_text(second.read_text().replace("domain 0", "domain 1"))
    scan = scanDevices(Machine(tmp_path))
    answers = [
        ToolAnswer("amd-smi", readSmi(_amdSmi(["0001:01:00.0", "0000:01:00.0"]))),
        ToolAnswer("rocminfo", readRocminfo(_rocminfo([0x0100] * 2))),
    ]
    assert smiOrdinals(scan, answers[0], {}) == {0: 1, 1: 0}
    assert all(note.ok for note in compareSources(scan, answers, {}))
    wrong = ToolAnswer("amd-smi", readSmi(_amdSmi(["0002:01:00.0", "0000:01:00.0"])))
    assert [note.ok for note in compareSources(scan, [wrong], {})][:2] == [False, False]


# -- the host's enumerators (Tensile 1298, rocm-libraries 6183) -----------------------------------


@pytest.mark.parametrize(
    "printed, expected",
    [
        # rocm_agent_enumerator: the CPU first (hcc 663, llama.cpp 11209).
        ("gfx000\ngfx942\ngfx1100\n", ("gfx942", "gfx1100")),
        # Some releases print a blank line for it; one line per GPU (iree 22283).
        ("\ngfx942\ngfx942\n", ("gfx942", "gfx942")),
        # With features, as HIP's gcnArchName has them.
        ("gfx90a:sramecc+:xnack-\r\n  gfx1036  \n", ("gfx90a", "gfx1036")),
        # No GPU is an answer (legacy-rocm-build 223 has the CPU's line alone).
        ("", ()),
        ("gfx000\n", ()),
        # Not the name of a GPU; a name within a line counts, because it does for the hosts.
        ("ROCk module is loaded\ngfx\ngfx9-4-generic\nfound gfx942 here\n", ("gfx942",)),
    ],
)
def test_enumeratorsNameTheGpusAlone(tmp_path, printed, expected):
    """Case 25: the CPU, features, blank and other lines do not count; nothing is no failure."""
    (tmp_path / "printed").write_text(printed)
    path = _tool(tmp_path / "bin", "amdgpu-arch", "cat %s" % (tmp_path / "printed"))
    assert readEnumerator(System(), path) == EnumeratorAnswer(expected)


def test_aFailingEnumeratorSaysWhy(tmp_path):
    """Case 25: a failure is told apart from "no GPU", with the tool's own last words."""
    path = _tool(tmp_path, "rocm_agent_enumerator", "echo gfx90a; echo 'no /dev/kfd' >&2; exit 3")
    answer = readEnumerator(System(), path)
    assert answer.architectures == ("gfx90a",)
    assert answer.failure == "%s ended with status 3: no /dev/kfd" % path
    missing = readEnumerator(System(), str(tmp_path / "none"))
    assert missing.architectures == () and "cannot be run" in missing.failure


def test_aSlowEnumeratorIsNotWaitedFor(tmp_path):
    """Case 25: the enumerator has a time limit, and what it started ends with it."""
    path = _tool(tmp_path, "amdgpu-arch", "echo $$ > %s/pid; sleep 60" % tmp_path)
    answer = readEnumerator(System(), path, timeout=2)
    assert answer == EnumeratorAnswer((), "amdgpu-arch did not answer within 2 s")
    assert not _isAlive(int((tmp_path / "pid").read_text()))


def _isAlive(pid):
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
