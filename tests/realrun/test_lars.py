"""Three steps by hand: w = (3, 4), g = (0.6, 0.8) x k, so |w| and |g| are known without a calculator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from realrun.lars import Lars, parameter_groups
from realrun.models import build
from simnet.errors import InvalidInput

GRADIENTS = (1.0, 2.0, 0.5)
RATES = (0.1, 0.2, 0.05)


def _by_hand(form: str, momentum: float, decay: float, eta: float) -> np.ndarray:
    w, v = np.array([3.0, 4.0]), np.zeros(2)
    for size, rate in zip(GRADIENTS, RATES, strict=True):
        g = size * np.array([0.6, 0.8])
        trust = eta * np.sqrt(w @ w) / (np.sqrt(g @ g) + decay * np.sqrt(w @ w))
        direction = trust * (g + decay * w)
        if form == "rate_inside":
            v = momentum * v + rate * direction
            w = w - v
        else:
            v = momentum * v + direction
            w = w - rate * v
    return w


def _run(form: str, momentum: float, decay: float, eta: float) -> np.ndarray:
    weight = torch.nn.Parameter(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    lars = Lars([weight], RATES[0], momentum=momentum, weight_decay=decay, eta=eta, momentum_form=form)
    for size, rate in zip(GRADIENTS, RATES, strict=True):
        lars.param_groups[0]["lr"] = rate
        weight.grad = size * torch.tensor([[0.6, 0.8]], dtype=torch.float64)
        lars.step()
    return weight.detach().numpy()[0]


@pytest.mark.parametrize("form", ["rate_inside", "rate_outside"])
def test_three_steps_with_a_changing_rate_are_as_computed_by_hand(form: str) -> None:
    assert _run(form, 0.9, 0.01, 0.02) == pytest.approx(_by_hand(form, 0.9, 0.01, 0.02), rel=1e-12)


def test_three_steps_without_decay_and_momentum_give_literal_numbers() -> None:
    # |w| = 5, then 5 - 0.1 * 0.02 * 5 = 4.99, 4.99 * (1 - 0.2 * 0.02), ...; the direction never changes.
    scale = (1 - 0.1 * 0.02) * (1 - 0.2 * 0.02) * (1 - 0.05 * 0.02)
    assert _run("rate_inside", 0.0, 0.0, 0.02) == pytest.approx([3 * scale, 4 * scale], rel=1e-12)


def test_the_two_momentum_forms_differ_when_the_rate_changes() -> None:
    assert not np.allclose(_run("rate_inside", 0.9, 0.0, 0.02), _run("rate_outside", 0.9, 0.0, 0.02), rtol=1e-6)


@pytest.mark.parametrize(("weight", "gradient", "after"), [(0.0, 1.0, -0.1), (2.0, 0.0, 2.0)])
def test_trust_is_one_at_zero_norms(weight: float, gradient: float, after: float) -> None:
    w = torch.nn.Parameter(torch.tensor([weight]))
    lars = Lars([w], 0.1, weight_decay=0.0, eta=1e-3)
    w.grad = torch.tensor([gradient])
    lars.step()
    assert w.item() == pytest.approx(after)


def test_biases_and_batch_norm_are_neither_adapted_nor_decayed() -> None:
    net = build("small-resnet", num_classes=10, resolution=8)
    adapted, plain = parameter_groups(net)
    assert all(p.ndim > 1 for p in adapted["params"])
    assert len(plain["params"]) == sum(p.ndim == 1 for p in net.parameters()) > 0
    lars = Lars(parameter_groups(net), 0.5, momentum=0.0, weight_decay=0.1)
    before = [p.detach().clone() for p in plain["params"]]
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    lars.step()
    assert all(torch.allclose(p, b - 0.5) for p, b in zip(plain["params"], before, strict=True))


def test_plain_sgd_is_lars_with_trust_one() -> None:
    ours, theirs = (torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    lars = Lars([{"params": [ours], "adapt": False, "weight_decay": 0.0}], 0.1, momentum_form="rate_outside")
    sgd = torch.optim.SGD([theirs], 0.1, momentum=0.9)
    for value in (1.0, 3.0, -1.0):
        for p, optimizer in ((ours, lars), (theirs, sgd)):
            p.grad = torch.full((2,), value)
            optimizer.step()
    assert torch.allclose(ours, theirs)


def test_unknown_forms_and_negative_rates_are_refused() -> None:
    with pytest.raises(InvalidInput, match="rate_inside, rate_outside"):
        Lars([torch.nn.Parameter(torch.ones(1))], 0.1, momentum_form="nesterov")
    with pytest.raises(InvalidInput, match="lr must be 0 or more"):
        Lars([torch.nn.Parameter(torch.ones(1))], -0.1)
