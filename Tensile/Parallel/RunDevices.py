# SPDX-License-Identifier: MIT
"""Which devices a run gets: this machine's, or those of a cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

from .CrossCheck import crossCheck
from .DeviceList import ALL_DEVICES, Selection, selectDevices
from .Devices import DeviceScan, scanDevices
from .Errors import InputError
from .Fleet import refuseNodesFolder
from .Locks import LOCKS_FOLDER, lookAtLocks
from .Neighbours import busyNotes
from .NodeFiles import describeFile
from .ParseArguments import RunSettings
from .Platform import System
from .QuietMachine import numaNotes
from .Types import Device

if TYPE_CHECKING:
    from .StepCluster import StepCluster


class OwnDevices:
    """This machine's."""

    # Where nobody has said which, none: the run is serial.
    usual: Any = None

    def __init__(self, settings: RunSettings) -> None:
        """Looks at nothing yet."""
        self._settings = settings

    def refuseSerial(self, reason: str) -> None:
        """Serial Tensile is at home on this machine."""

    def select(self, wanted: Any, outputs: str) -> Tuple[DeviceScan, Selection]:
        """What there is, and which of it is meant.

        Args:
            wanted: as DeviceList.py reads it.
            outputs: the run's folder of outputs.
        """
        settings = self._settings
        scan = scanDevices(System(), settings.emulate)
        selection = selectDevices(wanted, scan, settings.strict)
        if selection.missing or not scan.devices:
            # Only now: they take seconds, and nothing depends on what they say.
            others = tuple(note.text for note in crossCheck(System(), scan) if not note.ok)
            selection = replace(selection, notes=selection.notes + others)
        return scan, selection

    def notes(self, devices: Sequence[Device]) -> List[str]:
        """What may disturb the times on them."""
        return busyNotes(System(), devices) + numaNotes(System(), devices)

    def leave(self, client: Optional[str]) -> None:
        """They stay where they are."""

    def held(self, devices: Sequence[Device], outputs: str) -> List[str]:
        """What is to be said of devices that another run holds, before Tensile makes kernels.

        Raises:
            RunError: there is one, with --no-wait.
        """
        wait = not self._settings.noWait
        return lookAtLocks(devices, os.path.join(outputs, LOCKS_FOLDER), wait=wait)

    def refuseFolder(self, outputs: str) -> None:
        """Their numbers are other devices' where a cluster has used the folder.

        Raises:
            InputError: it has.
        """
        refuseNodesFolder(outputs, self._settings.fresh)


class ClusterDevices:
    """Those of every node that has joined."""

    usual: Any = ALL_DEVICES

    def __init__(self, settings: RunSettings, cluster: "StepCluster") -> None:
        """Asks nobody yet.

        Args:
            settings: the run's.
            cluster: connected.
        """
        self._settings = settings
        self._cluster = cluster

    def refuseSerial(self, reason: str) -> None:
        """Serial Tensile would run here, and here may be no GPU.

        Raises:
            InputError: there is a reason for it.
        """
        if reason:
            raise InputError(reason)

    def select(self, wanted: Any, outputs: str) -> Tuple[DeviceScan, Selection]:
        """Who is there, and which of them is meant, with their numbers in the folder."""
        selection = self._cluster.choose(wanted, self._settings.strict)
        if self._settings.noWait:
            self._cluster.refuseBusy()
        devices = tuple(self._cluster.number(outputs))
        return DeviceScan(devices, "the nodes"), replace(selection, devices=devices)

    def notes(self, devices: Sequence[Device]) -> List[str]:
        """Each join has said what is to be said of its own."""
        return []

    def leave(self, client: Optional[str]) -> None:
        """Ends the connection: each step makes its own.

        Raises:
            InputError: the nodes cannot run this client.
        """
        if client is not None:
            self._cluster.refuseOtherClient(describeFile(client, client=True))
        self._cluster.close()

    def held(self, devices: Sequence[Device], outputs: str) -> List[str]:
        """Each node's own business, which its steps tell."""
        return []

    def refuseFolder(self, outputs: str) -> None:
        """Nodes get numbers of their own."""


RunDevices = Union[OwnDevices, ClusterDevices]
