"""Two tiers: leaf switches with nodes below, spines above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.balance import chooser
from simnet.topologies.plan import NetworkPlan, port_links, port_vertex
from simnet.topologies.registry import Scope, topology


@topology(Scope.NETWORK, nodes_per_leaf=4)
def leaf_spine(
    num_nodes: int,
    ports: Sequence[Vertex],
    *,
    port: Wire,
    nodes_per_leaf: int,
    hop: Wire | None = None,
    oversubscription: float = 1.0,
    spines: int = 1,
    routing: str = "deterministic",
    seed: int = 0,
) -> NetworkPlan:
    """Leaves with full bisection below and 1/oversubscription of their nodes' bandwidth above.

    A leaf has one uplink to each spine; with one spine that is their joint bandwidth, in perfect balance.
    `hop` gives the latency of one leaf-to-spine link; without it the climb costs nothing.
    """
    require_tiers(nodes_per_leaf=nodes_per_leaf, oversubscription=oversubscription, spines=spines)
    names = [[port_vertex(n, p) for p in ports] for n in range(num_nodes)]
    leaves = [f"leaf{n // nodes_per_leaf}" for n in range(num_nodes)]
    links = [link for node, leaf in zip(names, leaves, strict=True) for p in node for link in port_links(p, leaf, port)]
    share = nodes_per_leaf * len(ports) / oversubscription / spines
    tops = [f"spine{s}" for s in range(spines)]
    if leaves[0] != leaves[-1]:
        links += climb(dict.fromkeys(leaves), tops, port, hop, share)
    choose = chooser(routing, spines, seed=seed)

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        here, there = leaves[a], leaves[b]
        above = [] if here == there else [tops[choose(a * len(ports) + q, b * len(ports) + r)], there]
        return [names[a][q], here, *above, names[b][r]]

    return NetworkPlan(tuple(links), route)


def require_tiers(**values: float) -> None:
    """Raise InvalidInput where a count is below 1 or a ratio is not above 0."""
    for name, value in values.items():
        if not value > 0 or (isinstance(value, int) and value < 1):
            raise InvalidInput(f"{name} must be {'1 or more' if isinstance(value, int) else 'above 0'}, got {value}")


def climb(lower: Iterable[str], upper: Sequence[str], port: Wire, hop: Wire | None, share: float) -> list[Link]:
    """Links both ways from every lower to every upper switch, each `share` ports wide, with a hop's latency."""
    seconds, kind = (hop.latency, hop.link.name) if hop else (0.0, port.link.name)
    bandwidth = port.bandwidth * share
    ends = [pair for low in lower for high in upper for pair in ((low, high), (high, low))]
    return [Link(src, dst, seconds, bandwidth, kind) for src, dst in ends]
