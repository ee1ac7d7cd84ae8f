"""Layer times measured by realrun in place of the compute profile."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from simnet.cli.app import command_line
from simnet.errors import InvalidInput
from simnet.measured_layers import read_layer_times
from simnet.models.registry import build
from simnet.prediction import predict_run, predict_step
from simnet.scenario import Job, Optimizer, Scenario

ALEXNET = build("alexnet")
PRODUCTS = [layer for layer in ALEXNET.layers if layer.parameters]


def row(name, batch, forward=1e-3, **changes):
    times = {"forward_s": [forward] * 5, "backward_s": [2 * forward] * 5, "update_s": [forward / 10] * 5}
    return {"kind": "probe", "quantity": "layer", "precision": "fp32", "model": "alexnet", "batch": batch, "name": name,
            "src": "host:0", "device": "cpu", **times, **changes}  # fmt: skip


def rows(batch, forward=1e-3, **changes):
    return [row(layer.name, batch, forward, **changes) for layer in PRODUCTS]


def write(path, *found):
    path.write_text("".join(json.dumps(one) + "\n" for one in found))
    return str(path)


def scenario(path, batch=8, **changes):
    return Scenario("x", Job("dgx-1v", 4, "alexnet", batch, layer_times=path, **changes), draws=200)


def test_a_step_takes_the_measured_times(tmp_path):
    pool = next(layer.name for layer in ALEXNET.layers if layer.kind == "pool")
    path = write(tmp_path / "times.jsonl", {"kind": "probe", "quantity": "latency"}, *rows(8), row(pool, 8, 5e-3))
    found = predict_step(scenario(path).with_job(devices=1))
    assert found.match == "measured"
    assert found.basis == f"layers measured on cpu of host:0 at batch 8 ({path})"
    # eight layers of 1 ms and a pool of 5 ms; what was not timed moves its data as fast as the pool does
    assert found.parts_s["forward"] > 8 * 1e-3 + 5e-3
    assert found.parts_s["update"] == pytest.approx((8 * 1e-3 + 5e-3) / 10)
    twice = write(tmp_path / "twice.jsonl", *rows(8, 2e-3), row(pool, 8, 10e-3))
    assert predict_step(scenario(twice).with_job(devices=1)).step_s.value == pytest.approx(2 * found.step_s.value)


def test_a_batch_between_two_measured_ones_lies_between_them(tmp_path):
    path = write(tmp_path / "times.jsonl", *rows(8), *rows(16, 3e-3))
    parts = {b: predict_step(scenario(path, b).with_job(devices=1)).parts_s for b in (8, 12, 16)}
    assert parts[12]["update"] == pytest.approx((parts[8]["update"] + parts[16]["update"]) / 2)
    assert parts[12]["forward"] == pytest.approx((parts[8]["forward"] + parts[16]["forward"]) / 2, rel=0.01)
    for outside in (4, 32):
        with pytest.raises(InvalidInput, match=f"was measured at batch 8, 16 and {outside} lies outside"):
            predict_step(scenario(path, outside))


def test_samples_that_scatter_widen_the_interval(tmp_path):
    shaky = {"forward_s": [0.5e-3, 1e-3, 1e-3, 1e-3, 2e-3]}
    calm, wild = (
        predict_step(scenario(write(tmp_path / f"{len(more)}.jsonl", *rows(8, **more)))) for more in ({}, shaky)
    )
    spread = [found.step_s.high / found.step_s.low for found in (calm, wild)]
    assert 1.1 < spread[0] < spread[1]


def test_several_devices_wait_and_exchange_on_measured_times(tmp_path):
    path = write(tmp_path / "times.jsonl", *rows(8))
    found = predict_step(replace(scenario(path), optimizer=Optimizer(lars=True)))
    assert found.parts_s["waiting"] > 0
    assert sum(found.parts_s.values()) == pytest.approx(found.step_s.value)
    assert found.efficiency_device.value < 1
    assert predict_run(scenario(path)).run.steps == 90 * 40037


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "has no layer times; write some with realrun probe"),
        ([{"quantity": "latency"}], "has no layer times"),
        (rows(8)[:-1], "lacks layer classifier.6 of alexnet"),
        ([*rows(8), row("conv", 8, model="resnet50")], "layer times of several models, alexnet and resnet50"),
        ([*rows(8), row("conv", 8, precision="fp16")], "several precisions, fp16 and fp32"),
        (rows(8, precision="fp16"), "has layer times in fp16, not in fp32"),
        (rows(8, model="resnet50"), "has layer times of resnet50, not of alexnet"),
        ([*rows(8), row("x", 0)], "lacks the name or the batch of its layer"),
        ([*rows(8), row("x", 8, forward_s=[])], "has no forward time of layer x"),
        ([*rows(8), row("x", 8, backward_s=[-1.0])], "a time of layer x that is no time above 0 s"),
    ],
)
def test_what_is_no_measurement_of_these_layers_is_refused(lines, text, tmp_path):
    with pytest.raises(InvalidInput, match=text):
        predict_step(scenario(write(tmp_path / "times.jsonl", *lines)))


def test_a_file_that_is_not_there_or_cut_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="cannot read the layer times"):
        read_layer_times(tmp_path / "nothing.jsonl")
    cut = tmp_path / "cut.jsonl"
    cut.write_text(json.dumps(row("x", 8))[:-20])
    with pytest.raises(InvalidInput, match="line 1 is no JSON object"):
        read_layer_times(cut)


def test_half_precision_times_serve_mixed_training(tmp_path):
    path = write(tmp_path / "times.jsonl", *rows(8, precision="fp16"))
    assert predict_step(scenario(path, precision="mixed")).match == "measured"


@pytest.mark.parametrize("command", [["step", "--no-advice"], ["train"], ["whatif", "lanes 2"]], ids=lambda c: c[0])
def test_commands_take_layer_times(command, tmp_path):
    path = write(tmp_path / "times.jsonl", *rows(128))
    words = [*command, "--scenario", "you-m40", "--layer-times", path, "--json"]
    answer = CliRunner().invoke(command_line("simnet.cli", summary=""), words)
    assert isinstance(answer.exception, InvalidInput)
    assert "not of resnet50" in str(answer.exception)
