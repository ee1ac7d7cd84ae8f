"""What travels in a step: transfers with the same source, destination and channel are one message."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput, Unsupported
from simnet.schedule import IntArray, Op, Repeat, Schedule, Step, chunk_bounds, transfer_elements

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of a step in row order of their first transfer, each column (num_messages,)."""

    src: IntArray
    dst: IntArray
    channel: IntArray
    of_transfer: IntArray | None
    """Message of each transfer (num_transfers,); None where every transfer is one."""

    def __len__(self) -> int:
        return len(self.src)

    def total(self, per_transfer: IntArray) -> IntArray:
        """Sum a quantity of transfers, (num_transfers, ...), over the messages, (num_messages, ...)."""
        if self.of_transfer is None:
            return per_transfer
        total = np.zeros((len(self.src), *per_transfer.shape[1:]), per_transfer.dtype)
        np.add.at(total, self.of_transfer, per_transfer)
        return total


def messages(step: Step, schedule: Schedule) -> Messages:
    """Group the transfers of a step into messages."""
    if schedule.num_channels == 1 and distinct(step.src, schedule.world_size):
        return Messages(step.src, step.dst, step.channel, None)
    key = (step.src * schedule.world_size + step.dst) * schedule.num_channels + step.channel
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    if len(first) == len(step):
        return Messages(step.src, step.dst, step.channel, None)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    rows = first[order]
    return Messages(step.src[rows], step.dst[rows], step.channel[rows], place[group.reshape(-1)])


def distinct(values: IntArray, size: int) -> bool:
    """Whether no value, 0 to size - 1, comes twice."""
    if len(values) > size:
        return False
    seen = np.zeros(size, bool)
    seen[values] = True
    return int(np.count_nonzero(seen)) == len(values)


def rising(values: IntArray) -> IntArray:
    """Places of values of 0 or more from the least to the largest, equal ones in their order; quick below 2**16."""
    narrow = values.astype(np.uint16) if int(values.max(initial=0)) < 2**16 else values
    return np.argsort(narrow, kind="stable")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Elements of chunks, for one or many buffer sizes at once.

    Parameters
    ----------
    bounds : first element of each chunk and the end, (num_chunks + 1, batch), or the elements of every
        chunk, (1, batch), where all chunks of a buffer are equally large
    """

    schedule: Schedule
    bounds: IntArray
    even: bool

    @classmethod
    def of(cls, schedule: Schedule, counts: tuple[int, ...]) -> Sizes:
        """Cut buffers of that many elements per rank."""
        chunks = schedule.num_chunks
        if all(count % chunks == 0 for count in counts):
            return cls(schedule, np.array([[count // chunks for count in counts]], np.int64), True)
        return cls(schedule, np.stack([chunk_bounds(count, chunks) for count in counts], axis=1), False)

    def elements(self, step: Step) -> IntArray:
        """Elements each transfer moves, (num_transfers, batch), or (1, batch) where all move the same.

        Raises
        ------
        InvalidInput : a transfer moves between chunks of different sizes.
        """
        if self.even:
            return self.floor(step)
        if self.schedule.num_scratch or step.src_chunk is not step.dst_chunk:
            for column in self.bounds.T:
                transfer_elements(step, self.schedule, np.ascontiguousarray(column))
        return self.bounds[step.src_chunk + step.count] - self.bounds[step.src_chunk]

    def floor(self, step: Step) -> IntArray:
        """Elements each transfer moves at least, wherever its chunks lie, (num_transfers or 1, batch)."""
        alike = len(step) > 0 and bool((step.count == step.count[0]).all())
        count = step.count[:1, None] if alike else step.count[:, None]
        return count * self.bounds if self.even else count * self.bounds[-1] // self.schedule.num_chunks


def element_counts(count: int | npt.ArrayLike) -> tuple[tuple[int, ...], bool]:
    """Return counts of elements as a tuple, and whether there was an axis.

    Raises
    ------
    InvalidInput : a count is negative or no whole number.
    """
    array = np.asarray(count)
    if array.ndim > 1 or array.dtype.kind not in "iu" or (array.size and int(array.min()) < 0):
        raise InvalidInput(f"count must be whole elements per rank, 0 or more, shape () or (batch,), got {count!r}")
    return tuple(int(c) for c in array.reshape(-1)), array.ndim == 1


KEPT_ITEMS = 8
"""Items of a schedule that are kept between passes; longer streams are generated anew."""


def remember(schedule: Schedule) -> Schedule:
    """Return the same schedule, its items kept where they are few, so that passing again costs nothing."""
    kept = list(islice(schedule.steps(), KEPT_ITEMS + 1))
    return schedule if len(kept) > KEPT_ITEMS else replace(schedule, items=lambda: iter(kept))


def repeated(item: Step | Repeat) -> tuple[Step, int]:
    """Step that an item does over and over, and how often."""
    return (item.step, item.times) if isinstance(item, Repeat) else (item, 1)


LISTED_WORK = 2**27
"""Longer lists of transfers are refused: a pass over them takes minutes. `Repeat` counts once."""

ITEM_WORK, CROWDED_WORK = 1024, 16
"""What an item takes whatever its length, and at most a transfer among others of its rank, in transfers alone."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Transfers of a schedule, every `Repeat` unrolled, and of its longest step; and whether it has a `Repeat`."""

    transfers: int
    longest: int
    folded: bool


def num_transfers(schedule: Schedule) -> int:
    """Transfers of a schedule, every `Repeat` unrolled: an upper bound of its messages.

    Raises
    ------
    Unsupported : they are too many to list, as all pairs of many ranks are.
    """
    return extent(schedule).transfers


def extent(schedule: Schedule) -> Extent:
    """Count the transfers of a schedule.

    Raises
    ------
    Unsupported : they are too many to list, as all pairs of many ranks are.
    """
    total = work = longest = most_times = 0
    for step, times in map(repeated, schedule.steps()):
        total += len(step) * times
        longest, most_times = max(longest, len(step)), max(most_times, times)
        work += ITEM_WORK + len(step) * min(-(-len(step) // schedule.world_size), CROWDED_WORK)
        if work > LISTED_WORK:
            raise Unsupported(
                f"{schedule.name} on {schedule.world_size} ranks lists more messages than can be timed within minutes; "
                "take fewer ranks, or an algorithm whose ranks talk to few others"
            )
    return Extent(total, longest, most_times > 1)


def reduced(step: Step) -> BoolArray:
    """Which transfers are added to what is there, (num_transfers,)."""
    return step.op == Op.REDUCE
