"""All-reduces at world sizes nobody measured, from logs of smaller ones, with what such predictions usually miss."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log2, sqrt

import numpy as np

from simnet.collective import Kind
from simnet.costs.nccl_scaled import REPEATS, SIGMAS, half_widths, times
from simnet.errors import InvalidInput
from simnet.metrics import algbw, busbw
from simnet.nccl_fit import fit_nccl, usual_error
from simnet.results import CollectivePrediction, Measurement, NcclSite
from simnet.ring_fit import fit_ring
from simnet.units import Bytes, Seconds


def extrapolate(
    rows: Sequence[Measurement], *, ranks: int, nodes: int | None = None, site: NcclSite | None = None
) -> list[CollectivePrediction]:
    """Predict every measured size at another world size, with an 80 % interval.

    Parameters
    ----------
    nodes : needed with `site`
    site : the machine as NCCL counts it; without one, a ring size by size, which needs two measured world sizes

    Raises
    ------
    InvalidInput : the rows do not carry that far, or the world size was measured.
    """
    measured = sorted({row.ranks for row in rows if row.collective == "all_reduce" and row.ranks})
    if ranks in measured:
        raise InvalidInput(f"{ranks} ranks were measured; read the log, or ask for other than {measured}")
    largest = max(measured, default=0)
    if ranks < largest:
        raise InvalidInput(f"only more ranks than the {largest} measured can be extrapolated to, got {ranks}")
    if site is None:
        ring = fit_ring(rows)
        measured_sizes = sorted(ring.sizes)
        usual = usual_error() * sqrt(log2(ranks / largest))
        halves = np.sqrt(usual**2 + (SIGMAS * ring.spread(ranks, measured_sizes)) ** 2 + REPEATS**2)
        return _rows(measured_sizes, ring.predict(ranks, measured_sizes).tolist(), halves.tolist(), ranks)
    if nodes is None or not 1 <= nodes <= ranks or ranks % nodes:
        raise InvalidInput(f"NCCL's model needs the number of nodes, a divisor of {ranks} ranks, got {nodes}")
    fit = fit_nccl(rows, site)
    sizes = fit.variants[0].leftovers[-1].sizes
    found, halves = times(fit, ranks, nodes, sizes), half_widths(fit, ranks, nodes, sizes)
    return _rows(sizes, found.tolist(), halves.tolist(), ranks)


def _rows(
    sizes: Sequence[Bytes], times: Sequence[Seconds], halves: Sequence[float], ranks: int
) -> list[CollectivePrediction]:
    return [_row(size, time, half, ranks) for size, time, half in zip(sizes, times, halves, strict=True)]


def _row(size: Bytes, time: Seconds, half: float, ranks: int) -> CollectivePrediction:
    return CollectivePrediction(
        "all_reduce", "as measured", "", ranks, size, size // 4, "float", time, algbw(size, time),
        busbw(Kind.ALL_REDUCE, ranks, size, time), "extrapolation", False, "", time * exp(-half), time * exp(half),
    )  # fmt: skip
