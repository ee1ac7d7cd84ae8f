"""Every published speed, efficiency and time that nothing was fitted to, predicted and put beside the figure.

Rows are the facts of kind `validate` that speak of throughput, efficiency or time, grouped by system. Predictions
come from scenario files; the compute profile behind them was fitted on single-device rows alone. Where a row's own
stack has such a row, the constant 0.96 x devices x single-device rate stands beside it as the guess to beat.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from simnet import metrics
from simnet.errors import SimnetError
from simnet.intervals import Interval
from simnet.prediction import efficiencies, run_of, step_of, with_devices
from simnet.scenario import Job, Scenario, load_scenario
from simnet.step_model import StepModel
from studies.compute import MODELS, PRECISIONS, STACKS
from studies.facts import Fact, of_kind
from studies.study import Claim, Picture, Result, Table

CONSTANT = 0.96
QUANTITIES = (
    "throughput", "steady_throughput", "gpu_scaling_efficiency", "scaling_efficiency", "scaling_efficiency_vs_8_gpu",
    "train_time", "train_time_90_epochs", "train_time_100_epochs", "train_time_90_epochs_incl_validation", "epoch_time",
    "train_time_resnet101", "train_time_64_epochs", "train_time_81_epochs", "train_time_95_epochs",
    "time_to_accuracy_olympic_mean",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class System:
    """Rows of one system by the beginning of their ids, the scenario that predicts them, and what rows change in it."""

    prefix: str
    scenario: str
    changes: Mapping[str, Any] = field(default_factory=dict)


SYSTEMS = (
    System("dlperf.", "dlperf-32"),
    System("nvdle.mxnet.DGX-1.", "dgx1v-8"),
    System("nvdle.mxnet.DGX-2.", "dgx2-16"),
    System("nvdle.mxnet.DGXA100.", "dgxa100-8"),
    System("nvdle.tf.DGX-1.", "dgx1v-8"),
    System("nvdle.tf.DGX-2.", "dgx2-16"),
    System("nvdle.tf.DGXA10040GB.", "dgxa100-40gb-8"),
    System("mxnet.p2.", "mxnet-p2"),
    System("tf.dgx1p100.", "tf-dgx1"),
    System("tf.gce.", "tf-gce-k80"),
    System("tf.ec2dist.", "tf-ec2-k80"),
    System("horovod.", "uber-16-rdma"),
    System("aws.p3.", "aws-p3-16"),
    System("hvd779.", "hvd779-32"),
    System("hvd871.", "hvd779-32", {"framework": "tensorflow-horovod-2019"}),
    System("hvd416.", "hvd416-4"),
    System("abci.rn50.hvd.", "abci-hvd-32"),
    System("abci.rn50.single.", "abci-hvd-32", {"per_device_batch": 128}),
    System("mlperf0.6.NVIDIA_dgx1_", "dgx1v-8", {"framework": "mxnet-nvidia"}),
    System("mlperf0.6.NVIDIA_dgx2_", "dgx2-16", {"framework": "mxnet-nvidia"}),
    System("mlperf0.5.nvidia_dgx1.", "dgx1v-8", {"framework": "mxnet-nvidia"}),
    System("mlperf0.5.nvidia_dgx1_multi.", "mlperf-dgx1-640"),
    System("goyal.rn101", "goyal-256", {"model": "resnet101"}),
    System("goyal.time256", "goyal-256"),
    System("goyal.eff", "goyal-352"),
    System("goyal.epoch352", "goyal-352"),
    System("he.p100x8", "he-8"),
    System("akiba.", "akiba-1024"),
    System("jia.rn50.", "jia-2048"),
    System("sony.v1.time", "sony-2176"),
    System("sony.v1.eff1088", "sony-1088"),
    System("ying.", "ying-1024"),
    System("smith.", "smith-tpu"),
    System("you.m40", "you-m40"),
    System("you.rn50.1h", "you-knl512"),
    System("you.rn50.20m", "you-knl512", {"per_device_batch": 16}),
    System("you.alex24", "you-knl512-alexnet"),
)

REFUSED = {
    "time_to_accuracy_olympic_mean": "ends at an accuracy: how many epochs that takes is not predicted",
    "mlperf0.6.Google": "no single-device row of the device, and no epochs to count",
    "mlperf0.6.NVIDIA_dgx2h": "a device of 450 W that no single-device row describes",
    "mlperf0.5": "a device or a node that no single-device row describes",
    "dawn.": "processors without a single-device row and without a link description",
    "jia.alex": "the number of devices is not stated",
    "sony.v2": "the grid and the schedule of the run are not stated",
    "you.": "processors without a single-device row, or a device count in doubt",
}


def validated(facts: Iterable[Fact] | None = None) -> list[Fact]:
    """Rows of kind `validate` that speak of throughput, efficiency or time of training."""
    return [fact for fact in of_kind("validate", facts) if fact.quantity in QUANTITIES]


def scenario_of(fact: Fact) -> Scenario | None:
    """The scenario a row is predicted by; None where the catalogue cannot describe it."""
    system = next((s for s in SYSTEMS if fact.id.startswith(s.prefix)), None)
    if system is None or fact.quantity == "time_to_accuracy_olympic_mean":
        return None
    base = load_scenario("uber-16-tcp" if fact.id.endswith(".TCP") else system.scenario)
    stack = next((name for prefix, name in STACKS.items() if fact.id.startswith(prefix)), base.job.framework)
    changes = {
        "framework": stack, "per_device_batch": int(fact.per_device_batch or base.job.per_device_batch),
        **_precision(fact), **_model(fact, stack), **system.changes,
    }  # fmt: skip
    devices = fact.device_count or base.job.devices
    return (base if devices == base.job.devices else with_devices(base, devices)).with_job(**changes)


def _precision(fact: Fact) -> dict[str, str]:
    word = str(fact.precision).split(" ")[0]
    if fact.id.startswith(("nvdle", "dlperf", "abci.rn50.single")) and word in PRECISIONS:
        return {"precision": PRECISIONS[word]}
    return {}


def _model(fact: Fact, stack: str) -> dict[str, Any]:
    if not fact.id.startswith(("mxnet.p2", "tf.", "horovod.")):
        return {}
    name = MODELS[fact.model]
    if name == "inception_v3" and stack.startswith("tensorflow"):
        return {"model": name, "model_options": {"scale": False}}
    return {"model": "alexnet_mxnet" if name == "alexnet" and stack.startswith("mxnet") else name}


@dataclass(frozen=True, slots=True)
class Hindcast:
    """A prediction of one row, and what the constant efficiency would have said; both None where refused.

    The constant needs a published rate: of the server of Goyal et al. only a backward time is.
    """

    fact: Fact
    published: float
    unit: str
    found: Interval | None
    constant: float | None
    match: str
    basis: str
    nodes: int
    scenario: str


@cache
def _alone(job: Job) -> float:
    """Samples/s of one device, from the rows of its own stack."""
    return step_of(StepModel(Scenario("alone", replace(job, devices=1), draws=1))).samples_per_s.value


def hindcast(fact: Fact, *, draws: int = 400) -> Hindcast:
    """Predict one row."""
    scenario = scenario_of(fact)
    unit, published = _published(fact)
    if scenario is None:
        return Hindcast(fact, published, unit, None, None, "", _refusal(fact), 0, "")
    model = StepModel(replace(scenario, draws=draws))
    nodes = -(-scenario.job.devices // model.cluster.node.num_devices)
    try:
        found, speed = _predict(fact, model)
    except SimnetError as error:
        return Hindcast(fact, published, unit, None, None, "", str(error), nodes, scenario.name)
    basis, match = model.efficiency.basis, model.efficiency.match
    known_rate = match in ("stack", "framework") and not fact.id.startswith("goyal.")
    constant = speed(CONSTANT * scenario.job.devices * _alone(scenario.job)) if known_rate else None
    return Hindcast(fact, published, unit, found, constant, match, basis, nodes, scenario.name)


def _published(fact: Fact) -> tuple[str, float]:
    if fact.unit == "%":
        return "fraction", fact.value / 100
    return ("images/s" if "throughput" in fact.quantity else "s"), fact.value


def _predict(fact: Fact, model: StepModel) -> tuple[Interval, Callable[[float], float]]:
    """The figure, and how it follows from a speed in samples/s."""
    if "throughput" in fact.quantity:
        return step_of(model).samples_per_s, lambda rate: rate
    if fact.unit == "%":
        _, node, any_ = efficiencies(model, model.scenario.job.devices)
        return (node if "vs_8" in fact.quantity else any_), lambda rate: CONSTANT
    if fact.quantity == "epoch_time":
        step = step_of(model)
        images = 1_281_167
        return _inverse(step.samples_per_s, images), lambda rate: images / rate
    run = run_of(model)
    return run.time_s, lambda rate: run.run.epochs * 1_281_167 / rate


def _inverse(rate: Interval, amount: float) -> Interval:
    return Interval(amount / rate.value, amount / rate.high, amount / rate.low)


def _refusal(fact: Fact) -> str:
    for key, text in REFUSED.items():
        if fact.quantity == key or fact.id.startswith(key):
            return text
    return "no scenario of the catalogue describes it"


def _row(one: Hindcast) -> dict[str, Any]:
    fact, found = one.fact, one.found
    value: dict[str, Any] = {"predicted": None, "low": None, "high": None, "error": None, "inside": None}
    if found is not None:
        value = {
            "predicted": found.value, "low": found.low, "high": found.high, "error": found.value / one.published - 1,
            "inside": found.low <= one.published <= found.high,
        }  # fmt: skip
    points = {"error_points": 100 * (found.value - one.published)} if found and one.unit == "fraction" else {}
    return {
        "id": fact.id, "system": fact.system, "quantity": fact.quantity, "unit": one.unit, "published": one.published,
        **value, **points, "basis": one.basis if found else "", "reason": _why(one), "kind": fact.kind,
        "devices": fact.device_count, "nodes": one.nodes, "scenario": one.scenario, "match": one.match,
        "constant": one.constant,
        "constant_error": None if one.constant is None else one.constant / one.published - 1,
    }  # fmt: skip


def _why(one: Hindcast) -> str:
    """Why a row is not predicted, or where its published value lies outside."""
    if one.found is None:
        return one.basis
    if one.found.low <= one.published <= one.found.high:
        return "" if one.found.high / one.found.low <= 2 else f"baseline unknown: {one.basis.partition(' (')[0]}"
    slow = (one.found.value > one.published) == (one.unit != "s")
    side = "slower" if slow else "faster"
    return f"was {side} than its interval; perhaps {_cause(one.fact, slow=slow)}"


def _cause(fact: Fact, *, slow: bool) -> str:
    if fact.model == "AlexNet":
        return "because AlexNet computes little per byte and per image, so that servers of parameters and images show"
    if fact.id.startswith(("abci.rn50.hvd", "hvd871")):
        return "because real images are read and decoded, which a single-device row does not strain"
    if fact.id.startswith("mlperf0.5"):
        return "because its batch is far below that of the row the device is known by"
    if not slow:
        return "because its software was better than that of the row it is predicted from"
    return "because its exchange overlaps less than the rule of its scenario"


def rows(*, draws: int = 400) -> list[dict[str, Any]]:
    """Return one row per figure."""
    return [_row(hindcast(fact, draws=draws)) for fact in validated()]


def known(found: Iterable[dict[str, Any]], *, several: bool = False) -> list[dict[str, Any]]:
    """Rows with a published single-device rate of their framework; `several` keeps those on several nodes."""
    chosen = [r for r in found if r["constant"] is not None]
    return [r for r in chosen if r["nodes"] > 1] if several else chosen


def summary(name: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Error figures of some rows, and those of the constant efficiency beside them."""
    published = [r["published"] for r in found]
    predicted = [r["predicted"] for r in found]
    row = {
        "rows": name, "count": len(found), "median": metrics.error_quantile(predicted, published, 0.5),
        "p90": metrics.error_quantile(predicted, published, 0.9), "mape": metrics.mape(predicted, published),
        "bias": metrics.signed_bias(predicted, published), "coverage": float(np.mean([r["inside"] for r in found])),
        "median_high_over_low": float(np.median([r["high"] / r["low"] for r in found])),
    }  # fmt: skip
    constant = [r["constant"] for r in found]
    if all(c is not None for c in constant):
        row["constant_median"] = metrics.error_quantile(constant, published, 0.5)
    return row


def run(*, quick: bool = False) -> Result:
    """Predict every row, measure the errors, and draw the scaling curves."""
    found = rows(draws=100 if quick else 400)
    predicted = [r for r in found if r["predicted"] is not None]
    groups = [
        ("several nodes", known(found, several=True)), ("known rate", known(found)), ("all predicted", predicted),
    ]  # fmt: skip
    figures = [summary(name, chosen) for name, chosen in groups]
    main = ("id", "published", "predicted", "low", "high", "unit", "error", "constant_error", "inside", "reason")
    tables = [
        Table(
            "Error figures",
            figures,
            f"constant: {CONSTANT} x devices x single-device rate; coverage is of the 80 % interval",
        ),
        Table("By system", _by_system(predicted)),
        *(Table(name, [{k: r[k] for k in main} for r in chosen]) for name, chosen in _systems(predicted)),
        Table(
            "Not predicted",
            [{k: r[k] for k in ("id", "published", "unit", "reason")} for r in found if r not in predicted],
        ),
    ]
    pictures = [Picture("curves", "Scaling efficiency over devices: predicted with 80 % bands, and published points",
                        lambda f: _draw(f, known(found)), (12.0, 9.0))]  # fmt: skip
    return Result(found, claims(*figures[:2]), tables, pictures)


def claims(several: Mapping[str, Any], all_known: Mapping[str, Any]) -> list[Claim]:
    """Accuracy that is asked for."""
    ratio = several["median"] / several["constant_median"]
    return [
        Claim("several nodes: median error at most 5 %", several["median"] <= 0.05, f"{several['median']:.1%}"),
        Claim("several nodes: at most half the constant's median error", ratio <= 0.5,
              f"{several['median']:.1%} of {several['constant_median']:.1%}"),
        Claim("rows with a known rate: median error at most 3 %", all_known["median"] <= 0.03,
              f"{all_known['median']:.1%}"),
        Claim("rows with a known rate: p90 at most 10 %", all_known["p90"] <= 0.10, f"{all_known['p90']:.1%}"),
        Claim("coverage of the 80 % interval between 70 and 90 %", 0.7 <= all_known["coverage"] <= 0.9,
              f"{all_known['coverage']:.0%}"),
    ]  # fmt: skip


def _systems(found: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        groups[row["system"]].append(row)
    return list(groups.items())


def _by_system(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [summary(name, chosen) for name, chosen in _systems(found)]


def _draw(figure: Any, found: Sequence[dict[str, Any]]) -> None:
    rates = [r for r in found if r["unit"] == "images/s" and r["devices"] > 1]
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rates:
        groups[row["id"].rpartition(".")[0].removesuffix(".16")].append(row)
    shown = [(name, chosen) for name, chosen in groups.items() if len(chosen) > 2][:12]
    for index, (name, chosen) in enumerate(shown):
        axes = figure.add_subplot(3, 4, index + 1, xscale="log", title=name, ylim=(0.4, 1.1))
        _draw_one(axes, sorted(chosen, key=lambda r: r["devices"]))
        counts = sorted(r["devices"] for r in chosen)
        axes.set(xlabel="devices", ylabel="of one device", xticks=counts, xticklabels=counts)
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)


def _draw_one(axes: Any, chosen: Sequence[dict[str, Any]]) -> None:
    devices = [r["devices"] for r in chosen]
    alone = [r["constant"] / CONSTANT for r in chosen]

    def share(key: str) -> list[float]:
        return [r[key] / a for r, a in zip(chosen, alone, strict=True)]

    axes.plot(devices, share("predicted"))
    axes.fill_between(devices, share("low"), share("high"), alpha=0.25)
    axes.plot(devices, share("published"), "k*")
    axes.axhline(CONSTANT, color="0.7", linewidth=1, linestyle=":")
