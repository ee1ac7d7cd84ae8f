"""The hybrid cube mesh of DGX-1: two quads of NVLink, joined corner by corner."""

from __future__ import annotations

from simnet.errors import InvalidInput
from simnet.hardware import Wire
from simnet.topologies.pcie_tree import require_tree, tree_links
from simnet.topologies.plan import NodePlan, both_ways
from simnet.topologies.registry import Scope, topology

# Number of NVLinks by pair. P100 has 4 links a device, V100 6; source: NVIDIA DGX-1 system
# architecture white papers (2017), figures of the topologies.
_P100 = {
    (0, 1): 1, (0, 2): 1, (0, 3): 1, (1, 2): 1, (1, 3): 1, (2, 3): 1,
    (4, 5): 1, (4, 6): 1, (4, 7): 1, (5, 6): 1, (5, 7): 1, (6, 7): 1,
    (0, 4): 1, (1, 5): 1, (2, 6): 1, (3, 7): 1,
}  # fmt: skip
_V100 = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2,
    (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
    (0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1,
}  # fmt: skip
_LINKS = {4: _P100, 6: _V100}

# A cycle along NVLinks, so that a ring over ranks in order never leaves them.
CYCLE = (0, 1, 2, 3, 7, 6, 5, 4)


@topology(Scope.NODE)
def cube_mesh(
    num_devices: int, *, pair: Wire, slot: Wire, socket: Wire, links_per_device: int = 4, nics: int = 4
) -> NodePlan:
    """Eight devices as in DGX-1: NVLinks of a hybrid cube mesh over a PCIe tree of four switches and two sockets.

    Devices come in the order of a cycle along NVLinks. Pairs without an NVLink talk over PCIe and, between
    sockets, over the socket wire. links_per_device is 4 (P100) or 6 (V100).
    """
    if num_devices != 8 or links_per_device not in _LINKS:
        raise InvalidInput(
            f"cube_mesh needs 8 devices with 4 or 6 links each, got {num_devices} with {links_per_device}"
        )
    require_tree(8, sockets=2, switches=4, nics=nics, socket=socket)
    links = [
        link
        for (a, b), count in _LINKS[links_per_device].items()
        for link in both_ways(f"gpu{a}", f"gpu{b}", pair, share=count)
    ]
    links += tree_links(8, slot=slot, socket=socket, uplink=None, sockets=2, switches=4)
    for k in range(nics):
        links += both_ways(f"plx{k * 4 // nics}", f"nic{k}", slot, latency=0.0)
    return NodePlan(tuple(links), tuple(f"gpu{i}" for i in CYCLE), tuple(f"nic{i * nics // 8}" for i in CYCLE))
