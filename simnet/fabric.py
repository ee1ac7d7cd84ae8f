"""The network as a graph of typed, directed links, and the routes messages take through it.

Vertices are strings: devices, copy engines, host bridges, NICs, switches. A server ("node") is never
a vertex. Everything that several messages can share (a PCIe link, a NIC, an uplink) is a link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.units import BytesPerSecond, Seconds

if TYPE_CHECKING:
    import networkx as nx

IntArray = npt.NDArray[np.int64]

Vertex = str
Router = Callable[["nx.DiGraph[Vertex]", Vertex, Vertex], list[Vertex]]
ClosedForm = Callable[[Vertex, Vertex], list[Vertex]]


@dataclass(frozen=True, slots=True)
class Leg:
    """A stretch of many messages' ways, worked out once for all that share its key.

    key : of every message, (num_messages,); below 0 for those that do without
    vertices : of a message's stretch, given its row
    """

    key: IntArray
    vertices: Callable[[int], Sequence[Vertex]]


Legs = Callable[[Sequence[Vertex], IntArray, IntArray], Sequence[Leg]]


MANY_MESSAGES = 512
"""So many messages are worth looking for stretches that several share."""


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of one connection; its latency adds to the path, its bandwidth is shared.

    kind is the name of the link's type in the catalogue.
    """

    src: Vertex
    dst: Vertex
    latency: Seconds
    bandwidth: BytesPerSecond
    kind: str = ""


class Fabric:
    """Vertices, links and routes; immutable after construction.

    Parameters
    ----------
    router : gives the vertices from source to destination, both included; default is the shortest
        path by links, the same one every time.
    closed_form : the same without the graph, for fabrics of thousands of devices; goes before router.
    legs : the same for many messages at once, cut where ways of different messages join; given vertices, and of
        each message the places of its source and destination among them.
    """

    def __init__(
        self,
        links: Iterable[Link],
        *,
        router: Router | None = None,
        closed_form: ClosedForm | None = None,
        legs: Legs | None = None,
    ) -> None:
        self.links: tuple[Link, ...] = tuple(links)
        self._index: dict[tuple[Vertex, Vertex], int] = {}
        for index, link in enumerate(self.links):
            _require_link(link, self._index)
            self._index[link.src, link.dst] = index
        searching = router or shortest_path
        self._path: ClosedForm = closed_form or (lambda src, dst: searching(self.graph, src, dst))
        self._legs = legs
        self._routes: dict[tuple[Vertex, Vertex], tuple[int, ...]] = {}

    @cached_property
    def graph(self) -> nx.DiGraph[Vertex]:
        """The links as a graph; an edge has `index` into `links`, `kind`, `bandwidth` and `latency`."""
        from networkx import DiGraph

        graph: nx.DiGraph[Vertex] = DiGraph()
        for index, link in enumerate(self.links):
            graph.add_edge(
                link.src, link.dst, index=index, kind=link.kind, bandwidth=link.bandwidth, latency=link.latency
            )
        return graph

    @cached_property
    def latencies(self) -> npt.NDArray[np.float64]:
        """Latency of every link in s, shape (num_links,)."""
        return np.array([link.latency for link in self.links], float)

    @cached_property
    def bandwidths(self) -> npt.NDArray[np.float64]:
        """Bandwidth of every link in bytes/s, shape (num_links,)."""
        return np.array([link.bandwidth for link in self.links], float)

    def slowed(self, factors: Mapping[tuple[Vertex, Vertex], float]) -> Fabric:
        """Return the same fabric with the bandwidth of some links, from where to where, divided by a factor.

        Raises
        ------
        InvalidInput : there is no such link.
        """
        links = list(self.links)
        for (src, dst), factor in factors.items():
            if (src, dst) not in self._index:
                raise InvalidInput(f"the fabric has no link {src} -> {dst}; {self._nearby(src, dst)}")
            index = self._index[src, dst]
            links[index] = replace(links[index], bandwidth=links[index].bandwidth / factor)
        return Fabric(links, closed_form=self._path, legs=self._legs)

    def _nearby(self, src: Vertex, dst: Vertex) -> str:
        """What there is at either end, in words."""
        near = [f"{link.src} -> {link.dst}" for link in self.links if src == link.src or dst == link.dst]
        shown = near or [f"{link.src} -> {link.dst}" for link in self.links]
        return f"there is {', '.join(shown[:4])}" + (f" and {len(shown) - 4} more" if shown[4:] else "")

    def route(self, src: Vertex, dst: Vertex) -> tuple[int, ...]:
        """Indices into `links` from src to dst, in order.

        Raises
        ------
        InvalidInput : a vertex is unknown, or nothing leads from src to dst.
        """
        key = (src, dst)
        if key not in self._routes:
            vertices = self._path(src, dst)
            self._routes[key] = tuple(self._index[hop] for hop in pairwise(vertices))
        return self._routes[key]

    def routes(self, vertices: Sequence[Vertex], src: IntArray, dst: IntArray) -> tuple[IntArray, IntArray]:
        """Links of many messages, from vertices[src[i]] to vertices[dst[i]], one after the other in `second`.

        Those of message i are second[first[i] : first[i + 1]].
        """
        if self._legs is not None and len(src) >= MANY_MESSAGES:
            return _joined([self._leg(leg) for leg in self._legs(vertices, src, dst)], len(src))
        found = [self.route(vertices[a], vertices[b]) for a, b in zip(src.tolist(), dst.tolist(), strict=True)]
        first = np.concatenate([[0], np.cumsum([len(links) for links in found])]).astype(np.int64)
        return first, np.fromiter(chain.from_iterable(found), np.int64, int(first[-1]))

    def _leg(self, leg: Leg) -> _Stretch:
        rows = np.flatnonzero(leg.key >= 0)
        example, way = _examples(leg.key[rows])
        ways = [[self._index[hop] for hop in pairwise(leg.vertices(row))] for row in rows[example].tolist()]
        return _Stretch(rows, way, ways)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Links on a stretch: message rows[k] takes ways[way[k]]."""

    rows: IntArray
    way: IntArray
    ways: list[list[int]]

    @property
    def length(self) -> IntArray:
        """Links on each way, (num_ways,)."""
        return np.array([len(way) for way in self.ways], np.int64)


def _examples(key: IntArray) -> tuple[IntArray, IntArray]:
    """Place of one example of each different key, and which of those each key is like."""
    if int(key.max(initial=0)) > 8 * len(key):
        _, example, like = np.unique(key, return_index=True, return_inverse=True)
        return example, like.reshape(-1)
    last = np.full(int(key.max(initial=-1)) + 1, -1)
    last[key] = np.arange(len(key))
    used = np.flatnonzero(last >= 0)
    number = np.empty_like(last)
    number[used] = np.arange(len(used))
    return last[used], number[key]


def _joined(stretches: Sequence[_Stretch], num_messages: int) -> tuple[IntArray, IntArray]:
    """Put the stretches of every message one behind the other."""
    first = np.zeros(num_messages + 1, np.int64)
    for stretch in stretches:
        first[1 + stretch.rows] += stretch.length[stretch.way]
    np.cumsum(first, out=first)
    links, place = np.empty(int(first[-1]), np.int64), first[:-1].copy()
    for stretch in stretches:
        length = stretch.length
        table = np.zeros((len(length), int(length.max(initial=0))), np.int64)
        for row, way in zip(table, stretch.ways, strict=True):
            row[: len(way)] = way
        for hop in range(table.shape[1]):
            still = length[stretch.way] > hop
            rows = stretch.rows[still]
            links[place[rows] + hop] = table[stretch.way[still], hop]
        place[stretch.rows] += length[stretch.way]
    return first, links


def _require_link(link: Link, index: dict[tuple[Vertex, Vertex], int]) -> None:
    if not link.bandwidth > 0 or not link.latency >= 0:
        raise InvalidInput(
            f"a link needs bandwidth above 0 and latency of 0 or more, got {link}; give both in SI units"
        )
    if (link.src, link.dst) in index:
        raise InvalidInput(f"two links from {link.src} to {link.dst}; add their bandwidths into one")


def shortest_path(graph: nx.DiGraph[Vertex], src: Vertex, dst: Vertex) -> list[Vertex]:
    """Vertices of the shortest path by number of links."""
    from networkx import NetworkXNoPath, NodeNotFound
    from networkx import shortest_path as search

    try:
        path: list[Vertex] = search(graph, src, dst)
    except NodeNotFound as error:
        raise InvalidInput(f"the fabric has no vertex {src!r} or {dst!r}; see Fabric.graph.nodes") from error
    except NetworkXNoPath as error:
        raise InvalidInput(f"the fabric has no path from {src} to {dst}; add the missing links") from error
    return path
