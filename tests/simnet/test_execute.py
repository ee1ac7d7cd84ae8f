from __future__ import annotations

import numpy as np
import pytest

from simnet.algorithms.registry import algorithms, build
from simnet.errors import InvalidInput
from simnet.interpreters.execute import execute

ALL_REDUCES = [name for name, one in algorithms().items() if one.kind == "all_reduce"]
ANY_WORLD_SIZE = [name for name in ALL_REDUCES if name != "swing"]


@pytest.mark.parametrize("count", [0, 1, 3, 7, 8, 9])
@pytest.mark.parametrize("name", ALL_REDUCES)
def test_buffers_smaller_than_the_world_size_or_empty_are_summed(name: str, count: int) -> None:
    inputs = np.random.default_rng(count).integers(-99, 99, (8, count))
    np.testing.assert_array_equal(execute(build(name, 8), inputs), np.tile(inputs.sum(axis=0), (8, 1)))


@pytest.mark.parametrize("name", algorithms())
def test_every_collective_of_one_rank_returns_its_input(name: str) -> None:
    inputs = np.arange(5)[None]
    np.testing.assert_array_equal(execute(build(name, 1), inputs), inputs)


@pytest.mark.parametrize("world_size", [3, 5, 6, 7, 9, 12])
@pytest.mark.parametrize("name", ANY_WORLD_SIZE)
def test_world_sizes_that_are_no_power_of_two_sum_right_and_leave_inputs_alone(name: str, world_size: int) -> None:
    for count in (0, 1, 8, 1003):
        inputs = np.random.default_rng(count).integers(-99, 99, (world_size, count))
        before = inputs.copy()
        np.testing.assert_array_equal(execute(build(name, world_size), inputs), np.tile(inputs.sum(0), (world_size, 1)))
        np.testing.assert_array_equal(inputs, before)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [3, 5, 6, 7, 9, 12])
@pytest.mark.parametrize("name", ["halving_doubling", "binary_blocks", "recursive_doubling"])
def test_a_million_and_three_elements_sum_right(name: str, world_size: int) -> None:
    inputs = np.random.default_rng(1).integers(-99, 99, (world_size, 1_000_003), dtype=np.int16)
    np.testing.assert_array_equal(execute(build(name, world_size), inputs)[-1], inputs.sum(0, dtype=np.int16))


def test_all_to_all_refuses_buffers_whose_chunks_differ_in_size() -> None:
    with pytest.raises(InvalidInput, match="7 elements do not divide into 4 equal chunks; use a multiple of 4"):
        execute(build("pairwise_all_to_all", 4), np.zeros((4, 7)))


def test_inputs_without_one_row_per_rank_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"one row per rank, shape \(4, count\), got \(3, 8\)"):
        execute(build("ring", 4), np.zeros((3, 8)))


def test_scratch_chunks_are_as_large_as_others_whatever_the_count() -> None:
    schedule = build("bruck_all_to_all", 5)
    assert schedule.num_scratch
    rng = np.random.default_rng(5)
    data = rng.integers(0, 1000, (5, 15))
    found = execute(schedule, data)
    assert np.array_equal(found, data.reshape(5, 5, 3).transpose(1, 0, 2).reshape(5, 15))
