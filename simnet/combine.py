"""Make schedules out of schedules: one after another, side by side, on groups of ranks, over segments.

Combinators work on items and keep every `Repeat` folded where they can, so that a composed schedule
needs no more memory than its parts. Which rank sits where is not decided here: see `placement`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from math import lcm

import numpy as np
import numpy.typing as npt

from simnet.collective import Collective, Kind
from simnet.errors import InvalidInput, Unsupported
from simnet.schedule import Item, Repeat, Schedule, Step, join


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a schedule that promises nothing on its own, such as a reduction inside every node."""

    world_size: int
    num_chunks: int
    items: Callable[[], Iterator[Item]] = field(repr=False, compare=False)
    num_channels: int = 1


Part = Schedule | Phase


def then(*parts: Part, name: str, collective: Collective) -> Schedule:
    """Return the parts one after another, program order between them; chunks are refined to the finest part.

    Raises
    ------
    InvalidInput : no part, or parts of different world sizes.
    """
    world_size, num_chunks = _common(parts)
    refined = [refine(part, num_chunks // part.num_chunks) for part in parts]

    def items() -> Iterator[Item]:
        for part in refined:
            yield from part.items()

    most = max(part.num_channels for part in parts)
    return Schedule(name, collective, world_size, num_chunks, items, num_channels=most)


def refine(part: Part, factor: int) -> Part:
    """Cut every chunk into `factor` chunks that travel together; nothing else changes."""
    if factor == 1:
        return part
    if isinstance(part, Schedule) and part.num_scratch:
        raise Unsupported(f"{part.name} uses scratch chunks, which cannot be cut; combine schedules without scratch")

    def items() -> Iterator[Item]:
        return (_map_item(item, lambda step: _scaled(step, factor), factor) for item in part.items())

    return replace(part, num_chunks=part.num_chunks * factor, items=items)


def on_groups(
    part: Part,
    groups: npt.ArrayLike,
    *,
    world_size: int,
    num_chunks: int,
    first_chunk: npt.ArrayLike = 0,
) -> Phase:
    """Run a part on every group of ranks at once, as one phase of a larger schedule.

    Parameters
    ----------
    groups : ranks of each group in the part's order, shape (num_groups, part.world_size); a rank may be
        in several groups when these work on different chunks.
    num_chunks : chunks of the larger schedule.
    first_chunk : where each group's chunks begin in it, shape () or (num_groups,).

    Raises
    ------
    InvalidInput : groups do not fit the part.
    """
    members = np.atleast_2d(np.asarray(groups, dtype=np.int64))
    if members.shape[1] != part.world_size:
        raise InvalidInput(f"groups of {members.shape[1]} ranks cannot run a schedule of {part.world_size} ranks")
    first = np.broadcast_to(np.asarray(first_chunk, np.int64), members.shape[:1])

    def spread(step: Step) -> Step:
        group = np.arange(len(first)).repeat(len(step))
        row = np.tile(np.arange(len(step)), len(first))
        src, dst = members[group, step.src[row]], members[group, step.dst[row]]
        source, target = first[group] + step.src_chunk[row], first[group] + step.dst_chunk[row]
        return Step(src, dst, source, target, step.count[row], step.op[row], step.channel[row])

    def items() -> Iterator[Item]:
        for item in part.items():
            if isinstance(item, Repeat) and (first % item.period).any():
                yield from (spread(item.at(k)) for k in range(item.times))
            else:
                yield _map_item(item, spread, 1)

    return Phase(world_size, num_chunks, items, part.num_channels)


def channels(*parts: Part, name: str, collective: Collective) -> Schedule:
    """Run the parts side by side, each on its own channel and its own equal share of the data.

    Raises
    ------
    InvalidInput : no part, or parts of different world sizes.
    Unsupported : ranks own parts of the buffer, which a split would hand to others.
    """
    _require_whole(collective, "channels")
    world_size, num_chunks = _common(parts)
    refined = [refine(part, num_chunks // part.num_chunks) for part in parts]
    first = np.cumsum([0, *(part.num_channels for part in parts)]).tolist()

    def items() -> Iterator[Item]:
        runs = [_runs(_moved(part, i * num_chunks, first[i])) for i, part in enumerate(refined)]
        return _side_by_side(runs)

    return Schedule(name, collective, world_size, num_chunks * len(parts), items, num_channels=first[-1])


def relabel(schedule: Schedule, ranks: npt.ArrayLike) -> Schedule:
    """Let rank i of the schedule be ranks[i], a permutation; a root moves along.

    Raises
    ------
    InvalidInput : ranks are no permutation.
    Unsupported : ranks own parts of the buffer, which would have to move along.
    """
    _require_whole(schedule.collective, "relabel")
    new = np.asarray(ranks, dtype=np.int64)
    if not np.array_equal(np.sort(new), np.arange(schedule.world_size)):
        raise InvalidInput(f"ranks must be a permutation of 0 to {schedule.world_size - 1}, got {new.tolist()[:16]}")

    def change(step: Step) -> Step:
        ranks = new[step.src], new[step.dst]
        return Step(*ranks, step.src_chunk, step.dst_chunk, step.count, step.op, step.channel)

    def items() -> Iterator[Item]:
        return (_map_item(item, change, 1) for item in schedule.items())

    root = replace(schedule.collective, root=int(new[schedule.collective.root]))
    return replace(schedule, collective=root, items=items)


def pipeline(schedule: Schedule, segments: int, *, every: int = 1) -> Schedule:
    """Run the schedule on `segments` equal parts of the data, each starting `every` steps after the one before.

    Segments that use the same pair of ranks in the same step travel as one message, so this pays
    where a pair talks once, as in trees and chains.

    Raises
    ------
    InvalidInput : segments or every is below 1.
    Unsupported : ranks own parts of the buffer, or the schedule uses scratch chunks.
    """
    if segments < 1 or every < 1:
        raise InvalidInput(f"segments and every must be 1 or more, got {segments} and {every}")
    _require_whole(schedule.collective, "pipeline")
    chunks = schedule.num_chunks

    def items() -> Iterator[Item]:
        window: deque[Step] = deque(maxlen=every * (segments - 1) + 1)
        for step in chain(schedule.expand(), repeat(_NOTHING, every * (segments - 1))):
            window.append(step)
            joined = join([_shifted(s, i * chunks, 0) for i, s in enumerate(list(window)[::-every])])
            if len(joined):
                yield joined

    return replace(schedule, num_chunks=chunks * segments, items=items)


def _common(parts: Sequence[Part]) -> tuple[int, int]:
    sizes = sorted({part.world_size for part in parts})
    if len(sizes) != 1:
        raise InvalidInput(f"parts must have one world size, got {sizes}; use on_groups to widen a part")
    return sizes[0], lcm(*(part.num_chunks for part in parts))


def _require_whole(collective: Collective, what: str) -> None:
    if collective.kind not in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE):
        raise Unsupported(f"{what} cannot keep who owns which part of {collective.kind}; join its phases with then")


_NOTHING = Step.of(())


def _scaled(step: Step, factor: int) -> Step:
    if factor == 1:
        return step
    chunks = (step.src_chunk * factor, step.dst_chunk * factor, step.count * factor)
    return Step(step.src, step.dst, *chunks, step.op, step.channel)


def _shifted(step: Step, chunks: int, channel: int) -> Step:
    source, target = step.src_chunk + chunks, step.dst_chunk + chunks
    return Step(step.src, step.dst, source, target, step.count, step.op, step.channel + channel)


def _map_item(item: Item, change: Callable[[Step], Step], scale: int) -> Item:
    if isinstance(item, Step):
        return change(item)
    return Repeat(change(item.step), item.times, item.chunk_shift * scale, item.period * scale)


def _moved(part: Part, chunks: int, channel: int) -> Iterator[Item]:
    for item in part.items():
        if isinstance(item, Repeat) and chunks % item.period:
            yield from (_shifted(item.at(k), chunks, channel) for k in range(item.times))
        else:
            yield _map_item(item, lambda step: _shifted(step, chunks, channel), 1)


def _runs(items: Iterator[Item]) -> Iterator[Repeat]:
    return (item if isinstance(item, Repeat) else Repeat(item, 1, 0, 1) for item in items)


def _side_by_side(streams: Sequence[Iterator[Repeat]]) -> Iterator[Item]:
    heads = [next(stream, None) for stream in streams]
    while alive := [head for head in heads if head is not None]:
        times = min(head.times for head in alive)
        yield from _merged(alive, times)
        for i, head in enumerate(heads):
            if head is not None:
                heads[i] = _rest(head, times) if head.times > times else next(streams[i], None)


def _rest(run: Repeat, done: int) -> Repeat:
    return Repeat(run.at(done), run.times - done, run.chunk_shift, run.period)


def _merged(runs: Sequence[Repeat], times: int) -> Iterator[Item]:
    moves: set[tuple[int, int]] = {(run.chunk_shift, run.period) for run in runs}
    if times > 1 and len(moves) == 1:
        yield Repeat(join([run.step for run in runs]), times, *moves.pop())
    else:
        yield from (join([run.at(k) for run in runs]) for k in range(times))
