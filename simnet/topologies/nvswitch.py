"""Devices around NVSwitches, over a PCIe tree."""

from __future__ import annotations

from simnet.hardware import Wire
from simnet.topologies.pcie_tree import require_tree, tree_links
from simnet.topologies.plan import NodePlan, both_ways
from simnet.topologies.registry import Scope, topology


@topology(Scope.NODE)
def nvswitch(
    num_devices: int,
    *,
    port: Wire,
    slot: Wire,
    socket: Wire,
    sockets: int = 2,
    switches: int = 4,
    nics: int = 8,
) -> NodePlan:
    """Every device on one NVSwitch plane over all its NVLinks (`port`), NICs beside the devices on PCIe switches.

    The NVSwitches of a node are non-blocking and spread evenly, so they are one vertex; half of the port's
    latency lies on each side of it.
    """
    require_tree(num_devices, sockets=sockets, switches=switches, nics=nics, socket=socket)
    links = [link for i in range(num_devices) for link in both_ways(f"gpu{i}", "nvswitch", port, latency=0.5)]
    links += tree_links(num_devices, slot=slot, socket=socket, uplink=None, sockets=sockets, switches=switches)
    for k in range(nics):
        links += both_ways(f"plx{k * switches // nics}", f"nic{k}", slot, latency=0.0)
    ports = tuple(f"nic{i * nics // num_devices}" for i in range(num_devices))
    return NodePlan(tuple(links), tuple(f"gpu{i}" for i in range(num_devices)), ports)
