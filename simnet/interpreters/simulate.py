"""The general engine: every message an event on a SimPy clock, links shared max-min fairly.

It knows no lockstep and folds nothing; whatever drifts apart, drifts apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy
from simpy.events import NORMAL, URGENT

from simnet.costs.model import CostModel
from simnet.errors import Incomplete, InvalidInput, Unsupported
from simnet.interpreters.contention import Group, Widths, contended_links
from simnet.interpreters.messages import BoolArray, Sizes, num_transfers
from simnet.interpreters.network import Flow, Network
from simnet.interpreters.program import Job, Lane, Message, Program, unrolled
from simnet.interpreters.stages import Setting, Sharing, flows_back, may_be_eager
from simnet.paths import FloatArray, Paths
from simnet.results import Estimate, Timeline
from simnet.schedule import Schedule

FOLLOWED_MESSAGES = 10**9
"""More messages are refused: at some 300,000 a second they take about an hour."""


@dataclass(frozen=True, slots=True)
class LinkChange:
    """From `time` on, s, a link has `factor` of its bandwidth; 0 is a failure."""

    time: float
    link: int
    factor: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """Finish of every job's ranks, s, each (world_size,), and what happened on the way.

    num_messages : that were sent; num_rated : how often a flow was given a rate
    """

    finish: tuple[FloatArray, ...]
    num_messages: int
    num_rated: int
    timeline: Timeline | None = None

    @property
    def time(self) -> float:
        """When the last rank of the last job is done, s."""
        return max(float(finish.max()) for finish in self.finish)


def simulate(
    schedule: Schedule,
    count: int,
    paths: Paths,
    cost: CostModel,
    *,
    itemsize: int = 4,
    gamma: float | npt.ArrayLike = 0.0,
    starts: npt.ArrayLike = 0.0,
    changes: Sequence[LinkChange] = (),
    most_rated: float = np.inf,
) -> Estimate:
    """Time until the last rank is done, message by message.

    Parameters
    ----------
    count : elements per rank; itemsize : bytes per element
    gamma : s per byte that a rank adds, shape () or (world_size,)
    starts : when each rank enters, s, shape () or (world_size,)
    changes : of link bandwidths on the way
    most_rated : how often a flow may be given a rate, which is what most of the time goes into

    Raises
    ------
    Incomplete : a failed link never comes back, and messages wait for it.
    OverBudget : flows were given more rates than that.
    Unsupported : the schedule has too many messages to follow them.
    """
    _require_followable(schedule)
    if paths.world_size != schedule.world_size:
        raise InvalidInput(
            f"the paths join {paths.world_size} ranks, the schedule has {schedule.world_size}; build both alike"
        )
    job = Job(schedule, count, None, itemsize, np.asarray(starts, float))
    done = simulate_jobs([job], paths, cost, gamma=gamma, changes=changes, most_rated=most_rated)
    return Estimate(done.time, True, "simulate", finish=done.finish[0])


def _require_followable(schedule: Schedule) -> None:
    messages = num_transfers(schedule)
    if messages > FOLLOWED_MESSAGES:
        raise Unsupported(
            f"{schedule.name} on {schedule.world_size} ranks sends up to {messages:,} messages, which simulate would "
            "follow for hours; take fewer ranks, or estimate, which repeats what is alike"
        )


def simulate_jobs(
    jobs: Sequence[Job],
    paths: Paths,
    cost: CostModel,
    *,
    gamma: float | npt.ArrayLike = 0.0,
    changes: Sequence[LinkChange] = (),
    timeline: bool = False,
    most_rated: float = np.inf,
) -> Simulation:
    """Run several schedules at once on the same links.

    Parameters
    ----------
    gamma : s per byte that a rank adds, shape () or (ranks of the paths,)
    changes : of link bandwidths, on the way
    timeline : keep every message
    most_rated : how often a flow may be given a rate

    Raises
    ------
    Incomplete : a failed link never comes back, and messages wait for it.
    OverBudget : flows were given more rates than that.
    """
    _require(jobs, paths, changes)
    run = _Run(jobs, paths, cost, np.broadcast_to(np.asarray(gamma, float), (paths.world_size,)), changes)
    run.network.most_rated = most_rated
    run.log = [] if timeline else None
    run.go()
    finish = tuple(program.finish() for program in run.programs)
    kept = None if run.log is None else _timeline(run.log, paths.world_size)
    return Simulation(finish, run.num_messages, run.network.num_rated, kept)


def _require(jobs: Sequence[Job], paths: Paths, changes: Sequence[LinkChange]) -> None:
    for job in jobs:
        n, ranks = job.schedule.world_size, job.place()
        if len(ranks) != n or len(np.unique(ranks)) != n or ranks.min() < 0 or ranks.max() >= paths.world_size:
            raise InvalidInput(
                f"{job.schedule.name} needs {n} different ranks below {paths.world_size}, got {ranks.tolist()[:8]}"
            )
        starts = np.asarray(job.starts)
        if starts.shape not in ((), (n,)) or not np.isfinite(starts).all() or (starts < 0).any():
            raise InvalidInput(f"starts must be 0 s or later, shape () or ({n},), got shape {starts.shape}")
    for change in changes:
        if not 0 <= change.link < len(paths.link_bandwidth) or change.factor < 0 or change.time < 0:
            raise InvalidInput(f"a change needs a link of the paths, time and factor of 0 or more, got {change}")


def _contended(jobs: Sequence[Job], paths: Paths, cost: CostModel, changes: Sequence[LinkChange]) -> BoolArray:
    """Links to share out; those that change are always among them."""
    least, largest = paths.link_bandwidth.copy(), paths.link_bandwidth.copy()
    for change in changes:
        bandwidth = paths.link_bandwidth[change.link] * change.factor
        least[change.link] = min(least[change.link], bandwidth)
        largest[change.link] = max(largest[change.link], bandwidth)
    groups = [Group(job.schedule, job.ranks, job.lane) for job in jobs]
    eager, reverse = may_be_eager(cost), flows_back(cost)
    contended = contended_links(groups, paths, widths=Widths(least, largest), eager=eager, reverse=reverse)
    contended[[change.link for change in changes]] = True
    return contended


def _setting(job: Job, paths: Paths, cost: CostModel, gamma: FloatArray, contended: BoolArray) -> Setting:
    """What stays the same; repetitions are unrolled where a message's size says more than how long it takes."""
    sizes = Sizes.of(job.schedule, (job.count,))
    changes = may_be_eager(cost) or (flows_back(cost) and not sizes.even)
    schedule = unrolled(job.schedule) if changes else job.schedule
    ranks = job.place()
    return Setting(
        schedule, paths, cost, sizes, job.itemsize, gamma[ranks], contended,
        ranks=job.ranks, sharing=Sharing.ALONE,
    )  # fmt: skip


class _Run:
    """All jobs on one clock."""

    def __init__(
        self, jobs: Sequence[Job], paths: Paths, cost: CostModel, gamma: FloatArray, changes: Sequence[LinkChange]
    ) -> None:
        self.env = simpy.Environment()
        self.network = Network(self.env, paths.link_bandwidth.tolist(), self._arrived)
        self.log: list[tuple[Any, ...]] | None = None
        self.num_messages = 0
        self.changes = changes
        contended = _contended(jobs, paths, cost, changes)
        settings = [_setting(job, paths, cost, gamma, contended) for job in jobs]
        self.programs = [Program(i, job, settings[i], self.env) for i, job in enumerate(jobs)]
        self._over: Any = (self._on_over,)
        self._wire: Any = (self._on_wire,)
        self._added: Any = (self._on_added,)
        self._plan_changes(paths)
        self._line_up()

    def go(self) -> None:
        """Run until nothing happens any more."""
        self.env.run()
        waiting = sum(opened > 0 for program in self.programs for opened in program.open)
        if waiting:
            failed = sorted({change.link for change in self.changes if change.factor == 0})
            raise Incomplete(
                f"{len(self.network.stalled())} messages wait for ever on failed links (numbers {failed}) and "
                f"{waiting} ranks never end; let the link come back with a later LinkChange"
            )

    def _plan_changes(self, paths: Paths) -> None:
        for change in self.changes:
            bandwidth = float(paths.link_bandwidth[change.link]) * change.factor

            def apply(_: simpy.Event, link: int = change.link, bandwidth: float = bandwidth) -> None:
                self.network.set_bandwidth(link, bandwidth)

            self._at(change.time, apply)

    def _at(self, time: float, callback: Callable[[simpy.Event], None]) -> None:
        event = simpy.Event(self.env)
        event._ok, event.callbacks = True, [callback]
        self.env.schedule(event, URGENT, max(time - self.env.now, 0.0))

    def _line_up(self) -> None:
        """Chain the jobs of each lane on each rank; start the first ones."""
        last: dict[tuple[int, int], tuple[Program, int]] = {}
        for program in self.programs:
            for rank, place in enumerate(program.job.place().tolist()):
                before = last.get((program.job.lane, place))
                last[program.job.lane, place] = (program, rank)
                if before is None:
                    self._start(program, rank)
                else:
                    before[0].followers[before[1]].append((program, rank))

    def _start(self, program: Program, rank: int) -> None:
        starts = np.broadcast_to(program.job.starts, (program.job.schedule.world_size,))

        def enter(_: simpy.Event) -> None:
            for lane in program.lanes_of(rank):
                self._advance(lane)

        self._at(float(starts[rank]), enter)

    def _advance(self, lane: Lane) -> None:
        """Bring a lane to its next step and meet the other ends of its messages."""
        lane.now = self.env.now
        while True:
            lane.repetition += 1
            work = lane.work
            if work is None or lane.repetition == work.times:
                work = self._next_work(lane)
                if work is None:
                    return
            mine = lane.mine
            if work.vary:
                numbers = work.numbers(lane.repetition)
                mine = [message for message in mine if numbers.num_bytes[message.index]]
            if mine:
                break
        lane.pending = len(mine)
        for message in mine:
            if message.eager:
                self._meet_eager(message, lane)
            elif message.meets:
                message.meets = 0
                self._begin(message)
            else:
                message.meets = 1

    def _next_work(self, lane: Lane) -> Any:
        program = lane.program
        while not lane.queue:
            if not program.feed():
                program.open[lane.rank] -= 1
                if not program.open[lane.rank]:
                    for follower, rank in program.followers[lane.rank]:
                        self._start(follower, rank)
                return None
        work = lane.work = lane.queue.popleft()
        lane.mine = work.ends.pop(lane)
        lane.repetition = 0
        return work

    def _begin(self, message: Message) -> None:
        if message.work.vary:
            message.price(message.work.numbers(message.src.repetition))
        wait = 0.0
        if message.offset:
            wait = max(message.src.now + message.offset - self.env.now, 0.0)
        message.start = self.env.now + wait
        if message.flow is None:
            message.callbacks = self._over
            self.env.schedule(message, NORMAL, wait + message.duration)
        else:
            message.callbacks = self._wire
            self.env.schedule(message, NORMAL, wait + message.delay)

    def _on_wire(self, message: Any) -> None:
        flow = message.flow
        flow.left = message.wire_bytes
        message.wire = self.env.now
        self.network.join(flow)

    def _arrived(self, flow: Flow) -> None:
        """The last byte of a shared message is there; what remains is to add it."""
        message = flow.message
        if message.eager:
            self._landed(message)
        elif message.gamma:
            message.callbacks = self._over
            self.env.schedule(message, NORMAL, message.gamma)
        else:
            self._on_over(message)

    def _on_over(self, message: Any) -> None:
        if message.eager:
            self._landed(message)
            return
        self._note(message)
        for lane in (message.src, message.dst):
            lane.pending -= 1
            if not lane.pending:
                self._advance(lane)

    def _note(self, message: Message) -> None:
        self.num_messages += 1
        if self.log is not None:
            src, dst, work = message.src, message.dst, message.work
            wire = message.start + message.delay if message.flow is None else message.wire
            row = (src.program.number, work.first_step + src.repetition, src.rank, dst.rank, message.channel)
            places = src.program.job.ranks
            if places is not None:
                row = (row[0], row[1], int(places[src.rank]), int(places[dst.rank]), row[4])
            self.log.append((*row, message.num_bytes, message.start, wire, self.env.now))

    def _meet_eager(self, message: Message, lane: Lane) -> None:
        """An eager message starts with its sender; `meets` counts its data and its receiver, 1 and 2."""
        if lane is message.src:
            self._begin(message)
        else:
            message.meets |= 2
            if message.meets == 3:
                self._add(message)

    def _landed(self, message: Message) -> None:
        message.meets |= 1
        self._leave(message.src)
        if message.meets == 3:
            self._add(message)

    def _add(self, message: Message) -> None:
        message.callbacks = self._added
        self.env.schedule(message, NORMAL, message.gamma)

    def _on_added(self, message: Any) -> None:
        self._note(message)
        self._leave(message.dst)

    def _leave(self, lane: Lane) -> None:
        lane.pending -= 1
        if not lane.pending:
            self._advance(lane)


def _timeline(log: list[tuple[Any, ...]], world_size: int) -> Timeline:
    whole = np.array([row[:6] for row in log], np.int64).reshape(-1, 6).T
    start, wire, end = np.array([row[6:] for row in log], float).reshape(-1, 3).T
    job, step, src, dst, channel, num_bytes = whole
    return Timeline(world_size, job, step, src, dst, channel, num_bytes, start, wire, end)
