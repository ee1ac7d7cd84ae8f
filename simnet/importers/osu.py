"""OSU micro-benchmarks: latency tables of collectives and of two ranks, bandwidth tables.

Sizes are bytes, times us, bandwidths MB/s of 1e6 bytes. The log does not say how many ranks ran; sizes of
all-gather and all-to-all are per rank.

Source: OSU micro-benchmarks 5.8 to 7.5, text output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from simnet.importers.prefixes import without_prefixes
from simnet.importers.record import Item, Line, Note, Skipped
from simnet.results import Measurement
from simnet.units import MB, US

FORMAT = "OSU"
MARKER = r"\bOSU (?:MPI|NCCL|XCCL|RCCL)\S* .* Test\b"
_TITLE = re.compile(r"\bOSU (?:(?:MPI|NCCL|XCCL|RCCL)\S*\s+)?(.*?)\s+Test(?:\s+v([\d.]+))?")
_HEADING = re.compile(r"^\W*Size\s")
_ROW = re.compile(r"^\s*(\d+)((?:\s+\d+\.\d\d|\s+\d+)+)(?:\s+(Pass|Fail))?\s*$")
_COLUMN = re.compile(r"(?:(Avg|Min|Max|P\d+)\s+)?(?:Tail\s+)?(?:Latency|Lat|Bandwidth|BW)\s*\(|(Iterations)")
_FULL = ("Avg", "Min", "Max", "Iterations")
_TESTS = {
    "Allreduce Latency": "all_reduce", "Allgather Latency": "all_gather", "Reduce_scatter Latency": "reduce_scatter",
    "Alltoall Latency": "all_to_all", "All-to-All Personalized Exchange Latency": "all_to_all",
    "Broadcast Latency": "broadcast", "Bcast Latency": "broadcast", "Reduce Latency": "reduce",
    "Latency": "send", "Bandwidth": "stream", "Bi-Directional Bandwidth": "exchange",
}  # fmt: skip
_PER_RANK = ("all_gather", "all_to_all")


def read(lines: Iterable[Line], path: str) -> Iterator[Item]:
    """Rows under a title that is known; others are skipped."""
    test, started, rows = "", 0, 0
    columns: tuple[str, ...] = ()
    for line in without_prefixes(lines):
        if match := _TITLE.search(line.text):
            test, started, columns = match[1], line.number, ()
            if test not in _TESTS:
                yield Note(f"OSU {test} is not read; its rows are skipped")
            elif _TESTS[test] in _PER_RANK:
                yield Note("sizes are per rank, and the log does not say how many ranks ran")
        elif _HEADING.match(line.text):
            columns = _columns(line.text)
        elif line.text.strip() and not line.text.lstrip().startswith("#"):
            item = _row(line, test, columns, path)
            rows += isinstance(item, Measurement)
            yield item
    if started and not rows:
        yield Note(f"started, no result (title at line {started})")


def _columns(heading: str) -> tuple[str, ...]:
    """What every figure is: Avg, Min, Max, P50, ..., Iterations, or nothing for the only one there is."""
    return tuple(match[1] or match[2] or "" for match in _COLUMN.finditer(heading))


def _row(line: Line, test: str, columns: tuple[str, ...], path: str) -> Item:
    match = _ROW.match(line.text)
    figures = match[2].split() if match else []
    if match is None or re.fullmatch(r"\d+\.\d\d", figures[0]) is None:
        return Skipped(line.number, "no row of size and figure with two decimals", line.text[:60])
    if len(figures) > 1 and len(columns) not in (0, len(figures)):
        return Skipped(line.number, f"{len(figures)} figures under {len(columns)} columns", line.text[:60])
    named = dict(zip(columns or _FULL, figures, strict=False)) if len(figures) > 1 else {}
    if len(figures) > 1 and not columns and len(figures) != len(_FULL):
        return Skipped(line.number, "figures without a heading that says what they are", line.text[:60])
    if test not in _TESTS:
        return Skipped(line.number, "row without a title that says what it is", line.text[:60])
    size, figure, kind = int(match[1]), float(figures[0]), _TESTS[test]
    bandwidth = test.endswith("Bandwidth")
    if figure == 0 or (bandwidth and size == 0):
        return Skipped(line.number, "figure rounds to zero", line.text[:60])
    time = (2 if kind == "exchange" else 1) * size / (figure * MB) if bandwidth else figure * US
    wrong = {"Pass": 0, "Fail": 1, None: None}[match[3]]
    spread = (
        {}
        if bandwidth
        else {
            f"time_{name.lower()}_s": float(named[name]) * US
            for name in named
            if name in ("Min", "Max") or name[:1] == "P"
        }
    )
    told = {"size_per_rank": True} if kind in _PER_RANK else {}
    return Measurement(kind, size, time, num_wrong=wrong, source=path, environment={**spread, **told})
