"""`simnet show`: what a machine is, and a picture of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    cluster: Annotated[str, typer.Argument(help="A cluster of the catalogue, or a .toml file.")],
    nodes: Annotated[int | None, typer.Option(help="Only the first so many nodes.")] = None,
    out: Annotated[Path | None, typer.Option(help="Draw it into this file (.png, .svg, .pdf).")] = None,
    catalog: Annotated[str | None, typer.Option(help="Folder with devices/, links/, clusters/ of your own.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, SI units.")] = False,
) -> None:
    """Print a machine in a screenful: devices, links, bisection, oversubscription, price; draw it with --out."""
    import sys

    from simnet.catalog import load_cluster
    from simnet.catalog.picture import draw
    from simnet.catalog.summary import lines, summarise
    from simnet.cli.app import print_json

    found = load_cluster(cluster, catalog)
    summary = summarise(found, nodes)
    if json:
        print_json([summary])
    else:
        for line in lines(found, summary):
            print(line)
    if out is not None:
        draw(found, out)
        print(f"drew {out}", file=sys.stderr)
