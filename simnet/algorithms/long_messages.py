"""Broadcast and reduce of long messages: through pieces that every rank handles one of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.binomial_tree import children, depth
from simnet.algorithms.registry import Traffic, algorithm
from simnet.algorithms.ring import ring_all_gather, ring_reduce_scatter
from simnet.collective import Collective, IntArray, Kind
from simnet.combine import Phase, then
from simnet.schedule import Item, Schedule, Step


def _subtree(world_size: int) -> IntArray:
    """Ranks below and with each rank in the binomial tree: min(lowest set bit, n - r), n for the root."""
    ranks = np.arange(world_size)
    return np.where(ranks == 0, world_size, np.minimum(ranks & -ranks, world_size - ranks))


def _broadcast(world_size: int) -> Traffic:
    ring = world_size - np.roll(_subtree(world_size), -1)
    return Traffic(children(world_size) + ring, (_subtree(world_size) - 1 + ring) / world_size)


def _reduce(world_size: int) -> Traffic:
    ring, sends = world_size - 1, np.arange(world_size) > 0
    return Traffic(sends + ring, (sends * _subtree(world_size) + ring) / world_size)


@algorithm(Kind.BROADCAST, traffic=_broadcast)
def scatter_all_gather(world_size: int) -> Schedule:
    """Broadcast from rank 0 by a binomial scatter and a ring all-gather: at most 2 S per rank at any world size.

    With m the ranks of its subtree, a rank sends (m-1)/n S bytes to its children. Then it sends the next rank the
    chunks that one has not got from the scatter: n - m' messages of S/n bytes, m' the ranks of the next one's subtree.

    Source: Barnett, Shuler, van de Geijn et al., "Interprocessor Collective Communication Library", SHPCC 1994.
    """
    down = Phase(world_size, world_size, lambda: _tree(world_size, up=False))
    round_ = Phase(world_size, world_size, lambda: _lacking(world_size))
    return then(down, round_, name="scatter_all_gather", collective=Collective(Kind.BROADCAST))


@algorithm(Kind.REDUCE, traffic=_reduce)
def reduce_scatter_gather(world_size: int) -> Schedule:
    """Reduce to rank 0 by a ring reduce-scatter and a binomial gather.

    Every rank sends n-1 messages of S/n bytes; then, with m the ranks of its subtree, all but the root m/n S bytes.

    Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
    """
    up = Phase(world_size, world_size, lambda: _tree(world_size, up=True))
    return then(ring_reduce_scatter(world_size), up, name="reduce_scatter_gather", collective=Collective(Kind.REDUCE))


def _tree(world_size: int, *, up: bool) -> Iterator[Item]:
    """Copy pieces down the binomial tree, each child that of its subtree, or up it."""
    levels = range(depth(world_size))
    for level in levels if up else reversed(levels):
        child = np.arange(1 << level, world_size, 2 << level)
        parent = child - (1 << level)
        src, dst = (child, parent) if up else (parent, child)
        yield Step.columns(src, dst, child, count=np.minimum(1 << level, world_size - child))


def _lacking(world_size: int) -> Iterator[Item]:
    """Steps of a ring all-gather without the transfers of what the scatter has already brought."""
    subtree = _subtree(world_size)
    for step in ring_all_gather(world_size).expand():
        new = (step.src_chunk < step.dst) | (step.src_chunk >= step.dst + subtree[step.dst])
        yield Step.columns(step.src[new], step.dst[new], step.src_chunk[new])
