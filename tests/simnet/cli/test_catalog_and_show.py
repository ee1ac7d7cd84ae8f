from __future__ import annotations

from pathlib import Path

import pytest

from simnet.errors import InvalidInput
from tests.simnet.terminal import rows, run

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", ["devices", "links", "clusters", "topologies", "costs", "algorithms", "models"])
def test_every_kind_is_listed_with_names_and_summaries(kind: str) -> None:
    found = rows("catalog", kind)
    assert len(found) > 4
    assert all(row["name"] and row["summary"] for row in found)
    text = run("catalog", kind)
    assert all(row["name"] in text for row in found)


def test_a_device_is_listed_in_si_with_interval_and_source() -> None:
    (row,) = rows("catalog", "devices", "v100-sxm2")
    assert row["mixed_flop_per_s"]["value"] == 125e12
    assert row["memory_bytes"] == row["memory_bytes"] | {"value": 16 * 2**30, "low": 16 * 2**30}
    assert "data sheet" in row["power_w"]["source"]
    assert row["price_usd"] is None


def test_a_folder_of_ones_own_is_listed(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    quantity = '{ value = "3 GB/s", plus_minus = "10 %", source = "measured here" }'
    latency = '{ value = "1 us", range = ["1 us", "2 us"], source = "measured here" }'
    text = f'summary = "mine"\nkind = "ethernet"\nbandwidth = {quantity}\nlatency = {latency}\n'
    (tmp_path / "links" / "mine.toml").write_text(text)
    (row,) = rows("catalog", "links", "mine", "--catalog", str(tmp_path))
    assert row["bandwidth_bytes_per_s"]["low"] == pytest.approx(2.7e9)


def test_unknown_kinds_and_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match="list one of devices"):
        run("catalog", "gadgets")
    with pytest.raises(InvalidInput, match="unknown devices 'v99'"):
        run("catalog", "devices", "v99")
    with pytest.raises(InvalidInput, match="unknown cluster"):
        run("show", "nowhere")
    with pytest.raises(InvalidInput, match="ask for 1 to 1088"):
        run("show", "abci", "--nodes", "2000")


def test_a_machine_is_shown_in_a_screenful() -> None:
    text = run("show", "abci")
    assert len(text.splitlines()) <= 24
    assert "oversubscribed 3 : 1" in text
    assert "48.48 GB/s" in text


def test_figures_of_a_machine_are_its_own() -> None:
    (abci,) = rows("show", "abci")
    assert abci["num_devices"] == 4352
    assert abci["bisection_bytes_per_s"] == pytest.approx(16 * 34 * 25e9 / 3)
    (dgx,) = rows("show", "dgx-1")
    assert dgx["price_usd"] == pytest.approx(32 * 129000)
    (pod,) = rows("show", "tpu-v3-pod")
    assert pod["longest_path_links"] == 32


@pytest.mark.parametrize("name", ["big-basin", "tpu-v2-pod", "m40", "uniform"])
def test_every_shape_of_machine_is_drawn(tmp_path: Path, name: str) -> None:
    run("show", name, "--nodes", "1" if name == "m40" else "16", "--out", str(tmp_path / "picture.png"))
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_a_picture_nobody_can_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"ends with \.png"):
        run("show", "m40", "--out", str(tmp_path / "picture.xyz"))
    with pytest.raises(InvalidInput, match="folder that exists"):
        run("show", "m40", "--out", str(tmp_path / "none" / "picture.png"))


@pytest.mark.parametrize(("kind", "name"), [("clusters", "dgx-a100"), ("devices", "k80"), ("scenarios", "sony-1088")])
def test_a_file_is_printed_as_it_stands(kind: str, name: str) -> None:
    text = run("catalog", kind, name, "--file")
    assert text == (ROOT / "simnet" / "catalog" / kind / f"{name}.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["clusters"], "needs a name"),
        (["clusters", "none"], "unknown cluster 'none'; choose one of abci"),
        (["algorithms", "ring"], "not single files"),
    ],
)
def test_a_file_that_is_not_there_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        run("catalog", *arguments, "--file")


def test_a_picture_shows_two_groups_of_rails_and_labels_no_crowded_row() -> None:
    from matplotlib.figure import Figure

    from simnet.catalog import load_cluster
    from simnet.catalog.picture import _network

    axes = Figure().subplots()
    _network(axes, load_cluster("dgx-a100"))
    assert "first 40 of 140 nodes" in axes.get_title()
    labels = [text.get_text() for text in axes.texts if text.get_text()]
    assert "spine0" in labels
    assert len(labels) <= 21
