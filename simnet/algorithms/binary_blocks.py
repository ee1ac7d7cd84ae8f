"""Halving-doubling on binary blocks: any world size without a whole buffer sent twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from simnet.algorithms.halving_doubling import exchange, position
from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, IntArray, Kind
from simnet.schedule import Item, Op, Schedule, Step, join


def blocks(world_size: int) -> list[IntArray]:
    """Ranks in blocks of falling powers of two, one for every set bit of the world size."""
    sizes = [1 << bit for bit in reversed(range(world_size.bit_length())) if world_size >> bit & 1]
    return np.split(np.arange(world_size), np.cumsum(sizes)[:-1])


def _traffic(world_size: int) -> Traffic:
    messages, share = [], []
    cut = [len(block) for block in blocks(world_size)]
    for larger, size, smaller in zip([0, *cut], cut, [*cut[1:], 0], strict=False):
        log = size.bit_length() - 1
        messages += [2 * log + larger // size + (smaller > 0)] * size
        share += [2 * (size - 1) / size + (larger > 0) / size + (smaller > 0) / size] * size
    return Traffic(np.array(messages), np.array(share))


@algorithm(Kind.ALL_REDUCE, traffic=_traffic)
def binary_blocks(world_size: int) -> Schedule:
    """All-reduce by halving-doubling in blocks of 2**k ranks that hand their sums to the next larger block.

    A rank of a block of p sends 2 log2(p) messages and 2(p-1)/p S bytes in its block; besides, to the next
    larger block, of q ranks, q/p messages and S/p bytes, and to the next smaller one a message of S/p bytes.

    Source: Rabenseifner & Traeff, "More Efficient Reduction Algorithms for Non-Power-of-Two Number of
    Processors", EuroPVM/MPI 2004.
    """
    parts = blocks(world_size)
    chunks = len(parts[0])

    def inside(level: int, op: Op) -> Step:
        return join([exchange(block, chunks, level, op) for block in parts if len(block) > 1 << level])

    def items() -> Iterator[Item]:
        levels = range(chunks.bit_length() - 1)
        yield from (inside(level, Op.REDUCE) for level in levels)
        yield from (_between(large, small, chunks, Op.REDUCE) for large, small in reversed(list(pairwise(parts))))
        yield from (_between(large, small, chunks, Op.COPY) for large, small in pairwise(parts))
        yield from (inside(level, Op.COPY) for level in reversed(levels))

    return Schedule("binary_blocks", Collective(Kind.ALL_REDUCE), world_size, chunks, items)


def _between(large: IntArray, small: IntArray, chunks: int, op: Op) -> Step:
    """Move each larger block's range from (REDUCE) or to (COPY) the rank of the smaller block that covers it."""
    place = np.arange(len(large))
    first = position(place, chunks, len(large).bit_length() - 2) if len(large) > 1 else place
    src, dst = (small[place % len(small)], large) if op == Op.REDUCE else (large, small[place % len(small)])
    return Step.columns(src, dst, first, count=chunks // len(large), op=op)
