"""Dragonfly: groups of fully connected routers, and one link between every pair of groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.leaf_spine import require_tiers
from simnet.topologies.plan import NetworkPlan, both_ways, port_links, port_vertex
from simnet.topologies.registry import Scope, topology


@topology(Scope.NETWORK, nodes_per_router=2, routers_per_group=2, globals_per_router=1)
def dragonfly(
    num_nodes: int,
    ports: Sequence[Vertex],
    *,
    port: Wire,
    local: Wire,
    distant: Wire,
    nodes_per_router: int,
    routers_per_group: int,
    globals_per_router: int,
) -> NetworkPlan:
    """Routers of a group linked pair by pair, groups linked pair by pair; minimal routing, at most five links.

    A group has routers_per_group * globals_per_router links to other groups; group i keeps them in the order
    of the groups after it.

    Source: Kim, Dally, Scott & Abts, ISCA 2008.
    """
    require_tiers(
        nodes_per_router=nodes_per_router, routers_per_group=routers_per_group, globals_per_router=globals_per_router
    )
    per_group = nodes_per_router * routers_per_group
    groups = -(-num_nodes // per_group)
    if groups - 1 > routers_per_group * globals_per_router:
        raise InvalidInput(
            f"dragonfly: {groups} groups need {groups - 1} links to others from each, got "
            f"{routers_per_group} routers with {globals_per_router} each; use fewer nodes or more links"
        )

    def gateway(group: int, other: int) -> str:
        return f"router{group}.{(other - group - 1) % groups // globals_per_router}"

    links: list[Link] = []
    for n in range(num_nodes):
        for p in ports:
            links += port_links(port_vertex(n, p), _router(n, per_group, nodes_per_router), port)
    for g in range(groups):
        for x, y in combinations(range(routers_per_group), 2):
            links += both_ways(f"router{g}.{x}", f"router{g}.{y}", local)
    for g, h in combinations(range(groups), 2):
        links += both_ways(gateway(g, h), gateway(h, g), distant)

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        here, there = (_router(n, per_group, nodes_per_router) for n in (a, b))
        g, h = a // per_group, b // per_group
        between = [here, there] if g == h else [here, gateway(g, h), gateway(h, g), there]
        hops = list(dict.fromkeys(between))
        return [port_vertex(a, ports[q]), *hops, port_vertex(b, ports[r])]

    return NetworkPlan(tuple(links), route)


def _router(node: int, per_group: int, nodes_per_router: int) -> str:
    return f"router{node // per_group}.{node % per_group // nodes_per_router}"
