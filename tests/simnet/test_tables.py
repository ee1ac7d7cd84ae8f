from collections.abc import Iterator
from dataclasses import replace

import pytest

from simnet.results import CollectivePrediction, Measurement
from simnet.tables import nccl_table

MEASURED = Measurement(
    collective="all_reduce", size_bytes=1_048_576, time_s=350e-6, ranks=16, algorithm="ring", count=262_144,
    dtype="float", algbw_bytes_per_s=1_048_576 / 350e-6, busbw_bytes_per_s=1.875 * 1_048_576 / 350e-6,
    num_wrong=0, in_place=True,
)  # fmt: skip
PREDICTED = CollectivePrediction(
    "all_reduce", "ring", "abci", 16, 1_048_576, 262_144, "float", 350e-6, 3e9, 5.6e9, "estimate", True, "",
    low_s=300e-6, high_s=400e-6,
)  # fmt: skip


def data_rows(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines if not line.startswith("#")]


def test_columns_are_those_of_nccl_tests() -> None:
    assert data_rows(list(nccl_table([MEASURED]))) == [
        ["1048576", "262144", "float", "sum", "-1", "350.00", "3.00", "5.62", "0"]
    ]


def test_a_prediction_shows_its_interval_and_has_no_count_of_wrong_values() -> None:
    lines = list(nccl_table([PREDICTED]))
    assert data_rows(lines)[0][-3:] == ["N/A", "300.00", "400.00"]
    assert not any("Out of bounds" in line for line in lines)


def test_the_footer_averages_busbw_and_counts_wrong_values() -> None:
    lines = list(nccl_table([MEASURED, replace(MEASURED, busbw_bytes_per_s=1e9, num_wrong=3)]))
    mean = (1.875 * 1_048_576 / 350e-6 + 1e9) / 2 / 1e9
    assert lines[-2:] == ["# Out of bounds values : 3 FAILED", f"# Avg bus bandwidth    : {mean:g}"]


def test_another_algorithm_opens_another_block() -> None:
    lines = list(nccl_table([MEASURED, MEASURED, replace(MEASURED, algorithm="torus2d")]))
    assert [line for line in lines if "algorithm" in line] == [
        "# collective all_reduce, algorithm ring, ranks 16",
        "# collective all_reduce, algorithm torus2d, ranks 16",
    ]


def test_rows_are_printed_as_they_come() -> None:
    def rows() -> Iterator[Measurement]:
        yield MEASURED
        raise KeyboardInterrupt

    taken: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        taken.extend(nccl_table(rows()))
    assert len(data_rows(taken)) == 1


def test_large_times_keep_their_column() -> None:
    lines = list(nccl_table([replace(MEASURED, time_s=17.179869184), replace(MEASURED, time_s=0.1)]))
    assert [row[5] for row in data_rows(lines)] == ["17179869", "100000.0"]


def test_why_a_row_is_not_exact_stands_above_it() -> None:
    lines = list(nccl_table([replace(PREDICTED, exact=False, reason="ranks share NICs")]))
    assert "# not exact: ranks share NICs" in lines


def test_both_halves_of_a_measurement_share_a_line() -> None:
    out, into = replace(MEASURED, in_place=False), replace(MEASURED, time_s=351e-6, num_wrong=1)
    lines = list(nccl_table([out, into, replace(out, size_bytes=4, count=1)]))
    assert [len(row) for row in data_rows(lines)] == [13, 9]
    assert data_rows(lines)[0][9:] == ["351.00", "3.00", "5.62", "1"]
    assert any("out-of-place" in line and "in-place" in line.split("out-of-place")[1] for line in lines)
    assert lines[-2] == "# Out of bounds values : 1 FAILED"
