"""The PyTorch executor gives what the NumPy executor gives; test_agreement_torch covers more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist

from realrun.executor import Executor
from realrun.known_results import expectation, pattern
from realrun.program import compile_rank
from simnet.algorithms import registry
from simnet.collective import Collective, Kind
from simnet.errors import InvalidInput, Unsupported
from simnet.interpreters.execute import execute
from simnet.schedule import Op, Schedule, Step, Transfer

DTYPES = ("float32", "float16", "bfloat16", "int32", "int64")


def faults(cases: list[tuple[str, dict]], counts: tuple[int, ...], dtypes: tuple[str, ...]) -> list[str]:
    """What is wrong on this rank; sums of whole numbers are exact in every dtype."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    found = []
    for name, options in cases:
        schedule = registry.build(name, world_size, **options)
        executor = Executor(schedule, timeout=60)
        for count in counts:
            if refuses(schedule, count):
                with pytest.raises(InvalidInput):
                    executor.run(torch.zeros(count))
                continue
            expected, wanted = expectation(schedule, rank, count)
            right = np.where(wanted, expected, pattern(rank, count, world_size))
            for dtype in dtypes:
                tensor = torch.tensor(pattern(rank, count, world_size)).to(getattr(torch, dtype))
                executor.run(tensor)
                if not np.array_equal(tensor.to(torch.int64).numpy(), right):
                    found.append(f"{name} {options} count {count} {dtype}: {tensor[:8].tolist()}, not {right[:8]}")
    return found


def random_sum(name: str, options: dict, count: int) -> np.ndarray:
    """This rank's sum of every rank's random floats."""
    values = np.random.default_rng(dist.get_rank()).standard_normal(count).astype(np.float32)
    tensor = torch.from_numpy(values)
    Executor(registry.build(name, dist.get_world_size(), **options)).run(tensor)
    return tensor.numpy()


def refuses(schedule: Schedule, count: int) -> bool:
    """Whether the NumPy executor refuses the count; small ones tell, as divisibility is what matters."""
    try:
        execute(schedule, np.zeros((schedule.world_size, count % (4 * schedule.num_chunks))))
    except InvalidInput:
        return True
    return False


def variants(world_size: int) -> list[tuple[str, dict]]:
    """All algorithms with all options that admit the world size."""
    found = []
    for name, algorithm in registry.algorithms().items():
        for options in algorithm.variants(world_size):
            try:
                registry.build(name, world_size, **options)
            except Unsupported:
                continue
            found.append((name, dict(options)))
    return found


def several_reduces_into_one_chunk() -> list[float]:
    """Three ranks add into rank 0: into chunk 0 in the order 3, 1, 2, into chunk 1 in the order 1, 2, 3.

    In fp32, 1 is lost beside 1e8, so any other order gives 0.
    """

    def items():
        rows = [(3, 0), (1, 1), (1, 0), (2, 1), (2, 0), (3, 1)]
        yield Step.of(Transfer(src, 0, chunk, chunk, op=Op.REDUCE) for src, chunk in rows)

    executor = Executor(Schedule("star", Collective(Kind.REDUCE), 4, 2, items))
    tensor = torch.tensor([[1.0, 1.0], [1e8, 1e8], [1.0, -1e8], [-1e8, 1.0]][dist.get_rank()])
    executor.run(tensor)
    return tensor.tolist()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_algorithm_gives_what_the_numpy_executor_gives(rank_pool, world_size):
    for found in rank_pool(world_size).run(faults, variants(world_size), (0, 1, 7, 1_000), ("int64",)):
        assert not found


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_main_algorithms_sum_every_dtype_exactly_on_four_ranks(rank_pool, dtype):
    cases = [
        ("ring", {}),
        ("torus2d", {"grid": (2, 2)}),
        ("halving_doubling", {}),
        ("hierarchical", {"ranks_per_node": 2}),
    ]
    for found in rank_pool(4).run(faults, cases, (0, 1, 3, 7, 8, 9, 1_000), (dtype,)):
        assert not found


def test_a_million_elements_that_do_not_divide(rank_pool):
    for found in rank_pool(4).run(
        faults, [("ring", {}), ("halving_doubling", {})], (1_000_003,), ("int64", "bfloat16")
    ):
        assert not found


def test_several_reduces_into_one_chunk_add_in_row_order(rank_pool):
    found = rank_pool(4).run(several_reduces_into_one_chunk)[0]
    assert found == [1.0, 1.0]


def test_a_rank_keeps_its_own_rows_and_counts_messages_once():
    program = compile_rank(registry.build("ring", 4), 1)
    steps = program.channels[0]
    assert [len(step.receives) + len(step.sends) for step in steps] == [2] * 6
    assert {message.peer for step in steps for message in step.sends} == {2}
    assert {message.peer for step in steps for message in step.receives} == {0}


def test_messages_of_no_bytes_vanish_on_both_sides():
    ranks = [compile_rank(registry.build("ring", 4), rank).bind(1) for rank in range(4)]
    sent = sum(len(step.sends) for bound in ranks for step in bound.channels[0].steps)
    received = sum(len(step.receives) for bound in ranks for step in bound.channels[0].steps)
    assert sent == received == 6


def test_a_copy_lands_in_place_only_where_nothing_is_sent_from():
    def items():
        yield Step.of([Transfer(0, 1, 0, 0), Transfer(1, 0, 0, 0)])
        yield Step.of([Transfer(0, 1, 0, 0), Transfer(1, 0, 1, 1)])

    swap, apart = compile_rank(Schedule("swap", Collective(Kind.ALL_REDUCE), 2, 2, items), 0).bind(4).channels[0].steps
    assert not swap.receives[0].lands_in_place
    assert apart.receives[0].lands_in_place
    assert (swap.landing_elements, apart.landing_elements) == (2, 0)


def test_programs_of_one_schedule_agree_on_its_digest_and_others_differ():
    digests = {compile_rank(registry.build("ring", 4), rank).digest for rank in range(4)}
    assert len(digests) == 1
    assert compile_rank(registry.build("torus2d", 4), 0).digest not in digests


def test_chunks_of_different_sizes_are_refused_on_every_rank_alike():
    schedule = registry.build("direct_all_to_all", 3)
    for rank in range(3):
        with pytest.raises(InvalidInput, match="use a multiple of"):
            compile_rank(schedule, rank).bind(1_000)
