"""Swing: halving and doubling whose partners stay near on a ring or torus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from simnet.algorithms.grid import Grid, format_grid, grids, require_any_grid
from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.collective import Collective, IntArray, Kind
from simnet.errors import Unsupported
from simnet.schedule import Item, Op, Schedule, Step


def _variants(world_size: int) -> Iterable[Options]:
    yield from ({"grid": grid} for dimensions in (1, 2) for grid in grids(world_size, dimensions))


def _traffic(world_size: int, grid: Grid | None = None) -> Traffic:
    return Traffic(2 * (world_size.bit_length() - 1), 2 * (world_size - 1) / world_size)


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def swing(world_size: int, *, grid: Grid | None = None) -> Schedule:
    """All-reduce in 2 log2(n) exchanges with partners 1, -1, 3, -5, 11, ... away, to alternating sides.

    Every rank sends 2 log2(n) messages and 2(n-1)/n S bytes. On a grid the dimensions take turns.
    Powers of two only: every extent of the grid.

    Parameters
    ----------
    grid : (X, Y, ...) whose product is world_size; default one ring.

    Source: De Sensi, Bonato, Saam & Hoefler, "Swing", NSDI 2024.
    """
    shape = require_any_grid(world_size, grid, dimensions=1)
    if any(extent & (extent - 1) for extent in shape):
        raise Unsupported(f"swing needs powers of two, got {format_grid(shape)}; try bucket, ring or halving_doubling")
    partners = _partners(shape)
    block = _blocks(partners, world_size)

    def exchange(level: int, op: Op) -> Step:
        partner, span = partners[level], world_size >> level + 1
        first = block // span * span
        chunk = first[partner] if op == Op.REDUCE else first
        return Step.columns(np.arange(world_size), partner, chunk, count=span, op=op)

    def items() -> Iterator[Item]:
        yield from (exchange(level, Op.REDUCE) for level in range(len(partners)))
        yield from (exchange(level, Op.COPY) for level in reversed(range(len(partners))))

    return Schedule("swing", Collective(Kind.ALL_REDUCE), world_size, world_size, items)


def _partners(shape: Grid) -> list[IntArray]:
    """Partner of every rank in each step, nearest first; a dimension that is done lets the others go on."""
    ranks = np.arange(prod(shape))
    turns = [(hop, d) for d, extent in enumerate(shape) for hop in range(extent.bit_length() - 1)]
    partners = []
    for hop, d in sorted(turns):
        stride = prod(shape[:d])
        place = ranks // stride % shape[d]
        distance = (1 - (-2) ** (hop + 1)) // 3
        there = (place + np.where(place % 2 == 0, distance, -distance)) % shape[d]
        partners.append(ranks + (there - place) * stride)
    return partners


def _blocks(partners: list[IntArray], world_size: int) -> IntArray:
    """Chunk every rank ends up owning, such that what is exchanged in any step is one range."""
    ranks = np.arange(world_size)
    keys, lowest = [ranks], ranks
    for partner in reversed(partners):
        lowest = np.minimum(lowest, lowest[partner])
        keys.append(lowest)
    block = np.empty(world_size, np.int64)
    block[np.lexsort(keys)] = ranks
    return block
