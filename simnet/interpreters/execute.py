"""Run a schedule on NumPy data: the reference for what a schedule computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet.collective import IntArray
from simnet.errors import InvalidInput
from simnet.schedule import Op, Schedule, Step, chunk_bounds, expand_chunks, transfer_elements

Data = npt.NDArray[Any]
_REDUCE = int(Op.REDUCE)


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


@dataclass(frozen=True, slots=True)
class Move:
    """A step about to be applied: payload (elements, ...) goes to the cells `target` of the flat state.

    rows says which row of `step` each element belongs to. Changing the payload changes what is written.
    """

    step: Step
    rows: IntArray
    target: IntArray
    payload: Data


def run(schedule: Schedule, state: Data, count: int, *, steps: Iterable[Step] | None = None) -> Iterator[Move]:
    """Apply the schedule to `state` (world_size, count + scratch, ...) in place; yield each step before it is applied.

    Parameters
    ----------
    state : contiguous; its last axes hold whatever number system is wanted, with `+` as the reduction.
    steps : the schedule's own steps, where the caller looks at them on the way; default schedule.expand().
    """
    bounds = element_bounds(schedule, count)
    width = state.shape[1]
    assert state.flags.c_contiguous
    cells = state.reshape(state.shape[0] * width, *state.shape[2:])
    for step in schedule.expand() if steps is None else steps:
        elements = step.count if count == schedule.num_chunks else transfer_elements(step, schedule, bounds)
        rows, source = expand_chunks(step.src * width + bounds[step.src_chunk], elements)
        shift = (step.dst - step.src) * width + bounds[step.dst_chunk] - bounds[step.src_chunk]
        target = source + shift[rows]
        payload = cells[source]
        yield Move(step, rows, target, payload)
        _write(cells, target, payload, step.op, rows)


def element_bounds(schedule: Schedule, count: int) -> IntArray:
    """First element of each chunk, scratch included, and the end, shape (chunks + scratch + 1,)."""
    bounds = chunk_bounds(count, schedule.num_chunks)
    scratch = count + (1 + np.arange(schedule.num_scratch, dtype=np.int64)) * (count // schedule.num_chunks)
    return np.concatenate([bounds, scratch])


def _write(cells: Data, target: IntArray, payload: Data, op: IntArray, rows: IntArray) -> None:
    if not op.any():
        cells[target] = payload
        return
    if not op.all():
        reduces = op[rows] == _REDUCE
        cells[target[~reduces]] = payload[~reduces]
        target, payload = target[reduces], payload[reduces]
    ordered = np.sort(target)
    if (ordered[1:] != ordered[:-1]).all():
        cells[target] += payload
        return
    for layer in _layers(target):
        cells[target[layer]] += payload[layer]


def _layers(cell: IntArray) -> Iterator[IntArray]:
    """Split rows into groups without a repeated cell, keeping the row order of equal cells."""
    remaining = np.arange(len(cell))
    while len(remaining):
        _, first = np.unique(cell[remaining], return_index=True)
        yield remaining[np.sort(first)]
        remaining = np.delete(remaining, first)
