"""Repeats that fall into two clusters: one figure for them would be a time the machine never takes.

A protocol or a route that changes from run to run, clocks that throttle, another job on the wire: all of them make
times of two kinds. The median is then one of the two, by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil

import numpy as np

from simnet.results import Measurement
from simnet.units import Bytes, Seconds

_FEWEST = 8
_LEAST_PART = 0.15
_LEAST_RATIO = 1.15
_MOST_SAMPLES = 256
_MOST_CONDITIONS = 2000
_JUMP = 2.0


@dataclass(frozen=True, slots=True)
class Condition:
    """What repeats have in common."""

    collective: str
    size_bytes: Bytes
    ranks: int | None = None
    nodes: int | None = None
    algorithm: str | None = None
    in_place: bool | None = None
    dtype: str | None = None
    cluster: str | None = None
    src: str | None = None
    dst: str | None = None


def condition_of(row: Measurement) -> Condition:
    """Condition of a measured row."""
    return Condition(
        row.collective, row.size_bytes, row.ranks, row.nodes, row.algorithm, row.in_place, row.dtype, row.cluster,
        row.src, row.dst,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Modes:
    """Two clusters of repeats: how many in each, and their medians, s."""

    condition: Condition
    num_quick: int
    num_slow: int
    quick_s: Seconds
    slow_s: Seconds

    def __str__(self) -> str:
        what = self.condition
        ranks = f" on {what.ranks} ranks" if what.ranks else ""
        return (
            f"two modes of {what.collective} of {what.size_bytes} bytes{ranks}: {self.num_quick} of "
            f"{self.num_quick + self.num_slow} repeats at {self.quick_s * 1e6:.4g} us, {self.num_slow} at "
            f"{self.slow_s * 1e6:.4g} us"
        )


@dataclass(slots=True)
class Repeats:
    """Times by condition, so many at most of each that memory stays small."""

    times: dict[Condition, list[Seconds]] = field(default_factory=dict)

    def add(self, row: Measurement) -> None:
        """Take a row with all its samples."""
        condition = condition_of(row)
        if condition not in self.times and len(self.times) >= _MOST_CONDITIONS:
            return
        held = self.times.setdefault(condition, [])
        held += [time for time in (row.samples_s or (row.time_s,))[: _MOST_SAMPLES - len(held)] if time > 0]

    def modes(self) -> Iterator[Modes]:
        """Conditions whose repeats fall into two clusters."""
        for condition, times in self.times.items():
            if (found := two_modes(condition, times)) is not None:
                yield found

    def jumps(self) -> Iterator[str]:
        """Say where larger messages take less than half the time of smaller ones, again and again."""
        series: dict[Condition, dict[Bytes, list[Seconds]]] = {}
        for condition, times in self.times.items():
            if condition.size_bytes > 0:
                key = replace(condition, size_bytes=0, in_place=None)
                series.setdefault(key, {}).setdefault(condition.size_bytes, []).extend(times)
        for what, sizes in series.items():
            yield from _jumps(what, sorted((size, float(np.median(times))) for size, times in sizes.items() if times))


def find_modes(rows: Iterable[Measurement]) -> list[Modes]:
    """Conditions of the rows whose repeats fall into two clusters."""
    repeats = Repeats()
    for row in rows:
        repeats.add(row)
    return list(repeats.modes())


def two_modes(condition: Condition, times: Iterable[Seconds]) -> Modes | None:
    """Return the two clusters of repeats; None where there are fewer than 8, or where no gap parts them.

    The split leaves the least variance of ln(time); it counts where both parts hold 15 % and 3 of the repeats, where
    their means are 15 % apart, and where the gap between them is at least half of that: a long tail has none.
    """
    x = np.sort(np.log([time for time in times if time > 0]))
    least = max(3, ceil(_LEAST_PART * len(x)))
    if len(x) < max(_FEWEST, 2 * least):
        return None
    count = np.arange(1, len(x) + 1)
    total, square = np.cumsum(x), np.cumsum(x**2)
    places = np.arange(least, len(x) - least + 1)
    left = square[places - 1] - total[places - 1] ** 2 / count[places - 1]
    rest = len(x) - places
    right = square[-1] - square[places - 1] - (total[-1] - total[places - 1]) ** 2 / rest
    split = int(places[np.argmin(left + right)])
    apart = float(x[split:].mean() - x[:split].mean())
    if apart < np.log(_LEAST_RATIO) or x[split] - x[split - 1] < apart / 2:
        return None
    quick, slow = float(np.exp(np.median(x[:split]))), float(np.exp(np.median(x[split:])))
    return Modes(condition, split, len(x) - split, quick, slow)


def _jumps(what: Condition, points: list[tuple[Bytes, Seconds]]) -> Iterator[str]:
    """One note for a series of sizes."""
    slow = [(size, time, later) for (size, time), later in pairwise(points) if time > _JUMP * later[1]]
    if len(slow) < 2:
        return
    size, time, (larger, less) = slow[0]
    ranks = f" on {what.ranks} ranks" if what.ranks else ""
    yield (
        f"{len(slow)} sizes of {what.collective}{ranks} take more than twice as long as the next larger one (the first "
        f"{size} bytes in {time * 1e6:.4g} us, {larger} bytes in {less * 1e6:.4g} us): times of two or more kinds"
    )
