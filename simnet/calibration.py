"""What messages cost on a machine, fitted to measured rows: a separate, explicit act.

Every usable row becomes one point (message bytes, seconds per message): a message between two ranks is one
message of its size; a ring all-reduce of S bytes on n ranks is 2(n-1) messages of S/n one after the other,
a ring all-gather or reduce-scatter n-1 of them. The points are fitted by one to three straight lines
(latency + bytes/bandwidth), each over a range of message sizes; the borders are the protocol switches.

Source: Hockney, Parallel Computing 20(3), 1994 (one line); Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005
(rings); the number of lines by the Bayesian information criterion, Schwarz, Ann. Stat. 6(2), 1978.

Where the machine is described as NCCL counts it, all-reduces of NCCL are no rings one message after the other: NCCL's
own model is scaled to them (`simnet.nccl_fit`), and the lines are left to whatever else was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from simnet.costs.nccl_scaled import measured_worlds, times, without_leftover
from simnet.errors import InvalidInput
from simnet.line_fit import FEWEST_POINTS, Lines, fit_lines, interval, line_times, segments
from simnet.metrics import error_quantile, geometric_mean_error, mape, signed_bias
from simnet.modes import Modes, find_modes
from simnet.nccl_fit import fit_nccl, fits_nccl
from simnet.points import RING_STEPS, Point, merged, nearest_to_collectives, refusal, split_contradictions, usable
from simnet.results import Fitted, FittedPoint, Measurement, NcclFit, NcclSite, Profile, ProfileInput, Segment
from simnet.units import Seconds

_MOST_POINTS = 300
_LEAST_PART = 0.15
_MODES = "{}: which of the two a run takes is chance, and intervals hold both"


def calibrate(
    rows: Iterable[Measurement],
    *,
    name: str,
    inputs: Sequence[ProfileInput] = (),
    created: str = "",
    command: str = "",
    draws: int = 200,
    seed: int = 0,
    site: NcclSite | None = None,
) -> Profile:
    """Fit a profile to measured rows; rows that contradict the rest are refused and named in it.

    Parameters
    ----------
    draws : bootstrap draws behind the 80 % intervals
    site : the machine as NCCL counts it; its all-reduces are then fitted by NCCL's own model

    Raises
    ------
    InvalidInput : fewer than 3 usable rows, or rows that contradict each other so much that no majority is left.
    """
    empty = Profile(name, (), created=created, command=command, inputs=tuple(inputs))
    if site is None:
        return _by_lines(empty, rows, draws, seed)
    library, rest = list[Measurement](), list[Measurement]()
    for row in rows:
        (library if fits_nccl(row) else rest).append(row)
    fit = fit_nccl(library, site)
    if len(usable(rest)[0]) >= FEWEST_POINTS:
        return _with_nccl(_by_lines(empty, rest, draws, seed), fit, library)
    refused = tuple(refusal(row, "no all-reduce whose ranks and nodes are known") for row in rest)
    return _with_nccl(replace(empty, refused=refused), fit, library)


def _with_nccl(lines: Profile, fit: NcclFit, rows: Sequence[Measurement]) -> Profile:
    """Add NCCL's fit and the rows it was made of to a profile; residuals are those of NCCL's fit."""
    points = tuple(_nccl_point(fit, row) for row in rows)
    fitted, measured = [point.fitted_s or 0.0 for point in points], [point.time_s for point in points]
    worlds = " and ".join(f"{n} ranks on {k} node{'s' if k > 1 else ''}" for n, k in measured_worlds(fit))
    assumed = f"all-reduces of {worlds} ran as NCCL {fit.site.release} chooses, whatever algorithm that is"
    modes = (_MODES.format(one) for one in find_modes(rows))
    return replace(
        lines, nccl=fit, points=(*points, *lines.points), assumptions=(assumed, *lines.assumptions, *modes),
        residuals=_figures(fitted, measured),
    )  # fmt: skip


def _nccl_point(fit: NcclFit, row: Measurement) -> FittedPoint:
    """The row beside the fit before its leftover is carried over."""
    ranks, nodes = row.ranks or 1, row.nodes or 1
    time = float(without_leftover(fit, ranks, nodes, [row.size_bytes])[0])
    return FittedPoint(row.collective, row.size_bytes, row.time_s, ranks, row.algorithm, time, row.source)


def _by_lines(empty: Profile, rows: Iterable[Measurement], draws: int, seed: int) -> Profile:
    """Lines through messages."""
    rows = list(rows)
    points, unusable = usable(rows)
    points, left_out = nearest_to_collectives(points)
    points = merged(points) if len(points) > _MOST_POINTS else points
    points, adds = _parted(points)
    kept, refused = split_contradictions(points)
    gamma = _gamma(adds, draws, seed)
    if len(kept) < FEWEST_POINTS or len(refused) > len(kept):
        raise InvalidInput(_too_few(len(kept), refused, unusable))
    kept.sort(key=lambda point: point.message_bytes)
    lines = fit_lines(kept)
    modes = find_modes(row for row in rows if row.collective != "add")
    second = _second_kind(points, kept)
    assumed = (*_assumptions(kept), *(_MODES.format(one) for one in modes), *_said(second))
    found = _widened(segments(kept, lines, draws, seed), modes, second)
    return replace(
        empty, segments=found, gamma_s_per_byte=gamma,
        points=_fitted(kept, lines), refused=(*refused, *left_out, *unusable), assumptions=assumed,
        residuals=_residuals(kept, lines),
    )  # fmt: skip


def _parted(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Messages, and additions."""
    return (
        [point for point in points if point.row.collective != "add"],
        [point for point in points if point.row.collective == "add"],
    )


def _second_kind(points: Sequence[Point], kept: Sequence[Point]) -> list[Point]:
    """Refused points that agree with each other: one dip is not a law, many of one kind are times of another."""
    held = {id(point) for point in kept}
    agree, _ = split_contradictions([point for point in points if id(point) not in held])
    return agree if len(agree) >= max(FEWEST_POINTS, _LEAST_PART * len(points)) else []


def _said(second: Sequence[Point]) -> Iterator[str]:
    if second:
        sizes, times = [point.row.size_bytes for point in second], [point.row.time_s * 1e6 for point in second]
        yield (
            f"two modes: {len(second)} of the refused rows agree with each other ({min(sizes)} to {max(sizes)} bytes, "
            f"{min(times):.4g} to {max(times):.4g} us): times of another kind, which intervals hold too"
        )


def _widened(
    segments: Sequence[Segment], modes: Sequence[Modes], second: Sequence[Point]
) -> tuple[Segment, ...]:  # fmt: skip
    """Stretch the intervals of every line so that they hold both kinds of its repeats, and points of a second kind."""
    ratios: dict[int, list[float]] = {index: [1.0] for index in range(len(segments))}
    rows = [
        Measurement(one.condition.collective, one.condition.size_bytes, time, one.condition.ranks)
        for one in modes
        for time in (one.quick_s, one.slow_s)
    ]
    for point in (*usable(rows)[0], *second):
        index = _segment_of(segments, point.message_bytes)
        ratios[index].append(point.seconds / _line_time(segments[index], point.message_bytes))
    return tuple(_stretched(segment, min(ratios[i]), max(ratios[i])) for i, segment in enumerate(segments))


def _stretched(segment: Segment, quick: float, slow: float) -> Segment:
    latency, bandwidth = segment.latency_s, segment.bandwidth_bytes_per_s
    return replace(
        segment,
        latency_s=Fitted(
            latency.value, min(latency.low, latency.value * quick), max(latency.high, latency.value * slow)
        ),
        bandwidth_bytes_per_s=Fitted(
            bandwidth.value, min(bandwidth.low, bandwidth.value / slow), max(bandwidth.high, bandwidth.value / quick)
        ),
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


def _gamma(points: Sequence[Point], draws: int, seed: int) -> Fitted | None:
    """Seconds per byte reduced: the median over rows."""
    rates = np.array([point.seconds / point.message_bytes for point in points if point.message_bytes > 0])
    if len(rates) == 0:
        return None
    picks = np.random.default_rng(seed).integers(len(rates), size=(draws, len(rates)))
    return interval(float(np.median(rates)), np.median(rates[picks], axis=1))


def _fitted(points: Sequence[Point], lines: Lines) -> tuple[FittedPoint, ...]:
    pairs = zip((point.row for point in points), line_times(points, lines).tolist(), strict=True)
    return tuple(
        FittedPoint(row.collective, row.size_bytes, row.time_s, row.ranks, row.algorithm, time, row.source)
        for row, time in pairs
    )


def _residuals(points: Sequence[Point], lines: Lines) -> dict[str, float]:
    return _figures(line_times(points, lines).tolist(), [point.row.time_s for point in points])


def _figures(fitted: Sequence[float], measured: Sequence[float]) -> dict[str, float]:
    """How far a fit is from its own points: no accuracy, a check of the form."""
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


def expected(profile: Profile, rows: Iterable[Measurement]) -> Iterator[tuple[Measurement, Seconds]]:
    """Rows a profile prices by itself, each with its time, s: NCCL's all-reduces, messages, and rings of messages."""
    rest = []
    for row in rows:
        if profile.nccl is not None and fits_nccl(row):
            yield row, float(times(profile.nccl, row.ranks or 1, row.nodes or 1, [row.size_bytes])[0])
        else:
            rest.append(row)
    for point in usable(rest)[0] if profile.segments else ():
        if point.row.collective != "add":
            yield point.row, point.messages * message_time(profile, point.message_bytes)


def message_time(profile: Profile, num_bytes: float) -> Seconds:
    """Time of one message by a profile, s.

    Raises
    ------
    InvalidInput : the profile has no line for a message of that size.
    """
    try:
        segment = profile.segments[_segment_of(profile.segments, num_bytes)]
    except StopIteration:
        raise InvalidInput(
            f"profile {profile.name} has no segment for {num_bytes} bytes; its last one must have no end"
        ) from None
    return _line_time(segment, num_bytes)


def _segment_of(segments: Sequence[Segment], num_bytes: float) -> int:
    return next(i for i, s in enumerate(segments) if s.max_bytes is None or num_bytes <= s.max_bytes)


def _line_time(segment: Segment, num_bytes: float) -> Seconds:
    return segment.latency_s.value + num_bytes / segment.bandwidth_bytes_per_s.value
