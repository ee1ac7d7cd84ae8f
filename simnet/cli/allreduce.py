"""`simnet allreduce`: predict an all-reduce, or any other collective, as the nccl-tests table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    *,
    ranks: Annotated[int, typer.Option(help="How many devices take part.")],
    cluster: Annotated[str, typer.Option(help="A name from `simnet catalog clusters`, or uniform.")] = "uniform",
    bandwidth: Annotated[str | None, typer.Option(help="Of every port of uniform, such as '12.5 GB/s'.")] = None,
    latency: Annotated[str | None, typer.Option(help="Of every message on uniform, such as '1 us'.")] = None,
    algorithm: Annotated[str, typer.Option(help="A name from `simnet catalog algorithms`.")] = "ring",
    grid: Annotated[str | None, typer.Option(help="Grid of torus algorithms, such as 4x4.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(help="Devices used of every node; default all.")] = None,
    sizes: Annotated[
        str, typer.Option(help="begin:end:factor, one size, or a list; K, M, G = 2**10, 20, 30.")
    ] = "4:32M:2",
    dtype: Annotated[str, typer.Option(help="float, double, half, bfloat16, int8, ...")] = "float",
    engine: Annotated[str, typer.Option(help="auto, estimate or simulate.")] = "auto",
    cost: Annotated[
        str | None, typer.Option(help="A cost model and its options, such as 'tcp:flows=4'; default alpha_beta.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="What `simnet calibrate` wrote, in place of alpha and beta.")
    ] = None,
    catalog: Annotated[str | None, typer.Option(help="Folder with catalogue files of your own.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per size.")] = False,
) -> None:
    """Predict a collective for every size on a described cluster."""
    from simnet.cli.app import print_json
    from simnet.collective_prediction import predict_collective
    from simnet.costs.registry import of_text
    from simnet.tables import nccl_table

    rows = predict_collective(
        ranks=ranks, cluster=cluster, bandwidth=bandwidth, latency=latency, algorithm=algorithm, grid=grid,
        ranks_per_node=ranks_per_node, sizes=sizes, dtype=dtype, engine=engine, profile=profile, catalog=catalog,
        cost=None if cost is None else of_text(cost),
    )  # fmt: skip
    if json:
        print_json(rows)
        return
    for line in nccl_table(rows):
        print(line)
