"""The intermediate representation: a collective algorithm at one world size, as data.

A `Schedule` is a re-iterable stream of `Step`s; a step is a set of transfers stored as columns.
Every interpreter (check, execute, estimate, simulate, realrun.executor) runs this same object.
Rules that give it meaning:

- A transfer is both the send and the receive, so a mismatched send cannot be written down.
- All transfers of a step with the same (src, dst, channel) travel as one message.
- Inside a step every payload is read before any write. A COPY may not meet another write to the
  same chunk; several REDUCEs into one chunk apply in row order.
- A step is program order, not a barrier: a message starts when both its ranks have finished their
  earlier steps on that channel.
- Chunks with an index of num_chunks or more are scratch and hold garbage at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from itertools import islice

import numpy as np
import numpy.typing as npt

from simnet.collective import Collective
from simnet.errors import InvalidInput, InvalidSchedule

IntArray = npt.NDArray[np.int64]


COPIED_TRANSFERS = 4096
"""Columns of more transfers are shared with the caller, below it is quicker to copy them into one table."""


class Op(IntEnum):
    """What arriving data does to the destination chunk."""

    COPY = 0
    REDUCE = 1


@dataclass(frozen=True, slots=True)
class Transfer:
    """`count` chunks from src_chunk on of rank src go to dst_chunk on of rank dst."""

    src: int
    dst: int
    src_chunk: int
    dst_chunk: int
    count: int = 1
    op: Op = Op.COPY
    channel: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """Transfers as columns, each an int64 array (num_transfers,)."""

    src: IntArray
    dst: IntArray
    src_chunk: IntArray
    dst_chunk: IntArray
    count: IntArray
    op: IntArray
    channel: IntArray

    @classmethod
    def of(cls, transfers: Iterable[Transfer]) -> Step:
        """Build a step from single transfers, in row order."""
        rows = [(t.src, t.dst, t.src_chunk, t.dst_chunk, t.count, int(t.op), t.channel) for t in transfers]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 7).T
        return cls(*columns)

    @classmethod
    def columns(
        cls,
        src: npt.ArrayLike,
        dst: npt.ArrayLike,
        src_chunk: npt.ArrayLike,
        dst_chunk: npt.ArrayLike | None = None,
        *,
        count: npt.ArrayLike = 1,
        op: npt.ArrayLike = Op.COPY,
        channel: npt.ArrayLike = 0,
    ) -> Step:
        """Build a step from columns that broadcast against each other; dst_chunk defaults to src_chunk.

        Long columns are not copied where that can be helped, so the caller may not change them afterwards.
        """
        to = src_chunk if dst_chunk is None else dst_chunk
        parts = (src, dst, src_chunk, to, count, int(op) if isinstance(op, Op) else op, channel)
        shape = np.broadcast_shapes(*(np.shape(part) for part in parts))
        if len(shape) == 1 and shape[0] > COPIED_TRANSFERS:
            columns = [np.broadcast_to(np.asarray(part, np.int64), shape) for part in parts]
        else:
            table = np.empty((len(parts), *shape), np.int64)
            for row, part in zip(table, parts, strict=True):
                row[...] = part
            columns = list(table.reshape(len(parts), -1))
        if dst_chunk is None:
            columns[3] = columns[2]
        return cls(*columns)

    def __len__(self) -> int:
        return len(self.src)

    def transfers(self) -> Iterator[Transfer]:
        """Yield the rows one by one."""
        rows = (self.src, self.dst, self.src_chunk, self.dst_chunk, self.count, self.op, self.channel)
        for src, dst, src_chunk, dst_chunk, count, op, channel in zip(*(c.tolist() for c in rows), strict=True):
            yield Transfer(src, dst, src_chunk, dst_chunk, count, Op(op), channel)


@dataclass(frozen=True, slots=True)
class Repeat:
    """`step` done `times` times; the k-th time (from 0) its chunks are moved on by k * chunk_shift.

    Chunks move inside blocks of `period`: c becomes (c // period) * period + (c + k * chunk_shift) % period
    with c % period inside the sum. A range of `count` chunks may not wrap around its block.
    """

    step: Step
    times: int
    chunk_shift: int
    period: int

    def at(self, k: int) -> Step:
        """Return the k-th repetition as a plain step."""
        s = self.step
        src_chunk = self._moved(s.src_chunk, k)
        dst_chunk = src_chunk if s.dst_chunk is s.src_chunk else self._moved(s.dst_chunk, k)
        return Step(s.src, s.dst, src_chunk, dst_chunk, s.count, s.op, s.channel)

    def _moved(self, chunk: IntArray, k: int) -> IntArray:
        return chunk - chunk % self.period + (chunk + k * self.chunk_shift) % self.period


Item = Step | Repeat


@dataclass(frozen=True, slots=True)
class Schedule:
    """An algorithm at one world size: a re-iterable stream of steps, memory O(world_size + largest step)."""

    name: str
    collective: Collective
    world_size: int
    num_chunks: int
    items: Callable[[], Iterator[Item]] = field(repr=False, compare=False)
    num_scratch: int = 0
    num_channels: int = 1

    def steps(self) -> Iterator[Item]:
        """Yield steps and repeats, from the beginning each time."""
        return self.items()

    def expand(self) -> Iterator[Step]:
        """Yield plain steps, every `Repeat` unrolled."""
        for item in self.items():
            if isinstance(item, Repeat):
                yield from (item.at(k) for k in range(item.times))
            else:
                yield item


def chunk_bounds(count: int, num_chunks: int) -> IntArray:
    """First element of each chunk and the end, shape (num_chunks + 1,): bounds[i] = i * count // num_chunks.

    The one place that divides a buffer; counts are elements, never bytes.
    """
    if count < 0:
        raise InvalidInput(f"count must be 0 or more elements, got {count}")
    if count * num_chunks < 2**62:
        return np.arange(num_chunks + 1, dtype=np.int64) * count // num_chunks
    return np.array([i * count // num_chunks for i in range(num_chunks + 1)], dtype=np.int64)


def transfer_elements(step: Step, schedule: Schedule, bounds: IntArray) -> IntArray:
    """Elements each transfer of a step moves, shape (num_transfers,).

    Parameters
    ----------
    bounds : first element of each chunk and the end; those of scratch may follow

    Raises
    ------
    InvalidInput : a transfer moves between chunks of different sizes (count not divisible by num_chunks).
    """
    src_size = _range_elements(step.src_chunk, step.count, schedule, bounds)
    dst_size = _range_elements(step.dst_chunk, step.count, schedule, bounds)
    if not np.array_equal(src_size, dst_size):
        raise InvalidInput(
            f"{schedule.name} moves data between chunks of different sizes: "
            f"{int(bounds[schedule.num_chunks])} elements do not divide into {schedule.num_chunks} "
            f"equal chunks; use a multiple of {schedule.num_chunks}"
        )
    return src_size


def _range_elements(first: IntArray, count: IntArray, schedule: Schedule, bounds: IntArray) -> IntArray:
    if schedule.num_scratch == 0:
        return bounds[first + count] - bounds[first]
    elements = int(bounds[schedule.num_chunks])
    if elements % schedule.num_chunks:
        raise InvalidInput(
            f"{schedule.name} uses scratch chunks: {elements} elements do not divide into "
            f"{schedule.num_chunks} equal chunks; use a multiple of {schedule.num_chunks}"
        )
    return count * (elements // schedule.num_chunks)


def validate(schedule: Schedule) -> Schedule:
    """Raise InvalidSchedule, with the transfer at fault, where a rule of the module docstring is broken.

    Returns the schedule, so that a builder can end with it. Costs one pass over all steps.
    """
    for _ in validated(schedule):
        pass
    return schedule


def validated(schedule: Schedule) -> Iterator[Step]:
    """Yield the plain steps of a schedule once they have been held to the rules, several thousand rows at a time."""
    schedule.collective.require(schedule.world_size, schedule.num_chunks)
    cells = (schedule.world_size, schedule.num_chunks + schedule.num_scratch)
    touched = _Touched(*(np.full(cells if schedule.num_channels > 1 else (0, 0), NOBODY, np.int64) for _ in range(2)))
    first = 0
    for batch in _batches(schedule.expand(), rows=1 << 14):
        rows = _Rows(schedule, join(batch), first + np.repeat(np.arange(len(batch)), [len(step) for step in batch]))
        _validate_ranges(rows)
        _validate_writes(rows)
        if schedule.num_channels > 1:
            _validate_channels(rows, touched)
        yield from batch
        first += len(batch)


def join(steps: Sequence[Step]) -> Step:
    """Return one step with the rows of all, in that order."""
    return Step(*(np.concatenate([getattr(step, column.name) for step in steps]) for column in fields(Step)))


def _batches(steps: Iterator[Step], rows: int) -> Iterator[list[Step]]:
    batch: list[Step] = []
    held = 0
    for step in steps:
        batch.append(step)
        held += len(step)
        if held >= rows:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of several steps under validation, and the number of the step each belongs to."""

    schedule: Schedule
    step: Step
    index: IntArray

    def refuse(self, broken: npt.NDArray[np.bool_], text: str) -> None:
        if broken.any():
            row = int(np.argmax(broken))
            where = f"{self.schedule.name}, world size {self.schedule.world_size}, step {int(self.index[row])}"
            transfer = next(islice(self.step.transfers(), row, None))
            raise InvalidSchedule(f"{where}: {text}: {transfer}")


@dataclass(frozen=True, slots=True)
class _Touched:
    """Channel that wrote or read each chunk of each rank, NOBODY or SEVERAL, each (world_size, chunks)."""

    writer: IntArray
    reader: IntArray


def _validate_ranges(rows: _Rows) -> None:
    schedule, step = rows.schedule, rows.step
    limit = schedule.num_chunks + schedule.num_scratch
    rows.refuse((step.src < 0) | (step.src >= schedule.world_size), "source is no rank")
    rows.refuse((step.dst < 0) | (step.dst >= schedule.world_size), "destination is no rank")
    rows.refuse(step.src == step.dst, "a rank sends to itself")
    rows.refuse(step.count < 1, "count must be at least 1")
    rows.refuse((step.src_chunk < 0) | (step.src_chunk + step.count > limit), "source chunks out of range")
    rows.refuse((step.dst_chunk < 0) | (step.dst_chunk + step.count > limit), "destination chunks out of range")
    rows.refuse((step.op < 0) | (step.op > 1), "unknown op")
    rows.refuse((step.channel < 0) | (step.channel >= schedule.num_channels), "channel out of range")
    for first in (step.src_chunk, step.dst_chunk):
        crossing = (first < schedule.num_chunks) & (first + step.count > schedule.num_chunks)
        rows.refuse(crossing, "range runs into scratch")


def expand_chunks(first: IntArray, count: IntArray) -> tuple[IntArray, IntArray]:
    """Unroll ranges of chunks: row number and chunk of every single chunk, each (sum of count,)."""
    ends = np.cumsum(count)
    rows = np.repeat(np.arange(len(first)), count)
    return rows, np.arange(len(rows)) + (first - ends + count)[rows]


def overlapping(first: IntArray, count: IntArray) -> bool:
    """Whether any two of the ranges first[i] to first[i] + count[i] may share a place."""
    order = np.argsort(first)
    return bool((first[order][1:] < (first + count)[order][:-1]).any())


def _validate_writes(rows: _Rows) -> None:
    step, schedule = rows.step, rows.schedule
    width = schedule.num_chunks + schedule.num_scratch
    first = (rows.index * schedule.world_size + step.dst) * width + step.dst_chunk
    if not overlapping(first, step.count):
        return
    row, cell = expand_chunks(first, step.count)
    order = np.argsort(cell, kind="stable")
    cells, copies = cell[order], step.op[row][order] == int(Op.COPY)
    clash = (cells[1:] == cells[:-1]) & (copies[1:] | copies[:-1])
    broken = np.isin(np.arange(len(first)), row[order][1:][clash])
    rows.refuse(broken, "a COPY meets another write to the same chunk")


NOBODY, SEVERAL = -1, -2


def _validate_channels(rows: _Rows, touched: _Touched) -> None:
    """Refuse a chunk of a rank that one channel writes and another touches, over the whole schedule."""
    step, text = rows.step, "two channels of a rank touch one chunk and one of them writes"
    row, chunks = expand_chunks(step.src_chunk, step.count)
    cells, channel = (step.src[row], chunks), step.channel[row]
    foreign = _foreign(touched.writer[cells], channel)
    _mark(touched.reader, cells, np.where(_foreign(touched.reader[cells], channel), SEVERAL, channel))
    rows.refuse(np.isin(np.arange(len(step)), row[foreign]), text)
    row, chunks = expand_chunks(step.dst_chunk, step.count)
    cells, channel = (step.dst[row], chunks), step.channel[row]
    foreign = _foreign(touched.writer[cells], channel) | _foreign(touched.reader[cells], channel)
    touched.writer[cells] = channel
    foreign |= touched.writer[cells] != channel
    rows.refuse(np.isin(np.arange(len(step)), row[foreign]), text)


def _foreign(mark: IntArray, channel: IntArray) -> npt.NDArray[np.bool_]:
    return (mark != NOBODY) & (mark != channel)


def _mark(table: IntArray, cells: tuple[IntArray, IntArray], marks: IntArray) -> None:
    table[cells] = marks
    mixed = table[cells] != marks
    table[cells[0][mixed], cells[1][mixed]] = SEVERAL


def format_schedule(schedule: Schedule, *, max_steps: int = 64) -> str:
    """Print a schedule for a human, one line per transfer; repeats stay folded."""
    head = f"{schedule.name}: {schedule.collective.kind}, {schedule.world_size} ranks, {schedule.num_chunks} chunks"
    lines = [head + (f" + {schedule.num_scratch} scratch" if schedule.num_scratch else "")]
    for index, item in enumerate(schedule.steps()):
        if index == max_steps:
            lines.append("...")
            break
        step = item.step if isinstance(item, Repeat) else item
        times = f" x {item.times}, chunks + {item.chunk_shift} mod {item.period}" if isinstance(item, Repeat) else ""
        lines.append(f"step {index}{times}")
        lines += [f"  {_format_transfer(t)}" for t in step.transfers()]
    return "\n".join(lines)


def _format_transfer(t: Transfer) -> str:
    arrow = "+=" if t.op == Op.REDUCE else "<-"
    channel = f" channel {t.channel}" if t.channel else ""
    return (
        f"{t.dst}[{t.dst_chunk}:{t.dst_chunk + t.count}] {arrow} "
        f"{t.src}[{t.src_chunk}:{t.src_chunk + t.count}]{channel}"
    )
