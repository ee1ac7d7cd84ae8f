"""The nccl-tests table, for predicted and measured rows alike, printed row by row as they come.

A block opens whenever the collective, the algorithm, the ranks or the machine change; a comment line
names them, so that the table can be read back without guessing. Times are in us, bandwidths in GB/s
(1e9 bytes/s), as in nccl-tests.

Source: nccl-tests, doc/PERFORMANCE.md (columns, algbw, busbw).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from simnet.results import CollectivePrediction, Measurement
from simnet.units import GB, US, Bytes, BytesPerSecond, Seconds

Row: TypeAlias = CollectivePrediction | Measurement

_REDUCING = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED = ("broadcast", "reduce")


def nccl_table(rows: Iterable[Row]) -> Iterator[str]:
    """Lines of the table: a header per block, one line per row, and a footer with the average busbw.

    Predicted rows show N/A for #wrong and, where they have one, their 80 % interval in two more columns. An
    out-of-place row and the in-place row that follows it share a line.
    """
    block, total = None, _Total()
    for row, partner in _paired(rows):
        if (_title(row), partner is None) != block:
            block = _title(row), partner is None
            yield from _header(row, partner)
        if isinstance(row, CollectivePrediction) and not row.exact and row.reason:
            yield f"# not exact: {row.reason}"
        yield _line(row, partner)
        total.add(row)
        if partner is not None:
            total.add(partner)
    yield from total.footer()


def _paired(rows: Iterable[Row]) -> Iterator[tuple[Row, Measurement | None]]:
    """Rows with the in-place row of the same condition, where it follows; every other row at once."""
    held: Measurement | None = None
    for row in rows:
        if held is not None:
            if isinstance(row, Measurement) and row.in_place and _title(row) == _title(held) and _same(row, held):
                yield held, row
                held = None
                continue
            yield held, None
            held = None
        if isinstance(row, Measurement) and row.in_place is False:
            held = row
        else:
            yield row, None
    if held is not None:
        yield held, None


def _same(row: Measurement, other: Measurement) -> bool:
    return (row.size_bytes, row.count, row.dtype) == (other.size_bytes, other.count, other.dtype)


def time_text(time: Seconds, *, width: int = 9) -> str:
    """Us with two digits after the point, fewer where the column would overflow."""
    for digits in (2, 1, 0):
        text = f"{time / US:.{digits}f}"
        if len(text) < width:
            break
    return text.rjust(width)


def bandwidth_text(bandwidth: BytesPerSecond | None, *, width: int = 7) -> str:
    """GB/s with two digits after the point."""
    return ("N/A" if bandwidth is None else f"{bandwidth / GB:.2f}").rjust(width)


def row_start(collective: str, size: Bytes, count: int | None, dtype: str | None) -> str:
    """Size, count, type, redop and root columns, as wide as nccl-tests prints them."""
    redop = "sum" if collective in _REDUCING else "none"
    root = 0 if collective in _ROOTED else -1
    return f"{size:>12d}  {_or_na(count):>12}  {_or_na(dtype):>8}  {redop:>6}  {root:>6d}"


@dataclass(slots=True)
class _Total:
    """What the footer sums up."""

    busbw: float = 0.0
    num_busbw: int = 0
    num_wrong: int = 0
    checked: bool = field(default=False)

    def add(self, row: Row) -> None:
        if row.busbw_bytes_per_s is not None:
            self.busbw += row.busbw_bytes_per_s
            self.num_busbw += 1
        if isinstance(row, Measurement) and row.num_wrong is not None:
            self.checked = True
            self.num_wrong += row.num_wrong

    def footer(self) -> Iterator[str]:
        if self.checked:
            yield f"# Out of bounds values : {self.num_wrong} {'FAILED' if self.num_wrong else 'OK'}"
        if self.num_busbw:
            yield f"# Avg bus bandwidth    : {self.busbw / self.num_busbw / GB:g}"


def _or_na(value: object) -> str:
    return "N/A" if value is None else str(value)


def _title(row: Row) -> str:
    parts = [f"collective {row.collective}"]
    parts += [f"algorithm {row.algorithm}"] if row.algorithm else []
    parts += [f"ranks {row.ranks}"] if row.ranks else []
    parts += [f"cluster {row.cluster}"] if row.cluster else []
    if isinstance(row, CollectivePrediction):
        parts += [f"engine {row.engine}"]
        parts += [f"profile {row.profile}"] if row.profile else []
    return ", ".join(parts)


_NAMES, _UNITS = "      time   algbw   busbw  #wrong", "      (us)  (GB/s)  (GB/s)        "
_SPAN_NAMES, _SPAN_UNITS = "       low      high", "      (us)      (us)"


def _header(row: Row, partner: Measurement | None) -> Iterator[str]:
    names, units, halves = _NAMES, _UNITS, f"{_half(row):>34}"
    if _has_interval(row):
        names, units = names + _SPAN_NAMES, units + _SPAN_UNITS
    if partner is not None:
        names, units, halves = 2 * names, 2 * units, halves + f"{_half(partner):>34}"
    yield f"# {_title(row)}"
    yield f"# {'':53s}{halves}".rstrip()
    yield f"#       size         count      type   redop    root {names}"
    yield f"#        (B)    (elements)                           {units}".rstrip()


def _half(row: Row) -> str:
    if isinstance(row, CollectivePrediction):
        return "predicted"
    return {True: "in-place", False: "out-of-place", None: "measured"}[row.in_place]


def _has_interval(row: Row) -> bool:
    return isinstance(row, CollectivePrediction) and row.low_s is not None and row.high_s is not None


def _line(row: Row, partner: Measurement | None) -> str:
    text = row_start(row.collective, row.size_bytes, row.count, row.dtype) + _figures(row)
    if partner is not None:
        text += _figures(partner)
    if isinstance(row, CollectivePrediction) and row.low_s is not None and row.high_s is not None:
        text += f" {time_text(row.low_s)} {time_text(row.high_s)}"
    return text


def _figures(row: Row) -> str:
    """Time, algbw, busbw and #wrong of one half."""
    wrong = row.num_wrong if isinstance(row, Measurement) else None
    rate = row.algbw_bytes_per_s
    if rate is None and row.size_bytes and row.time_s > 0:
        rate = row.size_bytes / row.time_s
    figures = (time_text(row.time_s), bandwidth_text(rate), bandwidth_text(row.busbw_bytes_per_s))
    return f"  {' '.join(figures)}  {_or_na(wrong):>6}"
