from __future__ import annotations

import re

import pytest

from simnet.choice import choose
from simnet.collective_prediction import build_schedule, find_site, predict_collective
from simnet.errors import InvalidInput


def _uniform(ranks: int):
    return find_site(ranks=ranks, bandwidth="12.5 GB/s", latency="1 us")


def test_the_choice_is_the_fastest_and_names_the_next() -> None:
    names = ["ring", "recursive_doubling", "halving_doubling", "torus2d"]
    choice = choose(_uniform(16), "4:64M:16", only=names)
    for row in choice.rows:
        times = {
            name: predict_collective(
                ranks=16, bandwidth="12.5 GB/s", latency="1 us", algorithm=name, sizes=row.size_bytes
            )[0].time_s
            for name in names
        }
        ordered = sorted(times.values())
        assert row.time_s == pytest.approx(ordered[0], rel=1e-9)
        assert row.runner_up_s == pytest.approx(ordered[1], rel=1e-9)


def test_small_messages_take_few_rounds_and_at_the_crossover_both_take_as_long() -> None:
    choice = choose(_uniform(16), "4:64M:4", only=["recursive_doubling", "ring"])
    assert [row.algorithm for row in choice.rows][:: len(choice.rows) - 1] == ["recursive_doubling", "ring"]
    assert len(choice.crossovers) == 1
    crossover = choice.crossovers[0]
    assert (crossover.below, crossover.above) == ("recursive_doubling", "ring")
    closed_form = (30 - 4) * 1e-6 / ((4 - 30 / 16) / 12.5e9)
    assert crossover.size_bytes == pytest.approx(closed_form, rel=0.01)


def test_grids_along_the_nodes_are_among_the_candidates() -> None:
    site = find_site(ranks=16, cluster="abci")
    assert site.ranks_per_node == 4
    choice = choose(site, [1_000_000], only=["torus2d", "ring"])
    assert choice.rows[0].algorithm.startswith("torus2d")
    assert build_schedule("hierarchical", site).name == "hierarchical"


def test_algorithms_that_refuse_are_listed_with_the_reason() -> None:
    choice = choose(_uniform(6), [1000])
    assert all(choice.refused.values())
    with pytest.raises(InvalidInput, match="no all_reduce takes"):
        choose(_uniform(6), [1000], only=["nothing"])


def test_what_takes_too_long_to_time_is_left_out_with_a_reason_and_the_quick_stay() -> None:
    choice = choose(_uniform(100_000), [4_000_000], only=["ring", "torus2d", "direct"])
    assert (choice.rows[0].algorithm, choice.rows[0].runner_up) == ("torus2d", "ring")
    assert set(choice.refused) == {"direct"}
    left_out = r"[\d,]+ messages in a step, more than a choice over all algorithms takes time for; ask for it by name"
    assert re.fullmatch(left_out, choice.refused["direct"])
