"""All-reduce of a tensor with a named algorithm, in place of torch.distributed's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from realrun.executor import Checks, Executor, Factors
from realrun.groups import group_of
from realrun.handle import Handle
from simnet.algorithms import registry
from simnet.algorithms.grid import parse_grid
from simnet.collective import Kind
from simnet.errors import InvalidInput
from simnet.units import Seconds

Op: TypeAlias = Literal["sum", "avg"] | dist.ReduceOp.RedOpType

_executors: WeakKeyDictionary[dist.ProcessGroup, dict[tuple[Any, ...], Executor]] = WeakKeyDictionary()


def all_reduce(
    tensor: torch.Tensor,
    op: Op = "sum",
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    *,
    algorithm: str = "ring",
    reduce_dtype: torch.dtype | None = None,
    timeout: Seconds = 600.0,
    checks: Checks = "first",
    **options: Any,
) -> Handle | None:
    """Sum or average `tensor` over the ranks of a group, in place; the same bits on every rank.

    Parameters
    ----------
    op : "sum" or "avg", or torch's ReduceOp.SUM or ReduceOp.AVG.
    algorithm : an all-reduce of simnet (`simnet catalog algorithms`); `options` are its own, such as grid=(2, 2).
    reduce_dtype : type in which sums are formed, such as torch.float32 for 16-bit tensors (twice the bytes).
    checks : when ranks compare what they ask for: "first" per shape and dtype, "always", "never".

    Returns
    -------
    None, or a handle with `wait`, `is_completed` and `get_future` where async_op.

    Raises
    ------
    InvalidInput : ranks ask for different things, or something that cannot be done.
    Stalled : a rank was lost or silent for longer than `timeout`, s.
    """
    if not isinstance(tensor, torch.Tensor):
        raise InvalidInput(f"all_reduce takes a torch.Tensor, got {type(tensor).__name__}; use torch.as_tensor")
    executor = _executor(group, algorithm, options, (timeout, reduce_dtype, checks))
    factors = _factors(_name(op), executor.schedule.world_size, reduce_dtype or tensor.dtype)
    handle = executor.run(tensor, async_op=async_op, factors=factors)
    if async_op:
        return handle
    handle.wait()
    return None


def _executor(
    group: dist.ProcessGroup | None,
    algorithm: str,
    options: Mapping[str, Any],
    settings: tuple[Seconds, torch.dtype | None, Checks],
) -> Executor:
    parent = group_of(group)
    known = _executors.setdefault(parent, {})
    plain = {name: _option(value) for name, value in options.items()}
    key = (algorithm, tuple(sorted(plain.items())), settings)
    if key not in known:
        schedule = registry.build(algorithm, dist.get_world_size(parent), **plain)
        if schedule.collective.kind is not Kind.ALL_REDUCE:
            names = ", ".join(registry.algorithms(Kind.ALL_REDUCE))
            raise InvalidInput(f"{algorithm} does {schedule.collective.kind}, no all_reduce; choose one of {names}")
        timeout, reduce_dtype, checks = settings
        known[key] = Executor(schedule, group=parent, timeout=timeout, reduce_dtype=reduce_dtype, checks=checks)
    return known[key]


def _option(value: Any) -> Any:
    """Return an option as algorithms take it: lists as tuples, a grid also where it is written "2x2"."""
    if isinstance(value, str):
        return parse_grid(value)
    return tuple(value) if isinstance(value, list) else value


def _name(op: Op) -> str:
    known = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "avg"}
    name = op if isinstance(op, str) else known.get(op, str(op).removeprefix("RedOpType."))
    if name not in known.values():
        raise InvalidInput(f"op must be sum or avg, got {name!r}; torch.distributed's own all_reduce does others")
    return name


def _factors(op: str, world_size: int, dtype: torch.dtype) -> Factors:
    """What to multiply by before and after.

    A mean in fp16 is scaled by about 1/sqrt(n) on both sides of the sum: scaling only after it
    overflows above 65,504, only before it loses small values. Powers of two lose no bits.
    """
    if op == "sum" or world_size == 1:
        return 1.0, 1.0
    before = 2.0 ** -math.ceil(math.log2(world_size) / 2) if dtype == torch.float16 else 1.0
    return before, 1.0 / (world_size * before)
