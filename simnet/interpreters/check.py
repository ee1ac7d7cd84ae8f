"""Prove that a schedule implements its collective: the executor over another number system.

Every (rank, chunk) holds a vector: one slot for garbage, a 64-bit fingerprint of where the data came
from, and how often each rank contributed, eight counts to a word. Lost, doubled, misplaced and
uninitialised data all show. Above `EXHAUSTIVE_RANKS` the counts are left out and random fingerprints decide.
"""

from __future__ import annotations

import numpy as np

from simnet.collective import IntArray
from simnet.errors import WrongResult
from simnet.interpreters import execute
from simnet.schedule import Schedule, expand_chunks, validated

EXHAUSTIVE_RANKS = 64

GARBAGE, FINGERPRINT, COUNTS = 0, 1, 2
LANES = 8  # counts per word; one that reaches 256 spills into its neighbour, and the fingerprint still differs


def check(schedule: Schedule) -> None:
    """Raise unless the schedule does what its collective promises, each contribution exactly once.

    Raises
    ------
    InvalidSchedule : a rule of the representation is broken.
    WrongResult : with rank, chunk, step and the last writer.
    """
    fingerprints = _fingerprints(schedule)
    state = _initial(schedule, fingerprints)
    steps, garbage = validated(schedule), bool(state[:, :, GARBAGE].any())
    for index, move in enumerate(execute.run(schedule, state, schedule.num_chunks, steps=steps)):
        if garbage and move.payload[:, GARBAGE].any():
            _refuse_garbage(schedule, index, move)
    _compare(schedule, state, fingerprints)


def _counted(schedule: Schedule) -> int:
    return schedule.world_size if schedule.world_size <= EXHAUSTIVE_RANKS else 0


def _units(ranks: int) -> IntArray:
    """One contribution of each rank as words, shape (ranks, words)."""
    units = np.zeros((ranks, -(-ranks // LANES)), np.int64)
    units[np.arange(ranks), np.arange(ranks) // LANES] = 1 << 8 * (np.arange(ranks) % LANES)
    return units


def _fingerprints(schedule: Schedule) -> IntArray:
    shape = (schedule.world_size, schedule.num_chunks)
    return np.random.default_rng(20181113).integers(-(2**62), 2**62, size=shape, dtype=np.int64)


def _initial(schedule: Schedule, fingerprints: IntArray) -> IntArray:
    n, chunks = schedule.world_size, schedule.num_chunks
    units = _units(_counted(schedule))
    state = np.zeros((n, chunks + schedule.num_scratch, COUNTS + units.shape[1]), np.int64)
    held = schedule.collective.holds(n, chunks)
    state[:, chunks:, GARBAGE] = 1
    state[:, :chunks, GARBAGE] = ~held
    state[:, :chunks, FINGERPRINT] = np.where(held, fingerprints, 0)
    state[: len(units), :chunks, COUNTS:] = held[: len(units), :, None] * units[:, None, :]
    return state


def _expected(schedule: Schedule, fingerprints: IntArray) -> IntArray:
    """What every rank must hold, shape (world_size or 1, num_chunks, slots)."""
    n, chunks = schedule.world_size, schedule.num_chunks
    units = _units(_counted(schedule))
    if schedule.collective.reduces:
        expected = np.zeros((1, chunks, COUNTS + units.shape[1]), np.int64)
        expected[0, :, FINGERPRINT] = fingerprints.sum(axis=0)
        expected[0, :, COUNTS:] = units.sum(axis=0)
        return expected
    expected = np.zeros((n, chunks, COUNTS + units.shape[1]), np.int64)
    ranks, origin_chunks = schedule.collective.origin(n, chunks)
    expected[:, :, FINGERPRINT] = fingerprints[ranks, origin_chunks]
    if len(units):
        expected[:, :, COUNTS:] = units[ranks]
    return expected


def _refuse_garbage(schedule: Schedule, index: int, move: execute.Move) -> None:
    transfer = list(move.step.transfers())[int(move.rows[np.argmax(move.payload[:, GARBAGE] != 0)])]
    raise WrongResult(
        f"{schedule.name}, world size {schedule.world_size}, step {index}: rank {transfer.src} sends data "
        f"it never received: {transfer}"
    )


def _compare(schedule: Schedule, state: IntArray, fingerprints: IntArray) -> None:
    n, chunks = schedule.world_size, schedule.num_chunks
    expected = _expected(schedule, fingerprints)
    wrong = (state[:, :chunks] != expected).any(axis=2) & schedule.collective.wants(n, chunks)
    if not wrong.any():
        return
    rank, chunk = (int(i) for i in np.argwhere(wrong)[0])
    due = np.broadcast_to(expected, (n, *expected.shape[1:]))[rank, chunk]
    raise WrongResult(
        f"{schedule.name}, world size {n}: rank {rank}, chunk {chunk} is wrong: "
        f"{_difference(state[rank, chunk], due)}; {_last_writer(schedule, rank, chunk)}; "
        f"{int(wrong.sum())} chunks are wrong in all"
    )


def _difference(found: IntArray, expected: IntArray) -> str:
    if found[GARBAGE]:
        return "it holds uninitialised data"
    counts, due = (words[COUNTS:].copy().view(np.uint8).astype(int) for words in (found, expected))
    parts = [f"lacks the contribution of ranks {np.flatnonzero(counts < due).tolist()}"] * bool((counts < due).any())
    parts += [f"has too much of ranks {np.flatnonzero(counts > due).tolist()}"] * bool((counts > due).any())
    return " and ".join(parts) or "its data come from another rank or chunk"


def _last_writer(schedule: Schedule, rank: int, chunk: int) -> str:
    last = "never written"
    for index, step in enumerate(schedule.expand()):
        rows, chunks = expand_chunks(step.dst_chunk, step.count)
        hits = np.flatnonzero((step.dst[rows] == rank) & (chunks == chunk))
        if len(hits):
            last = f"last written in step {index} by rank {int(step.src[rows[hits[-1]]])}"
    return last
