"""`studies list`: what can be run."""

from __future__ import annotations

from typing import Annotated

import typer


def command(json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False) -> None:
    """List the studies and what each one answers."""
    from simnet.cli.app import print_json
    from studies.registry import studies

    if json:
        print_json({"name": s.name, "summary": s.summary} for s in studies().values())
        return
    for study in studies().values():
        print(f"{study.name:<16} {study.summary}")
