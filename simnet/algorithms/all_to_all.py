"""All-to-all: every rank has a different chunk for every other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simnet.algorithms.direct import offsets
from simnet.algorithms.registry import Traffic, algorithm
from simnet.collective import Collective, IntArray, Kind
from simnet.schedule import Item, Schedule, Step


def _traffic(world_size: int) -> Traffic:
    return Traffic(world_size - 1, (world_size - 1) / world_size)


@algorithm(Kind.ALL_TO_ALL, traffic=_traffic)
def direct_all_to_all(world_size: int) -> Schedule:
    """All-to-all in one step: n-1 messages of S/n bytes per rank; in blocks of partners above 2,048 ranks.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """

    def items() -> Iterator[Item]:
        return (_exchange(world_size, far) for far in offsets(world_size))

    return Schedule("direct_all_to_all", Collective(Kind.ALL_TO_ALL), world_size, world_size, items)


@algorithm(Kind.ALL_TO_ALL, traffic=_traffic)
def pairwise_all_to_all(world_size: int) -> Schedule:
    """All-to-all in floor(n/2) steps: with the partners k before and k behind, for k = 1, 2, ...

    n-1 messages of S/n bytes per rank, two per step (one in the last step of an even world size): both
    at once, because what a rank receives from one overwrites what it sends to the other.

    Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
    """

    def items() -> Iterator[Item]:
        for k in range(1, world_size // 2 + 1):
            yield _exchange(world_size, np.unique([k, world_size - k]))

    return Schedule("pairwise_all_to_all", Collective(Kind.ALL_TO_ALL), world_size, world_size, items)


def _exchange(world_size: int, far: IntArray) -> Step:
    src = np.tile(np.arange(world_size), len(far))
    dst = (src + far.repeat(world_size)) % world_size
    return Step.columns(src, dst, dst, src)
