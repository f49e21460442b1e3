# SPDX-License-Identifier: MIT
"""What is repeated takes a small part of the time only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Tensile.Parallel.Seldom import Seldom

pytestmark = pytest.mark.unit


@given(st.lists(st.floats(0.0, 2.0), min_size=1, max_size=200), st.floats(1.0, 500.0))
def test_itTakesItsShareOfTheTimeAtMost(costs, pause):
    """Between two of them passes `pause` times what the first took, if it is asked all the time."""
    now = [0.0]
    seldom = Seldom(pause, clock=lambda: now[0])
    ends = []
    for cost in costs:
        assert seldom.isDue or ends
        if not seldom.isDue:
            now[0] = ends[-1][0] + 0.99 * pause * ends[-1][1]
            assert not seldom.isDue or pause * ends[-1][1] < 1e-6
            now[0] = ends[-1][0] + 1.01 * pause * ends[-1][1] + 1e-6
            assert seldom.isDue
        with seldom.timed():
            now[0] += cost
        ends.append((now[0], cost))


def test_noPauseIsLongerThanTheLongest():
    """However long it took; and a clock that is set back does not make it wait for ages."""
    now = [1000.0]
    seldom = Seldom(400.0, 9.0, lambda: now[0])
    with seldom.timed():
        now[0] += 60.0
    assert not seldom.isDue
    now[0] += 8.9
    assert not seldom.isDue
    now[0] += 0.2
    assert seldom.isDue
    with seldom.timed():
        now[0] += 60.0
    now[0] -= 3600.0
    assert seldom.isDue


def test_afterAnErrorItIsDue():
    """What did not come to its end is tried again at once."""
    now = [0.0]
    seldom = Seldom(400.0, clock=lambda: now[0])
    with pytest.raises(OSError):
        with seldom.timed():
            now[0] += 1.0
            raise OSError("full")
    assert seldom.isDue
