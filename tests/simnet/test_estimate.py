from __future__ import annotations

import numpy as np
import pytest

from simnet.algorithms.registry import build
from simnet.collective import Collective, Kind
from simnet.collective_prediction import build_schedule, find_site, predict_collective
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import InvalidInput, Unsupported
from simnet.interpreters import closed_form
from simnet.interpreters.engine import run
from simnet.interpreters.estimate import estimate
from simnet.interpreters.messages import num_transfers
from simnet.interpreters.network import OverBudget
from simnet.interpreters.simulate import simulate
from simnet.link_load import carried_bytes
from simnet.paths import UniformPaths
from simnet.schedule import Op, Schedule, Step, Transfer
from tests.simnet.fabrics import nodes

US = 1e-6
COUNT = 12_800_000
COST = AlphaBeta()


def _uniform(n: int) -> UniformPaths:
    return UniformPaths(n, 1 * US, 12.5e9)


@pytest.mark.parametrize(
    ("algorithm", "options", "ranks", "wanted_us"),
    [
        ("ring", {}, 1024, 10_230.000),
        ("ring", {}, 16, 7_710.000),
        ("torus2d", {"grid": (64, 34)}, 2176, 8_380.249),
        ("torus2d", {"grid": (16, 16)}, 256, 8_220.000),
    ],
)
def test_estimate_gives_the_figures_of_idle_equal_links(
    algorithm: str, options: dict[str, tuple[int, int]], ranks: int, wanted_us: float
) -> None:
    timed = estimate(build(algorithm, ranks, **options), COUNT, _uniform(ranks), COST)
    assert timed.exact
    assert timed.time / US == pytest.approx(wanted_us, rel=1e-5)


@pytest.mark.parametrize("n", [2, 4, 16, 32])
def test_estimate_equals_the_closed_forms(n: int) -> None:
    alpha, beta, gamma, size = 1 * US, 1 / 12.5e9, 1e-11, 4 * 3 * 2**10 * n
    for name in ("ring", "recursive_doubling", "halving_doubling"):
        timed = estimate(build(name, n), size // 4, _uniform(n), COST, gamma=gamma)
        assert timed.time == pytest.approx(getattr(closed_form, name)(n, size, alpha, beta, gamma), rel=1e-12)
    timed = estimate(build("torus2d", n, grid=(n // 2, 2)), size // 4, _uniform(n), COST, gamma=gamma)
    assert timed.time == pytest.approx(closed_form.torus2d((n // 2, 2), size, alpha, beta, gamma), rel=1e-12)


def test_a_batch_of_sizes_and_starts_is_each_of_them_alone() -> None:
    rng = np.random.default_rng(1)
    schedule, paths = build("torus2d", 12, grid=(4, 3)), _uniform(12)
    counts = np.array([0, 1, 7, 12, 1000, 123_456])
    starts = rng.uniform(0, 1e-4, (6, 12))
    together = estimate(schedule, counts, paths, COST, starts=starts, gamma=1e-11)
    for i, count in enumerate(counts.tolist()):
        alone = estimate(schedule, count, paths, COST, starts=starts[i], gamma=1e-11)
        np.testing.assert_allclose(np.asarray(together.finish)[i], alone.finish, rtol=1e-12)


def test_lockstep_makes_a_shared_nic_exact() -> None:
    schedule, paths = build("torus2d", 16, grid=(4, 4)), nodes(4, 4)
    timed = estimate(schedule, 16 * 1000, paths, COST)
    assert timed.exact
    assert timed.time == pytest.approx(float(simulate(schedule, 16 * 1000, paths, COST).time), rel=1e-12)
    rows = 2 * 3 * (1.9 * US + 16_000 / 48.5e9)
    columns = 2 * 3 * (2.54 * US + 4_000 / (25e9 / 4))
    assert timed.time == pytest.approx(rows + columns, rel=1e-12)


def test_estimate_refuses_ranks_out_of_step_and_names_simulate() -> None:
    schedule, paths = build("torus2d", 16, grid=(8, 2)), nodes(4, 4)
    with pytest.raises(Unsupported, match="use simulate"):
        estimate(schedule, 16_000, paths, COST, starts=np.arange(16) * 1e-4)


def test_the_static_share_is_flagged_and_its_bracket_holds_the_simulated_time() -> None:
    rng = np.random.default_rng(5)
    schedule, paths = build("torus2d", 16, grid=(8, 2)), nodes(4, 4)
    for count in (16_000, 16_007, 5):
        starts = rng.uniform(0, 1e-5, 16)
        timed = estimate(schedule, count, paths, COST, starts=starts, static_share=True)
        assert not timed.exact
        assert timed.reason
        assert timed.bracket is not None
        truth = float(simulate(schedule, count, paths, COST, starts=starts).time)
        assert timed.bracket.low <= truth <= timed.bracket.high
        assert timed.time == pytest.approx(truth, rel=0.3)


def test_uneven_chunks_can_be_quicker_than_all_rounded_down_and_the_bracket_knows() -> None:
    schedule, paths = build("torus2d", 64, grid=(4, 16)), nodes(16, 4)
    timed = estimate(schedule, 65, paths, COST, static_share=True)
    truth = float(simulate(schedule, 65, paths, COST).time)
    assert truth < float(estimate(schedule, 64, paths, COST).time)
    assert timed.bracket is not None
    assert timed.bracket.low <= truth <= timed.bracket.high


def test_the_engine_takes_estimate_where_exact_and_else_simulates_the_small() -> None:
    schedule, paths = build("torus2d", 16, grid=(4, 4)), nodes(4, 4)
    assert run(schedule, 16_000, paths, COST).engine == "estimate"
    assert run(schedule, 16_007, paths, COST).engine == "simulate"
    assert not run(schedule, 16_007, paths, COST, engine="estimate").exact
    assert run(schedule, 16_000, paths, COST, engine="simulate").engine == "simulate"
    with pytest.raises(InvalidInput, match="auto, estimate, simulate"):
        run(schedule, 16_000, paths, COST, engine="guess")


def test_a_simulation_unasked_is_given_up_for_the_static_share_where_rates_change_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule, paths = build("torus2d", 16, grid=(4, 4)), nodes(4, 4)
    monkeypatch.setattr("simnet.interpreters.engine.SIMULATED_RATES", 10)
    timed = run(schedule, 16_007, paths, COST)
    assert (timed.engine, timed.exact) == ("estimate", False)
    assert "given up" in timed.reason
    assert timed.bracket is not None
    assert timed.bracket.low <= float(simulate(schedule, 16_007, paths, COST).time) <= timed.bracket.high
    assert run(schedule, 16_007, paths, COST, engine="simulate").engine == "simulate"
    with pytest.raises(OverBudget):
        simulate(schedule, 16_007, paths, COST, most_rated=10)


@pytest.mark.parametrize("engine", ["auto", "estimate", "simulate"])
@pytest.mark.parametrize("name", ["direct", "direct_all_to_all", "pairwise_all_to_all"])
def test_all_pairs_of_very_many_ranks_are_refused_at_once(name: str, engine: str) -> None:
    with pytest.raises(Unsupported, match=f"{name} on 100000 ranks lists more messages"):
        run(build(name, 100_000), 1_000_000, UniformPaths(100_000, 1 * US, 1e9), COST, engine=engine)


def test_all_pairs_are_listed_up_to_about_2048_ranks() -> None:
    assert num_transfers(build("direct", 2048)) == 2 * 2048 * 2047
    with pytest.raises(Unsupported, match="direct on 2100 ranks"):
        num_transfers(build("direct", 2100))


def test_a_message_that_carries_several_ranges_pays_latency_once() -> None:
    rows = [Transfer(0, 1, 0, 0), Transfer(0, 1, 2, 2), Transfer(0, 2, 1, 1)]
    schedule = Schedule("two", Collective(Kind.BROADCAST), 3, 3, lambda: iter([Step.of(rows)]))
    with pytest.raises(Unsupported, match="different sizes"):
        estimate(schedule, 3 * 12_500, UniformPaths(3, 1 * US, 12.5e9), COST)
    timed = simulate(schedule, 3 * 12_500, UniformPaths(3, 1 * US, 12.5e9), COST)
    assert np.asarray(timed.finish)[1] == pytest.approx(1 * US + (50_000 + 100_000) / 12.5e9)


def test_nothing_is_sent_where_there_are_no_bytes() -> None:
    schedule = build("ring", 5)
    assert estimate(schedule, 0, _uniform(5), COST).time == 0.0
    assert simulate(schedule, 0, _uniform(5), COST).time == 0.0
    step = Step.of([Transfer(0, 1, 0, 0, op=Op.REDUCE)])
    half = Schedule("half", Collective(Kind.REDUCE), 2, 2, lambda: iter([step]))
    assert estimate(half, 1, _uniform(2), COST).time == 0.0


@pytest.mark.parametrize("starts", [np.zeros(3), -np.ones(4), np.full(4, np.nan)])
def test_starts_that_are_not_times_of_all_ranks_are_refused(starts: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="starts must be"):
        estimate(build("ring", 4), 4, _uniform(4), COST, starts=starts)


def test_counts_and_paths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput, match="whole elements"):
        estimate(build("ring", 4), -1, _uniform(4), COST)
    with pytest.raises(InvalidInput, match="whole elements"):
        estimate(build("ring", 4), 1.5, _uniform(4), COST)
    with pytest.raises(InvalidInput, match="join 5 ranks"):
        estimate(build("ring", 4), 4, _uniform(5), COST)


def test_an_interval_of_all_pairs_on_shared_links_is_that_of_each_end_alone() -> None:
    rows = predict_collective(cluster="abci", ranks=32, algorithm="direct", sizes=[2**20, 2**22], engine="estimate")
    site = find_site(cluster="abci", ranks=32)
    for row, count in zip(rows, (2**18, 2**20), strict=True):
        alone = estimate(build("direct", 32), count, site.paths, AlphaBeta(), static_share=True)
        assert row.time_s == pytest.approx(alone.time, rel=1e-12)
        assert row.low_s < row.time_s < row.high_s


def test_a_size_of_nothing_among_others_is_exact_however_ranks_start() -> None:
    schedule, paths = build("bidirectional_ring", 16), nodes(4, 4)
    starts = np.random.default_rng(80).uniform(0, 1e-4, 16)
    timed = estimate(schedule, [32_000, 0], paths, AlphaBeta(), starts=np.stack([starts, starts]), static_share=True)
    assert np.asarray(timed.time)[1] == pytest.approx(starts.max(), rel=1e-12)
    assert np.asarray(timed.exact).tolist() == [False, True]


@pytest.mark.parametrize("cluster", ["abci", "p3-16xlarge", "uber-tcp"])
@pytest.mark.parametrize("name", ["bucket", "torus2d_concurrent", "swing"])
def test_a_static_share_does_not_beat_what_the_fullest_link_has_to_carry(cluster: str, name: str) -> None:
    site = find_site(ranks=16, cluster=cluster)
    schedule, sizes = build_schedule(name, site), np.array([2**16, 2**22])
    found = estimate(schedule, sizes, site.paths, AlphaBeta(), static_share=True)
    carried = carried_bytes(schedule, site.paths, 4.0)
    assert not found.exact.any()
    assert (found.time >= 0.999 * sizes * (carried / site.paths.link_bandwidth).max()).all()
    assert (found.bracket.low <= found.time).all()
    assert (found.bracket.high >= found.time).all()
    assert np.array_equal(found.finish.max(axis=1), found.time)
