"""Predict a collective of many sizes on a cluster: one row per size, columns as in measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simnet.algorithms.grid import Grid, parse_grid
from simnet.algorithms.registry import build, find
from simnet.catalog import load_cluster, uniform
from simnet.collective import Kind
from simnet.costs.alpha_beta import AlphaBeta
from simnet.costs.model import CostModel
from simnet.errors import InvalidInput
from simnet.hardware import Cluster
from simnet.interpreters import engine as engines
from simnet.metrics import algbw, busbw
from simnet.paths import Paths
from simnet.results import CollectivePrediction, Estimate
from simnet.schedule import Schedule
from simnet.topologies.registry import cluster_paths
from simnet.units import Bytes, parse_sizes

ITEM_SIZES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8,
}  # fmt: skip

_PARTITIONED = (Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_TO_ALL)


def predict_collective(
    *,
    ranks: int,
    cluster: str | Cluster = "uniform",
    bandwidth: str | float | None = None,
    latency: str | float | None = None,
    algorithm: str = "ring",
    grid: str | Grid | None = None,
    ranks_per_node: int | None = None,
    sizes: str | int | Sequence[Bytes] = "4:32M:2",
    dtype: str = "float",
    engine: str = "auto",
    cost: CostModel | None = None,
    catalog: str | None = None,
) -> list[CollectivePrediction]:
    """Predict how long a collective takes, for every size.

    Parameters
    ----------
    cluster : name in the catalogue, or a record; `uniform` needs bandwidth and latency
    algorithm : name in the catalogue
    grid : of grid algorithms, "4x4" or (4, 4)
    ranks_per_node : devices used of every node; default all
    sizes : bytes per rank, as text in nccl-tests' grammar or whole numbers
    dtype : nccl-tests' name of the element type; sizes are rounded down to whole elements, and where ranks
        own parts to a multiple of the ranks, as nccl-tests does
    engine : auto, estimate or simulate
    cost : what a message costs; default alpha-beta
    catalog : folder with files of your own

    Raises
    ------
    InvalidInput : unknown name, wrong unit, a grid that does not multiply to the ranks, ...
    """
    site = _site(
        cluster, bandwidth=bandwidth, latency=latency, ranks=ranks, ranks_per_node=ranks_per_node, catalog=catalog
    )
    schedule = _schedule(algorithm, ranks, grid, site.ranks_per_node if ranks_per_node is None else ranks_per_node)
    counts = _counts(sizes, dtype, schedule)
    model = cost or AlphaBeta()
    timed = engines.run(schedule, np.array(counts), site.paths, model, engine=engine, itemsize=ITEM_SIZES[dtype])
    return _rows(schedule, site, counts, dtype, timed)


@dataclass(frozen=True, slots=True)
class _Site:
    name: str
    paths: Paths
    ranks_per_node: int


def _site(
    cluster: str | Cluster,
    *,
    bandwidth: str | float | None,
    latency: str | float | None,
    ranks: int,
    ranks_per_node: int | None,
    catalog: str | None,
) -> _Site:
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
    paths = cluster_paths(chosen, ranks, ranks_per_node=ranks_per_node)
    return _Site(chosen.name, paths, chosen.node.num_devices)


def _schedule(algorithm: str, ranks: int, grid: str | Grid | None, per_node: int) -> Schedule:
    shape = parse_grid(grid) if isinstance(grid, str) else grid
    takes = find(algorithm).options
    fits = "ranks_per_node" in takes and ranks % per_node == 0
    return build(algorithm, ranks, grid=shape, ranks_per_node=per_node if fits else None)


def _counts(sizes: str | int | Sequence[Bytes], dtype: str, schedule: Schedule) -> list[int]:
    if dtype not in ITEM_SIZES:
        raise InvalidInput(f"dtype must be one of {', '.join(ITEM_SIZES)}, got {dtype!r}")
    given = parse_sizes(sizes) if isinstance(sizes, str) else [sizes] if isinstance(sizes, int) else list(sizes)
    if not given or any(size < 0 or size != int(size) for size in given):
        raise InvalidInput(f"sizes must be whole bytes, 0 or more, got {given}")
    multiple = schedule.world_size if schedule.collective.kind in _PARTITIONED else 1
    return [int(size) // ITEM_SIZES[dtype] // multiple * multiple for size in given]


def _rows(
    schedule: Schedule, site: _Site, counts: list[int], dtype: str, timed: Estimate
) -> list[CollectivePrediction]:
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
