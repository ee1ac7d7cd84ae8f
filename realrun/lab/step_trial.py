"""Time training steps of a small network on the ranks of a lab: its computation alone, then with the exchange.

`python -m realrun.lab.step_trial TRIAL.json` on every rank; rank 0 writes one JSON line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from realrun.gradients import GradientBuckets, reducer
from realrun.lab.network import current
from realrun.lab.ranks import start
from realrun.lab.trial import REALTIME_PRIORITY, START
from realrun.launch import detect, join
from realrun.models import build
from realrun.priority import raise_priority
from simnet.errors import Incomplete, InvalidInput
from simnet.units import MIB, Bytes, Seconds

WARM_UP = 3
LONG_BYTES = 2 * MIB


@dataclass(frozen=True, slots=True)
class StepTrial:
    """A step to time: a small ResNet on random images, its gradients in buckets."""

    algorithm: str = "ring"
    options: dict[str, Any] = field(default_factory=dict)
    batch: int = 128
    resolution: int = 16
    bucket_cap: Bytes = 64 * 1024
    steps: int = 25


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """What was measured, s: medians over steps of the computation of the slowest rank, and every step's time.

    Attributes
    ----------
    forward, backward, update : of the computation alone
    ready : when each bucket's gradients are there, from the start of the backward pass, (num_buckets,)
    bucket_bytes : (num_buckets,)
    samples_s : time of each step with the exchange beside the backward pass, slowest rank, (steps,)
    serial_s : the same with the exchange after it, (steps,)
    beside_s : the computation alone while a long exchange of something else runs beside it, (steps,)
    alone_s : the computation alone, (steps,)
    """

    forward: Seconds
    backward: Seconds
    update: Seconds
    ready: tuple[Seconds, ...]
    bucket_bytes: tuple[Bytes, ...]
    samples_s: tuple[Seconds, ...]
    serial_s: tuple[Seconds, ...]
    beside_s: tuple[Seconds, ...]
    alone_s: tuple[Seconds, ...]

    @property
    def interference(self) -> float:
        """By how much an exchange slows a computation that it runs beside, as a fraction."""
        return median(self.beside_s) / median(self.alone_s) - 1


def time_steps(name: str, trial: StepTrial, *, timeout: Seconds = 300.0) -> StepAnswer:
    """Run the trial on the ranks of a lab that is up.

    Raises
    ------
    Incomplete : a rank failed or the time is over.
    """
    plan = current(name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trial.json"
        file.write_text(json.dumps(asdict(trial)))
        command = [sys.executable, "-m", "realrun.lab.step_trial", str(file)]
        outputs = [subprocess.PIPE] + [None] * (len(plan.hosts) - 1)
        with start(plan, command, stdout=outputs) as ranks:
            ranks.wait(timeout=timeout)
            pipe = ranks.running[0].stdout
            text = pipe.read() if pipe is not None else b""
    if not text:
        raise Incomplete(f"rank 0 of the lab {name} ended without an answer; see its output above")
    answer = json.loads(text)
    lists = {key: tuple(value) for key, value in answer.items() if isinstance(value, list)}
    return StepAnswer(answer["forward"], answer["backward"], answer["update"], **lists)


class _Stepper:
    """One rank's network, its gradients in buckets that may or may not be exchanged."""

    def __init__(self, trial: StepTrial, *, exchange: bool, overlap: bool = True) -> None:
        torch.manual_seed(0)
        self.model = build("small-resnet", num_classes=10, resolution=trial.resolution)
        parameters = list(self.model.parameters())
        reduce = reducer(trial.algorithm, **_given(trial.options)) if exchange else self._note
        self.buckets = GradientBuckets(
            parameters, reduce, cap=trial.bucket_cap, first=trial.bucket_cap, overlap=overlap
        )
        self.optimizer = torch.optim.SGD(parameters, 0.01, momentum=0.9)
        self.images = torch.randn(trial.batch, 3, trial.resolution, trial.resolution)
        self.labels = torch.randint(0, 10, (trial.batch,))
        self.ready: list[float] = []

    def _note(self, _flat: torch.Tensor) -> Any:
        self.ready.append(time.perf_counter())
        return _Done()

    def step(self) -> tuple[float, float, float, float]:
        """Do one step; return the times at its start and after forward, backward and update."""
        self.ready = []
        times = [time.perf_counter()]
        self.buckets.begin()
        loss = torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        times.append(time.perf_counter())
        loss.backward()
        self.buckets.finish()
        times.append(time.perf_counter())
        self.optimizer.step()
        times.append(time.perf_counter())
        return times[0], times[1], times[2], times[3]


class _Done:
    def wait(self) -> None:
        """Nothing was started."""


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}


def _compute_below_the_network() -> None:
    """Lower this thread's real-time priority below that of the threads that exchange gradients, which exist by now.

    A computation at the same priority would not let them in for 100 ms, and nothing would overlap.
    """
    raise_priority(REALTIME_PRIORITY // 2)


def _rounds(trial: StepTrial, alone: _Stepper, overlapped: _Stepper, serial: _Stepper) -> dict[str, Any]:
    """Computation alone, then each kind of exchange, in turn, so that all see the same machine."""
    parts: list[list[float]] = []
    together: list[float] = []
    after: list[float] = []
    beside: list[float] = []
    other = reducer(trial.algorithm, **_given(trial.options))
    assert other is not None
    long = torch.zeros(LONG_BYTES // 4)
    for _ in range(trial.steps + WARM_UP):
        start, forward, backward, update = _in_step(alone)
        ready = [moment - forward for moment in alone.ready]
        parts.append([forward - start, backward - forward, update - backward, *ready])
        for stepper, samples in ((overlapped, together), (serial, after)):
            times = _in_step(stepper)
            samples.append(times[-1] - times[0])
        dist.barrier()
        running = other(long)
        times = alone.step()
        beside.append(times[-1] - times[0])
        running.wait()
    middle = _slowest(np.median(parts[WARM_UP:], axis=0))
    return {
        "forward": middle[0], "backward": middle[1], "update": middle[2], "ready": middle[3:],
        "bucket_bytes": [4 * flat.numel() for flat in alone.buckets.flats],
        "samples_s": _slowest(np.array(together[WARM_UP:])), "serial_s": _slowest(np.array(after[WARM_UP:])),
        "beside_s": _slowest(np.array(beside[WARM_UP:])),
        "alone_s": _slowest(np.array([sum(part[:3]) for part in parts[WARM_UP:]])),
    }  # fmt: skip


def _in_step(stepper: _Stepper) -> tuple[float, float, float, float]:
    dist.barrier()
    return stepper.step()


def _slowest(values: Any) -> list[float]:
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.tolist()


def _work(file: str) -> None:
    trial = StepTrial(**json.loads(Path(file).read_text()))
    launch = detect()
    if launch is None:
        raise InvalidInput("start this with realrun lab run; no launcher told it its rank")
    torch.set_num_threads(1)
    raise_priority(REALTIME_PRIORITY)
    join(launch, backend="gloo", timeout=START)
    overlapped, serial = (_Stepper(trial, exchange=True, overlap=overlap) for overlap in (True, False))
    for stepper in (overlapped, serial):
        stepper.step()
    _compute_below_the_network()
    answer = _rounds(trial, _Stepper(trial, exchange=False), overlapped, serial)
    if launch.rank == 0:
        print(json.dumps(answer), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def middle(answer: StepAnswer) -> Seconds:
    """Median time of a step with overlapped exchange."""
    return median(answer.samples_s)


if __name__ == "__main__":
    _work(sys.argv[1])
