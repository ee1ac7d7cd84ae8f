"""`simnet verify`: prove schedules, and other people's programs, correct."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer


def command(  # noqa: PLR0917
    algorithm: Annotated[str, typer.Option(help="Name of an algorithm, or all.")] = "all",
    max_ranks: Annotated[int, typer.Option(help="Check every world size from 1 to this.")] = 32,
    ranks: Annotated[int | None, typer.Option(help="Check this world size alone; may be large.")] = None,
    order: Annotated[bool, typer.Option(help="With --ranks: print in which order each chunk is summed.")] = False,
    msccl: Annotated[
        list[Path] | None, typer.Option(help="Check this MSCCL XML program instead; may be repeated.")
    ] = None,
    slots: Annotated[int, typer.Option(help="Messages a connection of a program buffers; 0 is rendezvous.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Check every schedule: each contribution exactly once, no garbage read, no clashing writes, traffic as stated."""
    from simnet.cli.app import print_json

    if msccl:
        rows = _programs(msccl, slots)
    elif order:
        rows = _orders(algorithm, ranks)
    else:
        rows = _schedules(algorithm, max_ranks, ranks)
    if json:
        print_json(rows)
        return
    for row in rows:
        print(_text(row))


def _schedules(algorithm: str, max_ranks: int, ranks: int | None) -> Iterable[dict[str, Any]]:
    from simnet.errors import InvalidInput
    from simnet.verification import verify

    most = max_ranks if ranks is None else ranks
    if most < 1:
        raise InvalidInput(f"--ranks and --max-ranks must be 1 or more, got {most}")
    return verify(algorithm, max_ranks=most, min_ranks=ranks or 1)


def _orders(algorithm: str, ranks: int | None) -> Iterable[dict[str, Any]]:
    from simnet.algorithms.registry import build
    from simnet.errors import InvalidInput
    from simnet.rounding import depth, format_order, summation_order

    if ranks is None or algorithm == "all":
        raise InvalidInput("--order needs one --algorithm and --ranks")
    for chunk, order in enumerate(summation_order(build(algorithm, ranks))):
        yield {"algorithm": algorithm, "chunk": chunk, "depth": depth(order), "order": format_order(order)}


def _programs(files: list[Path], slots: int) -> Iterable[dict[str, Any]]:
    from simnet.errors import InvalidInput
    from simnet.importers.msccl import read_msccl
    from simnet.verification import verify_program

    if slots < 0:
        raise InvalidInput(f"--slots must be 0 or more messages, got {slots}")
    for file in files:
        yield {"file": str(file)} | verify_program(read_msccl(file), slots=slots)


def _text(row: dict[str, Any]) -> str:
    if "order" in row:
        return f"chunk {row['chunk']}, depth {row['depth']}: {row['order']}"
    if "program" in row:
        what = f"{row['program']}: {row['collective']}, {row['ranks']} ranks, {row['messages']} messages, correct"
        return f"{what}; {row['reason'] or str(row['steps']) + ' steps as a schedule'}"
    return f"{row['algorithm']:<34} {row['collective']:<15} {row['schedules']:>6} schedules correct"
