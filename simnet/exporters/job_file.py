"""Write a traced job as TOML that a human can change: durations, sizes, groups and dependencies, with their units."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from simnet.job import Operation, TraceJob
from simnet.units import US

_LONGEST_NAME = 100


def write_job(jobs: Sequence[TraceJob]) -> Iterator[str]:
    """Yield the lines of a file that `simnet replay` reads: one table per rank, one per operation in it."""
    first = jobs[0]
    yield "# Change what you like, then `simnet replay` this file. A stream runs its operations in this order."
    yield f"num_steps = {first.num_steps}"
    if first.world_size is not None:
        yield f"world_size = {first.world_size}"
    yield f"assumptions = {json.dumps(list(first.assumptions), indent=4)}"
    for job in jobs:
        yield ""
        yield "[[rank]]"
        yield f"source = {json.dumps(job.path)}"
        yield f'recorded = "{_us(job.recorded)}"'
        for index, operation in enumerate(job.operations):
            yield from _operation(index, operation)


def _operation(index: int, op: Operation) -> Iterator[str]:
    yield ""
    yield "[[rank.operation]]"
    yield f"id = {index}"
    yield f"name = {json.dumps(op.name[:_LONGEST_NAME])}"
    yield f"stream = {op.stream}"
    yield f'duration = "{_us(op.duration)}"'
    if op.gap:
        yield f'gap = "{_us(op.gap)}"'
    if op.after:
        yield f"after = {list(op.after)}"
    if op.collective is not None:
        yield f'collective = "{op.collective}"'
    if op.size_bytes is not None:
        yield f'size = "{op.size_bytes} B"'
    if op.ranks is not None:
        yield f"ranks = {op.ranks}"


def _us(seconds: float) -> str:
    return f"{seconds / US:.6f}".rstrip("0").rstrip(".") + " us"
