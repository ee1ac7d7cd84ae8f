"""From a scenario to a prediction: one step, or the whole run, with 80 % intervals and a breakdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from simnet import compute
from simnet.catalog.loader import Folder
from simnet.errors import InvalidInput
from simnet.hardware import Cluster
from simnet.intervals import Inputs, Interval, known_variation
from simnet.recipe import Recipe, constant
from simnet.recipe import find as find_recipe
from simnet.results import Span
from simnet.run import Run, time_to_train
from simnet.scenario import BatchNorm, Scenario
from simnet.step_model import StepModel
from simnet.stragglers import Failures
from simnet.training import StepTimes
from simnet.units import Bytes, Seconds
from simnet.workload import Bucket

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """One training step: times in s, samples/s, efficiencies as fractions; parts add up to the central step.

    `efficiency_any` is midway between those against one device and one node, for a base that nobody stated.
    """

    scenario: str
    devices: int
    per_device_batch: int
    global_batch: int
    step_s: Interval
    samples_per_s: Interval
    efficiency_device: Interval
    efficiency_node: Interval
    efficiency_any: Interval
    parts_s: Mapping[str, float]
    exposed_s: tuple[float, ...]
    buckets: tuple[Bucket, ...]
    memory_bytes: Bytes
    basis: str
    match: str
    engine: str
    exact: bool
    reason: str
    spans: tuple[Span, ...] = field(repr=False)
    draws_s: FloatArray = field(repr=False)
    slow_stage: str = ""
    p50_s: Seconds = 0.0
    p95_s: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class RunPrediction:
    """A whole run and the step of its largest batch."""

    run: Run
    step: StepPrediction
    time_s: Interval


def predict_step(
    scenario: Scenario, *, profile: compute.ComputeProfile | None = None, catalog: Folder = None
) -> StepPrediction:
    """Predict one training step of a scenario; `catalog` is a folder with files of your own.

    Raises
    ------
    InvalidInput : unknown names, more devices than the cluster has, or a batch that does not fit into memory.
    """
    return step_of(StepModel(scenario, profile, catalog=catalog))


def step_of(model: StepModel) -> StepPrediction:
    """Predict the step of a scenario whose names are looked up; see `predict_step`."""
    scenario, job = model.scenario, model.scenario.job
    _require_devices(scenario, model.cluster)
    memory = compute.require_fit(
        model.model, model.device, job.precision, job.per_device_batch, accumulation=job.accumulation
    )
    central, drawn = model.evaluate(job.devices)
    device, node, any_ = efficiencies(model, job.devices, (central, drawn))
    time = Interval.of(float(central.total[0]), drawn.total)
    rate = scenario.global_batch / drawn.total
    prices = model.prices(job.devices)
    return StepPrediction(
        scenario.name, job.devices, job.per_device_batch, scenario.global_batch, time,
        Interval.of(scenario.global_batch / time.value, rate), device, node, any_,
        central.breakdown(), tuple(central.exposed[0].tolist()), model.sent(job.devices), memory,
        model.efficiency.basis, model.efficiency.match, prices.engine, prices.exact, prices.reason,
        central.spans, drawn.total, model.slow_stage(float((central.total - central.input_stall)[0])),
        *model.over_steps(float((central.forward + central.backward + central.update)[0]), time.value),
    )  # fmt: skip


def efficiencies(
    model: StepModel, devices: int, evaluated: tuple[StepTimes, StepTimes] | None = None
) -> tuple[Interval, Interval, Interval]:
    """Scaling efficiency against one device, against one node, and midway, for a base that nobody stated."""
    central, drawn = evaluated or model.evaluate(devices)
    bases = [model.evaluate(n) for n in (1, min(devices, model.cluster.node.num_devices))]
    values = [float(base.total[0] / central.total[0]) for base, _ in bases]
    draws = [base.total / drawn.total for _, base in bases]
    midway = Interval.of(sum(values) / 2, (draws[0] + draws[1]) / 2)
    return Interval.of(values[0], draws[0]), Interval.of(values[1], draws[1]), midway


def efficiency_against(model: StepModel, base: int) -> Interval:
    """Scaling efficiency of the scenario's job against the same job on `base` devices.

    Raises
    ------
    InvalidInput : the cluster does not have so many devices.
    """
    if not 1 <= base <= model.cluster.num_devices:
        raise InvalidInput(
            f"a base must be 1 to {model.cluster.num_devices} devices of {model.cluster.name}, got {base}"
        )
    (own, drawn), (other, others) = (model.evaluate(n) for n in (model.scenario.job.devices, base))
    return Interval.of(float(other.total[0] / own.total[0]), others.total / drawn.total)


def _require_devices(scenario: Scenario, cluster: Cluster) -> None:
    most = cluster.num_devices
    if scenario.job.devices > most:
        raise InvalidInput(
            f"scenario {scenario.name} asks for {scenario.job.devices} devices and {cluster.name} has {most}; "
            f"use {most} or fewer, or a larger cluster"
        )


def predict_run(
    scenario: Scenario, *, profile: compute.ComputeProfile | None = None, catalog: Folder = None
) -> RunPrediction:
    """Predict the whole run of a scenario's recipe, every batch of its schedule with its own step.

    Raises
    ------
    InvalidInput : as `predict_step`, or a recipe that is unknown.
    """
    return run_of(StepModel(scenario, profile, catalog=catalog))


def run_of(model: StepModel, *, failures: Failures | None = None) -> RunPrediction:
    """Predict the whole run of a scenario whose names are looked up; see `predict_run`."""
    scenario = model.scenario
    recipe = recipe_of(scenario, sample=model.model.sample)
    _require_batches(model, recipe)
    steps = _Steps(model)
    given, own = scenario.run.start_up, scenario.run
    start_up = known_variation()["start_up"] if given is None else Interval(given, given, given)
    cold = _cold(model) if own.first_epoch_factor is None else own.first_epoch_factor
    run = time_to_train(
        recipe, scenario.job.devices, steps.value, low=steps.low, high=steps.high, evaluation_step=steps.forward,
        evaluation_batch=scenario.job.per_device_batch, start_up=start_up.value, first_epoch_factor=cold,
        failures=failures, last_step=own.last_step,
    )  # fmt: skip
    drawn = Inputs(scenario.seed, scenario.draws).lognormal("start-up", start_up)
    for epoch in run.schedule:
        found = steps.predict(-(-epoch.batch // scenario.job.devices))
        drawn = drawn + (epoch.training_s + epoch.evaluation_s) * found.draws_s / found.step_s.value
    drawn = drawn * run.time_s / (run.time_s - run.failures_s)
    largest = steps.predict(-(-recipe.largest_batch // scenario.job.devices))
    return RunPrediction(run, largest, Interval.of(run.time_s, drawn))


def _require_batches(model: StepModel, recipe: Recipe) -> None:
    """Raise InvalidInput where a batch of the recipe does not fit into the devices, with the accumulation that does."""
    job = model.scenario.job
    share = -(-recipe.largest_batch // job.devices)
    most = compute.largest_batch(model.model, model.device, job.precision)
    if most and -(-share // job.accumulation) > most:
        raise InvalidInput(
            f"a batch of {recipe.largest_batch} in recipe {recipe.name} gives each of {job.devices} devices {share} "
            f"samples, and {most} of {job.model} in {job.precision} fit into a {model.device.name}; use accumulation "
            f"{compute.parts_that_fit(share, most)}, or more devices"
        )


def _cold(model: StepModel) -> float:
    """Step of the first epoch, whose data no host has cached, over a later one."""
    if model.scenario.input is None or model.scenario.input.cached == 0:
        return 1.0
    ranks = model.scenario.job.devices
    first, later = (float(m.evaluate(ranks)[0].total[0]) for m in (model.with_cold_cache(), model))
    return max(1.0, first / later)


def recipe_of(scenario: Scenario, *, sample: str = "image") -> Recipe:
    """Return the scenario's recipe with what its table [run] says, or 90 epochs of ImageNet where it names none.

    Raises
    ------
    InvalidInput : the recipe is unknown, or the model takes no images and nothing says what it is trained on.
    """
    job, own = scenario.job, scenario.run
    if job.recipe:
        return own.applied(_for_model(find_recipe(job.recipe), job.model))
    if sample != "image" and not own.says_what:
        raise InvalidInput(
            f"scenario {scenario.name} trains {job.model} on {sample}s and names no recipe; say what an epoch is: "
            "[run] with samples and epochs"
        )
    plain = own.applied(Recipe(scenario.name, job.model, constant(90, scenario.global_batch), 0, ""))
    data = "a data set of its own" if own.samples is not None else "ImageNet"
    return replace(plain, source=f"no recipe named: {plain.epochs:g} epochs of {data}")


def _for_model(recipe: Recipe, model: str) -> Recipe:
    """The recipe, without what its source found of another model."""
    if compute.family(model) == compute.family(recipe.model):
        return recipe
    source = f"recipe {recipe.name} is for {recipe.model}, not {model}"
    return replace(recipe, model=model, max_batch=0, accuracy=None, source=source)


class _Steps:
    """Steps of one scenario by samples per device, each predicted once."""

    def __init__(self, model: StepModel) -> None:
        self._model = model
        self._found: dict[int, StepPrediction] = {}
        self._forward: dict[int, Seconds] = {}

    def predict(self, samples: int) -> StepPrediction:
        if samples not in self._found:
            per_pass = -(-samples // self._model.scenario.job.accumulation)
            self._found[samples] = step_of(self._model.with_batch(per_pass))
        return self._found[samples]

    def value(self, samples: int) -> Seconds:
        return self.predict(samples).step_s.value

    def low(self, samples: int) -> Seconds:
        return self.predict(samples).step_s.low

    def high(self, samples: int) -> Seconds:
        return self.predict(samples).step_s.high

    def forward(self, samples: int) -> Seconds:
        if samples not in self._forward:
            self._forward[samples] = float(self._model.with_batch(samples).passes[0].sum())
        return self._forward[samples]


def with_devices(scenario: Scenario, devices: int) -> Scenario:
    """Return the scenario on another number of devices: grids are left to their defaults, a node is at most filled.

    Groups of distributed batch normalisation become blocks of ranks.
    """
    options = {k: v for k, v in scenario.exchange.options.items() if k != "grid"}
    size = options.get("ranks_per_node")
    if isinstance(size, int) and devices < size:
        options["ranks_per_node"] = devices
    blocks = replace(scenario, batch_norm=BatchNorm(scenario.batch_norm.group))
    return replace(blocks.with_job(devices=devices), exchange=replace(scenario.exchange, options=options))
