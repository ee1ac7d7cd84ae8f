"""Advance the clocks of all lanes by a stage: a message starts when both its lanes are there.

In (max, +) algebra a step is a sparse matrix; what is done here is the product with a vector of clocks.

Source: Baccelli, Cohen, Olsder & Quadrat, Synchronization and Linearity, 1992, chapter 2.
"""

from __future__ import annotations

import numpy as np

from simnet.interpreters.lockstep import Lockstep
from simnet.interpreters.stages import Price, Stage
from simnet.paths import FloatArray


def walk(stage: Stage, clock: FloatArray, lockstep: Lockstep) -> None:
    """Step all lanes through all repetitions of a stage, in place."""
    for price in stage.prices():
        start = begin(stage, price, clock)
        lockstep.watch(stage, price, start)
        finish(stage, price, clock, start)


def begin(stage: Stage, price: Price, clock: FloatArray) -> FloatArray:
    """When each message starts, s, (num_messages, batch)."""
    src, dst = clock[stage.src_lane], clock[stage.dst_lane]
    if price.offset is not None:
        src = src + price.offset
    return np.maximum(src, dst) if price.eager is None else np.where(price.eager, src, np.maximum(src, dst))


def finish(stage: Stage, price: Price, clock: FloatArray, start: FloatArray) -> None:
    """Move the clocks of all lanes that take part to the end of their messages, in place."""
    over = start + price.cost
    if price.eager is None and stage.pattern.alone_at_source and stage.pattern.alone_at_destination:
        for lanes in (stage.src_lane, stage.dst_lane):
            clock[lanes] = np.maximum(clock[lanes], over)
        return
    touch = stage.pattern.touch
    if price.eager is None:
        ends = over[touch.message]
    else:
        arrived = start + (price.cost - price.gamma)
        ready = np.where(np.isfinite(price.cost), clock[stage.dst_lane], -np.inf)
        added = np.maximum(arrived, ready) + price.gamma
        ends = np.concatenate([np.where(price.eager, arrived, over), np.where(price.eager, added, over)])[touch.order]
    last = np.maximum.reduceat(ends, touch.starts, axis=0)
    clock[touch.lanes] = np.maximum(clock[touch.lanes], last)
