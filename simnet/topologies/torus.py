"""Tori and meshes of any dimension, every node wired to its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.plan import NetworkPlan, both_ways, port_vertex
from simnet.topologies.registry import Scope, topology


@topology(Scope.NETWORK, dims=(4, 2))
def torus(
    num_nodes: int, ports: Sequence[Vertex], *, link: Wire, dims: tuple[int, ...], wrap: bool = True
) -> NetworkPlan:
    """Nodes on a grid of `dims`, one link to each neighbour; messages correct the last dimension first.

    Fewer nodes than the grid holds are the first ones of the smallest block that holds them, closest to a
    cube; it wraps around only in dimensions it fills.
    """
    require_one_port(ports)
    block = sub_block(num_nodes, dims)
    closed = [wrap and side == full for side, full in zip(block, dims, strict=True)]
    places = list(product(*(range(side) for side in block)))
    index = {place: node for node, place in enumerate(places)}
    links: list[Link] = []
    for place in places:
        for axis, side in enumerate(block):
            ahead = _ahead(place, axis, side, closed=closed[axis])
            if ahead is not None:
                links += both_ways(port_vertex(index[place], ports[0]), port_vertex(index[ahead], ports[0]), link)

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        steps = dimension_order(places[a], places[b], block, closed)
        return [port_vertex(index[place], ports[0]) for place in steps]

    return NetworkPlan(tuple(links), route)


def require_one_port(ports: Sequence[Vertex]) -> None:
    """Raise InvalidInput where a node has several ports, which a direct network cannot tell apart."""
    if len(ports) != 1:
        raise InvalidInput(f"a torus needs nodes with one port, got {len(ports)}; use one device per node")


def sub_block(num_nodes: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Sides of the smallest block inside dims with num_nodes places or more; among equals closest to a cube.

    Raises
    ------
    InvalidInput : a side below 1, or fewer places than nodes.
    """
    if not dims or any(side < 1 for side in dims) or prod(dims) < num_nodes:
        raise InvalidInput(f"torus dimensions must be 1 or more each and hold {num_nodes} nodes, got {dims}")
    blocks = (_filled(num_nodes, head) for head in product(*(range(1, side + 1) for side in dims[:-1])))
    return min((b for b in blocks if b[-1] <= dims[-1]), key=lambda block: (prod(block), sum(block), block))


def _filled(num_nodes: int, head: tuple[int, ...]) -> tuple[int, ...]:
    return (*head, -(-num_nodes // prod(head)))


def _ahead(place: tuple[int, ...], axis: int, side: int, *, closed: bool) -> tuple[int, ...] | None:
    step = place[axis] + 1
    if step == side and not (closed and side > 2):
        return None
    return (*place[:axis], step % side, *place[axis + 1 :])


def dimension_order(
    src: tuple[int, ...], dst: tuple[int, ...], block: Sequence[int], closed: Sequence[bool]
) -> list[tuple[int, ...]]:
    """Places from src to dst, the last dimension first, the short way around (forward where equal)."""
    place, steps = list(src), [src]
    for axis in reversed(range(len(block))):
        forward = (dst[axis] - place[axis]) % block[axis]
        direct = dst[axis] - place[axis]
        way = direct if not closed[axis] else forward if 2 * forward <= block[axis] else forward - block[axis]
        for _ in range(abs(way)):
            place[axis] = (place[axis] + (1 if way > 0 else -1)) % block[axis]
            steps.append(tuple(place))
    return steps
