"""Kineto and Chrome traces: collectives by the kernels that ran them, and Horovod's timeline.

A kernel's duration includes waiting for ranks that arrive late. Horovod's fused tensors share one
operation; they are one row.

Source: Trace Event Format; kineto, libkineto/src/output_json.cpp; Horovod, horovod/common/timeline.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite, prod
from pathlib import Path
from typing import Any

from simnet.importers.json_stream import JsonStream
from simnet.importers.record import Fact, Item, Note, Skipped
from simnet.results import Measurement
from simnet.units import US

FORMAT = "Kineto or Chrome trace"
MARKER = r'"traceEvents"|^\s*\[\s*\{[^{}]*"ph"\s*:'

ITEM_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "long": 8, "int": 4, "short": 2, "byte": 1, "char": 1,
    "bool": 1, "float32": 4, "float64": 8, "float16": 2, "int64": 8, "int32": 4, "uint8": 1, "int8": 1,
}  # fmt: skip
_NAMES = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "allgather": "all_gather",
    "_allgather_base": "all_gather", "allgather_into_tensor_coalesced": "all_gather",
    "reducescatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter", "broadcast": "broadcast",
    "_broadcast_oop": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "all_to_all": "all_to_all",
    "alltoall_base": "all_to_all", "all_to_allv": "all_to_all_v", "alltoallv": "all_to_all_v",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "_reduce_oop": "reduce", "send": "send", "recv": "recv",
}  # fmt: skip
_HOROVOD = re.compile(r"(?:NCCL|MPI|GLOO|CCL|DDL)_(ALLREDUCE|ALLGATHER|BCAST|BROADCAST|ALLTOALL|REDUCESCATTER)$")
_HOROVOD_NAMES = {
    "ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "BCAST": "broadcast", "BROADCAST": "broadcast",
    "ALLTOALL": "all_to_all", "REDUCESCATTER": "reduce_scatter",
}  # fmt: skip


def collective_of(name: str) -> str | None:
    """Spell a collective of torch's recorder or of a kernel's name as torch and NCCL spell it."""
    lower = name.lower().replace("nccl:", "").removeprefix("_")
    return _NAMES.get(lower) or _NAMES.get(lower.replace("_", "")) or _NAMES.get("_" + lower)


def message_bytes(collective: str, args: Mapping[str, Any]) -> int | None:
    """Whole bytes of a collective by nccl-tests' meaning of size; None where the trace does not tell."""
    item = ITEM_BYTES.get(str(args.get("dtype", "")).lower())
    key = "Out msg nelems" if collective == "all_gather" else "In msg nelems"
    count = args.get(key, args.get(key.lower().replace(" ", "_")))
    return count * item if item and isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


@dataclass(slots=True)
class _Fused:
    """One operation over the tensors fused into it: its window with queueing, tensors ended, bytes."""

    outer: tuple[float, float]
    ended: int = 0
    size: int = 0


@dataclass(slots=True)
class _Horovod:
    """Operations open by tensor, operations by (name, begin, end), and instants where begin and end do not match."""

    open: dict[Any, list[tuple[str, float]]] = field(default_factory=dict)
    inner: dict[Any, tuple[str, float, float]] = field(default_factory=dict)
    begun: dict[tuple[str, float], int] = field(default_factory=dict)
    fused: dict[tuple[str, float, float], _Fused] = field(default_factory=dict)
    broken: list[float] = field(default_factory=list)

    def whole(self) -> Iterator[tuple[tuple[str, float, float], int]]:
        """Operations all of whose tensors were followed to their end."""
        for key, fused in self.fused.items():
            low, high = fused.outer
            if self.begun[key[:2]] == fused.ended and not any(low <= time <= high for time in self.broken):
                yield key, fused.size


@dataclass(slots=True)
class _Count:
    """What the trace holds."""

    events: int = 0
    complete: int = 0
    kernels: int = 0
    nccl_kernels: int = 0
    unsized: int = 0
    broken: int = 0
    horovod: _Horovod = field(default_factory=_Horovod)


def read(path: Path) -> Iterator[Item]:
    """Rows of kernels and operations with a size, then counts as facts."""
    stream, count = JsonStream(path, "traceEvents"), _Count()
    for event in stream.elements():
        count.events += 1
        if not isinstance(event, dict):
            count.broken += 1
            continue
        item = _kernel(event, count, str(path))
        if item is not None:
            yield item
        _operation(event, count.horovod)
    for (name, begin, end), size in count.horovod.whole():
        yield Measurement(name, size, (end - begin) * US, source=str(path))
    yield from _facts(stream, count)


def _kernel(event: Mapping[str, Any], count: _Count, path: str) -> Item | None:
    """Row of an NCCL kernel; None for every other event."""
    count.complete += event.get("ph") == "X"
    if event.get("cat") not in ("kernel", "Kernel"):
        return None
    count.kernels += 1
    if "nccl" not in str(event.get("name", "")).lower():
        return None
    count.nccl_kernels += 1
    args = event.get("args") or {}
    duration = event.get("dur")
    name = collective_of(str(args.get("Collective name", ""))) if isinstance(args, dict) else None
    size = message_bytes(name, args) if name else None
    if name is None or size is None:
        count.unsized += 1
        return None
    if not isinstance(duration, int | float) or not isfinite(duration) or duration <= 0:
        return Skipped(0, f"{name} of {size} bytes has no duration")
    ranks = args.get("Group size")
    return Measurement(
        name, size, duration * US, ranks if isinstance(ranks, int) and ranks > 0 else None,
        dtype=str(args.get("dtype")).lower(), source=path, environment={"kernel": _algorithm(str(event["name"]))},
    )  # fmt: skip


def _algorithm(name: str) -> str:
    """RING_LL of a kernel's name, where it says."""
    match = re.search(r"(RING|TREE|NVLS|COLLNET\w*)_(LL128|LL|SIMPLE)", name)
    return match[0] if match else ""


def _operation(event: Mapping[str, Any], state: _Horovod) -> None:
    """Follow begin and end events of Horovod's timeline."""
    phase, tensor, time = event.get("ph"), event.get("pid"), event.get("ts")
    if phase not in ("B", "E") or not isinstance(time, int | float) or not isinstance(tensor, int | str):
        return
    stack = state.open.setdefault(tensor, [])
    if phase == "B":
        name = str(event.get("name", ""))
        stack.append((name, float(time)))
        if match := _HOROVOD.search(name):
            key = (_HOROVOD_NAMES[match[1]], float(time))
            state.begun[key] = state.begun.get(key, 0) + 1
    elif not stack:
        state.broken.append(float(time))
    else:
        _end(stack, state, tensor, float(time), _tensor_bytes(event.get("args")))


def _end(stack: list[tuple[str, float]], state: _Horovod, tensor: Any, time: float, size: int | None) -> None:
    """Close an operation: the transport's own names the time, the outermost one the size."""
    name, begin = stack.pop()
    if (match := _HOROVOD.search(name)) and time > begin:
        key = (_HOROVOD_NAMES[match[1]], begin, time)
        state.inner[tensor] = key
        state.fused.setdefault(key, _Fused((begin, time)))
        return
    if name not in _HOROVOD_NAMES:
        return
    done = state.inner.pop(tensor, None)
    if done is None or size is None or stack:
        state.broken += [begin, time]
        return
    fused = state.fused[done]
    fused.outer = (min(begin, fused.outer[0]), max(time, fused.outer[1]))
    fused.ended += 1
    fused.size += size


def _tensor_bytes(args: Any) -> int | None:
    if not isinstance(args, dict) or "shape" not in args:
        return None
    item = ITEM_BYTES.get(str(args.get("dtype", "")).lower())
    shape = [int(part) for part in re.findall(r"\d+", str(args["shape"]))]
    return item * prod(shape) if item else None


def _facts(stream: JsonStream, count: _Count) -> Iterator[Item]:
    info = stream.header.get("distributedInfo")
    for key in ("rank", "world_size", "backend", "nccl_version"):
        if isinstance(info, dict) and info.get(key) is not None:
            yield Fact(key, info[key])
    if count.events:
        yield Fact("events", count.events)
        yield Fact("complete_events", count.complete)
        yield Fact("kernels", count.kernels)
        yield Fact("nccl_kernels", count.nccl_kernels)
    if count.unsized:
        yield Note(f"{count.unsized} NCCL kernels carry no message size and give no row")
    if count.broken:
        yield Note(f"{count.broken} events are no objects")
    if count.events and not count.nccl_kernels and not count.horovod.fused:
        yield Note("the trace holds no collective with a size")
    if stream.cut:
        yield Note(f"the trace breaks off after {count.events} whole events")
    elif not count.events:
        yield Note("started, no result: the trace holds no event")
