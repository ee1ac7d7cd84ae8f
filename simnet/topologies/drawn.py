"""Networks and nodes drawn link by link, as importers find them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.balance import chooser
from simnet.topologies.plan import NetworkPlan, NodePlan, both_ways, port_vertex
from simnet.topologies.registry import Scope, topology


@topology(
    Scope.NODE,
    devices=tuple(f"d{i}" for i in range(8)),
    ports=("nic",),
    links=("s nic wire", *(f"d{i} s wire" for i in range(8))),
)
def drawn_node(
    num_devices: int, *, devices: tuple[str, ...], ports: tuple[str, ...], links: tuple[str, ...], **wires: Wire
) -> NodePlan:
    """A node as a list of links: "gpu0 plx0 slot" joins two vertices both ways over the wire `slot`.

    devices and ports name vertices in rank order; one port serves all devices, or each has its own.
    """
    if len(devices) != num_devices or len(ports) not in (1, num_devices):
        raise InvalidInput(
            f"drawn_node needs {num_devices} devices and as many ports or one, got {len(devices)} and {len(ports)}"
        )
    chosen = ports if len(ports) == num_devices else ports * num_devices
    return NodePlan(tuple(drawn(links, wires)), devices, chosen)


@topology(Scope.NETWORK, links=("s0 s1 wire", *(f"n{n}/dev0 s{n // 4} wire" for n in range(8))))
def drawn_network(
    num_nodes: int,
    ports: Sequence[Vertex],
    *,
    links: tuple[str, ...],
    routing: str = "deterministic",
    seed: int = 0,
    **wires: Wire,
) -> NetworkPlan:
    """A network as a list of links between switches ("s1 s2 uplink") and ports ("n0/nic0 s1 port").

    Messages take a shortest path by links; among equal ones every switch chooses as `routing` says, by the two
    ends of the message. Links of nodes that are not used are left out.
    """
    known = {port_vertex(n, p) for n in range(num_nodes) for p in ports}
    kept = [row for row in links if all("/" not in end or end in known for end in row.split()[:2])]
    found = drawn(kept, wires)
    neighbours: dict[Vertex, list[Vertex]] = {}
    for link in found:
        neighbours.setdefault(link.src, []).append(link.dst)
    among = cache(partial(chooser, routing, seed=seed))
    among(1)
    toward: dict[Vertex, dict[Vertex, list[Vertex]]] = {}

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        src, dst = port_vertex(a, ports[q]), port_vertex(b, ports[r])
        # All ports of one switch are reached the same way: one search for each switch, not for each port.
        last = neighbours.get(dst, ())
        goal = last[0] if len(last) == 1 and src != last[0] else dst
        if goal not in toward:
            toward[goal] = _toward(goal, neighbours)
        ends = a * len(ports) + q, b * len(ports) + r
        hops = _followed(src, goal, toward[goal], lambda several: several[among(len(several))(*ends)])
        return [*hops, *([dst] if goal != dst else [])]

    return NetworkPlan(tuple(found), route)


def drawn(rows: Sequence[str], wires: dict[str, Wire]) -> list[Link]:
    """Links both ways of rows "from to wire" or "from to wire width".

    Raises
    ------
    InvalidInput : a row of another form, or a wire that is not given.
    """
    links: list[Link] = []
    for row in rows:
        parts = row.split()
        if len(parts) not in (3, 4) or parts[2] not in wires:
            raise InvalidInput(f"a drawn link is 'from to wire' or 'from to wire width', got {row!r}")
        links += both_ways(parts[0], parts[1], wires[parts[2]], share=float(parts[3]) if parts[3:] else 1.0)
    return links


def _toward(dst: Vertex, neighbours: dict[Vertex, list[Vertex]]) -> dict[Vertex, list[Vertex]]:
    """Next vertices on shortest ways to dst, for every vertex that reaches it; ports do not forward."""
    distance, following, queue = {dst: 0}, {dst: [dst]}, deque([dst])
    while queue:
        here = queue.popleft()
        if "/" in here and here != dst:
            continue
        for before in neighbours.get(here, ()):
            if before not in distance:
                distance[before] = distance[here] + 1
                following[before] = [here]
                queue.append(before)
            elif distance[before] == distance[here] + 1:
                following[before].append(here)
    return following


def _followed(
    src: Vertex,
    dst: Vertex,
    following: dict[Vertex, list[Vertex]],
    choose: Callable[[list[Vertex]], Vertex],
) -> list[Vertex]:
    if src not in following:
        raise InvalidInput(f"the fabric has no path from {src} to {dst}; add the missing links")
    hops = [src]
    while hops[-1] != dst:
        hops.append(choose(following[hops[-1]]))
    return hops
