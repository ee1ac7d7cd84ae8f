"""nccom-test, the cousin of nccl-tests for Trainium: one half per row, and GiB/s printed as GB/s.

Source: tables printed by nccom-test (columns size, count, type, time:avg, algbw, busbw).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from simnet.importers.nccl_infer import Row, infer
from simnet.importers.nccl_rows import Half, Start, agrees, half, parts, row_start
from simnet.importers.record import Item, Line, Note, Skipped
from simnet.metrics import algbw
from simnet.results import Measurement
from simnet.units import GB, GIB

FORMAT = "nccom-test"
MARKER = r"size\(B\)\s+count\(elems\)\s+type\s+time"
_NAME = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|broadcast|alltoall|all_to_all)(?:_perf)?\b")
_BINARY = GB / GIB


def read(lines: Iterable[Line], path: str) -> Iterator[Item]:
    """Rows whose algbw is size/time in GiB/s or GB/s; ranks only where the factor tells them."""
    rows: list[Row] = []
    named, started = None, 0
    for line in lines:
        if match := _NAME.search(line.text):
            named = "all_to_all" if match[1] == "alltoall" else match[1]
        started = line.number if re.search(MARKER, line.text) else started
        if started and (found := row_start(line.text)) is not None:
            yield from _row(line, *found, rows)
    if not rows:
        yield Note(f"started, no result (header at line {started})")
        return
    binary = sum(_is_binary(row) for row in rows) > len(rows) / 2
    if binary:
        yield Note("bandwidths are GiB/s printed as GB/s; size/time is used")
    verdict = infer([_scaled(row) if binary else row for row in rows], named=named, listed_ranks=None)
    yield from (Note(text) for text in verdict.notes)
    for row in rows:
        yield Measurement(
            collective=verdict.collective, size_bytes=row.start.size, time_s=row.half.time, ranks=verdict.ranks,
            count=row.start.count, dtype=row.start.dtype, algbw_bytes_per_s=algbw(row.start.size, row.half.time),
            source=path,
        )  # fmt: skip


def _row(line: Line, start: Start, tokens: list[str], rows: list[Row]) -> Iterator[Skipped]:
    figures_ = half([*tokens[:3], "N/A"]) if len(tokens) == 3 and line.ended else None
    if figures_ is None:
        yield Skipped(line.number, "row is cut")
    elif parts(start) is None:
        yield Skipped(line.number, f"count {start.count} of {start.dtype} is not size {start.size}")
    elif not agrees(figures_.algbw, start.size, figures_) and not agrees(figures_.algbw, start.size, figures_, _BINARY):
        yield Skipped(line.number, f"algbw {figures_.algbw / GB:.2f} GB/s is not size/time")
    else:
        rows.append(Row(line.number, start, figures_, None, None))


def _is_binary(row: Row) -> bool:
    """Whether algbw fits GiB/s better than GB/s; rows of no bandwidth fit both."""
    return agrees(row.half.algbw, row.start.size, row.half, _BINARY)


def _scaled(row: Row) -> Row:
    busbw = None if row.half.busbw is None else row.half.busbw / _BINARY
    figures_ = Half(row.half.time, row.half.step, row.half.algbw / _BINARY, busbw, row.half.wrong)
    return Row(row.line, row.start, figures_, row.root, row.in_place)
