"""`simnet step`, `train` and `whatif`: options, files of one's own, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import simnet as sn
from simnet.catalog.loader import file_text
from simnet.cli.app import command_line
from simnet.errors import InvalidInput

COMMANDS = (["step", "--no-advice"], ["train"], ["whatif", "lanes 2"])


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(command_line("simnet.cli", summary="test"), list(arguments))
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.stdout


def rows(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").splitlines()]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Catalogue folder with a scenario, a cluster and a model."""
    for kind in ("clusters", "scenarios", "models"):
        (tmp_path / kind).mkdir()
    (tmp_path / "clusters" / "ours.toml").write_text(file_text("clusters", "dgx-1v"))
    (tmp_path / "models" / "lenet.toml").write_text(
        'name = "lenet"\nsample = "image"\nsource = "LeCun et al., 1998"\n[[layer]]\nname = "conv"\nkind = "conv"\n'
        "forward_flop = 235200\nreads = 1024\nwrites = 4704\nsaves = 4704\n"
        'parameters = [{ name = "weight", shape = [6, 1, 5, 5] }]\n'
    )
    scenario = file_text("scenarios", "dgx1v-8").replace('cluster = "dgx-1v"', 'cluster = "ours"')
    (tmp_path / "scenarios" / "mine.toml").write_text(scenario.replace('name = "dgx1v-8"', 'name = "mine"'))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_a_folder_of_ones_own_is_read(command: list[str], own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (with_option, *_) = rows(*command, "--scenario", "mine", "--catalog", str(own))
    (published, *_) = rows(*command, "--scenario", "dgx1v-8")
    different = {key for key in published if with_option[key] != published[key]}
    assert different <= {"scenario", "cluster", "recipe", "reason"}
    monkeypatch.setenv("SIMNET_CATALOG", str(own))
    assert rows(*command, "--scenario", "mine")[0] == with_option


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_without_the_folder_nothing_of_it_is_known(command: list[str], own: Path) -> None:
    with pytest.raises(InvalidInput, match=r"unknown scenario 'mine'; name a \.toml file or one of abci-hvd-32"):
        run(*command, "--scenario", "mine")
    with pytest.raises(InvalidInput, match="unknown cluster 'ours'"):
        run(*command, "--scenario", str(own / "scenarios" / "mine.toml"))
    with pytest.raises(InvalidInput, match=r"the catalogue folder \S*nowhere is no folder; correct --catalog"):
        run(*command, "--scenario", "mine", "--catalog", str(own / "nowhere"))


def test_changes_to_models_and_clusters_of_ones_own_are_found(own: Path) -> None:
    found = rows("whatif", "model lenet", "cluster ours", "--scenario", "dgx1v-8", "--catalog", str(own))
    assert [row["change"] for row in found] == ["as it is", "model lenet", "cluster ours", "all together"]
    assert found[2]["gain"] == found[2]["gain_low"] == found[2]["gain_high"] == 0
    assert found[1]["gain_low"] < found[1]["gain"] < found[1]["gain_high"]


def test_scenarios_of_ones_own_are_listed_beside_those_of_the_package(own: Path) -> None:
    names = [row["name"] for row in rows("catalog", "scenarios", "--catalog", str(own))]
    assert {"mine", "sony-1088"} <= set(names)


def test_python_and_sweeps_read_the_folder_too(own: Path) -> None:
    alone = sn.predict("mine", {"job.devices": 2}, catalog=own)
    assert alone.devices == 2
    assert sn.predict_run("mine", catalog=own).run.time_s > 0
    table = sn.sweep({"scenario": "mine", "catalog": str(own), "job.devices": [1, 2]})
    assert table["step_s"].iloc[1] == alone.step_s.value


def test_the_table_and_the_advice_show_the_interval_of_every_gain() -> None:
    _, base, changed = run("whatif", "--scenario", "dgx1v-8", "lanes 2").splitlines()[:3]
    assert "+0.0% to +0.0%" in base
    assert re.search(r"lanes 2 .* [+-][\d.]+%  +[+-][\d.]+% to [+-][\d.]+% ", changed)
    advice = run("step", "--scenario", "dgx1v-8").split("changes that would help most, in samples/s\n")[1]
    assert advice.count("80 % within +") == len(advice.splitlines()) == 3
