"""`simnet extrapolate`: from logs of few ranks to more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simnet.cli.options import Ampere, Hardware, Inside, LogRanksPerNode, NetworkLatency, NicBandwidth, Nics


def command(
    logs: Annotated[list[Path], typer.Argument(help="Logs of all-reduces at one or more world sizes.")],
    *,
    ranks: Annotated[int, typer.Option(help="World size to predict.")],
    nodes: Annotated[int | None, typer.Option(help="Over how many nodes; for NCCL.")] = None,
    nics: Nics = None,
    nic_bandwidth: NicBandwidth = None,
    inside: Inside = None,
    network_latency: NetworkLatency = None,
    hardware: Hardware = "NVLINK",
    ampere: Ampere = False,
    ranks_per_node: LogRanksPerNode = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per size.")] = False,
) -> None:
    """Predict all-reduces at a world size that was not measured; the interval is what such predictions usually miss."""
    from simnet.cli.app import print_json
    from simnet.cli.options import nccl_site, with_nodes
    from simnet.extrapolation import extrapolate
    from simnet.importers.logs import read_log
    from simnet.tables import nccl_table

    rows = with_nodes((row for path in logs for row in read_log(path).measurements), ranks_per_node)
    site = nccl_site(
        nics=nics, nic_bandwidth=nic_bandwidth, inside=inside, network_latency=network_latency, hardware=hardware,
        ampere=ampere,
    )  # fmt: skip
    found = extrapolate(rows, ranks=ranks, nodes=nodes, site=site)
    if json:
        print_json(found)
        return
    for line in nccl_table(found):
        print(line)
