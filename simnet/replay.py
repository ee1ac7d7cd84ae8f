"""Run a traced job again: as recorded, to see what replay misses, and on another cluster or on more ranks.

Traces of several ranks run together: a collective over all of them starts when the last is ready. Collectives over the
whole job go over the ranks asked for and keep their sizes, those of smaller groups keep their groups; every further
rank does what one of the traced ones did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from simnet.algorithms.registry import find
from simnet.collective import Kind
from simnet.collective_prediction import predict_collective
from simnet.errors import InvalidInput
from simnet.importers.job_file import read_job
from simnet.importers.trace_job import read_trace_job
from simnet.job import Operation, Pricing, TraceJob, compacted, joint_finish_times
from simnet.profile_prices import NCCL
from simnet.profiles import read_profile
from simnet.units import Bytes, Seconds

_Call = tuple[str, int, Bytes]

_USUAL = {
    Kind.ALL_REDUCE: "ring", Kind.ALL_GATHER: "ring_all_gather", Kind.REDUCE_SCATTER: "ring_reduce_scatter",
    Kind.BROADCAST: "chain_broadcast", Kind.REDUCE: "chain_reduce", Kind.ALL_TO_ALL: "direct_all_to_all",
}  # fmt: skip
_EVEN = {"all_to_all_v": "all_to_all"}


@dataclass(frozen=True, slots=True)
class Repriced:
    """Collectives of one kind, size and group: how often, on what, and their times in s, all of them together."""

    collective: str
    size_bytes: Bytes | None
    ranks: int | None
    count: int
    recorded_s: Seconds
    predicted_s: Seconds
    predicted_ranks: int | None = None
    algorithm: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """Times of a whole trace, s; error = replayed/recorded - 1 with nothing changed."""

    recorded_s: Seconds
    replayed_s: Seconds
    predicted_s: Seconds
    num_steps: int
    ranks: int
    traced_ranks: int
    collectives_recorded_s: Seconds
    collectives_predicted_s: Seconds
    exposed_s: Seconds
    collectives: tuple[Repriced, ...]
    assumptions: tuple[str, ...]

    @property
    def error(self) -> float:
        """What replay alone misses, a fraction."""
        return self.replayed_s / self.recorded_s - 1


def read_jobs(paths: Sequence[str]) -> list[TraceJob]:
    """Read traces of ranks of one job, or the file that a job was saved to, ready to run; compute is put together.

    Raises
    ------
    InvalidInput : as the readers do; ranks that do not run the same collectives over the whole job.
    """
    jobs = [job for path in paths for job in (read_job(path) if path.endswith(".toml") else [read_trace_job(path)])]
    jobs = [compacted(job) for job in jobs]
    _require_same(jobs)
    return jobs


def replay(
    jobs: TraceJob | Sequence[TraceJob],
    *,
    ranks: int | None = None,
    cluster: str = "uniform",
    bandwidth: str | None = None,
    latency: str | None = None,
    ranks_per_node: int | None = None,
    algorithms: Sequence[str] = (),
    profile: str | None = None,
    compute_speed: float = 1.0,
) -> Replay:
    """Replay a job as recorded, and with its collectives as predicted on a cluster.

    Parameters
    ----------
    jobs : of one traced rank, or of several ranks of one job
    ranks : over how many the collectives of the whole job go; those of the trace where None
    algorithms : one for every kind of collective that shall not run as a ring, a chain or, all to all, directly
    compute_speed : of the other device relative to the traced one

    Raises
    ------
    InvalidInput : the trace does not tell its ranks and none are given, the cluster is unknown, or traces of several
        ranks do not run the same collectives.
    """
    traced = [jobs] if isinstance(jobs, TraceJob) else list(jobs)
    if compute_speed <= 0:
        raise InvalidInput(f"compute_speed must be above 0, got {compute_speed}; 2 is a device twice as fast")
    _require_same(traced)
    traced_world = _traced_world(traced)
    world = ranks or traced_world
    if not world:
        raise InvalidInput(f"{traced[0].path} does not tell how many ranks took part; say so with --ranks")
    chosen = _chosen(algorithms, profile)
    where = {"cluster": cluster, "bandwidth": bandwidth, "latency": latency, "profile": profile}
    steady = _without_waiting(traced, traced_world)
    calls = _calls(steady, traced_world, world)
    times, kept = _priced(calls, chosen, {**where, "ranks_per_node": ranks_per_node})
    return _replayed(traced, steady, _Prices(_World(traced_world, world), times, chosen, compute_speed), kept)


@dataclass(frozen=True, slots=True)
class _World:
    """Ranks of the job as traced, where known, and as asked for."""

    traced: int | None
    asked: int

    def group(self, op: Operation) -> int:
        """Ranks a collective goes over now: all, or those of its smaller group."""
        return op.ranks if op.ranks and self.traced and op.ranks < self.traced else self.asked

    def spans_all(self, op: Operation) -> bool:
        """Whether every rank of the job takes part."""
        return _spans_all(op, self.traced)

    def call(self, op: Operation) -> _Call | None:
        """What has to be priced for a collective; None where its time stays as recorded."""
        kind = _EVEN.get(op.collective or "", op.collective)
        if kind not in set(Kind) or not op.size_bytes or op.ranks == 1:
            return None
        return str(kind), self.group(op), op.size_bytes


def _spans_all(op: Operation, world: int | None) -> bool:
    point_to_point = op.collective in ("send", "recv")
    return op.collective is not None and not point_to_point and (not op.ranks or not world or op.ranks >= world)


def _traced_world(jobs: Sequence[TraceJob]) -> int | None:
    told = [job.world_size or max((op.ranks or 0 for op in job.operations), default=0) for job in jobs]
    return max(told) or None


def _require_same(jobs: Sequence[TraceJob]) -> None:
    """Refuse traces whose collectives over the whole job are not the same, in the same order."""
    world = _traced_world(jobs)
    first, *others = ([op for op in job.operations if _spans_all(op, world)] for job in jobs)
    for job, calls in zip(jobs[1:], others, strict=True):
        pairs = zip([*first, *calls[len(first) :]], [*calls, *first[len(calls) :]], strict=True)
        for number, (a, b) in enumerate(pairs):
            if (a.collective, a.size_bytes) != (b.collective, b.size_bytes) or number >= min(len(first), len(calls)):
                raise InvalidInput(
                    f"{jobs[0].path} and {job.path} run other collectives from number {number} on ({a.collective} of "
                    f"{a.size_bytes} bytes, {b.collective} of {b.size_bytes}); give traces of the same steps of one job"
                )


def _without_waiting(jobs: Sequence[TraceJob], world: int | None) -> list[TraceJob]:
    """Give every collective over the whole job the time of the rank that waited least for the others."""
    if len(jobs) == 1:
        return list(jobs)
    durations = [[op.duration for op in job.operations if _spans_all(op, world)] for job in jobs]
    shortest = [min(times) for times in zip(*durations, strict=True)]
    found = []
    for job in jobs:
        least = iter(shortest)
        operations = tuple(replace(op, duration=next(least)) if _spans_all(op, world) else op for op in job.operations)
        found.append(replace(job, operations=operations))
    return found


def _chosen(algorithms: Sequence[str], profile: str | None) -> dict[str, str]:
    """Algorithm of each kind of collective."""
    usual: dict[str, str] = {str(kind): name for kind, name in _USUAL.items()}
    if profile is not None and read_profile(profile).nccl is not None:
        usual["all_reduce"] = NCCL
    return usual | {("all_reduce" if name == NCCL else str(find(name).kind)): name for name in algorithms}


def _calls(jobs: Sequence[TraceJob], traced: int | None, asked: int) -> set[_Call]:
    world = _World(traced, asked)
    return {call for job in jobs for op in job.operations if (call := world.call(op)) is not None}


def _priced(
    calls: set[_Call], chosen: Mapping[str, str], where: Mapping[str, object]
) -> tuple[dict[_Call, Seconds], list[str]]:
    """Times of calls, s, and what was found out on the way; calls a profile of NCCL cannot price have none."""
    times: dict[_Call, Seconds] = {}
    kept: list[str] = []
    profile = where["profile"]
    lines = not isinstance(profile, str) or bool(read_profile(profile).segments)
    for kind, group in sorted({(kind, group) for kind, group, _ in calls}):
        if not lines and chosen[kind] != NCCL:
            kept.append(f"{kind} keeps its recorded times: the profile prices NCCL's all-reduces alone")
            continue
        sizes = sorted(size for other, ranks, size in calls if (other, ranks) == (kind, group))
        rows = predict_collective(ranks=group, algorithm=chosen[kind], sizes=sizes, dtype="uint8", **where)  # type: ignore[arg-type]
        times |= {(kind, group, size): row.time_s for size, row in zip(sizes, rows, strict=True)}
    return times, list(dict.fromkeys(kept))


@dataclass(frozen=True, slots=True)
class _Prices:
    """What operations take on the other machine: times of calls, s, and the algorithm of each kind."""

    world: _World
    times: Mapping[_Call, Seconds]
    chosen: Mapping[str, str]
    speed: float

    def __call__(self, op: Operation) -> Seconds:
        if op.collective is None:
            return op.duration / self.speed
        call = self.world.call(op)
        return op.duration if call is None else self.times.get(call, op.duration)

    def alone(self, op: Operation) -> Seconds:
        """Where collectives take no time."""
        return 0.0 if op.collective else op.duration / self.speed


def _replayed(
    traced: Sequence[TraceJob], steady: Sequence[TraceJob], prices: _Prices, kept: Sequence[str]
) -> Replay:  # fmt: skip
    programs = [job.operations for job in steady]

    def last(price: Pricing) -> Seconds:
        return max(max(ends) for ends in joint_finish_times(programs, price, prices.world.spans_all))

    collectives = [op for op in programs[0] if op.collective]
    predicted = last(prices)
    assumed = dict.fromkeys(text for job in traced for text in job.assumptions)
    return Replay(
        max(job.recorded for job in traced), last(lambda op: op.duration), predicted, traced[0].num_steps,
        prices.world.asked, len(traced), sum(op.duration for op in collectives), sum(map(prices, collectives)),
        predicted - last(prices.alone), tuple(_repriced(collectives, prices)),
        (*assumed, *_further(traced, collectives, prices), *kept),
    )  # fmt: skip


def _repriced(collectives: Sequence[Operation], prices: _Prices) -> Iterator[Repriced]:
    """Collectives by kind, size and group, those with the largest share of the time first."""
    groups: dict[tuple[str, Bytes | None, int | None], list[Operation]] = {}
    for op in collectives:
        groups.setdefault((str(op.collective), op.size_bytes, op.ranks), []).append(op)
    for key, ops in sorted(groups.items(), key=lambda item: -sum(op.duration for op in item[1])):
        recorded, call = sum(op.duration for op in ops), prices.world.call(ops[0])
        if call is None or call not in prices.times:
            yield Repriced(*key, len(ops), recorded, recorded)
        else:
            time, algorithm = len(ops) * prices.times[call], prices.chosen[call[0]]
            yield Repriced(*key, len(ops), recorded, time, call[1], algorithm)


def _further(traced: Sequence[TraceJob], collectives: Sequence[Operation], prices: _Prices) -> Iterator[str]:
    """Say what going to another machine adds to the assumptions."""
    world = prices.world
    if len(traced) == 1:
        yield f"all {world.asked} ranks do what the traced one did"
        if collectives:
            yield "recorded times of collectives include waiting for ranks that came late, predicted ones do not"
    else:
        yield f"each of the {world.asked} ranks does what one of the {len(traced)} traced ones did"
        yield "traces of all ranks start at the same moment, as their clocks are not compared"
        yield "a collective over the whole job takes as long as on the rank that waited least for the others"
    if world.traced and world.asked != world.traced and any(world.spans_all(op) for op in collectives):
        yield f"collectives over all {world.traced} traced ranks go over {world.asked} and keep their sizes"
    if smaller := sorted({op.ranks for op in collectives if op.ranks and not world.spans_all(op) and op.ranks > 1}):
        sizes = " and ".join(map(str, smaller))
        yield f"groups of {sizes} ranks keep their size, are neighbours, and do not meet other traffic"
    same = Counter(str(op.collective) for op in collectives if world.call(op) is None)
    yield from (f"{count} {kind} without a size or a price keep recorded times" for kind, count in same.items())
    if any(op.collective in _EVEN and world.call(op) in prices.times for op in collectives):
        yield "all-to-alls of uneven parts are priced as even ones"
    if prices.speed != 1:
        yield f"all device work is {prices.speed:g} times as fast as recorded"
