"""Write a study's result as Markdown, as one self-contained HTML page, as rows and as pictures."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simnet.errors import InvalidInput
from studies.registry import Study
from studies.study import Picture, Result, Table

_SHARES = ("spread", "geometric mean", "MAPE", "largest", "in 80 %")
_SIGNED_SHARES = ("error", "constant_error", "bias")


@dataclass(frozen=True, slots=True)
class _Drawn:
    name: str
    caption: str
    png: bytes

    @property
    def data_uri(self) -> str:
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


def write(study: Study, result: Result, folder: Path) -> list[Path]:
    """Write `<study>.md`, `.html`, `.jsonl` and `<study>-<picture>.png` into a folder; return their paths.

    Raises
    ------
    InvalidInput : the folder cannot be written.
    """
    pictures = [_draw(picture) for picture in result.pictures]
    files: dict[str, bytes] = {f"{study.name}-{p.name}.png": p.png for p in pictures}
    files[f"{study.name}.jsonl"] = "".join(json.dumps(dict(row)) + "\n" for row in result.rows).encode()
    for kind in ("md", "html"):
        files[f"{study.name}.{kind}"] = _render(kind, study, result, pictures).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise InvalidInput(f"cannot write the report to {folder}: {error.strerror}; name another folder") from error
    return [folder / name for name in files]


def _draw(picture: Picture) -> _Drawn:
    from matplotlib.figure import Figure

    figure = Figure(figsize=picture.size, layout="constrained")
    picture.draw(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return _Drawn(picture.name, picture.caption, buffer.getvalue())


def _render(kind: str, study: Study, result: Result, pictures: Sequence[_Drawn]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("studies", "templates"), undefined=StrictUndefined, autoescape=kind == "html",
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["cell"] = format_cell
    environment.filters["columns"] = columns
    environment.filters["heading"] = heading
    environment.filters["words"] = _words
    environment.tests["numeric_in"] = lambda column, table: is_numeric(table, column)
    tables = list(result.tables) or [Table("Rows", result.rows)]
    template = environment.get_template(f"study.{kind}.j2")
    return template.render(study=study, result=result, tables=tables, pictures=pictures)


def _words(text: str) -> str:
    """Sentences as HTML: escaped, names between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def columns(table: Table) -> list[str]:
    """Names of a table's columns: those of the first row, then any later ones."""
    names: dict[str, None] = {}
    for row in table.rows:
        names.update(dict.fromkeys(row))
    return list(names)


def heading(column: str) -> str:
    """A column's name in words."""
    return column.replace("_", " ")


def is_numeric(table: Table, column: str) -> bool:
    """Whether every known value of a column is a number, so that it is set to the right."""
    known = [row[column] for row in table.rows if row.get(column) is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def format_cell(row: Mapping[str, Any], column: str) -> str:
    """Return one value as a reader wants it: four digits, errors in percent, yes or no, nothing where unknown."""
    value = row.get(column)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and column in (*_SHARES, *_SIGNED_SHARES):
        return f"{value:{'+' if column in _SIGNED_SHARES else ''}.1%}"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.4g}"
    return str(value).replace("\n", " ")


def write_index(failed: Mapping[str, int], folder: Path) -> Path:
    """Write `index.html`, which links the reports of several studies and says how many claims failed in each."""
    items = "\n".join(
        f'<li><a href="{name}.html">{name}</a>: {"all claims hold" if not count else f"{count} claims FAIL"}</li>'
        for name, count in failed.items()
    )
    path = folder / "index.html"
    path.write_text(f'<!doctype html>\n<meta charset="utf-8">\n<title>Studies</title>\n<ul>\n{items}\n</ul>\n', "utf-8")
    return path
