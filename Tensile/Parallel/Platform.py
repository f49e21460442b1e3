# SPDX-License-Identifier: MIT
"""Every touch of the system: files below /sys, /dev and /proc, other programs, the environment.

Tests replace it: `System(root=...)` reads a folder of real text in place of the machine's own
files, and a subclass can answer for a program.
"""

from __future__ import annotations

import grp
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from types import MappingProxyType
from typing import FrozenSet, List, Mapping, Optional, Sequence

from .Terminal import oneLine

DEFAULT_TIMEOUT = 10.0
# The first HIP call of a process can take seconds on a machine of eight GPUs.
HIP_TIMEOUT = 60.0
# What a program gets to be gone after SIGKILL, in seconds.
KILLED_TIMEOUT = 5.0
HIP_ANSWER = "TENSILE_PARALLEL_HIP_ANSWER "

# Run by a Python of its own, so that our process never loads the runtime. Only calls whose
# signature has been the same since HIP 4 are used; hipDeviceProp_t changes its layout between
# versions, so the architecture is found in its bytes. 63 is
# hipDeviceAttributeMultiprocessorCount, 5 is hipDeviceAttributeClockRate, in kHz
# (hip_runtime_api.h; runtimes before HIP 4.5 have another attribute at 5, whose values are no
# clock that a GPU could have).
HIP_PROBE = r"""
import ctypes, json, os, re, sys

def load():
    names = ["libamdhip64.so"] + ["libamdhip64.so.%d" % n for n in (9, 8, 7, 6, 5, 4)]
    folders = [os.path.join(os.environ.get("ROCM_PATH") or "/opt/rocm", "lib")]
    for name in names + [os.path.join(folder, name) for folder in folders for name in names]:
        try:
            return ctypes.CDLL(name), name
        except OSError as error:
            if "cannot open shared object file" not in str(error):
                problems.append("%s: %s" % (name, error))
    raise SystemExit("; ".join(problems[:2]) or "libamdhip64.so is not installed")

def text(call, *arguments):
    buffer = ctypes.create_string_buffer(256)
    if call is None or call(buffer, 256, *arguments) != 0:
        return ""
    return buffer.value.decode("utf-8", "replace").strip()

def architecture(hip, index):
    for name in ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties"):
        call = getattr(hip, name, None)
        buffer = ctypes.create_string_buffer(1 << 16)
        if call is not None and call(buffer, index) == 0:
            found = re.search(rb"gfx[0-9a-f]{3,5}(:[a-z0-9+:-]+)?", buffer.raw)
            if found:
                return found.group().decode()
    return ""

def attribute(hip, number, index, least, most):
    value = ctypes.c_int(0)
    call = getattr(hip, "hipDeviceGetAttribute", None)
    failed = call is None or call(ctypes.byref(value), number, index) != 0
    return 0 if failed or not least <= value.value <= most else value.value

problems = []
hip, library = load()
count = ctypes.c_int(0)
status = hip.hipGetDeviceCount(ctypes.byref(count))
if status not in (0, 100):  # 100: hipErrorNoDevice
    raise SystemExit("%s: hipGetDeviceCount failed with error %d" % (library, status))
devices = [
    {
        "product": text(getattr(hip, "hipDeviceGetName", None), index),
        "pci": text(getattr(hip, "hipDeviceGetPCIBusId", None), index).lower(),
        "architecture": architecture(hip, index),
        "computeUnits": attribute(hip, 63, index, 1, 4095),
        "maxFrequency": attribute(hip, 5, index, 100000, 10000000) // 1000,
    }
    for index in range(count.value if status == 0 else 0)
]
print(sys.argv[1] + json.dumps({"library": library, "devices": devices}), flush=True)
os._exit(0)  # some runtimes crash in their exit handlers; the answer has been given
"""


@dataclass(frozen=True)
class ProgramResult:
    """What became of a program that was asked something.

    Attributes:
        argv: its command line.
        exitStatus: as Python gives it (negative for a signal); None if it did not start or end.
        stdout: its output as text; bytes that are not UTF-8 are replaced.
        stderr: likewise.
        failure: one line if it could not be started or did not end in time; else empty.
    """

    argv: Sequence[str]
    exitStatus: Optional[int]
    stdout: str = ""
    stderr: str = ""
    failure: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it ran to its end and said that all was well."""
        return not self.failure and self.exitStatus == 0


class System:
    """The machine, as seen by this process.

    Attributes:
        root: the folder that stands for "/" in every path given to the methods.
        environment: the user's environment; a copy, read only.
    """

    def __init__(
        self,
        root: str = "/",
        environment: Optional[Mapping[str, str]] = None,
        python: str = sys.executable,
    ) -> None:
        self.root = root
        self.environment: Mapping[str, str] = MappingProxyType(
            dict(os.environ if environment is None else environment)
        )
        self._python = python

    def realPath(self, path: str) -> str:
        """Where an absolute path such as "/dev/kfd" lies, below the root."""
        return os.path.join(self.root, path.lstrip("/"))

    def readText(self, path: str) -> Optional[str]:
        """A file's text; None where it cannot be read."""
        try:
            with open(self.realPath(path), encoding="utf-8", errors="replace") as stream:
                return stream.read()
        except OSError:
            return None

    def commandLine(self, pid: int) -> str:
        """A process's command line on one line; empty where it cannot be read."""
        return oneLine((self.readText("/proc/%d/cmdline" % pid) or "").replace("\0", " "))

    def listFolder(self, path: str) -> List[str]:
        """The names in a folder, sorted as text; none where it cannot be read."""
        try:
            return sorted(os.listdir(self.realPath(path)))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is something at a path."""
        return os.path.exists(self.realPath(path))

    def canAccess(self, path: str) -> bool:
        """Whether permissions let us read and write a path, without opening it.

        Opening /dev/kfd makes this process one of the GPU's users, which it must not be.
        """
        return os.access(self.realPath(path), os.R_OK | os.W_OK)

    def canOpen(self, path: str) -> bool:
        """Whether a device file can really be opened, as ROCr opens it: to read and write.

        A container's device rules show only here: the file is there and its mode is right.
        """
        try:
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK
            os.close(os.open(self.realPath(path), flags))
        except OSError:
            return False
        return True

    def processors(self) -> FrozenSet[int]:
        """Numbers of the processors that this process may use."""
        if hasattr(os, "sched_getaffinity"):
            return frozenset(os.sched_getaffinity(0))
        return frozenset(range(os.cpu_count() or 1))

    def groups(self) -> FrozenSet[str]:
        """Names of the groups that this process is in; those without a name are left out."""
        names = set()
        for number in {os.getegid(), *os.getgroups()}:
            try:
                names.add(grp.getgrgid(number).gr_name)
            except KeyError:
                pass
        return frozenset(names)

    def findProgram(self, name: str) -> Optional[str]:
        """Where a program lies on the user's PATH."""
        return shutil.which(name, path=self.environment.get("PATH", os.defpath))

    def run(
        self,
        argv: Sequence[str],
        timeout: float = DEFAULT_TIMEOUT,
        environment: Optional[Mapping[str, str]] = None,
    ) -> ProgramResult:
        """Run a program to its end, or end it and its children at the time limit.

        Never raises for what the program does: a tool that is missing, silent, slow or broken
        is a result, and the caller asks somebody else.

        Args:
            argv: the command line; no shell reads it.
            timeout: seconds.
            environment: the whole environment; the user's own by default.
        """
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environment if environment is None else environment),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return ProgramResult(argv, None, failure="%s cannot be run: %s" % (argv[0], error))
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _endGroup(process)
            failure = "%s did not answer within %g s" % (os.path.basename(argv[0]), timeout)
            return ProgramResult(argv, None, failure=failure)
        except BaseException:
            _endGroup(process)
            raise
        return ProgramResult(argv, process.returncode, _decoded(stdout), _decoded(stderr))

    def hipProbe(
        self, timeout: float = HIP_TIMEOUT, environment: Optional[Mapping[str, str]] = None
    ) -> ProgramResult:
        """Ask the HIP runtime for its devices, in a short-lived child.

        The child inherits the user's environment, so the runtime itself applies every mask. Its
        answer is the line that starts with HIP_ANSWER; what else it prints is the runtime's.
        """
        argv = [self._python, "-I", "-S", "-c", HIP_PROBE, HIP_ANSWER]
        return self.run(argv, timeout, environment)


def _endGroup(process: subprocess.Popen) -> None:
    """End a program that is still running, with all its session, and reap it.

    Its pipes are closed here and not drained: a grandchild that kept them open would otherwise
    keep us waiting beyond the time limit. So would a program that sleeps in the driver, which
    not even SIGKILL ends (amd-smi, as vllm-omni 6704 has it): that one is left behind.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    try:
        process.wait(KILLED_TIMEOUT)
    except subprocess.TimeoutExpired:
        pass
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")
