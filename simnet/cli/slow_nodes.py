"""`simnet slow-nodes`: which node of many is slow, from measurements of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    logs: Annotated[list[Path], typer.Argument(help="Logs of two nodes each, or rows with src and dst.")],
    *,
    threshold: Annotated[float, typer.Option(help="A pair below this part of the fastest is slow.")] = 0.8,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Name slow nodes, the pairs that leave it open, and the pairs to measure next."""
    from simnet.cli.app import print_json
    from simnet.comparison import pair_bandwidths, slow_nodes
    from simnet.importers.logs import read_log
    from simnet.units import format_si

    rows = [row for path in logs for row in read_log(path).measurements]
    found = slow_nodes(pair_bandwidths(rows), threshold=threshold)
    if json:
        print_json([found])
        return
    print(f"slow: {', '.join(found.slow) or 'none'}")
    for pair in found.undecided:
        proposed = [f"{a}-{b}" for a, b in found.proposed_pairs if a in pair]
        print(f"one of {' and '.join(pair)} is slow; measure {' and '.join(proposed)}")
    print(f"an all-reduce over all of them runs at about {format_si(found.slowest_pair_bytes_per_s, 'B/s')} of busbw")
