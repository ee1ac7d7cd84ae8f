"""Layer tables of torch modules: those of the package's networks exactly, and of modules it has never seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from realrun.layer_table import layer_table, load_module
from realrun.models import build
from simnet.catalog.models import load_model
from simnet.cli.app import command_line
from simnet.errors import InvalidInput
from simnet.models.registry import build as simulated
from simnet.prediction import predict_step
from simnet.scenario import Job, Scenario

NETWORK = """
import torch
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(1000, 64), nn.Parameter(torch.zeros(16, 64))
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), 2)
        self.head = nn.Linear(64, 1000, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words):
        return self.head(self.blocks(self.embed(words) + self.place))


def three():
    return 3
"""


@pytest.mark.parametrize("name", ["resnet50", "alexnet"])
def test_the_tables_of_the_package_come_out_of_its_networks(name: str) -> None:
    found = layer_table(build(name, num_classes=1000, resolution=224), torch.zeros(2, 3, 224, 224), name=name)
    known = simulated(name)
    assert [(t.name, t.shape) for t in found.parameters] == [(t.name, t.shape) for t in known.parameters]
    for ours, theirs in zip(found.layers, known.layers, strict=True):
        counts = [(x.forward_flop, x.reads, x.writes, x.saves, x.num_parameters) for x in (ours, theirs)]
        assert counts[0] == counts[1], (ours, theirs)


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "network.py"
    path.write_text(NETWORK)
    return str(path)


def test_every_parameter_counts_once_wherever_it_is_used(network: str) -> None:
    module = load_module(f"{network}:Words")
    found = layer_table(module, torch.zeros(3, 16, dtype=torch.long), name="words")
    assert found.num_parameters == sum(parameter.numel() for parameter in module.parameters())
    assert found.sample == "sequence"
    # products of queries and keys, and of weights and values: 2 blocks of 2 * 16 * 16 * 64 multiply-adds
    attention = sum(layer.forward_flop for layer in found.layers if layer.kind in ("bmm", "baddbmm"))
    assert attention == 2 * 2 * 2 * 16 * 16 * 64


def test_the_batch_of_the_example_does_not_matter(network: str) -> None:
    module = load_module(f"{network}:Words")
    tables = [layer_table(module, torch.zeros(n, 16, dtype=torch.long), name="w").forward_flop for n in (1, 4)]
    assert tables[0] == tables[1]


def test_a_layer_that_overwrites_or_passes_on_keeps_nothing_of_its_own() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.GELU(), nn.Identity())
    found = layer_table(net, torch.zeros(1, 8), name="net")
    assert [(layer.kind, layer.saves) for layer in found.layers] == [("linear", 8), ("relu", 0), ("gelu", 8)]


def test_a_network_of_ones_own_is_written_and_predicted(network: str, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    words = ["layers", f"{network}:Words", "--shape", "16", "--tokens", "--out", str(tmp_path / "models" / "mine.toml")]
    answer = CliRunner().invoke(command_line("realrun.cli", summary=""), [*words, "--json"])
    assert answer.exception is None
    layers = [json.loads(line) for line in answer.stdout.splitlines()]
    model = load_model("mine", tmp_path)
    assert sum(layer["forward_flop"] for layer in layers) == model.forward_flop > 0
    found = predict_step(Scenario("x", Job("dgx-1v", 8, "mine", 4), draws=10), catalog=tmp_path)
    assert sum(bucket.num_bytes for bucket in found.buckets) == 4 * model.num_parameters


@pytest.mark.parametrize(
    ("spec", "shape", "text"),
    [
        ("network.py:three", "16", "gives a int; return a torch.nn.Module"),
        ("network.py:nothing", "16", "cannot build .*nothing"),
        ("nowhere.py:build", "16", "cannot build nowhere.py:build"),
        ("network", "16", "is named FILE.py:function"),
        ("network.py:Words", "3y", "--shape is written 3x224x224, got '3y'"),
        ("network.py:Words", "17", r"Words does not run without data on an example of shape \(1, 17\)"),
    ],
)
def test_what_is_no_network_is_refused(spec: str, shape: str, text: str, network: str, monkeypatch) -> None:
    monkeypatch.chdir(Path(network).parent)
    words = ["layers", spec, "--shape", shape, "--tokens"]
    answer = CliRunner().invoke(command_line("realrun.cli", summary=""), words)
    with pytest.raises(InvalidInput, match=text):
        raise answer.exception or AssertionError(answer.stdout)


def test_an_example_without_samples_is_refused() -> None:
    with pytest.raises(InvalidInput, match="needs a first dimension of 1 or more samples"):
        layer_table(nn.Linear(3, 3), torch.zeros(0, 3), name="x")
