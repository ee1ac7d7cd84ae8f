"""Rates of matrix products and convolutions, and times of a network's layers, on CPU or CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from realrun.plans import PRECISIONS
from simnet.errors import InvalidInput
from simnet.units import Flop, Seconds

Work = Callable[[], object]


def dtype_of(precision: str, device: torch.device) -> torch.dtype:
    """Storage type of a precision; sets whether fp32 products may use tf32 units.

    Raises
    ------
    InvalidInput : an unknown precision, or one the device does not have.
    """
    if precision not in PRECISIONS:
        raise InvalidInput(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision == "tf32" and device.type != "cuda":
        raise InvalidInput("precision tf32 exists on CUDA devices only; use fp32")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)


def timed(work: Work, device: torch.device, *, iterations: int, warmup: int) -> list[Seconds]:
    """Seconds of each of `iterations` calls, the device idle before and after."""
    return [_once(work, device) for _ in range(warmup + iterations)][warmup:]


def _once(work: Work, device: torch.device) -> Seconds:
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def synchronize(device: torch.device) -> None:
    """Block until the device is idle; a CPU always is."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matmul(size: int, precision: str, device: torch.device) -> tuple[Work, Flop]:
    """Product of two square matrices of `size`, and its operations (2 n**3)."""
    dtype = dtype_of(precision, device)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out), 2.0 * size**3


def convolution(batch: int, channels: int, extent: int, precision: str, device: torch.device) -> tuple[Work, Flop]:
    """3x3 convolution that keeps channels and extent, and its operations (2 per multiply-add)."""
    dtype = dtype_of(precision, device)
    image = torch.randn(batch, channels, extent, extent, device=device, dtype=dtype)
    kernel = torch.randn(channels, channels, 3, 3, device=device, dtype=dtype)
    flop = 2.0 * 9 * batch * channels * channels * extent**2
    return lambda: torch.nn.functional.conv2d(image, kernel, padding=1), flop


@dataclass(frozen=True, slots=True)
class LayerTime:
    """A leaf module of a network, measured by itself on the input it gets there; every sample kept."""

    name: str
    kind: str
    input_shape: tuple[int, ...]
    parameters: int
    forward_s: tuple[Seconds, ...]
    backward_s: tuple[Seconds, ...]
    update_s: tuple[Seconds, ...]


def layer_times(
    module: nn.Module,
    image: torch.Tensor,
    *,
    iterations: int = 10,
    warmup: int = 3,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
) -> Iterator[LayerTime]:
    """Forward, backward and update time of every leaf module that `module(image)` calls, in that order.

    Each leaf runs alone on the input it gets in the network, so hooks and in-place layers do not
    disturb each other. Leaves of equal type and settings on equal shapes are measured once.

    Parameters
    ----------
    optimizer : builds the optimizer of a layer's parameters; default SGD with momentum 0.9.
    """
    build = optimizer or _momentum_sgd
    known: dict[tuple[Any, ...], tuple[tuple[Seconds, ...], ...]] = {}
    for name, leaf, spec in _calls(module, image):
        first = not known
        key = (repr(leaf), spec.shape, spec.dtype, first)
        if key not in known:
            given = _filled(spec, image.device).requires_grad_(spec.is_floating_point() and not first)
            known[key] = step_times(leaf, given, build, iterations=iterations, warmup=warmup)
        parameters = sum(p.numel() for p in leaf.parameters())
        yield LayerTime(name, type(leaf).__name__, tuple(spec.shape), parameters, *known[key])


def _momentum_sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def _filled(spec: torch.Tensor, device: torch.device) -> torch.Tensor:
    if spec.is_floating_point():
        return torch.randn(spec.shape, dtype=spec.dtype, device=device)
    return torch.zeros(spec.shape, dtype=spec.dtype, device=device)


def _calls(module: nn.Module, image: torch.Tensor) -> list[tuple[str, nn.Module, torch.Tensor]]:
    """Leaves in the order they are called, each with a tensor without storage that is like its input."""
    calls: list[tuple[str, nn.Module, torch.Tensor]] = []

    def note(name: str, leaf: nn.Module, given: tuple[Any, ...]) -> None:
        calls.append((name, leaf, torch.empty_like(given[0], device="meta")))

    leaves = [(name, leaf) for name, leaf in module.named_modules() if not list(leaf.children())]
    hooks = [leaf.register_forward_pre_hook(partial(note, name)) for name, leaf in leaves]
    try:
        with torch.no_grad():
            module(image)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def step_times(
    module: nn.Module,
    given: torch.Tensor,
    build: Callable[[Any], torch.optim.Optimizer] = _momentum_sgd,
    *,
    iterations: int = 10,
    warmup: int = 3,
) -> tuple[tuple[Seconds, ...], ...]:
    """Forward, backward and update time of a module, each (iterations,) s; backward empty where nothing has a gradient.

    Parameters
    ----------
    given : the module's input; its gradient is computed too where it requires one.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    targets = [*parameters, *([given] if given.requires_grad else [])]
    optimizer = build(parameters) if parameters else None
    times: list[list[Seconds]] = [[], [], []]
    for _ in range(warmup + iterations):
        _step(module, given, targets, optimizer, times)
    return tuple(tuple(samples[warmup:]) for samples in times)


def _step(
    module: nn.Module,
    given: torch.Tensor,
    targets: list[torch.Tensor],
    optimizer: torch.optim.Optimizer | None,
    times: list[list[Seconds]],
) -> None:
    device, outputs = given.device, []
    copied = given.clone()
    times[0].append(_once(lambda: outputs.append(module(copied)), device))
    if targets:
        gradient = torch.ones_like(outputs[0])
        times[1].append(_once(lambda: outputs.append(_gradients(outputs[0], targets, gradient)), device))
        for target, value in zip(targets, outputs[1], strict=True):
            target.grad = value
    if optimizer is not None:
        times[2].append(_once(optimizer.step, device))


def _gradients(result: torch.Tensor, targets: list[torch.Tensor], gradient: torch.Tensor) -> tuple[Any, ...]:
    return torch.autograd.grad(result, targets, gradient, allow_unused=True)
