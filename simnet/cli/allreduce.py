"""`simnet allreduce`: predict an all-reduce, or any other collective, as the nccl-tests table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping


def command(
    *,
    ranks: Annotated[int, typer.Option(help="How many devices take part.")],
    cluster: Annotated[str, typer.Option(help="A name from `simnet catalog clusters`, or uniform.")] = "uniform",
    bandwidth: Annotated[str | None, typer.Option(help="Of every port of uniform, such as '12.5 GB/s'.")] = None,
    latency: Annotated[str | None, typer.Option(help="Of every message on uniform, such as '1 us'.")] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="From `simnet catalog algorithms`, auto for the fastest per size, nccl for what NCCL runs by the "
            "profile, or an MSCCL .xml; default ring, or nccl where the profile holds it."
        ),
    ] = None,
    grid: Annotated[str | None, typer.Option(help="Grid of torus algorithms, such as 4x4.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(help="Devices used of every node; default all.")] = None,
    sizes: Annotated[
        str, typer.Option(help="begin:end:factor, one size, or a list; K, M, G = 2**10, 20, 30.")
    ] = "4:32M:2",
    dtype: Annotated[str, typer.Option(help="float, double, half, bfloat16, int8, ...")] = "float",
    engine: Annotated[str, typer.Option(help="auto, estimate or simulate.")] = "auto",
    cost: Annotated[
        str | None,
        typer.Option(help="From `simnet catalog costs`, with options: 'tcp:overhead=20 us'; default alpha_beta."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="What `simnet calibrate` wrote, in place of alpha and beta.")
    ] = None,
    simulate_draws: Annotated[
        int | None,
        typer.Option(
            help="Where rows are not exact: hold the largest of them against simulation on so many draws of the links."
        ),
    ] = None,
    catalog: Annotated[str | None, typer.Option(help="Folder with catalogue files of your own.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per size.")] = False,
) -> None:
    """Predict a collective for every size on a described cluster."""
    if algorithm == "auto":
        _choose(
            ranks=ranks, cluster=cluster, bandwidth=bandwidth, latency=latency, ranks_per_node=ranks_per_node,
            catalog=catalog, sizes=sizes, dtype=dtype, cost=cost, json=json,
            unused={"grid": grid, "profile": profile, "simulate-draws": simulate_draws},
        )  # fmt: skip
        return
    from simnet.approximation import approximation_of
    from simnet.cli.app import print_json, record
    from simnet.collective_prediction import predict_collective
    from simnet.costs.registry import of_text
    from simnet.errors import InvalidInput
    from simnet.tables import nccl_table
    from simnet.verification import read_schedule

    if simulate_draws is not None and simulate_draws < 1:
        raise InvalidInput(f"--simulate-draws must be 1 or more, got {simulate_draws}")
    asked: dict[str, Any] = {
        "ranks": ranks, "cluster": cluster, "bandwidth": bandwidth, "latency": latency, "grid": grid,
        "algorithm": read_schedule(Path(algorithm)) if algorithm and algorithm.endswith(".xml") else algorithm,
        "ranks_per_node": ranks_per_node, "profile": profile, "catalog": catalog,
        "cost": None if cost is None else of_text(cost),
    }  # fmt: skip
    rows = predict_collective(**asked, sizes=sizes, dtype=dtype, engine=engine)
    error = None if simulate_draws is None else approximation_of(rows, simulate_draws, **asked)
    if json:
        held = [] if error is None else [{"kind": "approximation", **record(error)}]
        print_json([*rows, *held])
        return
    for line in nccl_table(rows):
        print(line)
    if error is not None:
        print(f"# against simulation on {error.draws} draws of the links: median {error.median:+.1%}, "
              f"largest {error.largest:+.1%}")  # fmt: skip
    elif simulate_draws is not None:
        print("# all rows are exact: there is nothing to hold against simulation")


def _choose(
    *,
    sizes: str,
    dtype: str,
    cost: str | None,
    json: bool,
    unused: Mapping[str, object],
    **place: Any,
) -> None:
    from dataclasses import asdict

    from simnet.choice import choose
    from simnet.cli.app import print_json
    from simnet.collective_prediction import find_site
    from simnet.costs.registry import of_text
    from simnet.errors import InvalidInput
    from simnet.tables import nccl_table

    for name, value in unused.items():
        if value is not None:
            raise InvalidInput(f"--algorithm auto takes no --{name}, got {value}; name an algorithm or leave it out")
    model = None if cost is None else of_text(cost)
    choice = choose(find_site(**place), sizes, dtype=dtype, cost=model)
    if json:
        print_json({"kind": "row", **asdict(row)} for row in choice.rows)
        print_json({"kind": "crossover", **asdict(crossover)} for crossover in choice.crossovers)
        print_json({"kind": "refused", "algorithm": name, "reason": why} for name, why in choice.refused.items())
        return
    for line in nccl_table(choice.rows):
        print(line)
    for row in choice.rows:
        if row.runner_up_s is not None and row.time_s > 0:
            print(f"# {row.size_bytes:>12} bytes: {row.algorithm}, then {row.runner_up} "
                  f"{row.runner_up_s / row.time_s - 1:+.1%}")  # fmt: skip
    for crossover in choice.crossovers:
        print(f"# from {crossover.size_bytes} bytes on: {crossover.above} in place of {crossover.below}")
    for name, why in choice.refused.items():
        print(f"# not tried: {name}: {why}")
