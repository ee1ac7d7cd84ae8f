"""Two-dimensional torus: rings along the rows, rings along the columns on what the rows left over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simnet.algorithms.grid import Grid, grids, require_grid
from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.algorithms.torus_nd import ring_traffic, rings
from simnet.collective import Collective, Kind
from simnet.combine import Phase, channels
from simnet.schedule import Item, Schedule


def _variants(world_size: int) -> Iterable[Options]:
    return [{"grid": grid} for grid in grids(world_size)]


def _traffic(world_size: int, grid: Grid | None = None) -> Traffic:
    return ring_traffic(world_size, require_grid(world_size, grid))


def _concurrent(world_size: int, grid: Grid | None = None) -> Traffic:
    one = _traffic(world_size, grid)
    return Traffic(2 * one.messages, one.share)


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic, rows=True)
def torus2d(world_size: int, *, grid: Grid | None = None) -> Schedule:
    """All-reduce on an X by Y grid: rows reduce-scatter, columns all-reduce, rows all-gather.

    Rank y * X + x stands in column x of row y. Messages per rank: 2(X-1) of S/X bytes, then
    2(Y-1) of S/(XY); bytes per rank: 2(X-1)/X S + 2(Y-1)/(XY) S, the same as one ring's.

    Parameters
    ----------
    grid : (X, Y) with X * Y = world_size; default the most square one, on a described machine with rows that fit
        its nodes.

    Source: Mikami et al., "Massively Distributed SGD", arXiv 1811.05233, 2018.
    """
    shape = require_grid(world_size, grid)

    def items() -> Iterator[Item]:
        return rings(shape, order=(0, 1))

    return Schedule("torus2d", Collective(Kind.ALL_REDUCE), world_size, world_size, items)


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_concurrent, rows=True)
def torus2d_concurrent(world_size: int, *, grid: Grid | None = None) -> Schedule:
    """All-reduce on an X by Y grid in both dimensions at once: one half of the data goes rows first, one columns first.

    Each half is a torus2d on its own channel, so every rank sends twice its messages, of half the
    bytes; bytes per rank stay 2(n-1)/n S. For both directions of every link as well, see `bucket`.

    Parameters
    ----------
    grid : (X, Y) with X * Y = world_size; default the most square one, on a described machine with rows that fit
        its nodes.

    Source: Jain & Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", ICS 2010.
    """
    shape = require_grid(world_size, grid)
    halves = [_half(shape, order) for order in ((0, 1), (1, 0))]
    return channels(*halves, name="torus2d_concurrent", collective=Collective(Kind.ALL_REDUCE))


def _half(shape: Grid, order: tuple[int, int]) -> Phase:
    ranks = shape[0] * shape[1]
    return Phase(ranks, ranks, lambda: rings(shape, order=order))
