"""Hierarchical: reduce inside every node, all-reduce between the nodes' leaders, broadcast inside."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from simnet.algorithms.binomial_tree import binomial_tree_broadcast, binomial_tree_reduce, depth
from simnet.algorithms.grid import divisors, require_group
from simnet.algorithms.registry import Options, Traffic, algorithm, find
from simnet.collective import Collective, Kind
from simnet.combine import Phase, on_groups, refine, then
from simnet.errors import InvalidInput
from simnet.schedule import Schedule


def _variants(world_size: int) -> Iterable[Options]:
    sizes = divisors(world_size)
    yield from ({"ranks_per_node": g, "leaders": k} for g in sizes for k in sorted({1, min(g, 2), g}))
    yield from ({"ranks_per_node": g, "between": "halving_doubling"} for g in sizes)


def _traffic(world_size: int, ranks_per_node: int | None = None, leaders: int = 1, between: str = "ring") -> Traffic:
    size = require_group(world_size, ranks_per_node)
    nodes = world_size // size
    place = (np.arange(size)[:, None] - np.arange(leaders)) % size
    level = 1 << np.arange(depth(size))
    up = place[:, :, None] % (2 * level) == level
    down = (place[:, :, None] % (2 * level) == 0) & (place[:, :, None] + level < size)
    inside = up.any(axis=1).sum(axis=1) + down.any(axis=1).sum(axis=1)
    share = (up.sum(axis=(1, 2)) + down.sum(axis=(1, 2))) / leaders
    other, leads = find(between).traffic(nodes), np.arange(size) < leaders
    messages = inside + np.outer(other.messages * np.ones(nodes, int), leads)
    share = share + np.outer(other.share * np.ones(nodes), leads / leaders)
    return Traffic(messages.reshape(-1), share.reshape(-1))


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def hierarchical(
    world_size: int, *, ranks_per_node: int | None = None, leaders: int = 1, between: str = "ring"
) -> Schedule:
    """All-reduce in three phases: binomial reduce to a node's leaders, leaders all-reduce, binomial broadcast.

    Ranks are numbered node after node. With several leaders each works on its own 1/leaders of the
    data. A rank that leads nothing sends S bytes up and S bytes to each child of the broadcast tree;
    a leader adds the traffic of the algorithm between nodes on S/leaders bytes.

    Parameters
    ----------
    ranks_per_node : divisor of world_size; default the one nearest below its square root.
    leaders : leaders per node, 1 to ranks_per_node.
    between : "ring" or "halving_doubling", run by the leaders of the same index.

    Source: Jia et al., "Highly Scalable Deep Learning Training System", arXiv 1807.11205, 2018.
    """
    size = require_group(world_size, ranks_per_node)
    if not 1 <= leaders <= size:
        raise InvalidInput(f"leaders must be 1 to the {size} ranks of a node, got {leaders}")
    if between not in ("ring", "halving_doubling"):
        raise InvalidInput(f"between must be ring or halving_doubling, got {between!r}")
    nodes = world_size // size
    inner = find(between).build(nodes)
    ranks = np.arange(world_size).reshape(nodes, size)
    rooted = np.stack([np.roll(ranks, -leader, axis=1) for leader in range(leaders)]).reshape(-1, size)
    chunks = leaders * inner.num_chunks
    first = np.arange(leaders) * inner.num_chunks

    def inside(tree: Schedule) -> Phase:
        wide = refine(tree, inner.num_chunks)
        return on_groups(wide, rooted, world_size=world_size, num_chunks=chunks, first_chunk=first.repeat(nodes))

    return then(
        inside(binomial_tree_reduce(size)),
        on_groups(inner, ranks.T[:leaders], world_size=world_size, num_chunks=chunks, first_chunk=first),
        inside(binomial_tree_broadcast(size)),
        name="hierarchical",
        collective=Collective(Kind.ALL_REDUCE),
    )
