"""The learning rate as a function of the epoch: linear scaling, warm-up, then a decay."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from simnet.errors import InvalidInput

DECAYS = ("constant", "polynomial", "step")


@dataclass(frozen=True, slots=True)
class LearningRate:
    """Rate at any point of a run.

    Parameters
    ----------
    peak : rate after warm-up; see `linear_scaling`
    epochs : of the whole run
    warm_up_epochs : the rate climbs linearly from `start` to the peak over these
    decay : "constant"; "polynomial": peak * (1 - progress)**power, progress from the end of warm-up to the end;
        "step": times `factor` at each of `milestones` (epochs)

    Source: Goyal et al., arXiv 1706.02677 (warm-up, steps); You et al., arXiv 1709.05011 (polynomial, power 2).
    """

    peak: float
    epochs: float
    warm_up_epochs: float = 0.0
    start: float = 0.0
    decay: str = "polynomial"
    power: float = 2.0
    milestones: tuple[float, ...] = ()
    factor: float = 0.1

    def __post_init__(self) -> None:
        if self.decay not in DECAYS:
            raise InvalidInput(f"decay must be one of {', '.join(DECAYS)}, got {self.decay!r}")
        if not self.peak >= 0 or not self.epochs > 0 or not 0 <= self.warm_up_epochs <= self.epochs:
            raise InvalidInput(
                "a learning rate needs a peak of 0 or more and a warm-up within the run, got "
                f"peak {self.peak}, {self.epochs} epochs, {self.warm_up_epochs} of warm-up"
            )
        if list(self.milestones) != sorted(self.milestones):
            raise InvalidInput(f"milestones must rise, got {self.milestones}")

    def at(self, epoch: float) -> float:
        """Rate at a point of the run, 0 <= epoch <= epochs; fractions are steps within an epoch."""
        if epoch < self.warm_up_epochs:
            return self.start + (self.peak - self.start) * epoch / self.warm_up_epochs
        match self.decay:
            case "polynomial":
                left = self.epochs - self.warm_up_epochs
                progress = min((epoch - self.warm_up_epochs) / left, 1.0) if left else 1.0
                return self.peak * (1 - progress) ** self.power
            case "step":
                return self.peak * self.factor ** bisect_right(self.milestones, epoch)
            case _:
                return self.peak


def linear_scaling(base: float, batch: int, *, base_batch: int = 256) -> float:
    """Rate for a batch by the linear rule: base * batch / base_batch.

    Raises
    ------
    InvalidInput : the base batch has no sample.

    Source: Goyal et al., arXiv 1706.02677, section 2.1.
    """
    if base_batch < 1:
        raise InvalidInput(f"a rate is scaled from a batch of 1 or more, got {base_batch}")
    return base * batch / base_batch
