"""Options that commands about one collective, or about one scenario, share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simnet.results import Measurement, NcclSite
    from simnet.scenario import Scenario as JobScenario

Ranks = Annotated[int, typer.Option(help="How many devices take part.")]
Cluster = Annotated[str, typer.Option(help="A name from `simnet catalog clusters`, or uniform.")]
Bandwidth = Annotated[str | None, typer.Option(help="Of every port of uniform, such as '12.5 GB/s'.")]
Latency = Annotated[str | None, typer.Option(help="Of every message on uniform, such as '1 us'.")]
Algorithm = Annotated[str, typer.Option(help="A name from `simnet catalog algorithms`.")]
Grid = Annotated[str | None, typer.Option(help="Grid of torus algorithms, such as 4x4.")]
RanksPerNode = Annotated[int | None, typer.Option(help="Devices used of every node; default all.")]
Size = Annotated[str, typer.Option(help="Bytes per rank; K, M, G = 2**10, 20, 30.")]
Dtype = Annotated[str, typer.Option(help="float, double, half, bfloat16, int8, ...")]
Profile = Annotated[
    str | None, typer.Option(help="What `simnet calibrate` wrote, in place of the scenario's cost model.")
]
LayerTimes = Annotated[
    str | None, typer.Option(help="What `realrun probe --model` wrote on such a device, in place of known speeds.")
]
Scenario = Annotated[str, typer.Option(help="A name from `simnet catalog scenarios`, or a .toml file.")]
Devices = Annotated[int | None, typer.Option(help="Use so many devices instead.")]
Accumulation = Annotated[int | None, typer.Option(help="Sum the gradients of so many passes in a step.")]
Base = Annotated[int | None, typer.Option(help="Give the efficiency against so many devices, too.")]
Catalog = Annotated[str | None, typer.Option(help="Folder with catalogue files of your own.")]

Nics = Annotated[int | None, typer.Option(help="NICs of a node; with --nic-bandwidth and --inside, NCCL's model.")]
NicBandwidth = Annotated[str | None, typer.Option(help="Of one NIC as NCCL counts it, such as '12 GB/s'.")]
Inside = Annotated[str | None, typer.Option(help="All rings of a node together, such as '126 GB/s'.")]
NetworkLatency = Annotated[str | None, typer.Option(help="Measured between two devices, such as '2.5 us'.")]
Hardware = Annotated[str, typer.Option(help="What NCCL's steps inside a node cross: NVLINK or PCI.")]
Ampere = Annotated[bool, typer.Option("--ampere", help="All devices are A100, which NCCL's model caps elsewhere.")]
LogRanksPerNode = Annotated[
    int | None, typer.Option(help="Ranks of every node, where a log does not tell its nodes.")
]  # fmt: skip

LogRanks = Annotated[int | None, typer.Option(help="Ranks that took part, where a log does not tell (OSU).")]

_CHANNELS = 12


def asked(
    name: str, *, catalog: str | None, profile: str | None, layer_times: str | None, devices: int | None = None,
    accumulation: int | None = None,
) -> JobScenario:  # fmt: skip
    """Return the scenario of that name with what the command line says in its place."""
    from simnet.prediction import with_devices
    from simnet.profile_prices import with_profile
    from simnet.scenario import load_scenario

    found = load_scenario(name, catalog)
    found = found if profile is None else with_profile(found, profile)
    found = found if layer_times is None else found.with_job(layer_times=layer_times)
    found = found if devices in (None, found.job.devices) else with_devices(found, devices or 0)
    return found if accumulation is None else found.with_job(accumulation=accumulation)


def assumptions(scenario: JobScenario) -> Iterator[str]:
    """What the source of a scenario does not say, a line each."""
    yield from (f"assumed: {text}" for text in scenario.assumed)


def nccl_site(
    *, nics: int | None, nic_bandwidth: str | None, inside: str | None, network_latency: str | None,
    hardware: str = "NVLINK", ampere: bool = False,
) -> NcclSite | None:  # fmt: skip
    """Describe the machine to NCCL's model; None where nothing of it is given."""
    from simnet.errors import InvalidInput
    from simnet.results import NcclSite
    from simnet.units import Dimension, parse

    if nics is None and nic_bandwidth is None and inside is None:
        return None
    if nics is None or nics < 1 or nic_bandwidth is None or inside is None:
        raise InvalidInput(
            f"NCCL's model needs --nics, --nic-bandwidth and --inside together, got {nics}, {nic_bandwidth}, {inside}"
        )
    if hardware not in ("NVLINK", "PCI"):
        raise InvalidInput(f"--hardware must be one of NVLINK, PCI, got {hardware!r}")
    return NcclSite(
        channels=_CHANNELS, channel_bandwidth=parse(inside, Dimension.BANDWIDTH, name="--inside") / _CHANNELS,
        nics=nics, nic_bandwidth=parse(nic_bandwidth, Dimension.BANDWIDTH, name="--nic-bandwidth"), intra=hardware,
        ampere=ampere,
        network_latency=parse(network_latency, Dimension.TIME, name="--network-latency") if network_latency else None,
    )  # fmt: skip


def with_ranks(rows: Iterable[Measurement], ranks: int | None) -> list[Measurement]:
    """Rows of collectives with the ranks their log does not tell; sizes per rank become totals."""
    from simnet.collective import Kind
    from simnet.errors import InvalidInput

    if ranks is not None and ranks < 2:
        raise InvalidInput(f"--log-ranks must be 2 or more, got {ranks}")
    return [
        replace(row, ranks=ranks, size_bytes=row.size_bytes * (ranks if row.environment.get("size_per_rank") else 1))
        if ranks is not None and row.ranks is None and row.collective in set(Kind)
        else row
        for row in rows
    ]


def with_nodes(rows: Iterable[Measurement], ranks_per_node: int | None) -> list[Measurement]:
    """Rows with the nodes their log does not tell, where all ranks fill whole nodes."""
    from simnet.errors import InvalidInput

    if ranks_per_node is not None and ranks_per_node < 1:
        raise InvalidInput(f"--ranks-per-node must be 1 or more, got {ranks_per_node}")
    if ranks_per_node is None:
        return list(rows)
    return [
        replace(row, nodes=max(1, row.ranks // ranks_per_node))
        if row.nodes is None and row.ranks and (row.ranks <= ranks_per_node or row.ranks % ranks_per_node == 0)
        else row
        for row in rows
    ]
