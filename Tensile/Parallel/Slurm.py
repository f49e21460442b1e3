# SPDX-License-Identifier: MIT
"""A scheduler here and Slurm jobs that join it, for one run: --slurm N.

    slurmCluster --(dask-jobqueue: a job's head, from Dask's configuration)--> sbatch, N times
        each job: TensileParallel --join SCHEDULER --leave-after SECONDS
        at the end, and whatever ends the run: scancel

Of dask-jobqueue only the text of a job script is used: sbatch, squeue and scancel are run here,
so that what they say is one line, and no job is forgotten. Where this process is killed, its
scheduler ends with it, and the jobs leave by themselves.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from .Cluster import Cluster
from .Errors import InputError, RunError, firstLine
from .LocalCluster import joinWords, ownCommand, ownScheduler
from .ParseArguments import RunSettings
from .Terminal import tell

# The section of Dask's configuration, as dask-jobqueue names it.
SECTION = "jobqueue.slurm"
# So long before its time limit a job is told to leave, in seconds; and only its first process is,
# for a client that gets the signal as well cannot give its unit back.
NOTICE = "--signal=B:TERM@60"
# How often Slurm is asked whether there are jobs to wait for, in seconds.
ASK_SECONDS = 5.0
# Since when nobody else has joined, so that a run begins with those that start together.
SETTLE_SECONDS = 3.0
# How long a program of Slurm may take, in seconds.
PROGRAM_SECONDS = 120.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def slurmCluster(settings: RunSettings) -> Iterator[str]:
    """Slurm jobs, each of which joins with its devices; the name of the scheduler's file.

    What a job asks for (partition, account, GPUs, time) is Dask's configuration (docs/cluster.md).

    Raises:
        InputError: dask-jobqueue is not installed, something is not configured, or sbatch refuses.
        RunError: all jobs have ended before one has joined.
    """
    if shutil.which("sbatch") is None:
        raise InputError("--slurm: there is no sbatch here: run this where jobs are submitted")
    configured = _configuration()
    options = _schedulerOptions(configured)
    with _endedBySignals(), ownScheduler("--slurm", options) as scheduler:
        jobs = SlurmJobs()
        try:
            for number in range(settings.slurm):
                command = jobCommand(settings, configured, scheduler.address, number)
                jobs.submit(jobScript(configured, command))
            tell("TensileParallel: Slurm job(s) %s" % " ".join(jobs.ids))
            _awaitFirst(jobs, scheduler.file, settings.slurm)
            yield scheduler.file
        finally:
            jobs.cancel()


# A value of Dask's configuration of Slurm jobs, by its name there; None where it is not set.
Configured = Callable[[str], Any]


def _configuration() -> Configured:
    """Dask's configuration of Slurm jobs, with dask-jobqueue's defaults.

    Raises:
        InputError: dask-jobqueue is not installed.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        import dask
        import dask_jobqueue.slurm  # noqa: F401  (it adds its defaults)
    except ImportError:
        raise InputError("--slurm needs dask-jobqueue: pip install dask-jobqueue") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # its import has Ctrl-C end the process with status 0
    # By Dask's own look-up, to which job-cpu and job_cpu are one name.
    return lambda name: dask.config.get("%s.%s" % (SECTION, name), None)


def _schedulerOptions(configured: Configured) -> Dict[str, Any]:
    """Where the scheduler listens: the nodes reach it there, and so may others.

    Raises:
        InputError: it was not said, or there is no such interface.
    """
    options = dict(configured("scheduler-options") or {})
    interface = options.pop("interface", None) or configured("interface")
    if interface and not options.get("host"):
        from distributed.utils import get_ip_interface

        try:
            options["host"] = get_ip_interface(interface)
        except (ValueError, KeyError) as error:
            raise InputError("%s.interface: %s" % (SECTION, firstLine(str(error)))) from None
    if not options.get("host"):
        raise InputError(
            "--slurm: on which network is the scheduler to listen? Write `interface: ib0` (or as "
            "yours is called) below %s in ~/.config/dask/jobqueue.yaml; docs/cluster.md" % SECTION
        )
    return options


def jobCommand(settings: RunSettings, configured: Configured, address: str, number: int) -> str:
    """The last line of a job's script.

    Args:
        settings: of the run.
        configured: Dask's configuration of Slurm jobs.
        address: the scheduler's.
        number: tells apart jobs that Slurm puts on one node.
    """
    words = ownCommand(configured("python") or sys.executable)
    words += ["--join", address, *joinWords(settings)]
    if configured("death-timeout"):
        words += ["--leave-after", str(configured("death-timeout"))]
    # exec: the signal before the time limit goes to the script's own process.
    return 'exec %s --node-name "$(hostname)-%d"' % (shlex.join(words), number)


def jobScript(configured: Configured, command: str) -> str:
    """A job's script, with the head that dask-jobqueue makes of its configuration.

    Args:
        configured: Dask's configuration of Slurm jobs.
        command: what the job runs.

    Raises:
        InputError: dask-jobqueue takes the configuration for none.
    """
    from dask_jobqueue.slurm import SLURMJob

    keywords: Dict[str, Any] = {}
    skipped = list(configured("job-directives-skip") or [])
    # It wants to know how large Dask's worker is. Where nobody says, the site's defaults are meant.
    if configured("cores") is None:
        keywords["cores"] = 1
        skipped += [] if configured("job-cpu") else ["--cpus-per-task="]
    if configured("memory") is None:
        keywords["memory"] = "1 GB"
        skipped += [] if configured("job-mem") else ["--mem="]
    if configured("name") == "dask-worker":
        keywords["job_name"] = "TensileParallel"
    directives = list(configured("job-extra-directives") or [])
    if not any("--signal" in each for each in directives):
        directives.append(NOTICE)
    try:
        job = SLURMJob(
            scheduler="",
            name="join",
            processes=1,
            job_extra_directives=directives,
            job_directives_skip=skipped,
            **keywords,
        )
    except (ValueError, TypeError, OSError) as error:
        raise InputError("%s: %s" % (SECTION, firstLine(str(error)))) from None
    job._command_template = command  # in place of a Dask worker
    return str(job.job_script())


class SlurmJobs:
    """The jobs of a run.

    Attributes:
        ids: Slurm's, in the order in which they were submitted.
    """

    def __init__(self) -> None:
        self.ids: List[str] = []

    def submit(self, script: str) -> None:
        """Submits a job.

        Raises:
            InputError: sbatch is missing or refuses.
        """
        process = _start(["sbatch"])
        try:
            output, errors = process.communicate(script)
        except BaseException:  # Ctrl-C: it may have submitted the job already
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._note(process.communicate(timeout=10.0)[0])
            raise
        if process.returncode or not self._note(output):
            reason = firstLine(errors or output) or "exit status %d" % process.returncode
            raise InputError("sbatch takes no job: %s" % reason)

    def _note(self, output: str) -> bool:
        found = re.search(r"\d+", output)
        if found:
            self.ids.append(found.group())
        return found is not None

    def left(self) -> Optional[bool]:
        """Whether one of them waits or runs; None where Slurm does not say."""
        words = ["squeue", "--noheader", "--format=%i", "--jobs=" + ",".join(self.ids)]
        try:
            process = _start(words)
            output, errors = process.communicate(timeout=PROGRAM_SECONDS)
        except (InputError, subprocess.TimeoutExpired):
            return None
        if process.returncode and "Invalid job id" not in errors:  # it forgets jobs that ended
            return None
        return bool(output.split())

    def cancel(self) -> None:
        """Cancels what is left of them."""
        if not self.ids:
            return
        try:
            process = _start(["scancel", *self.ids])
            _, errors = process.communicate(timeout=PROGRAM_SECONDS)
            failure = firstLine(errors) or "exit status %d" % process.returncode
            problem = failure if process.returncode else ""
        except (InputError, subprocess.TimeoutExpired) as error:
            problem = firstLine(str(error))
        if problem and self.left() is not False:
            text = "TensileParallel: note: scancel %s failed (%s): they leave by themselves"
            tell(text % (" ".join(self.ids), problem), sys.stderr)


def _start(words: Sequence[str]) -> "subprocess.Popen[str]":
    """A program of Slurm, out of the way of the terminal's Ctrl-C.

    Raises:
        InputError: it is not there.
    """
    try:
        return subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        text = "--slurm: %s: %s: run this where jobs are submitted"
        raise InputError(text % (words[0], error.strerror or error)) from None


def _awaitFirst(jobs: SlurmJobs, file: str, count: int) -> None:
    """Waits, as long as Slurm lets the jobs wait, until some have joined.

    Raises:
        RunError: all have ended.
    """
    cluster = Cluster("", file)
    cluster.connect()
    try:
        asked, gone, said = time.monotonic(), 0, False
        while not cluster.members():
            time.sleep(0.2)
            if time.monotonic() - asked < ASK_SECONDS:
                continue
            if not said:
                tell("TensileParallel: waiting for the first job to join")
            said = True
            # Twice: a job that was just submitted may not be listed yet.
            gone = gone + 1 if jobs.left() is False else 0
            asked = time.monotonic()
            if gone > 1:
                raise RunError(
                    "the Slurm job(s) %s have ended, and none has joined: their output "
                    "(slurm-JOB.out, or below log-directory) says why" % " ".join(jobs.ids)
                )
        known, since = 0, time.monotonic()
        while time.monotonic() - since < SETTLE_SECONDS:
            time.sleep(0.2)
            if len(cluster.members()) != known:
                known, since = len(cluster.members()), time.monotonic()
        joined = len({member.node for member in cluster.members()})
        tell("TensileParallel: %d of %d Slurm job(s) have joined" % (joined, count))
    finally:
        cluster.close()


@contextlib.contextmanager
def _endedBySignals() -> Iterator[None]:
    """A signal before the run has its own handlers ends it by way of what is to be tidied up."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {n: signal.getsignal(n) for n in _SIGNALS if signal.getsignal(n) in usual}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
