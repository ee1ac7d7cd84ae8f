"""Small fabrics for tests."""

from __future__ import annotations

from itertools import pairwise

from simnet.fabric import Fabric, Link
from simnet.paths import FabricPaths
from simnet.placement import Placement

US, GB = 1e-6, 1e9


def nodes(
    num_nodes: int, per_node: int, *, nic: float = 25 * GB, pair: float = 48.5 * GB, ranks: int | None = None
) -> FabricPaths:
    """Devices with `pair` bytes/s and 1.9 us to each other inside a node; one NIC link per node and direction.

    A message between nodes takes 2.54 us; ranks are the first devices, default all.
    """
    links = []
    for node in range(num_nodes):
        devices = [f"d{node}.{i}" for i in range(per_node)]
        links += [Link(a, b, 1.9 * US, pair) for a in devices for b in devices if a != b]
        links += [Link(d, f"host{node}", 0.0, 1e3 * nic) for d in devices]
        links += [Link(f"host{node}", d, 0.0, 1e3 * nic) for d in devices]
        links += [Link(f"host{node}", "switch", 2.54 * US, nic), Link("switch", f"host{node}", 0.0, nic)]
    places = [f"d{n}.{i}" for n in range(num_nodes) for i in range(per_node)]
    return FabricPaths(Fabric(links, closed_form=_between(per_node)), Placement(tuple(places[:ranks])))


def _between(per_node: int):
    def route(src: str, dst: str) -> list[str]:
        a, b = src[1:].split(".", maxsplit=1)[0], dst[1:].split(".", maxsplit=1)[0]
        return [src, dst] if a == b else [src, f"host{a}", "switch", f"host{b}", dst]

    return route


def torus(columns: int, rows: int, *, bandwidth: float = 82 * GB, latency: float = 1 * US) -> Fabric:
    """Vertices "x,y" with a link to each of four neighbours."""
    links = {}
    for y in range(rows):
        for x in range(columns):
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                ends = f"{x},{y}", f"{(x + dx) % columns},{(y + dy) % rows}"
                if ends[0] != ends[1]:
                    links[ends] = Link(*ends, latency, bandwidth)
    return Fabric(links.values())


def on_torus(fabric: Fabric, columns: int, rows: int, *, cycle: bool = False) -> FabricPaths:
    """Ranks row by row, or around a Hamiltonian cycle of neighbours (rows must be even)."""
    places = [(x, y) for y in range(rows) for x in range(columns)]
    if cycle:
        places = [(x, y) for y in range(rows) for x in (range(1, columns) if y % 2 == 0 else range(columns - 1, 0, -1))]
        places += [(0, y) for y in reversed(range(rows))]
        assert all(abs(a - c) + abs(b - d) in (1, columns - 1) for (a, b), (c, d) in pairwise(places))
    return FabricPaths(fabric, Placement(tuple(f"{x},{y}" for x, y in places)))
