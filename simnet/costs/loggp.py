"""LogGP and LogGPS: processor overhead, gap between messages, gap per byte, synchronous above a size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.costs.model import FloatArray, Plain, as_float, require_positive
from simnet.costs.registry import cost_model
from simnet.units import Bytes, BytesPerSecond, Seconds


@cost_model(
    "loggp",
    source="Alexandrov et al., SPAA 1995; Ino, Fujimoto & Hagihara, PPoPP 2001 (the S)",
    required=("overhead", "gap", "eager_bytes"),
)
@dataclass(frozen=True, slots=True)
class LogGP(Plain):
    """Overhead on both sides, at least a gap between messages of a sender, and a handshake above `eager_bytes`.

    Parameters
    ----------
    overhead : o, s, on the sender and again on the receiver.
    gap : g, s, least time between two messages of one sender.
    bandwidth : 1/G, bytes/s of one message; None for that of its path. L is the path's latency.
    eager_bytes : S; larger messages first ask the receiver, which costs a round trip of L + 2 o each way.
    """

    overhead: Seconds = 1e-6
    gap: Seconds = 1e-6
    bandwidth: BytesPerSecond | None = None
    eager_bytes: Bytes = 8192
    name: str = "loggp"

    def __post_init__(self) -> None:
        require_positive("loggp", bandwidth=self.bandwidth)

    def delay(self, num_bytes: npt.ArrayLike, latency: npt.ArrayLike) -> FloatArray:
        """L + 2 o, three times where sender and receiver first meet."""
        once = as_float(latency) + 2 * self.overhead
        return np.where(self.eager(num_bytes), once, 3 * once)

    def occupy(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """The larger of o and g."""
        return np.full(np.shape(num_bytes), max(self.overhead, self.gap))

    def flow_cap(self, num_bytes: npt.ArrayLike, bandwidth: npt.ArrayLike) -> FloatArray:
        """1/G, or the path's bandwidth."""
        path = np.broadcast_arrays(as_float(num_bytes), as_float(bandwidth))[1]
        return path if self.bandwidth is None else np.minimum(path, self.bandwidth)

    def eager(self, num_bytes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Up to S."""
        return as_float(num_bytes) <= self.eager_bytes
