from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnet.algorithms.registry import build
from simnet.collective import Collective, Kind
from simnet.combine import Phase, channels, on_groups, pipeline, refine, relabel, then
from simnet.errors import InvalidInput, Unsupported
from simnet.interpreters.check import check
from simnet.schedule import Repeat, Schedule

ALL_REDUCE = Collective(Kind.ALL_REDUCE)


def _lengths(schedule: Schedule) -> list[int]:
    return [len(step) for step in schedule.expand()]


@given(world_size=st.integers(1, 9))
def test_reduce_scatter_then_all_gather_is_an_all_reduce(world_size: int) -> None:
    parts = build("ring_reduce_scatter", world_size), build("bruck_all_gather", world_size)
    check(then(*parts, name="composed", collective=ALL_REDUCE))


def test_then_refines_chunks_to_the_finest_part() -> None:
    parts = build("binomial_tree_reduce", 6), build("chain_broadcast", 6, segments=4)
    whole = then(*parts, name="composed", collective=ALL_REDUCE)
    assert whole.num_chunks == 4
    check(whole)


def test_then_refuses_parts_of_different_world_sizes() -> None:
    with pytest.raises(InvalidInput, match=r"\[4, 6\]; use on_groups"):
        then(build("ring", 4), build("ring", 6), name="x", collective=ALL_REDUCE)


@settings(max_examples=25)
@given(world_size=st.integers(1, 9), names=st.lists(st.sampled_from(["ring", "torus2d", "direct", "halving_doubling"])))
def test_channels_run_any_algorithms_side_by_side(world_size: int, names: list[str]) -> None:
    parts = [build(name, world_size) for name in ["ring", *names]]
    whole = channels(*parts, name="composed", collective=ALL_REDUCE)
    assert whole.num_channels == len(parts)
    check(whole)
    assert len(_lengths(whole)) == max(len(_lengths(part)) for part in parts)


def test_channels_of_equal_rings_stay_folded() -> None:
    ring = build("ring", 4096)
    items = list(channels(ring, relabel(ring, np.arange(4096)[::-1]), name="x", collective=ALL_REDUCE).steps())
    assert [item.times for item in items if isinstance(item, Repeat)] == [4095, 4095]


def test_channels_refuse_a_collective_in_which_ranks_own_parts() -> None:
    part = build("ring_all_gather", 4)
    with pytest.raises(Unsupported, match="all_gather"):
        channels(part, part, name="x", collective=part.collective)


@given(st.permutations(range(7)), st.sampled_from(["ring", "double_binary_tree", "binomial_tree_broadcast"]))
def test_relabelled_schedules_still_hold_and_take_their_root_along(ranks: list[int], name: str) -> None:
    moved = relabel(build(name, 7), ranks)
    assert moved.collective.root == (ranks[0] if name == "binomial_tree_broadcast" else 0) or moved.collective.reduces
    check(moved)


def test_relabel_refuses_what_is_no_permutation() -> None:
    with pytest.raises(InvalidInput, match="permutation of 0 to 3"):
        relabel(build("ring", 4), [0, 1, 1, 2])


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 3), st.sampled_from(["ring", "binomial_tree_broadcast"]))
def test_pipelined_schedules_still_hold(world_size: int, segments: int, every: int, name: str) -> None:
    check(pipeline(build(name, world_size), segments, every=every))


def test_a_pipelined_chain_takes_depth_plus_segments_steps() -> None:
    assert len(_lengths(build("chain_broadcast", 9, segments=5))) == 8 + 5 - 1


def test_on_groups_runs_every_group_at_once() -> None:
    phase = on_groups(build("ring", 3), [[0, 2, 4], [1, 3, 5]], world_size=6, num_chunks=3)
    assert isinstance(phase, Phase)
    step = next(iter(phase.items()))
    assert isinstance(step, Repeat)
    assert sorted(zip(step.step.src.tolist(), step.step.dst.tolist(), strict=True)) == [
        (0, 2), (1, 3), (2, 4), (3, 5), (4, 0), (5, 1),
    ]  # fmt: skip


def test_on_groups_keeps_chunks_right_where_a_repeat_cannot_start() -> None:
    halves = [
        on_groups(build("ring", 3), [[0, 1, 2]], world_size=3, num_chunks=4, first_chunk=1),
        on_groups(build("binomial_tree_reduce", 3), [[0, 1, 2]], world_size=3, num_chunks=4),
        on_groups(build("binomial_tree_broadcast", 3), [[0, 1, 2]], world_size=3, num_chunks=4),
    ]
    check(then(*halves, name="odd", collective=ALL_REDUCE))


def test_on_groups_refuses_groups_of_another_size() -> None:
    with pytest.raises(InvalidInput, match="groups of 2 ranks cannot run a schedule of 3"):
        on_groups(build("ring", 3), [[0, 1]], world_size=4, num_chunks=3)


def test_refined_chunks_travel_together() -> None:
    fine = refine(build("torus2d", 12), 5)
    assert isinstance(fine, Schedule)
    assert fine.num_chunks == 60
    check(fine)
