# SPDX-License-Identifier: MIT
"""Runs a host's own Tensile(...) in this process. Started by path; imports nothing of ours.

    python HostBootstrap.py [options] TREE -- ARGUMENTS

      --parent PID       the process that started this; when it dies, this and its children end
      --settings FILE    run.json: the client that the host builds is written into it
      --launcher PATH    what the host is to run instead of the client that it built

It touches the host in these places, and changes no file of it:

- DeviceList becomes a global parameter that the host knows, so that it is not reported as
  unrecognised.
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

PR_SET_PDEATHSIG = 1


def parseArguments(argv):
    """(options, tree, arguments of the host) of this script's command line."""
    options = {"--parent": None, "--settings": None, "--launcher": None}
    index = 0
    while argv[index] in options:
        options[argv[index]] = argv[index + 1]
        index += 2
    if argv[index + 1] != "--":
        raise SystemExit("usage: HostBootstrap.py [options] TREE -- ARGUMENTS")
    return options, argv[index], argv[index + 2 :]


def endWithParent(parent):
    """End this process group when the parent dies or when this process is told to end.

    The group is this process's own: the parent starts it in a session of its own. Without this,
    what the host has started (its run script, the parallel client) would live on.

    Args:
        parent: process id of the parent.
    """
    own = os.getpid()

    def endGroup(number, frame):
        signal.signal(number, signal.SIG_DFL)
        # A forked child of the host has this handler too; only the host speaks for the group.
        if os.getpid() == own and os.getpgid(0) == own:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.killpg(own, signal.SIGTERM)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, endGroup)
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: the parent ends the group itself when it can
    if os.getppid() != parent:
        os.kill(own, signal.SIGTERM)


def useTree(tree):
    """Make `import Tensile` find the tree, and this script's own folder be no place for modules."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [tree] + [entry for entry in sys.path if os.path.abspath(entry) != here]


def registerDeviceList():
    """Make DeviceList a global parameter of the host, empty by default."""
    try:
        # Early 2025 made Common a package, and the parameters a module of it.
        from Tensile.Common import GlobalParameters as common
    except ImportError:
        from Tensile import Common as common
    for parameters in (common.globalParameters, common.defaultGlobalParameters):
        parameters.setdefault("DeviceList", [])
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


def noteClient(settings, client):
    """Write the client's path into run.json, so that no reader sees half a file."""
    with open(settings, encoding="utf-8") as stream:
        run = json.load(stream)
    run["client"] = client
    temporary = "%s.%d" % (settings, os.getpid())
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(run, stream, indent=1)
    os.replace(temporary, settings)


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
    from Tensile import Tensile

    Tensile.main()


if __name__ == "__main__":
    main(sys.argv[1:])
