from pathlib import Path

import pytest

from simnet.errors import InvalidInput
from simnet.importers.logs import read_log
from simnet.importers.record import Log
from simnet.results import CollectivePrediction, Measurement
from simnet.tables import nccl_table
from simnet.units import GB

DATA = Path(__file__).parents[2] / "data" / "logs"


def conditions(log: Log) -> set[tuple[str, int | None, int | None]]:
    return {(row.collective, row.ranks, row.nodes) for row in log.measurements}


@pytest.mark.parametrize(
    ("name", "expected", "rows"),
    [
        ("new_8_ranks.log", {("all_reduce", 8, 2)}, 46),
        ("old_error_column_4_ranks.log", {("all_reduce", 4, 1)}, 46),
        ("no_banner_16_ranks_prefixed.log", {("all_reduce", 16, None)}, 46),
        ("mpi_tag_elided_16_ranks.log", {("all_reduce", 16, None)}, 8),
        ("hash_stripped_all_gather_16_ranks.log", {("all_gather", 16, None)}, 22),
        ("two_runs_shell_session.log", {("all_gather", 2, 2), ("all_reduce", 2, 2)}, 86),
        ("rows_split_by_foreign_output.log", {("all_reduce", 8, 2)}, 46),
        ("function_names_in_rows.log", {("all_reduce", 4, 2)}, 46),
    ],
)
def test_every_vintage_reads(name: str, expected: set[object], rows: int) -> None:
    log = read_log(DATA / name)
    assert conditions(log) == expected
    assert len(log.measurements) == rows
    assert log.skipped == ()


def test_times_and_sizes_are_those_printed() -> None:
    first = read_log(DATA / "new_8_ranks.log").measurements[0]
    assert (first.size_bytes, first.count, first.dtype, first.in_place) == (8, 2, "float", False)
    assert first.time_s == pytest.approx(24.20e-6, rel=1e-12)
    assert first.num_wrong == 0


def test_the_old_error_column_is_no_count_of_wrong_values() -> None:
    assert {row.num_wrong for row in read_log(DATA / "old_error_column_4_ranks.log").measurements} == {None}


def test_interleaved_singletons_are_never_one_run_of_several_gpus() -> None:
    log = read_log(DATA / "two_singletons_interleaved.log")
    assert {row.ranks for row in log.measurements} == {1}
    assert any("2 singleton runs interleaved" in note for note in log.notes)
    assert {skipped.reason for skipped in log.skipped} == {"in place on one rank moves no data"}


def test_a_header_without_rows_is_no_result() -> None:
    with pytest.raises(InvalidInput, match="started, no result"):
        read_log(DATA / "started_no_result.log")


def test_old_all_gather_tables_are_told_by_size_over_time() -> None:
    log = read_log(DATA / "old_all_gather_definition.log")
    assert log.measurements[0].algbw_bytes_per_s == pytest.approx(40.69 * GB, rel=1e-3)
    assert log.measurements[0].ranks == 2
    assert any("old definition" in note for note in log.notes)


def test_elided_rows_are_said_to_be_missing() -> None:
    assert any("not shown" in note for note in read_log(DATA / "mpi_tag_elided_16_ranks.log").notes)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("33554432       8388608", "33554432       8388607"),
        ("33554432       8388608", "3355443        8388608"),
        ("5416.0    6.20   10.84", "5461.0    6.20   10.84"),
        ("5416.0    6.20   10.84", "5416.0    6.02   10.84"),
        ("5416.0    6.20   10.84", "5416.0    6.20   10.48"),
        ("5416.0    6.20   10.84", "5416.0    6.20   1O.84"),
    ],
)
def test_a_row_whose_columns_contradict_each_other_is_skipped(tmp_path: Path, old: str, new: str) -> None:
    text = (DATA / "new_8_ranks.log").read_text()
    assert old in text
    path = tmp_path / "a.log"
    path.write_text(text.replace(old, new))
    log = read_log(path)
    whole = {(row.size_bytes, row.time_s) for row in read_log(DATA / "new_8_ranks.log").measurements}
    assert {(row.size_bytes, row.time_s) for row in log.measurements} <= whole
    assert log.skipped


REAL = {
    "abci_v100_1n4g.log": ("all_reduce", 4, 1, 48),
    "abci_v100_8n32g.log": ("all_reduce", 32, 8, 48),
    "superbench_a100_8g_broadcast_c0.log": ("broadcast", 8, 1, 68),
    "superbench_a100_8g_allreduce_c0.log": ("all_reduce", 8, 1, 68),
    "gcp_a3high_h100_2n16g_allgather.txt": ("all_gather", 16, None, 22),
    "aws_p5en_128g_elided.txt": ("all_reduce", 128, None, 6),
    "aws_batch_p5_1n8g_mpi_tag_trailing_blanks.txt": ("all_reduce", 8, None, 64),
    "v100_2n4g_roce_rows_with_inline_function_names.log": ("all_gather", 4, 2, 56),
    "lambda_b200_2n16g_v2176.txt": ("all_reduce", 16, None, 58),
    "oci_h100_2n16g_machinefile.txt": ("all_reduce", 16, 2, 10),
}


@pytest.mark.parametrize("name", REAL)
def test_real_logs_read_as_their_index_says(samples: Path, name: str) -> None:
    collective, ranks, nodes, rows = REAL[name]
    log = read_log(samples / "nccl_tests" / name)
    assert conditions(log) == {(collective, ranks, nodes)}
    assert len(log.measurements) == rows


def test_our_own_tables_read_back(tmp_path: Path) -> None:
    measured = Measurement(
        "all_reduce", 1 << 20, 350e-6, 4, "torus2d", None, count=1 << 18, dtype="float", num_wrong=0, in_place=True,
        algbw_bytes_per_s=(1 << 20) / 350e-6, busbw_bytes_per_s=1.5 * (1 << 20) / 350e-6,
    )  # fmt: skip
    predicted = CollectivePrediction(
        "all_reduce", "ring", "abci", 16, 1 << 20, 1 << 18, "float", 350e-6, (1 << 20) / 350e-6,
        1.875 * (1 << 20) / 350e-6, "estimate", True, "here", low_s=300e-6, high_s=400e-6,
    )  # fmt: skip
    path = tmp_path / "table.txt"
    path.write_text("\n".join(nccl_table([measured, predicted])) + "\n")
    log = read_log(path)
    (row,), (prediction,) = log.measurements, log.predictions
    assert (row.algorithm, row.ranks, row.in_place, row.num_wrong) == ("torus2d", 4, True, 0)
    assert (prediction.algorithm, prediction.cluster, prediction.ranks) == ("ring", "abci", 16)
    assert (prediction.profile, prediction.engine) == ("here", "estimate")
    assert (prediction.low_s, prediction.high_s) == (pytest.approx(300e-6), pytest.approx(400e-6))
    assert (row.time_s, prediction.time_s) == (pytest.approx(350e-6), pytest.approx(350e-6))


def test_columns_after_a_single_half_are_no_second_half(tmp_path: Path) -> None:
    header = (
        "#       size         count      type   redop    root       time   algbw   busbw  #wrong       min       p95"
    )
    row = "     1048576        262144     float     sum      -1     350.00    3.00    4.49       0     340.0     360.0"
    path = tmp_path / "measured.txt"
    path.write_text(f"# collective all_reduce, algorithm ring, ranks 4\n#      in-place\n{header}\n{row}\n")
    log = read_log(path)
    assert log.skipped == ()
    assert [(row.time_s, row.in_place) for row in log.measurements] == [(pytest.approx(350e-6), True)]
