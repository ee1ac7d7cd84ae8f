"""NCCL's tuning model: the time it expects of each algorithm and protocol, and so the one it runs.

A closed form over a whole all-reduce: latency of its steps plus bytes over an algorithm bandwidth. The model is
NCCL's own view of itself, published with its source; figures measured by it are calibration, not accuracy.

Source: NVIDIA/nccl, src/graph/tuning.cc; latencies and factors of release 2.8 (commit 01afd20a, 2020-11), and the
latencies of release 2.5 (commit aa15dfb2, 2019-12).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import floor, log2

from simnet.errors import InvalidInput
from simnet.units import GB, US, Bytes, BytesPerSecond, Seconds


class Protocol(StrEnum):
    """How NCCL moves and signals data."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


class Algorithm(StrEnum):
    """Shapes of NCCL's all-reduce."""

    RING = "ring"
    TREE = "tree"


class Hardware(StrEnum):
    """What a step crosses."""

    NVLINK = "NVLINK"
    PCI = "PCI"
    NET = "NET"


_COLUMNS = [(a, p) for a in (Algorithm.TREE, Algorithm.RING) for p in Protocol]
_HARDWARE_US = {
    "2.8": {
        Hardware.NVLINK: (0.52, 1.2, 28.0, 0.47, 1.9, 3.4),
        Hardware.PCI: (1.0, 1.9, 28.0, 1.0, 2.5, 5.7),
        Hardware.NET: (5.0, 8.5, 50.0, 2.7, 4.0, 9.6),
    },
    "2.5": {
        Hardware.NVLINK: (0.5, 1.9, 28.0, 0.4, 2.5, 5.7),
        Hardware.PCI: (1.0, 1.9, 28.0, 1.0, 2.5, 5.7),
        Hardware.NET: (5.0, 7.5, 50.0, 0.9, 2.5, 6.6),
    },
}
_BASE_US = {"2.8": (4.4, 4.4, 0.0, 3.6, 10.0, 8.4), "2.5": (4.4, 4.4, 0.0, 3.6, 3.6, 8.4)}
_LL128_CHANNEL = 16.7 * GB
# Trees fall short of the model at middle sizes; factors for 64 B, 128 B, ... 128 MiB.
_TREE_FACTORS = {
    Protocol.LL: (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1),
    Protocol.LL128: (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9, 1),
    Protocol.SIMPLE: (
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machine:
    """What the model knows of a machine.

    Parameters
    ----------
    num_channels : rings, and trees, that run at once.
    intra_bandwidth, inter_bandwidth : bytes/s of one channel inside a node, and between nodes.
    intra : what steps inside a node cross.
    ll128 : whether LL128 is safe there (NVLink on V100 and A100).
    ampere : whether all devices are A100, which the model caps elsewhere.
    """

    num_ranks: int
    num_nodes: int
    num_channels: int
    intra_bandwidth: BytesPerSecond
    inter_bandwidth: BytesPerSecond
    intra: Hardware = Hardware.NVLINK
    ll128: bool = True
    ampere: bool = False
    release: str = "2.8"

    def __post_init__(self) -> None:
        if self.release not in _HARDWARE_US:
            raise InvalidInput(f"release of NCCL must be one of {', '.join(_HARDWARE_US)}, got {self.release!r}")
        if not 1 <= self.num_nodes <= self.num_ranks or self.num_channels < 1:
            raise InvalidInput(
                f"a machine needs 1 <= nodes <= ranks and a channel, got {self.num_nodes} nodes, {self.num_ranks} "
                f"ranks, {self.num_channels} channels"
            )
        if min(self.intra_bandwidth, self.inter_bandwidth) <= 0:
            raise InvalidInput(
                f"bandwidths of a channel must be above 0 bytes/s, got {self.intra_bandwidth:g} inside and "
                f"{self.inter_bandwidth:g} between nodes; write 21 GB/s"
            )


@dataclass(frozen=True, slots=True)
class Choice:
    """An algorithm under a protocol and the time the model gives it, s."""

    algorithm: Algorithm
    protocol: Protocol
    time: Seconds


def step_latency(hardware: Hardware, algorithm: Algorithm, protocol: Protocol, *, release: str = "2.8") -> Seconds:
    """Latency of one step in s."""
    return _HARDWARE_US[release][hardware][_COLUMNS.index((algorithm, protocol))] * US


def base_latency(algorithm: Algorithm, protocol: Protocol, *, release: str = "2.8") -> Seconds:
    """Latency of a whole collective before its first step, in s."""
    return _BASE_US[release][_COLUMNS.index((algorithm, protocol))] * US


def latency(machine: Machine, algorithm: Algorithm, protocol: Protocol) -> Seconds:
    """Time of an all-reduce of no bytes, s."""
    inside = step_latency(machine.intra, algorithm, protocol, release=machine.release)
    between = step_latency(Hardware.NET, algorithm, protocol, release=machine.release)
    if machine.num_nodes > 1 and protocol is Protocol.LL:
        inside *= 1.8
    start = base_latency(algorithm, protocol, release=machine.release)
    if algorithm is Algorithm.RING:
        network_steps = 2 * (machine.num_nodes - 1)
        return start + (2 * (machine.num_ranks - 1) - network_steps) * inside + network_steps * between
    per_node = machine.num_ranks // machine.num_nodes
    return start + 2 * ((per_node - 1) * inside + floor(log2(machine.num_nodes)) * between)


def bandwidth(machine: Machine, algorithm: Algorithm, protocol: Protocol) -> BytesPerSecond:
    """Algorithm bandwidth of an all-reduce, bytes/s; 0 where NCCL would not run that."""
    if protocol is Protocol.LL128 and not machine.ll128:
        return 0.0
    channel = machine.intra_bandwidth if machine.num_nodes <= 2 else machine.inter_bandwidth
    bus = machine.num_channels * channel
    if machine.ampere:
        bus = min(bus, 235 * GB)
    if algorithm is Algorithm.RING:
        return _ring_bus(machine, protocol, bus) * machine.num_ranks / max(1, 2 * (machine.num_ranks - 1))
    return _tree_bus(machine, protocol, bus) / 2


def _ring_bus(machine: Machine, protocol: Protocol, bus: BytesPerSecond) -> BytesPerSecond:
    match protocol:
        case Protocol.LL:
            return bus / 4
        case Protocol.LL128:
            share = 0.7 if machine.num_ranks < 2 * machine.num_nodes else 0.92
            return min(bus * share, _LL128_CHANNEL * machine.num_channels)
        case Protocol.SIMPLE:
            return bus


def _tree_bus(machine: Machine, protocol: Protocol, bus: BytesPerSecond) -> BytesPerSecond:
    wide = machine.ampere and protocol is Protocol.LL128
    limit = (105 if wide else 80) if machine.num_nodes > 2 else (130 if wide else 110)
    bus = min(bus * 0.9, limit * GB)
    match protocol:
        case Protocol.LL:
            return bus / 3.8
        case Protocol.LL128:
            share = 7 / 9 if machine.num_nodes == 1 else 0.915
            return min(bus * share, _LL128_CHANNEL * machine.num_channels * 7 / 9)
        case Protocol.SIMPLE:
            return bus


def all_reduce_time(machine: Machine, num_bytes: Bytes, algorithm: Algorithm, protocol: Protocol) -> Seconds:
    """Time of an all-reduce in s as the model has it; infinite where NCCL would not run that."""
    rate = bandwidth(machine, algorithm, protocol)
    if rate == 0:
        return float("inf")
    delay = latency(machine, algorithm, protocol)
    if algorithm is Algorithm.TREE:
        rate *= tree_factor(protocol, num_bytes)
    elif protocol is Protocol.SIMPLE and machine.num_nodes > 1 and num_bytes >= machine.num_ranks * 4096:
        delay *= 1.9
    return delay + num_bytes / rate


def tree_factor(protocol: Protocol, num_bytes: Bytes) -> float:
    """Part of its bandwidth a tree reaches at that size, by NCCL's own table."""
    index = max(0, (num_bytes >> 6).bit_length() - 1)
    factors = _TREE_FACTORS[protocol]
    return factors[index] if index < len(factors) else 1.0


def choose(machine: Machine, num_bytes: Bytes) -> Choice:
    """Return the algorithm and protocol NCCL would run for an all-reduce of that many bytes."""
    if machine.num_ranks == 1:
        return Choice(Algorithm.RING, Protocol.SIMPLE, 0.0)
    times = [Choice(a, p, all_reduce_time(machine, num_bytes, a, p)) for a, p in _COLUMNS]
    return min(times, key=lambda choice: choice.time)
