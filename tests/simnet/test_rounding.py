from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from simnet.algorithms.registry import algorithms, build
from simnet.errors import InvalidInput, Unsupported, WrongResult
from simnet.interpreters.execute import execute
from simnet.rounding import add_in_order, average, depth, error_bound, format_order, summation_order, unit_roundoff
from simnet.schedule import Op, Schedule, Step, Transfer
from simnet.verification import schedules

REDUCING = [name for name, one in algorithms().items() if one.kind in ("all_reduce", "reduce_scatter", "reduce")]
ALL_REDUCES = [name for name, one in algorithms().items() if one.kind == "all_reduce"]
FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]


def _some(name: str, world_sizes: tuple[int, ...]) -> Iterator[Schedule]:
    """The last variant of an algorithm at each world size it admits."""
    found = {schedule.world_size: schedule for schedule in schedules(algorithms()[name], max_ranks=max(world_sizes))}
    return (found[n] for n in world_sizes if n in found)


def test_order_of_a_ring_is_one_chain_per_chunk() -> None:
    orders = [format_order(order) for order in summation_order(build("ring", 3))]
    assert orders == ["(x2 + (x1 + x0))", "(x0 + (x2 + x1))", "(x1 + (x0 + x2))"]


def test_order_of_recursive_doubling_is_a_balanced_tree() -> None:
    (order,) = summation_order(build("recursive_doubling", 4))
    assert format_order(order) == "((x0 + x1) + (x2 + x3))"
    assert depth(order) == 2


def test_order_of_a_broadcast_is_refused() -> None:
    with pytest.raises(Unsupported, match="adds nothing up"):
        summation_order(build("chain_broadcast", 4))


def test_ranks_that_add_in_different_orders_are_named() -> None:
    everyone = [Transfer(src, dst, 0, 0, op=Op.REDUCE) for dst in range(3) for src in range(3) if src != dst]
    steps = [Step.of(everyone)]
    bad = Schedule("gossip", build("ring", 3).collective, 3, 1, lambda: iter(steps))
    with pytest.raises(WrongResult, match="add in different orders"):
        summation_order(bad)


@pytest.mark.parametrize("name", REDUCING)
def test_execute_adds_in_the_stated_order_and_all_ranks_agree_to_the_bit(name: str) -> None:
    rng = np.random.default_rng(3)
    for schedule in _some(name, (5, 8)):
        exact = rng.standard_normal((schedule.world_size, schedule.num_chunks)) * 100
        wanted = schedule.collective.wants(schedule.world_size, schedule.num_chunks)
        orders = summation_order(schedule)
        for dtype in FLOATS:
            outputs = execute(schedule, exact.astype(dtype))
            for chunk, order in enumerate(orders):
                due = add_in_order(order, exact[:, chunk].astype(dtype))
                assert {value.tobytes() for value in outputs[wanted[:, chunk], chunk]} == {np.asarray(due).tobytes()}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ALL_REDUCES)
def test_sums_stay_within_the_error_bound(name: str, dtype: type) -> None:
    schedule = build(name, 8)
    inputs = np.random.default_rng(11).standard_normal((8, schedule.num_chunks * 8)).astype(dtype)
    error = np.abs(execute(schedule, inputs).astype(np.float64) - inputs.astype(np.float64).sum(axis=0))
    assert (error <= error_bound(schedule, inputs)).all()


def test_error_bound_can_be_reached() -> None:
    inputs = np.array([[1.0], [unit_roundoff(np.float32)]], np.float32)
    error = abs(float(execute(build("ring", 2), inputs)[0, 0]) - float(inputs.astype(np.float64).sum()))
    assert error > 0.99 * error_bound(build("ring", 2), inputs)[0]


@pytest.mark.parametrize("name", ALL_REDUCES)
def test_cancelling_sums_depend_on_the_order_alone(name: str) -> None:
    values = np.array([1e8, 1, -1e8, 1], np.float32)
    inputs = np.repeat(values[:, None], 16, axis=1)
    once, again = execute(build(name, 4), inputs), execute(build(name, 4), inputs)
    assert once.tobytes() == again.tobytes()
    assert len({row.tobytes() for row in once}) == 1
    assert set(once[0].tolist()) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize(("dtype", "stall"), [(ml_dtypes.bfloat16, 256), (np.float16, 2048)])
def test_a_chain_of_ones_stalls_and_a_tree_does_not(dtype: type, stall: int) -> None:
    ranks = stall + 64
    ones = np.ones((ranks, 1), dtype)
    assert float(execute(build("chain_reduce", ranks, segments=1), ones)[0, 0]) == stall
    assert float(execute(build("binomial_tree_reduce", ranks), ones)[0, 0]) == ranks


def test_bf16_sum_of_256_and_three_ones_is_that_of_its_order() -> None:
    values = np.array([[256], [1], [1], [1]], ml_dtypes.bfloat16)
    assert float(execute(build("chain_reduce", 4, segments=1), values[[3, 2, 1, 0]])[0, 0]) == 256
    assert float(execute(build("recursive_doubling", 4), values)[0, 0]) == 258


@pytest.mark.parametrize("name", ALL_REDUCES)
def test_fp16_overflow_is_reported_and_scaling_first_avoids_it(name: str) -> None:
    inputs = np.full((8, 8), 20000, np.float16)
    with pytest.raises(WrongResult, match=r"element 0 of rank 0 overflowed float16 .* scale by 1/8"):
        average(build(name, 8), inputs, before=1.0)
    np.testing.assert_allclose(average(build(name, 8), inputs).astype(float), 20000, rtol=7 * unit_roundoff(np.float16))


def test_scaling_by_the_root_of_the_world_size_keeps_small_and_large() -> None:
    ring = build("ring", 16)
    small, large = np.full((16, 16), 2.0**-24, np.float16), np.full((16, 16), 10000, np.float16)
    assert (average(ring, small) == 0).all()
    assert (average(ring, small, before=1.0) == small[0]).all()
    np.testing.assert_allclose(
        average(ring, large, before=0.25).astype(float), 10000, rtol=15 * unit_roundoff(np.float16)
    )


def test_average_of_integers_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the average of int64 is no int64; take the sum"):
        average(build("ring", 2), np.array([[1, 5], [2, 5]]))
    assert average(build("ring", 2), np.array([[1.0, 5], [2, 5]])).tolist() == [[1.5, 5.0]] * 2


@pytest.mark.parametrize("name", ALL_REDUCES)
def test_nan_of_any_rank_reaches_every_rank_and_stays_in_its_element(name: str) -> None:
    inputs = np.ones((8, 24), np.float32)
    inputs[5, 7] = np.nan
    expected = np.isnan(inputs[[5]]).repeat(8, axis=0)
    np.testing.assert_array_equal(np.isnan(execute(build(name, 8), inputs)), expected)


@pytest.mark.parametrize("name", ALL_REDUCES)
def test_integers_wrap_the_same_in_every_order(name: str) -> None:
    rng = np.random.default_rng(5)
    inputs = rng.integers(-128, 128, (8, 24)).astype(np.int8)
    expected = inputs.astype(np.int64).sum(axis=0).astype(np.int8)
    np.testing.assert_array_equal(execute(build(name, 8), inputs), np.tile(expected, (8, 1)))
