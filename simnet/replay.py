"""Run a traced job again: as recorded, to see what replay misses, and on another cluster or on more ranks.

Collectives of the trace keep their sizes and get the ranks asked for: every rank does what the traced one did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from simnet.collective_prediction import predict_collective
from simnet.errors import InvalidInput
from simnet.importers.trace_job import Operation, TraceJob
from simnet.units import Seconds

Pricing = Callable[[Operation], Seconds]


@dataclass(frozen=True, slots=True)
class Replay:
    """Times of a whole trace, s; error = replayed/recorded - 1 with nothing changed."""

    recorded_s: Seconds
    replayed_s: Seconds
    predicted_s: Seconds
    num_steps: int
    collectives_recorded_s: Seconds
    collectives_predicted_s: Seconds
    exposed_s: Seconds
    assumptions: tuple[str, ...]

    @property
    def error(self) -> float:
        """What replay alone misses, a fraction."""
        return self.replayed_s / self.recorded_s - 1


def finish_times(operations: Sequence[Operation], price: Pricing) -> list[Seconds]:
    """End of each operation, s from the start of the job, where each takes what `price` says."""
    ends: list[Seconds] = []
    free: dict[int, Seconds] = {}
    for op in operations:
        start = max([free.get(op.stream, 0.0), *(ends[i] for i in op.after)]) + op.gap
        ends.append(start + price(op))
        free[op.stream] = ends[-1]
    return ends


def replay(
    job: TraceJob,
    *,
    ranks: int | None = None,
    cluster: str = "uniform",
    bandwidth: str | None = None,
    latency: str | None = None,
    algorithm: str = "ring",
    profile: str | None = None,
    compute_speed: float = 1.0,
) -> Replay:
    """Replay a job as recorded, and with its all-reduces as predicted on a cluster.

    Parameters
    ----------
    ranks : over how many the all-reduces go; those of the trace where None
    compute_speed : of the other device relative to the traced one

    Raises
    ------
    InvalidInput : the trace does not tell its ranks and none are given, or the cluster is unknown.
    """
    if compute_speed <= 0:
        raise InvalidInput(f"compute_speed must be above 0, got {compute_speed}; 2 is a device twice as fast")
    world = ranks or job.world_size or max((op.ranks or 0 for op in job.operations), default=0)
    if not world:
        raise InvalidInput(f"{job.path} does not tell how many ranks took part; say so with --ranks")
    sizes = sorted({op.size_bytes for op in job.operations if op.collective == "all_reduce" and op.size_bytes})
    rows = (
        predict_collective(
            ranks=world, cluster=cluster, bandwidth=bandwidth, latency=latency, algorithm=algorithm, sizes=sizes,
            profile=profile, dtype="uint8",
        )
        if sizes
        else []
    )  # fmt: skip
    times = {row.size_bytes: row.time_s for row in rows}
    return _replayed(job, world, times, compute_speed)


def _replayed(job: TraceJob, world: int, times: dict[int, Seconds], speed: float) -> Replay:
    def price(op: Operation) -> Seconds:
        if op.collective is None:
            return op.duration / speed
        return times.get(op.size_bytes or -1, op.duration) if op.collective == "all_reduce" else op.duration

    def without(op: Operation) -> Seconds:
        return 0.0 if op.collective else op.duration / speed

    collectives = [op for op in job.operations if op.collective]
    predicted = max(finish_times(job.operations, price))
    return Replay(
        job.recorded, max(finish_times(job.operations, lambda op: op.duration)), predicted, job.num_steps,
        sum(op.duration for op in collectives), sum(price(op) for op in collectives),
        predicted - max(finish_times(job.operations, without)),
        (*job.assumptions, *_further(job, world, collectives, speed)),
    )  # fmt: skip


def _further(job: TraceJob, world: int, collectives: Sequence[Operation], speed: float) -> list[str]:
    """Say what going to another machine adds to the assumptions."""
    found = [f"all {world} ranks do what the traced one did"]
    kept = sorted({op.collective for op in collectives if op.collective and op.collective != "all_reduce"})
    if kept:
        total = median([op.duration for op in collectives if op.collective in kept])
        found.append(f"{', '.join(kept)} keep their recorded times (median {total * 1e6:.0f} us)")
    if any(op.collective == "all_reduce" and not op.size_bytes for op in collectives):
        found.append("all-reduces without a recorded size keep their recorded times")
    if speed != 1:
        found.append(f"all device work is {speed:g} times as fast as recorded")
    return found
