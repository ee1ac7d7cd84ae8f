"""What ranks in a lab measure: started once with a list of requests, alive through all of them.

`python -m realrun.lab.trial REQUESTS.json` on every rank; rank 0 writes one JSON line per answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from realrun.executor import Executor
from realrun.lab.network import current
from realrun.lab.ranks import Ranks, start
from realrun.launch import detect, join
from realrun.measure import measure
from realrun.priority import raise_priority
from simnet.algorithms import registry
from simnet.errors import Incomplete, InvalidInput
from simnet.units import Bytes, Seconds

REALTIME_PRIORITY = 10
# Every rank loads PyTorch for itself, on cores that others may use.
START: Seconds = 300.0
ONE_WAY, TWO_WAY = "one_way", "two_way"


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to measure.

    Attributes
    ----------
    what : "one_way" (half of there and back between `pair`), "two_way" (both send at once), an
        algorithm of simnet, or "native"
    size : bytes
    """

    what: str
    size: Bytes
    repeats: int = 5
    warmup: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    pair: tuple[int, int] = (0, 1)


@dataclass(frozen=True, slots=True)
class Answer:
    """A request and every sample of it, s: of the slowest rank, from leaving a barrier.

    realtime : whether the ranks ran at real-time priority, so that other work on the machine hardly disturbed them
    """

    request: Request
    samples_s: tuple[Seconds, ...]
    realtime: bool


def trials(name: str, requests: Sequence[Request], *, timeout: Seconds = 600.0) -> Iterator[Answer]:
    """Measure on the ranks of a lab that is up; yields answers as they come.

    Raises
    ------
    Incomplete : a rank failed or the time is over.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requests.json"
        file.write_text(json.dumps([asdict(request) for request in requests]))
        command = [sys.executable, "-m", "realrun.lab.trial", str(file)]
        plan = current(name)
        outputs = [subprocess.PIPE] + [None] * (len(plan.hosts) - 1)
        with start(plan, command, stdout=outputs) as ranks:
            yield from _answers(ranks, requests, time.monotonic() + timeout)
            ranks.wait(timeout=30.0)


def _answers(ranks: Ranks, requests: Sequence[Request], deadline: float) -> Iterator[Answer]:
    lines = ranks.running[0].stdout
    assert lines is not None
    for request in requests:
        line = lines.readline()
        if not line:
            ranks.wait(timeout=5.0)
            raise Incomplete(f"rank 0 of the lab {ranks.plan.name} ended before it measured {request}")
        if time.monotonic() > deadline:
            raise Incomplete(f"the lab {ranks.plan.name} was still measuring at the end of its time, at {request}")
        yield Answer(request, **json.loads(line))


def _work(file: str) -> None:
    requests = [Request(**{**r, "pair": tuple(r["pair"])}) for r in json.loads(Path(file).read_text())]
    launch = detect()
    if launch is None:
        raise InvalidInput("start this with realrun lab run; no launcher told it its rank")
    torch.set_num_threads(1)
    realtime = raise_priority(REALTIME_PRIORITY)
    join(launch, backend="gloo", timeout=START)
    for request in requests:
        buffer = torch.zeros(request.size // 4)
        samples = measure(_act(request, buffer), iterations=request.repeats, warmup=request.warmup)
        if launch.rank == 0:
            share = 0.5 if request.what == ONE_WAY else 1.0
            times = (share * samples.times).tolist()
            print(json.dumps({"samples_s": times, "realtime": realtime}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def _act(request: Request, buffer: torch.Tensor) -> Callable[[], object]:
    if request.what == "native":
        return lambda: dist.all_reduce(buffer)
    if request.what not in (ONE_WAY, TWO_WAY):
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in request.options.items()}
        executor = _executor(request.what, tuple(sorted(given.items())))
        return lambda: executor.run(buffer).wait()
    if dist.get_rank() not in request.pair:
        return lambda: None
    first = dist.get_rank() == request.pair[0]
    peer = request.pair[1 if first else 0]
    if request.what == ONE_WAY:
        return lambda: _there_and_back(buffer, peer, first=first)
    arrived = torch.empty_like(buffer)
    return lambda: _exchange(buffer, arrived, peer)


@cache
def _executor(algorithm: str, options: tuple[tuple[str, Any], ...]) -> Executor:
    return Executor(registry.build(algorithm, dist.get_world_size(), **dict(options)))


def _there_and_back(buffer: torch.Tensor, peer: int, *, first: bool) -> None:
    back = dist.irecv(buffer, peer) if first else None
    if first:
        dist.send(buffer, peer)
    else:
        dist.recv(buffer, peer)
        dist.send(buffer, peer)
    if back is not None:
        back.wait()


def _exchange(buffer: torch.Tensor, arrived: torch.Tensor, peer: int) -> None:
    """Receive first: the other way round the notice of readiness waits behind the data."""
    works = [dist.irecv(arrived, peer), dist.isend(buffer, peer)]
    for work in works:
        if work is not None:
            work.wait()


if __name__ == "__main__":
    _work(sys.argv[1])
