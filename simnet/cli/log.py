"""`simnet log`: what a log says, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simnet.importers.record import Item


def command(
    logs: Annotated[list[Path], typer.Argument(help="Logs or traces of any format read here.")],
    *,
    node_bandwidth: Annotated[
        str | None, typer.Option(help="Of all NICs of a node, such as '25 GB/s'; rows above any limit are named.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per row, note, fact and skipped line.")] = False,
) -> None:
    """Show the rows of a log as they are read, what was skipped and why, and what else it tells."""
    from simnet.cli.app import print_json
    from simnet.importers.logs import stream_log

    for path in logs:
        if json:
            print_json(_record(item, path) for item in stream_log(path))
            continue
        for line in _lines(stream_log(path)):
            print(line)
        for line in _too_good(path, node_bandwidth):
            print(line)


def _too_good(path: Path, node_bandwidth: str | None) -> Iterator[str]:
    """Rows that no algorithm could reach over such a network."""
    from simnet.importers.logs import stream_log
    from simnet.plausibility import too_good
    from simnet.results import Measurement
    from simnet.units import GB, Dimension, parse

    if node_bandwidth is None:
        return
    limit = parse(node_bandwidth, Dimension.BANDWIDTH, name="--node-bandwidth")
    rows = (item for item in stream_log(path) if isinstance(item, Measurement))
    for row, most in too_good(rows, limit):
        busbw = (row.busbw_bytes_per_s or 0.0) / GB
        yield f"# too good: {row.size_bytes} bytes at {busbw:.2f} GB/s busbw, {most / GB:.2f} GB/s is the limit"


def _fact(value: object) -> str:
    """A fact in words; a table as "key value" after "key value"."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{str(key).replace('_', ' ')} {one}" for key, one in value.items() if key != "run")


def _record(item: Item, path: Path) -> dict[str, object]:
    from dataclasses import asdict

    kind = {"CollectivePrediction": "prediction"}.get(type(item).__name__, type(item).__name__.lower())
    return {"kind": kind, "source": str(path), **asdict(item)}


def _lines(items: Iterator[Item]) -> Iterator[str]:
    """The table, with everything that is no row as a comment after it."""
    from simnet.importers.record import Fact, Note, Skipped
    from simnet.tables import nccl_table

    comments: list[str] = []
    skipped = 0

    def rows() -> Iterator[object]:
        nonlocal skipped
        for item in items:
            match item:
                case Note():
                    comments.append(f"# note: {item.text}")
                case Fact():
                    comments.append(f"# {item.name}: {_fact(item.value)}")
                case Skipped():
                    skipped += 1
                    if skipped <= 10:
                        comments.append(f"# skipped line {item.line}: {item.reason}")
                case _:
                    yield item

    yield from nccl_table(rows())  # type: ignore[arg-type]
    yield from comments
    if skipped:
        yield f"# {skipped} rows or halves skipped"
