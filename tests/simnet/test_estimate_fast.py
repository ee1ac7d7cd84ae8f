"""Every short cut of estimate gives what stepping through all repetitions one by one gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnet.algorithms.registry import build
from simnet.combine import relabel
from simnet.costs.alpha_beta import AlphaBeta
from simnet.interpreters.cycles import Layout, Orbit
from simnet.interpreters.estimate import STEPPED_TRANSFERS, _Case, _run, estimate
from simnet.interpreters.stages import LinkDraws, stages
from simnet.paths import Paths, UniformPaths
from simnet.schedule import Schedule
from tests.simnet.fabrics import nodes

SCHEDULES = (
    ("ring", {}), ("ring_reduce_scatter", {}), ("ring_all_gather", {}), ("torus2d", {}), ("torus_nd", {}),
    ("torus2d_concurrent", {}), ("bidirectional_ring", {}), ("bucket", {}), ("hierarchical", {}), ("binomial_tree", {}),
)  # fmt: skip
ALL_REDUCES = tuple(named for named in SCHEDULES if named[0] not in ("ring_reduce_scatter", "ring_all_gather"))


def _case(schedule: Schedule, counts: np.ndarray, paths: Paths, **given: object) -> _Case:
    settings = {"itemsize": 4, "gamma": 0.0, "starts": None, "draws": None} | given
    return _Case.of(schedule, counts, paths, AlphaBeta(), **settings)


def _same(case: _Case) -> None:
    (fast, fast_exact, _), (plain, plain_exact, _) = _run(case), _run(case, fast=False)
    np.testing.assert_allclose(fast, plain, rtol=1e-12)
    np.testing.assert_array_equal(fast_exact, plain_exact)


@given(
    st.sampled_from(SCHEDULES),
    st.sampled_from([2, 3, 4, 6, 8, 12, 16]),
    st.sampled_from(["equal", "random", "two"]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_short_cuts_change_nothing(
    named: tuple[str, dict[str, object]], n: int, skew: str, shared: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    schedule = build(named[0], n, **named[1])
    paths: Paths = nodes(-(-n // 4), 4, ranks=n) if shared else UniformPaths(n, 1e-6, 12.5e9)
    counts = rng.integers(0, 5000, 4)
    counts[1] = schedule.num_chunks * 100
    starts = {"equal": np.zeros(n), "random": rng.uniform(0, 1e-4, n), "two": 1e-5 * rng.integers(0, 2, n)}[skew]
    gamma = rng.choice([0.0, 1e-11]) * np.ones(n) if rng.integers(2) else 0.0
    _same(_case(schedule, counts, paths, starts=starts, gamma=gamma))


@given(st.sampled_from(ALL_REDUCES), st.sampled_from([5, 12, 24]), st.integers(0, 2**32 - 1))
def test_short_cuts_change_nothing_for_links_of_their_own_on_relabelled_ranks(
    named: tuple[str, dict[str, object]], n: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    schedule = relabel(build(named[0], n, **named[1]), rng.permutation(n))
    paths = UniformPaths(n, 1e-6, 12.5e9)
    shape = (3, 2 * n)
    draws = LinkDraws(rng.uniform(0, 2e-6, shape), rng.uniform(5e9, 12e9, shape))
    for count in (schedule.num_chunks * 64, int(rng.integers(1, 9999))):
        _same(_case(schedule, np.array(count), paths, starts=rng.uniform(0, 1e-5, (3, n)), draws=draws))


@pytest.mark.parametrize("n", [48, 300])
def test_clocks_that_move_on_steadily_are_multiplied(n: int) -> None:
    rng = np.random.default_rng(n)
    schedule, paths = build("ring", n), UniformPaths(n, 1e-6, 12.5e9)
    _same(_case(schedule, np.array(n * 100), paths, starts=rng.uniform(0, 1e-5, n)))


def test_uneven_chunks_of_rings_and_tori_are_followed_along_their_orbit() -> None:
    for name, options in (("ring", {}), ("torus2d", {"grid": (6, 4)}), ("ring_all_gather", {})):
        case = _case(build(name, 24, **options), np.array(100), UniformPaths(24, 1e-6, 12.5e9))
        for stage in stages(case.setting):
            layout = Layout.of(stage)
            assert layout is not None
            assert Orbit.of(stage, layout) is not None


@pytest.mark.parametrize("count", [1, 23, 25, 100, 4799])
@pytest.mark.parametrize("named", [("ring", {}), ("torus2d", {"grid": (6, 4)}), ("bucket", {})])
def test_uneven_chunks_on_equal_links_pay_their_own_of_two_prices(named: tuple[str, dict], count: int) -> None:
    rng = np.random.default_rng(count)
    for starts in (np.zeros(24), rng.uniform(0, 1e-4, 24)):
        _same(_case(build(named[0], 24, **named[1]), np.array(count), UniformPaths(24, 1e-6, 12.5e9), starts=starts))


def test_the_largest_cases_are_bracketed_where_they_are_not_alike() -> None:
    n = 65_536
    schedule, paths = build("ring", n), UniformPaths(n, 1e-6, 12.5e9)
    assert 2 * n * (n - 1) > STEPPED_TRANSFERS
    exact = estimate(schedule, 1000 * n, paths, AlphaBeta())
    assert exact.exact
    assert exact.time == pytest.approx(2 * (n - 1) * (1e-6 + 4000 / 12.5e9), rel=1e-12)
    uneven = estimate(schedule, 1000 * n + 1, paths, AlphaBeta())
    assert not uneven.exact
    assert uneven.bracket is not None
    assert uneven.bracket.low == pytest.approx(exact.time, rel=1e-12)
    assert uneven.bracket.high == pytest.approx(2 * (n - 1) * (1e-6 + 4004 / 12.5e9), rel=1e-12)
