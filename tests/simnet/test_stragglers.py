import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnet.errors import InvalidInput
from simnet.paths import UniformPaths
from simnet.stragglers import (
    Failures,
    Jitter,
    Shape,
    Slow,
    compute_times,
    expected_maximum,
    maximum_quantile,
    slow_links,
    slow_node,
    wait_for_all,
)


def test_one_slow_rank_makes_the_step_and_the_others_wait():
    """Public report: +200 ms in rank 1's backward; all four ranks measure 293 ms."""
    arrivals = compute_times(0.093, 4, slow=[Slow((1,), extra=0.2)])
    waits = wait_for_all(arrivals)
    assert waits.time == pytest.approx([0.293])
    assert waits.wait[0] == pytest.approx([0.2, 0, 0.2, 0.2])
    assert waits.last.tolist() == [1]


def test_a_slow_node_slows_all_its_ranks():
    times = compute_times(1.0, 6, slow=[slow_node(1, 2, 1.5)])
    assert times.tolist() == [[1, 1, 1.5, 1.5, 1, 1]]


@pytest.mark.parametrize("shape", Shape)
def test_factors_have_mean_one_and_the_stated_spread(shape):
    drawn = Jitter(0.1, shape).draw(np.random.default_rng(1), (400_000,))
    assert drawn.mean() == pytest.approx(1, abs=1e-3)
    assert drawn.std() == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("ranks", [2, 32, 1088])
def test_expected_maximum_agrees_with_draws(shape, ranks):
    jitter = Jitter(0.05, shape)
    draws = max(400, 400_000 // ranks)
    largest = jitter.draw(np.random.default_rng(2), (draws, ranks)).max(axis=1)
    error = largest.std() / np.sqrt(draws)
    assert expected_maximum(jitter, ranks) == pytest.approx(largest.mean(), abs=5 * error)
    for probability in (0.5, 0.95):
        assert maximum_quantile(jitter, ranks, probability) == pytest.approx(
            np.quantile(largest, probability), rel=0.01
        )


@pytest.mark.parametrize("ranks", [1, 2, 5, 100, 65536])
def test_exponential_maximum_is_the_harmonic_number(ranks):
    """Closed form: the largest of n exponentials has mean 1 + 1/2 + ... + 1/n."""
    harmonic = sum(1 / i for i in range(1, ranks + 1))
    expected = 1 + 0.2 * (harmonic - 1)
    assert expected_maximum(Jitter(0.2, Shape.EXPONENTIAL), ranks) == pytest.approx(expected, rel=1e-4)


def test_normal_maximum_of_two_is_one_over_root_pi():
    assert expected_maximum(Jitter(0.1, Shape.NORMAL), 2) == pytest.approx(1 + 0.1 / np.sqrt(np.pi), rel=1e-5)


@given(st.sampled_from(Shape), st.floats(0, 0.5), st.integers(1, 10_000))
def test_more_ranks_and_more_spread_are_never_faster(shape, spread, ranks):
    slowest = expected_maximum(Jitter(spread, shape), ranks)
    assert slowest >= 1 - 1e-6
    assert expected_maximum(Jitter(spread, shape), ranks + 1) >= slowest - 1e-6
    assert expected_maximum(Jitter(spread * 1.1, shape), ranks) >= slowest - 1e-5


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=20))
def test_the_last_rank_waits_nothing_and_nobody_waits_less(arrivals):
    waits = wait_for_all(np.array([arrivals]))
    assert waits.time[0] == max(arrivals)
    assert waits.wait[0, waits.last[0]] == 0
    assert waits.wait.min() == 0


def test_p50_and_p95_are_those_of_the_maximum():
    jitter = Jitter(0.05)
    times = compute_times(0.1, 64, draws=4000, jitter=jitter, rng=np.random.default_rng(3))
    waits = wait_for_all(times)
    assert waits.p50 == pytest.approx(0.1 * maximum_quantile(jitter, 64, 0.5), rel=0.005)
    assert waits.p95 == pytest.approx(0.1 * maximum_quantile(jitter, 64, 0.95), rel=0.01)
    assert waits.p50 < waits.p95


def test_ranks_of_a_node_are_late_together_and_make_fewer_draws():
    jitter, rng = Jitter(0.05), np.random.default_rng(6)
    times = compute_times(1.0, 64, draws=4000, node_jitter=jitter, ranks_per_node=8, rng=rng)
    assert (times[:, :8] == times[:, :1]).all()
    assert wait_for_all(times).time.mean() == pytest.approx(expected_maximum(jitter, 8), rel=0.005)
    assert expected_maximum(jitter, 8) < expected_maximum(jitter, 64)


def test_the_same_seed_gives_the_same_times():
    again = [compute_times(1, 4, draws=3, jitter=Jitter(0.1), rng=np.random.default_rng(7)) for _ in range(2)]
    assert (again[0] == again[1]).all()


def test_a_slow_link_is_narrower_and_later_only_for_messages_across_it():
    paths = UniformPaths(4, 1e-6, 1e9)
    slow = slow_links(paths, {1: 4.0}, extra_latency={1: 5e-6})
    assert slow.link_bandwidth.tolist() == [1e9, 0.25e9, *[1e9] * 6]
    src, dst = np.array([0, 1, 2]), np.array([1, 2, 3])
    assert slow.latency(src, dst) == pytest.approx([1e-6, 6e-6, 1e-6])
    assert slow.latency(src[:0], dst[:0]).size == 0
    assert slow.world_size == 4


def test_without_failures_only_checkpoints_are_added():
    rare = Failures(mtbf=1e15, num_nodes=1, checkpoint=10, restart=60, interval=3600)
    assert rare.expected_time(4 * 3600) == pytest.approx(4 * 3600 + 3 * 10)
    assert rare.expected_time(0) == 0


@pytest.mark.parametrize("restart", [0.0, 300.0])
def test_expected_time_with_failures_agrees_with_draws(restart):
    failing = Failures(mtbf=100 * 3600, num_nodes=50, checkpoint=60, restart=restart, interval=1800)
    drawn = failing.draw_times(36_000, np.random.default_rng(4), 4000)
    assert failing.expected_time(36_000) == pytest.approx(drawn.mean(), abs=4 * drawn.std() / np.sqrt(drawn.size))


def test_the_best_interval_is_the_best():
    """Daly's estimate lies within a thousandth of the least expected time over a sweep of intervals."""
    node = {"mtbf": 5e6, "num_nodes": 512, "checkpoint": 30, "restart": 120}
    best = Failures(**node)
    sweep = [Failures(**node, interval=i).expected_time(1e7) for i in np.geomspace(20, 20_000, 200)]
    assert best.expected_time(1e7) == pytest.approx(min(sweep), rel=1e-3)
    assert best.best_interval == pytest.approx((2 * 30 * 5e6 / 512) ** 0.5, rel=0.05)


def test_more_nodes_take_longer():
    times = [Failures(1e6, n, 10, 60).expected_time(1e5) for n in (1, 10, 100, 1000)]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Jitter(-0.1), "spread of lognormal jitter"),
        (lambda: Jitter(1.5, Shape.EXPONENTIAL), "must be 0 to 1"),
        (lambda: Slow((0,), factor=0), "factor above 0"),
        (lambda: compute_times(1, 4, slow=[Slow((4,))]), "slow rank 4 does not exist among 4 ranks"),
        (lambda: compute_times(1, 4, jitter=Jitter(0.1)), "needs a random generator"),
        (
            lambda: compute_times(1, 4, jitter=Jitter(0.1), ranks_per_node=0, rng=np.random.default_rng(1)),
            "ranks_per_node must be 1 or more",
        ),
        (lambda: expected_maximum(Jitter(0.1), 0), "1 or more ranks"),
        (lambda: maximum_quantile(Jitter(0.1), 4, 1), "0 < probability < 1"),
        (lambda: slow_links(UniformPaths(2, 0, 1), {4: 2}), "slow link 4 does not exist among 4 links"),
        (lambda: slow_links(UniformPaths(2, 0, 1), {0: 0}), "must be above 0"),
        (lambda: Failures(0, 1, 1, 1), "mtbf above 0 s"),
        (lambda: Failures(1, 1, 1, 1, interval=0), "interval must be above 0 s"),
        (lambda: Failures(1e6, 1, 0, 1).expected_time(10), "have no best interval"),
        (lambda: Failures(1, 1, 1, 1, interval=1e4).expected_time(1e5), "write checkpoints more often"),
    ],
)
def test_requests_that_mean_nothing_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
