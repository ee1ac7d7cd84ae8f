"""Compute time of one device: fit a roofline efficiency and a launch cost on published single-device rows.

Only rows of kind `calibrate` are read. What is found is committed as the profile `compute` of the catalogue;
predictions read that profile and never the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simnet.catalog import load_device
from simnet.compute import ComputeProfile, Roofline, family, load_profile, parse_profile, roofline, unit_of
from simnet.models.registry import build
from studies.facts import Fact, of_kind
from studies.study import Claim, Picture, Result, Table

DEVICES = {
    "K80": "k80", "K80 (half board)": "k80", "M40": "m40", "M60": "m60", "P100 (DGX-1)": "p100-sxm2",
    "P100-SXM2": "p100-sxm2", "P100-SXM2 (NVLink)": "p100-sxm2", "P100-class Pascal": "pascal-class",
    "V100 (p3.2xlarge)": "v100-sxm2", "V100-SXM2-16GB": "v100-sxm2", "V100-SXM3-32GB": "v100-sxm3",
    "V100-PCIe": "v100-pcie", "A100-SXM4-80GB": "a100-sxm4-80gb", "A100-SXM4-40GB": "a100-sxm4-40gb",
}  # fmt: skip
MODELS = {
    "ResNet-50": "resnet50_v1", "resnet50": "resnet50_v1", "ResNet-50 v1.5": "resnet50", "AlexNet": "alexnet",
    "resnet101": "resnet101", "ResNet-101": "resnet101", "ResNet-152": "resnet152", "Inception-v3": "inception_v3",
    "VGG-16": "vgg16",
}  # fmt: skip
PRECISIONS = {"fp32": "fp32", "tf32": "tf32", "amp": "mixed", "fp16": "mixed", "mixed": "mixed", "amp-xla": "mixed",
              "fp16-dls": "mixed"}  # fmt: skip
STACKS = {
    "mxnet17.": "mxnet-2017", "mxnet18.": "mxnet-2018", "mxnet.p2.": "mxnet-p2-2017", "tf.": "tensorflow-2017",
    "nvdle.mxnet.": "mxnet-nvidia-2020", "nvdle.tf.": "tensorflow-nvidia-2020",
    "dlperf.mxnet.fp32.": "mxnet-dlperf-2020", "dlperf.mxnet.amp.": "mxnet-dlperf-amp-2020",
    "dlperf.mxnet.fp16.": "mxnet-dlperf-fp16-2020", "dlperf.tf1.fp32.": "tensorflow-dlperf-2020",
    "dlperf.tf1.amp.": "tensorflow-dlperf-2020", "dlperf.tf1.amp-xla.": "tensorflow-dlperf-xla-2020",
    "dlperf.oneflow.": "oneflow-2020", "abci.rn50.single.": "pytorch-abci-2021", "horovod.": "tensorflow-uber-2017",
    "aws.p3.": "tensorflow-aws-2018", "hvd779.": "tensorflow-horovod-2019", "hvd416.": "tensorflow-horovod-2018",
    "goyal.": "caffe2-2017",
}  # fmt: skip
ASSUMED_BATCH = {"abci.rn50.single.V.1.amp": 128, "hvd779.rn50.1": 256, "goyal.bwd": 32}
"""Batches the rows do not state: the page's own for fp32, another report's on the machine, the section's."""


LAUNCHES = (
    {"device": "tpu-v2", "launch_s": 1e-6, "sd": 0.9, "source": "assumed: a step is one compiled program"},
    {"device": "tpu-v3", "launch_s": 1e-6, "sd": 0.9, "source": "assumed: a step is one compiled program"},
    {"device": "knl-7250", "launch_s": 1e-5, "sd": 0.9, "source": "assumed: a barrier of 68 cores around each layer"},
)  # fmt: skip
"""Devices without a row that no host feeds kernel by kernel; the launch costs of GPUs say nothing about them."""


@dataclass(frozen=True, slots=True)
class Point:
    """One usable row: where it was measured, and s of one step (or of its backward pass alone)."""

    fact: Fact
    device: str
    stack: str
    model: str
    precision: str
    batch: int
    time: float
    backward_only: bool

    @property
    def group(self) -> tuple[str, str, str, str]:
        """Points of one group share their constants."""
        return self.device, self.stack, self.precision, self.model

    def bounds(self) -> tuple[float, int]:
        """Time at the roofline, s, and kernels of what was measured."""
        bound = _roofline(self)
        if self.backward_only:
            return float(bound.backward.sum()), int(bound.backward_kernels.sum())
        return bound.time, bound.kernels


def _roofline(point: Point) -> Roofline:
    return roofline(build(point.model), load_device(point.device), point.precision, point.batch)


def points(facts: Iterable[Fact]) -> list[Point]:
    """Rows a compute profile may be fitted to: single-device rates and backward times of kind `calibrate`."""
    found = []
    for fact in of_kind("calibrate", facts):
        if fact.quantity not in ("throughput", "backprop_time") or fact.device_count != 1:
            continue
        batch = fact.per_device_batch or ASSUMED_BATCH.get(fact.id)
        stack = next((name for prefix, name in STACKS.items() if fact.id.startswith(prefix)), None)
        if batch is None or stack is None or fact.device not in DEVICES or fact.precision not in PRECISIONS:
            continue
        backward = fact.quantity == "backprop_time"
        time = fact.value if backward else batch / fact.value
        model = "alexnet_mxnet" if fact.model == "AlexNet" and stack.startswith("mxnet") else MODELS[fact.model]
        found.append(
            Point(fact, DEVICES[fact.device], stack, model, PRECISIONS[fact.precision], int(batch), time, backward)
        )
    return found


def fit(facts: Iterable[Fact]) -> dict[str, Any]:
    """Fit every group of rows; return the tables of a profile file."""
    groups: dict[tuple[str, str, str, str], list[Point]] = defaultdict(list)
    for point in points(facts):
        groups[point.group].append(point)
    several = {key: group for key, group in groups.items() if len({p.batch for p in group}) > 1}
    fits = {key: _fit_both(group) for key, group in several.items()}
    for key, group in groups.items():
        if key not in fits:
            fits[key] = _fit_efficiency(group, _nearest_launch(key, fits, several))
    tables = [fits[key] for key in sorted(fits)]
    spread = {unit: _spreads(tables, unit) for unit in ("fp32", "matrix", "tf32")}
    for table in tables:
        table["sd"] = _own_sd(table, spread[table["unit"]], groups)
    return {
        "name": "compute",
        "source": "studies/compute.py, fitted to the calibrate rows of studies/published/facts.jsonl named in each fit",
        "spread": spread,
        "launch": [dict(row) for row in LAUNCHES],
        "fit": tables,
    }


def _own_sd(table: dict[str, Any], spread: Mapping[str, float], groups: Mapping[Any, Sequence[Point]]) -> float:
    """Sd of the log of the step time a fit predicts for its own stack.

    At least that of rows around fits with several batches; more where the row is rounded coarsely, or is a backward
    pass alone, whose forward pass may be as far off as another version of the framework.
    """
    group = next(g for g in groups.values() if f"{g[0].fact.id}@{g[0].fact.digest}" == table["points"][0])
    rounding = max(_rounding(point.fact.value) for point in group) / len(group) ** 0.5
    bound = _roofline(group[0])
    forward = spread["framework"] * float(bound.forward.sum()) / bound.time if group[0].backward_only else 0.0
    own = table["residual_sd"] if len(group) > 2 else 0.0
    return round(float(np.sqrt(max(spread["row"], own) ** 2 + rounding**2 + forward**2)), 4)


def _rounding(value: float) -> float:
    """Sd, relative, of a number known to the digits it is printed with."""
    digits = f"{value:.10g}"
    step = 10.0 ** -len(digits.partition(".")[2])
    return step / 12**0.5 / value


def _fit_both(group: Sequence[Point]) -> dict[str, Any]:
    """Least squares of relative error: time = bound / efficiency + kernels * launch."""
    table = np.array([point.bounds() for point in group], float)
    time = np.array([point.time for point in group])
    inverse, launch = np.linalg.lstsq(table / time[:, None], np.ones(len(time)), rcond=None)[0]
    return _table(group, 1 / inverse, launch, fitted=True)


def _fit_efficiency(group: Sequence[Point], launch: float) -> dict[str, Any]:
    table = np.array([point.bounds() for point in group], float)
    time = np.array([point.time for point in group])
    return _table(
        group, float(np.exp(np.mean(np.log(table[:, 0] / (time - table[:, 1] * launch))))), launch, fitted=False
    )


def _nearest_launch(
    key: tuple[str, str, str, str], fits: Mapping[tuple[str, str, str, str], dict[str, Any]], several: Iterable[Any]
) -> float:
    """Launch cost of the fits with several batches that share most with this group: device, family, framework."""
    device, stack, _, model = key

    def likeness(other: tuple[str, str, str, str]) -> int:
        same = (other[0] == device, family(other[3]) == family(model), other[1].split("-")[0] == stack.split("-")[0])
        near = other[0].split("-")[0] == device.split("-")[0]
        resnet = other[3].startswith("resnet") == (not model.startswith("alexnet"))
        return 16 * near + 8 * same[0] + 4 * resnet + 2 * same[1] + same[2]

    keys = list(several)
    best = max(likeness(other) for other in keys)
    launches = [fits[other]["launch_s"] for other in keys if likeness(other) == best]
    return float(np.exp(np.mean(np.log(launches))))


def _table(group: Sequence[Point], efficiency: float, launch: float, *, fitted: bool) -> dict[str, Any]:
    point = group[0]
    predicted = [bound / efficiency + kernels * launch for bound, kernels in (p.bounds() for p in group)]
    residuals = [p / q.time - 1 for p, q in zip(predicted, group, strict=True)]
    freedom = max(1, len(group) - (2 if fitted else 1))
    return {
        "device": point.device, "framework": point.stack.partition("-")[0], "stack": point.stack,
        "unit": unit_of(load_device(point.device), point.precision), "model": point.model,
        "efficiency": round(float(efficiency), 4), "launch_s": float(f"{launch:.4g}"), "launch_fitted": fitted,
        "residual_sd": round(float(np.sqrt(np.sum(np.square(residuals)) / freedom)), 4),
        "points": [f"{p.fact.id}@{p.fact.digest}" for p in group], "residuals": [round(float(r), 4) for r in residuals],
    }  # fmt: skip


def _spreads(tables: Sequence[dict[str, Any]], unit: str) -> dict[str, float]:
    """Sd of the log of the constants between fits of a unit that differ in one thing.

    `row` is what two constants leave over and `launch` how far launch costs differ, both known from sweeps over
    the batch, which exist for one unit only; `model` needs several models on one stack, and so does as well.
    """
    resnets = [t for t in tables if family(t["model"]) == "resnet50"]
    swept = [t for t in resnets if t["launch_fitted"] and len(t["points"]) > 2]
    own = [t for t in resnets if t["unit"] == unit]
    found = {
        "row": float(np.sqrt(np.mean([t["residual_sd"] ** 2 for t in swept]))),
        "framework": _pooled(own, ("device", "framework"), "efficiency"),
        "device": _pooled(own, ("device",), "efficiency"),
        "class": _between_devices(own),
        "model": _pooled(tables, ("device", "stack", "unit"), "efficiency"),
        "launch": float(np.std([np.log(t["launch_s"]) for t in swept], ddof=1)),
    }
    return {name: round(value, 4) for name, value in found.items()}


def _pooled(tables: Sequence[dict[str, Any]], keys: Sequence[str], value: str) -> float:
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for table in tables:
        groups[tuple(table[key] for key in keys)].append(float(np.log(table[value])))
    squares = sum(float(np.sum((np.array(g) - np.mean(g)) ** 2)) for g in groups.values())
    return float(np.sqrt(squares / max(1, sum(len(g) - 1 for g in groups.values()))))


def _between_devices(tables: Sequence[dict[str, Any]]) -> float:
    """Sd over devices, with that of stacks on one device: any stack on any device."""
    means: dict[str, list[float]] = defaultdict(list)
    for table in tables:
        means[table["device"]].append(float(np.log(table["efficiency"])))
    between = float(np.std([np.mean(values) for values in means.values()], ddof=1))
    return float(np.hypot(between, _pooled(tables, ("device",), "efficiency")))


def run(*, quick: bool = False) -> Result:
    """Refit, compare with the committed profile, and show how well two constants carry the rows."""
    tables = fit(of_kind("calibrate"))
    refitted, committed = parse_profile(tables), load_profile()
    rows = [
        {
            "id": point.partition("@")[0], "device": t["device"], "stack": t["stack"], "model": t["model"],
            "unit": t["unit"], "efficiency": t["efficiency"], "launch_s": t["launch_s"], "residual": residual,
            "kind": "calibrate",
        }
        for t in tables["fit"]
        for point, residual in zip(t["points"], t["residuals"], strict=True)
    ]  # fmt: skip
    fits = [{k: v for k, v in t.items() if k not in ("points", "residuals")} for t in tables["fit"]]
    claims = [
        Claim("the committed profile is what a refit gives", refitted == committed),
        Claim("two constants carry ResNet-50 over batches 1 to 128 within 4 %", _worst(rows, "resnet50", 4) < 0.04,
              f"worst residual {_worst(rows, 'resnet50', 4):.1%}"),
    ]  # fmt: skip
    spread = [{"unit": unit, **values} for unit, values in tables["spread"].items()]
    return Result(
        rows, claims, [Table("Fits", fits), Table("How far fits lie apart", spread), Table("Rows fitted to", rows)],
        [Picture("rates", "Step time over batch: rows and fits, MXNet, ResNet-50, fp32", lambda f: _draw(f, refitted))],
    )  # fmt: skip


def _worst(rows: Sequence[Mapping[str, Any]], model: str, least: int) -> float:
    counts: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if family(row["model"]) == model:
            counts[row["device"], row["stack"], row["unit"], row["model"]].append(abs(row["residual"]))
    return max(max(values) for values in counts.values() if len(values) >= least)


def _draw(figure: Any, profile: ComputeProfile) -> None:
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="images per device", ylabel="step time, s")
    known = points(of_kind("calibrate"))
    for fit_ in profile.fits:
        if family(fit_.model) != "resnet50" or len(fit_.points) < 4:
            continue
        group = [p for p in known if (p.device, p.stack, p.model) == (fit_.device, fit_.stack, fit_.model)]
        line = axes.plot([p.batch for p in group], [p.time for p in group], "o")[0]
        times = [b / fit_.efficiency + k * fit_.launch for b, k in (p.bounds() for p in group)]
        axes.plot([p.batch for p in group], times, color=line.get_color(), label=f"{fit_.device}, {fit_.stack}")
    axes.legend()
    axes.grid(visible=True, alpha=0.3)
