"""A timeline as a Chrome trace, which Perfetto and chrome://tracing open.

One process per rank with a track for what it sends and one for what it receives, per channel; one counter
track per link with the messages on it. Times are in us.

Source: Trace Event Format, Google, 2016 (events X, M, C, s, f).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simnet.paths import Paths
from simnet.results import Timeline

US = 1e6


def write_trace(events: Timeline, path: Path, *, paths: Paths, link_names: Sequence[str], name: str = "") -> None:
    """Write a trace, event by event.

    Parameters
    ----------
    link_names : of every link of the paths
    name : of the collective, shown with every message
    """
    with path.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        for number, event in enumerate(trace_events(events, paths, link_names, name)):
            out.write((",\n" if number else "") + json.dumps(event))
        out.write("\n]}\n")


def trace_events(events: Timeline, paths: Paths, link_names: Sequence[str], name: str = "") -> Iterator[dict[str, Any]]:
    """Yield the events of a trace: names of the tracks, messages, arrows, links."""
    for rank in range(events.world_size):
        yield {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}}
        yield {"ph": "M", "pid": rank, "name": "process_sort_index", "args": {"sort_index": rank}}
    yield from _tracks(events)
    for number in range(len(events)):
        yield from _message(number, name, events)
    yield from _link_counters(events, paths, link_names)


def _tracks(events: Timeline) -> Iterator[dict[str, Any]]:
    for end, way in ((events.src, 0), (events.dst, 1)):
        for rank, channel in np.unique(np.stack([end, events.channel]), axis=1).T.tolist():
            label = f"channel {channel} {'receives' if way else 'sends'}"
            yield {"ph": "M", "pid": rank, "tid": 2 * channel + way, "name": "thread_name", "args": {"name": label}}


def _message(number: int, name: str, events: Timeline) -> Iterator[dict[str, Any]]:
    job, step, src, dst, channel, num_bytes = (
        int(column[number])
        for column in (events.job, events.step, events.src, events.dst, events.channel, events.num_bytes)
    )
    start, wire, end = (float(column[number]) for column in (events.start, events.wire, events.end))
    args = {
        "Collective name": name, "Src Rank": src, "Dst Rank": dst, "bytes": num_bytes, "step": step, "job": job,
        "latency_us": (wire - start) * US,
    }  # fmt: skip
    whole = {"ph": "X", "ts": start * US, "dur": (end - start) * US, "cat": "message", "args": args}
    yield whole | {"pid": src, "tid": 2 * channel, "name": f"to {dst}"}
    yield whole | {"pid": dst, "tid": 2 * channel + 1, "name": f"from {src}"}
    arrow = {"cat": "message", "name": "message", "id": number}
    yield arrow | {"ph": "s", "pid": src, "tid": 2 * channel, "ts": wire * US}
    yield arrow | {"ph": "f", "bp": "e", "pid": dst, "tid": 2 * channel + 1, "ts": end * US}


def _link_counters(events: Timeline, paths: Paths, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Messages on each link whenever their number changes, in time order per link."""
    if not len(events):
        return
    links = events.world_size
    yield {"ph": "M", "pid": links, "name": "process_name", "args": {"name": "links: messages on the wire"}}
    routes = paths.routes(events.src, events.dst)
    message = np.repeat(np.arange(len(events)), np.diff(routes.first))
    link = np.tile(routes.links, 2)
    time = np.concatenate([events.wire[message], events.end[message]])
    change = np.repeat([1, -1], len(message))
    order = np.lexsort((change, time, link))
    link, time, change = link[order], time[order], change[order]
    level = np.cumsum(change)
    last = np.concatenate([(link[1:] != link[:-1]) | (time[1:] != time[:-1]), [True]])
    for number, when, messages in zip(link[last].tolist(), time[last].tolist(), level[last].tolist(), strict=True):
        yield {"ph": "C", "pid": links, "name": names[number], "ts": when * US, "args": {"messages": messages}}
