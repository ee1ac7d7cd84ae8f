"""One rank's part of a schedule, compiled once: what it sends and receives in every step.

A schedule is a global view; a rank needs its own rows only. `compile_rank` keeps those, grouped
into messages (all rows of a step with the same source, destination and channel), and
`Program.bind` turns chunks into elements for one buffer size. Messages of no bytes disappear
there, on both sides, because both sides compute the same sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simnet.collective import IntArray
from simnet.interpreters.execute import element_bounds
from simnet.schedule import Op, Repeat, Schedule, Step, chunk_bounds, transfer_elements


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """`count` chunks from `first` on, what arriving data does to them, and the row's place in the step."""

    first: int
    count: int
    op: Op
    row: int


@dataclass(frozen=True, slots=True)
class ChunkMessage:
    """All rows of a step between this rank and `peer`, in row order."""

    peer: int
    ranges: tuple[ChunkRange, ...]


@dataclass(frozen=True, slots=True)
class ChunkStep:
    """Messages of one rank in step `index` of the schedule, on one channel."""

    index: int
    receives: tuple[ChunkMessage, ...]
    sends: tuple[ChunkMessage, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements [start, stop) of the buffer (past its end: of the scratch) and the op on arrival."""

    start: int
    stop: int
    op: Op
    row: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Elements of the step's landing buffer from `offset` on are written to `piece`."""

    offset: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class Message:
    """One message of `elements` elements, gathered from or scattered to `pieces` in order."""

    peer: int
    pieces: tuple[Piece, ...]
    elements: int
    lands_in_place: bool = False


@dataclass(frozen=True, slots=True)
class RankStep:
    """One step of one rank on one channel, in elements; at least one message."""

    index: int
    receives: tuple[Message, ...]
    sends: tuple[Message, ...]
    applies: tuple[Apply, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """Receives, then sends: the order in which they are posted."""
        return self.receives + self.sends

    @property
    def landing_elements(self) -> int:
        """Elements the landing buffer must hold in this step."""
        return sum(m.elements for m in self.receives if not m.lands_in_place)

    @property
    def packing_elements(self) -> int:
        """Elements of messages that are gathered from several places before they are sent."""
        return sum(m.elements for m in self.sends if len(m.pieces) > 1)


@dataclass(frozen=True, slots=True)
class ChannelProgram:
    """A rank's steps on one channel, in order, and what their buffers must hold."""

    steps: tuple[RankStep, ...]
    landing: int
    packing: int

    @classmethod
    def of(cls, steps: Iterator[RankStep]) -> ChannelProgram:
        """Size the buffers for the largest step."""
        kept = tuple(steps)
        landing = max((s.landing_elements for s in kept), default=0)
        return cls(kept, landing, max((s.packing_elements for s in kept), default=0))


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """A rank's program for a buffer of `count` elements; the result is defined in [start, stop) of `result`."""

    count: int
    scratch: int
    channels: tuple[ChannelProgram, ...]
    result: tuple[tuple[int, int], ...]
    result_is_whole: bool


@dataclass(frozen=True)
class Program:
    """What one rank does, in chunks: per channel, its steps in order."""

    schedule: Schedule
    rank: int
    channels: tuple[tuple[ChunkStep, ...], ...]
    crosses: bool
    digest: str

    def bind(self, count: int) -> BoundProgram:
        """Return the program in elements for a buffer of `count` elements.

        Raises
        ------
        InvalidInput : count does not fit the schedule's chunks; raised on every rank alike.
        """
        self._require_equal_chunks(count)
        edges = element_bounds(self.schedule, count).tolist()
        channels = tuple(ChannelProgram.of(_bound_steps(steps, edges, count)) for steps in self.channels)
        result = self._result(edges)
        return BoundProgram(count, edges[-1] - count, channels, result, result == ((0, count),) or count == 0)

    def _require_equal_chunks(self, count: int) -> None:
        """Look at all ranks' rows, so that every rank raises where one has to."""
        if not self.crosses or count % self.schedule.num_chunks == 0:
            return
        bounds = chunk_bounds(count, self.schedule.num_chunks)
        for step in self.schedule.expand():
            transfer_elements(step, self.schedule, bounds)

    def _result(self, edges: list[int]) -> tuple[tuple[int, int], ...]:
        merged: list[tuple[int, int]] = []
        for chunk in self._wanted_chunks:
            start, stop = edges[chunk], edges[chunk + 1]
            if merged and merged[-1][1] == start:
                start = merged.pop()[0]
            merged.append((start, stop))
        return tuple(merged)

    @cached_property
    def _wanted_chunks(self) -> list[int]:
        wants = self.schedule.collective.wants(self.schedule.world_size, self.schedule.num_chunks)
        return [int(c) for c in np.flatnonzero(wants[self.rank])]


def compile_rank(schedule: Schedule, rank: int) -> Program:
    """Keep this rank's rows of a schedule, grouped into messages per step and channel.

    The schedule is trusted to be valid (see `simnet.schedule.validate`, `simnet verify`).
    """
    channels: list[list[ChunkStep]] = [[] for _ in range(schedule.num_channels)]
    digest = hashlib.sha256(_identity(schedule).encode())
    crosses, index = schedule.num_scratch > 0, 0
    for item in schedule.steps():
        step, times = (item.step, item.times) if isinstance(item, Repeat) else (item, 1)
        _feed(digest, item)
        crosses = crosses or bool((step.src_chunk != step.dst_chunk).any())
        own = _own_rows(item, rank)
        for k in range(times):
            for channel, part in _by_channel(own.at(k) if isinstance(own, Repeat) else own):
                channels[channel].append(_chunk_step(index, part, rank))
            index += 1
    steps = tuple(tuple(c) for c in channels)
    return Program(schedule, rank, steps, crosses, digest.hexdigest()[:16])


def _identity(schedule: Schedule) -> str:
    s = schedule
    return f"{s.name} {s.collective} {s.world_size} {s.num_chunks} {s.num_scratch} {s.num_channels}"


def _columns(step: Step) -> tuple[IntArray, ...]:
    return (step.src, step.dst, step.src_chunk, step.dst_chunk, step.count, step.op, step.channel)


def _feed(digest: hashlib._Hash, item: Step | Repeat) -> None:
    step = item.step if isinstance(item, Repeat) else item
    fold = (item.times, item.chunk_shift, item.period) if isinstance(item, Repeat) else ()
    digest.update(repr((len(step), fold)).encode())
    for column in _columns(step):
        digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())


def _own_rows(item: Step | Repeat, rank: int) -> Step | Repeat:
    step = item.step if isinstance(item, Repeat) else item
    mine = (step.src == rank) | (step.dst == rank)
    kept = Step(*(column[mine] for column in _columns(step)))
    return Repeat(kept, item.times, item.chunk_shift, item.period) if isinstance(item, Repeat) else kept


def _by_channel(step: Step) -> Iterator[tuple[int, Step]]:
    for channel in np.unique(step.channel).tolist():
        rows = step.channel == channel
        yield channel, Step(*(column[rows] for column in _columns(step)))


def _chunk_step(index: int, step: Step, rank: int) -> ChunkStep:
    receives: dict[int, list[ChunkRange]] = {}
    sends: dict[int, list[ChunkRange]] = {}
    for row, t in enumerate(step.transfers()):
        if t.dst == rank:
            receives.setdefault(t.src, []).append(ChunkRange(t.dst_chunk, t.count, t.op, row))
        else:
            sends.setdefault(t.dst, []).append(ChunkRange(t.src_chunk, t.count, t.op, row))
    sides = (tuple(ChunkMessage(peer, tuple(r)) for peer, r in side.items()) for side in (receives, sends))
    return ChunkStep(index, *sides)


def _bound_steps(steps: tuple[ChunkStep, ...], edges: list[int], border: int) -> Iterator[RankStep]:
    for step in steps:
        sends = _bound_messages(step.sends, edges, border)
        receives = _bound_messages(step.receives, edges, border)
        if sends or receives:
            sent = [(p.start, p.stop) for m in sends for p in m.pieces]
            landed = tuple(_landed(m, sent) for m in receives)
            yield RankStep(step.index, landed, sends, _applies(landed))


def _bound_messages(messages: tuple[ChunkMessage, ...], edges: list[int], border: int) -> tuple[Message, ...]:
    bound = []
    for message in messages:
        pieces = _merged([Piece(edges[r.first], edges[r.first + r.count], r.op, r.row) for r in message.ranges], border)
        elements = sum(p.stop - p.start for p in pieces)
        if elements:
            bound.append(Message(message.peer, pieces, elements))
    return tuple(bound)


def _merged(pieces: list[Piece], border: int) -> tuple[Piece, ...]:
    """Join neighbours in memory whose rows follow each other, so that writes keep the order of the rows.

    `border` is where the buffer ends and the scratch, another allocation, begins.
    """
    merged: list[Piece] = []
    last_row = -1
    for piece in pieces:
        if piece.start == piece.stop:
            continue
        follows = merged and merged[-1].stop == piece.start != border and merged[-1].op == piece.op
        if follows and piece.row == last_row + 1:
            merged[-1] = replace(merged[-1], stop=piece.stop)
        else:
            merged.append(piece)
        last_row = piece.row
    return tuple(merged)


def _applies(receives: tuple[Message, ...]) -> tuple[Apply, ...]:
    applies, offset = [], 0
    for message in receives:
        if message.lands_in_place:
            continue
        for piece in message.pieces:
            applies.append(Apply(offset, piece))
            offset += piece.stop - piece.start
    return tuple(sorted(applies, key=lambda a: a.piece.row))


def _landed(message: Message, sent: list[tuple[int, int]]) -> Message:
    """Mark a COPY into one place that nothing is sent from in this step: it needs no landing buffer."""
    only = message.pieces[0]
    if len(message.pieces) > 1 or only.op != Op.COPY:
        return message
    if any(start < only.stop and only.start < stop for start, stop in sent):
        return message
    return replace(message, lands_in_place=True)
