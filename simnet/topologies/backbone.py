"""All ports on one shared medium."""

from __future__ import annotations

from collections.abc import Sequence

from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.plan import NetworkPlan, port_links, port_vertex
from simnet.topologies.registry import Scope, topology


@topology(Scope.NETWORK)
def backbone(num_nodes: int, ports: Sequence[Vertex], *, port: Wire, shared: Wire) -> NetworkPlan:
    """Every message crosses one medium that all share, whichever way it goes, as clusters of SimGrid do.

    Half of the port's latency lies on each side of the medium, which adds its own.
    """
    names = [[port_vertex(n, p) for p in ports] for n in range(num_nodes)]
    links = [Link("backbone.in", "backbone.out", shared.latency, shared.bandwidth, shared.link.name)]
    for name in (name for node in names for name in node):
        up, down = port_links(name, "backbone", port)
        links += [
            Link(name, "backbone.in", up.latency, up.bandwidth, up.kind),
            Link("backbone.out", name, down.latency, down.bandwidth, down.kind),
        ]

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        return [names[a][q], "backbone.in", "backbone.out", names[b][r]]

    return NetworkPlan(tuple(links), route)
