"""All-reduce times of NCCL at other world sizes, from NCCL's tuning model scaled to measured rows.

The published model (which algorithm and protocol runs at which size, latencies per step, bandwidths per channel)
gives the shape; about a dozen factors on its latencies and bandwidths are fitted, each held near 1 unless the rows
say otherwise. Two things are added that the published model leaves out at small sizes: channels are opened one by
one as messages grow, and a tree passes a chunk on only when it has the whole of it. What the fit leaves over at
the largest measured world size is carried to larger ones.

What the rows cannot tell (whether LL128 is on, how many channels cross the network) is tried both ways; the
variant nearest to the largest measured world size is used, the others' disagreement widens the interval.

Source: NVIDIA/nccl 2.8, src/graph/tuning.cc, src/enqueue.cc (thread thresholds), src/include/devcomm.h (chunk of LL).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import floor, log, log2
from statistics import median

import numpy as np
import numpy.typing as npt

from simnet.costs.nccl_tuning import (
    Algorithm,
    Hardware,
    Machine,
    Protocol,
    bandwidth,
    base_latency,
    choose,
    latency,
    step_latency,
    tree_factor,
)
from simnet.errors import InvalidInput
from simnet.results import Measurement
from simnet.units import GB, Bytes, BytesPerSecond, Seconds

FloatArray = npt.NDArray[np.float64]

FACTORS = (
    "base latency", "step inside a node", "step over the network", "LL bandwidth inside", "LL128 bandwidth inside",
    "Simple bandwidth inside", "LL bandwidth across", "LL128 bandwidth across", "Simple bandwidth across",
    "LL channel", "other channel", "LL step inside a node of several",
)  # fmt: skip
_FREEDOM = 0.5
_MEASURED_FREEDOM = 0.15
_NOISE = 0.08
_ROBUST = 0.1
_PROTOCOLS = list(Protocol)
_THREADS = 512
_BYTES_PER_THREAD = {Protocol.LL: 8, Protocol.LL128: 8, Protocol.SIMPLE: 64}
_TREE_CHUNK = {Protocol.LL: 32_768, Protocol.LL128: 8_192, Protocol.SIMPLE: 8_192}
_CHANNEL = {Protocol.LL: 3 * GB, Protocol.LL128: 12 * GB, Protocol.SIMPLE: 12 * GB}


@dataclass(frozen=True, slots=True)
class Site:
    """What is known of a machine before any measurement.

    Parameters
    ----------
    channels : rings inside one node; channel_bandwidth, bytes/s, of one of them.
    nics : network cards of a node; nic_bandwidth, bytes/s, of one.
    network_latency : s, measured between two devices over the network, where known; else the published one holds.
    """

    channels: int
    channel_bandwidth: BytesPerSecond
    nics: int
    nic_bandwidth: BytesPerSecond
    intra: Hardware = Hardware.NVLINK
    ampere: bool = False
    release: str = "2.8"
    network_latency: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """What rows do not say: LL128 inside and across nodes, channels per NIC."""

    ll128_inside: bool
    ll128_across: bool
    channels_per_nic: int


World = tuple[int, int]


@dataclass(frozen=True, slots=True)
class NcclFit:
    """The fitted model; factors is in the order of FACTORS, carried the leftover log error by size."""

    site: Site
    variant: Variant
    factors: tuple[float, ...]
    carried: Mapping[Bytes, float]
    error: float
    others: tuple[NcclFit, ...] = ()

    def predict(self, ranks: int, nodes: int, sizes: Sequence[Bytes]) -> FloatArray:
        """Time of an all-reduce of each size, s, shape (num_sizes,)."""
        columns = _columns(self.site, self.variant, [((ranks, nodes), size) for size in sizes])
        left = np.array([_carried(self.carried, size) for size in sizes])
        return _model(np.log(self.factors), columns) * np.exp(left)

    def spread(self, ranks: int, nodes: int, sizes: Sequence[Bytes]) -> FloatArray:
        """Disagreement of the variants: standard deviation of ln(time), shape (num_sizes,)."""
        times = [np.log(fit.predict(ranks, nodes, sizes)) for fit in (self, *self.others)]
        return np.std(times, axis=0)


def fit_nccl(rows: Iterable[Measurement], site: Site) -> NcclFit:
    """Fit to all-reduce rows that tell ranks and nodes.

    Raises
    ------
    InvalidInput : no such rows.
    """
    times = _times(rows)
    if not times:
        raise InvalidInput(
            "no all-reduce row tells ranks, nodes and a time; give nccl-tests logs with their rank lines"
        )
    largest = max(world for world, _ in times)
    fits = [_fit(times, site, variant, largest) for variant in _variants(site, largest)]
    best = min(fits, key=lambda fit: fit.error)
    near = tuple(fit for fit in fits if fit is not best and fit.error <= 1.5 * best.error)
    return replace(best, others=near)


def _times(rows: Iterable[Measurement]) -> dict[tuple[World, Bytes], Seconds]:
    """Median time by world and size."""
    groups: dict[tuple[World, Bytes], list[Seconds]] = {}
    for row in rows:
        if row.collective == "all_reduce" and row.ranks and row.nodes and row.size_bytes > 0 and row.time_s > 0:
            groups.setdefault(((row.ranks, row.nodes), row.size_bytes), []).append(row.time_s)
    return {key: median(times) for key, times in sorted(groups.items())}


def _variants(site: Site, largest: World) -> list[Variant]:
    several = largest[1] > 1
    choices = product((True, False), (True, False) if several else (True,), (1, 2) if several else (2,))
    return [Variant(*choice) for choice in choices]


def _fit(times: Mapping[tuple[World, Bytes], Seconds], site: Site, variant: Variant, largest: World) -> NcclFit:
    """Fit the factors of one variant."""
    columns = _columns(site, variant, list(times))
    target = np.log(list(times.values()))
    factors, left = _solve(columns, target, site)
    at_largest = [i for i, (world, _) in enumerate(times) if world == largest]
    sizes = [size for _, size in times]
    carried = {sizes[i]: float(-left[i]) for i in at_largest}
    error = float(np.mean(np.abs(left[at_largest])))
    return NcclFit(site, variant, tuple(np.exp(factors).tolist()), carried, error)


def _machine(site: Site, variant: Variant, world: World) -> Machine:
    ranks, nodes = world
    rate = site.nic_bandwidth
    return Machine(
        num_ranks=ranks, num_nodes=nodes, num_channels=site.nics if nodes > 1 else site.channels,
        intra_bandwidth=rate if nodes > 1 else site.channel_bandwidth, inter_bandwidth=rate, intra=site.intra,
        ll128=variant.ll128_across if nodes > 1 else variant.ll128_inside, ampere=site.ampere, release=site.release,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Columns:
    """The published model taken apart, one entry per point."""

    base: FloatArray
    inside: FloatArray
    across: FloatArray
    wire: FloatArray
    channel: FloatArray
    rate_factor: npt.NDArray[np.intp]
    low_latency: npt.NDArray[np.bool_]
    several: npt.NDArray[np.bool_]


def _columns(site: Site, variant: Variant, points: Sequence[tuple[World, Bytes]]) -> _Columns:
    parts = [_parts(site, variant, world, size) for world, size in points]
    base, inside, across, wire, channel, protocol, several = zip(*parts, strict=True)
    kind = np.array(protocol, np.intp)
    many = np.array(several, bool)
    return _Columns(
        np.array(base), np.array(inside), np.array(across), np.array(wire), np.array(channel), 3 + kind + 3 * many,
        kind == _PROTOCOLS.index(Protocol.LL), many,
    )  # fmt: skip


def _parts(
    site: Site, variant: Variant, world: World, size: Bytes
) -> tuple[float, float, float, float, float, int, bool]:
    """Latency before, inside and across nodes, time on the wire, time in the channels; s each."""
    machine = _machine(site, variant, world)
    ranks, nodes = world
    algorithm, protocol = (choice := choose(machine, size)).algorithm, choice.protocol
    ring = algorithm is Algorithm.RING
    start = base_latency(algorithm, protocol, release=site.release)
    hops = 2 * (nodes - 1) if ring else 2 * floor(log2(nodes))
    across = hops * step_latency(Hardware.NET, algorithm, protocol, release=site.release)
    inside = latency(machine, algorithm, protocol) - start - across
    slow = 1.9 if ring and protocol is Protocol.SIMPLE and nodes > 1 and size >= ranks * 4096 else 1.0
    rate = bandwidth(machine, algorithm, protocol) * (1.0 if ring else tree_factor(protocol, size))
    most = site.nics * variant.channels_per_nic if nodes > 1 else site.channels
    channels = min(max(size / _channel_threshold(ranks, algorithm, protocol), 1.0), float(most))
    carried = _channel_bytes(world, algorithm, protocol, size / channels) / _CHANNEL[protocol]
    kind = _PROTOCOLS.index(protocol)
    return start * slow, inside * slow, across * slow, size / rate, carried, kind, nodes > 1


def _channel_threshold(ranks: int, algorithm: Algorithm, protocol: Protocol) -> Bytes:
    """Bytes of a message for each channel that is opened."""
    threshold = _THREADS * _BYTES_PER_THREAD[protocol]
    return threshold * ranks if algorithm is Algorithm.RING and protocol is Protocol.LL else threshold


def _channel_bytes(world: World, algorithm: Algorithm, protocol: Protocol, share: float) -> float:
    """Bytes one after the other through a channel that carries `share` of the message.

    A ring pipelines over its ranks; a tree passes its first chunk from hop to hop whole and pipelines the rest.
    """
    ranks, nodes = world
    if algorithm is Algorithm.RING:
        return 2 * (ranks - 1) / ranks * share
    hops = 2 * (ranks // nodes - 1) + 2 * floor(log2(nodes))
    chunk = _TREE_CHUNK[protocol]
    return hops * min(share, chunk) + 2 * max(0.0, share - chunk)


def _model(factors: FloatArray, columns: _Columns) -> FloatArray:
    """Time of each point, s, from the logarithms of the factors."""
    scale = np.exp(factors)
    wire = columns.wire / scale[columns.rate_factor]
    channel = columns.channel / np.where(columns.low_latency, scale[9], scale[10])
    inside = columns.inside * np.where(columns.several & columns.low_latency, scale[11], 1.0)
    return scale[0] * columns.base + scale[1] * inside + scale[2] * columns.across + np.maximum(wire, channel)


def _solve(columns: _Columns, target: FloatArray, site: Site) -> tuple[FloatArray, FloatArray]:
    """Factors (logarithms) nearest to the rows and to 1, by robust Gauss-Newton; and what is left over."""
    centre, freedom = _prior(site)
    factors, step = centre.copy(), 1e-3 * np.eye(len(FACTORS))
    for _ in range(200):
        left = np.log(_model(factors, columns)) - target
        slope = np.stack(
            [(np.log(_model(factors + d, columns)) - np.log(_model(factors - d, columns))) / 2e-3 for d in step], axis=1
        )
        weight = 1 / np.maximum(1.0, np.abs(left) / _ROBUST) / _NOISE**2
        hessian = slope.T @ (slope * weight[:, None]) + np.diag(1 / freedom**2)
        gradient = slope.T @ (weight * left) + (factors - centre) / freedom**2
        move = np.linalg.solve(hessian, gradient)
        factors = factors - 0.5 * np.clip(move, -0.5, 0.5)
        if np.abs(move).max() < 1e-5:
            break
    return factors, np.log(_model(factors, columns)) - target


def _prior(site: Site) -> tuple[FloatArray, FloatArray]:
    """Where each factor is expected (logarithms), and how far it may be from there."""
    centre, freedom = np.zeros(len(FACTORS)), np.full(len(FACTORS), _FREEDOM)
    if site.network_latency is not None:
        published = step_latency(Hardware.NET, Algorithm.RING, Protocol.LL, release=site.release)
        centre[2], freedom[2] = log(site.network_latency / published), _MEASURED_FREEDOM
    return centre, freedom


def _carried(left: Mapping[Bytes, float], size: Bytes) -> float:
    """Leftover at a size, interpolated over the logarithm of the measured ones."""
    sizes = sorted(left)
    return float(np.interp(log(max(size, 1)), np.log(sizes), [left[s] for s in sizes]))
