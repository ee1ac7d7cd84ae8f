"""When every rank is done, computed for all ranks at once, one step after the other.

Exact where every link is (a) used by one rank and channel, at most one message per step, (b) used by one
(src, dst, channel) alone, (c) at least as wide as all that comes through it, or (d) shared by messages
in lockstep. Elsewhere it refuses, or gives the static share with a bracket and says so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from simnet.costs.model import CostModel
from simnet.errors import InvalidInput, Unsupported
from simnet.interpreters.contention import Group, Widths, contended_links
from simnet.interpreters.cycles import LEAST_TIMES, Layout, walk_cycles
from simnet.interpreters.fold import walk_alike
from simnet.interpreters.lockstep import Lockstep
from simnet.interpreters.maxplus import walk
from simnet.interpreters.messages import BoolArray, Sizes, element_counts
from simnet.interpreters.network import INSTANT
from simnet.interpreters.stages import LinkDraws, Setting, Sharing, flows_back, may_be_eager, stages
from simnet.paths import FloatArray, Paths
from simnet.results import Bracket, Estimate
from simnet.schedule import Schedule


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
        once: `exact` is then false, with the reason and a bracket

    Raises
    ------
    Unsupported : ranks out of step share a link and static_share was not asked for; use `simulate`.
    """
    request = _Request.of(schedule, count, starts, draws, batch_of=paths)
    gammas = np.asarray(gamma, float)
    sizes = Sizes.of(schedule, request.counts)
    setting = Setting(schedule, paths, cost, sizes, itemsize, gammas, _contended(schedule, paths, cost, draws), draws)
    finished, lockstep = _run(setting, request.starts)
    exact = lockstep.holds
    if not exact.all() and not static_share:
        raise Unsupported(
            f"{lockstep.reason}; estimate is exact only for ranks in lockstep: use simulate, or ask for static_share"
        )
    bracket = None if exact.all() else _bracket(setting, request, finished, exact)
    return _answer(finished, exact, lockstep.reason, bracket, axis=request.axis)


class _Request:
    """Sizes, starts and draws brought to one batch."""

    def __init__(self, counts: tuple[int, ...], starts: FloatArray, *, axis: bool) -> None:
        self.counts, self.starts, self.axis = counts, starts, axis

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        count: int | npt.ArrayLike,
        starts: npt.ArrayLike | None,
        draws: LinkDraws | None,
        *,
        batch_of: Paths,
    ) -> _Request:
        counts, many = element_counts(count)
        n = schedule.world_size
        if batch_of.world_size != n:
            raise InvalidInput(f"the paths join {batch_of.world_size} ranks, the schedule has {n}; build both alike")
        given = np.zeros(n) if starts is None else np.asarray(starts, float)
        if given.shape[-1:] != (n,) or given.ndim > 2 or not np.isfinite(given).all() or (given < 0).any():
            raise InvalidInput(f"starts must be 0 s or later, shape ({n},) or (batch, {n}), got {given.shape}")
        table = given.reshape(-1, n)
        drawn = 1 if draws is None else len(draws.bandwidth)
        lengths = {len(counts), len(table), drawn} - {1}
        if len(lengths) > 1:
            raise InvalidInput(f"sizes, starts and draws must be one or equally many, got {sorted(lengths)}")
        batch = lengths.pop() if lengths else 1
        axis = many or given.ndim == 2 or draws is not None
        columns = np.ascontiguousarray(np.broadcast_to(table, (batch, n)).T)
        return cls(counts, columns, axis=axis)


def _contended(schedule: Schedule, paths: Paths, cost: CostModel, draws: LinkDraws | None) -> BoolArray:
    widths = None if draws is None else Widths.of(draws.bandwidth)
    eager, reverse = may_be_eager(cost), flows_back(cost)
    return contended_links([Group(schedule)], paths, widths=widths, eager=eager, reverse=reverse)


def _run(setting: Setting, starts: FloatArray, *, fast: bool = True) -> tuple[FloatArray, Lockstep]:
    """Finish of every rank, s, (world_size, batch), and whether it is exact."""
    channels = setting.schedule.num_channels
    clock = np.repeat(starts, channels, axis=0)
    lockstep = Lockstep(len(setting.contended) if setting.contended.any() else 0, clock.shape[1])
    for stage in stages(setting):
        lockstep.enter(stage)
        if fast and walk_alike(stage, clock, lockstep):
            continue
        layout = Layout.of(stage) if fast and stage.times >= LEAST_TIMES and not may_be_eager(setting.cost) else None
        if layout is not None:
            walk_cycles(stage, layout, clock, lockstep)
        else:
            walk(stage, clock, lockstep)
    return clock.reshape(-1, channels, clock.shape[1]).max(axis=1), lockstep


def _bracket(setting: Setting, request: _Request, finished: FloatArray, exact: BoolArray) -> Bracket:
    """All chunks rounded down and up where that makes lockstep; else no sharing, and the least share there can be."""
    chunks = setting.schedule.num_chunks
    rounded = []
    for counts in (
        tuple(c // chunks * chunks for c in request.counts),
        tuple(-(-c // chunks) * chunks for c in request.counts),
    ):
        finish_, lockstep = _run(replace(setting, sizes=Sizes.of(setting.schedule, counts)), request.starts)
        rounded.append((finish_.max(axis=0), lockstep.holds))
    (low, low_holds), (high, high_holds) = rounded
    time = finished.max(axis=0)
    sound = low_holds & high_holds & (low <= time) & (time <= high)
    if not (sound | exact).all():
        alone, _ = _run(replace(setting, sharing=Sharing.ALONE), request.starts)
        crowded, _ = _run(replace(setting, sharing=Sharing.CROWDED), request.starts)
        low = np.where(sound, low, alone.max(axis=0))
        high = np.where(sound, high, crowded.max(axis=0))
    low, high = np.where(exact, time, low * (1 - INSTANT)), np.where(exact, time, high * (1 + INSTANT))
    return Bracket(low, high) if request.axis else Bracket(float(low[0]), float(high[0]))


def _answer(finished: FloatArray, exact: BoolArray, reason: str, bracket: Bracket | None, *, axis: bool) -> Estimate:
    time = finished.max(axis=0)
    if axis:
        return Estimate(time, exact, "estimate", reason, bracket, finished.T)
    return Estimate(float(time[0]), bool(exact[0]), "estimate", reason, bracket, finished[:, 0])
