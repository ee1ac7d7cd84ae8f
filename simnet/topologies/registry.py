"""Find the topologies of this package and build fabrics: add a file with a `@topology` function, and it is there.

A topology for the inside of a node is `f(num_devices, **wires and options) -> NodePlan`; one for the
network between nodes is `f(num_nodes, ports, **wires and options) -> NetworkPlan`, with ports the local
names of a node's ports. Parameters annotated `Wire` are wires, all others are options. Every node topology
also takes the wire `copy_engine`, which all traffic of a device passes, one per direction.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from simnet.errors import InvalidInput
from simnet.fabric import Fabric, Link, Vertex
from simnet.hardware import Cluster, Layout, Option
from simnet.paths import FabricPaths, Paths, UniformPaths
from simnet.placement import Placement, linear
from simnet.topologies.plan import NetworkPlan, NodePlan, port_vertex, with_copy_engines
from simnet.topologies.routing import Router


class Scope(StrEnum):
    """What a topology wires up."""

    NODE = "node"
    NETWORK = "network"


COPY_ENGINE = "copy_engine"  # a wire every node topology takes


@dataclass(frozen=True, slots=True)
class Topology:
    """A named rule that builds a plan."""

    name: str
    scope: Scope
    build: Callable[..., Any]
    example: Mapping[str, Option]

    @property
    def summary(self) -> str:
        """First line of the builder's docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Wires and options by name."""
        given = inspect.signature(self.build).parameters
        return {name: p for name, p in given.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}

    @property
    def open(self) -> bool:
        """Whether wires of any name may be given."""
        return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(self.build).parameters.values())


@dataclass(frozen=True, slots=True)
class BuiltFabric:
    """A fabric and its devices, node after node, in the order ranks are placed on them."""

    fabric: Fabric
    devices: tuple[Vertex, ...]
    devices_per_node: int


_registry: dict[str, Topology] = {}


def topology(scope: Scope, **example: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a builder under its own name.

    Parameters
    ----------
    example : options without a default, of a small instance that the tests can build; wires they give themselves.
        Networks are built of 8 nodes, nodes of 8 devices.
    """

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        _registry[build.__name__] = Topology(build.__name__, scope, build, example)
        return build

    return register


@cache
def _load() -> None:
    package = importlib.import_module("simnet.topologies")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"simnet.topologies.{module.name}")


def topologies(scope: Scope | None = None) -> dict[str, Topology]:
    """Return all topologies by name, or those for nodes or networks."""
    _load()
    return {name: t for name, t in sorted(_registry.items()) if scope is None or t.scope == scope}


def require(layout: Layout, scope: Scope, *, place: str) -> Topology:
    """Return the topology of a layout, after checking that its wires and options are those it takes.

    Raises
    ------
    InvalidInput : unknown topology, or a wire or option it lacks or does not take; place says where.
    """
    known = topologies(scope)
    if layout.topology not in known:
        raise InvalidInput(f"{place}: unknown {scope} topology {layout.topology!r}; choose one of {', '.join(known)}")
    chosen = known[layout.topology]
    given = (set(layout.wires) | set(layout.options)) - ({COPY_ENGINE} if scope is Scope.NODE else set())
    loose = set(layout.wires) if chosen.open else set()
    for name in sorted(given - set(chosen.parameters) - loose):
        takes = ", ".join(chosen.parameters) or "none"
        raise InvalidInput(f"{place}: {chosen.name} takes no wire or option {name!r}; it takes {takes}")
    for name, parameter in chosen.parameters.items():
        is_wire = "Wire" in str(parameter.annotation)
        if name not in given and parameter.default is inspect.Parameter.empty:
            raise InvalidInput(f"{place}: {chosen.name} needs the {'wire' if is_wire else 'option'} {name!r}")
        if (name in layout.options and is_wire) or (name in layout.wires and not is_wire):
            raise InvalidInput(f"{place}: {name!r} of {chosen.name} is {'a wire' if is_wire else 'an option'}")
    return chosen


def node_plan(cluster: Cluster) -> NodePlan:
    """Wire up one node of the cluster."""
    layout = cluster.node.layout
    chosen = require(layout, Scope.NODE, place=f"cluster {cluster.name}")
    wires = {name: wire for name, wire in layout.wires.items() if name != COPY_ENGINE}
    plan: NodePlan = chosen.build(cluster.node.num_devices, **wires, **layout.options)
    return with_copy_engines(plan, layout.wires[COPY_ENGINE]) if COPY_ENGINE in layout.wires else plan


def network_plan(cluster: Cluster, num_nodes: int) -> NetworkPlan:
    """Wire up the network between the first num_nodes nodes."""
    layout = cluster.network
    chosen = require(layout, Scope.NETWORK, place=f"cluster {cluster.name}")
    plan: NetworkPlan = chosen.build(num_nodes, node_plan(cluster).distinct_ports, **layout.wires, **layout.options)
    return plan


def build(cluster: Cluster, num_nodes: int) -> BuiltFabric:
    """Wire up the first num_nodes nodes of a cluster.

    Raises
    ------
    InvalidInput : more nodes than the cluster has, or a topology that cannot be built so.
    """
    if not 1 <= num_nodes <= cluster.num_nodes:
        raise InvalidInput(
            f"{cluster.name} has {cluster.num_nodes} nodes, got {num_nodes}; ask for 1 to {cluster.num_nodes}"
        )
    node, network = node_plan(cluster), network_plan(cluster, num_nodes)
    links = [*_stamped(node.links, num_nodes), *network.links]
    per_node = cluster.node.num_devices
    devices = tuple(port_vertex(n, device) for n in range(num_nodes) for device in node.devices)
    router = Router(node, network, devices)
    return BuiltFabric(Fabric(links, closed_form=router.route, legs=router.legs), devices, per_node)


def _stamped(links: Sequence[Link], num_nodes: int) -> list[Link]:
    return [
        replace(link, src=port_vertex(n, link.src), dst=port_vertex(n, link.dst))
        for n in range(num_nodes)
        for link in links
    ]


def _is_uniform(cluster: Cluster) -> bool:
    alone = cluster.node.num_devices == 1 and cluster.node.layout.topology == "single"
    return alone and not cluster.node.layout.wires and cluster.network.topology == "single_switch"


Placer = Callable[[Sequence[Vertex], int], Placement]


def cluster_paths(
    cluster: Cluster, world_size: int, *, ranks_per_node: int | None = None, placement: Placer | None = None
) -> Paths:
    """Place ranks on as few nodes as they need and return what their messages travel over.

    Parameters
    ----------
    ranks_per_node : use only the first so many devices of every node; default all.
    placement : gives the placement of world_size ranks on devices in node order; default is in that order.

    Raises
    ------
    InvalidInput : the cluster has not enough nodes or devices.
    """
    per_node = cluster.node.num_devices if ranks_per_node is None else ranks_per_node
    if not 1 <= per_node <= cluster.node.num_devices:
        raise InvalidInput(f"ranks per node must be 1 to {cluster.node.num_devices} on {cluster.name}, got {per_node}")
    if not 1 <= world_size <= per_node * cluster.num_nodes:
        raise InvalidInput(
            f"ranks must be 1 to {per_node * cluster.num_nodes} on {cluster.name} with {per_node} per node, "
            f"got {world_size}"
        )
    port = cluster.network.wires.get("port")
    if placement is None and port and _is_uniform(cluster):
        return UniformPaths(world_size, port.latency, port.bandwidth)
    built = build(cluster, -(-world_size // per_node))
    devices = [d for index, d in enumerate(built.devices) if index % built.devices_per_node < per_node]
    return FabricPaths(built.fabric, (placement or linear)(devices, world_size))
