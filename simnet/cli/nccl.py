"""`simnet nccl`: what NCCL would run at which size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from simnet.costs.nccl_tuning import Choice
    from simnet.results import CollectivePrediction


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
    from dataclasses import asdict

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
    choices = [(size, choose(machine, size)) for size in parse_sizes(sizes)]
    if json:
        print_json(asdict(_row(ranks, size, one)) | {"protocol": str(one.protocol)} for size, one in choices)
        return
    print("    size (B)  algorithm  protocol  time")
    for size, one in choices:
        print(f"{size:>12d}  {one.algorithm:<9}  {one.protocol:<8}  {format_si(one.time, 's')}")


def _row(ranks: int, size: int, choice: Choice) -> CollectivePrediction:
    from simnet.collective import Kind
    from simnet.metrics import algbw, busbw
    from simnet.results import CollectivePrediction

    return CollectivePrediction(
        collective="all_reduce", algorithm=str(choice.algorithm), cluster="", ranks=ranks, size_bytes=size,
        count=size // 4, dtype="float", time_s=choice.time, algbw_bytes_per_s=algbw(size, choice.time),
        busbw_bytes_per_s=busbw(Kind.ALL_REDUCE, ranks, size, choice.time), engine="nccl tuning model", exact=False,
        profile="", reason="a closed form of the whole all-reduce",
    )  # fmt: skip
