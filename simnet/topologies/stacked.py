"""Dimensions stacked on each other: rings, full meshes and switches, as analytical simulators describe networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import prod

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.plan import NetworkPlan, both_ways, port_links, port_vertex
from simnet.topologies.registry import Scope, topology
from simnet.topologies.torus import dimension_order, require_one_port

KINDS = ("ring", "mesh", "switch")


@topology(Scope.NETWORK, dims=(8,), kinds="ring")
def stacked(
    num_nodes: int,
    ports: Sequence[Vertex],
    *,
    dims: tuple[int, ...],
    kinds: str,
    dim0: Wire,
    dim1: Wire | None = None,
    dim2: Wire | None = None,
    dim3: Wire | None = None,
) -> NetworkPlan:
    """Nodes on a grid; along dimension k every line is a ring, a full mesh or one switch over the wire dim<k>.

    kinds names one of ring, mesh and switch per dimension ("ring,mesh,switch"); the first dimension is the
    innermost: nodes 0 to dims[0] - 1 differ only in it. Messages correct the first dimension first.
    """
    wires = [wire for wire in (dim0, dim1, dim2, dim3) if wire is not None]
    words = kinds.split(",")
    require_one_port(ports)
    if not len(words) == len(wires) == len(dims) or set(words) - set(KINDS) or num_nodes > prod(dims):
        raise InvalidInput(
            f"stacked needs one of {', '.join(KINDS)} and one wire per dimension and at most {prod(dims)} nodes, got "
            f"{kinds!r}, {len(wires)} wires, dimensions {dims}, {num_nodes} nodes"
        )
    sides = tuple(reversed(dims))
    places = list(product(*(range(side) for side in sides)))
    names = {place: port_vertex(node, ports[0]) for node, place in enumerate(places)}
    links: list[Link] = []
    for k, (word, wire) in enumerate(zip(words, wires, strict=True)):
        axis = len(dims) - 1 - k
        for line in _lines(places, axis, sides[axis]):
            links += _wired(word, wire, [names[place] for place in line], _switch(k, line[0], axis))

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        here, there = places[a], places[b]
        hops = [names[here]]
        for k, word in enumerate(words):
            axis = len(dims) - 1 - k
            goal = (*here[:axis], there[axis], *here[axis + 1 :])
            if word == "switch" and here != goal:
                hops.append(_switch(k, here, axis))
            hops += [names[place] for place in _along(word, here, goal, sides)]
            here = goal
        return hops

    return NetworkPlan(tuple(links), route)


Place = tuple[int, ...]


def _lines(places: Sequence[Place], axis: int, side: int) -> list[list[Place]]:
    starts = [place for place in places if place[axis] == 0]
    return [[(*start[:axis], x, *start[axis + 1 :]) for x in range(side)] for start in starts]


def _switch(k: int, place: Place, axis: int) -> str:
    return ".".join([f"switch{k}", *(str(x) for i, x in enumerate(place) if i != axis)])


def _wired(word: str, wire: Wire, line: list[Vertex], switch: Vertex) -> list[Link]:
    if len(line) < 2:
        return []
    if word == "switch":
        return [link for name in line for link in port_links(name, switch, wire)]
    around = list(zip(line, [*line[1:], line[0]], strict=True))[: len(line) if len(line) > 2 else 1]
    pairs = around if word == "ring" else list(combinations(line, 2))
    return [link for a, b in pairs for link in both_ways(a, b, wire)]


def _along(word: str, here: Place, goal: Place, sides: Place) -> list[Place]:
    if here == goal or word != "ring":
        return [goal] if here != goal else []
    return dimension_order(here, goal, sides, [side > 2 for side in sides])[1:]
