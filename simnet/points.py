"""Measured rows as points of messages: which can be fitted, which contradict each other, which are held out.

Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005 (messages of a ring).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.results import FittedPoint, Measurement
from simnet.units import Seconds, parse_sizes

TOLERANCE = 2.0
RING_STEPS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
_DIRECT = ("send", "stream", "exchange")


@dataclass(frozen=True, slots=True)
class Point:
    """A measured row as messages: bytes of one, seconds per message."""

    row: Measurement
    message_bytes: float
    seconds: Seconds
    messages: int


def usable(rows: Iterable[Measurement]) -> tuple[list[Point], list[FittedPoint]]:
    """Rows as points, and those that cannot be one, with the reason."""
    points, unusable = [], []
    for row in rows:
        reason = _unusable(row)
        if reason:
            unusable.append(refusal(row, reason))
        else:
            messages = _messages(row)
            parts = row.ranks if row.collective in RING_STEPS and row.ranks else 1
            points.append(Point(row, row.size_bytes / parts, row.time_s / messages, messages))
    return points, unusable


def nearest_to_collectives(points: Sequence[Point]) -> tuple[list[Point], list[FittedPoint]]:
    """Of rows between two ranks keep those most like a step of a collective: both ways at once, all ranks busy."""
    busy = any(point.row.environment.get("loaded") for point in points)
    both = any(point.row.collective == "exchange" for point in points)
    single = any(point.row.collective not in ("stream", "add") for point in points)
    kept, left_out = [], []
    for point in points:
        direct = point.row.collective in (*_DIRECT, "add")
        if busy and direct and not point.row.environment.get("loaded"):
            left_out.append(refusal(point.row, "measured while other ranks idled; rows with all ranks busy are fitted"))
        elif single and point.row.collective == "stream":
            left_out.append(refusal(point.row, "many in flight: the time per message holds no latency"))
        elif both and point.row.collective == "send":
            left_out.append(refusal(point.row, "one way; rows of both ways at once are fitted"))
        else:
            kept.append(point)
    return kept, left_out


def merged(points: Sequence[Point]) -> list[Point]:
    """One point per condition, at the median time."""
    groups: dict[tuple[str, int | None, int], list[Point]] = {}
    for point in points:
        groups.setdefault((point.row.collective, point.row.ranks, point.row.size_bytes), []).append(point)
    return [sorted(group, key=lambda point: point.seconds)[len(group) // 2] for group in groups.values()]


def refusal(row: Measurement, reason: str) -> FittedPoint:
    """Name a row that is not fitted."""
    return FittedPoint(
        row.collective, row.size_bytes, row.time_s, row.ranks, row.algorithm, source=row.source, reason=reason
    )  # fmt: skip


def _unusable(row: Measurement) -> str:
    if row.time_s <= 0 or row.num_wrong:
        return f"{row.num_wrong} values were wrong" if row.num_wrong else "no time"
    if row.collective in (*_DIRECT, "add"):
        return ""
    if row.collective not in RING_STEPS:
        return f"{row.collective} is not fitted, only compared"
    if row.algorithm not in (None, "ring"):
        return f"algorithm {row.algorithm} is not fitted, only compared"
    if row.ranks is None or row.ranks < 2:
        return "ranks unknown" if row.ranks is None else "one rank sends nothing"
    return ""


def _messages(row: Measurement) -> int:
    if row.collective in RING_STEPS and row.ranks is not None:
        return RING_STEPS[row.collective] * (row.ranks - 1)
    return 1


def split_contradictions(points: Sequence[Point]) -> tuple[list[Point], list[FittedPoint]]:
    """Separate points that cannot all be true of one machine, keeping the larger part.

    Two points contradict where the larger message takes less than half the time of the smaller, or moves
    its bytes at less than half the rate of the smaller: one dip is not a law.
    """
    size = np.array([point.message_bytes for point in points])
    time = np.array([point.seconds for point in points])
    with np.errstate(divide="ignore", invalid="ignore"):
        larger = size[:, None] > size[None, :]
        quicker = larger & (TOLERANCE * time[:, None] < time[None, :])
        slower = larger & (time[:, None] / size[:, None] > TOLERANCE * time[None, :] / size[None, :])
    clash = quicker | slower | quicker.T | slower.T
    same = (size[:, None] == size[None, :]) & (
        np.maximum(time[:, None], time) > TOLERANCE * np.minimum(time[:, None], time)
    )
    clash |= same
    refused: list[FittedPoint] = []
    alive = np.ones(len(points), bool)
    while (count := (clash & alive & alive[:, None]).sum(axis=1)).any():
        worst = max(range(len(points)), key=lambda i: (count[i], time[i] / max(size[i], 1.0)))
        alive[worst] = False
        refused.append(refusal(points[worst].row, _why(points, worst, clash[worst] & alive)))
    return [point for point, keep in zip(points, alive, strict=True) if keep], refused


def _why(points: Sequence[Point], index: int, rivals: npt.NDArray[np.bool_]) -> str:
    other = points[int(np.flatnonzero(rivals)[0])] if rivals.any() else points[index]
    return (
        f"contradicts {int(rivals.sum())} others, among them {other.row.collective} of "
        f"{other.row.size_bytes} bytes in {other.row.time_s * 1e6:.2f} us"
    )


def parse_holdout(rows: Iterable[Measurement], texts: Sequence[str]) -> tuple[list[Measurement], list[Measurement]]:
    """Split rows into those to fit and those held out: marked so when they were measured, or named here.

    Parameters
    ----------
    texts : each "ranks=16", "sizes=64K:1M:2" (from, to) or "collective=all_gather"; a row is held out where any fits

    Raises
    ------
    InvalidInput : another key or a value that is none.
    """
    tests = [_test(text) for text in texts]
    kept: list[Measurement] = []
    held: list[Measurement] = []
    for row in rows:
        (held if row.holdout or any(test(row) for test in tests) else kept).append(row)
    return kept, held


def _test(text: str) -> Callable[[Measurement], bool]:
    key, _, value = text.partition("=")
    if key == "ranks" and all(part.isdigit() for part in value.split(",")):
        ranks = {int(part) for part in value.split(",")}
        return lambda row: row.ranks in ranks
    if key == "sizes" and value:
        sizes = parse_sizes(value)
        low, high = min(sizes), max(sizes)
        return lambda row: low <= row.size_bytes <= high
    if key == "collective" and value:
        return lambda row: row.collective == value
    raise InvalidInput(f'--holdout must be "ranks=16,32", "sizes=64K:1M:2" or "collective=all_gather", got {text!r}')
