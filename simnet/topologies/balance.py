"""How messages are spread over equal paths."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from simnet.errors import InvalidInput

Chooser = Callable[[int, int], int]


def chooser(routing: str, count: int, *, seed: int = 0) -> Chooser:
    """Return which of `count` equal paths a message between two end points takes.

    Parameters
    ----------
    routing : "deterministic" takes the destination modulo the number of paths (d-mod-k, as InfiniBand's fat
        tree routing does); "hashed" takes a hash of both ends, as Ethernet's equal-cost multi-path does.

    Raises
    ------
    InvalidInput : another word.
    """
    match routing:
        case "deterministic":
            return lambda src, dst: dst % count
        case "hashed":
            return lambda src, dst: crc32(f"{seed}:{src}:{dst}".encode()) % count
        case _:
            raise InvalidInput(f"routing must be deterministic or hashed, got {routing!r}")
