"""Which algorithm is the fastest, size by size, which comes next, and at which sizes the order changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from simnet.algorithms.grid import Grid
from simnet.algorithms.registry import algorithms
from simnet.collective import Kind
from simnet.collective_prediction import ITEM_SIZES, Site, build_schedule, counts_of, rows_of
from simnet.costs.alpha_beta import AlphaBeta
from simnet.costs.model import CostModel
from simnet.errors import InvalidInput, Unsupported
from simnet.interpreters.estimate import estimate
from simnet.interpreters.messages import num_transfers, repeated
from simnet.results import CollectivePrediction
from simnet.schedule import Schedule
from simnet.units import Bytes

TRIED_TRANSFERS, TRIED_STEP = 4_000_000, 65_536
"""Schedules of more transfers, unfolded or in one step, are left out of a choice: all are timed at every size.

A step of one transfer per rank and direction is never too long.
"""

UNTRIED = "more than a choice over all algorithms takes time for; ask for it by name"

FOLDED_ITEMS = 16

ROUNDS, SECTIONS = 3, 16
"""A crossover is looked for among so many sections of the sizes between two rows, then of the section it is in."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An algorithm with its options."""

    label: str
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Crossover:
    """From this size on, in bytes, `above` is faster than `below`."""

    size_bytes: Bytes
    below: str
    above: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The fastest row per size, with its runner-up; where the winner changes; and what could not be tried."""

    rows: tuple[CollectivePrediction, ...]
    crossovers: tuple[Crossover, ...]
    refused: dict[str, str]


def choose(
    site: Site,
    sizes: str | int | Sequence[Bytes],
    *,
    kind: Kind = Kind.ALL_REDUCE,
    dtype: str = "float",
    cost: CostModel | None = None,
    only: Sequence[str] | None = None,
) -> Choice:
    """Time every algorithm of a collective at every size and pick.

    Parameters
    ----------
    only : names of the algorithms to choose from; default all

    Raises
    ------
    InvalidInput : no algorithm takes these ranks.
    """
    refused: dict[str, str] = {}
    candidates = list(_candidates(site, kind, refused, only))
    if not candidates:
        raise InvalidInput(f"no {kind} takes {site.paths.world_size} ranks: {refused}")
    rows = [_timed(site, one, sizes, dtype, cost or AlphaBeta()) for one in candidates]
    times = np.array([[row.time_s for row in of] for of in rows])
    order = np.argsort(times, axis=0, kind="stable")
    best = [
        _winner([of[i] for of in rows], [candidates[k].label for k in order[:2, i]], order[:2, i])
        for i in range(times.shape[1])
    ]

    def time(candidate: int, sizes: list[Bytes]) -> list[float]:
        return [row.time_s for row in _timed(site, candidates[candidate], sizes, dtype, cost or AlphaBeta())]

    crossings = [
        Crossover(
            _crossing(time, order[0, i : i + 2].tolist(), [row.size_bytes for row in best[i : i + 2]]),
            candidates[order[0, i]].label,
            candidates[order[0, i + 1]].label,
        )
        for i in np.flatnonzero(order[0, 1:] != order[0, :-1]).tolist()
    ]
    return Choice(tuple(best), tuple(crossings), refused)


def _candidates(site: Site, kind: Kind, refused: dict[str, str], only: Sequence[str] | None) -> Iterator[Candidate]:
    for name, algorithm in algorithms(kind).items():
        if only is not None and name not in only:
            continue
        for grid in _grids(site, "grid" in algorithm.options):
            label = name if grid is None else f"{name} {'x'.join(map(str, grid))}"
            try:
                schedule = build_schedule(name, site, grid=grid)
            except (Unsupported, InvalidInput) as error:
                refused[label] = str(error)
                continue
            if too_large := _too_large(schedule):
                refused[label] = too_large
                continue
            yield Candidate(label, schedule)


def _grids(site: Site, takes_grid: bool) -> list[Grid | None]:
    """Grids to try: the algorithm's own choice, and one whose rows are the nodes."""
    n, row = site.paths.world_size, site.ranks_per_node
    by_node = takes_grid and 1 < row < n and n % row == 0
    return [None, (row, n // row)] if by_node else [None]


def _too_large(schedule: Schedule) -> str:
    """Say what is too much, if anything: few items stand for many steps quickly, a step of all pairs takes its time."""
    num_items, longest = 0, max(TRIED_STEP, 2 * schedule.world_size)
    for item in islice(schedule.steps(), FOLDED_ITEMS + 1):
        num_items += 1
        length = len(repeated(item)[0])
        if length > longest:
            return f"{length:,} messages in a step, {UNTRIED}"
    try:
        total = num_transfers(schedule) if num_items > FOLDED_ITEMS else 0
        return f"{total:,} messages, {UNTRIED}" if total > TRIED_TRANSFERS else ""
    except Unsupported as error:
        return str(error)


def _timed(
    site: Site, one: Candidate, sizes: str | int | Sequence[Bytes], dtype: str, cost: CostModel
) -> list[CollectivePrediction]:
    counts = counts_of(sizes, dtype, one.schedule)
    timed = estimate(
        one.schedule, np.array(counts), site.paths, cost, itemsize=ITEM_SIZES[dtype], static_share=True, bracket=False
    )
    return rows_of(one.schedule, site, counts, dtype, timed)


def _winner(rows: list[CollectivePrediction], labels: list[str], order: npt.NDArray[np.intp]) -> CollectivePrediction:
    row = replace(rows[order[0]], algorithm=labels[0])
    return row if len(order) < 2 else replace(row, runner_up=labels[1], runner_up_s=rows[order[1]].time_s)


def _crossing(time: Callable[[int, list[Bytes]], list[float]], pair: list[int], sizes: list[Bytes]) -> Bytes:
    """Size at which the second of a pair becomes the faster, between two sizes, narrowed down round by round."""
    low, high = sizes
    for _ in range(ROUNDS):
        between = np.unique(np.geomspace(max(low, 1), high, SECTIONS + 1)[1:-1].astype(np.int64)).tolist()
        between = [size for size in between if low < size < high]
        if not between:
            break
        before, after = (time(candidate, between) for candidate in pair)
        faster = [size for size, a, b in zip(between, before, after, strict=True) if b < a]
        high = min(faster, default=high)
        low = max((size for size in between if size < high), default=low)
    return high
