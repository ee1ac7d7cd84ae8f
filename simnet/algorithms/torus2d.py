"""Two-dimensional torus: rings along the rows, rings along the columns on what the rows left over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from simnet.algorithms.grid import Grid, grids, require_grid
from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.collective import Collective, Kind
from simnet.schedule import Item, Op, Repeat, Schedule, Step


def _variants(world_size: int) -> Iterable[Options]:
    return [{"grid": grid} for grid in grids(world_size)]


def _traffic(world_size: int, grid: Grid | None = None) -> Traffic:
    x, y = require_grid(world_size, grid)
    return Traffic(2 * (x - 1) + 2 * (y - 1), 2 * (x - 1) / x + 2 * (y - 1) / (x * y))


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def torus2d(world_size: int, *, grid: Grid | None = None) -> Schedule:
    """All-reduce on an X by Y grid: rows reduce-scatter, columns all-reduce, rows all-gather.

    Rank y * X + x stands in column x of row y. Messages per rank: 2(X-1) of S/X bytes, then
    2(Y-1) of S/(XY); bytes per rank: 2(X-1)/X S + 2(Y-1)/(XY) S, the same as one ring's.

    Parameters
    ----------
    grid : (X, Y) with X * Y = world_size; default the most square one.

    Source: Mikami et al., "Massively Distributed SGD", arXiv 1811.05233, 2018.
    """
    x, y = require_grid(world_size, grid)
    ranks = np.arange(world_size)
    column, row = ranks % x, ranks // x
    right, below = row * x + (column + 1) % x, (ranks + x) % world_size

    def along_row(offset: int, op: Op) -> Repeat:
        return Repeat(Step.columns(ranks, right, (column + offset) % x * y, count=y, op=op), x - 1, -y, x * y)

    def along_column(offset: int, op: Op) -> Repeat:
        chunk = (column + 1) % x * y + (row + offset) % y
        return Repeat(Step.columns(ranks, below, chunk, op=op), y - 1, -1, y)

    def items() -> Iterator[Item]:
        phases = (along_row(0, Op.REDUCE), along_column(0, Op.REDUCE), along_column(1, Op.COPY), along_row(1, Op.COPY))
        yield from (phase for phase in phases if phase.times)

    return Schedule("torus2d", Collective(Kind.ALL_REDUCE), world_size, world_size, items)
