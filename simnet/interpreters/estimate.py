"""When every rank is done, computed for all ranks at once, one step after the other.

Exact where every link is (a) used by one rank and channel, at most one message per step, (b) used by one
(src, dst, channel) alone, (c) at least as wide as all that comes through it, or (d) shared by messages
in lockstep. Elsewhere it refuses, or gives the static share with a bracket and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from simnet.costs.model import CostModel
from simnet.errors import InvalidInput, Unsupported
from simnet.interpreters.contention import Group, Widths, contended_links
from simnet.interpreters.cycles import LEAST_TIMES, Layout, walk_cycles
from simnet.interpreters.fold import walk_alike
from simnet.interpreters.lockstep import Lockstep
from simnet.interpreters.maxplus import walk
from simnet.interpreters.messages import BoolArray, Extent, Sizes, element_counts, extent, remember
from simnet.interpreters.network import INSTANT
from simnet.interpreters.stages import LinkDraws, Patterns, Setting, Sharing, flows_back, may_be_eager, stages
from simnet.paths import FloatArray, Paths
from simnet.results import Bracket, Estimate
from simnet.schedule import IntArray, Schedule

CACHED_CLOCKS, STEPPED_MESSAGES = 2**14, 2**22
"""Clocks, or messages of a step, that are advanced together; more columns of a batch go in several passes.

Where steps repeat, a pass stays within the cache; elsewhere making a step ready takes longer than taking it.
"""

STEPPED_TRANSFERS = 2**31
"""Schedules of more transfers, with uneven chunks or starts, are bracketed and not stepped through."""


def estimate(
    schedule: Schedule,
    count: int | npt.ArrayLike,
    paths: Paths,
    cost: CostModel,
    *,
    itemsize: int = 4,
    gamma: float | npt.ArrayLike = 0.0,
    starts: npt.ArrayLike | None = None,
    draws: LinkDraws | None = None,
    static_share: bool = False,
    bracket: bool = True,
) -> Estimate:
    """Time until the last rank is done, where ranks that share a link are in lockstep.

    Parameters
    ----------
    count : elements per rank, shape () or (batch,)
    paths : latency and bandwidth between ranks, and the links they share
    itemsize : bytes per element
    gamma : s per byte that a rank adds, shape () or (world_size,)
    starts : when each rank enters, s, shape (world_size,) or (batch, world_size); default all at 0
    draws : link parameters that differ from draw to draw; their number is the batch
    static_share : where ranks out of step share links, answer as if all messages of a step flowed at
        once: `exact` is then false, with the reason and a bracket (none for draws: hold some against `simulate`)
    bracket : False leaves it out, which is three times as quick

    Raises
    ------
    Unsupported : ranks out of step share a link and static_share was not asked for, use `simulate`; or the
        schedule has too many messages to list them.
    """
    case = _Case.of(schedule, count, paths, cost, itemsize=itemsize, gamma=gamma, starts=starts, draws=draws)
    if case.extent.transfers > STEPPED_TRANSFERS and not case.alike:
        return _enclosed(case)
    finished, exact, reason = _run(case)
    if not exact.all() and not static_share:
        raise Unsupported(f"{reason}; estimate is exact only in lockstep: use simulate, or ask for static_share")
    if exact.all():
        return _answer(finished, exact, reason, None, axis=case.axis)
    columns = np.flatnonzero(~exact)
    fullest = _fullest(case.only(columns))
    finished = _held_back(finished, columns, fullest)
    ends = _bracket(case, finished, columns, fullest) if bracket and draws is None else None
    return _answer(finished, exact, reason, ends, axis=case.axis)


@dataclass(frozen=True, slots=True)
class _Case:
    """A question, checked, its sizes, starts and draws brought to one batch.

    counts : elements per rank, one or (batch,)
    starts : s, (world_size, batch)
    axis : whether the answer has a batch axis
    """

    setting: Setting
    extent: Extent
    counts: tuple[int, ...]
    starts: FloatArray
    axis: bool

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        count: int | npt.ArrayLike,
        paths: Paths,
        cost: CostModel,
        *,
        itemsize: int,
        gamma: float | npt.ArrayLike,
        starts: npt.ArrayLike | None,
        draws: LinkDraws | None,
    ) -> _Case:
        size, schedule = extent(schedule), remember(schedule)
        counts, many = element_counts(count)
        n = schedule.world_size
        if paths.world_size != n:
            raise InvalidInput(f"the paths join {paths.world_size} ranks, the schedule has {n}; build both alike")
        gammas = np.asarray(gamma, float)
        if gammas.shape not in ((), (n,)) or not np.isfinite(gammas).all() or (gammas < 0).any():
            raise InvalidInput(f"gamma must be 0 s per byte or more, shape () or ({n},), got shape {gammas.shape}")
        table = _starts(n, starts)
        batch = _batch({len(counts), len(table), 1 if draws is None else len(draws.bandwidth)})
        setting = Setting(
            schedule, paths, cost, Sizes.of(schedule, counts[:1]), itemsize, gammas,
            _contended(schedule, paths, cost, draws), draws,
        )  # fmt: skip
        axis = many or draws is not None or (starts is not None and np.ndim(starts) == 2)
        return cls(setting, size, counts, np.ascontiguousarray(np.broadcast_to(table, (batch, n)).T), axis)

    @property
    def schedule(self) -> Schedule:
        return self.setting.schedule

    @property
    def batch(self) -> int:
        return self.starts.shape[1]

    @property
    def alike(self) -> bool:
        """Whether all chunks are equally large and all ranks start together."""
        return bool(self.even.all()) and bool((self.starts == self.starts[:1]).all())

    @property
    def even(self) -> BoolArray:
        """For which columns all chunks are equally large, (batch,)."""
        even = np.array([count % self.schedule.num_chunks == 0 for count in self.counts])
        return np.broadcast_to(even, (self.batch,))

    def pieces(self) -> Iterator[IntArray]:
        """Columns that are timed together: no uneven sizes among even ones, and few enough for the cache."""
        even = self.even
        lanes = self.schedule.world_size * self.schedule.num_channels
        longest = max(lanes, self.extent.longest)
        most = max(1, CACHED_CLOCKS // lanes if self.extent.folded else STEPPED_MESSAGES // longest)
        for columns in (np.flatnonzero(even), np.flatnonzero(~even)):
            yield from (columns[i : i + most] for i in range(0, len(columns), most))

    def only(self, columns: IntArray) -> _Case:
        """The case of some columns."""
        setting, starts = self.piece(columns)
        counts = self.counts if len(self.counts) == 1 else tuple(self.counts[i] for i in columns.tolist())
        return _Case(setting, self.extent, counts, starts, self.axis)

    def piece(self, columns: IntArray) -> tuple[Setting, FloatArray]:
        """Setting and starts of some columns."""
        counts = self.counts if len(self.counts) == 1 else tuple(self.counts[i] for i in columns.tolist())
        setting = replace(self.setting, sizes=Sizes.of(self.schedule, counts))
        draws = setting.draws
        if draws is not None and len(draws.bandwidth) > 1:
            setting = replace(setting, draws=draws.block(columns), patterns=Patterns())
        return setting, self.starts[:, columns]


def _starts(n: int, starts: npt.ArrayLike | None) -> FloatArray:
    given = np.zeros(n) if starts is None else np.asarray(starts, float)
    if given.ndim not in (1, 2) or given.shape[-1] != n or not np.isfinite(given).all() or (given < 0).any():
        raise InvalidInput(f"starts must be 0 s or later, shape ({n},) or (batch, {n}), got shape {given.shape}")
    return given.reshape(-1, n)


def _batch(lengths: set[int]) -> int:
    longer = lengths - {1}
    if len(longer) > 1:
        raise InvalidInput(f"sizes, starts and draws must be one or equally many, got {sorted(longer)}")
    return longer.pop() if longer else 1


def _contended(schedule: Schedule, paths: Paths, cost: CostModel, draws: LinkDraws | None) -> BoolArray:
    widths = None if draws is None else Widths.of(draws.bandwidth)
    eager, reverse = may_be_eager(cost), flows_back(cost)
    return contended_links([Group(schedule)], paths, widths=widths, eager=eager, reverse=reverse)


def _run(case: _Case, *, fast: bool = True) -> tuple[FloatArray, BoolArray, str]:
    """Finish of every rank, s, (world_size, batch), for which columns it is exact, and why not for others."""
    finished, exact, reason = np.empty_like(case.starts), np.ones(case.batch, bool), ""
    for columns in case.pieces():
        setting, starts = case.piece(columns)
        finished[:, columns], lockstep = _run_piece(setting, starts, fast=fast)
        exact[columns] = lockstep.holds
        reason = reason or lockstep.reason
    return finished, exact, reason


def _run_piece(setting: Setting, starts: FloatArray, *, fast: bool) -> tuple[FloatArray, Lockstep]:
    channels = setting.schedule.num_channels
    clock = np.repeat(starts, channels, axis=0)
    matters = setting.sharing is Sharing.FAIR and setting.contended.any()
    lockstep = Lockstep(len(setting.contended) if matters else 0, clock.shape[1])
    fast = fast and not may_be_eager(setting.cost)
    for stage in stages(setting):
        lockstep.enter(stage)
        if fast and walk_alike(stage, clock, lockstep):
            continue
        layout = Layout.of(stage) if fast and stage.times >= LEAST_TIMES else None
        if layout is not None:
            walk_cycles(stage, layout, clock, lockstep)
        else:
            walk(stage, clock, lockstep)
    return clock.reshape(-1, channels, clock.shape[1]).max(axis=1), lockstep


def _rounded(case: _Case) -> tuple[_Case, _Case]:
    """The case with all chunks rounded down, and rounded up."""
    chunks = case.schedule.num_chunks
    down, up = tuple(c // chunks * chunks for c in case.counts), tuple(-(-c // chunks) * chunks for c in case.counts)
    return replace(case, counts=down), replace(case, counts=up)


def _enclosed(case: _Case) -> Estimate:
    """Bracket of a case too large to step through: chunks and starts rounded down, and rounded up."""
    down, up = _rounded(case)
    first, last = (np.broadcast_to(f(case.starts, axis=0), case.starts.shape).copy() for f in (np.min, np.max))
    low, _, _ = _run(replace(down, starts=first))
    high, exact, _ = _run(replace(up, starts=last))
    reason = (
        f"{case.schedule.name} on {case.schedule.world_size} ranks is too large to step through with uneven "
        "chunks or starts: all are rounded up, and down for the lower end of the bracket"
    )
    return _answer(high, ~exact & exact, reason, Bracket(low.max(axis=0), high.max(axis=0)), axis=case.axis)


def _held_back(finished: FloatArray, columns: IntArray, fullest: FloatArray) -> FloatArray:
    """Columns of static share whose last ranks end no sooner than the fullest link can have carried its bytes."""
    times = finished[:, columns]
    last = times.max(axis=0)
    held = finished.copy()
    held[:, columns] = np.where(times == last, np.maximum(last, fullest), times)
    return held


def _bracket(case: _Case, finished: FloatArray, columns: IntArray, fullest: FloatArray) -> Bracket:
    """Two times around each of the columns, which are not exact; the time itself, twice, of the others."""
    time = finished.max(axis=0)
    low, high = time.copy(), time.copy()
    lower, upper = _around(case.only(columns), time[columns], fullest)
    low[columns], high[columns] = lower * (1 - INSTANT), upper * (1 + INSTANT)
    return Bracket(low, high)


def _around(case: _Case, time: FloatArray, fullest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """No sharing at all, or all the bytes of the fullest link; and the least share there can ever be.

    Rounding all chunks down or up bounds nothing where links are shared: messages that fall out of step can
    gain, as one flows while another waits for its latency.
    """
    alone, crowded = (
        _run(replace(case, setting=replace(case.setting, sharing=sharing)))[0].max(axis=0)
        for sharing in (Sharing.ALONE, Sharing.CROWDED)
    )
    return np.minimum(np.maximum(alone, fullest), time), np.maximum(crowded, time)


def _fullest(case: _Case) -> FloatArray:
    """When the link with most to carry can be done at the earliest, s, (batch,)."""
    setting, starts = case.piece(np.arange(case.batch))
    carried = np.zeros((len(setting.contended), case.batch))
    for stage in stages(setting):
        wire = stage.wire_bytes(setting.sizes.floor(stage.step))
        rows = np.broadcast_to(stage.times * wire, (len(stage.found), case.batch))
        data = stage.loads.weight[:, 0] > 0
        np.add.at(carried, stage.loads.link[data], rows[stage.loads.flow[data]])
    return starts.min(axis=0) + (carried / setting.bandwidth).max(axis=0)


def _answer(finished: FloatArray, exact: BoolArray, reason: str, bracket: Bracket | None, *, axis: bool) -> Estimate:
    time = finished.max(axis=0)
    if bracket is not None and not axis:
        bracket = Bracket(float(np.ravel(bracket.low)[0]), float(np.ravel(bracket.high)[0]))
    if axis:
        return Estimate(time, exact, "estimate", reason, bracket, finished.T)
    return Estimate(float(time[0]), bool(exact[0]), "estimate", reason, bracket, finished[:, 0])
