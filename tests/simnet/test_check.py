from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnet.algorithms.registry import algorithms, build
from simnet.collective import Collective, Kind
from simnet.errors import InvalidInput, InvalidSchedule, WrongResult
from simnet.interpreters.check import check
from simnet.interpreters.execute import execute
from simnet.schedule import Op, Schedule, Step, Transfer
from simnet.verification import redundant, schedules, variants, verify


def _without(schedule: Schedule, step: int, row: int) -> Schedule:
    steps = list(schedule.expand())
    kept = [t for i, t in enumerate(steps[step].transfers()) if i != row]
    steps[step] = Step.of(kept)
    return replace(schedule, items=lambda: iter(steps))


@pytest.mark.parametrize("name", algorithms())
def test_every_schedule_implements_its_collective(name: str) -> None:
    for schedule in schedules(algorithms()[name], max_ranks=9):
        check(schedule)


@pytest.mark.parametrize("name", algorithms())
def test_dropping_any_one_transfer_changes_the_result(name: str) -> None:
    for schedule in schedules(algorithms()[name], max_ranks=9):
        assert redundant(schedule) == [], schedule


@pytest.mark.parametrize("name", algorithms())
def test_check_notices_a_dropped_transfer(name: str) -> None:
    rng = np.random.default_rng(7)
    for schedule in schedules(algorithms()[name], max_ranks=6):
        lengths = [len(step) for step in schedule.expand()]
        for index in np.flatnonzero(lengths)[:: max(1, len(lengths) // 3)]:
            with pytest.raises((WrongResult, InvalidSchedule)):
                check(_without(schedule, int(index), int(rng.integers(lengths[index]))))


@pytest.mark.parametrize("name", algorithms())
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_execute_gives_what_the_collective_promises(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world_size = int(rng.integers(1, 10))
    for schedule in list(schedules(algorithms()[name], max_ranks=world_size))[-2:]:
        n, chunks = schedule.world_size, schedule.num_chunks
        inputs = rng.integers(-1000, 1000, (n, chunks * 3))
        wanted = schedule.collective.wants(n, chunks).repeat(3, axis=1)
        outputs = execute(schedule, inputs)
        if schedule.collective.reduces:
            expected = np.broadcast_to(inputs.sum(axis=0), inputs.shape)
        else:
            ranks, origins = schedule.collective.origin(n, chunks)
            elements = (origins[:, :, None] * 3 + np.arange(3)).reshape(n, -1)
            expected = inputs[ranks.repeat(3, axis=1), elements]
        np.testing.assert_array_equal(outputs[wanted], expected[wanted])


def test_a_copy_may_not_meet_another_write() -> None:
    step = Step.of([Transfer(0, 2, 0, 0), Transfer(1, 2, 0, 0, op=Op.REDUCE)])
    schedule = Schedule("clash", Collective(Kind.ALL_REDUCE), 3, 1, lambda: iter([step]))
    with pytest.raises(InvalidSchedule, match="a COPY meets another write"):
        check(schedule)


def test_channels_of_a_rank_may_not_write_what_another_touches() -> None:
    steps = [Step.of([Transfer(0, 1, 0, 0, channel=0)]), Step.of([Transfer(1, 2, 0, 0, channel=1)])]
    schedule = Schedule("race", Collective(Kind.BROADCAST), 3, 1, lambda: iter(steps), num_channels=2)
    with pytest.raises(InvalidSchedule, match="two channels"):
        check(schedule)


def test_uninitialised_data_is_named_with_rank_and_step() -> None:
    step = Step.of([Transfer(1, 2, 0, 0)])
    schedule = Schedule("early", Collective(Kind.BROADCAST), 3, 1, lambda: iter([step]))
    with pytest.raises(WrongResult, match="step 0: rank 1 sends data it never received"):
        check(schedule)


def test_unknown_algorithm_and_option_are_refused_with_the_alternatives() -> None:
    with pytest.raises(InvalidInput, match="choose one of"):
        build("rign", 4)
    with pytest.raises(InvalidInput, match="takes no option 'grid'"):
        build("ring", 4, grid=(2, 2))
    with pytest.raises(InvalidInput, match="1 or more ranks"):
        build("ring", 0)


@pytest.mark.slow
def test_every_schedule_up_to_64_ranks_is_correct_and_sends_what_it_says() -> None:
    assert sum(row["schedules"] for row in verify("all", max_ranks=64)) > 5000


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [65, 96, 127])
def test_larger_world_sizes_are_correct_by_random_integers(world_size: int) -> None:
    list(verify("all", max_ranks=world_size, min_ranks=world_size))


@pytest.mark.slow
@pytest.mark.parametrize("name", algorithms())
def test_dropping_sampled_transfers_changes_the_result_on_more_ranks(name: str) -> None:
    for _, schedule in variants(algorithms()[name], max_ranks=33, min_ranks=31):
        assert redundant(schedule, sample=64) == [], schedule
