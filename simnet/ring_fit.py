"""All-reduce times at other world sizes where nothing is known of the library: a ring, size by size.

t(n, S) = 2(n-1) alpha + c(S) + 2(n-1)/n x(S): steps, work that does not depend on the ranks (start, reduction,
copies), and bytes through each rank's port. c below zero means that more ranks share the same root or switch; then
the bytes cost more with every rank instead: t = 2(n-1) alpha + 2(n-1)/n x(S) (1 + k(S) (n - n0)).

Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005 (steps and bytes of a ring).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.results import Measurement
from simnet.units import Bytes, Seconds

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SizeFit:
    """What one message size costs: fixed and per ring factor, s, and growth per further rank."""

    fixed: Seconds
    ring: Seconds
    growth: float


@dataclass(frozen=True, slots=True)
class RingFit:
    """A fit to two world sizes, `smallest` and `largest`."""

    alpha: Seconds
    smallest: int
    largest: int
    sizes: Mapping[Bytes, SizeFit]

    def predict(self, ranks: int, sizes: Sequence[Bytes]) -> FloatArray:
        """Time of an all-reduce of each size, s, shape (num_sizes,); sizes must be fitted ones.

        Raises
        ------
        InvalidInput : a size that was not measured.
        """
        missing = [size for size in sizes if size not in self.sizes]
        if missing:
            raise InvalidInput(f"size {missing[0]} was not measured; predict one of {sorted(self.sizes)}")
        return np.array([self._time(ranks, self.sizes[size]) for size in sizes])

    def spread(self, ranks: int, sizes: Sequence[Bytes]) -> FloatArray:
        """Disagreement of two ways to go on, standard deviation of ln(time), shape (num_sizes,).

        Two world sizes do not tell whether what is no plain ring (fixed work, growth by sharing) goes on: it does, or
        from the larger one on all grows as a ring's bytes do.
        """
        steps = 2 * (self.largest - 1) * self.alpha, 2 * (ranks - 1) * self.alpha
        plain = []
        for size in sizes:
            measured = self._time(self.largest, self.sizes[size])
            plain.append(steps[1] + max(measured - steps[0], 0.0) * _factor(ranks) / _factor(self.largest))
        return np.std([np.log(self.predict(ranks, sizes)), np.log(plain)], axis=0)

    def _time(self, ranks: int, fit: SizeFit) -> Seconds:
        ring = 2 * (ranks - 1) / ranks * fit.ring * (1 + fit.growth * (ranks - self.smallest))
        return 2 * (ranks - 1) * self.alpha + fit.fixed + ring


def fit_ring(rows: Iterable[Measurement]) -> RingFit:
    """Fit to all-reduce rows of the two largest world sizes that have sizes in common.

    Raises
    ------
    InvalidInput : fewer than two world sizes, or no common size.
    """
    times = _times(rows)
    worlds = sorted(times)[-2:]
    common = sorted(set.intersection(*(set(times[world]) for world in worlds))) if len(worlds) == 2 else []
    if not common:
        raise InvalidInput("a ring over other ranks needs the same sizes at two world sizes; give logs of both")
    small, large = worlds
    alpha = _alpha(times, small, large, common)
    sizes = {size: _size_fit(small, large, times[small][size], times[large][size], alpha) for size in common}
    return RingFit(alpha, small, large, sizes)


def _times(rows: Iterable[Measurement]) -> dict[int, dict[Bytes, Seconds]]:
    groups: dict[int, dict[Bytes, list[Seconds]]] = {}
    for row in rows:
        if row.collective == "all_reduce" and row.ranks and row.ranks > 1 and row.time_s > 0:
            groups.setdefault(row.ranks, {}).setdefault(row.size_bytes, []).append(row.time_s)
    return {ranks: {size: median(times) for size, times in sizes.items()} for ranks, sizes in groups.items()}


def _factor(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _alpha(times: Mapping[int, Mapping[Bytes, Seconds]], small: int, large: int, sizes: Sequence[Bytes]) -> Seconds:
    """Seconds per step: what more ranks cost at no bytes, on the line through the two smallest sizes."""
    if len(sizes) < 2:
        return 0.0
    least, following = sizes[0], sizes[1]
    more = [times[large][size] - times[small][size] for size in (least, following)]
    slope = (more[1] - more[0]) / (following - least)
    return max(0.0, (more[0] - slope * least) / (2 * (large - small)))


def _size_fit(small: int, large: int, before: Seconds, after: Seconds, alpha: Seconds) -> SizeFit:
    """Solve for the two unknowns of a size."""
    first = max(before - 2 * (small - 1) * alpha, 0.0)
    second = max(after - 2 * (large - 1) * alpha, 0.0)
    ring = max(0.0, (second - first) / (_factor(large) - _factor(small)))
    fixed = first - _factor(small) * ring
    if fixed >= 0:
        return SizeFit(fixed, ring, 0.0)
    port = first / _factor(small)
    return SizeFit(0.0, port, (second / (_factor(large) * port) - 1) / (large - small))
