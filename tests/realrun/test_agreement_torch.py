"""Every algorithm, on 1 to 6 gloo ranks, for awkward counts and every dtype: exact, and the same on all ranks."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from simnet.algorithms import registry
from simnet.collective import Kind

_spec = importlib.util.spec_from_file_location("executor_cases", Path(__file__).with_name("test_executor.py"))
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)

COUNTS = (0, 1, 3, 7, 8, 9, 1_000)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 6])
def test_every_algorithm_is_exact_for_every_count_and_dtype(rank_pool, world_size):
    for found in rank_pool(world_size).run(cases.faults, cases.variants(world_size), COUNTS, cases.DTYPES):
        assert not found


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 6])
def test_every_algorithm_is_exact_for_a_million_elements(rank_pool, world_size):
    one_of_each = list({name: (name, options) for name, options in cases.variants(world_size)}.values())
    for found in rank_pool(world_size).run(cases.faults, one_of_each, (1_000_003,), cases.DTYPES):
        assert not found


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [7, 8, 9])
def test_odd_rings_and_uneven_worlds_do_not_hang(rank_pool, world_size):
    names = [("ring", {}), ("torus2d", {}), ("halving_doubling", {}), ("double_binary_tree", {})]
    for found in rank_pool(world_size).run(cases.faults, names, (0, 1, 8, 1_000), ("int64",)):
        assert not found


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 3, 4, 5, 6])
def test_sums_of_random_floats_have_the_same_bits_everywhere_and_err_by_rounding_alone(rank_pool, world_size):
    ranks = [np.random.default_rng(rank).standard_normal(1_001).astype(np.float32) for rank in range(world_size)]
    exact = np.sum([values.astype(np.float64) for values in ranks], axis=0)
    bound = world_size * np.finfo(np.float32).eps * np.sum(np.abs(ranks), axis=0)
    all_reduces = registry.algorithms(Kind.ALL_REDUCE)
    for name, options in cases.variants(world_size):
        if name in all_reduces:
            sums = rank_pool(world_size).run(cases.random_sum, name, options, 1_001)
            assert len({found.tobytes() for found in sums}) == 1, (name, options)
            assert (np.abs(sums[0] - exact) <= bound).all(), (name, options)
