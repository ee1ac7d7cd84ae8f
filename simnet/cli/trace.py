"""`simnet trace`: a collective message by message, as a file that Perfetto opens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simnet.cli import options


def command(
    *,
    ranks: options.Ranks,
    out: Annotated[Path, typer.Option(help="File to write, such as trace.json.")],
    cluster: options.Cluster = "uniform",
    bandwidth: options.Bandwidth = None,
    latency: options.Latency = None,
    algorithm: options.Algorithm = "ring",
    grid: options.Grid = None,
    ranks_per_node: options.RanksPerNode = None,
    size: options.Size = "32M",
    dtype: options.Dtype = "float",
    catalog: options.Catalog = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object that says what was written.")] = False,
) -> None:
    """Simulate a collective and write its timeline; open it at ui.perfetto.dev or chrome://tracing."""
    from simnet.cli.app import print_json
    from simnet.collective_prediction import ITEM_SIZES, build_schedule, counts_of, find_site
    from simnet.costs.alpha_beta import AlphaBeta
    from simnet.critical_path import EXPLAINED_TRANSFERS
    from simnet.errors import Unsupported
    from simnet.exporters.perfetto import write_trace
    from simnet.interpreters.messages import num_transfers
    from simnet.interpreters.program import Job
    from simnet.interpreters.simulate import simulate_jobs
    from simnet.paths import link_name
    from simnet.units import parse_size

    site = find_site(
        ranks=ranks, cluster=cluster, bandwidth=bandwidth, latency=latency, ranks_per_node=ranks_per_node,
        catalog=catalog,
    )  # fmt: skip
    schedule = build_schedule(algorithm, site, grid=grid)
    (count,) = counts_of(parse_size(size, name="--size"), dtype, schedule)
    if num_transfers(schedule) > EXPLAINED_TRANSFERS:
        raise Unsupported(
            f"{schedule.name} on {ranks} ranks sends more than {EXPLAINED_TRANSFERS} messages; trace fewer ranks"
        )
    job = Job(schedule, count, itemsize=ITEM_SIZES[dtype])
    done = simulate_jobs([job], site.paths, AlphaBeta(), timeline=True)
    assert done.timeline is not None
    names = [link_name(site.paths, link) for link in range(len(site.paths.link_bandwidth))]
    write_trace(done.timeline, out, paths=site.paths, link_names=names, name=schedule.name)
    row = {"out": str(out), "messages": done.num_messages, "time_s": done.time}
    if json:
        print_json([row])
    else:
        print(f"wrote {done.num_messages} messages, {done.time * 1e6:.2f} us, to {out}; open it at ui.perfetto.dev")
