"""All ports on one switch that is never the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence

from simnet.fabric import Vertex
from simnet.hardware import Wire
from simnet.topologies.plan import NetworkPlan, port_links, port_vertex
from simnet.topologies.registry import Scope, topology


@topology(Scope.NETWORK)
def single_switch(num_nodes: int, ports: Sequence[Vertex], *, port: Wire) -> NetworkPlan:
    """One switch without a limit of its own; half of the port's latency lies on each side of it."""
    names = [[port_vertex(n, p) for p in ports] for n in range(num_nodes)]
    links = [link for node in names for name in node for link in port_links(name, "switch", port)]

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        return [names[a][q], "switch", names[b][r]]

    return NetworkPlan(tuple(links), route)
