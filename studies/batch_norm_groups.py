"""Batch normalisation over groups of ranks: what a larger group buys at small batches per rank, and what it costs.

Four local ranks train on handwritten digits with few samples each, normalising alone, in pairs, or all together.
All together must equal one process with the whole batch; the cost is two exchanges per normalised layer and step.

Source of the method: Ying et al., arXiv 1811.06992, section 3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from realrun.batch_control import BatchControl, BatchPhase
from realrun.batch_norm import GroupBatchNorm
from realrun.data import InMemory, digits
from realrun.learning_rate import LearningRate
from realrun.rank_process import preload
from realrun.ranks import RankPool
from realrun.train import Job, Trainer, epoch_rows
from studies.study import Claim, Result, Table

_log = logging.getLogger(__name__)

RANKS = 4
GROUPS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is trained."""

    per_rank: tuple[int, ...]
    groups: tuple[int, ...]
    seeds: int
    epochs: int
    samples: int


FULL = Extent((2, 8), GROUPS, seeds=3, epochs=4, samples=1437)
QUICK = Extent((4,), (1, 4), seeds=1, epochs=1, samples=128)


def job_of(group: int, per_rank: int, extent: Extent, *, seed: int) -> Job:
    """Return the run that normalises over groups of so many ranks."""
    batch = per_rank * RANKS
    return Job(
        epochs=extent.epochs, batch=BatchControl((BatchPhase(0, per_rank),)), bn_ranks=group, seed=seed,
        rate=LearningRate(0.1 * batch / 32, extent.epochs, warm_up_epochs=extent.epochs / 4),
    )  # fmt: skip


def train(job: Job, data: InMemory) -> dict[str, Any]:
    """Train on this rank; return accuracy, seconds per step, exchanged values per step and the weights."""
    import torch

    torch.set_num_threads(1)
    trainer = Trainer(job, data=data)
    rows = []
    while trainer.epoch < job.epochs:
        rows += list(epoch_rows(trainer))
    epochs = [row for row in rows if row["kind"] == "epoch"]
    norms = [m for m in trainer.model.modules() if isinstance(m, GroupBatchNorm)]
    return {
        "accuracy": epochs[-1]["validation_accuracy"],
        "step_s": sum(row["time_s"] for row in epochs) / sum(row["kind"] == "step" for row in rows),
        "channels": sum(len(m.bias) for m in norms), "layers": len(norms),
        "weights": torch.cat([p.detach().flatten() for p in trainer.model.parameters()]).numpy(),
    }  # fmt: skip


def run(*, quick: bool = False) -> Result:
    """Train in groups of each size; `quick` takes two group sizes, one epoch and few images."""
    extent = QUICK if quick else FULL
    whole = digits()
    kept = np.r_[: extent.samples, whole.num_train : len(whole.labels)]
    data = replace(whole, images=whole.images[kept], labels=whole.labels[kept], num_train=extent.samples)
    preload("torch._dynamo", "realrun.train")
    rows = []
    with RankPool(RANKS) as pool:
        for per_rank in extent.per_rank:
            for group in extent.groups:
                answers = [
                    pool.run(train, job_of(group, per_rank, extent, seed=seed), data)[0] for seed in range(extent.seeds)
                ]
                rows.append(_row(group, per_rank, answers, extent))
                _log.info("%d samples per rank, groups of %d: %.3f", per_rank, group, rows[-1]["accuracy"])
        check = replace(job_of(RANKS, extent.per_rank[-1], extent, seed=0), epochs=1)
        small = replace(data, images=data.images[-200:], labels=data.labels[-200:], num_train=100)
        ours = pool.run(train, check, small)[0]["weights"]
    alone = train(replace(check, batch=BatchControl((BatchPhase(0, RANKS * extent.per_rank[-1]),))), small)["weights"]
    apart = float(np.max(np.abs(ours - alone) / (1 + np.abs(alone))))
    claims = [
        Claim("normalising over all ranks trains as one process with the whole batch, to 1e-5", apart <= 1e-5,
              f"largest difference {apart:.1e}"),
        Claim("groups of one exchange no statistics",
              all(row["statistics_bytes"] == 0 for row in rows if row["group"] == 1)),
    ]  # fmt: skip
    shown = [{k: v for k, v in row.items() if k not in _HIDDEN} for row in rows]
    return Result(
        rows, claims, [Table("Groups of ranks", shown), Table("What holds here", _findings(rows))], [], _NOTES
    )


_HIDDEN = ("published", "predicted", "error", "id", "system", "quantity", "unit", "kind", "basis")
_NOTES = (
    "Four ranks share the cores of this machine, so times per step show what the exchange adds, not a cluster's cost.",
)


def _row(group: int, per_rank: int, answers: Sequence[dict[str, Any]], extent: Extent) -> dict[str, Any]:
    accuracies = [answer["accuracy"] for answer in answers]
    # Forward: count, mean and squared deviation of each channel; backward: two sums. All fp32.
    values = (3 + 2) * answers[0]["channels"] if group > 1 else 0
    return {
        "id": f"{per_rank}-{group}", "system": "digits on 4 ranks", "quantity": "validation accuracy",
        "unit": "fraction", "published": None, "predicted": None, "error": None, "kind": "measured here",
        "basis": "trained on this machine", "samples_per_rank": per_rank, "group": group,
        "normalised_over": per_rank * group, "accuracy": float(np.median(accuracies)), "low": min(accuracies),
        "high": max(accuracies), "seeds": len(answers), "epochs": extent.epochs,
        "step_s": float(np.median([answer["step_s"] for answer in answers])), "statistics_bytes": 4 * values,
        "exchanges_per_step": 2 * answers[0]["layers"] if group > 1 else 0,
    }  # fmt: skip


def _findings(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for per_rank in dict.fromkeys(row["samples_per_rank"] for row in rows):
        chosen = [row for row in rows if row["samples_per_rank"] == per_rank]
        alone, together = chosen[0], chosen[-1]
        gain = together["accuracy"] - alone["accuracy"]
        found.append({
            "expectation": f"at {per_rank} samples per rank, normalising over all ranks is more accurate than alone",
            "holds_here": gain > 0, "points": f"{100 * gain:+.1f}",
            "step": f"{alone['step_s'] * 1e3:.1f} ms alone, {together['step_s'] * 1e3:.1f} ms together",
        })  # fmt: skip
    return found
