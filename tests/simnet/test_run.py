import math
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnet.errors import InvalidInput
from simnet.metrics import scaling_efficiency
from simnet.models.registry import build
from simnet.recipe import IMAGENET_TRAIN, Evaluation, Phase, Recipe, constant, find
from simnet.run import Base, bill, efficiency, row, separate_exchange, time_to_train
from simnet.stragglers import Failures
from tests.simnet.pace import slowness


def plain(*phases, samples=1000, evaluation=None, max_batch=10**9):
    return Recipe("plain", "resnet50", phases, max_batch, "test", samples=samples, evaluation=evaluation)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 20))
def test_steps_are_images_over_batch_rounded_up(samples, batch, epochs):
    run = time_to_train(plain(Phase(epochs, batch), samples=samples), 1, lambda _: 1.0)
    assert run.steps == epochs * math.ceil(samples / batch)
    assert run.training_s == run.steps


def test_batch_size_control_takes_fewer_steps_in_its_second_phase():
    """Sony: 37 steps an epoch at 34,816, 19 at 69,632."""
    run = time_to_train(find("sony"), 2176, {16: 0.05, 32: 0.09})
    steps = [epoch.steps for epoch in run.schedule]
    assert steps == [37] * 30 + [19] * 60
    assert run.training_s == pytest.approx(30 * 37 * 0.05 + 60 * 19 * 0.09)


def test_growth_of_the_batch_in_the_middle_of_an_epoch_splits_it():
    run = time_to_train(plain(Phase(1.5, 100), Phase(0.5, 200)), 1, lambda samples: samples / 100)
    assert [(e.index, e.batch, e.steps) for e in run.schedule] == [(0, 100, 10), (1, 100, 5), (1, 200, 3)]
    assert run.epochs == 2


@pytest.mark.parametrize(
    ("last_step", "steps", "samples", "seconds"),
    [("pad", 4, 1200, 4 * 3.0), ("ragged", 4, 1000, 3 * 3.0 + 1.02), ("drop", 3, 900, 3 * 3.0)],
)
def test_the_ragged_last_step(last_step, steps, samples, seconds):
    run = time_to_train(plain(Phase(1, 300)), 3, lambda share: share / 100 * 3, last_step=last_step)
    assert (run.steps, run.schedule[0].samples) == (steps, samples)
    assert run.training_s == pytest.approx(seconds)


def test_evaluation_comes_every_few_epochs_and_at_the_end():
    recipe = plain(Phase(10, 100), evaluation=Evaluation(samples=401, every=4))  # 4 batches of 100 and a rest
    run = time_to_train(recipe, 10, {10: 1.0}, evaluation_step={10: 0.25})
    assert [e.index for e in run.schedule if e.evaluation_s] == [3, 7, 9]
    assert run.evaluation_s == pytest.approx(3 * 5 * 0.25)


def test_an_untimed_validation_step_is_a_third_of_a_training_step_and_says_so():
    run = time_to_train(plain(Phase(1, 100), evaluation=Evaluation(samples=100)), 10, {10: 0.3})
    assert run.evaluation_s == pytest.approx(0.1)
    assert any("third of the training step" in note for note in run.notes)


def test_parts_add_up():
    recipe = plain(Phase(2, 100), evaluation=Evaluation(samples=100))
    failing = Failures(mtbf=1000, num_nodes=4, checkpoint=1, restart=5)
    run = time_to_train(recipe, 10, {10: 1.0}, start_up=7, first_epoch_factor=1.5, failures=failing)
    assert run.schedule[0].training_s == pytest.approx(1.5 * run.schedule[1].training_s)
    parts = run.training_s + run.evaluation_s + run.start_up_s + run.failures_s
    assert run.time_s == pytest.approx(parts)
    assert run.failures_s > 0
    assert run.headline_samples_per_s < run.samples_per_s


def test_low_and_high_are_runs_of_their_own():
    run = time_to_train(plain(Phase(1, 100)), 10, {10: 1.0}, low={10: 0.9}, high={10: 1.2}, start_up=5)
    assert (run.low_s, run.time_s, run.high_s) == pytest.approx((14, 15, 17))
    certain = time_to_train(plain(Phase(1, 100)), 10, {10: 1.0})
    assert certain.low_s == certain.time_s == certain.high_s


def test_a_batch_beyond_the_published_one_is_unknown_to_converge():
    beyond = find("goyal").starting_at(65536)
    run = time_to_train(beyond, 256, lambda _: 0.1)
    assert row(run)["converges"] == "unknown"
    assert any("whether it converges is unknown" in note for note in run.notes)
    assert time_to_train(find("goyal"), 256, {32: 0.1}).converges == "yes"


def test_unequal_shares_are_said():
    run = time_to_train(plain(Phase(1, 100)), 3, {34: 1.0})
    assert any("unequal shares" in note for note in run.notes)


def test_one_device_against_itself_is_fully_efficient():
    run = time_to_train(plain(Phase(1, 100)), 1, {100: 1.0})
    assert efficiency(run, Base("one device", 1, run.samples_per_s)) == 1


def test_efficiency_against_a_node_counts_its_devices():
    run = time_to_train(plain(Phase(1, 320)), 32, {10: 0.1})
    assert efficiency(run, Base("one node of 4", 4, 450)) == pytest.approx((320 / 0.1 / 32) / (450 / 4))


def test_padded_epochs_keep_images_per_second_honest():
    """The speed counts what was processed; the headline counts the data set, so padding lowers it."""
    run = time_to_train(plain(Phase(1, 300)), 3, {100: 1.0})
    assert run.samples_per_s == 300
    assert run.headline_samples_per_s == 250


def test_the_money_of_the_published_comparison():
    """You et al.: 32 DGX-1 at 129,000 USD are 4.1 M, 512 Xeon Phi at 2,436 USD 1.2 M, to two digits."""
    dgx, phi = bill(3600, 32, node_price=129_000), bill(3600, 512, node_price=2436)
    assert dgx.purchase_usd == pytest.approx(4.1e6, rel=0.02)
    assert phi.purchase_usd == pytest.approx(1.2e6, rel=0.05)
    assert (dgx.rental_usd, dgx.energy_j) == (None, None)


def test_rent_and_energy_grow_with_time_and_nodes():
    cost = bill(1800, 10, node_price_per_hour=24.48, node_power=3200, pue=1.2)
    assert cost.rental_usd == pytest.approx(122.4)
    assert cost.energy_j == pytest.approx(10 * 3200 * 1800 * 1.2)


def test_two_weeks_on_one_device_follow_from_its_published_speed():
    """You et al.: 14 days on an M40; a published MXNet speed of that device is 90.7 images/s."""
    run = time_to_train(replace(find("he"), evaluation=None), 1, {256: 256 / 90.7})
    assert run.time_s == pytest.approx(14 * 86400, rel=0.06)


def test_ten_gigabit_between_two_nodes_lies_between_no_and_full_overlap():
    """Public report: ResNet-101, one device 172 images/s, two 291; batch 64; 178 MB over 10 Gbit/s."""
    compute, wire = 64 / 172, build("resnet101").gradient_bytes() / 1.25e9
    assert wire == pytest.approx(0.1426, rel=1e-3)
    recipe = plain(Phase(1, 128), samples=128_000)
    none, full = (time_to_train(recipe, 2, {64: step}) for step in (compute + wire, max(compute, wire)))
    assert none.samples_per_s == pytest.approx(249, abs=0.5)
    assert full.samples_per_s == pytest.approx(344, abs=0.5)
    assert none.samples_per_s < 291 < full.samples_per_s
    assert scaling_efficiency(291, 2, 172) == pytest.approx(0.846, abs=5e-4)
    mean_wire_rate = 8 * wire * 1.25e9 / (128 / 291)
    assert mean_wire_rate == pytest.approx(3.24e9, rel=2e-3)


def test_half_precision_gradients_separate_compute_from_exchange():
    """Public report: 17 h become 11 h with fp16 gradients; so 12 h of exchange, and four times fewer bytes give 8 h."""
    compute, exchange = separate_exchange(17 * 3600, 11 * 3600, 2)
    assert (compute, exchange) == pytest.approx((5 * 3600, 12 * 3600))
    assert compute + exchange / 4 == pytest.approx(8 * 3600)


def test_no_gain_from_compression_means_no_exchange():
    assert separate_exchange(100, 100, 2) == (100, 0)


def test_ninety_epochs_with_a_batch_schedule_take_well_under_two_seconds():
    begin = time.process_time()
    time_to_train(find("sony"), 2176, lambda samples: 0.003 * samples, last_step="ragged", low=lambda s: 0.002 * s)
    assert time.process_time() - begin < 2 * slowness()


def test_a_published_data_set_and_epochs_give_the_published_steps():
    run = time_to_train(find("goyal"), 256, {32: 0.2})
    assert run.steps == 90 * 157
    assert IMAGENET_TRAIN / 8192 < 157


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: time_to_train(plain(Phase(1, 8)), 16, {1: 1}), "a batch of 8 feeds 1 to 8 ranks, got 16"),
        (lambda: time_to_train(plain(Phase(1, 8)), 8, {2: 1}), "no time for 1 samples per rank; it has 2"),
        (lambda: time_to_train(plain(Phase(1, 8)), 8, {1: 0}), "must be above 0 s"),
        (lambda: time_to_train(plain(Phase(1, 8)), 8, {1: float("nan")}), "must be above 0 s"),
        (lambda: time_to_train(plain(Phase(1, 8)), 8, {1: 1}, last_step="round"), "last_step must be one of pad"),
        (lambda: time_to_train(plain(Phase(1, 8)), 8, {1: 1}, start_up=-1), "start_up must be 0 s or more"),
        (lambda: time_to_train(plain(Phase(1, 8)), 8, {1: 1}, first_epoch_factor=0.5), "first_epoch_factor 1 or more"),
        (lambda: time_to_train(plain(Phase(1, 2000)), 8, {250: 1}, last_step="drop"), "dropping the last step"),
        (lambda: time_to_train(plain(Phase(1, 8)), 8, {1: 1}, evaluation_batch=0), "evaluation_batch must be 1"),
        (lambda: bill(1, 1, node_power=300), "energy needs the site's PUE"),
        (lambda: bill(1, 0), "1 or more nodes"),
        (lambda: separate_exchange(10, 20, 2), "no exchange fits"),
        (lambda: separate_exchange(10, 5, 1), "factor must be above 1"),
    ],
)
def test_requests_that_mean_nothing_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_a_constant_recipe_is_one_phase():
    assert constant(90, 256) == (Phase(90, 256),)
