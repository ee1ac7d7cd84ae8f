"""Ranks of one machine as a network: the cores are the link that all messages share.

On the loopback device a message is work for cores, its latency as much as its bytes. A probe of k messages
in flight at once, on c cores, finds time T(m) for m bytes; where k > c, each message had c/k of a core, so
its work is T(m) c/k core-seconds. Fewer messages in flight get more each, up to one core.

Nothing here is fitted but the profile; the number of cores is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.costs.fitted import Fitted
from simnet.costs.model import FloatArray, Plain, as_float
from simnet.paths import Routes
from simnet.schedule import IntArray

UNITS_PER_CORE_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class SharedCores:
    """Paths whose links carry work: a way out and a way in per rank, one core wide, and all cores together.

    Links 0 to n-1 lead out of ranks, n to 2n-1 into them, 2n is the cores.
    """

    world_size: int
    cores: int

    @property
    def link_bandwidth(self) -> FloatArray:
        """Work units per second of every link, shape (2 * world_size + 1,)."""
        return UNITS_PER_CORE_SECOND * np.append(np.ones(2 * self.world_size), float(self.cores))

    def latency(self, src: IntArray, dst: IntArray) -> FloatArray:
        """None beside the work."""
        return np.zeros(len(src))

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Out of the source, over the cores, into the destination."""
        cores = np.full(len(src), 2 * self.world_size)
        return Routes(3 * np.arange(len(src) + 1), np.stack([src, cores, dst + self.world_size], axis=1).reshape(-1))


@dataclass(frozen=True, slots=True)
class CoreTime(Plain):
    """A message as the work it is, from its cost while `in_flight` messages shared `cores`."""

    loaded: Fitted
    in_flight: int
    cores: int
    name: str = "core time"

    def wire_bytes(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """Work units of a message."""
        size = as_float(num_bytes)
        seconds = self.loaded.delay(size, 0.0) + size / self.loaded.flow_cap(size, np.inf)
        return UNITS_PER_CORE_SECOND * seconds * min(1.0, self.cores / self.in_flight)
