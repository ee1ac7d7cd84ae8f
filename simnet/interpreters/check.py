"""Prove that a schedule implements its collective: the executor over another number system.

Every (rank, chunk) holds a vector: how often each rank contributed, one slot for garbage, and a
64-bit fingerprint of where the data came from. Lost, doubled, misplaced and uninitialised data all
show. Above `EXHAUSTIVE_RANKS` the counts are left out and random fingerprints decide.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simnet.collective import IntArray
from simnet.errors import WrongResult
from simnet.interpreters import execute
from simnet.schedule import Schedule, Step, expand_chunks, validate

EXHAUSTIVE_RANKS = 64

GARBAGE, FINGERPRINT, COUNTS = 0, 1, 2


def check(schedule: Schedule) -> None:
    """Raise unless the schedule does what its collective promises, each contribution exactly once.

    Raises
    ------
    InvalidSchedule : a rule of the representation is broken.
    WrongResult : with rank, chunk, step and the last writer.
    """
    validate(schedule)
    state = _initial(schedule)
    writers = np.full((*state.shape[:2], 2), -1, np.int64)
    index = -1
    for index, (step, rows, payload) in enumerate(execute.run(schedule, state, schedule.num_chunks)):
        _refuse_garbage(schedule, index, step, rows, payload)
        _remember(writers, index, step)
    _compare(schedule, state, writers)


def _slots(schedule: Schedule) -> int:
    return COUNTS + (schedule.world_size if schedule.world_size <= EXHAUSTIVE_RANKS else 0)


def _fingerprints(schedule: Schedule) -> IntArray:
    shape = (schedule.world_size, schedule.num_chunks)
    return np.random.default_rng(20181113).integers(-(2**62), 2**62, size=shape, dtype=np.int64)


def _initial(schedule: Schedule) -> IntArray:
    n, chunks = schedule.world_size, schedule.num_chunks
    state = np.zeros((n, chunks + schedule.num_scratch, _slots(schedule)), np.int64)
    held = schedule.collective.holds(n, chunks)
    state[:, :, GARBAGE] = 1
    state[:, :chunks, GARBAGE] = ~held
    state[:, :chunks, FINGERPRINT] = np.where(held, _fingerprints(schedule), 0)
    for rank in range(_slots(schedule) - COUNTS):
        state[rank, :chunks, COUNTS + rank] = held[rank]
    return state


def _expected(schedule: Schedule) -> IntArray:
    n, chunks = schedule.world_size, schedule.num_chunks
    expected = np.zeros((n, chunks, _slots(schedule)), np.int64)
    if schedule.collective.reduces:
        expected[:, :, FINGERPRINT] = _fingerprints(schedule).sum(axis=0)[None, :]
        expected[:, :, COUNTS:] = 1
        return expected
    ranks, origin_chunks = schedule.collective.origin(n, chunks)
    expected[:, :, FINGERPRINT] = _fingerprints(schedule)[ranks, origin_chunks]
    if _slots(schedule) > COUNTS:
        np.put_along_axis(expected, COUNTS + ranks[:, :, None], 1, axis=2)
    return expected


def _refuse_garbage(schedule: Schedule, index: int, step: Step, rows: IntArray, payload: npt.NDArray[np.int64]) -> None:
    garbage = payload[:, GARBAGE] > 0
    if garbage.any():
        transfer = list(step.transfers())[int(rows[np.argmax(garbage)])]
        raise WrongResult(
            f"{schedule.name}, world size {schedule.world_size}, step {index}: rank {transfer.src} sends data "
            f"it never received: {transfer}"
        )


def _remember(writers: IntArray, index: int, step: Step) -> None:
    rows, chunks = expand_chunks(step.dst_chunk, step.count)
    writers[step.dst[rows], chunks, 0] = index
    writers[step.dst[rows], chunks, 1] = step.src[rows]


def _compare(schedule: Schedule, state: IntArray, writers: IntArray) -> None:
    n, chunks = schedule.world_size, schedule.num_chunks
    expected = _expected(schedule)
    wrong = (state[:, :chunks] != expected).any(axis=2) & schedule.collective.wants(n, chunks)
    if not wrong.any():
        return
    rank, chunk = (int(i) for i in np.argwhere(wrong)[0])
    step, source = (int(v) for v in writers[rank, chunk])
    last = f"last written in step {step} by rank {source}" if step >= 0 else "never written"
    raise WrongResult(
        f"{schedule.name}, world size {n}: rank {rank}, chunk {chunk} is wrong: "
        f"{_difference(state[rank, chunk], expected[rank, chunk])}; {last}; {int(wrong.sum())} chunks are wrong in all"
    )


def _difference(found: IntArray, expected: IntArray) -> str:
    if found[GARBAGE]:
        return "it holds uninitialised data"
    lost = np.flatnonzero(found[COUNTS:] < expected[COUNTS:]).tolist()
    extra = np.flatnonzero(found[COUNTS:] > expected[COUNTS:]).tolist()
    parts = [f"lacks the contribution of ranks {lost}"] * bool(lost)
    parts += [f"has too much of ranks {extra}"] * bool(extra)
    return " and ".join(parts) or "its data come from another rank or chunk"
