"""A traced job: what each traced rank did, in operations with their dependencies, and when they end elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from simnet.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class Operation:
    """One piece of work of a stream, in order of its start.

    Parameters
    ----------
    after : operations of other streams it waits for, indices into the job
    gap : s, from the moment nothing holds it until it starts (the processor had not launched it yet)
    ranks : of the group a collective goes over, None where the trace does not tell
    """

    name: str
    stream: int
    duration: Seconds
    gap: Seconds = 0.0
    after: tuple[int, ...] = ()
    collective: str | None = None
    size_bytes: Bytes | None = None
    ranks: int | None = None


Pricing = Callable[[Operation], Seconds]


@dataclass(frozen=True, slots=True)
class TraceJob:
    """What one rank did, and what had to be assumed to say so; `recorded`, s, is from first start to last end."""

    path: str
    operations: tuple[Operation, ...]
    world_size: int | None
    num_steps: int
    assumptions: tuple[str, ...]
    recorded: Seconds


def compacted(job: TraceJob) -> TraceJob:
    """Return the job with compute that runs back to back on a stream as one operation, where nothing waits between.

    Every end that something waits for stays where it was, whatever collectives take.
    """
    needed = {index for op in job.operations for index in op.after}
    kept: list[Operation] = []
    places: list[int] = []
    last: dict[int, int] = {}
    for index, op in enumerate(job.operations):
        before = last.get(op.stream)
        joins = (
            before is not None and op.collective is None and not op.after and job.operations[before].collective is None
        )
        if joins and before is not None and before not in needed:
            place = places[before]
            kept[place] = _joined(kept[place], op)
        else:
            place = len(kept)
            kept.append(replace(op, after=tuple(dict.fromkeys(places[i] for i in op.after))))
        places.append(place)
        last[op.stream] = index
    return replace(job, operations=tuple(kept))


def _joined(first: Operation, second: Operation) -> Operation:
    name, _, more = first.name.partition(" and ")
    count = int(more.split()[0]) + 1 if more.endswith(" more") else 1
    return replace(
        first, name=f"{name} and {count} more", duration=first.duration + second.duration, gap=first.gap + second.gap
    )


def finish_times(operations: Sequence[Operation], price: Pricing) -> list[Seconds]:
    """End of each operation of one rank, s from the start of the job, where each takes what `price` says."""
    return joint_finish_times([operations], price, lambda op: False)[0]


def joint_finish_times(
    programs: Sequence[Sequence[Operation]], price: Pricing, joint: Callable[[Operation], bool]
) -> list[list[Seconds]]:
    """End of each operation of each rank; one that is `joint` starts when the last rank is ready for it."""
    clocks = [_Clock(program) for program in programs]
    while True:
        waiting = [clock for clock in clocks if clock.run_until(joint, price)]
        if not waiting:
            return [clock.ends for clock in clocks]
        start = max(clock.ready() for clock in waiting)
        for clock in waiting:
            clock.finish(start + price(clock.current()))


class _Clock:
    """One rank on its way through its operations."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self.ends: list[Seconds] = []
        self.free: dict[int, Seconds] = {}

    def run_until(self, joint: Callable[[Operation], bool], price: Pricing) -> bool:
        """Run on; whether it stands before a joint operation."""
        while len(self.ends) < len(self.operations):
            if joint(self.current()):
                return True
            self.finish(self.ready() + price(self.current()))
        return False

    def current(self) -> Operation:
        """The operation that comes next."""
        return self.operations[len(self.ends)]

    def ready(self) -> Seconds:
        """When the next operation can start."""
        op = self.current()
        return max([self.free.get(op.stream, 0.0), *(self.ends[i] for i in op.after)]) + op.gap

    def finish(self, end: Seconds) -> None:
        """Take note of when the next operation ends."""
        self.free[self.current().stream] = end
        self.ends.append(end)
