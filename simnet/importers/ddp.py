"""PyTorch DistributedDataParallel's own log (TORCH_CPP_LOG_LEVEL=INFO, TORCH_DISTRIBUTED_DEBUG=INFO).

Averages of forward, backward and communication time, ns; the row `gradients` is the whole exchange of one
step, overlap included, so it is compared and never fitted.

Source: PyTorch, torch/csrc/distributed/c10d/logger.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from simnet.importers.record import Fact, Item, Line
from simnet.results import Measurement

FORMAT = "PyTorch DDP"
MARKER = r"DDP Initialized with|Avg backward comm\. time"
_WORLD = re.compile(r"world_size: (\d+)(?!\S)|\[Rank \d+ / (\d+)\]")
_BYTES = re.compile(r"total_parameter_size(?:_in_bytes|_bytes)?: (\d+)(?![^\s,])")
_BUCKETS = re.compile(r"\bbucket_sizes: ([\d, ]+)(?![^\s\w])")
_AVERAGE = re.compile(
    r"Avg (forward compute|backward compute|backward comm\.|backward comm/comp overlap) time: (\d+)(?!\S)"
)


def read(lines: Iterable[Line], path: str) -> Iterator[Item]:
    """Facts of the model and the last averages; one row where the size of the gradients is logged."""
    facts: dict[str, Any] = {}
    for line in lines:
        if match := _WORLD.search(line.text):
            facts["world_size"] = int(match[1] or match[2])
        if match := _BYTES.search(line.text):
            facts["parameter_bytes"] = int(match[1])
        if match := _BUCKETS.search(line.text):
            facts["bucket_bytes"] = [int(part) for part in match[1].replace(" ", "").split(",") if part]
        for name, value in _AVERAGE.findall(line.text) if line.ended else ():
            facts[f"{name.replace('.', '').replace('/', '_').replace(' ', '_')}_s"] = int(value) * 1e-9
    yield from (Fact(name, value) for name, value in facts.items())
    size, time = facts.get("parameter_bytes"), facts.get("backward_comm_s")
    if size and time:
        yield Measurement("gradients", size, time, facts.get("world_size"), source=path)
