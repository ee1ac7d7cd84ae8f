"""`simnet step`: one training step, where its time goes, and what would help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnet.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simnet.exchange import ApproximationError
    from simnet.explain import BottleneckLink
    from simnet.intervals import Interval
    from simnet.prediction import StepPrediction
    from simnet.step_model import StepModel
    from simnet.whatif import Outcome

DRAWS_HELD = 20
"""Draws on which the static share is held against simulation unasked."""


def command(
    *,
    scenario: options.Scenario,
    profile: options.Profile = None,
    layer_times: options.LayerTimes = None,
    devices: options.Devices = None,
    accumulation: options.Accumulation = None,
    base: options.Base = None,
    draws: Annotated[int | None, typer.Option(help="Draws of the intervals.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the step as a trace that Perfetto opens.")] = None,
    advice: Annotated[bool, typer.Option(help="Try changes and name the three that help most.")] = True,
    simulate_draws: Annotated[
        int | None,
        typer.Option(
            help="Where the step is not exact: hold it against simulation on so many draws of the links, at all "
            "devices; unasked on 20, at as many devices as take seconds. 0 leaves it out."
        ),
    ] = None,
    catalog: options.Catalog = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Predict one training step: its parts, its critical path, the link that holds it up, what would help most."""
    from dataclasses import replace
    from itertools import chain

    from simnet.cli.app import print_json
    from simnet.errors import InvalidInput
    from simnet.explain import bottleneck_link
    from simnet.prediction import efficiency_against, step_of
    from simnet.step_model import StepModel
    from simnet.whatif import best_changes

    if simulate_draws is not None and simulate_draws < 0:
        raise InvalidInput(f"--simulate-draws must be 0 or more, got {simulate_draws}")
    asked = options.asked(
        scenario, catalog=catalog, profile=profile, layer_times=layer_times, devices=devices, accumulation=accumulation
    )
    asked = replace(asked, draws=draws) if draws is not None else asked
    model = StepModel(asked, catalog=catalog)
    found = step_of(model)
    if trace is not None:
        _write(trace, found)
    against = None if base is None else efficiency_against(model, base)
    normed = _shared_statistics(model)
    error = None if found.exact else _held_against_simulation(model, simulate_draws)
    link = bottleneck_link(model)
    changes = best_changes(asked, catalog=catalog) if advice else []
    if json:
        row = _row(found, link, error, changes) | _against_row(base, against) | normed
        print_json([{**row, "assumed": list(asked.assumed)}])
        return
    for line in chain(
        _summary(model, found, base, against), _breakdown(found, normed), _bottleneck(link), _basis(found, error),
        options.assumptions(asked), _advice(changes),
    ):  # fmt: skip
        print(line)


def _against_row(base: int | None, against: Interval | None) -> dict[str, Any]:
    return {} if against is None else {"base_devices": base, **against.columns("efficiency_base_devices")}


def _write(path: Path, found: StepPrediction) -> None:
    from simnet.errors import InvalidInput
    from simnet.exporters.step_trace import step_trace

    text = step_trace(found.spans, found.buckets, ranks=found.devices, name=found.scenario)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write the trace to {path}: {error.strerror}; name another file") from error


def _held_against_simulation(model: StepModel, draws: int | None) -> ApproximationError | None:
    from simnet.explain import approximation, quick_to_simulate

    if draws == 0 or (draws is None and model.network is not None):
        return None
    ranks = quick_to_simulate(model) if draws is None else model.scenario.job.devices
    return approximation(model, draws or DRAWS_HELD, ranks=ranks)


_PLAIN = (
    "scenario", "devices", "per_device_batch", "global_batch", "memory_bytes", "engine", "exact", "reason", "basis",
    "slow_stage", "p50_s", "p95_s",
)  # fmt: skip
_INTERVALS = ("step_s", "samples_per_s", "efficiency_device", "efficiency_node")


def _row(
    found: StepPrediction, link: BottleneckLink | None, error: ApproximationError | None, changes: Sequence[Outcome]
) -> dict[str, Any]:
    from simnet.cli.app import record
    from simnet.explain import critical_path

    row = {name: getattr(found, name) for name in _PLAIN}
    for name in _INTERVALS:
        row |= getattr(found, name).columns(name)
    row |= {f"{name}_s": seconds for name, seconds in found.parts_s.items()}
    row |= {"buckets_bytes": [b.num_bytes for b in found.buckets], "exposed_s": list(found.exposed_s)}
    row |= {"critical_path": [record(piece) for piece in critical_path(found)]}
    row |= {"bottleneck": None if link is None else record(link)}
    row |= {"approximation": None if error is None else record(error)}
    return row | {"changes": [outcome.row() for outcome in changes]}


def _summary(model: StepModel, found: StepPrediction, base: int | None, against: Interval | None) -> Iterator[str]:
    from simnet.units import format_si

    job, step, rate = model.scenario.job, found.step_s, found.samples_per_s
    yield f"{found.scenario}: {job.model}, {job.precision}, {job.devices} devices of {model.cluster.name}"
    yield (
        f"  batch                {found.global_batch} samples, {found.per_device_batch} per device, "
        f"{format_si(found.memory_bytes, 'B')} of memory each"
    )
    yield f"  step                 {step.value * 1e3:.2f} ms, 80 % within {step.low * 1e3:.2f} to {step.high * 1e3:.2f}"
    if model.scenario.variation.between_steps:
        yield f"  over steps           median {found.p50_s * 1e3:.2f} ms, 95 % below {found.p95_s * 1e3:.2f} ms"
    yield f"  speed                {rate.value:,.0f} samples/s, 80 % within {rate.low:,.0f} to {rate.high:,.0f}"
    efficiencies = {"one device": found.efficiency_device, "one node": found.efficiency_node}
    for label, value in (efficiencies | ({} if against is None else {f"{base} devices": against})).items():
        yield f"  efficiency           {value.value:.1%} of {label}, 80 % within {value.low:.1%} to {value.high:.1%}"


def _shared_statistics(model: StepModel) -> dict[str, Any]:
    """Samples that are normalised together, and what sharing their statistics costs each layer, both passes, s."""
    if model.scenario.batch_norm.group == 1 or model.scenario.job.devices == 1:
        return {}
    forward, backward = model.batch_norm()
    cost = {
        layer.name: float(f + b) for layer, f, b in zip(model.model.layers, forward, backward, strict=True) if f > 0
    }
    return {"normalisation_batch": model.scenario.normalisation_batch, "batch_norm_layers_s": cost}


def _breakdown(found: StepPrediction, normed: dict[str, Any]) -> Iterator[str]:
    from simnet.explain import critical_path
    from simnet.units import format_duration

    yield "where the time goes"
    for name, seconds in found.parts_s.items():
        yield f"  {name.replace('_', ' '):<20} {seconds * 1e3:9.3f} ms  {seconds / found.step_s.value:6.1%}"
    if normed:
        cost = normed["batch_norm_layers_s"].values()
        yield (
            f"  batch norm over {normed['normalisation_batch']} samples: {len(cost)} layers, "
            f"{format_duration(min(cost))} to {format_duration(max(cost))} each"
        )
    if found.slow_stage not in ("", "device"):
        yield f"  the devices wait for their data: {found.slow_stage} is the slowest stage of the input pipeline"
    yield "critical path, of the slowest rank"
    for piece in critical_path(found):
        yield f"  {piece.name:<20} {format_duration(piece.time_s)}"


def _bottleneck(link: BottleneckLink | None) -> Iterator[str]:
    if link is None:
        return
    alike = "all" if link.alike == link.of_kind else f"{link.alike} of"
    better = "twice the bandwidth" if link.what == "bandwidth" else "half the latency"
    yield (
        f"bottleneck link: {link.link}, busy for {link.load:.1%} of the largest all-reduce; {alike} {link.of_kind} "
        f"links of {link.kind} alike"
    )
    yield f"  {better} of {link.kind} takes {link.saved:.1%} off that all-reduce"
    if link.saved < 0.02:
        yield "  links of other kinds on the same path are as narrow: only better together"


def _basis(found: StepPrediction, error: ApproximationError | None) -> Iterator[str]:
    yield f"compute time: {found.basis}"
    yield f"engine: {found.engine or 'none'}, {'exact' if found.exact else 'not exact: ' + found.reason}"
    if error is None:
        return
    fewer = f" at {error.ranks} devices" if error.ranks != found.devices else ""
    yield (
        f"  against simulation on {error.draws} draws of the links{fewer}: median {error.median:+.1%}, "
        f"largest {error.largest:+.1%}"
    )
    if fewer:
        yield f"  --simulate-draws {error.draws} holds all {found.devices} against it, and takes longer"


def _advice(changes: Sequence[Outcome]) -> Iterator[str]:
    if changes:
        yield "changes that would help most, in samples/s"
    for outcome in changes:
        gain = outcome.gain
        yield f"  {outcome.change:<26} {gain.value:+.1%}, 80 % within {gain.low:+.1%} to {gain.high:+.1%}"
