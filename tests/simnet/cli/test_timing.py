"""simnet allreduce, explain and trace."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from simnet.errors import InvalidInput, Unsupported
from tests.simnet.terminal import rows, run

UNIFORM = ("--bandwidth", "12.5 GB/s", "--latency", "1 us")


def test_a_ring_of_1024_ranks_takes_10230_us() -> None:
    (row,) = rows("allreduce", "--ranks", "1024", *UNIFORM, "--sizes", "51200000")
    assert row["time_s"] == pytest.approx(10_230e-6, rel=1e-9)
    assert row["exact"] is True
    assert row["engine"] == "estimate"
    keys = "collective algorithm cluster ranks size_bytes count dtype time_s algbw_bytes_per_s busbw_bytes_per_s"
    assert set(keys.split()) <= set(row)
    assert row["busbw_bytes_per_s"] == pytest.approx(2 * 1023 / 1024 * 51_200_000 / 10_230e-6)


def test_the_table_has_a_line_per_size_and_the_columns_of_nccl_tests() -> None:
    text = run("allreduce", "--ranks", "16", "--cluster", "abci", "--algorithm", "torus2d", "--grid", "4x4",
               "--sizes", "1K:1M:2")  # fmt: skip
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [int(line.split()[0]) for line in lines] == [2**k for k in range(10, 21)]
    assert "algbw" in text
    assert "busbw" in text


def test_another_cost_model_is_asked_for_by_name() -> None:
    plain, tcp = (rows("allreduce", "--ranks", "4", *UNIFORM, "--sizes", "1M", *more)[0]["time_s"]
                  for more in ((), ("--cost", "tcp:overhead=10 us")))  # fmt: skip
    assert tcp > 1.03 * plain


SHARED = ("allreduce", "--cluster", "abci", "--ranks", "16", "--algorithm", "torus2d")


def test_rows_that_are_not_exact_are_held_against_simulation_on_draws_when_asked() -> None:
    asked = (*SHARED, "--engine", "estimate", "--sizes", "1000012,4000012", "--simulate-draws", "4")
    *predicted, held = rows(*asked)
    assert not predicted[-1]["exact"]
    assert (held["kind"], held["ranks"], held["draws"]) == ("approximation", 16, 4)
    assert 0 < abs(held["median"]) <= abs(held["largest"]) < 0.1
    simulated = rows(*SHARED, "--engine", "simulate", "--sizes", "4000012")[0]["time_s"]
    assert predicted[-1]["time_s"] / simulated - 1 == pytest.approx(held["median"], abs=0.03)
    assert "# against simulation on 4 draws of the links: median" in run(*asked)


def test_exact_rows_and_choices_are_not_held_against_simulation() -> None:
    exact = run("allreduce", "--ranks", "4", *UNIFORM, "--sizes", "1M", "--simulate-draws", "4")
    assert "all rows are exact: there is nothing to hold against simulation" in exact
    with pytest.raises(InvalidInput, match="auto takes no --simulate-draws, got 4"):
        run("allreduce", "--ranks", "4", *UNIFORM, "--algorithm", "auto", "--simulate-draws", "4")
    with pytest.raises(InvalidInput, match="--simulate-draws must be 1 or more, got 0"):
        run("allreduce", "--ranks", "4", *UNIFORM, "--simulate-draws", "0")


def test_a_trace_of_millions_of_messages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="trace fewer ranks"):
        run("trace", "--ranks", "2048", *UNIFORM, "--out", str(tmp_path / "trace.json"))


def test_auto_names_runner_up_and_crossover() -> None:
    found = rows("allreduce", "--ranks", "16", "--cluster", "abci", "--algorithm", "auto", "--sizes", "64:16M:64")
    kinds = {row["kind"] for row in found}
    assert {"row", "crossover"} <= kinds
    assert all(row["runner_up"] for row in found if row["kind"] == "row")
    assert "in place of" in run(
        "allreduce", "--ranks", "16", "--cluster", "abci", "--algorithm", "auto", "--sizes", "64:16M:64"
    )


@pytest.mark.parametrize("asked", [("--ranks", "1", "--size", "1M"), ("--ranks", "4", "--size", "0")])
def test_explain_says_where_nothing_is_sent(asked: tuple[str, ...]) -> None:
    assert run("explain", *UNIFORM, *asked).splitlines()[-1].startswith("no message is sent")


def test_explain_prints_terms_that_add_up() -> None:
    total, *others = rows("explain", "--ranks", "8", "--cluster", "abci", "--algorithm", "torus2d", "--size", "1M")
    terms = [total[f"{name}_s"] for name in ("waiting", "latency", "bandwidth", "sharing", "reduction")]
    assert sum(terms) == pytest.approx(total["time_s"])
    assert {row["kind"] for row in others} == {"hop", "link"}
    assert "critical path" in run("explain", "--ranks", "8", "--cluster", "abci", "--size", "1M")


def test_trace_writes_a_file_that_json_reads(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    (row,) = rows("trace", "--ranks", "4", *UNIFORM, "--size", "64K", "--out", str(out))
    assert row["messages"] == 24
    assert json.loads(out.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--ranks", "4"), "needs a bandwidth and a latency"),
        (("--ranks", "4", "--bandwidth", "12.5", "--latency", "1 us"), "needs a unit"),
        (("--ranks", "0", *UNIFORM), "ranks must be 1"),
        (("--ranks", "4", "--cluster", "nowhere"), "unknown cluster"),
        (("--ranks", "4", *UNIFORM, "--algorithm", "rign"), "unknown algorithm"),
        (("--ranks", "6", *UNIFORM, "--algorithm", "torus2d", "--grid", "4x4"), "4x4|16"),
        (("--ranks", "4", *UNIFORM, "--sizes", "8:4:2"), "begin above their end"),
        (("--ranks", "4", *UNIFORM, "--dtype", "fp7"), "dtype must be one of"),
        (("--ranks", "4", *UNIFORM, "--engine", "guess"), "engine must be one of"),
        (("--ranks", "4", "--cluster", "abci", "--latency", "1 us"), "belong to the cluster uniform"),
        (("--ranks", "4", *UNIFORM, "--algorithm", "auto", "--grid", "2x2"), "takes no --grid"),
        (("--ranks", "4", *UNIFORM, "--cost", "guess"), "unknown cost model"),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        run("allreduce", *arguments)


def test_the_tuning_model_of_nccl_is_comparable_with_a_log(tmp_path: Path) -> None:
    out = tmp_path / "predicted.jsonl"
    out.write_text(run("nccl", "--ranks", "8", "--sizes", "1K:1M:4", "--json"))
    shown = run("compare", str(out), "tests/data/logs/new_8_ranks.log")
    assert "on 6 rows nothing was fitted to" in shown
    assert run("nccl", "--ranks", "8", "--sizes", "1M").splitlines()[0].split() == [
        "size", "(B)", "algorithm", "protocol", "time",
    ]  # fmt: skip


def test_facts_of_a_log_are_words() -> None:
    assert "# run 1: rows 23, out of bounds 0, device Example A" in run("log", "tests/data/logs/new_8_ranks.log")


def test_a_chain_says_once_which_ranks_follow_each_other_again_and_again() -> None:
    (chain,) = (
        line
        for line in run("explain", "--ranks", "64", "--cluster", "abci", "--algorithm", "torus2d").splitlines()
        if line.startswith("critical path")
    )
    hops = [hop.split(" ")[0] for hop in chain.split("; ranks ")[1].split(", ")]
    assert " times" in chain
    assert all(first != second for first, second in itertools.pairwise(hops))


def test_a_sweep_names_refused_points_only_where_there_are_some(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text('cluster = "abci"\nranks = [4, 8]\nalgorithm = "ring"\nsizes = 1024\n')
    assert run("sweep", str(grid), "--out", str(tmp_path / "a.csv")).startswith("2 rows: ")
