"""What a log reader hands out: rows, what it skipped and why, and what else the log says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from simnet.results import CollectivePrediction, Measurement


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end; `ended` is false for a last line that has none."""

    number: int
    text: str
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row, or a half of one, that was not taken."""

    line: int
    reason: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Something the reader of the rows must know."""

    text: str


@dataclass(frozen=True, slots=True)
class Fact:
    """Something a log tells beside rows: the rings that ran, a run's status."""

    name: str
    value: Any


Item: TypeAlias = Measurement | CollectivePrediction | Skipped | Note | Fact


@dataclass(frozen=True, slots=True)
class Log:
    """A whole log in memory."""

    path: str
    format: str
    measurements: tuple[Measurement, ...] = ()
    predictions: tuple[CollectivePrediction, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
