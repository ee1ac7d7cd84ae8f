"""Prove that a program does what its collective promises, with no two blocks racing for a cell."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simnet.collective import IntArray
from simnet.errors import InvalidSchedule, WrongResult
from simnet.programs.model import Block, Link, Program
from simnet.programs.rendezvous import Event, Half, run

GARBAGE, FINGERPRINT, COUNTS = 0, 1, 2


def check_program(program: Program, *, slots: int = 0) -> int:
    """Raise unless every rank ends with what the collective promises; return the number of messages.

    Raises
    ------
    InvalidSchedule : messages do not match, or two blocks touch a cell, one of them writing, with nothing between
        them that orders the two.
    Deadlock : under the given number of slots; see `rendezvous.run`.
    WrongResult : with rank, chunk and the last writer.
    """
    checker = _Checker(program)
    messages = 0
    for event in run(program, slots=slots):
        checker.apply(event)
        messages += event.half is Half.LEAVE
    checker.compare()
    return messages


@dataclass(slots=True)
class _Access:
    """Last write of a cell and the reads since, as (block, its clock then)."""

    write: tuple[int, int] | None = None
    writer: str = "never written"
    reads: dict[int, int] = field(default_factory=dict)


class _Checker:
    """Contributions by rank in every cell, and a vector clock per block."""

    def __init__(self, program: Program) -> None:
        n, self.program = program.world_size, program
        self.number = {block.key: i for i, block in enumerate(program.blocks)}
        self.clock = np.zeros((len(program.blocks), len(program.blocks)), np.int64)
        self.ended: dict[tuple[tuple[int, int], int], IntArray] = {}
        self.flying: dict[tuple[Link, int], tuple[IntArray, IntArray]] = {}
        self.arrived: dict[tuple[int, int], IntArray] = {}
        self.access: dict[tuple[int, int], _Access] = {}
        self.state = np.zeros((n, program.num_cells, COUNTS + n), np.int64)
        self.state[:, :, GARBAGE] = 1
        self.prints = np.random.default_rng(7).integers(-(2**62), 2**62, (n, program.num_chunks))
        for rank, cells in enumerate(program.input_cells):
            for chunk, cell in enumerate(cells):
                if cell is not None:
                    self.state[rank, cell, [GARBAGE, FINGERPRINT, COUNTS + rank]] = 0, self.prints[rank, chunk], 1

    def apply(self, event: Event) -> None:
        """Move the data of one event and note who touched what."""
        me, clock = event.block.key, self.clock[self.number[event.block.key]]
        if event.half is Half.ARRIVE:
            self._begin(event, clock)
        if event.half is Half.LEAVE:
            assert event.message is not None
            self.flying[event.message] = (self.arrived.pop(me), clock.copy())
        if event.half is Half.LEAVE or not event.instruction.action.sends:
            self.ended[me, event.step] = clock.copy()

    def _begin(self, event: Event, clock: IntArray) -> None:
        block, do = event.block, event.instruction
        clock[self.number[block.key]] = event.step + 1
        if do.after is not None:
            np.maximum(clock, self.ended[(block.rank, do.after[0]), do.after[1]], out=clock)
        payload = np.zeros((do.count, self.state.shape[2]), np.int64)
        if event.message is not None:
            payload, sender = self.flying.pop(event.message)
            np.maximum(clock, sender, out=clock)
        if do.action.reads:
            payload = payload + self._read(block, event.step, do.src, do.count)
        if do.action.value == "re":
            payload = payload + self._read(block, event.step, do.dst, do.count)
        if do.action.writes:
            self._write(block, event.step, do.dst, payload)
        if do.action.sends:
            self._refuse_garbage(block, event.step, payload)
            self.arrived[block.key] = payload

    def _refuse_garbage(self, block: Block, step: int, payload: IntArray) -> None:
        if payload[:, GARBAGE].any():
            raise WrongResult(f"{self.program.name}: {block}, step {step} sends data it never received")

    def _read(self, block: Block, step: int, first: int, count: int) -> IntArray:
        me, clock = self.number[block.key], self.clock[self.number[block.key]]
        for cell in range(first, first + count):
            access = self.access.setdefault((block.rank, cell), _Access())
            if access.write is not None and clock[access.write[0]] < access.write[1]:
                raise self._race(block, f"step {step} reads cell {cell}", access.write[0], "writes")
            access.reads[me] = step + 1
        return self.state[block.rank, first : first + count].copy()

    def _write(self, block: Block, step: int, first: int, payload: IntArray) -> None:
        me, clock = self.number[block.key], self.clock[self.number[block.key]]
        for cell in range(first, first + len(payload)):
            access = self.access.setdefault((block.rank, cell), _Access())
            if access.write is not None and clock[access.write[0]] < access.write[1]:
                raise self._race(block, f"step {step} writes cell {cell}", access.write[0], "writes")
            for reader, when in access.reads.items():
                if clock[reader] < when:
                    raise self._race(block, f"step {step} writes cell {cell}", reader, "reads")
            access.write, access.writer, access.reads = (me, step + 1), f"last written by {block}, step {step}", {}
        self.state[block.rank, first : first + len(payload)] = payload

    def _race(self, block: Block, what: str, other: int, its: str) -> InvalidSchedule:
        return InvalidSchedule(
            f"{self.program.name}: {block}, {what} of its rank while "
            f"block {self.program.blocks[other].number} {its} it; add a dependency between the two"
        )

    def compare(self) -> None:
        """Hold every output cell to the collective."""
        program, n = self.program, self.program.world_size
        wants = program.collective.wants(n, program.num_chunks)
        expected = self._expected()
        for rank, chunk in np.argwhere(wants).tolist():
            cell = program.output_cells[rank][chunk]
            found = self.state[rank, cell] if cell is not None else np.ones(COUNTS + n, np.int64)
            if not np.array_equal(found, expected[rank, chunk]):
                writer = self.access.get((rank, cell), _Access()).writer if cell is not None else "no such cell"
                self._wrong(rank, chunk, found, expected[rank, chunk], writer)

    def _expected(self) -> IntArray:
        program, n = self.program, self.program.world_size
        expected = np.zeros((n, program.num_chunks, COUNTS + n), np.int64)
        if program.collective.reduces:
            expected[:, :, FINGERPRINT], expected[:, :, COUNTS:] = self.prints.sum(axis=0), 1
            return expected
        ranks, chunks = program.collective.origin(n, program.num_chunks)
        expected[:, :, FINGERPRINT] = self.prints[ranks, chunks]
        np.put_along_axis(expected, COUNTS + ranks[:, :, None], 1, axis=2)
        return expected

    def _wrong(self, rank: int, chunk: int, found: IntArray, expected: IntArray, writer: str) -> None:
        lost = np.flatnonzero(found[COUNTS:] < expected[COUNTS:]).tolist()
        extra = np.flatnonzero(found[COUNTS:] > expected[COUNTS:]).tolist()
        what = "it holds uninitialised data" if found[GARBAGE] else "its data come from another rank or chunk"
        if not found[GARBAGE] and (lost or extra):
            what = f"it lacks ranks {lost} and has too much of ranks {extra}"
        raise WrongResult(f"{self.program.name}: rank {rank}, chunk {chunk} is wrong: {what}; {writer}")
