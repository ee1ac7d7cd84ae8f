"""Make schedules out of schedules: one after another, side by side, on groups of ranks, over segments.

Combinators work on items and keep every `Repeat` folded where they can, so that a composed schedule
needs no more memory than its parts. Which rank sits where is not decided here: see `placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import lcm

import numpy as np
import numpy.typing as npt

from simnet.collective import Collective
from simnet.errors import InvalidInput, Unsupported
from simnet.schedule import Item, Repeat, Schedule, Step


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
    scale: int = 1,
) -> Phase:
    """Run a part on every group of ranks at once, as one phase of a larger schedule.

    Parameters
    ----------
    groups : ranks of each group in the part's order, shape (num_groups, part.world_size); a rank may be
        in several groups when these work on different chunks.
    num_chunks : chunks of the larger schedule.
    first_chunk : where each group's chunks begin in it, shape () or (num_groups,).
    scale : every chunk of the part becomes this many chunks.

    Raises
    ------
    InvalidInput : groups do not fit the part.
    """
    members = np.atleast_2d(np.asarray(groups, dtype=np.int64))
    if members.shape[1] != part.world_size:
        raise InvalidInput(f"groups of {members.shape[1]} ranks cannot run a schedule of {part.world_size} ranks")
    first = np.broadcast_to(np.asarray(first_chunk, np.int64), members.shape[:1])

    def spread(step: Step) -> Step:
        step = _scaled(step, scale)
        source, target = ((first[:, None] + chunk).reshape(-1) for chunk in (step.src_chunk, step.dst_chunk))
        count, op, channel = (np.tile(column, len(first)) for column in (step.count, step.op, step.channel))
        return Step(
            members[:, step.src].reshape(-1), members[:, step.dst].reshape(-1), source, target, count, op, channel
        )

    def items() -> Iterator[Item]:
        for item in part.items():
            if isinstance(item, Repeat) and (first % (item.period * scale)).any():
                yield from (spread(item.at(k)) for k in range(item.times))
            else:
                yield _map_item(item, spread, scale)

    return Phase(world_size, num_chunks, items, part.num_channels)


def _common(parts: tuple[Part, ...]) -> tuple[int, int]:
    sizes = sorted({part.world_size for part in parts})
    if len(sizes) != 1:
        raise InvalidInput(f"parts must have one world size, got {sizes}; use on_groups to widen a part")
    return sizes[0], lcm(*(part.num_chunks for part in parts))


def _scaled(step: Step, factor: int) -> Step:
    if factor == 1:
        return step
    chunks = (step.src_chunk * factor, step.dst_chunk * factor, step.count * factor)
    return Step(step.src, step.dst, *chunks, step.op, step.channel)


def _map_item(item: Item, change: Callable[[Step], Step], scale: int) -> Item:
    if isinstance(item, Step):
        return change(item)
    return Repeat(change(item.step), item.times, item.chunk_shift * scale, item.period * scale)
