"""Logs that do not tell their ranks are told on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simnet.cli.app import command_line
from simnet.errors import InvalidInput
from simnet.profiles import read_profile

ALL_REDUCE = "# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n"
ALL_GATHER = "# OSU MPI Allgather Latency Test v7.4\n# Size       Avg Latency(us)\n"


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(command_line("simnet.cli", summary="test"), list(arguments))
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.stdout


def write(path: Path, heading: str, steps: int, parts: int) -> str:
    """Messages of 3 us and 5 GB/s: `steps` of them, each 1/parts of the printed size."""
    rows = [f"{size:<12} {steps * (3 + size / parts / 5e3):.2f}" for size in (1 << k for k in range(10, 24, 2))]
    path.write_text(heading + "\n".join(rows) + "\n")
    return str(path)


@pytest.mark.parametrize(("heading", "steps", "parts"), [(ALL_REDUCE, 6, 4), (ALL_GATHER, 3, 1)])
def test_calibrate_takes_the_ranks_and_totals_of_sizes_per_rank(
    heading: str, steps: int, parts: int, tmp_path: Path
) -> None:
    log, out = write(tmp_path / "osu.log", heading, steps, parts), tmp_path / "p.toml"
    with pytest.raises(InvalidInput, match="ranks unknown"):
        run("calibrate", log, "--out", str(out))
    run("calibrate", log, "--out", str(out), "--log-ranks", "4")
    segment = read_profile(out).segments[-1]
    assert segment.bandwidth_bytes_per_s.value == pytest.approx(5e9, rel=0.01)
    assert segment.latency_s.value == pytest.approx(3e-6, rel=0.05)


def test_compare_takes_the_ranks(tmp_path: Path) -> None:
    log, predicted = write(tmp_path / "osu.log", ALL_REDUCE, 6, 4), tmp_path / "predicted.jsonl"
    rates = ("--bandwidth", "5 GB/s", "--latency", "3 us", "--sizes", "1K:4M:4")
    predicted.write_text(run("allreduce", "--ranks", "4", *rates, "--json"))
    with pytest.raises(InvalidInput, match="no measured row"):
        run("compare", str(predicted), log)
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in run("compare", str(predicted), log, "--log-ranks", "4", "--json").splitlines()
    ]
    assert rows[-1]["mape"] < 0.01
    with pytest.raises(InvalidInput, match="2 or more, got 1"):
        run("compare", str(predicted), log, "--log-ranks", "1")
