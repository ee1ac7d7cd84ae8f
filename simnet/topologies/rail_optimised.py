"""One leaf per rail: port k of every node of a group meets on one switch."""

from __future__ import annotations

from collections.abc import Sequence

from simnet.fabric import Vertex
from simnet.hardware import Wire
from simnet.topologies.balance import chooser
from simnet.topologies.leaf_spine import climb, require_tiers
from simnet.topologies.plan import NetworkPlan, port_links, port_vertex
from simnet.topologies.registry import Scope, topology


@topology(Scope.NETWORK, nodes_per_group=4)
def rail_optimised(
    num_nodes: int,
    ports: Sequence[Vertex],
    *,
    port: Wire,
    nodes_per_group: int,
    hop: Wire | None = None,
    oversubscription: float = 1.0,
    spines: int = 1,
    routing: str = "deterministic",
    seed: int = 0,
) -> NetworkPlan:
    """Groups of nodes with one leaf per port number, all leaves below common spines.

    Devices of one rail are one switch apart inside a group; other pairs climb to a spine.

    Source: NVIDIA DGX SuperPOD reference architectures (2020 on).
    """
    require_tiers(nodes_per_group=nodes_per_group, oversubscription=oversubscription, spines=spines)
    leaf = [[f"leaf{n // nodes_per_group}.{q}" for q in range(len(ports))] for n in range(num_nodes)]
    links = [
        link
        for n in range(num_nodes)
        for q, p in enumerate(ports)
        for link in port_links(port_vertex(n, p), leaf[n][q], port)
    ]
    tops = [f"spine{s}" for s in range(spines)]
    lower = dict.fromkeys(name for node in leaf for name in node)
    if len(lower) > 1:
        links += climb(lower, tops, port, hop, nodes_per_group / oversubscription / spines)
    choose = chooser(routing, spines, seed=seed)

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        here, there = leaf[a][q], leaf[b][r]
        above = [] if here == there else [tops[choose(a * len(ports) + q, b * len(ports) + r)], there]
        return [port_vertex(a, ports[q]), here, *above, port_vertex(b, ports[r])]

    return NetworkPlan(tuple(links), route)
