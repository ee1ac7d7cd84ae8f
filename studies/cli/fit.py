"""`studies fit`: refit the compute profile from the published single-device rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    out: Annotated[Path, typer.Option(help="File to write the profile to.")] = Path("compute.toml"),
) -> None:
    """Fit the compute profile on the calibrate rows and write it as TOML; the catalogue's own file is made so."""
    import tomli_w

    from studies.compute import fit
    from studies.facts import facts

    out.write_text(tomli_w.dumps(fit(facts())), encoding="utf-8")
    print(f"profile: {out}")
