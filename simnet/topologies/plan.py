"""What topology files return: the links of one node, and the links and routes between nodes.

A node's plan is written once with local names ("gpu0", "nic0") and stamped out per node as
"n12/gpu0". Inside a node messages take the shortest path that passes through no other device,
because a device does not forward; paths are worked out once per plan. Between nodes the network's
plan gives the vertices in closed form, so that thousands of ranks need no search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Wire


@dataclass(frozen=True)
class NodePlan:
    """One node: its links, its devices in rank order, and the port each device leaves by.

    ports[i] is the local vertex at which the network takes over from devices[i]; a device that is its
    own port is wired into the network itself.
    """

    links: tuple[Link, ...]
    devices: tuple[Vertex, ...]
    ports: tuple[Vertex, ...]

    @cached_property
    def distinct_ports(self) -> tuple[Vertex, ...]:
        """Every port once, in the order of first use."""
        return tuple(dict.fromkeys(self.ports))

    @cached_property
    def inner(self) -> dict[tuple[int, int], tuple[Vertex, ...]]:
        """Local vertices from device i to device j."""
        between: dict[tuple[int, int], tuple[Vertex, ...]] = {}
        for i, device in enumerate(self.devices):
            paths = self._paths(device)
            between |= {(i, j): paths[other] for j, other in enumerate(self.devices) if other in paths}
        return between

    @cached_property
    def outward(self) -> tuple[tuple[Vertex, ...], ...]:
        """Local vertices from each device to its port, both included."""
        return tuple(self._path(device, port) for device, port in zip(self.devices, self.ports, strict=True))

    @cached_property
    def inward(self) -> tuple[tuple[Vertex, ...], ...]:
        """Local vertices from its port to each device, both included."""
        return tuple(self._path(port, device) for device, port in zip(self.devices, self.ports, strict=True))

    @cached_property
    def _neighbours(self) -> dict[Vertex, list[Vertex]]:
        found: dict[Vertex, list[Vertex]] = {}
        for link in self.links:
            found.setdefault(link.src, []).append(link.dst)
        return found

    def _path(self, src: Vertex, dst: Vertex) -> tuple[Vertex, ...]:
        paths = self._paths(src)
        if dst not in paths:
            raise InvalidInput(f"the node has no path from {src} to {dst}; give its topology a host or port wire")
        return paths[dst]

    def _paths(self, src: Vertex) -> dict[Vertex, tuple[Vertex, ...]]:
        paths: dict[Vertex, tuple[Vertex, ...]] = {src: (src,)}
        queue = deque([src])
        while queue:
            here = queue.popleft()
            if here in self.devices and here != src:
                continue
            for there in self._neighbours.get(here, ()):
                if there not in paths:
                    paths[there] = (*paths[here], there)
                    queue.append(there)
        return paths


Route = Callable[[int, int, int, int], list[Vertex]]


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The links between ports, and the vertices from port q of node a to port r of node b: route(a, q, b, r)."""

    links: tuple[Link, ...]
    route: Route


def both_ways(a: Vertex, b: Vertex, wire: Wire, *, share: float = 1.0, latency: float = 1.0) -> list[Link]:
    """Two links, one per direction, with `share` of the wire's bandwidth and `latency` of its latency."""
    bandwidth, seconds = wire.bandwidth * share, wire.latency * latency
    return [Link(a, b, seconds, bandwidth, wire.link.name), Link(b, a, seconds, bandwidth, wire.link.name)]


def port_vertex(node: int, port: Vertex) -> Vertex:
    """Name of a node's vertex in the whole fabric."""
    return f"n{node}/{port}"
