"""`realrun probe`: raw times of messages, additions, copies, products and layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    *,
    ranks: Annotated[int | None, typer.Option(help="Local ranks to start; leave out under a launcher.")] = None,
    sizes: Annotated[
        str, typer.Option(help="begin:end:factor, one size, or a list; K, M, G = 2**10, 20, 30.")
    ] = "4:16M:4",
    pairs: Annotated[int, typer.Option(help="Pairs of ranks to measure, spread over all; 0 for every pair.")] = 1,
    loaded: Annotated[bool, typer.Option("--loaded", help="All ranks exchange at once, as in a collective.")] = False,
    iterations: Annotated[int, typer.Option(help="Samples per record.")] = 20,
    warmup: Annotated[int, typer.Option(help="Runs before the samples.")] = 3,
    compute: Annotated[bool, typer.Option("--compute", help="Also matrix products and convolutions.")] = False,
    model: Annotated[str, typer.Option(help="Also layer times of resnet50 or alexnet.")] = "",
    batch: Annotated[int, typer.Option(help="Images per batch for --model.")] = 8,
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16 or fp16 for --model.")] = "fp32",
    backend: Annotated[
        str | None, typer.Option(help="gloo or nccl; default: gloo, under a launcher nccl with a device per rank.")
    ] = None,
    timeout: Annotated[str, typer.Option(help="A step without progress for this long ends the run.")] = "60 s",
    out: Annotated[Path | None, typer.Option(help="Append one JSON line per record as soon as it is there.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per record and nothing else.")] = False,
) -> None:
    """Measure what messages and reductions cost, as records for `simnet calibrate`.

    One-way messages go there and back, both-way messages cross; the reduction and copy rates are those
    of additions and copies on the ranks' device. Every record holds all its samples.
    """
    from realrun.launch import detect, stream
    from realrun.plans import ProbePlan
    from realrun.report import kept, print_probe
    from simnet.units import Dimension, parse, parse_sizes

    plan = ProbePlan(
        tuple(parse_sizes(sizes)), pairs=pairs, loaded=loaded, compute=compute, model=model, batch=batch,
        precision=precision, iterations=iterations, warmup=warmup,
        timeout=parse(timeout, Dimension.TIME, name="timeout"),
    )  # fmt: skip
    launch = detect()
    rows = stream("realrun.probe:probe", plan, ranks=ranks, backend=backend, timeout=plan.timeout)
    print_probe(kept(rows, out), json=json, quiet=launch is not None and launch.rank > 0)
