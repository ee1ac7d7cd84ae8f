"""MLPerf training logs: how long the run took, what it trained and whether it succeeded.

Source: MLCommons mllog (":::MLLOG {json}") and the v0.5 form (":::MLPv0.5.0 benchmark time (file) key: value").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from simnet.importers.record import Fact, Item, Line, Note, Skipped
from simnet.results import Measurement

FORMAT = "MLPerf"
MARKER = r":::MLLOG \{|:::MLPv\d"
_JSON = re.compile(r":::MLLOG (\{.*)$")
_OLD = re.compile(r":::MLPv[\d.]+ (\w+) ([\d.]+) \([^)]*\) (\w+)(?:: (.*?))?\s*$")
_KEPT = (
    "submission_benchmark", "submission_org", "submission_platform", "global_batch_size", "train_samples",
    "eval_samples", "gradient_accumulation_steps", "opt_name",
)  # fmt: skip
_EVALS = ("eval_accuracy",)


def read(lines: Iterable[Line], path: str) -> Iterator[Item]:
    """One row per run, its time from run_start to run_stop (v0.5: run_final); the rest as facts."""
    facts: dict[str, Any] = {}
    starts: set[float] = set()
    stops: dict[float, str] = {}
    finals: set[float] = set()
    evals: set[tuple[float, str]] = set()
    oldest = False
    for line in lines:
        oldest = oldest or ":::MLPv0.5" in line.text
        event = _event(line)
        if isinstance(event, Skipped):
            yield event
            continue
        if event is None:
            continue
        time, key, value, metadata = event
        if key == "run_start":
            starts.add(time)
        elif key == "run_stop":
            stops[time] = str(metadata.get("status", value))
        elif key == "run_final":
            finals.add(time)
        elif key in _EVALS:
            evals.add((time, str(value)))
        elif key in _KEPT:
            facts.setdefault(key.removeprefix("submission_"), value)
        facts.setdefault("benchmark", metadata["benchmark"]) if "benchmark" in metadata else None
    yield from (Fact(name, value) for name, value in facts.items())
    yield Fact("evaluations", len(evals))
    if oldest:
        stops = dict.fromkeys(finals, next(iter(stops.values()), "unknown"))
    yield from _run(starts, stops, facts, path)


def _event(line: Line) -> tuple[float, str, Any, dict[str, Any]] | Skipped | None:
    """Time in s, key, value and metadata of an event line."""
    if match := _JSON.search(line.text):
        try:
            event = json.loads(match[1])
            return float(event["time_ms"]) / 1e3, str(event["key"]), event.get("value"), event.get("metadata") or {}
        except (ValueError, KeyError, TypeError, AttributeError):
            return Skipped(line.number, "event is cut or is no JSON", line.text[:60])
    if ":::MLPv" not in line.text:
        return None
    if (match := _OLD.search(line.text)) is None or (not line.ended and match[4] is None):
        return Skipped(line.number, "event is cut", line.text[:60])
    key = {"eval_size": "eval_samples", "input_batch_size": "global_batch_size"}.get(match[3], match[3])
    return float(match[2]), key, _plain(match[4]), {"benchmark": match[1], **_status(match[4])}


def _plain(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _status(text: str | None) -> dict[str, Any]:
    value = _plain(text)
    if isinstance(value, dict) and "success" in value:
        return {"status": "success" if str(value["success"]).lower() == "true" else "aborted"}
    return {}


def _run(starts: set[float], stops: dict[float, str], facts: dict[str, Any], path: str) -> Iterator[Item]:
    """Say how long the run took, where exactly one start and one stop tell."""
    if len(starts) != 1 or len(stops) != 1:
        missing = " and ".join(
            f"{len(times)} lines of {name}"
            for name, times in (("run_start", starts), ("run_stop", stops))
            if len(times) != 1
        )
        yield Note(f"run time is unknown: {missing}")
        return
    start, (stop, status) = starts.pop(), stops.popitem()
    yield Fact("status", status)
    if stop <= start:
        yield Note("run time is unknown: run_stop comes before run_start")
    elif status != "success":
        yield Note(f"the run ended as {status}: its time is no time to train")
    else:
        yield Measurement("train", 0, stop - start, source=path, environment=facts)
