"""What all-reduces of several sizes cost on a cluster, and how that moves with each kind of link.

One pass of the engine prices a few sizes under every perturbation at once; sizes between them are interpolated,
which is exact where time is linear in the bytes. A price has two parts: `latency`, what the smallest message of
the schedule takes, which other all-reduces in flight can hide, and `transfer`, the rest, which they cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet.algorithms.registry import build, find
from simnet.collective import Kind
from simnet.costs.model import CostModel
from simnet.errors import InvalidInput
from simnet.hardware import Cluster, LinkType, Quantity, Wire
from simnet.interpreters import engine
from simnet.interpreters.stages import LinkDraws
from simnet.paths import FabricPaths, Paths
from simnet.placement import Placement
from simnet.schedule import IntArray, Schedule
from simnet.topologies.registry import build as build_fabric
from simnet.topologies.registry import cluster_paths

FloatArray = npt.NDArray[np.float64]

SIGMAS = 2.5631
"""Width of an 80 % interval of a normal number, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Input:
    """A number of the catalogue that prices depend on, with factors that span 80 % of what it may be."""

    kind: str
    what: str
    low: float
    high: float

    @property
    def name(self) -> str:
        """Shown in tables."""
        return f"{self.what} of {self.kind}"

    @property
    def far(self) -> float:
        """End of the interval that is further from the catalogue's value."""
        return self.low if -np.log(self.low) > np.log(self.high) else self.high

    @property
    def sd(self) -> float:
        """Of the log of the number."""
        return float(np.log(self.high / self.low)) / SIGMAS

    @property
    def offset(self) -> float:
        """Middle of the interval, in sds from the catalogue's value."""
        return float(np.log(self.low) + np.log(self.high)) / 2 / self.sd


@dataclass(frozen=True, slots=True)
class Prices:
    """Times in s of all-reduces, each (num_sizes,), and what an sd of each input adds, s, (num_inputs, num_sizes)."""

    sizes: FloatArray
    latency: FloatArray
    transfer: FloatArray
    inputs: tuple[Input, ...]
    latency_sd: FloatArray
    transfer_sd: FloatArray
    exact: bool = True
    engine: str = ""
    reason: str = ""

    @property
    def time(self) -> FloatArray:
        """Whole time of each size, s."""
        return self.latency + self.transfer

    def at(self, num_bytes: Sequence[float]) -> Prices:
        """Prices of other sizes up to the largest, by interpolation."""
        wanted = np.asarray(num_bytes, float)

        def between(values: FloatArray) -> FloatArray:
            rows = [np.interp(wanted, self.sizes, row) for row in np.atleast_2d(values)]
            return np.array(rows).reshape(len(rows), len(wanted))

        return replace(
            self, sizes=wanted, latency=between(self.latency)[0], transfer=between(self.transfer)[0],
            latency_sd=between(self.latency_sd), transfer_sd=between(self.transfer_sd),
        )  # fmt: skip

    def spread(self, ports: int) -> Prices:
        """Prices of buckets whose roots take turns: each holds up one of `ports` ports, so the rest can be hidden."""
        hidden, hidden_sd = self.transfer * (1 - 1 / ports), self.transfer_sd * (1 - 1 / ports)
        return replace(
            self, latency=self.latency + hidden, transfer=self.transfer - hidden,
            latency_sd=self.latency_sd + hidden_sd, transfer_sd=self.transfer_sd - hidden_sd,
        )  # fmt: skip


def scaled(cluster: Cluster, bandwidth: Mapping[str, float], latency: Mapping[str, float]) -> Cluster:
    """Return the cluster with wires scaled, by their name ("network.port"), or all "inter" or "intra" ones.

    Raises
    ------
    InvalidInput : the cluster has no such wire.
    """
    wires = {name: wire.link for name, wire in cluster.wires().items()}
    changed: dict[str, LinkType] = {}
    for factors, what in ((bandwidth, "bandwidth"), (latency, "latency")):
        for name, factor in _by_wire(cluster, factors):
            link = changed.get(name, wires[name])
            changed[name] = replace(link, **{what: getattr(link, what).scaled(factor)})
    return cluster.with_links(changed) if changed else cluster


def _by_wire(cluster: Cluster, factors: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Factors by wire: "inter" stands for all wires of the network, "intra" for all of the node."""
    wires = cluster.wires()
    for key, factor in factors.items():
        place = {"inter": "network.", "intra": "node."}.get(key, key)
        found = [name for name in wires if name == key or (place != key and name.startswith(place))]
        if not found or not 0 < factor < np.inf:
            raise InvalidInput(
                f"{cluster.name} cannot scale {key!r} by {factor!r}; scale inter, intra or one of {', '.join(wires)} "
                "by more than 0"
            )
        yield from ((name, factor) for name in found)


def price(
    cluster: Cluster, algorithm: str, options: Mapping[str, Any], ranks: int, sizes: Sequence[float], *,
    itemsize: int, cost: CostModel, gamma: float = 0.0, uncertain: bool = True, members: Sequence[int] = (),
    slow_links: Mapping[str, float] | None = None,
) -> Prices:  # fmt: skip
    """Price all-reduces of up to the largest of `sizes` bytes on the first `ranks` devices of a cluster, or `members`.

    Without `uncertain` the catalogue's values alone are used, which is quicker. Where ranks out of step share links
    the static share is used; `exact` is then false, with the reason.
    """
    if ranks == 1 or not len(sizes):
        none = np.zeros(2)
        return Prices(np.array([0.0, max(sizes, default=1.0)]), none, none, (), np.zeros((0, 2)), np.zeros((0, 2)))
    schedule = schedule_of(algorithm, ranks, options)
    paths = _paths_among(cluster, members) if len(members) else paths_of(cluster, ranks, slow_links)
    inputs = _inputs(cluster, paths) if uncertain else ()
    counts = _grid(max(1, schedule.num_chunks), sorted({-(-int(size) // itemsize) for size in sizes}))
    batch, draws = _perturbed(counts, paths, inputs)
    found = engine.run(schedule, batch, paths, cost, itemsize=itemsize, gamma=gamma, draws=draws)
    times = np.asarray(found.time, float)
    base = times[: len(counts)]
    sds = _sds(base, times[len(counts) :].reshape(len(inputs), 2), counts, inputs)
    return Prices(
        np.array(counts, float) * itemsize, np.full(len(counts), base[0]), base - base[0], inputs,
        np.broadcast_to(sds[:, :1], sds.shape), sds - sds[:, :1], bool(np.all(found.exact)), found.engine, found.reason,
    )  # fmt: skip


def paths_of(cluster: Cluster, ranks: int, slow_links: Mapping[str, float] | None = None) -> Paths:
    """Paths of the first ranks of a cluster, the bandwidth of links like "n3/nic0 -> leaf0" divided by their factors.

    Raises
    ------
    InvalidInput : the fabric has no such link, or no links with names.
    """
    paths = cluster_paths(cluster, ranks)
    if not slow_links:
        return paths
    if not isinstance(paths, FabricPaths):
        raise InvalidInput(f"ports of {cluster.name} are alike and have no names; describe a network to slow a link of")
    return FabricPaths(paths.fabric.slowed({_ends(name): f for name, f in slow_links.items()}), paths.placement)


def _ends(name: str) -> tuple[str, str]:
    src, arrow, dst = name.partition("->")
    if not arrow:
        raise InvalidInput(f"a slow link is named from where to where, such as 'n3/nic0 -> leaf0', got {name!r}")
    return src.strip(), dst.strip()


def _paths_among(cluster: Cluster, members: Sequence[int]) -> Paths:
    """Paths between chosen devices of a cluster, by their ranks in node order."""
    built = build_fabric(cluster, cluster.num_nodes)
    return FabricPaths(built.fabric, Placement(tuple(built.devices[rank] for rank in members)))


@lru_cache(maxsize=64)
def _built(algorithm: str, ranks: int, options: tuple[tuple[str, Any], ...]) -> Schedule:
    return build(algorithm, ranks, **dict(options))


def schedule_of(algorithm: str, ranks: int, options: Mapping[str, Any]) -> Schedule:
    """Build the schedule of an all-reduce, or return the one built before.

    Raises
    ------
    InvalidInput : an algorithm that is none, does something else, or does not take these options.
    """
    kind = find(algorithm).kind
    if kind is not Kind.ALL_REDUCE:
        raise InvalidInput(f"{algorithm} is no all-reduce but {kind}; name one that sums gradients, such as ring")
    return _built(algorithm, ranks, tuple(sorted(options.items())))


def _grid(least: int, wanted: list[int]) -> list[int]:
    """One element a chunk, then the counts asked for, or as many as steps of a factor of four where those are fewer."""
    counts, most = [least], wanted[-1]
    while counts[-1] * 4 < most:
        counts.append(counts[-1] * 4)
    exact = [count for count in wanted if count > least]
    coarse = [*counts[1:], most] if most > least else []
    return [least, *(exact if len(exact) <= len(coarse) else coarse)]


def _inputs(cluster: Cluster, paths: Paths) -> tuple[Input, ...]:
    kinds: dict[str, Wire] = {}
    for wire in cluster.wires().values():
        known = kinds.get(wire.link.name)
        if known is None or wire.link.bandwidth.spread > known.link.bandwidth.spread:
            kinds[wire.link.name] = wire
    present = {link.kind for link in paths.fabric.links} if isinstance(paths, FabricPaths) else set(kinds)
    found = []
    for name, wire in kinds.items():
        for what, quantity in (("bandwidth", wire.link.bandwidth), ("latency", wire.link.latency)):
            if name in present and quantity.value > 0 and quantity.spread > 1.001:
                found.append(Input(name, what, *_relative(quantity)))
    return tuple(found)


def _relative(quantity: Quantity) -> tuple[float, float]:
    return quantity.low / quantity.value, quantity.high / quantity.value


def _perturbed(counts: list[int], paths: Paths, inputs: tuple[Input, ...]) -> tuple[IntArray, LinkDraws]:
    """Every size as the catalogue says, then the smallest and the largest with each input at its far end."""
    bandwidth, latency, kinds = _link_columns(paths, inputs)
    wide, late = [bandwidth] * len(counts), [latency] * len(counts)
    for entry in inputs:
        factor = np.where(np.array(kinds) == entry.kind, entry.far, 1.0)
        wide += [bandwidth * factor if entry.what == "bandwidth" else bandwidth] * 2
        late += [latency * factor if entry.what == "latency" else latency] * 2
    batch = np.array([*counts, *[counts[0], counts[-1]] * len(inputs)], np.int64)
    return batch, LinkDraws(latency=np.array(late), bandwidth=np.array(wide))


def _link_columns(paths: Paths, inputs: tuple[Input, ...]) -> tuple[FloatArray, FloatArray, list[str]]:
    """Bandwidth and latency of every link, and its kind; a uniform port has its latency on the way out."""
    if isinstance(paths, FabricPaths):
        return paths.fabric.bandwidths, paths.fabric.latencies, [link.kind for link in paths.fabric.links]
    bandwidth = paths.link_bandwidth
    way_out = np.arange(len(bandwidth)) < paths.world_size
    latency = paths.latency(np.array([0]), np.array([1]))[0]
    return bandwidth, np.where(way_out, latency, 0.0), [inputs[0].kind if inputs else ""] * len(bandwidth)


def _sds(base: FloatArray, ends: FloatArray, counts: list[int], inputs: tuple[Input, ...]) -> FloatArray:
    """S per sd of each input, with the sign of its effect, (num_inputs, num_sizes); linear in the size."""
    if not inputs:
        return np.zeros((0, len(counts)))
    steps = np.array([np.log(entry.far) / entry.sd for entry in inputs])
    slopes = (ends - base[[0, -1]]) / steps[:, None]
    share = (np.array(counts, float) - counts[0]) / max(1, counts[-1] - counts[0])
    return slopes[:, :1] + share * (slopes[:, 1:] - slopes[:, :1])


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What one kind of link would give: the share of an all-reduce's time that is gone where it is twice as good."""

    kind: str
    what: str
    saved: float


def bottlenecks(
    cluster: Cluster, algorithm: str, options: Mapping[str, Any], ranks: int, num_bytes: float, *, itemsize: int,
    cost: CostModel, slow_links: Mapping[str, float] | None = None,
) -> list[Bottleneck]:  # fmt: skip
    """Kinds of links by how much doubling their bandwidth, or halving their latency, takes off one all-reduce."""
    if ranks == 1:
        return []
    schedule, paths = schedule_of(algorithm, ranks, options), paths_of(cluster, ranks, slow_links)
    kinds = dict.fromkeys(wire.link.name for wire in cluster.wires().values())
    better = [Input(kind, what, *ends) for kind in kinds for what, ends in _BETTER.items()]
    count = max(schedule.num_chunks, -(-int(num_bytes) // itemsize))
    batch, draws = _perturbed([count], paths, tuple(better))
    timed = engine.run(schedule, batch, paths, cost, itemsize=itemsize, draws=draws)
    times = np.asarray(timed.time, float)
    found = [Bottleneck(b.kind, b.what, float(1 - t / times[0])) for b, t in zip(better, times[1::2], strict=True)]
    return sorted(found, key=lambda b: -b.saved)


_BETTER = {"bandwidth": (1.0, 2.0), "latency": (0.5, 1.0)}


@dataclass(frozen=True, slots=True)
class ApproximationError:
    """Static share over simulation, minus 1, of one all-reduce among `ranks` in several draws of its links."""

    ranks: int
    draws: int
    median: float
    largest: float


def approximation_error(
    cluster: Cluster, algorithm: str, options: Mapping[str, Any], ranks: int, num_bytes: float, *, itemsize: int,
    cost: CostModel, draws: int, rng: np.random.Generator, slow_links: Mapping[str, float] | None = None,
) -> ApproximationError:  # fmt: skip
    """Time an all-reduce both ways, with every uncertain link drawn anew each time; slow above 100,000 messages."""
    schedule = schedule_of(algorithm, ranks, options)
    count = max(schedule.num_chunks, -(-int(num_bytes) // itemsize))
    places = (paths_of(drawn(cluster, rng), ranks, slow_links) for _ in range(draws))
    return held_against_simulation(schedule, count, places, cost, itemsize=itemsize)


def held_against_simulation(
    schedule: Schedule, count: int, places: Iterable[Paths], cost: CostModel, *, itemsize: int, gamma: float = 0.0
) -> ApproximationError:
    """Time a schedule on each of several paths by static share and by simulation."""
    errors = []
    for paths in places:
        found, simulated = (
            engine.run(schedule, count, paths, cost, itemsize=itemsize, gamma=gamma, engine=name, bracket=False)
            for name in ("estimate", "simulate")
        )
        errors.append(float(found.time) / float(np.max(simulated.time)) - 1)
    return ApproximationError(schedule.world_size, len(errors), float(np.median(errors)), float(max(errors, key=abs)))


def drawn(cluster: Cluster, rng: np.random.Generator) -> Cluster:
    """The cluster with bandwidth and latency of every wire drawn from their intervals."""
    factors: dict[str, dict[str, float]] = {"bandwidth": {}, "latency": {}}
    for name, wire in cluster.wires().items():
        for what, known in factors.items():
            quantity: Quantity = getattr(wire.link, what)
            if quantity.value > 0 and quantity.low > 0:
                ends = np.log(_relative(quantity))
                known[name] = float(np.exp(ends.mean() + (ends[1] - ends[0]) / SIGMAS * rng.standard_normal()))
    return scaled(cluster, factors["bandwidth"], factors["latency"])
