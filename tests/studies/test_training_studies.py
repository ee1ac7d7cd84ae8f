from __future__ import annotations

import pytest

from studies import batch_norm_groups, input_pipeline, large_batch
from studies.registry import find


def test_every_remedy_keeps_those_before_it() -> None:
    jobs = [large_batch.job_of(name, 512, large_batch.FULL, seed=0) for name in large_batch.REMEDIES]
    assert [job.rate.warm_up_epochs > 0 for job in jobs] == [False, True, True, True, True]
    assert [job.optimizer for job in jobs] == ["sgd", "sgd", "lars", "lars", "lars"]
    assert [len(job.batch.phases) for job in jobs] == [1, 1, 1, 2, 2]
    assert [job.label_smoothing for job in jobs] == [0.0, 0.0, 0.0, 0.0, 0.1]
    assert jobs[3].batch.per_rank(0) * 2 == jobs[3].batch.per_rank(11) == 512


def test_findings_say_what_does_not_hold() -> None:
    extent = large_batch.QUICK
    rows = [
        {"quantity": f"validation accuracy, {remedy}", "batch": batch, "accuracy": accuracy}
        for remedy, batch, accuracy in (("sgd", 32, 0.9), ("sgd", 256, 0.7), ("lars", 32, 0.9), ("lars", 256, 0.6))
    ]
    found = large_batch.findings(rows, extent)
    assert [row["holds_here"] for row in found] == [True, False, False]
    assert found[0]["points lost"] == "+20.0"


def test_stages_alone_predict_the_whole_pipeline_up_to_the_cores() -> None:
    times = {"decode": 0.003, "resize": 0.001}
    assert input_pipeline.predicted_rates(times, 1, cores=2) == pytest.approx(250)
    assert input_pipeline.predicted_rates(times, 4, cores=2) == pytest.approx(500)


def test_groups_of_one_exchange_nothing() -> None:
    answer = {"accuracy": 0.5, "channels": 10, "layers": 3, "step_s": 0.1}
    alone, together = (batch_norm_groups._row(g, 4, [answer], batch_norm_groups.QUICK) for g in (1, 4))
    assert (alone["statistics_bytes"], alone["exchanges_per_step"]) == (0, 0)
    assert (together["statistics_bytes"], together["exchanges_per_step"]) == (200, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["large-batch", "batch-norm-groups", "input-pipeline"])
def test_the_study_runs_and_its_claims_hold(name: str) -> None:
    result = find(name).run(quick=True)
    assert result.rows
    failed = [f"{claim.text}: {claim.detail}" for claim in result.claims if not claim.holds]
    assert not failed
