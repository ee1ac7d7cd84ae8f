"""Prices of all-reduces in a step: what they count, and what they may leave out."""

from __future__ import annotations

import numpy as np
import pytest

from simnet.algorithms.registry import build as build_schedule
from simnet.catalog import clusters, load_cluster
from simnet.costs.alpha_beta import AlphaBeta
from simnet.exchange import approximation_error, price
from simnet.link_load import carried_bytes
from simnet.topologies.registry import build, cluster_paths

STREAMS_OF_A_SUM = 3
"""A byte added is read, the byte it is added to is read, and their sum is written."""


@pytest.mark.parametrize("name", clusters())
def test_memory_adds_faster_than_any_wire_delivers(name: str) -> None:
    """Steps take no gamma unless a profile gives one: libraries add what arrives while it arrives."""
    cluster = load_cluster(name)
    built = build(cluster, min(2, cluster.num_nodes))
    into = max(link.bandwidth for link in built.fabric.links if link.dst in set(built.devices))
    assert STREAMS_OF_A_SUM * into < cluster.node.device.memory_bandwidth.high


def test_a_measured_cost_of_adding_is_paid_for_every_byte_a_rank_adds() -> None:
    cluster, ranks, size = load_cluster("dgx-1v"), 8, 8_000_000
    plain, added = (
        price(cluster, "ring", {}, ranks, [size], itemsize=4, cost=AlphaBeta(), gamma=gamma, uncertain=False)
        for gamma in (0.0, 3 / 900e9)
    )
    assert added.time[-1] - plain.time[-1] == pytest.approx((ranks - 1) / ranks * size * 3 / 900e9, rel=1e-6)


def test_a_price_never_beats_what_the_fullest_link_has_to_carry() -> None:
    # the static share of swing on shared ports is 12 % below the bytes of a port over its rate
    cluster, schedule, size = load_cluster("p3-16xlarge"), build_schedule("swing", 32), 11_917_248
    paths = cluster_paths(cluster, 32)
    bound = (carried_bytes(schedule, paths, size) / paths.link_bandwidth).max()
    found = price(cluster, "swing", {}, 32, [size], itemsize=4, cost=AlphaBeta(), uncertain=False)
    assert not found.exact
    assert found.time[-1] == pytest.approx(bound)
    error = approximation_error(
        cluster, "swing", {}, 32, size, itemsize=4, cost=AlphaBeta(), draws=2, rng=np.random.default_rng(1)
    )
    assert abs(error.largest) < 0.08
