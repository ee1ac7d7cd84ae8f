"""Networks given as routes: which named links a message between two nodes crosses, in order."""

from __future__ import annotations

from collections.abc import Sequence

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.plan import NetworkPlan, port_vertex
from simnet.topologies.registry import Scope, topology
from simnet.topologies.torus import require_one_port

# Kind and bandwidth of the joint between two named links, which limits nothing.
FREE, _UNLIMITED = "joint", 1e18


@topology(
    Scope.NETWORK,
    links=tuple(f"l{n} wire" for n in range(8)),
    routes=tuple(f"{a} {b} l{a} l{b}" for a in range(8) for b in range(8) if a != b),
)
def routed(
    num_nodes: int, ports: Sequence[Vertex], *, links: tuple[str, ...], routes: tuple[str, ...], **wires: Wire
) -> NetworkPlan:
    """Links "name wire", and routes "a b name name ..." for every ordered pair of nodes that can talk.

    A link has one direction; one that both directions share is named in the routes of both.
    """
    require_one_port(ports)
    built = {}
    for row in links:
        name, _, key = row.partition(" ")
        if key not in wires:
            raise InvalidInput(f"a routed link is 'name wire', got {row!r}; give the wire {key!r}")
        built[name] = Link(f"{name}.in", f"{name}.out", wires[key].latency, wires[key].bandwidth, wires[key].link.name)
    paths = dict(_route(row, built) for row in routes)
    kept = {ends: names for ends, names in paths.items() if max(ends) < num_nodes}
    joints = {hop: None for (a, b), names in kept.items() for hop in _joints(a, b, names, ports[0])}
    used = dict.fromkeys(name for names in kept.values() for name in names)
    found = [built[name] for name in used] + [Link(src, dst, 0.0, _UNLIMITED, FREE) for src, dst in joints]

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        if (a, b) not in kept:
            raise InvalidInput(f"the network has no route from node {a} to node {b}; add it to routes")
        inside = [vertex for name in kept[a, b] for vertex in (f"{name}.in", f"{name}.out")]
        return [port_vertex(a, ports[0]), *inside, port_vertex(b, ports[0])]

    return NetworkPlan(tuple(found), route)


def _route(row: str, built: dict[str, Link]) -> tuple[tuple[int, int], list[str]]:
    words = row.split()
    unknown = [name for name in words[2:] if name not in built]
    if len(words) < 3 or not (words[0].isdigit() and words[1].isdigit()) or unknown:
        raise InvalidInput(f"a route is 'from to link link ...' over links that are given, got {row!r}")
    return (int(words[0]), int(words[1])), words[2:]


def _joints(a: int, b: int, names: list[str], port: Vertex) -> list[tuple[Vertex, Vertex]]:
    outs = [port_vertex(a, port), *(f"{name}.out" for name in names)]
    ins = [*(f"{name}.in" for name in names), port_vertex(b, port)]
    return list(zip(outs, ins, strict=True))
