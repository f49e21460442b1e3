# SPDX-License-Identifier: MIT
"""--slurm N with made-up programs of Slurm; the jobs, Dask and dask-jobqueue are real ones."""

import os
import re
import signal
import sys
from importlib.util import find_spec

import pytest
from conftest import ROOT
from FakeSlurm import FakeSlurm
from Processes import Marked, waitFor
from test_DocCommands import CONFIG

from Tensile.Parallel import Slurm
from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.ParseArguments import parseRunArguments
from Tensile.Parallel.Slurm import SlurmJobs

pytestmark = pytest.mark.unit
needsJobqueue = pytest.mark.skipif(
    find_spec("dask_jobqueue") is None, reason="dask_jobqueue is not installed"
)
COMMAND = [sys.executable, str(ROOT / "Tensile" / "bin" / "TensileParallel")]

# As docs/cluster.md has it, but for the network.
JOBQUEUE = """
jobqueue:
  slurm:
    queue: gpu
    account: tuning
    walltime: "24:00:00"
    interface: lo
    death_timeout: 5
    job_extra_directives: ["--nodes=1", "--exclusive", "--gpus-per-node=8", "--mem=0"]
    job_script_prologue: ["module() { :; }", "module load rocm"]
"""


class Site:
    """A machine on which jobs are submitted."""

    def __init__(self, folder):
        self.folder = folder
        self.slurm = FakeSlurm(folder / "slurm")
        (folder / "jobqueue.yaml").write_text(JOBQUEUE)
        (folder / "config.yaml").write_text(CONFIG.replace("[0]", "[-1]"))
        self.marked = Marked(
            DASK_CONFIG=str(folder),
            XDG_CACHE_HOME=str(folder / "cache"),
            TENSILE_PARALLEL_LOCK_DIR=str(folder / "locks"),
            PATH="%s:%s" % (self.slurm.bin, os.environ["PATH"]),
        )

    def start(self, *options):
        """A run."""
        words = [self.folder / "config.yaml", self.folder / "out", "--emulate", "1", *options]
        return self.marked.start([*COMMAND, *words])

    def output(self):
        """path -> content of what the last run has merged; the folder is gone then."""
        out = self.folder / "out"
        files = [p for p in (out / "merged_output").rglob("*") if p.is_file()]
        found = {str(p.relative_to(out)): p.read_bytes() for p in files}
        out.rename(out.with_name("out.%d" % len(list(self.folder.iterdir()))))
        return found


@needsJobqueue
@pytest.mark.slow
def test_aRunOnSlurmJobs(tmp_path):
    """Two jobs join and do the run; the output is that of a run on this machine; the jobs are
    asked for as Dask's configuration says; at the end they are cancelled and nothing is left."""
    site = Site(tmp_path)
    said, _ = site.start("--slurm", "2").communicate(timeout=120)
    # It begins with the first; on a busy machine the other may come too late for any work.
    assert re.search(r"[12] of 2 Slurm job\(s\) have joined", said), said
    assert re.search(r"on emulated devices 0 of \S+-[01]", said), said
    assert site.slurm.cancelled() == ["100", "101"]
    site.marked.assertNothingIsLeft()
    onSlurm = site.output()
    assert site.start().wait(timeout=120) == 0
    assert onSlurm == site.output()
    script = site.slurm.scripts()["101"]
    directives = re.findall(r"^#SBATCH (.*)$", script, re.M)
    assert directives == [
        "-J TensileParallel",
        "-p gpu",
        "-A tuning",
        "-n 1",
        "-t 24:00:00",
        "--nodes=1",
        "--exclusive",
        "--gpus-per-node=8",
        "--mem=0",
        "--signal=B:TERM@60",
    ]
    last = script.rstrip().splitlines()[-1]
    assert "module load rocm\nexec %s" % sys.executable in script
    assert "--emulate 1 --leave-after 5 --node-name" in last


@needsJobqueue
def test_theEndWhileJobsWait(tmp_path):
    """Ctrl-C while Slurm has the jobs wait cancels them. (Importing dask-jobqueue alone would have
    Ctrl-C end the run with status 0, and the jobs go on.)"""
    site = Site(tmp_path)
    site.slurm.holdBack()
    process = site.start("--slurm", "2")
    waitFor(lambda: "101" in site.slurm.scripts())
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert site.slurm.cancelled() == ["100", "101"]
    site.marked.assertNothingIsLeft()


def test_aJoinLeavesWhereThereIsNoScheduler(tmp_path):
    """Jobs that nobody has cancelled do not keep their GPUs."""
    site = Site(tmp_path)
    words = ["--join", "tcp://127.0.0.1:1", "--emulate", "1", "--leave-after", "0.1"]
    said, _ = site.marked.start([*COMMAND, *words]).communicate(timeout=60)
    assert "is leaving: there is no scheduler" in said, said


def test_whatSlurmSays(tmp_path, monkeypatch):
    """A job that is submitted is known until it was cancelled; what sbatch refuses, and that there
    is none, is one line."""
    slurm = FakeSlurm(tmp_path)
    monkeypatch.setenv("PATH", "%s:%s" % (slurm.bin, os.environ["PATH"]))
    jobs = SlurmJobs()
    jobs.submit("#!/bin/sh\nexec sleep 100\n")
    assert jobs.ids == ["100"]
    waitFor(jobs.left)
    jobs.cancel()
    waitFor(lambda: jobs.left() is False)
    slurm.refuse("sbatch: error: invalid partition specified: gpu\nmore\n")
    with pytest.raises(InputError, match="^sbatch takes no job: .*partition specified: gpu$"):
        jobs.submit("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="^--slurm: sbatch: No such file or directory"):
        jobs.submit("#!/bin/sh\n")
    assert jobs.left() is None


def test_nothingIsStartedWithoutWhatItNeeds(tmp_path, monkeypatch):
    """Without sbatch or dask-jobqueue, and where it was not said where to listen: one line."""
    settings = parseRunArguments(["c.yaml", "out", "--slurm", "2"])
    with pytest.raises(InputError, match="^--slurm: there is no sbatch here"):
        Slurm.slurmCluster(settings).__enter__()
    monkeypatch.setenv("PATH", str(FakeSlurm(tmp_path).bin))
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(InputError, match="^--slurm needs dask-jobqueue"):
        Slurm.slurmCluster(settings).__enter__()
    monkeypatch.setattr(Slurm, "_configuration", lambda: lambda name: None)
    with pytest.raises(InputError, match="^--slurm: on which network"):
        Slurm.slurmCluster(settings).__enter__()
