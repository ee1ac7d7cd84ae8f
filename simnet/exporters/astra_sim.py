"""Write the network file of ASTRA-sim's analytical backend.

Its "GB/s" are 2**30 bytes/s, so a link of 12.5e9 bytes/s is written as 11.64: copying the number of a data sheet
would make every link 7.4 % too fast.

Source: ASTRA-sim, common/NetworkParser and the analytical backend's bandwidth conversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simnet.errors import InvalidInput
from simnet.units import BytesPerSecond, Seconds

SHAPES = ("Ring", "FullyConnected", "Switch")
BYTES_PER_GB = 2**30


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a network: its shape, how many devices it joins, and its links."""

    shape: str
    devices: int
    bandwidth: BytesPerSecond
    latency: Seconds

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise InvalidInput(f"shape must be one of {', '.join(SHAPES)}, got {self.shape!r}")
        if self.devices < 1 or not self.bandwidth > 0 or not self.latency >= 0:
            raise InvalidInput(f"a dimension needs devices, bandwidth above 0 and latency of 0 or more, got {self}")


def write_network(dimensions: Sequence[Dimension]) -> str:
    """Return the text of a network.yml, innermost dimension first."""
    if not dimensions:
        raise InvalidInput("a network needs at least one dimension")
    return "\n".join((
        f"topology: [ {', '.join(d.shape for d in dimensions)} ]",
        f"npus_count: [ {', '.join(str(d.devices) for d in dimensions)} ]",
        f"bandwidth: [ {', '.join(repr(d.bandwidth / BYTES_PER_GB) for d in dimensions)} ]  # 2**30 bytes/s",
        f"latency: [ {', '.join(repr(d.latency * 1e9) for d in dimensions)} ]  # ns",
        "",
    ))  # fmt: skip
