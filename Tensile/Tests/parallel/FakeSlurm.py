# SPDX-License-Identifier: MIT
"""Made-up programs of Slurm: jobs are processes of this machine, and start at once.

What they keep of the real ones: sbatch reads the script from its standard input or a file, copies
the environment, and says the job's number; scancel sends SIGTERM to every process of a job at once
and SIGKILL a little later; squeue lists what runs, and refuses jobs that have ended.
"""

PROGRAMS = {
    "sbatch": """
id=100
while ! mkdir "@/$id" 2>/dev/null; do id=$((id + 1)); done
cat "$@" >"@/$id/script"
if [ -e "@/refusal" ]; then cat "@/refusal" >&2; exit 1; fi
chmod +x "@/$id/script"
[ -e "@/held" ] ||
    SLURM_JOB_ID=$id FAKE_SLURM_JOB="@/$id" setsid "@/$id/script" >"@/$id/out" 2>&1 </dev/null &
echo "Submitted batch job $id"
""",
    "squeue": """
for word; do case $word in --jobs=*) ids=${word#--jobs=} ;; esac; done
found=
for id in $(echo "$ids" | tr , ' '); do
    job="@/$id"  # others have jobs of the same number
    grep -lzqs "^FAKE_SLURM_JOB=$job$" /proc/[0-9]*/environ && echo "$id" && found=1
done
[ "$found" ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
""",
    "scancel": """
for id; do
    touch "@/$id/cancelled"
    for number in TERM KILL; do
        job="@/$id"
        for file in $(grep -lzs "^FAKE_SLURM_JOB=$job$" /proc/[0-9]*/environ); do
            pid=${file#/proc/}
            kill -$number "${pid%/environ}" 2>/dev/null
        done
        [ $number = KILL ] || sleep 1
    done &
done >/dev/null 2>&1
""",
}


class FakeSlurm:
    """The programs, in a folder for PATH.

    Attributes:
        bin: that folder.
    """

    def __init__(self, folder):
        self.bin = folder / "bin"
        self._jobs = folder / "jobs"
        self.bin.mkdir(parents=True)
        self._jobs.mkdir()
        for name, text in PROGRAMS.items():
            (self.bin / name).write_text("#!/bin/sh" + text.replace('"@/', '"%s/' % self._jobs))
            (self.bin / name).chmod(0o755)

    def scripts(self):
        """Job -> its script."""
        return {p.parent.name: p.read_text() for p in sorted(self._jobs.glob("*/script"))}

    def cancelled(self):
        """The jobs that scancel was told to end."""
        return sorted(path.parent.name for path in self._jobs.glob("*/cancelled"))

    def output(self, job):
        """What a job has said."""
        return (self._jobs / job / "out").read_text(errors="replace")

    def holdBack(self):
        """From now on jobs wait."""
        (self._jobs / "held").touch()

    def refuse(self, text):
        """Has sbatch refuse from now on."""
        (self._jobs / "refusal").write_text(text)
