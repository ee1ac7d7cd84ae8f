"""Formulas for idle, equal, full-duplex ports: oracles that the engines are held against.

Here n is ranks, S bytes per rank, alpha s per message, beta s per byte on the wire, gamma s per byte
added. All hold where the chunks divide S and all ranks start together.

Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005; for torus2d Mikami et al., arXiv 1811.05233.
"""

from __future__ import annotations

import math

from simnet.errors import InvalidInput
from simnet.units import Seconds, SecondsPerByte


def ring(n: int, num_bytes: float, alpha: Seconds, beta: SecondsPerByte, gamma: SecondsPerByte = 0.0) -> Seconds:
    """All-reduce around one ring: 2(n-1) messages of S/n."""
    return 2 * (n - 1) * (alpha + num_bytes / n * beta) + (n - 1) * num_bytes / n * gamma


def torus2d(
    grid: tuple[int, int], num_bytes: float, alpha: Seconds, beta: SecondsPerByte, gamma: SecondsPerByte = 0.0
) -> Seconds:
    """Reduce-scatter along rows of X ranks, all-reduce along columns of Y on S/X, all-gather along rows."""
    columns, rows = grid
    along_rows = ring(columns, num_bytes, alpha, beta, gamma)
    return along_rows + ring(rows, num_bytes / columns, alpha, beta, gamma)


def recursive_doubling(
    n: int, num_bytes: float, alpha: Seconds, beta: SecondsPerByte, gamma: SecondsPerByte = 0.0
) -> Seconds:
    """All-reduce in log2 n exchanges of everything; n must be a power of two."""
    return _rounds(n) * (alpha + num_bytes * (beta + gamma))


def halving_doubling(
    n: int, num_bytes: float, alpha: Seconds, beta: SecondsPerByte, gamma: SecondsPerByte = 0.0
) -> Seconds:
    """All-reduce by halving, then doubling, what is exchanged; n must be a power of two."""
    return 2 * _rounds(n) * alpha + (n - 1) / n * num_bytes * (2 * beta + gamma)


def _rounds(n: int) -> int:
    if n & (n - 1):
        raise InvalidInput(f"the formula needs a power of two, got {n} ranks; use estimate")
    return int(math.log2(n))


def bandwidth_bound(n: int, num_bytes: float, beta: SecondsPerByte) -> Seconds:
    """No all-reduce of one-port ranks moves less than 2(n-1)/n S out of some rank."""
    return 2 * (n - 1) / n * num_bytes * beta


def latency_bound(n: int, alpha: Seconds) -> Seconds:
    """No sum of n ranks' data is anywhere before ceil(log2 n) messages in a row."""
    return math.ceil(math.log2(n)) * alpha if n > 1 else 0.0
