import pytest

from simnet.errors import InvalidInput
from simnet.workload import Layer, Model, Tensor, gradients, item_bytes

TWO = Model(
    "two",
    (
        Layer("a", "linear", (Tensor("weight", (3, 2)), Tensor("bias", (3,))), 12, 2, 3, 3),
        Layer("", "relu", (), 0, 3, 3, 0),
        Layer("b", "linear", (Tensor("weight", (1, 3)),), 6, 3, 1, 1),
    ),
)


def test_totals_are_sums_over_layers():
    assert TWO.num_parameters == 12
    assert (TWO.forward_flop, TWO.backward_flop, TWO.training_flop) == (18, 36, 54)
    assert TWO.activation_bytes("float16") == 8
    assert TWO.gradient_bytes("float32") == 48


def test_parameters_are_named_in_full_in_registration_order():
    assert [tensor.name for tensor in TWO.parameters] == ["a.weight", "a.bias", "b.weight"]


def test_gradients_know_the_layer_that_writes_them():
    assert [(g.num_bytes, g.dtype, g.layer) for g in gradients(TWO, "bfloat16")] == [
        (12, "bfloat16", 0),
        (6, "bfloat16", 0),
        (6, "bfloat16", 2),
    ]


def test_an_unknown_dtype_lists_the_known():
    with pytest.raises(InvalidInput, match=r"unknown dtype 'fp12'.*float16"):
        item_bytes("fp12")
