"""Laws that hold for every algorithm, whatever the figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnet.algorithms.registry import algorithms, build
from simnet.collective import Kind
from simnet.combine import relabel
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import Unsupported
from simnet.fabric import Fabric, Link
from simnet.interpreters import closed_form
from simnet.interpreters.estimate import estimate
from simnet.interpreters.simulate import simulate
from simnet.metrics import busbw
from simnet.paths import FabricPaths, UniformPaths
from simnet.placement import Placement
from simnet.schedule import Schedule
from tests.simnet.fabrics import nodes, on_torus, torus

COST = AlphaBeta()
ALL_REDUCES = tuple(algorithms(Kind.ALL_REDUCE))
LATENCY, BANDWIDTH = 1e-6, 12.5e9


def _build(name: str, n: int) -> Schedule | None:
    try:
        return build(name, n)
    except Unsupported:
        return None


def _time(schedule: Schedule, count: int, latency: float = LATENCY, bandwidth: float = BANDWIDTH) -> float:
    return float(simulate(schedule, count, UniformPaths(schedule.world_size, latency, bandwidth), COST).time)


@given(st.sampled_from(ALL_REDUCES), st.integers(2, 12), st.integers(1, 5000))
@settings(max_examples=60)
def test_no_all_reduce_beats_the_bandwidth_bound_or_the_latency_bound(name: str, n: int, count: int) -> None:
    schedule = _build(name, n)
    if schedule is None:
        return
    count *= schedule.num_chunks
    time = _time(schedule, count)
    assert time >= closed_form.bandwidth_bound(n, 4 * count, 1 / BANDWIDTH) * (1 - 1e-12)
    one_port = all(len(np.unique(step.src)) == len(step) for step in schedule.expand())
    assert not one_port or time >= closed_form.latency_bound(n, LATENCY)


@given(st.sampled_from(ALL_REDUCES), st.integers(2, 9), st.integers(1, 10**6), st.floats(1, 4))
@settings(max_examples=40)
def test_without_shared_links_better_links_and_fewer_bytes_are_never_slower(
    name: str, n: int, count: int, factor: float
) -> None:
    schedule = _build(name, n)
    if schedule is None:
        return
    paths = UniformPaths(n, LATENCY, BANDWIDTH)
    chunks = schedule.num_chunks
    if not estimate(schedule, count * chunks, paths, COST, static_share=True).exact:
        return
    time = _time(schedule, count * chunks)
    assert _time(schedule, count * chunks, bandwidth=BANDWIDTH * factor) <= time * (1 + 1e-12)
    assert _time(schedule, count * chunks, latency=LATENCY / factor) <= time * (1 + 1e-12)
    assert _time(schedule, int(count / factor) * chunks) <= time * (1 + 1e-12)


def test_with_sharing_a_faster_link_can_make_it_slower() -> None:
    """Physics, not a fault: a flow that comes sooner takes its share from the one everybody waits for."""

    def time(first_hop: float) -> float:
        from simnet.collective import Collective
        from simnet.schedule import Step, Transfer

        links = [Link("a", "b", 0.0, first_hop), Link("b", "s", 0.0, 1e9), Link("c", "s", 0.0, 1e9)]
        links += [
            Link("s", "t", 0.0, 1e9),
            Link("t", "d", 0.0, 1e9),
            Link("t", "e", 0.0, 1e9),
            Link("d", "f", 0.0, 1e8),
        ]
        paths = FabricPaths(Fabric(links), Placement(("a", "b", "c", "d", "e", "f")))
        steps = [
            Step.of([Transfer(0, 1, 0, 0), Transfer(2, 3, 0, 0)]),
            Step.of([Transfer(1, 4, 0, 0), Transfer(3, 5, 0, 0)]),
        ]
        schedule = Schedule("anomaly", Collective(Kind.BROADCAST), 6, 1, lambda: iter(steps))
        return float(simulate(schedule, 25_000_000, paths, COST).time)

    assert time(1e10) > time(1e9)


@given(st.sampled_from(ALL_REDUCES), st.integers(2, 12), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_relabelling_ranks_on_a_symmetric_fabric_changes_nothing(name: str, n: int, seed: int) -> None:
    schedule = _build(name, n)
    if schedule is None:
        return
    mixed = relabel(schedule, np.random.default_rng(seed).permutation(n))
    count = 100 * schedule.num_chunks
    assert _time(mixed, count) == pytest.approx(_time(schedule, count), rel=1e-12)


def test_another_topology_or_placement_does_change_the_time() -> None:
    schedule, count = build("ring", 16), 16 * 10_000
    fabric = torus(4, 4, bandwidth=BANDWIDTH, latency=LATENCY)
    row_by_row = simulate(schedule, count, on_torus(fabric, 4, 4), COST).time
    along = simulate(schedule, count, on_torus(fabric, 4, 4, cycle=True), COST).time
    assert len({row_by_row, along, simulate(schedule, count, nodes(4, 4), COST).time}) == 3


@given(st.integers(2, 64), st.integers(1, 10**7))
@settings(max_examples=30)
def test_busbw_of_a_flat_ring_never_exceeds_the_link(n: int, count: int) -> None:
    time = float(estimate(build("ring", n), count, UniformPaths(n, LATENCY, BANDWIDTH), COST).time)
    assert busbw(Kind.ALL_REDUCE, n, 4 * count, time) <= BANDWIDTH * (1 + 1e-12)


def test_starting_later_never_ends_sooner() -> None:
    rng = np.random.default_rng(3)
    for name in ("ring", "torus2d", "halving_doubling"):
        schedule = build(name, 8)
        starts = rng.uniform(0, 1e-5, 8)
        later = starts + rng.uniform(0, 1e-5, 8)
        paths = UniformPaths(8, LATENCY, BANDWIDTH)
        ends = [np.asarray(estimate(schedule, 8000, paths, COST, starts=s).finish) for s in (starts, later)]
        assert (ends[1] >= ends[0]).all()
