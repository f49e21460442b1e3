# SPDX-License-Identifier: MIT
"""DeviceList: what is accepted, what is refused, and which devices it picks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Tensile.Parallel.DeviceList import (
    ALL_DEVICES,
    parseDeviceList,
    parseDeviceListText,
    parseDevicesOption,
    selectDevices,
)
from Tensile.Parallel.Devices import DeviceScan
from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit


def _scan(*architectures, integrated=(), units=104, reason=""):
    devices = tuple(
        Device(
            k, str(k), architecture=name, computeUnits=units if isinstance(units, int) else units[k]
        )
        for k, name in enumerate(architectures)
    )
    return DeviceScan(devices, "a test", integrated=frozenset(integrated), reason=reason)


def _ordinals(selection):
    return [device.ordinal for device in selection.devices]


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, None),
        ([], None),
        ([0], (0,)),
        ([2, 0], (2, 0)),
        ([1, 1, 2], (1, 1, 2)),
        ([-1], ALL_DEVICES),
        ([-1, 3], ALL_DEVICES),
    ],
)
def test_wellFormedLists(value, expected):
    """Integers from 0, or [-1] for all; absent, null and empty mean a serial run."""
    assert parseDeviceList(value) == expected


@pytest.mark.parametrize(
    "value",
    ["0,1", "", "all", 1.5, True, 0, -1, {}, {0: 1}, [True], [1.0], ["0"], [[0]], [-2], [-1, -2]]
    + [[None], [0, float("nan")], {0, 1}, b"01", (0, 1)],
    ids=repr,
)
def test_malformedListsAreRefusedInOneLine(value):
    """Anything else is exit status 2 and one line that shows the value and what is right."""
    with pytest.raises(InputError) as refused:
        parseDeviceList(value)
    text = str(refused.value)
    assert "\n" not in text and "[0, 1, 2]" in text and refused.value.exitStatus == 2
    assert repr(value)[:20] in text or "no list" in text


def test_aNumberOfNumpyIsNoInteger():
    """Only Python's own int: what YAML gives. A class that acts like one is refused."""

    class Number(int):
        pass

    with pytest.raises(InputError):
        parseDeviceList([Number(1)])


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), st.lists))
def test_everyValueIsReadOrRefused(value):
    """No value ends in another exception, and no message in several lines."""
    try:
        result = parseDeviceList(value)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert result is None or result == ALL_DEVICES or all(n >= 0 for n in result)


@pytest.mark.parametrize(
    "text, expected",
    [("0,2", (0, 2)), ("all", ALL_DEVICES), (" 0 , 1", (0, 1)), ("-1", ALL_DEVICES), ("7", (7,))],
)
def test_theOption(text, expected):
    """--devices takes 0,2 or all."""
    assert parseDevicesOption(text) == expected


def test_aNumberWithoutEndIsRefused():
    """Thousands of digits are one line, not a traceback."""
    with pytest.raises(InputError):
        parseDevicesOption("1" * 5000)


@pytest.mark.parametrize("text", ["", ",", "0,", "a", "0;1", "1.5", "-2", "[0]", "0 1", "\u0661"])
def test_theOptionRefusesTheRest(text):
    """--devices refuses what it does not know rather than run on fewer devices."""
    with pytest.raises(InputError, match="--devices"):
        parseDevicesOption(text)


@pytest.mark.parametrize(
    "text, expected", [("[0, 1]", (0, 1)), ("[-1]", ALL_DEVICES), ("None", None), ("[]", None)]
)
def test_theGlobalParameterText(text, expected):
    """--global-parameters DeviceList=... is a Python literal."""
    assert parseDeviceListText(text) == expected


@pytest.mark.parametrize("text", ["", "0,1", "[0", "exit()", "__import__('os')", "[x]", "'all'"])
def test_theGlobalParameterTextIsNeverRun(text):
    """It is read as a literal, not evaluated; what is none is refused."""
    with pytest.raises(InputError):
        parseDeviceListText(text)


def test_aMissingDeviceIsAWarning():
    """[0, 9] with 9 missing runs on 0, and says so."""
    selection = selectDevices((0, 9), _scan("gfx90a", "gfx90a"))
    assert _ordinals(selection) == [0] and selection.missing == (9,)
    assert any("9" in note and "devices 0 to 1" in note for note in selection.notes)


def test_strictRefusesAMissingDevice():
    """--strict makes it exit status 2."""
    with pytest.raises(InputError, match="device 9"):
        selectDevices((0, 9), _scan("gfx90a"), strict=True)


def test_allMissingIsASerialRunWithTheReason():
    """Nothing usable: an empty selection that says why."""
    selection = selectDevices((3,), _scan("gfx90a"))
    assert selection.devices == () and "device 3" in selection.reason
    hidden = selectDevices((0,), _scan(reason="HIP_VISIBLE_DEVICES=-1 hides every device"))
    assert "HIP_VISIBLE_DEVICES=-1" in hidden.reason
    assert (
        "HIP_VISIBLE_DEVICES=-1" in selectDevices(ALL_DEVICES, _scan(reason=hidden.reason)).reason
    )


def test_noListIsASerialRun():
    """Without a DeviceList there is nothing to select, whatever there is."""
    assert selectDevices(None, _scan("gfx90a")).devices == ()


def test_duplicatesCountOnce():
    """[1, 1, 2] is [1, 2], with a note."""
    selection = selectDevices((1, 1, 2), _scan("gfx90a", "gfx90a", "gfx90a"))
    assert _ordinals(selection) == [1, 2]
    assert any("1 more than once" in note for note in selection.notes)


@pytest.mark.parametrize("order", [("gfx1100", "gfx1036"), ("gfx1036", "gfx1100")])
def test_integratedGpusAreLeftOutOfAll(order):
    """[-1] beside a card leaves the integrated GPU out with a note; by name it is a mixture."""
    integrated = {order.index("gfx1036")}
    scan = _scan(*order, integrated=integrated)
    selection = selectDevices(ALL_DEVICES, scan)
    assert _ordinals(selection) == [order.index("gfx1100")]
    assert any("integrated" in note for note in selection.notes)
    with pytest.raises(InputError, match="gfx1036 .*gfx1100"):
        selectDevices((0, 1), scan)


def test_anIntegratedGpuAloneIsUsed():
    """Where there is nothing else it is what there is."""
    assert _ordinals(selectDevices(ALL_DEVICES, _scan("gfx1151", integrated={0}))) == [0]


def test_architecturesAreNotMixed():
    """One run tunes one architecture, also for [-1]; features do not make another."""
    with pytest.raises(InputError, match="gfx1100 .device 1.*gfx90a .device 0"):
        selectDevices(ALL_DEVICES, _scan("gfx90a", "gfx1100"))
    same = _scan("gfx90a:sramecc+:xnack-", "gfx90a")
    assert _ordinals(selectDevices(ALL_DEVICES, same)) == [0, 1]


def test_unequalDevicesAreAWarning():
    """Two products of one architecture differ in compute units: said, not refused."""
    selection = selectDevices(ALL_DEVICES, _scan("gfx942", "gfx942", units=[304, 80]))
    assert _ordinals(selection) == [0, 1]
    assert any("304" in note and "80" in note for note in selection.notes)
