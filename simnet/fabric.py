"""The network as a graph of typed, directed links, and the routes messages take through it.

Vertices are strings: devices, copy engines, host bridges, NICs, switches. A server ("node") is never
a vertex. Everything that several messages can share (a PCIe link, a NIC, an uplink) is a link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.units import BytesPerSecond, Seconds

if TYPE_CHECKING:
    import networkx as nx

Vertex = str
Router = Callable[["nx.DiGraph[Vertex]", Vertex, Vertex], list[Vertex]]
ClosedForm = Callable[[Vertex, Vertex], list[Vertex]]


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
    """

    def __init__(
        self, links: Iterable[Link], *, router: Router | None = None, closed_form: ClosedForm | None = None
    ) -> None:
        self.links: tuple[Link, ...] = tuple(links)
        self._index: dict[tuple[Vertex, Vertex], int] = {}
        for index, link in enumerate(self.links):
            _require_link(link, self._index)
            self._index[link.src, link.dst] = index
        searching = router or shortest_path
        self._path: ClosedForm = closed_form or (lambda src, dst: searching(self.graph, src, dst))
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
        return Fabric(links, closed_form=self._path)

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
