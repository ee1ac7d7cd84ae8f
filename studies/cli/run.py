"""`studies run NAME`: do a study, write its report, say which claims hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    name: Annotated[str, typer.Argument(help="A study; see `studies list`.")],
    quick: Annotated[bool, typer.Option(help="Fewer draws and points.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("reports"),
    json: Annotated[bool, typer.Option("--json", help="Print the rows, one JSON object per line.")] = False,
) -> None:
    """Do one study: print its rows, write Markdown, HTML, rows and pictures; exit 1 where a claim fails."""
    import logging
    import sys

    from simnet.cli.app import print_json
    from simnet.errors import ClaimFailed
    from studies.registry import find
    from studies.report import write
    from studies.terminal import print_result

    # Studies that measure for minutes say on stderr what they have so far.
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    logging.getLogger("studies").setLevel(logging.INFO)
    study = find(name)
    result = study.run(quick=quick)
    paths = write(study, result, out)
    if json:
        print_json(result.rows)
    else:
        print_result(result)
    print(f"report: {next(p for p in paths if p.suffix == '.html')}", file=sys.stderr if json else sys.stdout)
    failed = [claim for claim in result.claims if not claim.holds]
    if failed:
        raise ClaimFailed(f"{len(failed)} of {len(result.claims)} claims of {name} fail; first: {failed[0].text}")
