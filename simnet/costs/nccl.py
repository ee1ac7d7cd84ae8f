"""NCCL: what a message costs under its protocols LL, LL128 and Simple.

Latencies of a step are those that NCCL's own tuning model states, by protocol and by what the step crosses.
`simnet.costs.nccl_tuning` holds the model of whole collectives and the choice NCCL makes by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.costs.model import FloatArray, Plain, as_float
from simnet.costs.nccl_tuning import Algorithm, Hardware, Protocol, step_latency
from simnet.costs.registry import cost_model
from simnet.errors import InvalidInput
from simnet.units import BytesPerSecond, Seconds

# LL: 4 bytes of data and a flag of 4; LL128: 120 bytes of data in 128.
_EXPANSION = {Protocol.LL: 2.0, Protocol.LL128: 128 / 120, Protocol.SIMPLE: 1.0}


@cost_model("nccl", source="NVIDIA/nccl, src/graph/tuning.cc, release 2.8 (latencies by protocol and hardware)")
@dataclass(frozen=True, slots=True)
class Nccl(Plain):
    """A step of NCCL: the protocol's latency instead of the path's, and the flags it sends beside the data.

    Parameters
    ----------
    protocol : LL, LL128 or Simple.
    algorithm : ring or tree, as steps of either have their own latency.
    intra : what a step inside a node crosses, NVLINK or PCI.
    network_from : s; a path of this latency or more crosses the network, a shorter one stays in a node.
    channel_bandwidth : bytes/s one message reaches at most; None for its path's.
    """

    protocol: str = "Simple"
    algorithm: str = "ring"
    intra: str = "NVLINK"
    network_from: Seconds = 2e-6
    channel_bandwidth: BytesPerSecond | None = None
    name: str = "nccl"

    def __post_init__(self) -> None:
        for given, known in ((self.protocol, Protocol), (self.algorithm, Algorithm), (self.intra, Hardware)):
            if given not in list(known):
                raise InvalidInput(f"{known.__name__.lower()} of nccl must be one of {', '.join(known)}, got {given!r}")

    def delay(self, num_bytes: npt.ArrayLike, latency: npt.ArrayLike) -> FloatArray:
        """Latency of a step inside a node or over the network."""
        path = np.broadcast_arrays(as_float(num_bytes), as_float(latency))[1]
        return np.where(path >= self.network_from, self._step(Hardware.NET), self._step(Hardware(self.intra)))

    def _step(self, hardware: Hardware) -> Seconds:
        return step_latency(hardware, Algorithm(self.algorithm), Protocol(self.protocol))

    def wire_bytes(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """Data and flags: twice the data for LL, 128/120 of it for LL128."""
        return as_float(num_bytes) * _EXPANSION[Protocol(self.protocol)]

    def flow_cap(self, num_bytes: npt.ArrayLike, bandwidth: npt.ArrayLike) -> FloatArray:
        """The channel's limit, at most the path's bandwidth."""
        path = np.broadcast_arrays(as_float(num_bytes), as_float(bandwidth))[1]
        return path if self.channel_bandwidth is None else np.minimum(path, self.channel_bandwidth)

    def eager(self, num_bytes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Always: buffers of the receiver take a chunk before it is asked for."""
        return np.ones(np.shape(num_bytes), bool)
