"""Logs of every format, one table out.

`stream_log` hands out rows one by one in constant memory; `read_log` collects them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from simnet.errors import InvalidInput
from simnet.importers import json_lines, nccl_tests
from simnet.importers.lines import read_lines
from simnet.importers.record import Fact, Item, Line, Log, Note, Skipped
from simnet.results import CollectivePrediction, Measurement

Reader = Callable[[Iterable[Line], str], Iterator[Item]]
_READERS: dict[str, tuple[str, Reader]] = {
    module.FORMAT: (module.MARKER, module.read) for module in (nccl_tests, json_lines)
}


def stream_log(path: str | Path) -> Iterator[Item]:
    """Yield rows, skipped rows, notes and facts, in constant memory.

    Raises
    ------
    InvalidInput : not readable, not a log this project knows, or a log without any result.
    """
    path = Path(path)
    found = formats(path)
    if not found:
        raise InvalidInput(
            f"{path} is none of the logs read here ({', '.join(_READERS)}); see docs/reference/log-formats"
        )
    told = False
    notes: list[str] = []
    for name in found:
        for item in _READERS[name][1](read_lines(path), str(path)):
            told = told or isinstance(item, Measurement | CollectivePrediction)
            if isinstance(item, Note):
                notes.append(item.text)
            yield item
    if not told:
        raise InvalidInput(f"{path}: {'; '.join(notes) or 'no row could be used'} ({found[0]})")


def formats(path: Path) -> list[str]:
    """Formats whose marks the text bears."""
    pattern = re.compile("|".join(f"(?P<f{i}>{mark})" for i, (mark, _) in enumerate(_READERS.values())))
    names, found = list(_READERS), set()
    for line in read_lines(path):
        if match := pattern.search(line.text):
            found.add(names[int((match.lastgroup or "f0")[1:])])
    return [name for name in names if name in found]


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
