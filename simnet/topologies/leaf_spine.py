"""Two tiers: leaf switches with nodes below, spines above."""

from __future__ import annotations

from collections.abc import Sequence

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.plan import NetworkPlan, port_vertex
from simnet.topologies.registry import Scope, topology
from simnet.topologies.single_switch import port_links


@topology(Scope.NETWORK)
def leaf_spine(
    num_nodes: int,
    ports: Sequence[Vertex],
    *,
    port: Wire,
    hop: Wire | None = None,
    nodes_per_leaf: int,
    oversubscription: float = 1.0,
) -> NetworkPlan:
    """Leaves with full bisection below and 1/oversubscription of their nodes' bandwidth above.

    The uplinks of a leaf are one link of their joint bandwidth: perfect balance over equal paths. `hop`
    gives the latency of one leaf-to-spine link; without it the climb costs nothing.
    """
    if nodes_per_leaf < 1 or not oversubscription > 0:
        raise InvalidInput(
            "leaf_spine needs 1 or more nodes per leaf and an oversubscription above 0, got "
            f"{nodes_per_leaf} and {oversubscription}"
        )
    names = [[port_vertex(n, p) for p in ports] for n in range(num_nodes)]
    leaves = [f"leaf{n // nodes_per_leaf}" for n in range(num_nodes)]
    links = [link for node, leaf in zip(names, leaves, strict=True) for p in node for link in port_links(p, leaf, port)]
    share = nodes_per_leaf * len(ports) / oversubscription
    links += _uplinks(list(dict.fromkeys(leaves)), port, hop, share)

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        climb = [leaves[a]] if leaves[a] == leaves[b] else [leaves[a], "spine", leaves[b]]
        return [names[a][q], *climb, names[b][r]]

    return NetworkPlan(tuple(links), route)


def _uplinks(leaves: list[str], port: Wire, hop: Wire | None, share: float) -> list[Link]:
    if len(leaves) < 2:
        return []
    seconds, kind = (hop.latency, hop.link.name) if hop else (0.0, port.link.name)
    bandwidth = port.bandwidth * share
    ups = [Link(leaf, "spine", seconds, bandwidth, kind) for leaf in leaves]
    return ups + [Link("spine", leaf, seconds, bandwidth, kind) for leaf in leaves]
