# SPDX-License-Identifier: MIT
"""The visibility masks, by the rules of the runtimes' public sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Tensile.Parallel.Masks import Mask, applyHip, applyRocr, emulatedVisible, hipMask

pytestmark = pytest.mark.unit

UUIDS = ["GPU-00000000000000aa", "GPU-00000000000000ab", "", "GPU-ffffffffffffffff"]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("0,1", (0, 1)),
        ("3,0", (3, 0)),
        ("0, 1", (0,)),
        (" 0", ()),
        ("-1", ()),
        ("1,-1,2", (1,)),
        ("1,9,2", (1,)),
        ("01", ()),
        ("+1", ()),
        ("1x", ()),
        ("1,1,2", (1, 2)),
        ("1,", (1,)),
        (",1", ()),
        ("1,,2", (1,)),
        ("99999999999999999999", ()),
        ("\u0661", ()),
    ],
)
def test_hipReadsPlainNumbersUntilTheFirstThatIsNone(text, expected):
    """HIP takes a token only if it is a plain number in range; the first other ends the list."""
    assert applyHip(Mask("HIP_VISIBLE_DEVICES", text), 4).indices == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", ()),
        ("0,1", (0, 1)),
        (" 3 ,0", (3, 0)),
        ("-1", ()),
        ("0x1,010", (1,)),
        ("1,1,2", (1,)),
        ("GPU-ffff", (3,)),
        ("gpu-FFFF,0", (3, 0)),
        ("GPU-00", ()),
        ("GPU-", ()),
        ("0,GPU-5", (0,)),
        ("0,,1", (0,)),
        ("0,1,2,3,0", (0, 1, 2, 3)),
    ],
)
def test_rocrReadsNumbersAndUuids(text, expected):
    """ROCr trims, takes C numbers and unique beginnings of UUIDs, and ends at what is wrong."""
    assert applyRocr(text, UUIDS).indices == expected


def test_emptyHipIsUnsetAndCudaCountsOnlyThen():
    """CUDA_VISIBLE_DEVICES is HIP's mask only where HIP_VISIBLE_DEVICES is unset or empty."""
    assert hipMask({"HIP_VISIBLE_DEVICES": ""}) is None
    both = {"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}
    assert str(hipMask(both)) == "HIP_VISIBLE_DEVICES=2"
    assert str(hipMask({**both, "HIP_VISIBLE_DEVICES": ""})) == "CUDA_VISIBLE_DEVICES=1"
    assert hipMask({"GPU_DEVICE_ORDINAL": "1"}) is None


def test_quotesRoundAMaskAreTakenOff():
    """HIP takes one pair of double quotes off its variables."""
    assert hipMask({"HIP_VISIBLE_DEVICES": ' "0,1" '}).text == "0,1"


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, (0, 1, 2, 3)),
        ({"HIP_VISIBLE_DEVICES": "3,1"}, (3, 1)),
        ({"ROCR_VISIBLE_DEVICES": "3,1", "HIP_VISIBLE_DEVICES": "1"}, (1,)),
        ({"ROCR_VISIBLE_DEVICES": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ()),
        ({"ROCR_VISIBLE_DEVICES": "GPU-1111111111111111,GPU-2222222222222222"}, (0, 1)),
        ({"ROCR_VISIBLE_DEVICES": "GPU-2222222222222222"}, (1,)),
        ({"ROCR_VISIBLE_DEVICES": "GPU-deadbeefdeadbeef,0"}, (1, 0)),
        ({"ROCR_VISIBLE_DEVICES": "GPU-deadbeefdeadbeef,GPU-deadbeefdeadbeef"}, (0,)),
    ],
)
def test_emulatedDevicesObeyTheMasks(environment, expected):
    """Emulated devices are hidden and ordered as real ones, and any UUID stands for one."""
    assert emulatedVisible(environment, 4) == expected


@given(st.text(alphabet="0123456789,-G PUxa\n", max_size=24), st.integers(0, 9))
def test_noTextBreaksAMask(text, count):
    """Whatever stands in a variable, distinct devices in range come out."""
    for result in (
        applyHip(Mask("HIP_VISIBLE_DEVICES", text), count),
        applyRocr(text, ["GPU-%016x" % n for n in range(count)]),
    ):
        assert len(set(result.indices)) == len(result.indices)
        assert all(0 <= index < count for index in result.indices)


@given(st.text(alphabet="0123,G PU-", max_size=20), st.integers(1, 6), st.integers(0, 5))
def test_aPinnedEmulatedClientSeesItsDevice(rocr, count, ordinal):
    """HIP's number counts within any inherited ROCR list, and picks the same device there."""
    environment = {"ROCR_VISIBLE_DEVICES": rocr}
    visible = emulatedVisible(environment, count)
    if ordinal < len(visible):
        pinned = {**environment, "HIP_VISIBLE_DEVICES": str(ordinal)}
        assert emulatedVisible(pinned, count) == (visible[ordinal],)
