"""`simnet whatif`: a table of changes, each alone and all together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from simnet.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simnet.whatif import Outcome


def command(
    changes: Annotated[
        list[str], typer.Argument(help='Changes such as "inter-node bandwidth x2" or "gradients fp16".')
    ],
    *,
    scenario: options.Scenario,
    profile: options.Profile = None,
    layer_times: options.LayerTimes = None,
    catalog: options.Catalog = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Predict what changes do to a step of a scenario."""
    from simnet.changes import parse_change
    from simnet.cli.app import print_json
    from simnet.whatif import whatif

    asked = options.asked(scenario, catalog=catalog, profile=profile, layer_times=layer_times)
    rows = whatif(asked, [parse_change(text) for text in changes], catalog=catalog)
    if json:
        print_json(row.row() for row in rows)
        return
    for line in lines(rows):
        print(line)
    for reason in dict.fromkeys(row.reason for row in rows if row.reason):
        print(f"not exact: {reason}")


def lines(rows: Sequence[Outcome]) -> Iterator[str]:
    """Table of outcomes, gains with their 80 % intervals."""
    yield (
        f"{'change':<32} {'step':>11} {'samples/s':>11} {'gain':>8} {'80 % within':>18} {'of a device':>12} "
        f"{'of a node':>10}"
    )
    for row in rows:
        gain = row.gain
        yield (
            f"{row.change:<32} {row.step_s.value * 1e3:8.3f} ms {row.samples_per_s.value:11,.0f} {gain.value:+8.1%} "
            f"{f'{gain.low:+.1%} to {gain.high:+.1%}':>18} {row.efficiency_device.value:12.1%} "
            f"{row.efficiency_node.value:10.1%}"
        )
