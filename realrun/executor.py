"""Interpreter five: run a schedule over torch.distributed, point to point.

In every step a rank posts all its receives before its sends (the other way round, an exchange
under gloo can run at half rate: the notice that a receive is ready queues behind the data), waits
for the step, then applies what arrived in row order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal, TypeAlias, get_args

import torch
import torch.distributed as dist

from realrun.groups import Channels, channels_of
from realrun.handle import Handle, HostHandle, StreamHandle
from realrun.lanes import Buffers
from realrun.launch import LONGEST_TIMEOUT
from realrun.program import BoundProgram, compile_rank
from realrun.signature import Signature, agree
from simnet.errors import InvalidInput, Unsupported, WrongResult
from simnet.schedule import Schedule
from simnet.units import Seconds

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int8, torch.uint8, torch.int32, torch.int64,
)  # fmt: skip

Checks: TypeAlias = Literal["first", "always", "never"]
Finish: TypeAlias = Callable[[], None]
Factors: TypeAlias = tuple[float, float]


class Executor:
    """A schedule, ready to run on this rank's tensors, again and again.

    Parameters
    ----------
    group : ranks of the schedule, in order; None for all. Creating the first executor of a group
        is a collective call: its channels get process groups of their own.
    timeout : s a step may wait for a peer before the run ends with an error.
    reduce_dtype : type in which sums are formed and travel, such as torch.float32 for 16-bit
        tensors; it doubles their bytes on the wire. None for the tensor's own type.
    checks : when ranks compare what they are about to do: "first" for each new dtype, count and
        shape; "always", strides included; "never".

    Raises
    ------
    InvalidInput : the group has another number of ranks than the schedule, or a setting that cannot be.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        group: dist.ProcessGroup | None = None,
        timeout: Seconds = 60.0,
        reduce_dtype: torch.dtype | None = None,
        checks: Checks = "first",
    ) -> None:
        _require_settings(timeout, reduce_dtype, checks)
        self.schedule, self.timeout, self.checks = schedule, timeout, checks
        self._reduce_dtype = reduce_dtype
        self._channels: Channels = channels_of(group, timeout)
        _require_size(schedule, self._channels.world_size)
        self._program = compile_rank(schedule, self._channels.rank)
        self._bind = lru_cache(maxsize=64)(self._program.bind)
        self._agreed: set[tuple[torch.dtype, torch.Size]] = set()

    def stages(self, device: torch.device) -> bool:
        """Whether tensors of that device travel through a copy in host memory: CUDA under any backend but NCCL."""
        return device.type != "cpu" and not self._channels.on_stream(device)

    def run(self, tensor: torch.Tensor, *, async_op: bool = False, factors: Factors = (1.0, 1.0)) -> Handle:
        """Run the schedule on `tensor`, in place.

        Elements that the collective leaves undefined on this rank (of a reduce: all but the root's)
        keep their values. Strided tensors are worked on in a dense copy, in row-major order of their indices.

        Parameters
        ----------
        factors : what every rank multiplies by before and after, such as (1, 1/n) for a mean.

        Raises
        ------
        InvalidInput : a dtype, layout or count that cannot be run, or ranks that ask for different things.
        Stalled : a peer was lost or silent for longer than the time limit (from `wait` where async_op).
        WrongResult : with checks "always", a result that is not finite (from `wait` where async_op).
        """
        tensor = tensor.detach()
        _require_layout(tensor, self._reduce_dtype, factors)
        bound = self._bind(tensor.numel())
        self._agree(tensor)
        work, finish = self._working_copy(tensor, bound, factors)
        buffers = (work, work.new_empty(bound.scratch) if bound.scratch else work[:0])
        if self._channels.on_stream(tensor.device):
            return self._enqueue(tensor, bound, buffers, finish)
        handle = self._start(tensor, bound, buffers, finish, in_thread=async_op)
        if not async_op:
            handle.wait()
        return handle

    def _agree(self, tensor: torch.Tensor) -> None:
        key = (tensor.dtype, tensor.shape)
        if self.checks == "never" or (self.checks == "first" and key in self._agreed):
            return
        strides = tuple(tensor.stride()) if self.checks == "always" else ()
        kind = self.schedule.collective.kind.value
        dtype = str(tensor.dtype).removeprefix("torch.")
        name = f"{self.schedule.name} {self._program.digest}"
        signature = Signature(kind, dtype, tensor.numel(), tuple(tensor.shape), strides, name)
        agree(signature, self._channels.court, self.timeout)
        self._agreed.add(key)

    def _working_copy(self, tensor: torch.Tensor, bound: BoundProgram, factors: Factors) -> tuple[torch.Tensor, Finish]:
        dtype = self._reduce_dtype or tensor.dtype
        device = torch.device("cpu") if self.stages(tensor.device) else tensor.device
        as_is = dtype == tensor.dtype and device == tensor.device and tensor.is_contiguous() and bound.result_is_whole
        if as_is:
            work = tensor.view(-1)
        else:
            work = torch.empty(tensor.numel(), dtype=dtype, device=device)
            work.view(tensor.shape).copy_(tensor)
        if factors[0] != 1.0:
            work.mul_(factors[0])
        return work, partial(self._finish, tensor, work, bound, factors[1])

    def _finish(self, tensor: torch.Tensor, work: torch.Tensor, bound: BoundProgram, factor: float) -> None:
        if factor != 1.0:
            work.mul_(factor)
        if work.data_ptr() != tensor.data_ptr():
            _copy_back(tensor, work, bound)
        if self.checks == "always" and tensor.is_floating_point():
            _require_finite(tensor, self.schedule.name)

    def _start(
        self, tensor: torch.Tensor, bound: BoundProgram, buffers: Buffers, finish: Finish, *, in_thread: bool
    ) -> HostHandle:
        lanes = self._channels.host_lanes(len(bound.channels))
        parts = [(lane, program) for lane, program in zip(lanes, bound.channels, strict=True) if program.steps]
        handle = HostHandle(tensor, finish, len(parts))
        for lane, program in parts:
            run = partial(handle.call, partial(lane.run, self.schedule.name, program, buffers))
            lane.submit(run, in_thread=in_thread or len(parts) > 1)
        return handle

    def _enqueue(self, tensor: torch.Tensor, bound: BoundProgram, buffers: Buffers, finish: Finish) -> StreamHandle:
        lanes = self._channels.stream_lanes(len(bound.channels), buffers[0].device)
        for lane, program in zip(lanes, bound.channels, strict=True):
            lane.enqueue(self.schedule.name, program, buffers)
        return StreamHandle(tensor, finish, lanes, self.schedule.name, self.timeout)


def _copy_back(tensor: torch.Tensor, work: torch.Tensor, bound: BoundProgram) -> None:
    if bound.result_is_whole:
        tensor.copy_(work.view(tensor.shape))
    else:
        kept = tensor.reshape(-1).clone()
        for start, stop in bound.result:
            kept[start:stop] = work[start:stop]
        tensor.copy_(kept.view(tensor.shape))
    if tensor.is_cuda and not work.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()


def _require_settings(timeout: Seconds, reduce_dtype: torch.dtype | None, checks: str) -> None:
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise InvalidInput(f"timeout must be above 0 s and at most {LONGEST_TIMEOUT:g} s, got {timeout:g} s")
    if checks not in get_args(Checks):
        raise InvalidInput(f"checks must be one of {', '.join(get_args(Checks))}, got {checks!r}")
    if reduce_dtype is not None and not (reduce_dtype in DTYPES and reduce_dtype.is_floating_point):
        raise InvalidInput(f"reduce_dtype must be a floating-point type such as torch.float32, got {reduce_dtype}")


def _require_size(schedule: Schedule, world_size: int) -> None:
    if schedule.world_size != world_size:
        raise InvalidInput(
            f"{schedule.name} is built for {schedule.world_size} ranks and the group has {world_size}; "
            f"build it with world_size={world_size}"
        )


def _require_layout(tensor: torch.Tensor, reduce_dtype: torch.dtype | None, factors: Factors) -> None:
    if tensor.dtype not in DTYPES:
        known = ", ".join(str(d).removeprefix("torch.") for d in DTYPES)
        raise Unsupported(f"dtype {tensor.dtype} cannot be reduced here; convert the tensor to one of {known}")
    if not tensor.is_floating_point() and (reduce_dtype is not None or factors != (1.0, 1.0)):
        raise Unsupported(
            f"{tensor.dtype} has no mean, factors or wider sums here: they would round silently; "
            "sum it, or convert it to a floating-point type"
        )
    if tensor.layout != torch.strided or tensor.is_meta:
        what = "a meta tensor has no data" if tensor.is_meta else f"layout {tensor.layout} is not supported"
        raise Unsupported(f"{what}; pass a dense tensor")
    if not tensor.is_contiguous() and _may_share_memory(tensor):
        raise InvalidInput(
            f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} may have elements that "
            "share memory, so a sum in place is undefined; pass tensor.contiguous() and use its result"
        )


def _may_share_memory(tensor: torch.Tensor) -> bool:
    """Whether not every stride, from the smallest on, reaches beyond all elements of the smaller ones."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _require_finite(tensor: torch.Tensor, name: str) -> None:
    wrong = torch.nonzero(~torch.isfinite(tensor.reshape(-1)))
    if len(wrong):
        first, dtype = int(wrong[0]), str(tensor.dtype).removeprefix("torch.")
        raise WrongResult(
            f"after {name}, {len(wrong)} elements are not finite, the first at index {first}: "
            f"{tensor.reshape(-1)[first].item()} in {dtype}; "
            "if the inputs are finite, the sum overflowed: use op='avg', factors, or reduce_dtype=torch.float32"
        )
