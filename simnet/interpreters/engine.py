"""The one place that picks a timing engine."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from simnet.costs.model import CostModel
from simnet.errors import InvalidInput, Unsupported
from simnet.interpreters.estimate import estimate
from simnet.interpreters.messages import element_counts, num_transfers
from simnet.interpreters.network import OverBudget
from simnet.interpreters.simulate import simulate
from simnet.interpreters.stages import LinkDraws
from simnet.paths import Paths
from simnet.results import Estimate
from simnet.schedule import Schedule

SIMULATED_MESSAGES = 100_000
"""So many messages are simulated unasked, a few seconds; above, the static share with a bracket is given."""

SIMULATED_RATES = 800_000
"""So many new rates, over all sizes, are given to messages that share links before a simulation unasked is given up."""


class Engine(StrEnum):
    """How to answer: `auto` is estimate where it is exact, else simulate where that is quick, else the static share."""

    AUTO = "auto"
    ESTIMATE = "estimate"
    SIMULATE = "simulate"


def run(
    schedule: Schedule,
    count: int | npt.ArrayLike,
    paths: Paths,
    cost: CostModel,
    *,
    engine: str = Engine.AUTO,
    itemsize: int = 4,
    gamma: float | npt.ArrayLike = 0.0,
    starts: npt.ArrayLike | None = None,
    draws: LinkDraws | None = None,
    bracket: bool = True,
) -> Estimate:
    """Time a schedule; parameters as for `estimate`.

    The result says which engine answered and whether it is exact; `estimate` here includes the static share.

    Raises
    ------
    InvalidInput : unknown engine.
    Unsupported : simulate was asked for draws, or the schedule has too many messages to list them.
    """
    if engine not in list(Engine):
        raise InvalidInput(f"engine must be one of {', '.join(Engine)}, got {engine!r}")
    if engine == Engine.SIMULATE:
        if draws is not None:
            raise Unsupported("simulate takes no draws of link parameters; build paths of each draw, or use estimate")
        return _simulate(schedule, count, paths, cost, itemsize=itemsize, gamma=gamma, starts=starts)
    timed = estimate(
        schedule, count, paths, cost,
        itemsize=itemsize, gamma=gamma, starts=starts, draws=draws, static_share=True, bracket=bracket,
    )  # fmt: skip
    affordable = num_transfers(schedule) * int(np.sum(~np.atleast_1d(timed.exact))) <= SIMULATED_MESSAGES
    if engine == Engine.ESTIMATE or draws is not None or np.all(timed.exact) or not affordable:
        return timed
    try:
        return _simulate(
            schedule, count, paths, cost, itemsize=itemsize, gamma=gamma, starts=starts, most_rated=SIMULATED_RATES
        )
    except OverBudget:
        given_up = f"simulating them takes more than {SIMULATED_RATES} changes of rate and was given up"
        return replace(timed, reason=f"{timed.reason}; {given_up}, ask for the engine simulate to wait for it")


def _simulate(
    schedule: Schedule,
    count: int | npt.ArrayLike,
    paths: Paths,
    cost: CostModel,
    *,
    itemsize: int,
    gamma: float | npt.ArrayLike,
    starts: npt.ArrayLike | None,
    most_rated: float = np.inf,
) -> Estimate:
    """Simulate every size and start by itself, all within one budget of rates, an equal part each."""
    counts, many = element_counts(count)
    table = np.zeros((1, schedule.world_size)) if starts is None else np.atleast_2d(np.asarray(starts, float))
    batch = max(len(counts), len(table))
    done = [
        simulate(
            schedule, counts[i % len(counts)], paths, cost,
            itemsize=itemsize, gamma=gamma, starts=table[i % len(table)], most_rated=most_rated / batch,
        )
        for i in range(batch)
    ]  # fmt: skip
    if not many and np.ndim(starts if starts is not None else 0) < 2:
        return done[0]
    finish = np.stack([np.asarray(one.finish) for one in done])
    return replace(done[0], time=finish.max(axis=1), exact=np.ones(batch, bool), finish=finish)
