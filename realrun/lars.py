"""Layer-wise adaptive rate scaling.

Source: You, Gitman & Ginsburg, arXiv 1708.03888; trust ratio 1 at zero norms as in pytorch-lamb pull request 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from simnet.errors import InvalidInput

MOMENTUM_FORMS = ("rate_inside", "rate_outside")


class Lars(torch.optim.Optimizer):
    """SGD with momentum whose rate is scaled per tensor by trust = eta * |w| / (|g| + weight_decay * |w|).

    Parameters
    ----------
    momentum_form : where the learning rate stands; the two differ as soon as the rate changes.
        "rate_inside": v = momentum * v + rate * trust * (g + weight_decay * w); w -= v
        (the source above, Caffe). "rate_outside": v = momentum * v + trust * (g + weight_decay * w);
        w -= rate * v (PyTorch's SGD, Goyal et al., arXiv 1706.02677, equation 9).

    A group with `adapt=False` (biases, batch normalisation) has trust 1 and no weight decay; see
    `parameter_groups`. A tensor whose own norm or whose gradient's norm is zero has trust 1.

    Raises
    ------
    InvalidInput : an option outside its range.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, *, momentum: float = 0.9, weight_decay: float = 5e-5,
        eta: float = 1e-3, momentum_form: str = "rate_inside",
    ) -> None:  # fmt: skip
        if momentum_form not in MOMENTUM_FORMS:
            raise InvalidInput(f"momentum_form must be one of {', '.join(MOMENTUM_FORMS)}, got {momentum_form!r}")
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay), ("eta", eta)):
            if not value >= 0:
                raise InvalidInput(f"{name} must be 0 or more, got {value}")
        self.momentum_form = momentum_form
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "eta": eta, "adapt": True}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        if closure is not None:
            raise InvalidInput("Lars takes no closure; call backward before step")
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                self._update(group, weights)

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        gradients: Sequence[Tensor] = [w.grad for w in weights if w.grad is not None]
        if group["adapt"]:
            gradients = _adapted(group, weights, gradients)
        inside = self.momentum_form == "rate_inside"
        if inside:
            gradients = torch._foreach_mul(list(gradients), group["lr"])
        velocity = [self._velocity(w) for w in weights]
        torch._foreach_mul_(velocity, group["momentum"])
        torch._foreach_add_(velocity, list(gradients))
        torch._foreach_add_(weights, velocity, alpha=-1.0 if inside else -group["lr"])

    def _velocity(self, weight: Tensor) -> Tensor:
        state = self.state[weight]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(weight)
        return state["velocity"]


def _adapted(group: dict[str, Any], weights: list[Tensor], gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return trust * (g + weight_decay * w) per tensor, without waiting for a CUDA device."""
    decay = group["weight_decay"]
    weight_norms = torch.stack(torch._foreach_norm(weights))
    gradient_norms = torch.stack(torch._foreach_norm(list(gradients)))
    trust = group["eta"] * weight_norms / (gradient_norms + decay * weight_norms)
    usable = (weight_norms > 0) & (gradient_norms > 0)
    trust = torch.where(usable, trust, torch.ones_like(trust))
    decayed = torch._foreach_add(list(gradients), weights, alpha=decay)
    return torch._foreach_mul(decayed, trust.unbind())


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Split parameters: matrices and kernels are adapted and decay; vectors (biases, batch norm) do neither."""
    chosen = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in chosen if p.ndim > 1], "adapt": True},
        {"params": [p for p in chosen if p.ndim <= 1], "adapt": False, "weight_decay": 0.0},
    ]
