"""Measured rows on the terminal and in files: spread, straggler, predictions beside."""

from __future__ import annotations

import json

import pytest

from realrun.report import kept, print_rows, read_predicted
from simnet.errors import InvalidInput


def row(size: int, **more) -> dict:
    environment = {
        "launcher": "local ranks", "hosts": ["here"], "cores": 2, "backend": "gloo", "device": "cpu",
        "versions": {"torch": "2.13.0"}, "ranks_exceed_cores": True, "ranks_on_this_host": 4,
    }  # fmt: skip
    return {
        "collective": "all_reduce", "algorithm": "ring", "ranks": 4, "size_bytes": size, "count": size // 4,
        "dtype": "float", "cluster": "here", "time_s": 2e-3, "min_s": 1e-3, "p95_s": 3e-3, "num_wrong": 0,
        "algbw_bytes_per_s": size / 2e-3, "busbw_bytes_per_s": 1.5 * size / 2e-3, "in_place": True,
        "late_s": [0.0, 5e-4, 1e-4, 2e-4], "straggler": 1, "environment": environment, "samples_s": (1e-3, 2e-3, 3e-3),
    } | more  # fmt: skip


def test_the_table_shows_spread_and_names_the_straggler(capsys):
    assert print_rows([row(4096), row(8192)], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("# local ranks: 4 ranks on 1 host, 2 cores here, backend gloo")
    assert "4 ranks share 2 cores" in lines[1]
    figures = next(line for line in lines if line.split()[0] == "4096").split()
    assert figures[5] == "2000.00"
    assert figures[-4:] == ["1000.0", "3000.0", "500.0", "1"]
    assert lines[-1] == "# Straggler            : rank 1, 500 us late, at 2 of 2 sizes"


def test_predictions_stand_beside_with_their_error(capsys):
    print_rows([row(4096), row(8192)], {("all_reduce", "ring", 4, 4096): 2.2e-3})
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert lines[0].split()[-2:] == ["2200.0", "+10.0"]
    assert lines[1].split()[-2:] == ["N/A", "N/A"]


def test_wrong_values_are_counted(capsys):
    assert print_rows([row(4096, num_wrong=3)], {}) == 3
    assert "Out of bounds values : 3 FAILED" in capsys.readouterr().out


def test_json_prints_rows_and_nothing_else_and_a_quiet_rank_prints_nothing(capsys):
    print_rows([row(4096)], {}, json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["size_bytes"] == 4096
    print_rows([row(4096)], {}, quiet=True)
    assert capsys.readouterr().out == ""


def test_a_row_is_in_the_file_before_the_next_is_asked_for(tmp_path):
    path = tmp_path / "rows.jsonl"

    def rows():
        yield row(4096)
        assert json.loads(path.read_text())["size_bytes"] == 4096
        yield row(8192)

    assert len(list(kept(rows(), path))) == 2
    assert len(path.read_text().splitlines()) == 2


def test_a_file_that_cannot_be_is_refused_before_anything_is_measured(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere" / "rows.jsonl"):
        with pytest.raises(InvalidInput, match="cannot be written; name a file in a folder that exists"):
            next(kept(iter([pytest.fail]), place))


def test_a_file_without_predictions_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row(4096)) + "\n")
    with pytest.raises(InvalidInput, match="holds no predicted row"):
        read_predicted(path)
    path.write_text("no json\n")
    with pytest.raises(InvalidInput, match="holds no JSON lines"):
        read_predicted(path)
    path.write_text(json.dumps({**row(4096), "engine": "estimate"}) + "\n")
    assert read_predicted(path) == {("all_reduce", "ring", 4, 4096): 2e-3}
