"""`simnet compare`: predicted beside measured, one log beside another, slow nodes by pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnet.cli.options import LogRanks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simnet.comparison import ComparedRow, Comparison
    from simnet.importers.record import Log
    from simnet.results import Profile


def command(
    expected: Annotated[Path, typer.Argument(help="Predicted rows (--json output), or an earlier log.")],
    measured: Annotated[Path, typer.Argument(help="A log of any format read here.")],
    *,
    profile: Annotated[list[Path] | None, typer.Option(help="Profile the predictions were made with.")] = None,
    log_ranks: LogRanks = None,
    limit: Annotated[
        float | None, typer.Option(help="Exit with 1 where a row got slower by more than this fraction, e.g. 0.1.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per row, then one of error figures.")] = False,
) -> None:
    """Print both times, and the error on rows nothing was fitted to; two logs are compared for regressions."""
    from simnet.cli.options import with_ranks
    from simnet.comparison import compare, compare_logs
    from simnet.errors import InvalidInput
    from simnet.importers.logs import read_log

    if limit is not None and not 0 <= limit < float("inf"):
        raise InvalidInput(f"--limit must be 0 or more and finite, got {limit:g}; write 0.1 for a tenth slower")
    first, second = read_log(expected), read_log(measured)
    if first.predictions:
        if limit is not None:
            raise InvalidInput(f"--limit compares two logs and {expected} holds predictions; leave it out")
        measured_rows = with_ranks(second.measurements, log_ranks)
        result = compare(first.predictions, measured_rows, profiles=_profiles(first, profile or []))
        _print(result, json, predicted=True)
        return
    result = compare_logs(*(with_ranks(log.measurements, log_ranks) for log in (first, second)))
    _print(result, json, predicted=False)
    slower = [row for row in result.rows if limit is not None and -row.error > limit / (1 + limit)]
    if slower:
        raise typer.Exit(1)


def _profiles(log: Log, paths: list[Path]) -> dict[str, Profile]:
    """Profiles by every name a prediction may call them."""
    from simnet.profiles import named_profiles

    named = {Path(row.profile) for row in log.predictions if row.profile}
    return named_profiles((*paths, *(path for path in named if path.is_file())))


def _print(result: Comparison, json: bool, *, predicted: bool) -> None:
    from dataclasses import asdict

    from simnet.cli.app import print_json

    if json:
        print_json({"kind": "row", **asdict(row), "error": row.error} for row in result.rows)
    else:
        for line in _table(result, predicted=predicted):
            print(line)
    if not predicted:
        return
    figures = result.accuracy()
    if json:
        print_json([{"kind": "accuracy", **asdict(figures)}])
        return
    for line in _figures(result):
        print(line)


def _table(result: Comparison, *, predicted: bool) -> Iterator[str]:
    """The nccl-tests layout with both times and the error; rows a profile was fitted to come last, apart."""
    titles = ("predicted", "measured", "error") if predicted else ("before", "after", "change")
    for heading, rows in (("", result.holdout), ("rows the profile was fitted to, not counted", result.calibrated)):
        if rows and heading:
            yield f"# {heading}"
        block = None
        for row in rows:
            if (title := _title(row)) != block:
                block = title
                yield from _header(title, titles)
            yield _line(row, predicted)
    if result.unmatched_expected or result.unmatched_measured:
        yield f"# without partner: {result.unmatched_expected} {titles[0]}, {result.unmatched_measured} {titles[1]}"


def _title(row: ComparedRow) -> str:
    ranks = f", ranks {row.ranks}" if row.ranks else ""
    return f"collective {row.collective}" + (f", algorithm {row.algorithm}" if row.algorithm else "") + ranks


def _header(title: str, titles: tuple[str, str, str]) -> Iterator[str]:
    yield f"# {title}"
    yield f"#{titles[0]:>83}{titles[1]:>27}"
    half = "     time   algbw   busbw  "
    yield f"#       size         count      type   redop    root  {half}{half}{titles[2]:>8}"
    unit = "     (us)  (GB/s)  (GB/s)  "
    yield f"#        (B)    (elements)                            {unit}{unit}"


def _line(row: ComparedRow, predicted: bool) -> str:
    from simnet.tables import row_start

    figure = row.error if predicted else row.measured_s / row.expected_s - 1
    mark = "  outside its interval" if row.inside is False else ""
    halves = _half(row, row.expected_s) + _half(row, row.measured_s)
    return row_start(row.collective, row.size_bytes, row.count, row.dtype) + f"{halves}  {figure:>+8.1%}{mark}"


def _half(row: ComparedRow, time: float) -> str:
    from simnet.collective import Kind
    from simnet.metrics import bus_factor
    from simnet.tables import bandwidth_text, time_text

    rate = row.size_bytes / time
    known = row.ranks and row.collective in set(Kind)
    busbw = rate * bus_factor(Kind(row.collective), row.ranks) if known and row.ranks else None
    return f"  {time_text(time)} {bandwidth_text(rate)} {bandwidth_text(busbw)}"


def _figures(result: Comparison) -> Iterator[str]:
    figures = result.accuracy()
    yield f"# on {figures.rows} rows nothing was fitted to; {len(result.calibrated)} fitted rows are not counted"
    yield f"# MAPE {figures.mape:.1%}, geometric mean {figures.geometric_mean:.1%}, bias {figures.bias:+.1%}"
    yield f"# 95th percentile {figures.p95:.1%}, largest {figures.max:.1%}"
    if figures.inside is not None:
        yield f"# the 80 % interval holds {figures.inside:.0%} of them"
