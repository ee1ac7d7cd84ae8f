"""GPT-2 and transformers of its shape.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; layer names as Hugging Face
has them. The output layer shares the weight of the word embedding.
"""

from __future__ import annotations

from simnet.errors import InvalidInput
from simnet.models.registry import Layers, model
from simnet.models.transformer import Transformer, sequences

_SOURCE = "Radford et al., 2019, table 2"


def _block(net: Transformer, prefix: str, heads: int) -> None:
    width = net.width
    net.layer_norm(f"{prefix}.ln_1")
    net.linear(f"{prefix}.attn.c_attn", width, 3 * width, transposed=True)
    net.attention(f"{prefix}.attn", heads)
    net.linear(f"{prefix}.attn.c_proj", width, width, transposed=True)
    net.add(f"{prefix}.attn.add")
    net.layer_norm(f"{prefix}.ln_2")
    net.linear(f"{prefix}.mlp.c_fc", width, 4 * width, transposed=True)
    net.pointwise(f"{prefix}.mlp.gelu", "gelu", 4 * width)
    net.linear(f"{prefix}.mlp.c_proj", 4 * width, width, transposed=True)
    net.add(f"{prefix}.mlp.add")


def _gpt2(depth: int, width: int, heads: int, sequence_length: int, vocabulary: int = 50257) -> Layers:
    if depth < 1 or vocabulary < 1:
        raise InvalidInput(f"depth and vocabulary must be 1 or more, got {depth} and {vocabulary}")
    net = sequences(sequence_length, width, heads)
    net.embedding("transformer.wte", vocabulary)
    net.embedding("transformer.wpe", max(1024, sequence_length))
    for index in range(depth):
        _block(net, f"transformer.h.{index}", heads)
    net.layer_norm("transformer.ln_f")
    net.linear("lm_head", width, vocabulary, tied=True, bias=False)
    return tuple(net.layers)


@model(source=_SOURCE, sample="sequence", aliases=("GPT-2 small",))
def gpt2(
    *, sequence_length: int = 1024, depth: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 50257
) -> Layers:
    """GPT-2, 124 M parameters; depth, width, heads and vocabulary make any transformer of its class."""
    return _gpt2(depth, width, heads, sequence_length, vocabulary)


@model(source=_SOURCE, sample="sequence")
def gpt2_medium(*, sequence_length: int = 1024) -> Layers:
    """GPT-2 medium, 355 M parameters."""
    return _gpt2(24, 1024, 16, sequence_length)


@model(source=_SOURCE, sample="sequence")
def gpt2_xl(*, sequence_length: int = 1024) -> Layers:
    """GPT-2 XL, 1.56 G parameters."""
    return _gpt2(48, 1600, 25, sequence_length)
