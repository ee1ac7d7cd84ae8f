"""The command lines of training and of the lab: what they print, what they refuse, and with which exit code."""

from __future__ import annotations

import json
import os
import sys

import pytest

from realrun.cli.main import main


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["realrun", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


TINY = ("train", "--data", "synthetic", "--samples", "8", "--resolution", "8", "--batch", "4", "--epochs", "2")


def test_train_prints_one_json_object_an_epoch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, *TINY, "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1]
    assert {"batch", "rate", "loss", "validation_accuracy", "images_per_s", "gradient_wait_s"} <= set(rows[0])


def test_train_prints_a_table_and_says_when_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    arguments = (*TINY, "--checkpoint", f"{tmp_path}/run.pt")
    assert _run(monkeypatch, *arguments) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert _run(monkeypatch, *arguments) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no epoch is left" in printed.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train", "--data", "nowhere"), "unknown data 'nowhere'"),
        (("train", "--model", "vgg"), "unknown model 'vgg'"),
        (("train", "--batch", "0"), "1 or more samples"),
        (("train", "--bucket", "25"), "needs a unit"),
        (("train", "--milestones", "x"), "epochs separated by commas"),
        (("lab", "up", "--rate", "100"), "needs a unit"),
        (("lab", "up", "--topology", "mesh"), "choose one of star"),
        (("lab", "up", "--topology", "torus2d", "--grid", "2by2"), "write 2x3"),
        (("lab", "up", "--name", "../etc"), "letters and digits"),
    ],
)
def test_wrong_requests_end_with_code_2_and_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    assert _run(monkeypatch, *arguments) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_the_lab_says_that_it_needs_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for arguments in (("up",), ("down",), ("show",), ("run", "--", "true")):
        assert _run(monkeypatch, "lab", *arguments) == 2
        assert "needs root" in capsys.readouterr().err
