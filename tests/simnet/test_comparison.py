from dataclasses import replace

import pytest

from simnet.comparison import compare, compare_logs, pair_bandwidths, slow_nodes
from simnet.errors import InvalidInput
from simnet.results import CollectivePrediction, FittedPoint, Measurement, Profile

SIZES = (1024, 4096, 16_384)
MEASURED = [Measurement("all_reduce", size, 1e-5, 8) for size in SIZES]
PREDICTED = [
    CollectivePrediction("all_reduce", "ring", "m", 8, size, size // 4, "float", time, 0, 0, "estimate", True, "p")
    for size, time in zip(SIZES, (1e-5, 2e-5, 0.5e-5), strict=True)
]


def profile_of(*sizes: int) -> Profile:
    return Profile("p", (), points=tuple(FittedPoint("all_reduce", size, 1e-5, 8) for size in sizes))


def test_fitted_rows_do_not_count() -> None:
    result = compare(PREDICTED, MEASURED, profiles={"p": profile_of(SIZES[0])})
    figures = result.accuracy()
    assert figures.rows == 2
    assert figures.geometric_mean == pytest.approx(1.0)
    assert figures.mape == pytest.approx(0.75)
    assert figures.bias == pytest.approx(0.25)
    assert figures.max == pytest.approx(1.0)


def test_no_accuracy_where_every_row_was_fitted_to() -> None:
    result = compare(PREDICTED, MEASURED, profiles={"p": profile_of(*SIZES)})
    with pytest.raises(InvalidInput, match="no accuracy can be stated"):
        result.accuracy()


def test_an_unknown_profile_is_asked_for() -> None:
    with pytest.raises(InvalidInput, match="--profile"):
        compare(PREDICTED, MEASURED)


def test_rows_match_by_algorithm_where_both_name_one() -> None:
    torus = [replace(row, algorithm="torus2d") for row in MEASURED]
    with pytest.raises(InvalidInput, match="no measured row"):
        compare(PREDICTED, torus, profiles={"p": profile_of()})


def test_repetitions_merge_to_their_median() -> None:
    rows = [replace(MEASURED[0], time_s=time) for time in (1e-5, 3e-5, 100e-5)]
    assert compare_logs(rows, MEASURED).rows[0].expected_s == 3e-5


def test_logs_without_a_common_row_cannot_be_compared() -> None:
    with pytest.raises(InvalidInput, match="share no"):
        compare_logs(MEASURED, [replace(row, ranks=4) for row in MEASURED])


def test_slow_nodes_by_pairs() -> None:
    found = slow_nodes(
        {("644", "699"): 49.36e9, ("632", "641"): 88.36e9, ("284", "678"): 49.28e9,
         ("641", "644"): 49.30e9, ("404", "699"): 86.81e9}
    )  # fmt: skip
    assert found.slow == ("644",)
    assert found.undecided == (("284", "678"),)
    assert found.proposed_pairs == (("284", "632"), ("678", "632"))
    assert found.slowest_pair_bytes_per_s == 49.28e9


def test_pairs_are_their_best_row_in_either_order() -> None:
    rows = [
        Measurement("send", 1000, 1e-6, src="b", dst="a"), Measurement("send", 4000, 1e-6, src="a", dst="b"),
        Measurement("send", 4000, 1e-6), Measurement("send", 4000, 1e-6, src="a", dst="a"),
    ]  # fmt: skip
    assert pair_bandwidths(rows) == {("a", "b"): pytest.approx(4e9)}
