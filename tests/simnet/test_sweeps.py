from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simnet.errors import InvalidInput, Unsupported
from simnet.sweeps import load_grid, points, sweep


def square(point: dict[str, Any]) -> list[dict[str, Any]]:
    if point["x"] == 13:
        raise Unsupported("13 is refused; take 12")
    return [{"value": point["x"] ** 2 + point.get("y", 0)}]


def test_a_grid_is_every_combination_of_its_lists() -> None:
    assert points({"x": [1, 2], "y": 3}) == [{"x": 1, "y": 3}, {"x": 2, "y": 3}]
    assert len(points({"x": [1, 2], "y": [3, 4, 5], "name": "text is one value"})) == 6


@pytest.mark.parametrize("grid", [{}, {"x": []}])
def test_an_empty_grid_is_refused(grid: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        points(grid)


def test_a_refused_point_is_a_row_with_its_reason() -> None:
    table = sweep({"x": [2, 13]}, answer=square)
    assert table["value"].tolist()[0] == 4
    assert table["refused"].tolist()[1] == "13 is refused; take 12"


def test_processes_and_executors_give_the_same_table() -> None:
    grid = {"x": [1, 2, 3], "y": [0, 1]}
    here = sweep(grid, answer=square)
    with ThreadPoolExecutor(2) as pool:
        pd.testing.assert_frame_equal(sweep(grid, answer=square, executor=pool), here)
    pd.testing.assert_frame_equal(sweep(grid, answer=square, num_processes=2), here)


def test_an_interrupted_sweep_answers_only_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "results.csv"
    asked: list[int] = []

    def interrupted(point: dict[str, Any]) -> list[dict[str, Any]]:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(point["x"])
        return square(point)

    with pytest.raises(KeyboardInterrupt):
        sweep({"x": [1, 2, 3, 4]}, out=out, answer=interrupted)
    journal = out.with_name("results.csv.journal")
    journal.write_bytes(journal.read_bytes()[:-5])
    asked.clear()

    def counting(point: dict[str, Any]) -> list[dict[str, Any]]:
        asked.append(point["x"])
        return square(point)

    table = sweep({"x": [1, 2, 3, 4]}, out=out, answer=counting)
    assert asked == [2, 3, 4], "the point whose line was cut short is answered again, the whole one is not"
    assert table["value"].tolist() == [1, 4, 9, 16]
    assert pd.read_csv(out)["value"].tolist() == [1, 4, 9, 16]


@pytest.mark.parametrize("text", [None, "ranks = [", "\xff"])
def test_an_unreadable_grid_gets_one_sentence(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "grid.toml"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"grid\.toml"):
        load_grid(path)
