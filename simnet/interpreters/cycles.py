"""Repeated steps in which ranks pass on around cycles, laid out so that neighbours lie side by side.

Every lane sends one message and receives one, around cycles of one length: rings, and all of a torus at
once. Clocks are laid out position by position, all cycles of one position together, so that looking at
the next lane is looking one block ahead in memory. Where repetitions cost the same, clocks sooner or
later all move on by the same amount; from then on the rest is a multiplication.

Source: Baccelli, Cohen, Olsder & Quadrat, Synchronization and Linearity, 1992, theorem 3.112.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from simnet.interpreters.lockstep import Lockstep
from simnet.interpreters.messages import BoolArray, distinct
from simnet.interpreters.stages import Price, Stage
from simnet.paths import FloatArray
from simnet.schedule import IntArray, Repeat, Step

Flat = TypeVar("Flat", BoolArray, FloatArray)

LEAST_TIMES = 3
"""Fewer repetitions are not worth a layout."""

STEADY = 4 * np.finfo(float).eps
"""Clocks that moved on by the same amount within this, relative to the clock, are steady."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Lanes and the messages they send, by position on their cycle, then cycle; each (length * cycles,)."""

    lanes: IntArray
    message: IntArray
    length: int

    @property
    def cycles(self) -> int:
        """Number of cycles."""
        return len(self.lanes) // self.length

    @classmethod
    def of(cls, stage: Stage) -> Layout | None:
        """Lay a stage out, or None where it has another shape; the latest layout of a pattern is kept."""
        kept = stage.pattern.kept
        if "layout" not in kept:
            kept["layout"] = cls._of(stage)
        found = kept["layout"]
        assert found is None or isinstance(found, Layout)
        return found

    @classmethod
    def _of(cls, stage: Stage) -> Layout | None:
        src, dst = stage.src_lane, stage.dst_lane
        size = stage.setting.schedule.world_size * stage.setting.schedule.num_channels
        follows, message = np.full(size, -1), np.full(size, -1)
        if not distinct(src, size) or not distinct(dst, size):
            return None
        follows[src], message[src] = dst, np.arange(len(src))
        if (follows[dst] < 0).any():
            return None
        lanes = _around(follows, np.sort(src))
        return None if lanes is None else cls(lanes.reshape(-1), message[lanes.reshape(-1)], len(lanes))


def _around(follows: IntArray, lanes: IntArray) -> IntArray | None:
    """Lanes by position and cycle, (length, cycles); None where cycles differ in length."""
    lowest, ahead = np.arange(len(follows)), follows.copy()
    while True:
        new = np.minimum(lowest, lowest[ahead])
        if np.array_equal(new, lowest):
            break
        lowest, ahead = new, ahead[ahead]
    heads, length = np.unique(lowest[lanes], return_counts=True)
    if (length != length[0]).any():
        return None
    order = heads[None, :]
    ahead = follows
    while len(order) < length[0]:
        order = np.concatenate([order, ahead[order]])
        ahead = ahead[ahead]
    return order[: length[0]]


def walk_cycles(stage: Stage, layout: Layout, clock: FloatArray, lockstep: Lockstep) -> None:
    """Advance all lanes through all repetitions, in place; the same as stepping through them one by one."""
    track = _Track(layout, clock)
    if stage.constant:
        _Steady(stage, layout, track, lockstep).walk()
    elif stage.found.of_transfer is None:
        _Varying(stage, layout, track, lockstep).walk()
    else:
        _walk_priced(stage, layout, track, lockstep)
    clock[layout.lanes] = track.now.reshape(-1, clock.shape[1])
    if lockstep.watches:
        lockstep.leave(stage, clock)


class _Track:
    """Clocks around all cycles, with the first position once more at the end."""

    def __init__(self, layout: Layout, clock: FloatArray) -> None:
        batch = clock.shape[1]
        self.width = layout.cycles * batch
        self.length = layout.length
        self.size = self.length * self.width
        self._clock = np.empty(self.size + self.width)
        self._over = np.empty(self.size + self.width)
        self.now = self._clock[: self.size]
        self._next = self._clock[self.width :]
        self.start = self._over[self.width :]
        self._before = self._over[: self.size]
        self.now[:] = clock[layout.lanes].reshape(-1)

    def meet(self) -> FloatArray:
        """When each message starts: both its lanes are there."""
        self._clock[self.size :] = self._clock[: self.width]
        return np.maximum(self.now, self._next, out=self.start)

    def part(self, *, gaps: bool) -> None:
        """Go on when both messages of a lane are over; gaps: some are not sent, and over at -inf."""
        self._over[: self.width] = self._over[self.size :]
        if gaps:
            np.maximum(self.now, self.start, out=self.now)
            np.maximum(self.now, self._before, out=self.now)
        else:
            np.maximum(self._before, self.start, out=self.now)


def _laid(column: FloatArray, layout: Layout, batch: int) -> FloatArray:
    """A column of messages (num_messages or 1, batch or 1) in the order of the layout, flat."""
    rows = column if column.shape[0] == 1 else column[layout.message]
    return np.ascontiguousarray(np.broadcast_to(rows, (len(layout.message), batch))).reshape(-1)


class _Steady:
    """Repetitions that all cost the same."""

    def __init__(self, stage: Stage, layout: Layout, track: _Track, lockstep: Lockstep) -> None:
        self.track, self.times = track, stage.times
        self._watch = _Watch.of(stage, layout, lockstep)
        self._price = stage.price(stage.step)
        cost, batch = self._price.cost, track.width // layout.cycles
        self._gaps = bool(np.isneginf(cost).any())
        alike = cost.size == 1 or bool((cost == cost.flat[0]).all())
        self._cost = float(cost.flat[0]) if alike else _laid(cost, layout, batch)
        self._batch, self._alone = batch, layout.cycles * batch

    def walk(self) -> None:
        """Step through a span, through twice as long a span, and so on, until clocks move on steadily."""
        done, span, before = 0, 1, self.track.now.copy()
        while done < self.times:
            self._step(first=done == 0)
            done += 1
            if done == span and done < self.times:
                moved = self.track.now - before
                if self._steady(moved):
                    done += self._jump(moved, span - span // 2, self.times - done)
                before, span = self.track.now.copy(), 2 * span

    def _step(self, *, first: bool) -> None:
        start = self.track.meet()
        if self._watch is not None and first:
            self._watch.first(self._price, start)
        elif self._watch is not None:
            self._watch.later(start)
        start += self._cost
        self.track.part(gaps=self._gaps)

    def _steady(self, moved: FloatArray) -> bool:
        rows = moved.reshape(self.track.length, self._alone)
        low, high = rows.min(axis=0), rows.max(axis=0)
        if self._watch is not None:
            columns = low.reshape(-1, self._batch), high.reshape(-1, self._batch)
            low, high = columns[0].min(axis=0), columns[1].max(axis=0)
        return bool((high - low).max() <= STEADY * self.track.now.max())

    def _jump(self, moved: FloatArray, span: int, left: int) -> int:
        """Move on by as many whole spans as are left; return how many repetitions those are."""
        spans = max(left // span, 0)
        self.track.now += spans * moved
        return spans * span


class _Watch:
    """Lockstep of a stage whose starts are laid out flat."""

    def __init__(self, stage: Stage, layout: Layout, lockstep: Lockstep) -> None:
        self._stage, self._lockstep = stage, lockstep
        self._place = np.empty_like(layout.message)
        self._place[layout.message] = np.arange(len(layout.message))
        self._pairs = [self._place[messages] for messages in lockstep.pairs]
        always = stage.num_bytes(stage.setting.sizes.floor(stage.step)) > 0
        always = np.broadcast_to(always, (len(stage.found), always.shape[1]))
        self._always = [always[messages] for messages in lockstep.pairs]

    @classmethod
    def of(cls, stage: Stage, layout: Layout, lockstep: Lockstep) -> _Watch | None:
        """None where no link is contended."""
        return cls(stage, layout, lockstep) if lockstep.watches else None

    def first(self, price: Price, start: FloatArray) -> None:
        """Look at a repetition in full."""
        if self._lockstep.holds.any():
            self._lockstep.watch(self._stage, price, start.reshape(len(self._place), -1)[self._place])

    def later(self, start: FloatArray, more: BoolArray | None = None) -> None:
        """Look at a later one; more: which messages carry one element more, in the layout, flat."""
        if not self._lockstep.holds.any():
            return
        both = [start.reshape(len(self._place), -1)[rows] for rows in self._pairs]
        sent, differ = self._always[0] | self._always[1], None
        if more is not None:
            sizes = more.reshape(len(self._place), -1)
            differ = sizes[self._pairs[0]] != sizes[self._pairs[1]]
            sent = sent | sizes[self._pairs[0]] | sizes[self._pairs[1]]
        self._lockstep.compare(self._stage, both[0], both[1], sent, differ)


class _Varying:
    """Repetitions in which some messages carry one element more: two prices, and who pays which when."""

    def __init__(self, stage: Stage, layout: Layout, track: _Track, lockstep: Lockstep) -> None:
        self.stage, self.layout, self.track = stage, layout, track
        self._batch = track.width // layout.cycles
        self._watch = _Watch.of(stage, layout, lockstep)
        floor = stage.setting.sizes.floor(stage.step)
        low, high = stage.price_of(floor).cost, stage.price_of(floor + 1).cost
        self._gaps = bool(np.isneginf(low).any())
        self._low, self._high = (_laid(cost, layout, self._batch) for cost in (low, high))
        self._orbit = Orbit.of(stage, layout)

    def walk(self) -> None:
        """Step through all repetitions."""
        for k, (more, cost) in enumerate(zip(self._who(), self._costs(), strict=True)):
            start = self.track.meet()
            if self._watch is not None and k == 0:
                self._watch.first(self.stage.price(self.stage.step), start)
            elif self._watch is not None:
                self._watch.later(start, more)
            start += cost
            self.track.part(gaps=self._gaps)

    def _who(self) -> Iterator[BoolArray]:
        """Which messages carry one element more, flat, for each repetition."""
        if self._orbit is None:
            return (self._more(_at(self.stage, k)) for k in range(self.stage.times))
        return self._turning(self._more(self.stage.step), self._orbit)

    def _costs(self) -> Iterator[FloatArray]:
        """What each message costs, s, flat, for each repetition; gone once the next is asked for."""
        if self._orbit is not None and _alike(self._low) and _alike(self._high):
            more = self._more(self.stage.step)
            yield from self._turning(np.where(more, self._high[0], self._low[0]), self._orbit)
            return
        cost = np.empty(self.track.size)
        for more in self._who():
            np.copyto(cost, self._low)
            np.copyto(cost, self._high, where=more)
            yield cost

    def _turning(self, first: Flat, orbit: Orbit) -> Iterator[Flat]:
        """What moves along the cycles, seen from the places of every repetition: windows, nothing is copied."""
        twice, size = np.concatenate([first, first]), self.track.size
        for k in range(self.stage.times):
            offset = orbit.turn(k) * self.track.width
            yield twice[offset : offset + size]

    def _more(self, step: Step) -> BoolArray:
        """Which messages carry one element more in this step, flat."""
        sizes = self.stage.setting.sizes
        more = sizes.elements(step) > sizes.floor(step)
        return np.ascontiguousarray(np.broadcast_to(more, (len(step), self._batch))[self.layout.message]).reshape(-1)


@dataclass(frozen=True, slots=True)
class Orbit:
    """Chunks that move along the cycles: what position p sends in repetition k, position p + turn(k) sends at first."""

    by: int
    length: int

    def turn(self, k: int) -> int:
        """Positions to look ahead, 0 to length - 1."""
        return self.by * k % self.length

    @classmethod
    def of(cls, stage: Stage, layout: Layout) -> Orbit | None:
        """Find it, or None where chunks move otherwise."""
        item = stage.item
        if not isinstance(item, Repeat) or (item.step.count != item.step.count[0]).any():
            return None
        chunk = item.step.src_chunk[layout.message].reshape(layout.length, -1)
        residue, block = chunk % item.period, chunk // item.period
        stride = (residue[1] - residue[0]) % item.period
        regular = (residue == (residue[0] + np.arange(layout.length)[:, None] * stride) % item.period).all()
        if not regular or (block != block[0]).any() or (stride != stride[0]).any():
            return None
        ahead = np.arange(layout.length) * int(stride[0]) % item.period
        found = np.flatnonzero(ahead == item.chunk_shift % item.period)
        closed = layout.length * int(stride[0]) % item.period == 0
        return cls(int(found[0]), layout.length) if len(found) and closed else None


def _alike(cost: FloatArray) -> bool:
    return bool((cost == cost[0]).all())


def _at(stage: Stage, k: int) -> Step:
    return stage.item.at(k) if isinstance(stage.item, Repeat) else stage.item


def _walk_priced(stage: Stage, layout: Layout, track: _Track, lockstep: Lockstep) -> None:
    """Price every repetition anew: messages of several ranges, of uneven sizes."""
    watch, batch = _Watch.of(stage, layout, lockstep), track.width // layout.cycles
    for price in stage.prices():
        start = track.meet()
        if watch is not None:
            watch.first(price, start)
        start += _laid(price.cost, layout, batch)
        track.part(gaps=True)
