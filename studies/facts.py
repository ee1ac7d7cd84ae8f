"""Published figures with their sources: `published/facts.jsonl`, one object a line, never changed here.

`kind` says what a figure may be used for: `calibrate` may be fitted to, `validate` may only be
compared with, `input` says how a run was set up, `unverified` was not seen in its source.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from simnet.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Fact:
    """One published figure; absent fields are unknown and read as None."""

    values: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.values.get(name)

    @property
    def digest(self) -> str:
        """SHA-256 of the figure in canonical form, first 12 hex digits; profiles record what they were fitted to."""
        text = json.dumps(self.values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def facts() -> tuple[Fact, ...]:
    """Return every published figure, in the order of the file."""
    text = resources.files("studies").joinpath("published/facts.jsonl").read_text(encoding="utf-8")
    return tuple(Fact(json.loads(line)) for line in text.splitlines() if line.strip())


def of_kind(kind: str, among: Iterable[Fact] | None = None) -> tuple[Fact, ...]:
    """Return the figures of one kind."""
    return tuple(fact for fact in (facts() if among is None else among) if fact.kind == kind)


def find(name: str) -> Fact:
    """Return the figure of that id.

    Raises
    ------
    InvalidInput : there is none.
    """
    for fact in facts():
        if fact.id == name:
            return fact
    raise InvalidInput(f"no published figure has the id {name!r}; see studies/published/facts.jsonl")
