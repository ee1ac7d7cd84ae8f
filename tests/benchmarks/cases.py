"""What is timed."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simnet.algorithms.registry import build
from simnet.catalog import load_cluster
from simnet.combine import relabel
from simnet.costs.alpha_beta import AlphaBeta
from simnet.interpreters.estimate import estimate
from simnet.interpreters.messages import num_transfers
from simnet.interpreters.program import Job
from simnet.interpreters.simulate import simulate_jobs
from simnet.interpreters.stages import LinkDraws
from simnet.paths import Paths, UniformPaths
from simnet.schedule import Schedule
from simnet.topologies.registry import cluster_paths

COST = AlphaBeta()
COUNT = 51_249_152 // 4


@dataclass(frozen=True, slots=True)
class Case:
    """A call to time.

    run : returns the messages it stands for, or None where that says nothing
    bare : repetitions and clocks of the bare loop beside it
    """

    run: Callable[[], float | None]
    bound: str
    bare: tuple[int, int] | None = None


def measure(name: str) -> dict[str, Any]:
    """Time a case and, where it has one, the bare loop beside it."""
    case = CASES[name]()
    begin = time.process_time()
    messages = case.run()
    cpu = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    bare = None if case.bare is None else _bare(*case.bare)
    return {
        "name": name, "messages": messages, "cpu_s": cpu, "peak_mb": peak, "bound": case.bound,
        "messages_per_s": None if messages is None else messages / cpu,
        "bare_s": bare, "ratio": None if bare is None else cpu / bare,
    }  # fmt: skip


def _bare(repetitions: int, ranks: int) -> float:
    """CPU time of the bare loop, s."""
    rng = np.random.default_rng(0)
    clock, cost, before = rng.random(ranks), rng.random(ranks), rng.permutation(ranks)
    begin = time.process_time()
    for _ in range(repetitions):
        clock = np.maximum(clock, clock[before]) + cost
    return time.process_time() - begin


def _uniform(n: int) -> UniformPaths:
    return UniformPaths(n, 1e-6, 12.5e9)


def _draws(n: int, batch: int) -> LinkDraws:
    rng = np.random.default_rng(1)
    return LinkDraws(rng.uniform(0.5e-6, 1e-6, (batch, 2 * n)), rng.uniform(10e9, 12.5e9, (batch, 2 * n)))


def _repetitions(schedule: Schedule) -> int:
    return sum(getattr(item, "times", 1) for item in schedule.steps())


def _estimated(name: str, n: int, bound: str, *, equal: bool = False, batch: int = 1, **options: Any) -> Case:
    """Starts and links of their own on relabelled ranks, or equal starts on equal links."""
    rng = np.random.default_rng(0)
    schedule = build(name, n, **options)
    count = -(-COUNT // schedule.num_chunks) * schedule.num_chunks
    messages = float(num_transfers(schedule)) * batch
    if equal:
        return Case(lambda: estimate(schedule, count, _uniform(n), COST) and messages, bound)
    mixed = relabel(schedule, rng.permutation(n))
    starts, draws = rng.uniform(0, 1e-3, (batch, n)), _draws(n, batch)

    def run() -> float:
        estimate(mixed, count, _uniform(n), COST, starts=starts, draws=draws)
        return messages

    return Case(run, bound, (_repetitions(schedule), n * batch) if batch == 1 else None)


def _uneven(n: int, bound: str) -> Case:
    """A count that the ranks do not divide, starts of their own, equal links."""
    schedule, starts = build("ring", n), np.random.default_rng(0).uniform(0, 1e-4, n)
    messages = float(num_transfers(schedule))
    return Case(
        lambda: estimate(schedule, 12_800_001, _uniform(n), COST, starts=starts) and messages, bound, (2 * n - 2, n)
    )


def _abci() -> Paths:
    return cluster_paths(load_cluster("abci"), 1088)


def _sizes() -> Case:
    schedule, paths = build("torus2d", 1088, grid=(4, 272)), _abci()
    counts = 8 * 2 ** np.arange(28) // 4

    def run() -> float:
        estimate(schedule, counts, paths, COST, static_share=True)
        return 28.0 * num_transfers(schedule)

    return Case(run, "0.5 s")


def _simulated(schedule: Schedule, paths: Paths, count: int, bound: str) -> Case:
    starts = np.random.default_rng(0).uniform(0, 1e-4, schedule.world_size)

    def run() -> float:
        return float(simulate_jobs([Job(schedule, count, starts=starts)], paths, COST).num_messages)

    return Case(run, bound)


CASES: dict[str, Callable[[], Case]] = {
    "estimate ring 1,024": lambda: _estimated("ring", 1024, "20 ms, ratio 5"),
    "estimate ring 4,096": lambda: _estimated("ring", 4096, "150 ms, ratio 5"),
    "estimate ring 16,384": lambda: _estimated("ring", 16_384, "1.0 s, ratio 5"),
    "estimate ring 4,096, uneven chunks": lambda: _uneven(4096, "150 ms"),
    "estimate ring 16,384, uneven chunks": lambda: _uneven(16_384, "1.0 s"),
    "estimate torus2d 64x34": lambda: _estimated("torus2d", 2176, "10 ms, ratio 10", grid=(64, 34)),
    "estimate torus2d 128x128": lambda: _estimated("torus2d", 128**2, "60 ms, ratio 10", grid=(128, 128)),
    "estimate torus2d 256x256": lambda: _estimated("torus2d", 256**2, "0.4 s, ratio 10", grid=(256, 256)),
    "estimate ring 65,536, equal starts": lambda: _estimated("ring", 65_536, "0.5 s, 300 MB", equal=True),
    "estimate torus2d 1,024x1,024, equal starts": lambda: _estimated(
        "torus2d", 1024**2, "0.5 s, 300 MB", equal=True, grid=(1024, 1024)
    ),
    "estimate 28 sizes, torus2d 4x272 on ABCI": _sizes,
    "estimate 1,000 draws, torus2d 1,088": lambda: _estimated("torus2d", 1088, "5 s", batch=1000, grid=(4, 272)),
    "estimate 1,000 draws, ring 1,088": lambda: _estimated("ring", 1088, "10 s", batch=1000),
    "simulate ring 256, no link shared": lambda: _simulated(
        build("ring", 256), _uniform(256), 256 * 50_000, "300,000 messages/s"
    ),
    "simulate torus2d 4x272 on ABCI": lambda: _simulated(
        build("torus2d", 1088, grid=(4, 272)), _abci(), COUNT, "20,000 messages/s"
    ),
    "simulate torus2d 32x34 on ABCI": lambda: _simulated(
        build("torus2d", 1088, grid=(32, 34)), _abci(), COUNT, "20,000 messages/s"
    ),
}
