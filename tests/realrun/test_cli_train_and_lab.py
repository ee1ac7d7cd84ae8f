"""The command lines of training and of the lab: what they print, what they refuse, and with which exit code."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from realrun.batch_control import parse
from realrun.cli.main import main
from realrun.learning_rate import LearningRate


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


@pytest.mark.parametrize(("rank", "told"), [("0", "no epoch is left"), ("1", "")])
def test_only_rank_0_of_a_launched_run_tells_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: str, told: str
) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("realrun.cli.train._rows", lambda *_: iter([]))
    assert _run(monkeypatch, *TINY) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err
    assert bool(printed.err) == bool(told)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train", "--data", "nowhere"), "unknown data 'nowhere'"),
        (("train", "--model", "vgg"), "unknown model 'vgg'"),
        (("train", "--algorithm", "rign"), "no all-reduce is called 'rign'"),
        (("train", "--algorithm", "ring_all_gather"), "no all-reduce is called 'ring_all_gather'"),
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


def test_every_option_reaches_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("realrun.cli.train._rows", lambda *asked: seen.append(asked) or [])
    values = {
        "model": "alexnet", "data": "synthetic", "epochs": 3, "accumulate": 2, "optimizer": "lars", "momentum": 0.8,
        "momentum_form": "rate_inside", "weight_decay": 0.5, "eta": 0.25, "label_smoothing": 0.125, "bn_ranks": 4,
        "bn_momentum": 0.75, "precision": "bfloat16", "gradient_dtype": "float16", "algorithm": "torus2d",
        "resolution": 64, "samples": 9, "shift": 1, "seed": 7, "checkpoint": "c", "checkpoint_steps": 5,
    }  # fmt: skip
    given = [text for name, value in values.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    others = (
        "--no-overlap", "--batch", "16@0,32@1", "--batch-rate", "linear", "--rate", "0.4", "--scale-rate", "64",
        "--warm-up", "0.5", "--decay", "step", "--milestones", "1,2", "--grid", "2x2", "--ranks-per-node", "2",
        "--bucket", "1 MiB", "--ranks", "4", "--backend", "gloo", "--timeout", "9 s",
    )  # fmt: skip
    assert _run(monkeypatch, "train", *given, *others) == 0
    job, *place = seen[0]
    assert {name: getattr(job, name) for name in values} == values
    assert (job.overlap, job.options, job.bucket_cap) == (False, {"grid": (2, 2), "ranks_per_node": 2}, 2**20)
    assert job.batch == parse("16@0,32@1", rate_rule="linear")
    assert job.rate == LearningRate(0.4, 3, warm_up_epochs=0.5, decay="step", milestones=(1.0, 2.0))
    assert place == [4, "gloo", 9.0]
