"""Layer tables of image networks, computed from the shapes of their layers."""

from __future__ import annotations

from dataclasses import dataclass, field

from simnet.errors import InvalidInput
from simnet.workload import Layer, Tensor

Pair = tuple[int, int]


def pair(value: int | Pair) -> Pair:
    """Read a kernel, stride or padding as (height, width)."""
    return (value, value) if isinstance(value, int) else value


@dataclass(slots=True)
class Convnet:
    """Collects layers while it follows the shape (channels, height, width) of one image through them.

    Branches set `shape` back to where they start; `concat` and `add` join them. Batch normalisation has a factor per
    channel if `scale`, a shift in any case.
    """

    shape: tuple[int, int, int]
    layers: list[Layer] = field(default_factory=list)
    scale: bool = True

    def conv(
        self, name: str, out: int, kernel: int | Pair, *,
        stride: int | Pair = 1, padding: int | Pair = 0, groups: int = 1, bias: bool = True,
    ) -> None:  # fmt: skip
        """Two-dimensional convolution."""
        channels, _, _ = before = self.shape
        height, width = self._window(name, kernel, stride, padding)
        weight = Tensor("weight", (out, channels // groups, *pair(kernel)))
        parameters = (weight, Tensor("bias", (out,))) if bias else (weight,)
        flop = 2 * weight.numel * height * width
        self._push(name, "conv", before, (out, height, width), parameters=parameters, flop=flop)

    def batch_norm(self, name: str) -> None:
        """Batch normalisation."""
        names = ("weight", "bias") if self.scale else ("bias",)
        parameters = tuple(Tensor(each, (self.shape[0],)) for each in names)
        self._push(name, "batch_norm", self.shape, self.shape, parameters=parameters)

    def relu(self, name: str) -> None:
        """Rectify in place: reads and writes once, saves nothing of its own."""
        self._push(name, "relu", self.shape, self.shape, saves=False)

    def local_response_norm(self, name: str) -> None:
        """Local response normalisation, across channels."""
        self._push(name, "local_response_norm", self.shape, self.shape)

    def dropout(self, name: str) -> None:
        """Dropout; writes a new tensor in training."""
        self._push(name, "dropout", self.shape, self.shape)

    def pool(
        self, name: str, kernel: int | Pair, *, stride: int | Pair, padding: int | Pair = 0, ceil: bool = False
    ) -> None:
        """Max or average pooling; `ceil` keeps a last partial window."""
        height, width = self._window(name, kernel, stride, padding, ceil=ceil)
        self._push(name, "pool", self.shape, (self.shape[0], height, width))

    def pool_to(self, name: str, size: int) -> None:
        """Adaptive average pooling to size x size."""
        self._push(name, "pool", self.shape, (self.shape[0], size, size))

    def linear(self, name: str, out: int) -> None:
        """Linear layer on the flattened image."""
        before = self.shape
        weight = Tensor("weight", (out, before[0] * before[1] * before[2]))
        parameters = (weight, Tensor("bias", (out,)))
        self._push(name, "linear", before, (out, 1, 1), parameters=parameters, flop=2 * weight.numel)

    def add(self, name: str) -> None:
        """Add a branch of the same shape in place."""
        elements = _elements(self.shape)
        self.layers.append(Layer(name, "add", reads=2 * elements, writes=elements))

    def concat(self, channels: int) -> None:
        """Join branches along the channels; copying them is one pass over the result."""
        self.shape = (channels, *self.shape[1:])
        elements = _elements(self.shape)
        self.layers.append(Layer("", "concat", reads=elements, writes=elements, saves=elements))

    def _push(
        self, name: str, kind: str, before: tuple[int, int, int], after: tuple[int, int, int], *,
        parameters: tuple[Tensor, ...] = (), flop: int = 0, saves: bool = True,
    ) -> None:  # fmt: skip
        reads, writes = _elements(before), _elements(after)
        self.layers.append(Layer(name, kind, parameters, flop, reads, writes, writes if saves else 0))
        self.shape = after

    def _window(
        self, name: str, kernel: int | Pair, stride: int | Pair, padding: int | Pair, *, ceil: bool = False
    ) -> Pair:
        height, width = (
            -(-(size + 2 * p - k) // s) + 1 if ceil else (size + 2 * p - k) // s + 1
            for size, k, s, p in zip(self.shape[1:], pair(kernel), pair(stride), pair(padding), strict=True)
        )
        if height < 1 or width < 1:
            raise InvalidInput(
                f"the image is too small at layer {name}: {self.shape[1]}x{self.shape[2]} has no room for "
                f"a window of {kernel}; use a higher resolution"
            )
        return height, width


def _elements(shape: tuple[int, int, int]) -> int:
    return shape[0] * shape[1] * shape[2]


def images(resolution: int) -> Convnet:
    """Start with a square colour image.

    Raises
    ------
    InvalidInput : the resolution is not a positive number of pixels.
    """
    if isinstance(resolution, bool) or not isinstance(resolution, int) or resolution < 1:
        raise InvalidInput(f"resolution must be a whole number of pixels, 1 or more, got {resolution!r}; write 224")
    return Convnet((3, resolution, resolution))
