"""Without a CUDA device the check says so; the parts that need none are right."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from realrun import gpu_check
from realrun.gpu_check import executor_faults


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
@pytest.mark.slow
def test_without_a_cuda_device_it_ends_with_one_sentence_and_code_2():
    ended = subprocess.run([sys.executable, "-m", "realrun.gpu_check"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert (
        ended.stderr
        == "error: this check needs a CUDA device and PyTorch sees none; run it where nvidia-smi lists one\n"
    )


@pytest.mark.slow
def test_the_correctness_part_passes_on_the_cpu(rank_pool):
    assert rank_pool(2).run(executor_faults, "cpu") == [[], []]


def test_step_times_are_predicted_before_they_are_measured(monkeypatch):
    def small(precision, batch, device):
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 10)), torch.randn(batch, 3, 8, 8)

    monkeypatch.setattr(gpu_check, "_resnet50", small)
    monkeypatch.setattr(gpu_check, "PRECISIONS", ("fp32",))
    monkeypatch.setattr(gpu_check, "FITTED_BATCHES", (2, 8))
    monkeypatch.setattr(gpu_check, "HELD_OUT_BATCHES", (4, 16))
    rows = list(gpu_check.steps(torch.device("cpu")))
    assert [(r["kind"], r["batch"]) for r in rows] == [
        ("step", 2), ("step", 8), ("prediction", 4), ("prediction", 16), ("step", 4), ("step", 16),
    ]  # fmt: skip
    assert [r["fitted"] for r in rows if r["kind"] == "step"] == [True, True, False, False]
    slope = (rows[1]["time_s"] - rows[0]["time_s"]) / 6
    assert rows[2]["time_s"] == pytest.approx(rows[0]["time_s"] + 2 * slope)
    assert rows[4]["error"] == pytest.approx(rows[2]["time_s"] / rows[4]["time_s"] - 1)
    layers = list(gpu_check.layers(torch.device("cpu")))
    assert {r["batch"] for r in layers} == {2, 8}
