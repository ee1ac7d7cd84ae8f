from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simnet.algorithms.registry import build
from simnet.collective import Collective, Kind
from simnet.costs.alpha_beta import AlphaBeta
from simnet.costs.registry import find as find_cost
from simnet.costs.tcp import Tcp
from simnet.errors import Incomplete, InvalidInput, Unsupported
from simnet.interpreters.estimate import estimate
from simnet.interpreters.program import Job
from simnet.interpreters.simulate import LinkChange, simulate, simulate_jobs
from simnet.paths import UniformPaths
from simnet.schedule import Schedule, Step, Transfer
from tests.simnet.fabrics import nodes, on_torus, torus

US = 1e-6
COST = AlphaBeta()


def _uniform(n: int) -> UniformPaths:
    return UniformPaths(n, 1 * US, 12.5e9)


def _one(transfers: list[Transfer], world_size: int) -> Schedule:
    return Schedule("one", Collective(Kind.BROADCAST), world_size, 1, lambda: iter([Step.of(transfers)]))


@pytest.mark.parametrize(("algorithm", "ranks", "wanted_us"), [("ring", 16, 7_710.0), ("torus2d", 64, 8_162.0)])
def test_simulate_gives_the_figures_of_idle_equal_links(algorithm: str, ranks: int, wanted_us: float) -> None:
    timed = simulate(build(algorithm, ranks), 12_800_000, _uniform(ranks), COST)
    x = int(ranks**0.5)
    exact = wanted_us if algorithm == "ring" else 4 * (x - 1) + 2 * (x - 1) / x * 4096 * (1 + 1 / x)
    assert timed.time / US == pytest.approx(exact, rel=1e-9)


def test_two_flows_into_one_port_take_twice_as_long_and_reductions_come_after() -> None:
    schedule = _one([Transfer(0, 2, 0, 0), Transfer(1, 2, 0, 0)], 3)
    timed = simulate(schedule, 12_500, _uniform(3), COST)
    assert np.asarray(timed.finish) / US == pytest.approx([9, 9, 9])


def test_a_straggler_delays_those_who_wait_for_it_and_nobody_waits_twice() -> None:
    """Case 48: compute 93 ms on three ranks and 293 ms on one; all end together after 293 ms and the collective."""
    starts = np.array([0.093, 0.293, 0.093, 0.093])
    schedule = build("ring", 4)
    alone = float(simulate(schedule, 4000, _uniform(4), COST).time)
    timed = simulate(schedule, 4000, _uniform(4), COST, starts=starts)
    assert timed.time == pytest.approx(0.293 + alone, rel=1e-6)


def test_a_slow_link_slows_a_ring_to_its_own_speed() -> None:
    schedule, n = build("ring", 8), 8
    size = 8 * 100_000
    slowed = simulate(schedule, size, _uniform(n), COST, changes=[LinkChange(0.0, 3, 0.25)])
    assert slowed.time == pytest.approx(2 * (n - 1) * (1 * US + 400_000 / (12.5e9 / 4)), rel=1e-3)


def test_a_link_that_fails_and_comes_back_costs_the_gap() -> None:
    schedule = _one([Transfer(0, 1, 0, 0)], 2)
    gap = [LinkChange(5 * US, 0, 0.0), LinkChange(25 * US, 0, 1.0)]
    timed = simulate(schedule, 31_250, _uniform(2), COST, changes=gap)
    assert timed.time / US == pytest.approx(1 + 10 + 20)


def test_a_link_that_never_comes_back_is_an_error_that_names_it() -> None:
    with pytest.raises(Incomplete, match=r"failed links \(numbers \[1\]\)"):
        simulate(build("ring", 4), 4_000_000, _uniform(4), COST, changes=[LinkChange(10 * US, 1, 0.0)])


def test_jobs_of_one_lane_follow_each_other_and_those_of_two_lanes_share() -> None:
    schedule = build("ring", 4)
    size = 4 * 125_000
    alone = float(simulate(schedule, size, _uniform(4), COST).time)
    one_lane = simulate_jobs([Job(schedule, size), Job(schedule, size)], _uniform(4), COST)
    assert one_lane.time == pytest.approx(2 * alone, rel=1e-9)
    two_lanes = simulate_jobs([Job(schedule, size), Job(schedule, size, lane=1)], _uniform(4), COST)
    assert two_lanes.time == pytest.approx(2 * alone - 6 * US, rel=1e-9)


def test_groups_on_ranks_of_their_own_do_not_disturb_each_other() -> None:
    schedule = build("ring", 4)
    groups = [Job(schedule, 4000, ranks=np.array(ranks)) for ranks in ([0, 2, 4, 6], [1, 3, 5, 7])]
    together = simulate_jobs(groups, _uniform(8), COST)
    alone = float(simulate(schedule, 4000, _uniform(4), COST).time)
    assert [float(f.max()) for f in together.finish] == pytest.approx([alone, alone], rel=1e-12)


def test_a_second_job_on_the_same_nics_slows_the_first() -> None:
    schedule, paths = build("ring", 4), nodes(4, 4)
    jobs = [Job(schedule, 4_000_000, ranks=np.array([0, 4, 8, 12]) + i) for i in range(2)]
    both, one = simulate_jobs(jobs, paths, COST), simulate_jobs(jobs[:1], paths, COST)
    assert both.time == pytest.approx(one.time + 6 * 4_000_000 / 25e9, rel=1e-6)


def test_jobs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput, match="different ranks"):
        simulate_jobs([Job(build("ring", 4), 4, ranks=np.array([0, 1, 1, 2]))], _uniform(4), COST)
    with pytest.raises(InvalidInput, match="a change needs a link"):
        simulate(build("ring", 4), 4, _uniform(4), COST, changes=[LinkChange(0.0, 99, 0.5)])


def test_the_timeline_holds_every_message_and_its_times_add_up() -> None:
    schedule, paths = build("torus2d", 16, grid=(4, 4)), nodes(4, 4)
    done = simulate_jobs([Job(schedule, 16_000)], paths, COST, timeline=True)
    events = done.timeline
    assert events is not None
    assert len(events) == done.num_messages == 16 * 12
    assert events.end.max() == done.time
    assert (events.start <= events.wire).all()
    assert (events.wire < events.end).all()
    assert events.num_bytes.sum() == 16 * 2 * (16 - 1) * 4000
    assert (np.diff(events.end) >= 0).all()
    assert set(events.step.tolist()) == set(range(12))


@pytest.mark.parametrize("model", ["loggp", "tcp", "nccl"])
def test_eager_and_occupying_models_run_to_the_end(model: str) -> None:
    for name in ("ring", "direct", "double_binary_tree"):
        done = simulate_jobs([Job(build(name, 6), 6 * 64)], _uniform(6), find_cost(model).build(), timeline=True)
        assert done.timeline is not None
        assert len(done.timeline) == done.num_messages > 0
        assert np.isfinite(done.time)


def test_an_eager_sender_goes_on_before_its_receiver_is_there() -> None:
    class Eager(AlphaBeta):
        def eager(self, num_bytes):
            return np.ones(np.shape(num_bytes), bool)

    schedule = _one([Transfer(0, 1, 0, 0)], 2)
    starts = np.array([0.0, 50 * US])
    for engine in (simulate, estimate):
        finish = np.asarray(engine(schedule, 12_500, _uniform(2), Eager(), starts=starts).finish)
        assert finish / US == pytest.approx([5, 50])


def test_rings_and_tori_on_a_torus_with_four_ports() -> None:
    """32 x 32 ranks, four links of 82 GB/s and 1 us each, 51.2 MB: two dimensions win in latency and throughput."""
    fabric = torus(32, 32)
    grid, cycle = on_torus(fabric, 32, 32), on_torus(fabric, 32, 32, cycle=True)
    wanted = {
        "bidirectional_ring": (cycle, {}, 2_669.78),
        "torus2d": (grid, {"grid": (32, 32)}, 1_371.56),
        "bucket": (grid, {"grid": (32, 32)}, 435.89),
    }
    for name, (paths, options, time_us) in wanted.items():
        timed = estimate(build(name, 1024, **options), 12_800_000, paths, COST)
        assert timed.exact
        assert timed.time / US == pytest.approx(time_us, abs=0.005)


def test_shared_nics_of_a_thousand_devices() -> None:
    """51,249,152 B on 272 nodes of 4: a column of nodes keeps step, rows across nodes do not."""
    paths = nodes(272, 4)
    count = 51_249_152 // 4
    exact = estimate(build("torus2d", 1088, grid=(4, 272)), count, paths, COST)
    assert exact.exact
    assert exact.time / US == pytest.approx(7_057.96, abs=0.005)
    flagged = estimate(build("torus2d", 1088, grid=(32, 34)), count, paths, COST, static_share=True)
    assert not flagged.exact
    assert flagged.time / US == pytest.approx(4_752.4, rel=0.03)


@pytest.mark.slow
def test_shared_nics_of_a_thousand_devices_out_of_step() -> None:
    timed = simulate(build("torus2d", 1088, grid=(32, 34)), 51_249_152 // 4, nodes(272, 4), COST)
    assert timed.time / US == pytest.approx(4_752.4, abs=0.05)


@pytest.mark.parametrize("count", [1, 3, 7, 1001])
def test_acknowledgements_are_those_of_each_repetition(count: int) -> None:
    """Messages that carry nothing in the first repetition, or one element less, still have theirs later."""
    cost, paths, ring = Tcp(overhead=1e-5), UniformPaths(5, 1e-6, 1.25e8), build("ring", 5)
    alike = replace(ring, items=ring.expand)
    assert simulate(ring, count, paths, cost).time == simulate(alike, count, paths, cost).time
    timed = estimate(ring, count, paths, cost, static_share=True)
    assert timed.bracket is not None
    assert timed.bracket.low <= simulate(ring, count, paths, cost).time <= timed.bracket.high


def test_what_would_be_followed_for_hours_is_refused() -> None:
    n = 65_536
    with pytest.raises(Unsupported, match="8,589,803,520 messages, which simulate would follow for hours"):
        simulate(build("ring", n), n, UniformPaths(n, 1e-6, 12.5e9), AlphaBeta())
