"""Recursive doubling: everything to everyone in log2(n) exchanges, for small messages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.halving_doubling import core
from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, Kind
from simnet.errors import Unsupported
from simnet.schedule import Item, Op, Schedule, Step


def require_power_of_two(world_size: int, name: str, alternatives: str) -> int:
    """Return log2 of the world size.

    Raises
    ------
    Unsupported : it is no power of two.
    """
    if world_size & (world_size - 1):
        raise Unsupported(f"world_size must be a power of two for {name}, got {world_size}; try {alternatives}")
    return world_size.bit_length() - 1


def _traffic(world_size: int) -> Traffic:
    power = len(core(world_size))
    pair = np.arange(world_size) < 2 * (world_size - power)
    odd = np.arange(world_size) % 2 == 1
    messages = np.where(pair & ~odd, 1, power.bit_length() - 1 + pair)
    return Traffic(messages, messages)


@algorithm(Kind.ALL_REDUCE, traffic=_traffic)
def recursive_doubling(world_size: int) -> Schedule:
    """All-reduce by exchanging whole buffers with partners 1, 2, 4, ... away.

    With p the largest power of two up to n, core ranks send log2(p) messages of S bytes; each of the
    n - p others sends one message of S bytes to its neighbour first and gets one back last.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """
    members = core(world_size)
    folded = np.arange(0, 2 * (world_size - len(members)), 2)

    def items() -> Iterator[Item]:
        if len(folded):
            yield Step.columns(folded, folded + 1, 0, op=Op.REDUCE)
        for level in range(len(members).bit_length() - 1):
            yield Step.columns(members, members[np.arange(len(members)) ^ 1 << level], 0, op=Op.REDUCE)
        if len(folded):
            yield Step.columns(folded + 1, folded, 0)

    return Schedule("recursive_doubling", Collective(Kind.ALL_REDUCE), world_size, 1, items)


def _all_gather(world_size: int) -> Traffic:
    return Traffic(world_size.bit_length() - 1, (world_size - 1) / world_size)


@algorithm(Kind.ALL_GATHER, traffic=_all_gather)
def recursive_doubling_all_gather(world_size: int) -> Schedule:
    """All-gather by exchanging all that is known with partners 1, 2, 4, ... away; powers of two only.

    log2(n) messages and (n-1)/n S bytes per rank.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """
    log = require_power_of_two(world_size, "recursive_doubling_all_gather", "bruck_all_gather or ring_all_gather")
    ranks = np.arange(world_size)

    def items() -> Iterator[Item]:
        for level in range(log):
            yield Step.columns(ranks, ranks ^ 1 << level, ranks >> level << level, count=1 << level)

    return Schedule("recursive_doubling_all_gather", Collective(Kind.ALL_GATHER), world_size, world_size, items)
