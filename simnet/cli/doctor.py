"""`simnet doctor`: what works here, and what is missing for the rest."""

from __future__ import annotations

from typing import Annotated

import typer


def command(json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False) -> None:
    """Say which parts work on this machine; exit 1 where something that everything needs is missing."""
    from simnet.cli.app import print_json
    from simnet.doctor import examine

    findings = list(examine())
    if json:
        print_json(findings)
    else:
        for finding in findings:
            mark, use = ("ok", "") if finding.ok else ("missing", f"  needed for {finding.needed_for}")
            print(f"{finding.subject:<16} {mark:<8} {finding.found}{use}")
    if any(not finding.ok and finding.needed_for.startswith("everything") for finding in findings):
        raise typer.Exit(1)
