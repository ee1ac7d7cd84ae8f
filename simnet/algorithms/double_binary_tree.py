"""Two complementary binary trees, half the data each, so that hardly any rank is a leaf twice or busy twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from simnet.algorithms.grid import divisors, require_group
from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.algorithms.trees import complement, edge_times, two_colours, two_trees, with_chains
from simnet.collective import Collective, IntArray, Kind
from simnet.combine import pipeline, then
from simnet.schedule import Item, Op, Schedule, Step

SEGMENTS = 32


def _variants(world_size: int) -> Iterable[Options]:
    yield {}
    yield {"segments": 1}
    yield from ({"segments": 3, "ranks_per_node": size} for size in divisors(world_size))


def _traffic(world_size: int, ranks_per_node: int = 1, segments: int = SEGMENTS) -> Traffic:
    nodes = world_size // ranks_per_node
    node, place = np.divmod(np.arange(world_size), ranks_per_node)
    chain = (place < ranks_per_node - 1) + (place > 0).astype(np.int64)
    buffers, messages = 2 * chain, chain * (segments + nodes - 1 if _pace(nodes) == 1 else 2 * segments)
    for acts_as in (np.arange(nodes), complement(nodes)):
        children = (acts_as % 2 == 0) * np.where(acts_as > 0, 1 + (acts_as + 1 < nodes), nodes > 1)
        between = (place == 0) * ((acts_as > 0) + children)[node]
        buffers, messages = buffers + between, messages + between * segments
    return Traffic(messages, buffers / 2)


def _pace(nodes: int) -> int:
    """Steps from one segment to the next: two nodes send one tree's up while they receive the other's."""
    return 1 if nodes <= 2 else 2


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def double_binary_tree(world_size: int, *, ranks_per_node: int = 1, segments: int = SEGMENTS) -> Schedule:
    """All-reduce on two binary trees with half the data each: a pipelined reduce, then a pipelined broadcast.

    Ranks that are inner in one tree are leaves in the other (one rank of an odd number has one child
    in both). Edges are coloured so that in every step every rank sends and receives at most one message
    between nodes. A rank sends S/2 bytes to its parent and to each child in each tree, in `segments` messages each.
    With one or two nodes both trees use every step; in a chain their segments then share messages, segments + nodes - 1
    each way.

    Parameters
    ----------
    ranks_per_node : the trees join the first rank of every node, the others hang on it in a chain.

    Source: Sanders, Speck & Traeff, Parallel Computing 35(12), 2009; any world size as in NCCL's trees.
    """
    size = require_group(world_size, ranks_per_node)
    trees = two_trees(world_size // size)
    parents, colours = with_chains(trees, two_colours(trees), size)
    every = _pace(world_size // size)
    times = edge_times(parents, colours, every)
    down = pipeline(_edges(parents, times, Op.COPY), segments, every=every)
    up = pipeline(_edges(parents, times, Op.REDUCE), segments, every=every)
    return then(up, down, name="double_binary_tree", collective=Collective(Kind.ALL_REDUCE))


def _edges(parents: IntArray, times: IntArray, op: Op) -> Schedule:
    """Return one segment's way down both trees, or up them in the reverse order; chunk 0 is the first tree's."""
    steps = range(int(times.max(initial=-1)) + 1)

    def items() -> Iterator[Item]:
        for now in steps if op == Op.COPY else reversed(steps):
            tree, child = np.nonzero(times == now)
            parent = parents[tree, child]
            src, dst = (parent, child) if op == Op.COPY else (child, parent)
            yield Step.columns(src, dst, tree, op=op)

    kind = Kind.BROADCAST if op == Op.COPY else Kind.REDUCE
    return Schedule("edges", Collective(kind), parents.shape[1], 2, items)
