"""Bruck: all-gather in ceil(log2 n) steps at any world size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, Kind
from simnet.schedule import Item, Schedule, Step


def _traffic(world_size: int) -> Traffic:
    return Traffic((world_size - 1).bit_length(), (world_size - 1) / world_size)


@algorithm(Kind.ALL_GATHER, traffic=_traffic)
def bruck_all_gather(world_size: int) -> Schedule:
    """All-gather: in step k every rank sends all it knows to the rank 2**k before it.

    ceil(log2 n) messages and (n-1)/n S bytes per rank. What a rank knows is a run of chunks that starts
    at its own and may wrap around the end of the buffer: then two ranges travel in the one message.

    Source: Bruck, Ho, Kipnis, Upfal & Weathersby, IEEE TPDS 8(11), 1997.
    """

    def items() -> Iterator[Item]:
        for level in range((world_size - 1).bit_length()):
            yield _step(world_size, 1 << level, min(1 << level, world_size - (1 << level)))

    return Schedule("bruck_all_gather", Collective(Kind.ALL_GATHER), world_size, world_size, items)


def _step(world_size: int, distance: int, known: int) -> Step:
    ranks = np.arange(world_size)
    head = np.minimum(known, world_size - ranks)
    wraps = head < known
    source = np.concatenate([ranks, ranks[wraps]])
    first = np.where(np.arange(len(source)) < world_size, source, 0)
    counts = np.concatenate([head, known - head[wraps]])
    return Step.columns(source, (source - distance) % world_size, first, count=counts)
