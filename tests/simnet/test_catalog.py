from __future__ import annotations

from pathlib import Path

import pytest

from simnet import catalog
from simnet.errors import InvalidInput
from simnet.hardware import Precision, Quantity
from simnet.topologies.registry import build

PAPERS = ["big-basin", "mn-1", "jia-p40", "abci", "tpu-v2-pod", "tpu-v3-pod", "stampede2", "he-p100", "dgx-1", "m40"]

DEVICE = """
summary = "a device of mine"
memory = { value = "1 GiB", plus_minus = "0 %", source = "sheet" }
memory_bandwidth = { value = "100 GB/s", plus_minus = "5 GB/s", source = "sheet" }
[peaks]
fp32 = { value = "2 TFLOP/s", range = ["1 TFLOP/s", "3 TFLOP/s"], source = "measured" }
[sources]
sheet = "data sheet of mine"
"""


def _quantities(record: object) -> list[Quantity]:
    from dataclasses import fields, is_dataclass

    if isinstance(record, Quantity):
        return [record]
    if isinstance(record, dict):
        return [q for value in record.values() for q in _quantities(value)]
    if is_dataclass(record):
        return [q for f in fields(record) for q in _quantities(getattr(record, f.name))]
    return []


def _own(folder: Path, text: str, kind: str = "devices", name: str = "mine") -> Path:
    (folder / kind).mkdir(exist_ok=True)
    (folder / kind / f"{name}.toml").write_text(text)
    return folder


def test_every_number_of_the_catalogue_has_an_interval_and_a_source() -> None:
    records: list[object] = [catalog.load_device(name) for name in catalog.devices()]
    records += [catalog.load_link(name) for name in catalog.links()]
    records += [catalog.load_cluster(name) for name in catalog.clusters()]
    found = _quantities(records[0]) + [q for record in records for q in _quantities(record)]
    assert len(found) > 200
    for quantity in found:
        assert quantity.low <= quantity.value <= quantity.high
        assert len(quantity.source) > 4


def test_every_cluster_can_be_built_and_says_where_it_comes_from() -> None:
    assert set(PAPERS) < set(catalog.clusters())
    for name in catalog.clusters():
        cluster = catalog.load_cluster(name)
        nodes = min(cluster.num_nodes, 40)
        assert len(build(cluster, nodes).devices) == nodes * cluster.node.num_devices
        assert cluster.sources


def test_abci_is_what_its_operator_measured() -> None:
    abci = catalog.load_cluster("abci")
    assert abci.wires()["node.pair"].bandwidth == pytest.approx(48.48e9)
    assert abci.wires()["network.port"].bandwidth == pytest.approx(25e9)
    assert abci.wires()["network.port"].latency == pytest.approx(2.54e-6)
    assert abci.num_devices == 4352


def test_mixed_precision_takes_the_fastest_unit_there_is() -> None:
    assert catalog.load_device("v100-sxm2").peak("mixed").value == pytest.approx(125e12)
    assert catalog.load_device("p100-sxm2").peak(Precision.MIXED).value == pytest.approx(21.2e12)
    assert catalog.load_device("p40").peak("fp16").value == pytest.approx(11.76e12)


def test_a_folder_of_ones_own_adds_to_the_catalogue_and_replaces_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _own(tmp_path, DEVICE)
    _own(tmp_path, DEVICE, name="m40")
    mine = catalog.load_device("mine", tmp_path)
    assert mine.memory_bandwidth == Quantity(100e9, 95e9, 105e9, "data sheet of mine")
    assert mine.peaks[Precision.FP32].high == pytest.approx(3e12)
    monkeypatch.setenv("SIMNET_CATALOG", str(tmp_path))
    assert "mine" in catalog.devices()
    assert catalog.load_cluster("m40").node.device.summary == "a device of mine"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"1 GiB"', '"1"', "bare number"),
        ('"100 GB/s"', '"100 parsec"', "unknown unit"),
        ('plus_minus = "5 GB/s"', 'plus_minus = "few %"', "percentage"),
        (', plus_minus = "0 %"', "", "either plus_minus or range"),
        ("summary", "sumary", "summary"),
        ("fp32 =", "fp33 =", "fp33"),
        ("[peaks]", "[peaks", "not valid TOML"),
        ('["1 TFLOP/s", "3 TFLOP/s"]', '["3 TFLOP/s", "4 TFLOP/s"]', "lie in its range"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    folder = _own(tmp_path, DEVICE.replace(old, new))
    with pytest.raises(InvalidInput, match=message) as refusal:
        catalog.load_device("mine", folder)
    assert "devices/mine.toml" in str(refusal.value)


def test_unknown_names_are_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="unknown cluster 'abcy'; choose one of abci"):
        catalog.load_cluster("abcy")
    with pytest.raises(InvalidInput, match="unknown device"):
        catalog.load_device("v100")
    with pytest.raises(InvalidInput, match="is no folder"):
        catalog.devices(tmp_path / "none")
    with pytest.raises(InvalidInput, match="no cluster file"):
        catalog.load_cluster("missing.toml")


def test_uniform_takes_its_port_from_the_caller() -> None:
    port = catalog.uniform("12.5 GB/s", "1 us").wires()["network.port"]
    assert (port.bandwidth, port.latency) == (12.5e9, 1e-6)
    with pytest.raises(InvalidInput, match="bare number"):
        catalog.uniform("12.5", "1 us")
    with pytest.raises(InvalidInput, match="above 0"):
        catalog.uniform(0.0, 0.0)


@pytest.mark.parametrize(
    ("bandwidth", "latency", "text"),
    [("0 GB/s", "1 us", "bandwidth must be above 0"), ("1 GB/s", "-1 us", "latency must be 0 or more, got -1 us")],
)
def test_a_uniform_network_needs_a_bandwidth_and_may_have_no_latency(bandwidth: str, latency: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        catalog.uniform(bandwidth, latency)
    assert catalog.uniform("1 GB/s", "0 us").network.wires["port"].latency == 0
