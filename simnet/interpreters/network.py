"""How fast the wire moves messages that share links: max-min fairness.

`shares` answers for flows that are all there at once, vectorised over a batch of link bandwidths.
`Network` answers over time on a SimPy clock: at every instant at which flows come or go, the flows
connected to the change, and only those, get new rates.

Source: Bertsekas & Gallager, Data Networks, 2nd ed., section 6.5.2 (max-min flow control).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy
from simpy.events import NORMAL, EventPriority

from simnet.errors import Incomplete
from simnet.interpreters.messages import BoolArray, rising
from simnet.paths import FloatArray
from simnet.schedule import IntArray

INSTANT = 1e-12
"""Two instants closer than this, relative, are one."""


@dataclass(frozen=True, slots=True)
class Incidence:
    """Which flow loads which link, and how much per byte: weight has shape (entries, batch or 1)."""

    flow: IntArray
    link: IntArray
    weight: FloatArray
    num_flows: int

    def only(self, links: BoolArray) -> Incidence:
        """Leave out the links that are not marked, (num_links,)."""
        keep = links[self.link]
        return Incidence(self.flow[keep], self.link[keep], self.weight[keep], self.num_flows)

    def of_flows(self, flows: IntArray) -> Incidence:
        """Leave out the other flows, and number these anew, in their order."""
        place = np.full(self.num_flows, -1)
        place[flows] = np.arange(len(flows))
        keep = place[self.flow] >= 0
        return Incidence(place[self.flow[keep]], self.link[keep], self.weight[keep], len(flows))


def shares(incidence: Incidence, bandwidth: FloatArray, cap: FloatArray) -> FloatArray:
    """Max-min fair rates of flows that all flow at once, bytes/s, shape (num_flows, batch).

    Parameters
    ----------
    bandwidth : of every link, bytes/s, (num_links, batch or 1)
    cap : largest rate of each flow alone, bytes/s, (num_flows, batch or 1)
    """
    if incidence.num_flows <= ALIKE_FLOWS or cap.shape[1] > 1 or (incidence.weight != 1).any():
        return _shares(incidence, bandwidth, cap, np.ones((1, 1)))
    example, kind, number = _alike(incidence, cap[:, 0])
    return _shares(incidence.of_flows(example), bandwidth, cap[example], number[:, None].astype(float))[kind]


ALIKE_FLOWS = 4096
"""Among more flows than this it pays to look for those that load the same links."""


def _shares(incidence: Incidence, bandwidth: FloatArray, cap: FloatArray, number: FloatArray) -> FloatArray:
    """As `shares`, where each flow stands for a number of them, (num_flows or 1, 1)."""
    batch = np.broadcast_shapes(cap.shape[1:], bandwidth.shape[1:], incidence.weight.shape[1:])
    rates = np.broadcast_to(cap, (len(cap), *batch)).astype(float)
    if len(incidence.flow) == 0:
        return rates
    by_link, by_flow = _Groups.of(incidence.link), _Groups.of(incidence.flow)
    flow = incidence.flow
    weight = incidence.weight * np.broadcast_to(number, (incidence.num_flows, 1))[flow]
    width = bandwidth[by_link.names]
    open_ = np.zeros(rates.shape, bool)
    open_[by_flow.names] = True
    while open_.any():
        load = by_link.total(weight * open_[flow])
        spare = width - by_link.total(np.where(open_[flow], 0.0, weight * rates[flow]))
        level = np.where(load > 0, np.maximum(spare, 0.0) / np.where(load > 0, load, 1.0), np.inf)
        reach = np.full(rates.shape, np.inf)
        reach[by_flow.names] = by_flow.least(level[by_link.group])
        reach = np.minimum(reach, cap)
        settled = by_link.least(np.where(open_[flow], reach[flow], np.inf)) >= level * (1 - INSTANT)
        done = np.zeros(rates.shape, bool)
        done[by_flow.names] = by_flow.any(settled[by_link.group])
        done = open_ & (done | (reach >= cap))
        rates = np.where(done, reach, rates)
        open_ &= ~done
    return rates


def _alike(incidence: Incidence, cap: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Sort flows into kinds of the same cap and links: an example of each kind, each flow's kind, flows per kind."""
    num_flows, base = incidence.num_flows, int(incidence.link.max(initial=0)) + 2
    length = np.bincount(incidence.flow, minlength=num_flows)
    links = incidence.link[rising(incidence.flow)]
    first = np.cumsum(length) - length
    key, size = _numbered(cap)
    for hop in range(int(length.max(initial=0))):
        if size > 2**62 // base:
            key, size = _numbered(key)
        has = length > hop
        key, size = key * base, size * base
        key[has] += links[first[has] + hop] + 1
    _, example, kind, number = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return example, kind.reshape(-1), number


def _numbered(values: npt.NDArray[Any]) -> tuple[IntArray, int]:
    """Number different values from 0, and how many there are."""
    names, number = np.unique(values, return_inverse=True)
    return number.reshape(-1), len(names)


def components(incidence: Incidence) -> IntArray:
    """Lowest flow number of each flow's connected component, (num_flows,); flows alone are their own."""
    from_flow = np.arange(incidence.num_flows)
    link, flow = incidence.link, incidence.flow
    num_links = int(link.max(initial=-1)) + 1
    while True:
        lowest = np.full(num_links, incidence.num_flows)
        np.minimum.at(lowest, link, from_flow[flow])
        new = from_flow.copy()
        np.minimum.at(new, flow, lowest[link])
        new = new[new]
        if np.array_equal(new, from_flow):
            return new
        from_flow = new


@dataclass(frozen=True, slots=True)
class _Groups:
    """Entries sorted by a name, to reduce over all entries of one."""

    names: IntArray
    order: IntArray
    starts: IntArray
    group: IntArray

    @classmethod
    def of(cls, name: IntArray) -> _Groups:
        names, group = np.unique(name, return_inverse=True)
        group = group.reshape(-1)
        order = rising(group)
        starts = np.searchsorted(group[order], np.arange(len(names)))
        return cls(names, order, starts, group)

    def total(self, values: npt.NDArray[np.float64]) -> FloatArray:
        return np.add.reduceat(values[self.order], self.starts, axis=0)

    def least(self, values: npt.NDArray[np.float64]) -> FloatArray:
        return np.minimum.reduceat(values[self.order], self.starts, axis=0)

    def any(self, values: BoolArray) -> BoolArray:
        return np.logical_or.reduceat(values[self.order], self.starts, axis=0)


LATE = EventPriority(2)
"""SimPy priority after everything else that happens at an instant."""

VECTOR_FLOWS = 64
"""Components of more flows than this are rated by `shares`; below, plain Python is quicker."""


class Flow:
    """A message on the wire: bytes left at the last change, and its rate since.

    Attributes
    ----------
    loads : link to bytes on it per byte of the flow
    message : what the flow carries, for whoever is told that it ended
    """

    __slots__ = ("cap", "due", "left", "loads", "message", "rate", "since")

    def __init__(self, num_bytes: float, loads: dict[int, float], cap: float, message: Any = None) -> None:
        self.left, self.loads, self.cap, self.message = num_bytes, loads, cap, message
        self.rate, self.since, self.due = 0.0, 0.0, np.inf


class OverBudget(Incomplete):
    """More rates were to be given than whoever asked wants to wait for."""


class _Due(simpy.Event):
    """When a flow ends at its present rate; stale once the rate has changed."""

    __slots__ = ("flow", "time")

    flow: Flow
    time: float


class Network:
    """Links shared max-min fairly on a SimPy clock; new rates once per instant, for connected flows only.

    over : called with each flow whose last byte is through
    most_rated : rates that may be given to flows before it raises OverBudget
    """

    def __init__(self, env: simpy.Environment, bandwidth: Iterable[float], over: Callable[[Flow], None]) -> None:
        self.env, self.over = env, over
        self.bandwidth = list(bandwidth)
        self.num_rated, self.most_rated = 0, np.inf
        self._flows: dict[int, dict[Flow, None]] = {}
        self._changed: dict[int, None] = {}
        self._instant = np.inf
        self._end: Any = (self._ended,)

    def join(self, flow: Flow) -> None:
        """Put a flow on its links; it gets a rate at the end of this instant."""
        flow.since, flow.rate, flow.due = self.env.now, 0.0, np.inf
        for link in flow.loads:
            self._flows.setdefault(link, {})[flow] = None
        self._touch(flow.loads)

    def set_bandwidth(self, link: int, bandwidth: float) -> None:
        """Change a link from now on, bytes/s; 0 stops what is on it."""
        self.bandwidth[link] = bandwidth
        self._touch((link,))

    def stalled(self) -> list[Flow]:
        """Flows that do not move, for want of a link that works."""
        flows = {flow: None for on_link in self._flows.values() for flow in on_link}
        return [flow for flow in flows if flow.rate == 0]

    def _touch(self, links: Iterable[int]) -> None:
        self._changed.update(dict.fromkeys(links))
        if self._instant == np.inf:
            self._instant = self.env.now
            self._later(0.0)

    def _later(self, delay: float) -> None:
        event = simpy.Event(self.env)
        event._ok, event.callbacks = True, [self._rate]
        self.env.schedule(event, LATE, delay)

    def _rate(self, _: simpy.Event) -> None:
        following = self.env.peek()
        if following <= self._instant * (1 + INSTANT):
            self._later(following - self.env.now)
            return
        self._instant = np.inf
        changed, self._changed = self._changed, {}
        flows = self._connected(changed)
        self.num_rated += len(flows)
        if self.num_rated > self.most_rated:
            raise OverBudget(f"messages that share links take more than {self.most_rated:g} rates; allow for more")
        now = self.env.now
        for flow, rate in zip(flows, self._fair(flows), strict=True):
            if rate != flow.rate:
                flow.left -= flow.rate * (now - flow.since)
                flow.since, flow.rate = now, rate
                self._schedule(flow)

    def _schedule(self, flow: Flow) -> None:
        if flow.rate == 0:
            flow.due = np.inf
            return
        wait = max(flow.left, 0.0) / flow.rate
        event = _Due(self.env)
        event._ok, event.callbacks, event.flow = True, self._end, flow
        event.time = flow.due = self.env.now + wait
        self.env.schedule(event, NORMAL, wait)

    def _ended(self, event: Any) -> None:
        flow = event.flow
        if event.time != flow.due:
            return
        flow.due = np.inf
        for link in flow.loads:
            del self._flows[link][flow]
        self._touch(flow.loads)
        self.over(flow)

    def _connected(self, links: Iterable[int]) -> list[Flow]:
        flows: dict[Flow, None] = {}
        open_links = list(links)
        seen = set(open_links)
        while open_links:
            for flow in self._flows.get(open_links.pop(), ()):
                if flow not in flows:
                    flows[flow] = None
                    new = [link for link in flow.loads if link not in seen]
                    seen.update(new)
                    open_links += new
        return list(flows)

    def _fair(self, flows: list[Flow]) -> list[float]:
        if not flows:
            return []
        first = flows[0].loads
        if all(flow.loads == first for flow in flows):
            share = min(self.bandwidth[link] / weight for link, weight in first.items()) / len(flows)
            if all(flow.cap >= share for flow in flows):
                return [share] * len(flows)
        return _fill(flows, self.bandwidth) if len(flows) <= VECTOR_FLOWS else _fill_many(flows, self.bandwidth)


def _fill(flows: list[Flow], bandwidth: list[float]) -> list[float]:
    """Raise all rates together; whoever meets a full link or its own cap stays there."""
    rates: dict[Flow, float] = {}
    on: dict[int, dict[Flow, float]] = {}
    for flow in flows:
        for link, weight in flow.loads.items():
            on.setdefault(link, {})[flow] = weight
    spare = {link: bandwidth[link] for link in on}
    by_cap = sorted(flows, key=lambda flow: flow.cap, reverse=True)
    while len(rates) < len(flows):
        while by_cap[-1] in rates:
            by_cap.pop()
        level, narrow = min(
            ((spare[link] / sum(on[link].values()), link) for link in on if on[link]), default=(np.inf, -1)
        )
        if by_cap[-1].cap <= level:
            level, full = by_cap[-1].cap, [by_cap[-1]]
        else:
            full = list(on[narrow])
        for flow in full:
            rates[flow] = max(level, 0.0)
            for link, weight in flow.loads.items():
                spare[link] -= rates[flow] * weight
                del on[link][flow]
    return [rates[flow] for flow in flows]


def _fill_many(flows: list[Flow], bandwidth: list[float]) -> list[float]:
    entries = [(i, link, weight) for i, flow in enumerate(flows) for link, weight in flow.loads.items()]
    flow, link, weight = (np.array(column) for column in zip(*entries, strict=True))
    names, link = np.unique(link, return_inverse=True)
    width = np.array([bandwidth[name] for name in names.tolist()])
    incidence = Incidence(flow, link.reshape(-1), weight[:, None], len(flows))
    rates = shares(incidence, width[:, None], np.array([[f.cap] for f in flows]))
    return rates[:, 0].tolist()
