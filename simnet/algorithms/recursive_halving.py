"""Recursive halving: reduce-scatter in log2(n) exchanges of ever smaller halves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.recursive_doubling import require_power_of_two
from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, Kind
from simnet.schedule import Item, Op, Schedule, Step


def _traffic(world_size: int) -> Traffic:
    return Traffic(world_size.bit_length() - 1, (world_size - 1) / world_size)


@algorithm(Kind.REDUCE_SCATTER, traffic=_traffic)
def recursive_halving_reduce_scatter(world_size: int) -> Schedule:
    """Reduce-scatter with partners n/2, n/4, ..., 1 away; powers of two only.

    log2(n) messages and (n-1)/n S bytes per rank: S/2 to the farthest partner, S/n to the nearest.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """
    log = require_power_of_two(world_size, "recursive_halving_reduce_scatter", "ring_reduce_scatter")
    ranks = np.arange(world_size)

    def items() -> Iterator[Item]:
        for level in reversed(range(log)):
            partner = ranks ^ 1 << level
            yield Step.columns(ranks, partner, partner >> level << level, count=1 << level, op=Op.REDUCE)

    return Schedule("recursive_halving_reduce_scatter", Collective(Kind.REDUCE_SCATTER), world_size, world_size, items)
