"""How far the static share of a collective is from simulation, on draws of the cluster's links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simnet.algorithms.grid import Grid
from simnet.collective_prediction import ITEM_SIZES, UNLIMITED, build_schedule, find_site, priced
from simnet.costs.model import CostModel
from simnet.errors import InvalidInput
from simnet.exchange import ApproximationError, drawn, held_against_simulation
from simnet.hardware import Cluster
from simnet.results import CollectivePrediction, Profile
from simnet.schedule import Schedule


def approximation_of(
    rows: Sequence[CollectivePrediction],
    draws: int,
    *,
    ranks: int,
    cluster: str | Cluster = "uniform",
    bandwidth: str | float | None = None,
    latency: str | float | None = None,
    algorithm: str | Schedule | None = None,
    grid: str | Grid | None = None,
    ranks_per_node: int | None = None,
    cost: str | CostModel | None = None,
    profile: str | Path | Profile | None = None,
    catalog: str | None = None,
    seed: int = 0,
) -> ApproximationError | None:
    """Hold the largest of the rows that are not exact against simulation; None where all are exact.

    Parameters
    ----------
    rows : what `predict_collective` gave for the other parameters
    draws : so many times every uncertain link is drawn anew; simulating takes long above 100,000 messages

    Raises
    ------
    InvalidInput : no draws, or rows of NCCL's fit, which has no messages to simulate.
    """
    if draws < 1:
        raise InvalidInput(f"draws must be 1 or more, got {draws}")
    inexact = [row for row in rows if not row.exact]
    if not inexact:
        return None
    if inexact[0].engine == "nccl profile":
        raise InvalidInput("NCCL's fit has no messages to simulate; name an algorithm, or leave out --simulate-draws")
    if profile is not None and cluster == "uniform" and bandwidth is None and latency is None:
        bandwidth, latency = UNLIMITED
    site = find_site(
        ranks=ranks, cluster=cluster, bandwidth=bandwidth, latency=latency, ranks_per_node=ranks_per_node,
        catalog=catalog,
    )  # fmt: skip
    schedule = build_schedule("ring" if algorithm is None else algorithm, site, grid=grid)
    model, gamma = priced(cost, profile)
    row, rng = max(inexact, key=lambda row: row.size_bytes), np.random.default_rng(seed)
    clusters = (drawn(site.cluster, rng) for _ in range(draws))
    places = (find_site(ranks=ranks, cluster=one, ranks_per_node=ranks_per_node).paths for one in clusters)
    return held_against_simulation(schedule, row.count, places, model, itemsize=ITEM_SIZES[row.dtype], gamma=gamma)
