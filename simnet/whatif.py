"""What changes would do to a step: each alone and all together, with the 80 % interval of its gain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from simnet.catalog.loader import Folder
from simnet.changes import RULES, Change, parse_change
from simnet.errors import InvalidInput, SimnetError
from simnet.intervals import Interval
from simnet.prediction import StepPrediction, step_of
from simnet.scenario import Scenario
from simnet.step_model import StepModel
from simnet.workload import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class Outcome:
    """A change and the step with it; `gain` is samples/s over those of the scenario as it is, minus 1.

    Both steps share the draws of whatever they have in common, so that its uncertainty cancels out of the gain.
    """

    change: str
    step_s: Interval
    samples_per_s: Interval
    gain: Interval
    efficiency_device: Interval
    efficiency_node: Interval
    exposed_s: float
    reason: str = ""

    def row(self) -> dict[str, Any]:
        """Plain values, with low and high of every interval."""
        intervals = ("step_s", "samples_per_s", "gain", "efficiency_device", "efficiency_node")
        row: dict[str, Any] = {"change": self.change}
        for name in intervals:
            row |= getattr(self, name).columns(name)
        return {**row, "exposed_s": self.exposed_s, "reason": self.reason}


def whatif(
    scenario: Scenario, changes: Sequence[Change], *, together: bool = True, catalog: Folder = None
) -> list[Outcome]:
    """The scenario as it is, with each change alone, and with all of them.

    Raises
    ------
    InvalidInput : a change asks for what the scenario cannot have; the text names the change.
    """
    base = _Base(scenario, catalog)
    rows = [base.outcome("as it is", scenario)]
    rows += [_named(base, change.text, scenario, [change]) for change in changes]
    if together and len(changes) > 1:
        rows.append(_named(base, "all together", scenario, changes))
    return rows


def _named(base: _Base, text: str, scenario: Scenario, changes: Iterable[Change]) -> Outcome:
    try:
        for change in changes:
            scenario = change.apply(scenario)
        return base.outcome(text, scenario)
    except SimnetError as error:
        raise InvalidInput(f'"{text}" cannot be had: {error}') from error


class _Base:
    """The step as it is, which others are held against on the same draws."""

    def __init__(self, scenario: Scenario, catalog: Folder) -> None:
        self._catalog = catalog
        self._model = StepModel(scenario, catalog=catalog)
        self._step = step_of(self._model)

    def outcome(self, text: str, scenario: Scenario) -> Outcome:
        found = self._predict(scenario)
        rates = found.global_batch / found.draws_s, self._step.global_batch / self._step.draws_s
        gain = found.samples_per_s.value / self._step.samples_per_s.value - 1
        return Outcome(
            text, found.step_s, found.samples_per_s, Interval.of(gain, rates[0] / rates[1] - 1),
            found.efficiency_device, found.efficiency_node, found.parts_s["exposed_exchange"],
            "" if found.exact else found.reason,
        )  # fmt: skip

    def _predict(self, scenario: Scenario) -> StepPrediction:
        """The step of a scenario; constants of compute from other rows than the base's are drawn by themselves."""
        if scenario == self._model.scenario:
            return self._step
        model = StepModel(scenario, catalog=self._catalog)
        if model.efficiency != self._model.efficiency:
            model.inputs = model.inputs.apart("efficiency", "launch")
        return step_of(model)


def best_changes(scenario: Scenario, *, count: int = 3, catalog: Folder = None) -> list[Outcome]:
    """Changes that would help most among those worth asking about, best first.

    Candidates that the scenario cannot have, such as a grid its devices do not fill, are left out.
    """
    base = _Base(scenario, catalog)
    found = []
    for text in _candidates(scenario):
        try:
            found.append(base.outcome(text, parse_change(text).apply(scenario)))
        except SimnetError:
            continue
    return sorted((o for o in found if o.gain.value > 1e-4), key=lambda o: -o.gain.value)[:count]


def _candidates(scenario: Scenario) -> list[str]:
    exchange, job = scenario.exchange, scenario.job
    texts = ["inter-node bandwidth x2", "intra-node bandwidth x2", "inter-node latency x0.5", "spread of ranks 0 %"]
    texts += [f"per-device batch {2 * job.per_device_batch}", f"lanes {2 * exchange.lanes}", "compression 4"]
    texts += [f"algorithm {a}" for a in ("ring", "torus2d", "hierarchical") if a != exchange.algorithm]
    texts += [f"buckets {name}" for name, rule in RULES.items() if rule not in (exchange.buckets, "horovod")]
    texts += ["gradients fp16"] if ITEM_BYTES[exchange.gradient_dtype] > 2 else []
    texts += ["overlap on"] if not exchange.overlap else []
    texts += ["slow parts repaired"] if scenario.slow else []
    texts += ["lars off"] if scenario.optimizer.lars else []
    if scenario.input is not None:
        texts += [f"host cores {2 * scenario.input.cores}", "storage bandwidth x2"]
        texts += ["input cached 100 %", "decode fused on"]
    return texts
