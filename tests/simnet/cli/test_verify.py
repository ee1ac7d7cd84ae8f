from __future__ import annotations

import json
from pathlib import Path

import pytest

from simnet.algorithms.registry import build
from simnet.cli.main import main
from simnet.exporters.msccl import write_msccl


def _run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["simnet", "verify", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


def test_rows_say_how_many_schedules_were_proven(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "--algorithm", "torus2d", "--max-ranks", "6", "--json") == 0
    row = json.loads(capsys.readouterr().out)
    assert row == {
        "algorithm": "torus2d", "collective": "all_reduce", "schedules": 14, "max_ranks": 6, "traffic": "closed form",
    }  # fmt: skip


def test_large_world_sizes_are_checked_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "--algorithm", "ring", "--ranks", "130") == 0
    assert "1 schedules correct" in capsys.readouterr().out


def test_order_of_summation_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(monkeypatch, "--algorithm", "recursive_doubling", "--ranks", "4", "--order") == 0
    assert capsys.readouterr().out == "chunk 0, depth 2: ((x0 + x1) + (x2 + x3))\n"


def test_programs_of_files_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ring.xml"
    file.write_text("\n".join(write_msccl(build("ring", 3))))
    assert _run(monkeypatch, "--msccl", str(file), "--json") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["messages"], row["steps"], row["slots"]) == (12, 4, 0)
    file.write_text(file.read_text().replace('type="rrc"', 'type="r"'))
    assert _run(monkeypatch, "--msccl", str(file)) == 1
    assert "lacks ranks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--max-ranks", "0"), 2, "must be 1 or more, got 0"),
        (("--ranks", "0"), 2, "must be 1 or more, got 0"),
        (("--algorithm", "rign"), 2, "unknown algorithm 'rign'; choose one of"),
        (("--algorithm", "swing", "--ranks", "6"), 2, "swing needs powers of two, got 6"),
        (("--order",), 2, "--order needs one --algorithm and --ranks"),
        (("--msccl", "nowhere.xml"), 2, "nowhere.xml cannot be read"),
        (("--msccl", "x.xml", "--slots", "-1"), 2, "--slots must be 0 or more"),
    ],
)
def test_wrong_requests_get_one_sentence(
    words: tuple[str, ...], code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, *words) == code
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
