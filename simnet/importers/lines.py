"""Text of any vintage as numbered lines, in constant memory.

Takes UTF-8 with or without a byte order mark, UTF-16 with one, any line ends, gzip, and bytes that are no
text at all (replaced, so that a row they hit fails its checks instead of the whole file).
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from simnet.errors import InvalidInput
from simnet.importers.record import Line

LONGEST_LINE = 8 * 2**20
_COMMA = re.compile(r"\d,\d")
_THOUSANDS = re.compile(r"(?<![\w.,:])\d{1,3}(?:,\d{3})+(?![\w,])")
_DECIMAL_COMMA = re.compile(r"(?<![\w.,:])(\d+),(\d{1,2})(?![\w.,])")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def open_bytes(path: Path) -> BinaryIO:
    """Open a file, decompressed where it is gzip.

    Raises
    ------
    InvalidInput : no such file, a folder, or not readable.
    """
    try:
        raw = path.open("rb")
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}; give a log that exists") from error
    return gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[return-value]


def open_text(path: Path) -> io.TextIOWrapper:
    """Open a file as text; bytes that are no text become U+FFFD."""
    raw = io.BufferedReader(open_bytes(path))  # type: ignore[type-var]
    try:
        start = raw.peek(4)[:4]
    except (EOFError, OSError, zlib.error) as error:
        raise InvalidInput(f"{path} is a damaged gzip file: {error}; copy it again") from error
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline=None)


def read_lines(path: Path) -> Iterator[Line]:
    """Yield numbered lines without their ends and without terminal colours; a line too long to be one is cut.

    Raises
    ------
    InvalidInput : a gzip file that is damaged.
    """
    with open_text(path) as text:
        number = 0
        try:
            while piece := text.readline(LONGEST_LINE):
                number += 1
                yield _line(number, piece)
        except (EOFError, OSError, zlib.error) as error:
            raise InvalidInput(f"{path} is damaged after line {number}: {error}; copy it again") from error


def plain_numbers(text: str) -> str:
    """Write "33,554,432" and "17,98" of other locales as the C locale does; readers check what such numbers say."""
    if not _COMMA.search(text):
        return text
    text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    return _DECIMAL_COMMA.sub(r"\1.\2", text)


def _line(number: int, piece: str) -> Line:
    ended = piece.endswith("\n")
    content = piece[:-1] if ended else piece
    if "\x1b" in content:
        content = _ANSI.sub("", content)
    return Line(number, content, ended)
