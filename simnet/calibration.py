"""What messages cost on a machine, fitted to measured rows: a separate, explicit act.

Every usable row becomes one point (message bytes, seconds per message): a message between two ranks is one
message of its size; a ring all-reduce of S bytes on n ranks is 2(n-1) messages of S/n one after the other,
a ring all-gather or reduce-scatter n-1 of them. The points are fitted by one to three straight lines
(latency + bytes/bandwidth), each over a range of message sizes; the borders are the protocol switches.

Source: Hockney, Parallel Computing 20(3), 1994 (one line); Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005
(rings); the number of lines by the Bayesian information criterion, Schwarz, Ann. Stat. 6(2), 1978.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.metrics import error_quantile, geometric_mean_error, mape, signed_bias
from simnet.points import RING_STEPS, Point, merged, nearest_to_collectives, split_contradictions, usable
from simnet.results import Fitted, FittedPoint, Measurement, Profile, ProfileInput, Segment
from simnet.units import Seconds

FloatArray = npt.NDArray[np.float64]

FASTEST = 1e15
_MOST_LINES = 3
_FEWEST_POINTS = 3
_MOST_POINTS = 300
_MOST_BORDERS = 40


@dataclass(frozen=True, slots=True)
class _Lines:
    """Straight lines over ranges of message bytes; line k ends before first[k + 1]."""

    first: tuple[int, ...]
    latency: FloatArray
    slope: FloatArray
    cost: float


def calibrate(
    rows: Iterable[Measurement],
    *,
    name: str,
    inputs: Sequence[ProfileInput] = (),
    created: str = "",
    command: str = "",
    draws: int = 200,
    seed: int = 0,
) -> Profile:
    """Fit a profile to measured rows; rows that contradict the rest are refused and named in it.

    Parameters
    ----------
    draws : bootstrap draws behind the 80 % intervals

    Raises
    ------
    InvalidInput : fewer than 3 usable rows, or rows that contradict each other so much that no majority is left.
    """
    points, unusable = usable(rows)
    points, left_out = nearest_to_collectives(points)
    points = merged(points) if len(points) > _MOST_POINTS else points
    kept, refused = split_contradictions([point for point in points if point.row.collective != "add"])
    gamma = _gamma([point for point in points if point.row.collective == "add"], draws, seed)
    if len(kept) < _FEWEST_POINTS or len(refused) > len(kept):
        raise InvalidInput(_too_few(len(kept), refused, unusable))
    kept.sort(key=lambda point: point.message_bytes)
    lines = _fit(kept)
    return Profile(
        name=name, segments=_segments(kept, lines, draws, seed), gamma_s_per_byte=gamma, created=created,
        command=command, inputs=tuple(inputs), points=_fitted(kept, lines),
        refused=(*refused, *left_out, *unusable), assumptions=_assumptions(kept), residuals=_residuals(kept, lines),
    )  # fmt: skip


def _too_few(kept: int, refused: Sequence[FittedPoint], unusable: Sequence[FittedPoint]) -> str:
    reasons = sorted({point.reason for point in unusable})
    if len(refused) > kept:
        return (
            f"the rows contradict each other: {len(refused)} of {kept + len(refused)} had to be refused, the first "
            f"{refused[0].collective} of {refused[0].size_bytes} bytes; give logs of one machine and one kind of path"
        )
    return (
        f"only {kept} rows can be fitted, 3 or more are needed{': ' + '; '.join(reasons[:3]) if reasons else ''}; "
        "give a log of all-reduces over 2 or more ranks, or of messages between two"
    )


def _fit(points: Sequence[Point]) -> _Lines:
    """Best one to three lines by the information criterion."""
    size = np.array([point.message_bytes for point in points])
    time = np.array([point.seconds for point in points])
    return _fit_arrays(size, time, np.ones_like(time))


def _fit_arrays(size: FloatArray, time: FloatArray, count: FloatArray) -> _Lines:
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
    return _Lines(first, latency[list(first), ends], slope[list(first), ends], best[0])


def _partitions(starts: npt.NDArray[np.int64], size: int) -> Iterable[tuple[int, ...]]:
    """Ways to cut the points into 1 to 3 ranges of at least 3 points each, never between equal sizes, at 40 places."""
    yield (0,)
    inner = [int(i) for i in starts if _FEWEST_POINTS <= i <= size - _FEWEST_POINTS]
    inner = inner[:: -(-len(inner) // _MOST_BORDERS)] if inner else inner
    for i in inner:
        yield (0, i)
    if _MOST_LINES >= 3:
        for a, i in enumerate(inner):
            yield from ((0, i, j) for j in inner[a + 1 :] if j - i >= _FEWEST_POINTS)


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


def _segments(points: Sequence[Point], lines: _Lines, draws: int, seed: int) -> tuple[Segment, ...]:
    """Lines with the spread of refits to resampled points: of each line between its borders, and of the borders."""
    size = np.array([point.message_bytes for point in points])
    time = np.array([point.seconds for point in points])
    counts = _resampled(len(points), draws, seed)
    ends = _borders(size, time, counts, len(lines.first))
    segments = []
    for k, (first, last) in enumerate(_ranges(lines, len(size))):
        spread = _refits(size[first:last], time[first:last], counts[:, first:last])
        latency = _interval(float(lines.latency[k]), spread[:, 0])
        bandwidth = _interval(float(1 / lines.slope[k]), spread[:, 1])
        if last == len(size):
            segments.append(Segment(None, latency, bandwidth))
        else:
            end = _interval(float(size[last - 1]), ends[:, k])
            segments.append(Segment(ceil(end.value), latency, bandwidth, ceil(end.low), ceil(end.high)))
    return tuple(segments)


def _ranges(lines: _Lines, size: int) -> list[tuple[int, int]]:
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


def _interval(value: float, draws: FloatArray) -> Fitted:
    if len(draws) == 0:
        return Fitted(value, value, value)
    low, high = np.quantile(draws, [0.1, 0.9])
    return Fitted(value, min(float(low), value), max(float(high), value))


def _gamma(points: Sequence[Point], draws: int, seed: int) -> Fitted | None:
    """Seconds per byte reduced: the median over rows."""
    rates = np.array([point.seconds / point.message_bytes for point in points if point.message_bytes > 0])
    if len(rates) == 0:
        return None
    picks = np.random.default_rng(seed).integers(len(rates), size=(draws, len(rates)))
    return _interval(float(np.median(rates)), np.median(rates[picks], axis=1))


def _times(points: Sequence[Point], lines: _Lines) -> FloatArray:
    """Fitted time of each point's whole row, s."""
    part = np.searchsorted(lines.first, np.arange(len(points)), side="right") - 1
    size = np.array([point.message_bytes for point in points])
    messages = np.array([point.messages for point in points])
    return messages * (lines.latency[part] + lines.slope[part] * size)


def _fitted(points: Sequence[Point], lines: _Lines) -> tuple[FittedPoint, ...]:
    pairs = zip((point.row for point in points), _times(points, lines).tolist(), strict=True)
    return tuple(
        FittedPoint(row.collective, row.size_bytes, row.time_s, row.ranks, row.algorithm, time, row.source)
        for row, time in pairs
    )


def _residuals(points: Sequence[Point], lines: _Lines) -> dict[str, float]:
    """How far the fit is from its own points: no accuracy, a check of the form."""
    fitted, measured = _times(points, lines), [point.row.time_s for point in points]
    return {
        "geometric_mean": geometric_mean_error(fitted, measured), "mape": mape(fitted, measured),
        "bias": signed_bias(fitted, measured), "p95": error_quantile(fitted, measured, 0.95),
        "max": error_quantile(fitted, measured, 1.0),
    }  # fmt: skip


def _assumptions(points: Sequence[Point]) -> tuple[str, ...]:
    found = []
    if any(point.row.collective in RING_STEPS and point.row.algorithm is None for point in points):
        found.append("collectives whose algorithm the log does not name ran as a ring, one message after the other")
    if all(point.row.collective == "stream" for point in points):
        found.append("latency is the time between messages of a stream, not that of one message")
    worlds = sorted({point.row.ranks for point in points if point.row.ranks})
    if len(worlds) > 1:
        found.append(f"messages cost the same among {' and '.join(map(str, worlds))} ranks")
    return tuple(found)


def message_time(profile: Profile, num_bytes: float) -> Seconds:
    """Time of one message by a profile, s."""
    for segment in profile.segments:
        if segment.max_bytes is None or num_bytes <= segment.max_bytes:
            return segment.latency_s.value + num_bytes / segment.bandwidth_bytes_per_s.value
    raise InvalidInput(f"profile {profile.name} has no segment for {num_bytes} bytes; its last one must have no end")
