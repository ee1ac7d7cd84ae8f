"""Devices linked pair by pair."""

from __future__ import annotations

from itertools import combinations

from simnet.errors import InvalidInput
from simnet.hardware import Wire
from simnet.topologies.plan import NodePlan, both_ways
from simnet.topologies.registry import Scope, topology


@topology(Scope.NODE)
def mesh(num_devices: int, *, pair: Wire, host: Wire, nics: int = 1) -> NodePlan:
    """Every pair of devices has a link of its own; devices leave by one of `nics` NICs, each over a host wire.

    Device i uses NIC i * nics // num_devices.
    """
    if not 1 <= nics <= num_devices:
        raise InvalidInput(f"mesh needs 1 to {num_devices} NICs for {num_devices} devices, got {nics}")
    devices = tuple(f"gpu{i}" for i in range(num_devices))
    ports = tuple(f"nic{i * nics // num_devices}" for i in range(num_devices))
    links = [link for a, b in combinations(devices, 2) for link in both_ways(a, b, pair)]
    for device, port in zip(devices, ports, strict=True):
        links += both_ways(device, port, host)
    return NodePlan(tuple(links), devices, ports)
