"""What a step's transfers travel over: latency, and the links they share, from src and dst columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.fabric import Fabric
from simnet.placement import Placement
from simnet.schedule import IntArray
from simnet.units import BytesPerSecond, Seconds

FloatArray = npt.NDArray[np.float64]

KEPT_PATTERNS = 64


@dataclass(frozen=True, slots=True)
class Routes:
    """Links of several messages: those of message i are links[first[i] : first[i + 1]]."""

    first: IntArray
    links: IntArray


class Paths(Protocol):
    """How ranks reach each other; memory O(ranks + links)."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        ...

    @property
    def link_bandwidth(self) -> FloatArray:
        """Bandwidth of every link in bytes/s, shape (num_links,)."""
        ...

    def latency(self, src: IntArray, dst: IntArray) -> FloatArray:
        """Latency of each message's path in s, shape (num_messages,)."""
        ...

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Links of each message's path, in order."""
        ...


def bottleneck(paths: Paths, src: IntArray, dst: IntArray) -> FloatArray:
    """Bandwidth of each message's narrowest link in bytes/s, shape (num_messages,)."""
    if isinstance(paths, UniformPaths):
        return np.full(len(src), paths.port_bandwidth)
    routes = paths.routes(src, dst)
    if len(src) == 0:
        return np.empty(0)
    return np.minimum.reduceat(paths.link_bandwidth[routes.links], routes.first[:-1])


@dataclass(frozen=True, slots=True)
class UniformPaths:
    """Every rank has one full-duplex port into a network that is never the bottleneck.

    Link r is the way out of rank r, link world_size + r the way in.
    """

    world_size: int
    port_latency: Seconds
    port_bandwidth: BytesPerSecond

    def __post_init__(self) -> None:
        if self.world_size < 1 or not self.port_bandwidth > 0 or not self.port_latency >= 0:
            raise InvalidInput(
                "uniform paths need 1 or more ranks, bandwidth above 0 and latency of 0 or more, got "
                f"{self.world_size} ranks, {self.port_bandwidth} bytes/s, {self.port_latency} s"
            )

    @property
    def link_bandwidth(self) -> FloatArray:
        """Bandwidth of every port in bytes/s, shape (2 * world_size,)."""
        return np.full(2 * self.world_size, self.port_bandwidth)

    def latency(self, src: IntArray, dst: IntArray) -> FloatArray:
        """Same latency for all, in s."""
        return np.full(len(src), self.port_latency)

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Way out of the source, way into the destination."""
        links = np.stack([src, dst + self.world_size], axis=1).reshape(-1)
        return Routes(2 * np.arange(len(src) + 1), links)


@dataclass(frozen=True, slots=True)
class FabricPaths:
    """Ranks placed on a fabric; the routes of the latest few patterns of messages are kept."""

    fabric: Fabric
    placement: Placement
    _kept: dict[tuple[bytes, bytes], Routes] = field(default_factory=dict, repr=False, compare=False)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.placement.world_size

    @property
    def link_bandwidth(self) -> FloatArray:
        """Bandwidth of every link of the fabric in bytes/s."""
        return self.fabric.bandwidths

    def latency(self, src: IntArray, dst: IntArray) -> FloatArray:
        """Sum of the latencies along each route, in s."""
        routes = self.routes(src, dst)
        if len(src) == 0:
            return np.empty(0)
        return np.add.reduceat(self.fabric.latencies[routes.links], routes.first[:-1])

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Routes of the fabric between the ranks' vertices."""
        key = (src.tobytes(), dst.tobytes())
        if key not in self._kept:
            while len(self._kept) >= KEPT_PATTERNS:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = self._routes(src, dst)
        return self._kept[key]

    def _routes(self, src: IntArray, dst: IntArray) -> Routes:
        return Routes(*self.fabric.routes(self.placement.vertices, src, dst))


def link_name(paths: Paths, link: int) -> str:
    """Where a link leads from and to."""
    if isinstance(paths, FabricPaths):
        found = paths.fabric.links[link]
        return f"{found.src} -> {found.dst}"
    rank, way = link % paths.world_size, "in" if link >= paths.world_size else "out"
    return f"port of rank {rank}, {way}"
