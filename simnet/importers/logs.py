"""Logs of every format, one table out.

`stream_log` hands out rows one by one in constant memory; `read_log` collects them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
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
    for name in found:
        items = _DOCUMENTS[name][1](path) if name in _DOCUMENTS else _TEXT[name][1](read_lines(path), str(path))
        for item in items:
            told = told or isinstance(item, Measurement | CollectivePrediction | Fact)
            if isinstance(item, Note) and len(notes) < 5:
                notes.append(item.text)
            yield item
    if not told:
        raise InvalidInput(f"{path} gives no result: {'; '.join(notes) or 'no row could be used'} ({', '.join(found)})")


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


def read_log(path: str | Path) -> Log:
    """Read a whole log; raises as `stream_log` does."""
    rows: list[Measurement] = []
    predictions: list[CollectivePrediction] = []
    skipped: list[Skipped] = []
    notes: list[str] = []
    facts: dict[str, Any] = {}
    for item in stream_log(path):
        match item:
            case Measurement():
                rows.append(item)
            case CollectivePrediction():
                predictions.append(item)
            case Skipped():
                skipped.append(item)
            case Note():
                notes.append(item.text)
            case Fact():
                facts[item.name] = item.value
    return Log(
        str(path), "+".join(formats(Path(path))), tuple(rows), tuple(predictions), tuple(skipped), tuple(notes), facts
    )
