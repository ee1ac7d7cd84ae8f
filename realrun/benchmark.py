"""Measure one collective over many sizes; one record per size as soon as it is measured."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from realrun.environment import run_environment
from realrun.executor import Checks, Executor
from realrun.groups import channels_of
from realrun.known_results import expectation, pattern
from realrun.launch import detect
from realrun.measure import Samples, measure
from realrun.plans import DTYPE_NAMES, NATIVE, Plan
from simnet.algorithms import registry
from simnet.collective import Kind
from simnet.errors import InvalidInput
from simnet.metrics import algbw, busbw
from simnet.results import Measurement
from simnet.units import Bytes

DTYPES: Mapping[str, torch.dtype] = dict(
    zip(
        DTYPE_NAMES,
        (
            torch.float32, torch.float64, torch.float16, torch.bfloat16,
            torch.int8, torch.uint8, torch.int32, torch.int64,
        ),
        strict=True,
    )
)  # fmt: skip
PARTITIONED = (Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_TO_ALL)


def sweep(plan: Plan) -> Iterator[dict[str, Any]]:
    """Measure every size on all ranks of the default group; yields a record per size, on every rank.

    Each size is run once on numbers whose result is known, and every element of every rank compared.
    """
    subject = _Subject(plan)
    environment = subject.environment()
    for size in plan.sizes:
        count = subject.count(size)
        wrong = subject.count_wrong(count)
        yield {**_record(plan, subject, count, subject.measure(count)), "num_wrong": wrong, "environment": environment}


def choose_device(device: str) -> torch.device:
    """Device that tensors live on: the one asked for, else cuda under NCCL and cpu under any other backend.

    Raises
    ------
    InvalidInput : neither cpu nor cuda, or cuda where there is none.
    """
    chosen = device or ("cuda" if "nccl" in str(dist.get_backend()) else "cpu")
    if chosen not in ("cpu", "cuda"):
        raise InvalidInput(f"device must be cpu or cuda, got {chosen!r}")
    if chosen == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InvalidInput("device cuda needs a CUDA device and PyTorch sees none; use --device cpu")
    return torch.device("cuda", torch.cuda.current_device())


class _Subject:
    """A collective on this rank, ready to run on a buffer of any count."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.device = choose_device(plan.device)
        self.control = channels_of(None, plan.timeout).control
        self.hosts: list[str] = [""] * self.world_size
        dist.all_gather_object(self.hosts, socket.gethostname(), group=self.control)
        native = plan.algorithm == NATIVE
        self._schedule = registry.build("ring" if native else plan.algorithm, self.world_size, **plan.options)
        checks: Checks = "always" if plan.always_check else "first"
        self._executor = None if native else Executor(self._schedule, timeout=plan.timeout, checks=checks)

    @property
    def kind(self) -> Kind:
        """The collective that is measured."""
        return self._schedule.collective.kind

    def count(self, size: Bytes) -> int:
        """Whole elements in `size` bytes; where ranks own parts, a multiple of the ranks, as nccl-tests counts."""
        multiple = self.world_size if self.kind in PARTITIONED else 1
        return size // DTYPES[self.plan.dtype].itemsize // multiple * multiple

    def environment(self) -> dict[str, Any]:
        """Fingerprint of this host and of the run."""
        launch = detect()
        launcher = launch.launcher if launch else "local ranks"
        return run_environment(self.hosts, backend=str(dist.get_backend()), device=str(self.device), launcher=launcher)

    def run(self, tensor: torch.Tensor) -> None:
        """Run it once, in place."""
        if self._executor is None:
            dist.all_reduce(tensor)
        else:
            self._executor.run(tensor).wait()

    def count_wrong(self, count: int) -> int:
        """Elements, over all ranks, that differ from the known result."""
        dtype = DTYPES[self.plan.dtype]
        tensor = self._on_device(pattern(self.rank, count, self.world_size)).to(dtype)
        self.run(tensor)
        expected, wanted = (self._on_device(x) for x in expectation(self._schedule, self.rank, count))
        wrong = ((tensor != expected.to(dtype)) & wanted).sum().cpu()
        dist.all_reduce(wrong, group=self.control)
        return int(wrong.item())

    def _on_device(self, values: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)

    def measure(self, count: int) -> Samples:
        """Samples on zeros, which stay zeros however often they are summed."""
        tensor = torch.zeros(count, dtype=DTYPES[self.plan.dtype], device=self.device)
        return measure(
            partial(self.run, tensor), iterations=self.plan.iterations, warmup=self.plan.warmup, group=self.control,
            synchronize=torch.cuda.synchronize if self.device.type == "cuda" else _nothing,
        )  # fmt: skip


def _nothing() -> None:
    """Nothing to wait for on a CPU."""


def _record(plan: Plan, subject: _Subject, count: int, samples: Samples) -> dict[str, Any]:
    size, time = count * DTYPES[plan.dtype].itemsize, samples.quantile(0.5)
    row = Measurement(
        collective=subject.kind.value, size_bytes=size, time_s=time, ranks=subject.world_size,
        algorithm=plan.algorithm, cluster=subject.hosts[0], nodes=len(set(subject.hosts)), count=count,
        dtype=plan.dtype, algbw_bytes_per_s=algbw(size, time),
        busbw_bytes_per_s=busbw(subject.kind, subject.world_size, size, time),
        samples_s=tuple(samples.times.tolist()), in_place=True,
    )  # fmt: skip
    spread = {"min_s": samples.quantile(0.0), "p50_s": time, "p95_s": samples.quantile(0.95)}
    ranks = {"rank_samples_s": samples.duration.T.tolist(), "late_s": samples.median_lateness.tolist()}
    return {**asdict(row), "options": dict(plan.options), **spread, **ranks, "straggler": samples.straggler}
