"""`simnet replay`: a traced job as recorded, and on another cluster or on more ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    trace: Annotated[Path, typer.Argument(help="Kineto trace of one rank, or Chakra nodes with durations.")],
    *,
    ranks: Annotated[int | None, typer.Option(help="Over how many ranks; as traced where not given.")] = None,
    cluster: Annotated[str, typer.Option(help="A name from `simnet catalog clusters`, or uniform.")] = "uniform",
    bandwidth: Annotated[str | None, typer.Option(help="Of every port of uniform, such as '12.5 GB/s'.")] = None,
    latency: Annotated[str | None, typer.Option(help="Of every message on uniform, such as '1 us'.")] = None,
    algorithm: Annotated[str, typer.Option(help="Of the all-reduces; see `simnet catalog algorithms`.")] = "ring",
    profile: Annotated[str | None, typer.Option(help="What `simnet calibrate` wrote.")] = None,
    compute_speed: Annotated[float, typer.Option(help="Speed of the device relative to the traced one.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Replay a traced job, say what replay alone misses, and predict it elsewhere."""
    from dataclasses import asdict

    from simnet.cli.app import print_json
    from simnet.importers.trace_job import read_trace_job
    from simnet.replay import replay
    from simnet.units import format_duration

    found = replay(
        read_trace_job(trace), ranks=ranks, cluster=cluster, bandwidth=bandwidth, latency=latency,
        algorithm=algorithm, profile=profile, compute_speed=compute_speed,
    )  # fmt: skip
    if json:
        print_json([{**asdict(found), "error": found.error}])
        return
    print(f"recorded   {format_duration(found.recorded_s)} in {found.num_steps} steps")
    print(f"replayed   {format_duration(found.replayed_s)}, {found.error:+.2%} with nothing changed")
    print(
        f"predicted  {format_duration(found.predicted_s)}, of it {format_duration(found.exposed_s)} waiting for others"
    )
    collectives = (found.collectives_recorded_s, found.collectives_predicted_s)
    print("collectives {} recorded, {} predicted".format(*map(format_duration, collectives)))
    for text in found.assumptions:
        print(f"assumed: {text}")
