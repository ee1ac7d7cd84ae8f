"""What a device computes in one step: layers in the order they run, and the gradients they leave behind.

Conventions, used by every table of this project:

- flop counts two operations per multiply-add of convolutions, linear layers and attention products; all other
  layers (normalisation, activation, pooling, embedding) count zero flop and cost memory traffic only;
- the backward pass of a layer costs `BACKWARD_FACTOR` = 2 times its forward flop: one product for the gradient
  of its input, one for the gradient of its weights;
- elements are per sample (one image, one sequence); bytes are elements times the item size of the precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from simnet.errors import InvalidInput
from simnet.units import Bytes, Flop, Seconds

BACKWARD_FACTOR = 2

ITEM_BYTES = {"float64": 8, "float32": 4, "tfloat32": 4, "float16": 2, "bfloat16": 2, "float8": 1}


def item_bytes(dtype: str) -> int:
    """Bytes of one element of a number format.

    Raises
    ------
    InvalidInput : unknown name; the text lists those there are.
    """
    if dtype not in ITEM_BYTES:
        raise InvalidInput(f"unknown dtype {dtype!r}; choose one of {', '.join(ITEM_BYTES)}")
    return ITEM_BYTES[dtype]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter, as torch lists it: name inside its layer, and shape."""

    name: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layer:
    """One call of the forward pass; all counts are per sample.

    `reads` and `writes` are the elements that go in and come out; `saves` are those kept until the backward
    pass, each counted at the layer that wrote it (0 where an in-place layer reuses them).
    """

    name: str
    kind: str
    parameters: tuple[Tensor, ...] = ()
    forward_flop: Flop = 0
    reads: int = 0
    writes: int = 0
    saves: int = 0

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters."""
        return sum(tensor.numel for tensor in self.parameters)

    @property
    def backward_flop(self) -> Flop:
        """Flop of the backward pass, by the convention of this module."""
        return BACKWARD_FACTOR * self.forward_flop


@dataclass(frozen=True, slots=True)
class Model:
    """Layers in the order of the forward pass, whose parameters in that order are torch's registration order.

    `sample` says what one sample is ("image", "sequence"); `options` are those the table was built with.
    """

    name: str
    layers: tuple[Layer, ...]
    sample: str = "image"
    source: str = ""
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters; a shared tensor counts once."""
        return sum(layer.num_parameters for layer in self.layers)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """All parameters, in torch's registration order, under their full names."""
        return tuple(
            Tensor(f"{layer.name}.{tensor.name}" if layer.name else tensor.name, tensor.shape)
            for layer in self.layers
            for tensor in layer.parameters
        )

    @property
    def forward_flop(self) -> Flop:
        """Flop of the forward pass of one sample."""
        return sum(layer.forward_flop for layer in self.layers)

    @property
    def backward_flop(self) -> Flop:
        """Flop of the backward pass of one sample."""
        return sum(layer.backward_flop for layer in self.layers)

    @property
    def training_flop(self) -> Flop:
        """Flop of the forward and the backward pass of one sample."""
        return self.forward_flop + self.backward_flop

    def activation_bytes(self, dtype: str = "float32") -> Bytes:
        """Bytes kept for the backward pass of one sample."""
        return item_bytes(dtype) * sum(layer.saves for layer in self.layers)

    def gradient_bytes(self, dtype: str = "float32") -> Bytes:
        """Bytes all ranks sum after a step."""
        return item_bytes(dtype) * self.num_parameters


@dataclass(frozen=True, slots=True)
class Gradient:
    """One gradient tensor: its bytes, its number format, and the index of the layer whose backward writes it."""

    num_bytes: Bytes
    dtype: str
    layer: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that travel together.

    `tensors` are indices in registration order, in the order they lie in the bucket; the bucket is ready
    when the backward pass of layer `layer` (its lowest, hence its last to finish) is over, and leaves `wait`
    seconds later, where a rule polls.
    """

    tensors: tuple[int, ...]
    num_bytes: Bytes
    dtype: str
    layer: int
    wait: Seconds = 0.0


def gradients(model: Model, dtype: str = "float32") -> tuple[Gradient, ...]:
    """Gradients of all parameters in registration order, exchanged as `dtype`."""
    size = item_bytes(dtype)
    return tuple(
        Gradient(size * tensor.numel, dtype, index)
        for index, layer in enumerate(model.layers)
        for tensor in layer.parameters
    )
