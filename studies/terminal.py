"""A study's result on the terminal."""

from __future__ import annotations

from studies.report import columns, format_cell, heading, is_numeric
from studies.study import Result, Table

_HIDDEN = ("basis", "reason", "source", "note")


def print_result(result: Result) -> None:
    """Print the rows as a table, long texts left to the report, then the notes and the claims."""
    for table in result.tables or [Table("", result.rows)]:
        print(table_text(table))
        if table.note:
            print(f"{table.note}\n")
    for note in result.notes:
        print(note)
    for claim in result.claims:
        detail = f" ({claim.detail})" if claim.detail else ""
        print(f"{'holds' if claim.holds else 'FAILS'}  {claim.text}{detail}")


def table_text(table: Table) -> str:
    """Return a table as aligned text, without the columns that hold sentences."""
    names = [name for name in columns(table) if name not in _HIDDEN]
    cells = [[heading(name) for name in names]] + [[format_cell(row, name) for name in names] for row in table.rows]
    signs = [">" if is_numeric(table, name) else "<" for name in names]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    layout = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    lines = [layout.format(*line).rstrip() for line in cells]
    return "\n".join([table.title, *lines, ""] if table.title else [*lines, ""])
