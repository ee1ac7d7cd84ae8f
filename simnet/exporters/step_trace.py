"""A predicted step as a trace that Perfetto opens and trace analysis reads as PyTorch's profiler writes it.

Times are us from the start of the step. Collectives carry the names PyTorch's profiler gives them (collective,
elements in and out, group, dtype), on a stream of their own beside the compute stream.

Source: Chrome trace event format; record_param_comms arguments of torch.profiler, torch 2.3 and later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from simnet.results import Span
from simnet.workload import Bucket, item_bytes

COMPUTE_STREAM, EXCHANGE_STREAM = 7, 20
LISTED_RANKS = 30
_DTYPES = {"float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "float64": "Double"}


def step_trace(spans: Iterable[Span], buckets: tuple[Bucket, ...], *, ranks: int, name: str) -> str:
    """Write the trace of one rank as JSON text.

    Parameters
    ----------
    spans : bars of the step, s
    buckets : the gradient buckets that spans refer to by number
    """
    events = [*_names(), *(_event(span, buckets, ranks, number) for number, span in enumerate(spans))]
    return json.dumps(
        {
            "schemaVersion": 1, "traceName": name, "displayTimeUnit": "ms", "baseTimeNanoseconds": 0,
            "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": ranks},
            "deviceProperties": [{"id": 0, "name": "predicted"}], "traceEvents": events,
        }
    )  # fmt: skip


def _names() -> list[dict[str, Any]]:
    rows = ((COMPUTE_STREAM, "compute"), (EXCHANGE_STREAM, "collectives"))
    process = {"ph": "M", "name": "process_name", "pid": 0, "ts": 0, "args": {"name": "rank 0, predicted"}}
    return [process] + [
        {
            "ph": "M",
            "name": "thread_name",
            "pid": 0,
            "tid": stream,
            "ts": 0,
            "args": {"name": f"stream {stream} {text}"},
        }
        for stream, text in rows
    ]


def _event(span: Span, buckets: tuple[Bucket, ...], ranks: int, number: int) -> dict[str, Any]:
    exchange = span.bucket is not None
    stream = EXCHANGE_STREAM if exchange else COMPUTE_STREAM
    args: dict[str, Any] = {"External id": number, "device": 0, "context": 1, "stream": stream, "correlation": number}
    title = span.name
    if span.bucket is not None:
        bucket = buckets[span.bucket]
        title = f"ncclDevKernel_AllReduce_Sum (bucket {span.bucket})"
        args |= _collective(bucket, ranks)
    return {
        "ph": "X", "cat": "kernel", "name": title, "pid": 0, "tid": stream, "ts": round(span.start * 1e6, 3),
        "dur": round((span.end - span.start) * 1e6, 3), "args": args,
    }  # fmt: skip


def _collective(bucket: Bucket, ranks: int) -> dict[str, Any]:
    elements = bucket.num_bytes // item_bytes(bucket.dtype)
    return {
        "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements, "Group size": ranks,
        "dtype": _DTYPES.get(bucket.dtype, bucket.dtype), "In split size": "[]", "Out split size": "[]",
        "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": _ranks(ranks),
        "Global rank start": 0, "Global rank stride": 1,
    }  # fmt: skip


def _ranks(ranks: int) -> str:
    """The ranks of the group as the profiler lists them, cut where they are many."""
    shown = ", ".join(map(str, range(min(ranks, LISTED_RANKS))))
    return f"[{shown}{', ...' if ranks > LISTED_RANKS else ''}]"
