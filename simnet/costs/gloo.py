"""gloo over TCP: one connection a pair, and a receiver that must say it is ready."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.costs.model import FloatArray, as_float
from simnet.costs.registry import cost_model
from simnet.costs.tcp import Tcp
from simnet.errors import InvalidInput
from simnet.units import Bytes, BytesPerSecond, Seconds


@cost_model("gloo", source="gloo, public reports 21, 158, 248; torchft pull request 199", required=("overhead",))
@dataclass(frozen=True, slots=True)
class Gloo(Tcp):
    """TCP over a single connection, and a notice of readiness that travels back before the data.

    Parameters
    ----------
    flow_bandwidth : 1.2e9 bytes/s on 40 Gbit/s (report 248); 2.4e9 on the loopback device (torchft).
    overhead : s, of each of the two messages, notice and data.
    stall_bytes, stall : a message of that many bytes or more waits for so many seconds. Transports have shown
        cliffs of 20 ms from 256 KiB on (report 158): a cliff is stated, never smoothed into a slope.
    """

    overhead: Seconds = 20e-6
    flow_bandwidth: BytesPerSecond | None = 1.2e9
    stall_bytes: Bytes | None = None
    stall: Seconds = 0.0
    name: str = "gloo"

    def __post_init__(self) -> None:
        Tcp.__post_init__(self)
        if self.stall < 0 or (self.stall > 0 and self.stall_bytes is None):
            raise InvalidInput(f"stall of gloo needs stall_bytes and 0 or more seconds, got {self.stall}")

    def delay(self, num_bytes: npt.ArrayLike, latency: npt.ArrayLike) -> FloatArray:
        """Twice the latency and the overhead, and the stall of messages that large."""
        size, path = np.broadcast_arrays(as_float(num_bytes), as_float(latency))
        waits = self.stall if self.stall_bytes is not None else 0.0
        return 2 * (path + self.overhead) + np.where(size >= (self.stall_bytes or 0), waits, 0.0)
