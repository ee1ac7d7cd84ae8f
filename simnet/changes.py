"""Changes of a scenario in words: a closed list of forms, "inter-node bandwidth x2" among them.

A change nobody knows is refused with the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simnet.errors import InvalidInput
from simnet.prediction import with_devices
from simnet.profile_prices import with_profile
from simnet.scenario import Input, Scenario
from simnet.slow import Slow
from simnet.units import Dimension, parse

Apply = Callable[[Scenario], Scenario]


@dataclass(frozen=True, slots=True)
class Change:
    """A change in the words it was asked for in, and what it does to a scenario."""

    text: str
    apply: Apply


@dataclass(frozen=True, slots=True)
class _Form:
    pattern: str
    example: str
    build: Callable[[re.Match[str]], Apply]


_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
RULES = {"ddp": "ddp", "horovod": "horovod", "one": "one_bucket", "per layer": "per_layer", "lazy": "lazy_fusion"}


def _scale(match: re.Match[str]) -> Apply:
    wires, factor = match["place"], float(match["factor"])

    def scaled(factors: Mapping[str, float]) -> dict[str, float]:
        return {**factors, wires: factors.get(wires, 1.0) * factor}

    def apply(scenario: Scenario) -> Scenario:
        if match["what"] == "bandwidth":
            return replace(scenario, bandwidth=scaled(scenario.bandwidth))
        return replace(scenario, latency=scaled(scenario.latency))

    return apply


def _exchange(**fixed: Callable[[str], Any]) -> Callable[[re.Match[str]], Apply]:
    """Set fields of the exchange from the match's group `value`."""

    def build(match: re.Match[str]) -> Apply:
        fields = {name: read(match["value"]) for name, read in fixed.items()}
        return lambda scenario: scenario.with_exchange(**fields)

    return build


def _bucket_size(match: re.Match[str]) -> Apply:
    size = int(parse(match["value"], Dimension.INFORMATION, name="bucket"))

    def apply(scenario: Scenario) -> Scenario:
        rule = scenario.exchange.buckets
        options = {"ddp": {"cap": size}, "horovod": {"threshold": size}, "lazy_fusion": {"threshold": size}}
        if rule not in options:
            return scenario.with_exchange(buckets="lazy_fusion", bucket_options={"threshold": size})
        return scenario.with_exchange(bucket_options={**scenario.exchange.bucket_options, **options[rule]})

    return apply


def _algorithm(match: re.Match[str]) -> Apply:
    options: dict[str, Any] = {}
    if match["grid"]:
        columns, rows = match["grid"].split("x")
        options = {"grid": (int(columns), int(rows))}
    return lambda scenario: scenario.with_exchange(algorithm=match["value"], options=options)


def _job(**fixed: Callable[[str], Any]) -> Callable[[re.Match[str]], Apply]:
    def build(match: re.Match[str]) -> Apply:
        fields = {name: read(match["value"]) for name, read in fixed.items()}
        return lambda scenario: scenario.with_job(**fields)

    return build


def _optimizer(name: str) -> Callable[[re.Match[str]], Apply]:
    def build(match: re.Match[str]) -> Apply:
        changed = {name: match["value"] == "on"}
        return lambda scenario: replace(scenario, optimizer=replace(scenario.optimizer, **changed))

    return build


def _group(match: re.Match[str]) -> Apply:
    size = int(match["value"])
    return lambda scenario: replace(scenario, batch_norm=replace(scenario.batch_norm, group=size))


def _spread(match: re.Match[str]) -> Apply:
    value = float(match["value"]) / 100
    return lambda scenario: replace(scenario, variation=replace(scenario.variation, between_ranks=value))


def _input(**fixed: Callable[[re.Match[str], Input], Any]) -> Callable[[re.Match[str]], Apply]:
    """Set fields of the input pipeline, from the match and the input as it is."""

    def build(match: re.Match[str]) -> Apply:
        def apply(scenario: Scenario) -> Scenario:
            if scenario.input is None:
                raise InvalidInput(
                    f"scenario {scenario.name!r} has no table [input] to change; describe the input first"
                )
            fields = {name: read(match, scenario.input) for name, read in fixed.items()}
            return replace(scenario, input=replace(scenario.input, **fields))

        return apply

    return build


def _devices(match: re.Match[str]) -> Apply:
    return lambda scenario: with_devices(scenario, int(match["value"]))


def _slow(part: str) -> Callable[[re.Match[str]], Apply]:
    """Make one node, rank or link slow."""

    def build(match: re.Match[str]) -> Apply:
        number = parse(match["value"], Dimension.TIME, name="late") if part == "late" else float(match["value"])

        def apply(scenario: Scenario) -> Scenario:
            known = getattr(scenario.slow, part)
            return replace(scenario, slow=replace(scenario.slow, **{part: {**known, match["name"]: number}}))

        return apply

    return build


def _repaired(match: re.Match[str]) -> Apply:
    return lambda scenario: replace(scenario, slow=Slow())


def _profile(match: re.Match[str]) -> Apply:
    return lambda scenario: with_profile(scenario, match["value"])


_NUMBER = r"(?P<value>\d+(?:\.\d+)?)"
_WHOLE = r"(?P<value>\d+)"
FORMS = (
    _Form(r"(?P<place>inter|intra|[\w.]+\.\w+)(?:-node)? (?P<what>bandwidth|latency) x(?P<factor>\d+(?:\.\d+)?)",
          "inter-node bandwidth x2", _scale),
    _Form(r"gradients (?P<value>fp32|fp16|bf16)", "gradients fp16", _exchange(gradient_dtype=lambda v: _DTYPES[v])),
    _Form(r"bucket (?P<value>\d.*)", "bucket 100 MB", _bucket_size),
    _Form(r"buckets (?P<value>ddp|horovod|one|per layer|lazy)", "buckets ddp",
          _exchange(buckets=lambda v: RULES[v], bucket_options=lambda v: {})),
    _Form(r"algorithm (?P<value>\w+)(?: (?P<grid>\d+x\d+))?", "algorithm torus2d", _algorithm),
    _Form(r"overlap (?P<value>on|off)", "overlap off", _exchange(overlap=lambda v: v == "on")),
    _Form(rf"lanes {_WHOLE}", "lanes 2", _exchange(lanes=int)),
    _Form(rf"compression {_NUMBER}", "compression 4", _exchange(compression=float)),
    _Form(rf"interference {_NUMBER} ?%", "interference 0 %", _exchange(interference=lambda v: float(v) / 100)),
    _Form(rf"per-device batch {_WHOLE}", "per-device batch 64", _job(per_device_batch=int)),
    _Form(rf"accumulation {_WHOLE}", "accumulation 4", _job(accumulation=int)),
    _Form(r"precision (?P<value>fp32|fp16|bf16|mixed)", "precision mixed", _job(precision=str)),
    _Form(r"framework (?P<value>[\w.-]+)", "framework mxnet-2018", _job(framework=str)),
    _Form(r"model (?P<value>[\w.-]+)", "model resnet101", _job(model=str, model_options=lambda _: {})),
    _Form(r"cluster (?P<value>[\w.-]+)", "cluster dgx-1v", _job(cluster=str)),
    _Form(r"profile (?P<value>\S+\.toml)", "profile measured.toml", _profile),
    _Form(rf"devices {_WHOLE}", "devices 512", _devices),
    _Form(rf"batch-norm group {_WHOLE}", "batch-norm group 16", _group),
    _Form(rf"slow node (?P<name>\d+) x{_NUMBER}", "slow node 1 x1.5", _slow("nodes")),
    _Form(rf"slow link (?P<name>\S+ -> \S+) x{_NUMBER}", "slow link n0/nic0 -> leaf0 x4", _slow("links")),
    _Form(r"late rank (?P<name>\d+) by (?P<value>\d.*)", "late rank 1 by 200 ms", _slow("late")),
    _Form(r"slow parts repaired", "slow parts repaired", _repaired),
    _Form(r"lars (?P<value>on|off)", "lars off", _optimizer("lars")),
    _Form(r"loss scaling (?P<value>on|off)", "loss scaling off", _optimizer("loss_scaling")),
    _Form(rf"spread of ranks {_NUMBER} ?%", "spread of ranks 0 %", _spread),
    _Form(rf"host cores {_WHOLE}", "host cores 64", _input(cores=lambda m, _: int(m["value"]))),
    _Form(rf"storage bandwidth x{_NUMBER}", "storage bandwidth x2",
          _input(storage_bandwidth=lambda m, i: i.storage_bandwidth * float(m["value"]))),
    _Form(rf"input cached {_NUMBER} ?%", "input cached 100 %", _input(cached=lambda m, _: float(m["value"]) / 100)),
    _Form(r"decode fused (?P<value>on|off)", "decode fused on", _input(fused=lambda m, _: m["value"] == "on")),
)  # fmt: skip


def parse_change(text: str) -> Change:
    """Read one change.

    Raises
    ------
    InvalidInput : it has none of the known forms; the text shows an example of each.
    """
    plain = " ".join(text.split())
    for form in FORMS:
        match = re.fullmatch(form.pattern, plain)
        if match:
            return Change(plain, form.build(match))
    examples = ", ".join(f'"{form.example}"' for form in FORMS)
    raise InvalidInput(f"cannot read the change {text!r}; write one like {examples}")
