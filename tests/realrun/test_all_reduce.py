"""Sums are right and the same on all ranks; a call that cannot be right is an error. Figures are from bug reports."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import realrun
from realrun.executor import Executor
from realrun.stall import Stalled
from simnet.algorithms import registry
from simnet.collective import Collective, Kind
from simnet.errors import Incomplete, InvalidInput, Unsupported, WrongResult
from simnet.schedule import Op, Schedule, Step, Transfer

STRIDED = ("transposed", "every third of a column", "reversed dimensions")
ALGORITHMS = ("ring", "torus2d", "hierarchical", "halving_doubling")
PATIENCE = 3.0


def reduced(values: list[Any], dtype: torch.dtype, settings: dict[str, Any]) -> list[float]:
    """All-reduce of values[rank], a number or a list."""
    tensor = torch.tensor(values[dist.get_rank()], dtype=dtype)
    realrun.all_reduce(tensor, **settings)
    return tensor.tolist()


def every_second() -> list[float]:
    x = torch.arange(6.0)
    realrun.all_reduce(x[::2])
    return x.tolist()


def rows_beside_columns(settings: dict[str, Any]) -> list[list[float]]:
    x = torch.arange(6.0).view(2, 3)
    if dist.get_rank() == 1:
        x = x.t().contiguous().t()
    realrun.all_reduce(x, **settings)
    return x.tolist()


def channels_last() -> bool:
    x = torch.arange(48.0).view(2, 3, 2, 4).contiguous(memory_format=torch.channels_last)
    expected = 2 * x.clone()
    realrun.all_reduce(x)
    return torch.equal(x, expected)


def strided(kind: str) -> bool:
    whole = torch.arange(60.0).view(5, 12)
    view = {STRIDED[0]: whole.t(), STRIDED[1]: whole[::2, 1::3], STRIDED[2]: whole.view(5, 3, 4).permute(2, 1, 0)}[kind]
    expected = 2 * view.clone()
    untouched = whole.sum() - view.sum()
    realrun.all_reduce(view, algorithm="halving_doubling")
    return torch.equal(view, expected) and whole.sum() - view.sum() == untouched


def a_scalar() -> float:
    x = torch.tensor(1.5)
    realrun.all_reduce(x)
    return x.item()


def random_bits(algorithm: str, count: int) -> bytes:
    x = torch.randn(count, generator=torch.Generator().manual_seed(dist.get_rank()))
    realrun.all_reduce(x, algorithm=algorithm)
    return x.numpy().tobytes()


def mismatched(kind: str) -> list[float]:
    odd = dist.get_rank() == 1
    count = 8 if kind == "count" and odd else 4
    dtype = torch.int32 if kind == "dtype" and odd else torch.float32
    shape = (2, 2) if kind == "shape" and odd else (count,)
    algorithm = "halving_doubling" if kind == "algorithm" and odd else "ring"
    x = torch.ones(shape, dtype=dtype)
    realrun.all_reduce(x, algorithm=algorithm)
    return x.tolist()


def together() -> None:
    """Ranks come to short time limits at the same time: importing this file takes each a time of its own."""
    dist.barrier()


def unchecked(count_on_rank_1: int) -> None:
    together()
    count = count_on_rank_1 if dist.get_rank() == 1 else 400_000
    realrun.all_reduce(torch.ones(count), checks="never", timeout=PATIENCE)


def one_stays_away(after: int) -> None:
    together()
    x = torch.ones(4)
    for count in range(after):
        realrun.all_reduce(x[:count], timeout=PATIENCE)
    if dist.get_rank() != 2:
        realrun.all_reduce(x, timeout=PATIENCE)


def asynchronous(count: int) -> tuple[bool, bool, list[float], list[float]]:
    tensors = [torch.full((count,), float(i + dist.get_rank())) for i in range(8)]
    handles = [realrun.all_reduce(t, algorithm=ALGORITHMS[i % 4], async_op=True) for i, t in enumerate(tensors)]
    done = all(h.wait() for h in handles)
    future = handles[0].get_future().wait()
    return done, all(h.is_completed() for h in handles), [t[-1].item() for t in tensors], future[:1].tolist()


def reduced_to_root() -> list[float]:
    rank = dist.get_rank()
    x = torch.tensor([float(2**rank)])
    Executor(registry.build("binomial_tree_reduce", dist.get_world_size())).run(x)
    return x.tolist()


def two_channels_and_scratch(count: int) -> list[int]:
    def items():
        yield Step.of([Transfer(0, 1, 0, 2, op=Op.COPY), Transfer(1, 0, 1, 2, op=Op.COPY, channel=1)])
        yield Step.of([Transfer(1, 0, 2, 0, op=Op.REDUCE), Transfer(0, 1, 2, 1, op=Op.REDUCE, channel=1)])

    schedule = Schedule("there_and_back", Collective(Kind.ALL_REDUCE), 2, 2, items, num_scratch=1, num_channels=2)
    x = torch.arange(count) + 10 * dist.get_rank()
    Executor(schedule).run(x)
    return x.tolist()


def first_refusal(function: str) -> str:
    calls = {
        "expanded": lambda: realrun.all_reduce(torch.ones(1).expand(4)),
        "unfolded": lambda: realrun.all_reduce(torch.ones(5).unfold(0, 3, 1)),
        "boolean": lambda: realrun.all_reduce(torch.ones(4, dtype=torch.bool)),
        "integer mean": lambda: realrun.all_reduce(torch.ones(4, dtype=torch.int64), "avg"),
        "no all_reduce": lambda: realrun.all_reduce(torch.ones(4), algorithm="ring_all_gather"),
        "world size": lambda: Executor(registry.build("ring", 3)),
        "op": lambda: realrun.all_reduce(torch.ones(4), "max"),
        "torch's op": lambda: realrun.all_reduce(torch.ones(4), dist.ReduceOp.MAX),
        "no tensor": lambda: realrun.all_reduce([1.0]),
        "no data": lambda: realrun.all_reduce(torch.ones(4, device="meta")),
        "timeout": lambda: realrun.all_reduce(torch.ones(4), timeout=-1),
        "checks": lambda: realrun.all_reduce(torch.ones(4), checks="sometimes"),
        "narrow sums": lambda: realrun.all_reduce(torch.ones(4), reduce_dtype=torch.int32),
        "grid": lambda: realrun.all_reduce(torch.ones(4), algorithm="torus2d", grid="2by1"),
    }
    try:
        calls[function]()
    except (InvalidInput, Unsupported) as error:
        return str(error)
    return ""


def test_a_sum_of_every_second_element_changes_those_alone(rank_pool):
    assert rank_pool(2).run(every_second) == [[0, 1, 4, 3, 8, 5]] * 2


def test_ranks_that_store_rows_and_columns_get_the_same_sum(rank_pool):
    assert rank_pool(2).run(rows_beside_columns, {}) == [[[0, 2, 4], [6, 8, 10]]] * 2


def test_ranks_that_always_check_refuse_other_strides(rank_pool):
    with pytest.raises(InvalidInput, match=r"rank 1 asked for something else.*strides \[1, 2\] instead of \[3, 1\]"):
        rank_pool(2).run(rows_beside_columns, {"checks": "always"})


@pytest.mark.parametrize("kind", STRIDED)
def test_any_view_without_shared_memory_sums_in_place_and_leaves_the_rest(rank_pool, kind):
    assert rank_pool(2).run(strided, kind) == [True, True]


def test_channels_last_and_scalars_sum_in_place(rank_pool):
    assert rank_pool(2).run(channels_last) == [True, True]
    assert rank_pool(2).run(a_scalar) == [3.0, 3.0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("world_size", [3, 4])
def test_random_floats_give_the_same_bits_on_all_ranks_and_every_time(rank_pool, world_size, algorithm):
    first = rank_pool(world_size).run(random_bits, algorithm, 1_001)
    assert len(set(first)) == 1
    assert first == rank_pool(world_size).run(random_bits, algorithm, 1_001)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_cancellation_stays_within_the_rounding_of_its_terms(rank_pool, algorithm):
    sums = rank_pool(4).run(reduced, [1e8, 1.0, -1e8, 1.0], torch.float32, {"algorithm": algorithm})
    assert len(set(sums)) == 1
    assert abs(sums[0] - 2) <= 4 * 2**-24 * 2e8


def test_a_mean_in_fp16_does_not_overflow_where_the_sum_does(rank_pool):
    pool = rank_pool(4)
    assert pool.run(reduced, [30000.0] * 4, torch.float16, {}) == [float("inf")] * 4
    assert pool.run(reduced, [30000.0] * 4, torch.float16, {"op": "avg"}) == [30000.0] * 4
    assert (
        pool.run(reduced, [2.0**-24] * 4, torch.float16, {"op": "avg", "reduce_dtype": torch.float32}) == [2.0**-24] * 4
    )


def test_checks_report_the_element_that_overflowed(rank_pool):
    with pytest.raises(WrongResult, match=r"1 elements are not finite, the first at index 1: inf in float16"):
        rank_pool(2).run(reduced, [[1.0, 40000.0]] * 2, torch.float16, {"checks": "always"})


def test_sums_in_fp32_do_not_stall_where_bf16_does(rank_pool):
    values = [256.0, 1.0, 1.0]
    assert rank_pool(3).run(reduced, values, torch.bfloat16, {"reduce_dtype": torch.float32}) == [258.0] * 3


def torchs_own_words() -> list[float]:
    """Called as torch.distributed's: op by its constant, group and async_op by name."""
    x = [torch.full((2,), 1.0 + dist.get_rank()) for _ in range(3)]
    realrun.all_reduce(x[0], dist.ReduceOp.SUM)
    work = realrun.all_reduce(x[1], op=dist.ReduceOp.AVG, group=dist.group.WORLD, async_op=True)
    work.wait()
    realrun.all_reduce(x[2], algorithm="torus2d", grid="2x1")
    return [tensor[0].item() for tensor in x]


def test_it_is_called_as_torch_distributeds_own(rank_pool):
    assert rank_pool(2).run(torchs_own_words) == [[3.0, 1.5, 3.0]] * 2


def test_a_mean_of_floats_over_three_ranks(rank_pool):
    assert rank_pool(3).run(reduced, [[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]], torch.float32, {"op": "avg"}) == [[3, 5]] * 3


def test_a_reduce_leaves_the_other_ranks_inputs_alone(rank_pool):
    assert rank_pool(4).run(reduced_to_root) == [[15.0], [2.0], [4.0], [8.0]]


def test_channels_run_beside_each_other_and_scratch_is_their_own(rank_pool):
    assert rank_pool(2).run(two_channels_and_scratch, 4) == [[0, 2, 2, 3], [10, 11, 24, 26]]


def test_many_collectives_in_flight_end_in_order(rank_pool):
    values = [2.0 * i + 1 for i in range(8)]
    assert rank_pool(2).run(asynchronous, 1_000) == [(True, True, values, [1.0])] * 2


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("count", r"count 8 instead of 4, shape \[8\] instead of \[4\]"),
        ("dtype", "dtype int32 instead of float32"),
        ("shape", r"shape \[2, 2\] instead of \[4\]"),
        ("algorithm", r"schedule halving_doubling \w+ instead of ring \w+"),
    ],
)
def test_a_rank_that_asks_for_something_else_is_named(rank_pool, kind, found):
    with pytest.raises(InvalidInput, match=f"rank 1 asked for something else than the other ranks: {found}"):
        rank_pool(3).run(mismatched, kind)


def test_even_unchecked_a_wrong_count_ends_in_an_error_that_names_a_rank(rank_pool):
    pool, began = rank_pool(3), time.monotonic()
    with pytest.raises(Incomplete, match="rank 1"):
        pool.run(unchecked, 4)
    assert time.monotonic() - began < pool.timeout
    assert not pool.alive


@pytest.mark.parametrize(("after", "where"), [(0, "setting up a channel"), (2, "the signature exchange")])
def test_a_rank_that_never_comes_is_named(rank_pool, after, where):
    pool, began = rank_pool(3), time.monotonic()
    with pytest.raises(Incomplete, match=rf"wait for rank 2.*rank 0, step 0 of {where}: could not hear from rank 2"):
        pool.run(one_stays_away, after)
    assert time.monotonic() - began < pool.timeout
    assert not pool.alive


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("expanded", "share memory"),
        ("unfolded", "share memory"),
        ("boolean", "dtype torch.bool cannot be reduced"),
        ("integer mean", "no mean, factors or wider sums"),
        ("no all_reduce", "ring_all_gather does all_gather, no all_reduce; choose one of"),
        ("world size", "ring is built for 3 ranks and the group has 2"),
        ("op", "op must be sum or avg, got 'max'"),
        ("torch's op", "op must be sum or avg, got 'MAX'"),
        ("no tensor", "takes a torch.Tensor, got list"),
        ("no data", "a meta tensor has no data"),
        ("timeout", "timeout must be above 0 s and at most 1e+06 s, got -1 s"),
        ("checks", "checks must be one of first, always, never, got 'sometimes'"),
        ("narrow sums", "reduce_dtype must be a floating-point type such as torch.float32, got torch.int32"),
        ("grid", "2by1"),
    ],
)
def test_what_cannot_be_right_is_refused(rank_pool, call, text):
    assert all(text in refusal for refusal in rank_pool(2).run(first_refusal, call))


def test_without_a_process_group_the_error_says_what_to_call():
    with pytest.raises(InvalidInput, match="init_process_group"):
        realrun.all_reduce(torch.ones(1))


def test_one_rank_gets_its_own_tensor_back(rank_pool):
    assert rank_pool(1).run(reduced, [[1.0, 2.0]], torch.float32, {"op": "avg"}) == [[1.0, 2.0]]


def test_stalled_survives_the_way_between_processes(rank_pool):
    import pickle

    from realrun.stall import Stall

    error = Stalled(Stall(1, 2, 3, "ring", 1.5, lost=False))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
