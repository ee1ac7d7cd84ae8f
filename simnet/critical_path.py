"""Why a collective takes as long as it does: the chain of messages that makes the time, and what each waits for.

The last message to end is followed back to the one that let it start, and so on to the beginning. The time of
every message on that chain is split into latency, bandwidth (its bytes alone on its path), sharing (the rest of
its time on the wire) and reduction; what lies between messages is waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.costs.alpha_beta import AlphaBeta
from simnet.costs.model import CostModel
from simnet.errors import Unsupported
from simnet.interpreters.messages import num_transfers
from simnet.interpreters.program import Job
from simnet.interpreters.simulate import simulate_jobs
from simnet.paths import FloatArray, Paths, bottleneck, link_name
from simnet.results import Timeline
from simnet.schedule import IntArray, Schedule
from simnet.units import BytesPerSecond, Seconds

EXPLAINED_TRANSFERS = 2_000_000

SAME = 1e-9
"""A message was let go by one that ended within this of its start, relative."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A message on the critical path; times in s: waiting before it, then its four parts."""

    step: int
    src: int
    dst: int
    num_bytes: int
    start_s: Seconds
    end_s: Seconds
    waiting_s: Seconds
    latency_s: Seconds
    bandwidth_s: Seconds
    sharing_s: Seconds
    reduction_s: Seconds
    link: str


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What a link carried; utilisation is a fraction of what it could have in the whole time."""

    link: str
    bandwidth_bytes_per_s: BytesPerSecond
    carried_bytes: int
    messages: int
    utilisation: float
    critical_s: Seconds


@dataclass(frozen=True, slots=True)
class Explanation:
    """The critical path from first to last, its terms (they add up to the time) and the links, busiest first."""

    time_s: Seconds
    terms_s: dict[str, Seconds]
    hops: tuple[Hop, ...]
    links: tuple[LinkUse, ...]


def explain_collective(
    schedule: Schedule,
    count: int,
    paths: Paths,
    cost: CostModel | None = None,
    *,
    itemsize: int = 4,
    gamma: float = 0.0,
    starts: npt.ArrayLike = 0.0,
) -> Explanation:
    """Simulate a schedule and follow its critical path; parameters as for `simulate`.

    Raises
    ------
    Unsupported : more messages than can be kept.
    """
    if num_transfers(schedule) > EXPLAINED_TRANSFERS:
        raise Unsupported(
            f"{schedule.name} on {schedule.world_size} ranks sends more than {EXPLAINED_TRANSFERS} messages; "
            "explain fewer ranks of the same cluster"
        )
    model = cost or AlphaBeta()
    job = Job(schedule, count, None, itemsize, np.asarray(starts, float))
    done = simulate_jobs([job], paths, model, gamma=gamma, timeline=True)
    events = done.timeline
    assert events is not None
    path = follow_back(events)
    hops = _hops(events, path, paths, model, gamma * _adds(events, path, schedule, itemsize))
    names = ("waiting", "latency", "bandwidth", "sharing", "reduction")
    terms = {name: float(sum(getattr(hop, f"{name}_s") for hop in hops)) for name in names}
    terms["waiting"] += done.time - sum(terms.values())
    return Explanation(done.time, terms, tuple(hops), tuple(_links(events, paths, hops, done.time)))


def follow_back(events: Timeline) -> IntArray:
    """Messages from the first to the last to end, each the one that let the next start, (num_hops,)."""
    if not len(events):
        return np.zeros(0, np.int64)
    ends = _Ends.of(events)
    current = int(np.argmax(events.end))
    path = [current]
    while (before := ends.last_before(events, current)) is not None:
        path.append(before)
        current = before
    return np.array(path[::-1], np.int64)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Messages of each rank and channel in order of their end."""

    first: IntArray
    message: IntArray
    end: FloatArray
    channels: int
    ranks: int

    @classmethod
    def of(cls, events: Timeline) -> _Ends:
        channels, ranks = int(events.channel.max()) + 1, events.world_size
        lane = [(events.job * ranks + rank) * channels + events.channel for rank in (events.src, events.dst)]
        both, message = np.concatenate(lane), np.tile(np.arange(len(events)), 2)
        order = np.lexsort((message, both))
        first = np.searchsorted(both[order], np.arange(int(both.max()) + 2))
        return cls(first, message[order], events.end[message[order]], channels, ranks)

    def last_before(self, events: Timeline, message: int) -> int | None:
        """Return the latest message of either end of this one that was over when it started, or None."""
        best = None
        start = float(events.start[message])
        for rank in (int(events.src[message]), int(events.dst[message])):
            lane = (int(events.job[message]) * self.ranks + rank) * self.channels + int(events.channel[message])
            rows = slice(self.first[lane], self.first[lane + 1])
            place = int(np.searchsorted(self.end[rows], start * (1 + SAME), side="right")) - 1
            while place >= 0:
                found = int(self.message[rows][place])
                if events.step[found] < events.step[message]:
                    if best is None or events.end[found] > events.end[best]:
                        best = found
                    break
                place -= 1
        return best


def _adds(events: Timeline, path: IntArray, schedule: Schedule, itemsize: int) -> FloatArray:
    """Bytes each message on the path has added at its destination, (num_hops,)."""
    reduces: dict[int, npt.NDArray[np.int64]] = {}
    wanted = {int(step) for step in events.step[path]}
    for number, step in enumerate(schedule.expand()):
        if number in wanted:
            rows = step.op == 1
            reduces[number] = step.src[rows] * schedule.world_size + step.dst[rows]
    key = events.src[path] * schedule.world_size + events.dst[path]
    added = [bool((reduces[int(s)] == k).any()) for s, k in zip(events.step[path], key, strict=True)]
    return events.num_bytes[path] * np.array(added, float)


def _hops(events: Timeline, path: IntArray, paths: Paths, cost: CostModel, reduction: FloatArray) -> list[Hop]:
    src, dst, num_bytes = events.src[path], events.dst[path], events.num_bytes[path]
    narrow = bottleneck(paths, src, dst)
    alone = cost.wire_bytes(num_bytes) / np.minimum(cost.flow_cap(num_bytes, narrow), narrow)
    start, wire, end = events.start[path], events.wire[path], events.end[path]
    before = np.concatenate([[0.0], end[:-1]])
    sharing = np.maximum(end - wire - alone - reduction, 0.0)
    names = [_narrowest(paths, a, b) for a, b in zip(src.tolist(), dst.tolist(), strict=True)]
    waiting = np.maximum(start - before, 0.0)
    whole = zip(*(c.tolist() for c in (events.step[path], src, dst, num_bytes)), strict=True)
    times = zip(*(c.tolist() for c in (start, end, waiting, wire - start, alone, sharing, reduction)), strict=True)
    return [
        Hop(step, a, b, size, begin, over, waits, latency, bandwidth, shared, added, link)
        for (step, a, b, size), (begin, over, waits, latency, bandwidth, shared, added), link in zip(
            whole, times, names, strict=True
        )
    ]


def _narrowest(paths: Paths, src: int, dst: int) -> str:
    links = paths.routes(np.array([src]), np.array([dst])).links
    return link_name(paths, int(links[np.argmin(paths.link_bandwidth[links])]))


def _links(events: Timeline, paths: Paths, hops: list[Hop], time: Seconds) -> list[LinkUse]:
    pair = events.src * paths.world_size + events.dst
    pairs, inverse, messages = np.unique(pair, return_inverse=True, return_counts=True)
    num_bytes = np.bincount(inverse.reshape(-1), weights=events.num_bytes)
    routes = paths.routes(*np.divmod(pairs, paths.world_size))
    row = np.repeat(np.arange(len(pairs)), np.diff(routes.first))
    width = paths.link_bandwidth
    carried, count = (np.bincount(routes.links, weights=w[row], minlength=len(width)) for w in (num_bytes, messages))
    critical: dict[str, float] = {}
    for hop in hops:
        critical[hop.link] = critical.get(hop.link, 0.0) + hop.bandwidth_s + hop.sharing_s
    used = np.flatnonzero(count)
    share = carried / (width * time) if time > 0 else np.zeros_like(carried)
    order = used[np.argsort(-share[used], kind="stable")]
    rows = []
    for link in order.tolist():
        name = link_name(paths, link)
        rows.append(LinkUse(
            name, float(width[link]), int(carried[link]), int(count[link]), float(share[link]),
            critical.get(name, 0.0),
        ))  # fmt: skip
    return rows
