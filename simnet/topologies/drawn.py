"""Networks and nodes drawn link by link, as importers find them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.plan import NetworkPlan, NodePlan, both_ways, port_vertex
from simnet.topologies.registry import Scope, topology


@topology(Scope.NODE)
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


@topology(Scope.NETWORK)
def drawn_network(num_nodes: int, ports: Sequence[Vertex], *, links: tuple[str, ...], **wires: Wire) -> NetworkPlan:
    """A network as a list of links between switches ("s1 s2 uplink") and ports ("n0/nic0 s1 port").

    Messages take the shortest path by links, the first one found. Links of nodes that are not used are left out.
    """
    known = {port_vertex(n, p) for n in range(num_nodes) for p in ports}
    kept = [row for row in links if all("/" not in end or end in known for end in row.split()[:2])]
    found = drawn(kept, wires)
    neighbours: dict[Vertex, list[Vertex]] = {}
    for link in found:
        neighbours.setdefault(link.src, []).append(link.dst)
    parents: dict[Vertex, dict[Vertex, Vertex]] = {}

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        src, dst = port_vertex(a, ports[q]), port_vertex(b, ports[r])
        if dst not in parents:
            parents[dst] = _toward(dst, neighbours)
        return _followed(src, dst, parents[dst])

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


def _toward(dst: Vertex, neighbours: dict[Vertex, list[Vertex]]) -> dict[Vertex, Vertex]:
    """Next vertex on the way to dst, for every vertex that reaches it; links go both ways, ports do not forward."""
    following = {dst: dst}
    queue = deque([dst])
    while queue:
        here = queue.popleft()
        if "/" in here and here != dst:
            continue
        for before in neighbours.get(here, ()):
            if before not in following:
                following[before] = here
                queue.append(before)
    return following


def _followed(src: Vertex, dst: Vertex, following: dict[Vertex, Vertex]) -> list[Vertex]:
    if src not in following:
        raise InvalidInput(f"the fabric has no path from {src} to {dst}; add the missing links")
    hops = [src]
    while hops[-1] != dst:
        hops.append(following[hops[-1]])
    return hops
