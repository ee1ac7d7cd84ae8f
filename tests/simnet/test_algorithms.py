from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simnet.algorithms.grid import node_grid
from simnet.algorithms.registry import algorithms, build, on_nodes
from simnet.algorithms.trees import complement, in_order_parents
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import InvalidInput, Unsupported, WrongResult
from simnet.interpreters import engine
from simnet.paths import UniformPaths
from simnet.schedule import Repeat, Schedule
from simnet.verification import check_traffic, variants
from tests.simnet.fabrics import nodes


def _steps(schedule: Schedule) -> int:
    return sum(1 for _ in schedule.expand())


@pytest.mark.parametrize("name", algorithms())
def test_messages_and_bytes_per_rank_are_those_of_the_closed_form(name: str) -> None:
    for options, schedule in variants(algorithms()[name], max_ranks=17):
        check_traffic(algorithms()[name], options, schedule)


def test_traffic_that_is_not_the_closed_form_is_refused_with_the_rank() -> None:
    liar = replace(algorithms()["ring"], traffic=algorithms()["ring_all_gather"].traffic)
    with pytest.raises(WrongResult, match="rank 0 sends 6 messages, its closed form says 3"):
        check_traffic(liar, {}, build("ring", 4))


@pytest.mark.parametrize("name", algorithms())
def test_one_rank_is_the_identity(name: str) -> None:
    assert _steps(build(name, 1)) == 0


@pytest.mark.parametrize("name", algorithms())
def test_schedules_can_be_read_again(name: str) -> None:
    schedule = build(name, 8)
    assert [len(step) for step in schedule.expand()] == [len(step) for step in schedule.expand()]


def test_torus2d_takes_two_rings_of_steps() -> None:
    assert _steps(build("torus2d", 20, grid=(4, 5))) == 2 * 3 + 2 * 4


def test_torus2d_of_a_million_ranks_is_four_items() -> None:
    items = list(build("torus2d", 1 << 20).steps())
    assert len(items) == 4
    assert all(isinstance(item, Repeat) for item in items)


def test_torus2d_defaults_to_the_most_square_grid() -> None:
    assert _steps(build("torus2d", 12)) == 2 * 2 + 2 * 3


@pytest.mark.parametrize(
    ("name", "ranks", "options", "advice"),
    [
        ("torus2d", 16, {"grid": (4, 5)}, "gives 20 ranks, not 16; try 4x4 or 2x8"),
        ("torus2d", 7, {"grid": (2, 3)}, "try 1x7"),
        ("torus2d", 16, {"grid": (-4, -4)}, "has extents below 1; try"),
        ("torus2d", 12, {"grid": (3, 4, 1)}, "grid 3x4x1 has 3 dimensions, not 2; try 3x4"),
        ("torus2d", 13, {"grid": (3, 4, 1)}, "gives 12 ranks, not 13 and has 3 dimensions, not 2; try 1x13"),
        ("hierarchical", 16, {"ranks_per_node": 3}, "try 2 or 4"),
        ("hierarchical", 16, {"ranks_per_node": 0}, "try 1 or 2"),
        ("hierarchical", 16, {"ranks_per_node": 4, "leaders": 5}, "leaders must be 1 to the 4 ranks"),
        ("hierarchical", 16, {"between": "rign"}, "ring or halving_doubling"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_advice(
    name: str, ranks: int, options: dict[str, object], advice: str
) -> None:
    with pytest.raises(InvalidInput, match=advice):
        build(name, ranks, **options)


def test_ring_in_two_directions_uses_both_neighbours_in_every_step() -> None:
    for step in build("bidirectional_ring", 8).expand():
        assert set(((step.dst - step.src) % 8).tolist()) == {1, 7}


@pytest.mark.parametrize("name", ["torus2d_concurrent", "bucket"])
def test_square_tori_carry_one_message_per_link_and_step(name: str) -> None:
    for step in build(name, 25, grid=(5, 5)).expand():
        assert len(np.unique(np.stack([step.src, step.dst]), axis=1).T) == len(step)


@pytest.mark.parametrize("world_size", [2, 3, 6, 7, 12, 31, 64, 100, 1000])
def test_double_binary_tree_sends_and_receives_one_message_per_rank_and_step(world_size: int) -> None:
    for step in build("double_binary_tree", world_size, segments=9).expand():
        assert len(np.unique(step.src)) == len(np.unique(step.dst)) == len(step)


def test_double_binary_tree_over_nodes_talks_between_first_ranks_one_message_per_step() -> None:
    for step in build("double_binary_tree", 40, ranks_per_node=8, segments=9).expand():
        between = step.src // 8 != step.dst // 8
        assert not (step.src[between] % 8).any()
        assert len(np.unique(step.src[between])) == len(np.unique(step.dst[between])) == between.sum()


def test_tree_beats_ring_on_two_nodes_and_not_on_five() -> None:
    faster = {}
    for num_nodes in (2, 5):
        paths, ranks = nodes(num_nodes, 8, nic=12.5e9), 8 * num_nodes
        ring, tree = build("ring", ranks), build("double_binary_tree", ranks, ranks_per_node=8)
        times = [engine.run(schedule, 1 << 26, paths, AlphaBeta()).time for schedule in (ring, tree)]
        busbw = [2 * (ranks - 1) / ranks * (4 << 26) / time for time in times]
        assert max(busbw) <= 12.5e9 * (2 * (ranks - 1) / ranks)
        assert 12.3e9 < busbw[0] <= 12.5e9
        faster[num_nodes] = times[1] < times[0]
    assert faster == {2: True, 5: False}


def _time(name: str, ranks: int, num_bytes: int) -> float:
    return float(engine.run(build(name, ranks), num_bytes // 4, UniformPaths(ranks, 1e-6, 12.5e9), AlphaBeta()).time)


def test_folding_six_ranks_is_slower_than_eight_and_than_a_ring_for_large_buffers() -> None:
    large = 1 << 28
    assert _time("halving_doubling", 6, large) > 1.5 * _time("halving_doubling", 8, large)
    assert _time("ring", 6, large) < _time("binary_blocks", 6, large) < _time("halving_doubling", 6, large)


def test_halving_doubling_overtakes_the_ring_where_latency_counts() -> None:
    assert _time("halving_doubling", 64, 1 << 16) < _time("ring", 64, 1 << 16) / 5
    assert _time("recursive_doubling", 64, 64) < _time("halving_doubling", 64, 64) < _time("ring", 64, 64)


@pytest.mark.parametrize("world_size", [2, 8, 13, 64, 99])
def test_no_rank_but_one_is_inner_in_both_trees(world_size: int) -> None:
    parents = in_order_parents(world_size)
    inner = np.isin(np.arange(world_size), parents)
    assert (inner & inner[complement(world_size)]).sum() == world_size % 2


def test_swing_partners_are_one_one_three_and_five_away() -> None:
    steps = list(build("swing", 16).expand())[:4]
    assert [int((step.dst - step.src)[0]) % 16 for step in steps] == [1, 15, 3, 11]


def test_goyal_talks_between_servers_through_first_ranks_only() -> None:
    for step in build("goyal", 24, ranks_per_node=8).expand():
        between = step.src // 8 != step.dst // 8
        assert not (step.src[between] % 8).any()


def test_one_step_forms_come_in_blocks_above_2048_ranks() -> None:
    assert len(list(build("direct", 2048).steps())) == 2
    assert all(len(step) <= 2048 * 2048 for step in build("direct_all_to_all", 3000).expand())


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("swing", "try bucket, ring or halving_doubling"),
        ("recursive_doubling_all_gather", "try bruck_all_gather"),
        ("recursive_halving_reduce_scatter", "try ring_reduce_scatter"),
    ],
)
def test_world_sizes_that_are_not_admitted_are_refused_with_the_alternatives(name: str, advice: str) -> None:
    with pytest.raises(Unsupported, match=advice):
        build(name, 6)


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_says_what_it_does_and_what_it_costs(name: str) -> None:
    one = algorithms()[name]
    assert one.summary
    assert "Source:" in str(one.build.__doc__), "cite the paper"
    assert one.states_traffic


def test_every_algorithm_file_reads_in_one_sitting() -> None:
    for one in algorithms().values():
        lines = len(inspect.getsource(inspect.getmodule(one.build)).splitlines())
        assert 25 <= lines <= 80, f"{one.name}: {lines} lines"


def test_every_algorithm_stands_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "algorithms.md").read_text()
    assert [name for name in algorithms() if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("ranks", "node", "grid"),
    [(240, 4, (16, 15)), (2176, 4, (64, 34)), (64, 8, (8, 8)), (7, 4, (1, 7)), (12, 1, (3, 4))],
)
def test_rows_of_a_grid_are_whole_nodes_or_parts_of_one(ranks, node, grid):
    assert node_grid(ranks, node) == grid


def test_a_machine_gives_what_no_option_says_and_changes_nothing_that_one_does():
    assert on_nodes("torus2d", 240, 4, {"grid": None}) == {"grid": (16, 15)}
    assert on_nodes("torus2d", 240, 4, {"grid": (15, 16)}) == {"grid": (15, 16)}
    assert on_nodes("hierarchical", 12, 4, {"leaders": 2}) == {"leaders": 2, "ranks_per_node": 4}
    assert on_nodes("hierarchical", 6, 4, {}) == on_nodes("ring", 12, 4, {}) == {}


@pytest.mark.parametrize("world_size", [2, 3, 6, 7, 13, 64, 100, 101])
def test_bruck_all_to_all_is_done_in_log2_steps_and_moves_each_block_by_the_bits_of_its_distance(
    world_size: int,
) -> None:
    steps = list(build("bruck_all_to_all", world_size).expand())
    assert len(steps) == (world_size - 1).bit_length() - (world_size == 3)
    blocks = sum(int(step.count[step.src == 0].sum()) for step in steps)
    assert blocks == sum(distance.bit_count() for distance in range(world_size))


def test_bruck_all_to_all_beats_pairs_where_latency_counts_and_not_where_bytes_do() -> None:
    paths = UniformPaths(64, 1e-6, 12.5e9)
    for elements, winner in ((1, "bruck_all_to_all"), (100_000, "pairwise_all_to_all")):
        names = ("bruck_all_to_all", "pairwise_all_to_all")
        times = {name: engine.run(build(name, 64), 64 * elements, paths, AlphaBeta()).time for name in names}
        assert min(times, key=lambda name: times[name]) == winner


def test_bruck_all_to_all_of_many_ranks_is_refused_with_what_takes_them() -> None:
    with pytest.raises(Unsupported, match="2048 ranks, got 2049; try pairwise_all_to_all or direct_all_to_all"):
        build("bruck_all_to_all", 2049)
