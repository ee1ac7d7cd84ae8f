"""The gallery: which rows, by which scenario, and how the figures are made."""

from __future__ import annotations

import pytest

from studies import facts, hindcast


def test_every_validated_row_is_predicted_or_refused_with_a_reason():
    chosen = hindcast.validated()
    assert len(chosen) > 120
    for fact in chosen:
        if hindcast.scenario_of(fact) is None:
            assert "no scenario" not in hindcast._refusal(fact)


@pytest.mark.parametrize(
    ("name", "devices", "stack", "precision", "batch"),
    [("dlperf.mxnet.fp16.8", 8, "mxnet-dlperf-fp16-2020", "mixed", 256),
     ("nvdle.tf.DGX-2.fp32.16", 16, "tensorflow-nvidia-2020", "fp32", 128),
     ("tf.gce.k80.rn50.b64.4", 4, "tensorflow-2017", "fp32", 64)],
)  # fmt: skip
def test_a_row_sets_devices_stack_precision_and_batch_of_its_scenario(name, devices, stack, precision, batch):
    job = hindcast.scenario_of(facts.find(name)).job
    assert (job.devices, job.framework, job.precision, job.per_device_batch) == (devices, stack, precision, batch)


def test_the_constant_is_096_times_the_published_single_device_rate():
    found = hindcast.hindcast(facts.find("nvdle.mxnet.DGX-1.mixed.8"), draws=20)
    assert found.constant == pytest.approx(0.96 * 8 * 1376, rel=1e-3)


def test_changing_a_validate_row_changes_no_prediction():
    fact = facts.find("tf.ec2dist.k80.rn50.b64.16")
    other = facts.Fact({**fact.values, "value": 3 * fact.value})
    first, second = (hindcast.hindcast(f, draws=20) for f in (fact, other))
    assert second.published == 3 * first.published
    assert (second.found, second.constant) == (first.found, first.constant)


def test_figures_are_those_of_the_metrics():
    rows = [
        {"published": 100.0, "predicted": p, "low": 90.0, "high": 112.0, "inside": i, "constant": 100.0}
        for p, i in ((102.0, True), (90.0, False), (100.0, True))
    ]
    found = hindcast.summary("x", rows)
    assert found["median"] == pytest.approx(0.02)
    assert found["mape"] == pytest.approx(0.04)
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["constant_median"] == 0


def test_what_is_compared_was_never_fitted_to():
    from simnet.compute import load_profile

    fitted = {point.partition("@")[0] for fit in load_profile().fits for point in fit.points}
    assert not fitted & {fact.id for fact in hindcast.validated()}


@pytest.mark.slow
def test_all_claims_hold():
    found = hindcast.run(quick=True)
    assert {c.text: c.holds for c in found.claims} == {c.text: True for c in found.claims}
    assert all(row["reason"] for row in found.rows if row["inside"] is False or row["predicted"] is None)


@pytest.mark.parametrize(("wire", "apart"), [("TCP", 0.02), ("RDMA", 0.05)])
def test_over_25_gigabit_resnet101_and_vgg16_scale_alike_and_below_inception(wire, apart):
    """One by the number of its tensors, which Horovod of that month sent one by one, the other by their bytes."""
    models = ("Inception-v3", "ResNet-101", "VGG-16")
    inception, resnet, vgg = (
        hindcast.CONSTANT * found.found.value / found.constant
        for found in (hindcast.hindcast(facts.find(f"horovod.{m}.16.{wire}"), draws=20) for m in models)
    )
    assert max(resnet, vgg) < inception
    assert abs(resnet - vgg) < apart
