"""`simnet whatif`: a table of changes, each alone and all together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from simnet.cli.options import LayerTimes, Profile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simnet.whatif import Outcome


def command(
    changes: Annotated[
        list[str], typer.Argument(help='Changes such as "inter-node bandwidth x2" or "gradients fp16".')
    ],
    *,
    scenario: Annotated[str, typer.Option(help="A name from `simnet catalog scenarios`, or a .toml file.")],
    profile: Profile = None,
    layer_times: LayerTimes = None,
    catalog: Annotated[str | None, typer.Option(help="Folder with catalogue files of your own.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Predict what changes do to a step of a scenario."""
    from simnet.changes import parse_change
    from simnet.cli.app import print_json
    from simnet.profile_prices import with_profile
    from simnet.scenario import load_scenario
    from simnet.whatif import whatif

    asked = load_scenario(scenario, catalog)
    asked = asked if profile is None else with_profile(asked, profile)
    asked = asked if layer_times is None else asked.with_job(layer_times=layer_times)
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
