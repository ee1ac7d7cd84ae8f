"""From a scenario to a step and a run: laws, intervals, and what they are made of."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from simnet.algorithms.registry import find
from simnet.buckets import lazy_fusion, per_layer
from simnet.catalog import load_cluster
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import InvalidInput
from simnet.exchange import price, scaled
from simnet.explain import approximation
from simnet.models.registry import build
from simnet.models.table import dumps
from simnet.prediction import efficiencies, predict_run, predict_step, recipe_of, run_of, with_devices
from simnet.scenario import BatchNorm, Exchange, Input, Job, Optimizer, Scenario, Variation, load_scenario
from simnet.step_model import StepModel
from simnet.stragglers import Failures
from simnet.workload import Gradient
from tests.simnet.pace import slowness

SMALL = Scenario(
    "probe",
    Job("abci", 16, "resnet50", 32, "mixed", "mxnet-nvidia-2020"),
    Exchange(gradient_dtype="float16"),
    draws=200,
)


def test_the_parts_of_the_central_step_add_up():
    found = predict_step(SMALL)
    assert sum(found.parts_s.values()) == pytest.approx(found.step_s.value)
    assert sum(found.exposed_s) == pytest.approx(found.parts_s["exposed_exchange"])


def test_one_device_is_fully_efficient_and_waits_for_nobody():
    found = predict_step(SMALL.with_job(devices=1))
    assert (found.efficiency_device.value, found.efficiency_device.low, found.efficiency_device.high) == (1, 1, 1)
    assert found.parts_s["exposed_exchange"] == found.parts_s["waiting"] == 0
    assert found.buckets == ()


def test_a_single_device_reproduces_the_row_its_stack_was_fitted_to():
    # nvdle.mxnet.DGX-1.mixed.1: 1,376 images/s at batch 192
    found = predict_step(SMALL.with_job(devices=1, per_device_batch=192, cluster="dgx-1v"))
    assert found.samples_per_s.value == pytest.approx(1376, rel=0.001)


@pytest.mark.parametrize("what", ["bandwidth", "latency"])
def test_a_better_network_is_never_slower(what):
    better = replace(SMALL, **{what: {"inter": 4.0 if what == "bandwidth" else 0.25, "intra": 1.0}})
    assert predict_step(better).step_s.value <= predict_step(SMALL).step_s.value


def test_fewer_bytes_in_the_same_buckets_are_never_slower():
    # with other buckets they can be: half the bytes fill fewer buckets, and the last one waits longer
    wide = SMALL.with_exchange(gradient_dtype="float32", buckets="per_layer")
    narrow = SMALL.with_exchange(buckets="per_layer")
    assert predict_step(narrow).step_s.value <= predict_step(wide).step_s.value
    assert predict_step(wide.with_exchange(compression=4.0)).step_s.value <= predict_step(wide).step_s.value


def test_efficiency_against_a_node_is_above_that_against_a_device():
    found = predict_step(SMALL)
    assert found.efficiency_device.value < found.efficiency_node.value < 1
    assert found.efficiency_device.value < found.efficiency_any.value < found.efficiency_node.value


def test_intervals_hold_their_value_and_the_same_seed_gives_them_again():
    first, second = predict_step(SMALL), predict_step(SMALL)
    assert first.step_s == second.step_s
    for interval in (first.step_s, first.samples_per_s, first.efficiency_node):
        assert interval.low <= interval.value <= interval.high
    assert predict_step(replace(SMALL, seed=1)).step_s != first.step_s


def test_a_device_without_a_row_has_a_wider_interval_and_says_so():
    known = predict_step(load_scenario("goyal-256"))
    unknown = predict_step(load_scenario("ying-1024"))
    assert known.match == "stack"
    assert unknown.match == "class"
    assert "no single-device row of tpu-v3" in unknown.basis
    assert unknown.step_s.high / unknown.step_s.low > 1.5 * known.step_s.high / known.step_s.low


def test_ranks_that_differ_more_wait_more():
    calm, wild = (predict_step(replace(SMALL, variation=Variation(between_ranks=s))) for s in (0.0, 0.05))
    assert calm.parts_s["waiting"] < wild.parts_s["waiting"]


def test_lars_and_loss_scaling_cost_time_and_can_be_switched_off():
    plain = predict_step(SMALL).parts_s["update"]
    lars = predict_step(replace(SMALL, optimizer=Optimizer(lars=True))).parts_s["update"]
    both = predict_step(replace(SMALL, optimizer=Optimizer(lars=True, loss_scaling=True))).parts_s["update"]
    assert plain < lars < both


def test_distributed_batch_norm_costs_an_exchange_per_layer():
    normed = predict_step(replace(SMALL, batch_norm=BatchNorm(group=4)))
    assert normed.parts_s["batch_norm"] > 0
    assert predict_step(SMALL).parts_s["batch_norm"] == 0


def test_fusion_thresholds_inside_one_node_change_nothing_to_speak_of():
    # published for 0, 2, 4, 8 MiB: 4449.5, 4460.2, 4372.0, 4438.3 images/s, no effect
    job = Job("dgx-1v", 8, "resnet50_v1", 32, "mixed", "mxnet")
    exchanges = [
        Exchange(buckets="horovod", bucket_options={"threshold": t * 2**20, "cycle": 0.001}) for t in (0, 2, 4, 8)
    ]
    rates = [predict_step(Scenario("t", job, e, draws=50)).samples_per_s.value for e in exchanges]  # fmt: skip
    assert max(rates) / min(rates) < 1.02


def test_sixteen_bit_gradients_help_nothing_on_one_device():
    alone = SMALL.with_job(devices=1)
    wide = alone.with_exchange(gradient_dtype="float32")
    assert predict_step(wide).step_s.value == predict_step(alone).step_s.value


def test_a_batch_that_does_not_fit_and_too_many_devices_are_refused():
    with pytest.raises(InvalidInput, match=r"needs .* GB and v100-sxm2 has"):
        predict_step(SMALL.with_job(per_device_batch=4096))
    with pytest.raises(InvalidInput, match="asks for 99999 devices and abci has 4352"):
        predict_step(SMALL.with_job(devices=99999))


@pytest.mark.parametrize(("key", "factor"), [("network.nothing", 2.0), ("inter", 0.0), ("node.pair", -1.0)])
def test_scaling_what_is_not_there_is_refused(key, factor):
    with pytest.raises(InvalidInput, match="cannot scale"):
        scaled(load_cluster("abci"), {key: factor}, {})


def test_interpolated_prices_equal_priced_ones():
    cluster, cost = load_cluster("abci"), AlphaBeta()
    sizes = [4e6, 6e6, 9e6, 1.1e7, 2.4e7]
    coarse = price(cluster, "ring", {}, 16, [*sizes, 3e7, 3.5e7, 4e7, 4.5e7, 5e7, 5.1e7], itemsize=4, cost=cost).at(
        sizes
    )
    for size, found in zip(sizes, coarse.time, strict=True):
        alone = price(cluster, "ring", {}, 16, [size], itemsize=4, cost=cost).at([size])
        assert found == pytest.approx(alone.time[0], rel=1e-3)


def test_draws_follow_the_far_end_of_each_input():
    prices = price(load_cluster("abci"), "ring", {}, 16, [5e7], itemsize=4, cost=AlphaBeta())
    slow = scaled(load_cluster("abci"), {"network.port": 10.24 / 12.5}, {})
    entry = next(i for i, given in enumerate(prices.inputs) if given.name == "bandwidth of ib-edr")
    steps = np.log(prices.inputs[entry].far) / prices.inputs[entry].sd
    expected = price(slow, "ring", {}, 16, [5e7], itemsize=4, cost=AlphaBeta()).time[-1]
    whole = prices.latency_sd[entry, -1] + prices.transfer_sd[entry, -1]
    assert prices.time[-1] + steps * whole == pytest.approx(expected, rel=0.02)


def test_a_run_holds_every_batch_of_its_schedule_and_start_up():
    found = predict_run(load_scenario("goyal-256"))
    assert found.run.steps == 90 * 157
    assert found.run.training_s == pytest.approx(90 * 157 * found.step.step_s.value)
    assert found.time_s.low < found.run.time_s < found.time_s.high
    assert found.run.start_up_s > 0


def test_without_a_recipe_a_run_is_ninety_epochs_and_its_convergence_unknown():
    recipe = recipe_of(SMALL)
    assert (recipe.epochs, recipe.phases[0].batch, recipe.converges) == (90, 512, "unknown")
    note = "no recipe named: 90 epochs of ImageNet: whether a batch of 512 converges is unknown"
    assert note in predict_run(SMALL).run.notes


@pytest.mark.slow
def test_a_thousand_draws_of_1088_devices_take_under_five_seconds():
    predict_step(SMALL)
    begin = time.process_time()
    found = predict_step(load_scenario("sony-1088"))
    assert len(found.draws_s) == 1000
    assert time.process_time() - begin < 5 * slowness()


def test_curves_need_no_grid_of_their_own():
    model = StepModel(replace(load_scenario("sony-1088"), draws=50))
    values = [efficiencies(model, n)[0].value for n in (4, 16, 64)]
    assert values == sorted(values, reverse=True)


def test_noise_over_steps_lengthens_the_step_and_spreads_it():
    noisy = predict_step(replace(SMALL, variation=Variation(between_ranks=0.0, between_steps=0.05)))
    still = predict_step(replace(SMALL, variation=Variation(between_ranks=0.0)))
    assert still.p50_s == still.p95_s == still.step_s.value
    assert still.step_s.value < noisy.p50_s < noisy.step_s.value < noisy.p95_s


STARVED = Input(cores=8, storage_bandwidth=1e8)


def test_a_starved_scenario_waits_and_names_the_stage():
    starved = predict_step(replace(SMALL, input=STARVED))
    assert starved.slow_stage == "read"
    assert starved.parts_s["input_stall"] > 0
    assert starved.step_s.low < starved.step_s.value < starved.step_s.high
    assert starved.step_s.value > predict_step(SMALL).step_s.value
    assert sum(starved.parts_s.values()) == pytest.approx(starved.step_s.value)


def test_a_cached_fused_input_with_many_cores_never_waits():
    rich = Input(cores=400, storage_bandwidth=1e12, cached=1.0, fused=True)
    found = predict_step(replace(SMALL, input=rich))
    assert found.slow_stage == "device"
    assert found.step_s.value == predict_step(SMALL).step_s.value


def test_sequences_have_no_image_pipeline():
    job = SMALL.with_job(model="bert_base")
    with pytest.raises(InvalidInput, match="bert_base takes no images"):
        predict_step(replace(job, input=STARVED))


def test_a_model_file_of_your_own_can_be_trained(tmp_path):
    (tmp_path / "mine.toml").write_text(dumps(build("resnet18")))
    path = str(tmp_path / "mine.toml")
    found = predict_step(SMALL.with_job(model=path))
    assert found.step_s.value == predict_step(SMALL.with_job(model="resnet18")).step_s.value


def test_the_first_epoch_of_a_cached_data_set_is_slower():
    cached = predict_run(replace(SMALL, input=Input(cores=400, storage_bandwidth=1e8, cached=1.0))).run
    never = predict_run(SMALL).run
    assert cached.schedule[0].training_s > 2 * cached.schedule[1].training_s
    assert cached.schedule[1].training_s == pytest.approx(never.schedule[1].training_s)


def test_failing_nodes_make_a_run_longer_and_its_interval_with_it():
    model = StepModel(replace(SMALL, draws=50))
    sound = run_of(model)
    failing = run_of(model, failures=Failures(mtbf=1e6, num_nodes=4, checkpoint=30, restart=300))
    assert failing.run.failures_s > 0
    assert failing.time_s.low > sound.time_s.low
    assert failing.time_s.high / sound.time_s.high == pytest.approx(failing.run.time_s / sound.run.time_s)


def test_contention_grows_with_neighbours_and_ends_at_what_was_measured():
    calm = replace(SMALL, variation=Variation(node_contention=0.0, network_contention=0.0, between_ranks=0.0))
    node = replace(SMALL, variation=Variation(node_contention=0.07, network_contention=0.0, between_ranks=0.0))
    added = [
        predict_step(node.with_job(devices=n)).step_s.value / predict_step(calm.with_job(devices=n)).step_s.value - 1
        for n in (1, 2, 4)
    ]
    assert added[0] == 0
    assert 0 < added[1] < added[2] < 0.07


def test_roots_that_take_turns_hide_each_other():
    cluster = load_cluster("aws-p2")
    one = price(cluster, "star", {}, 8, [1e8], itemsize=4, cost=AlphaBeta(), uncertain=False)
    many = one.spread(8)
    assert many.time == pytest.approx(one.time)
    assert many.transfer[-1] == pytest.approx(one.transfer[-1] / 8)


def test_tiles_of_a_torus_are_as_near_as_their_links():
    grid = replace(SMALL, job=replace(SMALL.job, cluster="tpu-v3-pod", devices=1024, precision="bf16"), draws=1)
    tile, row = (
        predict_step(replace(grid, batch_norm=BatchNorm(16, (32, 32), width))).parts_s["batch_norm"]
        for width in (4, 16)
    )
    assert BatchNorm(4, (32, 32), 2).members == (0, 1, 33, 32)
    assert tile > 0
    assert row > 0


@pytest.mark.parametrize(("grid", "tile"), [((4, 5), 2), ((4, 4), 3), ((4, 4), 0), ((2, 8), 4)])
def test_tiles_that_do_not_fit_the_grid_are_refused(grid, tile):
    with pytest.raises(InvalidInput, match=r"batch_norm\.(grid|tile)"):
        replace(SMALL, batch_norm=BatchNorm(4, grid, tile))


def test_the_static_share_is_held_against_simulation():
    exact, shared = (StepModel(with_devices(load_scenario("sony-1088"), n)) for n in (16, 64))
    assert exact.prices(16).exact
    assert not shared.prices(64).exact
    assert abs(approximation(exact, 2).largest) < 1e-9
    assert 1e-9 < abs(approximation(shared, 1).largest) < 0.1


def test_per_layer_and_buckets_differ_by_their_messages_alone():
    # 8 ranks, 32 layers: 32 * 8 * 14 = 3,584 messages take 1.79 ms; 6 buckets of the same bytes 672 and 0.336 ms
    per_message = 0.5e-6
    layers = per_layer(tuple(Gradient(2464, "float32", i) for i in range(32)))
    fused = lazy_fusion(tuple(Gradient(2464, "float32", i) for i in range(32)), threshold=6 * 2464)
    messages = find("ring").traffic(8).messages * 8
    times = [len(buckets) * int(messages) * per_message for buckets in (layers, fused)]
    assert (len(layers), len(fused)) == (32, 6)
    assert times == [pytest.approx(1.792e-3), pytest.approx(0.336e-3)]
    assert sum(b.num_bytes for b in layers) == sum(b.num_bytes for b in fused) == 78848


def test_the_cost_of_lars_lies_between_plain_launches_and_the_overhead_of_every_tensor() -> None:
    scenario = load_scenario("sony-1088")
    with_lars, without = (
        StepModel(replace(scenario, optimizer=Optimizer(lars=lars, loss_scaling=False))) for lars in (True, False)
    )
    launch, reads = with_lars.efficiency.launch, 2 * 4 * with_lars.model.num_parameters
    extra = with_lars.passes[2] - without.passes[2] - reads / with_lars.device.memory_bandwidth.value
    assert 3 * 54 * 5e-6 < extra < 3 * 161 * launch
    low, high = np.quantile(with_lars.evaluate(4)[1].update, [0.1, 0.9])
    assert high - low > 5e-3, "an unpublished implementation widens the update"
    assert np.ptp(without.evaluate(4)[1].update) < np.ptp(with_lars.evaluate(4)[1].update)


def test_a_run_whose_batch_does_not_fit_says_which_accumulation_does():
    few = with_devices(load_scenario("smith-tpu"), 16)
    told = r"a batch of 16384 in recipe smith gives each of 16 devices 1024 samples, and 362 .* use accumulation 4,"
    with pytest.raises(InvalidInput, match=told):
        predict_run(few)
    found = predict_run(few.with_job(accumulation=4))
    assert [epoch.batch for epoch in found.run.schedule[29:31]] == [8192, 16384]
    assert found.run.steps == 30 * 157 + 60 * 79


def test_a_step_of_the_advised_accumulation_has_as_many_samples():
    with pytest.raises(InvalidInput, match="or 256 with accumulation 2, which makes as many samples a step"):
        predict_step(SMALL.with_job(per_device_batch=512))
    assert predict_step(SMALL.with_job(per_device_batch=256, accumulation=2)).global_batch == 16 * 512
