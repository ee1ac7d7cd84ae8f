from __future__ import annotations

import pytest
import torch

from realrun.batch_norm import GroupBatchNorm, group_statistics, tiles
from simnet.errors import InvalidInput


def test_one_rank_alone_equals_torch_forward_backward_and_running() -> None:
    torch.manual_seed(0)
    ours, theirs = GroupBatchNorm(5), torch.nn.BatchNorm2d(5)
    x = torch.randn(6, 5, 3, 4) * 3 + 100
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    push = torch.randn_like(x)
    (ours(a) * push).sum().backward()
    (theirs(b) * push).sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_its_gradient_is_the_numerical_one() -> None:
    norm = GroupBatchNorm(3).double()
    x = torch.randn(4, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, (x,))


def test_large_means_lose_no_digits() -> None:
    x = torch.tensor([1e4, 1e4 + 1, 1e4 + 2, 1e4 + 3]).reshape(4, 1)
    _, variance, _ = group_statistics(x, None)
    assert variance.item() == pytest.approx(1.25, rel=1e-4)


def test_a_single_value_is_refused() -> None:
    with pytest.raises(InvalidInput, match="2 or more values per channel in its group, got 1"):
        GroupBatchNorm(2)(torch.ones(1, 2))


def test_half_precision_is_normalised_in_single() -> None:
    x = torch.full((64, 1), 300.0, dtype=torch.float16)
    x[0] = 302.0
    out = GroupBatchNorm(1)(x)
    assert out.dtype == torch.float16
    assert out.std(correction=0).item() == pytest.approx(1.0, rel=0.01)


def test_groups_are_tiles_of_the_torus() -> None:
    assert tiles(8, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert tiles(16, 4, grid=(4, 4))[0] == [0, 1, 4, 5]
    assert sorted(r for t in tiles(12, 6, grid=(2, 6)) for r in t) == list(range(12))
    with pytest.raises(InvalidInput, match="must divide the 6 ranks, got 4"):
        tiles(6, 4)
    with pytest.raises(InvalidInput, match="3x4 does not hold 16 ranks"):
        tiles(16, 4, grid=(3, 4))
