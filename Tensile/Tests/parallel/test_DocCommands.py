# SPDX-License-Identifier: MIT
"""Every command in README.md and docs/ is run, or listed here with the reason why it is not.

What counts as a command:

- each line of a fence of `sh`;
- in an indented block, or a fence without a language, each line whose first word is a program.
  Where the first line begins with `$ `, the lines that do so are the commands, and the rest is
  what they print;
- in a fence of `text` the same, but only where its first line begins with `$ `.

A line that ends in a backslash goes on in the next one. Each block begins in a folder that looks
like this checkout and holds a hipBLASLt (the stand-in), a config, a ClientParameters.ini and a
client. `cd` and `export` hold to the end of the block. GPUs are emulated.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from conftest import DATA, HERE, HOST, ROOT

pytestmark = pytest.mark.skipif(
    not (ROOT / "TensileParallelCommands.py").is_file(),
    reason="these tests do not lie in TensileParallel's own checkout",
)

# Beginning of a command -> why it is not run here, and by what it is.
NOT_RUN = {
    "tools/demo": "makes an environment from the network; .ci/run runs it",
    "tools/test": "these tests; .ci/run runs it",
    "tools/lint": "makes an environment from the network; .ci/run runs it",
    "tools/docs": "makes an environment from the network; test_Docs.py builds the pages",
    "pip install .": "changes the environment; test_Repository.py installs the wheel",
    "pip install '.[cluster]'": "changes the environment; tools/test installs the same packages",
    "dask scheduler": "serves until it is stopped; test_Cluster.py starts it so",
    "TensileParallel --join": "offers devices until it is stopped; test_Cluster.py",
    "TensileParallel config.yaml out --scheduler": "needs nodes; test_Cluster.py has them",
    "TensileParallel config.yaml out --slurm": "needs Slurm; test_Slurm.py has a made-up one",
    "sbatch": "needs Slurm",
    "unshare": "makes networks; test_Cluster.py runs the script there",
    "openssl": "test_Cluster.py runs these, and connects with what they make",
    "pytest Tensile/Tests/parallel/test_Contract.py --tensile-root": "needs a real Tensile tree",
    "python Tensile/Tests/parallel/benchmarks/": "takes minutes to hours, and proves nothing",
    "TensileRetuneLibrary": "no tree gets as far as a client; test_BestSolution.py has its client",
    "tools/upstreamPatch": "needs a git checkout of a tree; test_Upstream.py",
    "cd ~/hipBLASLt": "goes with the command before it; test_Upstream.py",
    "git am": "needs a git checkout of a tree; test_Upstream.py",
    "export ROCM_PATH": "needs ROCm",
    "tools/checkBuildFlow": "needs ROCm and a real tree; test_Upstream.py has its parts",
}

SCRIPTS = ("TensileParallel", "TensileParallelClient", "TensileEmulatedClient")
MODULES = ("Tensile.Parallel", "Tensile.Parallel.ParallelClient")
PROGRAM = re.compile(
    r"(\S*/)?(Tensile\w+|python3?|pip|pytest|git|cd|export|ls|cat|sh|dask|openssl|sbatch|unshare)"
    r"(?= [^─:\s])"
)
VARIABLE = re.compile(r"^[A-Z_]+=")

# Two sizes and two solutions: a run takes about two seconds, most of them starts of Python.
CONFIG = """
GlobalParameters:
  DeviceList: [0]
BenchmarkProblems:
  -
    - {OperationType: GEMM, DataType: s, UseBeta: True, Batched: True}
    -
      ForkParameters:
        - DepthU: [16, 32]
      BenchmarkFinalParameters:
        - ProblemSizes:
          - Exact: [128, 128, 1, 128]
          - Exact: [256, 256, 1, 256]
LibraryLogic:
  {ScheduleName: aldebaran, DeviceNames: [Device 7400], ArchitectureName: gfx90a}
"""


def pages():
    """README.md, then the pages in the order of the index."""
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    names = [name for name in re.findall(r"\]\((\S+\.md)\)", index)]
    return [ROOT / "README.md", *(ROOT / "docs" / name for name in dict.fromkeys(names))]


def blocks(text):
    """(language, lines) of each block of code; language is None for an indented one."""
    found, inFence, indented, before = [], False, False, ""
    for line in text.split("\n"):
        if line.startswith("```"):
            inFence, indented = not inFence, False
            if inFence:
                found.append((line[3:].strip(), []))
        elif inFence:
            found[-1][1].append(line)
        elif line.startswith("    ") and (indented or not before.strip()):
            if not indented:
                found.append((None, []))
            indented = True
            found[-1][1].append(line[4:])
        elif line.strip():
            indented = False
        before = line
    return found


def isProgram(line):
    """Whether a line's first word, after variables, is a program here or one that we know."""
    words = [word for word in line.split() if not VARIABLE.match(word)]
    rest = " ".join(words)
    if not words:
        return False
    inTree = words[0].startswith(("tools/", ".ci/", "./"))
    # Two spaces after the first word: a list, such as that of the files in a folder.
    listed = re.match(r"\S+ {2,}", line.strip()) is not None
    return bool(PROGRAM.match(rest + " .") or inTree or (shutil.which(words[0]) and not listed))


def commands(language, lines):
    """The commands of a block, each in one line."""
    prompts = bool(lines) and lines[0].startswith("$ ")
    if language not in (None, "", "sh") and not (language == "text" and prompts):
        return []
    if prompts:
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    joined = re.sub(r" *\\\n *", " ", "\n".join(lines)).split("\n")
    whole = prompts or language == "sh"
    return [
        line.strip()
        for line in joined
        if line.strip() and not line.startswith("#") and (whole or isProgram(line))
    ]


def allCommands():
    """(page, block's number, command) of everything."""
    for page in pages():
        for number, (language, lines) in enumerate(blocks(page.read_text("utf-8"))):
            for command in commands(language, lines):
                yield page, number, command


def whyNot(command):
    """The key of NOT_RUN that a command begins with, or None."""
    return next((key for key in NOT_RUN if command.startswith(key)), None)


@pytest.mark.unit
def testWhatIsACommand():
    """Nothing that could be a command escapes, and output is none."""
    page = """
text
    not a block, for it goes on

    tools/demo
    X=1 TensileParallel a.yaml \\
        out

    ls out
    out/
      file     what it is
    TensileParallel: note: said by it
    bound = max(1, 2)

- item

```sh
# comment
anything at all      # comment
```
```
python x.py
```
```text
$ TensileParallel a
TensileParallel 0.1.0
```
```yaml
ls: 1
```

    $ tools/demo
    tools/demo prints this
"""
    found = [c for language, lines in blocks(page) for c in commands(language, lines)]
    assert found == [
        "tools/demo",
        "X=1 TensileParallel a.yaml out",
        "ls out",
        "anything at all      # comment",
        "python x.py",
        "TensileParallel a",
        "tools/demo",
    ]


@pytest.mark.unit
def testTheListOfWhatIsNotRun():
    """Each of its entries is still there in a page, and the tests that it names exist."""
    left = {whyNot(command) for _, _, command in allCommands()}
    assert set(NOT_RUN) <= left
    for reason in NOT_RUN.values():
        for name in re.findall(r"test_\w+\.py", reason):
            assert (HERE / name).is_file(), name


class Sandbox:
    """The folder in which the commands run."""

    def __init__(self, root):
        self.root = root
        self.tree = root / "hipBLASLt" / "tensilelite"
        for name in ("Tensile", "TensileParallelCommands.py", "setup.py", "tools"):
            (root / name).symlink_to(ROOT / name)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(HOST, self.tree.parent, ignore=ignore)
        for folder in (root, self.tree):
            (folder / "config.yaml").write_text(CONFIG)
        # The second run into it has nothing left to do, which saves the time.
        (root / "out").mkdir()
        (self.tree / "out").symlink_to(root / "out")
        (root / "bin").mkdir()
        for name in ("amdclang++", "clang-offload-bundler", "amdgpu-arch"):
            self.script(root / "bin" / name, "exit 0")
        (root / "faults.json").write_text('{"faults": [{"kind": "crash", "problem": 9}]}')
        recorded = DATA / "tensilelite-2024"
        (root / "library").symlink_to(recorded / "library")
        text = (recorded / "full" / "ClientParameters.ini").read_text("utf-8")
        text = text.replace("@SOURCE@", str(root)).replace("@OUT@", str(root))
        (root / "ClientParameters.ini").write_text(text)
        client = ROOT / "Tensile" / "bin" / "TensileEmulatedClient"
        self.script(root / "tensile_client", 'exec %s %s "$@"' % (sys.executable, client))
        # One Tensile for all of them, so that an output folder is gone on with.
        self.environment = {
            **os.environ,
            "HOME": str(root),
            "PATH": "%s:%s" % (root / "bin", os.environ["PATH"]),
            "TENSILE_ROOT": str(self.tree),
        }

    @staticmethod
    def script(path, line):
        """An executable of one line."""
        path.write_text("#!/bin/sh\n%s\n" % line)
        path.chmod(0o755)

    def runBlock(self, lines):
        """Run a block's commands.

        Returns:
            What is to be said of those that failed.
        """
        folder, environment, failed = self.root, dict(self.environment), []
        for line in lines:
            words = shlex.split(line.replace("$PWD", str(folder)), comments=True)
            variables = {}
            while VARIABLE.match(words[0]):
                name, _, value = words.pop(0).partition("=")
                variables[name] = value
            if words[0] == "cd":
                folder = folder / words[1]
                continue
            if words[0] == "export":
                environment.update(word.split("=", 1) for word in words[1:])
                continue
            done = subprocess.run(
                self.translated(words, folder),
                cwd=folder,
                env={**environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
            )
            if done.returncode:
                failed.append("%s\nended with %d:\n%s" % (line, done.returncode, done.stdout))
        return failed

    def translated(self, words, folder):
        """The command as it is run: our Python, a smaller config, emulated devices."""
        quick = "Tensile/Tests/parallel/configs/quick.yaml"
        words = ["config.yaml" if word == quick else word for word in words]
        name = os.path.basename(words[0])
        ours = name in SCRIPTS or (words[1:2] == ["-m"] and words[2] in MODULES)
        if name in SCRIPTS:
            script = folder / words[0] if "/" in words[0] else ROOT / "Tensile" / "bin" / name
            words = [sys.executable, str(script), *words[1:]]
        elif name in ("python", "python3", "pytest", "pip"):
            module = ["-m", name] if name in ("pytest", "pip") else []
            words = [sys.executable, *module, *words[1:]]
        elif "/" in words[0]:
            words = [str(folder / words[0]), *words[1:]]
        if ours and name != "TensileEmulatedClient":
            words = self.emulated(words)
        return words

    @staticmethod
    def emulated(words):
        """With as few devices as the command needs: each costs the start of a Python."""
        if "--status" in words or "--report" in words:
            return words
        if "--emulate" in words:
            at = words.index("--emulate")
            words = words[:at] + words[at + 2 :]
        listed = words[words.index("--devices") + 1] if "--devices" in words else "0"
        number = max(map(int, listed.split(","))) + 1 if listed != "all" else 1
        if "--local-cluster" in words:
            words = [
                "1" if before == "--local-cluster" else w for before, w in zip([""] + words, words)
            ]
        return [*words, "--emulate", str(number)]


def testEveryCommandRuns(tmp_path):
    """What the documents tell people to type does what they say: each ends with 0."""
    sandbox = Sandbox(tmp_path)
    failed, run = [], 0
    byBlock = {}
    for page, number, command in allCommands():
        byBlock.setdefault((page.name, number), []).append(command)
    for (page, _), lines in byBlock.items():
        lines = [line for line in lines if not whyNot(line)]
        run += len(lines)
        failed += ["%s: %s" % (page, text) for text in sandbox.runBlock(lines)]
    assert not failed, "\n\n".join(failed)
    assert run > 20
