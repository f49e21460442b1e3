# SPDX-License-Identifier: MIT
"""The rules by which ROCm hides devices, as the runtimes' public sources have them.

Two layers read two variables, and the upper one counts in what the lower one leaves:

- ROCr (ROCR-Runtime, runtime/hsa-runtime/core/runtime/amd_filter_device.cpp, class RvdFilter)
  reads ROCR_VISIBLE_DEVICES. Set but empty hides everything.
- HIP (clr, rocclr/device/rocm/rocdevice.cpp, Device::init) reads HIP_VISIBLE_DEVICES or, where
  that is empty, CUDA_VISIBLE_DEVICES. GPU_DEVICE_ORDINAL is read there for OpenCL alone.

An empty HIP_VISIBLE_DEVICES counts as unset here. Runtimes differ: up to ROCm 5.5 they do the
same, from 5.6 on (clr, rocclr/utils/flags.cpp, Flag::init) an empty variable is read as a blank,
which is no number and hides everything. So where a HIP runtime can be asked its answer stands,
and these rules serve where none can: the kernel's topology and emulated devices.

This module imports nothing and touches nothing: the emulated client uses it as well.
"""

from __future__ import annotations

import re
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

ROCR = "ROCR_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"
CUDA = "CUDA_VISIBLE_DEVICES"
OPENCL = "GPU_DEVICE_ORDINAL"
# AMD's container runtime reads it to decide which devices a container is given (AMD Container
# Toolkit, "Running workloads"). Inside, no runtime reads it: it is shown, and counts for nothing.
CONTAINER = "AMD_VISIBLE_DEVICES"
# Stands for a number of devices that nobody could tell.
UNKNOWN_COUNT = 1 << 31
# In a note: the user most likely meant more than the runtime reads.
ENDS_BEFORE = "ends before the token"
MASK_VARIABLES = (ROCR, HIP, CUDA, OPENCL)

# What C++'s `text == std::to_string(atoi(text))` accepts, less the negative numbers.
_PLAIN_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
# What strtol(text, &end, 0) reads to its end, once the text is trimmed and in capitals; as far as
# a device could have such a number.
_C_NUMBER = re.compile(r"[+-]?(0X[0-9A-F]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,18})", re.ASCII)


class Mask(NamedTuple):
    """The variable that HIP goes by, and its text."""

    variable: str
    text: str

    def __str__(self) -> str:
        return "%s=%s" % (self.variable, self.text)


class MaskResult(NamedTuple):
    """What a mask leaves of a list of devices.

    Attributes:
        visible: one (index into the list, token that names it) per device, in the mask's order.
        note: one line saying why the mask's text was not followed to its end; else empty.
    """

    visible: Tuple[Tuple[int, str], ...]
    note: str = ""

    @property
    def indices(self) -> Tuple[int, ...]:
        """The indices alone."""
        return tuple(index for index, _ in self.visible)


def hipMask(environment: Mapping[str, str]) -> Optional[Mask]:
    """The mask that HIP reads; None where it reads none.

    CUDA_VISIBLE_DEVICES counts only where HIP_VISIBLE_DEVICES is unset or empty.
    """
    for variable in (HIP, CUDA):
        text = environment.get(variable, "")
        if text:
            return Mask(variable, _withoutQuotes(text))
    return None


def maskTokens(text: str) -> List[str]:
    """The tokens of a list, as both runtimes cut it: a comma at the very end opens no token."""
    tokens = text.split(",")
    if len(tokens) > 1 and not tokens[-1]:
        tokens.pop()
    return tokens


def applyHip(mask: Mask, count: int, uuids: Sequence[str] = ()) -> MaskResult:
    """What HIP's mask leaves of `count` devices (rocdevice.cpp, Device::init).

    A token is a plain decimal number below count; the first that is not ends the list, a
    repeated one is passed over.

    Args:
        uuids: of those devices, where the runtime reads UUIDs as well (from ROCm 6.3 on).
    """
    visible: List[Tuple[int, str]] = []
    for token in maskTokens(mask.text):
        index = _hipIndex(token, uuids)
        if index is None or index >= count:
            return MaskResult(tuple(visible), _endsAt(mask, token, count))
        if index not in (seen for seen, _ in visible):
            visible.append((index, token))
    return MaskResult(tuple(visible))


def applyRocr(text: str, uuids: Sequence[str]) -> MaskResult:
    """What ROCR_VISIBLE_DEVICES leaves of the devices (amd_filter_device.cpp, RvdFilter).

    Tokens are trimmed; a number may be decimal, octal or hexadecimal; "GPU-..." is the start of
    exactly one UUID. What is out of range, not to be read, or named twice ends the list. No more
    tokens are read than there are devices.

    Args:
        text: the variable's value; empty hides everything.
        uuids: one per device in ROCr's order, such as "GPU-0123456789abcdef"; "" where a device
            has none.
    """
    mask = Mask(ROCR, text)
    if not text:
        return MaskResult((), "%s is set but empty, which hides every device" % ROCR)
    visible: List[Tuple[int, str]] = []
    for token in maskTokens(text)[: len(uuids)]:
        index = _rocrIndex(token, uuids)
        if index is None or index in (seen for seen, _ in visible):
            return MaskResult(tuple(visible), _endsAt(mask, token, len(uuids)))
        visible.append((index, token))
    return MaskResult(tuple(visible))


def emulatedUuids(environment: Mapping[str, str], count: int) -> List[str]:
    """UUIDs of emulated devices: GPU-1111111111111111 for device 0, GPU-2222222222222222 for 1.

    A UUID that ROCR_VISIBLE_DEVICES names and that no device has is taken as opaque: it becomes
    that of the first device which the list names in no other way. Every process that inherits
    the variable comes to the same answer.
    """
    uuids = []
    for number in range(1, count + 1):
        digit = "%x" % number
        uuids.append("GPU-" + (digit * 16 if len(digit) == 1 else "%016x" % number))
    tokens = [token.strip().upper() for token in maskTokens(environment.get(ROCR, ""))]
    named = {token: _rocrIndex(token, uuids) for token in tokens}
    free = (index for index in range(count) if index not in named.values())
    for token, index in named.items():
        if index is None and token.startswith("G") and 5 <= len(token) <= 20:
            index = next(free, None)
            if index is not None:
                uuids[index] = token
    return uuids


def emulatedVisible(environment: Mapping[str, str], count: int) -> Tuple[int, ...]:
    """Numbers of the emulated devices, of `count`, that an environment leaves, in HIP's order.

    A client's device-idx indexes this tuple; with a worker's environment it has one entry.
    """
    numbers = tuple(range(count))
    if ROCR in environment:
        uuids = emulatedUuids(environment, count)
        numbers = applyRocr(environment[ROCR], uuids).indices
    mask = hipMask(environment)
    if mask is None:
        return numbers
    return tuple(numbers[index] for index in applyHip(mask, len(numbers)).indices)


def _hipIndex(token: str, uuids: Sequence[str]) -> Optional[int]:
    """The number that a token of HIP's list means; None where it means none."""
    if _PLAIN_NUMBER.fullmatch(token):
        return int(token)
    found = [i for i, uuid in enumerate(uuids) if uuid and uuid.lower().startswith(token.lower())]
    return found[0] if token.startswith("GPU-") and len(found) == 1 else None


def _rocrIndex(token: str, uuids: Sequence[str]) -> Optional[int]:
    """The device that a token of ROCR_VISIBLE_DEVICES names; None where it names none."""
    token = token.strip().upper()
    if token.startswith("G"):
        if not 5 <= len(token) <= 20:
            return None
        found = [i for i, uuid in enumerate(uuids) if uuid.upper().startswith(token)]
        return found[0] if len(found) == 1 else None
    if not _C_NUMBER.fullmatch(token):
        return None
    octal = re.fullmatch(r"[+-]?0[0-7]+", token)
    index = int(token, 8 if octal else 0)
    return index if 0 <= index < len(uuids) else None


def _endsAt(mask: Mask, token: str, count: int) -> str:
    """One line for a token that ends a list."""
    if not count:
        right = "no device is left for it to name"
    elif count == UNKNOWN_COUNT:
        right = "it takes numbers from 0, without spaces, separated by commas"
    else:
        right = "it takes numbers from 0 to %d, without spaces, separated by commas" % (count - 1)
    return "%s %s %r: %s" % (mask, ENDS_BEFORE, token, right)


def _withoutQuotes(text: str) -> str:
    """The text without the one pair of double quotes that the runtime takes off (flags.cpp)."""
    quoted = re.fullmatch(r' *"(.*)" *', text, re.DOTALL)
    return quoted.group(1) if quoted else text
