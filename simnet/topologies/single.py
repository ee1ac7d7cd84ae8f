"""One device per node."""

from __future__ import annotations

from simnet.hardware import Wire
from simnet.topologies.plan import NodePlan, both_ways
from simnet.topologies.registry import Scope, topology


@topology(Scope.NODE)
def single(num_devices: int, *, host: Wire | None = None) -> NodePlan:
    """Each device is its own port, or reaches one of its own over a host wire; devices of a node share nothing."""
    devices = tuple(f"dev{i}" for i in range(num_devices))
    if host is None:
        return NodePlan((), devices, devices)
    ports = tuple(f"nic{i}" for i in range(num_devices))
    links = [link for device, port in zip(devices, ports, strict=True) for link in both_ways(device, port, host)]
    return NodePlan(tuple(links), devices, ports)
