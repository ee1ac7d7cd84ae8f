"""Two complementary binary trees, half the data each, so that hardly any rank is a leaf twice or busy twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.algorithms.trees import complement, in_order_parents, one_port_times
from simnet.collective import Collective, IntArray, Kind
from simnet.combine import pipeline, then
from simnet.schedule import Item, Op, Schedule, Step

SEGMENTS = 32


def _variants(world_size: int) -> Iterable[Options]:
    return [{}, {"segments": 1}, {"segments": 3}]


def _traffic(world_size: int, segments: int = SEGMENTS) -> Traffic:
    ranks = np.arange(world_size)
    buffers = np.zeros(world_size, np.int64)
    for acts_as in (ranks, complement(world_size)):
        children = (acts_as % 2 == 0) * np.where(acts_as > 0, 1 + (acts_as + 1 < world_size), world_size > 1)
        buffers += (acts_as > 0) + children
    return Traffic(buffers * segments, buffers / 2)


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def double_binary_tree(world_size: int, *, segments: int = SEGMENTS) -> Schedule:
    """All-reduce on two binary trees with half the data each: a pipelined reduce, then a pipelined broadcast.

    Ranks that are inner in one tree are leaves in the other (one rank of an odd world size has one child
    in both). Edges are coloured so that in every step every rank sends and receives at most one message.
    A rank sends S/2 bytes to its parent and to each child in each tree, in `segments` messages each: at
    most 2 S in all.

    Source: Sanders, Speck & Traeff, Parallel Computing 35(12), 2009; any world size as in NCCL's trees.
    """
    parents = in_order_parents(world_size)
    acts_as = complement(world_size)
    name_of = np.argsort(acts_as)
    both = np.stack([parents, name_of[parents[acts_as]]])
    down = pipeline(_edges(both, Op.COPY, Collective(Kind.BROADCAST)), segments, every=2)
    up = pipeline(_edges(both, Op.REDUCE, Collective(Kind.REDUCE)), segments, every=2)
    return then(up, down, name="double_binary_tree", collective=Collective(Kind.ALL_REDUCE))


def _edges(parents: IntArray, op: Op, collective: Collective) -> Schedule:
    """Return one segment's way down both trees, or up them in the reverse order; chunk 0 is the first tree's."""
    time = one_port_times(parents)
    last = int(time.max(initial=0))

    def items() -> Iterator[Item]:
        if parents.shape[1] == 1:
            return
        for now in range(last + 1):
            tree, child = np.nonzero(time == (now if op == Op.COPY else last - now))
            parent = parents[tree, child]
            src, dst = (parent, child) if op == Op.COPY else (child, parent)
            yield Step.columns(src, dst, tree, op=op)

    return Schedule("edges", collective, parents.shape[1], 2, items)
