"""`simnet train`: time to train, speed, efficiency, money and energy of a whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnet.cli import options

if TYPE_CHECKING:
    from simnet.prediction import RunPrediction
    from simnet.run import Bill
    from simnet.step_model import StepModel
    from simnet.stragglers import Failures


def command(
    *,
    scenario: options.Scenario,
    profile: options.Profile = None,
    layer_times: options.LayerTimes = None,
    devices: options.Devices = None,
    accumulation: options.Accumulation = None,
    base: options.Base = None,
    price_per_hour: Annotated[str | None, typer.Option(help="Rent of a node for an hour, such as '12 USD'.")] = None,
    node_price: Annotated[
        str | None, typer.Option(help="Price of a node, such as '129000 USD', in place of the catalogue's.")
    ] = None,
    node_power: Annotated[
        str | None, typer.Option(help="Power of a node, such as '1.6 kW', in place of the catalogue's; needs --pue.")
    ] = None,
    pue: Annotated[
        float | None, typer.Option(help="Site overhead on the power of the nodes; 1 counts nodes alone.")
    ] = None,
    node_mtbf: Annotated[
        str | None, typer.Option(help="Mean time between failures of a node, such as '5000 h'; none by default.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Time to write a checkpoint, where nodes fail; '30 s' by default.")
    ] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(help="Useful time between checkpoints; by default what costs least.")
    ] = None,
    restart: Annotated[
        str | None, typer.Option(help="Time to start again after a failure; '5 min' by default.")
    ] = None,
    catalog: options.Catalog = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Predict the whole training run of a scenario's recipe."""
    from simnet.prediction import run_of
    from simnet.step_model import StepModel

    asked = options.asked(
        scenario, catalog=catalog, profile=profile, layer_times=layer_times, devices=devices, accumulation=accumulation
    )
    model = StepModel(asked, catalog=catalog)
    found = run_of(model, failures=_failures(model, node_mtbf, checkpoint, checkpoint_every, restart))
    cost = _bill(model, found, price_per_hour=price_per_hour, node_price=node_price, node_power=node_power, pue=pue)
    row = _row(model, found, cost) | _efficiencies(model, found, base)
    row |= _ends(row, found, model, node_power) | {"assumed": list(asked.assumed)}
    if json:
        from simnet.cli.app import print_json

        print_json([row])
        return
    _print(row)
    for line in options.assumptions(asked):
        print(f"  {line}")


def _failures(
    model: StepModel, mtbf: str | None, checkpoint: str | None, every: str | None, restart: str | None
) -> Failures | None:
    from simnet.errors import InvalidInput
    from simnet.stragglers import Failures
    from simnet.units import Dimension, parse

    named = {"--checkpoint": checkpoint, "--checkpoint-every": every, "--restart": restart}
    if mtbf is None:
        for name, text in named.items():
            if text is not None:
                raise InvalidInput(f"{name} is about nodes that fail, got {text} and no --node-mtbf; give it as well")
        return None
    known = {"--node-mtbf": mtbf, "--checkpoint": checkpoint or "30 s", "--restart": restart or "5 min"}
    times = {name: parse(text, Dimension.TIME, name=name) for name, text in known.items()}
    interval = None if every is None else parse(every, Dimension.TIME, name="--checkpoint-every")
    if times["--checkpoint"] == 0 and interval is None:
        raise InvalidInput("checkpoints that take 0 s may as well be written all the time; give --checkpoint-every")
    return Failures(times["--node-mtbf"], _nodes(model), times["--checkpoint"], times["--restart"], interval)


def _bill(
    model: StepModel, found: RunPrediction, *, price_per_hour: str | None, node_price: str | None,
    node_power: str | None, pue: float | None,
) -> Bill:  # fmt: skip
    from simnet.errors import InvalidInput
    from simnet.run import bill
    from simnet.units import Dimension, parse

    node = model.cluster.node
    rent = None if price_per_hour is None else parse(price_per_hour, Dimension.MONEY, name="--price-per-hour")
    price = node.price.value if node.price else None
    price = price if node_price is None else parse(node_price, Dimension.MONEY, name="--node-price")
    power = node.power.value if node.power else None
    power = power if node_power is None else parse(node_power, Dimension.POWER, name="--node-power")
    if pue is not None and power is None:
        raise InvalidInput(
            f"the catalogue has no power of a node of {model.cluster.name}, needed for --pue {pue:g}; give --node-power"
        )
    if pue is None and node_power is not None:
        raise InvalidInput(f"--node-power {node_power} needs the site's --pue beside it; 1.0 counts nodes alone")
    return bill(
        found.run.time_s, _nodes(model), node_price=price, node_price_per_hour=rent,
        node_power=None if pue is None else power, pue=pue,
    )  # fmt: skip


def _nodes(model: StepModel) -> int:
    return -(-model.scenario.job.devices // model.cluster.node.num_devices)


def _row(model: StepModel, found: RunPrediction, cost: Bill) -> dict[str, Any]:
    from simnet.run import Base
    from simnet.run import row as run_row

    size = model.cluster.node.num_devices
    base = found.step.samples_per_s.value / found.step.devices / found.step.efficiency_node.value
    row = run_row(found.run, base=Base("one node", size, base * size), cost=cost)
    extra = {"scenario": model.scenario.name, "cluster": model.cluster.name, "nodes": _nodes(model)}
    return {**extra, "basis": found.step.basis, **row, "low_s": found.time_s.low, "high_s": found.time_s.high}


def _ends(row: dict[str, Any], found: RunPrediction, model: StepModel, node_power: str | None) -> dict[str, float]:
    """Low and high of speed, rent and energy: those of the step's speed, of the time, and of the power with it."""
    rate, time, power = found.step.samples_per_s, found.time_s, model.cluster.node.power
    ends = {"samples_per_s": (rate.low / rate.value, rate.high / rate.value)}
    longer = (time.low / time.value, time.high / time.value)
    ends |= {"headline_samples_per_s": (1 / longer[1], 1 / longer[0]), "rental_usd": longer}
    known = (1.0, 1.0) if power is None or node_power else (power.low / power.value, power.high / power.value)
    ends |= {"energy_j": (longer[0] * known[0], longer[1] * known[1])}
    return {
        f"{name}_{end}": row[name] * factor
        for name, factors in ends.items()
        for end, factor in zip(("low", "high"), factors, strict=True)
        if row[name] is not None
    }


def _efficiencies(model: StepModel, found: RunPrediction, base: int | None) -> dict[str, Any]:
    """Efficiency of the step against one device, one node, and any other base."""
    from simnet.prediction import efficiency_against

    step = found.step
    row = step.efficiency_device.columns("efficiency_device") | step.efficiency_node.columns("efficiency_node")
    if base is not None:
        row |= {"base_devices": base, **efficiency_against(model, base).columns("efficiency_base_devices")}
    return row


def _print(row: dict[str, Any]) -> None:
    from simnet.units import format_duration, format_si

    print(f"{row['scenario']}: {row['model']}, {row['epochs']:g} epochs on {row['ranks']} devices of {row['cluster']}")
    low, high = format_duration(row["low_s"]), format_duration(row["high_s"])
    print(f"  time to train   {format_duration(row['time_s'])}, 80 % within {low} to {high}")
    for part in ("training", "evaluation", "start_up", *(["failures"] if row["failures_s"] else [])):
        print(f"    {part.replace('_', '-'):<13} {format_duration(row[f'{part}_s'])}")
    print(f"  steps           {row['steps']}, batch {row['batch']}" + _growth(row))
    print(f"  speed           {row['samples_per_s']:,.0f} samples/s while training, 80 % within "
          f"{row['samples_per_s_low']:,.0f} to {row['samples_per_s_high']:,.0f}")  # fmt: skip
    print(f"  efficiency      {row['efficiency']:.1%} of {row['efficiency_base']}")
    for label, name in (("one device", "device"), (f"{row.get('base_devices')} devices", "base_devices")):
        if (key := f"efficiency_{name}") in row:
            print(f"                  {row[key]:.1%} of {label}, 80 % within {row[f'{key}_low']:.1%} to "
                  f"{row[f'{key}_high']:.1%}, by its step")  # fmt: skip
    if row["warm_up_epochs"]:
        print(f"  warm-up         {row['warm_up_epochs']:g} epochs, which change the learning rate and not the time")
    print(f"  converges       {row['converges']}")
    for name, unit in (("purchase_usd", "USD"), ("rental_usd", "USD"), ("energy_j", "J")):
        if row[name] is not None:
            ends = [format_si(row[key], unit) for key in (f"{name}_low", f"{name}_high") if key in row]
            print(f"  {name.rpartition('_')[0]:<15} {format_si(row[name], unit)}"
                  + (f", 80 % within {ends[0]} to {ends[1]}" if ends else ""))  # fmt: skip
    for note in row["notes"]:
        print(f"  note: {note}")
    print(f"  compute time: {row['basis']}")


def _growth(row: dict[str, Any]) -> str:
    return f" growing to {row['largest_batch']}" if row["largest_batch"] != row["batch"] else ""
