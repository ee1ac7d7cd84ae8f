"""Runs of a scenario's own: its epochs, batches and data in place of a recipe's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simnet.errors import InvalidInput
from simnet.prediction import predict_run, recipe_of
from simnet.recipe import Evaluation, OwnRun, Phase
from simnet.scenario import Job, Scenario, load_scenario, parse_scenario

JOB = {"cluster": "dgx-1v", "devices": 8, "model": "bert_large", "per_device_batch": 4, "precision": "mixed"}
BERT = {"name": "ours", "draws": 20, "job": JOB}


def run_of(table, job=JOB):
    return predict_run(parse_scenario({**BERT, "job": job, "run": table}, where="ours")).run


def test_a_model_of_sequences_needs_to_say_what_it_is_trained_on():
    with pytest.raises(InvalidInput, match=r"trains bert_large on sequences and names no recipe; say what an epoch is"):
        predict_run(parse_scenario(BERT, where="ours"))


def test_epochs_and_samples_make_a_run():
    found = run_of({"epochs": 2.5, "samples": 1000})
    assert found.steps == 32 + 32 + 16
    assert found.evaluation_s == 0
    assert found.notes == ("no recipe named: 2.5 epochs of a data set of its own: whether a batch of 32 converges is "
                           "unknown",)  # fmt: skip


def test_a_batch_schedule_of_ones_own_changes_the_batch_where_it_says():
    found = run_of({"samples": 640, "batches": [{"epochs": 1, "batch": 32}, {"epochs": 2, "batch": 64}]})
    assert [(epoch.batch, epoch.steps) for epoch in found.schedule] == [(32, 20), (64, 10), (64, 10)]
    assert found.converges == "unknown"


def test_a_batch_known_to_train_converges_and_one_beyond_does_not():
    known = {"epochs": 1, "samples": 640, "trained_batch": 32}
    assert run_of(known).converges == "yes"
    assert run_of(known, {**JOB, "devices": 4}).converges == "yes"
    assert run_of({**known, "trained_batch": 31}).converges == "unknown"


def test_the_last_step_is_padded_ragged_or_dropped():
    table = {"epochs": 1, "samples": 100, "start_up": "0 s"}
    padded, ragged, dropped = (run_of({**table, "last_step": how}) for how in ("pad", "ragged", "drop"))
    assert (padded.steps, ragged.steps, dropped.steps) == (4, 4, 3)
    assert padded.training_s > ragged.training_s > dropped.training_s
    assert dropped.training_s == pytest.approx(padded.training_s * 3 / 4)


def test_start_up_first_epoch_validation_and_warm_up_are_as_said():
    plain = run_of({"epochs": 4, "samples": 640, "start_up": "0 s"})
    found = run_of({"epochs": 4, "samples": 640, "start_up": "2 min", "first_epoch_factor": 3.0,
                    "evaluation_samples": 320, "evaluation_every": 2, "warm_up_epochs": 1})  # fmt: skip
    assert found.start_up_s == 120
    assert found.training_s == pytest.approx(plain.training_s * 6 / 4)
    assert [epoch.evaluation_s > 0 for epoch in found.schedule] == [False, True, False, True]
    assert found.warm_up_epochs == 1


def test_a_recipe_keeps_what_the_scenario_does_not_say():
    goyal = load_scenario("goyal-256")
    found = recipe_of(replace(goyal, run=OwnRun(epochs=50)))
    assert found.phases == (Phase(50, 8192),)
    assert (found.warm_up_epochs, found.max_batch, found.evaluation) == (5, 8192, Evaluation())
    with pytest.raises(InvalidInput, match=r"recipe smith has 2 phases; give run\.batches"):
        recipe_of(replace(load_scenario("smith-tpu"), run=OwnRun(epochs=50)))


def test_what_a_recipe_found_of_one_model_says_nothing_of_another():
    other = Scenario("x", Job("dgx-1v", 64, "resnet101", 128, "mixed", recipe="goyal"))
    found = predict_run(replace(other, draws=20)).run
    assert found.converges == "unknown"
    assert "recipe goyal is for resnet50, not resnet101: whether a batch of 8192 converges is unknown" in found.notes
    assert predict_run(replace(other.with_job(model="resnet50_v1"), draws=20)).run.converges == "yes"


def test_images_without_a_recipe_are_imagenet_for_as_many_epochs_as_said():
    plain = Scenario("x", Job("dgx-1v", 8, "resnet18", 32), run=OwnRun(epochs=2), draws=1)
    found = predict_run(plain).run
    assert found.steps == 2 * 5005
    assert found.notes[-1].startswith("no recipe named: 2 epochs of ImageNet: ")
