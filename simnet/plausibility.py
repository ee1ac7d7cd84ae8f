"""What a measured busbw means on the wire, and when it is more than a network can carry.

busbw is a label: algbw times a factor that assumes a ring. What really crosses a link depends on the algorithm,
so a busbw above the NIC's rate is no error by itself.

Source: nccl-tests, doc/PERFORMANCE.md; Sanders, Speck & Traeff, Parallel Computing 35(12), 2009 (double trees).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from simnet.collective import Kind
from simnet.errors import InvalidInput
from simnet.metrics import bus_factor
from simnet.results import Measurement
from simnet.units import BytesPerSecond


class Way(StrEnum):
    """How an all-reduce is done, as far as the bytes on a link go."""

    RING = "ring"
    TREE = "tree"
    IN_NETWORK = "in_network"


def device_rate(busbw: BytesPerSecond, ranks: int, way: Way) -> BytesPerSecond:
    """Bytes/s each device sends: a ring 2(n-1)/n of the buffer, a tree twice it, in-network reduction (n+1)/n of it."""
    sent = {Way.RING: 2 * (ranks - 1) / ranks, Way.TREE: 2.0, Way.IN_NETWORK: (ranks + 1) / ranks}[way]
    return busbw / bus_factor(Kind.ALL_REDUCE, ranks) * sent


def busbw_limit(ranks: int, nodes: int, node_bandwidth: BytesPerSecond, way: Way) -> BytesPerSecond:
    """Largest busbw of an all-reduce whose nodes send and receive at `node_bandwidth`, bytes/s each way.

    A ring carries 2(n-1)/n of the buffer out of each node. A double tree carries it once each way on two nodes
    and twice on more. In-network reduction carries it once.

    Raises
    ------
    InvalidInput : one node, where no network limits.
    """
    if nodes < 2:
        raise InvalidInput(f"a network limits two nodes or more, got {nodes}")
    factor = bus_factor(Kind.ALL_REDUCE, ranks)
    match way:
        case Way.RING:
            return node_bandwidth
        case Way.TREE:
            return node_bandwidth * factor / (1 if nodes == 2 else 2)
        case Way.IN_NETWORK:
            return node_bandwidth * factor


def too_good(
    rows: Iterable[Measurement], node_bandwidth: BytesPerSecond, *, in_network: bool = False
) -> Iterator[tuple[Measurement, BytesPerSecond]]:
    """All-reduce rows over several nodes that no algorithm could reach, with the limit of the best."""
    ways = [Way.RING, Way.TREE, *([Way.IN_NETWORK] if in_network else [])]
    for row in rows:
        if row.collective == "all_reduce" and row.ranks and row.nodes and row.nodes > 1 and row.busbw_bytes_per_s:
            limit = max(busbw_limit(row.ranks, row.nodes, node_bandwidth, way) for way in ways)
            if row.busbw_bytes_per_s > limit:
                yield row, limit
