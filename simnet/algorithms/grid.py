"""Shapes that algorithms lay ranks out in: grids, and groups of one node's ranks."""

from __future__ import annotations

from math import isqrt, prod

from simnet.errors import InvalidInput

Grid = tuple[int, ...]


def divisors(number: int) -> list[int]:
    """Every divisor, rising."""
    low = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return low + [number // d for d in reversed(low) if d * d != number]


def grids(world_size: int, dimensions: int = 2) -> list[Grid]:
    """Every shape of that many dimensions with world_size ranks, the first extent rising."""
    if dimensions == 1:
        return [(world_size,)]
    return [(x, *rest) for x in divisors(world_size) for rest in grids(world_size // x, dimensions - 1)]


def square_grid(world_size: int, dimensions: int = 2) -> Grid:
    """Return the shape nearest to a cube, its extents rising."""
    rising = (grid for grid in grids(world_size, dimensions) if list(grid) == sorted(grid))
    return min(rising, key=lambda grid: (sum(grid), grid))


def node_grid(world_size: int, ranks_per_node: int) -> Grid:
    """Return the two-dimensional shape nearest to a square whose rows are nodes, several of them, or parts of one.

    No row then ends inside a node that it does not fill: 240 ranks in nodes of 4 are 16 x 15, not 15 x 16.
    """
    whole = (grid for grid in grids(world_size) if grid[0] % ranks_per_node == 0 or ranks_per_node % grid[0] == 0)
    return min(whole, key=lambda grid: (sum(grid), grid))


def require_grid(world_size: int, grid: Grid | None, dimensions: int = 2) -> Grid:
    """Return the grid, by default the one nearest to a cube.

    Raises
    ------
    InvalidInput : it does not multiply to the world size; the text names grids that do.
    """
    if grid is None:
        return square_grid(world_size, dimensions)
    if len(grid) == dimensions and min(grid) >= 1 and prod(grid) == world_size:
        return tuple(grid)
    shapes = sorted(grids(world_size, dimensions), key=lambda shape: (sum(shape), shape))[: dimensions + 1]
    advice = list(dict.fromkeys(tuple(sorted(shape)) for shape in shapes))[:2]
    wrong = []
    if min(grid, default=0) < 1:
        wrong.append("has extents below 1")
    elif prod(grid) != world_size:
        wrong.append(f"gives {prod(grid)} ranks, not {world_size}")
    if len(grid) != dimensions:
        wrong.append(f"has {len(grid)} dimensions, not {dimensions}")
    raise InvalidInput(f"grid {format_grid(grid)} {' and '.join(wrong)}; try {' or '.join(map(format_grid, advice))}")


def require_any_grid(world_size: int, grid: Grid | None, *, dimensions: int = 3) -> Grid:
    """Return a grid of any number of dimensions, by default the one of `dimensions` nearest to a cube.

    Raises
    ------
    InvalidInput : it does not multiply to the world size.
    """
    return require_grid(world_size, grid, dimensions if grid is None else len(grid))


def prime_grid(world_size: int) -> Grid:
    """Return the prime factors, rising; (1,) for one rank."""
    factors, rest, p = [], world_size, 2
    while rest > 1:
        p = p if rest % p == 0 else next((q for q in range(p, isqrt(rest) + 1) if rest % q == 0), rest)
        factors.append(p)
        rest //= p
    return tuple(factors) or (1,)


def format_grid(grid: Grid) -> str:
    """Write a grid the way the command line reads it: 4x4."""
    return "x".join(map(str, grid))


def parse_grid(text: str) -> Grid:
    """Read a grid as the command line writes it: 4x4 or 2x2x4.

    Raises
    ------
    InvalidInput : something else than whole numbers of 1 or more joined by x.
    """
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise InvalidInput(f"grid must be whole numbers joined by x, got {text!r}; write 4x4")
    return tuple(int(part) for part in parts)


def require_group(world_size: int, ranks_per_node: int | None) -> int:
    """Return the number of ranks per node, by default the divisor nearest below the square root.

    Raises
    ------
    InvalidInput : it does not divide the world size; the text names those that do.
    """
    size = square_grid(world_size)[0] if ranks_per_node is None else ranks_per_node
    if size < 1 or world_size % size:
        near = sorted(sorted(divisors(world_size), key=lambda d: abs(d - size))[:2])
        raise InvalidInput(
            f"ranks_per_node {size} does not cut {world_size} ranks into whole nodes; try {' or '.join(map(str, near))}"
        )
    return size
