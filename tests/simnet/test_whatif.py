"""Changes in words, what they do, and what is said about a step."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from simnet.changes import FORMS, parse_change
from simnet.cli.app import command_line
from simnet.errors import InvalidInput
from simnet.explain import bottleneck, critical_path
from simnet.exporters.step_trace import step_trace
from simnet.intervals import Interval
from simnet.prediction import predict_step
from simnet.profiles import write_profile
from simnet.results import Fitted, Profile, Segment
from simnet.scenario import Exchange, Input, Job, Scenario, load_scenario
from simnet.step_model import StepModel
from simnet.whatif import best_changes, whatif
from tests.simnet.pace import slowness

SMALL = Scenario("probe", Job("abci", 16, "resnet50", 32, "mixed", "mxnet"), Exchange(), draws=20)
MEASURED = Profile("measured", (Segment(None, Fitted(1e-6, 1e-6, 1e-6), Fitted(1e10, 1e10, 1e10)),))
FED = replace(SMALL, input=Input(20, 1e8))
SCENARIOS = command_line("simnet.cli", summary="")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.example)
def test_every_example_in_the_refusal_can_be_asked(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_profile(MEASURED, tmp_path / "measured.toml")
    changed = parse_change(form.example).apply(FED)
    assert changed != FED or form.example in (
        "overlap on",
        "buckets ddp",
        "lars off",
        "loss scaling off",
        "precision mixed",
        "slow parts repaired",
    )


@pytest.mark.parametrize("text", ["faster", "inter-node bandwidth 2", "gradients fp8", "lanes many", "bucket big", ""])
def test_an_unknown_change_is_refused_with_examples(text):
    with pytest.raises(InvalidInput, match="cannot read the change"):
        parse_change(text)


def test_a_bucket_without_a_unit_is_refused():
    with pytest.raises(InvalidInput, match="bucket needs a unit"):
        parse_change("bucket 100")


def test_changes_stand_alone_and_together():
    texts = ["inter-node bandwidth x2", "gradients fp16", "spread of ranks 0 %"]
    rows = whatif(SMALL, [parse_change(text) for text in texts])
    assert [row.change for row in rows] == ["as it is", *texts, "all together"]
    assert rows[0].gain == Interval(0, 0, 0)
    assert rows[-1].gain.value >= max(row.gain.value for row in rows[1:3])


def test_every_gain_has_an_interval_that_holds_it():
    texts = ["inter-node bandwidth x2", "per-device batch 64", "overlap off", "devices 64", "lanes 2"]
    for row in whatif(replace(SMALL, draws=200), [parse_change(text) for text in texts])[1:]:
        assert row.gain.low <= row.gain.value <= row.gain.high
        assert row.gain.high > row.gain.low
        assert row.row()["gain_low"] == row.gain.low


def test_what_both_steps_do_not_know_cancels_out_of_the_gain():
    scenario = replace(load_scenario("ying-1024"), draws=400)
    base, faster = whatif(scenario, [parse_change("interference 5 %")])
    assert base.step_s.high / base.step_s.low > 2
    assert faster.gain.high - faster.gain.low < 0.1


def test_a_gain_equals_that_of_two_predictions_on_the_same_draws():
    scenario = replace(SMALL, draws=100)
    changed = scenario.with_job(per_device_batch=64)
    ratio = 2 * predict_step(scenario).draws_s / predict_step(changed).draws_s - 1
    found = whatif(scenario, [parse_change("per-device batch 64")])[1].gain
    assert (found.low, found.high) == pytest.approx(np.quantile(ratio, [0.1, 0.9]))


def test_constants_from_other_rows_do_not_cancel():
    wide = replace(SMALL, draws=400)
    other = whatif(wide, [parse_change("precision fp32")])[1].gain
    cancelled = predict_step(wide).draws_s / predict_step(wide.with_job(precision="fp32")).draws_s
    low, high = np.quantile(cancelled, [0.1, 0.9])
    assert other.high - other.low > 1.3 * (high - low)
    assert whatif(wide, [parse_change("precision fp16")])[1].gain == Interval(0, 0, 0)


def test_a_change_that_cannot_be_had_is_named():
    with pytest.raises(InvalidInput, match='"per-device batch 4096" cannot be had: per_device_batch 4096 of resnet50'):
        whatif(SMALL, [parse_change("overlap off"), parse_change("per-device batch 4096")])


def test_repeated_factors_multiply():
    twice = parse_change("inter-node bandwidth x2").apply(parse_change("inter-node bandwidth x3").apply(SMALL))
    assert twice.bandwidth == {"inter": 6.0}


def test_twice_the_batch_makes_the_step_longer_and_the_speed_higher():
    base, changed = whatif(SMALL, [parse_change("per-device batch 64")], together=False)
    assert changed.step_s.value > base.step_s.value
    assert changed.gain.value > 0


def test_a_starved_step_is_told_to_feed_its_devices():
    best = best_changes(FED)
    assert best[0].change in ("input cached 100 %", "storage bandwidth x2")
    assert best[0].gain.value > 0.1


def test_an_input_that_is_not_described_cannot_be_changed():
    with pytest.raises(InvalidInput, match="has no table"):
        parse_change("host cores 64").apply(SMALL)


def test_best_changes_help_and_come_best_first():
    found = best_changes(SMALL)
    assert len(found) == 3
    gains = [o.gain.value for o in found]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0
    assert all(o.gain.low < o.gain.high for o in found)


def test_the_critical_path_fills_the_step_without_gaps():
    for scenario in (SMALL, SMALL.with_exchange(overlap=False), SMALL.with_job(devices=1)):
        found = predict_step(scenario)
        pieces = critical_path(found)
        assert pieces[0].start_s == 0
        assert pieces[-1].end_s == pytest.approx(found.step_s.value)
        for before, after in pairwise(pieces):
            assert after.start_s == pytest.approx(before.end_s, abs=1e-9)


def test_the_bottleneck_is_the_link_whose_doubling_helps_most():
    first, second = bottleneck(StepModel(load_scenario("goyal-256")))[:2]
    assert (first.kind, first.what) == ("ethernet-50g", "bandwidth")
    assert 0.5 > first.saved > second.saved > 0
    assert bottleneck(StepModel(SMALL.with_job(devices=1))) == []


def test_a_trace_names_collectives_as_torch_does_and_covers_the_step():
    found = predict_step(SMALL.with_exchange(gradient_dtype="float16"))
    trace = json.loads(step_trace(found.spans, found.buckets, ranks=16, name="probe"))
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    messages = [e for e in events if "Collective name" in e["args"]]
    assert sum(e["args"]["In msg nelems"] for e in messages) == 25_557_032
    assert {(e["args"]["Collective name"], e["args"]["dtype"], e["args"]["Group size"]) for e in messages} == {
        ("allreduce", "Half", 16)
    }
    assert max(e["ts"] + e["dur"] for e in events) == pytest.approx(found.step_s.value * 1e6, abs=0.01)


def test_the_command_lines_answer_in_rows(tmp_path):
    step = CliRunner().invoke(
        SCENARIOS,
        [
            "step",
            "--scenario",
            "goyal-256",
            "--json",
            "--draws",
            "20",
            "--no-advice",
            "--trace",
            str(tmp_path / "t.json"),
        ],
    )
    row = json.loads(step.stdout)
    assert row["step_s_low"] <= row["step_s"] <= row["step_s_high"]
    assert (tmp_path / "t.json").exists()
    train = json.loads(CliRunner().invoke(SCENARIOS, ["train", "--scenario", "you-m40", "--json"]).stdout)
    assert train["low_s"] < train["time_s"] < train["high_s"]
    table = CliRunner().invoke(SCENARIOS, ["whatif", "--scenario", "goyal-256", "gradients fp16", "lanes 4"])
    assert "all together" in table.stdout


@pytest.mark.parametrize(
    "arguments",
    [["step", "--scenario", "nowhere"], ["step", "--scenario", "goyal-256", "--devices", "0"],
     ["train", "--scenario", "goyal-256", "--price-per-hour", "12"], ["whatif", "--scenario", "goyal-256", "better"]],
)  # fmt: skip
def test_wrong_requests_are_refused(arguments):
    answer = CliRunner().invoke(SCENARIOS, arguments)
    assert isinstance(answer.exception, InvalidInput)


@pytest.mark.slow
def test_twenty_changes_take_under_ten_seconds():
    apart = ("cluster", "batch-norm", "algorithm", "devices", "profile")
    texts = [form.example for form in FORMS if not form.example.startswith(apart)]
    texts += ["algorithm ring", "bucket 4 MB", "compression 2", "lanes 3", "lanes 4"]
    scenario = replace(load_scenario("goyal-352"), input=Input(64, 1e9))
    begin = time.process_time()
    assert len(whatif(scenario, [parse_change(text) for text in texts[:20]], together=False)) == 21
    assert time.process_time() - begin < 10 * slowness()
