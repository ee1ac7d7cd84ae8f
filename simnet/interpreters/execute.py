"""Run a schedule on NumPy data: the reference for what a schedule computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet.collective import IntArray
from simnet.errors import InvalidInput
from simnet.schedule import Op, Schedule, Step, chunk_bounds, expand_chunks, transfer_elements

Data = npt.NDArray[Any]


def execute(schedule: Schedule, inputs: Data) -> Data:
    """Return every rank's buffer after the schedule, shape (world_size, count, ...), inputs unchanged.

    Sums are made in the inputs' own type, in the order the schedule states, so roundings are those
    of the real algorithm. Chunks that the collective leaves undefined hold whatever was left there.

    Raises
    ------
    InvalidInput : inputs are not one row per rank, or count does not fit the schedule's chunks.
    """
    if inputs.ndim < 2 or inputs.shape[0] != schedule.world_size:
        raise InvalidInput(
            f"inputs must have one row per rank, shape ({schedule.world_size}, count), got {inputs.shape}"
        )
    count = inputs.shape[1]
    state = np.zeros((inputs.shape[0], count + scratch_elements(schedule, count), *inputs.shape[2:]), inputs.dtype)
    state[:, :count] = inputs
    for _ in run(schedule, state, count):
        pass
    return state[:, :count].copy()


def scratch_elements(schedule: Schedule, count: int) -> int:
    """Elements of scratch each rank needs beside its buffer of `count` elements."""
    return schedule.num_scratch * (count // schedule.num_chunks)


def run(schedule: Schedule, state: Data, count: int) -> Iterator[tuple[Step, IntArray, Data]]:
    """Apply the schedule to `state` (world_size, count + scratch, ...) in place.

    Yields each step before it is applied, with the row of `step` every element belongs to and the
    payload (elements, ...), so that another number system can look at what is about to be written.
    """
    bounds = element_bounds(schedule, count)
    for step in schedule.expand():
        elements = transfer_elements(step, schedule, bounds)
        rows, source = expand_chunks(bounds[step.src_chunk], elements)
        _, target = expand_chunks(bounds[step.dst_chunk], elements)
        payload = state[step.src[rows], source]
        yield step, rows, payload
        _write(state, step.dst[rows], target, payload, step.op[rows] == Op.REDUCE)


def element_bounds(schedule: Schedule, count: int) -> IntArray:
    """First element of each chunk, scratch included, and the end, shape (chunks + scratch + 1,)."""
    bounds = chunk_bounds(count, schedule.num_chunks)
    scratch = count + (1 + np.arange(schedule.num_scratch, dtype=np.int64)) * (count // schedule.num_chunks)
    return np.concatenate([bounds, scratch])


def _write(state: Data, ranks: IntArray, target: IntArray, payload: Data, reduces: npt.NDArray[np.bool_]) -> None:
    copies = ~reduces
    state[ranks[copies], target[copies]] = payload[copies]
    ranks, target, payload = ranks[reduces], target[reduces], payload[reduces]
    for layer in _layers(ranks * state.shape[1] + target):
        state[ranks[layer], target[layer]] += payload[layer]


def _layers(cell: IntArray) -> Iterator[IntArray]:
    """Split rows into groups without a repeated cell, keeping the row order of equal cells."""
    remaining = np.arange(len(cell))
    while len(remaining):
        _, first = np.unique(cell[remaining], return_index=True)
        yield remaining[np.sort(first)]
        remaining = np.delete(remaining, first)
