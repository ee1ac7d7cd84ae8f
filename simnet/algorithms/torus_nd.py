"""Tori of any dimension: one ring per dimension, each on what the one before left over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

import numpy as np

from simnet.algorithms.grid import Grid, grids, require_any_grid
from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.collective import Collective, IntArray, Kind
from simnet.schedule import Item, Op, Repeat, Schedule, Step


def _variants(world_size: int) -> Iterable[Options]:
    return [{"grid": grid} for grid in grids(world_size, 3)]


def ring_traffic(world_size: int, grid: Grid) -> Traffic:
    """Messages and share of S of rings along every dimension in turn: 2(X-1), and as much as one ring's share."""
    return Traffic(2 * sum(x - 1 for x in grid), 2 * (world_size - 1) / world_size)


def _traffic(world_size: int, grid: Grid | None = None) -> Traffic:
    return ring_traffic(world_size, require_any_grid(world_size, grid))


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def torus_nd(world_size: int, *, grid: Grid | None = None) -> Schedule:
    """All-reduce on a torus: reduce-scatter along each dimension in turn, all-gather along them backwards.

    Rank = x + X (y + Y (z + ...)). Dimension d sends 2(X_d - 1) messages of S / (X_1 ... X_d) bytes
    per rank; bytes per rank are 2(n-1)/n S, the same as one ring's.

    Parameters
    ----------
    grid : (X, Y, Z, ...) whose product is world_size; default the three dimensions nearest to a cube.

    Source: Chan, Heimlich, Purkayastha & van de Geijn, Concurrency Comput. Pract. Exper. 19(13), 2007.
    """
    shape = require_any_grid(world_size, grid)

    def items() -> Iterator[Item]:
        return rings(shape, order=range(len(shape)))

    return Schedule("torus_nd", Collective(Kind.ALL_REDUCE), world_size, world_size, items)


def rings(grid: Grid, *, order: Sequence[int]) -> Iterator[Item]:
    """Reduce-scatter along the dimensions in that order and all-gather back, over prod(grid) chunks."""
    yield from (_along(grid, order, i, Op.REDUCE) for i, d in enumerate(order) if grid[d] > 1)
    backwards = reversed(list(enumerate(order)))
    yield from (_along(grid, order, i, Op.COPY) for i, d in backwards if grid[d] > 1)


def _along(grid: Grid, order: Sequence[int], phase: int, op: Op) -> Repeat:
    ranks = np.arange(prod(grid))
    along = order[phase]
    extent, place = grid[along], np.arange(grid[along])
    spans = [len(ranks) // prod(grid[d] for d in order[: i + 1]) for i in range(len(order))]
    block = (place + (1 if op == Op.COPY else 0)) % extent
    first = _spread(grid, along, block * spans[phase])
    for i in range(phase):
        owned = (np.arange(grid[order[i]]) + 1) % grid[order[i]]
        first = first + _spread(grid, order[i], owned * spans[i])
    hop = ((place + 1) % extent - place) * prod(grid[:along])
    step = Step.columns(ranks, ranks + _spread(grid, along, hop), first, count=spans[phase], op=op)
    return Repeat(step, extent - 1, -spans[phase], extent * spans[phase])


def _spread(grid: Grid, dimension: int, values: IntArray) -> IntArray:
    """Give every rank the value of its place along a dimension, (prod(grid),)."""
    shape = (-1, grid[dimension], prod(grid[:dimension]))
    outer = prod(grid) // (shape[1] * shape[2])
    return np.broadcast_to(values[:, None], (outer, *shape[1:])).reshape(-1)
