"""Fit NCCL's tuning model to measured all-reduces: a dozen factors, each held near 1 unless the rows say otherwise.

What the rows cannot tell (whether LL128 is on, how many channels cross the network) is tried both ways; the variant
nearest to the largest measured world size is used, the others' disagreement widens the interval. The factors have
80 % intervals from the curvature of the fit.

Source: `simnet.costs.nccl_scaled`, and the sources it names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from itertools import product
from math import exp, log
from statistics import median

import numpy as np
import numpy.typing as npt

from simnet.costs.nccl_scaled import FACTORS, FREEDOM, SIGMAS, Columns, World, columns, modelled, published_network_step
from simnet.errors import InvalidInput
from simnet.modes import Modes, find_modes
from simnet.results import Fitted, Measurement, NcclFit, NcclLeftover, NcclSite, NcclVariant
from simnet.units import Bytes, Seconds

FloatArray = npt.NDArray[np.float64]

_Point = tuple[World, Bytes]

_MEASURED_FREEDOM = 0.15
_NOISE = 0.08
_ROBUST = 0.1
_NEAR = 1.5


def fit_nccl(rows: Iterable[Measurement], site: NcclSite) -> NcclFit:
    """Fit to all-reduce rows that tell ranks and nodes.

    Raises
    ------
    InvalidInput : no such rows.
    """
    rows = [row for row in rows if fits_nccl(row)]
    times = _times(rows)
    if not times:
        raise InvalidInput(
            "no all-reduce row tells ranks, nodes and a time; give nccl-tests logs with their rank lines, or say how "
            "many ranks a node has with --ranks-per-node"
        )
    apart = _apart(times, find_modes(rows))
    fits = sorted((_fit(times, site, guess, apart) for guess in _guesses(site, times)), key=lambda fit: fit.error)
    near = [fit for fit in fits if fit.error <= _NEAR * fits[0].error]
    return NcclFit(site, tuple(near), usual_error())


def fits_nccl(row: Measurement) -> bool:
    """Whether the row can be fitted: a right all-reduce whose ranks, nodes, size and time are known."""
    right = row.collective == "all_reduce" and not row.num_wrong and row.algorithm is None
    return right and bool(row.ranks and row.ranks > 1 and row.nodes) and row.size_bytes > 0 and row.time_s > 0


@cache
def usual_error() -> float:
    """80 % quantile of |ln(predicted/measured)| beyond a model's own spread, per root of a doubling, on known machines.

    Source: `studies run collectives` measures what extrapolations miss; the figure is kept in the catalogue.
    """
    text = resources.files("simnet.catalog").joinpath("profiles/extrapolation.toml").read_text(encoding="utf-8")
    return float(tomllib.loads(text)["error_80"])


def _times(rows: Iterable[Measurement]) -> dict[_Point, Seconds]:
    """Median time by world and size."""
    groups: dict[_Point, list[Seconds]] = {}
    for row in rows:
        groups.setdefault(((row.ranks or 1, row.nodes or 1), row.size_bytes), []).append(row.time_s)
    return {key: median(times) for key, times in sorted(groups.items())}


def _apart(times: Mapping[_Point, Seconds], modes: Iterable[Modes]) -> dict[_Point, float]:
    """How far repeats of two kinds are from the time that is fitted, of ln(time), by world and size."""
    found: dict[_Point, float] = {}
    for one in modes:
        point = ((one.condition.ranks or 1, one.condition.nodes or 1), one.condition.size_bytes)
        ends = (abs(log(end / times[point])) for end in (one.quick_s, one.slow_s))
        found[point] = max(found.get(point, 0.0), *ends)
    return found


def _guesses(site: NcclSite, times: Mapping[_Point, Seconds]) -> list[NcclVariant]:
    """Every answer to what the rows do not say, with factors of 1."""
    several = max(world for world, _ in times)[1] > 1
    choices = product((True, False), (True, False) if several else (True,), (1, 2) if several else (2,))
    one = dict.fromkeys(FACTORS, Fitted(1.0, 1.0, 1.0))
    return [NcclVariant(*choice, one, (), 0.0) for choice in choices]


def _fit(
    times: Mapping[_Point, Seconds], site: NcclSite, guess: NcclVariant, apart: Mapping[_Point, float]
) -> NcclVariant:  # fmt: skip
    """Fit the factors of one variant."""
    target = np.log(list(times.values()))
    logs, sds, left = _solve(columns(site, guess, list(times)), target, site)
    factors = {
        name: Fitted(exp(value), exp(value - SIGMAS * sd), exp(value + SIGMAS * sd))
        for name, value, sd in zip(FACTORS, logs.tolist(), sds.tolist(), strict=True)
    }
    leftovers = tuple(_leftover(world, list(times), left, apart) for world in sorted({world for world, _ in times}))
    return replace(guess, factors=factors, leftovers=leftovers, error=float(np.mean(np.abs(leftovers[-1].log_ratio))))


def _leftover(world: World, points: list[_Point], left: FloatArray, apart: Mapping[_Point, float]) -> NcclLeftover:
    here = [i for i, (other, _) in enumerate(points) if other == world]
    modes = tuple(apart.get(points[i], 0.0) for i in here)
    return NcclLeftover(
        *world, tuple(points[i][1] for i in here), tuple(float(-left[i]) for i in here), modes if any(modes) else ()
    )


def _solve(parts: Columns, target: FloatArray, site: NcclSite) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Factors (logarithms) nearest to the rows and to 1 by robust Gauss-Newton, their sds, and what is left over."""
    centre, freedom = _prior(site)
    factors, step = centre.copy(), 1e-3 * np.eye(len(FACTORS))
    hessian = np.diag(1 / freedom**2)
    for _ in range(200):
        left = np.log(modelled(factors, parts)) - target
        slope = np.stack(
            [(np.log(modelled(factors + d, parts)) - np.log(modelled(factors - d, parts))) / 2e-3 for d in step], axis=1
        )
        weight = 1 / np.maximum(1.0, np.abs(left) / _ROBUST) / _NOISE**2
        hessian = slope.T @ (slope * weight[:, None]) + np.diag(1 / freedom**2)
        gradient = slope.T @ (weight * left) + (factors - centre) / freedom**2
        move = np.linalg.solve(hessian, gradient)
        factors = factors - 0.5 * np.clip(move, -0.5, 0.5)
        if np.abs(move).max() < 1e-5:
            break
    return factors, np.sqrt(np.diag(np.linalg.inv(hessian))), np.log(modelled(factors, parts)) - target


def _prior(site: NcclSite) -> tuple[FloatArray, FloatArray]:
    """Where each factor is expected (logarithms), and how far it may be from there."""
    centre, freedom = np.zeros(len(FACTORS)), np.full(len(FACTORS), FREEDOM)
    if site.network_latency is not None:
        centre[2] = log(site.network_latency / published_network_step(site.release))
        freedom[2] = _MEASURED_FREEDOM
    return centre, freedom
