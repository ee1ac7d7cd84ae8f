"""Whole all-reduces of NCCL on one machine: its tuning model, scaled by factors that a calibration found.

The published model gives the shape (which algorithm and protocol runs at which size, latencies per step, bandwidths
per channel). Two things are added that it leaves out at small sizes: channels are opened one by one as messages grow,
and a tree passes a chunk on only when it has the whole of it. What a fit left over at a measured world size is carried
to the world sizes nearest to it.

Source: NVIDIA/nccl 2.8, src/graph/tuning.cc, src/enqueue.cc (thread thresholds), src/include/devcomm.h (chunk of LL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log, log2, sqrt

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
from simnet.results import Fitted, NcclFit, NcclLeftover, NcclSite, NcclVariant
from simnet.units import GB, Bytes, Seconds

FloatArray = npt.NDArray[np.float64]
World = tuple[int, int]

FACTORS = (
    "base latency", "step inside a node", "step over the network", "LL bandwidth inside", "LL128 bandwidth inside",
    "Simple bandwidth inside", "LL bandwidth across", "LL128 bandwidth across", "Simple bandwidth across",
    "LL channel", "other channel", "LL step inside a node of several",
)  # fmt: skip
REPEATS = 0.02
"""What two runs of the same size differ by, of ln(time): half of 80 %, as `studies run collectives` takes it."""

FREEDOM = 0.5
"""How far a factor may be from 1 before any row is seen: sd of its logarithm."""

_OPEN = 0.9
SIGMAS = 1.2816
"""Half of an 80 % interval of a normal number, in standard deviations."""

_PROTOCOLS = list(Protocol)
_THREADS = 512
_BYTES_PER_THREAD = {Protocol.LL: 8, Protocol.LL128: 8, Protocol.SIMPLE: 64}
_TREE_CHUNK = {Protocol.LL: 32_768, Protocol.LL128: 8_192, Protocol.SIMPLE: 8_192}
_CHANNEL = {Protocol.LL: 3 * GB, Protocol.LL128: 12 * GB, Protocol.SIMPLE: 12 * GB}


def times(fit: NcclFit, ranks: int, nodes: int, sizes: Sequence[Bytes]) -> FloatArray:
    """Time of an all-reduce of each size, s, shape (num_sizes,).

    Raises
    ------
    InvalidInput : nodes do not divide ranks.
    """
    return _times(fit.site, fit.variants[0], (ranks, nodes), sizes)


def half_widths(fit: NcclFit, ranks: int, nodes: int, sizes: Sequence[Bytes]) -> FloatArray:
    """Half of the 80 % interval of ln(time), shape (num_sizes,).

    What going to other world sizes usually misses, the disagreement of the variants, what repeats differ by, at sizes
    nobody measured there what interpolating between the measured ones misses, more the further they are apart, and
    where repeats are of two kinds, how far those are. Factors that the rows say nothing about, such as those of a
    network that no row crosses, may be anywhere in their interval.
    """
    nearest = _nearest(fit.variants[0].leftovers, ranks, nodes)
    doublings = max(abs(log2(ranks / nearest.ranks)), abs(log2(nodes / nearest.nodes)))
    between = interpolation_error(nearest) * np.sqrt(_steps_away(nearest.sizes, sizes))
    learned = fit.error_per_doubling * sqrt(doublings)
    own = SIGMAS * spread(fit, ranks, nodes, sizes)
    untold = _untold(fit, (ranks, nodes), (nearest.ranks, nearest.nodes), sizes)
    usual = np.sqrt(learned**2 + own**2 + between**2 + untold**2 + REPEATS**2)
    return usual + _modes(nearest, sizes)


def _untold(fit: NcclFit, world: World, nearest: World, sizes: Sequence[Bytes]) -> FloatArray:
    """What factors that are as open as before the fit add, half of 80 % of ln(time), shape (num_sizes,).

    Their effect on the nearest measured world is known with that world's times, so that only the difference counts.
    """
    factors = fit.variants[0].factors
    logs = np.log([factors[name].value for name in FACTORS])
    halves = np.array([log(factors[name].high / factors[name].low) / 2 for name in FACTORS])
    here, there = (columns(fit.site, fit.variants[0], [(one, size) for size in sizes]) for one in (world, nearest))
    total = np.zeros(len(sizes))
    for index in np.flatnonzero(halves > _OPEN * SIGMAS * FREEDOM):
        step = np.zeros(len(FACTORS))
        step[index] = halves[index]
        slopes = [np.log(modelled(logs + step, parts) / modelled(logs - step, parts)) / 2 for parts in (here, there)]
        total += (slopes[0] - slopes[1]) ** 2
    return np.sqrt(total)


def _modes(nearest: NcclLeftover, sizes: Sequence[Bytes]) -> FloatArray:
    """What repeats of two kinds add at each size: as much as at the measured sizes around it."""
    if not nearest.modes:
        return np.zeros(len(sizes))
    return np.interp(np.log(np.maximum(sizes, 1)), np.log(nearest.sizes), nearest.modes)


def _steps_away(measured: Sequence[Bytes], sizes: Sequence[Bytes]) -> FloatArray:
    """How far each size is from the nearest measured one, in usual steps between those; 0 where it was measured."""
    known, wanted = np.log(measured), np.log(np.maximum(sizes, 1))
    usual = float(np.median(np.diff(known))) if len(known) > 1 else 1.0
    return np.abs(wanted[:, None] - known[None, :]).min(axis=1) / usual


def spread(fit: NcclFit, ranks: int, nodes: int, sizes: Sequence[Bytes]) -> FloatArray:
    """Disagreement of the variants: standard deviation of ln(time), shape (num_sizes,)."""
    found = [np.log(_times(fit.site, variant, (ranks, nodes), sizes)) for variant in fit.variants]
    return np.std(found, axis=0)


def interpolation_error(leftover: NcclLeftover) -> float:
    """80 % quantile of what each measured size but the ends misses when its neighbours alone are known."""
    known, ratios = np.log(leftover.sizes), np.array(leftover.log_ratio)
    if len(known) < 3:
        return 0.0
    share = (known[1:-1] - known[:-2]) / (known[2:] - known[:-2])
    return float(np.quantile(np.abs(ratios[:-2] + share * (ratios[2:] - ratios[:-2]) - ratios[1:-1]), 0.8))


def measured_worlds(fit: NcclFit) -> tuple[World, ...]:
    """Ranks and nodes that rows were measured at, smallest first."""
    return tuple((one.ranks, one.nodes) for one in fit.variants[0].leftovers)


def nodes_of(fit: NcclFit, ranks: int, ranks_per_node: int | None = None) -> int:
    """Nodes that many ranks are on, filled as in the largest measured world unless stated.

    Raises
    ------
    InvalidInput : the last node would not be full; NCCL's model counts whole nodes alone.
    """
    most, nodes = measured_worlds(fit)[-1]
    per_node = ranks_per_node or most // nodes
    if ranks > per_node and ranks % per_node:
        raise InvalidInput(f"NCCL's model needs full nodes: {ranks} ranks are no multiple of {per_node} per node")
    return max(1, ranks // per_node)


def scaled(
    fit: NcclFit, *, inside: tuple[float, float] = (1.0, 1.0), across: tuple[float, float] = (1.0, 1.0)
) -> NcclFit:
    """The same machine with other wires: factors on bandwidth and on latency, inside a node and between nodes."""
    site = replace(
        fit.site, channel_bandwidth=fit.site.channel_bandwidth * inside[0],
        nic_bandwidth=fit.site.nic_bandwidth * across[0],
    )  # fmt: skip
    steps = {FACTORS[1]: inside[1], FACTORS[2]: across[1]}
    return replace(fit, site=site, variants=tuple(_slower(variant, steps) for variant in fit.variants))


def _slower(variant: NcclVariant, steps: dict[str, float]) -> NcclVariant:
    def times(fitted: Fitted, by: float) -> Fitted:
        return Fitted(fitted.value * by, fitted.low * by, fitted.high * by)

    return replace(variant, factors={n: times(f, steps.get(n, 1.0)) for n, f in variant.factors.items()})


def _times(site: NcclSite, variant: NcclVariant, world: World, sizes: Sequence[Bytes]) -> FloatArray:
    nearest = _nearest(variant.leftovers, *world)
    left = np.interp(np.log(np.maximum(sizes, 1)), np.log(nearest.sizes), nearest.log_ratio)
    return _bare_times(site, variant, world, sizes) * np.exp(left)


def without_leftover(fit: NcclFit, ranks: int, nodes: int, sizes: Sequence[Bytes]) -> FloatArray:
    """Time of an all-reduce of each size by the factors alone, s, shape (num_sizes,)."""
    return _bare_times(fit.site, fit.variants[0], (ranks, nodes), sizes)


def _bare_times(site: NcclSite, variant: NcclVariant, world: World, sizes: Sequence[Bytes]) -> FloatArray:
    logs = np.log([variant.factors[name].value for name in FACTORS])
    return modelled(logs, columns(site, variant, [(world, size) for size in sizes]))


def _nearest(leftovers: Sequence[NcclLeftover], ranks: int, nodes: int) -> NcclLeftover:
    """The measured world most like this one: on several nodes or on one, then by ranks; the larger of two alike."""
    return min(leftovers, key=lambda w: ((w.nodes > 1) != (nodes > 1), abs(log(ranks / w.ranks)), -w.ranks))


@dataclass(frozen=True, slots=True)
class Columns:
    """The published model taken apart, one entry per point: s before, inside, across, on the wire, in channels."""

    base: FloatArray
    inside: FloatArray
    across: FloatArray
    wire: FloatArray
    channel: FloatArray
    rate_factor: npt.NDArray[np.intp]
    low_latency: npt.NDArray[np.bool_]
    several: npt.NDArray[np.bool_]


def columns(site: NcclSite, variant: NcclVariant, points: Sequence[tuple[World, Bytes]]) -> Columns:
    """Take the model apart at points of (ranks, nodes) and size."""
    parts = [_parts(site, variant, world, size) for world, size in points]
    base, inside, across, wire, channel, protocol, several = zip(*parts, strict=True)
    kind = np.array(protocol, np.intp)
    many = np.array(several, bool)
    return Columns(
        np.array(base), np.array(inside), np.array(across), np.array(wire), np.array(channel), 3 + kind + 3 * many,
        kind == _PROTOCOLS.index(Protocol.LL), many,
    )  # fmt: skip


def modelled(log_factors: FloatArray, columns: Columns) -> FloatArray:
    """Time of each point, s, from the logarithms of the factors, in the order of FACTORS."""
    scale = np.exp(log_factors)
    wire = columns.wire / scale[columns.rate_factor]
    channel = columns.channel / np.where(columns.low_latency, scale[9], scale[10])
    inside = columns.inside * np.where(columns.several & columns.low_latency, scale[11], 1.0)
    return scale[0] * columns.base + scale[1] * inside + scale[2] * columns.across + np.maximum(wire, channel)


def _machine(site: NcclSite, variant: NcclVariant, world: World) -> Machine:
    ranks, nodes = world
    rate = site.nic_bandwidth
    return Machine(
        num_ranks=ranks, num_nodes=nodes, num_channels=site.nics if nodes > 1 else site.channels,
        intra_bandwidth=rate if nodes > 1 else site.channel_bandwidth, inter_bandwidth=rate,
        intra=Hardware(site.intra), ll128=variant.ll128_across if nodes > 1 else variant.ll128_inside,
        ampere=site.ampere, release=site.release,
    )  # fmt: skip


def _parts(
    site: NcclSite, variant: NcclVariant, world: World, size: Bytes
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


def published_network_step(release: str) -> Seconds:
    """Latency of a ring step over the network under LL, s, as published."""
    return step_latency(Hardware.NET, Algorithm.RING, Protocol.LL, release=release)
