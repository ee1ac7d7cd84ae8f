"""`simnet step`: one training step, where its time goes, and what would help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnet.cli.options import Profile

if TYPE_CHECKING:
    from simnet.prediction import StepPrediction
    from simnet.step_model import StepModel


def command(
    *,
    scenario: Annotated[str, typer.Option(help="A name from `simnet catalog scenarios`, or a .toml file.")],
    profile: Profile = None,
    devices: Annotated[int | None, typer.Option(help="Use so many devices instead.")] = None,
    draws: Annotated[int | None, typer.Option(help="Draws of the intervals.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the step as a trace that Perfetto opens.")] = None,
    advice: Annotated[bool, typer.Option(help="Try changes and name the three that help most.")] = True,
    simulate_draws: Annotated[
        int, typer.Option(help="Where the step is not exact: hold it against simulation on so many draws of the links.")
    ] = 0,
    catalog: Annotated[str | None, typer.Option(help="Folder with catalogue files of your own.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Predict one training step: its parts, its critical path, the link that holds it up, what would help most."""
    from dataclasses import replace

    from simnet.prediction import step_of, with_devices
    from simnet.profile_prices import with_profile
    from simnet.scenario import load_scenario
    from simnet.step_model import StepModel

    asked = load_scenario(scenario, catalog)
    asked = asked if profile is None else with_profile(asked, profile)
    asked = with_devices(asked, devices) if devices is not None and devices != asked.job.devices else asked
    asked = replace(asked, draws=draws) if draws is not None else asked
    model = StepModel(asked, catalog=catalog)
    found = step_of(model)
    if trace is not None:
        _write(trace, found)
    if json:
        _print_json(found)
        return
    _print(model, found)
    if not found.exact and (simulate_draws or not model.scenario.exchange.profile):
        _hold_against_simulation(model, simulate_draws)
    if advice:
        _advise(model, catalog)


def _write(path: Path, found: StepPrediction) -> None:
    from simnet.errors import InvalidInput
    from simnet.exporters.step_trace import step_trace

    text = step_trace(found.spans, found.buckets, ranks=found.devices, name=found.scenario)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write the trace to {path}: {error.strerror}; name another file") from error


def _print_json(found: StepPrediction) -> None:
    from simnet.cli.app import print_json

    intervals = ("step_s", "samples_per_s", "efficiency_device", "efficiency_node")
    plain = (
        "scenario",
        "devices",
        "per_device_batch",
        "global_batch",
        "memory_bytes",
        "engine",
        "exact",
        "reason",
        "basis",
        "slow_stage",
        "p50_s",
        "p95_s",
    )
    row = {name: getattr(found, name) for name in plain}
    for name in intervals:
        row |= getattr(found, name).columns(name)
    row |= {f"{name}_s": seconds for name, seconds in found.parts_s.items()}
    row |= {"buckets_bytes": [b.num_bytes for b in found.buckets], "exposed_s": list(found.exposed_s)}
    print_json([row])


def _print(model: StepModel, found: StepPrediction) -> None:
    from simnet.explain import bottleneck, critical_path
    from simnet.units import format_duration, format_si

    job = model.scenario.job
    print(f"{found.scenario}: {job.model}, {job.precision}, {job.devices} devices of {model.cluster.name}")
    print(f"  batch                {found.global_batch} samples, {found.per_device_batch} per device, "
          f"{format_si(found.memory_bytes, 'B')} of memory each")  # fmt: skip
    step = found.step_s
    print(
        f"  step                 {step.value * 1e3:.2f} ms, 80 % within {step.low * 1e3:.2f} to {step.high * 1e3:.2f}"
    )
    if model.scenario.variation.between_steps:
        print(f"  over steps           median {found.p50_s * 1e3:.2f} ms, 95 % below {found.p95_s * 1e3:.2f} ms")
    rate = found.samples_per_s
    print(f"  speed                {rate.value:,.0f} samples/s, 80 % within {rate.low:,.0f} to {rate.high:,.0f}")
    for label, value in (("one device", found.efficiency_device), ("one node", found.efficiency_node)):
        print(f"  efficiency           {value.value:.1%} of {label}, 80 % within {value.low:.1%} to {value.high:.1%}")
    print("where the time goes")
    for name, seconds in found.parts_s.items():
        print(f"  {name.replace('_', ' '):<20} {seconds * 1e3:9.3f} ms  {seconds / step.value:6.1%}")
    if found.slow_stage not in ("", "device"):
        print(f"  the devices wait for their data: {found.slow_stage} is the slowest stage of the input pipeline")
    print("critical path, of the slowest rank")
    for piece in critical_path(found):
        print(f"  {piece.name:<20} {format_duration(piece.time_s)}")
    for entry in bottleneck(model)[:1]:
        better = "twice the bandwidth" if entry.what == "bandwidth" else "half the latency"
        print(f"bottleneck link: {entry.kind}; {better} takes {entry.saved:.1%} off the largest all-reduce")
        if entry.saved < 0.02:
            print("  links of other kinds on the same path are as narrow: only better together")
    print(f"compute time: {found.basis}")
    print(f"engine: {found.engine or 'none'}, {'exact' if found.exact else 'not exact: ' + found.reason}")


def _hold_against_simulation(model: StepModel, draws: int) -> None:
    from simnet.explain import approximation

    if draws == 0:
        print("  its error: --simulate-draws 20 holds it against simulation")
        return
    error = approximation(model, draws)
    print(f"  its error on {error.draws} draws: median {error.median:+.1%}, largest {error.largest:+.1%}")


def _advise(model: StepModel, catalog: str | None) -> None:
    from simnet.whatif import best_changes

    print("changes that would help most, in samples/s")
    for outcome in best_changes(model.scenario, catalog=catalog):
        gain = outcome.gain
        print(f"  {outcome.change:<26} {gain.value:+.1%}, 80 % within {gain.low:+.1%} to {gain.high:+.1%}")
