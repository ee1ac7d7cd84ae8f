"""One item of a schedule, made ready for timing: who meets whom, over what, at which cost.

A `Repeat` is made ready once; its repetitions differ only in which messages carry one element more.
Clocks are arrays (lanes, batch); a lane is a rank on a channel, number rank * num_channels + channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np

from simnet.costs.model import CostModel
from simnet.interpreters.contention import crowd
from simnet.interpreters.messages import BoolArray, Messages, Sizes, distinct, messages, reduced, repeated, rising
from simnet.interpreters.network import Incidence, components, shares
from simnet.paths import FloatArray, Paths, Routes, UniformPaths, bottleneck
from simnet.schedule import IntArray, Item, Repeat, Schedule, Step


@dataclass(frozen=True, slots=True)
class LinkDraws:
    """Links whose parameters differ from draw to draw, each (batch, num_links).

    latency in s, bandwidth in bytes/s; links are numbered as `Paths.link_bandwidth` numbers them.
    """

    latency: FloatArray
    bandwidth: FloatArray

    def block(self, columns: IntArray) -> LinkDraws:
        """Return some of the draws."""
        return LinkDraws(self.latency[columns], self.bandwidth[columns])


KEPT_TRANSFERS = 4096
KEPT_PATTERNS, KEPT_PRICES = 128, 16
"""Patterns of steps with up to so many transfers are kept, and so many of them, each with so many prices.

Of longer steps the latest pattern is kept.
"""


class Sharing(Enum):
    """What a message gets of a contended link."""

    FAIR = "its max-min share among the messages of its step"
    ALONE = "all of it, as if alone: no message is ever faster"
    CROWDED = "its share among all that could ever be there: no message is ever slower"


class Patterns:
    """Patterns of steps that come again: of short steps the latest few, of long ones the latest."""

    def __init__(self) -> None:
        self._short: dict[tuple[bytes, ...], Pattern] = {}
        self._long: tuple[Step, Pattern] | None = None

    def of(self, step: Step, setting: Setting) -> Pattern:
        """Pattern of a step."""
        if len(step) > KEPT_TRANSFERS:
            if self._long is None or not _meet_alike(self._long[0], step):
                self._long = None
                self._long = step, Pattern.of(step, setting)
            return self._long[1]
        key = (step.src.tobytes(), step.dst.tobytes(), step.channel.tobytes())
        if key not in self._short:
            if len(self._short) >= KEPT_PATTERNS:
                self._short.clear()
            self._short[key] = Pattern.of(step, setting)
        return self._short[key]


@dataclass(frozen=True)
class Setting:
    """What stays the same through a schedule: paths, costs, sizes.

    patterns : of its steps, as far as they are kept; they hold for any sizes and sharing, of the same draws
    """

    schedule: Schedule
    paths: Paths
    cost: CostModel
    sizes: Sizes
    itemsize: int
    gamma: FloatArray
    contended: BoolArray
    draws: LinkDraws | None = None
    ranks: IntArray | None = None
    sharing: Sharing = Sharing.FAIR
    patterns: Patterns = field(default_factory=Patterns, repr=False, compare=False)

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Links between ranks of the schedule."""
        return self.paths.routes(self._place(src), self._place(dst))

    def _place(self, rank: IntArray) -> IntArray:
        return rank if self.ranks is None else self.ranks[rank]

    @cached_property
    def bandwidth(self) -> FloatArray:
        """Bandwidth of every link, bytes/s, (num_links, batch or 1)."""
        table = self.paths.link_bandwidth if self.draws is None else self.draws.bandwidth
        return np.ascontiguousarray(table.reshape(-1, table.shape[-1]).T)

    @cached_property
    def reverses(self) -> bool:
        """Whether anything flows back."""
        return flows_back(self.cost)

    @cached_property
    def crowd(self) -> IntArray:
        """Most messages that can ever be on each link at once, (num_links,)."""
        return crowd(self.schedule, self.paths, reverse=self.reverses)

    def alone(self, found: Messages) -> tuple[FloatArray, FloatArray]:
        """Latency, s, and narrowest link, bytes/s, of each message's path, each (num_messages, batch or 1)."""
        if isinstance(self.paths, UniformPaths) and self.draws is None:
            return np.array([[self.paths.port_latency]]), np.array([[self.paths.port_bandwidth]])
        if self.draws is None:
            src, dst = self._place(found.src), self._place(found.dst)
            return self.paths.latency(src, dst)[:, None], bottleneck(self.paths, src, dst)[:, None]
        routes = self.routes(found.src, found.dst)
        first = routes.first[:-1]
        latency = np.add.reduceat(self.draws.latency[:, routes.links].T, first, axis=0)
        return latency, np.minimum.reduceat(self.bandwidth[routes.links], first, axis=0)


def flows_back(cost: CostModel) -> bool:
    """Whether a cost model loads the way back."""
    return bool(np.any(cost.reverse_bytes(np.array([1.0, 1e6])) > 0))


def may_be_eager(cost: CostModel) -> bool:
    """Whether some messages start before their receiver is ready."""
    return bool(np.any(cost.eager(np.array([1, 1024]))))


@dataclass(frozen=True, slots=True)
class Price:
    """Messages of a stage at given sizes, each (num_messages or 1, batch or 1); nothing is sent where cost is -inf.

    delay, wire, gamma : to the first byte on the wire, on the wire, to add what arrived, s; cost is their sum
    offset : how long after its lane is ready a message is issued, s; None where at once
    eager : which messages need no ready receiver; None where all do
    """

    delay: FloatArray
    wire: FloatArray
    gamma: FloatArray
    cost: FloatArray
    wire_bytes: FloatArray
    cap: FloatArray
    num_bytes: IntArray
    offset: FloatArray | None
    eager: BoolArray | None


@dataclass(frozen=True)
class Pattern:
    """Who sends to whom in a step, and over what; schedules of many steps have few of them.

    prices, kept : what has been found out about it
    """

    setting: Setting
    found: Messages
    latency: FloatArray
    bottleneck: FloatArray
    loads: Incidence
    prices: dict[tuple[object, ...], Price] = field(default_factory=dict, repr=False)
    kept: dict[str, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, step: Step, setting: Setting) -> Pattern:
        """Find messages, paths and contended links."""
        found = messages(step, setting.schedule)
        latency, narrowest = setting.alone(found)
        return cls(setting, found, latency, narrowest, loads(found, setting))

    @cached_property
    def src_lane(self) -> IntArray:
        """Lane each message leaves, (num_messages,)."""
        return self._lane(self.found.src)

    @cached_property
    def dst_lane(self) -> IntArray:
        """Lane each message enters, (num_messages,)."""
        return self._lane(self.found.dst)

    def _lane(self, rank: IntArray) -> IntArray:
        channels = self.setting.schedule.num_channels
        return rank if channels == 1 else rank * channels + self.found.channel

    @cached_property
    def alone_at_source(self) -> bool:
        """Whether no lane sends two messages."""
        return distinct(self.src_lane, self.setting.schedule.world_size * self.setting.schedule.num_channels)

    @cached_property
    def alone_at_destination(self) -> bool:
        """Whether no lane receives two messages."""
        return distinct(self.dst_lane, self.setting.schedule.world_size * self.setting.schedule.num_channels)

    @cached_property
    def gamma(self) -> FloatArray:
        """S per byte that each message's receiver adds, (num_messages or 1, 1)."""
        gamma = self.setting.gamma
        return gamma.reshape(1, 1) if gamma.ndim == 0 else gamma[self.found.dst][:, None]

    @cached_property
    def touch(self) -> Touch:
        """Messages by lane."""
        return Touch.of(self.src_lane, self.dst_lane)

    @cached_property
    def component(self) -> IntArray:
        """Lowest message of each message's connected component of contended links, (num_messages,)."""
        return components(self.loads)


@dataclass(frozen=True, slots=True)
class Touch:
    """Which messages each lane takes part in: those of lanes[i] are order[starts[i] : starts[i + 1]].

    Of 2m ends, end k is the source of message k, end m + k its destination; message[i] is that of order[i].
    """

    lanes: IntArray
    order: IntArray
    starts: IntArray
    message: IntArray

    @classmethod
    def of(cls, src_lane: IntArray, dst_lane: IntArray) -> Touch:
        """Sort the ends of the messages by lane."""
        ends = np.concatenate([src_lane, dst_lane])
        order = rising(ends)
        starts = np.flatnonzero(np.concatenate([[True], ends[order][1:] != ends[order][:-1]]))
        return cls(ends[order][starts], order, starts, order % max(len(src_lane), 1))


def _meet_alike(a: Step, b: Step) -> bool:
    return all(np.array_equal(x, y) for x, y in ((a.src, b.src), (a.dst, b.dst), (a.channel, b.channel)))


@dataclass(frozen=True)
class Stage:
    """A step, or a step repeated, made ready for timing."""

    setting: Setting
    pattern: Pattern
    item: Item
    step: Step
    times: int

    @property
    def found(self) -> Messages:
        """The messages."""
        return self.pattern.found

    @property
    def loads(self) -> Incidence:
        """Contended links the messages load."""
        return self.pattern.loads

    @property
    def src_lane(self) -> IntArray:
        """Lane each message leaves, (num_messages,)."""
        return self.pattern.src_lane

    @property
    def dst_lane(self) -> IntArray:
        """Lane each message enters, (num_messages,)."""
        return self.pattern.dst_lane

    @cached_property
    def constant(self) -> bool:
        """Whether all repetitions carry the same sizes."""
        return self.times == 1 or self.setting.sizes.even

    def prices(self) -> Iterator[Price]:
        """Price of each repetition, in order."""
        if self.constant:
            price = self.price(self.step)
            for _ in range(self.times):
                yield price
        elif isinstance(self.item, Repeat):
            for k in range(self.times):
                yield self.price(self.item.at(k))

    def price(self, step: Step) -> Price:
        """Price of the messages when they carry what this step says."""
        return self.price_of(self.setting.sizes.elements(step))

    @cached_property
    def _adds(self) -> BoolArray:
        adds = reduced(self.step)
        return adds[:1, None] if (adds == adds[0]).all() else adds[:, None]

    def price_of(self, elements: IntArray) -> Price:
        """Price of given elements per transfer, (num_transfers or 1, batch)."""
        if len(self.step) > KEPT_TRANSFERS:
            return self._priced(elements)
        key = (self.setting.sharing, elements.tobytes(), self._adds.tobytes())
        kept = self.pattern.prices
        if key not in kept:
            if len(kept) >= KEPT_PRICES:
                kept.clear()
            kept[key] = self._priced(elements)
        return kept[key]

    def _priced(self, elements: IntArray) -> Price:
        model = self.setting.cost
        num_bytes = self.num_bytes(elements)
        sent = num_bytes > 0
        delay = model.delay(num_bytes, self.pattern.latency)
        wire_bytes = model.wire_bytes(num_bytes)
        cap = np.minimum(_one_column(model.flow_cap(num_bytes, self.pattern.bottleneck)), self.pattern.bottleneck)
        rate = self._rate(num_bytes, wire_bytes, cap)
        gamma = self._gamma(elements)
        wire = wire_bytes / rate
        cost = delay + wire + gamma if gamma.any() else delay + wire
        if not sent.all():
            cost = np.where(sent, cost, -np.inf)
        offset, eager = self._offsets(num_bytes, sent), self._eager(num_bytes, sent)
        return Price(delay, wire, gamma, cost, wire_bytes, cap, num_bytes, offset, eager)

    def _gamma(self, elements: IntArray) -> FloatArray:
        """Time to add what arrived, s, (num_messages or 1, batch or 1)."""
        if not self.pattern.gamma.any() or not self._adds.any():
            return np.zeros((1, 1))
        return self._total(np.where(self._adds, elements, 0)) * self.setting.itemsize * self.pattern.gamma

    def num_bytes(self, elements: IntArray) -> IntArray:
        """Bytes of each message with given elements per transfer, (num_messages or 1, batch)."""
        return self._total(elements) * self.setting.itemsize

    def wire_bytes(self, elements: IntArray) -> FloatArray:
        """Bytes each message puts on the wire with given elements per transfer, (num_messages or 1, batch)."""
        return self.setting.cost.wire_bytes(self.num_bytes(elements))

    def _total(self, elements: IntArray) -> IntArray:
        if self.found.of_transfer is not None:
            elements = np.broadcast_to(elements, (len(self.step), elements.shape[1]))
        return self.found.total(elements)

    def _rate(self, num_bytes: IntArray, wire_bytes: FloatArray, cap: FloatArray) -> FloatArray:
        setting = self.setting
        if len(self.loads.flow) == 0:
            return cap
        cap = np.broadcast_to(cap, (len(self.found), cap.shape[1]))
        match setting.sharing:
            case Sharing.FAIR:
                return self._fair(self.weighted(num_bytes, wire_bytes), cap)
            case Sharing.ALONE:
                return cap
            case Sharing.CROWDED:
                least = setting.bandwidth[self.loads.link] / setting.crowd[self.loads.link][:, None]
                return least_of(self.loads.flow, least, cap)

    def _fair(self, weighted: Incidence, cap: FloatArray) -> FloatArray:
        """Max-min shares; the latest are kept, as they do not depend on the sizes in most cost models."""
        if cap.shape[1] > 1 and (cap == cap[:, :1]).all():
            cap = cap[:, :1]
        kept = self.pattern.kept.get("fair")
        if isinstance(kept, _Fair) and np.array_equal(kept.cap, cap) and np.array_equal(kept.weight, weighted.weight):
            return kept.rate
        rate = shares(weighted, self.setting.bandwidth, cap)
        self.pattern.kept["fair"] = _Fair(cap, weighted.weight, rate)
        return rate

    def weighted(self, num_bytes: IntArray, wire_bytes: FloatArray) -> Incidence:
        """Contended links each message loads, with the bytes on it per byte on the wire."""
        if not self.setting.reverses or len(self.loads.flow) == 0:
            return self.loads
        back = self.setting.cost.reverse_bytes(num_bytes) / np.maximum(wire_bytes, 1)
        back = np.broadcast_to(back, (len(self.found), back.shape[1]))
        weight = np.where(self.loads.weight < 0, back[self.loads.flow], 1.0)
        return Incidence(self.loads.flow, self.loads.link, weight, self.loads.num_flows)

    def _offsets(self, num_bytes: IntArray, sent: BoolArray) -> FloatArray | None:
        """How long after its lane's start each message is issued, s; None where at once."""
        lanes = self.src_lane
        if self.pattern.alone_at_source:
            return None
        busy = np.where(sent, self.setting.cost.occupy(num_bytes), 0.0)
        if not busy.any():
            return None
        busy = np.broadcast_to(busy, (len(lanes), busy.shape[1]))
        order = rising(lanes)
        before = np.cumsum(busy[order], axis=0) - busy[order]
        starts = np.flatnonzero(np.concatenate([[True], lanes[order][1:] != lanes[order][:-1]]))
        length = np.diff(np.concatenate([starts, [len(lanes)]]))
        offset = np.empty_like(busy)
        offset[order] = before - np.repeat(before[starts], length, axis=0)
        return offset

    def _eager(self, num_bytes: IntArray, sent: BoolArray) -> BoolArray | None:
        eager = self.setting.cost.eager(num_bytes) & sent
        return eager if eager.any() else None


def _one_column(values: FloatArray) -> FloatArray:
    """Return a single column of what was spread over a batch."""
    return values[:, :1] if values.ndim == 2 and values.strides[1] == 0 else values


@dataclass(frozen=True, slots=True)
class _Fair:
    """Max-min shares, and what they are the shares of."""

    cap: FloatArray
    weight: FloatArray
    rate: FloatArray


def least_of(flow: IntArray, values: FloatArray, cap: FloatArray) -> FloatArray:
    """Least of a flow's cap and its values, (num_flows, batch)."""
    least = np.broadcast_to(cap, np.broadcast_shapes(cap.shape, (1, values.shape[1]))).copy()
    np.minimum.at(least, flow, values)
    return least


def loads(found: Messages, setting: Setting) -> Incidence:
    """Contended links each message loads; entries of acknowledgements have weight -1 until they are priced."""
    if not setting.contended.any() or len(found) == 0:
        empty = np.zeros(0, np.int64)
        return Incidence(empty, empty, np.zeros((0, 1)), len(found))
    parts = [_entries(setting.routes(found.src, found.dst), 1.0)]
    if setting.reverses:
        parts.append(_entries(setting.routes(found.dst, found.src), -1.0))
    flow, link, weight = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Incidence(flow, link, weight, len(found)).only(setting.contended)


def _entries(routes: Routes, weight: float) -> tuple[IntArray, IntArray, FloatArray]:
    flow = np.repeat(np.arange(len(routes.first) - 1), np.diff(routes.first))
    return flow, routes.links, np.full((len(flow), 1), weight)


def stages(setting: Setting) -> Iterator[Stage]:
    """Make the items of a schedule ready, one after the other; empty steps are left out."""
    for item in setting.schedule.steps():
        step, times = repeated(item)
        if len(step):
            yield Stage(setting, setting.patterns.of(step, setting), item, step, times)
