"""The PyTorch executor gives what the NumPy executor gives, on real gloo ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.distributed as dist

from realrun.executor import Executor
from simnet.algorithms import registry
from simnet.errors import InvalidInput, Unsupported
from simnet.interpreters.execute import element_bounds, execute
from simnet.schedule import Schedule

DTYPES = ("float32", "float16", "bfloat16", "int32", "int64")
COUNTS = (0, 1, 3, 7, 8, 9, 1_000)


def variants(world_size: int) -> Iterator[tuple[str, dict]]:
    for name, algorithm in registry.algorithms().items():
        for options in algorithm.variants(world_size):
            with contextlib.suppress(Unsupported):
                registry.build(name, world_size, **options)
                yield name, dict(options)


def inputs(world_size: int, count: int) -> np.ndarray:
    """Integers small enough that sums are exact in bf16, different for every rank and place."""
    return np.random.default_rng(count).integers(-3, 4, size=(world_size, count))


def run_variant(name: str, options: dict, counts: tuple, dtypes: tuple) -> list[str]:
    """Faults found on this rank; every (count, dtype) that the schedule admits is compared with `execute`."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    schedule = registry.build(name, world_size, **options)
    executor = Executor(schedule)
    faults = []
    for count in counts:
        data = inputs(world_size, count)
        try:
            expected = execute(schedule, data)[rank]
        except InvalidInput:
            with pytest.raises(InvalidInput):
                executor.run(torch.zeros(count))
            continue
        wanted = wanted_elements(schedule, rank, count)
        for dtype in dtypes:
            tensor = torch.tensor(data[rank]).to(getattr(torch, dtype))
            executor.run(tensor)
            found = tensor.double().numpy()
            right = np.where(wanted, expected, data[rank])
            if not np.array_equal(found, right):
                faults.append(f"{name} {options} count {count} {dtype}: {found[:8]} instead of {right[:8]}")
    return faults


def wanted_elements(schedule: Schedule, rank: int, count: int) -> np.ndarray:
    bounds = element_bounds(schedule, count)
    wanted = schedule.collective.wants(schedule.world_size, schedule.num_chunks)[rank]
    return np.repeat(wanted, np.diff(bounds[: schedule.num_chunks + 1]))


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_every_algorithm_gives_what_the_numpy_executor_gives(rank_pool, world_size):
    for name, options in variants(world_size):
        for faults in rank_pool(world_size).run(run_variant, name, options, COUNTS, ("float32", "int64")):
            assert not faults
