from __future__ import annotations

import numpy as np
import pytest

from simnet.algorithms.registry import algorithms, build
from simnet.errors import InvalidInput
from simnet.schedule import Repeat, Schedule
from simnet.verification import sent, variants


def _steps(schedule: Schedule) -> int:
    return sum(1 for _ in schedule.expand())


@pytest.mark.parametrize("name", algorithms())
def test_messages_and_bytes_per_rank_are_those_of_the_closed_form(name: str) -> None:
    for options, schedule in variants(algorithms()[name], max_ranks=17):
        messages, chunks = sent(schedule)
        traffic = algorithms()[name].traffic(schedule.world_size, **options)
        np.testing.assert_array_equal(messages, np.broadcast_to(traffic.messages, messages.shape), str(options))
        np.testing.assert_allclose(chunks, np.multiply(traffic.share, schedule.num_chunks), rtol=1e-12, atol=1e-9)


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
        ("torus2d", 16, {"grid": (-4, -4)}, "extents below 1"),
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
