"""Layer table of any torch module: what `simnet` needs to know of a network to predict its training.

The module runs once without data (on the meta device), and every operation is noted. A leaf module is one layer;
operations between leaves, such as additions and attention, are layers of their own.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from simnet.errors import InvalidInput
from simnet.workload import Layer, Model, Tensor

_REUSES = ("relu", "add", "sub", "clone", "copy", "contiguous", "identity")
"""Backward needs nothing of what goes in, so that the output takes the place of the input in what is kept."""

_KINDS = {
    "Conv1d": "conv", "Conv2d": "conv", "Conv3d": "conv", "Linear": "linear", "BatchNorm1d": "batch_norm",
    "BatchNorm2d": "batch_norm", "BatchNorm3d": "batch_norm", "SyncBatchNorm": "batch_norm", "ReLU": "relu",
    "MaxPool2d": "pool", "AvgPool2d": "pool", "AdaptiveAvgPool2d": "pool", "Dropout": "dropout",
    "LayerNorm": "layer_norm", "Embedding": "embedding", "GELU": "gelu",
}  # fmt: skip


def layer_table(module: nn.Module, example: torch.Tensor, *, name: str, sample: str = "", source: str = "") -> Model:
    """Table of the layers that `module(example)` calls, counts per sample of its first dimension.

    Layers come in the order in which they are called, which is also the reverse of the order in which DDP sends their
    gradients from its second iteration on. A parameter that several layers share counts at the first.

    Parameters
    ----------
    example : one batch; its values do not matter where the module does not branch on them.
    sample : what one of it is; "sequence" for whole numbers and "image" for others where it is not given.

    Raises
    ------
    InvalidInput : the module does not run on the example, or runs nothing.
    """
    if example.ndim < 1 or len(example) < 1:
        raise InvalidInput(f"an example needs a first dimension of 1 or more samples, got shape {tuple(example.shape)}")
    trace = _traced(module, example)
    layers = tuple(_per_sample(layer, len(example)) for layer in _with_loose_parameters(trace))
    if not layers:
        raise InvalidInput(f"{type(module).__name__} runs no operation on the example; there is nothing to predict")
    whole = not example.is_floating_point()
    return Model(name, layers, sample or ("sequence" if whole else "image"), source or type(module).__name__)


def _traced(module: nn.Module, example: torch.Tensor) -> _Trace:
    try:
        bare, given = copy.deepcopy(module).to("meta"), example.to("meta")
        trace = _Trace(bare, module)
        with trace.watched(), torch.no_grad():
            bare(given)
    except Exception as error:
        raise InvalidInput(
            f"{type(module).__name__} does not run without data on an example of shape {tuple(example.shape)}: "
            f"{str(error).splitlines()[0]}; give another shape, or a module that does not look at values"
        ) from error
    return trace


def _per_sample(layer: Layer, batch: int) -> Layer:
    counts = {key: math.ceil(getattr(layer, key) / batch) for key in ("forward_flop", "reads", "writes", "saves")}
    return replace(layer, **counts)


@dataclass(slots=True)
class _Call:
    """A leaf module at work: what its operations add up to."""

    name: str
    flop: int = 0
    operations: int = 0


class _Trace(TorchDispatchMode):
    """Notes layers as operations happen; `stack` holds the modules that are running, outermost first.

    Parameters are those of the module that was given: in a copy without data, shared ones are no longer the same.
    """

    def __init__(self, module: nn.Module, given: nn.Module) -> None:
        super().__init__()
        self.given = dict(given.named_modules())
        self.layers: list[Layer] = []
        self.names = {each: name for name, each in module.named_modules()}
        self.stack: list[str] = []
        self.leaf: _Call | None = None
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        flop = int(flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=out)) if _counted(func) else 0
        if self.leaf is not None:
            self.leaf.flop += flop
            self.leaf.operations += not _views(func)
        elif not _views(func):
            self._note(func, flop, (*args, *(kwargs or {}).values()), out)
        return out

    def _note(self, func: Any, flop: int, given: tuple[Any, ...], out: Any) -> None:
        """Add an operation between leaves as a layer."""
        kind = func._overloadpacket.__name__
        place = self.stack[-1] if self.stack else ""
        reads, writes = _elements(given), _elements(out)
        if writes:
            kind, in_place = kind.strip("_"), kind.endswith("_")
            kept = 0 if in_place or kind in _REUSES else writes
            self.layers.append(Layer(f"{place}.{kind}" if place else kind, kind, (), flop, reads, writes, kept))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follow the modules while the trace is on."""
        hooks = []
        for module in self.names:
            hooks += [
                module.register_forward_pre_hook(self._enter),
                module.register_forward_hook(self._leave),
            ]
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module: nn.Module, given: Any) -> None:
        self.stack.append(self.names[module])
        if self.leaf is None and not list(module.children()):
            self.leaf = _Call(self.names[module])

    def _leave(self, module: nn.Module, given: Any, out: Any) -> None:
        name = self.stack.pop()
        if self.leaf is None or self.leaf.name != name:
            return
        call, self.leaf = self.leaf, None
        kind = _KINDS.get(type(module).__name__, type(module).__name__.lower())
        kept = 0 if getattr(module, "inplace", False) or kind in _REUSES else _elements(out)
        tensors = tuple(self.own(name))
        if call.operations or tensors:
            self.layers.append(Layer(name, kind, tensors, call.flop, _elements(given), _elements(out), kept))

    def own(self, module: str) -> Iterator[Tensor]:
        """Parameters of a module itself, by its name, that no layer before it has."""
        for name, parameter in self.given[module].named_parameters(recurse=False):
            if id(parameter) not in self.seen:
                self.seen.add(id(parameter))
                yield Tensor(name, tuple(parameter.shape))


def _views(func: Any) -> bool:
    """Whether an operation moves nothing."""
    return bool(func.is_view) or func._overloadpacket.__name__ in ("_unsafe_view", "detach", "alias")


def _counted(func: Any) -> bool:
    return func._overloadpacket in flop_registry


def _elements(values: Any) -> int:
    """Elements of all tensors in nested arguments."""
    match values:
        case torch.Tensor():
            return values.numel()
        case list() | tuple():
            return sum(map(_elements, values))
        case Mapping():
            return sum(map(_elements, values.values()))
    return 0


def _with_loose_parameters(trace: _Trace) -> list[Layer]:
    """The layers, and where parameters belong to none of them a layer of those, before the first near their module."""
    layers = list(trace.layers)
    for name in trace.given:
        tensors = tuple(trace.own(name))
        if tensors:
            layers.insert(_first_near(layers, name), Layer(name or "parameters", "parameter", tensors))
    return layers


def _first_near(layers: list[Layer], name: str) -> int:
    """Place of the first layer inside a module, or inside the module that holds it."""
    for place in (name, name.rpartition(".")[0]):
        inside = [i for i, layer in enumerate(layers) if not place or layer.name.startswith(f"{place}.")]
        if inside:
            return inside[0]
    return 0


def load_module(spec: str) -> nn.Module:
    """Build the module that `FILE.py:function` or `package.module:function` names.

    Raises
    ------
    InvalidInput : no such file, module or function, or what it returns is no torch module.
    """
    where, _, attribute = spec.rpartition(":")
    if not where or not attribute:
        raise InvalidInput(f"a network is named FILE.py:function or package.module:function, got {spec!r}")
    try:
        build = getattr(_imported(where), attribute)
        module = build() if callable(build) and not isinstance(build, nn.Module) else build
    except (ImportError, AttributeError, OSError, TypeError) as error:
        raise InvalidInput(
            f"cannot build {spec}: {error}; name a function without arguments that returns it"
        ) from error
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"{spec} gives a {type(module).__name__}; return a torch.nn.Module")
    return module


def _imported(where: str) -> Any:
    if not where.endswith(".py"):
        return importlib.import_module(where)
    found = importlib.util.spec_from_file_location(Path(where).stem, where)
    if found is None or found.loader is None:
        raise ImportError(f"{where} is no Python file")
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded
