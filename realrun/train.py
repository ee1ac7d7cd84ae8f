"""Train a network on all ranks: `for row in train(job)` yields progress and one row per epoch.

The result does not depend on how many ranks share the work: the global batches, the order of the
data and the augmentation depend on seed and epoch alone, and gradients are means over the global
batch. Runs resume from a checkpoint as if they had not stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from realrun.batch_control import BatchControl, BatchPhase, Share, num_steps, shares
from realrun.batch_norm import GroupBatchNorm, average_statistics, join_groups, tiles
from realrun.data import Dataset, open_data
from realrun.gradients import GradientBuckets, LossScale, reducer
from realrun.input_pipeline import Images, ahead
from realrun.lars import Lars, parameter_groups
from realrun.learning_rate import LearningRate
from realrun.models import build
from realrun.plans import require_all_reduce
from simnet.errors import InvalidInput
from simnet.schedule import chunk_bounds
from simnet.units import MIB, Bytes

Batch = tuple[Tensor, Tensor]

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
OPTIMIZERS = ("sgd", "lars")
_MOST = 1e9
_RANGES = {
    "momentum": (0, 1), "weight_decay": (0, _MOST), "eta": (0, _MOST), "bn_ranks": (0, _MOST), "bn_momentum": (0, 1),
    "seed": (0, 2**32 - 1), "samples": (1, _MOST), "shift": (0, 1000), "resolution": (1, _MOST),
    "checkpoint_steps": (1, _MOST), "stop_after_steps": (1, _MOST),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """Everything a training run depends on.

    Attributes
    ----------
    batch : samples per rank by epoch
    accumulate : backward passes per step; each takes its part of the rank's batch
    rate : learning rate by epoch
    bn_ranks : ranks whose batches are normalised together, 0 for all; tiles of the grid where `options` has one
    checkpoint_steps : write the checkpoint after so many steps too, not only after an epoch
    bn_momentum : share of a new batch in the running statistics; raise it where there are few steps
    precision : of convolutions and matrix products; weights and their update stay in fp32
    gradient_dtype : in which gradients travel and are summed; the loss is scaled where it is float16
    algorithm, options : all-reduce, or "native" for the backend's own
    """

    model: str = "small-resnet"
    data: str = "digits"
    epochs: int = 10
    batch: BatchControl = field(default_factory=lambda: BatchControl((BatchPhase(0, 32),)))
    rate: LearningRate = field(default_factory=lambda: LearningRate(0.1, 10))
    accumulate: int = 1
    optimizer: str = "sgd"
    momentum: float = 0.9
    momentum_form: str = "rate_outside"
    weight_decay: float = 5e-5
    eta: float = 1e-3
    label_smoothing: float = 0.0
    bn_ranks: int = 1
    bn_momentum: float = 0.1
    precision: str = "float32"
    gradient_dtype: str = "float32"
    algorithm: str = "ring"
    options: Mapping[str, Any] = field(default_factory=dict)
    bucket_cap: Bytes = 25 * MIB
    overlap: bool = True
    seed: int = 0
    resolution: int | None = None
    samples: int | None = None
    shift: int = 0
    checkpoint: str | None = None
    checkpoint_steps: int | None = None
    stop_after_steps: int | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("precision", self.precision, PRECISIONS),
            ("gradient_dtype", self.gradient_dtype, PRECISIONS),
            ("optimizer", self.optimizer, OPTIMIZERS),
        ):
            if value not in known:
                raise InvalidInput(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if self.epochs < 1 or self.accumulate < 1 or not 0 <= self.label_smoothing < 1:
            raise InvalidInput(
                "a job needs 1 or more epochs and backward passes and a label smoothing of 0 to below 1, got "
                f"{self.epochs}, {self.accumulate} and {self.label_smoothing}"
            )
        require_all_reduce(self.algorithm)
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidInput(f"{name} must be {low:g} to {high:g}, got {value:g}")
        if self.checkpoint is None and self.checkpoint_steps is not None:
            raise InvalidInput(f"no checkpoint is named to write every {self.checkpoint_steps} steps; name a file")


class Trainer:
    """The state of a run on this rank: network, optimizer, gradients, place in the data."""

    def __init__(self, job: Job, *, data: Dataset | None = None) -> None:
        self.job = job
        self.rank, self.world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.device = _device(self.rank)
        self.data = data or open_data(
            job.data, resolution=job.resolution, samples=job.samples, seed=job.seed, shift=job.shift
        )
        torch.manual_seed(job.seed)
        self.model = self._build().to(self.device)
        self.optimizer = _optimizer(job, self.model)
        wire = PRECISIONS[job.gradient_dtype]
        reduce = reducer(job.algorithm, **job.options)
        self.gradients = GradientBuckets(
            list(self.model.parameters()), reduce, cap=job.bucket_cap, wire_dtype=wire, overlap=job.overlap
        )
        self.scale = LossScale() if "float16" in (job.precision, job.gradient_dtype) else None
        self.epoch, self.step = 0, 0
        self.totals = torch.zeros(3, dtype=torch.float64)

    def _build(self) -> nn.Module:
        size = self.job.bn_ranks or self.world_size
        together = size > 1 and self.world_size > 1
        group = join_groups(tiles(self.world_size, size, grid=self.job.options.get("grid"))) if together else None
        return build(
            self.job.model, num_classes=self.data.num_classes, resolution=self.data.resolution,
            channels=self.data.channels, norm=partial(GroupBatchNorm, group=group, momentum=self.job.bn_momentum),
        )  # fmt: skip

    def load(self, share: Share) -> list[Batch]:
        """Prepare this rank's share of a global batch, one part per backward pass."""
        bounds = chunk_bounds(len(share.samples), self.job.accumulate)
        parts = [share.samples[bounds[k] : bounds[k + 1]] for k in range(self.job.accumulate)]
        return [self.data.train(part, epoch=self.epoch) for part in parts]

    def run_step(self, batches: Sequence[Batch], total: int, rate: float) -> None:
        """Do one step on this rank's share of a global batch of `total` samples."""
        # Dropout depends on the place in the run alone, so a resumed run draws the same.
        torch.manual_seed(hash((self.job.seed, self.epoch, self.step, self.rank)) % 2**63)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.gradients.begin()
        with self.gradients.accumulating():
            for batch in batches[:-1]:
                self._backward(batch, total)
        self._backward(batches[-1], total)
        self.gradients.finish()
        self._update()
        self.step += 1

    def _backward(self, batch: Batch, total: int) -> None:
        images, labels = (tensor.to(self.device) for tensor in batch)
        with self._autocast():
            logits = self.model(images)
        loss = _loss(logits.float(), labels, self.job.label_smoothing)
        (loss / total * (1.0 if self.scale is None else self.scale.value)).backward()
        correct = (logits.detach().argmax(1) == labels).sum()
        self.totals += torch.stack([loss.detach().double(), correct, torch.full_like(correct, len(labels))]).cpu()

    def _autocast(self) -> Any:
        dtype = PRECISIONS[self.job.precision]
        return torch.autocast(self.device.type, dtype, enabled=dtype is not None)

    def _update(self) -> None:
        if self.scale is not None:
            self.gradients.scale(1.0 / self.scale.value)
            if not self.scale.update(finite=self.gradients.finite()):
                return
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float]:
        """Mean loss and accuracy over the validation samples, shared out over the ranks."""
        average_statistics(self.model)
        self.model.eval()
        bounds = chunk_bounds(self.data.num_validation, self.world_size)
        sums = torch.zeros(3, dtype=torch.float64)
        for start in range(bounds[self.rank], bounds[self.rank + 1], 256):
            chosen = torch.arange(start, min(start + 256, int(bounds[self.rank + 1]))).numpy()
            images, labels = (t.to(self.device) for t in self.data.validation(chosen))
            with self._autocast():
                logits = self.model(images)
            loss = functional.cross_entropy(logits.float(), labels, reduction="sum")
            sums += torch.tensor([loss.item(), (logits.argmax(1) == labels).sum().item(), len(labels)]).double()
        self.model.train()
        total = _summed(sums)
        return total[0] / max(total[2], 1), total[1] / max(total[2], 1)

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs beside the job itself."""
        return {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "scale": None if self.scale is None else self.scale.state_dict(),
            "epoch": self.epoch, "step": self.step, "totals": self.totals, "world_size": self.world_size,
        }  # fmt: skip

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take up where `state` was taken.

        Raises
        ------
        InvalidInput : it was taken in the middle of an epoch by another number of ranks.
        """
        if state["step"] and state["world_size"] != self.world_size:
            raise InvalidInput(
                f"the checkpoint was taken in the middle of an epoch by {state['world_size']} ranks, got "
                f"{self.world_size}; resume with as many, or from the end of an epoch"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scale is not None and state["scale"] is not None:
            self.scale.load_state_dict(state["scale"])
        self.epoch, self.step, self.totals = state["epoch"], state["step"], state["totals"].clone()


def train(job: Job, *, data: Dataset | None = None) -> Iterator[dict[str, Any]]:
    """Train on every rank of the process group (one rank where there is none).

    Yields
    ------
    rows with `kind` "step" (progress) and "epoch" (loss, accuracies, rate, images/s)

    Raises
    ------
    InvalidInput : the job asks for something that is not there.
    """
    trainer = Trainer(job, data=data)
    path = None if job.checkpoint is None else Path(job.checkpoint)
    if path is not None and path.exists():
        _resume(trainer, path)
    done = 0
    while trainer.epoch < job.epochs:
        for row in epoch_rows(trainer):
            done += row["kind"] == "step"
            stops = row["kind"] == "step" and done == job.stop_after_steps
            if stops or (row["kind"] == "step" and job.checkpoint_steps and done % job.checkpoint_steps == 0):
                _save(trainer, path)
            if stops:
                return
            yield row
        _save(trainer, path)


def _resume(trainer: Trainer, path: Path) -> None:
    state = _read(trainer, path)
    try:
        trainer.resume(state)
    except InvalidInput:
        raise
    except (RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path} is no checkpoint of this job: it holds another network or optimizer; "
            "give the options it was trained with, or another file"
        ) from error


def _read(trainer: Trainer, path: Path) -> Mapping[str, Any]:
    wrong = f"{path} is no checkpoint of this job: realrun train did not write it; name another file"
    try:
        state = torch.load(path, map_location=trainer.device, weights_only=True)
    except OSError:
        raise
    except Exception as error:  # bytes that are no pickle can make the reader raise anything
        raise InvalidInput(wrong) from error
    if not isinstance(state, Mapping) or trainer.state().keys() - state.keys():
        raise InvalidInput(wrong)
    return state


def epoch_rows(trainer: Trainer) -> Iterator[dict[str, Any]]:
    """Train to the end of the current epoch; yields a row per step, then the epoch's."""
    job, epoch, start = trainer.job, trainer.epoch, time.perf_counter()
    per_rank = job.batch.per_rank(epoch)
    steps = num_steps(trainer.data.num_train, per_rank, trainer.world_size)
    trainer.gradients.waited = 0.0
    rate, first = 0.0, trainer.step
    todo = shares(
        trainer.data.num_train, epoch=epoch, seed=job.seed, per_rank=per_rank,
        rank=trainer.rank, world_size=trainer.world_size, first_step=first,
    )  # fmt: skip
    taken = 0
    for batches, total in ahead(partial(_loaded, trainer, share) for share in todo):
        rate = job.rate.at(epoch + trainer.step / steps) * job.batch.rate_factor(epoch)
        trainer.run_step(batches, total, rate)
        taken += total
        yield {"kind": "step", "epoch": epoch, "step": trainer.step, "steps": steps}
    seconds = time.perf_counter() - start
    loss, accuracy, count = _summed(trainer.totals)
    valid_loss, valid_accuracy = trainer.evaluate()
    trainer.epoch, trainer.step, trainer.totals = epoch + 1, 0, torch.zeros(3, dtype=torch.float64)
    yield {
        "kind": "epoch", "epoch": epoch, "ranks": trainer.world_size, "batch": per_rank * trainer.world_size,
        "rate": rate, "loss": loss / count, "accuracy": accuracy / count,
        "validation_loss": valid_loss, "validation_accuracy": valid_accuracy,
        "images_per_s": taken / seconds, "time_s": seconds, "gradient_wait_s": trainer.gradients.waited,
        "skipped_steps": 0 if trainer.scale is None else trainer.scale.skipped,
        "stages": trainer.data.stages.table() if isinstance(trainer.data, Images) else [],
    }  # fmt: skip


def _loaded(trainer: Trainer, share: Share) -> tuple[list[Batch], int]:
    return trainer.load(share), share.total


def _loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Sum over samples; an empty share gives zero and zero gradients."""
    return functional.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)


def _optimizer(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    groups = parameter_groups(model)
    if job.optimizer == "lars":
        return Lars(
            groups, 0.0, momentum=job.momentum, weight_decay=job.weight_decay, eta=job.eta,
            momentum_form=job.momentum_form,
        )  # fmt: skip
    plain = [{key: value for key, value in group.items() if key != "adapt"} for group in groups]
    return torch.optim.SGD(plain, 0.0, momentum=job.momentum, weight_decay=job.weight_decay)


def _device(rank: int) -> torch.device:
    if torch.cuda.is_available():
        local = int(os.environ.get("LOCAL_RANK", rank))
        return torch.device("cuda", local % torch.cuda.device_count())
    return torch.device("cpu")


def _summed(values: Tensor) -> list[float]:
    """Sum over ranks."""
    total = values.clone()
    if dist.is_initialized() and dist.get_world_size() > 1:
        if dist.get_backend() == "nccl":
            total = total.cuda()
        dist.all_reduce(total)
    return total.tolist()


def _save(trainer: Trainer, path: Path | None) -> None:
    """Write the checkpoint on rank 0, whole or not at all."""
    if path is None:
        return
    if trainer.rank == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        torch.save(trainer.state(), part)
        part.replace(path)
    if dist.is_initialized():
        dist.barrier()
