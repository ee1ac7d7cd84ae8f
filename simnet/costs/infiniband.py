"""InfiniBand and RoCE: headers on every packet, eager messages up to a size, a handshake above it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.costs.model import FloatArray, Plain, as_float, require_positive
from simnet.costs.registry import cost_model
from simnet.units import Bytes, Seconds

# Local route 8, transport 12, checksums 4 + 2; RoCE v2 has Ethernet 14 + 24, IPv4 20, UDP 8 around transport and 4.
_INFINIBAND, _ROCE = 26, 82
_EAGER_SOURCE = "eager size: Open MPI, btl_openib_mca.c, btl_eager_limit of 12 KiB"


@cost_model("infiniband", source=f"InfiniBand Architecture Specification 1.3, chapters 7 to 9; {_EAGER_SOURCE}")
@dataclass(frozen=True, slots=True)
class InfiniBand(Plain):
    """Packets of `mtu` bytes behind headers of 26, no acknowledgement worth counting, rendezvous above `eager_bytes`.

    mtu is the largest the specification has, eager_bytes what Open MPI starts from.
    overhead, s, is what sender and receiver add to the path's latency. A rendezvous costs one more round trip.
    """

    mtu: Bytes = 4096
    overhead: Seconds = 0.0
    eager_bytes: Bytes = 12288
    header: Bytes = _INFINIBAND
    name: str = "infiniband"

    def __post_init__(self) -> None:
        require_positive(self.name, mtu=self.mtu)

    def delay(self, num_bytes: npt.ArrayLike, latency: npt.ArrayLike) -> FloatArray:
        """Path latency and overhead, three times where sender and receiver first meet."""
        once = as_float(latency) + self.overhead
        return np.where(self.eager(num_bytes), once, 3 * once)

    def wire_bytes(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """Data and the headers of its packets."""
        payload = as_float(num_bytes)
        return payload + np.ceil(payload / self.mtu) * self.header

    def eager(self, num_bytes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Up to eager_bytes."""
        return as_float(num_bytes) <= self.eager_bytes


@cost_model("roce", source=f"InfiniBand Architecture Specification, annex A17 (RoCE v2); IEEE 802.3; {_EAGER_SOURCE}")
@dataclass(frozen=True, slots=True)
class Roce(InfiniBand):
    """InfiniBand's transport in UDP over Ethernet: headers of 82 bytes around packets of 4,096 or 1,024."""

    header: Bytes = _ROCE
    name: str = "roce"
