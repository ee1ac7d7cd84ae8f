"""What each rank does, in order, as Python objects: the form the event engine works on.

Stages are made when the first rank needs them and dropped when the last has left them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import simpy

from simnet.interpreters.network import Flow
from simnet.interpreters.stages import Price, Setting, Stage, stages
from simnet.paths import FloatArray
from simnet.schedule import IntArray, Repeat, Schedule

KEPT_REPETITIONS = 64


@dataclass(frozen=True, slots=True)
class Job:
    """A schedule to run on some ranks.

    Parameters
    ----------
    count : elements per rank
    ranks : rank of the paths that each rank of the schedule is, (world_size,); None for all, in order
    starts : when each of its ranks may enter, s, shape () or (world_size,)
    lane : jobs of one lane follow each other on every rank, in the order given; lanes run side by side
    """

    schedule: Schedule
    count: int
    ranks: IntArray | None = None
    itemsize: int = 4
    starts: float | FloatArray = 0.0
    lane: int = 0

    def place(self) -> IntArray:
        """Ranks of the paths, (world_size,)."""
        return np.arange(self.schedule.world_size) if self.ranks is None else self.ranks


class Message(simpy.Event):
    """A message of a stage; the same object, and the same event, serves every repetition.

    Attributes
    ----------
    meets : how many of its ends are there (for an eager one, see `simulate`)
    duration, delay, gamma : from start to end (an eager one: to arrival), to the first byte on the wire, to add
        what arrived, s
    flow : where its links are contended
    """

    __slots__ = (
        "channel", "delay", "dst", "duration", "eager", "flow", "gamma", "index",
        "meets", "num_bytes", "offset", "src", "start", "wire", "wire_bytes", "work",
    )  # fmt: skip

    src: Lane
    dst: Lane
    work: Work
    flow: Flow | None
    eager: bool
    channel: int
    index: int
    meets: int
    num_bytes: int
    start: float
    wire: float
    duration: float
    delay: float
    gamma: float
    offset: float
    wire_bytes: float

    def __init__(self, env: simpy.Environment, work: Work, index: int, ends: tuple[Lane, Lane]) -> None:
        super().__init__(env)
        self._ok, self.work, self.index, self.meets, self.start, self.wire = True, work, index, 0, 0.0, 0.0
        self.src, self.dst = ends

    def price(self, price: Numbers) -> None:
        """Take on the sizes and times of a repetition."""
        i = self.index
        self.num_bytes, self.duration, self.delay = price.num_bytes[i], price.duration[i], price.delay[i]
        self.gamma, self.offset, self.wire_bytes = price.gamma[i], price.offset[i], price.wire_bytes[i]
        if self.flow is not None:
            self.flow.cap = price.cap[i]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A `Price` as lists, (num_messages,)."""

    num_bytes: list[int]
    duration: list[float]
    delay: list[float]
    gamma: list[float]
    offset: list[float]
    wire_bytes: list[float]
    cap: list[float]

    @classmethod
    def of(cls, price: Price, num_messages: int) -> Numbers:
        """Turn columns of a batch of one into lists."""
        offset = np.zeros((1, 1)) if price.offset is None else price.offset
        arrival = price.cost if price.eager is None else price.cost - np.where(price.eager, price.gamma, 0.0)
        columns = (price.num_bytes, arrival, price.delay, price.gamma, offset, price.wire_bytes, price.cap)
        return cls(*(np.broadcast_to(column, (num_messages, 1))[:, 0].tolist() for column in columns))


class Lane:
    """A rank on a channel of a job, and where it is in its program."""

    __slots__ = ("mine", "now", "pending", "program", "queue", "rank", "repetition", "work")

    def __init__(self, program: Program, rank: int) -> None:
        self.program, self.rank = program, rank
        self.queue: deque[Work] = deque()
        self.work: Work | None = None
        self.mine: list[Message] = []
        self.repetition, self.pending, self.now = 0, 0, 0.0


class Work:
    """A stage as objects.

    Attributes
    ----------
    ends : messages of each lane that takes part
    vary : whether sizes differ from repetition to repetition
    """

    __slots__ = ("_numbers", "_stage", "ends", "first_step", "times", "vary")

    def __init__(self, stage: Stage, lanes: list[Lane], first_step: int, env: simpy.Environment) -> None:
        self.times, self.first_step, self.vary = stage.times, first_step, not stage.constant
        self.ends: dict[Lane, list[Message]] = {}
        self._stage = stage
        self._numbers: dict[int, Numbers] = {}
        price = stage.price(stage.step)
        numbers = Numbers.of(price, len(stage.found))
        eager = np.broadcast_to(False if price.eager is None else price.eager[:, 0], (len(stage.found),))
        loads = _loads(stage, price)
        ends = zip(stage.src_lane.tolist(), stage.dst_lane.tolist(), strict=True)
        channels = stage.found.channel.tolist()
        for i, (src, dst) in enumerate(ends):
            if not numbers.num_bytes[i] and not self.vary:
                continue
            message = Message(env, self, i, (lanes[src], lanes[dst]))
            message.channel, message.eager = channels[i], bool(eager[i])
            message.flow = Flow(0.0, loads[i], np.inf, message) if i in loads else None
            message.price(numbers)
            self.ends.setdefault(message.src, []).append(message)
            self.ends.setdefault(message.dst, []).append(message)

    def numbers(self, repetition: int) -> Numbers:
        """Sizes and times of one repetition; the latest are kept."""
        known = self._numbers.get(repetition)
        if known is None:
            item = self._stage.item
            step = item.at(repetition) if isinstance(item, Repeat) else item
            known = self._numbers[repetition] = Numbers.of(self._stage.price(step), len(self._stage.found))
            if len(self._numbers) > KEPT_REPETITIONS:
                del self._numbers[next(iter(self._numbers))]
        return known


def _loads(stage: Stage, price: Price) -> dict[int, dict[int, float]]:
    """Contended links of each message that has any, with bytes on it per byte on the wire."""
    found: dict[int, dict[int, float]] = {}
    weight = stage.weighted(price.num_bytes, price.wire_bytes).weight[:, 0]
    columns = (stage.loads.flow, stage.loads.link, weight)
    for flow, link, per_byte in zip(*(column.tolist() for column in columns), strict=True):
        links = found.setdefault(flow, {})
        links[link] = links.get(link, 0.0) + per_byte
    return found


class Program:
    """A job's stream of stages, fed to its lanes as they need them."""

    def __init__(self, number: int, job: Job, setting: Setting, env: simpy.Environment) -> None:
        self.number, self.job, self._env = number, job, env
        channels, n = job.schedule.num_channels, job.schedule.world_size
        self.lanes = [Lane(self, rank) for rank in range(n) for _ in range(channels)]
        self.open = [channels] * n
        self.followers: list[list[tuple[Program, int]]] = [[] for _ in range(n)]
        self._next_step = 0
        self._stages = stages(setting)

    def lanes_of(self, rank: int) -> list[Lane]:
        """All channels of a rank."""
        channels = self.job.schedule.num_channels
        return self.lanes[rank * channels : (rank + 1) * channels]

    def finish(self) -> FloatArray:
        """When each rank was done, s, (world_size,)."""
        channels = self.job.schedule.num_channels
        return np.array([lane.now for lane in self.lanes]).reshape(-1, channels).max(axis=1)

    def feed(self) -> bool:
        """Hand the next stage to the lanes that take part; False at the end."""
        stage = next(self._stages, None)
        if stage is None:
            return False
        work = Work(stage, self.lanes, self._next_step, self._env)
        self._next_step += work.times
        for lane in work.ends:
            lane.queue.append(work)
        return True


def unrolled(schedule: Schedule) -> Schedule:
    """Return the same schedule with every repetition an item of its own."""
    return replace(schedule, items=schedule.expand)
