"""BlueConnect: an all-reduce decomposed over the levels of a network, with rings inside every level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simnet.algorithms.grid import Grid, grids, prime_grid, require_any_grid
from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.algorithms.torus_nd import ring_traffic, rings
from simnet.collective import Collective, Kind
from simnet.schedule import Item, Schedule


def _shape(world_size: int, grid: Grid | None) -> Grid:
    return prime_grid(world_size) if grid is None else require_any_grid(world_size, grid)


def _variants(world_size: int) -> Iterable[Options]:
    yield {}
    yield from ({"grid": grid} for grid in grids(world_size))


def _traffic(world_size: int, grid: Grid | None = None) -> Traffic:
    return ring_traffic(world_size, _shape(world_size, grid))


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def blueconnect(world_size: int, *, grid: Grid | None = None) -> Schedule:
    """All-reduce by reduce-scatters level by level, innermost first, and all-gathers back out.

    The world size is factored into p1 p2 ... pk, one factor per level: devices of a node, nodes of a
    rack, racks. Every rank sends 2(p1-1) + ... + 2(pk-1) messages and 2(n-1)/n S bytes, most of them
    inside the innermost level. More factors cost less latency; each needs more different partners.

    Parameters
    ----------
    grid : (p1, p2, ...) whose product is world_size, innermost first; default all prime factors, rising.

    Source: Cho, Finkler, Serrano, Kung & Hunter, "BlueConnect", MLSys 2019.
    """
    shape = _shape(world_size, grid)

    def items() -> Iterator[Item]:
        return rings(shape, order=range(len(shape)))

    return Schedule("blueconnect", Collective(Kind.ALL_REDUCE), world_size, world_size, items)
