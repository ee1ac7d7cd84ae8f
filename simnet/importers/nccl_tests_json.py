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
_NAME = re.compile(r"(\w+)_perf")
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
        name = _NAME.search(str(stream.header.get("args", stream.header)))
        named = {"alltoall": "all_to_all"}.get(name[1], name[1]) if name else None
        devices = _devices(stream.header)
        verdict = infer(rows, named=named, listed_ranks=len(devices) or None)
        hosts = {device.get("hostname") for device in devices} - {None}
        nodes = len(hosts) if hosts and verdict.ranks == len(devices) else None
        yield from (Note(text) for text in verdict.notes)
        yield from (_measurement(row, verdict, nodes, samples[i], str(path)) for i, row in enumerate(rows))
        yield Fact("rows", index)
    else:
        yield Note("started, no result")
    if stream.cut:
        yield Note(f"the document breaks off after {index} whole results")


def _devices(header: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Ranks that the document lists, beside or inside its configuration."""
    config = header.get("config")
    listed = header.get("devices") or (config.get("devices") if isinstance(config, dict) else None)
    return [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []


def _rows(result: Any, index: int) -> Iterator[Row | Skipped]:
    start = _start(result)
    if start is None:
        yield Skipped(index, "result lacks size, count or type")
        return
    root = _whole(result.get("root"))
    for key, in_place in _HALVES:
        if isinstance(result.get(key), dict):
            yield _half(result[key], start, root, index, in_place)


def _whole(value: Any) -> int | None:
    """Whole number, written as one or as text."""
    return int(value) if isinstance(value, int) or re.fullmatch(r"\s*-?\d+\s*", str(value)) else None


def _start(result: Any) -> Start | None:
    if not isinstance(result, dict) or result.get("type") not in ITEM_BYTES:
        return None
    size, count = result.get("size"), result.get("count")
    if not isinstance(size, int) or not isinstance(count, int) or min(size, count) < 0:
        return None
    return Start(size, count, result["type"], result.get("redop"))


def _half(half: Mapping[str, Any], start: Start, root: int | None, index: int, in_place: bool) -> Row | Skipped:
    if "cpu_time" in half and "time" not in half:
        return Skipped(index, "cpu_time is how long the processor took to launch it, not how long it ran")
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


def _measurement(row: Row, verdict: Verdict, nodes: int | None, samples: tuple[float, ...], path: str) -> Item:
    if not verdict.busbw_agrees(row) or not verdict.parts_agree(row):
        return Skipped(row.line, f"bus_bw, count and size do not fit {verdict.collective} on {verdict.ranks} ranks")
    if verdict.ranks == 1 and row.in_place:
        return Skipped(row.line, "in place on one rank moves no data")
    wrong = row.half.wrong
    return Measurement(
        collective=verdict.collective, size_bytes=row.start.size, time_s=row.half.time, ranks=verdict.ranks,
        count=row.start.count, dtype=row.start.dtype, algbw_bytes_per_s=algbw(row.start.size, row.half.time),
        busbw_bytes_per_s=row.half.busbw, samples_s=samples, nodes=nodes,
        num_wrong=int(float(wrong)) if re.fullmatch(r"\d+(?:\.0*)?", wrong) else None,
        in_place=row.in_place, source=path,
    )  # fmt: skip
