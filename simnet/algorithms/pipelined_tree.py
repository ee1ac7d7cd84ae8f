"""One binomial tree up and down again, pipelined over segments."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from simnet.algorithms.binomial_tree import binomial_tree_broadcast, binomial_tree_reduce, children
from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.collective import Collective, Kind
from simnet.combine import pipeline, then
from simnet.schedule import Schedule

SEGMENTS = 16


def _variants(world_size: int) -> Iterable[Options]:
    return [{}, {"segments": 1}, {"segments": 3}]


def _traffic(world_size: int, segments: int = SEGMENTS) -> Traffic:
    buffers = (np.arange(world_size) > 0) + children(world_size)
    return Traffic(buffers * segments, buffers * 1.0)


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def binomial_tree(world_size: int, *, segments: int = SEGMENTS) -> Schedule:
    """All-reduce by a binomial reduce to rank 0 and a binomial broadcast back, one segment behind the other.

    Every rank sends S bytes to its parent and S bytes to each child, in `segments` messages each. The root
    has ceil(log2 n) children, so large buffers take log2(n) times as long as on a tree of bounded degree.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """
    phases = binomial_tree_reduce(world_size), binomial_tree_broadcast(world_size)
    return pipeline(then(*phases, name="binomial_tree", collective=Collective(Kind.ALL_REDUCE)), segments)
