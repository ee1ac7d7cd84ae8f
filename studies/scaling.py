"""What devices of a node, and nodes, take from each other beyond what the model counts.

Sharing a host, an input pipeline, a power budget and a network costs time that no term of the model stands for. It is
taken from published runs of one model on 1, 8, 16 and 32 devices, in frameworks that no fact of kind `validate`
speaks of. What is found is committed in the profile `variation` of the catalogue. One column is left out, on the word
of its source: PaddlePaddle in 16 bits, which its own makers could not be matched in. The fit is made with the
catalogue's spread of ranks and interference, so that intervals draw what is fitted here and not those two again.

Source: Oneflow-Inc/DLPerf@c89430ba, reports/dlperf_benchmark_test_report_v1.md, ResNet-50 v1.5, images/s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simnet.compute import ComputeProfile, Fit, load_profile
from simnet.intervals import Interval, known_variation
from simnet.scenario import Scenario, Variation, load_scenario
from simnet.step_model import StepModel
from studies.study import Claim, Result, Table

DEVIATION_TO_80 = 1.2816 * 1.4826
"""From the median to the end of an 80 % interval, in median absolute deviations of a normal number."""


@dataclass(frozen=True, slots=True)
class Column:
    """Published rates of one framework on 1, 8, 16 and 32 devices, images/s."""

    framework: str
    precision: str
    batch: int
    buckets: str
    rates: tuple[float, float, float, float]


COLUMNS = (
    Column("OneFlow", "fp32", 128, "ddp", (397.64, 3130.34, 6260.30, 12411.97)),
    Column("NGC PyTorch", "fp32", 128, "ddp", (367.29, 2887.65, 5716.79, 10917.09)),
    Column("MXNet", "fp32", 128, "horovod", (384.19, 2556.03, 4855.34, 9579.74)),
    Column("TensorFlow 2", "fp32", 128, "per_layer", (321.80, 2458.74, 4849.68, 9418.44)),
    Column("PyTorch", "fp32", 128, "ddp", (348.62, 2632.93, 5115.40, 10021.29)),
    Column("PaddlePaddle", "fp32", 128, "lazy_fusion", (352.72, 2625.38, 4895.27, 9348.17)),
    Column("NGC PyTorch", "mixed", 256, "ddp", (802.9, 6154.66, 11991.94, 22551.16)),
    Column("MXNet", "mixed", 256, "horovod", (833.65, 2908.88, 5451.27, 10565.55)),
    Column("TensorFlow 2", "mixed", 256, "per_layer", (1075.27, 6898.00, 9870.15, 19314.31)),
)  # fmt: skip
COUNTS = (1, 8, 16, 32)


def _scenario(column: Column) -> Scenario:
    base = load_scenario("dlperf-32")
    job = replace(
        base.job, precision=column.precision, per_device_batch=column.batch, framework=f"{column.framework}-dlperf"
    )  # fmt: skip
    none = Variation(node_contention=0.0, network_contention=0.0)
    exchange = replace(base.exchange, buckets=column.buckets, bucket_options={})
    return replace(base, job=job, exchange=exchange, variation=none, draws=1)


def _profile(column: Column, scenario: Scenario) -> ComputeProfile:
    """The committed profile with one more fit: that of the column's own single-device rate."""
    model = StepModel(scenario)
    launch = model.efficiency.launch
    bound = model.roofline
    own = bound.time / (column.batch / column.rates[0] - bound.kernels * launch)
    framework = column.framework.partition("-")[0]
    unit = "fp32" if column.precision == "fp32" else "matrix"
    fit = Fit("v100-sxm2", framework, scenario.job.framework, unit, "resnet50", own, launch, False, 0.02, ())
    known = load_profile()
    return replace(known, fits=(*known.fits, fit))


def excess(column: Column) -> dict[int, float]:
    """Published over modelled time of a step, by devices; 1.0 on one device."""
    scenario = _scenario(column)
    model = StepModel(scenario, _profile(column, scenario))
    found = {}
    for count, rate in zip(COUNTS, column.rates, strict=True):
        found[count] = count * column.batch / rate / float(model.evaluate(count)[0].total[0])
    return found


def fit() -> dict[str, Interval]:
    """Median of what is left over, with an 80 % interval from the median deviation, which starved runs hardly move."""
    left = [excess(column) for column in COLUMNS]
    node = [one[8] / one[1] - 1 for one in left]
    network = [one[count] / one[8] - 1 for one in left for count in (16, 32)]
    return {"node_contention": _interval(node), "network_contention": _interval(network)}


def _interval(values: list[float]) -> Interval:
    middle = float(np.median(values))
    high = middle + DEVIATION_TO_80 * float(np.median(np.abs(np.array(values) - middle)))
    return Interval(round(middle, 4), round(middle**2 / high, 4), round(high, 4))


def run(*, quick: bool = False) -> Result:
    """Refit the contention, and show what is left over in every column."""
    rows: list[dict[str, Any]] = []
    for column in COLUMNS:
        left = excess(column)
        rows += [
            {"framework": column.framework, "precision": column.precision, "devices": n, "published": rate,
             "time_over_model": left[n], "kind": "calibrate"}
            for n, rate in zip(COUNTS, column.rates, strict=True)
        ]  # fmt: skip
    found = fit()
    fits = [{"what": name, "value": i.value, "low": i.low, "high": i.high} for name, i in found.items()]
    close = all(abs(i.value - known_variation()[name].value) < 0.003 for name, i in found.items())
    return Result(
        rows,
        [Claim("the committed profile is what a refit gives, within 0.3 % of the compute time", close)],
        [Table("Contention, as fractions of the compute time", fits), Table("Rows fitted to", rows)],
    )
