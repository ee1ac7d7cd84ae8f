"""All-reduces at world sizes nobody measured, from logs of smaller ones, with what such predictions usually miss.

Source: `studies run collectives` measures what they miss; the figure is kept in the catalogue.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from math import exp, log2, sqrt

from simnet.collective import Kind
from simnet.errors import InvalidInput
from simnet.metrics import algbw, busbw
from simnet.nccl_fit import Site, fit_nccl
from simnet.results import CollectivePrediction, Measurement
from simnet.ring_fit import fit_ring
from simnet.units import Bytes, Seconds


def extrapolate(
    rows: Sequence[Measurement], *, ranks: int, nodes: int | None = None, site: Site | None = None
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
        sizes = sorted(ring.sizes)
        return _rows(sizes, list(ring.predict(ranks, sizes)), [0.0] * len(sizes), ranks, largest)
    if nodes is None or not 1 <= nodes <= ranks or ranks % nodes:
        raise InvalidInput(f"NCCL's model needs the number of nodes, a divisor of {ranks} ranks, got {nodes}")
    fit = fit_nccl(rows, site)
    sizes = sorted(fit.carried)
    times, spread = fit.predict(ranks, nodes, sizes), fit.spread(ranks, nodes, sizes)
    return _rows(sizes, list(times), list(spread), ranks, largest)


@cache
def usual_error() -> float:
    """80 % quantile of |ln(predicted/measured)| per root of a doubling of the ranks."""
    text = resources.files("simnet.catalog").joinpath("profiles/extrapolation.toml").read_text(encoding="utf-8")
    return float(tomllib.loads(text)["error_80"])


def _rows(
    sizes: Sequence[Bytes], times: Sequence[Seconds], spread: Sequence[float], ranks: int, largest: int
) -> list[CollectivePrediction]:
    learned = usual_error() * sqrt(log2(ranks / largest))
    return [
        _row(size, float(time), sqrt(learned**2 + (1.28 * float(own)) ** 2), ranks)
        for size, time, own in zip(sizes, times, spread, strict=True)
    ]


def _row(size: Bytes, time: Seconds, half: float, ranks: int) -> CollectivePrediction:
    return CollectivePrediction(
        "all_reduce", "as measured", "", ranks, size, size // 4, "float", time, algbw(size, time),
        busbw(Kind.ALL_REDUCE, ranks, size, time), "extrapolation", False, "", time * exp(-half), time * exp(half),
    )  # fmt: skip
