"""`studies report`: do every study and write one index of their reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    quick: Annotated[bool, typer.Option(help="Fewer draws and points.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the reports.")] = Path("reports"),
) -> None:
    """Do all studies and write an index page; exit 1 where a claim fails."""
    from simnet.errors import ClaimFailed
    from studies.registry import studies
    from studies.report import write, write_index

    failed: dict[str, int] = {}
    for name, study in studies().items():
        result = study.run(quick=quick)
        write(study, result, out)
        failed[name] = sum(not claim.holds for claim in result.claims)
        print(f"{name:<16} {len(result.claims)} claims, {failed[name]} failed", flush=True)
    print(f"report: {write_index(failed, out)}")
    if any(failed.values()):
        raise ClaimFailed(f"claims fail in {', '.join(name for name, count in failed.items() if count)}")
