"""The eighteen rows: their ids, their honesty, their independence of what they are compared with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simnet.scenario import load_scenario
from studies import facts, seeds

IDS = [
    "goyal-256-efficiency",
    "akiba-1024-efficiency",
    "jia-2048-efficiency",
    "sony-1088-efficiency",
    "he-8-time",
    "goyal-256-time",
    "smith-tpu-time",
    "akiba-1024-time",
    "jia-2048-time",
    "sony-2176-time",
    "ying-1024-time",
    "ying-1024-throughput",
    "you-m40-time",
    "you-knl512-time",
    "you-knl512-alexnet-time",
    "you-knl512-cost",
    "goyal-dgx1-cost",
    "you-five-seconds",
]
KEYS = [
    "id",
    "system",
    "quantity",
    "unit",
    "published",
    "predicted",
    "low",
    "high",
    "error",
    "basis",
    "inside",
    "reason",
    "kind",
]


@pytest.fixture(scope="module")
def few():
    """The rows that cost little."""
    cheap = ("you-m40-time", "goyal-256-time", "ying-1024-throughput")
    runs = [seeds._figure(row) for row in seeds.RUNS if row.id in cheap]
    return [seeds._efficiency(seeds.EFFICIENCIES[0]), *runs, *seeds._arithmetic()]


def test_ids_are_those_asked_for():
    found = [r.id for r in (*seeds.EFFICIENCIES, *seeds.RUNS)] + [r["id"] for r in seeds._arithmetic()]
    assert sorted(found) == sorted(IDS)


def test_rows_have_the_keys_of_every_study_and_a_reason_where_they_miss(few):
    for row in few:
        assert list(row)[: len(KEYS)] == KEYS
        assert row["low"] <= row["predicted"] <= row["high"]
        assert row["inside"] or row["reason"] not in ("", "unexplained")
        assert row["error"] == row["predicted"] / row["published"] - 1


def test_prices_and_five_seconds_are_arithmetic(few):
    found = {row["id"]: (row["predicted"], row["kind"]) for row in few}
    assert found["you-knl512-cost"] == (512 * 2436, "arithmetic")
    assert found["goyal-dgx1-cost"] == (32 * 129000, "arithmetic")
    assert found["you-five-seconds"] == (5.0, "arithmetic")


def test_changing_or_removing_validate_rows_changes_no_prediction(few, monkeypatch):
    others = tuple(
        facts.Fact({**f.values, "value": f.value * 3})
        if f.kind == "validate" and isinstance(f.value, float | int)
        else f
        for f in facts.facts()
    )
    monkeypatch.setattr(facts, "facts", lambda: others)
    seeds._run.cache_clear()
    seeds._model.cache_clear()
    again = [seeds._efficiency(seeds.EFFICIENCIES[0])]
    again += [seeds._figure(row) for row in seeds.RUNS if row.id in {r["id"] for r in few}]
    for before, after in zip(few, again, strict=False):
        assert after["published"] == pytest.approx(3 * before["published"])
        assert [after[k] for k in ("predicted", "low", "high")] == [before[k] for k in ("predicted", "low", "high")]


def test_no_scenario_names_a_stack_fitted_to_its_own_published_row():
    from simnet.compute import load_profile

    used = {point.partition("@")[0] for fit in load_profile().fits for point in fit.points}
    assert not used & {row.fact for row in (*seeds.EFFICIENCIES, *seeds.RUNS)}
    assert {facts.find(name).kind for name in used} == {"calibrate"}


@pytest.mark.slow
def test_all_claims_hold_and_the_report_has_both_pictures():
    found = seeds.run(quick=True)
    assert [row["id"] for row in found.rows] == IDS
    assert {claim.text: claim.holds for claim in found.claims} == {claim.text: True for claim in found.claims}
    assert [picture.name for picture in found.pictures] == ["rows", "efficiency"]


def test_a_scenario_changed_in_one_line_predicts_something_else():
    scenario = load_scenario("goyal-256")
    assert replace(scenario, draws=10).with_job(per_device_batch=16).global_batch == scenario.global_batch // 2
