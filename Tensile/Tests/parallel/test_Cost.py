# SPDX-License-Identifier: MIT
"""The cost model: monotone where it must be, consistent with itself, and it learns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Tensile.Parallel.ClientConfig import readClientConfig
from Tensile.Parallel.Cost import (
    DEFAULT_START_SECONDS,
    PACE_LIMIT,
    WATCHED_SIZES,
    Cost,
    Part,
)

pytestmark = pytest.mark.unit

CASES = [
    "tensilelite-2024/full",
    "tensilelite-2024/two-passes",
    "tensilelite-2024/two-activations-two-biases",
    "classic-4.44/full",
]


@pytest.fixture(scope="module")
def makeCost(tmp_path_factory):
    """A function: sizes and INI values -> a Cost of a small step."""
    path = tmp_path_factory.mktemp("cost") / "ClientParameters.ini"

    def make(sizes=((512, 512, 1, 512),), **values):
        given = {
            "problem-identifier": "Contraction_l_Alik_Bljk_Cijk_Dijk",
            "a-type": "Half",
            "b-type": "Half",
            "c-type": "Half",
            "d-type": "Half",
            **{name.replace("_", "-"): value for name, value in values.items()},
        }
        lines = [
            "%s=%s" % (key, value)
            for key, texts in given.items()
            for value in (texts if isinstance(texts, list) else [texts])
        ]
        lines += ["problem-size=%s" % ",".join(map(str, size)) for size in sizes]
        path.write_text("\n".join(lines) + "\n")
        return Cost(readClientConfig(path))

    return make


dimension = st.integers(1, 20000)
size = st.tuples(dimension, dimension, st.integers(1, 16), dimension)


@given(size, st.integers(0, 3), st.integers(1, 5))
@settings(deadline=None)
def test_monotoneInSize(makeCost, small, position, factor):
    """A problem that is larger in one index never takes less, nor does its data or reference."""
    large = tuple(n * factor if at == position else n for at, n in enumerate(small))
    cost = makeCost([small, large], num_elements_to_validate=-1)
    assert 0 < cost.pairSeconds(0) <= cost.pairSeconds(1)
    assert 0 < cost.fixedSeconds(0, 1) <= cost.fixedSeconds(1, 1)


@pytest.mark.parametrize("size", [(64, 64, 1, 64), (8192, 8192, 1, 8192), (4096, 16, 8, 4096)])
def test_monotoneInDataTypes(makeCost, size):
    """Wider data types never take less, complex ones more than real ones."""
    types = ["Float8", "Half", "Float", "Double", "ComplexDouble"]
    costs = [
        makeCost([size], **dict.fromkeys(["a_type", "b_type", "c_type", "d_type"], t))
        for t in types
    ]
    seconds = [cost.pairSeconds(0) for cost in costs]
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[-1]


@pytest.mark.parametrize(
    "key, values",
    [
        ("num_enqueues_per_sync", [1, 2, 10, 100]),
        ("num_syncs_per_benchmark", [1, 3, 30]),
        ("num_warmups", [0, 1, 50]),
        ("sleep_percent", [0, 50, 400]),
        ("num_benchmarks", [1, 2, 5]),
        ("min_flops_per_sync", [0, 10**13, 10**14]),
    ],
)
def test_monotoneInRepetitions(makeCost, key, values):
    """More launches of a kernel, or more sleep beside it, take more."""
    seconds = [makeCost([(2048, 2048, 1, 2048)], **{key: value}).pairSeconds(0) for value in values]
    assert all(earlier < later for earlier, later in zip(seconds, seconds[1:]))


def test_enqueuesAreLimited(makeCost):
    """max-enqueues-per-sync bounds what min-flops-per-sync asks for."""
    free = makeCost(min_flops_per_sync=10**12).pairSeconds(0)
    bounded = makeCost(min_flops_per_sync=10**12, max_enqueues_per_sync=10).pairSeconds(0)
    assert bounded < free


def test_validationCostsPerProblem(makeCost):
    """A reference is computed once per problem and process, for multiplied lists too."""
    sizes = [(256, 256, 1, 256)] * 3
    lists = {"use_bias": 1, "bias_type_args": ["Float", "Half"]}
    cost = makeCost(sizes, num_elements_to_validate=-1, **lists)
    start = makeCost(sizes, **lists).fixedSeconds(0, 1)
    one, six = cost.fixedSeconds(0, 1) - start, cost.fixedSeconds(0, 6) - start
    assert one > 0
    assert six == pytest.approx(6 * one)
    few = makeCost(sizes, num_elements_to_validate=128, **lists).fixedSeconds(0, 1) - start
    assert 0 < few < one / 10


def test_dataIsInitialisedForTheLargestOnly(makeCost):
    """Beside a large problem small ones cost no data of their own."""
    cost = makeCost([(64, 64, 1, 64), (8192, 8192, 1, 8192), (64, 64, 1, 64)])
    assert cost.fixedSeconds(0, 3) == cost.fixedSeconds(1, 1) > cost.fixedSeconds(0, 1)
    # Measured on the real client: 3.8 s for 8192 cubed.
    assert 2.5 < cost.fixedSeconds(1, 1) - cost.startSeconds < 4.5


@pytest.mark.parametrize("name", CASES)
def test_sumsAgreeWithSinglePairs(recorded, name):
    """A rectangle takes what its pairs take, in real INIs of both generations, learned or not."""
    config = readClientConfig(recorded(name).ini)
    cost = Cost(config)
    for _ in range(2):
        for first in range(config.problemCount):
            for count in range(1, config.problemCount - first + 1):
                single = sum(cost.pairSeconds(p) for p in range(first, first + count))
                assert single > 0
                assert cost.rectangleSeconds(first, count, 7) == pytest.approx(7 * single)
        cost.observe(0, config.problemCount, 24, 12.5)


def test_multipliedListsRepeatTheSizes(recorded):
    """Problem n + k of a list that bias types multiply costs what problem k does."""
    config = readClientConfig(recorded("tensilelite-2024/two-activations-two-biases").ini)
    cost = Cost(config)
    assert config.problemCount == 4 * config.sizeCount
    cost.observe(1, 1, 3, 5.0)
    for problem in range(config.problemCount):
        assert cost.pairSeconds(problem) == cost.pairSeconds(problem % config.sizeCount)
    everything = cost.rectangleSeconds(0, config.problemCount, 1)
    assert everything == pytest.approx(4 * cost.rectangleSeconds(0, config.sizeCount, 1))


def test_passesCountOnce(recorded):
    """num-benchmarks doubles every pair: the schedule counts pairs, not lines."""
    two = Cost(readClientConfig(recorded("tensilelite-2024/two-passes").ini))
    one = Cost(readClientConfig(recorded("tensilelite-2024/full", "other").ini))
    assert two.pairSeconds(0) == pytest.approx(2 * one.pairSeconds(0))


@given(st.floats(1e-5, 1e4), st.integers(1, 500))
@settings(deadline=None)
def test_learnsAProblemExactly(makeCost, seconds, solutions):
    """What a problem took by itself is what it is expected to take from then on."""
    cost = makeCost([(512, 512, 1, 512), (8192, 8192, 1, 8192)])
    cost.observe(0, 1, solutions, seconds)
    assert cost.pairSeconds(0) == pytest.approx(seconds / solutions)


def test_exactBeatsTheAverageOfItsKind(makeCost):
    """A problem that was measured by itself keeps its own time when a similar one differs."""
    cost = makeCost([(1024, 1024, 1, 1024), (1024, 1032, 1, 1024)])
    cost.observe(0, 1, 10, 1.0)
    cost.observe(1, 1, 10, 50.0)
    assert cost.pairSeconds(0) == pytest.approx(0.1)
    assert cost.pairSeconds(1) == pytest.approx(5.0)


def test_learnsFromTheNearestKind(makeCost):
    """What nobody measured takes its scale from problems of about its own length."""
    cost = makeCost([(n, n, 1, n) for n in (64, 7000, 8192)])
    before = cost.pairSeconds(1)
    cost.observe(0, 1, 1, cost.pairSeconds(0))
    cost.observe(2, 1, 1, 100 * cost.pairSeconds(2))
    assert cost.pairSeconds(1) == pytest.approx(100 * before)


def test_everySizeCountsOnceForOthers(makeCost):
    """A slow size, of which less is measured by then, tells as much as a quick one; where few of
    one length are known, sizes of about that length tell too."""
    cost = makeCost([(n, n, 1, n) for n in (4096, 4104, 4112, 5120)])
    model = [cost.pairSeconds(problem) for problem in range(4)]
    cost.observe(0, 1, 90, 90 * model[0])
    cost.observe(1, 1, 2, 2 * 5 * model[1])
    assert cost.pairSeconds(2) == pytest.approx(3 * model[2])
    assert cost.pairSeconds(3) == pytest.approx(3 * model[3])
    cost.observe(3, 1, 10, 10 * 9 * model[3])
    assert cost.pairSeconds(2) == pytest.approx(5 * model[2])


@given(st.floats(1e-3, 1e3))
@settings(deadline=None)
def test_learnsTheScaleForOthers(makeCost, factor):
    """The first measurement sets the scale of problems that nobody has measured yet."""
    cost = makeCost([(1024, 1024, 1, 1024), (4096, 4096, 1, 4096)])
    before = [cost.pairSeconds(0), cost.pairSeconds(1)]
    cost.observe(0, 1, 10, 10 * before[0] * factor)
    assert cost.pairSeconds(1) == pytest.approx(before[1] * factor)


def test_movesTowardsEveryObservation(makeCost):
    """Units of similar problems are averaged: an estimate never runs past what was seen."""
    sizes = [(1024 + 8 * n, 1024, 1, 1024) for n in range(20)]
    cost = makeCost(sizes)
    last = first = cost.rectangleSeconds(0, 10, 1)
    for _ in range(5):  # each takes three times what the model says
        cost.observe(0, 10, 1, 3 * first)
        now = cost.rectangleSeconds(0, 10, 1)
        assert last * (1 - 1e-9) <= now <= 3 * first * (1 + 1e-9)
        last = now
    assert last > 2.5 * first
    cost.observe(0, 10, 1, first)
    assert first < cost.rectangleSeconds(0, 10, 1) < last


def test_kindsOfProblemsLearnApart(makeCost):
    """That large problems run slower than the model says nothing of the small ones once seen."""
    cost = makeCost([(64, 64, 1, 64), (8192, 8192, 1, 8192)])
    small = cost.pairSeconds(0)
    cost.observe(0, 1, 10, 10 * small)
    cost.observe(1, 1, 10, 1000.0)
    assert cost.pairSeconds(0) == pytest.approx(small)


@pytest.mark.parametrize("wrong", [(0, 1, 1, 0.0), (0, 1, 1, -3.0), (0, 0, 1, 1.0), (0, 1, 0, 1.0)])
def test_nothingIsLearnedFromNonsense(makeCost, wrong):
    """A unit without time or pairs (the clock was set back) changes nothing."""
    cost = makeCost()
    before = cost.pairSeconds(0)
    cost.observe(*wrong)
    assert cost.pairSeconds(0) == before


def test_learnsTheStart(makeCost):
    """Starts are averaged, later ones counting more, the data initialisation left out; the estimate
    stays above nothing."""
    cost = makeCost([(8192, 8192, 1, 8192), (64, 64, 1, 64)])
    assert cost.startSeconds == DEFAULT_START_SECONDS
    data = cost.fixedSeconds(0, 1) - cost.startSeconds
    cost.observeStart(0, 1, data + 2.0)
    assert cost.startSeconds == pytest.approx(2.0)
    cost.observeStart(0, 2, data + 4.0)
    assert 3.0 < cost.startSeconds < 3.1
    for _ in range(1000):
        cost.observeStart(0, 1, 0.0)
    assert 0 < cost.startSeconds < 0.1


@given(st.floats(0.02, 5.0), st.floats(0.01, 3.0))
@settings(deadline=None)
def test_learnsWhatDataTakes(makeCost, start, factor):
    """What initialising takes is learned beside the start from clients with data of other sizes."""
    sizes = [(8192, 8192, 1, 8192), (4096, 4096, 1, 4096), (64, 64, 1, 64)]
    model = makeCost(sizes)
    data = [model.fixedSeconds(at, 1) - model.startSeconds for at in range(3)]
    cost = makeCost(sizes)
    for at in (2, 0, 1):
        cost.observeStart(at, 1, start + factor * data[at])
    assert cost.startSeconds == pytest.approx(start, rel=1e-3)
    for at in range(3):
        assert cost.fixedSeconds(at, 1) == pytest.approx(start + factor * data[at], rel=1e-3)


def test_startThatIsShorterThanItsData(makeCost):
    """One client that started sooner than the model's data alone: then its data takes less."""
    cost = makeCost([(8192, 8192, 1, 8192), (64, 64, 1, 64)])
    cost.observeStart(0, 1, 0.2)
    assert cost.fixedSeconds(0, 1) == pytest.approx(0.2, rel=0.1)
    cost.observeStart(1, 1, 0.2)
    for at in range(2):
        assert cost.fixedSeconds(at, 1) == pytest.approx(0.2, rel=0.1)


def test_oddIdentifiers(makeCost):
    """Unknown types and identifiers give estimates all the same: they only order the work."""
    for values in (
        {"problem_identifier": ""},
        {"problem_identifier": "Contraction_lm_Ailmk_Bjlmk_Cijk_Dijk"},
        {"a_type": "Int8x4", "d_type": "Int32"},
        {"a_type": "Float8BFloat8", "num_enqueues_per_sync": "many"},
    ):
        cost = makeCost([(128, 128, 2, 64)], **values)
        assert cost.pairSeconds(0) > 0


def test_estimatesFollowWhatRuns(makeCost):
    """A unit that is still running tells of its problem, and of others of its kind."""
    cost = makeCost([(1024, 1024, 1, 1024), (1024, 1032, 1, 1024), (8192, 8192, 1, 8192)])
    assert not cost.learned
    other = cost.pairSeconds(1)
    slow = 50 * cost.pairSeconds(0)
    cost.watch({0: [Part(0, 1, 4, 4 * slow)]})
    assert cost.learned
    assert cost.pairSeconds(0) == pytest.approx(slow)
    assert cost.pairSeconds(1) == pytest.approx(50 * other)
    assert cost.rectangleSeconds(0, 1, 10) == pytest.approx(10 * slow)


@given(st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=5))
@settings(deadline=None)
def test_watchReplacesWhatWasSaid(makeCost, looks):
    """However often one looks at a running unit, only the last look counts."""
    sizes = [(1024, 1024, 1, 1024), (2048, 2048, 1, 2048)]
    often, once = makeCost(sizes), makeCost(sizes)
    for seconds in looks:
        often.watch({0: [Part(0, 1, 3, seconds)], 1: [Part(1, 1, 2, seconds)]})
    once.watch({0: [Part(0, 1, 3, looks[-1])], 1: [Part(1, 1, 2, looks[-1])]})
    assert [often.pairSeconds(p) for p in (0, 1)] == [once.pairSeconds(p) for p in (0, 1)]
    often.watch({})
    fresh = makeCost(sizes)
    assert [often.pairSeconds(p) for p in (0, 1)] == [fresh.pairSeconds(p) for p in (0, 1)]
    assert not often.learned


def test_finishedUnitIsNotCountedTwice(makeCost):
    """What was said of a unit while it ran is forgotten when it is observed."""
    sizes = [(1024 + 8 * n, 1024, 1, 1024) for n in range(8)]
    watched, plain = makeCost(sizes), makeCost(sizes)
    watched.watch({0: [Part(0, 2, 5, 300.0)], 1: [Part(4, 2, 5, 7.0)]})
    watched.watch({0: [Part(0, 2, 5, 300.0)]})
    for cost in (watched, plain):
        cost.observe(0, 2, 5, 10.0, 0)
    assert watched.pairSeconds(7) == pytest.approx(plain.pairSeconds(7))


def test_manySizesAreWatchedUntilSomethingIsDone(makeCost):
    """With very many sizes a look must stay cheap: it counts only before the first unit ends."""
    cost = makeCost([(1024, 1024 + n, 1, 64) for n in range(WATCHED_SIZES + 1)])
    cost.watch({0: [Part(0, 1, 1, 9.0)]})
    assert cost.pairSeconds(0) == pytest.approx(9.0)
    cost.observe(0, 1, 1, 5.0)
    cost.watch({0: [Part(1, 1, 1, 700.0)]})
    assert cost.pairSeconds(0) == pytest.approx(5.0)
    assert cost.pairSeconds(1) < 100


def paces(makeCost, factors, rounds=40):
    """paceOf each device after units that took these factors of what is true."""
    cost = makeCost([(1024, 1024 + 8 * n, 1, 1024) for n in range(rounds * len(factors))])
    true = [3.0 * cost.pairSeconds(p) for p in range(rounds * len(factors))]
    for problem, seconds in enumerate(true):
        device = problem % len(factors)
        cost.observe(problem, 1, 10, 10 * seconds * factors[device], device)
    return [cost.paceOf(device) for device in range(len(factors))]


def test_equalDevicesHaveOnePace(makeCost):
    """The model's error is nobody's pace."""
    assert paces(makeCost, [1.0, 1.0, 1.0]) == pytest.approx([1.0, 1.0, 1.0], abs=0.05)


def test_slowDeviceIsKnown(makeCost):
    """A slow device's pace goes from 1 towards its factor, never beyond; the others' below 1."""
    slow, *others = paces(makeCost, [1.3, 1.0, 1.0, 1.0])
    assert 1.05 < slow < 1.3
    assert all(0.9 < pace < 1.0 for pace in others)


def test_slowerDevicesHaveGreaterPaces(makeCost):
    """Paces are in the order of the devices' factors."""
    found = paces(makeCost, [1.0, 1.6, 0.8, 1.2])
    assert found[2] < found[0] < found[3] < found[1]


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(1e-6, 1e6)), max_size=12))
@settings(deadline=None)
def test_paceIsBounded(makeCost, units):
    """However wrong an estimate was, no device is taken for more than PACE_LIMIT off."""
    cost = makeCost([(1024, 1024 + 8 * n, 1, 1024) for n in range(12)])
    for problem, (device, seconds) in enumerate(units):
        cost.observe(problem, 1, 1, seconds, device)
    for device in range(3):
        assert 1 / PACE_LIMIT <= cost.paceOf(device) <= PACE_LIMIT
    assert cost.paceOf(7) == 1.0
