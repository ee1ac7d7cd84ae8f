"""A trace of one rank as a program: compute, collectives and what waits for what, to be run elsewhere.

Kineto records kernels and when the processor launched them, but no dependencies between streams; they are
inferred, and every rule that was used is listed with the result. Chakra nodes name their dependencies.

Source: Trace Event Format; kineto, libkineto/src/output_json.cpp; mlcommons/chakra, schema/protobuf/et_def.proto.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, TypeGuard

from simnet.errors import InvalidInput
from simnet.importers.execution_trace import collective as chakra_collective
from simnet.importers.json_stream import JsonStream
from simnet.importers.kineto import collective_of, message_bytes
from simnet.job import Operation, TraceJob
from simnet.units import US, Bytes, Seconds

_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_WAIT: Seconds = 10e-6
_LOOK_BACK = 1000


def read_trace_job(path: str | Path) -> TraceJob:
    """Read a Kineto trace, or Chakra nodes with durations, of one rank.

    Raises
    ------
    InvalidInput : nothing in it ran for a known time, or it breaks off.
    """
    path = Path(path)
    raw = _Raw()
    stream = JsonStream(path, "traceEvents")
    for event in stream.elements():
        if isinstance(event, dict):
            _take(event, raw)
    nodes = stream.header.get("nodes")
    if not raw.work and isinstance(nodes, list):
        return _chakra(path, nodes)
    if not raw.work:
        raise InvalidInput(
            f"{path} holds no device work with a time, so it cannot be replayed; give a Kineto trace with kernels"
        )
    if raw.untimed:
        raise InvalidInput(
            f"{path} holds {raw.untimed} pieces of device work without a time of 0 or more; a job with holes "
            "cannot be replayed, export the trace again"
        )
    if stream.cut:
        raise InvalidInput(f"{path} breaks off, and half a step cannot be replayed; export the trace again")
    return _kineto(path, raw, stream.header)


@dataclass(frozen=True, slots=True)
class _Work:
    """A device event."""

    start: Seconds
    duration: Seconds
    stream: tuple[Any, Any]
    name: str
    correlation: Any
    collective: str | None
    size_bytes: Bytes | None
    ranks: int | None


@dataclass(slots=True)
class _Raw:
    """Events of a trace that matter."""

    work: list[_Work] = field(default_factory=list)
    launches: dict[Any, Seconds] = field(default_factory=dict)
    steps: set[str] = field(default_factory=set)
    untimed: int = 0


def _take(event: Mapping[str, Any], raw: _Raw) -> None:
    category, time, args = event.get("cat"), event.get("ts"), event.get("args")
    name = str(event.get("name", ""))
    if event.get("ph") != "X":
        return
    if not _is_time(time) or (category in _DEVICE_WORK and not _is_time(event.get("dur"))):
        raw.untimed += category in _DEVICE_WORK
        return
    values = args if isinstance(args, dict) else {}
    if name.startswith("ProfilerStep#"):
        raw.steps.add(name)
    if category in ("cuda_runtime", "cuda_driver"):
        raw.launches[values.get("correlation")] = time * US
    elif category in _DEVICE_WORK:
        raw.work.append(_work(event, name, time * US, values))


def _of_kernel(name: str) -> str:
    """Kind of collective by the kernel's own name, where its arguments do not tell; its size stays unknown."""
    match = re.search(r"AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv", name)
    return (collective_of(match[0]) if match else None) or "unknown"


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0


def _work(event: Mapping[str, Any], name: str, start: Seconds, args: Mapping[str, Any]) -> _Work:
    kind = None
    if "nccl" in name.lower():
        kind = collective_of(str(args.get("Collective name", ""))) or _of_kernel(name)
    ranks = args.get("Group size")
    return _Work(
        start, event["dur"] * US, (event.get("pid"), event.get("tid")), name, args.get("correlation"), kind,
        message_bytes(kind, args) if kind else None, ranks if isinstance(ranks, int) else None,
    )  # fmt: skip


def _kineto(path: Path, raw: _Raw, header: Mapping[str, Any]) -> TraceJob:
    """Order the work and infer what waits for what."""
    raw.work.sort(key=lambda work: work.start)
    streams = {name: index for index, name in enumerate(dict.fromkeys(work.stream for work in raw.work))}
    operations = tuple(_infer(raw, streams))
    info = header.get("distributedInfo")
    told = info.get("world_size") if isinstance(info, dict) else None
    world = int(str(told)) if str(told).isdigit() and int(str(told)) > 0 else None
    recorded = max(_end(work) for work in raw.work) - raw.work[0].start
    return TraceJob(str(path), operations, world, max(len(raw.steps), 1), tuple(_assumptions(operations)), recorded)


def _infer(raw: _Raw, streams: Mapping[Any, int]) -> Iterator[Operation]:
    """Give each piece of work its dependencies and the gap nothing explains."""
    done: dict[int, list[int]] = {stream: [] for stream in streams.values()}
    work = raw.work
    for index, item in enumerate(work):
        stream = streams[item.stream]
        ready = _end(work[done[stream][-1]]) if done[stream] else work[0].start
        waits = _awaited(raw, item, [held for name, held in done.items() if name != stream], ready)
        free = max([ready, *(_end(work[i]) for i in waits)])
        done[stream].append(index)
        yield Operation(
            item.name, stream, item.duration, max(item.start - free, 0.0), tuple(waits), item.collective,
            item.size_bytes, item.ranks,
        )  # fmt: skip


def _end(work: _Work) -> Seconds:
    return work.start + work.duration


def _awaited(raw: _Raw, item: _Work, others: Iterable[Sequence[int]], ready: Seconds) -> list[int]:
    """What this waits for among the work of other streams, one of each; its own stream is free at `ready`.

    A collective waits for the last compute that was launched before it and had ended. Compute waits for a collective
    that ended while its own stream stood still.
    """
    work = raw.work
    if item.collective is not None:
        mine = raw.launches.get(item.correlation)
        found = (_last(held, lambda i: _end(work[i]) <= item.start and _before(raw, work[i], mine)) for held in others)
        return [i for i in found if i is not None]
    if item.start - ready < _WAIT:
        return []
    last = [held[-1] for held in others if held]
    return [i for i in last if work[i].collective is not None and ready < _end(work[i]) <= item.start]


def _last(held: Sequence[int], wanted: Callable[[int], bool]) -> int | None:
    """The latest of these, among the last few, that is wanted."""
    return next((i for i in reversed(held[-_LOOK_BACK:]) if wanted(i)), None)


def _before(raw: _Raw, work: _Work, second: Seconds | None) -> bool:
    first = raw.launches.get(work.correlation)
    return first is None or second is None or first <= second


def _assumptions(operations: Iterable[Operation]) -> Iterator[str]:
    listed = list(operations)
    yield "work of one stream runs in its recorded order"
    if any(op.collective and op.after for op in listed):
        yield "a collective waits for the last work of other streams that was launched before it and had ended"
    if any(not op.collective and op.after for op in listed):
        yield f"compute starting {_WAIT / US:g} us or more after its stream went idle waits for a collective ended then"
    if any(op.gap > _WAIT for op in listed):
        yield "a pause that no dependency explains is the processor launching late, and stays as long as recorded"


def _chakra(path: Path, nodes: Iterable[Any]) -> TraceJob:
    """Chakra nodes with durations: one stream each for compute and communication, dependencies as named."""
    timed = [node for node in nodes if isinstance(node, dict) and _duration(node) > 0]
    if not timed:
        raise InvalidInput(
            f"{path} names operations without device times, so it cannot be replayed; give the Kineto trace of the run"
        )
    timed.sort(key=lambda node: (node.get("start_time_micros") or 0, node.get("id", 0)))
    places = {node.get("id"): index for index, node in enumerate(timed)}
    ends: list[Seconds] = []
    operations = []
    free = [0.0, 0.0]
    for node in timed:
        found = chakra_collective(node)
        stream = int(found is not None)
        wanted = [*_listed(node.get("data_deps")), *_listed(node.get("ctrl_deps"))]
        after = tuple(places[i] for i in wanted if i in places and places[i] < len(ends))
        start = max([free[stream], *(ends[i] for i in after)])
        ends.append(start + _duration(node))
        free[stream] = ends[-1]
        kind, size, ranks = found or (None, None, None)
        operations.append(Operation(str(node.get("name")), stream, _duration(node), 0.0, after, kind, size, ranks))
    assumed = ("compute runs on one stream and communication on another, each in recorded order",)
    return TraceJob(str(path), tuple(operations), None, 1, assumed, max(ends))


def _duration(node: Mapping[str, Any]) -> Seconds:
    value = node.get("duration_micros")
    return value * US if _is_time(value) else 0.0


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
