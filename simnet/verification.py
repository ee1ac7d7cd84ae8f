"""Prove all schedules of an algorithm, over world sizes and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from simnet.algorithms.registry import Algorithm, Options, algorithms, find
from simnet.collective import IntArray
from simnet.errors import Unsupported
from simnet.interpreters.check import check
from simnet.schedule import Schedule, Step


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
    """Build an algorithm at every world size it admits, with every variant worth testing."""
    return (schedule for _, schedule in variants(algorithm, max_ranks=max_ranks))


def variants(algorithm: Algorithm, *, max_ranks: int) -> Iterator[tuple[Options, Schedule]]:
    """Yield the options and the schedule of every variant at world sizes 1 to max_ranks.

    A builder says that it does not admit a world size by raising Unsupported.
    """
    for world_size in range(1, max_ranks + 1):
        for options in algorithm.variants(world_size):
            try:
                yield options, algorithm.build(world_size, **options)
            except Unsupported:
                continue


def sent(schedule: Schedule) -> tuple[IntArray, IntArray]:
    """Messages and chunks every rank sends, each (world_size,)."""
    messages, chunks = (np.zeros(schedule.world_size, np.int64) for _ in range(2))
    for step in schedule.expand():
        np.add.at(messages, _senders(step), 1)
        np.add.at(chunks, step.src, step.count)
    return messages, chunks


def _senders(step: Step) -> IntArray:
    return np.unique(np.stack([step.src, step.dst, step.channel]), axis=1)[0]
