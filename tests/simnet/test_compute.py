"""Compute time of one device: roofline, efficiency, memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simnet.catalog import load_device
from simnet.compute import (
    ComputeProfile,
    Fit,
    efficiency,
    largest_batch,
    load_profile,
    memory_bytes,
    require_fit,
    roofline,
    unit_of,
)
from simnet.errors import InvalidInput
from simnet.models.registry import build

P100, V100, TPU, P40 = (load_device(n) for n in ("p100-sxm2", "v100-sxm2", "tpu-v3", "p40"))
RESNET = build("resnet50")


def fit_on(device, stack, efficiency=0.5, launch=50e-6, unit="fp32", model="resnet50"):
    return Fit(device, stack.partition("-")[0], stack, unit, model, efficiency, launch, True, 0.02, (f"{stack}@x",))


SPREAD = {"row": 0.02, "framework": 0.1, "device": 0.2, "class": 0.3, "model": 0.4, "launch": 0.25}
PROFILE = ComputeProfile(
    "probe",
    (fit_on("p100-sxm2", "mxnet-1"), fit_on("p100-sxm2", "mxnet-2", 0.7), fit_on("v100-sxm2", "tf-1", 0.9)),
    {"fp32": SPREAD},
)


def test_a_convolution_alone_at_peak_takes_its_flop_over_the_peak():
    bound = roofline(RESNET, V100, "fp32", 64)
    widest = max(range(len(RESNET.layers)), key=lambda i: RESNET.layers[i].forward_flop)
    assert bound.forward[widest] == RESNET.layers[widest].forward_flop * 64 / V100.peak("fp32").value
    assert bound.backward[widest] == 2 * bound.forward[widest]


def test_the_bound_is_never_under_flop_over_peak_nor_under_the_weights_traffic():
    for batch in (1, 32):
        bound = roofline(RESNET, P100, "fp32", batch)
        assert bound.time >= RESNET.training_flop * batch / P100.peak("fp32").value
        assert bound.forward.sum() >= 4 * RESNET.num_parameters / P100.memory_bandwidth.value


@pytest.mark.parametrize(("better", "key"), [("memory_bandwidth", None), ("peaks", "fp32")])
def test_a_faster_device_is_never_slower(better, key):
    faster = (
        replace(P100, memory_bandwidth=P100.memory_bandwidth.scaled(2))
        if key is None
        else replace(P100, peaks={**P100.peaks, "fp32": P100.peaks["fp32"].scaled(2)})
    )
    assert roofline(RESNET, faster, "fp32", 32).time < roofline(RESNET, P100, "fp32", 32).time


def test_speed_per_image_rises_with_the_batch_because_launches_are_shared():
    found = efficiency(load_profile(), P100, "mxnet-2017", "fp32", "resnet50")
    rates = [b / found.step_time(roofline(RESNET, P100, "fp32", b)) for b in (1, 4, 16, 64)]
    assert rates == sorted(rates)
    assert rates[-1] > 4 * rates[0]


@pytest.mark.parametrize(
    ("framework", "device", "match", "value"),
    [("mxnet-2", P100, "stack", 0.7), ("mxnet", P100, "framework", 0.35**0.5), ("caffe", P100, "device", 0.35**0.5),
     ("mxnet", P40, "class", (0.5 * 0.7 * 0.9) ** (1 / 3))],
)  # fmt: skip
def test_the_closest_rows_are_used_and_said(framework, device, match, value):
    found = efficiency(PROFILE, device, framework, "fp32", "resnet50_v1")
    assert (found.match, found.efficiency) == (match, pytest.approx(value))
    assert found.sd == pytest.approx((SPREAD["row"] ** 2 + (match != "stack") * SPREAD.get(match, 0) ** 2) ** 0.5)


def test_another_model_widens_the_interval():
    own = efficiency(PROFILE, P100, "mxnet-2", "fp32", "resnet50")
    other = efficiency(PROFILE, P100, "mxnet-2", "fp32", "vgg16")
    assert other.sd > own.sd
    assert "of other models than vgg16" in other.basis


def test_a_class_without_rows_is_refused():
    with pytest.raises(InvalidInput, match="has no row for matrix arithmetic, needed for tpu-v3"):
        efficiency(PROFILE, TPU, "tensorflow", "bf16", "resnet50")


def test_tensor_cores_and_plain_units_are_told_apart():
    assert [unit_of(V100, p) for p in ("fp32", "mixed")] == ["fp32", "matrix"]
    assert unit_of(P40, "mixed") == "fp32"
    assert [unit_of(load_device("tpu-v3"), p) for p in ("bf16", "mixed", "fp16")] == ["matrix", "matrix", "fp32"]


def test_tensor_cores_serve_fp16_but_not_bf16_where_they_take_none():
    assert V100.peak("fp16") == V100.peak("mixed")
    assert unit_of(V100, "fp16") == "matrix"
    assert V100.peak("bf16") == V100.peak("fp32")
    assert unit_of(V100, "bf16") == "fp32"


def test_memory_grows_by_one_sample_at_a_time_and_a_batch_that_does_not_fit_is_refused():
    each = memory_bytes(RESNET, "fp32", 1) - memory_bytes(RESNET, "fp32", 0)
    assert memory_bytes(RESNET, "fp32", 10) - memory_bytes(RESNET, "fp32", 9) == each
    most = largest_batch(RESNET, V100, "fp32")
    assert require_fit(RESNET, V100, "fp32", most) <= V100.memory.value
    with pytest.raises(InvalidInput, match=f"use {most} or fewer"):
        require_fit(RESNET, V100, "fp32", most + 1)


@pytest.mark.parametrize(
    ("batch", "accumulation", "told"),
    [(256, 1, "128 with accumulation 2, which makes as many"), (384, 1, "128 with accumulation 3, which makes as many"),
     (256, 4, "128 with accumulation 8, which makes as many"), (509, 1, "128 with accumulation 4, which makes 512 in")],
)  # fmt: skip
def test_the_refusal_says_which_accumulation_fits(batch, accumulation, told):
    small = replace(V100, memory=replace(V100.memory, value=memory_bytes(RESNET, "fp32", 150), low=0.0))
    with pytest.raises(InvalidInput, match=f"use 150 or fewer, or {told}"):
        require_fit(RESNET, small, "fp32", batch, accumulation=accumulation)
    require_fit(RESNET, small, "fp32", 128)


def test_a_device_that_holds_not_even_one_sample_is_told_so():
    tiny = replace(V100, memory=replace(V100.memory, value=8e8, low=0.0))
    with pytest.raises(InvalidInput, match="not even one sample fits, so take a device with more memory"):
        require_fit(RESNET, tiny, "fp32", 1)


def test_published_batches_fit_where_they_ran():
    for device, precision, batch in (
        ("v100-sxm2", "mixed", 256),
        ("v100-sxm2", "fp32", 128),
        ("p100-sxm2", "fp32", 64),
    ):
        require_fit(RESNET, load_device(device), precision, batch)


def test_half_precision_needs_less_memory():
    assert memory_bytes(RESNET, "mixed", 64) < 0.6 * memory_bytes(RESNET, "fp32", 64)


def test_an_unknown_profile_is_refused():
    with pytest.raises(InvalidInput, match="unknown compute profile"):
        load_profile("nothing")
