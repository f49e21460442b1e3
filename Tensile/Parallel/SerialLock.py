# SPDX-License-Identifier: MIT
"""The lock of a serial run: held by this process, and so by the program that it becomes.

A descriptor that exec leaves open goes on holding its lock, under the same process id, until that
program ends, however it ends. Nothing else of the program is touched.
"""

from __future__ import annotations

from typing import Callable, Optional

from .Devices import DeviceScan, scanDevices, scanTopology
from .Errors import RunError
from .Locks import LOCK_DIR_VARIABLE, DeviceInUse, DeviceLock, acquireLock
from .Platform import System


def lockForSerial(
    ordinal: str,
    scan: Optional[DeviceScan],
    emulate: int,
    wait: bool,
    say: Callable[[str], None],
    system: Optional[System] = None,
) -> Optional[DeviceLock]:
    """Lock the device that the program will use which this process is about to become.

    Args:
        ordinal: HIP's number for it, as a command line or a file has it.
        scan: the devices; None where nobody has looked: then the kernel's topology tells, which
            costs milliseconds and starts no runtime.
        emulate: number of emulated devices; these are locked where runs can meet, which is where
            TENSILE_PARALLEL_LOCK_DIR is set.
        wait: wait for another holder; else fail at once.
        say: gets a line for a person.

    Returns:
        The lock, for the program to inherit; None where no device is known by that number, or
        where there is no safe place for its lock: a serial run does without.

    Raises:
        DeviceInUse: another run holds it and wait is False.
    """
    system = system or System()
    if emulate and not system.environment.get(LOCK_DIR_VARIABLE):
        return None
    if scan is None:
        scan = scanDevices(system, emulate) if emulate else scanTopology(system)
    number = ordinal.strip()
    chosen = [device for device in scan.devices if str(device.ordinal) == number]
    if not chosen:
        if not emulate and system.exists("/dev/kfd"):
            say("device %s is not locked: it cannot be told which GPU that is" % _shown(number))
        return None
    try:
        lock = acquireLock(chosen[0], None, wait, say, system)
    except DeviceInUse:
        raise
    except RunError as error:
        say("device %s is not locked: %s" % (number, error))
        return None
    if lock.note:
        say(lock.note)
    lock.allowInheritance()
    return lock


def _shown(text: str) -> str:
    return text if len(text) < 20 else text[:20] + "..."
