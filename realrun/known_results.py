"""Numbers whose sums are known, exact in every dtype and for any number of ranks, to verify what is timed."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet.interpreters.execute import element_bounds
from simnet.schedule import Schedule

Values = npt.NDArray[np.int16]

PERIOD = 1009
LARGEST = 4
CONTRIBUTORS = 25


def pattern(rank: int, count: int, world_size: int) -> Values:
    """What a rank puts in, shape (count,): whole numbers 0 to 4 without a shorter period than 1,009.

    In worlds of more than 25 ranks, about 25 of them put something other than 0 into each place, so that
    sums stay at 127 or less: exact in int8, bf16 and fp16.
    """
    return np.resize(_one_period(rank, world_size), count)


def expectation(schedule: Schedule, rank: int, count: int) -> tuple[Values, npt.NDArray[np.bool_]]:
    """What `rank` must hold after the schedule ran on `pattern`, and where it is defined, each (count,)."""
    n, chunks, collective = schedule.world_size, schedule.num_chunks, schedule.collective
    bounds = element_bounds(schedule, count)[: chunks + 1]
    wanted = np.repeat(collective.wants(n, chunks)[rank], np.diff(bounds))
    if collective.reduces:
        return np.resize(_sum_of_periods(n), count), wanted
    ranks, origins = (column[rank].tolist() for column in collective.origin(n, chunks))
    parts = [_slice(r, n, bounds[c], bounds[c + 1]) for r, c in zip(ranks, origins, strict=True)]
    return np.concatenate(parts), wanted


def _slice(rank: int, world_size: int, start: Any, stop: Any) -> Values:
    return np.resize(np.roll(_one_period(rank, world_size), -int(start)), int(stop - start))


@cache
def _one_period(rank: int, world_size: int) -> Values:
    values = np.random.default_rng(rank).integers(0, LARGEST + 1, PERIOD)
    turn = -(-world_size // CONTRIBUTORS)
    return (values * ((np.arange(PERIOD) + rank) % turn == 0)).astype(np.int16)


@cache
def _sum_of_periods(world_size: int) -> Values:
    total = np.zeros(PERIOD, np.int16)
    for rank in range(world_size):
        total += _one_period(rank, world_size)
    return total
