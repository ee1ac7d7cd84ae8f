"""Everything a cluster job should bring home, within a time budget and in one file.

First what the machine is and what messages cost, then all-reduces of all algorithms and sizes in a
random order, so that a run that ends early still covers the range. Every third point is marked as
hold-out before it is measured: `simnet calibrate` fits none of those.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from realrun.benchmark import sweep
from realrun.environment import fingerprint
from realrun.groups import channels_of
from realrun.plans import NATIVE, Campaign, Plan, ProbePlan
from realrun.probe import probe
from simnet.algorithms import registry
from simnet.errors import InvalidInput, Unsupported
from simnet.units import Bytes, Seconds

HOLDOUT_EVERY = 3
PROBE_SHARE = 0.4


def campaign(plan: Campaign) -> Iterator[dict[str, Any]]:
    """Yield records on every rank until all is measured or the budget is spent."""
    clock = _Clock(plan)
    yield {"kind": "machine", "hosts": _hosts(plan.timeout), "ranks": dist.get_world_size()}
    yield from _probes(plan, clock)
    points, absent = _points(plan)
    yield from absent
    for number, (algorithm, options, size) in enumerate(points):
        if clock.spent(1.0):
            yield {"kind": "end", "reason": f"budget of {plan.budget:g} s spent", "points_left": len(points) - number}
            return
        held = number % HOLDOUT_EVERY == HOLDOUT_EVERY - 1
        point = Plan(
            algorithm, (size,), options, iterations=plan.iterations, warmup=plan.warmup, timeout=plan.timeout
        )  # fmt: skip
        yield from (record | {"holdout": held} for record in sweep(point))
    yield {"kind": "end", "reason": "all points measured", "points_left": 0}


class _Clock:
    """Rank 0's clock, so that all ranks stop at the same point."""

    def __init__(self, plan: Campaign) -> None:
        self._began = time.monotonic()
        self._budget = plan.budget
        self._control = channels_of(None, plan.timeout).control

    def spent(self, share: float) -> bool:
        """Whether that share of the budget is spent; a collective call."""
        now = torch.tensor([float(time.monotonic() - self._began > share * self._budget)])
        dist.all_reduce(now, dist.ReduceOp.MAX, group=self._control)
        return bool(now.item())


def _hosts(timeout: Seconds) -> list[dict[str, Any]]:
    """Fingerprint of every host, once."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, fingerprint(), group=channels_of(None, timeout).control)
    return list({found["host"]: found for found in every}.values())


def _probes(plan: Campaign, clock: _Clock) -> Iterator[dict[str, Any]]:
    """Messages while all ranks exchange, then pair by pair, then rates, within its share of the budget."""
    if dist.get_world_size() < 2:
        return
    settings = partial(ProbePlan, iterations=plan.iterations, warmup=plan.warmup, timeout=plan.timeout)
    for loaded in (True, False):
        for size in plan.sizes:
            if clock.spent(PROBE_SHARE):
                return
            yield from probe(settings((size,), pairs=plan.pairs, loaded=loaded, rates=False))
    large = (max(plan.sizes),)
    yield from probe(settings(large, pairs=1, loaded=True, one_way=False, compute=True))


def _points(plan: Campaign) -> tuple[list[tuple[str, Mapping[str, Any], Bytes]], list[dict[str, Any]]]:
    admitted, absent = [], []
    for name, options in plan.algorithms:
        try:
            _require_admitted(name, options)
            admitted.append((name, options))
        except (InvalidInput, Unsupported) as error:
            absent.append({"kind": "left_out", "algorithm": name, "reason": str(error)})
    points = [(name, options, size) for name, options in admitted for size in plan.sizes]
    order = np.random.default_rng(plan.seed).permutation(len(points))
    return [points[int(i)] for i in order], absent


def _require_admitted(name: str, options: Mapping[str, Any]) -> None:
    if name != NATIVE:
        registry.build(name, dist.get_world_size(), **options)
