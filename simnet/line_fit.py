"""Straight lines through messages: latency plus bytes over bandwidth, each over a range of sizes.

As many lines as the Bayesian information criterion finds worth it, one to three; the borders are protocol switches.

Source: Hockney, Parallel Computing 20(3), 1994 (one line); Schwarz, Ann. Stat. 6(2), 1978 (how many).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from simnet.points import Point
from simnet.results import Fitted, Segment

FloatArray = npt.NDArray[np.float64]

FASTEST = 1e15
FEWEST_POINTS = 3
_MOST_LINES = 3
_MOST_BORDERS = 40


@dataclass(frozen=True, slots=True)
class Lines:
    """Straight lines over ranges of message bytes; line k ends before first[k + 1]."""

    first: tuple[int, ...]
    latency: FloatArray
    slope: FloatArray
    cost: float


def fit_lines(points: Sequence[Point]) -> Lines:
    """Best one to three lines by the information criterion."""
    size = np.array([point.message_bytes for point in points])
    time = np.array([point.seconds for point in points])
    return _fit_arrays(size, time, np.ones_like(time))


def _fit_arrays(size: FloatArray, time: FloatArray, count: FloatArray) -> Lines:
    """Fit lines to points sorted by size; `count` says how often a bootstrap draw holds each."""
    latency, slope, cost = _all_lines(size, time, count)
    total = max(float(count.sum()), 1.0)
    starts = np.flatnonzero(np.diff(size, prepend=-1.0) > 0)
    best: tuple[float, tuple[int, ...]] | None = None
    for first in _partitions(starts, len(size)):
        last = (*first[1:], len(size))
        error = sum(cost[i, j - 1] for i, j in zip(first, last, strict=True))
        parameters = 3 * len(first) - 1
        score = total * np.log(max(error / total, 1e-12)) + parameters * np.log(total)
        if best is None or score < best[0]:
            best = (score, first)
    assert best is not None
    first = best[1]
    last = (*first[1:], len(size))
    ends = [j - 1 for j in last]
    return Lines(first, latency[list(first), ends], slope[list(first), ends], best[0])


def _partitions(starts: npt.NDArray[np.int64], size: int) -> Iterable[tuple[int, ...]]:
    """Ways to cut the points into 1 to 3 ranges of at least 3 points each, never between equal sizes, at 40 places."""
    yield (0,)
    inner = [int(i) for i in starts if FEWEST_POINTS <= i <= size - FEWEST_POINTS]
    inner = inner[:: -(-len(inner) // _MOST_BORDERS)] if inner else inner
    for i in inner:
        yield (0, i)
    if _MOST_LINES >= 3:
        for a, i in enumerate(inner):
            yield from ((0, i, j) for j in inner[a + 1 :] if j - i >= FEWEST_POINTS)


def _all_lines(size: FloatArray, time: FloatArray, count: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Latency, slope and squared relative error of the line through points i..j, each (num_points, num_points).

    Relative errors weigh alike, latency and slope are not negative.
    """
    weight = count / time**2
    sums = [np.cumsum(weight * x) for x in (np.ones_like(size), size, size**2, time, size * time, time**2)]
    w, m, mm, t, mt, tt = (_spans(total) for total in sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = w * mm - m * m
        flat = ~(determinant > 1e-9 * w * mm)
        slope = np.where(flat, 0.0, (w * mt - m * t) / determinant)
        latency = np.where(flat, t / w, (t - slope * m) / w)
        slope, latency = np.where(latency < 0, mt / mm, slope), np.maximum(latency, 0.0)
        latency, slope = np.where(slope < 1 / FASTEST, t / w, latency), np.maximum(slope, 1 / FASTEST)
    cost = latency**2 * w + 2 * latency * slope * m + slope**2 * mm - 2 * latency * t - 2 * slope * mt + tt
    return np.nan_to_num(latency), np.nan_to_num(slope, nan=1 / FASTEST), np.maximum(np.nan_to_num(cost), 0.0)


def _spans(total: FloatArray) -> FloatArray:
    """Sums over i..j from running sums."""
    before = np.concatenate([[0.0], total[:-1]])
    return total[None, :] - before[:, None]


def segments(points: Sequence[Point], lines: Lines, draws: int, seed: int) -> tuple[Segment, ...]:
    """Lines with the spread of refits to resampled points: of each line between its borders, and of the borders."""
    size = np.array([point.message_bytes for point in points])
    time = np.array([point.seconds for point in points])
    counts = _resampled(len(points), draws, seed)
    ends = _borders(size, time, counts, len(lines.first))
    found = []
    for k, (first, last) in enumerate(_ranges(lines, len(size))):
        spread = _refits(size[first:last], time[first:last], counts[:, first:last])
        latency = interval(float(lines.latency[k]), spread[:, 0])
        bandwidth = interval(float(1 / lines.slope[k]), spread[:, 1])
        if last == len(size):
            found.append(Segment(None, latency, bandwidth))
        else:
            end = interval(float(size[last - 1]), ends[:, k])
            found.append(Segment(ceil(end.value), latency, bandwidth, ceil(end.low), ceil(end.high)))
    return tuple(found)


def _ranges(lines: Lines, size: int) -> list[tuple[int, int]]:
    """First point and one past the last of every line."""
    return list(zip(lines.first, (*lines.first[1:], size), strict=True))


def _resampled(size: int, draws: int, seed: int) -> FloatArray:
    """How often each point is in each draw, shape (draws, size)."""
    picks = np.random.default_rng(seed).integers(size, size=(draws, size))
    return np.array([np.bincount(pick, minlength=size) for pick in picks], float).reshape(draws, size)


def _refits(size: FloatArray, time: FloatArray, counts: FloatArray) -> FloatArray:
    """Latency and bandwidth of the line through the points of each draw, where it holds two sizes or more."""
    found = []
    for count in counts:
        held = count > 0
        if len(np.unique(size[held])) > 1:
            latency, slope, _ = _all_lines(size[held], time[held], count[held])
            found.append((latency[0, -1], 1 / slope[0, -1]))
    return np.array(found).reshape(-1, 2)


def _borders(size: FloatArray, time: FloatArray, counts: FloatArray, num_lines: int) -> FloatArray:
    """Last sizes of all lines but the last, of draws that choose as many lines, shape (draws, num_lines - 1)."""
    found = []
    for count in counts if num_lines > 1 else ():
        held = np.flatnonzero(count)
        lines = _fit_arrays(size[held], time[held], count[held])
        if len(lines.first) == num_lines:
            found.append([size[held[first - 1]] for first in lines.first[1:]])
    return np.array(found).reshape(-1, max(num_lines - 1, 1))


def interval(value: float, draws: FloatArray) -> Fitted:
    """The value with the interval of refits, stretched to hold it."""
    if len(draws) == 0:
        return Fitted(value, value, value)
    low, high = np.quantile(draws, [0.1, 0.9])
    return Fitted(value, min(float(low), value), max(float(high), value))


def line_times(points: Sequence[Point], lines: Lines) -> FloatArray:
    """Fitted time of each point's whole row, s."""
    part = np.searchsorted(lines.first, np.arange(len(points)), side="right") - 1
    size = np.array([point.message_bytes for point in points])
    messages = np.array([point.messages for point in points])
    return messages * (lines.latency[part] + lines.slope[part] * size)
