"""A picture of a machine: one node on the left, the network on the right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnet.errors import InvalidInput
from simnet.fabric import Link, Vertex
from simnet.hardware import Cluster
from simnet.topologies.registry import network_plan, node_plan
from simnet.topologies.torus import sub_block
from simnet.units import format_si

if TYPE_CHECKING:
    import matplotlib.axes

# Height of a vertex by the letters its name begins with; unknown ones go to the height of a switch.
_TIERS = {
    "gpu": 0, "dev": 0, "nvswitch": 1, "plx": -1, "pci": -1, "pxb": -1.3, "host": -1.7, "cpu": -2, "numa": -2,
    "system": -2.2, "nic": -2.6, "mlx": -2.6, "leaf": 1, "switch": 1, "router": 1,
}  # fmt: skip
_TOP = {"agg": 2, "spine": 2, "core": 3}
_COLOURS = {
    "gpu": "#4878a8", "dev": "#4878a8", "nvswitch": "#76b041", "plx": "#b9a04a", "pci": "#b9a04a",
    "cpu": "#a06a4a", "numa": "#a06a4a", "nic": "#c45a5a", "mlx": "#c45a5a",
}  # fmt: skip
_LINKS = ("#4878a8", "#c45a5a", "#76b041", "#8a63a8", "#b9a04a", "#55606e")

MOST_NODES = 64
MOST_PLACES = 256
MOST_LABELS = 20


def draw(cluster: Cluster, path: Path) -> None:
    """Write a picture of the cluster; of a large one its first nodes.

    Raises
    ------
    InvalidInput : the file's name has no ending matplotlib can write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.4))
    _node(left, cluster)
    _network(right, cluster)
    figure.suptitle(cluster.summary, fontsize=11)
    try:
        figure.savefig(path, dpi=120)
    except ValueError as error:
        raise InvalidInput(f"cannot draw {path}: {error}; name a file that ends with .png, .svg or .pdf") from error
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}; name a folder that exists") from error


def _node(axes: matplotlib.axes.Axes, cluster: Cluster) -> None:
    plan = node_plan(cluster)
    vertices = list(dict.fromkeys(v for link in plan.links for v in (link.src, link.dst))) or list(plan.devices)
    axes.set_title(f"node: {cluster.node.num_devices} x {cluster.node.device.name}, {cluster.node.layout.topology}")
    _graph(axes, vertices, plan.links, _layered(vertices), line=_line)


def _network(axes: matplotlib.axes.Axes, cluster: Cluster) -> None:
    shown = _shown(cluster)
    plan = network_plan(cluster, shown)
    vertices = list(dict.fromkeys(v for link in plan.links for v in (link.src, link.dst)))
    part = f"first {shown} of {cluster.num_nodes} nodes" if shown < cluster.num_nodes else f"{shown} nodes"
    axes.set_title(f"network: {cluster.network.topology}, {part}")
    if not vertices:
        axes.axis("off")
        return
    dims = cluster.network.options.get("dims")
    if cluster.network.topology in ("torus", "ring") and isinstance(dims, tuple):
        places = _grid(vertices, sub_block(shown, tuple(int(d) for d in dims)))
        _graph(axes, vertices, plan.links, places, line=_grid_line)
        return
    if any(vertex.startswith(("leaf", "switch", "spine")) for vertex in vertices):
        places = _layered(vertices)
    else:
        places = _circle(vertices)
    _graph(axes, vertices, plan.links, places, line=_line)


def _shown(cluster: Cluster) -> int:
    if cluster.network.topology == "torus":
        return min(cluster.num_nodes, MOST_PLACES)
    options = cluster.network.options
    group = options.get("nodes_per_leaf", options.get("nodes_per_group", MOST_NODES))
    wanted = 2 * group if isinstance(group, int) else MOST_NODES
    return min(cluster.num_nodes, wanted if wanted <= 2 * MOST_NODES else MOST_NODES)


Place = tuple[float, float]
Places = dict[Vertex, Place]


def _kind(vertex: Vertex) -> str:
    found = re.match(r"[a-z]+", vertex.rpartition("/")[2])
    return found[0] if found else ""


def _layered(vertices: Sequence[Vertex]) -> Places:
    rows: dict[float, list[Vertex]] = {}
    for vertex in vertices:
        rows.setdefault((_TIERS | _TOP).get(_kind(vertex), 1), []).append(vertex)
    places: Places = {}
    for height, row in rows.items():
        lift = 0.25 if len(row) > 2 and height == 0 else 0.0
        for i, vertex in enumerate(row):
            places[vertex] = ((i + 0.5) / len(row), height + lift * (i % 2))
    return places


def _grid(vertices: Sequence[Vertex], block: tuple[int, ...]) -> Places:
    places: Places = {}
    for vertex in vertices:
        node = int(vertex[1:].partition("/")[0])
        row, column = divmod(node, block[-1])
        plane, row = divmod(row, block[-2]) if len(block) > 1 else (0, row)
        places[vertex] = (column + 0.35 * plane, -row + 0.35 * plane)
    return places


def _circle(vertices: Sequence[Vertex]) -> Places:
    from math import cos, pi, sin

    angles = {vertex: 2 * pi * i / len(vertices) for i, vertex in enumerate(vertices)}
    return {vertex: (cos(angle), sin(angle)) for vertex, angle in angles.items()}


def _graph(
    axes: matplotlib.axes.Axes,
    vertices: Sequence[Vertex],
    links: Sequence[Link],
    places: Places,
    *,
    line: Callable[[Any, Place, Place, str, float], None],
) -> None:
    types = list(dict.fromkeys((link.kind, link.bandwidth) for link in links))
    colours = {one: _LINKS[i % len(_LINKS)] for i, one in enumerate(types)}
    widest = max((link.bandwidth for link in links), default=1.0)
    for link in links:
        if link.src < link.dst:
            colour = colours[link.kind, link.bandwidth]
            line(axes, places[link.src], places[link.dst], colour, link.bandwidth / widest)
    small = len(vertices) > 40
    crowded = {height for height, number in Counter(y for _, y in places.values()).items() if number > MOST_LABELS}
    for vertex in vertices:
        x, y = places[vertex]
        axes.plot(x, y, "o", markersize=5 if small else 15, color=_COLOURS.get(_kind(vertex), "#55606e"), zorder=3)
        if not small or not (vertex.startswith("n") or y in crowded):
            axes.annotate(vertex, (x, y), (0, 9), textcoords="offset points", ha="center", fontsize=7, zorder=4)
    handles = [axes.plot([], [], color=colours[one], label=f"{one[0]}  {format_si(one[1], 'B/s')}")[0] for one in types]
    if handles:
        axes.legend(
            handles=handles, loc="lower center", bbox_to_anchor=(0.5, -0.12), ncols=3, fontsize=8, frameon=False
        )
    axes.axis("off")
    axes.margins(0.08, 0.08 if small else 0.2)  # arcs between devices rise above the topmost row


def _line(axes: Any, a: Place, b: Place, colour: str, share: float) -> None:
    a, b = sorted((a, b))
    level = abs(a[1] - b[1]) < 0.3 and b[0] - a[0] > 0.3
    style = {"arrowstyle": "-", "color": colour, "linewidth": 0.8 + 2.2 * share, "shrinkA": 0, "shrinkB": 0}
    if level:
        style["connectionstyle"] = "arc3,rad=0.3"
    axes.annotate("", a, b, arrowprops=style, zorder=1)


def _grid_line(axes: Any, a: Place, b: Place, colour: str, share: float) -> None:
    """A straight line between neighbours; a link around the edge is two dotted stubs."""
    width = 0.8 + 2.2 * share
    across, along = b[0] - a[0], b[1] - a[1]
    length = (across**2 + along**2) ** 0.5
    if length < 1.5:
        axes.plot((a[0], b[0]), (a[1], b[1]), color=colour, linewidth=width, zorder=1)
        return
    for (x, y), sign in ((a, -0.45), (b, 0.45)):
        ends = (x, x + sign * across / length), (y, y + sign * along / length)
        axes.plot(*ends, ":", color=colour, linewidth=width, zorder=1)
