"""What topology files return: the links of one node, and the links and routes between nodes.

A node's plan is written once with local names ("gpu0", "nic0") and stamped out per node as
"n12/gpu0". Inside a node messages take the shortest path that passes through no other device,
because a device does not forward; paths are worked out once per plan. Between nodes the network's
plan gives the vertices in closed form, so that thousands of ranks need no search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
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
    def outward(self) -> tuple[dict[int, tuple[Vertex, ...]], ...]:
        """Local vertices from device i to every distinct port q it reaches, both included: outward[i][q].

        Where only another device reaches the port, that device relays.
        """
        ports = list(enumerate(self.distinct_ports))
        found = [{q: self._to_port(device, port) for q, port in ports} for device in self.devices]
        return tuple({q: path for q, path in paths.items() if path} for paths in found)

    @cached_property
    def inward(self) -> tuple[tuple[Vertex, ...], ...]:
        """Local vertices from its port to each device, both included."""
        return tuple(self._path(port, d) for d, port in zip(self.devices, self.ports, strict=True))

    def _to_port(self, device: Vertex, port: Vertex) -> tuple[Vertex, ...]:
        paths = self._paths(device)
        if port in paths:
            return paths[port]
        relay = self.devices[self.ports.index(port)]
        beyond = self._paths(relay).get(port, ())
        return (*paths[relay], *beyond[1:]) if beyond and relay in paths else ()

    @cached_property
    def _neighbours(self) -> dict[Vertex, list[Vertex]]:
        found: dict[Vertex, list[Vertex]] = {}
        for link in sorted(self.links, key=lambda link: -link.bandwidth):
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
    """The links between ports, and the vertices from port q of node a to port r of node b: route(a, q, b, r).

    parallel: ports of different numbers cannot reach each other, so a message leaves by the port it arrives at.
    """

    links: tuple[Link, ...]
    route: Route
    parallel: bool = False


def both_ways(a: Vertex, b: Vertex, wire: Wire, *, share: float = 1.0, latency: float = 1.0) -> list[Link]:
    """Two links, one per direction, with `share` of the wire's bandwidth and `latency` of its latency."""
    bandwidth, seconds = wire.bandwidth * share, wire.latency * latency
    return [Link(a, b, seconds, bandwidth, wire.link.name), Link(b, a, seconds, bandwidth, wire.link.name)]


def port_links(port: Vertex, switch: Vertex, wire: Wire) -> list[Link]:
    """Return the two directions between a port and its switch, with half of the wire's latency each."""
    return both_ways(port, switch, wire, latency=0.5)


def with_copy_engines(plan: NodePlan, wire: Wire) -> NodePlan:
    """Return the plan with all that leaves or enters a device passing its copy engine, one per direction."""
    links = [replace(link, src=_end(link.src, "out", plan), dst=_end(link.dst, "in", plan)) for link in plan.links]
    for device in plan.devices:
        links += [Link(device, f"{device}.out", 0.0, wire.bandwidth, wire.link.name)]
        links += [Link(f"{device}.in", device, 0.0, wire.bandwidth, wire.link.name)]
    return NodePlan(tuple(links), plan.devices, plan.ports)


def _end(vertex: Vertex, side: str, plan: NodePlan) -> Vertex:
    return f"{vertex}.{side}" if vertex in plan.devices else vertex


def port_vertex(node: int, port: Vertex) -> Vertex:
    """Name of a node's vertex in the whole fabric."""
    return f"n{node}/{port}"
