"""The eighteen figures of the record-training papers, predicted and put beside what was published.

Every prediction comes from a scenario file of the catalogue through the whole model: compute time from single-device
rows, gradient exchange beside the backward pass, the slowest rank, epochs, evaluation and start-up. Nothing is fitted
to a row shown here. Published batch and top-1 accuracy stand beside the rows; they are not predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from simnet.intervals import Interval
from simnet.prediction import RunPrediction, efficiencies, predict_run, recipe_of, run_of, with_devices
from simnet.scenario import Scenario, load_scenario
from simnet.step_model import StepModel
from studies.facts import find
from studies.study import Claim, Picture, Result, Table

UNKNOWN = 2.0
"""A row whose high is more than this many times its low tells nothing: its baseline is unknown."""

Curve = list[tuple[int, Interval, Interval]]

POINTS = 0.05
WIDEST = 0.12


@dataclass(frozen=True, slots=True)
class Efficiency:
    """A published efficiency, the scenario that predicts it, and the base its source states, if any."""

    id: str
    fact: str
    scenario: str
    base: str


@dataclass(frozen=True, slots=True)
class RunFigure:
    """A published time or throughput of a run; `also` are device counts its sources disagree on."""

    id: str
    fact: str
    scenario: str
    quantity: str = "time to train"
    also: tuple[int, ...] = ()


EFFICIENCIES = (
    Efficiency("goyal-256-efficiency", "goyal.eff", "goyal-352", "one node"),
    Efficiency("akiba-1024-efficiency", "akiba.eff", "akiba-1024", "not stated"),
    Efficiency("jia-2048-efficiency", "jia.rn50.eff", "jia-2048", "not stated"),
    Efficiency("sony-1088-efficiency", "sony.v1.eff1088", "sony-1088", "not stated"),
)
RUNS = (
    RunFigure("he-8-time", "he.p100x8", "he-8"),
    RunFigure("goyal-256-time", "goyal.time256", "goyal-256"),
    RunFigure("smith-tpu-time", "smith.time", "smith-tpu", also=(128,)),
    RunFigure("akiba-1024-time", "akiba.time", "akiba-1024"),
    RunFigure("jia-2048-time", "jia.rn50.2048", "jia-2048"),
    RunFigure("sony-2176-time", "sony.v1.time", "sony-2176"),
    RunFigure("ying-1024-time", "ying.time", "ying-1024"),
    RunFigure("ying-1024-throughput", "ying.thr", "ying-1024", "throughput"),
    RunFigure("you-m40-time", "you.m40", "you-m40"),
    RunFigure("you-knl512-time", "you.rn50.1h", "you-knl512"),
    RunFigure("you-knl512-alexnet-time", "you.alex24", "you-knl512-alexnet"),
)
MISSES = {
    "he-8-time": "no single-device speed of Caffe is published; MXNet, TensorFlow and Caffe2, which set the interval, "
    "were faster on this device than Caffe was",
    "goyal-256-time": "the headline is rounded to an hour; of its server one backward pass alone is published",
    "sony-2176-time": "no single-device speed of NNL is published, nor what the headline holds beside training",
    "you-knl512-alexnet-time": "AlexNet computes so little per byte that the network and the reading of images decide, "
    "and neither was published for this run",
}


@cache
def _run(name: str, devices: int = 0) -> RunPrediction:
    if devices:
        return predict_run(with_devices(load_scenario(name), devices))
    return run_of(_model(name))


@cache
def _model(name: str) -> StepModel:
    return StepModel(load_scenario(name))


def _row(
    id_: str, fact: str, found: Interval, *, published: float, quantity: str, unit: str, basis: str, **more: Any
) -> dict[str, Any]:
    inside = found.low <= published <= found.high
    row = {
        "id": id_, "system": find(fact).system, "quantity": quantity, "unit": unit, "published": published,
        "predicted": found.value, "low": found.low, "high": found.high, "error": found.value / published - 1,
        "basis": basis, "inside": inside, "reason": _reason(id_, found, basis, inside), "kind": find(fact).kind,
    }  # fmt: skip
    return {**row, **more}


def _reason(id_: str, found: Interval, basis: str, inside: bool) -> str:
    reasons = []
    if found.high / found.low > UNKNOWN:
        reasons.append(f"baseline unknown: {basis.partition(' (')[0]}")
    if not inside:
        reasons.append(MISSES.get(id_, "unexplained"))
    return "; ".join(reasons)


def _shown(scenario: Scenario) -> dict[str, Any]:
    """What the source reached, for the reader: not predicted."""
    if not scenario.job.recipe:
        return {"published_batch": None, "published_top1": None}
    recipe = recipe_of(scenario)
    return {"published_batch": recipe.largest_batch, "published_top1": recipe.accuracy}


def _efficiency(row: Efficiency) -> dict[str, Any]:
    model = _model(row.scenario)
    scenario = model.scenario
    device, node, any_ = efficiencies(model, scenario.job.devices)
    published = find(row.fact).value / 100
    found = node if row.base == "one node" else any_
    midway = "" if row.base == "one node" else ", so midway between both"
    basis = f"base {row.base}{midway}; {model.efficiency.basis}"
    return _row(
        row.id, row.fact, found, published=published, quantity="scaling efficiency", unit="fraction", basis=basis,
        error_points=100 * (found.value - published), predicted_device_base=device.value, low_device_base=device.low,
        high_device_base=device.high, predicted_node_base=node.value, low_node_base=node.low, high_node_base=node.high,
        devices=scenario.job.devices, **_shown(scenario),
    )  # fmt: skip


def _figure(row: RunFigure) -> dict[str, Any]:
    scenario = load_scenario(row.scenario)
    predictions = [_run(row.scenario), *(_run(row.scenario, n) for n in row.also)]
    intervals = [p.step.samples_per_s if row.quantity == "throughput" else p.time_s for p in predictions]
    value = intervals[0].value
    found = Interval(value, min(i.low for i in intervals), max(i.high for i in intervals))
    also = (
        f"; device count {' or '.join(map(str, row.also))} in other accounts, inside the interval" if row.also else ""
    )
    unit = "images/s" if row.quantity == "throughput" else "s"
    return _row(
        row.id, row.fact, found, published=find(row.fact).value, quantity=row.quantity, unit=unit,
        basis=predictions[0].step.basis + also,
        devices=scenario.job.devices, **_shown(scenario),
    )  # fmt: skip


def _arithmetic() -> list[dict[str, Any]]:
    knl, dgx = find("you.price.knl").value, find("you.price.dgx1").value
    rows = (
        ("you-knl512-cost", "you.price.sys", "USD", 512 * knl, 5e4, f"512 processors at {knl} USD"),
        ("goyal-dgx1-cost", "you.price.fb", "USD", 32 * dgx, 5e4, f"32 servers at {dgx} USD"),
    )
    found = [
        _row(i, fact, Interval(v, v - half, v + half), published=find(fact).value, quantity="price", unit=unit,
             basis=f"{basis}; the interval is the rounding of the published figure")
        for i, fact, unit, v, half, basis in rows
    ]  # fmt: skip
    operations, speed = find("wl.rn50.total_flop_90ep").value, 2e17
    seconds = operations / speed
    five = _row(
        "you-five-seconds", "wl.rn50.total_flop_90ep", Interval(seconds, seconds - 0.5, seconds + 0.5),
        published=5.0, quantity="time to train", unit="s",
        basis="1e18 operations at 2e17 a second; the interval is the rounding of the published figure",
    )  # fmt: skip
    return [{**row, "kind": "arithmetic"} for row in (*found, five)]


def rows() -> list[dict[str, Any]]:
    """Return the eighteen rows, SI units, efficiencies as fractions."""
    return [*map(_efficiency, EFFICIENCIES), *map(_figure, RUNS), *_arithmetic()]


def run(*, quick: bool = False) -> Result:
    """Predict the eighteen rows, check what is claimed of them, and draw them."""
    found = rows()
    pictures = [
        Picture("rows", "Published against predicted, 80 % intervals, log axes", lambda f: _draw_rows(f, found))
    ]
    curves = [_curve(row, quick=quick) for row in EFFICIENCIES]
    pictures.append(
        Picture("efficiency", "Scaling efficiency over devices: predicted bands against one device and one node, "
                "and the published points", lambda f: _draw_curves(f, curves, found), (11.0, 8.0))
    )  # fmt: skip
    assumed = [
        f"{row.scenario}: {text}" for row in (*EFFICIENCIES, *RUNS) for text in load_scenario(row.scenario).assumed
    ]
    return Result(found, claims(found), _tables(found), pictures, list(dict.fromkeys(assumed)))


def claims(found: Sequence[dict[str, Any]]) -> list[Claim]:
    """What must hold of the rows."""
    efficient = [r for r in found if r["quantity"] == "scaling efficiency"]
    between = [
        r["predicted_device_base"] - POINTS <= r["published"] <= r["predicted_node_base"] + POINTS for r in efficient
    ]
    widths = [
        r[f"high{base}"] - r[f"low{base}"] for r in efficient for base in ("", "_device_base", "_node_base")
    ]  # fmt: skip
    known = [r["high"] / r["low"] for r in found if r["id"] == "goyal-256-time"]
    missed = [r for r in found if not r["inside"]]
    unknown = [r for r in found if r["high"] / r["low"] > UNKNOWN]
    return [
        Claim("there are eighteen rows with their own ids", len({r["id"] for r in found}) == 18),
        Claim("published efficiencies lie between both bases, give or take 5 points", all(between)),
        Claim("efficiencies have intervals of at most 12 points", max(widths) <= WIDEST, f"widest {max(widths):.1%}"),
        Claim("times with a row of the same device and framework have high/low of at most 1.5", max(known) <= 1.5),
        Claim("at most 3 rows are missed, each with a reason",
              len(missed) <= 3 and all(r["reason"] not in ("", "unexplained") for r in missed),
              ", ".join(r["id"] for r in missed) or "none"),
        Claim("at most 8 baselines are unknown", len(unknown) <= 8, ", ".join(r["id"] for r in unknown)),
    ]  # fmt: skip


def _tables(found: Sequence[dict[str, Any]]) -> list[Table]:
    main = ("id", "published", "predicted", "low", "high", "unit", "error", "inside", "kind", "reason", "basis")
    bases = ("id", "published", "predicted_device_base", "low_device_base", "high_device_base", "predicted_node_base",
             "low_node_base", "high_node_base")  # fmt: skip
    shown = ("id", "devices", "published_batch", "published_top1")
    efficient = [r for r in found if r["quantity"] == "scaling efficiency"]
    ratios = sorted(r["high"] / r["low"] for r in found if r["kind"] == "validate")
    inside = sum(r["inside"] for r in found)
    note = (
        f"{inside} of {len(found)} published values lie inside; the median high/low is {ratios[len(ratios) // 2]:.2f}."
    )
    return [
        Table("Predicted and published", [{k: r[k] for k in main} for r in found], note),
        Table("Efficiencies against both bases", [{k: r[k] for k in bases} for r in efficient]),
        Table("Shown beside, not predicted", [{k: r.get(k) for k in shown} for r in found if r.get("published_batch")]),
    ]


def _curve(row: Efficiency, *, quick: bool) -> tuple[Efficiency, Curve]:
    model = _model(row.scenario)
    node, most = model.cluster.node.num_devices, model.scenario.job.devices
    counts = [node, most] if quick else [n for n in (node, 4 * node, 16 * node, 64 * node) if n < most] + [most]
    return row, [(n, *efficiencies(model, n)[:2]) for n in counts]


def _draw_rows(figure: Any, found: Sequence[dict[str, Any]]) -> None:
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="published, SI units", ylabel="predicted, SI units")
    ends = [
        min(min(r["published"], r["low"]) for r in found) / 1.6,
        max(max(r["published"], r["high"]) for r in found) * 1.6,
    ]
    axes.plot(ends, ends, color="0.6", linewidth=1)
    for row in found:
        colour = "tab:blue" if row["inside"] else "tab:red"
        error = [[row["predicted"] - row["low"]], [row["high"] - row["predicted"]]]
        axes.errorbar(row["published"], row["predicted"], error, fmt="o", color=colour, capsize=3, markersize=4)
    _number(axes, [r for r in found if r["published"] > 1])
    inset = axes.inset_axes((0.62, 0.12, 0.36, 0.33), xlabel="published efficiency", ylabel="predicted")
    for row in (r for r in found if r["published"] < 1):
        error = [[row["predicted"] - row["low"]], [row["high"] - row["predicted"]]]
        inset.errorbar(row["published"], row["predicted"], error, fmt="o", capsize=3, label=row["id"].split("-")[0])
    inset.plot([0.75, 1], [0.75, 1], color="0.6", linewidth=1)
    inset.legend(fontsize=7, loc="upper left")


def _number(axes: Any, found: Sequence[dict[str, Any]]) -> None:
    """Number the points from small to large, and list the names; red ones are missed."""
    ordered = sorted(found, key=lambda r: r["published"])
    for number, row in enumerate(ordered, 1):
        place = {"xytext": (8, -10 if number % 2 else 5), "textcoords": "offset points", "fontsize": 8}
        axes.annotate(str(number), (row["published"], row["predicted"]), **place)
    names = "\n".join(f"{number:>2} {row['id']}" for number, row in enumerate(ordered, 1))
    axes.text(0.02, 0.98, names, transform=axes.transAxes, va="top", fontsize=8, family="monospace")


def _draw_curves(
    figure: Any,
    curves: Sequence[tuple[Efficiency, list[tuple[int, Interval, Interval]]]],
    found: Sequence[dict[str, Any]],
) -> None:
    published = {row["id"]: row["published"] for row in found}
    for index, (row, points) in enumerate(curves):
        axes = figure.add_subplot(2, 2, index + 1, xscale="log", ylim=(0.6, 1.02), title=row.scenario)
        counts = [n for n, _, _ in points]
        bands = (([p[1] for p in points], "one device"), ([p[2] for p in points], "one node"))
        for band, base in bands:
            line = axes.plot(counts, [i.value for i in band], label=f"against {base}")[0]
            low, high = [i.low for i in band], [i.high for i in band]
            axes.fill_between(counts, low, high, color=line.get_color(), alpha=0.2)
        axes.plot(counts[-1], published[row.id], "k*", markersize=12, label=f"published, base {row.base}")
        axes.set(xlabel="devices", ylabel="scaling efficiency")
        axes.legend(loc="lower left", fontsize=8)
        axes.grid(visible=True, alpha=0.3)
