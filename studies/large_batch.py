"""How far the batch can grow at a fixed number of epochs, on handwritten digits, and which remedy helps.

Plain SGD with the linearly scaled rate, then one remedy after another: warm-up, LARS, a batch that grows during the
run, label smoothing. The network is small and the images are 8x8, so this shows the shape of the effect at a scale
that runs here in minutes, not the accuracy of ImageNet. Settings are chosen once, at the smallest batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from realrun.batch_control import BatchControl, BatchPhase, num_steps
from realrun.data import InMemory, digits
from realrun.learning_rate import LearningRate, linear_scaling
from realrun.train import Job, Trainer, epoch_rows
from studies.study import Claim, Picture, Result, Table

_log = logging.getLogger(__name__)

BASE_BATCH, BASE_RATE, LARS_RATE = 32, 0.1, 0.5
REMEDIES = ("sgd", "warm-up", "lars", "batch control", "label smoothing")


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is trained."""

    batches: tuple[int, ...]
    remedies: tuple[str, ...]
    seeds: int
    epochs: int
    samples: int


FULL = Extent((32, 128, 512, 1437), REMEDIES, seeds=3, epochs=12, samples=1437)
QUICK = Extent((32, 256), ("sgd", "lars"), seeds=1, epochs=4, samples=1024)


def job_of(remedy: str, batch: int, extent: Extent, *, seed: int) -> Job:
    """Return the run of one remedy, which includes those before it, at one global batch on one rank."""
    level = REMEDIES.index(remedy)
    lars = level >= REMEDIES.index("lars")
    peak = linear_scaling(LARS_RATE if lars else BASE_RATE, batch, base_batch=BASE_BATCH)
    if lars:
        peak = LARS_RATE * (batch / BASE_BATCH) ** 0.5
    warm_up = extent.epochs / 4 if level >= 1 else 0.0
    return Job(
        epochs=extent.epochs, batch=_control(batch, extent.epochs, grows=level >= REMEDIES.index("batch control")),
        rate=LearningRate(peak, extent.epochs, warm_up_epochs=warm_up, decay="polynomial"),
        optimizer="lars" if lars else "sgd", eta=0.02, momentum_form="rate_outside", seed=seed, bn_momentum=0.3,
        label_smoothing=0.1 if remedy == "label smoothing" else 0.0,
    )  # fmt: skip


def _control(batch: int, epochs: int, *, grows: bool) -> BatchControl:
    """Half of the batch for the first third of the run, where it grows; the rate follows its own schedule."""
    if not grows:
        return BatchControl((BatchPhase(0, batch),))
    return BatchControl((BatchPhase(0, max(1, batch // 2)), BatchPhase(max(1, epochs // 3), batch)))


def data_of(extent: Extent) -> InMemory:
    """Digits; fewer of them for a quick look."""
    whole = digits()
    kept = np.r_[: extent.samples, whole.num_train : len(whole.labels)]
    return replace(whole, images=whole.images[kept], labels=whole.labels[kept], num_train=extent.samples)


def train_all(extent: Extent) -> Iterator[dict[str, Any]]:
    """Train every remedy at every batch and seed; yields one row per run with its curve."""
    data = data_of(extent)
    for batch in extent.batches:
        for remedy in extent.remedies:
            for seed in range(extent.seeds):
                curve = list(_curve(job_of(remedy, batch, extent, seed=seed), data))
                _log.info("%s, batch %d, seed %d: accuracy %.3f", remedy, batch, seed, curve[-1])
                yield {"remedy": remedy, "batch": batch, "seed": seed, "accuracy": curve[-1], "curve": curve}


def _curve(job: Job, data: InMemory) -> Iterator[float]:
    trainer = Trainer(job, data=data)
    while trainer.epoch < job.epochs:
        for row in epoch_rows(trainer):
            if row["kind"] == "epoch":
                yield row["validation_accuracy"]


def rows_of(runs: Sequence[dict[str, Any]], extent: Extent) -> list[dict[str, Any]]:
    """Return one row per remedy and batch: median, lowest and highest validation accuracy over seeds."""
    rows = []
    for batch in extent.batches:
        for remedy in extent.remedies:
            found = [run["accuracy"] for run in runs if run["remedy"] == remedy and run["batch"] == batch]
            rows.append({
                "id": f"{remedy}-{batch}", "system": "digits", "quantity": f"validation accuracy, {remedy}",
                "unit": "fraction", "batch": batch, "published": None, "predicted": None, "error": None,
                "accuracy": float(np.median(found)), "low": min(found), "high": max(found), "seeds": len(found),
                "epochs": extent.epochs, "kind": "measured here", "basis": "trained on this machine, every seed kept",
            })  # fmt: skip
    return rows


def findings(rows: Sequence[dict[str, Any]], extent: Extent) -> list[dict[str, Any]]:
    """Say of each expectation of the literature whether it holds here, with the figures; none is assumed."""
    at = {(row["quantity"].rpartition(", ")[2], row["batch"]): row["accuracy"] for row in rows}
    small, large = extent.batches[0], extent.batches[-1]
    found = [_finding(f"plain SGD with a linearly scaled rate loses accuracy from batch {small} to {large}",
                      at["sgd", small] - at["sgd", large], "points lost", threshold=0.01)]  # fmt: skip
    for before, remedy in zip(extent.remedies, extent.remedies[1:], strict=False):
        gain = at[remedy, large] - at[before, large]
        found.append(_finding(f"{remedy} on top of {before} helps at batch {large}", gain, "points gained"))
    best = max(at[remedy, large] for remedy in extent.remedies)
    found.append(_finding(
        f"the best remedy keeps the accuracy of batch {small} at batch {large} within one point",
        best - at["sgd", small], "points difference", threshold=-0.01,
    ))  # fmt: skip
    return found


def _finding(text: str, difference: float, what: str, *, threshold: float = 0.0) -> dict[str, Any]:
    return {"expectation": text, "holds_here": bool(difference > threshold), what: f"{100 * difference:+.1f}"}


def run(*, quick: bool = False) -> Result:
    """Train and compare; `quick` takes two remedies, two batches and a third of the images."""
    import torch

    extent, threads = QUICK if quick else FULL, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runs = list(train_all(extent))
    finally:
        torch.set_num_threads(threads)
    rows = rows_of(runs, extent)
    claims = [
        Claim("every run ends with a finite loss and better than chance at the smallest batch",
              all(row["low"] > 0.2 for row in rows if row["batch"] == extent.batches[0])),
        Claim("the same seed gives the same batches and the same accuracy again", _repeats(runs[0], extent)),
    ]  # fmt: skip
    table = [
        {"remedy": remedy, **{f"batch {row['batch']}": f"{row['accuracy']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
                              for row in rows if row["quantity"].endswith(f", {remedy}")}}
        for remedy in extent.remedies
    ]  # fmt: skip
    updates = {f"batch {batch}": str(_updates(batch, extent)) for batch in extent.batches}
    table.append({"remedy": "updates (no growth)", **updates})
    tables = [
        Table("Validation accuracy: median over seeds (lowest to highest)", table, "each line adds to the one before"),
        Table("What holds here and what does not", findings(rows, extent)),
    ]
    return Result(rows, claims, tables, [_picture(rows, extent), _curves(runs, extent)], _NOTES)


def _updates(batch: int, extent: Extent) -> int:
    """Steps of a whole run at one batch."""
    return extent.epochs * num_steps(extent.samples, batch, 1)


def _repeats(first: dict[str, Any], extent: Extent) -> bool:
    short = replace(extent, epochs=1)
    ends = [list(_curve(job_of(first["remedy"], first["batch"], short, seed=0), data_of(short))) for _ in range(2)]
    return ends[0] == ends[1]


_NOTES = (
    f"Rate {BASE_RATE} (SGD) at batch {BASE_BATCH}, scaled linearly; LARS {LARS_RATE} with trust 0.02, scaled by the "
    "square root; polynomial decay of power 2; momentum 0.9; every remedy includes those above it.",
    "357 validation images: one image is 0.28 points, so differences below a point are noise.",
)


def _picture(rows: Sequence[dict[str, Any]], extent: Extent) -> Picture:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for remedy in extent.remedies:
            chosen = [row for row in rows if row["quantity"].endswith(f", {remedy}")]
            middle = np.array([row["accuracy"] for row in chosen])
            spread = [middle - [row["low"] for row in chosen], np.array([row["high"] for row in chosen]) - middle]
            axes.errorbar([row["batch"] for row in chosen], middle, yerr=spread, marker="o", capsize=3, label=remedy)
        axes.set(xscale="log", xlabel="global batch", ylabel="validation accuracy")
        axes.legend()

    return Picture("accuracy", f"Accuracy after {extent.epochs} epochs; bars span the seeds.", draw, (7.0, 5.0))


def _curves(runs: Sequence[dict[str, Any]], extent: Extent) -> Picture:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for remedy in extent.remedies:
            curves = [run["curve"] for run in runs if run["remedy"] == remedy and run["batch"] == extent.batches[-1]]
            axes.plot(np.arange(1, extent.epochs + 1), np.median(curves, axis=0), marker=".", label=remedy)
        axes.set(xlabel="epoch", ylabel="validation accuracy")
        axes.legend()

    return Picture("curves", f"Training at batch {extent.batches[-1]}, median over seeds.", draw, (7.0, 5.0))
