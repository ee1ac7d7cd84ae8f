"""How much a network carries from one half of its nodes to the other."""

from __future__ import annotations

from collections.abc import Sequence

from simnet.fabric import Vertex
from simnet.topologies.plan import NetworkPlan, port_vertex
from simnet.units import BytesPerSecond


def bisection(plan: NetworkPlan, num_nodes: int, ports: Sequence[Vertex]) -> BytesPerSecond:
    """Bytes/s from the first half of the nodes, in rank order, to the second, by maximum flow.

    Nodes can send as much as their ports carry; an odd node in the middle belongs to neither half.
    """
    if num_nodes < 2:
        return 0.0
    import networkx as nx

    half = num_nodes // 2
    first = {port_vertex(n, p) for n in range(half) for p in ports}
    second = {port_vertex(n, p) for n in range(num_nodes - half, num_nodes) for p in ports}
    capacity: dict[tuple[Vertex, Vertex], float] = {}
    for link in plan.links:
        src = _merged(link.src, first, second)
        dst = _merged(link.dst, first, second)
        capacity[src, dst] = capacity.get((src, dst), 0.0) + link.bandwidth
    graph: nx.DiGraph[Vertex] = nx.DiGraph()
    graph.add_nodes_from(["first", "second"])
    graph.add_edges_from((*ends, {"capacity": value}) for ends, value in capacity.items() if ends[0] != ends[1])
    return float(nx.maximum_flow_value(graph, "first", "second"))


def _merged(vertex: Vertex, first: set[Vertex], second: set[Vertex]) -> Vertex:
    return "first" if vertex in first else "second" if vertex in second else vertex
