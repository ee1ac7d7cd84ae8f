"""Catalogue rows as text for a terminal: one line of figures, sources below, indented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simnet.units import format_si

_UNITS = {
    "_flop_per_s": "FLOP/s", "_bytes_per_s": "B/s", "_bytes": "B", "_w": "W", "_usd": "USD", "latency_s": "s",
}  # fmt: skip
_TEXT = ("name", "summary", "source", "sources", "wires", "options", "required", "assumed")


def lines(row: dict[str, Any], *, sources: bool = True) -> Iterator[str]:
    """Lines of one row: name and summary, its figures with their intervals, where they come from."""
    yield f"{row['name']:<16} {row['summary']}"
    quantities = {key: value for key, value in row.items() if _is_quantity(value)}
    if quantities:
        yield "    " + "   ".join(f"{_label(key)} {interval(value, _unit(key))}" for key, value in quantities.items())
    plain = {k: v for k, v in row.items() if k not in _TEXT and not _is_quantity(v) and v is not None}
    if plain:
        yield "    " + "   ".join(f"{key.replace('_', ' ')} {_number(value)}" for key, value in plain.items())
    if row.get("options"):
        required = row.get("required")
        yield f"    options {', '.join(row['options'])}" + (f"; required: {', '.join(required)}" if required else "")
    for place, wire in row.get("wires", {}).items():
        bandwidth, latency = interval(wire["bandwidth_bytes_per_s"], "B/s"), interval(wire["latency_s"], "s")
        yield f"    {place:<16} {wire['link']:<14} {bandwidth}   {latency}"
    yield from (f"      assumed: {text}" for text in row.get("assumed", ()))
    if sources:
        yield from (f"      from {text}" for text in dict.fromkeys(_sources(row, quantities)) if text)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def interval(quantity: dict[str, Any], unit: str) -> str:
    """Return "900 GB/s (882 GB/s to 918 GB/s)", or the value alone where it is exact."""
    text = format_si(quantity["value"], unit)
    if quantity["low"] == quantity["high"]:
        return text
    return f"{text} ({format_si(quantity['low'], unit)} to {format_si(quantity['high'], unit)})"


def _sources(row: dict[str, Any], quantities: dict[str, Any]) -> Iterator[str]:
    yield row.get("source", "")
    yield from (str(quantity["source"]) for quantity in quantities.values())
    for wire in row.get("wires", {}).values():
        yield from (str(wire[key]["source"]) for key in ("bandwidth_bytes_per_s", "latency_s"))
    yield from row.get("sources", {}).values()


def _is_quantity(value: Any) -> bool:
    return isinstance(value, dict) and "low" in value


def _unit(key: str) -> str:
    return next(unit for end, unit in _UNITS.items() if key.endswith(end))


def _label(key: str) -> str:
    end = next(end for end in _UNITS if key.endswith(end))
    return "latency" if end == "latency_s" else key.removesuffix(end).replace("_", " ")
