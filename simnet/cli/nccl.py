"""`simnet nccl`: what NCCL would run at which size."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    *,
    ranks: Annotated[int, typer.Option(help="How many devices take part.")],
    nodes: Annotated[int, typer.Option(help="On how many nodes.")] = 1,
    channels: Annotated[int, typer.Option(help="Rings and trees that run at once.")] = 2,
    intra: Annotated[str, typer.Option(help="Bandwidth of one channel inside a node.")] = "21 GB/s",
    inter: Annotated[str, typer.Option(help="Bandwidth of one channel between nodes.")] = "12 GB/s",
    hardware: Annotated[str, typer.Option(help="What steps inside a node cross: NVLINK or PCI.")] = "NVLINK",
    ampere: Annotated[bool, typer.Option("--ampere", help="All devices are A100.")] = False,
    release: Annotated[str, typer.Option(help="Of NCCL, 2.5 or 2.8.")] = "2.8",
    sizes: Annotated[str, typer.Option(help="begin:end:factor, one size, or a list.")] = "1K:1G:8",
    json: Annotated[bool, typer.Option("--json", help="One JSON object per size.")] = False,
) -> None:
    """Print algorithm, protocol and time of an all-reduce as NCCL's published tuning model has them."""
    from simnet.cli.app import print_json
    from simnet.costs.nccl_tuning import Hardware, Machine, choose
    from simnet.errors import InvalidInput
    from simnet.units import Dimension, format_si, parse, parse_sizes

    if hardware not in list(Hardware):
        raise InvalidInput(f"--hardware must be one of {', '.join(Hardware)}, got {hardware!r}")
    machine = Machine(
        ranks, nodes, channels, parse(intra, Dimension.BANDWIDTH, name="--intra"),
        parse(inter, Dimension.BANDWIDTH, name="--inter"), Hardware(hardware), hardware == "NVLINK", ampere, release,
    )  # fmt: skip
    for size in parse_sizes(sizes):
        choice = choose(machine, size)
        if json:
            row = {"size_bytes": size, "algorithm": str(choice.algorithm), "protocol": str(choice.protocol)}
            print_json([row | {"time_s": choice.time}])
        else:
            print(f"{size:>12d}  {choice.algorithm:<5} {choice.protocol:<7} {format_si(choice.time, 's')}")
