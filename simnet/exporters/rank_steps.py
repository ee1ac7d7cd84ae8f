"""What one rank sends and receives, step by step: the view of formats that hold one program per rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from simnet.errors import InvalidInput
from simnet.schedule import IntArray, Repeat, Schedule, Step, chunk_bounds, transfer_elements
from simnet.units import Bytes


@dataclass(frozen=True, slots=True)
class Exchange:
    """One message of a rank in one step; tag is the same at both ends and differs from step to step."""

    sends: bool
    peer: int
    num_bytes: Bytes
    channel: int
    tag: int


def rank_steps(schedule: Schedule, count: int, rank: int, *, itemsize: int = 4) -> Iterator[list[Exchange]]:
    """Yield the messages of a rank, one list per step in which it has any; messages of no bytes are left out.

    Parameters
    ----------
    count : elements per rank; itemsize : bytes per element

    Raises
    ------
    InvalidInput : count is negative, or does not divide where chunks change their places.
    """
    if itemsize < 1:
        raise InvalidInput(f"itemsize must be 1 byte or more, got {itemsize}")
    bounds = _bounds(schedule, count)
    number = 0
    for item in schedule.steps():
        step, times = (item.step, item.times) if isinstance(item, Repeat) else (item, 1)
        mine = _rows(step, np.flatnonzero((step.src == rank) | (step.dst == rank)))
        moving = Repeat(mine, times, item.chunk_shift, item.period) if isinstance(item, Repeat) else None
        for k in range(times if len(mine) else 0):
            one = moving.at(k) if moving else mine
            found = _messages(one, transfer_elements(one, schedule, bounds) * itemsize, rank, number + k)
            if found:
                yield found
        number += times


def _bounds(schedule: Schedule, count: int) -> IntArray:
    scratch = count + (1 + np.arange(schedule.num_scratch, dtype=np.int64)) * (count // schedule.num_chunks)
    return np.concatenate([chunk_bounds(count, schedule.num_chunks), scratch])


def _rows(step: Step, rows: IntArray) -> Step:
    return Step(*(getattr(step, column.name)[rows] for column in fields(Step)))


def _messages(step: Step, num_bytes: IntArray, rank: int, number: int) -> list[Exchange]:
    total: dict[tuple[bool, int, int], int] = {}
    for src, dst, channel, size in zip(
        *(c.tolist() for c in (step.src, step.dst, step.channel, num_bytes)), strict=True
    ):
        key = (src == rank, dst if src == rank else src, channel)
        total[key] = total.get(key, 0) + size
    return [Exchange(sends, peer, size, channel, number) for (sends, peer, channel), size in total.items() if size]
