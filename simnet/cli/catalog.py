"""`simnet catalog`: what there is, with sources."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    kind: Annotated[
        str, typer.Argument(help="devices, links, clusters, topologies, costs, algorithms, models or recipes.")
    ],
    name: Annotated[str | None, typer.Argument(help="Only this one.")] = None,
    catalog: Annotated[
        str | None, typer.Option(help="Folder with devices/, links/, clusters/, models/ of your own.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line, SI units.")] = False,
) -> None:
    """List what the catalogue holds; every number with its interval and its source."""
    from simnet.catalog.format import lines
    from simnet.catalog.listing import KINDS
    from simnet.cli.app import print_json
    from simnet.errors import InvalidInput

    if kind not in KINDS:
        raise InvalidInput(f"unknown kind {kind!r}; list one of {', '.join(KINDS)}")
    rows = list(KINDS[kind](catalog))
    chosen = [row for row in rows if name in (None, row["name"])]
    if not chosen:
        raise InvalidInput(f"unknown {kind} {name!r}; choose one of {', '.join(row['name'] for row in rows)}")
    if json:
        print_json(chosen)
        return
    for row in chosen:
        for line in lines(row):
            print(line)
