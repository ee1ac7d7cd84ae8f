"""Published orders of algorithms, from public reports, come out the same way round."""

from __future__ import annotations

import numpy as np
import pytest

from simnet.algorithms.registry import build
from simnet.collective import Collective, Kind
from simnet.costs.alpha_beta import AlphaBeta
from simnet.costs.loggp import LogGP
from simnet.interpreters.engine import run
from simnet.interpreters.program import Job
from simnet.interpreters.simulate import simulate, simulate_jobs
from simnet.metrics import busbw
from simnet.paths import Paths, UniformPaths
from simnet.schedule import Op, Schedule, Step
from tests.simnet.fabrics import nodes

COST = AlphaBeta()
GB = 1e9


def _busbw(name: str, paths: Paths, size: int, *, ranks_per_node: int | None = None) -> float:
    n = paths.world_size
    schedule = build(name, n, ranks_per_node=ranks_per_node)
    count = size // 4 // schedule.num_chunks * schedule.num_chunks
    time = float(run(schedule, count, paths, COST, engine="estimate").time)
    return busbw(Kind.ALL_REDUCE, n, 4 * count, time)


def test_on_two_nodes_a_tree_shows_more_busbw_than_the_nic_and_a_ring_the_nic() -> None:
    """Case 2 (nccl-tests 196, 22): 2 x 8 devices, 12.5 GB/s NIC; limits are 12.5 for a ring and 23.4 for a tree."""
    paths = nodes(2, 8, nic=12.5 * GB, pair=450 * GB)
    ring, tree = _busbw("ring", paths, 2**30), _busbw("double_binary_tree", paths, 2**30, ranks_per_node=8)
    limit = 2 * 15 / 16 * 12.5 * GB
    assert ring == pytest.approx(12.5 * GB, rel=0.01)
    assert 0.99 * limit < tree <= limit


def test_both_trees_of_two_nodes_use_the_nic_at_once() -> None:
    """Links inside a node four times as wide as the NIC: only the first segments' way along a chain is missing."""
    paths = nodes(2, 8, nic=12.5 * GB, pair=50 * GB)
    tree = _busbw("double_binary_tree", paths, 2**30, ranks_per_node=8)
    segments, hops, narrower = 32, 7, 12.5 / 50
    limit = 2 * 15 / 16 * 12.5 * GB
    assert limit / (1 + 2 * hops * narrower / segments) < tree < limit


def test_on_five_nodes_a_ring_beats_a_tree() -> None:
    """Case 37 (nccl 1368): 5 x 8 devices, 200 GB/s per node: ring about 190, tree about 150 GB/s."""
    paths = nodes(5, 8, nic=200 * GB, pair=450 * GB)
    ring, tree = _busbw("ring", paths, 2**30), _busbw("double_binary_tree", paths, 2**30, ranks_per_node=8)
    assert 0.7 * ring < tree < ring <= 200 * GB


def test_mid_sizes_lose_busbw_with_the_nodes_under_a_ring() -> None:
    """Case 37 (nccl 1712): steps grow as 2(n-1)."""
    found = [_busbw("ring", nodes(n, 8, nic=50 * GB, pair=450 * GB), 8 * 2**20) for n in (2, 4, 8, 16)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 2 * found[-1]


def _naive(n: int) -> Schedule:
    """Everybody sends everything to everybody: n(n-1)S in all, where a ring needs 2(n-1)S."""
    src, dst = np.divmod(np.arange(n * n), n)
    others = src != dst
    step = Step.columns(src[others], dst[others], 0, op=Op.REDUCE)
    return Schedule("naive", Collective(Kind.ALL_REDUCE), n, 1, lambda: iter([step]))


def test_naive_moves_three_times_a_ring_on_six_devices_and_takes_at_least_as_much_longer() -> None:
    """Case 39 (tinygrad PR 8551): 0.554 s against 0.094 s, of which 3 from traffic and the rest contention."""
    n, count = 6, 6 * 10_000_000
    ports = UniformPaths(n, 1e-6, 12.5 * GB)
    times = [float(simulate(s, count, ports, COST).time) for s in (_naive(n), build("ring", n))]
    assert times[0] / times[1] == pytest.approx(3.0, rel=1e-3)
    shared = nodes(3, 2, nic=12.5 * GB)
    times = [float(simulate(s, count, shared, COST).time) for s in (_naive(n), build("ring", n))]
    assert 3 < times[0] / times[1] < 6


def test_which_of_naive_and_ring_wins_depends_on_the_cost_of_launching_a_copy() -> None:
    """Case 39 (tinygrad PR 3184): one backend 5.6 to 6.3 ms naive, 7.9 ring; another 4.6 to 6.2 naive, 2.2 ring."""
    n, count = 6, 6 * 1_000_000
    paths = UniformPaths(n, 0.0, 12.5 * GB)
    for launch, winner in ((1e-6, "ring"), (1e-3, "naive")):
        cost = LogGP(overhead=launch / 2, gap=1e-9)
        times = {s.name: float(simulate(s, count, paths, cost).time) for s in (_naive(n), build("ring", n))}
        assert min(times, key=lambda name: times[name]) == winner


def test_buckets_beat_layers_by_the_messages_they_save() -> None:
    """Case 40 (algolocal PR 92): 8 ranks, 32 layers: 3,584 messages 1.79 ms; 6 buckets: 672 messages 0.336 ms.

    Every message costs 0.5 us and all ranks share one processor, so a step of 8 messages takes 4 us.
    """
    schedule, paths = build("ring", 8), UniformPaths(8, 8 * 0.5e-6, 1e18)
    layers = simulate_jobs([Job(schedule, 8 * 11)] * 32, paths, COST)
    buckets = simulate_jobs([Job(schedule, 8 * 58)] * 6, paths, COST)
    assert (layers.num_messages, buckets.num_messages) == (3584, 672)
    assert layers.time == pytest.approx(1.79e-3, rel=0.002)
    assert buckets.time == pytest.approx(0.336e-3, rel=1e-6)
