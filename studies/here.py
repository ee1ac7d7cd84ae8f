"""Closing the loop on this machine: probe, calibrate, predict, then measure, on four local ranks.

Four gloo ranks on the loopback device, seen as a 2 x 2 grid and as two nodes of two. A probe measures what
a message costs while all ranks exchange, and what an addition costs. Loopback is no network: a message is work
for cores, so the cores are the link that messages share (`studies.shared_cores`). The profile predicts four
algorithms at sizes nothing was fitted to; the predictions are written to a file; then PyTorch runs the same
schedules. The report says how far the samples of one row lie apart.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from realrun.environment import load_average, num_cores
from realrun.priority import real_time
from simnet.algorithms.registry import build
from simnet.calibration import calibrate
from simnet.collective import Kind
from simnet.comparison import Accuracy, Comparison, compare
from simnet.costs.fitted import of_profile
from simnet.errors import Incomplete, InvalidInput, Unsupported
from simnet.importers.logs import read_log
from simnet.interpreters import engine
from simnet.metrics import algbw, busbw
from simnet.results import CollectivePrediction, Fitted, Profile
from simnet.units import format_duration, parse_sizes
from studies.shared_cores import CoreTime, SharedCores
from studies.study import Claim, Picture, Result, Row, Table

if TYPE_CHECKING:
    from realrun.ranks import RankPool

RANKS = 4
MOST_PROBES = 5
BUSY = 1.0
ITEM_BYTES = 4
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "ring": {},
    "torus2d": {"grid": (2, 2)},
    "halving_doubling": {},
    "hierarchical": {"ranks_per_node": 2},
}
_PROBE_SIZES = {True: "1K:4M:16", False: "256:4M:4"}
_SIZES = {True: "16K,1M", False: "4K:4M:4"}


@dataclass(frozen=True, slots=True)
class _Predicted:
    rows: list[CollectivePrediction]
    profile: Profile
    sha256: str
    written: float
    probes: int


@dataclass(frozen=True, slots=True)
class _Conditions:
    """Load average before the run, and whether ranks ran at real-time priority."""

    load: float
    real_time: bool


def run(*, quick: bool = False) -> Result:
    """Probe, calibrate, predict and write it down, measure, compare.

    Raises
    ------
    Unsupported : torch is not installed.
    """
    if find_spec("torch") is None:
        raise Unsupported('the study "here" needs PyTorch; install simnet-testbed[real]')
    from realrun.ranks import RankPool

    iterations, load = 8 if quick else 20, load_average()
    with (
        nullcontext(False) if quick else real_time() as raised,
        TemporaryDirectory() as folder,
        RankPool(RANKS) as pool,
    ):
        predicted = _predict(pool, Path(folder), quick, iterations)
        began = time.time()
        measured = _measure(pool, quick, iterations)
        log = _write(Path(folder) / "measured.jsonl", measured)
        compared = compare(
            predicted.rows, read_log(log).measurements, profiles={predicted.profile.name: predicted.profile}
        )
    return _result(predicted, measured, compared, began, _Conditions(load, raised))


def _predict(pool: RankPool, folder: Path, quick: bool, iterations: int) -> _Predicted:
    profile, probes = _profile(pool, folder, quick, iterations)
    rows = [row for name, options in ALGORITHMS.items() for row in _predictions(name, options, profile, quick)]
    path = _write(folder / "predicted.jsonl", map(asdict, rows))
    return _Predicted(rows, profile, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime, probes)


def _profile(pool: RankPool, folder: Path, quick: bool, iterations: int) -> tuple[Profile, int]:
    """Probe until the rows agree with each other, at most `MOST_PROBES` times; also how often that took."""
    from realrun.plans import ProbePlan

    plan = ProbePlan(
        tuple(parse_sizes(_PROBE_SIZES[quick])), loaded=True, one_way=False, iterations=iterations, warmup=5
    )
    for attempt in range(1, MOST_PROBES + 1):
        log = read_log(_write(folder / f"probe-{attempt}.jsonl", pool.stream("realrun.probe:probe", plan)))
        try:
            return calibrate(log.measurements, name="this machine"), attempt
        except InvalidInput as error:
            contradiction = error
    raise Incomplete(f"{MOST_PROBES} probes each contradict themselves: {contradiction}; run it on a machine at rest")


def _predictions(
    algorithm: str, options: Mapping[str, Any], profile: Profile, quick: bool
) -> list[CollectivePrediction]:
    schedule, cores = build(algorithm, RANKS, **options), num_cores()
    counts = [size // ITEM_BYTES for size in parse_sizes(_SIZES[quick])]
    timed = [
        engine.run(schedule, counts, SharedCores(RANKS, cores), CoreTime(of_profile(at), RANKS, cores), gamma=gamma)
        for at, gamma in _ends(profile)
    ]
    low, middle, high = np.sort([np.asarray(run.time, float) for run in timed], axis=0)
    return [
        CollectivePrediction(
            "all_reduce", algorithm, "this machine", RANKS, count * ITEM_BYTES, count, "float", time,
            algbw(count * ITEM_BYTES, time), busbw(Kind.ALL_REDUCE, RANKS, count * ITEM_BYTES, time),
            timed[0].engine, bool(np.all(timed[0].exact)), profile.name, low_s, high_s,
        )
        for count, time, low_s, high_s in zip(counts, *(x.tolist() for x in (middle, low, high)), strict=True)
    ]  # fmt: skip


def _ends(profile: Profile) -> list[tuple[Profile, float]]:
    """The profile and its time per byte added: as found, and all figures at their fast and at their slow ends."""
    gamma = profile.gamma_s_per_byte or Fitted(0.0, 0.0, 0.0)

    def at(latency: str, bandwidth: str) -> Profile:
        return replace(profile, segments=tuple(
            replace(
                segment,
                latency_s=replace(segment.latency_s, value=getattr(segment.latency_s, latency)),
                bandwidth_bytes_per_s=replace(
                    segment.bandwidth_bytes_per_s, value=getattr(segment.bandwidth_bytes_per_s, bandwidth)
                ),
            )
            for segment in profile.segments
        ))  # fmt: skip

    return [(profile, gamma.value), (at("low", "high"), gamma.low), (at("high", "low"), gamma.high)]


def _measure(pool: RankPool, quick: bool, iterations: int) -> list[dict[str, Any]]:
    from realrun.plans import Plan

    sizes = tuple(parse_sizes(_SIZES[quick]))
    plans = (Plan(name, sizes, options, iterations=iterations, warmup=5) for name, options in ALGORITHMS.items())
    return [row for plan in plans for row in pool.stream("realrun.benchmark:sweep", plan)]


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _result(
    predicted: _Predicted,
    measured: Sequence[Mapping[str, Any]],
    compared: Comparison,
    began: float,
    conditions: _Conditions,
) -> Result:
    samples = {(row["algorithm"], row["size_bytes"]): row["samples_s"] for row in measured}
    rows = [
        {
            "id": f"here-{row.algorithm}-{row.size_bytes}", "algorithm": row.algorithm, "size_bytes": row.size_bytes,
            "unit": "s", "predicted": row.expected_s, "low": row.low_s, "high": row.high_s, "measured": row.measured_s,
            "fastest": min(samples[row.algorithm, row.size_bytes]),
            "spread": _spread(samples[row.algorithm, row.size_bytes]), "error": row.error, "inside": row.inside,
        }
        for row in compared.rows
    ]  # fmt: skip
    wrong = sum(row["num_wrong"] for row in measured)
    claims = [
        Claim("every element of every sum is right", wrong == 0, f"{wrong} wrong"),
        Claim("predictions were written before the measurement began", predicted.written < began,
              f"sha256 {predicted.sha256[:16]}"),
        Claim("no row was fitted to", not compared.calibrated),
    ]  # fmt: skip
    picture = Picture("times", "Predicted (lines, with their intervals) and measured (points) times.", _drawing(rows))
    tables = [Table("Predicted and measured on this machine", rows)]
    return Result(rows, claims, tables, [picture], _notes(predicted, measured, compared, conditions))


def _spread(samples: Sequence[float]) -> float:
    """Distance between the quartiles over the median, a fraction."""
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return float((high - low) / middle)


def _notes(
    predicted: _Predicted, measured: Sequence[Mapping[str, Any]], compared: Comparison, conditions: _Conditions
) -> list[str]:
    segments = "; ".join(
        f"up to {'any size' if s.max_bytes is None else f'{s.max_bytes} bytes'} {format_duration(s.latency_s.value)} "
        f"and {s.bandwidth_bytes_per_s.value / 1e9:.3g} GB/s"
        for s in predicted.profile.segments
    )
    refused = sum(point.collective == "exchange" for point in predicted.profile.refused)
    return [
        _accuracy_text(compared.accuracy()),
        _noise_text(measured, conditions),
        f"A message while all ranks exchange, as fitted to {len(predicted.profile.points)} probe rows "
        f"({refused} refused, probe {predicted.probes} of at most {MOST_PROBES}): {segments}.",
    ]


def _accuracy_text(figures: Accuracy) -> str:
    return (
        f"{figures.rows} rows, none fitted to: geometric mean error {figures.geometric_mean:.0%}, "
        f"MAPE {figures.mape:.0%}, bias {figures.bias:+.0%}, largest {figures.max:.0%}. "
        f"{figures.inside or 0.0:.0%} of the times lie in the 80 % interval, which knows of the fit to the probe "
        "alone, not of the model's own error."
    )


def _noise_text(measured: Sequence[Mapping[str, Any]], conditions: _Conditions) -> str:
    environment = measured[0]["environment"]
    spread = float(np.median([_spread(row["samples_s"]) for row in measured]))
    shared = f"{RANKS} ranks share {environment['cores']} cores, so times include waiting for a core. "
    busy = (
        f"The machine was busy before the run (load average {conditions.load:.1f} on {environment['cores']} cores), "
        "which no prediction knows of. "
    )
    return (
        (shared if environment["ranks_exceed_cores"] else "")
        + (busy if conditions.load > BUSY else "")
        + ("Ranks ran at real-time priority. " if conditions.real_time else "Ranks ran at their usual priority. ")
        + (f"The middle half of a row's samples spans {spread:.0%} of their median (median over rows).")
    )


def _drawing(rows: Sequence[Row]) -> Any:
    def draw(figure: Any) -> None:
        axes = figure.add_subplot(xscale="log", yscale="log", xlabel="bytes per rank", ylabel="time, s")
        for algorithm, style in zip(ALGORITHMS, ("-", "-", "--", "-"), strict=True):  # two may have one prediction
            own = [row for row in rows if row["algorithm"] == algorithm]
            sizes = [row["size_bytes"] for row in own]
            line = axes.plot(sizes, [row["predicted"] for row in own], style, label=algorithm)[0]
            axes.fill_between(sizes, [row["low"] for row in own], [row["high"] for row in own],
                              color=line.get_color(), alpha=0.1)  # fmt: skip
            axes.plot(sizes, [row["measured"] for row in own], "o", color=line.get_color())
        axes.legend()
        axes.grid(visible=True, alpha=0.3)

    return draw
