"""Predict a collective of many sizes on a cluster: one row per size, columns as in measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simnet.algorithms.grid import Grid, parse_grid
from simnet.algorithms.registry import build, find, on_nodes
from simnet.catalog import load_cluster, uniform
from simnet.collective import Kind
from simnet.costs import nccl_scaled
from simnet.costs.alpha_beta import AlphaBeta
from simnet.costs.fitted import of_profile
from simnet.costs.model import CostModel
from simnet.costs.registry import of_text
from simnet.errors import InvalidInput
from simnet.hardware import Cluster
from simnet.interpreters import engine as engines
from simnet.metrics import algbw, busbw
from simnet.paths import Paths
from simnet.profile_prices import NCCL
from simnet.profiles import read_profile
from simnet.results import CollectivePrediction, Estimate, Fitted, Profile
from simnet.schedule import Schedule
from simnet.topologies.registry import cluster_paths
from simnet.units import Bytes, parse_sizes

ITEM_SIZES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8,
}  # fmt: skip

UNLIMITED = (1e15, 0.0)
"""Bandwidth, bytes/s, and latency, s, of uniform ports where a profile alone says what messages cost."""

_PARTITIONED = (Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_TO_ALL)


def predict_collective(
    *,
    ranks: int,
    cluster: str | Cluster = "uniform",
    bandwidth: str | float | None = None,
    latency: str | float | None = None,
    algorithm: str | Schedule | None = None,
    grid: str | Grid | None = None,
    ranks_per_node: int | None = None,
    sizes: str | int | Sequence[Bytes] = "4:32M:2",
    dtype: str = "float",
    engine: str = "auto",
    cost: str | CostModel | None = None,
    profile: str | Path | Profile | None = None,
    catalog: str | None = None,
) -> list[CollectivePrediction]:
    """Predict how long a collective takes, for every size.

    Rows have an 80 % interval where the links or the profile have one: all at their fast ends, all at their slow.

    Parameters
    ----------
    cluster : name in the catalogue, or a record; `uniform` needs bandwidth and latency
    algorithm : name in the catalogue, or a schedule of that many ranks; "nccl" is whatever NCCL runs, by a profile
        that holds its fit, and the default with such a profile, ring otherwise
    grid : of grid algorithms, "4x4" or (4, 4)
    ranks_per_node : devices used of every node; default all; on uniform, where ranks are alike, the algorithm's groups
    sizes : bytes per rank, as text in nccl-tests' grammar or whole numbers
    dtype : nccl-tests' name of the element type; sizes are rounded down to elements and parts as nccl-tests does
    engine : auto, estimate or simulate
    cost : what a message costs, a model or text such as "tcp:flows=4"; default alpha-beta
    profile : what `simnet calibrate` found, in place of `cost`; `uniform` then needs no bandwidth and latency
    catalog : folder with files of your own

    Raises
    ------
    InvalidInput : unknown name, wrong unit, a grid that does not multiply to the ranks, ...
    """
    model, fitted = _models(cost, profile)
    if algorithm == NCCL or (algorithm is None and fitted is not None and fitted.nccl is not None):
        place = (
            None if cluster == "uniform" else load_cluster(cluster, catalog) if isinstance(cluster, str) else cluster
        )
        given = {
            "bandwidth": bandwidth,
            "latency": latency,
            "grid": grid,
            "engine": None if engine == "auto" else engine,
        }
        return _by_nccl(
            fitted, place, given, ranks=ranks, ranks_per_node=ranks_per_node, sizes=sizes, dtype=dtype
        )  # fmt: skip
    if fitted is not None and cluster == "uniform" and bandwidth is None and latency is None:
        bandwidth, latency = UNLIMITED
    site = find_site(
        ranks=ranks, cluster=cluster, bandwidth=bandwidth, latency=latency, ranks_per_node=ranks_per_node,
        catalog=catalog,
    )  # fmt: skip
    if fitted is None:
        runs = [(place.paths, model, 0.0) for place in (site, *_corners(site, ranks_per_node))]
    else:
        runs = [(site.paths, *price) for price in _prices(fitted)]
    schedule = build_schedule("ring" if algorithm is None else algorithm, site, grid=grid)
    rows = _timed(schedule, site, runs, sizes=sizes, dtype=dtype, engine=engine)
    return rows if fitted is None else [replace(row, profile=fitted.name) for row in rows]


def _by_nccl(
    profile: Profile | None,
    cluster: Cluster | None,
    given: Mapping[str, object],
    *,
    ranks: int,
    ranks_per_node: int | None,
    sizes: str | int | Sequence[Bytes],
    dtype: str,
) -> list[CollectivePrediction]:
    """Rows of NCCL's own all-reduce, by its model as the profile scales it; what else is `given` has no place there."""
    if profile is None or profile.nccl is None:
        raise InvalidInput(
            "the algorithm nccl needs a profile that holds NCCL's fit; write one with simnet calibrate --nics, "
            "or see the published model with simnet nccl"
        )
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"the algorithm nccl takes its times from the profile and no {name}, got {value}; leave it out"
            )
    if ranks < 2:
        raise InvalidInput(f"NCCL's all-reduce is between 2 ranks or more, got {ranks}")
    if cluster is not None and ranks > cluster.num_devices:
        raise InvalidInput(f"{cluster.name} has {cluster.num_devices} devices, got ranks {ranks}")
    nodes = nccl_scaled.nodes_of(profile.nccl, ranks, ranks_per_node or (cluster.node.num_devices if cluster else None))
    counts = [size // ITEM_SIZES[dtype] for size in checked_sizes(sizes, dtype)]
    whole = [count * ITEM_SIZES[dtype] for count in counts]
    times = nccl_scaled.times(profile.nccl, ranks, nodes, whole)
    spread = np.exp(nccl_scaled.half_widths(profile.nccl, ranks, nodes, whole))
    return [
        CollectivePrediction(
            str(Kind.ALL_REDUCE), NCCL, cluster.name if cluster else "", ranks, size, count, dtype, time,
            algbw(size, time), busbw(Kind.ALL_REDUCE, ranks, size, time), "nccl profile", exact=False,
            profile=profile.name, low_s=time / wide, high_s=time * wide,
            reason=f"NCCL's model of the whole all-reduce on {nodes} nodes, scaled to measured rows",
        )
        for size, count, time, wide in zip(whole, counts, times.tolist(), spread.tolist(), strict=True)
    ]  # fmt: skip


def _timed(
    schedule: Schedule,
    site: Site,
    runs: Sequence[tuple[Paths, CostModel, float]],
    *,
    sizes: str | int | Sequence[Bytes],
    dtype: str,
    engine: str,
) -> list[CollectivePrediction]:
    """Rows of the first run; where there are others, they are the ends of its interval.

    What is too much to simulate for the first is not tried again for the others.
    """
    counts = counts_of(sizes, dtype, schedule)
    timed: list[Estimate] = []
    for paths, price, gamma in runs:
        timed.append(engines.run(
            schedule, np.array(counts), paths, price,
            engine=engine, itemsize=ITEM_SIZES[dtype], gamma=gamma, bracket=not timed,
        ))  # fmt: skip
        if not np.all(timed[0].exact):
            engine = engines.Engine.ESTIMATE
    rows = rows_of(schedule, site, counts, dtype, timed[0])
    if len(timed) == 1:
        return rows
    ends = np.sort([np.asarray(run.time, float) for run in timed], axis=0)[[0, -1]]
    return [replace(row, low_s=float(low), high_s=float(high)) for row, low, high in zip(rows, *ends, strict=True)]


def _models(cost: str | CostModel | None, profile: str | Path | Profile | None) -> tuple[CostModel, Profile | None]:
    fitted = read_profile(profile) if isinstance(profile, str | Path) else profile
    model = of_text(cost) if isinstance(cost, str) else cost or AlphaBeta()
    if fitted is not None and cost is not None:
        raise InvalidInput(f"cost and profile exclude each other, got {model.name} and {fitted.name}; leave one out")
    return model, fitted


def priced(cost: str | CostModel | None, profile: str | Path | Profile | None) -> tuple[CostModel, float]:
    """What a message costs, and s per byte added; parameters as for `predict_collective`."""
    model, fitted = _models(cost, profile)
    return (model, 0.0) if fitted is None else _prices(fitted)[0]


def _prices(profile: Profile) -> list[tuple[CostModel, float]]:
    """Message costs and seconds per byte added: the values, then all at their fast and all at their slow ends."""
    gamma = profile.gamma_s_per_byte or Fitted(0.0, 0.0, 0.0)
    return [
        (of_profile(profile), gamma.value),
        (of_profile(_corner(profile, "low", "high")), gamma.low),
        (of_profile(_corner(profile, "high", "low")), gamma.high),
    ]


def _corners(site: Site, ranks_per_node: int | None) -> Iterator[Site]:
    """The site with all links at their fast ends, and at their slow ends; none where their figures are exact."""
    wires = site.cluster.wires()
    if all(quantity.spread <= 1 for w in wires.values() for quantity in (w.link.bandwidth, w.link.latency)):
        return
    for bandwidth, latency in (("high", "low"), ("low", "high")):
        types = {
            name: replace(
                wire.link,
                bandwidth=replace(wire.link.bandwidth, value=getattr(wire.link.bandwidth, bandwidth)),
                latency=replace(wire.link.latency, value=getattr(wire.link.latency, latency)),
            )
            for name, wire in wires.items()
        }
        ranks = site.paths.world_size
        yield find_site(ranks=ranks, cluster=site.cluster.with_links(types), ranks_per_node=ranks_per_node)


def _corner(profile: Profile, latency: str, bandwidth: str) -> Profile:
    def at(fitted: Fitted, end: str) -> Fitted:
        return replace(fitted, value=getattr(fitted, end))

    segments = (
        replace(
            segment,
            latency_s=at(segment.latency_s, latency),
            bandwidth_bytes_per_s=at(segment.bandwidth_bytes_per_s, bandwidth),
        )
        for segment in profile.segments
    )
    return replace(profile, segments=tuple(segments))


@dataclass(frozen=True, slots=True)
class Site:
    """Ranks placed on a cluster; ranks_per_node is the size of the groups that hierarchical algorithms form.

    Groups of a whole node that do not divide the ranks give way to the algorithm's default; a size somebody
    asked for (groups_given) does not.
    """

    cluster: Cluster
    paths: Paths
    ranks_per_node: int
    groups_given: bool = False

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.cluster.name


def find_site(
    *,
    ranks: int,
    cluster: str | Cluster = "uniform",
    bandwidth: str | float | None = None,
    latency: str | float | None = None,
    ranks_per_node: int | None = None,
    catalog: str | None = None,
) -> Site:
    """Place ranks on a cluster; parameters and errors as for `predict_collective`."""
    if cluster == "uniform":
        if bandwidth is None or latency is None:
            raise InvalidInput("the cluster uniform needs a bandwidth and a latency, such as 12.5 GB/s and 1 us")
        chosen = uniform(bandwidth, latency, folder=catalog)
    elif bandwidth is not None or latency is not None:
        name = cluster if isinstance(cluster, str) else cluster.name
        raise InvalidInput(f"bandwidth and latency belong to the cluster uniform, got cluster {name}; leave them out")
    else:
        chosen = load_cluster(cluster, catalog) if isinstance(cluster, str) else cluster
    if ranks < 1:
        raise InvalidInput(f"ranks must be 1 or more, got {ranks}")
    paths = cluster_paths(chosen, ranks, ranks_per_node=None if cluster == "uniform" else ranks_per_node)
    per_node = chosen.node.num_devices if ranks_per_node is None else ranks_per_node
    return Site(chosen, paths, per_node, groups_given=ranks_per_node is not None)


def build_schedule(algorithm: str | Schedule, site: Site, *, grid: str | Grid | None = None) -> Schedule:
    """Build an algorithm for the ranks of a site; algorithms that form groups form them of its nodes."""
    if isinstance(algorithm, Schedule):
        if algorithm.world_size != site.paths.world_size:
            raise InvalidInput(
                f"{algorithm.name} is for {algorithm.world_size} ranks, got ranks {site.paths.world_size}"
            )
        return algorithm
    shape = parse_grid(grid) if isinstance(grid, str) else grid
    grouped = site.groups_given and "ranks_per_node" in find(algorithm).options
    given = {"grid": shape, "ranks_per_node": site.ranks_per_node if grouped else None}
    ranks = site.paths.world_size
    return build(algorithm, ranks, **on_nodes(algorithm, ranks, site.ranks_per_node, given))


def counts_of(sizes: str | int | Sequence[Bytes], dtype: str, schedule: Schedule) -> list[int]:
    """Elements per rank of each size, rounded down to what the collective can divide."""
    given = checked_sizes(sizes, dtype)
    multiple = schedule.world_size if schedule.collective.kind in _PARTITIONED else 1
    return [size // ITEM_SIZES[dtype] // multiple * multiple for size in given]


def checked_sizes(sizes: str | int | Sequence[Bytes], dtype: str) -> list[Bytes]:
    """Whole bytes per rank, from text or numbers.

    Raises
    ------
    InvalidInput : an element type nobody knows, or sizes that are no whole bytes.
    """
    if dtype not in ITEM_SIZES:
        raise InvalidInput(f"dtype must be one of {', '.join(ITEM_SIZES)}, got {dtype!r}")
    given = parse_sizes(sizes) if isinstance(sizes, str) else [sizes] if isinstance(sizes, int) else list(sizes)
    if not given or any(size < 0 or size != int(size) for size in given):
        raise InvalidInput(f"sizes must be whole bytes, 0 or more, got {given}")
    return [int(size) for size in given]


def rows_of(
    schedule: Schedule, site: Site, counts: list[int], dtype: str, timed: Estimate
) -> list[CollectivePrediction]:
    """Rows of a timed schedule, one per count."""
    rows = []
    kind, ranks = schedule.collective.kind, schedule.world_size
    for i, count in enumerate(counts):
        size, time = count * ITEM_SIZES[dtype], float(np.asarray(timed.time)[i])
        exact = bool(np.asarray(timed.exact)[i])
        rows.append(CollectivePrediction(
            collective=str(kind), algorithm=schedule.name, cluster=site.name, ranks=ranks, size_bytes=size,
            count=count, dtype=dtype, time_s=time, algbw_bytes_per_s=algbw(size, time),
            busbw_bytes_per_s=busbw(kind, ranks, size, time), engine=timed.engine, exact=exact, profile="",
            reason="" if exact else timed.reason,
        ))  # fmt: skip
    return rows
