"""What holds of every step and run, whatever the scenario: drawn ones, seldom sensible."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnet.explain import bottleneck_link, critical_path
from simnet.exporters.step_trace import step_trace
from simnet.prediction import run_of, step_of
from simnet.recipe import OwnRun
from simnet.scenario import BatchNorm, Exchange, Input, Job, Optimizer, Scenario, Variation
from simnet.slow import Slow
from simnet.step_model import StepModel

CLOSE = 1e-9


def one(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


EXCHANGES = st.builds(
    Exchange, algorithm=one("ring", "torus2d", "hierarchical", "halving_doubling", "double_binary_tree", "star"),
    buckets=one("ddp", "horovod", "one_bucket", "per_layer", "lazy_fusion"), overlap=st.booleans(), lanes=one(1, 2, 4),
    gradient_dtype=one("float32", "float16", "bfloat16"), rotating=st.booleans(), compression=one(1.0, 100.0),
    interference=one(None, 0.0, 0.3),
)  # fmt: skip
JOBS = st.builds(
    Job, cluster=one("abci", "dgx-1v", "p3-16xlarge", "uniform", "tpu-v3-pod", "mn-1", "stampede2"),
    devices=one(1, 2, 3, 5, 8, 12, 16, 32), model=one("resnet18", "alexnet"), per_device_batch=one(1, 8, 32),
    precision=one("fp32", "fp16", "bf16", "mixed"), framework=one("", "mxnet"), accumulation=one(1, 3),
)  # fmt: skip
SCENARIOS = st.builds(
    Scenario, name=st.just("drawn"), job=JOBS, exchange=EXCHANGES,
    optimizer=st.builds(Optimizer, lars=st.booleans(), loss_scaling=st.booleans()),
    variation=st.builds(Variation, between_steps=one(None, 0.02)), draws=one(1, 20),
    input=st.none() | st.builds(Input, cores=one(1, 64), storage_bandwidth=one(1e6, 1e12), fused=st.booleans()),
    slow=st.builds(Slow, nodes=one({}, {"0": 1.0}, {"0": 5.0}), late=one({}, {"0": 0.1})),
    run=st.builds(OwnRun, epochs=one(1.5, 3), samples=one(1000, 100_000), last_step=one("pad", "ragged"),
                  evaluation_samples=one(None, 100)),
)  # fmt: skip


@settings(max_examples=20, deadline=None, derandomize=True)
@given(SCENARIOS)
def test_steps_and_runs_add_up(scenario: Scenario) -> None:
    model = StepModel(scenario)
    found = step_of(model)
    time = found.step_s.value
    assert sum(found.parts_s.values()) == pytest.approx(time, rel=CLOSE)
    assert min(found.parts_s.values()) >= -1e-12
    for interval in (found.step_s, found.samples_per_s, found.efficiency_device, found.efficiency_node):
        assert interval.low <= interval.value <= interval.high
    assert found.efficiency_device.value <= 1 + CLOSE
    if scenario.job.devices == 1:
        assert found.parts_s["exposed_exchange"] == 0
    run = run_of(model)
    assert run.time_s.low <= run.run.time_s <= run.time_s.high
    json.loads(step_trace(found.spans, found.buckets, ranks=found.devices, name=found.scenario))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(SCENARIOS)
def test_the_critical_path_has_no_gaps_and_no_link_carries_more_than_it_can(scenario: Scenario) -> None:
    model = StepModel(scenario)
    found = step_of(model)
    pieces = critical_path(found)
    assert pieces[0].start_s == 0
    assert pieces[-1].end_s == pytest.approx(found.step_s.value, rel=CLOSE)
    assert all(after.start_s == pytest.approx(before.end_s, rel=CLOSE) for before, after in pairwise(pieces))
    assert min(piece.time_s for piece in pieces) >= -1e-12
    link = bottleneck_link(model)
    assert link is None or 0 < link.load <= 1 + 1e-6


@pytest.mark.parametrize("group", [1, 2, 4])
def test_local_statistics_cost_nothing_and_shared_ones_something(group: int) -> None:
    job = Job("abci", 8, "resnet18", 32, "mixed")
    found = step_of(StepModel(Scenario("x", job, batch_norm=BatchNorm(group), draws=1)))
    assert (found.parts_s["batch_norm"] > 0) == (group > 1)
