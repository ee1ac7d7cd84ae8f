"""Multi-port rings on tori: every link of every rank in both directions is busy at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from simnet.algorithms.grid import Grid, grids, require_any_grid
from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.algorithms.torus_nd import ring_traffic, rings
from simnet.collective import Collective, IntArray, Kind
from simnet.combine import Phase, channels, on_groups
from simnet.schedule import Item, Schedule


def _variants(world_size: int) -> Iterable[Options]:
    shapes = (grid for dimensions in (1, 2, 3) for grid in grids(world_size, dimensions))
    yield from ({"grid": grid} for grid in shapes if len(grid) == 1 or min(grid) > 1)


def _traffic(world_size: int, grid: Grid | None = None) -> Traffic:
    shape = require_any_grid(world_size, grid, dimensions=2)
    one = ring_traffic(world_size, shape)
    return Traffic(2 * len(shape) * one.messages, one.share)


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def bucket(world_size: int, *, grid: Grid | None = None) -> Schedule:
    """All-reduce on a D-dimensional torus over all 2D ports of a rank at once, 1/(2D) of the data each.

    Part d starts its rings along dimension d and goes on to d+1, d+2, ...; for each there is a twin in the other
    direction. Every rank sends 2D times the messages of one sweep (see torus_nd), of 1/(2D) the bytes;
    bytes per rank stay 2(n-1)/n S. With equal extents no link carries two messages at once.

    Parameters
    ----------
    grid : (X, Y, ...) whose product is world_size; default the most square two-dimensional one.

    Source: Jain & Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", ICS 2010.
    """
    shape = require_any_grid(world_size, grid, dimensions=2)
    dimensions = range(len(shape))
    orders = [(*dimensions[d:], *dimensions[:d]) for d in dimensions]
    forward = [_part(shape, order) for order in orders]
    backward = [on_groups(part, _mirror(shape), world_size=world_size, num_chunks=world_size) for part in forward]
    return channels(*forward, *backward, name="bucket", collective=Collective(Kind.ALL_REDUCE))


def _part(shape: Grid, order: tuple[int, ...]) -> Phase:
    def items() -> Iterator[Item]:
        return rings(shape, order=order)

    return Phase(prod(shape), prod(shape), items)


def _mirror(shape: Grid) -> IntArray:
    """Rank opposite to each rank in every dimension, so that a ring runs the other way; shape (1, world_size)."""
    places = np.unravel_index(np.arange(prod(shape)), shape, order="F")
    mirrored = tuple(-place % extent for place, extent in zip(places, shape, strict=True))
    return np.ravel_multi_index(mirrored, shape, order="F")[None]
