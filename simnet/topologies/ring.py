"""Nodes in a circle."""

from __future__ import annotations

from collections.abc import Sequence

from simnet.fabric import Vertex
from simnet.hardware import Wire
from simnet.topologies.plan import NetworkPlan
from simnet.topologies.registry import Scope, topology
from simnet.topologies.torus import torus


@topology(Scope.NETWORK)
def ring(num_nodes: int, ports: Sequence[Vertex], *, link: Wire, wrap: bool = True) -> NetworkPlan:
    """Each node linked to the next, the last to the first if `wrap`; messages go the short way around."""
    plan: NetworkPlan = torus(num_nodes, ports, link=link, dims=(num_nodes,), wrap=wrap)
    return plan
