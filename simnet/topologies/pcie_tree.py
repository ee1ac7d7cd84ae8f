"""Devices below PCIe switches, host bridges and the link between sockets."""

from __future__ import annotations

from itertools import combinations

from simnet.errors import InvalidInput
from simnet.fabric import Link
from simnet.hardware import Wire
from simnet.topologies.plan import NodePlan, both_ways
from simnet.topologies.registry import Scope, topology


@topology(Scope.NODE)
def pcie_tree(
    num_devices: int,
    *,
    slot: Wire,
    socket: Wire | None = None,
    uplink: Wire | None = None,
    sockets: int = 2,
    switches: int = 2,
    nics: int = 1,
) -> NodePlan:
    """Devices and NICs in slots of PCIe switches, switches below host bridges, sockets linked pair by pair.

    Device i sits on switch i * switches // num_devices, switch s on socket s * sockets // switches, NIC k on
    switch k * switches // nics; device i leaves by NIC i * nics // num_devices. uplink, from switch to
    host bridge, defaults to the slot's wire.
    """
    require_tree(num_devices, sockets=sockets, switches=switches, nics=nics, socket=socket)
    devices = tuple(f"gpu{i}" for i in range(num_devices))
    ports = tuple(f"nic{i * nics // num_devices}" for i in range(num_devices))
    links = tree_links(num_devices, slot=slot, socket=socket, uplink=uplink, sockets=sockets, switches=switches)
    for k in range(nics):
        links += both_ways(f"plx{k * switches // nics}", f"nic{k}", slot, latency=0.0)
    return NodePlan(tuple(links), devices, ports)


def require_tree(num_devices: int, *, sockets: int, switches: int, nics: int, socket: Wire | None) -> None:
    """Raise InvalidInput unless sockets, switches and NICs divide the devices evenly enough to be wired."""
    if not 1 <= sockets <= switches <= num_devices or not 1 <= nics <= num_devices:
        raise InvalidInput(
            f"a PCIe tree needs 1 <= sockets <= switches <= devices and 1 <= nics <= devices, got {sockets} sockets, "
            f"{switches} switches, {nics} NICs, {num_devices} devices"
        )
    if sockets > 1 and socket is None:
        raise InvalidInput(f"a PCIe tree with {sockets} sockets needs the wire 'socket' between them")


def tree_links(
    num_devices: int, *, slot: Wire, socket: Wire | None, uplink: Wire | None, sockets: int, switches: int
) -> list[Link]:
    """Links of devices, PCIe switches and host bridges; half of the slot's latency lies at each end of a pair."""
    links: list[Link] = []
    for i in range(num_devices):
        links += both_ways(f"gpu{i}", f"plx{i * switches // num_devices}", slot, latency=0.5)
    for s in range(switches):
        links += both_ways(f"plx{s}", f"cpu{s * sockets // switches}", uplink or slot, latency=0.0)
    for a, b in combinations(range(sockets), 2):
        assert socket is not None
        links += both_ways(f"cpu{a}", f"cpu{b}", socket)
    return links
