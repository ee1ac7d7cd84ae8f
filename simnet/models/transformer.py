"""Layer tables of transformers, computed from their width, depth and sequence length; a sample is one sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

from simnet.errors import InvalidInput
from simnet.workload import Layer, Tensor


@dataclass(slots=True)
class Transformer:
    """Collects the layers of one sequence of `tokens` vectors of `width` elements."""

    tokens: int
    width: int
    layers: list[Layer] = field(default_factory=list)

    def embedding(self, name: str, rows: int) -> None:
        """Look up one row per token."""
        elements = self.tokens * self.width
        table = (Tensor("weight", (rows, self.width)),)
        self.layers.append(Layer(name, "embedding", table, 0, elements, elements, elements))

    def linear(
        self, name: str, inputs: int, out: int, *,
        tokens: int | None = None, tied: bool = False, bias: bool = True, transposed: bool = False,
    ) -> None:  # fmt: skip
        """Linear layer on every token; a tied weight belongs to the layer that registered it."""
        rows = self.tokens if tokens is None else tokens
        shape = (inputs, out) if transposed else (out, inputs)
        weight = () if tied else (Tensor("weight", shape),)
        parameters = (*weight, Tensor("bias", (out,))) if bias else weight
        flop = 2 * rows * inputs * out
        self.layers.append(Layer(name, "linear", parameters, flop, rows * inputs, rows * out, rows * out))

    def layer_norm(self, name: str, *, tokens: int | None = None) -> None:
        """Layer normalisation with scale and shift."""
        elements = self.width * (self.tokens if tokens is None else tokens)
        parameters = (Tensor("weight", (self.width,)), Tensor("bias", (self.width,)))
        self.layers.append(Layer(name, "layer_norm", parameters, 0, elements, elements, elements))

    def attention(self, name: str, heads: int) -> None:
        """Scores, softmax and weighted sum; all pairs of tokens count, also where a mask hides half."""
        tokens, width = self.tokens, self.width
        scores = heads * tokens * tokens
        product = 2 * tokens * tokens * width
        self.layers.append(Layer(f"{name}.scores", "attention", (), product, 2 * tokens * width, scores, scores))
        self.layers.append(Layer(f"{name}.softmax", "softmax", (), 0, scores, scores, scores))
        reads, writes = scores + tokens * width, tokens * width
        self.layers.append(Layer(f"{name}.sum", "attention", (), product, reads, writes, writes))

    def pointwise(self, name: str, kind: str, width: int) -> None:
        """Apply a function to every element."""
        elements = self.tokens * width
        self.layers.append(Layer(name, kind, (), 0, elements, elements, elements))

    def add(self, name: str) -> None:
        """Add the residual branch."""
        elements = self.tokens * self.width
        self.layers.append(Layer(name, "add", (), 0, 2 * elements, elements, 0))


def sequences(tokens: int, width: int, heads: int) -> Transformer:
    """Start with the tokens of one sequence.

    Raises
    ------
    InvalidInput : no tokens, or a width that the heads cannot share.
    """
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise InvalidInput(f"sequence_length must be a whole number of tokens, 1 or more, got {tokens!r}; write 512")
    if heads < 1 or width < 1 or width % heads:
        raise InvalidInput(f"width must be a multiple of the number of heads, got {width} and {heads}")
    return Transformer(tokens, width)
