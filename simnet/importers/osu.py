"""OSU micro-benchmarks: latency tables of collectives and of two ranks, bandwidth tables.

Sizes are bytes, times us, bandwidths MB/s of 1e6 bytes. The log does not say how many ranks ran; sizes of
all-gather and all-to-all are per rank.

Source: OSU micro-benchmarks 5.8 to 7.5, text output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from simnet.importers.record import Item, Line, Note, Skipped
from simnet.results import Measurement
from simnet.units import MB, US

FORMAT = "OSU"
MARKER = r"^\W*# OSU "
_TITLE = re.compile(r"# OSU (?:\S+ )?(.*?) Test(?: v([\d.]+))?")
_ROW = re.compile(r"^\s*(\d+)\s+(\d+\.\d\d)(?:\s+(\d+\.\d\d)\s+(\d+\.\d\d)\s+(\d+))?(?:\s+(Pass|Fail))?\s*$")
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
    for line in lines:
        if match := _TITLE.search(line.text):
            test, started = match[1], line.number
            if test not in _TESTS:
                yield Note(f"OSU {test} is not read; its rows are skipped")
            elif _TESTS[test] in _PER_RANK:
                yield Note("sizes are per rank, and the log does not say how many ranks ran")
        elif line.text.strip() and not line.text.lstrip().startswith("#"):
            item = _row(line, test, path)
            rows += isinstance(item, Measurement)
            yield item
    if started and not rows:
        yield Note(f"started, no result (title at line {started})")


def _row(line: Line, test: str, path: str) -> Item:
    match = _ROW.match(line.text)
    if match is None:
        return Skipped(line.number, "no row of size and figure with two decimals", line.text[:60])
    if test not in _TESTS:
        return Skipped(line.number, "row without a title that says what it is", line.text[:60])
    size, figure, kind = int(match[1]), float(match[2]), _TESTS[test]
    bandwidth = test.endswith("Bandwidth")
    if figure == 0 or (bandwidth and size == 0):
        return Skipped(line.number, "figure rounds to zero", line.text[:60])
    time = (2 if kind == "exchange" else 1) * size / (figure * MB) if bandwidth else figure * US
    wrong = {"Pass": 0, "Fail": 1, None: None}[match[6]]
    spread = {"time_min_s": float(match[3]) * US, "time_max_s": float(match[4]) * US} if match[3] else {}
    return Measurement(kind, size, time, num_wrong=wrong, source=path, environment=spread)
