# SPDX-License-Identifier: MIT
"""Slow is not dead: how long a client may say nothing."""

import pytest

from Tensile.Parallel.ClientConfig import readClientConfig
from Tensile.Parallel.Cost import VALIDATION_SECONDS_PER_MAC, Cost
from Tensile.Parallel.HangLimit import LEAST_SECONDS, PATIENCE, hangSeconds
from Tensile.Parallel.Types import Unit

pytestmark = pytest.mark.unit

SMALL, LARGE = (64, 64, 1, 64), (8192, 8192, 1, 8192)


@pytest.fixture
def limit(tmp_path):
    """A function: INI values, a unit's (first problem, count) -> the limit in seconds."""
    path = tmp_path / "ClientParameters.ini"

    def make(problems=(0, 2), solutions=10, learned=None, asked=None, **values):
        lines = ["problem-identifier=Contraction_l_Alik_Bljk_Cijk_Dijk"]
        lines += ["%s-type=Half" % operand for operand in "abcd"]
        lines += ["%s=%s" % (key.replace("_", "-"), value) for key, value in values.items()]
        lines += ["problem-size=%s" % ",".join(map(str, size)) for size in (SMALL, LARGE)]
        path.write_text("\n".join(lines) + "\n")
        config = readClientConfig(str(path))
        cost = Cost(config)
        if learned is not None:
            cost.observe(1, 1, 1, learned)
        return hangSeconds(cost, config, Unit(0, *problems, 0, solutions), asked)

    return make


def test_nothingShortIsSilence(limit):
    """However quick the pairs are, minutes may pass: the library has to be loaded."""
    assert limit((0, 1)) == LEAST_SECONDS


def test_growsWithTheSize(limit):
    """A large problem that is validated on the CPU for hours has many times these hours."""
    reference = VALIDATION_SECONDS_PER_MAC * 8192**3
    assert limit((0, 2), num_elements_to_validate=-1) > PATIENCE * reference > 24 * 3600
    assert limit((0, 1), num_elements_to_validate=-1) == LEAST_SECONDS


def test_growsWithWhatWasMeasured(limit):
    """Pairs that took a minute each may take twenty."""
    assert limit((1, 1), learned=60.0) > 1200.0


@pytest.mark.parametrize("terse", [{"log_level": "Terse"}, {"PrintWinnersOnly": "1"}])
def test_rareLinesAreNoSilence(limit, terse):
    """Where the client does not print a line for each pair, the whole unit may pass without one."""
    assert limit((1, 1), solutions=1000, learned=1.0, **terse) > PATIENCE * 1000
    assert limit((1, 1), solutions=1000, learned=1.0) == LEAST_SECONDS


def test_askedFor(limit):
    """--hang-limit is the limit itself; 0 is none."""
    assert limit((0, 2), asked=7.5, num_elements_to_validate=-1) == 7.5
    assert limit(asked=0.0) is None
