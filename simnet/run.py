"""A whole training run: epochs to steps, steps to time, time to money and energy.

How long one step takes comes in as a function or table of the samples a rank holds, so that any model of a step,
or a measurement, can drive a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from simnet.errors import InvalidInput
from simnet.metrics import scaling_efficiency
from simnet.recipe import Recipe
from simnet.stragglers import Failures
from simnet.units import Seconds, Usd, Watts

StepTimes = Callable[[int], Seconds] | Mapping[int, Seconds]
_Step = Callable[[int], Seconds]

FORWARD_SHARE = 1 / 3
_LAST_STEPS = ("pad", "ragged", "drop")


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch, or the part of it before the batch changes: what it holds and how long it takes, s."""

    index: int
    batch: int
    steps: int
    samples: int
    training_s: Seconds
    evaluation_s: Seconds


@dataclass(frozen=True, slots=True)
class Run:
    """Time to train, s, and its parts; low and high are the run at the low and high ends of the step's interval.

    `samples_per_s` is the speed while training, of the samples that were processed; `headline_samples_per_s` is
    epochs times data set over the whole time, start-up and evaluation included.
    """

    recipe: str
    model: str
    ranks: int
    epochs: float
    steps: int
    time_s: Seconds
    training_s: Seconds
    evaluation_s: Seconds
    start_up_s: Seconds
    failures_s: Seconds
    samples_per_s: float
    headline_samples_per_s: float
    converges: str
    low_s: Seconds
    high_s: Seconds
    notes: tuple[str, ...] = ()
    schedule: tuple[Epoch, ...] = ()
    warm_up_epochs: float | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """What an efficiency is relative to: a speed, samples/s, of some ranks; the label says which."""

    label: str
    ranks: int
    samples_per_s: float


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run costs: to buy the machine, USD; to rent it for the run, USD; energy of the run, J."""

    purchase_usd: Usd | None
    rental_usd: Usd | None
    energy_j: float | None


def time_to_train(
    recipe: Recipe,
    ranks: int,
    step_time: StepTimes,
    *,
    low: StepTimes | None = None,
    high: StepTimes | None = None,
    last_step: str = "pad",
    evaluation_step: StepTimes | None = None,
    evaluation_batch: int | None = None,
    start_up: Seconds = 0.0,
    first_epoch_factor: float = 1.0,
    failures: Failures | None = None,
) -> Run:
    """Predict a run of a recipe on a number of ranks.

    Parameters
    ----------
    step_time, low, high : s of one training step, by samples per rank (the largest share, where shares differ).
    last_step : an epoch is padded to whole steps ("pad", as fast runs do), ends with a smaller step ("ragged"), or
        loses its rest ("drop").
    evaluation_step : s of one forward pass over a validation batch, by samples per rank; without it a third of the
        training step, by the convention that backward is twice forward.
    evaluation_batch : samples per rank in validation; without it the first training batch's.
    start_up : s before the first step. `first_epoch_factor` stretches the first epoch (cold caches, compilation).
    failures : nodes that fail; adds checkpoints, lost work and restarts.

    Raises
    ------
    InvalidInput : a batch that leaves ranks without samples, or a step time that is missing or not above 0.
    """
    plan = _Plan(
        recipe=recipe, ranks=ranks, last_step=last_step, evaluation_step=evaluation_step,
        evaluation_batch=evaluation_batch, start_up=start_up, first_epoch_factor=first_epoch_factor, failures=failures,
    )  # fmt: skip
    schedule = plan.epochs(step_time)
    ends = [plan.total(plan.epochs(times or step_time)) for times in (low, high)]
    ends.append(plan.total(schedule))
    return _summary(plan, schedule, min(ends), max(ends))


def _summary(plan: _Plan, schedule: tuple[Epoch, ...], low: Seconds, high: Seconds) -> Run:
    training = sum(epoch.training_s for epoch in schedule)
    evaluation = sum(epoch.evaluation_s for epoch in schedule)
    time = plan.total(schedule)
    return Run(
        recipe=plan.recipe.name,
        model=plan.recipe.model,
        ranks=plan.ranks,
        epochs=plan.recipe.epochs,
        steps=sum(epoch.steps for epoch in schedule),
        time_s=time,
        training_s=training,
        evaluation_s=evaluation,
        start_up_s=plan.start_up,
        failures_s=time - plan.start_up - training - evaluation if plan.failures else 0.0,
        samples_per_s=sum(epoch.samples for epoch in schedule) / training,
        headline_samples_per_s=plan.recipe.epochs * plan.recipe.samples / time,
        converges=plan.recipe.converges,
        low_s=low,
        high_s=high,
        notes=plan.notes(),
        schedule=schedule,
        warm_up_epochs=plan.recipe.warm_up_epochs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Everything about a run but the time of a step."""

    recipe: Recipe
    ranks: int
    last_step: str
    evaluation_step: StepTimes | None
    evaluation_batch: int | None
    start_up: Seconds
    first_epoch_factor: float
    failures: Failures | None

    def __post_init__(self) -> None:
        smallest = min(phase.batch for phase in self.recipe.phases)
        if not 1 <= self.ranks <= smallest:
            raise InvalidInput(
                f"a batch of {smallest} feeds 1 to {smallest} ranks, got {self.ranks}; "
                "use a larger batch or fewer ranks"
            )
        if self.evaluation_batch is not None and self.evaluation_batch < 1:
            raise InvalidInput(f"evaluation_batch must be 1 or more samples per rank, got {self.evaluation_batch}")
        if self.last_step not in _LAST_STEPS:
            raise InvalidInput(f"last_step must be one of {', '.join(_LAST_STEPS)}, got {self.last_step!r}")
        if self.start_up < 0 or not self.first_epoch_factor >= 1:
            raise InvalidInput(
                "start_up must be 0 s or more and first_epoch_factor 1 or more, got "
                f"{self.start_up} s and {self.first_epoch_factor}"
            )

    def epochs(self, step_time: StepTimes) -> tuple[Epoch, ...]:
        """The run, part by part, for one way to time a step."""
        step = _lookup(step_time, "step_time")
        return tuple(self._epoch(part, step) for part in _parts(self.recipe))

    def total(self, schedule: tuple[Epoch, ...]) -> Seconds:
        """Time of the whole run, s."""
        work = sum(epoch.training_s + epoch.evaluation_s for epoch in schedule)
        return self.start_up + (self.failures.expected_time(work) if self.failures else work)

    def notes(self) -> tuple[str, ...]:
        """What the reader of the result must know."""
        return tuple(_notes(self.recipe, self.ranks, assumed=self.evaluation_step is None))

    def _epoch(self, part: _Part, step: _Step) -> Epoch:
        steps, processed, time = self._train(part, step)
        stretch = self.first_epoch_factor if part.index == 0 else 1.0
        evaluation = self._evaluate(step) if self._evaluates_after(part) else 0.0
        return Epoch(part.index, part.batch, steps, processed, stretch * time, evaluation)

    def _train(self, part: _Part, step: _Step) -> tuple[int, int, Seconds]:
        """Steps, samples processed and time, s, of one part of an epoch."""
        full, rest = divmod(part.samples, part.batch)
        if rest == 0 or self.last_step == "drop":
            if full == 0:
                raise InvalidInput(
                    f"dropping the last step leaves none of {part.samples} samples in batches of {part.batch}"
                )
            return full, full * part.batch, full * step(self._share(part.batch))
        if self.last_step == "pad":
            return full + 1, (full + 1) * part.batch, (full + 1) * step(self._share(part.batch))
        whole = full * step(self._share(part.batch)) if full else 0.0
        return full + 1, part.samples, whole + step(self._share(rest))

    def _share(self, batch: int) -> int:
        return -(-batch // self.ranks)

    def _evaluates_after(self, part: _Part) -> bool:
        evaluation = self.recipe.evaluation
        if evaluation is None or evaluation.samples == 0:
            return False
        if part.end == self.recipe.epochs:
            return True
        return part.end == part.index + 1 and (part.index + 1) % evaluation.every == 0

    def _evaluate(self, step: _Step) -> Seconds:
        share = self.evaluation_batch or self._share(self.recipe.phases[0].batch)
        if self.evaluation_step is None:
            time = FORWARD_SHARE * step(share)
        else:
            time = _lookup(self.evaluation_step, "evaluation_step")(share)
        samples = self.recipe.evaluation.samples if self.recipe.evaluation else 0
        return -(-samples // (share * self.ranks)) * time


def _notes(recipe: Recipe, ranks: int, *, assumed: bool) -> Iterator[str]:
    uneven = sorted({phase.batch for phase in recipe.phases if phase.batch % ranks})
    if uneven:
        yield (
            f"a batch of {uneven[0]} leaves {ranks} ranks with unequal shares: the step takes as long as the largest, "
            "and gradients must be averaged by sample count"
        )
    if recipe.evaluation is not None and assumed:
        yield "a validation step is taken as a third of the training step of as many samples"
    if recipe.converges == "unknown" and not recipe.max_batch:
        yield f"{recipe.source}: whether a batch of {recipe.largest_batch} converges is unknown"
    elif recipe.converges == "unknown":
        yield (
            f"a batch of {recipe.largest_batch} is beyond the {recipe.max_batch} that {recipe.source} trained with: "
            "whether it converges is unknown"
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of one epoch with one batch; `end` in epochs since the beginning."""

    index: int
    end: float
    batch: int
    samples: int


def _parts(recipe: Recipe) -> Iterator[_Part]:
    position = 0.0
    for number, phase in enumerate(recipe.phases, start=1):
        end = sum(p.epochs for p in recipe.phases[:number])
        while position < end:
            stop = min(math.floor(position) + 1.0, end)
            samples = max(1, round((stop - position) * recipe.samples))
            yield _Part(math.floor(position), stop, phase.batch, samples)
            position = stop


def _lookup(times: StepTimes, name: str) -> _Step:
    @cache
    def look(samples: int) -> Seconds:
        if callable(times):
            time = float(times(samples))
        elif samples in times:
            time = float(times[samples])
        else:
            known = ", ".join(map(str, sorted(times)))
            raise InvalidInput(
                f"{name} has no time for {samples} samples per rank; it has {known}: add it or pass a function"
            )
        if not (time > 0 and math.isfinite(time)):
            raise InvalidInput(f"{name} must be above 0 s, got {time} for {samples} samples per rank")
        return time

    return look


def efficiency(run: Run, base: Base) -> float:
    """Speed per rank over speed per rank of the base, a fraction."""
    if base.ranks < 1 or not base.samples_per_s > 0:
        raise InvalidInput(f"base {base.label!r} needs 1 or more ranks and a speed above 0, got {base}")
    return scaling_efficiency(run.samples_per_s, run.ranks, base.samples_per_s, base.ranks)


def bill(
    time: Seconds, num_nodes: int, *, node_price: Usd | None = None, node_price_per_hour: Usd | None = None,
    node_power: Watts | None = None, pue: float | None = None,
) -> Bill:  # fmt: skip
    """Cost of a run of `time` s on num_nodes; what no price or power is given for is None.

    Energy is power times time times PUE (power usage effectiveness, the site's overhead), so a power needs a PUE:
    1.0 counts the nodes alone. A thermal design power is an upper bound of the mean power.
    """
    if num_nodes < 1 or time < 0:
        raise InvalidInput(f"a bill needs 1 or more nodes and 0 or more s, got {num_nodes} and {time} s")
    if node_price_per_hour is not None and node_price_per_hour < 0:
        raise InvalidInput(f"the price of a node for an hour must be 0 or more USD, got {node_price_per_hour:g}")
    if (pue is not None and not 1 <= pue < math.inf) or (node_power is not None and pue is None):
        raise InvalidInput(
            f"energy needs the site's PUE, 1 or more, beside the power, got {pue}; 1.0 counts nodes alone"
        )
    return Bill(
        None if node_price is None else num_nodes * node_price,
        None if node_price_per_hour is None else num_nodes * node_price_per_hour * time / 3600,
        None if node_power is None or pue is None else num_nodes * node_power * time * pue,
    )


def row(run: Run, *, base: Base | None = None, cost: Bill | None = None) -> dict[str, Any]:
    """One flat row of a run, SI units and fractions, with the efficiency and the bill where they are given."""
    skipped = ("schedule", "notes")
    flat = {name: getattr(run, name) for name in Run.__slots__ if name not in skipped}
    flat["batch"] = run.schedule[0].batch
    flat["largest_batch"] = max(epoch.batch for epoch in run.schedule)
    flat["efficiency"] = None if base is None else efficiency(run, base)
    flat["efficiency_base"] = None if base is None else base.label
    for name in Bill.__slots__:
        flat[name] = None if cost is None else getattr(cost, name)
    return {**flat, "notes": list(run.notes)}


def separate_exchange(whole: Seconds, compressed: Seconds, factor: float) -> tuple[Seconds, Seconds]:
    """Compute and exchange, s, of a run from its time and its time with gradients `factor` times smaller.

    Holds where the exchange does not overlap and its time is proportional to its bytes: whole = C + X,
    compressed = C + X / factor. The time at another factor f is then C + X / f.
    """
    if not factor > 1:
        raise InvalidInput(f"factor must be above 1, got {factor}; 2 is half the bytes")
    exchange = (whole - compressed) / (1 - 1 / factor)
    if not 0 <= exchange <= whole:
        raise InvalidInput(
            f"no exchange fits {whole} s before and {compressed} s after compression by {factor}: "
            f"it would take {exchange} s"
        )
    return whole - exchange, exchange
