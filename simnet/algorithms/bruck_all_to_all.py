"""Bruck: all-to-all in ceil(log2 n) steps at any world size, every block by the bits of its distance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, IntArray, Kind
from simnet.errors import Unsupported
from simnet.schedule import Item, Schedule, Step

MOST_RANKS = 2048


def _traffic(world_size: int) -> Traffic:
    steps, distances = (world_size - 1).bit_length(), np.arange(world_size)
    later = world_size.bit_count() - 1 - (world_size == 3)
    return Traffic(steps + later, np.bitwise_count(distances).sum(dtype=float) / world_size)


@algorithm(Kind.ALL_TO_ALL, traffic=_traffic)
def bruck_all_to_all(world_size: int) -> Schedule:
    """All-to-all in ceil(log2 n) steps: in step k all blocks whose distance has bit k go on by 2**k ranks.

    A block is S/n bytes; one for the rank i after its own takes as many hops as i has bits, so a rank sends the
    bits of 1 to n-1 together, about log2(n)/2 S, in ceil(log2 n) messages. What arrives at last takes the place of
    a block that has to be gone by then; where n has several bits, one block for each of them but the highest waits
    until the next of them and travels by itself: bits - 1 messages more (none for n = 3, where the first step would
    carry nothing else). Blocks on their way are in scratch.

    Raises
    ------
    Unsupported : more than 2,048 ranks, whose n/2 blocks per message are too many to list.

    Source: Bruck, Ho, Kipnis, Upfal & Weathersby, IEEE TPDS 8(11), 1997.
    """
    if world_size > MOST_RANKS:
        raise Unsupported(
            f"bruck_all_to_all lists every block, at most for {MOST_RANKS} ranks, got {world_size}; "
            "try pairwise_all_to_all or direct_all_to_all"
        )

    def items() -> Iterator[Item]:
        return (_step(world_size, k) for k in range((world_size - 1).bit_length()) if len(_moves(world_size, k)[0]))

    return Schedule("bruck_all_to_all", Collective(Kind.ALL_TO_ALL), world_size, world_size, items, world_size)


def _moves(world_size: int, k: int) -> tuple[IntArray, IntArray]:
    """Distances of the blocks that move in step k, and how far: those of bit k, and the one that waited for it."""
    distance = np.arange(1, world_size)
    high, bits = 1 << k, world_size & ((1 << k) - 1)
    waits = world_size & ((high << 1) - 1) if world_size & high and world_size > high << 1 else 0
    now = distance[(distance & high > 0) & (distance != waits)]
    if world_size & high and bits:
        return np.append(now, bits), np.append(np.full(len(now), high), 1 << (bits.bit_length() - 1))
    return now, np.full(len(now), high)


def _step(world_size: int, k: int) -> Step:
    """All moves of a step; of each rank first those that make room for others."""
    distance, far = _moves(world_size, k)
    first, last = distance & (far - 1) == 0, distance < 2 * far
    order = np.lexsort((~first, last))
    src = np.repeat(np.arange(world_size), len(order))
    distance, far, first, last = (np.tile(column[order], world_size) for column in (distance, far, first, last))
    dst, transit = (src + far) % world_size, world_size + distance
    src_chunk = np.where(first, (src + distance) % world_size, transit)
    return Step.columns(src, dst, src_chunk, np.where(last, (dst - distance) % world_size, transit))
