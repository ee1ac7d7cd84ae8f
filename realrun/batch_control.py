"""Which samples every rank takes in every step of every epoch, while the batch changes over the run.

The order of the data depends on seed and epoch alone: a global batch is a stretch of one permutation,
and ranks take consecutive parts of it, so any number of ranks sees the same global batches.

Source: Mikami et al., arXiv 1811.05233, section 2.1 (batch-size control); Smith et al., arXiv 1711.00489.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simnet.errors import InvalidInput
from simnet.schedule import IntArray, chunk_bounds

RATE_RULES = ("constant", "linear")


@dataclass(frozen=True, slots=True)
class BatchPhase:
    """From `first_epoch` on, every rank takes `per_rank` samples a step."""

    first_epoch: int
    per_rank: int


@dataclass(frozen=True, slots=True)
class BatchControl:
    """Samples per rank by epoch, and what the learning rate does when they change.

    Parameters
    ----------
    rate_rule : "constant": the rate stays what its schedule says while the batch grows (the growth
        replaces a decay of the rate); "linear": the rate is multiplied by batch / first batch.
    """

    phases: tuple[BatchPhase, ...]
    rate_rule: str = "constant"

    def __post_init__(self) -> None:
        epochs = [phase.first_epoch for phase in self.phases]
        if not epochs or epochs[0] != 0 or epochs != sorted(set(epochs)):
            raise InvalidInput(f"phases must begin at epoch 0 and rise, got first epochs {epochs}")
        if any(phase.per_rank < 1 for phase in self.phases):
            raise InvalidInput(f"every rank needs 1 or more samples a step, got {[p.per_rank for p in self.phases]}")
        if self.rate_rule not in RATE_RULES:
            raise InvalidInput(f"rate_rule must be one of {', '.join(RATE_RULES)}, got {self.rate_rule!r}")

    def per_rank(self, epoch: int) -> int:
        """Samples of one rank in one step of an epoch."""
        return next(p.per_rank for p in reversed(self.phases) if p.first_epoch <= epoch)

    def rate_factor(self, epoch: int) -> float:
        """What the learning rate is multiplied by in an epoch."""
        return self.per_rank(epoch) / self.phases[0].per_rank if self.rate_rule == "linear" else 1.0


def parse(text: str, *, rate_rule: str = "constant") -> BatchControl:
    """Read "16@0,32@30": 16 samples per rank from epoch 0, 32 from epoch 30; "16" alone is 16@0."""
    phases = []
    for part in text.split(","):
        size, _, epoch = part.strip().partition("@")
        if not size.isdigit() or not (epoch or "0").isdigit():
            raise InvalidInput(f"the batch must be samples per rank, with @epoch where it changes, got {part!r}")
        phases.append(BatchPhase(int(epoch or 0), int(size)))
    return BatchControl(tuple(phases), rate_rule)


def order(num_samples: int, *, epoch: int, seed: int) -> IntArray:
    """Permutation of the samples for one epoch, the same on every rank, shape (num_samples,)."""
    return np.random.default_rng([seed, epoch]).permutation(num_samples)


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank takes in one step: its samples, and how many all ranks take together."""

    samples: IntArray
    total: int


def shares(
    num_samples: int, *, epoch: int, seed: int, per_rank: int, rank: int, world_size: int, first_step: int = 0
) -> Iterator[Share]:
    """Yield the parts of one rank, step by step; the last global batch may be smaller and its parts unequal or empty.

    Every rank gets the same number of steps, so no rank waits for one that has finished.
    """
    permutation, batch = order(num_samples, epoch=epoch, seed=seed), per_rank * world_size
    for start in range(first_step * batch, num_samples, batch):
        whole = permutation[start : start + batch]
        bounds = chunk_bounds(len(whole), world_size)
        yield Share(whole[bounds[rank] : bounds[rank + 1]], len(whole))


def num_steps(num_samples: int, per_rank: int, world_size: int) -> int:
    """Steps of one epoch, the last of which may be smaller."""
    return -(-num_samples // (per_rank * world_size))


def uneven_totals(counts: Sequence[int], per_step: int) -> list[int]:
    """Samples of all ranks together in each step, where every rank has its own number of samples.

    A rank that has run out takes part with nothing until the longest is done, so nothing hangs and the
    mean stays the mean over the samples that exist.
    """
    steps = max((-(-count // per_step) for count in counts), default=0)
    return [sum(min(per_step, max(0, count - step * per_step)) for count in counts) for step in range(steps)]
