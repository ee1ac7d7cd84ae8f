"""Logs of every format, one table out.

`stream_log` hands out rows one by one in constant memory; `read_log` collects them.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, TextIO

from simnet.errors import InvalidInput
from simnet.importers import (
    ddp,
    deepspeed,
    execution_trace,
    imb,
    json_lines,
    kineto,
    mlperf,
    nccl_debug,
    nccl_tests,
    nccl_tests_json,
    nccom,
    osu,
)
from simnet.importers.lines import open_text, read_lines
from simnet.importers.record import Fact, Item, Line, Log, Note, Skipped
from simnet.modes import Repeats
from simnet.results import CollectivePrediction, Measurement

Reader = Callable[[Iterable[Line], str], Iterator[Item]]
_TEXT: dict[str, tuple[str, Reader]] = {
    module.FORMAT: (module.MARKER, module.read)
    for module in (nccl_tests, nccom, osu, imb, mlperf, deepspeed, ddp, nccl_debug, json_lines)
}
_DOCUMENTS: dict[str, tuple[str, Callable[[Path], Iterator[Item]]]] = {
    module.FORMAT: (module.MARKER, module.read) for module in (nccl_tests_json, kineto, execution_trace)
}
_REFUSED = {
    r"Self CPU %": "a table of operators by torch.profiler, without message sizes; export the trace instead",
    r"^\s*\|?\s*:?-{2,}:?\s*\|": "a text with tables, not a log; give the log those figures come from",
}
_HEAD = 1 << 20
_MOST_NOTES = 1000
_Condition = tuple[object, ...]


def stream_log(path: str | Path) -> Iterator[Item]:
    """Yield rows, skipped rows, notes and facts, in constant memory.

    Raises
    ------
    InvalidInput : not readable, not a log this project knows, or a log without any result.
    """
    path = Path(path)
    found = formats(path)
    told = False
    notes: list[str] = []
    skipped: dict[str, None] = {}
    repeats = Repeats()
    for name in found:
        items = _DOCUMENTS[name][1](path) if name in _DOCUMENTS else _TEXT[name][1](read_lines(path), str(path))
        for item in items:
            told = told or isinstance(item, Measurement | CollectivePrediction | Fact)
            if isinstance(item, Note) and len(notes) < 5:
                notes.append(item.text)
            if isinstance(item, Skipped) and len(skipped) < 2:
                skipped[item.reason] = None
            if isinstance(item, Measurement):
                repeats.add(item)
            yield item
    yield from (Note(str(found)) for found in repeats.modes())
    yield from map(Note, repeats.jumps())
    if not told:
        reasons = "; ".join((*notes, *skipped)) or "no row could be used"
        raise InvalidInput(f"{path} gives no result: {reasons} ({', '.join(found)})")


def formats(path: Path) -> list[str]:
    """Formats whose marks the file bears: one for a JSON document, one or more for text.

    Raises
    ------
    InvalidInput : it bears none.
    """
    with open_text(path) as text:
        head = _head(text)
    if head.lstrip()[:1] in ("{", "[") and not re.search(json_lines.MARKER, head, re.MULTILINE):
        for name, (mark, _) in _DOCUMENTS.items():
            if re.search(mark, head, re.MULTILINE):
                return [name]
    pattern = re.compile("|".join(f"(?P<f{i}>{mark})" for i, (mark, _) in enumerate(_TEXT.values())))
    names, found = list(_TEXT), set()
    for line in read_lines(path):
        if match := pattern.search(line.text):
            found.add(names[int((match.lastgroup or "f0")[1:])])
    if not found:
        raise InvalidInput(_unknown(path, head))
    return [name for name in names if name in found]


def _head(text: TextIO) -> str:
    try:
        return text.read(_HEAD)
    except (EOFError, OSError, zlib.error):
        return ""


def _unknown(path: Path, head: str) -> str:
    if not head.strip():
        return f"{path} is empty or damaged; give a log with results"
    for mark, reason in _REFUSED.items():
        if re.search(mark, head, re.MULTILINE | re.IGNORECASE):
            return f"{path} is {reason}"
    return f"{path} is none of the logs read here: {', '.join((*_TEXT, *_DOCUMENTS))}"


def read_log(path: str | Path, *, most_rows: int = 100_000) -> Log:
    """Read a whole log; raises as `stream_log` does.

    Beyond `most_rows` rows those of one condition are merged into one with all their times as samples, so that a
    log of any size fits.
    """
    rows = _Rows(most_rows)
    predictions: list[CollectivePrediction] = []
    skipped: list[Skipped] = []
    notes: list[str] = []
    facts: dict[str, Any] = {}
    num_skipped = 0
    for item in stream_log(path):
        match item:
            case Measurement():
                rows.add(item)
            case CollectivePrediction():
                predictions.append(item)
            case Skipped():
                num_skipped += 1
                if num_skipped <= most_rows:
                    skipped.append(item)
            case Note():
                notes.append(item.text) if len(notes) < _MOST_NOTES else None
            case Fact():
                facts.update({item.name: item.value} if len(facts) < most_rows else {})
    if num_skipped > len(skipped):
        notes.append(f"{num_skipped} rows were skipped, {len(skipped)} of them are listed")
    return Log(
        str(path), "+".join(formats(Path(path))), rows.done(), tuple(predictions), tuple(skipped), tuple(notes), facts
    )  # fmt: skip


class _Rows:
    """Rows as they are, or merged by condition once there are too many."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows: list[Measurement] = []
        self.merged: dict[_Condition, tuple[Measurement, array[float]]] | None = None

    def add(self, row: Measurement) -> None:
        """Take one row."""
        if self.merged is not None:
            self._merge(self.merged, row)
            return
        self.rows.append(row)
        if len(self.rows) > self.most:
            self.merged = {}
            for held in self.rows:
                self._merge(self.merged, held)
            self.rows = []

    def _merge(self, merged: dict[_Condition, tuple[Measurement, array[float]]], row: Measurement) -> None:
        condition = (
            row.collective, row.size_bytes, row.ranks, row.nodes, row.algorithm, row.cluster, row.dtype, row.in_place,
            row.num_wrong, row.src, row.dst,
        )  # fmt: skip
        merged.setdefault(condition, (row, array("d")))[1].extend(row.samples_s or (row.time_s,))

    def done(self) -> tuple[Measurement, ...]:
        """Return what was taken."""
        if self.merged is None:
            return tuple(self.rows)
        return tuple(_whole(first, times) for first, times in self.merged.values())


def _whole(first: Measurement, times: array[float]) -> Measurement:
    """Median and samples of a merged condition."""
    time = median(times)
    rate = first.size_bytes / time if time > 0 else None
    return replace(first, time_s=time, samples_s=tuple(times), algbw_bytes_per_s=rate, busbw_bytes_per_s=None)
