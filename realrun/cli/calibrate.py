"""`realrun calibrate`: the one command of a cluster job; one file to carry home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    *,
    out: Annotated[Path, typer.Option(help="File to write, one JSON line per record; must not exist.")],
    budget: Annotated[str, typer.Option(help="Time to spend, such as '10 min'.")] = "10 min",
    ranks: Annotated[int | None, typer.Option(help="Local ranks to start; leave out under a launcher.")] = None,
    algorithms: Annotated[
        str, typer.Option(help="All-reduces to measure, comma-separated; native is the backend's own.")
    ] = "ring,torus2d,halving_doubling,hierarchical,double_binary_tree,native",
    sizes: Annotated[str, typer.Option(help="begin:end:factor or a list; K, M, G = 2**10, 20, 30.")] = "1K:64M:4",
    grid: Annotated[str | None, typer.Option(help="Grid of torus2d, such as 4x4.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(help="Group size of hierarchical.")] = None,
    pairs: Annotated[int, typer.Option(help="Pairs of ranks to probe, spread over all; 0 for every pair.")] = 4,
    iterations: Annotated[int, typer.Option(help="Samples per point.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the order, and so of what is held out.")] = 0,
    backend: Annotated[
        str | None, typer.Option(help="gloo or nccl; default: gloo, under a launcher nccl with a device per rank.")
    ] = None,
    timeout: Annotated[str, typer.Option(help="A step without progress for this long ends the run.")] = "60 s",
) -> None:
    """Dump the topology, probe, sweep sizes and algorithms in random order, hold a third of the points out.

    Every record is written as soon as it is measured, so a job that is killed keeps what it has. At home,
    `simnet calibrate FILE --out profile.toml` makes the profile from the points that are not held out, and
    `simnet compare` tells how well it predicts those that are.
    """
    from realrun.launch import detect, stream
    from realrun.plans import Campaign
    from realrun.report import kept, print_progress
    from simnet.algorithms.grid import parse_grid
    from simnet.errors import InvalidInput
    from simnet.units import Dimension, parse, parse_sizes

    if out.exists():
        raise InvalidInput(f"{out} exists; name another file, records of two jobs do not belong into one")
    options: dict[str, dict[str, Any]] = {"torus2d": {"grid": parse_grid(grid)} if grid else {}}
    options["hierarchical"] = {} if ranks_per_node is None else {"ranks_per_node": ranks_per_node}
    plan = Campaign(
        parse(budget, Dimension.TIME, name="budget"), tuple(parse_sizes(sizes)),
        tuple((name.strip(), options.get(name.strip(), {})) for name in algorithms.split(",")),
        pairs=pairs, iterations=iterations, seed=seed, timeout=parse(timeout, Dimension.TIME, name="timeout"),
    )  # fmt: skip
    launch = detect()
    rows = stream("realrun.campaign:campaign", plan, ranks=ranks, backend=backend, timeout=plan.timeout)
    print_progress(kept(rows, out), out, quiet=launch is not None and launch.rank > 0)
