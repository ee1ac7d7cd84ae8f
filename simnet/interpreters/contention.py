"""Which links can ever make one message wait for another.

A link may be left out of all sharing when (a) one rank and channel has an end in all its messages and
sends at most one through it per step, (b) one (src, dst, channel) alone uses it, or (c) the links
beside it can never fill it. What remains is *contended*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simnet.interpreters.messages import BoolArray, distinct, messages, repeated, rising
from simnet.paths import FloatArray, Paths, Routes, UniformPaths
from simnet.schedule import IntArray, Schedule


@dataclass(frozen=True, slots=True)
class Group:
    """A schedule at work on some ranks of the paths.

    ranks : rank of the paths that each rank of the schedule is, (world_size,); None where they are the same
    lane : groups of one lane follow each other on every rank
    """

    schedule: Schedule
    ranks: IntArray | None = None
    lane: int = 0

    def place(self, rank: IntArray) -> IntArray:
        """Ranks of the paths."""
        return rank if self.ranks is None else self.ranks[rank]


@dataclass(frozen=True, slots=True)
class Widths:
    """Least and largest bandwidth each link ever has, bytes/s, each (num_links,)."""

    least: FloatArray
    largest: FloatArray

    @classmethod
    def of(cls, bandwidth: FloatArray) -> Widths:
        """Widths of links that keep their bandwidth, (num_links,), or take those of draws, (batch, num_links)."""
        table = np.atleast_2d(bandwidth)
        return cls(table.min(axis=0), table.max(axis=0))


def contended_links(
    groups: Sequence[Group], paths: Paths, *, widths: Widths | None = None, eager: bool = False, reverse: bool = False
) -> BoolArray:
    """Links on which messages of these groups can meet, shape (num_links,).

    Parameters
    ----------
    widths : of the links where they vary; default is what the paths say
    eager : receivers need not be ready, so a rank's way in does not keep its messages apart
    reverse : acknowledgements flow back, so every way out carries something of every message in
    """
    plain = not eager and not reverse and len(groups) == 1 and groups[0].ranks is None
    if plain and isinstance(paths, UniformPaths):
        return _contended_ports(groups[0].schedule)
    widths = widths or Widths.of(paths.link_bandwidth)
    uses = _all_uses(groups, paths, reverse=reverse)
    contended = ~_serial(uses, len(widths.least), eager=eager)
    if not reverse and contended.any():
        uses = uses.on(contended)
        contended &= ~_never_full(widths, uses, contended)
        contended &= ~_doubles(widths, uses, contended)
    return contended


def _contended_ports(schedule: Schedule) -> BoolArray:
    n = schedule.world_size
    busiest = np.zeros(2 * n, np.int64)
    used_by = np.zeros((2, n), np.int64)
    for item in schedule.steps():
        found = messages(repeated(item)[0], schedule)
        for half, rank in ((busiest[:n], found.src), (busiest[n:], found.dst)):
            if not distinct(rank, n):
                np.maximum(half, np.bincount(rank, minlength=n), out=half)
        if schedule.num_channels > 1:
            _mark_channels(used_by[0], found.src, found.channel)
            _mark_channels(used_by[1], found.dst, found.channel)
    several = (used_by & (used_by - 1)) != 0
    return (busiest > 1) | several.reshape(-1)


def _mark_channels(used_by: IntArray, rank: IntArray, channel: IntArray) -> None:
    """Set the bit of each channel (above 62 they share the last), so that two bits mean two channels."""
    bit = np.left_shift(np.int64(1), np.minimum(channel, 62))
    np.bitwise_or.at(used_by, rank, bit)
    many = channel > 61
    used_by[rank[many]] |= 3


@dataclass(frozen=True, slots=True)
class _Uses:
    """Every (message, link) pair of all groups; a message here is a (src, dst, channel).

    row : of the message, each (num_pairs,)
    message, src_end, dst_end : a number for each message, and for each rank and channel it leaves and enters, with
        the lane, each (num_messages,)
    most : per link, the most messages of one step, (num_links,)
    """

    link: IntArray
    row: IntArray
    before: IntArray
    after: IntArray
    message: IntArray
    src_end: IntArray
    dst_end: IntArray
    most: IntArray

    def on(self, links: BoolArray) -> _Uses:
        """Uses of some links alone, (num_links,), sorted by link."""
        pairs = np.flatnonzero(links[self.link])
        pairs = pairs[rising(self.link[pairs])]
        link, row, before, after = (column[pairs] for column in (self.link, self.row, self.before, self.after))
        return replace(self, link=link, row=row, before=before, after=after)


def _all_uses(groups: Sequence[Group], paths: Paths, *, reverse: bool) -> _Uses:
    num_links = len(paths.link_bandwidth)
    most = np.zeros(num_links, np.int64)
    pairs: list[tuple[IntArray, ...]] = []
    rows: list[tuple[IntArray, ...]] = []
    channels = max(group.schedule.num_channels for group in groups)
    for group in groups:
        triples = _triples(group, paths, most, reverse=reverse)
        pair, channel = np.divmod(triples, group.schedule.num_channels)
        src, dst = np.divmod(pair, paths.world_size)
        base = group.lane * paths.world_size * channels
        number, first = len(rows), sum(len(row[0]) for row in rows)
        message = triples + number * paths.world_size**2 * channels
        rows.append((message, *(base + rank * channels + channel for rank in (src, dst))))
        for routes in _ways(paths, src, dst, reverse=reverse):
            row, link, before, after = _entries(routes)
            pairs.append((link, row + first, before, after))
    link, row, before, after = (_joined(column) for column in zip(*pairs, strict=True))
    message, src_end, dst_end = (_joined(column) for column in zip(*rows, strict=True))
    return _Uses(link, row, before, after, message, src_end, dst_end, most)


def _joined(columns: Sequence[IntArray]) -> IntArray:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _triples(group: Group, paths: Paths, most: IntArray, *, reverse: bool) -> IntArray:
    """Distinct (src, dst, channel) of a group as numbers; raises `most` to the messages per link of its steps."""
    found_all: list[IntArray] = []
    for item in group.schedule.steps():
        found = messages(repeated(item)[0], group.schedule)
        src, dst = group.place(found.src), group.place(found.dst)
        key = (src * paths.world_size + dst) * group.schedule.num_channels + found.channel
        if len(found) and not (found_all and np.array_equal(key, found_all[-1])):
            for_all = [routes.links for routes in _ways(paths, src, dst, reverse=reverse)]
            np.maximum(most, sum(np.bincount(links, minlength=len(most)) for links in for_all), out=most)
            found_all.append(key)
    if len(found_all) == 1:
        return found_all[0]
    return _each_once(np.concatenate([np.zeros(0, np.int64), *found_all]))


def _each_once(values: IntArray) -> IntArray:
    """Different values, rising; sorting is many times as quick as the hash table of np.unique."""
    known = np.sort(values)
    return known[np.concatenate([[True], known[1:] != known[:-1]])] if len(known) else known


def _ways(paths: Paths, src: IntArray, dst: IntArray, *, reverse: bool) -> list[Routes]:
    """Routes of messages, and with `reverse` those of their acknowledgements."""
    there = paths.routes(src, dst)
    return [there, paths.routes(dst, src)] if reverse else [there]


def _serial(uses: _Uses, num_links: int, *, eager: bool) -> BoolArray:
    """Links that carry one message at a time, by the program order of one end or because one message uses them."""
    alone = np.bincount(uses.link, minlength=num_links) <= 1
    one_end = _one_end(uses, uses.src_end, num_links)
    if not eager:
        one_end |= _one_end(uses, uses.dst_end, num_links)
    return alone | (one_end & (uses.most <= 1))


def _entries(routes: Routes) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Message, link, link before and link after (-1 for none) of every hop."""
    length = np.diff(routes.first)
    message = np.repeat(np.arange(len(length)), length)
    before = np.concatenate([[-1], routes.links[:-1]])
    after = np.concatenate([routes.links[1:], [-1]])
    before[routes.first[:-1][length > 0]] = -1
    after[routes.first[1:][length > 0] - 1] = -1
    return message, routes.links, before, after


def _one_end(uses: _Uses, end: IntArray, num_links: int) -> BoolArray:
    """Links whose messages all have the same end."""
    least, largest = np.full(num_links, np.iinfo(np.int64).max), np.full(num_links, -1)
    ends = end[uses.row]
    np.minimum.at(least, uses.link, ends)
    np.maximum.at(largest, uses.link, ends)
    return least == largest


def _never_full(widths: Widths, uses: _Uses, contended: BoolArray) -> BoolArray:
    """Links whose neighbours on either side, all kept, cannot bring together what would fill them.

    Leaving such a link out changes no feasible set of rates; the widest go first, and a neighbour that
    was left out no longer counts.
    """
    least, largest = widths.least, widths.largest
    out = np.zeros(len(least), bool)
    candidates = np.flatnonzero(contended)
    for link in candidates[np.argsort(-least[candidates], kind="stable")].tolist():
        rows = _rows(uses, link)
        for beside in (uses.before[rows], uses.after[rows]):
            near = _different(beside, len(out))
            if near[0] >= 0 and not out[near].any() and largest[near].sum() <= least[link] * (1 + 1e-12):
                out[link] = True
                break
    return out


def _different(links: IntArray, num_links: int) -> IntArray:
    """Links that occur, -1 for none among them, rising."""
    if len(links) < num_links // 8:
        return np.unique(links)
    seen = np.zeros(num_links + 1, bool)
    seen[links + 1] = True
    return np.flatnonzero(seen) - 1


def _doubles(widths: Widths, uses: _Uses, contended: BoolArray) -> BoolArray:
    """Links that carry the very messages of a link which is never wider."""
    out = np.zeros(len(widths.least), bool)
    narrowest: dict[bytes, int] = {}
    candidates = np.flatnonzero(contended)
    for link in candidates[np.argsort(widths.largest[candidates], kind="stable")].tolist():
        key = np.sort(uses.message[uses.row[_rows(uses, link)]]).tobytes()
        kept = narrowest.setdefault(key, link)
        out[link] = kept != link and widths.largest[kept] <= widths.least[link]
    return out


def _rows(uses: _Uses, link: int) -> slice:
    return slice(int(np.searchsorted(uses.link, link)), int(np.searchsorted(uses.link, link, side="right")))


def crowd(schedule: Schedule, paths: Paths, *, reverse: bool = False) -> IntArray:
    """Most messages that can ever be on each link at once, (num_links,): each source has one step in flight."""
    num_links, lanes = len(paths.link_bandwidth), schedule.world_size * schedule.num_channels
    keys, most = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for item in schedule.steps():
        found = messages(repeated(item)[0], schedule)
        lane = found.src * schedule.num_channels + found.channel
        routes = _ways(paths, found.src, found.dst, reverse=reverse)
        used = [r.links * lanes + np.repeat(lane, np.diff(r.first)) for r in routes]
        here, number = np.unique(np.concatenate(used), return_counts=True)
        keys, group = np.unique(np.concatenate([keys, here]), return_inverse=True)
        both = np.concatenate([most, number])
        most = np.zeros(len(keys), np.int64)
        np.maximum.at(most, group.reshape(-1), both)
    return np.bincount(keys // lanes, weights=most, minlength=num_links).astype(np.int64)
