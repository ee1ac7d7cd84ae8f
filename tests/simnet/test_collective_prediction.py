from __future__ import annotations

import pytest

from simnet.collective_prediction import predict_collective
from simnet.errors import InvalidInput
from simnet.interpreters import engine
from simnet.interpreters.network import OverBudget
from simnet.results import Estimate

UNIFORM = {"bandwidth": "12.5 GB/s", "latency": "1 us"}


def test_rows_have_an_interval_where_the_links_have_one_and_none_where_they_are_given() -> None:
    rows = predict_collective(cluster="abci", ranks=16, algorithm="torus2d", sizes="1K:64M:16")
    assert all(row.low_s < row.time_s < row.high_s for row in rows if row.low_s is not None and row.high_s is not None)
    assert all(row.low_s is not None for row in rows)
    assert predict_collective(ranks=16, sizes=1000, **UNIFORM)[0].low_s is None


def test_sizes_are_rounded_down_to_elements_and_to_what_ranks_can_own() -> None:
    (row,) = predict_collective(ranks=4, sizes=1003, dtype="double", **UNIFORM)
    assert (row.count, row.size_bytes) == (125, 1000)
    (row,) = predict_collective(ranks=3, sizes=1000, algorithm="ring_all_gather", **UNIFORM)
    assert (row.count, row.size_bytes) == (249, 996)


def test_one_rank_takes_no_time_and_has_no_bandwidth() -> None:
    (row,) = predict_collective(ranks=1, sizes=1_000_000, **UNIFORM)
    assert (row.time_s, row.algbw_bytes_per_s, row.busbw_bytes_per_s) == (0.0, 0.0, 0.0)


def test_hierarchical_groups_are_the_nodes() -> None:
    by_node = predict_collective(cluster="abci", ranks=16, algorithm="hierarchical", sizes=1_000_000)[0]
    by_two = predict_collective(cluster="abci", ranks=16, algorithm="hierarchical", sizes=1_000_000, ranks_per_node=2)[
        0
    ]
    assert by_node.time_s != by_two.time_s


@pytest.mark.parametrize("sizes", [[], [-4], [1.5], "8:4:2"])
def test_sizes_that_are_none_are_refused(sizes: object) -> None:
    with pytest.raises(InvalidInput, match="sizes"):
        predict_collective(ranks=4, sizes=sizes, **UNIFORM)


def test_what_was_too_much_to_simulate_is_answered_with_a_reason_and_not_tried_again_for_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[float] = []

    def give_up(*_: object, most_rated: float, **__: object) -> Estimate:
        tried.append(most_rated)
        raise OverBudget("too many rates")

    monkeypatch.setattr(engine, "simulate", give_up)
    (row,) = predict_collective(cluster="tpu-v3-pod", ranks=16, algorithm="direct", sizes="4M")
    assert (row.engine, row.exact) == ("estimate", False)
    assert "given up" in row.reason
    assert tried == [engine.SIMULATED_RATES]


def test_a_torus_is_laid_along_the_nodes_unless_a_grid_is_given() -> None:
    place = {"cluster": "abci", "ranks": 60, "algorithm": "torus2d", "sizes": "64M", "engine": "estimate"}
    (along,), (square,), (given,) = (predict_collective(**place, grid=grid) for grid in (None, "6x10", "12x5"))
    assert along.time_s == given.time_s
    assert along.time_s < square.time_s
