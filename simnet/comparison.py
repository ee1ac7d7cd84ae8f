"""Predicted beside measured, and measured beside measured.

Accuracy is reported on hold-out rows alone: a row a profile was fitted to is listed apart and never counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from simnet.errors import InvalidInput
from simnet.metrics import error_quantile, geometric_mean_error, mape, signed_bias
from simnet.results import CollectivePrediction, Measurement, Profile
from simnet.units import Bytes, BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One measured condition beside what was expected of it; error = expected/measured - 1, a fraction."""

    collective: str
    algorithm: str | None
    ranks: int | None
    size_bytes: Bytes
    expected_s: Seconds
    measured_s: Seconds
    low_s: Seconds | None = None
    high_s: Seconds | None = None
    calibrated: bool = False
    count: int | None = None
    dtype: str | None = None

    @property
    def error(self) -> float:
        """How much longer than measured the expectation is, a fraction."""
        return self.expected_s / self.measured_s - 1

    @property
    def inside(self) -> bool | None:
        """Whether the measured time lies in the interval; None where there is none."""
        if self.low_s is None or self.high_s is None:
            return None
        return self.low_s <= self.measured_s <= self.high_s


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Error figures over hold-out rows, fractions; inside is the part of intervals that held."""

    rows: int
    mape: float
    geometric_mean: float
    bias: float
    p95: float
    max: float
    inside: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows matched by collective, ranks, size and, where both name one, algorithm."""

    rows: tuple[ComparedRow, ...]
    unmatched_expected: int
    unmatched_measured: int

    @property
    def holdout(self) -> tuple[ComparedRow, ...]:
        """Rows nothing was fitted to."""
        return tuple(row for row in self.rows if not row.calibrated)

    @property
    def calibrated(self) -> tuple[ComparedRow, ...]:
        """Rows the profile was fitted to."""
        return tuple(row for row in self.rows if row.calibrated)

    def accuracy(self) -> Accuracy:
        """Error figures of the hold-out rows.

        Raises
        ------
        InvalidInput : every matched row was fitted to, or none matched.
        """
        if not self.holdout:
            raise InvalidInput(_nothing_held_out(len(self.rows)))
        return accuracy(self.holdout)


def accuracy(rows: Sequence[ComparedRow]) -> Accuracy:
    """Error figures of rows; the caller answers for their being hold-out."""
    expected, measured = [row.expected_s for row in rows], [row.measured_s for row in rows]
    inside = [row.inside for row in rows if row.inside is not None]
    return Accuracy(
        len(rows), mape(expected, measured), geometric_mean_error(expected, measured), signed_bias(expected, measured),
        error_quantile(expected, measured, 0.95), error_quantile(expected, measured, 1.0),
        sum(inside) / len(inside) if inside else None,
    )  # fmt: skip


def compare(
    predicted: Iterable[CollectivePrediction],
    measured: Iterable[Measurement],
    *,
    profiles: Mapping[str, Profile] | None = None,
) -> Comparison:
    """Put predictions beside measurements of the same collective, ranks and size.

    Measured rows of one condition are merged to their median. `profiles` holds the profiles the predictions
    name: their points tell which rows are no hold-out.

    Raises
    ------
    InvalidInput : nothing matches, or a prediction names a profile that is not given.
    """
    groups = _grouped(measured)
    rows, used, missed = [], set[_Key](), 0
    for prediction in predicted:
        key = _match(prediction.algorithm, (prediction.collective, prediction.ranks, prediction.size_bytes), groups)
        if key is None:
            missed += 1
            continue
        used.add(key)
        rows.append(
            ComparedRow(
                prediction.collective, prediction.algorithm, prediction.ranks, prediction.size_bytes,
                prediction.time_s, median(groups[key]), prediction.low_s, prediction.high_s,
                _was_fitted(prediction, profiles or {}), prediction.count, prediction.dtype,
            )
        )  # fmt: skip
    if not rows:
        raise InvalidInput(
            f"no measured row has the collective, ranks and size of any of {missed} predicted rows; "
            "predict with the --ranks and --sizes of the log"
        )
    return Comparison(tuple(rows), missed, len(groups) - len(used))


def compare_logs(before: Iterable[Measurement], after: Iterable[Measurement]) -> Comparison:
    """Put one log beside another; the error is how much longer the first took than the second.

    Raises
    ------
    InvalidInput : no condition is in both.
    """
    first, second = _grouped(before), _grouped(after)
    shared = [key for key in first if key in second]
    if not shared:
        raise InvalidInput("the two logs share no collective, ranks and size; compare logs of the same sweep")
    rows = [
        ComparedRow(collective, algorithm, ranks, size, median(first[key]), median(second[key]))
        for key in shared
        for collective, ranks, size, algorithm in [key]
    ]
    return Comparison(tuple(rows), len(first) - len(shared), len(second) - len(shared))


_Key = tuple[str, int | None, int, str | None]


def _grouped(rows: Iterable[Measurement]) -> dict[_Key, list[Seconds]]:
    """Times by condition; in-place and out-of-place rows count as repetitions of one condition."""
    groups: dict[_Key, list[Seconds]] = {}
    for row in rows:
        if row.time_s > 0:
            groups.setdefault((row.collective, row.ranks, row.size_bytes, row.algorithm), []).append(row.time_s)
    return groups


def _match(algorithm: str, key: tuple[str, int | None, int], groups: Mapping[_Key, list[Seconds]]) -> _Key | None:
    """Find the measured condition: of the same algorithm, else of an unnamed one."""
    for name in (algorithm, None):
        if (*key, name) in groups:
            return (*key, name)
    return None


def _was_fitted(prediction: CollectivePrediction, profiles: Mapping[str, Profile]) -> bool:
    if not prediction.profile:
        return False
    if prediction.profile not in profiles:
        raise InvalidInput(
            f"the predictions come from profile {prediction.profile!r}, and which rows it was fitted to is not known; "
            "give it with --profile FILE"
        )
    return any(
        (point.collective, point.ranks, point.size_bytes)
        == (prediction.collective, prediction.ranks, prediction.size_bytes)
        and (point.algorithm is None or point.algorithm == prediction.algorithm)
        for point in profiles[prediction.profile].points
    )


def _nothing_held_out(matched: int) -> str:
    return (
        f"all {matched} matched rows were used to fit the profile, so no accuracy can be stated; "
        "measure other sizes or ranks, or hold rows out with simnet calibrate --holdout"
    )


def pair_bandwidths(rows: Iterable[Measurement]) -> dict[tuple[str, str], BytesPerSecond]:
    """Best busbw of every pair of nodes; size/time where a row has none."""
    found: dict[tuple[str, str], BytesPerSecond] = {}
    for row in rows:
        if row.src is None or row.dst is None or row.src == row.dst or row.time_s <= 0:
            continue
        pair = (min(row.src, row.dst), max(row.src, row.dst))
        rate = row.busbw_bytes_per_s if row.busbw_bytes_per_s is not None else row.size_bytes / row.time_s
        found[pair] = max(rate, found.get(pair, 0.0))
    return found


@dataclass(frozen=True, slots=True)
class SlowNodes:
    """What pairwise measurements tell about nodes."""

    slow: tuple[str, ...]
    good: tuple[str, ...]
    undecided: tuple[tuple[str, ...], ...]
    proposed_pairs: tuple[tuple[str, str], ...]
    slowest_pair_bytes_per_s: BytesPerSecond


def slow_nodes(pairs: Mapping[tuple[str, str], BytesPerSecond], *, threshold: float = 0.8) -> SlowNodes:
    """Tell slow nodes from the bandwidth of pairs: a node in any fast pair is good.

    A pair is fast above `threshold` times the fastest. In a slow pair with one good node the other is slow;
    in one without, either may be: pairs with a node known to be good are proposed. An all-reduce over all
    nodes runs at about the slowest pair's rate.

    Raises
    ------
    InvalidInput : no pair at all, or a threshold that is not a part of the fastest, above 0 and up to 1.
    """
    if not 0 < threshold <= 1:
        raise InvalidInput(f"the threshold must be above 0 and at most 1, got {threshold:g}; write 0.8")
    if not pairs:
        raise InvalidInput("no pair of nodes was measured; give logs of two nodes each, or rows with src and dst")
    fastest = max(pairs, key=lambda pair: pairs[pair])
    limit = threshold * pairs[fastest]
    good = {node for pair, rate in pairs.items() if rate >= limit for node in pair}
    lame = [pair for pair, rate in pairs.items() if rate < limit]
    slow = {node for pair in lame if good & set(pair) for node in pair if node not in good}
    open_pairs = tuple(pair for pair in lame if not set(pair) & (good | slow))
    proposed = tuple((node, fastest[0]) for pair in open_pairs for node in pair)
    return SlowNodes(tuple(sorted(slow)), tuple(sorted(good)), open_pairs, proposed, min(pairs.values()))
