"""Ring: reduce-scatter then all-gather around one cycle, bandwidth-optimal, latency linear in ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, Kind
from simnet.schedule import Item, Op, Repeat, Schedule, Step


def _twice(world_size: int) -> Traffic:
    return Traffic(2 * (world_size - 1), 2 * (world_size - 1) / world_size)


def _once(world_size: int) -> Traffic:
    return Traffic(world_size - 1, (world_size - 1) / world_size)


@algorithm(Kind.ALL_REDUCE, traffic=_twice)
def ring(world_size: int) -> Schedule:
    """All-reduce around one ring: 2(n-1) messages of S/n bytes per rank, in a row.

    Source: Patarasuk & Yuan, J. Parallel Distrib. Comput. 69(2), 2009.
    """

    def items() -> Iterator[Item]:
        if world_size > 1:
            yield Repeat(ring_step(world_size, offset=0, op=Op.REDUCE), world_size - 1, -1, world_size)
            yield Repeat(ring_step(world_size, offset=1, op=Op.COPY), world_size - 1, -1, world_size)

    return Schedule("ring", Collective(Kind.ALL_REDUCE), world_size, world_size, items)


@algorithm(Kind.REDUCE_SCATTER, traffic=_once)
def ring_reduce_scatter(world_size: int) -> Schedule:
    """Reduce-scatter around one ring: n-1 messages of S/n bytes per rank; rank r ends with chunk r.

    Source: Patarasuk & Yuan, J. Parallel Distrib. Comput. 69(2), 2009.
    """

    def items() -> Iterator[Item]:
        if world_size > 1:
            yield Repeat(ring_step(world_size, offset=-1, op=Op.REDUCE), world_size - 1, -1, world_size)

    return Schedule("ring_reduce_scatter", Collective(Kind.REDUCE_SCATTER), world_size, world_size, items)


@algorithm(Kind.ALL_GATHER, traffic=_once)
def ring_all_gather(world_size: int) -> Schedule:
    """All-gather around one ring: n-1 messages of S/n bytes per rank; rank r starts with chunk r.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """

    def items() -> Iterator[Item]:
        if world_size > 1:
            yield Repeat(ring_step(world_size, offset=0, op=Op.COPY), world_size - 1, -1, world_size)

    return Schedule("ring_all_gather", Collective(Kind.ALL_GATHER), world_size, world_size, items)


def ring_step(world_size: int, *, offset: int, op: Op) -> Step:
    """Every rank r sends chunk r + offset (mod n) to rank r + 1."""
    ranks = np.arange(world_size)
    return Step.columns(ranks, (ranks + 1) % world_size, (ranks + offset) % world_size, op=op)
