"""`simnet extrapolate`: from logs of few ranks to more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from simnet.nccl_fit import Site


def command(
    logs: Annotated[list[Path], typer.Argument(help="Logs of all-reduces at one or more world sizes.")],
    *,
    ranks: Annotated[int, typer.Option(help="World size to predict.")],
    nodes: Annotated[int | None, typer.Option(help="Over how many nodes; for NCCL.")] = None,
    nics: Annotated[
        int | None, typer.Option(help="Of a node; with --nic-bandwidth and --inside, NCCL's model.")
    ] = None,
    nic_bandwidth: Annotated[str | None, typer.Option(help="Of one NIC as NCCL counts it, such as '12 GB/s'.")] = None,
    inside: Annotated[str | None, typer.Option(help="All rings of a node together, such as '126 GB/s'.")] = None,
    network_latency: Annotated[str | None, typer.Option(help="Measured between two devices, such as '2.5 us'.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per size.")] = False,
) -> None:
    """Predict all-reduces at a world size that was not measured; the interval is what such predictions usually miss."""
    from simnet.cli.app import print_json
    from simnet.extrapolation import extrapolate
    from simnet.importers.logs import read_log
    from simnet.tables import nccl_table

    rows = [row for path in logs for row in read_log(path).measurements]
    site = _site(nics, nic_bandwidth, inside, network_latency)
    found = extrapolate(rows, ranks=ranks, nodes=nodes, site=site)
    if json:
        print_json(found)
        return
    for line in nccl_table(found):
        print(line)


def _site(nics: int | None, nic_bandwidth: str | None, inside: str | None, latency: str | None) -> Site | None:
    """Describe the machine to NCCL's model; None where nothing of it is given."""
    from simnet.errors import InvalidInput
    from simnet.nccl_fit import Site
    from simnet.units import Dimension, parse

    if nics is None and nic_bandwidth is None and inside is None:
        return None
    if nics is None or nics < 1 or nic_bandwidth is None or inside is None:
        raise InvalidInput(
            f"NCCL's model needs --nics, --nic-bandwidth and --inside together, got {nics}, {nic_bandwidth}, {inside}"
        )
    channels = 12
    return Site(
        channels=channels, channel_bandwidth=parse(inside, Dimension.BANDWIDTH, name="--inside") / channels, nics=nics,
        nic_bandwidth=parse(nic_bandwidth, Dimension.BANDWIDTH, name="--nic-bandwidth"),
        network_latency=parse(latency, Dimension.TIME, name="--network-latency") if latency else None,
    )  # fmt: skip
