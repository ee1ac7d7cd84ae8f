"""The protocol every cost model follows; all methods take and return arrays or plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput

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


@dataclass(frozen=True, slots=True)
class Plain:
    """Defaults that models start from: no delay but the path's, no headers, nothing back, always rendezvous."""

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


def require_positive(model: str, **values: float | None) -> None:
    """Raise InvalidInput where a parameter of a cost model is given and not above 0."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise InvalidInput(f"{name} of {model} must be above 0, got {value}")


def as_float(values: Any) -> FloatArray:
    """Return values as a float array without copying where possible."""
    return np.asarray(values, dtype=np.float64)
