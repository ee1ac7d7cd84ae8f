"""`realrun allreduce`: measure an all-reduce, or any other collective, and print the nccl-tests table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    *,
    algorithm: Annotated[str, typer.Option(help="A name from `simnet catalog algorithms`, or native.")] = "ring",
    ranks: Annotated[int | None, typer.Option(help="Local ranks to start; leave out under a launcher.")] = None,
    sizes: Annotated[
        str, typer.Option(help="begin:end:factor, one size, or a list; K, M, G = 2**10, 20, 30.")
    ] = "4:32M:2",
    grid: Annotated[str | None, typer.Option(help="Grid of torus2d, such as 2x2.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(help="Group size of hierarchical.")] = None,
    dtype: Annotated[str, typer.Option(help="float, double, half, bfloat16, int8, uint8, int32 or int64.")] = "float",
    iterations: Annotated[int, typer.Option(help="Samples per size.")] = 20,
    warmup: Annotated[int, typer.Option(help="Runs per size before the samples.")] = 3,
    backend: Annotated[
        str | None, typer.Option(help="gloo or nccl; default: gloo, under a launcher nccl with a device per rank.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda; default: cuda under nccl, else cpu.")] = "",
    timeout: Annotated[str, typer.Option(help="A step without progress for this long ends the run.")] = "60 s",
    check: Annotated[bool, typer.Option("--check", help="Compare what ranks ask for before every run.")] = False,
    out: Annotated[Path | None, typer.Option(help="Append one JSON line per size as soon as it is measured.")] = None,
    predicted: Annotated[Path | None, typer.Option(help="`simnet allreduce --json` of before; shown beside.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per size and nothing else.")] = False,
) -> None:
    """Measure a collective on local ranks, or on those that torchrun, srun or mpirun started.

    Every sample is the time of the slowest rank after a barrier; the table shows the median. Sums are
    verified on known numbers before they are timed.
    """
    from realrun.launch import detect, stream
    from realrun.plans import Plan
    from realrun.report import kept, print_rows, read_predicted
    from simnet.algorithms.grid import parse_grid
    from simnet.units import Dimension, parse, parse_sizes

    options = {"grid": parse_grid(grid) if grid else None, "ranks_per_node": ranks_per_node}
    plan = Plan(
        algorithm, tuple(parse_sizes(sizes)), {k: v for k, v in options.items() if v is not None}, dtype,
        iterations, warmup, parse(timeout, Dimension.TIME, name="timeout"), check, device,
    )  # fmt: skip
    beside = read_predicted(predicted) if predicted else {}
    rows = stream("realrun.benchmark:sweep", plan, ranks=ranks, backend=backend, timeout=plan.timeout)
    launch = detect()
    wrong = print_rows(kept(rows, out), beside, json=json, quiet=launch is not None and launch.rank > 0)
    if wrong:
        raise typer.Exit(1)
