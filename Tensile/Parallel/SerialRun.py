# SPDX-License-Identifier: MIT
"""The serial run: this process becomes the host's own command, where no device can be used."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Optional

from .CommandLine import hostOptionValue
from .ConfigSteps import globalParameters
from .Devices import DeviceScan
from .Errors import InputError
from .Host import Host, ourRoot, serialCommand
from .HostClock import asksForClock, mayHangWithoutTerminal
from .ParseArguments import RunSettings
from .RunConfig import globalParameter
from .RunLog import sayNotes
from .SerialLock import lockForSerial
from .Terminal import tell


def becomeSerial(
    settings: RunSettings, host: Host, config: Any, reason: str, scan: Optional[DeviceScan] = None
) -> int:
    """Become the host's own command, with the user's own arguments, holding its GPU's lock.

    Raises:
        RunError: another run holds that GPU, with --no-wait.
    """
    arguments = list(settings.hostArguments)
    client = settings.client
    if client is None and settings.emulate:
        client = _emulatedClient()
        if any(letter.isspace() for letter in client):
            raise InputError(
                "%r has a space in its path; Tensile's run.sh does not quote: a serial emulated "
                "run needs a checkout elsewhere" % client
            )
    if client is not None and settings.prebuiltClient is None:
        # In front, so that neither `--` nor an option with many values can swallow it.
        arguments = ["--prebuilt-client", client] + arguments
    environment = dict(os.environ)
    if settings.emulate:
        environment["TENSILE_EMULATED_DEVICES"] = str(settings.emulate)
        # The host starts the emulated client by its path, so `env python3` chooses its Python:
        # it has to be this one, which has msgpack.
        folders = [os.path.dirname(sys.executable), environment.get("PATH", os.defpath)]
        environment["PATH"] = os.pathsep.join(folders)
    if globalParameter(settings, config, "PinClocks"):
        sayNotes(
            ["PinClocks is left as it is: Tensile pins the clocks of GPU 0, whichever it uses"]
        )
    device = _serialDevice(settings, config)
    why = reason or "no device can be used"
    tell("TensileParallel: serial Tensile on device %s: %s" % (device, why), sys.stderr)
    if settings.emulate:
        tell("TensileParallel: EMULATED: the times will be made up", sys.stderr)
    _sayOfClock(settings, host, config)
    named = globalParameters(config)
    command, environment = serialCommand(host, arguments, environment, "DeviceList" in named)
    lockForSerial(
        device,
        scan,
        settings.emulate,
        wait=not settings.noWait,
        say=lambda line: tell("TensileParallel: %s" % line, sys.stderr),
    )
    os.execvpe(command[0], command, environment)


def _sayOfClock(settings: RunSettings, host: Host, config: Any) -> None:
    """A word on a question that serial Tensile will ask, where nobody could answer it."""
    if settings.maxFrequency is not None:
        sayNotes(["--max-frequency is not used: serial Tensile asks the GPU itself"])
    if not asksForClock(host, settings, config) or not mayHangWithoutTerminal(host):
        return
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        sayNotes(
            [
                "this Tensile asks the GPU for its clock, may install hip-python for that, and at "
                "last asks on the terminal. There is none: it may wait for ever. UseEffLike: False "
                "in the config's GlobalParameters avoids the question"
            ]
        )


def _serialDevice(settings: RunSettings, config: Any) -> str:
    """The GPU that the host will use.

    As the hosts have it (argUpdatedGlobalParameters in Tensile.py of all generations): a global
    parameter on the command line beats --device, which beats the config; --device 0 is as none.
    """
    given = settings.parameter("Device")
    option = hostOptionValue(settings.hostOptions, ("-d", "--device"))
    if given is None and option is not None and option.strip().strip("0"):
        return option.strip()
    device = globalParameter(settings, config, "Device")
    return "0" if device is None else str(device)


def _emulatedClient() -> str:
    """Path of TensileEmulatedClient: in the tree, or beside Python where we were installed."""
    name = "TensileEmulatedClient"
    beside = os.path.join(os.path.dirname(sys.executable), name)
    for path in (os.path.join(ourRoot(), "Tensile", "bin", name), beside, shutil.which(name)):
        if path and os.access(path, os.X_OK):
            return path
    raise InputError("%s is not installed: give an executable with --client" % name)
