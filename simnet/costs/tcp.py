"""TCP over Ethernet: headers on every segment, acknowledgements that share the port, and a cap per flow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.costs.model import FloatArray, Plain, as_float, require_positive
from simnet.costs.registry import cost_model
from simnet.errors import InvalidInput
from simnet.units import Bytes, BytesPerSecond, Seconds

# Ethernet header 14; IPv4 20, TCP 20 with 12 of time stamps; checksum 4, preamble 8, gap 12 only on a wire.
ETHERNET, IP_TCP, ON_WIRE = 14, 52, 24


@cost_model(
    "tcp",
    source="RFC 793, RFC 7323, IEEE 802.3; cap per flow: public reports to nccl and nccl-tests",
    required=("overhead",),
)
@dataclass(frozen=True, slots=True)
class Tcp(Plain):
    """Segments of MTU - 52 bytes behind headers, one acknowledgement for two segments, `flows` connections a pair.

    Parameters
    ----------
    mtu : bytes of an IP packet, 1,500 or 9,000.
    medium : "wire" counts preamble, checksum and gap (1,538 bytes for 1,448); "tc" what a Linux traffic shaper
        counts (1,514).
    overhead : s that the kernel adds to the path's latency, both ends together.
    flow_bandwidth : bytes/s of data, headers not counted, that one connection reaches at most, as programs measure
        it; None for no limit. Reports of one process: 1.5 to 4.5 GB/s on 100 Gbit/s.
    flows : connections that share a message.
    buffer : bytes the kernels take in before the receiver is ready.
    """

    mtu: Bytes = 1500
    medium: str = "wire"
    overhead: Seconds = 10e-6
    flow_bandwidth: BytesPerSecond | None = None
    flows: int = 1
    buffer: Bytes = 0
    name: str = "tcp"

    def __post_init__(self) -> None:
        require_positive("tcp", flow_bandwidth=self.flow_bandwidth, flows=self.flows)
        if self.medium not in ("wire", "tc"):
            raise InvalidInput(f"medium of tcp must be wire or tc, got {self.medium!r}")
        if self.mtu <= IP_TCP:
            raise InvalidInput(f"mtu of tcp must be above {IP_TCP} bytes, got {self.mtu}; write 1500 or 9000")

    @property
    def payload(self) -> Bytes:
        """Bytes of data in a full segment: 1,448 of an MTU of 1,500."""
        return self.mtu - IP_TCP

    @property
    def frame(self) -> Bytes:
        """Bytes around the data of every segment."""
        return IP_TCP + ETHERNET + (ON_WIRE if self.medium == "wire" else 0)

    @property
    def efficiency(self) -> float:
        """Data over bytes on the wire of full segments, where nothing flows the other way."""
        return self.payload / (self.payload + self.frame)

    @property
    def duplex_efficiency(self) -> float:
        """The same where equal data flows the other way and shares the port with acknowledgements."""
        return 2 * self.payload / (2 * (self.payload + self.frame) + self.frame)

    def delay(self, num_bytes: npt.ArrayLike, latency: npt.ArrayLike) -> FloatArray:
        """Path latency and what the kernels add."""
        return np.broadcast_arrays(as_float(num_bytes), as_float(latency) + self.overhead)[1]

    def segments(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """Segments a message fills, the last one partly."""
        return np.ceil(as_float(num_bytes) / self.payload)

    def wire_bytes(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """Data and the headers of its segments."""
        return as_float(num_bytes) + self.segments(num_bytes) * self.frame

    def reverse_bytes(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """One acknowledgement, a frame without data, for two segments."""
        return np.ceil(self.segments(num_bytes) / 2) * self.frame

    def flow_cap(self, num_bytes: npt.ArrayLike, bandwidth: npt.ArrayLike) -> FloatArray:
        """Connections times what one reaches with its headers, at most the path's bandwidth."""
        size, path = np.broadcast_arrays(as_float(num_bytes), as_float(bandwidth))
        if self.flow_bandwidth is None:
            return path
        with_headers = np.where(size > 0, self.wire_bytes(size) / np.maximum(size, 1), 1.0)
        return np.minimum(path, self.flow_bandwidth * self.flows * with_headers)

    def eager(self, num_bytes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Up to the kernels' buffers."""
        return as_float(num_bytes) <= self.buffer
