"""Which collective an nccl-tests table shows and over how many ranks, told from its own columns.

busbw/algbw is 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, and 1 for
broadcast, reduce and sendrecv; size/(count x item size) is n for the second group and 1 for the others.
Every row votes; rows that contradict the majority are not used.

Source: nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from simnet.collective import Kind
from simnet.importers.nccl_rows import Half, agrees, parts
from simnet.importers.nccl_rows import Start as RowStart
from simnet.metrics import bus_factor
from simnet.units import GB

SENDRECV = "sendrecv"
BLANK = ""
"""Reduction of a row below a heading that has none: whatever reduces names its reduction."""

UNKNOWN = "unknown"
KNOWN = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    SENDRECV,
    "gather",
    "scatter",
)
_PARTITIONED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_MOST_CANDIDATES = 64


@dataclass(frozen=True, slots=True)
class Row:
    """One half of a row, with what its columns say."""

    line: int
    start: RowStart
    half: Half
    root: int | None
    in_place: bool | None
    interval: tuple[float, ...] = ()

    @property
    def informative(self) -> bool:
        """Whether busbw/algbw can tell anything: both printed with some digits."""
        return self.half.busbw is not None and self.half.algbw >= 0.2 * GB


@dataclass(frozen=True, slots=True)
class Verdict:
    """Collective and ranks of a run; ranks None where the table does not tell."""

    collective: str
    ranks: int | None
    notes: tuple[str, ...] = ()

    def busbw_agrees(self, row: Row) -> bool:
        """Whether the printed busbw is what this collective and these ranks give."""
        if row.half.busbw is None or self.ranks is None or row.start.size == 0:
            return True
        factor = factor_of(self.collective, self.ranks)
        return factor is None or agrees(row.half.busbw, row.start.size, row.half, factor)

    def parts_agree(self, row: Row) -> bool:
        """Whether count times the parts of this collective is size."""
        found = parts(row.start)
        if found is None or self.ranks is None or self.collective == UNKNOWN:
            return found is not None
        return found in (0, 1) or (found == self.ranks and self.collective in _PARTITIONED)


@lru_cache(4096)
def factor_of(collective: str, ranks: int) -> float | None:
    """Busbw over algbw, None for a collective this project does not know."""
    if collective in (SENDRECV,):
        return 1.0
    if collective in ("gather", "scatter"):
        return (ranks - 1) / ranks
    return bus_factor(Kind(collective), ranks) if collective in set(Kind) else None


def possible(row: Row) -> tuple[str, ...]:
    """Collectives that print this redop and root, most common first."""
    rooted = row.root is not None and row.root >= 0
    if row.start.redop is None and not rooted:
        return ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", SENDRECV)
    if row.start.redop not in (None, "none", BLANK):
        return ("reduce",) if rooted else ("all_reduce", "reduce_scatter")
    return ("broadcast", "gather", "scatter") if rooted else ("all_gather", "all_to_all", SENDRECV)


def infer(
    rows: Sequence[Row],
    *,
    named: str | None,
    listed_ranks: int | None,
    trusted: bool = True,
    likely: str | None = None,
) -> Verdict:
    """Collective and ranks that most rows agree with; what the log names and lists comes first among equals.

    What is `likely` by the form of the table comes before what is common, and is said to be assumed.
    A list of ranks that is not `trusted` must be borne out by a row.
    """
    if named is not None and named not in KNOWN:
        return Verdict(named, listed_ranks, (f"{named} is none of the collectives read here",))
    kinds = possible(rows[0])
    ordered = tuple(sorted(kinds, key=lambda kind: (kind != named, kind != likely)))
    votes = {
        (kind, ranks): sum(_consistent(row, kind, ranks) for row in rows)
        for kind in ordered
        for ranks in _candidates(rows, kind, listed_ranks)
    }
    if not votes:
        return Verdict(_named_or_first(ordered, named), None, _assumed(ordered, named))
    best = max(votes.values())
    winners = [choice for choice, count in votes.items() if count == best]
    kind = winners[0][0]
    counts = {ranks for winner, ranks in winners if winner == kind}
    only = next(iter(counts)) if len(counts) == 1 and _borne_out(rows, kind) else None
    ranks = listed_ranks if trusted and listed_ranks in counts else only
    notes = (*_kind_remarks(ordered, winners, kind, named), *_rank_remarks(winners, kind, ranks, listed_ranks))
    return Verdict(kind, ranks, notes)


def _borne_out(rows: Sequence[Row], kind: str) -> bool:
    """Whether some row tells the ranks by itself."""
    if kind in _PARTITIONED and any((parts(row.start) or 0) > 1 for row in rows):
        return True
    return any(row.informative and (_by_factor(row, kind) or row.half.busbw == 0) for row in rows)


def _consistent(row: Row, kind: str, ranks: int) -> bool:
    verdict = Verdict(kind, ranks)
    found = parts(row.start)
    expected = ranks if kind in _PARTITIONED else 1
    return verdict.busbw_agrees(row) and found in (0, expected)


def _candidates(rows: Iterable[Row], kind: str, listed: int | None) -> set[int]:
    """World sizes worth trying: listed, by parts, and by the rows that pin the factor best."""
    found = {listed} if listed else set()
    telling = sorted((row for row in rows if row.informative), key=lambda row: -row.half.algbw)
    for row in telling[:6]:
        found |= _by_factor(row, kind)
    found |= {count for row in rows if (count := parts(row.start)) and (count > 1 or kind not in _PARTITIONED)}
    return {ranks for ranks in found if ranks > 1 or kind in ("all_reduce", "all_gather", SENDRECV)}


def _by_factor(row: Row, kind: str) -> set[int]:
    """Whole world sizes for which the factor of the kind lies within the rounding of busbw/algbw."""
    if row.half.busbw is None:
        return set()
    lowest, highest = row.half.bandwidth_range(row.start.size)
    low = (row.half.busbw - 0.0051 * GB) / highest
    high = (row.half.busbw + 0.0051 * GB) / lowest
    top = 2.0 if kind == "all_reduce" else 1.0
    if kind in (SENDRECV, "broadcast", "reduce") or high >= top:
        return set()
    first, last = math.ceil(top / (top - low) - 1e-9), math.floor(top / (top - high) + 1e-9)
    return set(range(max(first, 1), last + 1)) if last - first < _MOST_CANDIDATES else set()


def _named_or_first(kinds: tuple[str, ...], named: str | None) -> str:
    return named if named in kinds else kinds[0]


def _assumed(kinds: tuple[str, ...], named: str | None) -> tuple[str, ...]:
    if named in kinds:
        return ()
    return (f"the log does not name its collective; {kinds[0]} assumed from the columns",)


def _kind_remarks(
    kinds: tuple[str, ...], winners: list[tuple[str, int]], kind: str, named: str | None
) -> Iterable[str]:
    rivals = sorted({winner for winner, _ in winners} - {kind}) if named != kind else []
    if rivals:
        yield f"{kind} or {' or '.join(rivals)}: the log does not name its collective, {kind} assumed"
    if named is not None and named in kinds and named != kind:
        yield f"the log names {named}, its columns show {kind}"


def _rank_remarks(winners: list[tuple[str, int]], kind: str, ranks: int | None, listed: int | None) -> Iterable[str]:
    if listed and ranks and ranks != listed:
        yield f"the log lists {listed} ranks, busbw/algbw says {ranks}"
    if not listed and ranks:
        yield f"{ranks} ranks inferred from the columns"
    if ranks is None:
        yield "ranks cannot be told from the columns"
