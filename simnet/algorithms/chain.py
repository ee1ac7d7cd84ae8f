"""Chains: reduce and broadcast from neighbour to neighbour, pipelined, as NCCL's ring does them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.collective import Collective, Kind
from simnet.combine import pipeline
from simnet.schedule import Item, Op, Schedule, Step

SEGMENTS = 16


def _variants(world_size: int) -> Iterable[Options]:
    return [{}, {"segments": 1}, {"segments": 3}]


def _up(world_size: int, segments: int = SEGMENTS) -> Traffic:
    sends = np.arange(world_size) > 0
    return Traffic(sends * segments, sends * 1.0)


def _down(world_size: int, segments: int = SEGMENTS) -> Traffic:
    sends = np.arange(world_size) < world_size - 1
    return Traffic(sends * segments, sends * 1.0)


@algorithm(Kind.REDUCE, variants=_variants, traffic=_up)
def chain_reduce(world_size: int, *, segments: int = SEGMENTS) -> Schedule:
    """Reduce to rank 0 along the chain n-1, n-2, ..., 0 in n - 2 + segments steps.

    Every rank but the root sends `segments` messages of S/segments bytes.

    Source: Patarasuk & Yuan, J. Parallel Distrib. Comput. 69(2), 2009; NCCL's ring reduce.
    """

    def items() -> Iterator[Item]:
        return (Step.columns([r], [r - 1], [0], op=Op.REDUCE) for r in range(world_size - 1, 0, -1))

    one = Schedule("chain_reduce", Collective(Kind.REDUCE), world_size, 1, items)
    return pipeline(one, segments)


@algorithm(Kind.BROADCAST, variants=_variants, traffic=_down)
def chain_broadcast(world_size: int, *, segments: int = SEGMENTS) -> Schedule:
    """Broadcast from rank 0 along the chain 0, 1, ..., n-1 in n - 2 + segments steps.

    Every rank but the last sends `segments` messages of S/segments bytes.

    Source: NCCL's ring broadcast.
    """

    def items() -> Iterator[Item]:
        return (Step.columns([r], [r + 1], [0]) for r in range(world_size - 1))

    one = Schedule("chain_broadcast", Collective(Kind.BROADCAST), world_size, 1, items)
    return pipeline(one, segments)
