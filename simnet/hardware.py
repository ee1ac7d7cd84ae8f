"""Records of the catalogue: what a machine is made of, every number with its interval and source.

Records hold SI numbers and call nothing; `simnet.catalog` reads them from files, `simnet.topologies`
turns them into fabrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from simnet.errors import InvalidInput
from simnet.units import BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in SI units, the 80 % interval it lies in, and where it comes from."""

    value: float
    low: float
    high: float
    source: str

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise InvalidInput(
                f"a quantity must lie in its interval, got {self.value} outside [{self.low}, {self.high}]; "
                "give a range around the value"
            )

    def scaled(self, factor: float) -> Quantity:
        """Return the quantity times a factor of 0 or more, the interval with it."""
        return Quantity(self.value * factor, self.low * factor, self.high * factor, self.source)

    @property
    def spread(self) -> float:
        """Return high over low; 1.0 where the number is exact."""
        return self.high / self.low if self.low > 0 else float("inf") if self.high > 0 else 1.0


class Precision(StrEnum):
    """Number formats a device multiplies in; `mixed` takes 16-bit factors and adds in 32 bits.

    TF32 keeps numbers in 32 bits and multiplies with 19 of them.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    MIXED = "mixed"


# A device without the exact unit uses the next best one; nothing but fp32 units serves fp32. A peak for fp16 is that of
# plain units: a matrix unit that takes 16-bit factors and adds in 32 bits serves fp16 as well, and is quicker.
_UNITS = {
    Precision.FP32: (Precision.FP32,),
    Precision.TF32: (Precision.TF32, Precision.FP32),
    Precision.FP16: (Precision.FP16, Precision.MIXED, Precision.FP32),
    Precision.BF16: (Precision.BF16, Precision.FP32),
    Precision.MIXED: (Precision.MIXED, Precision.BF16, Precision.FP16, Precision.FP32),
}


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator or processor that a rank drives.

    peaks maps a precision to flop/s (two per multiply-add); memory in bytes, memory_bandwidth in
    bytes/s, power in W, price in USD. What nobody published is None.
    """

    name: str
    summary: str
    peaks: Mapping[Precision, Quantity]
    memory: Quantity
    memory_bandwidth: Quantity
    power: Quantity | None = None
    price: Quantity | None = None

    def peak(self, precision: Precision | str) -> Quantity:
        """Peak flop/s of the fastest unit that can do that precision.

        Raises
        ------
        InvalidInput : the catalogue has no unit of the device for it.
        """
        wanted = Precision(precision)
        found = [self.peaks[unit] for unit in _UNITS[wanted] if unit in self.peaks]
        if found:
            return max(found, key=lambda peak: peak.value)
        known = ", ".join(self.peaks)
        raise InvalidInput(f"{self.name} has no peak for {wanted}; its catalogue file gives {known}")


@dataclass(frozen=True, slots=True)
class LinkType:
    """A kind of link: bytes/s in each direction, and s from device to device over one of them.

    kind is the family: nvlink, pcie, qpi, ethernet, infiniband, omni-path, ici or ideal.
    """

    name: str
    summary: str
    kind: str
    bandwidth: Quantity
    latency: Quantity


@dataclass(frozen=True, slots=True)
class Wire:
    """`width` links of one type side by side, used as one."""

    link: LinkType
    width: float = 1.0

    @property
    def bandwidth(self) -> BytesPerSecond:
        """Of all links together, one direction."""
        return self.link.bandwidth.value * self.width

    @property
    def latency(self) -> Seconds:
        """From device to device."""
        return self.link.latency.value


Option = int | float | str | tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A topology by name, the wires it is built of, and its counts."""

    topology: str
    wires: Mapping[str, Wire] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """A server: some devices of one type and how they hang together; power in W, price in USD."""

    device: Device
    num_devices: int
    layout: Layout
    power: Quantity | None = None
    price: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """Equal nodes and the network between them; num_nodes is how many there are to use."""

    name: str
    summary: str
    node: Node
    num_nodes: int
    network: Layout
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_devices(self) -> int:
        """Devices of all nodes."""
        return self.num_nodes * self.node.num_devices

    def wires(self) -> dict[str, Wire]:
        """All wires by where they are used, such as "network.port"."""
        node = {f"node.{name}": wire for name, wire in self.node.layout.wires.items()}
        return node | {f"network.{name}": wire for name, wire in self.network.wires.items()}

    def with_links(self, types: Mapping[str, LinkType]) -> Cluster:
        """Return the same cluster with the link types of some wires ("network.port") exchanged.

        Raises
        ------
        InvalidInput : the cluster has no wire of that name.
        """
        unknown = sorted(set(types) - set(self.wires()))
        if unknown:
            raise InvalidInput(f"{self.name} has no wire {unknown[0]!r}; it has {', '.join(self.wires())}")
        node = replace(self.node, layout=_exchanged(self.node.layout, "node", types))
        return replace(self, node=node, network=_exchanged(self.network, "network", types))


def _exchanged(layout: Layout, place: str, types: Mapping[str, LinkType]) -> Layout:
    wires = {name: replace(wire, link=types.get(f"{place}.{name}", wire.link)) for name, wire in layout.wires.items()}
    return replace(layout, wires=wires)
