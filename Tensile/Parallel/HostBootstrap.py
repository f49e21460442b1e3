# SPDX-License-Identifier: MIT
"""Runs a host's own Tensile(...) in this process. Started by path; imports nothing of ours.

    python HostBootstrap.py [options] TREE -- ARGUMENTS

      --parent PID       the process that started this; when it dies, this and its children end
      --settings FILE    run.json: the client that the host builds is written into it
      --launcher PATH    what the host is to run instead of the client that it built
      --max-frequency N  what the host is answered when it asks a GPU for its clock, in MHz

It touches the host in these places, and changes no file of it:

- DeviceList becomes a global parameter that the host knows, so that it is not reported as
  unrecognised, or refused (2026).
- With --max-frequency: early 2025 and 2026 trees ask a GPU for its clock (of 2025: by installing
  hip-python where it is missing, and at last by a question on the terminal that has no end where
  nobody answers). They are given the number instead, and nobody is asked.
- With --launcher: when the host asks for its client for the first time, it builds one as usual;
  from then on it is told the launcher's path, as if that had been given with --prebuilt-client.
  (Building in a first run of the host and benchmarking in a second would need no such touch, but
  a host probes the assembler for every architecture at each start: 45 s.)
"""

import ctypes
import json
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# What processes may take to end after SIGTERM before they get SIGKILL, in seconds.
GRACE_SECONDS = 10.0


def parseArguments(argv):
    """(options, tree, arguments of the host) of this script's command line."""
    names = ("--parent", "--settings", "--launcher", "--max-frequency")
    options = dict.fromkeys(names)
    index = 0
    while argv[index] in options:
        options[argv[index]] = argv[index + 1]
        index += 2
    if argv[index + 1] != "--":
        raise SystemExit("usage: HostBootstrap.py [options] TREE -- ARGUMENTS")
    return options, argv[index], argv[index + 2 :]


def prctl(option, value):
    """The system call, where there is one; True where it worked."""
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def adoptOrphans():
    """From now on a descendant whose parent dies becomes a child of this process.

    So nothing that a run has started can slip away from it: not a client in a session of its own
    whose worker was killed, nor what that client has started.
    """
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(ancestor):
    """Ids of the running processes below a process."""
    children = _processTree()
    found, ahead = [], [ancestor]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def endDescendants(ancestor, spare=(), grace=GRACE_SECONDS):
    """End everything below a process: TERM, then KILL to what is left of it.

    What handles SIGTERM is trusted to end what it has started, and is given the time.

    Args:
        ancestor: the process; it is not ended itself.
        spare: ids that are left alone.
        grace: seconds until SIGKILL.
    """
    deadline = time.monotonic() + grace
    told = set()
    while True:
        late = time.monotonic() >= deadline
        children, ahead, alive = _processTree(), [ancestor], False
        while ahead:
            for pid in children.get(ahead.pop(), ()):
                if pid in spare:
                    continue
                alive = True
                trusted = not late and _handlesTerm(pid)
                if late or pid not in told:
                    told.add(pid)
                    _send(pid, signal.SIGKILL if late else signal.SIGTERM)
                if not trusted:
                    ahead.append(pid)
        if not alive or time.monotonic() > deadline + GRACE_SECONDS:
            return
        time.sleep(0.02)


def _processTree():
    """Running processes, as parent id -> ids of children."""
    children = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as stream:
                    state, parent = stream.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(name))
    return children


def _handlesTerm(pid):
    """Whether a process has a handler of its own for SIGTERM."""
    try:
        with open("/proc/%d/status" % pid, "rb") as stream:
            caught = stream.read().partition(b"SigCgt:")[2].split()[0]
    except (OSError, IndexError):
        return False
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def _send(pid, number):
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def endWithParent(parent):
    """End this process and everything below it when the parent dies or when it is told to end.

    Args:
        parent: process id of the parent.
    """
    own = os.getpid()

    def endAll(number, frame):
        signal.signal(number, signal.SIG_IGN)
        # A forked child of the host has this handler too; it speaks for itself alone.
        if os.getpid() == own:
            endDescendants(own)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, endAll)
    adoptOrphans()
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(own, signal.SIGTERM)


def useTree(tree):
    """Make `import Tensile` find the tree, and this script's own folder be no place for modules."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [tree] + [entry for entry in sys.path if os.path.abspath(entry) != here]


def registerDeviceList():
    """Make DeviceList a global parameter of the host, None by default.

    None, because the 2026 host lets a parameter with that default have a value of any type, null
    included; with an empty list as the default it refuses null (_assertGlobalParametersAreValid).
    """
    try:
        # Early 2025 made Common a package, and the parameters a module of it.
        from Tensile.Common import GlobalParameters as common
    except ImportError:
        try:
            from Tensile import Common as common
        except ImportError:
            common = None
    for name in ("globalParameters", "defaultGlobalParameters"):
        parameters = getattr(common, name, None)
        if parameters is None:
            print("note: this Tensile's %s were not found, so it does not know DeviceList" % name)
        else:
            parameters.setdefault("DeviceList", None)
    return common


def launchInstead(common, launcher, settings):
    """Let the host build its client, note where it is, and have the host run the launcher.

    Args:
        common: the host's module of global parameters.
        launcher: path of the program that stands in for the client.
        settings: path of run.json.
    """
    from Tensile import ClientExecutable

    build = ClientExecutable.getClientExecutable

    def getClientExecutable(*args, **kwargs):
        client = build(*args, **kwargs)
        ClientExecutable.getClientExecutable = build
        if client != launcher:
            noteClient(settings, os.path.abspath(client))
            common.globalParameters["PrebuiltClient"] = launcher
        return launcher

    ClientExecutable.getClientExecutable = getClientExecutable


def answerClock(frequency):
    """Give the host a GPU's clock wherever it would ask for it.

    Args:
        frequency: in MHz, as text.
    """
    from Tensile import Tensile

    # Tensile() asks this one first, and nobody else when it gets a number.
    Tensile.get_gpu_max_frequency = lambda deviceId: int(frequency)
    # LibraryLogic reads this; Tensile() sets it only where the config itself has UseEffLike.
    os.environ["MAX_FREQ"] = frequency


def noteClient(settings, client):
    """Write the client's path into run.json, so that no reader sees half a file."""
    with open(settings, encoding="utf-8") as stream:
        run = json.load(stream)
    run["client"] = client
    temporary = "%s.%d" % (settings, os.getpid())
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(run, stream, indent=1)
        os.replace(temporary, settings)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def main(argv):
    """Prepare the host and run it."""
    options, tree, arguments = parseArguments(argv)
    if options["--parent"] is not None:
        endWithParent(int(options["--parent"]))
    useTree(tree)
    # Prefixes of the host's messages and of its usage line come from here.
    sys.argv = [os.path.join(tree, "Tensile", "bin", "Tensile")] + arguments
    common = registerDeviceList()
    if options["--launcher"] is not None:
        launchInstead(common, options["--launcher"], options["--settings"])
    if options["--max-frequency"] is not None:
        answerClock(options["--max-frequency"])
    from Tensile import Tensile

    Tensile.main()


if __name__ == "__main__":
    main(sys.argv[1:])
