"""Direct: every rank talks to every other at once; two steps for an all-reduce."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, IntArray, Kind
from simnet.schedule import Item, Op, Schedule, Step

MOST_TRANSFERS = 2048 * 2048


def _once(world_size: int) -> Traffic:
    return Traffic(world_size - 1, (world_size - 1) / world_size)


def _twice(world_size: int) -> Traffic:
    return Traffic(2 * (world_size - 1), 2 * (world_size - 1) / world_size)


@algorithm(Kind.ALL_REDUCE, traffic=_twice)
def direct(world_size: int) -> Schedule:
    """All-reduce in two steps: chunk j of all goes to rank j, which adds them up and sends the sum to all.

    2(n-1) messages of S/n bytes per rank. Above 2,048 ranks each step is cut into blocks of partners.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """

    def items() -> Iterator[Item]:
        yield from (_exchange(world_size, far, Op.REDUCE) for far in offsets(world_size))
        yield from (_exchange(world_size, far, Op.COPY) for far in offsets(world_size))

    return Schedule("direct", Collective(Kind.ALL_REDUCE), world_size, world_size, items)


@algorithm(Kind.REDUCE_SCATTER, traffic=_once)
def direct_reduce_scatter(world_size: int) -> Schedule:
    """Reduce-scatter in one step: n-1 messages of S/n bytes per rank; in blocks above 2,048 ranks.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """

    def items() -> Iterator[Item]:
        return (_exchange(world_size, far, Op.REDUCE) for far in offsets(world_size))

    return Schedule("direct_reduce_scatter", Collective(Kind.REDUCE_SCATTER), world_size, world_size, items)


@algorithm(Kind.ALL_GATHER, traffic=_once)
def direct_all_gather(world_size: int) -> Schedule:
    """All-gather in one step: n-1 messages of S/n bytes per rank; in blocks above 2,048 ranks.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """

    def items() -> Iterator[Item]:
        return (_exchange(world_size, far, Op.COPY) for far in offsets(world_size))

    return Schedule("direct_all_gather", Collective(Kind.ALL_GATHER), world_size, world_size, items)


def offsets(world_size: int) -> Iterator[IntArray]:
    """Distances 1 to n-1 in blocks that keep a step below 2,048 x 2,048 transfers, k together with n - k."""
    near = np.arange(1, world_size // 2 + 1)
    block = max(1, MOST_TRANSFERS // max(1, world_size) // 2)
    for begin in range(0, len(near), block):
        some = near[begin : begin + block]
        yield np.unique(np.concatenate([some, world_size - some]))


def _exchange(world_size: int, far: IntArray, op: Op) -> Step:
    src = np.tile(np.arange(world_size), len(far))
    dst = (src + far.repeat(world_size)) % world_size
    return Step.columns(src, dst, dst if op == Op.REDUCE else src, op=op)
