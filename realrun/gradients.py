"""Gradients of one step: fused into buckets, summed over ranks while the backward pass still runs.

Every rank divides its loss by the number of samples that all ranks take in the step, so the sum of
gradients over ranks is the mean over samples, however unequally they are spread; an empty share
adds nothing. Buckets are those `simnet.buckets` predicts with.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from realrun.plans import require_all_reduce
from simnet import buckets
from simnet.errors import InvalidInput
from simnet.units import MIB, Bytes, Seconds
from simnet.workload import Gradient

Reduce = Callable[[Tensor], Any]


class GradientBuckets:
    """Gradients of some parameters as views into a few flat tensors, each summed over ranks as one message.

    Parameters
    ----------
    reduce : starts an all-reduce of a flat tensor and returns a handle with `wait()`; None for one rank
    cap : bytes after which a bucket closes (PyTorch DDP's rule)
    wire_dtype : type in which gradients travel and are summed, such as torch.float16; None for their own
    overlap : start a bucket as soon as its gradients are there; else all at `finish`
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        reduce: Reduce | None,
        *,
        cap: Bytes = 25 * MIB,
        first: Bytes = MIB,
        wire_dtype: torch.dtype | None = None,
        overlap: bool = True,
    ) -> None:
        self._parameters = [p for p in parameters if p.requires_grad]
        if not self._parameters:
            raise InvalidInput("the model has no parameter that needs a gradient")
        self._reduce, self._wire_dtype, self._overlap = reduce, wire_dtype, overlap
        self.plan = buckets.ddp(describe(self._parameters), cap=cap, first=min(first, cap))
        self.flats = [self._lay_out(bucket.tensors) for bucket in self.plan]
        self._missing = [0] * len(self.plan)
        self._handles: list[tuple[Any, Tensor]] = []
        self._launched, self._held = 0, False
        self.waited: Seconds = 0.0
        self._watch()

    def _lay_out(self, tensors: Sequence[int]) -> Tensor:
        chosen = [self._parameters[index] for index in tensors]
        flat = torch.zeros(sum(p.numel() for p in chosen), dtype=chosen[0].dtype, device=chosen[0].device)
        for parameter, part in zip(chosen, flat.split([p.numel() for p in chosen]), strict=True):
            parameter.grad = part.view_as(parameter)
        return flat

    def _watch(self) -> None:
        for number, bucket in enumerate(self.plan):
            for index in bucket.tensors:
                hook = _Arrival(self, number)
                self._parameters[index].register_post_accumulate_grad_hook(hook)

    def begin(self) -> None:
        """Set all gradients to zero, in place, for a new step."""
        torch._foreach_zero_(self.flats)
        self._missing = [len(bucket.tensors) for bucket in self.plan]
        self._handles, self._launched = [], 0

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        """Keep gradients here during all but the last backward pass of a step, so that ranks synchronise once."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def arrived(self, number: int) -> None:
        """Note one gradient of a bucket; start what is complete, always in the order of the plan."""
        if self._held:
            return
        self._missing[number] -= 1
        if self._overlap:
            while self._launched < len(self.plan) and self._missing[self._launched] == 0:
                self._launch()

    def _launch(self) -> None:
        flat = self.flats[self._launched]
        self._launched += 1
        if self._reduce is not None:
            wire = flat if self._wire_dtype is None else flat.to(self._wire_dtype)
            self._handles.append((self._reduce(wire), wire))

    def finish(self) -> None:
        """Start what is left (parameters the loss does not reach have no hook call), wait for all sums."""
        while self._launched < len(self.plan):
            self._launch()
        start = time.perf_counter()
        for flat, (handle, wire) in zip(self.flats, self._handles, strict=False):
            handle.wait()
            if wire is not flat:
                flat.copy_(wire)
        self.waited += time.perf_counter() - start

    def finite(self) -> bool:
        """Whether no gradient is infinite or NaN; alike on all ranks after `finish`."""
        return all(bool(torch.isfinite(flat).all()) for flat in self.flats)

    def scale(self, factor: float) -> None:
        """Multiply all gradients."""
        torch._foreach_mul_(self.flats, factor)


class _Arrival:
    """Hook of one parameter that tells its bucket."""

    def __init__(self, buckets: GradientBuckets, number: int) -> None:
        self._buckets, self._number = buckets, number

    def __call__(self, _parameter: Tensor) -> None:
        self._buckets.arrived(self._number)


def describe(parameters: Sequence[nn.Parameter]) -> list[Gradient]:
    """Return parameters as the simulator's gradients, one layer each."""
    return [
        Gradient(p.numel() * p.element_size(), str(p.dtype).removeprefix("torch."), index)
        for index, p in enumerate(parameters)
    ]


def reducer(algorithm: str, *, group: Any = None, **options: Any) -> Reduce | None:
    """Return the all-reduce of that name over the ranks of a group, started without waiting.

    Parameters
    ----------
    algorithm : a schedule's name, or "native" for torch.distributed's own

    Raises
    ------
    InvalidInput : no all-reduce has that name; another collective would train without an error, and wrongly.
    """
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return None
    if algorithm == "native":
        return lambda flat: dist.all_reduce(flat, group=group, async_op=True)
    from realrun.executor import Executor
    from simnet.algorithms.registry import build

    require_all_reduce(algorithm)
    schedule = build(algorithm, dist.get_world_size(group), **options)
    executor = Executor(schedule, group=group)
    return lambda flat: executor.run(flat, async_op=True)


class LossScale:
    """Dynamic loss scaling for fp16: halve and skip a step at overflow, double after a clean stretch.

    Source: Micikevicius et al., arXiv 1710.03740, section 3.2.
    """

    def __init__(self, *, initial: float = 2.0**15, interval: int = 1000) -> None:
        self.value, self.interval = initial, interval
        self.clean, self.skipped = 0, 0

    def update(self, *, finite: bool) -> bool:
        """Adapt the scale to whether the step's gradients were finite; return whether to use them."""
        if not finite:
            self.value, self.clean, self.skipped = max(self.value / 2, 1.0), 0, self.skipped + 1
            return False
        self.clean += 1
        if self.clean == self.interval:
            self.value, self.clean = self.value * 2, 0
        return True

    def state_dict(self) -> dict[str, float]:
        """Return what a resumed run needs."""
        return {"value": self.value, "clean": self.clean, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Take up where `state_dict` was taken."""
        self.value, self.clean, self.skipped = state["value"], int(state["clean"]), int(state["skipped"])
