"""Logs as they reach us from elsewhere: other prefixes and locales, tools in between, newest versions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from simnet.errors import InvalidInput
from simnet.importers.logs import read_log
from simnet.importers.record import Log

DATA = Path(__file__).parents[2] / "data" / "logs"
TABLES = ["new_8_ranks.log", "old_error_column_4_ranks.log", "no_banner_16_ranks_prefixed.log"]


def rows(log: Log) -> list[tuple[object, ...]]:
    return [(r.collective, r.size_bytes, r.ranks, r.nodes, r.in_place, r.time_s) for r in log.measurements]


def each(change: Callable[[int, str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(i, line) + "\n" for i, line in enumerate(text.splitlines(), 1))


def thousands(_: int, line: str) -> str:
    return re.sub(r"(?<![\w.,:])(\d{4,})(?![\w.:])", lambda match: f"{int(match[1]):,}", line)


def decimal_comma(_: int, line: str) -> str:
    return re.sub(r"(?<![\w.])(\d+)\.(\d+)(?![\w.])", r"\1,\2", line)


def heading_again(text: str) -> str:
    lines = text.splitlines()
    heading = [line for line in lines if "algbw" in line or "(us)" in line]
    places = [i for i, line in enumerate(lines) if re.search(r"\d +float ", line)]
    for place in reversed(places[4::5]):
        lines[place:place] = heading
    return "\n".join(lines) + "\n"


DISGUISES: dict[str, Callable[[str], str]] = {
    "tabs": each(lambda _, line: re.sub(r" {2,}", "\t", line)),
    "no-break spaces": each(lambda _, line: line.replace("  ", "\u00a0\u00a0")),
    "thousands": each(thousands),
    "decimal comma": each(decimal_comma),
    "the heading again": heading_again,
    "grep -n": each(lambda i, line: f"{i}:{line}"),
    "cat -n": each(lambda i, line: f"{i:6d}\t{line}"),
    "python logging": each(lambda _, line: "INFO:root:" + line),
    "kubectl": each(lambda _, line: "[pod/launcher-x7k2p/launcher] " + line),
    "container runtime": each(lambda i, line: f"2024-05-01T12:00:{i % 60:02d}.123456789Z stdout F {line}"),
    "syslog": each(lambda i, line: f"May  1 12:00:{i % 60:02d} node01 slurm[1234]: {line}"),
    "tagged by mpirun": each(lambda _, line: "[1,0]<stdout>: " + line),
    "tagged by prterun": each(lambda _, line: "[prterun-node01-123@1,0]<stdout>: " + line),
    "by host": each(lambda _, line: "node01: " + line),
    "quoted": each(lambda _, line: "> " + line),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_table_is_the_same_whatever_it_went_through(name: str, disguise: str, tmp_path: Path) -> None:
    text = (DATA / name).read_text()
    text = re.sub(r"^0: ", "", text, flags=re.M) if name.endswith("prefixed.log") else text
    (tmp_path / "plain.log").write_text(text)
    (tmp_path / "log").write_text(DISGUISES[disguise](text))
    assert rows(read_log(tmp_path / "log")) == rows(read_log(tmp_path / "plain.log"))


@pytest.mark.parametrize(
    "name", ["osu_allreduce.txt", "osu_latency_full.txt", "osu_bw_validation.txt", "imb_mixed.txt"]
)
@pytest.mark.parametrize("disguise", [name for name in DISGUISES if name != "the heading again"])
def test_tables_of_mpi_are_the_same_whatever_they_went_through(name: str, disguise: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(DISGUISES[disguise]((DATA / name).read_text()))
    assert rows(read_log(tmp_path / "log")) == rows(read_log(DATA / name))


def test_percentiles_of_osu_stand_beside_the_average(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "# OSU MPI-CUDA Allreduce Latency Test v7.4\n# Datatype: MPI_FLOAT.\n"
        "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations  P50 Tail Lat(us)  "
        "P90 Tail Lat(us)  P99 Tail Lat(us)\n"
        "1024                    12.50             11.00             15.25         100             12.00  "
        "           14.00             15.00\n2048  13.00  11.50  16.00  100\n"
    )
    log = read_log(tmp_path / "log")
    (row,) = log.measurements
    assert (row.size_bytes, row.time_s) == (1024, pytest.approx(12.5e-6))
    assert row.environment == pytest.approx(
        {"time_min_s": 11e-6, "time_max_s": 15.25e-6, "time_p50_s": 12e-6, "time_p90_s": 14e-6, "time_p99_s": 15e-6}
    )
    assert [skipped.reason for skipped in log.skipped] == ["4 figures under 7 columns"]


def test_percentiles_of_a_bandwidth_are_no_times(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "# OSU MPI Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)  P50 Tail BW(MB/s)\n4096  8000.00  7900.00\n"
    )
    (row,) = read_log(tmp_path / "log").measurements
    assert row.time_s == pytest.approx(4096 / 8e9)
    assert row.environment == {}


def test_release_3_of_imb_names_the_benchmark_in_every_row(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "# Benchmarking Allreduce\n# #processes = 96\n"
        "#Benchmarking        #procs       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
        "Allreduce       96                  4         1000       297.88       298.07       297.95\n"
        "Allreduce       96                  8         1000       296.15\n"
        "Reduce          96                 16         1000       296.15       296.32       296.24\n"
    )
    log = read_log(tmp_path / "log")
    (row,) = log.measurements
    assert (row.collective, row.ranks, row.size_bytes, row.time_s) == ("all_reduce", 96, 4, pytest.approx(298.07e-6))


def test_rank_prefixes_in_order_are_no_line_numbers(tmp_path: Path) -> None:
    table = (DATA / "no_banner_16_ranks_prefixed.log").read_text()
    chatter = "".join(f"{rank}: starting up\n" for rank in range(16))
    (tmp_path / "log").write_text(chatter + table)
    assert {row.ranks for row in read_log(tmp_path / "log").measurements} == {16}


def test_a_smaller_size_below_the_heading_again_is_another_run(tmp_path: Path) -> None:
    text = (DATA / "no_banner_16_ranks_prefixed.log").read_text()
    (tmp_path / "log").write_text(text + text)
    log = read_log(tmp_path / "log")
    assert len(log.measurements) == 2 * len(read_log(DATA / "no_banner_16_ranks_prefixed.log").measurements)
    assert any(note.startswith("run 2:") for note in log.notes)


def test_the_time_of_the_processor_is_no_time_of_the_collective(tmp_path: Path) -> None:
    text = (DATA / "new_8_ranks.log").read_text()
    (tmp_path / "log").write_text(text.replace("    time   algbw", " cputime   algbw"))
    with pytest.raises(InvalidInput, match=r"gives no result: .*cputime"):
        read_log(tmp_path / "log")


def test_a_benchmark_nobody_knows_here_is_not_taken_for_another(tmp_path: Path) -> None:
    text = (DATA / "hash_stripped_all_gather_16_ranks.log").read_text()
    (tmp_path / "log").write_text("# Collective test starting: alltoallv_perf\n" + text)
    with pytest.raises(InvalidInput, match="alltoallv is none of the collectives read here"):
        read_log(tmp_path / "log")


def test_columns_after_the_known_ones_do_no_harm(tmp_path: Path) -> None:
    text = (DATA / "new_8_ranks.log").read_text()
    stamped = re.sub(r"^( +\d+ +\d+ +float .*)$", r"\1  2025-08-01 12:00:01", text, flags=re.M)
    (tmp_path / "log").write_text(stamped.replace("busbw #wrong\n", "busbw #wrong            timestamp\n"))
    assert rows(read_log(tmp_path / "log")) == rows(read_log(DATA / "new_8_ranks.log"))


def document(program: str, *, redop: str, root: str, factor: float, ranks: int = 4) -> dict[str, object]:
    """What nccl-tests 2.17 writes with -J: roots as text, counts as decimals, devices inside the configuration."""

    def half(size: int) -> dict[str, float]:
        time = 20.0 + size / 5e4
        return {
            "time": round(time, 6),
            "alg_bw": size / time / 1e3,
            "bus_bw": factor * size / time / 1e3,
            "nwrong": 0.0,
        }

    results = [
        {"size": s, "count": s // 4, "type": "float", "redop": redop, "root": root, "out_of_place": half(s),
         "in_place": half(s), "actual_iterations": 20, "experiment_name": program}
        for s in (1 << k for k in range(10, 28, 2))
    ]  # fmt: skip
    devices = [{"rank": r, "group": 0, "hostname": f"rack{r // 2}", "device": r % 2} for r in range(ranks)]
    return {
        "version": 1, "args": [f"./build/{program}", "-J", "out.json"], "nccl_version": 22602,
        "config": {"nthreads": 1, "ngpus": 1, "devices": devices}, "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"}, "average_bus_bandwidth": {"bandwidth": 1.0, "okay": "unchecked"},
    }  # fmt: skip


def written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("program", "redop", "root", "factor", "collective"),
    [
        ("all_reduce_perf", "sum", "    -1", 1.5, "all_reduce"),
        ("broadcast_perf", "none", "     0", 1.0, "broadcast"),
        ("reduce_perf", "sum", "     0", 1.0, "reduce"),
    ],
)
def test_newest_json_of_nccl_tests(
    program: str, redop: str, root: str, factor: float, collective: str, tmp_path: Path
) -> None:
    log = read_log(written(tmp_path / "n.json", document(program, redop=redop, root=root, factor=factor)))
    assert {(r.collective, r.ranks, r.nodes, r.num_wrong) for r in log.measurements} == {(collective, 4, 2, 0)}
    assert len(log.measurements) == 18
    assert log.skipped == ()


def test_newest_json_with_times_of_the_processor_gives_no_row(tmp_path: Path) -> None:
    text = json.dumps(document("all_reduce_perf", redop="sum", root="-1", factor=1.5)).replace('"time"', '"cpu_time"')
    (tmp_path / "n.json").write_text(text)
    with pytest.raises(InvalidInput, match="gives no result"):
        read_log(tmp_path / "n.json")


def table_of_2020(columns: str, cells: str, *, parts: int, ranks: str = "") -> str:
    """Rows of eight ranks: size, count, type and whatever stood between those and the figures."""
    lines = [
        ranks,
        f"#       size         count    type {columns}    time   algbw   busbw  error     time   algbw   busbw  error",
    ]
    for size in (1 << k for k in range(20, 33, 2)):
        time = 30 + size / 2.5e5
        algbw = size / round(time, 1) / 1e3
        figures = f"{time:8.1f} {algbw:7.2f} {algbw * 7 / 8:7.2f}    N/A"
        lines.append(f"{size:12d} {size // 4 // parts:14d}   float {cells} {figures} {figures}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("columns", "cells", "expected"),
    [
        ("      ", "      ", "all_gather"),
        (" redop", "      ", "all_to_all"),
        (" redop", "   sum", "reduce_scatter"),
    ],
)
def test_what_reduces_names_its_reduction(columns: str, cells: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(table_of_2020(columns, cells, parts=8))
    log = read_log(tmp_path / "log")
    assert {(row.collective, row.ranks) for row in log.measurements} == {(expected, 8)}
    assert any(f"{expected} assumed" in note for note in log.notes) == (expected != "reduce_scatter")


@pytest.mark.parametrize(("shown", "nodes"), [(range(7, 8), None), (range(8), 2), (range(4, 8), None)])
def test_nodes_are_known_where_every_rank_is_listed(shown: range, nodes: int | None, tmp_path: Path) -> None:
    listed = "\n".join(f"#  Rank {r:2d} Group  0 Pid 100 on rack{r // 4} device {r % 4} [0x01] Example" for r in shown)
    (tmp_path / "log").write_text(table_of_2020("", "", parts=8, ranks=listed))
    assert {(row.ranks, row.nodes) for row in read_log(tmp_path / "log").measurements} == {(8, nodes)}
