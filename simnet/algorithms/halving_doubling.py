"""Recursive halving and doubling: bandwidth-optimal in 2 log2(n) steps, any world size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, IntArray, Kind
from simnet.schedule import Item, Op, Schedule, Step


def core(world_size: int) -> IntArray:
    """Ranks that take part after folding, a power of two of them, in order.

    The first 2(n - p) ranks pair up and the odd one of each pair stays; the rest stay as they are.
    """
    power = 1 << (world_size.bit_length() - 1)
    ranks = np.arange(world_size)
    return ranks[(ranks % 2 == 1) | (ranks >= 2 * (world_size - power))]


def _traffic(world_size: int) -> Traffic:
    power = len(core(world_size))
    log, extra = power.bit_length() - 1, world_size - power
    ranks = np.arange(world_size)
    folded, host = (ranks < 2 * extra) & (ranks % 2 == 0), (ranks < 2 * extra) & (ranks % 2 == 1)
    messages = np.where(folded, 1, 2 * log + host)
    return Traffic(messages, np.where(folded, 1.0, 2 * (power - 1) / power + host))


@algorithm(Kind.ALL_REDUCE, traffic=_traffic)
def halving_doubling(world_size: int) -> Schedule:
    """All-reduce by recursive halving (near partners first, with the larger halves) and doubling back.

    With p the largest power of two up to n, every core rank sends 2 log2(p) messages and
    2(p-1)/p S bytes; each of the n - p others first folds all its data into a neighbour (one
    message of S bytes) and gets the result back (one more, sent by that neighbour).

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """
    members = core(world_size)
    power = len(members)
    log, extra = power.bit_length() - 1, world_size - power
    folded = np.arange(0, 2 * extra, 2)

    def items() -> Iterator[Item]:
        if extra:
            yield Step.columns(folded, folded + 1, 0, count=power, op=Op.REDUCE)
        yield from (exchange(members, power, level, Op.REDUCE) for level in range(log))
        yield from (exchange(members, power, level, Op.COPY) for level in reversed(range(log)))
        if extra:
            yield Step.columns(folded + 1, folded, 0, count=power, op=Op.COPY)

    return Schedule("halving_doubling", Collective(Kind.ALL_REDUCE), world_size, power, items)


def position(place: IntArray, num_chunks: int, level: int) -> IntArray:
    """First chunk of the range a rank keeps after exchanges 0 to level, given its place among its partners."""
    bits = place[:, None] >> np.arange(level + 1) & 1
    return bits @ (num_chunks >> np.arange(level + 1) + 1)


def exchange(members: IntArray, num_chunks: int, level: int, op: Op) -> Step:
    """Every member swaps with the one 2**level places away: what it gives up (REDUCE), or what it has (COPY)."""
    place = np.arange(len(members))
    partner = place ^ 1 << level
    first = position(partner if op == Op.REDUCE else place, num_chunks, level)
    return Step.columns(members, members[partner], first, count=num_chunks >> level + 1, op=op)
