"""Batch normalisation over a chosen group of ranks, right where their batches differ in size.

The batch that normalises is chosen independently of the global batch: groups may be single ranks,
tiles of a torus, or all ranks. Works on CPU and CUDA with any backend.

Source: Ying et al., arXiv 1811.06992, section 3.3 (distributed batch normalisation).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from simnet.errors import InvalidInput, Unsupported

_TOO_FEW = "batch normalisation needs 2 or more values per channel in its group, got {}; use larger batches or groups"


class _Normalise(torch.autograd.Function):
    """Normalise over batch, space and ranks. Statistics in fp32 (fp64 for fp64 inputs)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, over: tuple[float, Any]) -> Any:
        eps, group = over
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, variance, count = group_statistics(wide, group)
        inverse = torch.rsqrt(variance + eps)
        normal = (wide - _spread(mean, x)) * _spread(inverse, x)
        unbiased = variance * count / (count - 1)
        ctx.mark_non_differentiable(mean, unbiased)
        ctx.save_for_backward(normal, inverse, weight)
        ctx.count, ctx.group = count, group
        return (normal * _spread(weight, x) + _spread(bias, x)).to(x.dtype), mean, unbiased

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        normal, inverse, weight = ctx.saved_tensors
        grad = gradients[0].to(normal.dtype)
        axes = [0, *range(2, grad.ndim)]
        sums = torch.stack([grad.sum(axes), (grad * normal).sum(axes)])
        mean = _summed(sums, ctx.group) / ctx.count
        centred = grad - _spread(mean[0], grad) - normal * _spread(mean[1], grad)
        into_x = centred * _spread(inverse * weight, grad)
        return into_x.to(gradients[0].dtype), sums[1], sums[0], None


def _spread(per_channel: Tensor, like: Tensor) -> Tensor:
    return per_channel.view(1, -1, *([1] * (like.ndim - 2)))


def group_statistics(x: Tensor, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and biased variance per channel over all samples of all ranks of a group, and their number.

    Parameters
    ----------
    x : (batch, channels, ...), the batch may be empty and may differ between ranks
    group : process group, or None for this rank alone

    Combines counts, means and squared deviations, so that large means lose no digits.

    Source: Chan, Golub & LeVeque, COMPSTAT 1982.
    """
    axes = [0, *range(2, x.ndim)]
    count = x.numel() // max(1, x.shape[1])
    mean = x.sum(axes) / max(1, count)
    deviation = (x - _spread(mean, x)).square().sum(axes)
    counts = torch.full_like(mean, count)
    own = torch.stack([counts, mean, deviation])
    every = _gathered(own, group)
    counts, means, deviations = every[:, 0], every[:, 1], every[:, 2]
    total = counts[:, 0].sum()
    _require_values(total)
    middle = (counts * means).sum(0) / total
    squares = (deviations + counts * (means - middle).square()).sum(0)
    return middle, squares / total, total


def _travelling(tensor: Tensor, group: Any) -> Tensor:
    """Copy to where the group's backend can reach it: host memory for all but NCCL."""
    return tensor.cpu() if tensor.is_cuda and "nccl" not in str(dist.get_backend(group)) else tensor.clone()


def _gathered(own: Tensor, group: Any) -> Tensor:
    """Return every rank's tensor, (ranks, ...), on this rank's device."""
    if group is None:
        return own[None]
    here = _travelling(own, group)
    every = here.new_empty((dist.get_world_size(group), *own.shape))
    dist.all_gather(list(every.unbind()), here, group=group)
    return every.to(own.device)


def _summed(own: Tensor, group: Any) -> Tensor:
    """Return the sum over the ranks of a group; own stays as it is."""
    if group is None:
        return own
    total = _travelling(own, group)
    dist.all_reduce(total, group=group)
    return total.to(own.device)


def _require_values(total: Tensor) -> None:
    if total.is_cuda:
        torch._assert_async(total >= 2, _TOO_FEW.format("fewer"))
    elif total < 2:
        raise InvalidInput(_TOO_FEW.format(int(total.item())))


class GroupBatchNorm(nn.Module):
    """Batch normalisation of (batch, channels, ...) over the ranks of a group.

    Parameters
    ----------
    group : a torch.distributed process group; None normalises over this rank alone
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, *, group: Any = None, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.group, self.eps, self.momentum = group, eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalised by the group's batch in training, by the running statistics in evaluation.

        Running variances are unbiased, as in torch. A rank alone with an empty batch has nothing to normalise.
        """
        if not self.training:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        if self.group is None:
            return self._alone(x)
        out, mean, variance = _Normalise.apply(x, self.weight, self.bias, (self.eps, self.group))
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
        return out

    def _alone(self, x: Tensor) -> Tensor:
        if len(x) == 0:
            return x * _spread(self.weight, x) + _spread(self.bias, x)
        values = x.numel() // x.shape[1]
        if values < 2:
            raise InvalidInput(_TOO_FEW.format(values))
        return nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, True, self.momentum, self.eps
        )

    def extra_repr(self) -> str:
        """Show channels and group in prints."""
        size = 1 if self.group is None else dist.get_world_size(self.group)
        return f"{len(self.weight)}, ranks={size}, eps={self.eps}, momentum={self.momentum}"


def tiles(world_size: int, size: int, *, grid: tuple[int, int] | None = None) -> list[list[int]]:
    """Ranks of each batch-norm group.

    Parameters
    ----------
    size : ranks per group
    grid : rows, columns of a torus; groups are then its most square tiles, else consecutive ranks

    Raises
    ------
    InvalidInput : the size does not divide the ranks, or the grid has another number of them.
    """
    if size < 1 or world_size % size:
        raise InvalidInput(f"a batch-norm group must divide the {world_size} ranks, got {size}")
    if grid is None:
        return [list(range(first, first + size)) for first in range(0, world_size, size)]
    rows, columns = grid
    if rows * columns != world_size:
        raise InvalidInput(f"a grid of {rows}x{columns} does not hold {world_size} ranks")
    height, width = _tile(rows, columns, size)
    return [
        [(r + i) * columns + c + j for i in range(height) for j in range(width)]
        for r in range(0, rows, height)
        for c in range(0, columns, width)
    ]


def _tile(rows: int, columns: int, size: int) -> tuple[int, int]:
    """Most square tile of that many ranks; one always fits where size divides rows * columns."""
    shapes = [(h, size // h) for h in range(1, size + 1) if size % h == 0]
    fitting = [(h, w) for h, w in shapes if rows % h == 0 and columns % w == 0]
    return min(fitting, key=lambda shape: abs(shape[0] - shape[1]))


def join_groups(groups: Sequence[Sequence[int]]) -> Any:
    """Create the process groups on every rank and return this rank's, None where it is alone.

    Every rank must call this with the same groups in the same order.
    """
    if not dist.is_initialized():
        raise Unsupported("batch-norm groups need torch.distributed; call init_process_group first")
    mine, rank = None, dist.get_rank()
    for members in groups:
        made = dist.new_group(list(members)) if len(members) > 1 else None
        if rank in members:
            mine = made
    return mine


@torch.no_grad()
def average_statistics(model: nn.Module) -> None:
    """Average running statistics over all ranks, so that every rank evaluates and saves the same model."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    buffers = [m for m in model.modules() if isinstance(m, GroupBatchNorm)]
    if not buffers:
        return
    own = torch.cat([torch.cat([m.running_mean, m.running_var]) for m in buffers])
    flat = _summed(own, dist.group.WORLD) / dist.get_world_size()
    for module, part in zip(buffers, flat.split([2 * len(m.bias) for m in buffers]), strict=True):
        mean, variance = part.chunk(2)
        module.running_mean.copy_(mean)
        module.running_var.copy_(variance)
