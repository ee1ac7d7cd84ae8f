from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnet.algorithms.registry import algorithms, build
from simnet.collective import Collective, Kind
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import InvalidInput, InvalidSchedule, SimnetError, WrongResult
from simnet.interpreters.engine import run
from simnet.interpreters.simulate import simulate
from simnet.paths import FabricPaths
from simnet.schedule import Schedule, Step, Transfer, validate
from simnet.testing import assert_implements, fabrics, schedules, sizes, starts, step_lists


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_passes_the_whole_battery(name: str) -> None:
    one = algorithms()[name]
    for world_size in (1, 2, 4, 5):
        options = list(one.variants(world_size))[-1]
        try:
            schedule = one.build(world_size, **options)
        except SimnetError:
            continue
        assert_implements(schedule, one.kind)


def _with(steps: list[Step]) -> Schedule:
    return replace(build("ring", 3), items=lambda: iter(steps))


def test_the_battery_refuses_another_collective() -> None:
    with pytest.raises(WrongResult, match="it must do"):
        assert_implements(build("ring_all_gather", 3), "all_reduce")
    with pytest.raises(WrongResult, match="root=1"):
        assert_implements(build("chain_broadcast", 3), Collective(Kind.BROADCAST, root=1))
    with pytest.raises(InvalidInput, match="unknown collective 'allreduce'"):
        assert_implements(build("ring", 3), "allreduce")


def test_the_battery_refuses_steps_that_can_be_read_only_once() -> None:
    once = iter(list(build("ring", 3).expand()))
    with pytest.raises(WrongResult, match=r"lacks|other steps|wrong"):
        assert_implements(replace(build("ring", 3), items=lambda: once), "all_reduce")


def test_the_battery_refuses_a_transfer_that_changes_nothing() -> None:
    steps = [*build("ring", 3).expand(), Step.of([Transfer(0, 1, 0, 0)])]
    with pytest.raises(WrongResult, match="the same without"):
        assert_implements(_with(steps), "all_reduce")
    assert_implements(_with(steps), "all_reduce", lean=False)


def test_the_battery_refuses_a_missing_transfer_and_a_broken_rule() -> None:
    steps = list(build("ring", 3).expand())
    with pytest.raises(WrongResult):
        assert_implements(_with(steps[:-1]), "all_reduce")
    with pytest.raises(InvalidSchedule):
        assert_implements(_with([*steps, Step.of([Transfer(0, 0, 0, 0)])]), "all_reduce")


@given(schedules(kinds=["all_reduce", "broadcast"], max_ranks=6))
def test_drawn_schedules_are_of_the_kinds_asked_for(schedule: Schedule) -> None:
    assert schedule.collective.kind in ("all_reduce", "broadcast")
    assert 1 <= schedule.world_size <= 6
    validate(schedule)


@given(st.data(), st.integers(1, 6))
@settings(max_examples=30)
def test_engines_agree_on_drawn_networks_sizes_and_starts(data: st.DataObject, world_size: int) -> None:
    schedule = build(data.draw(st.sampled_from(["ring", "recursive_doubling", "binomial_tree"])), world_size)
    paths: FabricPaths = data.draw(fabrics(world_size=world_size))
    count, enter = data.draw(sizes(world_size, most=4096)), data.draw(starts(world_size))
    exact = simulate(schedule, count, paths, AlphaBeta(), starts=enter)
    timed = run(schedule, count, paths, AlphaBeta(), starts=enter)
    if np.all(timed.exact):
        assert timed.time == pytest.approx(exact.time, rel=1e-9)
    assert exact.time >= enter.max()


@given(starts(5), sizes(5))
def test_drawn_starts_and_sizes_are_in_range(enter: npt.NDArray[np.float64], count: int) -> None:
    assert enter.shape == (5,)
    assert enter.min() >= 0
    assert 0 <= count <= 1 << 20


@given(step_lists(world_size=4, num_chunks=3))
def test_drawn_steps_keep_the_rules(steps: list[Step]) -> None:
    validate(Schedule("drawn", Collective(Kind.ALL_REDUCE), 4, 3, lambda: iter(steps)))


@pytest.mark.parametrize(
    ("transfer", "text"),
    [
        (Transfer(3, 0, 0, 0), "source is no rank"),
        (Transfer(0, -1, 0, 0), "destination is no rank"),
        (Transfer(1, 1, 0, 0), "a rank sends to itself"),
        (Transfer(0, 1, 0, 0, count=0), "count must be at least 1"),
        (Transfer(0, 1, 2, 0, count=2), "source chunks out of range"),
        (Transfer(0, 1, 0, -1), "destination chunks out of range"),
        (Transfer(0, 1, 0, 0, channel=1), "channel out of range"),
    ],
)
def test_planted_faults_break_a_rule_and_are_shown_with_step_and_transfer(transfer: Transfer, text: str) -> None:
    steps = [Step.of([Transfer(0, 1, 0, 0)]), Step.of([Transfer(1, 2, 1, 1), transfer])]
    with pytest.raises(InvalidSchedule, match=rf"planted, world size 3, step 1: {text}: Transfer\(src={transfer.src}"):
        validate(Schedule("planted", Collective(Kind.ALL_REDUCE), 3, 3, lambda: iter(steps)))


def test_ranges_may_not_run_from_chunks_into_scratch() -> None:
    steps = [Step.of([Transfer(0, 1, 2, 0, count=2)])]
    with pytest.raises(InvalidSchedule, match="range runs into scratch"):
        validate(Schedule("planted", Collective(Kind.ALL_REDUCE), 3, 3, lambda: iter(steps), num_scratch=1))


def test_faults_deep_in_a_long_schedule_name_their_own_step() -> None:
    steps = [Step.of([Transfer(0, 1, 0, 0)])] * 40_000
    steps[39_000] = Step.of([Transfer(0, 0, 0, 0)])
    with pytest.raises(InvalidSchedule, match="step 39000: a rank sends to itself"):
        validate(Schedule("planted", Collective(Kind.BROADCAST), 2, 1, lambda: iter(steps)))


def test_two_channels_may_read_one_chunk_but_not_write_it() -> None:
    reads = Step.of([Transfer(0, 1, 0, 0, channel=0), Transfer(0, 2, 0, 0, channel=1)])
    validate(Schedule("reads", Collective(Kind.BROADCAST), 3, 1, lambda: iter([reads]), num_channels=2))
    writes = Step.of([Transfer(1, 0, 0, 0, channel=1)])
    with pytest.raises(InvalidSchedule, match="two channels of a rank touch one chunk"):
        validate(Schedule("race", Collective(Kind.BROADCAST), 3, 1, lambda: iter([reads, writes]), num_channels=2))


def test_the_example_of_the_how_to_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "test-your-own-collective.md").read_text()
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    names["test_star_is_an_all_reduce"]()
