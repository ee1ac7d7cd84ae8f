"""Stages in which all ranks are alike: one of them is timed, and the repetitions are multiplied."""

from __future__ import annotations

import numpy as np

from simnet.interpreters.lockstep import Lockstep
from simnet.interpreters.stages import Stage
from simnet.paths import FloatArray


def walk_alike(stage: Stage, clock: FloatArray, lockstep: Lockstep) -> bool:
    """Advance a stage whose lanes stand at one time and whose messages cost the same; False where they do not."""
    if not stage.constant or lockstep.watches:
        return False
    takes_part = np.zeros(len(clock), bool)
    takes_part[stage.src_lane] = takes_part[stage.dst_lane] = True
    lanes = slice(None) if takes_part.all() else takes_part
    now = clock[lanes]
    if (now.max(axis=0) != now.min(axis=0)).any():
        return False
    price = stage.price(stage.step)
    if price.cost.shape[0] > 1 or price.offset is not None or price.eager is not None:
        return False
    clock[lanes] = now[:1] + np.maximum(stage.times * price.cost, 0.0)
    return True
