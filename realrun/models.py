"""The networks `realrun train` knows, in plain PyTorch: ResNets and AlexNet; parameters as in `simnet`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from simnet.errors import InvalidInput

Norm = Callable[[int], nn.Module]


class Basic(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = norm(width)
        self.downsample = _shortcut(channels, width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Return images (batch, width, height / stride, width / stride)."""
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions and a shortcut."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = norm(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = norm(4 * width)
        self.downsample = _shortcut(channels, 4 * width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Return images (batch, 4 * width, height / stride, width / stride)."""
        out = functional.relu(self.bn1(self.conv1(x)))
        out = functional.relu(self.bn2(self.conv2(out)))
        return functional.relu(self.bn3(self.conv3(out)) + self.downsample(x))


def _shortcut(channels: int, out: int, stride: int, norm: Norm) -> nn.Module:
    if stride == 1 and channels == out:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), norm(out))


class ResNet(nn.Module):
    """Stages of residual blocks.

    Parameters
    ----------
    blocks : number of blocks of each stage; a stage after the first halves the resolution
    widths : channels of each stage, before the expansion of bottlenecks
    stem : "imagenet" (7x7 stride 2 and a pool, for images of 64 pixels and more) or "small" (3x3)
    """

    def __init__(
        self, block: type[Basic | Bottleneck], blocks: tuple[int, ...], widths: tuple[int, ...], *,
        num_classes: int, channels: int, stem: str, norm: Norm = nn.BatchNorm2d,
    ) -> None:  # fmt: skip
        super().__init__()
        big = stem == "imagenet"
        self.conv1 = nn.Conv2d(channels, widths[0], 7 if big else 3, 2 if big else 1, 3 if big else 1, bias=False)
        self.bn1 = norm(widths[0])
        self.maxpool: nn.Module = nn.MaxPool2d(3, 2, 1) if big else nn.Identity()
        self.num_stages = len(blocks)
        inside = widths[0]
        for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
            strides = [1 if stage == 0 else 2] + [1] * (count - 1)
            self.add_module(f"layer{stage + 1}", nn.Sequential(*_blocks(block, inside, width, strides, norm)))
            inside = width * block.expansion
        self.fc = nn.Linear(inside, num_classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (batch, num_classes) of images (batch, channels, height, width)."""
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x))))
        for stage in range(self.num_stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def _blocks(
    block: type[Basic | Bottleneck], inside: int, width: int, strides: list[int], norm: Norm
) -> list[nn.Module]:
    channels = [inside] + [width * block.expansion] * (len(strides) - 1)
    return [block(c, width, stride, norm) for c, stride in zip(channels, strides, strict=True)]


def _initialise(net: nn.Module) -> None:
    """He initialisation; the last normalisation of every block starts at zero, so that a block starts as identity.

    Source: Goyal et al., arXiv 1706.02677, section 5.1.
    """
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Basic | Bottleneck):
            last = module.bn2 if isinstance(module, Basic) else module.bn3
            nn.init.zeros_(last.get_parameter("weight"))


class AlexNet(nn.Module):
    """Five convolutions and three linear layers, 61.1 M parameters.

    Source: Krizhevsky, arXiv 1404.5997.
    """

    def __init__(self, *, num_classes: int, channels: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(256 * 36, 4096), nn.ReLU(),
            nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Linear(4096, num_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (batch, num_classes) of images (batch, channels, height, width)."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def resnet50(*, num_classes: int, channels: int, norm: Norm) -> nn.Module:
    """ResNet-50 with the stride in the 3x3 convolution, 25.6 M parameters at 1,000 classes."""
    return ResNet(
        Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512), num_classes=num_classes, channels=channels, stem="imagenet",
        norm=norm,
    )  # fmt: skip


def small_resnet(*, num_classes: int, channels: int, norm: Norm) -> nn.Module:
    """Residual network of three stages for images of 8x8 to 64x64, 78,000 parameters."""
    return ResNet(Basic, (1, 1, 1), (16, 32, 64), num_classes=num_classes, channels=channels, stem="small", norm=norm)


def alexnet(*, num_classes: int, channels: int, norm: Norm) -> nn.Module:
    """AlexNet; it has no batch normalisation."""
    return AlexNet(num_classes=num_classes, channels=channels)


MODELS: dict[str, tuple[Callable[..., nn.Module], int, int]] = {
    "resnet50": (resnet50, 64, 1024),
    "small-resnet": (small_resnet, 8, 64),
    "alexnet": (alexnet, 63, 1024),
}


def build(name: str, *, num_classes: int, resolution: int, channels: int = 3, norm: Norm = nn.BatchNorm2d) -> nn.Module:
    """Build a network; its weights depend on torch's seed alone.

    Raises
    ------
    InvalidInput : unknown name, or a resolution the network is not made for.
    """
    if name not in MODELS:
        raise InvalidInput(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    maker, smallest, largest = MODELS[name]
    if not smallest <= resolution <= largest:
        raise InvalidInput(f"{name} takes images of {smallest} to {largest} pixels, got {resolution}")
    return maker(num_classes=num_classes, channels=channels, norm=norm)
