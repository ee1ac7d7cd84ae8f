"""`simnet explain`: why a collective takes as long as it does."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from simnet.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simnet.critical_path import Explanation


def command(
    *,
    ranks: options.Ranks,
    cluster: options.Cluster = "uniform",
    bandwidth: options.Bandwidth = None,
    latency: options.Latency = None,
    algorithm: options.Algorithm = "ring",
    grid: options.Grid = None,
    ranks_per_node: options.RanksPerNode = None,
    size: options.Size = "32M",
    dtype: options.Dtype = "float",
    catalog: options.Catalog = None,
    top: Annotated[int, typer.Option(help="Links and hops to show.")] = 8,
    json: Annotated[bool, typer.Option("--json", help="One object per term, hop and link.")] = False,
) -> None:
    """Follow the chain of messages that makes the time; name its links, its ranks and its terms."""
    from simnet.cli.app import print_json
    from simnet.collective_prediction import ITEM_SIZES, build_schedule, counts_of, find_site
    from simnet.critical_path import explain_collective
    from simnet.errors import InvalidInput
    from simnet.units import parse_size

    if top < 1:
        raise InvalidInput(f"--top must be 1 or more links and hops, got {top}")
    site = find_site(
        ranks=ranks, cluster=cluster, bandwidth=bandwidth, latency=latency, ranks_per_node=ranks_per_node,
        catalog=catalog,
    )  # fmt: skip
    schedule = build_schedule(algorithm, site, grid=grid)
    (count,) = counts_of(parse_size(size, name="--size"), dtype, schedule)
    found = explain_collective(schedule, count, site.paths, itemsize=ITEM_SIZES[dtype])
    if json:
        print_json(_rows(found))
        return
    print(f"{schedule.name}, {ranks} ranks of {site.name}, {count * ITEM_SIZES[dtype]} bytes")
    for line in _text(found, top):
        print(line)


def _rows(found: Explanation) -> Iterator[dict[str, object]]:
    from dataclasses import asdict

    yield {"kind": "total", "time_s": found.time_s, **{f"{name}_s": time for name, time in found.terms_s.items()}}
    yield from ({"kind": "hop", **asdict(hop)} for hop in found.hops)
    yield from ({"kind": "link", **asdict(link)} for link in found.links)


def _text(found: Explanation, top: int) -> Iterator[str]:
    from simnet.units import format_duration, format_si

    yield f"time {format_duration(found.time_s)}, of which"
    for name, time in sorted(found.terms_s.items(), key=lambda term: -term[1]):
        yield f"  {name:<10} {format_duration(time):>12}  {time / found.time_s if found.time_s else 0:6.1%}"
    if not found.hops:
        yield "no message is sent: there is nothing to carry, or nobody to carry it to"
        return
    yield f"critical path: {len(found.hops)} messages; ranks {_chain(found, top)}"
    critical = sorted((link for link in found.links if link.critical_s), key=lambda link: -link.critical_s)
    yield "links that hold it up (time of the critical path on them)"
    for link in critical[:top]:
        yield f"  {format_duration(link.critical_s):>12}  {link.link}  {format_si(link.bandwidth_bytes_per_s, 'B/s')}"
    yield "busiest links (share of what they could carry in the whole time)"
    for link in found.links[:top]:
        yield f"  {link.utilisation:6.1%}  {link.link}  {format_si(link.carried_bytes, 'B')}, {link.messages} messages"


def _chain(found: Explanation, top: int) -> str:
    runs = groupby((hop.src, hop.dst) for hop in found.hops)
    counted = ((src, dst, sum(1 for _ in run)) for (src, dst), run in runs)
    hops = [f"{src}->{dst}" + (f" {times} times" if times > 1 else "") for src, dst, times in counted]
    return ", ".join(hops if len(hops) <= 2 * top else [*hops[:top], "...", *hops[-top:]])
