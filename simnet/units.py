"""SI inside, human units at the border.

Inside the library every quantity is a plain number in s, bytes, bytes/s, flop or flop/s;
the aliases below carry the unit in signatures. Text from a human goes through `parse`,
which knows a closed list of units and refuses a bare number.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from simnet.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

Seconds: TypeAlias = float
Bytes: TypeAlias = int
BytesPerSecond: TypeAlias = float
SecondsPerByte: TypeAlias = float
Flop: TypeAlias = float
FlopPerSecond: TypeAlias = float
Usd: TypeAlias = float
Watts: TypeAlias = float

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KIB, MIB, GIB = 2**10, 2**20, 2**30
US, MS = 1e-6, 1e-3
GBIT_PER_S = 1e9 / 8


class Dimension(StrEnum):
    """What a quantity at the border may measure; the value is its SI unit here."""

    TIME = "s"
    INFORMATION = "byte"
    BANDWIDTH = "byte/s"
    COMPUTE = "flop/s"
    OPERATIONS = "flop"
    TRANSFERS = "transfer/s"
    MONEY = "USD"
    POWER = "W"
    RATE = "image/s"


_EXAMPLES = {
    Dimension.TIME: "1.5 us",
    Dimension.INFORMATION: "32 MiB",
    Dimension.BANDWIDTH: "25 Gbit/s or 12.5 GB/s",
    Dimension.COMPUTE: "15.7 TFLOP/s",
    Dimension.OPERATIONS: "7.7 GFLOP",
    Dimension.TRANSFERS: "8 GT/s",
    Dimension.MONEY: "129000 USD",
    Dimension.POWER: "300 W",
    Dimension.RATE: "1000 image/s",
}

_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S.*?)?\s*", re.ASCII | re.DOTALL)
_SMALLEST, _LARGEST = 1e-30, 1e30


def _definitions() -> list[str]:
    lines = ["second = [time] = s", "ms = 1e-3 s", "us = 1e-6 s", "µs = 1e-6 s", "ns = 1e-9 s"]
    lines += ["minute = 60 s = min", "hour = 3600 s = h", "day = 86400 s"]
    lines += ["byte = [information] = B", "bytes = byte", "bit = byte / 8", "bits = bit"]
    lines += ["flop = [operations] = FLOP", "USD = [money]", "watt = [power] = W"]
    lines += ["transfer = [transfer] = T", "image = [image]", "images = image"]
    for prefix, factor in _PREFIXES.items():
        lines += [f"{prefix}B = {factor} byte", f"{prefix}bit = {factor / 8} byte"]
        lines += [f"{prefix}FLOP = {factor} flop", f"{prefix}flop = {factor} flop"]
        lines += [f"{prefix}bps = {factor / 8} byte / s"]
    for name, power in (("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)):
        lines += [f"{name}B = {2**power} byte", f"{name}bit = {2**power / 8} byte"]
    lines += ["MT = 1e6 transfer", "GT = 1e9 transfer", "kW = 1e3 watt", "MW = 1e6 watt"]
    return lines


@cache
def _registry() -> Any:
    from pint import UnitRegistry

    registry: Any = UnitRegistry(None)
    for line in _definitions():
        registry.define(line)
    return registry


def parse(text: str, dimension: Dimension, *, name: str = "value") -> float:
    """Read a quantity a human wrote, such as "25 Gbit/s", as an SI number.

    Raises
    ------
    InvalidInput : no unit, an unknown unit, a unit of another dimension, or a number out of any machine's range.
    """
    match = _QUANTITY.fullmatch(text)
    example = _EXAMPLES[dimension]
    if match is None:
        raise InvalidInput(f"{name} must be a number with a unit, got {text!r}; write {example}")
    if match[2] is None:
        raise InvalidInput(f"{name} needs a unit, got the bare number {text!r}; write {example}")
    value = float(match[1]) * _factor(match[2], dimension, name, text)
    if float(match[1]) and not _SMALLEST <= abs(value) <= _LARGEST:
        raise InvalidInput(
            f"{name} must be 0 or {_SMALLEST:g} to {_LARGEST:g} {dimension}, got {text!r}; write {example}"
        )
    return value


def _factor(unit: str, dimension: Dimension, name: str, text: str) -> float:
    example = _EXAMPLES[dimension]
    try:
        return _known_factor(unit, dimension)
    except Exception as error:
        known = "an unknown unit" if "not defined" in str(error) else "a unit of another kind"
        raise InvalidInput(f"{name} has {known}, got {text!r}; write {example}") from error


@cache
def _known_factor(unit: str, dimension: Dimension) -> float:
    registry = _registry()
    return float(registry.parse_expression(unit).to(registry.parse_expression(dimension.value).units).magnitude)


_SIZE = re.compile(r"([0-9]+)([KMG]?)")
_LARGEST_SIZE = 2**62
_SIZE_FACTORS = {"": 1, "K": KIB, "M": MIB, "G": GIB}


def parse_size(text: str, *, name: str = "size") -> Bytes:
    """Read one message size in nccl-tests' grammar: plain bytes, or K, M, G = 2**10, 2**20, 2**30."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"{name} must be whole bytes with an optional K, M or G (2**10, 2**20, 2**30), "
            f"got {text!r}; write 4, 64K or 32M"
        )
    size = int(match[1]) * _SIZE_FACTORS[match[2]] if len(match[1]) < 20 else _LARGEST_SIZE + 1
    if size > _LARGEST_SIZE:
        raise InvalidInput(f"{name} must be 2**62 bytes or fewer, got {text!r}; write 4, 64K or 32M")
    return size


def parse_sizes(text: str) -> list[Bytes]:
    """Read message sizes: "begin:end:factor" as nccl-tests does, one size, or a comma-separated list."""
    if ":" not in text:
        return [parse_size(part.strip(), name="sizes") for part in text.split(",")]
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise InvalidInput(f"sizes must be begin:end:factor, got {text!r}; write 4:32M:2")
    begin, end = (parse_size(part, name="sizes") for part in parts[:2])
    factor = int(parts[2]) if len(parts) == 3 and parts[2].isdigit() else 2 if len(parts) == 2 else 0
    if factor < 2:
        raise InvalidInput(f"sizes needs a whole factor of 2 or more, got {text!r}; write 4:32M:2")
    if begin > end:
        raise InvalidInput(f"sizes must not begin above their end, got {text!r}; write 4:32M:2")
    if begin == 0:
        raise InvalidInput(f"sizes cannot grow from 0 by a factor, got {text!r}; write 4:32M:2")
    return _geometric(begin, end, factor)


def _geometric(begin: int, end: int, factor: int) -> list[int]:
    sizes = [begin]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    return sizes


def format_si(value: float, unit: str, *, digits: int = 4) -> str:
    """Format with a decimal prefix, for tables and pictures only: 1.25e10, "B/s" -> "12.5 GB/s"."""
    steps: Sequence[tuple[float, str]] = (
        (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""),
        (1e-3, "m"), (1e-6, "u"), (1e-9, "n"),
    )  # fmt: skip
    for scale, prefix in steps:
        if abs(value) >= scale:
            return f"{value / scale:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def format_duration(seconds: Seconds) -> str:
    """Format a time for a human: us, ms, s, min, h or days."""
    for scale, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if abs(seconds) >= 2 * scale:
            return f"{seconds / scale:.4g} {unit}"
    return format_si(seconds, "s")
