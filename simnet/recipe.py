"""How a network is trained: batch schedule by epoch, precision, evaluation, and what is known to converge.

Records only: nothing here computes a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from simnet.errors import InvalidInput

IMAGENET_TRAIN = 1_281_167
IMAGENET_VALIDATION = 50_000


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the run with one global batch, in samples over all ranks."""

    epochs: float
    batch: int

    def __post_init__(self) -> None:
        if not (self.epochs > 0 and math.isfinite(self.epochs)):
            raise InvalidInput(f"a phase must last more than 0 epochs, got {self.epochs}")
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or self.batch < 1:
            raise InvalidInput(f"a phase needs a batch of 1 or more whole samples, got {self.batch!r}")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Validation during the run: `samples` forward passes after every `every` epochs, and after the last."""

    samples: int = IMAGENET_VALIDATION
    every: int = 1

    def __post_init__(self) -> None:
        if self.samples < 0 or self.every < 1:
            raise InvalidInput(
                f"evaluation needs 0 or more samples every 1 or more epochs, got {self.samples} every {self.every}"
            )


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training recipe; `accuracy` (top-1, fraction) and `max_batch` are what its source reports.

    `max_batch` is the largest global batch that the source trained to its accuracy: beyond it convergence is
    not known to this project, which predicts times and never accuracies. Warm-up changes the learning rate, not the
    time; None where the source does not state it.
    """

    name: str
    model: str
    phases: tuple[Phase, ...]
    max_batch: int
    source: str
    samples: int = IMAGENET_TRAIN
    precision: str = "float32"
    gradient_dtype: str = "float32"
    warm_up_epochs: float | None = None
    optimizer: str = "sgd"
    evaluation: Evaluation | None = Evaluation()
    accuracy: float | None = None

    def __post_init__(self) -> None:
        if not self.phases:
            raise InvalidInput(f"recipe {self.name!r} has no phases; give at least one batch and its epochs")
        if self.samples < 1:
            raise InvalidInput(f"recipe {self.name!r} needs 1 or more training samples, got {self.samples}")

    @property
    def epochs(self) -> float:
        """Epochs of the whole run."""
        return sum(phase.epochs for phase in self.phases)

    @property
    def largest_batch(self) -> int:
        """Largest global batch of the schedule."""
        return max(phase.batch for phase in self.phases)

    @property
    def converges(self) -> str:
        """Either "yes" (the source trained at this batch) or "unknown"."""
        return "yes" if self.largest_batch <= self.max_batch else "unknown"

    def batch_at(self, epoch: float) -> int:
        """Global batch at a point of the run, 0 <= epoch < epochs."""
        begin = 0.0
        for phase in self.phases:
            begin += phase.epochs
            if epoch < begin:
                return phase.batch
        raise InvalidInput(f"recipe {self.name!r} has {self.epochs} epochs, there is no epoch {epoch}")

    def starting_at(self, batch: int) -> Recipe:
        """The same recipe from another first batch; later phases grow in the same proportion."""
        first = self.phases[0].batch
        phases = tuple(replace(phase, batch=max(1, round(phase.batch * batch / first))) for phase in self.phases)
        return replace(self, phases=phases)


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A run of the scenario's own: whatever is given takes the place of what its recipe, if it names one, says.

    `batches` are phases of the run, each with its global batch; `epochs` is for one batch all along. `samples` are
    those of an epoch, `evaluation_samples` those of a validation. `trained_batch` is the largest batch known to train
    to the wanted accuracy. `last_step` pads an epoch's rest to a step ("pad"), makes a smaller one ("ragged") or
    leaves it out ("drop"). `start_up` is s before the first step; `first_epoch_factor` stretches the first epoch.
    """

    epochs: float | None = None
    batches: tuple[Phase, ...] = ()
    samples: int | None = None
    evaluation_samples: int | None = None
    evaluation_every: int | None = None
    warm_up_epochs: float | None = None
    trained_batch: int | None = None
    last_step: str = "pad"
    start_up: float | None = None
    first_epoch_factor: float | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None and self.batches:
            raise InvalidInput("a run has either epochs or batches with their epochs; leave one of run.* out")
        if self.warm_up_epochs is not None and not self.warm_up_epochs >= 0:
            raise InvalidInput(f"run.warm_up_epochs must be 0 or more, got {self.warm_up_epochs}")

    @property
    def says_what(self) -> bool:
        """Whether it says what is trained, so that no published recipe is needed."""
        return self.samples is not None and (self.epochs is not None or bool(self.batches))

    def applied(self, recipe: Recipe) -> Recipe:
        """The recipe with whatever is given in its place.

        Raises
        ------
        InvalidInput : epochs alone for a recipe of several phases.
        """
        phases = self.batches or recipe.phases
        if self.epochs is not None:
            if len(phases) > 1:
                raise InvalidInput(
                    f"recipe {recipe.name} has {len(phases)} phases; give run.batches with the epochs of each in place "
                    f"of run.epochs = {self.epochs:g}"
                )
            phases = constant(self.epochs, phases[0].batch)
        return replace(
            recipe, phases=phases, evaluation=self._evaluation(recipe.evaluation),
            samples=recipe.samples if self.samples is None else self.samples,
            warm_up_epochs=recipe.warm_up_epochs if self.warm_up_epochs is None else self.warm_up_epochs,
            max_batch=recipe.max_batch if self.trained_batch is None else self.trained_batch,
        )  # fmt: skip

    def _evaluation(self, recipes: Evaluation | None) -> Evaluation | None:
        """What is validated: without a number of samples, nothing of a data set of one's own."""
        if self.evaluation_samples is None and self.samples is not None:
            return None
        if self.evaluation_samples is None and self.evaluation_every is None:
            return recipes
        known = recipes or Evaluation()
        return Evaluation(
            known.samples if self.evaluation_samples is None else self.evaluation_samples,
            known.every if self.evaluation_every is None else self.evaluation_every,
        )


def constant(epochs: float, batch: int) -> tuple[Phase, ...]:
    """One batch for the whole run."""
    return (Phase(epochs, batch),)


_PUBLISHED = (
    Recipe("he", "resnet50", constant(90, 256), 256, "He et al., CVPR 2016, as quoted in arXiv 1811.05233",
           accuracy=0.753),
    Recipe("goyal", "resnet50", constant(90, 8192), 8192, "Goyal et al., arXiv 1706.02677, table 1",
           warm_up_epochs=5, accuracy=0.7626),
    Recipe("smith", "resnet50", (Phase(30, 8192), Phase(60, 16384)), 16384,
           "Smith et al., arXiv 1711.00489: the batch grows instead of the first decay of the rate, after 30 epochs",
           accuracy=0.761),
    Recipe("akiba", "resnet50", constant(90, 32768), 32768, "Akiba et al., arXiv 1711.04325",
           gradient_dtype="float16", optimizer="rmsprop to sgd", accuracy=0.749),
    Recipe("jia", "resnet50", constant(90, 65536), 65536, "Jia et al., arXiv 1807.11205",
           precision="float16", gradient_dtype="float16", optimizer="lars", accuracy=0.758),
    Recipe("jia_alexnet", "alexnet", constant(95, 65536), 65536, "Jia et al., arXiv 1807.11205",
           precision="float16", gradient_dtype="float16", optimizer="lars", accuracy=0.587),
    Recipe("sony", "resnet50", (Phase(30, 34816), Phase(60, 69632)), 69632,
           "Mikami et al., arXiv 1811.05233v1; the epoch of the change is assumed: it is not in the sources at hand",
           precision="float16", gradient_dtype="float16", optimizer="lars", accuracy=0.7503),
    Recipe("ying", "resnet50", constant(90, 32768), 32768,
           "Ying et al., arXiv 1811.06992; evaluation as in MLPerf, every 4 epochs, is assumed",
           precision="bfloat16", optimizer="lars", evaluation=Evaluation(every=4), accuracy=0.763),
    Recipe("you", "resnet50", constant(90, 32768), 32768, "You et al., arXiv 1709.05011",
           optimizer="lars", accuracy=0.754),
    Recipe("you_alexnet", "alexnet", constant(100, 32768), 32768, "You et al., arXiv 1709.05011",
           optimizer="lars"),
)  # fmt: skip


def recipes() -> dict[str, Recipe]:
    """Return the published recipes by name."""
    return {recipe.name: recipe for recipe in _PUBLISHED}


def find(name: str) -> Recipe:
    """Return the published recipe of that name.

    Raises
    ------
    InvalidInput : there is none; the text lists those there are.
    """
    known = recipes()
    if name not in known:
        raise InvalidInput(f"unknown recipe {name!r}; choose one of {', '.join(known)}")
    return known[name]
