"""Prices of all-reduces in a step: what they count, and what they may leave out."""

from __future__ import annotations

import pytest

from simnet.catalog import clusters, load_cluster
from simnet.costs.alpha_beta import AlphaBeta
from simnet.exchange import price
from simnet.topologies.registry import build

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
