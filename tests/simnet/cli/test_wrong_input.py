"""What is wrong with a request is one sentence and exit code 2, whatever the command."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from typer.testing import CliRunner

from simnet.cli.app import command_line, run
from simnet.cli.main import main
from simnet.errors import InvalidInput

UNIFORM = ("--bandwidth", "1 GB/s", "--latency", "1 us")
FOUR = ("allreduce", "--ranks", "4")


def exit_code(*arguments: str) -> int:
    """Exit code of `simnet` as the console script gives it; any other exception is a traceback and fails the test."""
    app = command_line("simnet.cli", summary="test")
    with pytest.raises(SystemExit) as left:
        run(lambda: app(list(arguments)))
    return int(str(left.value.code or 0))


@pytest.mark.parametrize(
    "arguments",
    [
        (*FOUR, "--bandwidth", "1e400 GB/s", "--latency", "1 us"),
        (*FOUR, "--bandwidth", "1 GB/s", "--latency", "1e400 us"),
        (*FOUR, "--bandwidth", "1e-320 B/s", "--latency", "1 us"),
        (*FOUR, *UNIFORM, "--sizes", "9999999999999999999999G"),
        (*FOUR, *UNIFORM, "--sizes", "４"),
        (*FOUR, "--cluster", "abci", "--algorithm", "hierarchical", "--ranks-per-node", "3"),
        ("explain", "--ranks", "4", *UNIFORM, "--top", "0"),
        ("explain", "--ranks", "4", *UNIFORM, "--size", "4M,8M"),
        ("trace", "--ranks", "4", *UNIFORM, "--size", "4:8:2", "--out", "trace.json"),
        ("trace", "--ranks", "4", *UNIFORM, "--out", "no-such-folder/trace.json"),
        ("export", "--algorithm", "ring", "--ranks", "4", "--out", "x.goal", "--format", "goal", "--latency", "1 us"),
        ("nccl", "--ranks", "8", "--intra", "0 GB/s"),
        ("nccl", "--ranks", "8", "--inter", "-1 GB/s"),
        (*FOUR, *UNIFORM, "--cost", "fitted"),
        (*FOUR, *UNIFORM, "--cost", "tcp:"),
        ("train", "--scenario", "goyal-256", "--pue", "nan"),
        ("train", "--scenario", "goyal-256", "--pue", "inf"),
        ("train", "--scenario", "goyal-256", "--price-per-hour", "-12 USD"),
    ],
    ids=" ".join,
)
def test_wrong_requests_are_one_sentence(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(*arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        ('ranks = ["a"]\ncluster = "abci"', "ranks must be a whole number, got 'a'"),
        ('ranks = 4.5\ncluster = "abci"', "ranks must be a whole number, got 4.5"),
        ("ranks = true\ncluster = 3", "ranks must be a whole number, got True"),
        ("ranks = 4\ncluster = {a = 1}", "cluster must be a name"),
        ('ranks = 4\nbandwidth = 12.5\nlatency = "1 us"', "bandwidth in grid.toml needs a unit, got 12.5"),
        ('ranks = 4\nbandwidth = "1 GB/s"\nlatency = [1, 2]', "latency in grid.toml needs a unit, got 1"),
        ("x = 1", "unknown setting 'x'"),
        ('ranks = 4\ncluster = "nosuch"', "unknown cluster 'nosuch'"),
        ('ranks = 4\ncluster = "abci"\ncost = "nosuch"', "unknown cost model 'nosuch'"),
    ],
)
def test_a_sweep_that_answers_no_point_is_refused(
    grid: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text(grid)
    assert exit_code("sweep", "grid.toml", "--out", "table.csv", "--json") == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("out", [".", "no-such-folder/table.csv"])
def test_a_sweep_looks_at_its_table_before_it_answers(
    out: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text('ranks = 4\ncluster = "abci"')
    assert exit_code("sweep", "grid.toml", "--out", out) == 2
    assert "cannot write the table" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["grid.toml"]


def test_a_refused_point_leaves_whole_numbers_whole(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text('ranks = [4, 0]\ncluster = "abci"\nsizes = 4096')
    out = CliRunner().invoke(
        command_line("simnet.cli", summary="test"), ["sweep", str(grid), "--out", str(tmp_path / "t.csv"), "--json"]
    )
    answered, refused = (json.loads(line) for line in out.stdout.splitlines())
    assert (answered["size_bytes"], answered["count"]) == (4096, 1024)
    assert type(answered["count"]) is int
    assert refused == {"ranks": 0, "refused": "ranks must be 1 or more, got 0"}


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (InvalidInput("x must be y"), 2, "error: x must be y\n"),
        (MemoryError("Unable to allocate 9 TiB"), 3, "error: out of memory (Unable to allocate 9 TiB)"),
        (PermissionError(errno.EACCES, "Permission denied", "out.csv"), 2, "error: out.csv: Permission denied"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 0, ""),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_stops_a_command_becomes_an_exit_code(
    raised: BaseException, code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app: Any = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command()
    def stop() -> NoReturn:
        raise raised

    monkeypatch.setattr("sys.argv", ["test"])
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.setattr("sys.stderr", errors := io.StringIO())
    with pytest.raises(SystemExit) as left:
        run(app)
    assert (left.value.code or 0) == code
    assert errors.getvalue().startswith(told)


def test_an_interrupt_while_commands_are_loaded_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("simnet.cli.main.command_line", interrupted)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130


@pytest.mark.parametrize("limit", ["nan", "inf", "-0.1"])
def test_a_limit_of_slowing_down_is_a_finite_fraction(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("compare", "before.log", "after.log", "--limit", limit) == 2
    assert "--limit must be 0 or more and finite" in capsys.readouterr().err


@pytest.mark.parametrize("threshold", ["nan", "inf", "-1", "0", "1.1"])
def test_a_threshold_of_slow_pairs_is_a_part_of_the_fastest(
    threshold: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [{"kind": "probe", "quantity": "bandwidth", "src": "a", "dst": b, "size_bytes": 1, "time_s": 1.0,
             "samples_s": [1.0]} for b in "bc"]  # fmt: skip
    log = tmp_path / "pairs.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert exit_code("slow-nodes", str(log)) == 0
    assert "slow: none" in capsys.readouterr().out
    assert exit_code("slow-nodes", str(log), "--threshold", threshold) == 2
    assert "threshold must be above 0 and at most 1" in capsys.readouterr().err


def test_a_limit_on_predictions_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert exit_code(*FOUR, *UNIFORM, "--sizes", "4K", "--json") == 0
    log = tmp_path / "predicted.jsonl"
    log.write_text(capsys.readouterr().out)
    assert exit_code("compare", str(log), str(log), "--limit", "0.1") == 2
    assert "holds predictions; leave it out" in capsys.readouterr().err
