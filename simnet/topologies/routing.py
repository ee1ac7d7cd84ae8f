"""Ways from device to device: through the node, the network, and the other node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.fabric import IntArray, Leg, Vertex
from simnet.topologies.plan import NetworkPlan, NodePlan, port_vertex


class Router:
    """Routes between the devices of a cluster whose nodes are all wired alike, in closed form.

    Parameters
    ----------
    devices : of the whole cluster, node after node
    """

    def __init__(self, node: NodePlan, network: NetworkPlan, devices: Sequence[Vertex]) -> None:
        self._node, self._network = node, network
        self._size = len(node.devices)
        self._place = {device: divmod(index, self._size) for index, device in enumerate(devices)}
        self._port = [node.distinct_ports.index(name) for name in node.ports]

    def route(self, src: Vertex, dst: Vertex) -> list[Vertex]:
        """Vertices from src to dst, both included.

        Raises
        ------
        InvalidInput : one is no device, or the source reaches no port that leads to the destination.
        """
        for device in (src, dst):
            if device not in self._place:
                raise InvalidInput(f"no device {device!r} in the fabric; see BuiltFabric.devices")
        (a, i), (b, j) = self._place[src], self._place[dst]
        if a == b and (i, j) in self._node.inner:
            return self._within(a, i, j)
        leaves_by = self._port[j] if self._network.parallel else self._port[i]
        if leaves_by not in self._node.outward[i]:
            raise InvalidInput(
                f"{src} reaches no port that leads to {dst}; give its node's topology a host or port wire"
            )
        out, into = self._out(a, i, leaves_by)[:-1], self._into(b, j)[1:]
        return [*out, *self._network.route(a, leaves_by, b, self._port[j]), *into]

    def legs(self, vertices: Sequence[Vertex], src: IntArray, dst: IntArray) -> list[Leg]:
        """Cut the ways of many messages at the ports; messages i go from vertices[src[i]] to vertices[dst[i]].

        Raises
        ------
        InvalidInput : as for `route`.
        """
        for vertex in vertices:
            if vertex not in self._place:
                self.route(vertex, vertex)
        place = np.array([self._place[vertex] for vertex in vertices], np.int64).reshape(-1, 2)
        (a, i), (b, j) = place[src].T, place[dst].T
        port = np.array(self._port, np.int64)
        inside = (a == b) & self._joined[i, j]
        by, to = port[j] if self._network.parallel else port[i], port[j]
        lost = np.flatnonzero(~inside & ~self._leads[i, by])
        if len(lost):
            self.route(vertices[int(src[lost[0]])], vertices[int(dst[lost[0]])])
        size, ports, nodes = self._size, len(self._node.distinct_ports), int(place[:, 0].max(initial=0)) + 1
        return [
            Leg(np.where(inside, (a * size + i) * size + j, -1), lambda m: self._within(a[m], i[m], j[m])),
            Leg(np.where(inside, -1, (a * size + i) * ports + by), lambda m: self._out(a[m], i[m], by[m])),
            Leg(
                np.where(inside, -1, ((a * ports + by) * nodes + b) * ports + to),
                lambda m: self._network.route(int(a[m]), int(by[m]), int(b[m]), int(to[m])),
            ),
            Leg(np.where(inside, -1, b * size + j), lambda m: self._into(b[m], j[m])),
        ]

    @property
    def _joined(self) -> npt.NDArray[np.bool_]:
        """Which devices of a node reach each other inside it, (devices, devices)."""
        table = np.zeros((self._size, self._size), bool)
        for pair in self._node.inner:
            table[pair] = True
        return table

    @property
    def _leads(self) -> npt.NDArray[np.bool_]:
        """Which distinct ports each device reaches, (devices, ports)."""
        table = np.zeros((self._size, len(self._node.distinct_ports)), bool)
        for device, outward in enumerate(self._node.outward):
            table[device, list(outward)] = True
        return table

    def _within(self, node: int, i: int, j: int) -> list[Vertex]:
        return [port_vertex(node, name) for name in self._node.inner[i, j]]

    def _out(self, node: int, i: int, port: int) -> list[Vertex]:
        return [port_vertex(node, name) for name in self._node.outward[i][port]]

    def _into(self, node: int, j: int) -> list[Vertex]:
        return [port_vertex(node, name) for name in self._node.inward[j]]
