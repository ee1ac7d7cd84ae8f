"""nccl-tests' JSON output (-J): the same columns as the table, checked the same way.

Source: nccl-tests, src/util.cu (keys results, out_of_place, in_place, alg_bw, bus_bw, nwrong).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from simnet.importers.json_stream import JsonStream
from simnet.importers.nccl_infer import Row, Verdict, infer
from simnet.importers.nccl_rows import ITEM_BYTES, Half, Start, agrees, parts
from simnet.importers.record import Fact, Item, Note, Skipped
from simnet.metrics import algbw
from simnet.results import Measurement
from simnet.units import GB, US

FORMAT = "nccl-tests JSON"
MARKER = r'"(?:average_bus_bandwidth|out_of_place)"\s*:'
_NAME = re.compile(r"(all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoall|sendrecv|gather|scatter)_perf")
_HALVES = (("out_of_place", False), ("in_place", True))


def read(path: Path) -> Iterator[Item]:
    """Rows of both halves whose columns agree."""
    stream, rows = JsonStream(path, "results"), list[Row]()
    samples: dict[int, tuple[float, ...]] = {}
    index = 0
    for result in stream.elements():
        index += 1
        for item in _rows(result, index):
            if isinstance(item, Row):
                samples[len(rows)] = _samples(result, item)
                rows.append(item)
            else:
                yield item
    if rows:
        name = _NAME.search(str(stream.header))
        named = {"alltoall": "all_to_all"}.get(name[1], name[1]) if name else None
        devices = stream.header.get("devices")
        listed = len(devices) if isinstance(devices, list) and devices else None
        verdict = infer(rows, named=named, listed_ranks=listed)
        yield from (Note(text) for text in verdict.notes)
        yield from (_measurement(row, verdict, samples[i], str(path)) for i, row in enumerate(rows))
        yield Fact("rows", index)
    else:
        yield Note("started, no result")
    if stream.cut:
        yield Note(f"the document breaks off after {index} whole results")


def _rows(result: Any, index: int) -> Iterator[Row | Skipped]:
    start = _start(result)
    if start is None:
        yield Skipped(index, "result lacks size, count or type")
        return
    root = result.get("root")
    for key, in_place in _HALVES:
        if isinstance(result.get(key), dict):
            yield _half(result[key], start, root if isinstance(root, int) else None, index, in_place)


def _start(result: Any) -> Start | None:
    if not isinstance(result, dict) or result.get("type") not in ITEM_BYTES:
        return None
    size, count = result.get("size"), result.get("count")
    if not isinstance(size, int) or not isinstance(count, int) or min(size, count) < 0:
        return None
    return Start(size, count, result["type"], result.get("redop"))


def _half(half: Mapping[str, Any], start: Start, root: int | None, index: int, in_place: bool) -> Row | Skipped:
    values = [half.get(key) for key in ("time", "alg_bw", "bus_bw")]
    numbers = [float(value) for value in values if isinstance(value, int | float) and isfinite(value)]
    if len(numbers) < 3 or numbers[0] <= 0:
        return Skipped(index, "a figure is missing or is not a number")
    time, alg, bus = numbers
    figures = Half(time * US, 0.01 * US, alg * GB, bus * GB, str(half.get("nwrong", "N/A")))
    if parts(start) is None:
        return Skipped(index, f"count {start.count} of {start.dtype} is not size {start.size}")
    if not agrees(figures.algbw, start.size, figures):
        return Skipped(index, f"alg_bw {alg:g} GB/s is not size/time")
    return Row(index, start, figures, root, in_place)


def _samples(result: Mapping[str, Any], row: Row) -> tuple[float, ...]:
    listed = result["in_place" if row.in_place else "out_of_place"].get("times_us")
    good = isinstance(listed, list) and all(isinstance(value, int | float) and value > 0 for value in listed)
    return tuple(value * US for value in listed) if good else ()


def _measurement(row: Row, verdict: Verdict, samples: tuple[float, ...], path: str) -> Item:
    if not verdict.busbw_agrees(row) or not verdict.parts_agree(row):
        return Skipped(row.line, f"bus_bw, count and size do not fit {verdict.collective} on {verdict.ranks} ranks")
    if verdict.ranks == 1 and row.in_place:
        return Skipped(row.line, "in place on one rank moves no data")
    wrong = row.half.wrong
    return Measurement(
        collective=verdict.collective, size_bytes=row.start.size, time_s=row.half.time, ranks=verdict.ranks,
        count=row.start.count, dtype=row.start.dtype, algbw_bytes_per_s=algbw(row.start.size, row.half.time),
        busbw_bytes_per_s=row.half.busbw, samples_s=samples, num_wrong=int(wrong) if wrong.isdigit() else None,
        in_place=row.in_place, source=path,
    )  # fmt: skip
