"""`simnet catalog`: what there is, with sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer


def command(
    kind: Annotated[
        str,
        typer.Argument(help="devices, links, clusters, topologies, costs, algorithms, models, recipes or scenarios."),
    ],
    name: Annotated[str | None, typer.Argument(help="Only this one.")] = None,
    catalog: Annotated[
        str | None, typer.Option(help="Folder with devices/, links/, clusters/, models/ of your own.")
    ] = None,
    file: Annotated[bool, typer.Option("--file", help="Print the file of NAME itself, to copy and change.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line, SI units.")] = False,
) -> None:
    """List what the catalogue holds; every number with its interval and its source."""
    from simnet.catalog.format import lines
    from simnet.catalog.listing import KINDS
    from simnet.cli.app import print_json
    from simnet.errors import InvalidInput

    kinds = {**KINDS, "scenarios": _scenarios}
    if file:
        print(_file(kind, name, catalog), end="")
        return
    if kind not in kinds:
        raise InvalidInput(f"unknown kind {kind!r}; list one of {', '.join(kinds)}")
    rows = list(kinds[kind](catalog))
    chosen = [row for row in rows if name in (None, row["name"])]
    if not chosen:
        raise InvalidInput(f"unknown {kind} {name!r}; choose one of {', '.join(row['name'] for row in rows)}")
    if json:
        print_json(chosen)
        return
    for row in chosen:
        for line in lines(row):
            print(line)


def _file(kind: str, name: str | None, folder: str | None) -> str:
    from simnet.catalog.loader import file_text
    from simnet.errors import InvalidInput

    if name is None:
        raise InvalidInput(f"--file needs a name; write simnet catalog {kind} NAME --file")
    return file_text(kind, name, folder)


def _scenarios(folder: str | None = None) -> Iterator[dict[str, Any]]:
    from simnet.scenario import load_scenario, scenarios

    for name, summary in scenarios(folder).items():
        found = load_scenario(name, folder)
        job = found.job
        yield {
            "name": name, "summary": summary, "cluster": job.cluster, "devices": job.devices, "model": job.model,
            "batch": found.global_batch, "precision": job.precision, "algorithm": found.exchange.algorithm,
            "assumed": list(found.assumed), "source": found.source,
        }  # fmt: skip
