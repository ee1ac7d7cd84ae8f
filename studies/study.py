"""What a study answers with: rows, claims that can fail, tables and pictures.

A study is one module of this package with a docstring and a function
`run(*, quick: bool = False) -> Result`; the runner finds it by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence that is true or false of the rows; a false one makes the study fail."""

    text: str
    holds: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture drawn on demand: `draw(figure)` gets an empty matplotlib figure."""

    name: str
    caption: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (9.0, 6.0)


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table of a report; columns are taken in the order of the first row."""

    title: str
    rows: Sequence[Row]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Everything a study found; `rows` are what `--json` prints."""

    rows: Sequence[Row]
    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
