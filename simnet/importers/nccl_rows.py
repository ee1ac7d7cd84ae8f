"""One row of an nccl-tests table: taking it apart, and checking that its columns agree.

A row states the same fact several times (size, count and type; size, time and algbw), each rounded on its
own. Columns that contradict each other beyond that rounding mean a damaged row, which is never used.

Source: nccl-tests, src/common.cu and src/util.cu.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from simnet.importers.lines import plain_numbers
from simnet.units import GB, US, Bytes, Seconds

ITEM_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "half": 2, "float16": 2, "fp16": 2, "bfloat16": 2, "bf16": 2, "int16": 2, "uint16": 2,
    "float": 4, "float32": 4, "fp32": 4, "int32": 4, "uint32": 4, "int": 4,
    "double": 8, "float64": 8, "fp64": 8, "int64": 8, "uint64": 8,
}  # fmt: skip
REDUCTIONS = ("sum", "prod", "max", "min", "avg", "mulsum")

_TYPES = "|".join(sorted(ITEM_BYTES, key=len, reverse=True))
ROW_START = re.compile(
    rf"(?:^|(?<=[\s:>\]|,]))(\d+)\s+(\d+|N/A)\s+({_TYPES})\s+(?:({'|'.join(REDUCTIONS)}|none)(?![\w.]))?"
)
_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|N/A|inf|-?nan")
_INTEGER = re.compile(r"-?\d+")
_FUNCTION = re.compile(r"[A-Za-z_]\w*\(\), \S+?\.(?:cu|cc|cpp|h):\d+,?")


@dataclass(frozen=True, slots=True)
class Start:
    """The columns a row begins with; root is among the figures until the header tells."""

    size: Bytes
    count: int | None
    dtype: str
    redop: str | None


@dataclass(frozen=True, slots=True)
class Half:
    """Out-of-place or in-place figures as printed; `step` is one unit of the last printed digit of the time."""

    time: Seconds
    step: Seconds
    algbw: float
    busbw: float | None
    wrong: str

    def bandwidth_range(self, size: Bytes) -> tuple[float, float]:
        """Smallest and largest size/time in bytes/s that rounding of the printed time allows."""
        return size / (self.time + self.step / 2), size / max(self.time - self.step / 2, self.step / 4)


def without_functions(text: str) -> str:
    """Remove names of functions that a patched build prints between the columns."""
    return _FUNCTION.sub(" ", text) if "(), " in text else text


def row_start(text: str) -> tuple[Start, list[str]] | None:
    """Return size, count, type, redop and the figures after them, or None where no row starts."""
    text = plain_numbers(text)
    match = ROW_START.search(text)
    if match is None:
        return None
    size, count, dtype, redop = match.groups()
    start = Start(int(size), None if count == "N/A" else int(count), dtype, redop)
    return start, list(figures(text[match.end() :]))


def figures(text: str) -> Iterator[str]:
    """Yield the leading tokens that are numbers or N/A; anything else ends them."""
    for token in text.split():
        if _NUMBER.fullmatch(token) is None and _INTEGER.fullmatch(token) is None:
            return
        yield token


def half(tokens: list[str]) -> Half | None:
    """Read time, algbw, busbw and the error or #wrong column; None where one is missing or absurd."""
    if len(tokens) != 4 or not all(_NUMBER.fullmatch(token) for token in tokens):
        return None
    if "N/A" in tokens[:2] or any("n" in token for token in tokens[:3]):
        return None
    time = float(tokens[0]) * US
    busbw = None if tokens[2] == "N/A" else float(tokens[2]) * GB
    return Half(time, _last_digit(tokens[0]) * US, float(tokens[1]) * GB, busbw, tokens[3]) if time > 0 else None


def _last_digit(text: str) -> float:
    mantissa, _, exponent = text.lower().partition("e")
    _, _, decimals = mantissa.partition(".")
    return 10.0 ** (int(exponent or 0) - len(decimals))


def parts(start: Start) -> int | None:
    """How many times count x item size fits into size: 1, or the ranks; None where it does not, 0 for unknown."""
    if start.count is None or start.size == start.count == 0:
        return 0
    block = start.count * ITEM_BYTES[start.dtype]
    return start.size // block if block and start.size % block == 0 else None


def agrees(printed: float, size: Bytes, figures: Half, scale: float = 1.0) -> bool:
    """Whether a printed bandwidth is scale x size/time, both rounded as printed."""
    low, high = figures.bandwidth_range(size)
    slack = 0.0051 * GB
    return low * scale * 0.9999 - slack <= printed <= high * scale * 1.0001 + slack
