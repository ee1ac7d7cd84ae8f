"""Ring in both directions at once, half the data each: full-duplex links carry traffic both ways."""

from __future__ import annotations

import numpy as np

from simnet.algorithms.registry import Traffic, algorithm
from simnet.algorithms.ring import ring
from simnet.collective import Collective, Kind
from simnet.combine import channels, relabel
from simnet.schedule import Schedule


def _traffic(world_size: int) -> Traffic:
    return Traffic(4 * (world_size - 1), 2 * (world_size - 1) / world_size)


@algorithm(Kind.ALL_REDUCE, traffic=_traffic)
def bidirectional_ring(world_size: int) -> Schedule:
    """All-reduce around a ring and around its mirror image, on two channels with half the data each.

    4(n-1) messages of S/(2n) bytes per rank, half of them to either neighbour; the bytes per rank are one ring's.

    Source: Jain & Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", ICS 2010.
    """
    forth = ring(world_size)
    back = relabel(forth, np.arange(world_size)[::-1])
    return channels(forth, back, name="bidirectional_ring", collective=Collective(Kind.ALL_REDUCE))
