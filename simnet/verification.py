"""Prove all schedules of an algorithm, over world sizes and options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simnet.algorithms.registry import Algorithm, Options, algorithms, find
from simnet.collective import IntArray
from simnet.errors import Unsupported, WrongResult
from simnet.importers.msccl import read_msccl
from simnet.interpreters import execute
from simnet.interpreters.check import check
from simnet.programs.lowering import to_schedule
from simnet.programs.model import Program
from simnet.programs.values import check_program
from simnet.schedule import Op, Repeat, Schedule, Transfer


def verify(algorithm: str, *, max_ranks: int, min_ranks: int = 1) -> Iterator[dict[str, Any]]:
    """Check every schedule of one algorithm ("all" for all) at world sizes min_ranks to max_ranks.

    Yields one row per algorithm that admits any of them. Above 64 ranks random 64-bit integers decide.

    Raises
    ------
    WrongResult, InvalidSchedule : the first schedule that fails, with rank, chunk, step and last writer,
        or whose messages or bytes per rank are not those of the algorithm's closed form.
    """
    for one in algorithms().values() if algorithm == "all" else [find(algorithm)]:
        count = 0
        for options, built in variants(one, max_ranks=max_ranks, min_ranks=min_ranks):
            items = list(built.steps())
            schedule = replace(built, items=partial(iter, items))
            check(schedule)
            check_traffic(one, options, schedule)
            count += 1
        if not count and algorithm != "all" and min_ranks == max_ranks:
            one.build(min_ranks)
        counted = "closed form" if one.states_traffic else "not stated"
        row = {"algorithm": one.name, "collective": str(one.kind), "schedules": count, "max_ranks": max_ranks}
        yield row | {"traffic": counted}


def check_traffic(algorithm: Algorithm, options: Options, schedule: Schedule) -> None:
    """Raise WrongResult unless every rank sends the messages and bytes of the closed form, where there is one."""
    if not algorithm.states_traffic:
        return
    traffic = algorithm.traffic(schedule.world_size, **options)
    for found, stated, what in zip(
        sent(schedule), (traffic.messages, traffic.share), ("messages", "chunks"), strict=True
    ):
        due = np.broadcast_to(stated, found.shape) * (schedule.num_chunks if what == "chunks" else 1)
        wrong = np.flatnonzero(np.abs(found - due) > 1e-9 * np.maximum(due, 1))
        if len(wrong):
            rank = int(wrong[0])
            raise WrongResult(
                f"{schedule.name}, world size {schedule.world_size}, options {dict(options)}: rank {rank} sends "
                f"{found[rank]} {what}, its closed form says {due[rank]:g}"
            )


def verify_program(program: Program, *, slots: int = 0) -> dict[str, Any]:
    """Check a thread-block program from outside; return one row, with the steps of the schedule it is lowered to.

    Raises
    ------
    InvalidSchedule, Deadlock, WrongResult : see `programs.values.check_program`.
    """
    messages = check_program(program, slots=slots)
    row: dict[str, Any] = {"program": program.name, "collective": str(program.collective.kind)}
    row |= {"ranks": program.world_size, "messages": messages, "slots": slots}
    try:
        schedule = to_schedule(program, slots=max(slots, 1))
        check(schedule)
    except (Unsupported, WrongResult) as error:
        return row | {"steps": None, "reason": f"not to be timed: {error}"}
    return row | {"steps": sum(1 for _ in schedule.expand()), "reason": ""}


def read_schedule(path: Path) -> Schedule:
    """Return an MSCCL program as a schedule that has been checked, with one message buffered per connection.

    Raises
    ------
    InvalidInput, InvalidSchedule, Deadlock, WrongResult, Unsupported : it cannot be read, is wrong, or cannot be timed.
    """
    program = read_msccl(path)
    check_program(program, slots=1)
    schedule = to_schedule(program)
    check(schedule)
    return schedule


def schedules(algorithm: Algorithm, *, max_ranks: int) -> Iterator[Schedule]:
    """Build an algorithm at every world size it admits, with every variant worth testing."""
    return (schedule for _, schedule in variants(algorithm, max_ranks=max_ranks))


def variants(algorithm: Algorithm, *, max_ranks: int, min_ranks: int = 1) -> Iterator[tuple[Options, Schedule]]:
    """Yield the options and the schedule of every variant at world sizes min_ranks to max_ranks.

    A builder says that it does not admit a world size by raising Unsupported.
    """
    for world_size in range(min_ranks, max_ranks + 1):
        for options in algorithm.variants(world_size):
            try:
                yield options, algorithm.build(world_size, **options)
            except Unsupported:
                continue


def sent(schedule: Schedule) -> tuple[IntArray, IntArray]:
    """Messages and chunks every rank sends, each (world_size,)."""
    messages, chunks = (np.zeros(schedule.world_size, np.int64) for _ in range(2))
    for item in schedule.steps():
        step, times = (item.step, item.times) if isinstance(item, Repeat) else (item, 1)
        pairs = np.unique((step.src * schedule.world_size + step.dst) * schedule.num_channels + step.channel)
        senders = pairs // schedule.num_channels // schedule.world_size
        messages += times * np.bincount(senders, minlength=schedule.world_size)
        np.add.at(chunks, step.src, times * step.count)
    return messages, chunks


def redundant(schedule: Schedule, *, sample: int | None = None, seed: int = 0) -> list[Transfer]:
    """Transfers without which the result would be the same; a lean schedule has none.

    All omissions are tried in one run on random 64-bit data, one column each.

    Parameters
    ----------
    sample : try at most this many transfers, drawn at random; default all.
    """
    rng = np.random.default_rng(seed)
    rows_before = np.cumsum([0, *(len(step) for step in schedule.expand())])
    tried = np.arange(rows_before[-1])
    if sample is not None and len(tried) > sample:
        tried = np.sort(rng.choice(tried, sample, replace=False))
    cells = (schedule.world_size, schedule.num_chunks + schedule.num_scratch, 1)
    state = np.repeat(rng.integers(-(2**62), 2**62, cells), len(tried) + 1, axis=2)
    omitted: list[Transfer] = []
    for index, move in enumerate(execute.run(schedule, state, schedule.num_chunks)):
        columns = np.flatnonzero((tried >= rows_before[index]) & (tried < rows_before[index + 1]))
        omitted += _omit(move, state, columns=columns, left_out=tried[columns] - rows_before[index])
    wanted = schedule.collective.wants(schedule.world_size, schedule.num_chunks)
    results = state[:, : schedule.num_chunks][wanted]
    same = (results[:, :-1] == results[:, -1:]).all(axis=0)
    return [omitted[i] for i in np.flatnonzero(same)]


def _omit(move: execute.Move, state: IntArray, *, columns: IntArray, left_out: IntArray) -> list[Transfer]:
    """Change the payload of each column so that writing it has no effect for the row left out in that column."""
    for column, row in zip(columns, left_out, strict=True):
        mine = move.rows == row
        old = state[..., column].reshape(-1)[move.target[mine]]
        move.payload[mine, column] = 0 if move.step.op[row] == Op.REDUCE else old
    return [list(move.step.transfers())[row] for row in left_out]
