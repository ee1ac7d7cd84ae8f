"""Elements of one array inside a large JSON document, one at a time.

Kineto and execution traces are one object with an array of events; Chrome traces may be the bare array,
and are legally cut before its end. Memory holds one element and one piece of text.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from simnet.errors import InvalidInput
from simnet.importers.lines import open_text

_PIECE = 1 << 18
_LONGEST = 1 << 26
_SPACE = " \t\r\n"


@dataclass(slots=True)
class JsonStream:
    """A document being read; `header` fills with its other top-level values, `cut` tells a missing end."""

    path: Path
    array: str
    header: dict[str, Any] = field(default_factory=dict)
    cut: bool = False
    _text: str = ""
    _at: int = 0
    _ended: bool = False

    def elements(self) -> Iterator[Any]:
        """Yield elements of the array as they are read.

        Raises
        ------
        InvalidInput : not JSON before anything was cut off.
        """
        with open_text(self.path) as file:
            try:
                first = self._peek(file)
                if first == "[":
                    yield from self._array(file)
                elif first == "{":
                    yield from self._object(file)
                else:
                    raise InvalidInput(f"{self.path} is not JSON: it starts with {first!r}")
            except (EOFError, OSError, zlib.error):
                self.cut = True

    def _object(self, file: TextIO) -> Iterator[Any]:
        self._at += 1
        while self._peek(file) != "}":
            key = self._value(file)
            self._skip(file, ":")
            if key == self.array and self._peek(file) == "[":
                yield from self._array(file)
            else:
                self.header[str(key)] = self._value(file)
            if self._peek(file) == ",":
                self._at += 1

    def _array(self, file: TextIO) -> Iterator[Any]:
        self._at += 1
        while self._peek(file) != "]":
            yield self._value(file)
            if self._peek(file) == ",":
                self._at += 1
        self._at += 1

    def _peek(self, file: TextIO) -> str:
        """Return the next character that is no space."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            self._more(file)

    def _skip(self, file: TextIO, character: str) -> None:
        if self._peek(file) != character:
            raise InvalidInput(f"{self.path} is not JSON: {character!r} is missing near {self._near()!r}")
        self._at += 1

    def _value(self, file: TextIO) -> Any:
        """Decode the value here, reading on until it is whole."""
        self._peek(file)
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (json.JSONDecodeError, RecursionError) as error:
                if len(self._text) - self._at > _LONGEST or self._ended or isinstance(error, RecursionError):
                    self._give_up(error)
                self._more(file)
                continue
            if end == len(self._text) and not self._ended and self._text[end - 1] not in '"}]':
                self._more(file)
                continue
            self._at = end
            return value

    def _give_up(self, error: Exception) -> None:
        if self._ended:
            raise EOFError
        raise InvalidInput(f"{self.path} is not JSON near {self._near()!r}: {error}") from error

    def _near(self) -> str:
        return self._text[self._at : self._at + 40]

    def _more(self, file: TextIO) -> None:
        if self._ended:
            raise EOFError
        size = max(_PIECE, len(self._text) - self._at)
        piece = file.read(size)
        self._ended = not piece
        self._text, self._at = self._text[self._at :] + piece, 0


_DECODER = json.JSONDecoder()
