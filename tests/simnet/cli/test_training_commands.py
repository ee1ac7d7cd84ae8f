"""`simnet step`, `train` and `whatif`: options, files of one's own, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import simnet as sn
from simnet.catalog.loader import file_text
from simnet.errors import InvalidInput
from tests.simnet.terminal import rows, run

COMMANDS = (["step", "--no-advice"], ["train"], ["whatif", "lanes 2"])


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


def test_the_table_shows_the_interval_of_every_gain() -> None:
    _, base, changed = run("whatif", "--scenario", "dgx1v-8", "lanes 2").splitlines()[:3]
    assert "+0.0% to +0.0%" in base
    assert re.search(r"lanes 2 .* [+-][\d.]+%  +[+-][\d.]+% to [+-][\d.]+% ", changed)


def test_a_step_in_json_holds_what_the_text_says() -> None:
    (row,) = rows("step", "--scenario", "dgx1v-8", "--draws", "50")
    text = run("step", "--scenario", "dgx1v-8", "--draws", "50")
    link = row["bottleneck"]
    assert f"bottleneck link: {link['link']}, busy for {link['load']:.1%} of the largest all-reduce" in text
    assert f"{link['alike']} of {link['of_kind']} links of {link['kind']} alike" in text
    assert sum(piece["end_s"] - piece["start_s"] for piece in row["critical_path"]) == pytest.approx(row["step_s"])
    advice = text.split("changes that would help most, in samples/s\n")[1].splitlines()
    assert [line.split("  ")[1] for line in advice] == [change["change"] for change in row["changes"]]
    assert all("80 % within +" in line for line in advice)
    assert len(advice) == 3
    assert all(change["gain_low"] <= change["gain"] <= change["gain_high"] for change in row["changes"])


def test_a_step_that_is_not_exact_is_held_against_simulation_unasked() -> None:
    (row,) = rows("step", "--scenario", "mxnet-p2", "--no-advice")
    assert row["exact"] is False
    assert (row["approximation"]["draws"], row["approximation"]["ranks"]) == (20, row["devices"])
    assert abs(row["approximation"]["largest"]) < 0.2
    assert "against simulation on 20 draws of the links: median" in run("step", "--scenario", "mxnet-p2", "--no-advice")
    left_out = rows("step", "--scenario", "mxnet-p2", "--no-advice", "--simulate-draws", "0")
    assert left_out[0]["approximation"] is None
    with pytest.raises(InvalidInput, match="--simulate-draws must be 0 or more, got -1"):
        run("step", "--scenario", "mxnet-p2", "--simulate-draws", "-1")


def test_one_device_has_neither_a_bottleneck_nor_an_error_of_its_exchange() -> None:
    (row,) = rows("step", "--scenario", "sony-1088", "--devices", "1", "--draws", "50")
    assert (row["bottleneck"], row["approximation"], row["exact"]) == (None, None, True)
    assert "bottleneck" not in run("step", "--scenario", "sony-1088", "--devices", "1", "--draws", "50")


def test_accumulation_makes_room_for_a_batch_that_does_not_fit() -> None:
    few = ("train", "--scenario", "smith-tpu", "--devices", "32")
    with pytest.raises(InvalidInput, match="use accumulation 2, or more devices"):
        run(*few)
    (row,) = rows(*few, "--accumulation", "2")
    assert (row["batch"], row["largest_batch"], row["ranks"]) == (8192, 16384, 32)
    with pytest.raises(InvalidInput, match=r"job\.accumulation of scenario 'smith-tpu' must be 1 or more"):
        run(*few, "--accumulation", "0")


GOYAL = ("train", "--scenario", "goyal-256")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--checkpoint", "1 h"), "--checkpoint is about nodes that fail, got 1 h and no --node-mtbf"),
        (("--restart", "1 h"), "--restart is about nodes that fail"),
        (("--node-mtbf", "5000 h", "--checkpoint", "0 s"), "give --checkpoint-every"),
        (("--node-mtbf", "5000"), "--node-mtbf needs a unit"),
        (("--node-mtbf", "0 h"), "failures need mtbf above 0 s"),
        (("--node-mtbf", "5000 h", "--restart", "1 GB"), "--restart has a unit of another kind"),
        (("--base", "0"), "a base must be 1 to 352 devices of big-basin, got 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_a_run_cannot_be_asked_is_refused(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        run(*GOYAL, *arguments)


def test_price_and_power_of_a_node_are_the_catalogues_or_ones_own() -> None:
    ying = ("train", "--scenario", "ying-1024", "--devices", "64")
    with pytest.raises(InvalidInput, match=r"no power of a node of tpu-v3-pod, needed for --pue 1\.1"):
        run(*ying, "--pue", "1.1")
    with pytest.raises(InvalidInput, match="--node-power 450 W needs the site's --pue"):
        run(*ying, "--node-power", "450 W")
    (row,) = rows(
        *ying, "--pue", "1.1", "--node-power", "450 W", "--node-price", "8000 USD", "--price-per-hour", "8 USD"
    )
    assert row["energy_j"] == pytest.approx(64 * 450 * row["time_s"] * 1.1)
    assert row["purchase_usd"] == 64 * 8000
    for name in ("samples_per_s", "headline_samples_per_s", "rental_usd", "energy_j"):
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
    assert row["rental_usd_high"] == pytest.approx(64 * 8 * row["high_s"] / 3600)
    assert row["rental_usd"] == pytest.approx(64 * 8 * row["time_s"] / 3600)


def test_failures_checkpoints_and_restarts_lengthen_a_run() -> None:
    (plain,) = rows(*GOYAL)
    failing = (*GOYAL, "--node-mtbf", "5000 h")
    (best,), (often,) = rows(*failing), rows(*failing, "--checkpoint-every", "1 min")
    assert plain["failures_s"] == 0 < best["failures_s"] < often["failures_s"]
    assert best["time_s"] == pytest.approx(plain["time_s"] + best["failures_s"])


def test_an_efficiency_against_any_base_is_shown_with_its_interval() -> None:
    (row,) = rows(*GOYAL, "--base", "64")
    assert (row["base_devices"], row["efficiency_base"]) == (64, "one node")
    assert row["efficiency_base_devices_low"] <= row["efficiency_base_devices"] <= row["efficiency_base_devices_high"]
    assert row["efficiency_device"] < row["efficiency_node"] < row["efficiency_base_devices"]
    assert f"{row['efficiency_base_devices']:.1%} of 64 devices" in run(*GOYAL, "--base", "64")
    (step,) = rows("step", "--scenario", "goyal-256", "--base", "64", "--no-advice")
    assert step["efficiency_base_devices"] == row["efficiency_base_devices"]


def test_shared_statistics_say_over_how_many_samples_and_what_each_layer_costs() -> None:
    (row,) = rows("step", "--scenario", "ying-1024", "--no-advice", "--draws", "20")
    assert row["normalisation_batch"] == 4 * 32
    assert len(row["batch_norm_layers_s"]) == 53
    assert sum(row["batch_norm_layers_s"].values()) == pytest.approx(row["batch_norm_s"])
    assert "batch norm over 128 samples: 53 layers" in run("step", "--scenario", "ying-1024", "--no-advice")
    (local,) = rows("step", "--scenario", "goyal-256", "--no-advice", "--draws", "20")
    assert "normalisation_batch" not in local


@pytest.mark.parametrize("command", [["step", "--no-advice", "--simulate-draws", "0"], ["train"]], ids=lambda c: c[0])
def test_what_the_source_does_not_say_is_said_to_be_assumed(command: list[str]) -> None:
    (row,) = rows(*command, "--scenario", "smith-tpu")
    assert row["assumed"][0] == "the pod has 256 chips"
    assert "assumed: the pod has 256 chips\n" in run(*command, "--scenario", "smith-tpu")
