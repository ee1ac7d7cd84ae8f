"""`simnet whatif`: a table of changes, each alone and all together."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    changes: Annotated[
        list[str], typer.Argument(help='Changes such as "inter-node bandwidth x2" or "gradients fp16".')
    ],
    scenario: Annotated[str, typer.Option(help="A name from `simnet catalog scenarios`, or a .toml file.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Predict what changes do to a step of a scenario."""
    from simnet.cli.app import print_json
    from simnet.scenario import load_scenario
    from simnet.whatif import parse_change, whatif

    rows = whatif(load_scenario(scenario), [parse_change(text) for text in changes])
    if json:
        print_json(rows)
        return
    print(f"{'change':<32} {'step':>11} {'samples/s':>12} {'gain':>8} {'of a device':>12} {'of a node':>10}")
    for row in rows:
        print(
            f"{row.change:<32} {row.step_s * 1e3:8.3f} ms {row.samples_per_s:12,.0f} {row.gain:+8.1%} "
            f"{row.efficiency_device:12.1%} {row.efficiency_node:10.1%}"
        )
    if any(row.reason for row in rows):
        print("not exact where ranks share links out of step: the static share is used")
