"""`simnet replay`: a traced job as recorded, and on another cluster or on more ranks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simnet.job import TraceJob
    from simnet.replay import Replay, Repriced

_MOST_LINES = 10


def command(
    traces: Annotated[
        list[Path],
        typer.Argument(help="Kineto traces of one or more ranks, Chakra nodes with durations, or a saved .toml."),
    ],
    *,
    ranks: Annotated[int | None, typer.Option(help="Over how many ranks; as traced where not given.")] = None,
    cluster: Annotated[str, typer.Option(help="A name from `simnet catalog clusters`, or uniform.")] = "uniform",
    bandwidth: Annotated[str | None, typer.Option(help="Of every port of uniform, such as '12.5 GB/s'.")] = None,
    latency: Annotated[str | None, typer.Option(help="Of every message on uniform, such as '1 us'.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(help="Devices used of every node; default all.")] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(help="See `simnet catalog algorithms`; one for each kind of collective, repeatable."),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="What `simnet calibrate` wrote.")] = None,
    compute_speed: Annotated[float, typer.Option(help="Speed of the device relative to the traced one.")] = 1.0,
    save: Annotated[Path | None, typer.Option(help="Write the job as a .toml to change and replay.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Replay a traced job, say what replay alone misses, and predict it elsewhere."""
    from dataclasses import asdict

    from simnet.cli.app import print_json
    from simnet.replay import read_jobs, replay

    jobs = read_jobs([str(path) for path in traces])
    if save is not None:
        _save(jobs, save)
    found = replay(
        jobs, ranks=ranks, cluster=cluster, bandwidth=bandwidth, latency=latency, ranks_per_node=ranks_per_node,
        algorithms=algorithm or (), profile=profile, compute_speed=compute_speed,
    )  # fmt: skip
    if json:
        print_json([{**asdict(found), "error": found.error}])
        return
    for line in _lines(found):
        print(line)
    if save is not None:
        print(f"wrote {save}")


def _save(jobs: Sequence[TraceJob], path: Path) -> None:
    from simnet.errors import InvalidInput
    from simnet.exporters.job_file import write_job

    if path.suffix != ".toml":
        raise InvalidInput(f"--save writes a .toml file, got {path}; name it so, or replay will not know it again")
    try:
        path.write_text("\n".join(write_job(jobs)) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write the job to {path}: {error.strerror}; name another file") from error


def _lines(found: Replay) -> Iterator[str]:
    from simnet.units import format_duration

    traces = f"{found.traced_ranks} traced rank{'s' if found.traced_ranks > 1 else ''}"
    steps = f"{found.num_steps} step{'s' if found.num_steps > 1 else ''}"
    yield f"recorded   {format_duration(found.recorded_s)} in {steps} of {traces}"
    yield f"replayed   {format_duration(found.replayed_s)}, {found.error:+.2%} with nothing changed"
    exposed = format_duration(found.exposed_s)
    yield f"predicted  {format_duration(found.predicted_s)} on {found.ranks} ranks, of it {exposed} waiting for others"
    both = (found.collectives_recorded_s, found.collectives_predicted_s)
    yield "collectives {} recorded, {} predicted".format(*map(format_duration, both))
    for row in found.collectives[:_MOST_LINES]:
        yield _row(row)
    if len(found.collectives) > _MOST_LINES:
        yield f"  and {len(found.collectives) - _MOST_LINES} more; --json lists all"
    yield from (f"assumed: {text}" for text in found.assumptions)


def _row(row: Repriced) -> str:
    from simnet.units import format_duration

    size = "unknown size" if row.size_bytes is None else f"{row.size_bytes} bytes"
    how = f"{row.algorithm} over {row.predicted_ranks}" if row.algorithm else "as recorded"
    return (
        f"  {row.count:>6} x {row.collective:<15} {size:>18}  {format_duration(row.recorded_s):>10} recorded  "
        f"{format_duration(row.predicted_s):>10} by {how}"
    )
