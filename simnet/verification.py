"""Prove all schedules of an algorithm, over world sizes and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simnet.algorithms.registry import Algorithm, algorithms, find
from simnet.errors import Unsupported
from simnet.interpreters.check import check
from simnet.schedule import Schedule


def verify(algorithm: str, *, max_ranks: int) -> Iterator[dict[str, Any]]:
    """Check every schedule of one algorithm ("all" for all) at world sizes 1 to max_ranks; yield a row each.

    Raises
    ------
    WrongResult, InvalidSchedule : the first schedule that fails, with rank, chunk, step and last writer.
    """
    chosen = algorithms().values() if algorithm == "all" else [find(algorithm)]
    for one in chosen:
        count = 0
        for schedule in schedules(one, max_ranks=max_ranks):
            check(schedule)
            count += 1
        yield {"algorithm": one.name, "collective": str(one.kind), "schedules": count, "max_ranks": max_ranks}


def schedules(algorithm: Algorithm, *, max_ranks: int) -> Iterator[Schedule]:
    """Build an algorithm at every world size it admits, with every variant worth testing.

    A builder says that it does not admit a world size by raising Unsupported.
    """
    for world_size in range(1, max_ranks + 1):
        for options in algorithm.variants(world_size):
            try:
                yield algorithm.build(world_size, **options)
            except Unsupported:
                continue
