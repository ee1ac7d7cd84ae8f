"""`realrun lab`: a small real network on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

group = typer.Typer(help="Build a shaped network of hosts on this machine, run ranks in it, remove it.")

Name = Annotated[str, typer.Option(help="Name of the lab, so that several can exist.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


@group.command("up")
def up(
    *,
    topology: Annotated[str, typer.Option(help="star, two-tier, ring or torus2d.")] = "star",
    hosts: Annotated[int, typer.Option(help="Number of hosts; each runs one rank.")] = 4,
    rate: Annotated[str, typer.Option(help='Speed of a host\'s cables each way, such as "100 Mbit/s".')] = "100 Mbit/s",
    uplink: Annotated[str | None, typer.Option(help="Speed between switches (two-tier); default as --rate.")] = None,
    grid: Annotated[str | None, typer.Option(help="Rows x columns of a torus2d, such as 2x3.")] = None,
    congestion: Annotated[str, typer.Option(help="TCP congestion control inside: reno or cubic.")] = "reno",
    name: Name = "lab",
    json: Json = False,
) -> None:
    """Create namespaces as hosts, veth pairs as cables, shaped by tc. Needs root."""
    from realrun.lab import network
    from realrun.lab.plan import plan
    from simnet.units import Dimension, parse

    speed = parse(rate, Dimension.BANDWIDTH, name="--rate")
    between = None if uplink is None else parse(uplink, Dimension.BANDWIDTH, name="--uplink")
    made = plan(topology, hosts, speed, uplink=between, grid=_grid(grid), name=name)
    network.up(made, congestion=congestion)
    _show(made, json)


@group.command("show")
def show(name: Name = "lab", json: Json = False) -> None:
    """Print the lab that is up: hosts, addresses, cables."""
    from realrun.lab import network

    _show(network.current(name), json)


@group.command("run", context_settings={"ignore_unknown_options": True})
def run(
    command: Annotated[list[str], typer.Argument(help="Command and its arguments, after --.")],
    timeout: Annotated[str | None, typer.Option(help='End all ranks after this time, such as "60 s".')] = None,
    name: Name = "lab",
) -> None:
    """Run a command on every host, one rank each, with RANK, WORLD_SIZE, MASTER_ADDR and the interface set."""
    from realrun.lab.ranks import run as run_ranks
    from simnet.units import Dimension, parse

    limit = None if timeout is None else parse(timeout, Dimension.TIME, name="--timeout")
    run_ranks(name, command, timeout=limit)


@group.command("down")
def down(name: Name = "lab", json: Json = False) -> None:
    """Remove the lab and end what runs in it; also after a crash. Nothing else is touched."""
    from realrun.lab import network
    from simnet.cli.app import print_json

    removed = network.down(name)
    if json:
        print_json([{"lab": name, "namespaces_removed": removed}])
    else:
        print(f"lab {name}: {removed} namespaces removed")
        if others := network.names():
            print(f"still up: {', '.join(others)}; remove one with --name")


def _grid(text: str | None) -> tuple[int, int] | None:
    from simnet.errors import InvalidInput

    if text is None:
        return None
    rows, _, columns = text.partition("x")
    if not (rows.isdigit() and columns.isdigit()):
        raise InvalidInput(f"--grid must be rows x columns, got {text!r}; write 2x3")
    return int(rows), int(columns)


def _show(made: Any, json: bool) -> None:
    from simnet.cli.app import print_json
    from simnet.units import GBIT_PER_S

    if json:
        print_json([made.record() | {"addresses": {host: made.address(host) for host in made.hosts}}])
        return
    print(f"lab {made.name}: {made.topology} of {len(made.hosts)} hosts")
    for rank, host in enumerate(made.hosts):
        print(f"  rank {rank}  {host:<4} {made.address(host):<11} {made.interface(host)}")
    for cable in made.cables:
        print(f"  {cable.a} - {cable.b}  {cable.rate / GBIT_PER_S * 1e3:g} Mbit/s each way")
