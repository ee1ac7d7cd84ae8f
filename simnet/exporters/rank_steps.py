"""What one rank sends and receives, step by step: the view of formats that hold one program per rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from simnet.errors import InvalidInput
from simnet.schedule import IntArray, Op, Repeat, Schedule, Step, chunk_bounds, transfer_elements
from simnet.units import Bytes, SecondsPerByte


@dataclass(frozen=True, slots=True)
class Exchange:
    """One message of a rank in one step; tag is the same at both ends and differs from step to step.

    added : bytes of it that the rank adds to what it has; 0 where it sends
    """

    sends: bool
    peer: int
    num_bytes: Bytes
    channel: int
    tag: int
    added: Bytes = 0


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
    total: dict[tuple[bool, int, int], list[int]] = {}
    columns = (step.src, step.dst, step.channel, num_bytes, np.where(step.op == Op.REDUCE, num_bytes, 0))
    for src, dst, channel, size, reduced in zip(*(c.tolist() for c in columns), strict=True):
        sums = total.setdefault((src == rank, dst if src == rank else src, channel), [0, 0])
        sums[0] += size
        sums[1] += 0 if src == rank else reduced
    return [
        Exchange(sends, peer, size, channel, number, added)
        for (sends, peer, channel), (size, added) in total.items()
        if size
    ]


def require_gamma(gamma: SecondsPerByte) -> None:
    """Raise InvalidInput where that is no time per byte."""
    if not 0 <= gamma < np.inf:
        raise InvalidInput(f"gamma must be 0 s per byte added or more, got {gamma}")
