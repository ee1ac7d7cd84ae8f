"""`simnet verify`: prove schedules correct."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    algorithm: Annotated[str, typer.Option(help="Name of an algorithm, or all.")] = "all",
    max_ranks: Annotated[int, typer.Option(help="Check every world size from 1 to this.")] = 32,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Check every schedule: each contribution exactly once, no garbage read, no clashing writes."""
    from simnet.cli.app import print_json
    from simnet.errors import InvalidInput
    from simnet.verification import verify

    if max_ranks < 1:
        raise InvalidInput(f"--max-ranks must be 1 or more, got {max_ranks}")
    rows = verify(algorithm, max_ranks=max_ranks)
    if json:
        print_json(rows)
        return
    for row in rows:
        print(f"{row['algorithm']:<28} {row['collective']:<15} {row['schedules']:>6} schedules correct")
