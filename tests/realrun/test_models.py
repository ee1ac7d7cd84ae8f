from __future__ import annotations

import pytest
import torch

from realrun.models import build
from simnet.errors import InvalidInput


def _parameters(name: str, **options: int) -> int:
    return sum(p.numel() for p in build(name, num_classes=1000, **options).parameters())


@pytest.mark.parametrize(("name", "count"), [("resnet50", 25_557_032), ("alexnet", 61_100_840)])
def test_parameters_are_as_published(name: str, count: int) -> None:
    with torch.device("meta"):
        assert _parameters(name, resolution=224) == count


@pytest.mark.parametrize("name", ["resnet50", "alexnet"])
def test_gradients_are_those_the_simulator_sends(name: str) -> None:
    from simnet.models.registry import build as simulated

    with torch.device("meta"):
        net = build(name, num_classes=1000, resolution=224)
    ours = [(key, tuple(p.shape)) for key, p in net.named_parameters()]
    assert ours == [(t.name, t.shape) for t in simulated(name).parameters]


@pytest.mark.parametrize("resolution", [8, 9, 32, 64])
def test_small_resnet_takes_small_images(resolution: int) -> None:
    net = build("small-resnet", num_classes=10, resolution=resolution, channels=1)
    assert net(torch.randn(2, 1, resolution, resolution)).shape == (2, 10)


def test_an_empty_batch_passes_forward_and_backward() -> None:
    net = build("small-resnet", num_classes=10, resolution=8, channels=1).eval()
    net(torch.empty(0, 1, 8, 8)).sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in net.parameters())


def test_a_resolution_the_network_is_not_made_for_is_refused() -> None:
    with pytest.raises(InvalidInput, match="takes images of 8 to 64 pixels, got 224"):
        build("small-resnet", num_classes=10, resolution=224)
    with pytest.raises(InvalidInput, match="choose one of resnet50"):
        build("vgg", num_classes=10, resolution=224)
