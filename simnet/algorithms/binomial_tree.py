"""Binomial trees: reduce to a root and broadcast from it in ceil(log2 n) steps of the whole buffer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, IntArray, Kind
from simnet.schedule import Item, Op, Schedule, Step


def depth(world_size: int) -> int:
    """Steps from the farthest leaf to the root, ceil(log2 n)."""
    return (world_size - 1).bit_length()


def children(world_size: int) -> IntArray:
    """How many children every rank has in the tree rooted at 0, shape (world_size,)."""
    levels = 1 << np.arange(depth(world_size))
    ranks = np.arange(world_size)[:, None]
    return ((ranks % (2 * levels) == 0) & (ranks + levels < world_size)).sum(axis=1)


def _up(world_size: int) -> Traffic:
    return Traffic(np.arange(world_size) > 0, np.arange(world_size) > 0)


def _down(world_size: int) -> Traffic:
    return Traffic(children(world_size), children(world_size))


@algorithm(Kind.REDUCE, traffic=_up)
def binomial_tree_reduce(world_size: int) -> Schedule:
    """Reduce to rank 0: in step k ranks with lowest set bit k send S bytes to the rank without that bit.

    Every rank but the root sends one message of S bytes.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """

    def items() -> Iterator[Item]:
        for level in range(depth(world_size)):
            senders = np.arange(1 << level, world_size, 2 << level)
            yield Step.columns(senders, senders - (1 << level), 0, op=Op.REDUCE)

    return Schedule("binomial_tree_reduce", Collective(Kind.REDUCE), world_size, 1, items)


@algorithm(Kind.BROADCAST, traffic=_down)
def binomial_tree_broadcast(world_size: int) -> Schedule:
    """Broadcast from rank 0: the reduction backwards; every rank sends S bytes to each of its children.

    Rank r has as many children as there are powers of two 2**k with r divisible by 2**(k+1) and r + 2**k < n.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """

    def items() -> Iterator[Item]:
        for level in reversed(range(depth(world_size))):
            receivers = np.arange(1 << level, world_size, 2 << level)
            yield Step.columns(receivers - (1 << level), receivers, 0)

    return Schedule("binomial_tree_broadcast", Collective(Kind.BROADCAST), world_size, 1, items)
