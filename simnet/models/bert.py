"""BERT, as it is pre-trained: masked words and next sentence.

Source: Devlin et al., NAACL 2019; names of the layers as Hugging Face has them. The bias of the decoder stands
with the decoder, three tensors later than torch lists it.
"""

from __future__ import annotations

from simnet.errors import InvalidInput
from simnet.models.registry import Layers, model
from simnet.models.transformer import Transformer, sequences

_SOURCE = "Devlin et al., NAACL 2019; layers as Hugging Face's BertForPreTraining lists them"
_WORDS = 30522
_POSITIONS = 512


def _encoder(net: Transformer, prefix: str, heads: int) -> None:
    width = net.width
    for name in ("query", "key", "value"):
        net.linear(f"{prefix}.attention.self.{name}", width, width)
    net.attention(f"{prefix}.attention.self", heads)
    net.linear(f"{prefix}.attention.output.dense", width, width)
    net.add(f"{prefix}.attention.output.add")
    net.layer_norm(f"{prefix}.attention.output.LayerNorm")
    net.linear(f"{prefix}.intermediate.dense", width, 4 * width)
    net.pointwise(f"{prefix}.intermediate.gelu", "gelu", 4 * width)
    net.linear(f"{prefix}.output.dense", 4 * width, width)
    net.add(f"{prefix}.output.add")
    net.layer_norm(f"{prefix}.output.LayerNorm")


def _heads(net: Transformer, masked: int) -> None:
    net.linear("bert.pooler.dense", net.width, net.width, tokens=1)
    net.linear("cls.predictions.transform.dense", net.width, net.width, tokens=masked)
    net.layer_norm("cls.predictions.transform.LayerNorm", tokens=masked)
    net.linear("cls.predictions", net.width, _WORDS, tokens=masked, tied=True)
    net.linear("cls.seq_relationship", net.width, 2, tokens=1)


def _bert(depth: int, width: int, heads: int, sequence_length: int, masked: float) -> Layers:
    net = sequences(sequence_length, width, heads)
    if not 0 < masked <= 1:
        raise InvalidInput(f"masked must be a share of the tokens above 0 and up to 1, got {masked}")
    if sequence_length > _POSITIONS:
        raise InvalidInput(f"BERT has {_POSITIONS} positions, got sequence_length {sequence_length}; use fewer tokens")
    net.embedding("bert.embeddings.word_embeddings", _WORDS)
    net.embedding("bert.embeddings.position_embeddings", _POSITIONS)
    net.embedding("bert.embeddings.token_type_embeddings", 2)
    net.layer_norm("bert.embeddings.LayerNorm")
    for index in range(depth):
        _encoder(net, f"bert.encoder.layer.{index}", heads)
    _heads(net, max(1, round(masked * sequence_length)))
    return tuple(net.layers)


@model(source=_SOURCE, sample="sequence", aliases=("BERT", "BERT-base-uncased"))
def bert_base(*, sequence_length: int = 128, masked: float = 0.15) -> Layers:
    """BERT-base in pre-training, 110 M parameters; words are predicted where a share of the tokens is masked."""
    return _bert(12, 768, 12, sequence_length, masked)


@model(source=_SOURCE, sample="sequence", aliases=("BERT-large-uncased",))
def bert_large(*, sequence_length: int = 128, masked: float = 0.15) -> Layers:
    """BERT-large in pre-training, 336 M parameters."""
    return _bert(24, 1024, 16, sequence_length, masked)
