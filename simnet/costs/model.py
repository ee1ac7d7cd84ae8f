"""The protocol every cost model follows; all methods take and return arrays or plain numbers."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class CostModel(Protocol):
    """What one message costs; how fast the wire moves it among others is the network's business."""

    @property
    def name(self) -> str:
        """Name shown in results."""
        ...

    def delay(self, num_bytes: npt.ArrayLike, latency: npt.ArrayLike) -> FloatArray:
        """Time in s from the start of a message until its first byte is on the wire, path latency included."""
        ...

    def wire_bytes(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """Bytes the wire carries for that payload, headers included."""
        ...

    def occupy(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """Time in s for which a sender is busy before it can issue its next message of the step."""
        ...

    def reverse_bytes(self, num_bytes: npt.ArrayLike) -> FloatArray:
        """Bytes that flow back meanwhile (acknowledgements)."""
        ...

    def flow_cap(self, num_bytes: npt.ArrayLike, bandwidth: npt.ArrayLike) -> FloatArray:
        """Largest rate in bytes/s of one flow over a path of that bandwidth; may be the bandwidth itself."""
        ...

    def eager(self, num_bytes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether the receiver need not be ready for the message to start."""
        ...


def as_float(values: Any) -> FloatArray:
    """Return values as a float array without copying where possible."""
    return np.asarray(values, dtype=np.float64)
