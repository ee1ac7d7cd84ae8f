"""`simnet sweep`: every combination of a grid in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    grid: Annotated[Path, typer.Argument(help="TOML file: settings by name; a list is varied.")],
    out: Annotated[Path, typer.Option(help="CSV file to write; the same call resumes what was interrupted.")],
    processes: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler, instead of processes here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Answer every combination of a grid: collectives, or training runs where it names a scenario."""
    from simnet.cli.app import print_json, progress_bar
    from simnet.errors import InvalidInput
    from simnet.sweeps import load_grid, sweep

    settings = load_grid(grid)
    with progress_bar("sweep", quiet=json) as progress:
        table = sweep(settings, out=out, num_processes=processes, dask_address=dask, progress=progress)
    refused = int(table["refused"].notna().sum()) if "refused" in table else 0
    if refused == len(table):
        raise InvalidInput(f"no point of {grid} can be answered; the first: {table['refused'].iloc[0]}")
    if json:
        present = zip(table.to_dict("records"), table.notna().to_dict("records"), strict=True)
        print_json({name: value for name, value in row.items() if there[name]} for row, there in present)
        return
    left_out = f", {refused} points refused (see column refused)" if refused else ""
    print(f"{len(table) - refused} rows{left_out}: {out}")
