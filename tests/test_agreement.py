"""All interpreters run the same object and agree, for every algorithm file; the PyTorch executor has its own file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from simnet.algorithms.registry import algorithms
from simnet.costs.alpha_beta import AlphaBeta
from simnet.costs.registry import find as find_cost
from simnet.errors import InvalidInput, Unsupported
from simnet.interpreters.check import check
from simnet.interpreters.estimate import estimate
from simnet.interpreters.execute import execute
from simnet.interpreters.simulate import simulate
from simnet.paths import Paths, UniformPaths
from simnet.schedule import Schedule
from tests.simnet.fabrics import nodes

SIMULATED = (*range(1, 10), 12, 16, 17, 31, 32, 33, 64, 65)
QUICK = (1, 2, 3, 6, 8)
COST = AlphaBeta()


def _schedules(name: str, world_size: int, most: int) -> Iterator[Schedule]:
    """Some variants of an algorithm at a world size, the first and the last among them; none where it refuses."""
    chosen = algorithms()[name]
    options = list(chosen.variants(world_size))
    for given in {id(o): o for o in (*options[-1:], *options[: most - 1])}.values():
        try:
            yield chosen.build(world_size, **given)
        except Unsupported:
            continue


def _counts(schedule: Schedule) -> list[int]:
    """Elements per rank: none, fewer than ranks, not divisible, divisible; multiples where nothing else is taken."""
    n, chunks = schedule.world_size, schedule.num_chunks
    counts = [0, 1, n - 1, 5 * chunks + n // 2, 6 * chunks]
    return [c for c in dict.fromkeys(counts) if c >= 0 and _takes(schedule, c)]


def _takes(schedule: Schedule, count: int) -> bool:
    try:
        execute(schedule, np.zeros((schedule.world_size, count), np.int8))
    except InvalidInput:
        return False
    return True


@cache
def _paths(world_size: int, shared: bool) -> Paths:
    return nodes(-(-world_size // 4), 4, ranks=world_size) if shared else UniformPaths(world_size, 1e-6, 12.5e9)


def _computes(schedule: Schedule, count: int) -> None:
    rng = np.random.default_rng(count)
    inputs = rng.integers(-100, 100, (schedule.world_size, count))
    outputs = execute(schedule, inputs)
    wanted = schedule.collective.wants(schedule.world_size, schedule.num_chunks)
    if schedule.collective.reduces and wanted.all():
        np.testing.assert_array_equal(outputs, np.broadcast_to(inputs.sum(axis=0), inputs.shape))


def _times(schedule: Schedule, count: int, *, shared: bool, starts: np.ndarray | None = None) -> None:
    paths = _paths(schedule.world_size, shared)
    quick = estimate(schedule, count, paths, COST, gamma=1e-11, starts=starts, static_share=True)
    start = np.zeros(schedule.world_size) if starts is None else starts
    slow = simulate(schedule, count, paths, COST, gamma=1e-11, starts=start)
    if quick.exact:
        np.testing.assert_allclose(quick.finish, slow.finish, rtol=1e-11, atol=1e-18)
    else:
        assert quick.reason
        assert quick.bracket is not None
        assert quick.bracket.low <= slow.time <= quick.bracket.high


def _agree(schedule: Schedule, counts: list[int], *, simulated: bool, shared: bool) -> None:
    check(schedule)
    for count in counts:
        _computes(schedule, count)
        if simulated:
            _times(schedule, count, shared=False)
        else:
            estimate(schedule, count, _paths(schedule.world_size, False), COST, static_share=True)
        if shared:
            _times(schedule, count, shared=True)


@pytest.mark.parametrize("name", algorithms())
def test_interpreters_agree_at_a_few_world_sizes(name: str) -> None:
    for world_size in QUICK:
        for schedule in _schedules(name, world_size, most=2):
            simulated = world_size in (1, 3, 6)
            _agree(schedule, _counts(schedule), simulated=simulated, shared=simulated)


@pytest.mark.slow
@pytest.mark.parametrize("name", algorithms())
def test_interpreters_agree_at_every_world_size(name: str) -> None:
    for world_size in range(1, 66):
        for schedule in _schedules(name, world_size, most=1):
            counts = _counts(schedule)[-2:]
            _agree(schedule, counts, simulated=world_size in SIMULATED, shared=world_size in (4, 9, 16))


@pytest.mark.parametrize("name", algorithms())
def test_engines_agree_with_ranks_that_start_apart(name: str) -> None:
    rng = np.random.default_rng(7)
    for world_size in (4, 7):
        for schedule in _schedules(name, world_size, most=1):
            count = 12 * schedule.num_chunks
            for shared in (False, True):
                _times(schedule, count, shared=shared, starts=rng.uniform(0, 1e-5, world_size))


@pytest.mark.parametrize("model", ["alpha_beta", "loggp", "nccl", "tcp", "infiniband", "gloo"])
@pytest.mark.parametrize("name", ["ring", "halving_doubling", "direct", "parameter_server"])
def test_engines_agree_under_every_cost_model(name: str, model: str) -> None:
    cost = find_cost(model).build()
    for world_size in (2, 5):
        for schedule in _schedules(name, world_size, most=1):
            for elements in (16, 100_000):
                count = elements * schedule.num_chunks
                quick = estimate(schedule, count, _paths(world_size, False), cost, static_share=True)
                slow = simulate(schedule, count, _paths(world_size, False), cost)
                if quick.exact:
                    np.testing.assert_allclose(quick.finish, slow.finish, rtol=1e-11)
                else:
                    assert quick.bracket is not None
                    assert quick.bracket.low <= slow.time <= quick.bracket.high
