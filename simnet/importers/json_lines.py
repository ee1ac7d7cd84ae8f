"""Our own rows: one JSON object per line, as `--json` of every command prints them.

A row with `engine`, `exact` and `profile` is a prediction, one with `samples_s` or `environment` a
measurement, one with `kind: "probe"` a measurement between two ranks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from statistics import median
from typing import Any

from simnet.importers.record import Fact, Item, Line, Skipped
from simnet.results import CollectivePrediction, Measurement

FORMAT = "simnet JSON lines"
MARKER = r'^\s*\{.*"(?:size_bytes|quantity)"\s*:'
_MEASURED = {field.name for field in fields(Measurement)}
_PREDICTED = {field.name for field in fields(CollectivePrediction)}
_PROBES = {
    "latency": "send", "bandwidth": "send", "bidirectional_bandwidth": "exchange", "reduction_rate": "add",
    "copy_rate": "copy",
}  # fmt: skip
_MARKS = {"engine", "exact", "profile"}
_RATES = ("matmul_rate", "convolution_rate")


def read(lines: Iterable[Line], path: str) -> Iterator[Item]:
    """One item per object; a line that is none, or lacks a size or a time, is skipped and named."""
    for line in lines:
        if not line.text.strip():
            continue
        try:
            row = json.loads(line.text, parse_constant=_refuse)
            yield _record(row, path)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            yield Skipped(line.number, f"not a row: {error}", line.text[:80])


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no figure")


def _record(row: Any, path: str) -> Item:
    if not isinstance(row, Mapping):
        raise ValueError("not an object")
    if row.get("kind") == "probe":
        return _probe(row, path)
    marks = _MARKS & row.keys()
    if marks and marks != _MARKS:
        raise ValueError(f"a prediction lacks {', '.join(sorted(_MARKS - marks))}")
    if marks:
        return _prediction(row)
    return _measurement(row, path)


def _prediction(row: Mapping[str, Any]) -> CollectivePrediction:
    known = {name: value for name, value in row.items() if name in _PREDICTED}
    known.setdefault("count", 0)
    prediction = CollectivePrediction(**known)
    _require(prediction.size_bytes, prediction.time_s, prediction.ranks)
    return prediction


def _measurement(row: Mapping[str, Any], path: str) -> Measurement:
    known = {name: value for name, value in row.items() if name in _MEASURED}
    known["samples_s"] = _samples(row.get("samples_s", ()))
    known.setdefault("time_s", median(known["samples_s"]) if known["samples_s"] else None)
    known["source"] = path
    measurement = Measurement(**known)
    _require(measurement.size_bytes, measurement.time_s, measurement.ranks)
    if known["samples_s"] and not min(known["samples_s"]) <= measurement.time_s <= max(known["samples_s"]):
        raise ValueError(f"time_s {measurement.time_s:g} lies outside its own samples")
    return measurement


def _probe(row: Mapping[str, Any], path: str) -> Measurement | Fact:
    quantity = row.get("quantity")
    if quantity in _RATES:
        return _rate(row)
    if quantity not in _PROBES:
        raise ValueError(f"quantity {quantity!r} is none of {', '.join(_PROBES)}")
    samples = _samples(row.get("samples_s", ()))
    time = row.get("time_s", median(samples) if samples else None)
    size = row.get("size_bytes")
    _require(size, time, 2)
    assert isinstance(size, int)
    assert time is not None
    source, target = row.get("src"), row.get("dst")
    return Measurement(
        collective=_PROBES[quantity], size_bytes=size, time_s=time, ranks=None, samples_s=samples, source=path,
        src=None if source is None else str(source), dst=None if target is None else str(target),
        environment={"loaded": bool(row.get("loaded")), **(row.get("environment") or {})},
    )  # fmt: skip


def _rate(row: Mapping[str, Any]) -> Fact:
    """Flop per second of a product or convolution: no message, and so a fact."""
    samples = _samples(row.get("samples_s", ()))
    if not samples or not isinstance(row.get("flop"), int | float):
        raise ValueError(f"{row['quantity']} lacks samples or flop")
    return Fact(f"{row['quantity']} {row.get('precision', '')}".strip(), row["flop"] / median(samples))


def _samples(values: Any) -> tuple[float, ...]:
    samples = tuple(float(value) for value in values)
    if any(not math.isfinite(value) or value <= 0 for value in samples):
        raise ValueError("a sample is not a positive time")
    return samples


def _require(size: Any, time: Any, ranks: Any) -> None:
    whole = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    if not whole:
        raise ValueError(f"size_bytes is {size!r}")
    if not isinstance(time, int | float) or not math.isfinite(time) or time < 0:
        raise ValueError(f"time_s is {time!r}")
    if ranks is not None and not (isinstance(ranks, int) and ranks >= 1):
        raise ValueError(f"ranks is {ranks!r}")
