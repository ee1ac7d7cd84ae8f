"""NCCL_DEBUG=INFO output: which rings and trees ran, over how many ranks and what transport.

No row carries a time, so there are facts and no measurements.

Source: NCCL 2.11 to 2.26, src/init.cc and src/graph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from simnet.importers.record import Fact, Item, Line, Note

FORMAT = "NCCL debug"
MARKER = r"NCCL (?:INFO|WARN|TRACE)|NCCL version \d"
_VERSION = re.compile(r"NCCL version (\d[\w.+]*)")
_RING = re.compile(r"Channel (\d+)/(\d+) :((?:\s+\d+)+)\s*$")
_TREES = re.compile(r"Trees((?: \[\d+\] -?\d+/-?\d+/-?\d+->-?\d+->-?\d+)+)\s*$")
_TREE = re.compile(r"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(-?\d+)->(-?\d+)")
_VIA = re.compile(r"-> .* via (\S+)")
_RANKS = re.compile(r"nranks (\d+)", re.IGNORECASE)
_WARN = re.compile(r"NCCL WARN (.*)")


def read(lines: Iterable[Line], path: str) -> Iterator[Item]:
    """Facts version, ranks, rings, trees, transports; warnings as notes."""
    versions: set[str] = set()
    ranks: set[int] = set()
    rings: dict[int, tuple[int, ...]] = {}
    trees: dict[int, dict[int, int]] = {}
    via: Counter[str] = Counter()
    warnings: dict[str, None] = {}
    clashes = 0
    for line in lines:
        text = line.text
        if match := _VERSION.search(text):
            versions.add(match[1])
        if "NCCL" not in text:
            continue
        if line.ended and (match := _RING.search(text)):
            ring = tuple(map(int, match[3].split()))
            clashes += rings.setdefault(int(match[1]), ring) != ring
        elif line.ended and (match := _TREES.search(text)):
            for channel, _, _, _, rank, parent in _TREE.findall(match[1]):
                trees.setdefault(int(channel), {})[int(rank)] = int(parent)
        elif match := _VIA.search(text):
            via[_transport(match[1])] += 1
        elif match := _WARN.search(text):
            warnings.setdefault(match[1][:200])
        if match := _RANKS.search(text):
            ranks.add(int(match[1]))
    yield from _facts(versions, ranks, rings, trees, via)
    yield from (Note(f"warning in the log: {text}") for text in list(warnings)[:5])
    if clashes:
        yield Note(f"{clashes} rings differ from an earlier one of the same channel: several communicators in one log")


def _transport(text: str) -> str:
    """P2P/IPC/read, NET/IB, SHM, without device numbers."""
    return re.sub(r"/\d+.*$", "", text.partition("[")[0])


def _facts(
    versions: set[str],
    ranks: set[int],
    rings: dict[int, tuple[int, ...]],
    trees: dict[int, dict[int, int]],
    via: Counter[str],
) -> Iterator[Item]:
    whole = {channel: ring for channel, ring in rings.items() if sorted(ring) == list(range(len(ring)))}
    if versions:
        yield Fact("nccl_version", " ".join(sorted(versions)))
    if ranks:
        yield Fact("nccl_ranks", sorted(ranks))
    if whole:
        yield Fact("rings", dict(sorted(whole.items())))
    if trees:
        yield Fact("trees", {channel: dict(sorted(parents.items())) for channel, parents in sorted(trees.items())})
    if via:
        yield Fact("transports", dict(via))
    if len(whole) < len(rings):
        yield Note(f"{len(rings) - len(whole)} rings are not a permutation of the ranks and are left out")
