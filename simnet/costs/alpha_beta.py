"""Alpha-beta: latency plus bytes over bandwidth, nothing else.

Source: Hockney, Parallel Computing 20(3), 1994.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.costs.model import FloatArray, as_float


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """A message waits for the path's latency, then its bytes flow at the link's rate; rendezvous always."""

    name: str = "alpha-beta"

    def delay(self, num_bytes: npt.ArrayLike, latency: npt.ArrayLike) -> FloatArray:
        """Path latency, s."""
        return np.broadcast_arrays(as_float(num_bytes), as_float(latency))[1]

    def wire_bytes(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """The payload itself."""
        return as_float(num_bytes)

    def occupy(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """A sender issues all messages of a step at once."""
        return np.zeros_like(as_float(num_bytes))

    def reverse_bytes(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """Nothing flows back."""
        return np.zeros_like(as_float(num_bytes))

    def flow_cap(self, num_bytes: npt.ArrayLike, bandwidth: npt.ArrayLike) -> FloatArray:
        """One flow can fill its path."""
        return np.broadcast_arrays(as_float(num_bytes), as_float(bandwidth))[1]

    def eager(self, num_bytes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Never: the receiver must be ready."""
        return np.zeros(np.shape(num_bytes), bool)
