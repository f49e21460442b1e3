# SPDX-License-Identifier: MIT
"""The devices of several machines: which are used, how they are numbered, who is refused."""

import os
from dataclasses import replace

import pytest

from Tensile.Parallel.Errors import InputError
from Tensile.Parallel.Fleet import (
    Member,
    Register,
    choose,
    fits,
    refuseNodesFolder,
    refuseStrangers,
    registerPath,
)
from Tensile.Parallel.Types import Device

pytestmark = pytest.mark.unit


def member(node, ordinal, architecture="gfx90a", **changes):
    """A device that has joined."""
    device = Device(ordinal, str(ordinal), architecture=architecture, uniqueId="u%d" % ordinal)
    own = Member(
        address="tcp://%s:%d" % (node, 1000 + ordinal),
        node=node,
        join="j-" + node,
        device=device,
        client=("client",),
        version="1",
        hash="h",
        versions={"driver": "6.8"},
    )
    return replace(own, **changes)


PAIR = [member("b", 1), member("b", 0), member("a", 0), member("a", 2)]


def test_devicesAreNumberedByNodeAndOrdinal(tmp_path):
    """Nodes in the order of their names, then HIP's order; each device names its node."""
    register = Register(str(tmp_path / "cluster.json"))
    found = register.number(PAIR, PAIR)
    where = [(d.ordinal, d.node, d.nodeOrdinal, d.token) for d in found]
    assert where == [(0, "a", 0, "0"), (1, "a", 2, "2"), (2, "b", 0, "0"), (3, "b", 1, "1")]


def test_aNumberStaysWithItsDevice(tmp_path):
    """Who joins later, or in a later run of the folder, takes no number that was given."""
    path = str(tmp_path / "cluster.json")
    first = Register(path)
    first.number(PAIR[:2], PAIR[:2])
    first.write()
    later = Register(path)
    found = later.number(PAIR, PAIR[2:])
    assert [(d.ordinal, d.node, d.nodeOrdinal) for d in found] == [(2, "a", 0), (3, "a", 2)]
    # With another mask on its node a GPU has another ordinal there, and its number in the run.
    moved = replace(PAIR[0], device=replace(PAIR[0].device, ordinal=0, token="0"))
    assert [d.ordinal for d in later.number([moved], [moved])] == [1]


def test_numbersOfThisMachinesDevicesAreNotGivenToNodes(tmp_path):
    """A folder that was used without a cluster: who measured what stays told apart; and the other
    way round it is refused, unless all is to be forgotten."""
    for name in ("gpu_0", "gpu_3", "gpu_x"):
        (tmp_path / name).mkdir()
    refuseNodesFolder(str(tmp_path), False)
    path = registerPath(str(tmp_path))
    register = Register(path)
    assert [d.ordinal for d in register.number(PAIR[:2], PAIR[:2])] == [4, 5]
    register.write()
    assert [d.ordinal for d in Register(path).number(PAIR, PAIR)] == [4, 5, 6, 7]
    with pytest.raises(InputError, match="go on with --scheduler, or with --local-cluster 1"):
        refuseNodesFolder(str(tmp_path), False)
    refuseNodesFolder(str(tmp_path), True)
    assert not os.path.exists(path)


def test_aDamagedRegisterIsNone(tmp_path):
    """What cannot be read is as if it were not there."""
    path = tmp_path / "cluster.json"
    for text in ("", "[]", '{"version": 1, "devices": [{"x": 1}], "nodes": {}}'):
        path.write_text(text)
        assert Register(str(path)).devices == ()


def test_aListChoosesOnEachNode():
    """[0] is the first device of every node; what a node lacks is said with its name."""
    chosen, selection = choose(PAIR, (0,))
    assert [(m.node, m.device.ordinal) for m in chosen] == [("a", 0), ("b", 0)]
    chosen, selection = choose(PAIR, (0, 1))
    assert [(m.node, m.device.ordinal) for m in chosen] == [("a", 0), ("b", 0), ("b", 1)]
    assert selection.missing == (1,)
    assert any(note.startswith("node a: device 1 is not") for note in selection.notes)
    assert len(choose(PAIR, "all")[0]) == 4


def test_strictNamesTheNode():
    """With --strict a device that one node lacks ends it, and the line says which node."""
    with pytest.raises(InputError, match="node a: device 1 is not available"):
        choose(PAIR, (0, 1), strict=True)


def test_nodesOfTwoArchitecturesAreRefused():
    """A run tunes one architecture, over all nodes; a later one of another does not fit."""
    other = member("c", 0, architecture="gfx942:sramecc+")
    with pytest.raises(InputError, match=r"gfx90a \(node a, b\), gfx942 \(node c\)"):
        choose([*PAIR, other], "all")
    assert not fits(other, "gfx90a")
    assert fits(member("c", 0, architecture="gfx90a:xnack-"), "gfx90a")


def test_otherProgramsAreRefused():
    """Both sides must be the same program, and a name must mean one machine."""
    refuseStrangers(PAIR, "1", "h")
    with pytest.raises(InputError, match="node b has other files of TensileParallel 1 than"):
        refuseStrangers([*PAIR, member("b", 3, hash="x")], "1", "h")
    with pytest.raises(InputError, match=r"node b has another TensileParallel \(1\) than"):
        refuseStrangers([*PAIR, member("b", 3, hash="x")], "2", "h")
    with pytest.raises(InputError, match="two joins call themselves a: .*--node-name"):
        refuseStrangers([*PAIR, member("a", 3, join="other")], "1", "h")
