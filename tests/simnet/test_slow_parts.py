"""Slow nodes, ranks and links of a scenario: the step waits for them, its bases do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simnet.changes import parse_change
from simnet.errors import InvalidInput
from simnet.explain import bottleneck_link
from simnet.prediction import efficiency_against, predict_step
from simnet.scenario import Exchange, Job, Scenario, Variation
from simnet.slow import Slow
from simnet.step_model import StepModel
from simnet.whatif import best_changes

CALM = Variation(between_ranks=0.0, node_contention=0.0, network_contention=0.0)
JOB = Job("big-basin", 32, "resnet50_v1", 32, "fp32", "caffe2-2017")
HEALTHY = Scenario("probe", JOB, Exchange(interference=0.0), variation=CALM, draws=100)


def computed(found):
    return sum(found.parts_s[part] for part in ("forward", "backward", "update"))


def test_a_late_rank_makes_every_step_as_late():
    # case: 200 ms more in one rank's backward pass, and all ranks report the longer step
    alone = predict_step(HEALTHY)
    late = predict_step(replace(HEALTHY, slow=Slow(late={"1": 0.2})))
    assert late.parts_s["waiting"] == pytest.approx(0.2)
    assert late.step_s.value - alone.step_s.value + alone.parts_s["exposed_exchange"] >= 0.2 * 0.99
    assert sum(late.parts_s.values()) == pytest.approx(late.step_s.value)


def test_four_ranks_of_93_ms_and_one_of_293_take_293():
    four = HEALTHY.with_job(devices=4, cluster="dgx-1")
    own = computed(predict_step(four))
    late = predict_step(replace(four, slow=Slow(late={"1": 0.2})))
    assert late.parts_s["waiting"] == pytest.approx(0.2)
    assert late.step_s.value - late.parts_s["exposed_exchange"] == pytest.approx(own + 0.2)


def test_a_slow_node_sets_the_pace_and_two_are_no_slower():
    plain, one, two = (
        predict_step(replace(HEALTHY, slow=Slow(nodes=nodes))) for nodes in ({}, {"1": 1.5}, {"1": 1.5, "3": 1.5})
    )
    assert one.parts_s["waiting"] == pytest.approx(0.5 * computed(plain))
    assert two.step_s.value == pytest.approx(one.step_s.value)
    assert one.step_s.low <= one.step_s.value <= one.step_s.high


def test_what_slows_one_rank_twice_adds_up():
    both = Slow(nodes={"0": 1.5}, ranks={"3": 2.0}, late={"3": 0.1})
    assert both.factors(1.0, 8, 16) == {0: 1.5, 1: 1.5, 2: 1.5, 3: 3.1, 4: 1.5, 5: 1.5, 6: 1.5, 7: 1.5}


def test_a_node_hardly_slower_than_the_spread_of_all_changes_nothing():
    wide = replace(HEALTHY, variation=replace(CALM, between_ranks=0.03))
    hardly = replace(wide, slow=Slow(ranks={"5": 1.001}))
    assert predict_step(hardly).step_s.value == predict_step(wide).step_s.value


def test_bases_of_the_efficiency_are_healthy():
    slow = replace(HEALTHY, slow=Slow(nodes={"0": 2.0}))
    healthy, found = predict_step(HEALTHY), predict_step(slow)
    assert found.efficiency_node.value < 0.6 * healthy.efficiency_node.value
    assert found.efficiency_node.value == pytest.approx(
        healthy.efficiency_node.value * healthy.step_s.value / found.step_s.value
    )


def test_a_slow_link_lengthens_the_exchange_and_becomes_the_bottleneck():
    ring = replace(HEALTHY.with_exchange(algorithm="ring", buckets="one_bucket"), draws=1)
    slow = replace(ring, slow=Slow(links={"n2/nic0 -> leaf0": 4.0}))
    plain, found = predict_step(ring), predict_step(slow)
    assert found.parts_s["exposed_exchange"] > 3 * plain.parts_s["exposed_exchange"]
    link = bottleneck_link(StepModel(slow))
    assert link is not None
    assert (link.link, link.alike) == ("n2/nic0 -> leaf0", 1)


def test_a_port_without_a_name_cannot_be_slowed():
    flat = replace(HEALTHY.with_job(cluster="uniform", devices=4), slow=Slow(links={"a -> b": 2.0}))
    with pytest.raises(InvalidInput, match="ports of uniform are alike and have no names"):
        predict_step(flat)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slow node 1 x1.5", Slow(nodes={"1": 1.5})),
        ("late rank 1 by 200 ms", Slow(late={"1": 0.2})),
        ("slow link n2/nic0 -> leaf0 x4", Slow(links={"n2/nic0 -> leaf0": 4.0})),
    ],
)
def test_slow_parts_are_asked_for_in_words(text, expected):
    assert parse_change(text).apply(HEALTHY).slow == expected


def test_an_efficiency_is_against_any_number_of_devices():
    model = StepModel(HEALTHY)
    assert efficiency_against(model, 32).value == 1
    assert efficiency_against(model, 1) == predict_step(HEALTHY).efficiency_device
    assert efficiency_against(model, 8) == predict_step(HEALTHY).efficiency_node
    with pytest.raises(InvalidInput, match="a base must be 1 to 352 devices of big-basin, got 353"):
        efficiency_against(model, 353)


def test_the_advice_is_to_repair_what_is_slow():
    slow = replace(HEALTHY, slow=Slow(nodes={"1": 2.0}), draws=20)
    best = best_changes(slow)[0]
    assert best.change == "slow parts repaired"
    assert best.gain.value == pytest.approx(predict_step(slow).step_s.value / predict_step(HEALTHY).step_s.value - 1)
    assert "slow parts repaired" not in [outcome.change for outcome in best_changes(HEALTHY, count=99)]
