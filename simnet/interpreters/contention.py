"""Which links can ever make one message wait for another.

A link may be left out of all sharing when (a) one rank and channel has an end in all its messages and
sends at most one through it per step, (b) one (src, dst, channel) alone uses it, or (c) the links
beside it can never fill it. What remains is *contended*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simnet.interpreters.messages import BoolArray, distinct, messages, repeated
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
    if not reverse:
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
    """Every (message, link) pair of all groups, sorted by link; a message here is a (src, dst, channel).

    src_end, dst_end : lane, rank and channel as one number
    most : per link, the most messages of one step, (num_links,)
    """

    link: IntArray
    message: IntArray
    src_end: IntArray
    dst_end: IntArray
    before: IntArray
    after: IntArray
    most: IntArray


def _all_uses(groups: Sequence[Group], paths: Paths, *, reverse: bool) -> _Uses:
    num_links = len(paths.link_bandwidth)
    most = np.zeros(num_links, np.int64)
    parts: list[tuple[IntArray, ...]] = []
    channels = max(group.schedule.num_channels for group in groups)
    for number, group in enumerate(groups):
        triples = _triples(group, paths, most, reverse=reverse)
        pair, channel = np.divmod(triples, group.schedule.num_channels)
        src, dst = np.divmod(pair, paths.world_size)
        base = group.lane * paths.world_size * channels
        message = triples + number * paths.world_size**2 * channels
        for routes in _ways(paths, src, dst, reverse=reverse):
            row, link, before, after = _entries(routes)
            ends = ((base + rank * channels + channel)[row] for rank in (src, dst))
            parts.append((link, message[row], *ends, before, after))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    link, message, src_end, dst_end, before, after = (column[order] for column in columns)
    return _Uses(link, message, src_end, dst_end, before, after, most)


def _triples(group: Group, paths: Paths, most: IntArray, *, reverse: bool) -> IntArray:
    """Distinct (src, dst, channel) of a group as numbers; raises `most` to the messages per link of its steps."""
    found_all = [np.zeros(0, np.int64)]
    for item in group.schedule.steps():
        found = messages(repeated(item)[0], group.schedule)
        if len(found):
            src, dst = group.place(found.src), group.place(found.dst)
            ways = _ways(paths, src, dst, reverse=reverse)
            links = np.concatenate([routes.links for routes in ways])
            np.maximum(most, np.bincount(links, minlength=len(most)), out=most)
            key = (src * paths.world_size + dst) * group.schedule.num_channels + found.channel
            found_all.append(np.unique(key))
    return np.unique(np.concatenate(found_all))


def _ways(paths: Paths, src: IntArray, dst: IntArray, *, reverse: bool) -> list[Routes]:
    """Routes of messages, and with `reverse` those of their acknowledgements."""
    there = paths.routes(src, dst)
    return [there, paths.routes(dst, src)] if reverse else [there]


def _serial(uses: _Uses, num_links: int, *, eager: bool) -> BoolArray:
    """Links that carry one message at a time, by the program order of one end or because one message uses them."""
    serial = np.bincount(uses.link, minlength=num_links) <= 1
    if len(uses.link):
        links = np.unique(uses.link)
        one_end = _one_end(uses.link, uses.src_end)
        serial[links] |= (one_end if eager else one_end | _one_end(uses.link, uses.dst_end)) & (uses.most[links] <= 1)
    return serial


def _entries(routes: Routes) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Message, link, link before and link after (-1 for none) of every hop."""
    length = np.diff(routes.first)
    message = np.repeat(np.arange(len(length)), length)
    before = np.concatenate([[-1], routes.links[:-1]])
    after = np.concatenate([routes.links[1:], [-1]])
    before[routes.first[:-1][length > 0]] = -1
    after[routes.first[1:][length > 0] - 1] = -1
    return message, routes.links, before, after


def _one_end(link: IntArray, end: IntArray) -> BoolArray:
    starts = np.flatnonzero(np.concatenate([[True], link[1:] != link[:-1]]))
    return np.minimum.reduceat(end, starts) == np.maximum.reduceat(end, starts)


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
            near = np.unique(beside)
            if near[0] >= 0 and not out[near].any() and largest[near].sum() <= least[link] * (1 + 1e-12):
                out[link] = True
                break
    return out


def _doubles(widths: Widths, uses: _Uses, contended: BoolArray) -> BoolArray:
    """Links that carry the very messages of a link which is never wider."""
    out = np.zeros(len(widths.least), bool)
    narrowest: dict[bytes, int] = {}
    candidates = np.flatnonzero(contended)
    for link in candidates[np.argsort(widths.largest[candidates], kind="stable")].tolist():
        key = np.sort(uses.message[_rows(uses, link)]).tobytes()
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
