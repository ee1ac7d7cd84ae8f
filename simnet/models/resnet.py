"""Residual networks.

Source: He, Zhang, Ren & Sun, "Deep Residual Learning for Image Recognition", CVPR 2016. The default places the
stride in the 3x3 convolution ("v1.5", as torchvision and MLPerf do); v1 places it in the first 1x1.
"""

from __future__ import annotations

from simnet.models.convnet import Convnet, images
from simnet.models.registry import Layers, model

_SOURCE = "He et al., CVPR 2016, table 1; stride in the 3x3 convolution"
_WIDTHS = (64, 128, 256, 512)


def _conv_norm(net: Convnet, prefix: str, index: int, out: int, kernel: int, *, stride: int = 1) -> None:
    net.conv(f"{prefix}.conv{index}", out, kernel, stride=stride, padding=kernel // 2, bias=False)
    net.batch_norm(f"{prefix}.bn{index}")


def _shortcut(net: Convnet, prefix: str, out: int, stride: int, start: tuple[int, int, int]) -> None:
    if stride == 1 and start[0] == out:
        return
    net.shape = start
    net.conv(f"{prefix}.downsample.0", out, 1, stride=stride, bias=False)
    net.batch_norm(f"{prefix}.downsample.1")


def _basic(net: Convnet, prefix: str, width: int, stride: int) -> None:
    start = net.shape
    _conv_norm(net, prefix, 1, width, 3, stride=stride)
    net.relu(f"{prefix}.relu")
    _conv_norm(net, prefix, 2, width, 3)
    _shortcut(net, prefix, width, stride, start)
    net.add(f"{prefix}.add")
    net.relu(f"{prefix}.relu")


def _bottleneck(net: Convnet, prefix: str, width: int, stride: int, *, v1: bool = False) -> None:
    start = net.shape
    first, second = (stride, 1) if v1 else (1, stride)
    _conv_norm(net, prefix, 1, width, 1, stride=first)
    net.relu(f"{prefix}.relu")
    _conv_norm(net, prefix, 2, width, 3, stride=second)
    net.relu(f"{prefix}.relu")
    _conv_norm(net, prefix, 3, 4 * width, 1)
    _shortcut(net, prefix, 4 * width, stride, start)
    net.add(f"{prefix}.add")
    net.relu(f"{prefix}.relu")


def _stem(net: Convnet) -> None:
    net.conv("conv1", 64, 7, stride=2, padding=3, bias=False)
    net.batch_norm("bn1")
    net.relu("relu")
    net.pool("maxpool", 3, stride=2, padding=1)


def _resnet(blocks: tuple[int, int, int, int], resolution: int, *, basic: bool = False, v1: bool = False) -> Layers:
    net = images(resolution)
    _stem(net)
    for stage, (width, count) in enumerate(zip(_WIDTHS, blocks, strict=True), start=1):
        for index in range(count):
            prefix, stride = f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1
            if basic:
                _basic(net, prefix, width, stride)
            else:
                _bottleneck(net, prefix, width, stride, v1=v1)
    net.pool_to("avgpool", 1)
    net.linear("fc", 1000)
    return tuple(net.layers)


@model(source=_SOURCE)
def resnet18(*, resolution: int = 224) -> Layers:
    """ResNet-18, 11.7 M parameters, two convolutions a block."""
    return _resnet((2, 2, 2, 2), resolution, basic=True)


@model(source=_SOURCE, aliases=("ResNet-50 v1.5",))
def resnet50(*, resolution: int = 224) -> Layers:
    """ResNet-50 v1.5, 25.6 M parameters: the network of every ImageNet record run."""
    return _resnet((3, 4, 6, 3), resolution)


@model(source="He et al., CVPR 2016, table 1; stride in the first 1x1 convolution")
def resnet50_v1(*, resolution: int = 224) -> Layers:
    """ResNet-50 as first published: as many parameters as v1.5, 6 % fewer flop."""
    return _resnet((3, 4, 6, 3), resolution, v1=True)


@model(source=_SOURCE)
def resnet101(*, resolution: int = 224) -> Layers:
    """ResNet-101, 44.5 M parameters."""
    return _resnet((3, 4, 23, 3), resolution)


@model(source=_SOURCE)
def resnet152(*, resolution: int = 224) -> Layers:
    """ResNet-152, 60.2 M parameters."""
    return _resnet((3, 8, 36, 3), resolution)
